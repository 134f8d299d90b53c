"""From the path that a user gives to an application directory and its task directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kstate_cli.access import access_hint
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.task_id import GLOBAL, TaskId, is_task, is_task_or_global, is_topology
from kstate_cli.formats.topic_partition import legal_store_name
from kstate_cli.rocks.files import CURRENT, is_log, is_sst
from kstate_cli.statedir.names import LOCK, OWN_FOLDER, PROCESS_FILE, ROCKSDB
from kstate_cli.texts import did_you_mean

DATABASE: Final = "database"
SST: Final = "SST"
CONTENTS: Final = ("task", "task but global", DATABASE, SST)
"""What may be left of an application, the first things first."""


def find_application(path: Path) -> Path:
    """The absolute path of the application directory that ``path`` names: itself, or the only one in a ``state.dir``.

    Raises UsageError where there is none or more than one, Refused for a symbolic link (the exchange of a change
    would replace the link, and its name may not be the application.id).
    """
    try:
        os.stat(path, follow_symlinks=False)
    except PermissionError as error:
        raise Refused(f"{path} cannot be looked at: {error.strerror}", hint=access_hint(path)) from None
    except OSError:
        pass  # told below
    if path.is_symlink():
        raise Refused(
            f"{path} is a symbolic link", hint=f"name the directory that it points to: {os.path.realpath(path)}"
        )
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint=f"{_neighbour(path)}give state.dir/application.id")
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", hint="give state.dir/application.id")
    absolute = Path(os.path.realpath(path))
    part = _is_part(absolute) and looks_like_application(absolute.parent)
    if part or OWN_FOLDER in absolute.parts:
        # Its lock would not be the application's.
        raise UsageError(
            f"{absolute} is part of an application directory or of what kstate keeps, not an application directory",
            hint="give state.dir/application.id",
        )
    if looks_like_application(absolute):
        return absolute
    try:
        inside = sorted(
            Path(entry.path)
            for entry in os.scandir(absolute)
            if entry.is_dir(follow_symlinks=False)
            and entry.name != OWN_FOLDER
            and looks_like_application(Path(entry.path))
        )
    except PermissionError as error:
        raise Refused(f"{absolute} cannot be read: {error.strerror}", hint=access_hint(absolute)) from None
    if len(inside) == 1:
        return inside[0]
    if inside:
        names = ", ".join(entry.name for entry in inside)
        raise UsageError(f"{absolute} holds several applications: {names}", hint="name one of them")
    raise UsageError(
        f"{absolute} is not an application directory of Kafka Streams: no {LOCK}, no {PROCESS_FILE}, no task directory",
        hint="give state.dir/application.id",
    )


def _is_part(path: Path) -> bool:
    """Return whether a folder is, by its name and its files, a task or a named topology of an application."""
    if is_task_or_global(path.name):
        return not _named_like_a_task(str(path))
    return is_topology(path.name) and not _has_lock(str(path))


def _neighbour(path: Path) -> str:
    """What lies there under almost the same name."""
    try:
        with os.scandir(path.parent) as entries:
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ""
    return did_you_mean([path.name], folders)


def find_runs_of(path: Path) -> Path:
    """As :func:`find_application`; a directory that is lost, or has nothing left in it, is known by its runs."""
    absolute = Path(os.path.realpath(path.parent)) / path.name
    own = absolute.parent / OWN_FOLDER / absolute.name
    try:
        has_runs = own.is_dir() and path.name != OWN_FOLDER
    except PermissionError as error:
        raise Refused(f"{own} cannot be looked at: {error.strerror}", hint=access_hint(own)) from None
    if not path.is_symlink() and (path.is_dir() or not path.exists()) and has_runs:
        return absolute
    return find_application(path)


def looks_like_application(path: Path) -> bool:
    """True for a directory with a lock file, a process file, ``global`` or a task directory."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name in (LOCK, PROCESS_FILE):
                    return True
                named = is_task_or_global(entry.name)
                if named and entry.is_dir(follow_symlinks=False) and not _named_like_a_task(entry.path):
                    return True
    except PermissionError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", hint=access_hint(path)) from None
    except OSError:
        return False
    return False


def _named_like_a_task(path: str) -> bool:
    """Return whether a folder with the name of a task, or ``global``, is an application of that name.

    A lock file does not tell: Streams up to 2.7 had one in each task directory, and no later release removes it.
    """
    try:
        with os.scandir(path) as entries:
            return any(entry.name == PROCESS_FILE or is_task_or_global(entry.name) for entry in entries)
    except OSError:
        return False


def _has_lock(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in (LOCK, PROCESS_FILE))


def holds_tasks(app: Path) -> bool:
    """Whether any task directory has a file; False where APP is not there. Raises Refused for what may not be read."""
    return any(files for _, files in _files_of_tasks(app))


def contents(app: Path) -> frozenset[str]:
    """Which of ``CONTENTS`` there is of an application. Raises Refused as ``holds_tasks``."""
    any_task, other_task = CONTENTS[:2]
    kinds = set()
    for task, files in _files_of_tasks(app):
        if files:
            kinds |= {any_task} if task == GLOBAL else {any_task, other_task}
        if CURRENT in files:
            kinds.add(DATABASE)
        # A write-ahead log counts as well: rows that no flush has put into an SST.
        if any(is_sst(file) or is_log(file) for file in files):
            kinds.add(SST)
    return frozenset(kinds)


def _files_of_tasks(app: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder below a task directory: the task, and the names of its files.

    What a running application drops meanwhile is not there. Raises Refused for what may not be read.
    """
    if not app.is_dir():
        return
    try:
        for name, task in task_directories(app):
            for _, _, files in os.walk(task, onerror=_raised):
                yield name, files
    except PermissionError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}", hint=access_hint(error.filename)) from None


def _raised(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def store_folders(app: Path) -> Iterator[str]:
    """Names of the folders where stores lie, those of a store in several tasks several times; no file is looked at."""
    for _, task in task_directories(app):
        for folder in (task, task / ROCKSDB):
            if folder.is_dir():
                with os.scandir(folder) as entries:
                    folders = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
                yield from (name for name in folders if name != ROCKSDB and legal_store_name(name))


def task_directories(app: Path) -> list[tuple[str, Path]]:
    """(name, path) of each task directory in order: ``0_0`` … , named topologies, then ``global``."""
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
    return sorted(directories, key=lambda task: TaskId.parse(task[0]).order)
