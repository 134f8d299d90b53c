"""What the tests and the campaign of snapshots of running applications share: taking, comparing with the log, starting."""

from __future__ import annotations

import json
import random
import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import Shadow

from . import dumps
from .dumping import Record, on_broker
from .expiry import PATIENT, RETENTION_MS, Changelog, read_changelogs
from .harness import App, Batch, Guarantee, Harness, Run
from .support import good, restored_records, wipes_task
from .test_beside_running import here

TOPOLOGY = "parts:count+reduce+window-count+session-count+last-count+removed,source-table"
"""Every topic that a batch of load has: the next batch waits until the application has consumed them."""
STORES = ("count", "reduce", "window-count", "session-count", "last-count", "removed")
"""Those with a changelog of their own: the log of source-table is its source topic."""
WINDOWED = ("window-count", "session-count")
SMALL = {"rocksdb.config.setter": "interop.SmallBuffers", "statestore.cache.max.bytes": "0"}
TRANSACTIONAL = {"enable.transactional.statestores": "true"}
SHORT_SESSIONS = {
    "session.timeout.ms": "1500", "heartbeat.interval.ms": "300", "producer.transaction.timeout.ms": "10000",
}  # fmt: skip
"""A thread that has failed does not leave its group: the next one waits for the end of its session, and of its transaction."""
BATCH = Batch(records=2500, keys=30, value_bytes=220, partitions=1)
MAIN = "0_0"
"""The task that has them."""
_MOST_SECONDS = 300
_TIME = struct.Struct(">q")
_TIMES = {"window": "start", "session": "end"}
"""Kind of a row -> the time by which it expires."""


@dataclass(frozen=True)
class Case:
    """A release, its guarantee, and the settings that matter."""

    release: str
    guarantee: Guarantee
    snapshots: int
    conf: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    topology: str = TOPOLOGY
    main: str | None = MAIN
    """The task that each snapshot must have; None: any task counts."""
    is_warm: bool = False
    """The snapshots begin when the application has consumed a batch: before that, Kafka Streams has written no offset."""


AT_LEAST_ONCE = ("--guarantee", "at_least_once")
CASES = [
    Case("4.3.1", "alos", 8, options=AT_LEAST_ONCE),
    Case("4.2.1", "alos", 6, options=AT_LEAST_ONCE),
    Case("4.4.0", "eos", 6, {**TRANSACTIONAL, "producer.transaction.timeout.ms": "5000"}),
]


@dataclass
class Figures:
    """The figures of one case, which the test prints."""

    snapshots: int = 0
    skipped: int = 0
    windowed: int = 0
    """Stores with segments, of snapshots that read the log of the broker."""
    usable: int = 0
    """Those of them whose offset is known."""
    skips: Counter[str] = field(default_factory=Counter)
    """Why tasks were not captured."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why the offset of each other one is unknown."""
    tails: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a running application, and what ``snapshot`` printed about it."""

    name: str
    with_broker: bool
    tasks: frozenset[str]
    reasons: dict[str, str]
    """Store of the main task -> why its offset is unknown."""


def expected_row(store: str, record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a row as the store has it: with the timestamp in front, but for sessions."""
    _, key, value, timestamp, _ = record
    assert key is not None
    if value is None or store == "session-count":
        return key, value
    return key, _TIME.pack(timestamp) + value


def replay(store: str, rows: dict[bytes, bytes], records: list[Record]) -> dict[bytes, bytes]:
    """Return rows after records of the log; a deletion removes a row."""
    result = dict(rows)
    for record in records:
        key, value = expected_row(store, record)
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def live_rows(store: str, rows: dict[bytes, bytes], newest: int) -> dict[bytes, bytes]:
    """Return rows without those of windows and sessions that have expired: a release may have dropped their segment."""
    if store not in WINDOWED:
        return rows
    return {key: value for key, value in rows.items() if _end(store, key) > newest - RETENTION_MS}


def _end(store: str, key: bytes) -> int:
    begin = -16 if store == "session-count" else -12
    return int(_TIME.unpack(key[begin : begin + 8])[0])


def rows_of(directory: Path, store: str) -> dict[bytes, bytes]:
    """Return the rows of a store, whatever its segments."""
    rows: dict[bytes, bytes] = {}
    for path in sorted(directory.rglob("CURRENT")):
        if store in path.parts:
            with Shadow(path.parent) as shadow:
                for family in shadow.column_families:
                    if family != OFFSETS_CF:
                        rows.update(shadow.rows(family))
    return rows


def moments(count: int, longest: float, seed: int) -> Iterator[float]:
    """Yield pauses of random length in seconds."""
    generator = random.Random(seed)
    for _ in range(count):
        yield generator.uniform(0, longest)


@dataclass(frozen=True)
class Taking:
    """How many snapshots are taken, and when."""

    count: int
    most: int = 0
    """Attempts; 0: twenty for each."""
    bootstrap: str = ""
    """The broker of three of four snapshots."""
    longest_pause: float = 0.7
    seed: int = 0


def take(directory: Path, repository: Path, case: Case, figures: Figures, taking: Taking) -> list[Snapshot]:
    """Take snapshots at random moments, until there are so many."""
    snapshots: list[Snapshot] = []
    deadline = time.monotonic() + _MOST_SECONDS
    for pause in moments(taking.most or 20 * taking.count, taking.longest_pause, taking.seed or taking.count):
        if len(snapshots) == taking.count or time.monotonic() > deadline:
            break
        time.sleep(pause)
        with_broker = bool(taking.bootstrap) and len(snapshots) % 4 != 3
        broker = ("--bootstrap-server", taking.bootstrap) if with_broker else ()
        captured = here("snapshot", directory, "--out", repository, *case.options, *broker, "-o", "json")
        assert captured.status in (0, 1, 4), captured.report
        rows = [row for row in captured.rows if row["type"] == "store"]
        for row in captured.rows:
            if row["type"] == "skipped":
                figures.skips[f"{row['task']}: {row['message']}"] += 1
        tasks = frozenset(row["task"] for row in rows)
        if not tasks or case.main not in (None, *tasks):
            figures.skipped += 1
            continue
        reasons = {row["store"]: row["offset_reason"] for row in rows if row["task"] == MAIN and row["offset_reason"]}
        snapshots.append(Snapshot(captured.summary["snapshot"], with_broker, tasks, reasons))
        figures.snapshots += 1
    return snapshots


@dataclass
class Logs:
    """The changelogs of the main task, and the rows that each of them leads to."""

    app: App
    records: dict[TopicPartition, list[Record]]
    wholes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    @classmethod
    def read(cls, harness: Harness, app: App, folder: Path) -> Logs:
        """Read all of them, as a consumer with read_committed does."""
        return cls(app, on_broker(harness, [f"{app.name}-{store}-changelog" for store in STORES], folder))

    def of(self, store: str) -> list[Record]:
        """Return the records of a store."""
        return self.records[TopicPartition(f"{self.app.name}-{store}-changelog", 0)]

    def whole(self, store: str) -> dict[bytes, bytes]:
        """Return the rows after all records."""
        if store not in self.wholes:
            self.wholes[store] = replay(store, {}, self.of(store))
        return self.wholes[store]


def restore(directory: Path, repository: Path, snapshot: Snapshot) -> None:
    """Restore a snapshot to a new directory."""
    directory.parent.mkdir()
    restored = here("restore", directory, "--from-snapshot", repository, "--generation", snapshot.name, "--warnings-ok",
                "-o", "json")  # fmt: skip
    assert restored.status == 0, restored.report


def compare(directory: Path, logs: Logs, figures: Figures, snapshot: Snapshot) -> dict[str, int]:
    """Compare the rows of a restored directory and the rest of the log with the whole log; return the offsets."""
    offsets: dict[str, int] = {}
    listed = here("ls", directory, "-o", "json")
    for row in listed.rows:
        if row["type"] != "store" or row["store"] not in STORES:
            continue
        store = row["store"]
        app = logs.app
        offset = row["changelog"].get(f"{app.name}-{store}-changelog", {}).get("0", -4)
        offsets[store] = offset
        records = logs.of(store)
        newest = max((_end(store, record[1] or b"") for record in records), default=0) if store in WINDOWED else 0
        tail = [record for record in records if record[0] > offset]
        whole = live_rows(store, logs.whole(store), newest)
        ours = live_rows(store, replay(store, rows_of(directory, store), tail), newest)
        assert ours == whole, (store, offset, len(records), _difference(ours, whole))
        figures.tails.append(len(tail))
        assert offset < 0 or store not in snapshot.reasons, (store, offset, snapshot)
        if store in WINDOWED and snapshot.with_broker:
            figures.windowed += 1
            figures.usable += offset >= 0
            if offset < 0:
                why = snapshot.reasons.get(store, "its segments have rows, and state no offset yet")
                figures.reasons[why.replace(app.name, "APP")] += 1
    assert offsets.keys() == set(STORES), listed.report
    return offsets


def _difference(ours: dict[bytes, bytes], whole: dict[bytes, bytes]) -> str:
    lacking = [key for key in whole if ours.get(key) != whole[key]]
    return f"{len(lacking)} rows differ or are missing, {len(ours.keys() - whole.keys())} too many: {lacking[:3]}"


def compare_each(
    logs: Logs, repository: Path, snapshots: Iterable[Snapshot], figures: Figures, folder: Path
) -> list[dict[str, int]]:
    """Restore each snapshot below a folder, and compare it with the whole log; return the offsets of each."""
    offsets = []
    for snapshot in snapshots:
        home = folder / snapshot.name
        restore(home / logs.app.name, repository, snapshot)
        offsets.append(compare(home / logs.app.name, logs, figures, snapshot))
        shutil.rmtree(home)
    return offsets


@dataclass
class Starts:
    """
    Starts of the release on restored directories: it restores exactly the records behind the offset, and wipes nothing.

    Between them nothing is produced. So after the first one has consumed the rest of the input, logs and contents stay the same.
    """

    harness: Harness
    case: Case
    app: App
    folder: Path
    """For the logs, and for what stores have."""
    ignore: tuple[str, ...] = ()
    """Stores without a changelog, or in memory."""
    logs: dict[tuple[str, int], Changelog] = field(default_factory=dict)
    """As they are after the first start."""

    @property
    def conf(self) -> dict[str, str]:
        """The settings of each start."""
        return {**SMALL, **PATIENT, **self.case.conf}

    def start(self, state: Path, offsets: dict[str, int]) -> int:
        """Start once; return how many records were restored. ``offsets``: store -> its offset, of task 0_0."""
        harness, case, app = self.harness, self.case, self.app
        logs = self.logs
        if not logs.keys() >= {(f"{app.name}-{store}-changelog", 0) for store in offsets}:
            # The first start, or a snapshot that has other tasks.
            logs = self._read_logs(offsets)
        reply = good(harness.run(case.release, app, state, Run(conf=self.conf, read=False)))
        # The scan at the start of 4.4 logs that it wipes a task without an offset, and wipes nothing: the counts prove it.
        assert case.conf.keys() & TRANSACTIONAL.keys() or not wipes_task(reply), reply.report()
        counts = restored_records(reply)
        for store, offset in offsets.items():
            log = logs[f"{app.name}-{store}-changelog", 0]
            # Of windows without an offset some releases read only what has not expired.
            firsts = log.first_reads(case.release, offset + 1 if offset >= 0 else None)
            assert counts.get(store, 0) in {log.counted(first) for first in firsts}, (store, counts, offsets)
        served, truth = self.folder / "served.jsonl", self.folder / "truth.jsonl"
        again = Run(conf=self.conf, dump=served, expect_no_restore=True, may_restore=[*self.ignore])
        good(harness.run(case.release, app, state, again))
        if not self.logs:
            self.logs = self._read_logs(offsets)
            nothing = self.folder / "nothing"
            good(harness.run(case.release, app, nothing, Run(conf=self.conf, read=False)))
            good(harness.run(case.release, app, nothing, Run(conf=self.conf, dump=truth)))
            shutil.rmtree(nothing)
        self._drop_expired(truth, served)
        assert not [str(difference) for difference in dumps.differences(truth, served, ignore=self.ignore)]
        return sum(counts.values())

    def _drop_expired(self, *paths: Path) -> None:
        """
        Remove windows and sessions that have expired from dumps, as `live_rows` does.

        A release that restores only what has not expired does not have them. A copy of its files may, until it drops a segment.
        """
        dumped = {path: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths}
        newest: dict[str, int] = {}
        for row in [row for rows in dumped.values() for row in rows if row["kind"] in _TIMES]:
            newest[row["store"]] = max(newest.get(row["store"], 0), row[_TIMES[row["kind"]]])
        for path, rows in dumped.items():
            live = [
                row
                for row in rows
                if row["kind"] not in _TIMES or row[_TIMES[row["kind"]]] > newest[row["store"]] - RETENTION_MS
            ]
            path.write_text("".join(f"{json.dumps(row)}\n" for row in live), encoding="utf-8")

    def _read_logs(self, stores: Iterable[str]) -> dict[tuple[str, int], Changelog]:
        topics, folder = [f"{self.app.name}-{store}-changelog" for store in stores], self.folder / "logs-of-a-start"
        shutil.rmtree(folder, ignore_errors=True)
        return read_changelogs(self.harness, self.case.release, topics, folder)


def remove_half_created(directory: Path) -> None:
    """Remove databases without CURRENT: after a kill that hit their creation, no start of Streams can open them."""
    for log in [*directory.rglob("*.log")]:
        if log.parent.is_dir() and not (log.parent / "CURRENT").exists():
            shutil.rmtree(log.parent)


def start_each(starts: Starts, repository: Path, snapshots: Iterable[tuple[Snapshot, dict[str, int]]]) -> int:
    """Restore each snapshot with its offsets, and start the release on it; return the records that all starts restored.

    A start adds records to the log: comparisons with the log come before.
    """
    records = 0
    for snapshot, offsets in snapshots:
        home = starts.folder / snapshot.name
        restore(home / starts.app.name, repository, snapshot)
        records += starts.start(home, offsets)
        shutil.rmtree(home)
    return records
