"""What a failed start of an older release leaves: docs/how-to/downgrade-checklist.md, "4.2 was already started once".

A stream thread that dies closes its tasks dirty, and under exactly-once that deletes their directories
(StateManagerUtil.closeStateManager). A global store that does not open ends the start before there is a task.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .harness import Harness, Run
from .support import ALL, BATCH, application, good, kstate, migrate, restored_records

pytestmark = pytest.mark.interop

CASES = [
    ("eos", "without-global", True),
    ("alos", "without-global", False),
    *([("eos", "whole", False), ("alos", "whole", False)] if ALL else []),
]
"""Guarantee, whether the directory has its global store, and whether the failed start deletes every task."""
GUARANTEES = {"eos": "exactly_once_v2", "alos": "at_least_once"}
IN_MEMORY = {"kv-memory"}


def tasks(directory: Path) -> set[str]:
    """Return the names of the task directories."""
    return {path.name for path in directory.iterdir() if path.is_dir() and path.name[0].isdigit()}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("guarantee", "state", "deletes"), CASES)
def test_a_failed_start_of_4_2(harness: Harness, tmp_path: Path, guarantee: str, state: str, deletes: bool) -> None:
    """Real 4.2.1 on a directory of 4.3.1; where its tasks remain, kstate migrates them as if nothing had happened."""
    app = application("kinds", guarantee)
    harness.produce("4.3.1", app, BATCH)
    good(harness.run("4.3.1", app, tmp_path / "state", Run(read=False)))
    directory = tmp_path / "state" / app.name
    before = tasks(directory)
    if state == "without-global":
        shutil.rmtree(directory / "global")

    rows = kstate("check", directory, "--for", "4.2", "--guarantee", GUARANTEES[guarantee], "-o", "json").rows
    codes = {row["code"] for row in rows if row["type"] == "finding"}
    assert ("failed-start-deletes" in codes) is deletes

    reply = harness.run("4.2.1", app, tmp_path / "state")
    assert reply.rc == 3
    assert "Column families not opened: offsets" in reply.report()
    assert len(before) >= 10
    assert tasks(directory) == (set() if deletes else before)
    if deletes:
        return
    assert kstate("check", directory, "--for", "4.2").status == 3
    result = migrate(directory, "4.2")
    assert result.status in (0, 1), result.report
    reply = good(harness.run("4.2.1", app, tmp_path / "state", Run(read=False)))
    assert set(restored_records(reply)) <= IN_MEMORY
