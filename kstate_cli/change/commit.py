"""The commit of a run, and of its undo: one system call between the line that announces it and the one that records it.

``switching`` → exchange → ``switched``, and ``undoing`` → exchange → ``undone``.

The order is what makes a kill at any point repairable. Both trees and their lists are durable before the announcement,
and the announcement is durable before the exchange: whatever the disk holds afterwards, a journal line tells that an
exchange may have happened, and the mark in the exchanged tree tells whether it did. After the exchange both parent
directories are synced first and the record is written second: a record never claims a rename that a power loss could
still undo. The mark leaves APP last, once the record is durable (:mod:`kstate_cli.change.marks`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.fingerprint import KEPT_LIST, MADE_LIST, STAGED_LIST, every_file, start_files_of, write_listing
from kstate_cli.change.journal import Run, write_on_full_disk
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, remove_mark, remove_marks
from kstate_cli.change.plan import Plan
from kstate_cli.change.system_calls import exchange, sync_directory
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.texts import command

_CANNOT_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY})


@dataclass(frozen=True, slots=True)
class Direction:
    """One of the two directions: its events, the mark that proves the exchange, and texts for a failure after it."""

    announced: str
    recorded: str
    mark: str
    then: str
    """What APP is after the exchange."""
    hint: str
    """The hint if the exchange cannot be recorded; the undo command follows it."""


FORWARD: Final = Direction(
    "switching",
    "switched",
    STAGED,
    "the new directory",
    "fix the disk, then run the command again: it finishes this run; or take the run back:",
)
BACKWARD: Final = Direction(
    "undoing",
    "undone",
    UNDOING,
    "the old directory again",
    "fix the disk, then finish the undo:",
)


def commit(
    app: Path, run: Run, way: Direction, *, announced: dict[str, Any], recorded: dict[str, Any], lost: bool = False
) -> None:
    """Announce, exchange APP with the tree of the run, and record. The caller holds signals back.

    If APP is ``lost``, the tree is renamed to APP instead. Raise OSError and Refused while nothing has changed,
    RunHalfway once something has.
    """
    run.write(way.announced, **announced)
    try:
        if lost:
            os.rename(run.tree, app)
        else:
            exchange(app, run.tree)
        # At once: an error that comes next must not be reported as one that changed nothing.
        note_commit(run.name, app, undone=way is BACKWARD)
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
    # Streams starts with the mark too, and the next command removes it: the run has succeeded all the same.
    with contextlib.suppress(OSError):
        remove_mark(app, way.mark)


def record(app: Path, run: Run, way: Direction, **details: Any) -> None:
    """Make an exchange that has happened durable, then record it in the journal. Raise OSError."""
    settle(app, run)
    write_on_full_disk(run, way.recorded, **details)


def settle(app: Path, run: Run) -> None:
    """Sync the two parent directories, so that no power loss undoes the exchange. Raise OSError."""
    sync_directory(app.parent)
    sync_directory(run.path)


def list_trees(app: Path, run: Run) -> dict[str, str]:
    """Write the lists of both trees beside the journal, and return their digests by the member of ``switching``.

    First APP loses every mark of an earlier run: a backup with a mark of staging would look like a tree that may be
    swept. The lock file is shared next, since the lists are to describe the trees as they are exchanged. Raise OSError.
    """
    remove_marks(app)
    share_lock(app, run.tree)
    staged = every_file(run.tree)
    return {
        "staged": write_listing(run.path / STAGED_LIST, staged),
        "kept": write_listing(run.path / KEPT_LIST, every_file(app)),
        "made": write_listing(run.path / MADE_LIST, start_files_of(staged)),
    }


def switch(plan: Plan, run: Run, lists: dict[str, str]) -> None:
    """Exchange APP with the staged tree. Raise as :func:`commit` does."""
    commit(plan.app, run, FORWARD, announced=dict(lists), recorded={"warnings": list(plan.warnings)})
