"""
A few of the power failures of ``python -m tests.faults.power``, and the proof that this search finds a missing synchronization.

How far a command comes before its moment depends on the load, but whatever it comes to must be the old or the new directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cases import DOWN, UP, migration, undoing, wiping
from .disks import WITHOUT_JOURNAL, Disk, disk
from .forked import Kstate
from .power import RECORD, Failure, PowerLab, Row, problems
from .trials import Record

RUNS = 2
"""Of each case."""


@contextlib.contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with disk(folder, "ext4", options) as mounted:
        yield mounted


def test_a_power_failure_leaves_the_old_or_the_new_directory(kstate: Kstate, tmp_path: Path) -> None:
    options = "noauto_da_alloc,data=writeback"
    with _mounted(tmp_path, options) as mounted:
        lab = PowerLab(mounted, kstate)
        for case in (migration(DOWN), undoing(UP), wiping(UP)):
            for seed in range(RUNS):
                row = lab.run(case, Failure(case.name, "ext4", options, seed))
                assert not row.wrong, row


def test_a_command_that_synchronizes_nothing_is_noticed(tmp_path: Path) -> None:
    """The journal of this file system is written every 300 s: what the command does not synchronize is lost."""
    case = migration(DOWN)
    with (
        _mounted(tmp_path, "noauto_da_alloc,commit=300") as mounted,
        Kstate("tests.faults.careless_zygote") as careless,
    ):
        lab = PowerLab(mounted, careless)
        sweep, _ = lab.sweep(case)
        app = sweep.fresh()
        mounted.sync()
        ended = careless(app, case.command)
        mounted.cut(WITHOUT_JOURNAL)
        mounted.unmount()
        mounted.mount()
        assert ended.status == 0
        assert problems(sweep, ended, sweep.which(app))


def test_the_record_says_that_nothing_was_lost() -> None:
    rows = Record(RECORD, Row).rows()
    assert len(rows) >= 500
    assert {row.file_system for row in rows.values()} == {"ext4", "xfs"}
    assert not [row for row in rows.values() if row.wrong]
