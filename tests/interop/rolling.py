"""
A rolling downgrade of three instances under load, exactly-once: with kstate, and as it is done without (delete, restore).

    python -m tests.interop.rolling [--from 4.3.1] [--to 4.2.1] [--way WAY] [--seconds 5]

One instance after the other is stopped, its directory made ready, and started again with the other release, while records
come. Said of each way: the records that the group restored from the broker, for each input partition the longest time in
which nothing of it was committed although there was something, and how long an instance was away: from the request to stop
it until the next one joins the group. What that is longer than, or shorter, is its session. WAYS has the ways.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from .background import Background, load
from .harness import App, Harness, Run
from .releases import BROKER_VERSION
from .starts import BATCHES, HOSTS, restored_by
from .support import application, good, kstate, migrate

RECORD: Final = Path(__file__).resolve().parent / "rolling.jsonl"
WAYS: Final = {
    "migrate": "one after another, with `kstate migrate` between stop and start",
    "sessions": "the same, with sessions longer than a restart",
    "patient": "the same, with sessions and transactions longer than a restart",
    "standby": "the same, with a standby for each task",
    "killed": "the same, but the second instance is killed (`--unclean wipe`)",
    "together": "all stopped, migrated, and started together",
    "together-killed": "the same, but the second instance is killed (`--unclean wipe`)",
    "delete": "one after another, without kstate (the directories are deleted)",
    "static": "one after another, with static members and `kstate migrate`",
    "static-delete": "one after another, with static members, without kstate (the directories are deleted)",
}
_LOOK_SECONDS: Final = 0.1
_SESSION_MS: Final = 45_000
"""The default."""
_LONG_SESSION_MS: Final = {"static": 180_000, "static-delete": 180_000, "sessions": 120_000, "patient": 240_000}
"""Longer than a restart, where that is what is tried."""
_LONG_TRANSACTION_MS: Final = 600_000
"""The default under exactly-once is 10 s."""
_KILLED: Final = 1
"""Which of the instances is killed, where one is."""


@dataclass
class Standstill:
    """How long each input partition stood still although it had records that nobody had processed."""

    bootstrap: str
    app: App
    longest: dict[str, float] = field(default_factory=dict)
    _offsets: dict[str, tuple[int, float]] = field(default_factory=dict)

    def look(self, admin: AdminClient) -> None:
        """Once: what the group has committed, beside what there is."""
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.app.name)]).values()
        inputs = [
            partition for partition in future.result().topic_partitions if partition.topic.startswith(self.app.input)
        ]
        ends = admin.list_offsets(
            {TopicPartition(element.topic, element.partition): OffsetSpec.latest() for element in inputs}
        )
        there = {(at.topic, at.partition): end.result().offset for at, end in ends.items()}
        now = time.monotonic()
        for entry in inputs:
            name = f"{entry.topic.removeprefix(self.app.input + '-')}-{entry.partition}"
            before = self._offsets.get(name)
            if before is not None:
                self.longest[name] = max(self.longest.get(name, 0.0), now - before[1])
            if before is None or before[0] != entry.offset or entry.offset >= there[entry.topic, entry.partition]:
                self._offsets[name] = entry.offset, now

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks ten times a second until the end."""
        enough = threading.Event()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def go_on() -> None:
            while not enough.wait(_LOOK_SECONDS):
                self.look(admin)

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()


def ready(way: str, directory: Path, target: str) -> None:
    """Makes the directory of a stopped instance one that the target release takes."""
    if way.endswith("delete"):
        shutil.rmtree(directory)
        return
    result = migrate(directory, target, "--warnings-ok", "--guarantee", "exactly_once_v2", "--unclean", "wipe")
    assert result.status in (0, 1), result.report
    if way.startswith("together"):
        host, place = directory.parent, directory.parent.parent / "barrier"
        place.mkdir(exist_ok=True)
        arguments = kstate("start-barrier", place, "--hosts", len(HOSTS), "--host", host.name, "--timeout", 100)
        assert arguments.status == 0, arguments.report


@dataclass
class Absences:
    """The instances that are stopped, and how long each was away."""

    stop_times: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def record_stop(self, state: Path) -> None:
        """Record that an instance was stopped or killed."""
        self.stop_times[state.name] = time.monotonic()

    def record_return(self, state: Path, instance: Background) -> None:
        """Record that an instance runs: it joined the group when it began to rebalance."""
        joined = next(at for at, event in instance.events if event["event"] == "state")
        self.seconds.append(joined - self.stop_times[state.name])


def logs_of(directory: Path) -> frozenset[tuple[str, int]]:
    """The changelog partitions of what lies in a directory."""
    rows = kstate("ls", directory, "-o", "json").rows
    return frozenset((topic, int(entry)) for row in rows if row["type"] == "store"
                     for topic, of in row["changelog"].items() for entry in of)  # fmt: skip


def roll(
    harness: Harness, way: str, source: str, target: str, between: float, *, first: int = len(HOSTS)
) -> dict[str, object]:
    """One way, from an application that has worked to one that works with the other release, or its first instances do."""
    app = application("kinds", "eos")
    batch = replace(BATCHES["large"], records=20_000)
    states = [harness.folder / app.name / host for host in HOSTS]
    harness.produce(BROKER_VERSION, app, batch)
    backgrounds: list[Background] = []

    session = _LONG_SESSION_MS.get(way, _SESSION_MS)

    def instance(version: str, state: Path, mark: str) -> Background:
        conf = {"group.protocol": "classic", "session.timeout.ms": str(session)}
        if way.startswith("static"):
            conf["group.instance.id"] = f"{app.name}-{state.name}"
        if way == "patient":
            conf["producer.transaction.timeout.ms"] = str(_LONG_TRANSACTION_MS)
        if way == "standby":
            conf["num.standby.replicas"] = "1"
        run = Run(read=False, conf=conf, as_of=line_of(source, target), options={"at-once": True})
        background = Background(harness, version, app, state, run, instance=f"{state.name}{mark}")
        backgrounds.append(background)
        return background

    def begun(versions: str, mark: str) -> list[Background]:
        running = [instance(versions, state, mark) for state in states]
        with ThreadPoolExecutor(len(running)) as pool:
            list(pool.map(Background.__enter__, running))
        return running

    absences, lost = Absences(), frozenset[tuple[str, int]]()
    still = Standstill(harness.bootstrap, app)
    running = begun(source, "-before")
    with load(harness, BROKER_VERSION, app, replace(batch, records=1_000, first=batch.records)):
        time.sleep(10)
        before = restored_by(backgrounds, time.monotonic())
        began = time.monotonic()
        with still.watched():
            if way.startswith("together"):
                for state in states:
                    absences.record_stop(state)
                if way.endswith("killed"):
                    kill(running.pop(_KILLED))
                    lost = logs_of(states[_KILLED] / app.name)
                stop(running)
                with ThreadPoolExecutor(len(states)) as pool:
                    list(pool.map(lambda state: ready(way, state / app.name, target), states))
                running = begun(target, "-after")
                for state, entry in zip(states, running, strict=True):
                    absences.record_return(state, entry)
            else:
                for at, state in enumerate(states[:first]):
                    absences.record_stop(state)
                    if way == "killed" and at == _KILLED:
                        kill(running[at])
                        lost = logs_of(state / app.name)
                    else:
                        stop([running[at]])
                    ready(way, state / app.name, target)
                    running[at] = instance(target, state, "-after")
                    running[at].__enter__()
                    absences.record_return(state, running[at])
                    time.sleep(between)
            seconds = time.monotonic() - began
            time.sleep(15)
    now = time.monotonic()
    results = restored_by(backgrounds, now) - before
    stop(running)
    harness.delete(BROKER_VERSION, app)
    gaps = sorted(still.longest.values())
    row = {
        "way": way, "from": source, "to": target, "restored": results.total(), "most": dict(results.most_common(3)),
        "seconds": round(seconds, 1), "away": round(max(absences.seconds), 1), "session": session // 1000,
        "still_median": round(gaps[len(gaps) // 2], 1), "still_longest": round(gaps[-1], 1), "partitions": len(gaps),
    }  # fmt: skip
    if first < len(HOSTS):
        row["only"] = first
    if lost:
        row["of_the_killed"] = results.total() - (restored_by(backgrounds, now, but=lost) - before).total()
    return row


def line_of(*versions: str) -> str:
    """The topology is that of the older release."""
    return min((version.rpartition(".")[0] for version in versions), key=lambda entry: [*map(int, entry.split("."))])


def kill(instance: Background) -> None:
    """By SIGKILL: nothing is closed."""
    os.kill(instance.pid, signal.SIGKILL)
    instance.__exit__(None, None, None)


def stop(instances: Sequence[Background]) -> None:
    """Closed, as an orderly stop does."""
    with ThreadPoolExecutor(len(instances)) as pool:
        for reply in pool.map(Background.finish, instances):
            good(reply)
    for instance in instances:
        instance.__exit__(None, None, None)


def read_record() -> list[dict[str, Any]]:
    """The rows of the record."""
    return [*map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())] if RECORD.exists() else []


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", default="4.3.1")
    parser.add_argument("--to", dest="target", default="4.2.1")
    parser.add_argument("--way", choices=WAYS, action="append", help="several times; all without")
    parser.add_argument("--seconds", type=float, default=5, help="between two instances")
    parser.add_argument(
        "--first", type=int, default=len(HOSTS), help="so many instances are gone through, one after another"
    )
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kstate-rolling-"))
    try:
        with Harness(folder, "group.initial.rebalance.delay.ms=3000") as harness:
            for way in args.way or WAYS:
                row = roll(harness, way, args.source, args.target, args.seconds, first=args.first)
                print(json.dumps(row), flush=True)
                with RECORD.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
