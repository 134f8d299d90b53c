"""Capture stores: which of them may be captured, the copy of their files, and the generation at the end.

Only what no process writes to is captured: directories that were closed cleanly, kstate's own standbys among them. Rows
and offsets of such a task agree, as the next start of Streams reads them. A task in any other state is skipped, and the
reason is recorded. The rules, each with its proof, are docs/internals/snapshots.md#what-may-be-captured.

The directory is only read. Facts that were read before the copy are read again after it: a task of which a file has
another inode, size or time by then is not captured. A start of Streams replaces CURRENT and MANIFEST of each store that
it opens, so a process that came and went in between shows as well.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kstate_cli import __version__, clock, option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.lockfile import ReaderLock, check_locks, in_use, reader_lock
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.releases import OffsetsHome
from kstate_cli.snapshot.capture_plan import (
    FILES_CHANGED,
    CaptureRequest,
    EarlierGenerations,
    PlannedStore,
    PlannedTask,
    SourceFile,
    facts_of,
    is_unchanged,
    plan_capture,
    plan_cuts,
)
from kstate_cli.snapshot.copying import CopiedFiles, EarlierFiles, Progress, new_bytes_at_most
from kstate_cli.snapshot.cuts import Cuts
from kstate_cli.snapshot.expiry import condemned_objects, intent_to_write
from kstate_cli.snapshot.generation_file import parse, render
from kstate_cli.snapshot.log_facts import ReadLog, offset_in_log, read_logs, require_unchanged, why_another_log
from kstate_cli.snapshot.model import Generation, StoredDatabase, StoredFile, StoredStore, StoredTask, name_of, utc_name
from kstate_cli.snapshot.repository import Repository
from kstate_cli.snapshot.rules import (
    NO_TIMES,
    UnflushedSegments,
    with_later_segments,
)
from kstate_cli.statedir.find import task_directories
from kstate_cli.statedir.locks import read_mounts
from kstate_cli.statedir.model import Database, Store
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import first_lines, plural

_CHANGED = "topics changed while kstate was taking the snapshot"
_AGAIN = "run the command again. kstate has not written a snapshot"


def this_host() -> str:
    """Return the name of this host, as generations record it."""
    return socket.gethostname()


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
    needs_log: bool = False
    """Its log, which was not read, may show its offset."""

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
    is_running: bool = False
    """The application was running."""
    may_be_uncommitted: bool = False
    """Tasks were skipped because their rows may be uncommitted, which is impossible under at-least-once."""

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
        is_running = lock.application_pid() is not None
        earlier_ones = EarlierGenerations(repository, request.app.name, request.host)
        planned, skipped = _plan(request, cuts, earlier_ones, is_running=is_running)
        logs = read_logs(request.ask, _changelogs(planned))
        planned, skipped = _of_these_logs(planned, skipped, logs)
        planned = [_bounded(task, request.read_log, logs) for task in planned]
        if not planned:
            raise _nothing(request.app, skipped, is_running=is_running)
        exists = repository.exists()
        begin(sum(file.size for task in planned for store in task.stores for file in store.files))
        app_id = request.app.name
        if dry_run:
            earlier = EarlierFiles({})
            if exists:
                earlier = EarlierFiles.of(repository, app_id, condemned_objects(repository))
            return replace(
                _foreseen(planned, skipped, earlier, log_is_read=request.read_log is not None),
                is_running=is_running,
                may_be_uncommitted=not cuts.uncommitted.isdisjoint(skipped),
            )
        repository.create()
        # Before anything of the repository is read that this snapshot relies on: cleaners wait for its end.
        with intent_to_write(repository) as intent:
            earlier = EarlierFiles.of(repository, app_id, intent.condemned)
            copies = CopiedFiles(repository, earlier, progress).of(planned, request.workers)
            skipped = {**skipped, **_changed_tasks(planned, copies.refusals, request.app, lock)}
            require_unchanged(logs, read_logs(request.ask, logs), _CHANGED, _AGAIN)
            whole = [task for task in planned if task.name not in skipped]
            if not whole:
                raise _nothing(request.app, skipped, is_running=is_running)
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
    log_is_read = request.read_log is not None
    reports = tuple(
        _report(task, store, copies.new_bytes, log_is_read=log_is_read) for task in whole for store in task.stores
    )
    uncommitted = not cuts.uncommitted.isdisjoint(skipped)
    return CaptureReport(name, reports, skipped, generation.usable_until_ms, is_running, uncommitted)


def _changed_tasks(
    planned: Sequence[PlannedTask], refusals: Mapping[str, str], app: Path, lock: ReaderLock
) -> dict[str, str]:
    """Return the tasks of which no file can be used, with the reason, after reading again what was read before."""
    # Only now is it certain that all files of a closed task are of one moment.
    if any(task.facts is not None for task in planned):
        _refuse_in_use(app, lock)
    changed = {
        task.name: FILES_CHANGED for task in planned if task.name not in refusals and not is_unchanged(task, app)
    }
    return {**refusals, **changed}


def _plan(
    request: CaptureRequest, cuts: Cuts, earlier: EarlierGenerations, *, is_running: bool
) -> tuple[list[PlannedTask], dict[str, str]]:
    """Return the tasks that may be captured, and for each other one the reason: closed ones first, then cuts."""
    planned: list[PlannedTask] = []
    skipped: dict[str, str] = {}
    if not is_running:
        facts = {name: facts_of(path) for name, path in task_directories(request.app)}
        application = read_application(request.app, workers=request.workers)
        if application.running:
            # RocksDB's own locks: a process that uses a store without Streams.
            raise in_use(request.app, application.pid, can_wait=False)
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
        raise in_use(app, pid, can_wait=False)


def _nothing(app: Path, skipped: Mapping[str, str], *, is_running: bool) -> Refused:
    if not skipped:
        return Refused(
            f"{app} has no stores to take a snapshot of",
            hint="start the application once so that it creates its stores",
        )
    closing = "start the application and stop it cleanly"
    if is_running:
        closing = "stop the application cleanly"
    return Refused(
        f"kstate cannot take a snapshot of any task in {app}",
        details=first_lines([f"{task}: {why}" for task, why in sorted(skipped.items())]),
        hint=f"{closing}, then run the command again. If the application runs with at-least-once, "
        f"pass {option.GUARANTEE} at_least_once",
    )


def _publish(generation: Generation, repository: Repository) -> str:
    """Check that the generation is complete, create it, and return its name. Raise Refused and RunFailed."""
    data = render(generation)
    name = name_of(utc_name(generation.created_ms), data)
    # What a reader will refuse must never be published: names of topologies, for one, may be any text.
    if parse(name, data) != generation:
        raise Refused(
            "kstate cannot read the snapshot that it prepared, so it did not publish this snapshot",
            where=repository.where,
            hint="run the command again with KSTATE_LOG=FILE, then report the problem and attach that file",
        )
    lacking = generation.lacking(repository.object_sizes())
    if lacking:
        raise RunFailed(
            f"another program removed {plural(len(lacking), 'object')} of the new snapshot from the repository",
            where=repository.where,
            hint=_AGAIN,
        )
    try:
        repository.publish(name, data)
    except OSError as error:
        raise RunFailed(
            f"kstate could not publish the snapshot: {error.strerror}",
            where=str(error.filename or repository.where),
            hint="fix the cause, then run the command again. kstate then copies only the files that are not stored yet",
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


def _foreseen(
    planned: Iterable[PlannedTask], skipped: Mapping[str, str], earlier: EarlierFiles, *, log_is_read: bool
) -> CaptureReport:
    """Return the report of a dry run: properties of SSTs are read, and nothing else of them."""
    new_bytes: dict[Path, int] = {}
    reports = []
    for task in planned:
        for store in task.stores:
            for file in store.files:
                new_bytes[file.path] = new_bytes_at_most(file, earlier)
            reports.append(_report(task, store, new_bytes, log_is_read=log_is_read))
    return CaptureReport(None, tuple(reports), skipped)


def _report(
    task: PlannedTask, planned: PlannedStore, new_bytes: Mapping[Path, int], *, log_is_read: bool
) -> CapturedStore:
    files = list(planned.files)
    unknown = next(iter(planned.why_unknown), None)
    return CapturedStore(
        task.name,
        planned.offsets.store.name,
        planned.offsets.store.kind.name,
        planned.offsets.offsets,
        len(files),
        sum(file.size for file in files),
        sum(new_bytes[file.path] for file in files),
        None if unknown is None else planned.why_unknown[unknown],
        needs_log=not log_is_read and unknown in planned.unflushed,
    )
