"""Which tasks of a directory may be captured, and the files of each.

Tasks that were closed cleanly are captured from their files, kstate's own standbys among them. Tasks of running or
killed applications are captured from cuts of their databases (:mod:`kstate_cli.snapshot.cuts`). A task in any other
state is skipped with a reason. The rules, each with its proof, are docs/internals/snapshots.md#what-may-be-captured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.limits import MOST_NAME_BYTES
from kstate_cli.offsets.ages import Age, age_of, read_ages, sst_age
from kstate_cli.offsets.last_run import Ending, ending
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.regular_files import read_small
from kstate_cli.releases import OffsetsHome
from kstate_cli.rocks.files import CURRENT, is_log, newest_options
from kstate_cli.snapshot.cuts import Cuts, CutTask, HeldFile, cut_task
from kstate_cli.snapshot.log_facts import Ask, ReadLog
from kstate_cli.snapshot.model import (
    Generation,
    NamedGeneration,
)
from kstate_cli.snapshot.repository import DamagedError, Repository
from kstate_cli.snapshot.rules import (
    TWO_MOMENTS,
    UnflushedSegments,
    closing_was_one_flush,
)
from kstate_cli.statedir.find import task_directories, unknown_selection
from kstate_cli.statedir.model import Application, Database, Task
from kstate_cli.statedir.scan import misplaced_entries

MOST_EARLIER: Final = 32
"""Newest generations whose SSTs need not be read again: more hosts than share the tasks of one directory."""

_MOST_READ: Final = 512
"""Generations that are read to find those of one host: each is a request to an object store."""

FILES_CHANGED: Final = "its files changed while kstate was reading them"

Facts = Mapping[str, tuple[int, int, int]]
"""Relative path -> inode, size and mtime in ns of each file of a task."""


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
    return FILES_CHANGED


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
        return "kstate cannot read its .checkpoint file"
    if resolved.uneven_stores:
        # Each segment has its own prefix of the writes: without an offset in all of them, some rows may be missing.
        return f"{resolved.uneven_stores[0].store.name}: its segments have different offsets, or some have none"
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
        return "the application's last run did not open this global store"
    if not store.segmented and len(store.databases) != 1:
        # With its offset it would open as an empty store that counts as complete.
        return "its folder contains no database, so its rows are lost"
    if resolved.task.name == GLOBAL and not offsets.offsets and not store.empty:
        # Every global store has a changelog, so without an offset nothing shows up to where its rows go.
        return "it contains rows, but no offset"
    why = next(filter(None, map(_why_not_database, store.databases)), None)
    if why is not None:
        return why
    if not resolved.task.has_offsets_family or not offsets.offsets:
        return None
    if "column-family" not in offsets.places and "store-file" not in offsets.places:
        # A start of 4.3 was interrupted before it took the lines of .checkpoint into the stores.
        return "its offset is only in .checkpoint, but the task's other stores contain their offsets"
    return None


def _why_not_database(database: Database) -> str | None:
    logs = [name for name in os.listdir(database.path) if is_log(name) and (database.path / name).stat().st_size]
    if logs:
        # Streams turns the write-ahead log off. Rows in one are of a custom configuration, in no SST yet.
        return f"{logs[0]} contains rows that RocksDB has never flushed"
    if ending(database) is Ending.SILENT:
        # Even without a row: a run that ends before its first commit leaves this, and closing writes a status.
        return "one of its databases has neither an offset nor a status to show that it was closed"
    if not closing_was_one_flush(database):
        return TWO_MOMENTS
    return None


class EarlierGenerations:
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
                newest = newest_generations(self._repository, self._application, MOST_EARLIER, self._host)
                self._generations = [(named.name, named.content) for named in newest]
        return self._generations


def plan_cuts(
    request: CaptureRequest, cuts: Cuts, earlier: EarlierGenerations, tasks: frozenset[str] | None
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
    if not skipped:
        _require_stores(request, cut_tasks)
    return planned, skipped


def _require_stores(request: CaptureRequest, tasks: Sequence[Task]) -> None:
    unknown = request.stores - {store.name for task in tasks for store in task.stores}
    if unknown:
        raise unknown_selection(Application(request.app, tuple(tasks), True, None), (), sorted(unknown))


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


def facts_of(task: Path) -> Facts:
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


def is_unchanged(task: PlannedTask, app: Path) -> bool:
    """Return whether each file of a task is the planned one. A cut holds its files, so nothing can change them."""
    return task.facts is None or facts_of(app / task.name) == task.facts


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
