"""Delete files of kstate: a staged tree by its mark, the backup of a run by a journal that is understood.

An interruption at any point must leave something that the next command recognizes. In a staged tree the mark is deleted
last. A backup is deleted only after its journal has its other name, durably: half a directory must never be restored.
The journal itself is deleted after everything else, and the folder is synced before that, so that a power loss cannot
bring files back without the journal that explains them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.fingerprint import LISTS, digest, every_file
from kstate_cli.change.journal import EMPTY_AT_START, JOURNALS, SORTED_FILES, TREE, Run, RunState, write_on_full_disk
from kstate_cli.change.marks import STAGED, token_of
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import Refused
from kstate_cli.host import FULL
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.names import LOST_AND_FOUND

_OWN: Final = frozenset({TREE, SORTED_FILES, *JOURNALS, *LISTS})
"""The names that belong in the folder of a run."""
_BATCH: Final = 16
"""Files that are deleted before the second attempt; each further attempt doubles them."""
_MOST_NAMES = 3


def remove_tree(path: Path) -> None:
    """Delete a directory. An error does not stop the deletion: the first OSError is raised at the end.

    The mark of a staged tree goes last, so that the rest of an interrupted deletion still has it. No link is followed.
    """
    first: OSError | None = None
    # False sorts before True: the mark is the last entry.
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name == STAGED):
        # Something remains: without the mark it would look like the only copy of an application.
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
    """Delete a directory without marks, of any depth. Raise the first OSError at the end."""
    errors: list[OSError] = []
    folders = [str(top)]
    # A list and no recursion: directories may be nested deeper than Python's stack.
    for folder in folders:  # grows while it is read
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    _remove_entry(entry, folders, errors)
        except OSError as error:
            # The file system's own folder is usually empty, and can be removed unread.
            if not (isinstance(error, PermissionError) and os.path.basename(folder) == LOST_AND_FOUND):
                errors.append(error)
    # The deepest first, since rmdir wants an empty directory.
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _remove_entry(entry: os.DirEntry[str], folders: list[str], errors: list[OSError]) -> None:
    """Delete a file, or add a directory to ``folders``; add an OSError to ``errors``."""
    try:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
        else:
            os.unlink(entry.path)
    except OSError as error:
        errors.append(error)


def sweep(
    app: Path, run: Run, why: str, *, keep_sorted_files: bool = False, ended: Mapping[str, Any] | None = None
) -> None:
    """Remove the staged tree of a run, which was never switched in, and record that in its journal.

    The removal is durable before it is recorded: a FAILED run has no tree. With ``keep_sorted_files`` those of a
    restoration stay for the one that resumes it. ``ended`` has further members of the line, such as ``cut_short``.
    Raise OSError. Raise Refused if the tree is not proved to be staged only, or APP is lost: nothing is removed then.
    """
    remove_staged(app, run)
    if not keep_sorted_files:
        remove_sorted_files(run)
    sync_directory(run.path)
    # Last: a FAILED run has no tree, so a kill before this line only means another sweep.
    write_on_full_disk(run, "failed", why=why, **(ended or {}))


def remove_staged(app: Path, run: Run) -> None:
    """Remove the staged tree of a run without a record. Raise as :func:`sweep`."""
    refuse_unproved(app, run)
    if run.tree.is_dir():
        remove_tree(run.tree)


def remove_sorted_files(run: Run) -> None:
    """Remove the sorted files of a restoration: they come from a dump, and are never an only copy. Raise OSError."""
    folder = run.path / SORTED_FILES
    if folder.is_symlink():
        raise Refused(
            f"{folder} is a symbolic link", hint="check it, then remove the link. kstate does not create links there"
        )
    if folder.is_dir():
        _remove_all(folder)


def refuse_unproved(app: Path, run: Run) -> None:
    """Raise Refused unless the tree of a run is proved to be staged only."""
    if not os.path.lexists(run.tree):
        return
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise _unproved(run, "is not a directory")
    names = set(os.listdir(run.tree))
    if not names:
        return
    if not _is_beside(app, run):
        state = "is lost"
        if os.path.lexists(app):
            state = "does not contain any tasks"
        raise _unproved(run, f"may be the last copy of {app}, which {state}")
    token = token_of(run.tree, STAGED)
    if token is None:
        raise _unproved(run, "has no staging mark: it may be the only copy of the earlier directory")
    # A mark that a crash cut off is alone: every other file is created after it is durable.
    if token != run.token and names != {STAGED}:
        raise _unproved(run, "has the mark of another run")


def _is_beside(app: Path, run: Run) -> bool:
    """Return whether APP still has the files that it had when the tree was staged.

    If APP is lost or was emptied, the tree may have the last links to its files. But a restoration of an empty or
    missing directory has made its tree from a dump.
    """
    # After ``switching`` the tree may be the old directory, so what APP was at the start proves
    # nothing.
    if run.state is not RunState.SWITCHING and run.last("created").get(EMPTY_AT_START) is True:
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
        hint=(
            f"check {run.tree}, then move {run.path} to another place. Until then kstate refuses to change the "
            "application directory"
        ),
    )


def refuse_foreign(run: Run) -> None:
    """Raise Refused if the folder of a run has a foreign entry. Called before anything of it is deleted."""
    if run.tree.is_symlink() or (run.path / SORTED_FILES).is_symlink():
        raise Refused(
            f"{run.path} contains a symbolic link where kstate keeps a directory",
            hint="check where it points, remove the link, then run the command again",
        )
    # A file that kstate did not create may be the user's notes or data: nothing of the run is deleted
    # then.
    foreign = sorted(set(os.listdir(run.path)) - _OWN)
    if foreign:
        raise Refused(
            (f"the folder of run {run.name} contains {', '.join(foreign[:_MOST_NAMES])}, which kstate did not create"),
            where=str(run.path),
            hint="move it to another place. Until then kstate does not delete the run",
        )


def remove_run(run: Run) -> None:
    """Delete a run with its backup. The journal gets its other name first, so that no undo restores half a directory.

    If there is no space even for that, undo recognizes an incomplete tree by its digest (:func:`_announce`).

    Raise Refused as :func:`refuse_foreign`, and OSError with the full path of an entry that could not be deleted. The
    rest is deleted then, and another call continues.
    """
    refuse_foreign(run)
    if run.state is not RunState.CLEANING:
        _announce(run)
    # An interruption leaves a run that only ``clean`` continues. If there was no space even to rename the journal, undo
    # refuses the incomplete tree by its digest.
    for folder in (run.tree, run.path / SORTED_FILES):
        if folder.is_dir():
            remove_tree(folder)
    # The journal goes last: without it the next command could not tell that the rest may be deleted.
    for name in set(os.listdir(run.path)) - JOURNALS:
        os.unlink(run.path / name)
    sync_directory(run.path)
    # The entries removed above are durably gone before the journal that explains them.
    for name in JOURNALS & set(os.listdir(run.path)):
        os.unlink(run.path / name)
    run.path.rmdir()
    sync_directory(run.path.parent)


def _announce(run: Run) -> None:
    """Announce durably that the backup is being deleted. Raise OSError.

    Users often clean a disk because it is full. The announcement takes no block. But a btrfs with full metadata refuses
    even a rename, though it never refuses to delete. Then space is freed first: by the lists, which only serve
    messages, and next by files of the tree, if undo would notice that they are missing.
    """
    # Undo never restores half a tree if it compares the tree with a digest, or never restores this run at all.
    unproved = run.state is RunState.KEPT and not isinstance(run.last("switching").get("kept"), str)
    try:
        run.give_up()
    except OSError as error:
        if error.errno not in FULL:
            raise
        for _ in _free_space(run, error if unproved else None):
            with contextlib.suppress(OSError):
                run.give_up()
                return


def _free_space(run: Run, before_tree: OSError | None) -> Iterator[None]:
    """Delete a part of the run at a time, until only its journal remains. Raise OSError.

    ``before_tree`` is raised instead of deleting files of a tree that may only go once its deletion is announced.
    """
    for name in sorted(LISTS & set(os.listdir(run.path))):
        os.unlink(run.path / name)
    remove_sorted_files(run)
    free(run.path)
    yield
    # The backup may be restorable still, and no digest would show undo that a part is missing.
    if before_tree is not None:
        raise before_tree
    # In memory first: an error below must be reported as a run that is half deleted.
    run.state = RunState.CLEANING
    # A generator: only as many files as free enough space are deleted before the announcement succeeds.
    files = (os.path.join(folder, name) for folder, _, names in os.walk(run.tree, topdown=False) for name in names)
    batch = _BATCH
    while some := list(islice(files, batch)):
        for path in some:
            os.unlink(path)
        free(run.path)
        yield
        # Doubled, so that even a tree of a million files needs few attempts.
        batch *= 2
