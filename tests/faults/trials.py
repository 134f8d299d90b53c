"""
What searches on disks of their own share: cases of commands, a record that grows, and the judgement of what a command leaves.

A search draws trials, each a command and how its disk is disturbed. The outcome of each is a line of its record; trials that
the record has are not run again.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Generic, TypeVar

from .case import Case, Sweep
from .cases import DOWN, UP, cleaning, migration, rehoming, undoing, wiping
from .disks import Disk
from .forked import Ended, Kstate
from .restorations import RESTORED
from .trees import meaning

CASES = (
    *(make(direction) for direction in (DOWN, UP) for make in (migration, undoing, cleaning, wiping, rehoming)),
    *RESTORED,
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A command, and the file system on which it runs."""

    case: str
    file_system: str

    @property
    def key(self) -> str:
        """What the record knows this trial by: all that was drawn."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Outcome(Trial):
    """What became of a trial."""

    status: int = 0
    directory: str = ""
    wrong: str = ""
    seconds: float = 0.0


class Lab:
    """Runs cases on one disk."""

    def __init__(self, at: Disk, kstate: Kstate) -> None:
        self.disk = at
        self.kstate = kstate
        self._sweeps: dict[str, tuple[Sweep, float]] = {}

    def sweep(self, case: Case) -> tuple[Sweep, float]:
        """Return a case with its undisturbed run, and the seconds of this run."""
        if case.name not in self._sweeps:
            sweep = Sweep(case, self.kstate, self.disk.folder, {})
            app = sweep.fresh()
            sweep.old = meaning(app)
            began = time.monotonic()
            ended = self.kstate(app, case.command)
            seconds = time.monotonic() - began
            assert ended.status == 0, ended.output
            sweep.new = meaning(app)
            self._sweeps[case.name] = sweep, seconds
        return self._sweeps[case.name]

    def repaired(self, sweep: Sweep, app: Path, turn: int) -> list[str]:
        """Return what is wrong after a repair of the case, and remove the state directory. The repairs take turns."""
        # Temporary files do not survive a restart: their names carry the boot, so no kstate of the next boot removes them.
        shutil.rmtree(sweep.state().parent / "scratch", ignore_errors=True)
        wrong = sweep.repaired(app, sweep.case.repairs[turn % len(sweep.case.repairs)])
        shutil.rmtree(sweep.state().parent)
        return wrong


def defects(ended: Ended) -> list[str]:
    """Return the output of a command that did not end as commands do."""
    if "Traceback" in ended.output or "defect" in ended.output:
        return [f"exit {ended.status}: {ended.output[-1500:]}"]
    return []


R = TypeVar("R", bound=Outcome)


class Record(Generic[R]):
    """The file with a line for each trial."""

    def __init__(self, path: Path, row: type[R]) -> None:
        self.path = path
        self._row = row

    def rows(self) -> dict[str, R]:
        """Return the trials that have run, by their key."""
        if not self.path.exists():
            return {}
        rows = [self._row(**json.loads(line)) for line in self.path.read_text().splitlines()]
        return {row.key: row for row in rows}

    def add(self, row: R) -> None:
        """Append a line, and print what was wrong."""
        with self.path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(row)) + "\n")
        if row.wrong:
            print(f"{row.key}: {row.wrong}", flush=True)

    def summarize(self, title: str) -> int:
        """Print how many trials there are; return exit status 1 if any was wrong."""
        rows = self.rows().values()
        wrong = sum(bool(row.wrong) for row in rows)
        print(f"{len(rows)} {title}, {wrong} wrong, {sum(row.seconds for row in rows) / 60:.0f} minutes")
        return 1 if wrong else 0
