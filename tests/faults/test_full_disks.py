"""A few runs of ``python -m tests.faults.full_disks``: disks without room, with some, and with enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .cases import DOWN, UP, migration, wiping
from .disks import disk
from .forked import Kstate
from .full_disks import MOST, RECORD, Row, Shortage, ShortLab
from .trials import Record

_FREE = {"bytes": (0, 1 << 20, MOST["bytes"]), "inodes": (0, 40, MOST["inodes"]), "read-only": (0,)}


def test_a_disk_without_room_keeps_the_old_directory(kstate: Kstate, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with disk(tmp_path, "ext4", "noatime") as mounted:
        lab = ShortLab(mounted, kstate)
        statuses = set()
        for case in (migration(UP), wiping(DOWN)):
            for resource, sizes in _FREE.items():
                for left in sizes:
                    row = lab.run(case, Shortage(case.name, "ext4", resource, left))
                    assert not row.wrong, row
                    statuses.add(row.status)
        assert statuses >= {0, 4}, "every run had room, or none had"


def test_the_record_says_that_no_disk_did_harm() -> None:
    rows = Record(RECORD, Row).rows()
    assert len(rows) >= 290
    assert {row.file_system for row in rows.values()} == {"ext4", "xfs", "btrfs"}
    assert not [row for row in rows.values() if row.wrong]
