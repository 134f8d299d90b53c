"""
Cut the power in the middle of commands: ``python -m tests.faults.power --count 500 [--file-system ext4|xfs]``.

The state directory is on a file system of its own, in a file that is mounted by a loop device. At a random moment of the command
the ioctl ``FS_IOC_SHUTDOWN`` stops the file system as a power failure does: nothing more reaches the disk, and what was written
but not synchronized is lost. The file system is then mounted again, which replays its journal. The directory must be the old one
or the new one (it must be the new one if the command had ended with 0), and the same repairs as after a kill must work.

``noauto_da_alloc`` takes away from ext4 what saves careless programs: it no longer writes the data of a renamed file early. With
``data=writeback`` a file may have its new size before its new bytes. Each row of the record, ``power.jsonl``, is one moment; rows
that are there are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .case import Case, Sweep
from .disks import WITH_JOURNAL, WITHOUT_JOURNAL, Disk, disk
from .forked import Ended, Kstate
from .outputs import Dump, Output, Repository
from .trials import CASES, Lab, Outcome, Record, Trial, defects

RECORD = Path(__file__).with_suffix(".jsonl")
MOUNT_OPTIONS = {
    "ext4": ("noauto_da_alloc", "noauto_da_alloc,data=writeback", "noauto_da_alloc,commit=1"),
    "xfs": ("noatime",),
}
_AFTER = 1.15
"""Moments are drawn up to this multiple of the undisturbed run, so that some come just after the end of the command."""


@dataclasses.dataclass(frozen=True)
class Failure(Trial):
    """When and how the power fails in one run."""

    options: str
    seed: int

    @property
    def key(self) -> str:
        """What the record knows this run by."""
        return f"{self.case} {self.file_system} {self.options} {self.seed}"

    def draw(self, seconds: float) -> tuple[float, int, bool]:
        """Return the moment in seconds, what is done with the journal, and whether the process is killed too."""
        generator = random.Random(self.key)
        return (
            generator.uniform(0, seconds * _AFTER),
            generator.choice((WITH_JOURNAL, WITHOUT_JOURNAL, WITHOUT_JOURNAL)),
            generator.random() < 0.5,
        )


@dataclasses.dataclass(frozen=True)
class Row(Outcome, Failure):
    """A line of the record."""


class PowerLab(Lab):
    """Runs cases on a disk that loses its power."""

    def run(self, case: Case, failure: Failure) -> Row:
        """Let the power fail once, and judge what is on the disk afterwards."""
        began = time.monotonic()
        sweep, usual = self.sweep(case)
        app = sweep.fresh()
        self.disk.sync()
        ended = interrupt(self.kstate, self.disk, app, case.command, *failure.draw(usual))
        self.disk.unmount()
        self.disk.mount()
        which = sweep.which(app)
        wrong = problems(sweep, ended, which) + self.repaired(sweep, app, failure.seed)
        return Row(
            **dataclasses.asdict(failure), status=ended.status, directory=which, wrong="; ".join(wrong),
            seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip


def interrupt(
    kstate: Kstate, at: Disk, app: Path, command: tuple[str, ...], moment: float, mode: int, killed: bool
) -> Ended:
    """Run the command; the power fails at the moment, in seconds, or when the command has ended before."""
    lock, is_cut = threading.Lock(), False
    timers: list[threading.Timer] = []

    def cut(pid: int | None) -> None:
        nonlocal is_cut
        with lock:
            if is_cut:
                return
            is_cut = True
            at.cut(mode)
            if killed and pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start(pid: int) -> None:
        timers.append(threading.Timer(moment, cut, (pid,)))
        timers[0].start()

    ended = kstate(app, command, on_start=start)
    timers[0].cancel()
    cut(None)
    return ended


def problems(sweep: Sweep, ended: Ended, which: str) -> list[str]:
    """Return what is wrong before any repair.

    A command that ended with 0 has promised that its work is on the disk. One that saw the disk die cannot know which directory
    the journal of the file system brings back.
    """
    wrong = defects(ended)
    if ended.status == 0 and sweep.new not in (sweep.old, {}) and which != "new":
        wrong.append("the command ended with 0, and its work is lost")
    if which not in ("old", "new"):
        wrong.append(which)
    return wrong


OUTPUTS: dict[str, type[Output]] = {"snapshot": Repository, "dump": Dump}
"""The cases whose disk has a repository or a dump instead of a state directory."""


class OutputLab:
    """Writes versions to the disk, and lets its power fail while the second one is written."""

    def __init__(self, at: Disk, kind: type[Output], kstate: Kstate, folder: Path) -> None:
        self.disk = at
        self.output = kind(kstate, folder, at.folder / "output")
        self.seconds = 0.0

    def run(self, failure: Failure) -> Row:
        """Let the power fail once: the first version stays whole, and the second one exists completely or not at all."""
        began = time.monotonic()
        shutil.rmtree(self.output.path, ignore_errors=True)
        self._write(0)
        if not self.seconds:
            began = time.monotonic()
            self._write(1)
            self.seconds = time.monotonic() - began
            return self.run(failure)
        self.disk.sync()
        kstate, (app, command) = self.output.kstate, self.output.command(1)
        ended = interrupt(kstate, self.disk, app, command, *failure.draw(self.seconds))
        self.disk.unmount()
        self.disk.mount()
        count, wrong = self.output.versions()
        wrong += defects(ended)
        if count not in (1, 2) or (ended.status == 0 and count != 2):
            wrong.append(f"exit {ended.status}, {count} versions: {ended.output[-500:]}")
        self._write(1)
        now, more = self.output.versions()
        wrong += more
        if now != count + 1:
            wrong.append("the next version is not there")
        return Row(
            **dataclasses.asdict(failure), status=ended.status, directory="new" if count == 2 else "old",
            wrong="; ".join(wrong), seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip

    def _write(self, number: int) -> None:
        ended = self.output.write(number)
        assert ended.status == 0, ended.output


def failures(count: int, kinds: tuple[str, ...]) -> list[Failure]:
    """Return the first runs: cases take turns, then seeds; the mount options follow the seed."""
    rows = []
    seed = 0
    while len(rows) < count:
        for kind in kinds:
            options = MOUNT_OPTIONS[kind]
            names = [*(case.name for case in CASES), *OUTPUTS]
            rows += [Failure(name, kind, options[seed % len(options)], seed) for name in names]
        seed += 1
    return rows[:count]


def run_all(rows: list[Failure], folder: Path, report: Callable[[Row], None]) -> None:
    """Run power failures, those of one kind of file system and of the same options after each other."""
    by_name = {case.name: case for case in CASES}
    with Kstate() as kstate:
        for kind, options in dict.fromkeys((row.file_system, row.options) for row in rows):
            with disk(folder, kind, options) as mounted:
                lab = PowerLab(mounted, kstate)
                here = [row for row in rows if (row.file_system, row.options) == (kind, options)]
                for failure in here:
                    if failure.case in by_name:
                        report(lab.run(by_name[failure.case], failure))
                for name, output_kind in OUTPUTS.items():
                    of_output = [row for row in here if row.case == name]
                    if of_output:
                        with tempfile.TemporaryDirectory(dir=folder) as elsewhere:
                            outputs = OutputLab(mounted, output_kind, kstate, Path(elsewhere))
                            try:
                                for failure in of_output:
                                    report(outputs.run(failure))
                            finally:
                                outputs.output.close()


def main() -> int:
    """Run what the record lacks, and print figures; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--file-system", choices=sorted(MOUNT_OPTIONS), action="append")
    parser.add_argument("--case", choices=[*(case.name for case in CASES), *OUTPUTS], action="append")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    rows = failures(options.count, tuple(options.file_system or MOUNT_OPTIONS))
    rows = [row for row in rows if not options.case or row.case in options.case]
    record = Record(options.record, Row)
    there = record.rows()
    with tempfile.TemporaryDirectory(prefix="kstate-power-") as folder:
        run_all([row for row in rows if row.key not in there], Path(folder), record.add)
    figures = Counter((row.file_system, row.case.split("-")[0], row.directory[:7]) for row in record.rows().values())
    for (kind, command, directory), count in sorted(figures.items()):
        print(f"{kind:5} {command:10} {directory:8} {count:5}")
    return record.summarize("power failures")


if __name__ == "__main__":
    sys.exit(main())
