"""
Real 4.2.1 killed in its first and in its second run, with rows on disk: what kstate refuses, what it carries over on request,
and what real 4.3.1 makes of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.directories.support import tree_hash

from . import dumps
from .expiry import PATIENT, Changelog, read_changelogs
from .harness import App, Batch, Harness, Run
from .jvm import Reply
from .releases import PROVING, number, only_what_is_forgotten
from .restoring import changelogs
from .support import ALL, REFUSAL, application, good, kstate, migrate, restored_records, wipes_task

pytestmark = pytest.mark.interop

KILLED = PROVING if PROVING and number(PROVING) < (4, 3) else "4.2.1"
TAKES_IT = PROVING if PROVING and PROVING != KILLED else "4.3.1"
BATCH = Batch(records=330, keys=10, value_bytes=220, partitions=1)
"""RocksDB takes no write buffer below 64 KiB: so much input flushes some stores, and others not."""
SMALL = {"rocksdb.config.setter": "interop.SmallBuffers"}
IN_MEMORY = {"kv-memory"}
WITHOUT_CHANGELOG = {"kv-nolog"}
RUNS = pytest.mark.parametrize("killed_run", ["first", "second"] if ALL else ["second"])


def kill(harness: Harness, app: App, state: Path, killed_run: str, as_of: str | None = None) -> None:
    """Leave the directory of an application that was killed, everything committed, nothing closed."""
    harness.produce(KILLED, app, BATCH)
    if killed_run == "second":
        good(harness.run(KILLED, app, state, Run(conf=SMALL, read=False, as_of=as_of)))
        harness.produce(KILLED, app, BATCH.next())
    good(harness.run(KILLED, app, state, Run(conf=SMALL, kill=True, read=False, as_of=as_of)))


def assert_refused(directory: Path) -> None:
    """The migration is refused for what was not left clean, and changes nothing."""
    before = tree_hash(directory.parent)
    result = migrate(directory, TAKES_IT, "--warnings-ok")
    assert result.status == REFUSAL, result.report
    assert "unclean shutdown" in result.err, result.report
    assert tree_hash(directory.parent) == before


def list_stores(directory: Path) -> list[dict[str, Any]]:
    """What `kstate ls` says of each store."""
    return kstate("ls", directory, "-o", "json").rows


def changelog_partitions(row: dict[str, Any]) -> set[tuple[str, int]]:
    """The changelog partitions that `kstate ls` states an offset of."""
    return {(topic, int(partition)) for topic, offsets in row["changelog"].items() for partition in offsets}


def first_record(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """Where Streams has to begin to restore, by changelog partition: after the offset, which a global store's is already."""
    results: dict[tuple[str, int], int] = {}
    for row in rows:
        for topic, offsets in row["changelog"].items():
            for partition, offset in offsets.items():
                facts = offset + (row["task"] != "global") if offset >= 0 else 0
                results[topic, int(partition)] = facts
    return results


def records_read(
    version: str, reply: Reply, logs: dict[tuple[str, int], Changelog], begin: dict[tuple[str, int], int]
) -> dict[str, int]:
    """
    Store -> the records that a release restores by the logs, without the stores that restore nothing.

    It has to begin where the logs and the offsets of the stores say.
    """
    counts: dict[str, int] = {}
    for event in reply.of("restore-start"):
        key = event["topic"], event["partition"]
        assert event["start"] in logs[key].first_reads(version, begin.get(key) or None), (version, event)
        counts[event["store"]] = counts.get(event["store"], 0) + logs[key].counted(event["start"])
    return {store: count for store, count in counts.items() if count}


def expiries(reply: Reply, logs: dict[tuple[str, int], Changelog], begin: dict[tuple[str, int], int]) -> dict[str, int]:
    """Store -> the time of the last record that its restoration has skipped; only stores that skipped any."""
    times = {}
    for event in reply.of("restore-start"):
        key = event["topic"], event["partition"]
        if event["start"] > begin.get(key, 0):
            times[event["store"]] = logs[key].expiry(event["start"])
    return times


def last_time(row: str) -> int:
    """The time of the last record of a window or session; that of its start where the row has no timestamp."""
    content = json.loads(row)
    return int(content["timestamp"] if "timestamp" in content else content["start"])


@pytest.mark.in_full("tests/kills/test_kills.py::test_no_row_is_lost_unpredicted")
@RUNS
def test_exactly_once(harness: Harness, tmp_path: Path, killed_run: str) -> None:
    app = application("kinds", "eos")
    state = tmp_path / "state"
    directory = state / app.name
    kill(harness, app, state, killed_run)
    assert_refused(directory)

    rows = list_stores(directory)
    result = migrate(directory, TAKES_IT, "--warnings-ok", "--wipe-unclean")
    assert result.status == 0, result.report
    out = {row["path"] for row in result.rows if row.get("action") == "leave out"}
    assert out, result.report
    (path,) = (state / ".kstate" / app.name).glob("*/tree")
    for task in out:
        assert not (directory / task).exists()
        assert (path / task).is_dir()
    missing = {row["store"] for row in rows if row["task"] in out} - WITHOUT_CHANGELOG
    stores = list_stores(directory)
    begin = first_record(stores)
    offsetless = {key for key, first in begin.items() if not first}
    assert not [row for row in stores if row["rows"] and offsetless & changelog_partitions(row)], stores

    served, truth = tmp_path / "served.jsonl", tmp_path / "truth.jsonl"
    reply = good(harness.run(TAKES_IT, app, state, Run(dump=served, conf=SMALL)))
    # Killed before a task had any row: it has nothing to leave out, and no offset.
    prediction = any("wipes the task" in row.get("message", "") for row in result.rows)
    assert wipes_task(reply) == prediction, reply.report()
    # The stores of these tasks are restored from their first record, the others from where they were left.
    starts = {event["store"]: event for event in reply.of("restore-start") if event["store"] not in IN_MEMORY}
    for store, event in starts.items():
        forgotten = store in only_what_is_forgotten(KILLED)
        # One that was killed before it had any row has no offset.
        get = 0 if store in missing or forgotten else begin.get((event["topic"], event["partition"]), 0)
        assert event["start"] == get, (event, out)
    assert missing <= restored_records(reply).keys()
    # What Streams restores by itself, from nothing, is what these stores have to hold.
    good(harness.run(TAKES_IT, app, tmp_path / "nothing", Run(dump=truth)))
    from_nothing = {store for store, event in starts.items() if event["start"] == 0}
    others = {row["store"] for row in rows} - from_nothing
    assert not [str(difference) for difference in dumps.differences(truth, served, ignore=others)]


@pytest.mark.in_full("tests/kills/test_kills.py::test_no_row_is_lost_unpredicted")
@RUNS
def test_at_least_once(harness: Harness, tmp_path: Path, killed_run: str) -> None:
    app = application("kinds", "alos")
    state = tmp_path / "state"
    directory = state / app.name
    # Killed in its first run 4.2.1 knows no offset, replays the whole changelog over the rows that it has, and in a versioned
    # store dies of that ("Timestamp is too large to be found in this segment"): a topology from before versioned stores.
    as_of = "3.4" if killed_run == "first" else None
    kill(harness, app, state, killed_run, as_of)
    assert_refused(directory)  # kstate cannot see the guarantee
    shutil.copytree(state, tmp_path / "unmigrated")

    result = migrate(directory, TAKES_IT, "--warnings-ok", "--guarantee", "at_least_once")
    assert result.status == 0, result.report
    begin = first_record(list_stores(tmp_path / "unmigrated" / app.name))
    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    alone = good(harness.run(KILLED, app, tmp_path / "unmigrated", Run(dump=reference, as_of=as_of, conf=PATIENT)))
    reply = good(harness.run(TAKES_IT, app, state, Run(dump=served, as_of=as_of, conf=PATIENT)))
    assert not wipes_task(reply), reply.report()
    # The offsets are those that the older release had. What has expired some releases skip.
    logs = read_changelogs(harness, TAKES_IT, changelogs(reply), tmp_path / "logs")
    assert restored_records(alone) == records_read(KILLED, alone, logs, begin)
    assert restored_records(reply) == records_read(TAKES_IT, reply, logs, begin)
    skipped = [expiries(entry, logs, begin) for entry in (alone, reply)]
    for difference in dumps.differences(reference, served):
        # One of the two may lack the rows whose last records the other alone has read.
        for rows, expiry in zip((difference.only_b, difference.only_a), skipped, strict=True):
            assert not rows or difference.store in expiry, str(difference)
            assert all(last_time(row) <= expiry[difference.store] for row in rows), str(difference)
