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

import pytest

from kstate_cli.change.build import FEW_LAYERS

from . import dumps
from .harness import App, Harness, Run, Step
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
from .support import ALL, BATCH, application, good, records_with_value, restored, sum_of, told_positions, wiped
from .test_matrix import without_arrival_order

pytestmark = pytest.mark.interop

DEFAULT = [("kinds", "4.3.1", "eos"), ("kinds", "3.9.2", "alos"), ("headers-joins", "4.3.1", "eos")]
IN_ONE_FILE, IN_MANY = "one file", "many files"
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
CASES = [*((*case, IN_ONE_FILE) for case in WHOLE), *((*case, IN_MANY) for case in PARTED)]
"""Of each layer one file, made on Spark; or many, and several layers in a database, as from hundreds of MiB on."""
GARBLED = "/grace-join-Buffer/"
"""
Streams rewrites the keys of this buffer when it restores it, and then finds nothing in it; kstate keeps them
(docs/internals/changelogs.md#grace-buffers).
"""
NOT_RESTORED = {"kv-nolog"}
IN_MEMORY = {"kv-memory"}

_never_lost: dict[tuple[str, str, str], Path] = {}


@pytest.fixture
def never_lost(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """What the stores hold after both batches when the application was only restarted between them."""

    def dump(topology: str, release: str, guarantee: str) -> Path:
        key = (topology, release, guarantee)
        if key not in _never_lost:
            folder = tmp_path_factory.mktemp("never-lost")
            app = application(topology, guarantee)
            harness.produce(release, app, BATCH)
            good(harness.run(release, app, folder / "state", Run(read=False)))
            run = Run(then=[Step(BATCH.then(), folder / "dump.jsonl")], expect_no_restore=True,
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


@pytest.mark.sample(2)
@pytest.mark.parametrize(("topology", "release", "guarantee", "files"), CASES)
def test_restored_directory_serves_the_same(
    harness: Harness,
    tmp_path: Path,
    never_lost: Callable[[str, str, str], Path],
    topology: str,
    release: str,
    guarantee: str,
    files: str,
) -> None:
    app = application(topology, guarantee)
    harness.produce(release, app, BATCH)
    first = good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    dump = dump_changelogs(harness, release, changelogs(first), tmp_path / "dump")
    directory = tmp_path / "state" / app.name
    untold = f"{app.input}-global" if forgets_global_tables(release) else ""
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=topology == "kinds", global_topic=untold)
    directory.rename(tmp_path / "lost")

    many = files == IN_MANY
    options, module = (IN_PROCESS, SMALL_FILES) if many else (ON_SPARK, "kstate_cli")
    done = restore(directory, dump, release, spec, *options, module=module)
    if many:
        assert any(max(one) > FEW_LAYERS for one in levels_of(directory))
    if many and topology == "kinds":
        assert any(min(sorted(one)[-2:]) > 1 for one in levels_of(directory))
    assert done.summary["left"] == 0, done.done.told
    assert done.summary["records"] > 0
    streams = restored_by_streams(harness, release, app, tmp_path / "streams")
    ours, theirs = rows_by_store(directory), rows_by_store(streams)
    assert ours
    assert not {name: rows for name, rows in different(ours, theirs).items() if GARBLED not in name}

    reference, served, grown = (tmp_path / f"{name}.jsonl" for name in ("reference", "served", "grown"))
    forgotten = only_what_is_forgotten(release)
    run = Run(dump=reference, expect_no_restore=True, may_restore=forgotten)
    before = good(harness.run(release, app, tmp_path / "streams", run))
    run = Run(dump=served, then=[Step(BATCH.then(), grown)], expect_no_restore=True)
    after = good(harness.run(release, app, tmp_path / "state", run))
    assert not wiped(after), after.told()
    assert restored(after).keys() <= IN_MEMORY
    assert not [str(one) for one in dumps.differences(reference, served, ignore=NOT_RESTORED)]
    assert told_positions(after) == told_positions(before)

    assert sum_of(grown, "count") == records_with_value(harness, f"{app.input}-events", tmp_path)
    usual = never_lost(topology, release, guarantee)
    assert not [str(one) for one in dumps.differences(usual, grown, ignore=NOT_RESTORED, edit=without_arrival_order)]
    # What it left behind it opens again.
    shutil.copytree(tmp_path / "state", tmp_path / "again")
    run = Run(expect_no_restore=True, read=False, may_restore=[*IN_MEMORY, *forgotten])
    good(harness.run(release, app, tmp_path / "again", run))
    harness.delete(release, app)
