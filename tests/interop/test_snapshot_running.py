"""
Snapshots of real applications under load, at random moments, while RocksDB flushes, compacts and drops segments all the time.

Each snapshot is restored. Its rows with the rest of the log are compared with the whole log, without kstate. One in ten is
started with the real release after a kill -9 of the application: it restores exactly the records behind the offset.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import Shadow

from . import dumps
from .background import LONG_SESSIONS, Background, load
from .dumping import Record, on_broker
from .expiry import RETENTION_MS
from .harness import App, Batch, Guarantee, Harness, Run
from .support import application, good, restored, wiped
from .test_beside_running import here

pytestmark = pytest.mark.interop

TOPOLOGY = "parts:count+reduce+window-count+session-count+last-count+removed,source-table"
"""Every topic that a batch of load has: the next batch waits until the application has consumed them."""
STORES = ("count", "reduce", "window-count", "session-count", "last-count", "removed")
"""Those with a changelog of their own: the log of source-table is its source topic."""
WINDOWED = ("window-count", "session-count")
SMALL = {"rocksdb.config.setter": "interop.SmallBuffers", "statestore.cache.max.bytes": "0"}
TRANSACTIONAL = {"enable.transactional.statestores": "true"}
SHORT_SESSIONS = {"session.timeout.ms": "1500", "heartbeat.interval.ms": "300"}
"""A thread that has failed does not leave its group: the next one waits for the end of its session."""
BATCH = Batch(records=2500, keys=30, value_bytes=220, partitions=1)
SNAPSHOTS = int(os.environ.get("KSTATE_SNAPSHOTS", "0"))
"""Snapshots of each case; 0: as many as CI takes."""
MAIN = "0_0"
"""The task that has them."""
_MOST_SECONDS = 300
_TIME = struct.Struct(">q")


@dataclass(frozen=True)
class Case:
    """A release, its guarantee, and the settings that matter."""

    release: str
    guarantee: Guarantee
    snapshots: int
    conf: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


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
    tails: list[int] = field(default_factory=list)


def expected_row(store: str, record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a row as the store has it: with the timestamp in front, but for sessions."""
    _, key, value, timestamp, _ = record
    assert key is not None
    if value is None or store == "session-count":
        return key, value
    return key, _TIME.pack(timestamp) + value


def replayed(store: str, rows: dict[bytes, bytes], records: list[Record]) -> dict[bytes, bytes]:
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


def moments(count: int) -> Iterator[float]:
    """Yield pauses of random length."""
    generator = random.Random(count)
    for _ in range(count):
        yield generator.uniform(0, 0.7)


def take(
    directory: Path, repository: Path, case: Case, figures: Figures, count: int, most: int = 0, bootstrap: str = ""
) -> list[str]:
    """Take snapshots at random moments, until there are so many, and return their names; each fourth without broker."""
    names: list[str] = []
    deadline = time.monotonic() + _MOST_SECONDS
    for pause in moments(most or 20 * count):
        if len(names) == count or time.monotonic() > deadline:
            break
        time.sleep(pause)
        broker = ("--bootstrap-server", bootstrap) if bootstrap and len(names) % 4 != 3 else ()
        done = here("snapshot", directory, "--out", repository, *case.options, *broker, "-o", "json")
        assert done.status in (0, 1, 4), done.report
        if (MAIN, STORES[0]) not in {(row.get("task"), row.get("store")) for row in done.rows}:
            figures.skipped += 1
            print(done.err)
            continue
        names.append(done.summary["snapshot"])
        figures.snapshots += 1
    return names


def compare(
    directory: Path, app: App, logs: dict[TopicPartition, list[Record]], figures: Figures, *, with_broker: bool = False
) -> dict[str, int]:
    """Compare the rows of a restored directory and the rest of the log with the whole log; return the offsets."""
    offsets: dict[str, int] = {}
    listed = here("ls", directory, "-o", "json")
    for row in listed.rows:
        if row["type"] != "store" or row["store"] not in STORES:
            continue
        store = row["store"]
        key = TopicPartition(f"{app.name}-{store}-changelog", 0)
        offset = row["changelog"].get(key.topic, {}).get("0", -4)
        offsets[store] = offset
        records = logs[key]
        newest = max((_end(store, record[1] or b"") for record in records), default=0) if store in WINDOWED else 0
        tail = [record for record in records if record[0] > offset]
        whole = live_rows(store, replayed(store, {}, records), newest)
        ours = live_rows(store, replayed(store, rows_of(directory, store), tail), newest)
        assert ours == whole, (store, offset, len(records), _difference(ours, whole))
        figures.tails.append(len(tail))
        if store in WINDOWED and with_broker:
            figures.windowed += 1
            figures.usable += offset >= 0
    assert offsets.keys() == set(STORES), listed.report
    return offsets


def _difference(ours: dict[bytes, bytes], whole: dict[bytes, bytes]) -> str:
    lacking = [key for key in whole if ours.get(key) != whole[key]]
    return f"{len(lacking)} rows differ or are missing, {len(ours.keys() - whole.keys())} too many: {lacking[:3]}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.release}-{case.guarantee}")
def test_each_snapshot_with_the_rest_of_the_log_is_the_whole_log(harness: Harness, tmp_path: Path, case: Case) -> None:
    app = App(application("parts", case.guarantee).name, TOPOLOGY, case.guarantee)
    state, repository = tmp_path / "state", tmp_path / "repository"
    figures, count = Figures(), SNAPSHOTS or case.snapshots
    harness.produce(case.release, app, BATCH)
    conf = {**SMALL, **LONG_SESSIONS, **case.conf}
    with Background(harness, case.release, app, state, Run(conf=conf, read=False)) as running:
        with load(harness, case.release, app, BATCH.then()):
            names = take(state / app.name, repository, case, figures, count, bootstrap=harness.bootstrap)
            assert running.alive
        os.kill(running.pid, signal.SIGKILL)
    assert len(names) == count, figures

    topics = [f"{app.name}-{store}-changelog" for store in STORES]
    logs = on_broker(harness, topics, tmp_path / "logs")
    started = set(random.Random(1).sample(names, max(1, len(names) // 10)))
    for number, name in enumerate(names):
        home = tmp_path / name
        home.mkdir()
        directory = home / app.name
        done = here(
            "restore", directory, "--from-snapshot", repository, "--generation", name, "--warnings-ok", "-o", "json"
        )
        assert done.status == 0, done.report
        offsets = compare(directory, app, logs, figures, with_broker=number % 4 != 3)
        if name in started:
            start(harness, case, app, home, offsets, tmp_path)
            logs = on_broker(harness, topics, tmp_path / "logs")
        shutil.rmtree(home)
    print(f"{case.release} {case.guarantee}: {figures}")
    harness.delete(case.release, app)


def remove_half_created(directory: Path) -> None:
    """Remove databases without CURRENT: after a kill that hit their creation, no start of Streams can open them."""
    for log in [*directory.rglob("*.log")]:
        if log.parent.is_dir() and not (log.parent / "CURRENT").exists():
            shutil.rmtree(log.parent)


@pytest.mark.timeout(3600)
def test_exactly_once_captures_no_uncommitted_row(harness: Harness, tmp_path: Path) -> None:
    """
    Transactions are open at each moment, a thread that fails aborts some, and a kill aborts the last one of a round.

    With small buffers the first flush leaves status 1, and nothing is captured. With the default ones nothing is flushed.
    """
    case = Case("4.3.1", "eos", 6, {"commit.interval.ms": "1500", **SHORT_SESSIONS})
    app = App(application("parts", case.guarantee).name, f"{TOPOLOGY.partition(',')[0]}+failing,source-table", "eos")
    state, repository = tmp_path / "state", tmp_path / "repository"
    figures, names, batch = Figures(), [], BATCH
    rounds = max(1, (SNAPSHOTS or case.snapshots) // 6)
    for number in range(4 * rounds):
        small, kills = number % 2 == 0, number % 4 >= 2
        harness.produce(case.release, app, batch)
        batch = batch.then()
        conf = {**(SMALL if small else {}), **case.conf}
        run = Run(conf=conf, read=False, options={"replace-thread": True})
        with Background(harness, case.release, app, state, run) as running:
            with load(harness, case.release, app, batch):
                names += take(state / app.name, repository, case, figures, 3, 3)
            batch = batch.then().then()
            if kills:
                os.kill(running.pid, signal.SIGKILL)
            else:
                good(running.finish())
        remove_half_created(state / app.name)
    harness.produce(case.release, app, batch)
    good(harness.run(case.release, app, state, Run(conf=case.conf, read=False, options={"replace-thread": True})))
    # It runs, and has flushed nothing since it opened its stores: the directory is as the last run has closed it.
    with Background(harness, case.release, app, state, Run(conf=case.conf, read=False)) as running:
        names += take(state / app.name, repository, case, figures, 1, 1)
        good(running.finish())
    logs = on_broker(harness, [f"{app.name}-{store}-changelog" for store in STORES], tmp_path / "logs")
    for name in names:
        directory = tmp_path / name / app.name
        directory.parent.mkdir()
        done = here(
            "restore", directory, "--from-snapshot", repository, "--generation", name, "--warnings-ok", "-o", "json"
        )
        assert done.status == 0, done.report
        compare(directory, app, logs, figures)
        shutil.rmtree(directory.parent)
    print(f"{case.release} {case.guarantee} without transactional stores: {figures}")
    assert figures.snapshots and figures.skipped, figures
    harness.delete(case.release, app)


def start(harness: Harness, case: Case, app: App, state: Path, offsets: dict[str, int], tmp_path: Path) -> None:
    """Start the release on a restored directory: it restores exactly the records behind the offset, and wipes nothing."""
    conf = {**SMALL, **case.conf}
    topics = [f"{app.name}-{store}-changelog" for store in STORES]
    logs = on_broker(harness, topics, tmp_path / "before-start")
    reply = good(harness.run(case.release, app, state, Run(conf=conf, read=False)))
    # The scan at the start of 4.4 logs that it wipes a task without an offset, and wipes nothing: the counts prove it.
    assert case.conf.keys() & TRANSACTIONAL.keys() or not wiped(reply), reply.report()
    counts = restored(reply)
    for store in STORES:
        records = logs[TopicPartition(f"{app.name}-{store}-changelog", 0)]
        assert counts.get(store, 0) == sum(record[0] > offsets[store] for record in records), (store, counts, offsets)
    served, truth = tmp_path / "served.jsonl", tmp_path / "truth.jsonl"
    good(harness.run(case.release, app, state, Run(conf=conf, dump=served, expect_no_restore=True)))
    good(harness.run(case.release, app, tmp_path / "nothing", Run(conf=conf, read=False)))
    good(harness.run(case.release, app, tmp_path / "nothing", Run(conf=conf, dump=truth)))
    assert not [str(difference) for difference in dumps.differences(truth, served)]
    shutil.rmtree(tmp_path / "nothing")
