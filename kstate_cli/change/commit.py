"""The commit of a run and of its undoing: one system call between what announces it and what records it.

``switching`` → exchange → ``switched``, and ``undoing`` → exchange → ``undone``. The mark that went in with its tree
leaves APP once the record is durable (:mod:`kstate_cli.change.marks`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.fingerprint import KEPT_LIST, MADE_LIST, STAGED_LIST, every_file, started_of, write_listing
from kstate_cli.change.journal import Run, written_on_full_disk
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, remove_mark, remove_marks
from kstate_cli.change.plan import Plan
from kstate_cli.change.system_calls import exchange, sync_directory
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.texts import command

_CANNOT_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY})


@dataclass(frozen=True, slots=True)
class Direction:
    """One of the two directions: its events, the mark that tells whether it was gone, and what is said half way."""

    announced: str
    recorded: str
    mark: str
    then: str
    """What APP is after it."""
    hint: str
    """What to do where it cannot be recorded; the command that takes a run back follows."""


THERE: Final = Direction(
    "switching",
    "switched",
    STAGED,
    "the new directory",
    "fix the disk, then run the command again: it finishes this run; or take the run back:",
)
BACK: Final = Direction(
    "undoing",
    "undone",
    UNDOING,
    "the old directory again",
    "fix the disk, then finish the undo:",
)


def commit(
    app: Path, run: Run, way: Direction, *, announced: dict[str, Any], recorded: dict[str, Any], lost: bool = False
) -> None:
    """Announces, exchanges APP with the tree of the run, and records; signals are held back by the caller.

    An APP that is ``lost`` only gets its name again. Raises OSError and Refused while nothing has changed, RunHalfway
    once it has.
    """
    run.write(way.announced, **announced)
    try:
        if lost:
            os.rename(run.tree, app)
        else:
            exchange(app, run.tree)
        note_commit(run.name, app, undone=way is BACK)
    except OSError as error:
        if error.errno in _CANNOT_EXCHANGE:
            raise Refused(
                f"the file system of {app} cannot exchange two directories: {error.strerror}",
                hint="copy the state.dir with its times (cp -a) to a local file system (ext4, xfs, btrfs), or within "
                "an overlay file system, which exchanges no directory of a lower layer, but does exchange its copy",
            ) from error
        raise
    try:
        record(app, run, way, **recorded)
    except OSError as error:
        raise RunHalfway(
            f"{app} is {way.then}, but that could not be recorded: {error}",
            hint=way.hint,
            hint_details=[command("undo", app)],
        ) from error
    # Streams starts with the mark too, and the next command removes it: no reason to call a good run a failed one.
    with contextlib.suppress(OSError):
        remove_mark(app, way.mark)


def record(app: Path, run: Run, way: Direction, **details: Any) -> None:
    """Makes an exchange that has happened durable, then says so in the journal. Raises OSError."""
    settle(app, run)
    written_on_full_disk(run, way.recorded, **details)


def settle(app: Path, run: Run) -> None:
    """Makes durable which tree lies where. Raises OSError."""
    sync_directory(app.parent)
    sync_directory(run.path)


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
    """Exchanges APP with the staged tree. Raises as ``commit`` does."""
    commit(plan.app, run, THERE, announced=dict(lists), recorded={"warnings": list(plan.warnings)})
