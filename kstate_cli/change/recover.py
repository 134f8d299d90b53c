"""Takes over runs whose process died: before the switch they are swept away, after it they are finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from kstate_cli.change.commit import BACK, THERE, record, settle
from kstate_cli.change.fingerprint import STAGED_LIST, digest, every_file, more_than_listed, started_files
from kstate_cli.change.folder import forget, read_runs, understood
from kstate_cli.change.journal import UNFINISHED, Run, RunState, cut_short, written_on_full_disk
from kstate_cli.change.marks import STAGED, UNDOING, remove_mark, token_of
from kstate_cli.change.removal import refuse_unproved, sweep
from kstate_cli.errors import Refused
from kstate_cli.texts import shell, some

_BEFORE: Final = "interrupted before the switch"
_NAMED = 3


class RecoveryOutcome(Enum):
    """What became of a run that was taken over."""

    SWEPT = "swept"
    """It had never switched: what it had staged is gone."""
    FINISHED = "finished"
    """It had switched."""
    UNDO_CANCELLED = "undo-cancelled"
    """Its undo had not switched."""
    UNDO_FINISHED = "undo-finished"
    """Its undo had switched."""


_TEXTS: Final = {
    RecoveryOutcome.SWEPT: (
        "run {} was interrupted before its switch: what it had staged is swept away, {} is as it was"
    ),
    RecoveryOutcome.FINISHED: "run {} was interrupted after its switch: finished",
    RecoveryOutcome.UNDO_CANCELLED: "the undo of run {} was interrupted before its switch: {} is as it was",
    RecoveryOutcome.UNDO_FINISHED: "the undo of run {} was interrupted after its switch: finished",
}


@dataclass(frozen=True, slots=True)
class Recovered:
    """A run that was taken over."""

    run: str
    outcome: RecoveryOutcome
    app: Path

    @property
    def text(self) -> str:
        """One line for the user."""
        return _TEXTS[self.outcome].format(self.run, self.app)


def unfinished_runs(app: Path) -> list[Run]:
    """Runs that ended in the middle (the caller knows that nobody holds the lock). Raises Refused."""
    return [run for run in understood(read_runs(app)) if run.state in UNFINISHED]


def tell_unfinished(app: Path, tell: Callable[[str], None]) -> None:
    """Says what a command that changed something would take over. Raises Refused as ``unfinished_runs`` does."""
    for run in unfinished_runs(app):
        tell(f"run {run.name} is unfinished: the next command that changes something takes it over")


def recover(app: Path, tell: Callable[[str], None]) -> list[Recovered]:
    """Brings every unfinished run to an end; the lock is held. Each is told of at once, whatever becomes of the next.

    Raises OSError where the disk still fails; Refused, naming the run, for one that is not understood whole and for
    trees that nothing proves to have been staged only: nothing is touched then.
    """
    runs = understood(read_runs(app))
    for run in runs:
        if run.state is RunState.STAGING:
            refuse_unproved(app, run)
    settled = []
    for run in runs:
        outcome = _recovered(app, run)
        if outcome is not None:
            settled.append(Recovered(run.name, outcome, app))
            tell(settled[-1].text)
    return settled


def _recovered(app: Path, run: Run) -> RecoveryOutcome | None:
    if run.state is None:
        forget(app, run)
        return None
    if run.state is RunState.STAGING:
        sweep(app, run, _BEFORE, keep_sorted_files=True, ended=cut_short())
        return RecoveryOutcome.SWEPT
    if run.state is RunState.SWITCHING:
        return _settle_switch(app, run)
    if run.state is RunState.UNDOING:
        return _settle_undo(app, run)
    if run.state is RunState.KEPT and run.token is not None:
        return _settle_kept(app, run)
    if run.state is RunState.UNDONE and run.token is not None and _has(app, UNDOING, run):
        remove_mark(app, UNDOING)
    return None


def _settle_switch(app: Path, run: Run) -> RecoveryOutcome:
    """An announced exchange: where the mark of staging is, the staged tree is."""
    here, there = _has(app, STAGED, run), _has(run.tree, STAGED, run)
    if not os.path.lexists(app) and _settles_lost(app, run, staged=there):
        record(app, run, THERE, recovered=True)
        return RecoveryOutcome.FINISHED
    # An exchange leaves a whole directory in the run: where there is none, a sweep of it was cut off.
    swept = not here and os.path.isdir(app) and run.token is not None and _is_empty(run.tree)
    if here == there and not swept:
        raise _neither(app, run)
    wanted = run.last("switching").get("staged")
    if there and isinstance(wanted, str):
        # With its mark a release may have run on it, before somebody put it aside: then it is no staged tree.
        changed = more_than_listed(run.path / STAGED_LIST, wanted, every_file(run.tree))
        if changed:
            raise Refused(
                f"run {run.name} was interrupted at its switch, its tree has changed since: {some(changed, _NAMED)}",
                where=str(run.path),
                hint=f"it may hold what the application did: keep what you need as {app}, move {run.path} elsewhere",
            )
    if there or swept:
        settle(app, run)
        sweep(app, run, _BEFORE, ended=cut_short())
        return RecoveryOutcome.SWEPT
    record(app, run, THERE, recovered=True)
    remove_mark(app, STAGED)
    return RecoveryOutcome.FINISHED


def _settles_lost(app: Path, run: Run, *, staged: bool) -> bool:
    """APP is gone, and its mark with it. Whether the tree of the run proves to be what was there before the switch.

    Raises Refused where it is, whole, what the run had made: there has been no exchange, so what was there before is
    gone, and only its owner can say whether that takes its place.
    """
    told = run.last("switching")
    if not _is_folder(run.tree):
        return False
    content = digest(every_file(run.tree))
    if staged and content == told.get("staged"):
        raise Refused(
            f"run {run.name} was interrupted before its switch, and {app} is lost since: {run.tree} is what the run "
            "has made of it, whole",
            where=str(run.path),
            hint="to take that:",
            hint_details=[shell("mv", run.tree, app)],
        )
    return not staged and content == told.get("kept")


def _settle_undo(app: Path, run: Run) -> RecoveryOutcome:
    """An announced exchange back: where the mark of undoing is, the kept directory is."""
    here, there = _has(app, UNDOING, run), _has(run.tree, UNDOING, run)
    # What could not announce an undo takes its mark away again; that its line is there may be known to the disk alone.
    if here == there and (here or not _is_kept(run)):
        raise _neither(app, run)
    if not here:
        settle(app, run)
        written_on_full_disk(run, "undo-cancelled")
        remove_mark(run.tree, UNDOING)
        return RecoveryOutcome.UNDO_CANCELLED
    record(app, run, BACK, recovered=True)
    remove_mark(app, UNDOING)
    return RecoveryOutcome.UNDO_FINISHED


def _is_kept(run: Run) -> bool:
    """Whether the tree of a run is, file by file, what was there before its switch."""
    wanted = run.last("switching").get("kept")
    return _is_folder(run.tree) and digest(every_file(run.tree)) == wanted


def _settle_kept(app: Path, run: Run) -> RecoveryOutcome | None:
    """Interrupted between what the journal says and the removal of a mark, or between a mark and what announces it."""
    back = _has(app, UNDOING, run)
    if back and not _is_back(app, run):
        raise Refused(
            f"{app} has the mark of an undo that the journal of run {run.name} knows nothing of, and nothing proves it",
            where=str(app / UNDOING),
            hint=f"look at {app} and at {run.tree}; if {app} is what the run has made, remove that mark; if it is what "
            f"was there before, move {run.path} elsewhere",
        )
    if _has(app, STAGED, run):
        remove_mark(app, STAGED)
    if _has(run.tree, UNDOING, run):
        remove_mark(run.tree, UNDOING)
    if back:
        # The journal has lost its last lines: the exchange back did happen.
        record(app, run, BACK, recovered=True)
        remove_mark(app, UNDOING)
        return RecoveryOutcome.UNDO_FINISHED
    return None


def _is_back(app: Path, run: Run) -> bool:
    """Whether the trees themselves prove that an undo has exchanged them; a mark can be copied, or put there."""
    if _has(run.tree, UNDOING, run):
        return False
    told = run.last("switching")
    return digest(every_file(app)) == told.get("kept") or (
        _is_folder(run.tree) and digest(started_files(run.tree)) == told.get("made")
    )


def _has(folder: Path, mark: str, run: Run) -> bool:
    if run.token is None or not _is_folder(folder):
        return False
    return token_of(folder, mark) == run.token


def _is_empty(tree: Path) -> bool:
    return not os.path.lexists(tree) or (_is_folder(tree) and not os.listdir(tree))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _neither(app: Path, run: Run) -> Refused:
    what = "an older kstate made it, and left no mark" if run.token is None else "no mark tells whether it happened"
    state = "its undo" if run.state is RunState.UNDOING else "its switch"
    where = "is there" if os.path.lexists(app) else "is lost"
    return Refused(
        f"run {run.name} was interrupted at {state}, and {what}: {app} {where}, {run.tree} may be its only other copy",
        where=str(run.path),
        hint=f"nothing is done until it is out of the way: keep what you need as {app}, move {run.path} elsewhere",
    )
