"""
Let disks run full in commands: ``python -m tests.faults.full_disks --sizes 50 [--file-system ext4|xfs|btrfs]``.

The state directory is on a file system of its own with so many bytes, inodes or bytes of a btrfs quota left. Every command must
either do its work and end with 0, or leave the old directory and name the reason. Then the room comes back, and the same repairs
as after a kill must work. A file system that is read-only is refused, and nothing is changed.

Each row of the record, ``full_disks.jsonl``, is one run; rows that are there are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from .case import Case, Sweep
from .disks import Disk, disk
from .forked import Ended, Kstate, environment
from .trials import CASES, Lab, Outcome, Record, Trial, defects

RECORD = Path(__file__).with_suffix(".jsonl")
RESOURCES = {
    "ext4": ("bytes", "inodes", "read-only"),
    "xfs": ("bytes", "read-only"),
    "btrfs": ("bytes", "quota", "read-only"),
}
MOST = {"bytes": 24 << 20, "inodes": 600, "quota": 24 << 20, "read-only": 1}
"""The command has more than enough of a resource with so much of it."""
_MAY_END = {"new": {0, 7}, "old": {4, 6}}
"""By what the directory is: 4 is a refusal, 6 an interruption, and after 7 the work is done, but a backup remains."""
_SPARE_BLOCK = 64 << 10
"""File systems keep some blocks that statvfs counts: the filler stops before them."""


@dataclasses.dataclass(frozen=True)
class Shortage(Trial):
    """What is short in one run."""

    resource: str
    left: int
    """Bytes or inodes that the command finds free."""

    @property
    def key(self) -> str:
        """What the record knows this run by."""
        return f"{self.case} {self.file_system} {self.resource} {self.left}"


@dataclasses.dataclass(frozen=True)
class Row(Outcome, Shortage):
    """A line of the record."""


class ShortLab(Lab):
    """Runs cases on a disk without room."""

    def run(self, case: Case, shortage: Shortage) -> Row:
        """Run one command with a shortage, and judge what it leaves."""
        began = time.monotonic()
        sweep, _ = self.sweep(case)
        app = sweep.fresh()
        environment(app.parent)  # its folder for temporary files is made while there is room
        self.disk.sync()
        with _short(self.disk, shortage):
            ended = self.kstate(app, case.command)
        which = sweep.which(app)
        wrong = _problems(sweep, ended, which) + self.repaired(sweep, app, shortage.left)
        return Row(
            **dataclasses.asdict(shortage), status=ended.status, directory=which, wrong="; ".join(wrong),
            seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip


def _problems(sweep: Sweep, ended: Ended, which: str) -> list[str]:
    if wrong := defects(ended):
        return wrong
    if which not in ("old", "new"):
        return [which]
    same = sweep.old == sweep.new
    if ended.status not in _MAY_END[which] and not (same and ended.status in (0, 4, 6, 7)):
        return [f"exit {ended.status}, and the directory is {which}: {ended.output[-1000:]}"]
    return []


@contextlib.contextmanager
def _short(at: Disk, shortage: Shortage) -> Iterator[None]:
    filler = at.folder / "filler"
    if shortage.resource == "read-only":
        _remount(at, "ro")
        try:
            yield
        finally:
            _remount(at, "rw")
        return
    if shortage.resource == "quota":
        _btrfs("quota", "enable", at)
        _btrfs("quota", "rescan", "-w", at)
        _btrfs("qgroup", "limit", f"{_quota_used(at) + shortage.left}", "0/5", at)
        try:
            yield
        finally:
            # To lift the limit takes room that a reached limit does not leave.
            _btrfs("quota", "disable", at)
        return
    try:
        if shortage.resource == "inodes":
            filler.mkdir()
            for number in range(os.statvfs(at.folder).f_ffree - shortage.left):
                (filler / str(number)).touch()
        else:
            _fill(at, filler, shortage.left)
        yield
    finally:
        if filler.is_dir():
            shutil.rmtree(filler)
        else:
            filler.unlink(missing_ok=True)
        at.sync()


def _fill(at: Disk, filler: Path, left: int) -> None:
    """Take room in steps: what statvfs promises is not always to be had, as file systems keep some for themselves."""
    size = 0
    with filler.open("wb") as file:
        while (free := _free(at)) > left:
            step = max(_SPARE_BLOCK, (free - left) // 2)
            try:
                os.posix_fallocate(file.fileno(), size, step)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            size += step
        os.fsync(file.fileno())


def _free(at: Disk) -> int:
    space = os.statvfs(at.folder)
    return space.f_bavail * space.f_frsize


def _remount(at: Disk, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(at.folder)], check=True)


def _btrfs(*words: str | Disk) -> str:
    command = ["btrfs", *(word if isinstance(word, str) else str(word.folder) for word in words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _quota_used(at: Disk) -> int:
    """Return the bytes that the top of the file system refers to, which is quota group 0/5."""
    lines = _btrfs("qgroup", "show", "--raw", "--sync", at).splitlines()
    return next(int(words[1]) for line in lines if (words := line.split()) and words[0] == "0/5")


def shortages(sizes: int, kinds: tuple[str, ...]) -> list[Shortage]:
    """Return all runs: each resource at so many sizes, in even steps from nothing, for which the cases take turns."""
    rows = []
    for kind in kinds:
        for resource in RESOURCES[kind]:
            if resource == "read-only":
                rows += [Shortage(case.name, kind, resource, 0) for case in CASES]
                continue
            # Cases and sizes shift against each other from resource to resource.
            first = len(rows)
            for number in range(sizes):
                left = MOST[resource] * number // max(1, sizes - 1)
                rows.append(Shortage(CASES[(first + number * 7) % len(CASES)].name, kind, resource, left))
    return rows


def run_all(rows: list[Shortage], folder: Path, report: Callable[[Row], None]) -> None:
    """Run shortages, those on one kind of file system after each other."""
    by_name = {case.name: case for case in CASES}
    with Kstate() as kstate:
        for kind, resource in dict.fromkeys((row.file_system, row.resource) for row in rows):
            with disk(folder, kind, "noatime") as mounted:
                lab = ShortLab(mounted, kstate)
                for shortage in rows:
                    if (shortage.file_system, shortage.resource) == (kind, resource):
                        report(lab.run(by_name[shortage.case], shortage))


def main() -> int:
    """Run what the record lacks, and print figures; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=50)
    parser.add_argument("--file-system", choices=sorted(RESOURCES), action="append")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    rows = shortages(options.sizes, tuple(options.file_system or RESOURCES))
    record = Record(options.record, Row)
    there = record.rows()
    with tempfile.TemporaryDirectory(prefix="kstate-full-") as folder:
        run_all([row for row in rows if row.key not in there], Path(folder), record.add)
    figures = Counter((row.file_system, row.resource, row.status, row.directory[:7]) for row in record.rows().values())
    for (kind, resource, status, directory), count in sorted(figures.items()):
        print(f"{kind:5} {resource:9} exit {status:3} {directory:8} {count:5}")
    return record.summarize("runs")


if __name__ == "__main__":
    sys.exit(main())
