"""
One store of a task wiped by kstate: real Streams restores that store only, all of it, and nothing else of the task.

How much "all of it" is, a start on an empty directory says: as many records as that restores for the same store.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from . import dumps
from .harness import Harness, Run
from .support import ALL, BATCH, application, good, kstate, migrate, restored_records, told_positions, wipes_task

pytestmark = pytest.mark.interop

CASES = (
    [*itertools.product(["3.9.2", "4.2.1", "4.3.1"], ["alos", "eos"])]
    if ALL
    else [("4.3.1", "eos"), ("4.3.1", "alos"), ("4.2.1", "eos")]
)
WIPED = {
    "kv-timestamped",
    "count",
    "window-count",
    "window-duplicates",
    "window-final",
    "session-plain",
    "session-final",
    "grace-join-Buffer",
    "join-this-join-store",
    "fk-left",
    "fk-subscription-store",
    "versioned",
    "source-table",
    "global-table",
}
"""At least one store of each kind; tasks 0_x, 3_x, 4_x and 5_x keep others."""
IN_MEMORY = {"kv-memory"}
GARBLED = {"grace-join-Buffer"}
"""Streams rewrites the keys of this buffer when it restores it (docs/internals/changelogs.md#grace-buffers)."""


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_only_wiped_stores_are_restored(harness: Harness, tmp_path: Path, release: str, guarantee: str) -> None:
    app = application("kinds", guarantee)
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    directory = tmp_path / "state" / app.name
    shutil.copytree(tmp_path / "state", tmp_path / "untouched")

    options = [word for store in sorted(WIPED) for word in ("--store", store)]
    result = kstate("wipe", directory, *options)
    assert result.status == 0, result.report

    everything = restored_records(good(harness.run(release, app, tmp_path / "empty", Run(read=False))))
    good(harness.run(release, app, tmp_path / "empty", Run(dump=tmp_path / "whole.jsonl")))
    before = good(harness.run(release, app, tmp_path / "untouched", Run(dump=tmp_path / "before.jsonl")))
    after = good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    assert not wipes_task(after), after.report()
    expected = {store: records for store, records in everything.items() if store in WIPED | IN_MEMORY}
    assert restored_records(after) == expected
    assert expected.keys() >= WIPED - GARBLED

    # Read after a restart, as the others are: a store that was just restored hides other expired rows than one that was opened.
    again = Run(dump=tmp_path / "after.jsonl", expect_no_restore=True, may_restore=[*IN_MEMORY])
    after = good(harness.run(release, app, tmp_path / "state", again))
    assert told_positions(after).keys() == told_positions(before).keys()
    # What is expired Streams does not restore: wiped stores are those of the empty directory, the others those of before.
    others = {event["store"] for event in before.of("store")} - WIPED
    for reference, leave in (("whole", others | GARBLED), ("before", WIPED)):
        differences = dumps.differences(tmp_path / f"{reference}.jsonl", tmp_path / "after.jsonl", ignore=leave)
        assert not [str(entry) for entry in differences]
    harness.delete(release, app)


@pytest.mark.in_full("tests/interop/test_wipe.py::test_only_wiped_stores_are_restored")
def test_a_store_that_was_wiped_and_restored_by_4_3_goes_back(harness: Harness, tmp_path: Path) -> None:
    """Migrated without a directory it has a `.checkpoint_<store>`, which 4.3 neither reads nor deletes."""
    old, new = "4.2.1", "4.3.1"
    app = application("kinds", "alos")
    harness.produce(old, app, BATCH)
    good(harness.run(old, app, tmp_path / "state", Run(read=False)))
    directory = tmp_path / "state" / app.name
    at_least_once = ("--guarantee", "at_least_once", "--warnings-ok")
    for result in (kstate("wipe", directory, "--store", "kv-timestamped"), migrate(directory, new, *at_least_once)):
        assert result.status in (0, 1), result.report
    remainder = sorted(path.relative_to(directory) for path in directory.rglob(".checkpoint_kv-timestamped"))
    assert remainder
    first = good(harness.run(new, app, tmp_path / "state", Run(read=False)))
    assert set(restored_records(first)) == {"kv-timestamped", *IN_MEMORY} and not wipes_task(first), first.report()
    good(harness.run(new, app, tmp_path / "state", Run(dump=tmp_path / "before.jsonl", may_restore=[*IN_MEMORY])))
    assert sorted(path.relative_to(directory) for path in directory.rglob(".checkpoint_kv-timestamped")) == remainder

    result = migrate(directory, old, *at_least_once)
    assert result.status in (0, 1), result.report
    again = Run(dump=tmp_path / "after.jsonl", expect_no_restore=True, may_restore=[*IN_MEMORY])
    good(harness.run(old, app, tmp_path / "state", again))
    assert not [
        str(difference) for difference in dumps.differences(tmp_path / "before.jsonl", tmp_path / "after.jsonl")
    ]
    harness.delete(old, app)
