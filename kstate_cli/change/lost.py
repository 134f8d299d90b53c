"""What runs keep and APP has nothing of any more: somebody has emptied it, and theirs may be the only copies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.fingerprint import digest, started_files
from kstate_cli.change.journal import FOUND_EMPTY, Run, RunState
from kstate_cli.change.undo import UndoOptions
from kstate_cli.statedir.find import CONTENTS, DATABASE, SST, contents
from kstate_cli.texts import command, shell


@dataclass(frozen=True, slots=True)
class LostCopy:
    """A run that keeps what APP has lost."""

    app: Path
    run: Run
    what: str
    """One of ``CONTENTS``."""
    newest: bool
    """Whether it is the run that ``undo`` takes back."""

    @property
    def text(self) -> str:
        """What is lost, and where it is."""
        return f"{self.app} holds no {self.what} any more, and this run keeps what it had"

    @property
    def back(self) -> str | None:
        """The command that puts it back; None where no command does."""
        return UndoOptions(discard_newer=True).command(self.app) if self.newest else None

    @property
    def delete(self) -> str:
        """The command that deletes it."""
        return command("clean", self.app, "--run", self.run.name)

    @property
    def ways(self) -> str:
        """What to do about it."""
        back = "" if self.back is None else f"To put them back: {self.back}. "
        return f"{back}To delete it: {self.delete}"

    @property
    def sentences(self) -> str:
        """Both, one after the other."""
        return f"{self.text}. {self.ways}"


@dataclass(frozen=True, slots=True)
class OnlyCopy:
    """A run that keeps all that is left of an APP."""

    app: Path
    run: Run

    @property
    def text(self) -> str:
        """What is lost, and who has it."""
        what = "it" if self._kept else "what it had made of it, which undo has put aside"
        return f"{self.app} is lost, and run {self.run.name} keeps the only copy of {what}"

    @property
    def back(self) -> str:
        """The command that puts it back."""
        return command("undo", self.app) if self._kept else shell("mv", self.run.tree, self.app)

    @property
    def _kept(self) -> bool:
        return self.run.state is RunState.KEPT


def lost_copies(app: Path, runs: Sequence[Run]) -> Iterator[LostCopy]:
    """The runs, of those that are understood, that keep what APP has nothing of any more.

    None where APP is not there at all, which whoever asks has to know, or is as a run has left it
    (``wipe --everything``). Raises Refused for what may not be read.
    """
    runs = [run for run in runs if run.damage is None]
    if not runs or not os.path.lexists(app):
        return
    there = _contents(app, runs)
    if len(there) == len(CONTENTS):
        return
    newest = next((run for run in reversed(runs) if run.state is RunState.KEPT), None)
    for run in runs:
        what = _lost(run, there)
        if what is not None:
            yield LostCopy(app, run, what, newest=run is newest)


def only_copy(app: Path, runs: Sequence[Run]) -> OnlyCopy | None:
    """The newest run that has an APP which is not there any more; None where it is there, or no run has it."""
    if os.path.lexists(app):
        return None
    for state in (RunState.KEPT, RunState.UNDONE):
        copies = [run for run in runs if run.damage is None and run.state is state and run.tree.is_dir()]
        if copies:
            return OnlyCopy(app, copies[-1])
    return None


def _contents(app: Path, runs: Sequence[Run]) -> frozenset[str]:
    """Which of ``CONTENTS`` APP has; what a run has taken out on purpose counts as there."""
    there = contents(app)
    if len(there) == len(CONTENTS):
        return there
    now = digest(started_files(app))
    if any(run.state is RunState.KEPT and run.last("switching").get("made") == now for run in runs):
        # That digest is not of SSTs: where databases are left, theirs may have been deleted since.
        whole = SST in there or DATABASE not in there
        return frozenset(CONTENTS) if whole else frozenset(CONTENTS) - {SST}
    return there


def _lost(run: Run, there: frozenset[str]) -> str | None:
    if run.state not in (RunState.KEPT, RunState.UNDONE):
        return None
    if run.state is RunState.UNDONE and run.last("created").get(FOUND_EMPTY) is True:
        return None  # nothing was lost: undo has made it as empty as it was found
    kept = contents(run.tree)
    # What an undo has put aside may well have had stores that the directory never had: a restoration's.
    looked_for = CONTENTS if run.state is RunState.KEPT else CONTENTS[:1]
    return next((one for one in looked_for if one in kept and one not in there), None)
