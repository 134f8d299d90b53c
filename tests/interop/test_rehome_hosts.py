"""Sub-topologies are merged whose tasks lie on two hosts: refused, or completed from a dump, each task on one of them.

Topologies are in ``Merging.java``: B has the first two sub-topologies of A in one, the third has another number, and the
repartition topic and the count behind it are gone.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.rehome.model import WhyRefused
from tests.command_result import CommandResult
from tests.directories.support import meaning, tree_hash

from . import dumps
from .background import Background
from .dumping import dump
from .harness import App, Harness, Run
from .jvm import Reply
from .restoring import write_spec
from .support import BATCH, REFUSAL, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
STICKY = {"group.protocol": "classic", "acceptable.recovery.lag": "0"}
"""Stores are so small that any host would count as caught up: who has the state gets the task."""
LOST = {"by-value-count"}
HOSTS = (("0_0", "1_1", "2_0", "3_0", "4_0"), ("0_1", "1_0", "2_1", "3_1", "4_1"))
"""The tasks of each: of both partitions one host has one half of what is 0_0 and 0_1 in B, the other host the other."""


@pytest.mark.in_full(
    "tests/directories/test_rehome_completion.py::test_a_host_completes_the_task_that_the_other_host_releases"
)
def test_half_a_task_on_each_of_two_hosts(tmp_path: Path) -> None:
    # Both instances pass one gate before they start, so that both are there before tasks are given out.
    with Harness(tmp_path / "harness", "group.initial.rebalance.delay.ms=8000") as harness:
        two_hosts(harness, tmp_path)


def two_hosts(harness: Harness, tmp_path: Path) -> None:
    app = application("merge-a", "eos")
    after = replace(app, topology="merge-b")
    harness.produce(RELEASE, app, BATCH)
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    good(harness.run(RELEASE, app, tmp_path / "whole", Run(read=False, options={"describe-into": str(old)})))
    other = App(f"other-{app.name}", "merge-b", "eos", prefix=app.input)
    harness.run(
        RELEASE, other, tmp_path / "other", Run(read=False, options={"describe-into": str(new), "at-once": True})
    )
    good(harness.run(RELEASE, app, tmp_path / "whole", Run(dump=tmp_path / "before.jsonl", expect_no_restore=True)))
    spec = write_spec(tmp_path / "whole" / app.name, tmp_path / "kstate.toml")
    states = [
        on_a_host(tmp_path / "whole" / app.name, tmp_path / f"host-{at}", tasks) for at, tasks in enumerate(HOSTS)
    ]
    together(harness, app, states, tmp_path / "a")  # they are two instances, and restore nothing
    for state, tasks in zip(states, HOSTS, strict=True):
        for warming_up in {path.name for path in (state / app.name).glob("*_*")} - {*tasks}:
            shutil.rmtree(state / app.name / warming_up)  # as the cleaner does it
    dump(harness, tmp_path / "dump", "--app", app.name)

    words = ("--topology", new, "--from", old, "--bootstrap-server", harness.bootstrap, "--wait", "600")
    dumped = ("--from-changelog", tmp_path / "dump", "--for", "4.3", "--spec", spec, "--engine", "local")
    for state in states:
        before = tree_hash(state / app.name)
        refusal = kstate("rehome", state / app.name, *words, "-o", "json")
        assert refusal.status == REFUSAL, refusal.report
        assert json.loads(refusal.out.splitlines()[-1])["code"] == WhyRefused.HALF_A_TASK
        assert tree_hash(state / app.name) == before
    for at, state in enumerate(states):
        directory = state / app.name
        before = meaning(directory)
        result = complete(directory, at, *words, *dumped)
        assert "nothing to do" in kstate("rehome", directory, *words, *dumped).err
        assert kstate("undo", directory).status == 0
        assert meaning(directory) == before
        assert complete(directory, at, *words, *dumped).summary["records"] == result.summary["records"]

    for reply in together(harness, after, states, tmp_path / "b"):
        assert not wipes_task(reply), reply.report()
    parts = [tmp_path / f"b-{at}.jsonl" for at in range(len(states))]
    (tmp_path / "after.jsonl").write_text("".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8")
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "after.jsonl", ignore=LOST)
    assert not [str(entry) for entry in differences]
    assert all(dumps.counts(part).keys() >= {"event-count", "left-window"} for part in parts)


def on_a_host(directory: Path, state: Path, tasks: tuple[str, ...]) -> Path:
    """A state.dir with these tasks, and an id of its own for the process."""
    here = state / directory.name
    here.mkdir(parents=True)
    for task in tasks:
        shutil.copytree(directory / task, here / task, symlinks=True)
    (here / ".lock").touch()
    return state


def complete(directory: Path, at: int, *words: object) -> CommandResult:
    """Its own half is completed, and that of the other host leaves: which one that is a warning says."""
    result = kstate("rehome", directory, *words, "-o", "json")
    assert result.status == 1, result.report
    built = {(row["task"], row["store"]) for row in result.rows if row["type"] == "store"}
    assert built == {(f"0_{at}", "left-window")}
    text = (
        f"0_{1 - at}: kstate removes 1_{1 - at} from this host, because the host that has 0_{1 - at} "
        f"completes 0_{1 - at}"
    )
    assert [row["message"].partition(". If no host does")[0] for row in result.rows if row["type"] == "warning"] == [
        text
    ]
    assert {path.name for path in directory.glob("*_*")} == {f"0_{at}", f"1_{at}"}
    return result


def together(harness: Harness, app: App, states: list[Path], into: Path) -> list[Reply]:
    """Starts an instance on each state.dir at once, reads its stores, and stops it. None restores a record."""
    gate = {"gate": str(into.with_name(f"{into.name}-gate")), "gate-size": len(states)}
    instances = [
        Background(
            harness,
            RELEASE,
            app,
            state,
            Run(dump=into.with_name(f"{into.name}-{at}.jsonl"), conf=STICKY, options=dict(gate)),
            instance=str(at),
        )
        for at, state in enumerate(states)
    ]
    with ThreadPoolExecutor(len(states)) as pool:
        for submit in [pool.submit(instance.__enter__) for instance in instances]:
            submit.result()
        replies = list(pool.map(Background.finish, instances))
        for instance in instances:
            instance.__exit__(None, None, None)
    assert not [stores for reply in replies if (stores := restored_records(good(reply)))]
    return replies
