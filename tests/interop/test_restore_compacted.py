"""
Changelogs as they are after some time: really compacted by a broker, with gaps and tombstones, some with their beginning deleted,
and under exactly-once with a transaction's marker at the end.

What Streams restores from such logs kstate restores too, and real Streams takes it without restoring anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import dumps
from .harness import Harness, Run, Step
from .restoring import (
    CompactingHarness,
    await_compaction,
    changelog,
    changelogs,
    compact,
    delete_before,
    different,
    dump_changelogs,
    log_bounds,
    restore,
    rows_by_store,
    run_restore,
    write_spec,
)
from .support import ALL, BATCH, REFUSAL, application, good, restored_records, told_positions, wipes_task
from .test_restore_kinds import GARBLED, IN_MEMORY

pytestmark = pytest.mark.interop

CASES = [("4.3.1", "eos"), ("4.3.1", "alos"), ("3.9.2", "eos")] if ALL else [("4.3.1", "eos")]
COMPACTED = ["kv-plain", "kv-timestamped", "count", "reduce"]
"""Stores whose changelogs repeat every key often enough to lose a third of their records for certain."""


@pytest.fixture(scope="module")
def compacting() -> Iterator[Harness]:
    with CompactingHarness() as started:
        yield started


@pytest.mark.in_full("tests/interop/test_dump.py::test_dumped_restored_and_started")
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_compacted_changelogs(compacting: Harness, tmp_path: Path, release: str, guarantee: str) -> None:
    harness, app = compacting, application("kinds", guarantee)
    harness.produce(release, app, BATCH)
    first = good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    topics = changelogs(first)
    compact(harness, release, [topic for topic in topics if topic.endswith("-changelog")])
    batch = BATCH.next()
    run = Run(steps=[Step(batch), Step(batch.next())], read=False)
    good(harness.run(release, app, tmp_path / "state", run))
    await_compaction(harness, release, [changelog(app, store) for store in COMPACTED], tmp_path)
    whole = log_bounds(dump_changelogs(harness, release, topics, tmp_path / "whole"))
    cut = {
        (changelog(app, store), 0): whole[changelog(app, store), 0][1] * 2 // 3 for store in ("kv-plain", "versioned")
    }
    delete_before(harness, release, cut)

    silent = dump_changelogs(harness, release, topics, tmp_path / "silent", says_start=False)
    dump = dump_changelogs(harness, release, topics, tmp_path / "dump")
    bounds = log_bounds(dump)
    for key, start in cut.items():
        assert bounds[key][0] == start
    marked = [last == end - 2 for (topic, _), (_, end, last) in bounds.items() if last and topic.endswith("-changelog")]
    assert (any(marked), all(marked)) == ((True, True) if guarantee == "eos" else (False, False))
    # Merged sessions are deleted, and never written again.
    sessions = tmp_path / "dump-lines" / f"{changelog(app, 'session-count')}.jsonl"
    records = [json.loads(line) for line in sessions.read_text(encoding="utf-8").splitlines()]
    assert any(record.get("value", "") is None for record in records)

    directory = tmp_path / "state" / app.name
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=True)
    directory.rename(tmp_path / "lost")
    # The first record of a compacted log may lie far above the log's start: who made the dump has to say what was read.
    result = run_restore(directory, silent, release, spec, "--dry-run")
    assert result.status == REFUSAL, result.report
    assert "above the log start" in result.err
    restore(directory, dump, release, spec)
    good(harness.run(release, app, tmp_path / "streams", Run(read=False)))
    ours, theirs = rows_by_store(directory), rows_by_store(tmp_path / "streams" / app.name)
    assert not {name: rows for name, rows in different(ours, theirs).items() if GARBLED not in name}

    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    before = good(harness.run(release, app, tmp_path / "streams", Run(dump=reference, expect_no_restore=True)))
    after = good(harness.run(release, app, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert not wipes_task(after), after.report()
    assert restored_records(after).keys() <= IN_MEMORY
    assert not [str(difference) for difference in dumps.differences(reference, served)]
    assert told_positions(after) == told_positions(before)
    harness.delete(release, app)
