"""Two hosts of one application lose everything: what a restoration is worth is decided by how they start."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .background import Background
from .dumping import dump
from .harness import App, Harness, Run
from .restoring import changelogs, restore, write_spec
from .starts import BATCHES
from .support import application, good, restored_records

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
CLASSIC = {"group.protocol": "classic"}


def start_instances(harness: Harness, app: App, states: list[Path], apart: float) -> dict[str, int]:
    """Starts an instance on each state.dir, `apart` seconds after each other; store -> the records that the group restored."""
    gate = {} if apart else {"gate": str(states[0].with_name("gate")), "gate-size": len(states)}
    instances = [
        Background(harness, RELEASE, app, state, Run(read=False, conf=CLASSIC, options=dict(gate)), instance=str(at))
        for at, state in enumerate(states)
    ]
    with ThreadPoolExecutor(len(states)) as pool:
        running = []
        for number, instance in enumerate(instances):
            if number:
                time.sleep(apart)
            running.append(pool.submit(instance.__enter__))
        for entry in running:
            entry.result()
        replies = list(pool.map(Background.finish, instances))
        for instance in instances:
            instance.__exit__(None, None, None)
    together: Counter[str] = Counter()
    for reply in replies:
        together.update(restored_records(good(reply)))
    return {store: records for store, records in together.items() if store != "kv-memory"}


@pytest.mark.in_full("tests/restore/test_hosts.py::test_they_end_together")
@pytest.mark.parametrize("guarantee", ["eos", "alos"])
def test_start_on_two_restored_shares(tmp_path: Path, guarantee: str) -> None:
    """Together, as the barrier lets them go: nothing is restored. Nine seconds apart: what lay ready on the later host is."""
    with Harness(tmp_path / "harness", "group.initial.rebalance.delay.ms=3000") as harness:
        two_shares(harness, tmp_path, guarantee)


def two_shares(harness: Harness, tmp_path: Path, guarantee: str) -> None:
    app = application("kinds", guarantee)
    harness.produce(RELEASE, app, BATCHES["large"])
    first = good(harness.run(RELEASE, app, tmp_path / "whole", Run(read=False)))
    lines = [word for topic in changelogs(first) if not topic.endswith("-changelog") for word in ("--topic", topic)]
    dump(harness, tmp_path / "dump", "--app", app.name, *lines)
    spec = write_spec(tmp_path / "whole" / app.name, tmp_path / "kstate.toml", memory=True)

    def shares(folder: Path) -> list[Path]:
        states = [folder / "a", folder / "b"]
        place = folder / "place"
        place.mkdir(parents=True)

        def host(number: int) -> None:
            states[number - 1].mkdir()
            options = ("--share", f"{number}/2", "--barrier", str(place), "--barrier-timeout", "300")
            result = restore(states[number - 1] / app.name, tmp_path / "dump", RELEASE, spec, *options)
            assert result.summary["barrier"] == "passed"

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(host, (1, 2)))
        return states

    assert start_instances(harness, app, shares(tmp_path / "together"), 0) == {}
    assert start_instances(harness, app, shares(tmp_path / "apart"), 9)
