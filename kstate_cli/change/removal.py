"""Deleting what kstate has made: a staged tree by its mark, what a run keeps by a journal that is understood whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.fingerprint import LISTS, digest, every_file
from kstate_cli.change.journal import FOUND_EMPTY, JOURNALS, SORTED_FILES, TREE, Run, RunState, written_on_full_disk
from kstate_cli.change.marks import STAGED, token_of
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import Refused
from kstate_cli.host import FULL
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.names import LOST_AND_FOUND

_OWN: Final = frozenset({TREE, SORTED_FILES, *JOURNALS, *LISTS})
"""All that belongs in the folder of a run."""
_BATCH: Final = 16
"""So many files go at first before another try; then twice as many."""
_NAMED = 3


def remove_tree(path: Path) -> None:
    """Deletes a directory. What cannot be deleted does not keep the rest: the first OSError is raised at the end.

    The mark of a staged tree goes last: what is left after an interruption still has it. Nothing follows a link.
    """
    first: OSError | None = None
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name == STAGED):
        if first is not None and entry.name == STAGED:
            break
        try:
            if entry.is_dir(follow_symlinks=False):
                _remove_all(Path(entry.path))
            else:
                os.unlink(entry.path)
        except OSError as error:
            first = first or error
    if first is not None:
        raise first
    os.rmdir(path)


def _remove_all(top: Path) -> None:
    """A directory without marks, however deep; goes on where something cannot be deleted."""
    first: OSError | None = None
    folders = [str(top)]
    for folder in folders:  # grows while it goes
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            os.unlink(entry.path)
                    except OSError as error:
                        first = first or error
        except PermissionError as error:
            # The file system's own folder is empty as a rule, and can be removed unread.
            if os.path.basename(folder) != LOST_AND_FOUND:
                first = first or error
        except OSError as error:
            first = first or error
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError as error:
            first = first or error
    if first is not None:
        raise first


def sweep(
    app: Path, run: Run, why: str, *, keep_sorted_files: bool = False, ended: Mapping[str, Any] | None = None
) -> None:
    """Removes what a run has staged (never switched in) and says so in its journal.

    With ``keep_sorted_files`` those of a restoration stay for the one that resumes it. ``ended`` is what the journal
    says besides: ``cut_short`` of a run that did not fail by itself. Raises OSError, and Refused for
    a tree that is not proved to have been staged only, or where APP is lost: nothing has been removed then.
    """
    remove_staged(app, run)
    if not keep_sorted_files:
        remove_sorted_files(run)
    sync_directory(run.path)
    written_on_full_disk(run, "failed", why=why, **(ended or {}))


def remove_staged(app: Path, run: Run) -> None:
    """Removes the staged tree of a run, and writes nothing. Raises as ``sweep`` does."""
    refuse_unproved(app, run)
    if run.tree.is_dir():
        remove_tree(run.tree)


def remove_sorted_files(run: Run) -> None:
    """Removes the sorted files of a restoration: made from a dump, and never anybody's only copy. Raises OSError."""
    folder = run.path / SORTED_FILES
    if folder.is_symlink():
        raise Refused(
            f"{folder} is a symbolic link", hint="nothing of kstate's is one: look at it, and remove the link"
        )
    if folder.is_dir():
        _remove_all(folder)


def refuse_unproved(app: Path, run: Run) -> None:
    """Refuses to remove a tree that is not proved to have been staged only. Raises Refused."""
    if not os.path.lexists(run.tree):
        return
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise _unproved(run, "is not a directory")
    names = set(os.listdir(run.tree))
    if not names:
        return
    if not _is_beside(app, run):
        gone = "holds no task any more" if os.path.lexists(app) else "is lost"
        raise _unproved(run, f"may be all that there is of {app}, which {gone}")
    token = token_of(run.tree, STAGED)
    if token is None:
        raise _unproved(run, "has no mark of staging: it may be the only copy of what was there before")
    # A mark that was cut off by a crash is alone: everything else is made after it is durable.
    if token != run.token and names != {STAGED}:
        raise _unproved(run, "has the mark of another run")


def _is_beside(app: Path, run: Run) -> bool:
    """Whether APP has what it had when the tree was staged.

    Where it is lost, or was emptied, the tree may be the last link to its files.

    A restoration of what was empty, or not there, has made its tree from a dump.
    """
    if run.state is not RunState.SWITCHING and run.last("created").get(FOUND_EMPTY) is True:
        return True
    if not os.path.lexists(app):
        return os.listdir(run.tree) == [STAGED]
    if holds_tasks(app) or not holds_tasks(run.tree):
        return True
    return run.state is RunState.SWITCHING and digest(every_file(app)) == run.last("switching").get("kept")


def _unproved(run: Run, why: str) -> Refused:
    return Refused(
        f"run {run.name} is unfinished, and its tree {why}",
        where=str(run.tree),
        hint=f"nothing is done until it is out of the way: look at {run.tree}, then move {run.path} elsewhere",
    )


def refuse_foreign(run: Run) -> None:
    """Refuses a run in whose folder somebody has put something: to be asked before anything of it is deleted.

    Raises Refused.
    """
    if run.tree.is_symlink() or (run.path / SORTED_FILES).is_symlink():
        raise Refused(
            f"{run.path} holds a symbolic link where kstate keeps a directory",
            hint="see what it points to, remove the link, and run the command again",
        )
    foreign = sorted(set(os.listdir(run.path)) - _OWN)
    if foreign:
        raise Refused(
            f"run {run.name} has {', '.join(foreign[:_NAMED])} in its folder, which no run has made",
            where=str(run.path),
            hint="move it elsewhere; nothing of the run is deleted before",
        )


def remove_run(run: Run) -> None:
    """Deletes a run with what it kept. Its journal gets another name first: half a directory must never be undone to.

    Where there is no room even for that, undo proves what is left by a digest of all of it (``_announce``).

    Raises Refused as ``refuse_foreign``, and OSError with the full path of what could not be deleted; the rest is
    deleted then, and another call goes on.
    """
    refuse_foreign(run)
    if run.state is not RunState.CLEANING:
        _announce(run)
    for kept in (run.tree, run.path / SORTED_FILES):
        if kept.is_dir():
            remove_tree(kept)
    # The journal goes last: without it nothing would say that the rest may go.
    for name in set(os.listdir(run.path)) - JOURNALS:
        os.unlink(run.path / name)
    sync_directory(run.path)
    for name in JOURNALS & set(os.listdir(run.path)):
        os.unlink(run.path / name)
    run.path.rmdir()
    sync_directory(run.path.parent)


def _announce(run: Run) -> None:
    """Makes durable that what is kept is being deleted. Raises OSError.

    A disk is often cleaned because it is full. The announcement takes no block, but a btrfs whose metadata has no room
    refuses even a rename, though never to delete. Then room is made first: by the lists, which only name files in
    messages, and after them by files of the tree, where undo would notice that they are missing.
    """
    # Half a tree is never put back if undo compares it with a digest of all of it, or never looks at it.
    unproved = run.state is RunState.KEPT and not isinstance(run.last("switching").get("kept"), str)
    try:
        run.give_up()
    except OSError as error:
        if error.errno not in FULL:
            raise
        for _ in _make_room(run, None if not unproved else error):
            with contextlib.suppress(OSError):
                run.give_up()
                return


def _make_room(run: Run, needed: OSError | None) -> Iterator[None]:
    """Deletes a part of the run at a time, until nothing is left but its journal.

    Raises OSError; ``needed``, with the tree whole, where that may only go once it is announced.
    """
    for name in sorted(LISTS & set(os.listdir(run.path))):
        os.unlink(run.path / name)
    remove_sorted_files(run)
    free(run.path)
    yield
    if needed is not None:
        raise needed
    run.state = RunState.CLEANING
    files = (os.path.join(folder, name) for folder, _, names in os.walk(run.tree, topdown=False) for name in names)
    batch = _BATCH
    while some := list(islice(files, batch)):
        for path in some:
            os.unlink(path)
        free(run.path)
        yield
        batch *= 2
