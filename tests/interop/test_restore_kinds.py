"""
A lost state directory, restored by kstate from the changelogs, under the release that wrote it.

Real Streams must take every persistent store of it without restoring a record, serve from it what it serves after a restart of
a directory that it restored itself (physically the same rows), and go on as an application that never lost anything.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.change.plan import FEW_LAYERS
from kstate_cli.patch_releases import BACKWARD_PROBE, BOUNDED_RESTORE
from kstate_cli.releases import release as release_row

from . import dumps
from .harness import App, Batch, Harness, Run, Step
from .releases import PROVING, forgets_global_tables, number, only_what_is_forgotten
from .restoring import (
    IN_PROCESS,
    ON_SPARK,
    changelogs,
    different,
    dump_changelogs,
    levels_of,
    restore,
    rows_by_store,
    write_spec,
)  # fmt: skip
from .support import (
    ALL,
    BATCH,
    application,
    good,
    records_with_value,
    restored_records,
    sum_of,
    told_positions,
    wipes_task,
)
from .test_matrix import without_arrival_order

pytestmark = pytest.mark.interop

DEFAULT = [("kinds", "4.3.1", "eos"), ("kinds", "3.9.2", "alos"), ("headers-joins", "4.3.1", "eos")]
IN_A_SINGLE_FILE, IN_MANY = "one file", "many files"
SMALL_FILES = "tests.interop.small_files"
WHOLE = (
    [(topology, PROVING, guarantee)
     for topology in ("kinds", *(("headers", "headers-joins") if number(PROVING) >= (4, 3) else ()))
     for guarantee in ("alos", "eos")]
    if PROVING else
    [*itertools.product(["kinds"], ["3.9.2", "4.2.1", "4.3.1"], ["alos", "eos"]),
     *itertools.product(["headers", "headers-joins"], ["4.3.1"], ["alos", "eos"])]
    if ALL else DEFAULT[:1]
)  # fmt: skip
PARTED = [("kinds", PROVING, "eos")] if PROVING else DEFAULT[1:]
CASES = [*((*case, IN_A_SINGLE_FILE) for case in WHOLE), *((*case, IN_MANY) for case in PARTED)]
"""Of each layer one file, made on Spark; or many, and several layers in a database, as from hundreds of MiB on."""
BATCHES = {IN_A_SINGLE_FILE: BATCH, IN_MANY: Batch(records=240, keys=60)}
"""Many files need partitions of more records than ``small_files`` puts into a slice, and more keys than into a file."""
GARBLED = "/grace-join-Buffer/"
"""
Streams rewrites the keys of this buffer when it restores it, and then finds nothing in it; kstate keeps them
(docs/internals/changelogs.md#grace-buffers).
"""
NOT_RESTORED = {"kv-nolog"}
IN_MEMORY = {"kv-memory"}
Rows = dict[str, Any]
"""What ``rows_by_store`` returns."""

_never_lost: dict[tuple[str, str, str, str], Path] = {}


@pytest.fixture
def never_lost(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str, str], Path]:
    """What the stores hold after both batches when the application was only restarted between them."""

    def dump(topology: str, release: str, guarantee: str, files: str) -> Path:
        key = (topology, release, guarantee, files)
        if key not in _never_lost:
            folder = tmp_path_factory.mktemp("never-lost")
            app = application(topology, guarantee)
            harness.produce(release, app, BATCHES[files])
            good(harness.run(release, app, folder / "state", Run(read=False)))
            run = Run(steps=[Step(BATCHES[files].next(), folder / "dump.jsonl")], expect_no_restore=True,
                      may_restore=only_what_is_forgotten(release))  # fmt: skip
            good(harness.run(release, app, folder / "state", run))
            harness.delete(release, app)
            _never_lost[key] = folder / "dump.jsonl"
        return _never_lost[key]

    return dump


def restored_by_streams(harness: Harness, release: str, app: App, state: Path) -> Path:
    """A state.dir in which Streams restored everything; returns the rows that it left."""
    good(harness.run(release, app, state, Run(read=False)))
    return state / app.name


def expired_rows(release: str, guarantee: str, ours: Rows, theirs: Rows, lost: Rows) -> Rows:
    """
    Return the rows of segments that Streams skips and kstate restores, as the lost store had them: by database.

    A release that bounds restoration begins at (time of the last record - retention) in a windowed store without an offset.
    Under exactly-once a marker without a time is behind the last record, which only a backward probe passes.
    """
    row = release_row(release)
    if not row.is_new(BOUNDED_RESTORE) or (guarantee == "eos" and not row.is_new(BACKWARD_PROBE)):
        return {}
    segments = {name for name in ours if name.count("/") == 2 and "/rocksdb/" not in name}
    surplus = {name: sorted(set(ours[name]) - set(theirs.get(name, []))) for name in segments}
    return {name: rows for name, rows in surplus.items() if rows and set(rows) <= set(lost[name])}


def with_rows(rows: Rows, more: Rows) -> Rows:
    """Return the rows of both, sorted as ``rows_by_store`` sorts them."""
    return rows | {name: sorted([*rows.get(name, []), *more[name]]) for name in more}


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize(("topology", "release", "guarantee", "files"), CASES)
def test_restored_directory_serves_the_same(
    harness: Harness,
    tmp_path: Path,
    never_lost: Callable[[str, str, str, str], Path],
    topology: str,
    release: str,
    guarantee: str,
    files: str,
) -> None:
    app, batch = application(topology, guarantee), BATCHES[files]
    harness.produce(release, app, batch)
    first = good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    dump = dump_changelogs(harness, release, changelogs(first), tmp_path / "dump")
    directory = tmp_path / "state" / app.name
    untold = f"{app.input}-global" if forgets_global_tables(release) else ""
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=topology == "kinds", global_topic=untold)
    directory.rename(tmp_path / "lost")

    many = files == IN_MANY
    options, module = (IN_PROCESS, SMALL_FILES) if many else (ON_SPARK, "kstate_cli")
    result = restore(directory, dump, release, spec, *options, module=module)
    if many:
        assert any(max(numberse) > FEW_LAYERS for numberse in levels_of(directory))
    if many and topology == "kinds":
        assert any(min(sorted(numberse)[-2:]) > 1 for numberse in levels_of(directory))
    assert result.summary["left"] == 0, result.command.report
    assert result.summary["records"] > 0
    streams = restored_by_streams(harness, release, app, tmp_path / "streams")
    ours, theirs = rows_by_store(directory), rows_by_store(streams)
    assert ours
    expired = expired_rows(release, guarantee, ours, theirs, rows_by_store(tmp_path / "lost"))
    expected = with_rows(theirs, expired)
    assert not {name: rows for name, rows in different(ours, expected).items() if GARBLED not in name}

    reference, served, grown = (tmp_path / f"{name}.jsonl" for name in ("reference", "served", "grown"))
    forgotten = only_what_is_forgotten(release)
    run = Run(dump=reference, expect_no_restore=True, may_restore=forgotten)
    before = good(harness.run(release, app, tmp_path / "streams", run))
    never = tmp_path / "never-lost.jsonl"
    if expired:
        shutil.copytree(tmp_path / "lost", tmp_path / "kept" / app.name)
        good(harness.run(release, app, tmp_path / "kept", Run(dump=never, expect_no_restore=True)))
    run = Run(dump=served, steps=[Step(batch.next(), grown)], expect_no_restore=True)
    after = good(harness.run(release, app, tmp_path / "state", run))
    assert not wipes_task(after), after.report()
    assert restored_records(after).keys() <= IN_MEMORY
    windowed = {name.split("/")[1] for name in expired}
    assert not [str(difference) for difference in dumps.differences(reference, served, ignore=NOT_RESTORED | windowed)]
    if windowed:
        others = dumps.counts(never).keys() - windowed
        assert not [str(difference) for difference in dumps.differences(never, served, ignore=others)]
    assert told_positions(after) == told_positions(before)

    assert sum_of(grown, "count") == records_with_value(harness, f"{app.input}-events", tmp_path)
    usual = never_lost(topology, release, guarantee, files)
    assert not [
        str(difference)
        for difference in dumps.differences(usual, grown, ignore=NOT_RESTORED, edit=without_arrival_order)
    ]
    # What it left behind it opens again.
    shutil.copytree(tmp_path / "state", tmp_path / "again")
    run = Run(expect_no_restore=True, read=False, may_restore=[*IN_MEMORY, *forgotten])
    good(harness.run(release, app, tmp_path / "again", run))
    harness.delete(release, app)
