"""Reads a whole application directory into the model, changing nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstate_cli.access import DENIED, access_hint
from kstate_cli.errors import InUse, Refused
from kstate_cli.formats import checkpoint
from kstate_cli.formats.kind_inference import Kind, infer_kind
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.task_id import is_task, is_task_or_global, is_topology
from kstate_cli.formats.topic_partition import legal_store_name
from kstate_cli.host import CHECK_THE_DISK, STORES_STAY, cannot_be_read, cores_here
from kstate_cli.parallel.workers import Workers
from kstate_cli.regular_files import MOST_OFFSETS_BYTES, NotReadableError, read_small
from kstate_cli.rocks.files import is_manifest
from kstate_cli.statedir.database import is_database, read_database
from kstate_cli.statedir.find import task_directories
from kstate_cli.statedir.locks import LockTable, read_lock_table
from kstate_cli.statedir.model import Application, CheckpointFile, Database, Store, Task
from kstate_cli.statedir.names import (
    CHECKPOINT,
    LOCK,
    POSITION,
    ROCKSDB,
    is_foreign,
    is_offsets_file,
    position_file,
    store_checkpoint,
)
from kstate_cli.statedir.places import Place, Spelling, store_place, task_place
from kstate_cli.statedir.problems import HALF_MADE, NOT_THERE, Problem, ProblemCode
from kstate_cli.statedir.segments import segment_start
from kstate_cli.statedir.special import IGNORED, special_entries, special_entry
from kstate_cli.texts import size_text

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 12
_PAUSE_SECONDS = 0.01
"""Before the second attempt; each pause is longer by it."""
_LATER = "the running application is making it, or dropping it: once that is closed, a check tells what it is"


@dataclass(slots=True)
class _TaskEntries:
    """What lies directly in a task directory, sorted out by name."""

    stores: list[tuple[str, Path, bool]] = field(default_factory=list)
    checkpoint: CheckpointFile | None = None
    store_files: dict[str, CheckpointFile] = field(default_factory=dict)
    position_files: dict[str, CheckpointFile] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unlisted: list[OSError] = field(default_factory=list)
    """Of the directories that this host does not list."""


@dataclass(frozen=True, slots=True)
class _DatabaseToRead:
    """One database that is to be read, and the start of its segment."""

    path: Path
    start: int | None
    place: Place
    count_bytes: int = 0
    """Its rows are counted if its files have so many bytes at most."""


def read_application(
    path: Path,
    *,
    workers: Workers | int | None = None,
    on_store: Callable[[str], None] | None = None,
    stores: Collection[str] | None = None,
    count_bytes: int = 0,
    unlisted: list[OSError] | None = None,
) -> Application:
    """Reads the application directory ``path`` (absolute). So many ``workers`` read databases at once.

    ``stores`` names the only ones that are read; None: all of them. Rows are counted on the way in databases that are
    small, so that ``count_bytes`` at most are read for that. Raises Refused for a task, or a directory in one, that
    this host does not list; with ``unlisted`` the others are read, the errors are in it, and whoever gave it has to
    raise :func:`not_all_of_it`.
    """
    began = time.monotonic()
    table = read_lock_table()
    problems = _foreign_in_application(path)
    entered = [(name, task, _entries(name, task)) for name, task in task_directories(path)]
    with_entries = [(name, task, entries) for name, task, entries in entered if entries is not None]
    if stores is not None:
        for _, _, entries in with_entries:
            entries.stores = [one for one in entries.stores if one[0] in stores]
    databases_of = {name: _databases(name, entries) for name, _, entries in with_entries}
    not_listed = [error for _, _, entries in with_entries for error in entries.unlisted]
    if unlisted is not None:
        unlisted += not_listed
    elif not_listed:
        raise not_all_of_it(not_listed)
    jobs = [one for of_task in databases_of.values() for of_store in of_task.values() for one in of_store]
    if count_bytes:
        jobs = [replace(one, count_bytes=count_bytes // len(jobs)) for one in jobs]
    own = contextlib.nullcontext(workers) if isinstance(workers, Workers) else Workers(workers or cores_here())
    with own as pool:
        databases = pool.map(_settled, jobs)
        read = [_read_task(*one, databases_of[one[0]], databases, on_store) for one in with_entries]
    tasks = tuple(task for task in read if task is not None)
    running, pid = _running(path, tasks, table)
    if running:
        tasks = tuple(map(_while_running, tasks))
    if stores is None:
        # Whoever reads some stores only opens nothing but their databases, which are looked at on their own.
        problems += _not_named_yet(path, problems, tasks)
    app = Application(path, tasks, running, pid, tuple(problems))
    _log(app, time.monotonic() - began)
    return app


def _log(app: Application, seconds: float) -> None:
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    databases = [database for task in app.tasks for store in task.stores for database in store.databases]
    size = sum(database.size for database in databases)
    counts = f"{len(app.tasks)} tasks, {len(databases)} databases, {size_text(size)}"
    _LOG.debug("read %s: %s, %s, %.3f s", app.path, counts, app.as_of, seconds)
    for problem in app.all_problems():
        _LOG.debug("problem %s at %s: %s", problem.code.value, problem.place.text, problem.text)


def not_all_of_it(errors: Sequence[OSError]) -> Refused:
    """What to raise of directories that this host does not list: what is in them is not known."""
    first = errors[0]
    more = f", and {len(errors) - 1} more" if errors[1:] else ""
    return Refused(
        f"{first.filename} cannot be listed: {first.strerror}{more}",
        hint=access_hint(first.filename) if first.errno in DENIED else STORES_STAY,
    )


def _while_running(task: Task) -> Task:
    """A task without the databases that a running application is making or dropping.

    What they are cannot be known now, and nothing has failed: they are told of, and count as not there.
    """
    stores, problems = [], [_later(one, NOT_THERE) for one in task.problems]
    for store in task.stores:
        databases = []
        for database in store.databases:
            told = tuple(_later(one, HALF_MADE) for one in database.problems)
            if any(one.code in NOT_THERE for one in database.problems):
                problems += told
            else:
                databases.append(replace(database, problems=told))
        stores.append(replace(store, databases=tuple(databases)))
    return replace(task, stores=tuple(stores), problems=tuple(problems))


def _later(problem: Problem, codes: frozenset[ProblemCode]) -> Problem:
    if problem.code not in codes:
        return problem
    return Problem(ProblemCode.UNDER_WAY, problem.place, problem.what, _LATER)


def _not_named_yet(path: Path, problems: list[Problem], tasks: tuple[Task, ...]) -> list[Problem]:
    """What is neither a file nor a directory, wherever it lies, unless a task or a database has named it."""
    all_problems = Application(path, tasks, None, None, tuple(problems)).all_problems()
    named = {problem.place for problem in all_problems if problem.fatal}
    return [problem for problem in special_entries(path) if problem.place not in named]


def _running(path: Path, tasks: tuple[Task, ...], table: LockTable) -> tuple[bool | None, int | None]:
    lock = path / LOCK
    pid = table.holder(lock)
    if pid is not None:
        return True, pid
    for task in tasks:
        for store in task.stores:
            for database in store.databases:
                pid = table.holder(database.path / "LOCK")
                if pid is not None:
                    return True, pid
    return table.held(lock), None


def _foreign_in_application(path: Path) -> list[Problem]:
    """What has the name of a task, or of what tasks lie in, and is no directory: a task may be out of sight.

    A link counts whether it leads anywhere or not: a volume that is not mounted leaves one that does not.
    """
    problems = []
    for name in sorted(os.listdir(path)):
        entry = path / name
        named = is_task_or_global(name) or is_topology(name)
        if entry.is_symlink() and (named or name == LOCK or (entry.is_dir() and not is_foreign(name))):
            problems.append(_link(Place((name,)), "task directories and .lock must lie in the application"))
        elif named and not entry.is_dir():
            problems.append(_no_task(Place((name,))))
        elif is_topology(name):
            for child in sorted(os.listdir(entry)):
                place = Place((name, child))
                if (entry / child).is_symlink():
                    problems.append(_link(place, "task directories must lie in the application"))
                elif is_task(child) and not (entry / child).is_dir():
                    problems.append(_no_task(place))
    return problems


def _link(place: Place, rule: str) -> Problem:
    return Problem(ProblemCode.LINK, place, "is a symbolic link", rule)


def _no_task(place: Place) -> Problem:
    return Problem(ProblemCode.NOT_A_DIRECTORY, place, "is not a directory", "what is named like a task is a directory")


def _databases(task: str, entries: _TaskEntries) -> dict[str, list[_DatabaseToRead]]:
    """The databases of each store of a task, segments in the order of their starts."""
    by_store: dict[str, list[_DatabaseToRead]] = {}
    for name, path, segmented in sorted(entries.stores):
        folder = store_place(task, name, segmented=segmented)
        starts = _segments(name, path) if segmented else [(path, None)]
        every = [_DatabaseToRead(one, start, folder / one.name if segmented else folder) for one, start in starts]
        try:
            by_store[name] = [one for one in every if _has_database(one.path, one.place, entries)]
        except OSError as error:
            _not_listed(error, entries)
            # Without this database it would be told as another store than it is.
            entries.stores.remove((name, path, segmented))
    return by_store


def _names(path: Path, entries: _TaskEntries) -> list[str] | None:
    """What lies in a directory, in order; None where this host does not list it, which is kept in mind."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        _not_listed(error, entries)
        return None


def _not_listed(error: OSError, entries: _TaskEntries) -> None:
    """Keeps it in mind. Raises it where it says anything else, such as that a running application has dropped it."""
    if not cannot_be_read(error):
        raise error
    entries.unlisted.append(error)


def _segments(name: str, path: Path) -> list[tuple[Path, int | None]]:
    segments: list[tuple[Path, int | None]] = []
    try:
        children = sorted(os.listdir(path))
    except FileNotFoundError:
        return []  # a running application has dropped the store
    for child in children:
        start = segment_start(name, child)
        if start is not None and not (path / child).is_symlink() and (path / child).is_dir():
            segments.append((path / child, start))
    return sorted(segments, key=lambda place: place[1] or 0)


def _read_task(
    name: str,
    path: Path,
    entries: _TaskEntries,
    jobs: dict[str, list[_DatabaseToRead]],
    databases: Iterator[Database | None],
    on_store: Callable[[str], None] | None,
) -> Task | None:
    """A task with its stores; the next of ``databases`` are those of its ``jobs``. None where it is gone by now."""
    stores = []
    for store_name, store_path, segmented in sorted(entries.stores):
        read = [next(databases) for _ in jobs[store_name]]
        stores.append(_store(store_name, store_path, segmented, [d for d in read if d is not None], entries))
        if on_store:
            on_store(f"{name}/{store_name}")
    try:
        mtime_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None  # a running application has dropped it
    return Task(
        name=name,
        path=path,
        stores=tuple(stores),
        checkpoint=entries.checkpoint,
        store_files=entries.store_files,
        position_files=entries.position_files,
        leftovers=tuple(sorted(entries.leftovers)),
        problems=tuple(entries.problems),
        mtime_ns=mtime_ns,
    )


def _entries(task: str, path: Path) -> _TaskEntries | None:
    """What lies in a task directory; None where it is gone by now. Raises InUse where it never stands still."""
    for _ in range(_ATTEMPTS):
        try:
            return _sort_entries(task_place(task), path)
        except FileNotFoundError:
            if not path.exists():
                return None
    raise _never_still(task)


def _never_still(shown: str) -> InUse:
    return InUse(f"{shown} changes faster than it can be read", hint="run the command again, or stop the application")


def _sort_entries(task: Place, path: Path) -> _TaskEntries:
    sorted_out = _TaskEntries()
    for name in _names(path, sorted_out) or ():
        entry, place = path / name, task / name
        if name in IGNORED:
            continue
        if is_foreign(name) and not _may_be_store(entry):
            sorted_out.problems.append(special_entry(entry, place) or _ignorable(place))
        elif entry.is_symlink():
            sorted_out.problems.append(_link(place, "files of a task must lie in its directory"))
        elif not entry.is_dir() and not entry.is_file():
            sorted_out.problems += filter(None, [special_entry(entry, place)])
        elif entry.is_dir() and is_offsets_file(name):
            sorted_out.problems.append(
                Problem(ProblemCode.NOT_A_FILE, place, "is a directory", "offset files are files")
            )
        elif name == CHECKPOINT:
            sorted_out.checkpoint = _read_checkpoint(entry, place, sorted_out.problems)
        elif name.startswith(CHECKPOINT) and name.endswith(".tmp"):
            sorted_out.leftovers.append(name)
        elif name.startswith(store_checkpoint("")):
            file = _read_checkpoint(entry, place, sorted_out.problems)
            sorted_out.store_files |= {} if file is None else {name.removeprefix(store_checkpoint("")): file}
        elif name.endswith(POSITION):
            file = _read_checkpoint(entry, place, sorted_out.problems)
            sorted_out.position_files |= {} if file is None else {name.removesuffix(POSITION): file}
        elif name.endswith((POSITION + ".tmp", LOCK)):
            sorted_out.leftovers.append(name)
        elif name == ROCKSDB and entry.is_dir():
            _sort_rocksdb(place, entry, sorted_out)
        elif entry.is_dir():
            _sort_directory(place, name, entry, sorted_out)
        else:
            sorted_out.problems.append(_ignorable(place))
    return sorted_out


def _may_be_store(entry: Path) -> bool:
    """Whether a folder with the name of a foreign one is a database, or has databases: Streams may have made it."""
    if entry.is_symlink() or not entry.is_dir():
        return False
    try:
        return is_database(entry) or any(child.is_dir() and is_database(child) for child in entry.iterdir())
    except OSError as error:
        if not cannot_be_read(error):
            raise
        return False


def _ignorable(place: Place) -> Problem:
    rule = "Streams ignores it, but a task directory with it never counts as empty; it is carried along"
    return Problem(ProblemCode.FOREIGN, place, "is not a file of Streams", rule)


def _illegal(place: Place) -> Problem:
    return Problem(ProblemCode.ILLEGAL_NAME, place, "is no legal store name", "[a-zA-Z0-9._-], 249 at most")


def _no_segment(place: Place, rule: str) -> Problem:
    return Problem(ProblemCode.NO_SEGMENT, place, "cannot be parsed as a segment", rule)


def _sort_rocksdb(folder: Place, path: Path, sorted_out: _TaskEntries) -> None:
    """The stores in ``rocksdb/``: one database each."""
    for name in _names(path, sorted_out) or ():
        entry, place = path / name, folder / name
        if name in IGNORED:
            continue
        if is_foreign(name) and not _may_be_store(entry):
            sorted_out.problems.append(special_entry(entry, place) or _ignorable(place))
        elif entry.is_symlink():
            sorted_out.problems.append(_link(place, "stores must lie in the task"))
        elif (special := special_entry(entry, place)) is not None:
            sorted_out.problems.append(special)
        elif not entry.is_dir():
            sorted_out.problems.append(_ignorable(place))
        elif not legal_store_name(name):
            sorted_out.problems.append(_illegal(place.spelled(Spelling.LAST_QUOTED)))
        else:
            sorted_out.stores.append((name, entry, False))


def _sort_directory(place: Place, name: str, path: Path, sorted_out: _TaskEntries) -> None:
    """A directory of a task: a segmented store when its entries say so, else a custom store's or a foreign one."""
    children = _names(path, sorted_out)
    if children is None:
        return
    segments = [child for child in children if segment_start(name, child) is not None]
    if not legal_store_name(name):
        sorted_out.problems.append(_illegal(place.spelled(Spelling.QUOTED)))
        return
    if children and not segments:
        if (path.parent / position_file(name)).exists():
            rule = (
                "a store with a Position is one of Streams: 4.3 does not start with what it cannot parse as a segment"
            )
            sorted_out.problems.append(_no_segment(place / children[0], rule))
        else:
            # A custom store may keep anything here; Streams would choke on it only if it were a segmented store.
            sorted_out.problems.append(_ignorable(place))
        return
    for child in children:
        entry = path / child
        if entry.is_symlink():
            sorted_out.problems.append(_link(place / child, "segments must lie in their store"))
        elif child not in segments:
            rule = "4.3 does not start with it, older releases open the store silently empty: move it out of the task"
            sorted_out.problems.append(_no_segment(place / child, rule))
        elif not entry.is_dir():
            what, rule = "is not a directory", "a segment is a RocksDB directory"
            sorted_out.problems.append(Problem(ProblemCode.NOT_A_DIRECTORY, place / child, what, rule))
    sorted_out.stores.append((name, path, True))


def _read_checkpoint(path: Path, place: Place, problems: list[Problem]) -> CheckpointFile | None:
    """An offset file with what is wrong in it; None where it is gone: a start of up to 4.2 removes it."""
    content = None
    error: MalformedBytesError | OSError | None = None
    mtime = 0
    try:
        mtime = path.stat(follow_symlinks=False).st_mtime_ns
        content = checkpoint.parse(read_small(path, MOST_OFFSETS_BYTES))
    except FileNotFoundError:
        return None
    except (MalformedBytesError, OSError) as caught:
        error = caught
    file = CheckpointFile(path, content, error, mtime)
    if error is not None:
        code, rule = _unread(error)
        problems.append(Problem(code, place, file.why or "", rule))
    if content is not None and any(tp.partition < 0 for tp in content.entries):
        negative = MalformedBytesError("names a negative partition")
        problems.append(Problem(ProblemCode.NEGATIVE_PARTITION, place, str(negative), "partitions count from 0"))
        return CheckpointFile(path, None, negative, mtime)
    for line in content.dropped if content else ():
        what, rule = f"negative offset in {line!r}", "Streams drops such a line"
        problems.append(Problem(ProblemCode.DROPPED_LINE, place, what, rule))
    return file


def _unread(error: MalformedBytesError | OSError) -> tuple[ProblemCode, str]:
    """What an offset file is of which an error is all that is known, and why that is wrong."""
    if isinstance(error, NotReadableError):
        return ProblemCode.SPECIAL, "an offset file is a regular file with a line for each partition of each store"
    if isinstance(error, MalformedBytesError) and error.streams_exception is None:
        return ProblemCode.SPECIAL, "Streams may read it, kstate does not"
    if isinstance(error, OSError) and cannot_be_read(error):
        return ProblemCode.UNREADABLE, CHECK_THE_DISK
    code = ProblemCode.READING_FAILED if isinstance(error, OSError) else ProblemCode.MALFORMED_OFFSETS
    return code, "Streams does not start with a malformed offset file in a task"


def _store(name: str, path: Path, segmented: bool, databases: list[Database], entries: _TaskEntries) -> Store:
    return Store(
        name=name,
        path=path,
        segmented=segmented,
        databases=tuple(databases),
        kind=_kind(name, segmented, databases),
        position_file=entries.position_files.get(name),
        store_file=entries.store_files.get(name),
    )


def _has_database(path: Path, place: Place, entries: _TaskEntries) -> bool:
    """An empty directory is a store that was never opened; files without a MANIFEST are not a database any more."""
    try:
        if is_database(path):
            return True
        names = os.listdir(path)
    except FileNotFoundError:
        return False  # a running application has dropped the segment
    if names:
        what, rule = "has files but neither CURRENT nor a MANIFEST", "a store must open"
        entries.problems.append(Problem(ProblemCode.NO_DATABASE, place, what, rule))
    return False


def _settled(job: _DatabaseToRead) -> Database | None:
    """One database as it is, None when it is gone.

    A running application flushes, compacts, makes and drops segments meanwhile: what looks wrong while files come and
    go is read again. Raises InUse where that does not end.
    """
    path, database = job.path, None
    for attempt in range(_ATTEMPTS):
        try:
            time.sleep(attempt * _PAUSE_SECONDS)
            before = _moment(path)
            database = read_database(path, job.start, job.place, job.count_bytes)
            if not database.problems or _moment(path) == before:
                return database
        except FileNotFoundError:
            if not path.exists():
                return None
            continue
    if database is not None and all(problem.half_made for problem in database.problems):
        return database  # told as what it is: under way
    raise _never_still(job.place.text)


def _moment(path: Path) -> list[tuple[str, int]]:
    """What tells that a database has not changed between two looks.

    A file that was made and deleted between them leaves its two records in the MANIFEST, which only grows.
    """
    with os.scandir(path) as entries:
        return sorted((one.name, one.stat().st_size if is_manifest(one.name) else 0) for one in entries)


def _kind(name: str, segmented: bool, databases: list[Database]) -> Kind:
    families = frozenset(family for d in databases for family in d.data_families)
    starts = [d.segment_start for d in databases if d.segment_start is not None] if segmented else None
    sampled = next((d for d in databases if not d.empty), databases[0] if databases else None)
    samples = sampled.samples if sampled else {}
    return infer_kind(families, starts, samples, name, sampled.segment_start if sampled else None)
