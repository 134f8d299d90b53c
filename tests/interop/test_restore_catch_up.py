"""
Half of the input restored from one dump, the rest from a later one: the result is that of one restore of the whole.

Both are then started by the real release, which restores nothing and serves the same from them.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.directories.support import tree_hash

from . import dumps
from .harness import Harness, Run
from .restoring import (
    changelog,
    changelogs,
    different,
    dump_changelogs,
    log_bounds,
    offsets_of,
    restore,
    rows_by_store,
    write_spec,
)
from .support import ALL, BATCH, application, good, restored_records, told_positions, wipes_task

pytestmark = pytest.mark.interop

CASES = list(itertools.product(["4.3.1", "3.9.2"], ["eos", "alos"])) if ALL else [("4.3.1", "eos")]


def records_after(lines: Path, last: dict[tuple[str, int], int | None]) -> Counter[tuple[str, int]]:
    """Topic and partition -> records in a dump that have a higher offset than the last of an earlier one."""
    counts: Counter[tuple[str, int]] = Counter()
    for path in lines.glob("*.jsonl"):
        topic = path.name.removesuffix(".jsonl")
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if "offset" not in record:
                continue
            before = last.get((topic, record["partition"]))
            if before is None or record["offset"] > before:
                counts[topic, record["partition"]] += 1
    return counts


@pytest.mark.in_full("tests/interop/test_dump.py::test_dumped_restored_and_started")
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_catching_up_equals_a_single_restoration(
    harness: Harness, tmp_path: Path, release: str, guarantee: str
) -> None:
    app = application("kinds", guarantee)
    harness.produce(release, app, BATCH)
    first = good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    topics = changelogs(first)
    half = dump_changelogs(harness, release, topics, tmp_path / "half")
    harness.produce(release, app, BATCH.next())
    good(harness.run(release, app, tmp_path / "state", Run(read=False)))
    whole = dump_changelogs(harness, release, topics, tmp_path / "whole")
    live = tmp_path / "state" / app.name
    spec = write_spec(live, tmp_path / "kstate.toml", memory=True)

    # What is past the dump is left alone, to the last byte.
    before = tree_hash(live)
    past = restore(live, half, release, spec)
    assert not past.steps
    assert not past.summary["executed"]
    assert tree_hash(live) == before
    live.rename(tmp_path / "lost")

    caught_up, at_once = tmp_path / "caught-up" / app.name, tmp_path / "at-once" / app.name
    for directory in (caught_up, at_once):
        directory.parent.mkdir()
    first_half = restore(caught_up, half, release, spec)
    rest = restore(caught_up, whole, release, spec)
    everything = restore(at_once, whole, release, spec)
    assert all(" catch up " in f" {step}" for step in rest.steps.values()), rest.command.report
    new = records_after(tmp_path / "whole-lines", {key: last for key, (_, _, last) in log_bounds(half).items()})
    assert rest.records == {
        f"{row['task']}/{row['store']}": sum(
            new[topic, int(partition)] for topic, offsets in row["changelog"].items() for partition in offsets
        )
        for row in rest.of("store")
    }
    in_memory = changelog(app, "kv-memory")
    assert sum(rest.records.values()) == sum(count for (topic, _), count in new.items() if topic != in_memory) > 0
    assert sum(everything.records.values()) == sum(first_half.records.values()) + sum(rest.records.values())
    assert not different(rows_by_store(caught_up), rows_by_store(at_once))
    assert offsets_of(caught_up) == offsets_of(at_once)
    assert not restore(caught_up, whole, release, spec).steps

    entry, other = tmp_path / "caught-up.jsonl", tmp_path / "at-once.jsonl"
    after = good(harness.run(release, app, caught_up.parent, Run(dump=entry, expect_no_restore=True)))
    usual = good(harness.run(release, app, at_once.parent, Run(dump=other, expect_no_restore=True)))
    assert not wipes_task(after), after.report()
    assert restored_records(after).keys() <= {"kv-memory"}
    assert not [str(row) for row in dumps.differences(other, entry)]
    assert told_positions(after) == told_positions(usual)
    harness.delete(release, app)
