"""Capture stores: which of them may be captured, the copy of their files, and the generation at the end.

Only what no process writes to is captured: directories that were closed cleanly, kstate's own standbys among them. Rows
and offsets of such a task agree, as the next start of Streams reads them. A task in any other state is skipped, and the
reason is recorded. The rules, each with its proof, are docs/internals/snapshots.md#what-may-be-captured.

The directory is only read. Facts that were read before the copy are read again after it: a task of which a file has
another inode, size or time by then is not captured. A start of Streams replaces CURRENT and MANIFEST of each store that
it opens, so a process that came and went in between shows as well.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

from kstate_cli import __version__, clock, option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.lockfile import ReaderLock, check_locks, in_use, reader_lock
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.sst import read_properties
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.offsets.ages import Age, age_of, read_ages, sst_age
from kstate_cli.offsets.last_run import Ending, ending
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.regular_files import MOST_NAME_BYTES, open_regular, read_small
from kstate_cli.releases import OffsetsHome
from kstate_cli.rocks.files import CURRENT, is_log, is_sst, newest_options
from kstate_cli.signals import submitted
from kstate_cli.snapshot.cuts import Cuts, CutTask, HeldFile, cut_task, open_held
from kstate_cli.snapshot.expiry import condemned_objects, intent_to_write
from kstate_cli.snapshot.log_facts import Ask, ReadLog, offset_in_log, read_logs, require_unchanged, why_another_log
from kstate_cli.snapshot.model import (
    MOST_INLINE_BYTES,
    Generation,
    NamedGeneration,
    StoredDatabase,
    StoredFile,
    StoredStore,
    StoredTask,
    name_of,
    parse,
    render,
    utc_name,
)
from kstate_cli.snapshot.repository import ChangedError, DamagedError, Repository
from kstate_cli.snapshot.rules import (
    NO_TIMES,
    TWO_MOMENTS,
    UnflushedSegments,
    closing_was_one_flush,
    with_later_segments,
)
from kstate_cli.statedir.find import task_directories, unknown_selection
from kstate_cli.statedir.locks import read_mounts
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.scan import misplaced_entries, read_application
from kstate_cli.texts import first_lines, plural

_EARLIER: Final = 32
"""Newest generations whose SSTs need not be read again: more hosts than share the tasks of one directory."""
_MOST_READ: Final = 512
"""Generations that are read to find those of one host: each is a request to an object store."""
_CHANGED: Final = "its files changed while kstate read them"

Facts = Mapping[str, tuple[int, int, int]]
"""Relative path -> inode, size and mtime in ns of each file of a task."""
Progress = Callable[[int], None]
"""Is called with the bytes of files that were copied, or need no copy."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What to capture."""

    app: Path
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    """Empty: all."""
    host: str = ""
    workers: int = 1
    wait: float = 0.0
    """Seconds to wait for another command of kstate."""
    lock_is_shared: bool = False
    """The user confirms that the application is stopped, on a file system whose locks do not prove it."""
    at_least_once: bool = False
    """The user states that the application runs with at-least-once. Otherwise the rules of exactly-once count."""
    ask: Ask | None = None
    """Asks a broker about the logs; None without one."""
    read_log: ReadLog | None = None
    """Reads records of a log from a broker; None without one."""


def this_host() -> str:
    """Return the name of this host, as generations record it."""
    return socket.gethostname()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a database, as it was before the copy."""

    path: Path
    size: int
    mtime_ns: int
    inode: int
    cut_file: HeldFile | None = None
    """The descriptor of a file of a cut; None for a file that is opened by its path."""


@dataclass(frozen=True, slots=True)
class PlannedStore:
    """A store that may be captured, with the files of each of its databases."""

    offsets: StoreOffsets
    age: Age
    in_file: bool
    databases: tuple[tuple[Database, tuple[SourceFile, ...]], ...]
    is_cut: bool = False
    unflushed: Mapping[TopicPartition, UnflushedSegments] = field(default_factory=dict)
    """The segments that state no offset, and that no earlier generation bounds."""
    why_unknown: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Why the offset of a cut is -4, or is missing although the store may have a changelog."""

    @property
    def files(self) -> Iterator[SourceFile]:
        """Yield the files of all its databases."""
        for _, files in self.databases:
            yield from files


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task that may be captured."""

    resolved: TaskOffsets
    home: OffsetsHome
    is_whole: bool
    stores: tuple[PlannedStore, ...]
    facts: Facts | None
    """None for a cut, whose files are held."""

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.resolved.task.name


@dataclass(frozen=True, slots=True)
class CapturedStore:
    """The figures of one store, for people."""

    task: str
    store: str
    kind: str
    offsets: Mapping[TopicPartition, int]
    files: int
    bytes: int
    new_bytes: int
    """Bytes that the repository did not have before. Of a dry run: at most."""
    why_unknown: str | None = None
    """Why nothing shows its offset, such as a segment that nothing bounds; None if a restoration continues at it."""

    @property
    def is_usable(self) -> bool:
        """Return whether a restoration continues at its offset."""
        return self.why_unknown is None


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """The result of a snapshot, or of its dry run."""

    generation: str | None
    """None for a dry run."""
    stores: tuple[CapturedStore, ...]
    skipped: Mapping[str, str]
    usable_until_ms: int | None = None
    """Until when it can be restored without a dump, in ms since 1970; None if that is unknown, and for a dry run."""

    @property
    def tasks(self) -> int:
        """The number of captured tasks."""
        return len({store.task for store in self.stores})


def capture(
    request: CaptureRequest, repository: Repository, *, dry_run: bool, progress: Progress, begin: Progress
) -> CaptureReport:
    """Capture, or with ``dry_run`` only report. ``begin`` gets the bytes of all files first.

    Raise InUse, Refused (also if no task can be captured), UsageError and RunFailed. No generation exists then.
    """
    check_locks(request.app, read_mounts(), lock_is_shared=request.lock_is_shared)
    with reader_lock(request.app, request.wait) as lock, Cuts(request.app) as cuts:
        planned, skipped = _plan(request, lock, cuts, _Earlier(repository, request.app.name, request.host))
        logs = read_logs(request.ask, _changelogs(planned))
        planned, skipped = _of_these_logs(planned, skipped, logs)
        planned = [_bounded(task, request.read_log, logs) for task in planned]
        if not planned:
            raise _nothing(request.app, skipped)
        exists = repository.exists()
        begin(sum(file.size for task in planned for store in task.stores for file in store.files))
        app_id = request.app.name
        if dry_run:
            earlier = EarlierFiles({})
            if exists:
                earlier = EarlierFiles.of(repository, app_id, condemned_objects(repository))
            return _foreseen(planned, skipped, earlier)
        repository.create()
        # Before anything of the repository is read that this snapshot relies on: cleaners wait for its end.
        with intent_to_write(repository) as intent:
            earlier = EarlierFiles.of(repository, app_id, intent.condemned)
            copies = _CopiedFiles(repository, earlier, progress).of(planned, request.workers)
            # Again what was read before: only now is it certain that all files of a closed task are of one moment.
            if any(task.facts is not None for task in planned):
                _refuse_in_use(request.app, lock)
            for task in planned:
                if task.name not in copies.refused and not _unchanged(task, request.app):
                    copies.refused[task.name] = _CHANGED
            skipped = {**skipped, **copies.refused}
            require_unchanged(logs, read_logs(request.ask, logs), "taken", "no generation was written")
            whole = [task for task in planned if task.name not in skipped]
            if not whole:
                raise _nothing(request.app, skipped)
            generation = Generation(
                app_id,
                request.host,
                __version__,
                clock.now_ms(),
                tuple(_stored_task(task, copies.files, logs) for task in whole),
                skipped,
            )
            intent.require()
            name = _publish(generation, repository)
    reports = tuple(_report(task, store, copies.new_bytes) for task in whole for store in task.stores)
    return CaptureReport(name, reports, skipped, generation.usable_until_ms)


def _plan(
    request: CaptureRequest, lock: ReaderLock, cuts: Cuts, earlier: _Earlier
) -> tuple[list[PlannedTask], dict[str, str]]:
    """Return the tasks that may be captured, and for each other one the reason: closed ones first, then cuts."""
    planned: list[PlannedTask] = []
    skipped: dict[str, str] = {}
    is_running = lock.application_pid() is not None
    if not is_running:
        facts = {name: _facts(path) for name, path in task_directories(request.app)}
        application = read_application(request.app, workers=request.workers)
        if application.running:
            # RocksDB's own locks: a process that uses a store without Streams.
            raise in_use(request.app, application.pid)
        planned, skipped = plan_capture(application, request, facts)
        if not skipped:
            return planned, skipped
    cut, not_cut = plan_cuts(request, cuts, earlier, frozenset(skipped) or None)
    # Of a killed task the first reason says more: a cut is only the second try.
    reasons = {name: skipped.get(name, why) for name, why in not_cut.items()}
    return [*planned, *cut], reasons


def _changelogs(planned: Sequence[PlannedTask]) -> Iterator[TopicPartition]:
    """Yield the changelogs of stores, and those that stores without an offset may have."""
    for task in planned:
        for store in task.stores:
            yield from store.offsets.offsets
            yield from store.unflushed


def _of_these_logs(
    planned: Sequence[PlannedTask], skipped: Mapping[str, str], logs: Mapping[TopicPartition, LogFacts]
) -> tuple[list[PlannedTask], dict[str, str]]:
    """Return the tasks without those that are of another log than the broker has, and the reasons."""
    reasons = dict(skipped)
    for task in planned:
        for store in task.stores:
            why = why_another_log(store.offsets.offsets, logs, is_global=task.name == GLOBAL)
            if why is not None:
                reasons.setdefault(task.name, f"{store.offsets.store.name}: {why}")
    return [task for task in planned if task.name not in reasons], reasons


def _bounded(task: PlannedTask, read_log: ReadLog | None, logs: Mapping[TopicPartition, LogFacts]) -> PlannedTask:
    """Return a task with the offsets of stores whose segments were never flushed, as far as the log shows them."""
    return replace(task, stores=tuple(_bounded_store(store, read_log, logs) for store in task.stores))


def _bounded_store(
    store: PlannedStore, read_log: ReadLog | None, logs: Mapping[TopicPartition, LogFacts]
) -> PlannedStore:
    offsets, why_unknown = dict(store.offsets.offsets), dict(store.why_unknown)
    for key, segments in store.unflushed.items():
        if key not in offsets and read_log is not None:
            if key not in logs:
                # The store has no changelog, so no offset either: the log could not be asked for one.
                del why_unknown[key]
                continue
            complete = _with_present_segments(store.offsets.store, segments)
            if complete is None:
                why_unknown[key] = NO_TIMES
                continue
            segments = complete
        bound = offset_in_log(key, segments, read_log, logs.get(key))
        if bound.why_unknown is not None:
            # A store that states nothing stays without an offset: nothing on disk shows that it has this changelog.
            why_unknown[key] = bound.why_unknown
            continue
        offsets[key] = bound.offset
        del why_unknown[key]
    return replace(store, offsets=replace(store.offsets, offsets=offsets), why_unknown=why_unknown)


def _with_present_segments(store: Store, segments: UnflushedSegments) -> UnflushedSegments | None:
    """Return the segments of a store that was never flushed, as they are after the end of its log was read.

    Without a stated offset the end of the log limits the search, and the broker was asked for it after the cut. Streams
    creates the folder of a segment before it sends the first record of it. None if the folder cannot be read.
    """
    try:
        return with_later_segments(store, segments, os.listdir(store.path))
    except OSError:
        return None


def _refuse_in_use(app: Path, lock: ReaderLock) -> None:
    """Raise InUse if the application was started meanwhile: on disk may be rows that it has not committed."""
    pid = lock.application_pid()
    if pid is not None:
        raise in_use(app, pid)


def _nothing(app: Path, skipped: Mapping[str, str]) -> Refused:
    if not skipped:
        return Refused(
            f"{app} has no stores to capture", hint=("start the application once, so that it creates its stores")
        )
    return Refused(
        f"kstate cannot capture any task of {app}",
        details=first_lines([f"{task}: {why}" for task, why in sorted(skipped.items())]),
        hint="stop the application cleanly, then take the snapshot. If it runs with at-least-once, pass "
        f"{option.GUARANTEE} at_least_once",
    )


# --- what may be captured ---------------------------------------------------------------------------------------------


def plan_capture(
    application: Application, request: CaptureRequest, facts: Mapping[str, Facts]
) -> tuple[list[PlannedTask], dict[str, str]]:
    """Return the tasks that may be captured, and for each other one the reason. Raise UsageError and Refused."""
    names = {store.name for task in application.tasks for store in task.stores}
    unknown = sorted(request.tasks - {task.name for task in application.tasks}), sorted(request.stores - names)
    if any(unknown):
        raise unknown_selection(application, *unknown)
    ages = read_ages(application.path)
    planned: list[PlannedTask] = []
    skipped: dict[str, str] = {}
    for resolved in resolve(application):
        task = resolved.task
        if request.tasks and task.name not in request.tasks:
            continue
        stores = [store for store in resolved.stores if not request.stores or store.store.name in request.stores]
        if not stores:
            continue
        why = _why_not(application, resolved) or _moved(task.name, facts)
        if why is not None:
            skipped[task.name] = why
            continue
        try:
            planned.append(_planned_task(resolved, stores, ages, facts[task.name]))
        except OSError as error:
            skipped[task.name] = f"{error.filename}: {error.strerror}"
    return planned, skipped


def _moved(task: str, facts: Mapping[str, Facts]) -> str | None:
    if task in facts:
        return None
    return _CHANGED


def _why_not(application: Application, resolved: TaskOffsets) -> str | None:
    """Return why a task is not captured; None if it may be.

    Each reason means that the next start of Streams would not take the rows up to the offset for granted, or that
    kstate does not know whether it would. A copy of such a task, restored elsewhere, would only hide that.
    """
    task = resolved.task
    for problem in application.all_problems():
        if problem.place.task == task.name and (problem.fatal or problem.doubt):
            return problem.reasoned
    if resolved.unclean:
        return f"it was not closed cleanly ({resolved.unclean[0]})"
    if resolved.unreadable:
        return "kstate cannot read .checkpoint"
    if resolved.uneven_stores:
        # Each segment has its own prefix of the writes: without an offset in all of them, some rows may be missing.
        return f"{resolved.uneven_stores[0].store.name}: its segments have different offsets, or none"
    if resolved.warnings:
        return resolved.warnings[0]
    for offsets in resolved.stores:
        why = _why_not_store(resolved, offsets)
        if why is not None:
            return f"{offsets.store.name}: {why}"
    return None


def _why_not_store(resolved: TaskOffsets, offsets: StoreOffsets) -> str | None:
    store = offsets.store
    if offsets.stale:
        # Up to 4.2 a topic that the topology no longer has is fatal in global/.checkpoint.
        return "the last run of the application did not open this global store"
    if not store.segmented and len(store.databases) != 1:
        # With its offset it would open as an empty store that counts as complete.
        return "its folder has no database, so its rows are lost"
    if resolved.task.name == GLOBAL and not offsets.offsets and not store.empty:
        # Every global store has a changelog, so without an offset nothing shows up to where its rows go.
        return "it has rows, but no offset"
    for database in store.databases:
        logs = [name for name in os.listdir(database.path) if is_log(name) and (database.path / name).stat().st_size]
        if logs:
            # Streams turns the write-ahead log off. Rows in one are of a custom configuration, in no SST yet.
            return f"{logs[0]} contains rows that were never flushed"
        if ending(database) is Ending.SILENT:
            # Even without a row: a run that ends before its first commit leaves this, and closing writes a status.
            return "one of its databases has neither an offset nor a closed status"
        if not closing_was_one_flush(database):
            return TWO_MOMENTS
    if not resolved.task.has_offsets_family or not offsets.offsets:
        return None
    if "column-family" not in offsets.places and "store-file" not in offsets.places:
        # A start of 4.3 was interrupted before it took the lines of .checkpoint into the stores.
        return "its offset is only in .checkpoint, but other stores of the task contain their offsets"
    return None


# --- cuts -------------------------------------------------------------------------------------------------------------


class _Earlier:
    """The newest generations of an application, which are read once and only if a segment needs a bound."""

    def __init__(self, repository: Repository, application: str, host: str) -> None:
        self._repository, self._application, self._host = repository, application, host
        self._generations: list[tuple[str, Generation]] | None = None

    def __call__(self) -> Sequence[tuple[str, Generation]]:
        """Return name and content of each."""
        if self._generations is None:
            self._generations = []
            if self._repository.exists():
                # Other hosts have other databases. With dozens of hosts the newest generations may be theirs alone.
                newest = newest_generations(self._repository, self._application, _EARLIER, self._host)
                self._generations = [(named.name, named.content) for named in newest]
        return self._generations


def plan_cuts(
    request: CaptureRequest, cuts: Cuts, earlier: _Earlier, tasks: frozenset[str] | None
) -> tuple[list[PlannedTask], dict[str, str]]:
    """Return the tasks of which a cut may be captured, and for each other one the reason. ``tasks``: None for all.

    Raise UsageError for a task or store that does not exist, and Refused.
    """
    folders = dict(task_directories(request.app))
    ages = read_ages(request.app)
    misplaced = {problem.place.task: problem.reasoned for problem in misplaced_entries(request.app) if problem.fatal}
    cut_tasks: list[Task] = []
    planned: list[PlannedTask] = []
    skipped: dict[str, str] = {}
    for name in request.tasks or folders:
        if name not in folders:
            raise unknown_selection(Application(request.app, (), True, None), [name], ())
        if tasks is not None and name not in tasks:
            continue
        outcome = misplaced.get(name) or cut_task(
            cuts, name, folders[name], request.stores, earlier, at_least_once=request.at_least_once
        )
        if isinstance(outcome, str):
            skipped[name] = outcome
        elif outcome is not None:
            cut_tasks.append(outcome.resolved.task)
            if outcome.stores:
                planned.append(_planned_cut(outcome, ages, cuts))
    unknown = request.stores - {store.name for task in cut_tasks for store in task.stores}
    if unknown and not skipped:
        raise unknown_selection(Application(request.app, tuple(cut_tasks), True, None), (), sorted(unknown))
    return planned, skipped


def _planned_cut(cut: CutTask, ages: Sequence[Age], cuts: Cuts) -> PlannedTask:
    home = OffsetsHome.FILES
    if cut.resolved.task.has_offsets_family:
        home = OffsetsHome.COLUMN_FAMILY
    stores = []
    for planned in cut.stores:
        store = planned.offsets.store
        stores.append(
            PlannedStore(
                planned.offsets,
                _age_of_cut(ages, cut.resolved.task, planned.offsets),
                # A restoration writes the file from the offset of the cut: that of the directory may be ahead.
                home is OffsetsHome.COLUMN_FAMILY and bool(planned.offsets.offsets) and store.is_grace_buffer,
                tuple((database, _held_files(cuts, database)) for database in store.databases),
                is_cut=True,
                unflushed=planned.unflushed,
                why_unknown=planned.why_unknown,
            )
        )
    return PlannedTask(cut.resolved, home, len(stores) == len(cut.resolved.stores), tuple(stores), None)


def _held_files(cuts: Cuts, database: Database) -> tuple[SourceFile, ...]:
    return tuple(
        SourceFile(database.path / name, file.size, file.mtime_ns, file.inode, file)
        for name, file in sorted(cuts.files(database).items())
    )


def _age_of_cut(ages: Sequence[Age], task: Task, offsets: StoreOffsets) -> Age:
    """Return the age of a cut: each database is as of its own last flush, and the offset is that of the oldest.

    Up to 4.2 it is as of the writing of ``.checkpoint``, which may be long before the last flush.
    """
    age = age_of(ages, task.name, offsets)
    times = [age.as_of_ms]
    with_rows = [database for database in offsets.store.databases if not database.empty]
    times += [sst_age(replace(offsets.store, databases=(database,))).at_ms for database in with_rows]
    if not offsets.store.has_offsets_family and task.checkpoint is not None:
        times.append(task.checkpoint.mtime_ns // 1_000_000)
    if None in times:
        return replace(age, as_of_ms=None)
    return replace(age, as_of_ms=min(time for time in times if time is not None))


def _planned_task(
    resolved: TaskOffsets, stores: Sequence[StoreOffsets], ages: Sequence[Age], facts: Facts
) -> PlannedTask:
    home = OffsetsHome.FILES
    if resolved.task.has_offsets_family:
        home = OffsetsHome.COLUMN_FAMILY
    return PlannedTask(
        resolved,
        home,
        len(stores) == len(resolved.stores),
        tuple(
            PlannedStore(
                offsets,
                age_of(ages, resolved.task.name, offsets),
                home is OffsetsHome.COLUMN_FAMILY and bool(offsets.offsets) and offsets.store.offsets_file is not None,
                tuple((database, _source_files(database)) for database in offsets.store.databases),
            )
            for offsets in stores
        ),
        facts,
    )


def _source_files(database: Database) -> tuple[SourceFile, ...]:
    """Return the files that a database consists of. Raise OSError.

    Of SSTs and blob files only those that the MANIFEST names: RocksDB deletes the others at the next open. The empty
    write-ahead log shows by its number when the database was opened last (``Database.flushed_since_opened``). LOCK and
    LOG are of the process, not of the data.
    """
    live = {file.name for files in database.live.values() for file in files}
    manifest = read_small(database.path / CURRENT, MOST_NAME_BYTES).decode("ascii", "replace").strip()
    options = newest_options(database.path)
    small = {CURRENT, "IDENTITY", os.path.basename(manifest)}
    if options is not None:
        small.add(options.name)
    files = []
    with os.scandir(database.path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name in live or entry.name in small or is_log(entry.name):
                status = entry.stat(follow_symlinks=False)
                files.append(SourceFile(Path(entry.path), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(files)


def _facts(task: Path) -> Facts:
    """Return inode, size and time of every file of a task."""
    facts = {}
    for folder, _, names in os.walk(task):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue  # whether it matters shows when the facts are compared
            facts[os.path.relpath(path, task)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return facts


def _unchanged(task: PlannedTask, app: Path) -> bool:
    return task.facts is None or _facts(app / task.name) == task.facts


# --- the copy ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EarlierFiles:
    """SSTs that earlier generations have. They need not be read: unique id, size and time show that they are the same.

    This is trusted: RocksDB never changes an SST, and no two SSTs have one unique id. A byte that a disk damaged after
    the first snapshot is not copied, since the object has the digest of the first reading.
    """

    by_identity: Mapping[tuple[str, int, int], StoredFile]
    """Identity, size and mtime in ns -> the file as an earlier generation lists it."""
    condemned: frozenset[str] = frozenset()
    """Objects that a cleaner is about to delete: no new generation relies on one."""

    @classmethod
    def of(cls, repository: Repository, application: str, condemned: frozenset[str]) -> EarlierFiles:
        """Return the files of the newest generations of an application. An unreadable generation is no source."""
        objects = repository.object_sizes()
        by_identity: dict[tuple[str, int, int], StoredFile] = {}
        for generation in newest_generations(repository, application, _EARLIER):
            for file in generation.content.files:
                exists = file.data is None and objects.get(file.object) == file.size and file.object not in condemned
                if file.identity is not None and exists:
                    by_identity.setdefault((file.identity, file.size, file.mtime_ns), file)
        return cls(by_identity, condemned)

    def file_of(self, file: SourceFile, identity: str | None) -> StoredFile | None:
        """Return a file that the repository has, as a generation lists it; None if it must be read."""
        if identity is None:
            return None
        stored = self.by_identity.get((identity, file.size, file.mtime_ns))
        if stored is None:
            return None
        # The same SST may have another number in another database.
        return replace(stored, name=file.path.name)


def newest_generations(
    repository: Repository, application: str, most: int, host: str | None = None
) -> list[NamedGeneration]:
    """Return the newest readable generations of an application, newest first; with ``host`` those of one host."""
    generations: list[NamedGeneration] = []
    for name in reversed(repository.generation_names()[-_MOST_READ:]):
        if len(generations) == most:
            break
        try:
            content = repository.generation(name)
        except (DamagedError, FileNotFoundError):
            continue  # verify-snapshots names it; here it only saves no reading
        if content.application == application and host in (None, content.host):
            generations.append(NamedGeneration(name, content))
    return generations


class _SourceError(Exception):
    """A file of the directory cannot be read, or is not what it was. The text says why."""


class _Source:
    """An open file of the directory: an error of its disk must not look like one of the repository's."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    def readinto(self, buffer: memoryview) -> int:
        """Read into a buffer; return the number of bytes."""
        try:
            return self._file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        except OSError as error:
            raise _SourceError(f"kstate cannot read {self._name}: {error.strerror}") from None

    def seek(self, offset: int) -> int:
        """Continue at another offset: a bucket needs the digest before the first byte."""
        return self._file.seek(offset)


class _CopiedFiles:
    """The files of a snapshot as they are copied, by path."""

    def __init__(self, repository: Repository, earlier: EarlierFiles, progress: Progress) -> None:
        self._repository, self._earlier, self._progress = repository, earlier, progress
        self.files: dict[Path, StoredFile] = {}
        self.new_bytes: dict[Path, int] = {}
        self.refused: dict[str, str] = {}
        """Task -> why it cannot be captured after all."""

    def of(self, planned: Iterable[PlannedTask], workers: int) -> _CopiedFiles:
        """Copy the files of all tasks, several at once, and return this object. Raise Refused and RunFailed."""
        # Threads: the reading, the digest and the writing all happen outside of Python's lock.
        with ThreadPoolExecutor(workers) as pool:
            files = [(task, file) for task in planned for store in task.stores for file in store.files]
            try:
                futures = submitted(pool, self._copy, [file for _, file in files])
                for (task, file), future in zip(files, futures, strict=True):
                    self._take(task, file, future)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return self

    def _take(self, task: PlannedTask, file: SourceFile, future: Future[tuple[StoredFile, int]]) -> None:
        try:
            stored, new_bytes = future.result()
        except _SourceError as error:
            self.refused.setdefault(task.name, str(error))
            return
        except DamagedError as error:
            raise Refused(
                f"{error.path} {error.why}",
                where=self._repository.where,
                hint=("move that file away, because it is damaged"),
            ) from None
        except OSError as error:
            raise RunFailed(
                f"kstate cannot write to the repository: {error.strerror}",
                where=str(error.filename or self._repository.where),
                hint="no snapshot was written. Fix the cause, then run the command again",
            ) from None
        self.files[file.path], self.new_bytes[file.path] = stored, new_bytes
        self._progress(file.size)

    def _copy(self, file: SourceFile) -> tuple[StoredFile, int]:
        """Return a file as the generation lists it, and the bytes that are new in the repository."""
        name = file.path.name
        try:
            opened = os.fdopen(_open(file), "rb", buffering=0)
        except OSError as error:
            raise _SourceError(f"kstate cannot open {name}: {error.strerror}") from None
        with opened:
            status = os.fstat(opened.fileno())
            if (status.st_ino, status.st_size, status.st_mtime_ns) != (file.inode, file.size, file.mtime_ns):
                raise _SourceError(_CHANGED)
            if file.size <= MOST_INLINE_BYTES and not _is_never_inline(name):
                return _inline(file, _whole(opened, name)), 0
            identity = _identity(opened, name)
            stored = self._earlier.file_of(file, identity)
            if stored is not None:
                return stored, 0
            opened.seek(0)
            try:
                put = self._repository.put(cast("BinaryIO", _Source(opened, name)), self._earlier.condemned)
            except ChangedError:
                raise _SourceError(_CHANGED) from None
        if put.size != file.size:
            raise _SourceError(_CHANGED)
        new_bytes = 0
        if put.is_new:
            new_bytes = put.size
        stored_as = None
        if put.name != put.sha256:
            stored_as = put.name
        return StoredFile(name, file.size, put.sha256, max(0, file.mtime_ns), identity, None, stored_as), new_bytes


def _open(file: SourceFile) -> int:
    if file.cut_file is not None and file.cut_file.descriptor is not None:
        return open_held(file.cut_file)
    return open_regular(file.path)


def _is_never_inline(name: str) -> bool:
    """Return whether a file is an object whatever its size: an SST or blob file, which generations share."""
    return is_sst(name) or name.endswith(".blob")


def _whole(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(MOST_INLINE_BYTES + 1)
    except OSError as error:
        raise _SourceError(f"kstate cannot read {name}: {error.strerror}") from None


def _inline(file: SourceFile, data: bytes) -> StoredFile:
    if len(data) != file.size:
        raise _SourceError(_CHANGED)
    return StoredFile(file.path.name, file.size, hashlib.sha256(data).hexdigest(), max(0, file.mtime_ns), None, data)


def _identity(file: BinaryIO, name: str) -> str | None:
    """Return what tells an SST from every other one; None if its properties do not."""
    if not is_sst(name):
        return None
    try:
        properties = read_properties(file)
    except (MalformedBytesError, OSError):
        return None  # the digest decides, and verify reports the damage
    if not properties.has_unique_id:
        return None
    return hashlib.sha256(properties.raw).hexdigest()


# --- the generation ---------------------------------------------------------------------------------------------------


def _publish(generation: Generation, repository: Repository) -> str:
    """Check that the generation is complete, create it, and return its name. Raise Refused and RunFailed."""
    data = render(generation)
    name = name_of(utc_name(generation.created_ms), data)
    # What a reader will refuse must never be published: names of topologies, for one, may be any text.
    if parse(name, data) != generation:
        raise Refused(
            "kstate cannot read the snapshot that it was about to publish",
            where=repository.where,
            hint="nothing was published. Run the command again with KSTATE_LOG=FILE, and report this with the file",
        )
    lacking = generation.lacking(repository.object_sizes())
    if lacking:
        raise RunFailed(
            f"{plural(len(lacking), 'object')} of the snapshot disappeared from the repository in the meantime",
            where=repository.where,
            hint="no snapshot was written. Run the command again",
        )
    try:
        repository.publish(name, data)
    except OSError as error:
        raise RunFailed(
            f"kstate could not write the snapshot: {error.strerror}",
            where=str(error.filename or repository.where),
            hint="fix the cause, then run the command again. kstate does not copy stored objects again",
        ) from None
    return name


def _stored_task(
    task: PlannedTask, files: Mapping[Path, StoredFile], logs: Mapping[TopicPartition, LogFacts]
) -> StoredTask:
    absent = {name: tuple(sorted(offsets)) for name, offsets in task.resolved.absent.items()}
    return StoredTask(
        task.name,
        max(0, task.resolved.task.mtime_ns),
        task.home,
        task.is_whole,
        tuple(_stored_store(task, store, files, logs) for store in task.stores),
        absent,
    )


def _stored_store(
    task: PlannedTask,
    planned: PlannedStore,
    files: Mapping[Path, StoredFile],
    logs: Mapping[TopicPartition, LogFacts],
) -> StoredStore:
    store = planned.offsets.store
    position = None
    if task.home is OffsetsHome.FILES and store.position_file is not None:
        position = planned.offsets.position
    return StoredStore(
        store.name,
        store.segmented,
        store.kind.name,
        planned.offsets.offsets,
        planned.in_file,
        position,
        planned.age.as_of_ms,
        {tp.topic: mark.topic_id for tp, mark in planned.age.logs.items() if mark.topic_id is not None},
        tuple(_stored_database(store, database, sources, files) for database, sources in planned.databases),
        planned.is_cut,
        logs={key: logs[key] for key in planned.offsets.offsets if key in logs},
    )


def _stored_database(
    store: Store, database: Database, sources: Sequence[SourceFile], files: Mapping[Path, StoredFile]
) -> StoredDatabase:
    folder = None
    if store.segmented:
        folder = database.path.name
    return StoredDatabase(
        folder,
        {family: tuple(file.name for file in live) for family, live in database.live.items()},
        database.offsets,
        tuple(files[source.path] for source in sources),
    )


# --- reports ----------------------------------------------------------------------------------------------------------


def _foreseen(planned: Iterable[PlannedTask], skipped: Mapping[str, str], earlier: EarlierFiles) -> CaptureReport:
    """Return the report of a dry run: properties of SSTs are read, and nothing else of them."""
    new_bytes: dict[Path, int] = {}
    reports = []
    for task in planned:
        for store in task.stores:
            for file in store.files:
                new_bytes[file.path] = _new_at_most(file, earlier)
            reports.append(_report(task, store, new_bytes))
    return CaptureReport(None, tuple(reports), skipped)


def _new_at_most(file: SourceFile, earlier: EarlierFiles) -> int:
    name = file.path.name
    if not _is_never_inline(name):
        return 0
    try:
        with os.fdopen(_open(file), "rb") as opened:
            identity = _identity(opened, name)
    except OSError:
        identity = None
    if earlier.file_of(file, identity) is not None:
        return 0
    return file.size


def _report(task: PlannedTask, planned: PlannedStore, new_bytes: Mapping[Path, int]) -> CapturedStore:
    files = list(planned.files)
    return CapturedStore(
        task.name,
        planned.offsets.store.name,
        planned.offsets.store.kind.name,
        planned.offsets.offsets,
        len(files),
        sum(file.size for file in files),
        sum(new_bytes[file.path] for file in files),
        next(iter(planned.why_unknown.values()), None),
    )
