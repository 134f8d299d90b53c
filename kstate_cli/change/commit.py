"""The commit of a run, and of its undo: one system call between the line that announces it and the one that records it.

``switching`` → exchange → ``switched``, and ``undoing`` → exchange → ``undone``.

The order is what makes a kill at any point repairable. Both trees and their lists are durable before the announcement,
and the announcement is durable before the exchange: whatever the disk holds afterwards, a journal line tells that an
exchange may have happened, and the mark in the exchanged tree tells whether it did. After the exchange both parent
directories are synced first and the record is written second: a record never claims a rename that a power loss could
still undo. The mark leaves APP last, once the record is durable (:mod:`kstate_cli.change.marks`).

Runs whose process died are settled here too (:func:`recover`): those before their switch are swept, those after it are
finished. The marks in the trees decide, and the journal alone never does. A settled switch is synced before its end is
recorded, exactly as a run does it itself: the power may have failed right after the exchange, before anything was
synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kstate_cli.change import nofollow
from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.fingerprint import (
    KEPT_LIST,
    MADE_LIST,
    STAGED_LIST,
    added_or_changed,
    digest,
    every_file,
    start_files,
    start_files_of,
    write_listing,
)
from kstate_cli.change.folder import forget, read_runs, require_understood
from kstate_cli.change.journal import UNFINISHED, Run, RunState, cut_short, write_on_full_disk
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, remove_mark, remove_marks, token_of
from kstate_cli.change.plan import Plan
from kstate_cli.change.removal import refuse_unproved, sweep
from kstate_cli.change.system_calls import exchange, sync_directory
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.texts import command, shell, some

_CANNOT_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY})


@dataclass(frozen=True, slots=True)
class Direction:
    """One of the two directions: its events, the mark that proves the exchange, and texts for a failure after it."""

    announced: str
    recorded: str
    mark: str
    outcome: str
    """What APP is after the exchange."""
    hint: str
    """The hint if the exchange cannot be recorded; the undo command follows it."""


FORWARD: Final = Direction(
    "switching",
    "switched",
    STAGED,
    "the new directory",
    "fix the disk, then run the command again to complete this run. To undo this run instead:",
)
BACKWARD: Final = Direction(
    "undoing",
    "undone",
    UNDOING,
    "the old directory again",
    "fix the disk. Then complete the undo:",
)


def commit(
    app: Path, run: Run, way: Direction, *, announced: dict[str, Any], recorded: dict[str, Any], lost: bool = False
) -> None:
    """Announce the exchange in the journal, exchange APP with the tree of the run, and record that it happened.

    ``announced`` and ``recorded`` are the members of the two journal lines. The caller holds signals back. If APP is
    ``lost`` (missing), the tree is renamed to APP instead.

    Raise OSError and Refused if nothing has changed, RunHalfway once something has.
    """
    # The line is durable when this call returns: from here on recovery considers that the exchange may have happened.
    run.write(way.announced, **announced)
    try:
        if lost:
            # The name APP is free. If another process has created a directory with files there meanwhile, rename(2)
            # fails.
            nofollow.rename(run.tree, app)
        else:
            exchange(app, run.tree)
        # Noted at once: the report of any later error must not claim that nothing has changed.
        note_commit(run.name, app, undone=way is BACKWARD)
    except OSError as error:
        # The kernel checks this before it changes anything, so nothing has changed. The cause is the file system that
        # APP is on, and every run would fail with it.
        if error.errno in _CANNOT_EXCHANGE:
            raise Refused(
                f"the file system of {app} cannot swap two directories in one step: {error.strerror}",
                hint=(
                    "copy the state.dir with its file times (cp -a) to a local file system (ext4, xfs or btrfs). An "
                    "overlay file system cannot swap a directory that is in a lower layer. In this case, a copy on the "
                    "same file system is enough"
                ),
            ) from error
        raise
    try:
        record(app, run, way, **recorded)
    except OSError as error:
        raise RunHalfway(
            f"{app} is {way.outcome}, but kstate could not record this in the journal: {error}",
            hint=way.hint,
            hint_details=[command("undo", app)],
        ) from error
    # A failure here does no harm: Streams starts with the mark too, and the next command removes it.
    with contextlib.suppress(OSError):
        remove_mark(app, way.mark)


def record(app: Path, run: Run, way: Direction, **details: Any) -> None:
    """Make an exchange that has happened durable, then write the event of ``way`` to the journal. Raise OSError."""
    settle(app, run)
    write_on_full_disk(run, way.recorded, **details)


def settle(app: Path, run: Run) -> None:
    """Sync the two parent directories, so that no power loss undoes the exchange. Raise OSError."""
    sync_directory(app.parent)
    sync_directory(run.path)


def list_trees(app: Path, run: Run) -> dict[str, str]:
    """Write the lists of both trees beside the journal, and return their digests by the member of ``switching``.

    First APP loses every mark of an earlier run: a backup with the mark of staging would look like a tree that may be
    deleted. Then the lock file of APP is linked into the tree, since the lists must describe the trees as they are
    exchanged. Raise OSError.
    """
    remove_marks(app)
    share_lock(app, run.tree)
    # The tree is listed once for both files: made.json is a part of staged.json and must not differ from it.
    staged = every_file(run.tree)
    digests = {
        "staged": write_listing(run.path / STAGED_LIST, staged),
        # APP is listed last, right before the announcement: nothing of kstate changes it any more.
        "kept": write_listing(run.path / KEPT_LIST, every_file(app)),
        "made": write_listing(run.path / MADE_LIST, start_files_of(staged)),
    }
    # Makes the names of the lists durable before ``switching`` records their digests: undo and recovery read the lists.
    sync_directory(run.path)
    return digests


def switch(plan: Plan, run: Run, lists: dict[str, str]) -> None:
    """Exchange APP with the staged tree. Raise as :func:`commit` does."""
    commit(plan.app, run, FORWARD, announced=dict(lists), recorded={"warnings": list(plan.warnings)})


_BEFORE: Final = "the run was interrupted before it swapped the directories"
_MOST_NAMES = 3


class RecoveryOutcome(Enum):
    """How a run was settled."""

    SWEPT = "swept"
    """The run had not exchanged the directories: its staged tree was removed."""
    FINISHED = "finished"
    """The run had exchanged the directories: kstate has recorded that."""
    UNDO_CANCELLED = "undo-cancelled"
    """The undo of the run had not exchanged the directories back."""
    UNDO_FINISHED = "undo-finished"
    """The undo of the run had exchanged the directories back."""


_TEXTS: Final = {
    RecoveryOutcome.SWEPT: (
        "run {} was interrupted before it swapped the directories. kstate removes the new files of this run, and {} "
        "is unchanged"
    ),
    RecoveryOutcome.FINISHED: (
        "run {} was interrupted after it swapped the directories. kstate has completed this run"
    ),
    RecoveryOutcome.UNDO_CANCELLED: (
        "the undo of run {} was interrupted before it swapped the directories. {} is unchanged"
    ),
    RecoveryOutcome.UNDO_FINISHED: (
        "the undo of run {} was interrupted after it swapped the directories. kstate has completed this undo"
    ),
}


@dataclass(frozen=True, slots=True)
class SettledRun:
    """A run that another command has settled."""

    run: str
    outcome: RecoveryOutcome
    app: Path

    @property
    def text(self) -> str:
        """Return a line for the user."""
        return _TEXTS[self.outcome].format(self.run, self.app)


def unfinished_runs(app: Path) -> list[Run]:
    """Return the unfinished runs; the caller knows that no process holds the lock. Raise Refused."""
    return [run for run in require_understood(read_runs(app)) if run.state in UNFINISHED]


def notify_of_unfinished(app: Path, notify: Callable[[str], None]) -> None:
    """Print which runs the next change would settle. Raise Refused as :func:`unfinished_runs`."""
    for run in unfinished_runs(app):
        notify(f"run {run.name} is incomplete. The next command that changes the directory continues or removes it")


def recover(app: Path, notify: Callable[[str], None]) -> list[SettledRun]:
    """Settle every unfinished run: remove its staged tree, or complete its switch or undo.

    The caller holds the application lock. ``notify`` gets each outcome at once, because the next run may fail.

    Raise OSError if the disk still fails. Raise Refused, with the name of the run, if a run is not understood, or if a
    tree may be more than a staged one. Nothing has changed then.
    """
    runs = require_understood(read_runs(app))
    # All staged trees are checked before the first change: a refusal must not come after another run was settled.
    for run in runs:
        if run.state is RunState.STAGING:
            refuse_unproved(app, run)
    settled = []
    for run in runs:
        outcome = _recovered(app, run)
        if outcome is not None:
            settled.append(SettledRun(run.name, outcome, app))
            notify(settled[-1].text)
    return settled


def expected_outcome(app: Path, run: Run) -> RecoveryOutcome | None:
    """Return how :func:`recover` would settle an unfinished run, by its journal and the marks; None if unproved.

    Reads two marks at most and changes nothing. Raise as :func:`kstate_cli.change.marks.token_of`.
    """
    if run.state in (None, RunState.STAGING):
        return RecoveryOutcome.SWEPT
    if run.state is RunState.SWITCHING:
        mark, swapped, unswapped = STAGED, RecoveryOutcome.FINISHED, RecoveryOutcome.SWEPT
    elif run.state is RunState.UNDOING:
        mark, swapped, unswapped = UNDOING, RecoveryOutcome.UNDO_FINISHED, RecoveryOutcome.UNDO_CANCELLED
    else:
        return None
    here, there = _has(app, mark, run), _has(run.tree, mark, run)
    if here == there:
        # Only the lists of the trees can prove it, and reading all files takes too long for a status.
        return None
    return swapped if here else unswapped


def _recovered(app: Path, run: Run) -> RecoveryOutcome | None:
    """Settle one run by the state in its journal. Return the outcome; None if there is nothing to report."""
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
    # A run without a token was made by an older kstate, which had no marks.
    if run.state is RunState.KEPT and run.token is not None:
        return _settle_kept(app, run)
    if run.state is RunState.UNDONE and run.token is not None and _has(app, UNDOING, run):
        remove_mark(app, UNDOING)
    return None


def _settle_switch(app: Path, run: Run) -> RecoveryOutcome:
    """Settle a run that was interrupted after it had announced the exchange.

    If the run's tree has the mark of staging, the exchange did not happen: the tree is removed. If APP has it, the
    exchange did happen, and it is recorded. Raise Refused if the marks prove neither.
    """
    # ``here``: APP is the new directory. ``there``: the run's tree still is. Both are read before anything is written.
    here, there = _has(app, STAGED, run), _has(run.tree, STAGED, run)
    # If APP was removed after the exchange, its mark was removed with it: only the lists can prove what the tree is.
    if not os.path.lexists(app) and _settles_lost(app, run, staged=there):
        record(app, run, FORWARD, recovered=True)
        return RecoveryOutcome.FINISHED
    # After an exchange the tree of the run is the old directory. If it is empty, there was no exchange: an earlier
    # recovery was interrupted while it removed the staged tree.
    swept = not here and os.path.isdir(app) and run.token is not None and _is_empty(run.tree)
    if here == there and not swept:
        raise _neither(app, run)
    if there:
        _refuse_changed(app, run)
    # There was no exchange, or a power loss undid it. Both parent directories are synced before the tree is removed, so
    # that this is the state after the next power loss too.
    if there or swept:
        settle(app, run)
        sweep(app, run, _BEFORE, ended=cut_short())
        return RecoveryOutcome.SWEPT
    record(app, run, FORWARD, recovered=True)
    remove_mark(app, STAGED)
    return RecoveryOutcome.FINISHED


def _refuse_changed(app: Path, run: Run) -> None:
    """Raise Refused if a tree with the mark of staging has changed since its list was written.

    A user may have put the tree in APP's place, started an application on it, and moved it back. It may then have state
    that exists nowhere else, so it must not be deleted.
    """
    list_digest = run.last("switching").get("staged")
    if not isinstance(list_digest, str):
        return
    changed = added_or_changed(run.path / STAGED_LIST, list_digest, every_file(run.tree))
    if changed:
        raise Refused(
            f"run {run.name} was interrupted while it was swapping the directories, and the run's tree has "
            f"changed since then: {some(changed, _MOST_NAMES)}",
            where=str(run.path),
            hint=(
                f"an application may have changed this tree. Make sure that {app} is the directory that you need, "
                f"then move {run.path} elsewhere"
            ),
        )


def _settles_lost(app: Path, run: Run, *, staged: bool) -> bool:
    """Return whether the tree of the run is proved to be the directory before the switch. APP is missing.

    ``staged`` states whether the tree has the mark of staging.

    Raise Refused if the tree is the complete new directory. Then there was no exchange, so the old directory is lost,
    and only the user can decide whether the new one takes its place.
    """
    announced = run.last("switching")
    if not _is_folder(run.tree):
        return False
    content = digest(every_file(run.tree))
    if staged and content == announced.get("staged"):
        raise Refused(
            f"run {run.name} was interrupted before it swapped the directories, and {app} was removed since then. "
            f"{run.tree} is the complete result of the run",
            where=str(run.path),
            hint="to use this result:",
            hint_details=[shell("mv", run.tree, app)],
        )
    return not staged and content == announced.get("kept")


def _settle_undo(app: Path, run: Run) -> RecoveryOutcome:
    """Settle an undo that was interrupted after it had announced the exchange: the backup has the mark of undoing.

    If APP has the mark, the exchange happened, and it is recorded. If the run's tree has it, the undo is cancelled.
    """
    here, there = _has(app, UNDOING, run), _has(run.tree, UNDOING, run)
    # A failed undo removes its mark again, although the line ``undoing`` may have reached the disk. So without any
    # mark, a tree that equals the list of the backup proves that there was no exchange. Two marks prove nothing:
    # refused.
    if here == there and (here or not _is_kept(run)):
        raise _neither(app, run)
    if not here:
        # The parent directories are durable before the line, because the line must stay true after a power loss.
        settle(app, run)
        write_on_full_disk(run, "undo-cancelled")
        remove_mark(run.tree, UNDOING)
        return RecoveryOutcome.UNDO_CANCELLED
    record(app, run, BACKWARD, recovered=True)
    remove_mark(app, UNDOING)
    return RecoveryOutcome.UNDO_FINISHED


def _is_kept(run: Run) -> bool:
    """Return whether the tree of a run is, file by file, the directory before its switch."""
    return _is_folder(run.tree) and digest(every_file(run.tree)) == run.last("switching").get("kept")


def _settle_kept(app: Path, run: Run) -> RecoveryOutcome | None:
    """Settle a run with the state KEPT that was interrupted between a journal line and the removal of a mark.

    Return UNDO_FINISHED if an undo of it had exchanged the directories, else None. Raise Refused if APP has the mark of
    an undo, but the trees do not prove that undo.
    """
    back = _has(app, UNDOING, run)
    if back and not _is_back(app, run):
        raise Refused(
            (
                f"{app} has an undo mark, but the journal of run {run.name} does not record this undo, and there is "
                "no other sign of it"
            ),
            where=str(app / UNDOING),
            hint=(
                f"compare {app} with {run.tree}. If {app} is the result of the run, remove the mark. If it is the "
                f"directory from before the run, move {run.path} elsewhere"
            ),
        )
    # The process was killed after it had written ``switched`` and before it removed the mark.
    if _has(app, STAGED, run):
        remove_mark(app, STAGED)
    if _has(run.tree, UNDOING, run):
        remove_mark(run.tree, UNDOING)
    if back:
        # The undo has exchanged the directories, but the journal has lost its lines.
        record(app, run, BACKWARD, recovered=True)
        remove_mark(app, UNDOING)
        return RecoveryOutcome.UNDO_FINISHED
    return None


def _is_back(app: Path, run: Run) -> bool:
    """Return whether the trees themselves prove that an undo has exchanged them: a mark alone may be a copy."""
    if _has(run.tree, UNDOING, run):
        return False
    announced = run.last("switching")
    return digest(every_file(app)) == announced.get("kept") or (
        _is_folder(run.tree) and digest(start_files(run.tree)) == announced.get("made")
    )


def _has(folder: Path, mark: str, run: Run) -> bool:
    """Return whether a directory has the mark of this very run."""
    if run.token is None or not _is_folder(folder):
        return False
    return token_of(folder, mark) == run.token


def _is_empty(tree: Path) -> bool:
    return not os.path.lexists(tree) or (_is_folder(tree) and not os.listdir(tree))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _neither(app: Path, run: Run) -> Refused:
    """Return the error for an interrupted exchange if nothing proves whether it happened."""
    why, state, where = (
        "no mark shows whether the swap happened",
        "while it was swapping the directories",
        "does not exist",
    )
    if run.token is None:
        why = "the older version of kstate that started the run left no mark"
    if run.state is RunState.UNDOING:
        state = "during its undo"
    if os.path.lexists(app):
        where = "exists"
    return Refused(
        f"run {run.name} was interrupted {state}, and {why}. {app} {where}, and {run.tree} may be the only other copy",
        where=str(run.path),
        hint=(
            f"make sure that {app} is the directory that you need, then move {run.path} elsewhere. Until then, "
            f"kstate refuses to change {app}"
        ),
    )
