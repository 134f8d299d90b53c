"""A directory that was lost, restored from a snapshot: the real release starts on it and restores exactly nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kstate_cli.releases import unproven_too

from . import dumps
from .harness import Harness, Run, Step
from .releases import number
from .restoring import IN_PROCESS, changelogs, dump_changelogs, log_bounds, restore, write_spec
from .support import BATCH, application, good, kstate, restored_records, told_positions, wipes_task
from .test_restore_catch_up import records_after

pytestmark = pytest.mark.interop

IN_MEMORY = {"kv-memory"}
WITHOUT_CHANGELOG = {"kv-nolog"}
CASES = [("4.3.1", "eos"), ("4.2.1", "alos"), ("4.3.1", "alos"), ("4.2.1", "eos")]


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_a_lost_directory_serves_the_same(harness: Harness, tmp_path: Path, release: str, guarantee: str) -> None:
    app = application("kinds", guarantee)
    state, repository = tmp_path / "state", tmp_path / "repository"
    directory = state / app.name
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, state, Run(read=False)))
    first = kstate("snapshot", directory, "--out", repository)
    assert first.status == 0, first.report

    # More input after the first snapshot: the second one has it, and shares what did not change.
    harness.produce(release, app, BATCH.next())
    good(harness.run(release, app, state, Run(read=False)))
    broker = ("--bootstrap-server", harness.bootstrap)
    second = kstate("snapshot", directory, "--out", repository, *broker, "-o", "json")
    assert second.status == 0, second.report
    # Kafka's default of delete.retention.ms, as the broker states it; nobody asked it for the first snapshot.
    listed = [row["delete_retention_ms"] for row in kstate("ls", repository, "-o", "json").rows]
    assert listed == [None, 86_400_000]
    shutil.copytree(state, tmp_path / "untouched")
    before = good(harness.run(release, app, tmp_path / "untouched", Run(dump=tmp_path / "before.jsonl")))

    shutil.rmtree(directory)
    restored = kstate("restore", directory, "--from-snapshot", repository, *broker, "--warnings-ok", "-o", "json")
    assert restored.status == 0, restored.report
    assert restored.summary["snapshots"] == [second.summary["snapshot"]]

    start = Run(dump=tmp_path / "after.jsonl", expect_no_restore=True, may_restore=[*IN_MEMORY])
    after = good(harness.run(release, app, state, start))
    assert not wipes_task(after), after.report()
    assert told_positions(after) == told_positions(before)
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "after.jsonl")
    assert not [str(difference) for difference in differences]
    harness.delete(release, app)


LATER = [
    # Of the snapshot, its guarantee, of the start.
    ("4.2.1", "alos", "4.3.1"),
    ("4.3.1", "eos", "4.3.1"),
    ("4.3.1", "alos", "4.2.1"),
    ("4.2.1", "eos", "4.4.0"),
    ("4.4.0", "eos", "4.2.1"),
]


@pytest.mark.in_full("tests/directories/test_snapshot_later.py::test_another_release_in_the_same_run")
@pytest.mark.parametrize(("source", "guarantee", "target"), LATER)
def test_later_records_and_another_release_share_a_run(
    harness: Harness, tmp_path: Path, source: str, guarantee: str, target: str
) -> None:
    """The snapshot has the first batch, the dump the second too, and the third is in the log only."""
    oldest = "{}.{}".format(*min(number(source), number(target)))
    app = application("kinds", guarantee)
    state, repository = tmp_path / "state", tmp_path / "repository"
    directory = state / app.name
    harness.produce(source, app, BATCH)
    first = good(harness.run(source, app, state, Run(as_of=oldest, read=False)))
    snapshot = kstate("snapshot", directory, "--out", repository)
    assert snapshot.status == 0, snapshot.report
    harness.produce(source, app, second := BATCH.next())
    good(harness.run(source, app, state, Run(as_of=oldest, read=False)))
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=True)
    dump = dump_changelogs(harness, source, changelogs(first), tmp_path / "dump")
    ends = {key: last for key, (_, _, last) in log_bounds(dump).items()}
    shutil.copytree(state, tmp_path / "untouched")
    good(harness.run(source, app, tmp_path / "untouched", Run(as_of=oldest, steps=[Step(second.next(), None)])))
    end = dump_changelogs(harness, source, changelogs(first), tmp_path / "end")
    behind = records_after(tmp_path / "end-lines", ends)

    shutil.rmtree(directory)
    line = "{}.{}".format(*number(target))
    options = ("--from-snapshot", repository, "--from-changelog", dump, "--for", line, "--spec", spec, "--warnings-ok",
           "-o", "json", *IN_PROCESS, *unproven_too(line))  # fmt: skip
    planned = kstate("restore", directory, *options, "--dry-run")
    assert planned.status == 0 and not directory.exists(), planned.report
    result = kstate("restore", directory, *options)
    assert result.status == 0, result.report
    steps = [[row["path"] for row in of.rows if row["type"] == "step"] for of in (planned, result)]
    assert steps[0] == steps[1]
    assert result.summary["stores"] > 20 and result.summary["records"] > 0
    assert {row["message"] for row in result.rows if row["type"] == "step" and "rebuild" in row["message"]} == set()

    start = good(harness.run(target, app, state, Run(read=False, as_of=oldest)))
    assert not wipes_task(start), start.report()
    # Once more: a store that has just restored records knows the stream time, and hides what it has expired.
    restarted = good(harness.run(target, app, state, Run(dump=tmp_path / "after.jsonl", as_of=oldest)))
    # The judge: all of the log, restored at once, which other tests compare with Kafka Streams' own restoration.
    at_once = tmp_path / "at-once" / app.name
    at_once.parent.mkdir()
    restore(at_once, end, line, spec)
    whole = good(harness.run(target, app, at_once.parent, Run(dump=tmp_path / "whole.jsonl", as_of=oldest)))
    differences = dumps.differences(tmp_path / "whole.jsonl", tmp_path / "after.jsonl", ignore=WITHOUT_CHANGELOG)
    assert not [str(difference) for difference in differences]
    assert told_positions(restarted).keys() >= told_positions(whole).keys()
    counts = Counter({store: count for store, count in restored_records(start).items() if store not in IN_MEMORY})
    expected: Counter[str] = Counter()
    for (topic, _), count in behind.items():
        expected[topic.removeprefix(f"{app.name}-").removesuffix("-changelog")] += count
    assert {store: counts[store] for store in counts if expected[store]} == {
        store: count for store, count in expected.items() if store in counts
    }

    undone = kstate("undo", directory, "--discard-newer")
    assert undone.status == 0, undone.report
    assert not list(directory.rglob("CURRENT"))
    harness.delete(source, app)
