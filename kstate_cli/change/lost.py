"""Backups that may be the only copies of files that APP no longer has, because APP was emptied or removed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.fingerprint import digest, start_files
from kstate_cli.change.journal import EMPTY_AT_START, Run, RunState
from kstate_cli.change.undo import UndoOptions
from kstate_cli.statedir.find import CONTENTS, DATABASE, SST, contents
from kstate_cli.texts import command, shell

_PLURAL: Final = dict(zip(CONTENTS, ("tasks", "tasks except the global one", "databases", "SSTs"), strict=True))


@dataclass(frozen=True, slots=True)
class LostCopy:
    """A run whose backup has contents that APP has lost."""

    app: Path
    run: Run
    contents: str
    """One of ``CONTENTS``."""
    newest: bool
    """Whether ``undo`` rolls back this run."""

    @property
    def text(self) -> str:
        """Return what is lost, and where the copy is."""
        return f"{self.app} no longer contains any {_PLURAL[self.contents]}, but this run has a backup of them"

    @property
    def back(self) -> str | None:
        """Return the command that restores the backup; None if there is none."""
        # ``undo`` rolls back the newest run only: for an older one there is no command that restores just its backup.
        if not self.newest:
            return None
        return UndoOptions(discard_newer=True).command(self.app)

    @property
    def delete(self) -> str:
        """Return the command that deletes the run."""
        return command("clean", self.app, option.RUN, self.run.name)

    @property
    def ways(self) -> str:
        """Return what the user can do, in sentences."""
        delete = f"To delete the run: {self.delete}"
        if self.back is None:
            return delete
        return f"To restore them: {self.back}. {delete}"

    @property
    def sentences(self) -> str:
        """Return the fact and the ways in sentences."""
        return f"{self.text}. {self.ways}"


@dataclass(frozen=True, slots=True)
class OnlyCopy:
    """A run that has the only copy of a lost APP."""

    app: Path
    run: Run

    @property
    def text(self) -> str:
        """Return what is lost, and which run has the copy."""
        copy = "the result of this run, which undo has moved aside"
        if self._is_backup:
            copy = "it"
        return f"{self.app} is missing, and run {self.run.name} has the only copy of {copy}"

    @property
    def back(self) -> str:
        """Return the command that restores the directory."""
        if self._is_backup:
            return command("undo", self.app)
        # ``undo`` does not restore an undone run. The user moves the directory that undo has put aside.
        return shell("mv", self.run.tree, self.app)

    @property
    def _is_backup(self) -> bool:
        return self.run.state is RunState.KEPT


def lost_copies(app: Path, runs: Sequence[Run]) -> Iterator[LostCopy]:
    """Yield the undamaged runs whose backup has contents that APP has lost.

    Yield none if APP itself is missing (:func:`only_copy`), or if a run emptied it on purpose (a wipe of everything).
    Raise Refused for files that this user may not read.
    """
    runs = [run for run in runs if run.damage is None]
    if not runs or not os.path.lexists(app):
        return
    present = _contents(app, runs)
    if len(present) == len(CONTENTS):
        return
    newest = next((run for run in reversed(runs) if run.state is RunState.KEPT), None)
    for run in runs:
        lost = _lost(run, present)
        if lost is not None:
            yield LostCopy(app, run, lost, newest=run is newest)


def only_copy(app: Path, runs: Sequence[Run]) -> OnlyCopy | None:
    """Return the newest run that has the copy of a missing APP; None if APP exists, or no run has a copy."""
    if os.path.lexists(app):
        return None
    # Backups come before directories that undo has put aside, because the application used the backup last.
    for state in (RunState.KEPT, RunState.UNDONE):
        copies = [run for run in runs if run.damage is None and run.state is state and run.tree.is_dir()]
        if copies:
            return OnlyCopy(app, copies[-1])
    return None


def _contents(app: Path, runs: Sequence[Run]) -> frozenset[str]:
    """Return the members of ``CONTENTS`` that APP has. Those that a run has removed on purpose are included."""
    present = contents(app)
    if len(present) == len(CONTENTS):
        return present
    now = digest(start_files(app))
    if any(run.state is RunState.KEPT and run.last("switching").get("made") == now for run in runs):
        # The start files are those that the run has left, so it removed the rest on purpose. But they do not include
        # SSTs: if databases remain, another program may have deleted their SSTs since.
        if SST in present or DATABASE not in present:
            return frozenset(CONTENTS)
        return frozenset(CONTENTS) - {SST}
    return present


def _lost(run: Run, present: frozenset[str]) -> str | None:
    """Return the first of ``CONTENTS`` that the tree of a run has and APP has not; None if there is none."""
    if run.state not in (RunState.KEPT, RunState.UNDONE):
        return None
    if run.state is RunState.UNDONE and run.last("created").get(EMPTY_AT_START) is True:
        return None  # nothing was lost: undo has restored the empty directory
    in_backup = contents(run.tree)
    # After an undo the tree is the result of the run. It may contain stores that APP never had, such as restored ones,
    # so only missing tasks count as lost.
    candidates: Sequence[str] = CONTENTS[:1]
    if run.state is RunState.KEPT:
        candidates = CONTENTS
    return next((name for name in candidates if name in in_backup and name not in present), None)
