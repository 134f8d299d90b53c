"""Find an application directory and its task directories, from the path that a user gives."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kstate_cli.errors import Refused, SeveralApplicationsError, UsageError
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, is_task, is_task_or_global, is_topology, legal_store_name
from kstate_cli.regular_files import access_hint, read_small
from kstate_cli.rocks.files import CURRENT, is_log, is_sst
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import LOCK, OWN_FOLDER, PROCESS_FILE, ROCKSDB
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion, shell

DATABASE: Final = "database"
SST: Final = "SST"
CONTENTS: Final = ("task", "task but global", DATABASE, SST)
"""The kinds of contents that an application may have, in the order of reports."""
_GIVE_APPLICATION: Final = "pass the application directory: state.dir/application.id"
_MOST_PROCESS_BYTES: Final = 4096


def find_application(path: Path) -> Path:
    """Return the absolute path of the application directory that ``path`` names: itself, or the only one in it.

    ``path`` may be a ``state.dir``. Raises UsageError if it has no application or several, and Refused for a symbolic
    link: the exchange of a change would replace the link, and its name may not be the application.id.
    """
    _refuse_path(path)
    # Links in the path above the directory are resolved, because lock, runs and mount belong to the real path.
    absolute = Path(os.path.realpath(path))
    part = _is_part(absolute) and looks_like_application(absolute.parent)
    if part or OWN_FOLDER in absolute.parts:
        hint = _GIVE_APPLICATION
        # Also for a part of a backup; then the directory above it is not an application that kstate may change, so the
        # hint does not name it.
        if OWN_FOLDER not in absolute.parts:
            hint = f"pass the application directory: {absolute.parent}"
        # A command on a part would lock another file than the lock of the application.
        raise UsageError(
            f"{absolute} is only a part of an application directory or of a backup that kstate made",
            hint=hint,
        )
    # Checked before the directories in it, because a task in an application may look like an application too.
    if looks_like_application(absolute):
        return absolute
    inside = _applications_in(absolute)
    if len(inside) == 1:
        return inside[0]
    if inside:
        raise SeveralApplicationsError(absolute, inside)
    raise UsageError(
        f"{absolute} is not an application directory of Kafka Streams, because it has no {LOCK}, no {PROCESS_FILE} "
        "and no task directory",
        hint=_GIVE_APPLICATION,
    )


def _refuse_path(path: Path) -> None:
    """Raise UsageError or Refused for a path that is no directory, or is a symbolic link."""
    try:
        os.stat(path, follow_symlinks=False)
    except PermissionError as error:
        raise Refused(f"kstate cannot check {path}: {error.strerror}", hint=access_hint(path)) from None
    except OSError:
        pass  # a missing path is reported below
    # Checked before exists(), which follows links: a link without a target is a link too.
    if path.is_symlink():
        raise Refused(
            f"{path} is a symbolic link", hint=f"pass the directory that the link points to: {os.path.realpath(path)}"
        )
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint=hint_with_suggestion(_similar_folder(path), _GIVE_APPLICATION))
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", hint=_GIVE_APPLICATION)


def _applications_in(state_dir: Path) -> list[Path]:
    """Return the application directories in a ``state.dir``, sorted. Raise Refused if it cannot be listed."""
    try:
        return sorted(
            Path(entry.path)
            for entry in os.scandir(state_dir)
            if entry.is_dir(follow_symlinks=False)
            and entry.name != OWN_FOLDER
            and looks_like_application(Path(entry.path))
        )
    except PermissionError as error:
        raise Refused(f"kstate cannot read {state_dir}: {error.strerror}", hint=access_hint(state_dir)) from None


def _is_part(path: Path) -> bool:
    """Return whether a folder is, by its name and its files, a task or a named topology of an application."""
    if is_task_or_global(path.name):
        return not _is_application_named_as_task(str(path))
    return is_topology(path.name) and not _has_lock(str(path))


def _similar_folder(path: Path) -> str:
    """Return a suggestion: a folder beside ``path`` with almost the same name; empty without one."""
    try:
        with os.scandir(path.parent) as entries:
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ""
    return did_you_mean([path.name], folders)


def find_application_or_runs(path: Path) -> Path:
    """Find an application as :func:`find_application`, but accept a missing or empty one that has runs of kstate."""
    absolute = Path(os.path.realpath(path.parent)) / path.name
    own = absolute.parent / OWN_FOLDER / absolute.name
    try:
        # Runs prove that there was an application of this name. ``undo`` and ``restore`` can restore a missing
        # directory.
        has_runs = own.is_dir() and path.name != OWN_FOLDER
    except PermissionError as error:
        raise Refused(f"kstate cannot check {own}: {error.strerror}", hint=access_hint(own)) from None
    if not path.is_symlink() and (path.is_dir() or not path.exists()) and has_runs:
        return absolute
    return find_application(path)


def find_application_to_create(path: Path) -> Path:
    """Return the application directory, which may be missing or empty: then the command creates it.

    Raise UsageError if its parent does not exist, and Refused if this user may not read the path.
    """
    try:
        exists = path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir())))
    except PermissionError as error:
        raise Refused(
            f"kstate cannot read {error.filename}: {error.strerror}", hint=access_hint(error.filename)
        ) from None
    # A directory with files, or a link, must be an application. An empty folder counts as missing: it may be a mount
    # point, or the user has created it.
    if exists:
        return find_application(path)
    absolute = Path(os.path.realpath(path.parent)) / path.name
    if not absolute.parent.is_dir():
        raise UsageError(
            f"{absolute.parent} does not exist",
            hint=(
                "pass the application directory: state.dir/application.id. If the path is correct, create its "
                "state.dir as the application's user:"
            ),
            hint_details=[shell("mkdir", "-p", absolute.parent)],
        )
    return absolute


def looks_like_application(path: Path) -> bool:
    """Return whether a directory has a lock file, a process file, ``global`` or a task directory."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name in (LOCK, PROCESS_FILE):
                    return True
                if not is_task_or_global(entry.name) or not entry.is_dir(follow_symlinks=False):
                    continue
                if not _is_application_named_as_task(entry.path):
                    return True
    except PermissionError as error:
        raise Refused(f"kstate cannot read {path}: {error.strerror}", hint=access_hint(path)) from None
    except OSError:
        return False
    return False


def has_application(path: Path) -> bool:
    """Return whether :func:`find_application` would look for an application there, and find one or several.

    A path that is no directory, such as the address of a dump in a bucket, has none. Raise Refused as above.
    """
    return path.is_dir() and (looks_like_application(path) or bool(_applications_in(path)))


def applications_of_state_dir(path: Path) -> list[Path]:
    """Return the application directories in a ``state.dir``, sorted; none in a directory that is an application."""
    return [] if looks_like_application(path) else _applications_in(path)


def _is_application_named_as_task(path: str) -> bool:
    """Return whether a folder named like a task, or ``global``, is an application with that name and not a task.

    Only an application has a process file or task directories. A lock file proves nothing: Streams up to 2.7 created
    one in each task directory, and later releases do not remove it.
    """
    try:
        with os.scandir(path) as entries:
            return any(entry.name == PROCESS_FILE or is_task_or_global(entry.name) for entry in entries)
    except OSError:
        return False


def _has_lock(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in (LOCK, PROCESS_FILE))


def holds_tasks(app: Path) -> bool:
    """Return whether any task directory has a file; False without APP. Raise Refused for an unreadable folder."""
    return any(files for _, files in _files_of_tasks(app))


def contents(app: Path) -> frozenset[str]:
    """Return the members of ``CONTENTS`` that an application has. Raise Refused as :func:`holds_tasks`."""
    any_task, other_task = CONTENTS[:2]
    kinds = set()
    for task, files in _files_of_tasks(app):
        if files:
            kinds.add(any_task)
            if task != GLOBAL:
                kinds.add(other_task)
        if CURRENT in files:
            kinds.add(DATABASE)
        # A write-ahead log counts as an SST, because it may have rows that are in no SST yet.
        if any(is_sst(file) or is_log(file) for file in files):
            kinds.add(SST)
    return frozenset(kinds)


def _files_of_tasks(app: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the task and the file names of each folder in a task directory.

    A folder that a running application removes meanwhile is skipped. Raise Refused for an unreadable one.
    """
    if not app.is_dir():
        return
    try:
        for name, task in task_directories(app):
            # Without a handler, os.walk silently skips unreadable folders, and a task with files would look empty.
            for _, _, files in os.walk(task, onerror=_raise_unless_missing):
                yield name, files
    except PermissionError as error:
        raise Refused(
            f"kstate cannot read {error.filename}: {error.strerror}", hint=access_hint(error.filename)
        ) from None


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def store_folders(app: Path) -> Iterator[str]:
    """Yield the folder names of stores, once for each task that has the store; no file is read."""
    for _, task in task_directories(app):
        for folder in (task, task / ROCKSDB):
            if folder.is_dir():
                with os.scandir(folder) as entries:
                    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                yield from (name for name in folders if name != ROCKSDB and legal_store_name(name))


def task_directories(app: Path) -> list[tuple[str, Path]]:
    """Return (name, path) of each task directory in order: ``0_0`` … , named topologies, then ``global``."""
    directories: list[tuple[str, Path]] = []
    for entry in sorted(os.listdir(app)):
        path = app / entry
        if path.is_symlink() or not path.is_dir():
            continue
        if is_task_or_global(entry):
            directories.append((entry, path))
        elif is_topology(entry):
            directories += [
                (f"{entry}/{name}", path / name)
                for name in sorted(os.listdir(path))
                if is_task(name) and (path / name).is_dir() and not (path / name).is_symlink()
            ]
    # Sorted by number: as a text, 0_10 would come before 0_2.
    return sorted(directories, key=lambda task: TaskId.parse(task[0]).order)


def read_process_id(app: Path) -> str | None:
    """Return ``processId`` as Streams reads it; None if there is none: then the next start creates one.

    Streams ignores other members of the file (``StateDirectory.initializeProcessId``).
    """
    try:
        content = parse_json(read_small(app / PROCESS_FILE, _MOST_PROCESS_BYTES))
        return str(uuid.UUID(content["processId"])) if isinstance(content, dict) else None
    except (OSError, MalformedBytesError, KeyError, ValueError, TypeError, AttributeError):
        return None


def unknown_selection(app: Application, tasks: Iterable[str], stores: Iterable[str]) -> UsageError:
    """Return the error for a selection of ``tasks`` and ``stores`` that matches no store of the application."""
    suggestion = did_you_mean(tasks, {task.name for task in app.tasks})
    suggestion = suggestion or did_you_mean(stores, {store.name for task in app.tasks for store in task.stores})
    return UsageError(
        "the directory does not have this task or store",
        hint=hint_with_suggestion(suggestion, f"to list the stores, run {command('ls', app.path)}"),
    )
