"""
What is swept: a command, a directory, and what the directory may be afterwards.

A case knows how to make the directory that its command meets. An undisturbed run of the command tells the rest: what the
directory means before (old) and after (new), and the system calls in between, each of which can then fail.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli.change.marks import MARKS
from kstate_cli.offsets.ages import ages_path
from kstate_cli.statedir.names import OWN_FOLDER
from tests.interop.harness import open_databases
from tests.interop.jvm import Jvm

from .forked import Ended, Kstate, environment
from .injection import Fault, Step, Trace, trace_of
from .trees import Meaning, differences, fingerprint, meaning

Digests = dict[str, object]
MAY_END = {0, 4, 6, 7, -9}
"""4: a fault while the directory was still being read; what cannot be read is refused."""


@dataclass(frozen=True)
class Repair:
    """A command that ends what a fault has interrupted, and which directory it leaves."""

    command: tuple[str, ...]
    leaves: str


@dataclass(frozen=True)
class Case:
    """One command on one directory."""

    name: str
    make: Callable[[Kstate, Path], Path]
    """Make the directory in a folder that is not there yet, always the same; returns the application directory."""
    command: tuple[str, ...]
    releases: dict[str, str]
    """Which release the old and the new directory is for."""
    repairs: tuple[Repair, ...]
    share: tuple[int, int] | None = None
    """(i, n): by default n cases share one step of the switch, and one of every kind of call; this one does every nth."""


@dataclass
class Sweep:
    """A case with what the undisturbed run told."""

    case: Case
    kstate: Kstate
    folder: Path
    """Its directory lies here."""
    releases: dict[str, Jvm]
    old: Meaning = field(default_factory=dict)
    new: Meaning = field(default_factory=dict)
    trace: Trace = field(default_factory=lambda: Trace([], []))
    digests: dict[str, Digests] = field(default_factory=dict)
    """What the real RocksDB reads in the old and in the new directory."""

    def state(self) -> Path:
        """The state directory of every run: the same bytes are written every time."""
        return self.folder / "w" / "state"

    def fresh(self) -> Path:
        """The directory as the command meets it."""
        shutil.rmtree(self.state().parent, ignore_errors=True)
        return self.case.make(self.kstate, self.state())

    def learn(self) -> None:
        """The undisturbed run."""
        app = self.fresh()
        self.old = meaning(app)
        self.digests["old"] = self._read("old", app)
        self.trace = trace_of(self.kstate, app, self.case.command)
        self.new = meaning(app)
        self.digests["new"] = self._read("new", app)

    def which(self, app: Path) -> str:
        """`old`, `new`, or what is wrong."""
        now = meaning(app)
        if now == self.new:
            return "new"
        if now == self.old:
            return "old"
        return f"neither old nor new: {differences(now, self.old)[:3]}; {differences(now, self.new)[:3]}"

    def struck(self, fault: Fault, step: Step, *, alone: bool = False) -> tuple[Path, Ended, bool]:
        """The directory after one fault, how the command ended, and whether the fault happened."""
        app = self.fresh()
        ended, happened = fault.strike(self.kstate, app, self.case.command, step.argument, alone=alone)
        return app, ended, happened

    def strike(self, fault: Fault, step: Step, repair: Repair) -> tuple[str, str]:
        """One fault and what follows. Returns what the directory was before the repair, and what was wrong, or nothing."""
        app, ended, happened = self.struck(fault, step)
        which = self.which(app)
        wrong = [] if happened else ["the fault did not happen"]
        wrong += self.problems(app, ended, which, repair)
        shutil.rmtree(self.state().parent)
        return which, "; ".join(wrong)

    def problems(self, app: Path, ended: Ended, which: str, repair: Repair) -> list[str]:
        """What is wrong with how the command ended, what it left, and what the repair makes of it."""
        wrong = self._ending(ended, which)
        if which in ("old", "new"):
            wrong += self._reading_faults(which, app)
        return wrong + self.repaired(app, repair)

    def _ending(self, ended: Ended, which: str) -> list[str]:
        """The exit status says what has become of the directory."""
        if ended.status not in MAY_END or "Traceback" in ended.output or "defect" in ended.output:
            return [f"exit {ended.status}: {ended.output[-1500:]}"]
        get = {0: ("new",), 4: ("old",), 6: ("old",), 7: ("new",)}.get(ended.status, ("old", "new"))
        same = self.old == self.new
        return (
            []
            if which in get or same
            else [f"exit {ended.status}, and the directory is {which}: {ended.output[-800:]}"]
        )

    def _read(self, which: str, app: Path) -> Digests:
        """What the RocksDB of the release that the directory is for reads in it."""
        if not meaning(app):
            return {}
        reply = open_databases(self.releases[self.case.releases[which]], app)
        assert reply.rc == 0 and reply.of("database"), reply.report()
        # Column families that are made anew are made in any order.
        return {
            entry["path"]: [sorted(entry["families"]), entry["data"], entry.get("offsets")]
            for entry in reply.of("database")
        }

    def _reading_faults(self, which: str, app: Path) -> list[str]:
        """The release that the directory is for reads in it what it reads without any fault."""
        try:
            now = self._read(which, app)
        except AssertionError as error:
            return [f"{self.case.releases[which]} does not open it: {error}"]
        return [] if now == self.digests[which] else [f"{self.case.releases[which]} reads something else in it: {now}"]

    def repaired(self, app: Path, repair: Repair) -> list[str]:
        """What is wrong after the repair, an undo that has nothing left to do, and a clean."""
        if not app.exists() and not (app.parent / OWN_FOLDER / app.name).exists() and repair.command[0] == "undo":
            return self._nothing_there(app)
        wrong = []
        new = self.new if repair.leaves == "new" else self.old
        ended = self.kstate(app, repair.command)
        now = meaning(app)
        if ended.status or now != new:
            wrong.append(f"{repair.command}: exit {ended.status}: {ended.output[-800:]}; {differences(now, new)[:2]}")
        if repair.command[0] == "undo":
            if not app.exists() and not (app.parent / OWN_FOLDER / app.name).exists():
                # The directory was lost, and the run that this undo took back was the last trace of it.
                return wrong + self._nothing_there(app)
            again = self.kstate(app, ("undo",))
            if again.status or "nothing to undo" not in again.output:
                wrong.append(f"second undo: exit {again.status}: {again.output[-800:]}")
        files = fingerprint(app)
        cleaned = self.kstate(app, ("clean",))
        own = app.parent / OWN_FOLDER
        if cleaned.status or fingerprint(app) != files:
            wrong.append(f"clean: exit {cleaned.status}: {cleaned.output[-800:]}")
        # How old restored data is stays known.
        ages = own.is_dir() and {path.name for path in own.rglob("*") if not path.is_dir()} == {ages_path(app).name}
        paths = [path for path in app.parent.iterdir() if path != app and not (path == own and ages)]
        paths += [app / mark for mark in MARKS if (app / mark).exists()]
        paths += list(Path(environment(app.parent)["TMPDIR"]).iterdir())
        return wrong + [f"still there after it all: {path}" for path in paths]

    def _nothing_there(self, app: Path) -> list[str]:
        """A directory that was lost, and a command that has left nothing: whose name it is, nobody can say any more.

        One that was killed may have left a folder for runs of all applications, empty.
        """
        wrong = []
        for name in ("undo", "clean"):
            ended = self.kstate(app, (name,))
            paths = [path for path in app.parent.iterdir() if path.name != OWN_FOLDER or list(path.iterdir())]
            if ended.status != 2 or "does not exist" not in ended.output or paths:
                wrong.append(f"{name} where nothing is: exit {ended.status}: {ended.output[-800:]}")
        return wrong
