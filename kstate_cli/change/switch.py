"""The commit of a run: one ``renameat2(RENAME_EXCHANGE)`` between what announces it and what records it."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from kstate_cli.change.committed import note_commit
from kstate_cli.change.fingerprint import KEPT_LIST, MADE_LIST, STAGED_LIST, every_file, started_of, write_listing
from kstate_cli.change.journal import Run
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, remove_mark, remove_marks
from kstate_cli.change.plan import Plan
from kstate_cli.change.system import exchange, sync_directory
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.texts import command

_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY)


def list_trees(app: Path, run: Run) -> dict[str, str]:
    """Writes down what is about to be kept, and what every start replaces in what was made: {event member: digest}.

    Also makes sure that APP has no mark of an earlier run: what is kept must never look as if it had only been staged.
    Raises OSError.
    """
    remove_marks(app)
    share_lock(app, run.tree)
    staged = every_file(run.tree)
    return {
        "staged": write_listing(run.path / STAGED_LIST, staged),
        "kept": write_listing(run.path / KEPT_LIST, every_file(app)),
        "made": write_listing(run.path / MADE_LIST, started_of(staged)),
    }


def switch(plan: Plan, run: Run, lists: dict[str, str]) -> None:
    """Exchanges APP with the staged tree; signals are held back by the caller.

    Raises OSError and Refused while nothing has changed, RunHalfway once it has.
    """
    run.write("switching", **lists)
    try:
        exchange(plan.app, run.tree)
        note_commit(run.name, plan.app)
    except OSError as error:
        if error.errno in _CANNOT_EXCHANGE:
            raise Refused(
                f"the file system of {plan.app} cannot exchange two directories: {error.strerror}",
                hint="move the state.dir to a local file system (ext4, xfs, btrfs)",
            ) from error
        raise
    try:
        sync_directory(plan.app.parent)
        sync_directory(run.path)
        run.write("switched", warnings=list(plan.warnings))
    except OSError as error:
        raise RunHalfway(
            f"{plan.app} is the new directory, but that could not be recorded: {error}",
            hint="fix the disk, then run the command again: it finishes this run",
            hint_details=[f"or take the run back: {command('undo', plan.app)}"],
        ) from error
    # Streams starts with the mark too, and the next command removes it: no reason to call a good run a failed one.
    with contextlib.suppress(OSError):
        remove_mark(plan.app, STAGED)
