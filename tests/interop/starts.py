"""
What a restore is worth is decided by the starts after it: three real instances, each with a state.dir of its own.

    python -m tests.interop.starts [--only TEXT]

runs the cases that tests/interop/starts.jsonl lacks, one after another, and may be stopped at any moment; the table in
docs/how-to/fleet.md is made from it (python -m tests.marked_tables). Each case: what the group restored from the broker until
all instances were RUNNING, and what it restored after that, past the cleaner's delay and a probing rebalance. An
instance's `acceptable.recovery.lag` and warm-up replicas are at their defaults where a case does not say otherwise.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Final

from .background import Background
from .dumping import dump
from .harness import App, Harness, Run
from .restoring import changelogs, restore, write_spec
from .support import BATCH, application, good, kstate

RECORD: Final = Path(__file__).resolve().parent / "starts.jsonl"
RELEASE: Final = "4.3.1"
BATCHES: Final = {
    "small": replace(BATCH, records=2_000, keys=400, partitions=4),
    "large": replace(BATCH, records=60_000, keys=4_000, partitions=4),
}
"""A host without a task's state lags behind by all of its changelogs: here below ``acceptable.recovery.lag``, 10,000, and above."""
HOSTS: Final = ("a", "b", "c")
IN_MEMORY: Final = {"kv-memory"}
_CLEANED_MS: Final = 20_000
_PROBED_MS: Final = 60_000
"""The least that Streams takes."""
_WATCHED_SECONDS: Final = 70
_FORGOTTEN_SECONDS: Final = 60
"""Longer than a session lasts without heartbeats, 45 s."""


@dataclass(frozen=True)
class Case:
    """One way to start again."""

    lost: str
    """"all": each host restored its share of all tasks; "whole": each restored all. They have run before, and were stopped:
    "none": that is all; "down": a minute has passed since, so that the group has forgotten them; "one": the last host has
    lost its directory, and restored what nobody else had."""
    protocol: str
    delay_ms: int
    """The broker's ``group.initial.rebalance.delay.ms``; with the streams protocol nobody waits for it."""
    apart: int
    """Seconds between two starts."""
    standby: int = 0
    static: bool = False
    size: str = "large"
    lag: int | None = None
    """``acceptable.recovery.lag``, where it is not the default."""
    barrier: bool = False
    """Each waits for the others (``kstate start-barrier``) before it starts."""

    @property
    def broker(self) -> str:
        """Properties of the broker that it needs."""
        standbys = f"group.streams.num.standby.replicas={self.standby}\n" if self.protocol == "streams" else ""
        return f"{standbys}group.initial.rebalance.delay.ms={self.delay_ms}"

    @property
    def name(self) -> str:
        """For the record and the command line."""
        lag = "" if self.lag is None else f"-lag{self.lag}"
        extra = f"{'-standby' * self.standby}{'-static' * self.static}{'-barrier' * self.barrier}{lag}"
        return f"{self.size}-{self.lost}-{self.protocol}-delay{self.delay_ms}-apart{self.apart}{extra}"


def cases() -> list[Case]:
    """Those that tell most come first."""
    small = [Case("all", "classic", 3000, 0, size="small", lag=lag) for lag in (None, 0)]
    first = [Case("all", protocol, 3000, apart) for protocol, apart in product(("classic", "streams"), (0, 5))]
    more = [Case("all", protocol, delay, apart)
            for protocol, delay, apart in product(("classic", "streams"), (3000, 0), (0, 1, 5, 30))
            if protocol == "classic" or delay]  # fmt: skip
    kinds = [Case("all", "classic", 3000, apart, standby, static)
             for apart, (standby, static) in product((0, 5), ((1, False), (0, True)))]  # fmt: skip
    entry = [Case("one", protocol, 3000, apart) for protocol, apart in product(("classic", "streams"), (0, 5))]
    entry += [Case("one", "classic", 3000, 0, standby, static) for standby, static in ((1, False), (0, True))]
    whole = [Case("whole", protocol, 3000, apart) for protocol, apart in product(("streams", "classic"), (5,))]
    none = [Case("none", protocol, 3000, 0) for protocol in ("streams", "classic")]
    none += [replace(case, lost="down") for case in none]
    barriers = [Case("all", protocol, 3000, apart, barrier=True)
                for protocol, apart in (("classic", 5), ("classic", 30), ("streams", 5))]  # fmt: skip
    standbys = [Case("all", "streams", 3000, 0, standby=1), Case("one", "streams", 3000, 0, standby=1)]
    return list(dict.fromkeys([*small, *first, *entry, *kinds, *whole, *none, *barriers, *standbys, *more]))


def read_record() -> dict[str, dict[str, object]]:
    """Name of a case -> its row."""
    if not RECORD.exists():
        return {}
    return {row["case"]: row for row in map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())}


class Group:
    """An application whose whole state a folder has, with a dump of it."""

    def __init__(self, harness: Harness, folder: Path, size: str) -> None:
        """Makes it, of this size."""
        self.harness, self.folder = harness, folder
        self.app: App = application("kinds", "eos")
        harness.produce(RELEASE, self.app, BATCHES[size])
        whole = folder / "whole"
        first = good(harness.run(RELEASE, self.app, whole, Run(read=False, options={"timeout": 600, "threads": 2})))
        sources = [
            word for topic in changelogs(first) if not topic.endswith("-changelog") for word in ("--topic", topic)
        ]
        dump(harness, folder / "dump", "--app", self.app.name, *sources)
        self.spec = write_spec(whole / self.app.name, folder / "kstate.toml", memory=True)

    def restored(self, folder: Path, host: str, *options: str) -> Path:
        """The state.dir of a host, restored from the dump."""
        state = folder / host
        state.mkdir(parents=True)
        restore(state / self.app.name, self.folder / "dump", RELEASE, self.spec, *options)
        return state

    def shares(self, folder: Path) -> list[Path]:
        """Each host has its share."""
        return [self.restored(folder, host, "--share", f"{at}/{len(HOSTS)}") for at, host in enumerate(HOSTS, 1)]

    def wholes(self, folder: Path) -> list[Path]:
        """Each host has everything."""
        return [self.restored(folder, host) for host in HOSTS]

    def lose_one(self, folder: Path, states: Sequence[Path]) -> None:
        """The last host restores what it had, which nobody has."""
        messages = {}
        for state in states:
            listing = kstate("ls", state / self.app.name, "-o", "json")
            messages[state] = state.with_suffix(".json")
            messages[state].write_text(listing.out, encoding="utf-8")
        for name, files in (("before", [*messages.values()]), ("now", [*messages.values()][:-1])):
            fleet = kstate("fleet", *files, "-o", "json")
            (folder / f"{name}.json").write_text(fleet.out, encoding="utf-8")
        shutil.rmtree(states[-1])
        texts = ("--missing", str(folder / "now.json"), "--before", str(folder / "before.json"), "--host", HOSTS[-1])
        self.restored(folder, HOSTS[-1], *texts)


def restored_by(
    instances: Sequence[Background], until: float, *, but: Collection[tuple[str, int]] = ()
) -> Counter[str]:
    """Store on disk -> the records that all of them had restored by then, those of some changelog partitions left out."""
    counts: Counter[str] = Counter()
    for instance in instances:
        for at, event in list(instance.events):
            if (
                event["event"] in ("restore-end", "restore-suspended")
                and at <= until
                and event["store"] not in IN_MEMORY
                and (event["topic"], event["partition"]) not in but
            ):
                counts[event["store"]] += event["restored"]
    return counts


def tasks_of(instance: Background) -> tuple[list[str], list[str]]:
    """The active and standby tasks that it said last."""
    events = [event for _, event in instance.events if event["event"] == "tasks"]
    return (events[-1]["active"], events[-1]["standby"]) if events else ([], [])


def begin(instance: Background, host: str, place: Path | None) -> None:
    """Starts an instance, once all have come to the barrier at ``place``, if there is one."""
    if place is not None:
        at = place / "barrier"
        at.mkdir(parents=True, exist_ok=True)
        arguments = kstate("start-barrier", at, "--hosts", len(HOSTS), "--host", host, "--timeout", 300)
        assert arguments.status == 0, arguments.report
    instance.__enter__()


def start(group: Group, case: Case, states: Sequence[Path]) -> dict[str, object]:
    """Starts the instances, watches them, and says what they restored."""
    conf = {"group.protocol": case.protocol, "probing.rebalance.interval.ms": str(_PROBED_MS),
            "state.cleanup.delay.ms": str(_CLEANED_MS)}  # fmt: skip
    if case.lag is not None:
        conf["acceptable.recovery.lag"] = str(case.lag)
    if case.protocol == "classic":
        conf["num.standby.replicas"] = str(case.standby)
    instances = []
    for host, state in zip(HOSTS, states, strict=True):
        own = {"group.instance.id": f"{group.app.name}-{host}"} if case.static else {}
        run = Run(read=False, conf={**conf, **own})
        instances.append(Background(group.harness, RELEASE, group.app, state, run, instance=host))
    had = [
        sorted(path.name for path in (state / group.app.name).iterdir() if path.name[0].isdigit()) for state in states
    ]
    began = time.monotonic()
    with ThreadPoolExecutor(len(instances)) as pool:
        running = []
        for number, instance in enumerate(instances):
            time.sleep(case.apart if number else 0)
            running.append(
                pool.submit(begin, instance, HOSTS[number], group.folder / case.name if case.barrier else None)
            )
        for entry in running:
            entry.result()
        ready = time.monotonic()
        time.sleep(_WATCHED_SECONDS)
        result = time.monotonic()
        tasks = [tasks_of(instance) for instance in instances]
        list(pool.map(Background.finish, instances))
        for instance in instances:
            instance.__exit__(None, None, None)
    until, all_of_it = restored_by(instances, ready), restored_by(instances, result)
    total = sum(len(set(now) - set(before)) for (now, _), before in zip(tasks, had, strict=True))
    return {
        "case": case.name, "restored": until.total(), "after": (all_of_it - until).total(), "moved": total,
        "tasks": [len(active) for active, _ in tasks], "standbys": [len(standby) for _, standby in tasks],
        "seconds": round(ready - began, 1),
    }  # fmt: skip


@contextmanager
def started_group(properties: str, size: str) -> Iterator[Group]:
    """A broker with these properties, and an application on it."""
    folder = Path(tempfile.mkdtemp(prefix="kstate-starts-"))
    try:
        with Harness(folder / "harness", properties) as harness:
            yield Group(harness, folder, size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names have this")
    only = parser.parse_args().only
    remainder = [case for case in cases() if only in case.name and case.name not in read_record()]
    for (properties, size, _), some in groupby(remainder, key=lambda case: (case.broker, case.size, case.protocol)):
        with started_group(properties, size) as group:
            for case in some:
                folder = group.folder / case.name
                states = group.wholes(folder) if case.lost == "whole" else group.shares(folder)
                if case.lost in ("one", "none", "down"):
                    start(group, replace(case, apart=0), states)
                if case.lost == "one":
                    group.lose_one(folder, states)
                if case.lost == "down":
                    time.sleep(_FORGOTTEN_SECONDS)
                row = start(group, case, states)
                print(json.dumps(row), flush=True)
                with RECORD.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
