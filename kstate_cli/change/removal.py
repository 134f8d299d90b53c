"""Delete files of kstate: a staged tree by its mark, the backup of a run by a journal that is understood.

An interruption at any point must leave a state that the next command recognizes. In a staged tree the mark
(:mod:`kstate_cli.change.marks`) is deleted last. The journal of a backup is renamed, durably, before the backup is
deleted: a part of a directory must never be restored. The journal itself is deleted after everything else. The folder
is synced before that, so that a power loss cannot bring files back without the journal that explains them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kstate_cli.change import nofollow
from kstate_cli.change.fingerprint import LISTS, digest, every_file
from kstate_cli.change.journal import EMPTY_AT_START, JOURNALS, SORTED_FILES, TREE, Run, RunState, write_on_full_disk
from kstate_cli.change.marks import STAGED, token_of
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import Refused
from kstate_cli.host import FULL
from kstate_cli.statedir.find import holds_tasks

_OWN: Final = frozenset({TREE, SORTED_FILES, *JOURNALS, *LISTS})
"""The names that belong in the folder of a run."""
_BATCH: Final = 16
"""The number of files that are deleted before the second attempt to free space; it doubles with each attempt."""
_MOST_NAMES = 3


def remove_tree(path: Path) -> None:
    """Delete a directory. An error does not stop the deletion: the first OSError is raised at the end.

    The mark of a staged tree is deleted last, so that what remains of it after an interruption still has the mark. No
    link is followed.
    """
    first: OSError | None = None
    # The key is True for the mark only, and False sorts before True: the mark is the last entry.
    with nofollow.directory(path) as folder, os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name == STAGED)
        for entry in ordered:
            # A file could not be deleted. Without the mark, the rest would look like the only copy of an application.
            if first is not None and entry.name == STAGED:
                break
            try:
                if entry.is_dir(follow_symlinks=False):
                    remove_directory(path / entry.name)
                else:
                    with nofollow.whole_path(path / entry.name):
                        os.unlink(entry.name, dir_fd=folder)
            except OSError as error:
                first = first or error
    if first is not None:
        raise first
    nofollow.rmdir(path)


def remove_directory(top: Path) -> None:
    """Delete a directory without marks, of any depth. Raise the first OSError at the end. No link is followed."""
    errors: list[OSError] = []
    denied: dict[str, OSError] = {}
    folders = [str(top)]
    # A list and no recursion: directories may be nested deeper than Python's stack allows. The loop sees the folders
    # that _remove_entry appends.
    for folder in folders:  # grows while it is read
        try:
            with nofollow.directory(folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    _remove_entry(entry, descriptor, folder, folders, errors)
        except PermissionError as error:
            # If the folder is empty, rmdir succeeds below. That is usual for lost+found, which belongs to the file
            # system, and for a folder of root that was killed before the folder got its owner.
            denied[folder] = error
        except OSError as error:
            errors.append(error)
    # The deepest folder first, since rmdir fails for a folder that is not empty.
    for folder in reversed(folders):
        try:
            nofollow.rmdir(folder)
        except OSError as error:
            errors.append(denied.get(folder, error))
    if errors:
        raise errors[0]


def _remove_entry(
    entry: os.DirEntry[str], descriptor: int, folder: str, folders: list[str], errors: list[OSError]
) -> None:
    """Delete a file in ``folder``, or add a directory to ``folders``; add an OSError to ``errors``."""
    path = os.path.join(folder, entry.name)
    try:
        if entry.is_dir(follow_symlinks=False):
            folders.append(path)
        else:
            with nofollow.whole_path(path):
                os.unlink(entry.name, dir_fd=descriptor)
    except OSError as error:
        errors.append(error)


def sweep(
    app: Path, run: Run, why: str, *, keep_sorted_files: bool = False, ended: Mapping[str, Any] | None = None
) -> None:
    """Remove the staged tree of a run, which was never in APP's place, and record in the journal that the run failed.

    The removal is durable before it is recorded, so a FAILED run has no tree. ``keep_sorted_files`` keeps the sorted
    files of a restoration, for the run that resumes it. ``why`` is the reason in the journal, and ``ended`` has further
    members of that line, such as ``cut_short``.

    Raise OSError. Raise Refused if the tree is not proved to be staged only, or if APP is lost. Nothing is removed
    then.
    """
    remove_staged(app, run)
    if not keep_sorted_files:
        remove_sorted_files(run)
    sync_directory(run.path)
    # Recorded last: a kill before this line only means that the next command removes nothing and records it.
    write_on_full_disk(run, "failed", why=why, **(ended or {}))


def remove_staged(app: Path, run: Run) -> None:
    """Remove the staged tree of a run, without a line in the journal. Raise as :func:`sweep`."""
    refuse_unproved(app, run)
    if run.tree.is_dir():
        remove_tree(run.tree)


def remove_sorted_files(run: Run) -> None:
    """Remove the sorted files of a restoration. They were made from a dump, so they are never an only copy.

    Raise OSError, and Refused for a link.
    """
    folder = run.path / SORTED_FILES
    if folder.is_symlink():
        raise Refused(
            f"{folder} is a symbolic link",
            hint=("kstate does not create links there. Check the target of the link, then remove the link"),
        )
    if folder.is_dir():
        remove_directory(folder)


def refuse_unproved(app: Path, run: Run) -> None:
    """Raise Refused unless the tree of a run is proved to be staged only, and so may be deleted.

    The proof is its mark with the token of this run. A missing or empty tree needs no proof.
    """
    if not os.path.lexists(run.tree):
        return
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise _unproved(run, "is not a directory")
    names = set(os.listdir(run.tree))
    if not names:
        return
    if not _is_beside(app, run):
        state = "does not exist"
        if os.path.lexists(app):
            state = "does not contain any tasks"
        raise _unproved(run, f"may be the last copy of {app}, which {state}")
    token = token_of(run.tree, STAGED)
    if token is None:
        raise _unproved(run, "has no staging mark, so it may be the only copy of the earlier directory")
    # A crash while the mark was written leaves an invalid mark. It is the only file then, since every other file is
    # created after the mark is durable.
    if token != run.token and names != {STAGED}:
        raise _unproved(run, "is marked as belonging to another run")


def _is_beside(app: Path, run: Run) -> bool:
    """Return whether APP still has the files that it had when the tree was staged.

    If APP is missing or was emptied, the tree may have the last links to its files. There is no such danger if APP was
    empty when the run began: a restoration has made the tree from a dump then.
    """
    # After ``switching`` the tree may be the old directory, so it does not matter what APP was at the beginning.
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
            f"check {run.tree}, then move {run.path} elsewhere. Until then, kstate refuses to change the application "
            "directory"
        ),
    )


def refuse_foreign(run: Run) -> None:
    """Raise Refused if the folder of a run has an entry that kstate did not create.

    Called before anything is deleted.
    """
    if run.tree.is_symlink() or (run.path / SORTED_FILES).is_symlink():
        raise Refused(
            f"{run.path} contains a symbolic link in place of a directory",
            hint="check the target of the link, remove the link, then run the command again",
        )
    # A foreign file may be the user's notes or data, so then nothing of the run is deleted.
    foreign = sorted(set(os.listdir(run.path)) - _OWN)
    if foreign:
        raise Refused(
            (f"the folder of run {run.name} contains {', '.join(foreign[:_MOST_NAMES])}, which kstate did not create"),
            where=str(run.path),
            hint="move these files elsewhere. Until then, kstate does not delete this run",
        )


def remove_run(run: Run) -> None:
    """Delete a run with its backup. The journal is renamed first, so that no undo restores a part of a directory.

    If there is no space even for that, undo recognizes an incomplete tree by its digest (:func:`_announce`).

    Raise Refused as :func:`refuse_foreign`. Raise OSError with the full path of an entry that could not be deleted. The
    other entries are deleted then, and the next call continues.
    """
    refuse_foreign(run)
    if run.state is not RunState.CLEANING:
        _announce(run)
    # If this is interrupted, the state of the run is CLEANING, and only ``clean`` continues it. If the journal could
    # not be renamed, undo refuses the incomplete tree by its digest.
    for folder in (run.tree, run.path / SORTED_FILES):
        if folder.is_dir():
            remove_tree(folder)
    # The journal is deleted last: without it the next command could not know that the other files may be deleted.
    for name in set(nofollow.listed(run.path)) - JOURNALS:
        nofollow.unlink(run.path / name)
    sync_directory(run.path)
    # The sync above has made the removal of the other entries durable before the journal is deleted.
    for name in JOURNALS & set(nofollow.listed(run.path)):
        nofollow.unlink(run.path / name)
    nofollow.rmdir(run.path)
    sync_directory(run.path.parent)


def _announce(run: Run) -> None:
    """Announce durably that the backup is being deleted. Raise OSError.

    Users often clean a disk because it is full. The announcement renames a file and so needs no block. But a btrfs
    whose metadata space is full refuses even a rename, although it never refuses to delete. Then this function frees
    space first. It deletes the lists of files, which only serve messages, and sorted files. If undo would notice
    missing files, it also deletes files of the tree.
    """
    # ``unproved``: undo may restore this run, and has no digest that would show a missing file. An undone run is never
    # restored.
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
    """Delete a part of the run at each step, until only its journal remains. Raise OSError.

    ``before_tree`` is raised before the first file of the tree is deleted. It is None if the tree may be deleted
    although its deletion is not announced.
    """
    for name in sorted(LISTS & set(nofollow.listed(run.path))):
        nofollow.unlink(run.path / name)
    remove_sorted_files(run)
    free(run.path)
    yield
    # Undo could still restore the backup, and no digest would show that a part is missing.
    if before_tree is not None:
        raise before_tree
    # The state is set in memory first: an error below must be reported as a run that is partially deleted.
    run.state = RunState.CLEANING
    # A generator, so that no more files are deleted than it takes until the announcement succeeds.
    files = (os.path.join(folder, name) for folder, _, names in os.walk(run.tree, topdown=False) for name in names)
    batch = _BATCH
    while some := list(islice(files, batch)):
        for path in some:
            nofollow.unlink(path)
        free(run.path)
        yield
        # The number doubles, so that even a tree of a million files needs few attempts.
        batch *= 2
