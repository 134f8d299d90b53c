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

from tests.interop.harness import open_databases
from tests.interop.jvm import Jvm

from .forked import Ended, Kstate
from .injection import EIO, Step, Trace, disturbed, injection, traced
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


@dataclass
class Sweep:
    """A case with what the undisturbed run told, and the folder that its runs take place in."""

    case: Case
    kstate: Kstate
    folder: Path
    releases: dict[str, Jvm]
    old: Meaning = field(default_factory=dict)
    new: Meaning = field(default_factory=dict)
    trace: Trace = field(default_factory=lambda: Trace([], []))
    digests: dict[str, Digests] = field(default_factory=dict)
    """What the real RocksDB reads in the old and in the new directory."""

    def fresh(self) -> Path:
        """The directory as the command meets it, always at the same path."""
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.case.make(self.kstate, self.folder / "state")

    def learn(self) -> None:
        """The undisturbed run."""
        app = self.fresh()
        self.old = meaning(app)
        self.digests["old"] = self._read("old", app)
        self.trace = traced(self.kstate, app, self.case.command)
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

    def fault(self, step: Step, action: str, repair: Repair) -> tuple[str, str]:
        """One fault and what follows. Returns what the directory was before the repair, and what was wrong, or nothing."""
        app = self.fresh()
        ended, struck = disturbed(self.kstate, app, step.path, {step.call: injection(step, action)}, self.case.command)
        wrong = [] if struck else ["the fault did not happen"]
        which = self.which(app)
        wrong += self._ending(ended, which)
        if which in ("old", "new"):
            wrong += self._opened(which, app)
        wrong += self.repaired(app, repair)
        return which, "; ".join(wrong)

    def completes(self, path: str) -> str:
        """
        What is wrong with a run of which the call after the last one about this path fails, of every kind.

        Nothing, since there is no such call: every call about it has been struck by a fault of its own.
        """
        app = self.fresh()
        calls = {step.call for step in self.trace.steps if step.path == path}
        faults = {call: f"{EIO}:when={self.trace.most(call, path) + 1}+" for call in calls}
        ended, struck = disturbed(self.kstate, app, path, faults, self.case.command)
        which = self.which(app)
        if struck or ended.status or which != "new":
            return f"{path}: struck {struck}, exit {ended.status}, {which}: {ended.output[-500:]}"
        return ""

    def _ending(self, ended: Ended, which: str) -> list[str]:
        """The exit status says what has become of the directory."""
        if ended.status not in MAY_END or "Traceback" in ended.output or "defect" in ended.output:
            return [f"exit {ended.status}: {ended.output[-1500:]}"]
        allowed = {0: ("new",), 4: ("old",), 6: ("old",), 7: ("new",)}.get(ended.status, ("old", "new"))
        same = self.old == self.new
        return (
            []
            if which in allowed or same
            else [f"exit {ended.status}, and the directory is {which}: {ended.output[-800:]}"]
        )

    def _read(self, which: str, app: Path) -> Digests:
        """What the RocksDB of the release that the directory is for reads in it."""
        jvm = self.releases.get(self.case.releases[which])
        if jvm is None:
            return {}
        reply = open_databases(jvm, app)
        assert reply.rc == 0 and reply.of("database"), reply.told()
        return {one["path"]: [one["families"], one["data"], one.get("offsets")] for one in reply.of("database")}

    def _opened(self, which: str, app: Path) -> list[str]:
        """The release that the directory is for reads in it what it reads without any fault."""
        try:
            now = self._read(which, app)
        except AssertionError as error:
            return [f"{self.case.releases[which]} does not open it: {error}"]
        return [] if now == self.digests[which] else [f"{self.case.releases[which]} reads something else in it: {now}"]

    def repaired(self, app: Path, repair: Repair) -> list[str]:
        """What is wrong after the repair, an undo that has nothing left to do, and a clean."""
        wrong = []
        wanted = self.new if repair.leaves == "new" else self.old
        ended = self.kstate(app, repair.command)
        now = meaning(app)
        if ended.status or now != wanted:
            wrong.append(
                f"{repair.command}: exit {ended.status}: {ended.output[-800:]}; {differences(now, wanted)[:2]}"
            )
        if repair.command[0] == "undo":
            again = self.kstate(app, ("undo",))
            if again.status or "nothing to undo" not in again.output:
                wrong.append(f"second undo: exit {again.status}: {again.output[-800:]}")
        files = fingerprint(app)
        cleaned = self.kstate(app, ("clean",))
        if cleaned.status or (app.parent / ".kstate").exists() or fingerprint(app) != files:
            wrong.append(f"clean: exit {cleaned.status}: {cleaned.output[-800:]}")
        return wrong
