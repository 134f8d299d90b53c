"""Read a whole application directory into the model; nothing is written."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstate_cli.errors import Refused
from kstate_cli.formats.kind_inference import Kind, infer_kind
from kstate_cli.formats.topic_partition import is_task, is_task_or_global, is_topology
from kstate_cli.host import STORES_STAY, cores_here
from kstate_cli.parallel import Workers
from kstate_cli.regular_files import DENIED, access_hint
from kstate_cli.rocks.files import is_manifest
from kstate_cli.statedir.database import is_database, read_database
from kstate_cli.statedir.entries import (
    READING_ATTEMPTS,
    StoreFolder,
    TaskEntries,
    changes_too_fast,
    read_entries,
    special_entries,
    symbolic_link,
)
from kstate_cli.statedir.find import task_directories
from kstate_cli.statedir.locks import LockTable, read_lock_table
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import LOCK, is_foreign, segment_start
from kstate_cli.statedir.problems import TRANSIENT, UNOPENABLE, Place, Problem, ProblemCode, store_place
from kstate_cli.texts import plural, size_text

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.01
"""The pause before the second attempt to read a database. Each further pause is this much longer."""
_LATER = (
    "the running application is creating or dropping the database. After you have stopped the application, `kstate "
    "check` shows the store's kind"
)


@dataclass(frozen=True, slots=True)
class _DatabaseRequest:
    """One database to read, and the start of its segment in ms."""

    path: Path
    start: int | None
    place: Place
    count_bytes: int = 0
    """Its rows are counted if all its files have at most this many bytes."""


@dataclass(frozen=True, slots=True)
class _TaskFolder:
    """A task directory whose entries were read."""

    name: str
    path: Path
    entries: TaskEntries
    requests: dict[str, list[_DatabaseRequest]] = field(default_factory=dict)
    """The databases of each store, by store name."""


def read_application(
    path: Path,
    *,
    workers: Workers | int | None = None,
    on_store: Callable[[str], None] | None = None,
    stores: Collection[str] | None = None,
    count_bytes: int = 0,
    unlisted: list[OSError] | None = None,
) -> Application:
    """Read the application directory ``path`` (absolute) into the model.

    ``workers`` are processes of the caller, or the number of databases that are read at the same time. ``on_store``
    gets ``<task>/<store>`` when a store was read. ``stores`` restricts the reading to these store names; None reads
    all. In total at most ``count_bytes`` are read to count the rows of small databases.

    Raises Refused if a task, or a directory in it, cannot be listed. With ``unlisted`` everything else is read, and the
    errors are appended to this list: the caller must raise :func:`unlisted_error`.
    """
    began = time.monotonic()
    # The locks are read before any database: a lock that is released while kstate reads must count.
    lock_table = read_lock_table()
    problems = misplaced_entries(path)
    folders = _task_folders(path, stores)
    _collect_unlisted(folders, unlisted)
    requests = _with_count_bytes([request for folder in folders for request in _requests(folder)], count_bytes)
    with _pool(workers) as pool:
        # All databases of all tasks go through one pool, so that a task with one large store leaves no worker idle.
        databases = pool.map(_read_settled, requests)
        read = [_read_task(folder, databases, on_store) for folder in folders]
    tasks = tuple(task for task in read if task is not None)
    # The locks from the beginning decide: an application that has ended meanwhile may have flushed while kstate read.
    running, pid = _running(path, tasks, lock_table)
    if running:
        tasks = tuple(map(while_running, tasks))
    if stores is None:
        # Only if all stores are read. With ``stores``, reading these databases has checked their entries, and the rest
        # does not matter to the caller.
        problems += _unreported_special_entries(path, problems, tasks)
    app = Application(path, tasks, running, pid, tuple(problems))
    _log(app, time.monotonic() - began)
    return app


DatabaseReader = Callable[[Path, int | None, Place], Database | None]
"""Takes the path of a database, the start of its segment in ms and its place; None if the database was removed."""


def read_task(name: str, path: Path, read: DatabaseReader) -> Task | None:
    """Read one task directory; ``read`` reads each database.

    None if the task was removed. Raise Refused as read_application.

    Offset files are read first, then the folders of stores are listed, and only then the databases are read. So the
    rows are never older than the offset files.
    """
    entries = read_entries(name, path)
    if entries is None:
        return None
    folder = _TaskFolder(name, path, entries, _store_requests(name, entries))
    _collect_unlisted([folder], None)
    databases = (read(request.path, request.start, request.place) for request in _requests(folder))
    return _read_task(folder, databases, None)


def _pool(workers: Workers | int | None) -> contextlib.AbstractContextManager[Workers]:
    """Return the caller's workers, which stay open, or new ones that end with the reading."""
    if isinstance(workers, Workers):
        return contextlib.nullcontext(workers)
    return Workers(workers or cores_here())


def _task_folders(path: Path, stores: Collection[str] | None) -> list[_TaskFolder]:
    """Return the task directories with their entries, without those that a running application removes meanwhile.

    The entries of all tasks are read before the first folder is checked for databases: they must be of the same moment.
    """
    folders = []
    for name, task_path in task_directories(path):
        entries = read_entries(name, task_path)
        if entries is None:
            continue
        if stores is not None:
            entries.stores = [store for store in entries.stores if store.name in stores]
        folders.append(_TaskFolder(name, task_path, entries))
    return [replace(folder, requests=_store_requests(folder.name, folder.entries)) for folder in folders]


def _requests(folder: _TaskFolder) -> Iterator[_DatabaseRequest]:
    """Yield the databases of a task, in the order in which :func:`_read_task` takes the results."""
    for requests in folder.requests.values():
        yield from requests


def _with_count_bytes(requests: list[_DatabaseRequest], count_bytes: int) -> list[_DatabaseRequest]:
    """Return the requests, each with an equal share of the bytes that may be read to count rows."""
    if not count_bytes or not requests:
        return requests
    # Equal shares, because it is not known yet which databases are small. The sum stays within the limit.
    share = count_bytes // len(requests)
    return [replace(request, count_bytes=share) for request in requests]


def _collect_unlisted(folders: Iterable[_TaskFolder], unlisted: list[OSError] | None) -> None:
    """Append the errors of directories that cannot be listed to ``unlisted``. If it is None, raise Refused."""
    errors = [error for folder in folders for error in folder.entries.unlisted]
    if unlisted is not None:
        unlisted += errors
    elif errors:
        raise unlisted_error(errors)


def _log(app: Application, seconds: float) -> None:
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    databases = [database for task in app.tasks for store in task.stores for database in store.databases]
    size = sum(database.size for database in databases)
    counts = f"{plural(len(app.tasks), 'task')}, {plural(len(databases), 'database')}, {size_text(size)}"
    _LOG.debug("read %s: %s, %s, %.3f s", app.path, counts, app.as_of, seconds)
    for problem in app.all_problems():
        _LOG.debug("problem %s at %s: %s", problem.code.value, problem.place.text, problem.text)


def unlisted_error(errors: Sequence[OSError]) -> Refused:
    """Return the error for directories that this host cannot list: their content is unknown."""
    first = errors[0]
    more = f", and {len(errors) - 1} more" if errors[1:] else ""
    return Refused(
        f"kstate cannot list {first.filename}: {first.strerror}{more}",
        hint=access_hint(first.filename) if first.errno in DENIED else STORES_STAY,
    )


def while_running(task: Task) -> Task:
    """Return a task of a running application without the databases that this application is creating or dropping.

    Nothing is wrong with them, and their contents are unknown. They get a problem that is no warning, and count as
    missing.
    """
    stores, problems = [], [_postponed(problem, UNOPENABLE) for problem in task.problems]
    for store in task.stores:
        databases = []
        for database in store.databases:
            postponed = tuple(_postponed(problem, TRANSIENT) for problem in database.problems)
            # The database cannot be opened now. It is removed, because an empty database in its place would look like
            # lost rows.
            if any(problem.code in UNOPENABLE for problem in database.problems):
                problems += postponed
            else:
                databases.append(replace(database, problems=postponed))
        stores.append(replace(store, databases=tuple(databases)))
    return replace(task, stores=tuple(stores), problems=tuple(problems))


def _postponed(problem: Problem, codes: frozenset[ProblemCode]) -> Problem:
    """Return the problem as UNDER_WAY if its code is one of ``codes``, otherwise unchanged.

    Such a problem proves nothing while the application is running.
    """
    if problem.code not in codes:
        return problem
    return Problem(ProblemCode.UNDER_WAY, problem.place, problem.description, _LATER)


def _unreported_special_entries(path: Path, problems: list[Problem], tasks: tuple[Task, ...]) -> list[Problem]:
    """Return the special entries at any depth, but those that a task or database reports already."""
    all_problems = Application(path, tasks, None, None, tuple(problems)).all_problems()
    # Only fatal problems hide a special entry. After a harmless one, a copy of the directory would hang at the entry.
    reported = {problem.place for problem in all_problems if problem.fatal}
    return [problem for problem in special_entries(path) if problem.place not in reported]


def _running(path: Path, tasks: tuple[Task, ...], lock_table: LockTable) -> tuple[bool | None, int | None]:
    """Return whether an application has the directory open (None: unknown), and its pid."""
    lock = path / LOCK
    databases = [database for task in tasks for store in task.stores for database in store.databases]
    # The LOCK files of RocksDB are checked too: a program that opens a store without Streams locks only these.
    for file in (lock, *(database.path / "LOCK" for database in databases)):
        pid = lock_table.holder(file)
        if pid is not None:
            return True, pid
    # is_locked returns None if no lock is visible, but the system may hide one.
    return lock_table.is_locked(lock), None


def misplaced_entries(path: Path) -> list[Problem]:
    """Return a problem for each entry that may hide a task: a link, or a file with the name of a task or topology.

    A link without a target counts too: a volume that is not mounted may leave one.
    """
    problems = []
    for name in sorted(os.listdir(path)):
        entry, has_task_name = path / name, is_task_or_global(name) or is_topology(name)
        if entry.is_symlink() and (has_task_name or name == LOCK or (entry.is_dir() and not is_foreign(name))):
            rule = "task directories and .lock must be in the application directory"
            problems.append(symbolic_link(Place((name,)), rule))
        elif has_task_name and not entry.is_dir():
            problems.append(_no_task(Place((name,))))
        elif is_topology(name):
            problems += _misplaced_in_topology(name, entry)
    return problems


def _misplaced_in_topology(name: str, path: Path) -> Iterator[Problem]:
    """Yield such problems for the entries in the folder of a named topology."""
    for child in sorted(os.listdir(path)):
        entry, place = path / child, Place((name, child))
        if entry.is_symlink():
            yield symbolic_link(place, "task directories must be in the application directory")
        elif is_task(child) and not entry.is_dir():
            yield _no_task(place)


def _no_task(place: Place) -> Problem:
    return Problem(
        ProblemCode.NOT_A_DIRECTORY,
        place,
        "the entry is not a directory",
        "an entry with the name of a task must be a directory",
    )


def _store_requests(task: str, entries: TaskEntries) -> dict[str, list[_DatabaseRequest]]:
    """Return the databases of each store of a task, by store name; segments in the order of their starts."""
    by_store: dict[str, list[_DatabaseRequest]] = {}
    for store in sorted(entries.stores):
        folder = store_place(task, store.name, segmented=store.segmented)
        if store.segmented:
            requests = [
                _DatabaseRequest(path, start, folder / path.name) for path, start in _segments(store.name, store.path)
            ]
        else:
            requests = [_DatabaseRequest(store.path, None, folder)]
        try:
            by_store[store.name] = [
                request for request in requests if _has_database(request.path, request.place, entries)
            ]
        except OSError as error:
            entries.add_unlisted(error)
            # Without this database the store would appear to have another kind and other offsets, so the whole store is
            # skipped.
            entries.stores.remove(store)
    return by_store


def _segments(name: str, path: Path) -> list[tuple[Path, int]]:
    """Return the path and the start of each segment folder of a store, in the order of the starts."""
    segments: list[tuple[Path, int]] = []
    try:
        children = sorted(os.listdir(path))
    except FileNotFoundError:
        return []  # a running application has dropped the store
    for child in children:
        start = segment_start(name, child)
        if start is not None and not (path / child).is_symlink() and (path / child).is_dir():
            segments.append((path / child, start))
    return sorted(segments, key=lambda segment: segment[1])


def _read_task(
    folder: _TaskFolder, databases: Iterator[Database | None], on_store: Callable[[str], None] | None
) -> Task | None:
    """Return a task with its stores; None if it was removed.

    ``databases`` are the results for the requests of all tasks, in order. This function takes those of its own task.
    """
    entries, stores = folder.entries, []
    for store_folder in sorted(entries.stores):
        read = [next(databases) for _ in folder.requests[store_folder.name]]
        stores.append(_store(store_folder, [database for database in read if database is not None], entries))
        if on_store:
            on_store(f"{folder.name}/{store_folder.name}")
    try:
        mtime_ns = folder.path.stat().st_mtime_ns
    except FileNotFoundError:
        return None  # a running application has dropped it
    return Task(
        name=folder.name,
        path=folder.path,
        stores=tuple(stores),
        checkpoint=entries.checkpoint,
        store_files=entries.store_files,
        position_files=entries.position_files,
        leftovers=tuple(sorted(entries.leftovers)),
        problems=tuple(entries.problems),
        mtime_ns=mtime_ns,
    )


def _store(folder: StoreFolder, databases: list[Database], entries: TaskEntries) -> Store:
    return Store(
        name=folder.name,
        path=folder.path,
        segmented=folder.segmented,
        databases=tuple(databases),
        kind=_kind(folder.name, folder.segmented, databases),
        position_file=entries.position_files.get(folder.name),
        store_file=entries.store_files.get(folder.name),
    )


def _has_database(path: Path, place: Place, entries: TaskEntries) -> bool:
    """Return whether a folder is a database; add a problem if it is none, but has files.

    An empty folder is a store that was never opened. Files without CURRENT and MANIFEST are the rest of a database.
    """
    try:
        if is_database(path):
            return True
        names = os.listdir(path)
    except FileNotFoundError:
        return False  # a running application has dropped the segment
    if names:
        text = "the folder has files, but neither CURRENT nor a MANIFEST"
        entries.problems.append(Problem(ProblemCode.NO_DATABASE, place, text, "Streams must be able to open a store"))
    return False


def _read_settled(request: _DatabaseRequest) -> Database | None:
    """Return a database that did not change while it was read; None if it was removed.

    A running application flushes, compacts, and creates and drops segments meanwhile. So a database with problems is
    read again if its files have changed since. Raises InUse if they change at every attempt.
    """
    path, database = request.path, None
    for attempt in range(READING_ATTEMPTS):
        try:
            # No pause before the first attempt. The later pauses become longer, since a flush or a compaction needs
            # time to end.
            time.sleep(attempt * _PAUSE_SECONDS)
            # The files are listed before the reading, so that a change meanwhile makes the two states differ.
            before = _file_state(path)
            database = read_database(path, request.start, request.place, request.count_bytes)
            if not database.problems or _file_state(path) == before:
                return database
        except FileNotFoundError:
            if not path.exists():
                return None
    if database is not None and all(problem.left_by_kill for problem in database.problems):
        return database  # while_running replaces these problems by UNDER_WAY
    raise changes_too_fast(request.place.text)


def _file_state(path: Path) -> list[tuple[str, int]]:
    """Return the file names of a database with the size of its MANIFEST; the result is equal if nothing has changed.

    If a file was created and deleted between two readings, the names are equal, but the MANIFEST has grown by two
    records.
    """
    with os.scandir(path) as entries:
        return sorted((entry.name, entry.stat().st_size if is_manifest(entry.name) else 0) for entry in entries)


def _kind(name: str, segmented: bool, databases: list[Database]) -> Kind:
    """Return the kind of a store, inferred from its column families, the starts of its segments, and sampled rows."""
    families = frozenset(family for database in databases for family in database.data_families)
    starts = None
    if segmented:
        starts = [database.segment_start for database in databases if database.segment_start is not None]
    # A database without rows has no samples. If all are empty, the first one still has the families and a start.
    with_rows = [database for database in databases if not database.empty]
    sampled = next(iter(with_rows or databases), None)
    if sampled is None:
        return infer_kind(families, starts, {}, name, None)
    return infer_kind(families, starts, sampled.samples, name, sampled.segment_start)
