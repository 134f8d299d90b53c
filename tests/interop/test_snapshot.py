"""A directory that was lost, restored from a snapshot: the real release starts on it and restores exactly nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import dumps
from .harness import Harness, Run
from .support import BATCH, application, good, kstate, told_positions, wiped

pytestmark = pytest.mark.interop

IN_MEMORY = {"kv-memory"}
CASES = [("4.3.1", "eos"), ("4.2.1", "alos"), ("4.3.1", "alos"), ("4.2.1", "eos")]


@pytest.mark.sample(2)
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
    harness.produce(release, app, BATCH.then())
    good(harness.run(release, app, state, Run(read=False)))
    second = kstate("snapshot", directory, "--out", repository, "-o", "json")
    assert second.status == 0, second.report
    shutil.copytree(state, tmp_path / "untouched")
    before = good(harness.run(release, app, tmp_path / "untouched", Run(dump=tmp_path / "before.jsonl")))

    shutil.rmtree(directory)
    restored = kstate("restore", directory, "--from-snapshot", repository, "--warnings-ok", "-o", "json")
    assert restored.status == 0, restored.report
    assert restored.summary["snapshots"] == [second.summary["snapshot"]]

    start = Run(dump=tmp_path / "after.jsonl", expect_no_restore=True, may_restore=[*IN_MEMORY])
    after = good(harness.run(release, app, state, start))
    assert not wiped(after), after.report()
    assert told_positions(after) == told_positions(before)
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "after.jsonl")
    assert not [str(difference) for difference in differences]
    harness.delete(release, app)
