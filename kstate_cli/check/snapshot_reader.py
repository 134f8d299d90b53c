"""Read the snapshot of a check, and the lag of each store.

Only this module of ``check`` reads the disk, a dump or the clock.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final

from kstate_cli import clock
from kstate_cli.change.engine import pinned_bytes
from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import UNFINISHED
from kstate_cli.change.lost import lost_copies
from kstate_cli.check.findings import Outcome, Prediction, Records
from kstate_cli.check.homes import as_started
from kstate_cli.check.logs import LogSource
from kstate_cli.check.ranges import read_offsets
from kstate_cli.check.snapshot import (
    CheckRequest,
    Homes,
    KstateRun,
    LogSnapshot,
    RequestedTopology,
    Snapshot,
    Surroundings,
)
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.logs import Log, Where
from kstate_cli.offsets.ages import Age, age_of, read_ages
from kstate_cli.offsets.keeping import release_of
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.offsets.resolve import resolve, resolve_with
from kstate_cli.rocks.files import is_log
from kstate_cli.statedir.locks import mount_of, read_lock_table, read_mounts
from kstate_cli.statedir.model import Application, CheckpointFile, Task
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.problems import ProblemCode

# The hint of the finding suggests to delete backups that are older than 7 days.
_KEPT_LONG = timedelta(days=7)


def read_snapshot(app: Application, request: CheckRequest) -> Snapshot:
    """Read everything about ``app`` that a rule may need. Changes nothing.

    Raises Refused if kstate does not understand the journal of one of its runs, DumpError if a dump cannot be read, and
    OSError if a file of offsets cannot be read.
    """
    # Only files that the start reads: if it ignores a file, it does not matter that kstate cannot read it.
    for file in _read_by_streams(app, request):
        if isinstance(file.error, OSError):
            raise file.error
    # Listed once, so that all rules see the same names while a running application changes the directory.
    entries = {task.name: frozenset(_names(task.path)) for task in app.tasks}
    databases = [database for task in app.tasks for store in task.stores for database in store.databases]
    bare = Snapshot(
        app,
        request,
        {state.task.name: state for state in resolve_with(app, entries, transactional=request.transactional)},
        clock.now_ms(),
        entries=entries,
        segments={
            store.path: tuple(_names(store.path)) for task in app.tasks for store in task.stores if store.segmented
        },
        write_ahead={
            database.path: tuple(filter(is_log, _names(database.path)))
            for database in databases
            if any(problem.code is ProblemCode.NO_CURRENT for problem in database.problems)
        },
    )
    if request.topology is not None:
        bare = _as_started(bare, request.topology)
    # The logs are read after the view of the topology was applied, because its stores decide which logs are needed.
    with_logs = replace(bare, logs=read_logs(bare))
    return replace(with_logs, ages=_ages(with_logs), around=_around(app))


def read_homes(app: Application, topology: RequestedTopology) -> Homes:
    """Return the differences between the stores of a directory and a topology. Raises OSError as ``resolve`` does."""
    resolved = {state.task.name: state for state in resolve(app)}
    # The release does not matter for these differences, so any request will do.
    request = CheckRequest(release_of(app), topology=topology)
    return as_started(Snapshot(app, request, resolved, clock.now_ms()), topology)[1]


def _as_started(before: Snapshot, topology: RequestedTopology) -> Snapshot:
    """Return the same directory as the topology sees it."""
    app, homes = as_started(before, topology)
    entries = {task.name: before.entries.get(task.name, frozenset()) for task in app.tasks}
    resolved = resolve_with(app, entries, transactional=before.request.transactional)
    return replace(
        before, app=app, resolved={state.task.name: state for state in resolved}, entries=entries, homes=homes
    )


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if a running application has removed it."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _read_by_streams(app: Application, request: CheckRequest) -> Iterable[CheckpointFile]:
    for task in app.tasks:
        for store in task.stores:
            if store.position_file is not None:
                yield store.position_file
            if store.store_file is not None and request.into_family and store.is_grace_buffer:
                yield store.store_file
        if task.checkpoint is not None:
            yield task.checkpoint


def _ages(snapshot: Snapshot) -> dict[tuple[str, str], Age]:
    """Return the age of the data of each store if a rule may need it.

    That is so if kstate has recorded any age, or if the log of the store may have lost deletes. The age comes from the
    SSTs and from the records of kstate, and not from an mtime, which a copy changes.
    """
    written_down = read_ages(snapshot.app.path)
    return {
        (task.name, state.store.name): age_of(written_down, task.name, state)
        for task in snapshot.app.tasks
        for state in snapshot.resolved[task.name].stores
        if written_down or _may_forget(snapshot, task, state)
    }


def _may_forget(snapshot: Snapshot, task: Task, state: StoreOffsets) -> bool:
    keys = [*state.offsets, snapshot.changelog(task, state.store.name)]
    logs = [snapshot.log(key) for key in keys if key is not None]
    return not state.store.empty and any(log.forgets for log in logs if log is not None)


def _around(app: Application) -> Surroundings:
    owner = app.path.stat().st_uid
    return Surroundings(
        owner, tuple(sorted(_of_others(app, owner))), mount_of(app.path, read_mounts()), tuple(_runs(app))
    )


def _of_others(app: Application, owner: int) -> Iterable[str]:
    """Yield the files whose owner differs from ``owner``, that of the application directory."""
    # os.walk does not follow links to folders, so it stays in the application directory.
    for folder, _, names in os.walk(app.path):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                other = os.stat(path, follow_symlinks=False).st_uid != owner
            except FileNotFoundError:
                continue  # a running application has removed it
            if other:
                yield os.path.relpath(path, app.path)


def _runs(app: Application) -> Iterable[KstateRun]:
    """Yield the runs of kstate that matter for a start: damaged, unfinished, with the only copy of a store, or old."""
    limit = clock.now() - _KEPT_LONG
    # A run in progress holds the lock. So an unfinished run was interrupted only if nothing holds it.
    locked = read_lock_table().is_locked(app.path / LOCK)
    runs = read_runs(app.path)
    lost = {copy.run.name: copy.sentences for copy in lost_copies(app.path, runs)}
    for run in runs:
        if run.damage is not None:
            yield KstateRun(run.name, run.damage)
        elif run.state in UNFINISHED:
            yield KstateRun(run.name, interrupted=locked is False)
        elif run.name in lost:
            yield KstateRun(run.name, lost=lost[run.name])
        elif run.events and datetime.fromisoformat(run.events[-1]["at"]) <= limit:
            yield KstateRun(run.name, kept_bytes=pinned_bytes(run), kept_since=run.events[-1]["at"][:10])


def read_logs(bare: Snapshot) -> LogSnapshot:
    """Return the logs for ``bare``, a snapshot that has none yet. Raises DumpError if a dump cannot be read."""
    sources = bare.request.logs
    if not sources:
        return LogSnapshot()
    partitions = frozenset(key for source in sources for key in source.partitions())
    # The changelog of a store depends on the partitions that the sources have. So the offsets are determined with a
    # snapshot that has the partitions, and no log yet.
    candidates = _first_offsets(replace(bare, logs=LogSnapshot(partitions=partitions)))
    keys = [*candidates, *(partitions - candidates.keys())]
    logs = {key: log for key in keys if (log := _first(sources, key)) is not None}
    return LogSnapshot(
        logs,
        partitions,
        frozenset(key for key in keys if any(source.lacks(key) for source in sources)),
        {key: tuple(topic_id for source in sources if (topic_id := source.topic_id(key)) is not None) for key in keys},
        _counts(bare, logs, candidates),
    )


def _counts(
    bare: Snapshot, logs: Mapping[TopicPartition, Log], candidates: Mapping[TopicPartition, set[int]]
) -> dict[tuple[TopicPartition, int], Records | None]:
    """Return the number of records after each offset that a store may be restored from, and after each log start."""
    sources, transactional = bare.request.logs, bare.request.exactly_once
    # Offsets outside of the log, such as -4, are skipped: no restoration starts there.
    first_offsets = {
        key: {logs[key].start or 0, *(offset for offset in offsets if logs[key].where(offset) is Where.INSIDE)}
        for key, offsets in candidates.items()
        if key in logs
    }
    for source in sources:
        source.prepare(first_offsets, transactional=transactional)
    return {
        (key, first): count_records(sources, key, first, transactional=transactional)
        for key, offsets in first_offsets.items()
        for first in offsets
    }


def _first_offsets(snapshot: Snapshot) -> dict[TopicPartition, set[int]]:
    """Return the partitions that stores may be restored from, each with the offsets at which reading may start."""
    first_offsets: dict[TopicPartition, set[int]] = {}
    for task in snapshot.app.tasks:
        read = read_offsets(snapshot, task)
        for offsets in (*(state.offsets for state in read.stores.values()), *read.absent.values()):
            for key, offset in offsets.items():
                first_offsets.setdefault(key, set()).add(_next_offset(task, offset))
        for name in _store_names(snapshot, task) | read.absent.keys():
            for changelog in (snapshot.own_changelog(task, name), snapshot.changelog(task, name)):
                if changelog is not None:
                    first_offsets.setdefault(changelog, set())
        if task.is_global:
            topics = {key.topic for state in read.stores.values() for key in state.offsets}
            for key in snapshot.logs.partitions:
                if key.topic in topics:
                    first_offsets.setdefault(key, set())
    return first_offsets


def _store_names(snapshot: Snapshot, task: Task) -> set[str]:
    """Return the stores that a task has, or should have."""
    return {store.name for store in task.stores} | snapshot.should_have(task)


def _first(sources: Sequence[LogSource], key: TopicPartition) -> Log | None:
    return next((log for log in (source.log(key) for source in sources) if log is not None), None)


def count_records(
    sources: Sequence[LogSource], key: TopicPartition, first: int, *, transactional: bool
) -> Records | None:
    """Return the number of records from ``first`` to the end of a log.

    Only sources that have the same log as the first one count. A dump gives an exact number.
    """
    candidates = [source for source in sources if source.log(key) is not None]
    best: Records | None = None
    for source in candidates:
        if _same_log(source, candidates[0], key):
            count = source.records(key, first, transactional=transactional)
            # The first result is used, unless a later one is exact: of two upper bounds neither is better.
            if best is None or (count is not None and count.exact):
                best = count
    return best


def _next_offset(task: Task, offset: int) -> int:
    """Return the next offset to read: a global store states it, another store states the one before."""
    return offset if task.is_global else offset + 1


def _same_log(source: LogSource, other: LogSource, key: TopicPartition) -> bool:
    """Return whether two sources have the same log: the same bounds, and no different topic ids."""
    a, b = source.log(key), other.log(key)
    ids = {source.topic_id(key), other.topic_id(key)} - {None}
    # Other bounds mean that a dump is of an older state of the log, in which it would count other records.
    return a is not None and b is not None and (a.start, a.end) == (b.start, b.end) and len(ids) < 2


@dataclass(frozen=True, slots=True)
class Lag:
    """The records of its logs that a store has not applied yet."""

    records: Records
    seconds: float | None
    """The age of the first of these records; 0 if there is none, None if no source states its time."""


_UNKNOWN: Final = frozenset({Outcome.FAILS, Outcome.HANGS, Outcome.NOT_REACHED, Outcome.UNKNOWN})
_RESTORES: Final = frozenset(
    {Outcome.OPENS, Outcome.OPENS_EMPTY, Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED}
)


def until_running(predictions: Iterable[Prediction]) -> Records | None:
    """Return the number of records that the next start restores before the state RUNNING.

    None if that is unknown, or if the start fails. Stores in memory are restored too, but the directory does not show
    them.
    """
    total, exact = 0, True
    for prediction in predictions:
        if prediction.outcome in _UNKNOWN or (prediction.outcome in _RESTORES and prediction.records is None):
            return None
        if prediction.outcome in _RESTORES and prediction.records is not None:
            total += prediction.records.count
            exact = exact and prediction.records.exact and prediction.or_else is None
    return Records(total, exact)


class UnknownLag(str, Enum):
    """The reason why the lag of a store behind one log is unknown. If a source states nothing, that never means 0."""

    NO_OFFSET = "no-offset"
    """The store states no offset, or -4: Streams would restore everything, or the store has no changelog."""
    NO_LOG = "log-unknown"
    """No source states where the log begins and ends."""
    BELOW = "below-log-start"
    """The log no longer has the record that follows the offset."""
    ABOVE = "above-log-end"
    """The offset is past the end of the log: it is another log, or it was cut."""


_UNKNOWN_BY_PLACE: Final = {Where.BELOW: UnknownLag.BELOW, Where.ABOVE: UnknownLag.ABOVE}


@dataclass(frozen=True, slots=True)
class LogLag:
    """A store and one log that it is built from."""

    key: TopicPartition | None
    """None for a store without an offset: nothing on disk names its topic."""
    offset: int | None
    """The stored offset: of the last applied record, for a global store of the next one; None if the store has none."""
    log_start: int | None
    log_end: int | None
    """The bounds of the log; None if no source states them."""
    lag: Lag | None
    unknown: UnknownLag | None = None
    """The reason for an unknown lag."""


def lags(
    app: Application,
    sources: Sequence[LogSource],
    *,
    exactly_once: bool | None = None,
    places: Collection[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], Lag]:
    """Return the lag by task and store. A store is omitted unless the lag behind each of its logs is known.

    ``exactly_once``: None if the user has not stated it. Then records of aborted transactions do not count if the log
    is read, and no entry is assumed to be a marker if it is not. ``places``: only these stores are read. Raise
    UsageError and DumpError for unreadable sources.
    """
    by_place = {
        place: together(logs)
        for place, logs in log_lags(app, sources, exactly_once=exactly_once, places=places).items()
    }
    return {place: lag for place, lag in by_place.items() if lag is not None}


def log_lags(
    app: Application,
    sources: Sequence[LogSource],
    *,
    exactly_once: bool | None = None,
    places: Collection[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], tuple[LogLag, ...]]:
    """Return the logs of each store, by task and store, with its lag behind each.

    Arguments and errors as in :func:`lags`.
    """
    stores = {place: offsets for place, offsets in _offsets(app).items() if places is None or place in places}
    first_offsets: dict[TopicPartition, set[int]] = {}
    for place, offsets in stores.items():
        for key, offset in offsets.items():
            if offset >= 0:
                first_offsets.setdefault(key, set()).add(_following(place, offset))
    # All offsets are passed at once, so that a source reads each log once.
    for source in sources:
        source.prepare(first_offsets, transactional=exactly_once is not False)
    return {
        place: tuple(
            _log_lag(sources, key, offset, _following(place, offset), transactional=bool(exactly_once))
            for key, offset in sorted(offsets.items())
        )
        or (LogLag(None, None, None, None, None, UnknownLag.NO_OFFSET),)
        for place, offsets in stores.items()
    }


def together(logs: Sequence[LogLag]) -> Lag | None:
    """Return the lag behind several logs; None if one of them is unknown, since a part would look like the whole."""
    parts = [log.lag for log in logs if log.lag is not None]
    if not parts or len(parts) < len(logs):
        return None
    return sum_of(parts)


def sum_of(parts: Sequence[Lag]) -> Lag:
    """Return the sum of the records, and the age of the oldest one; no age if one of the parts has none."""
    records = Records(sum(lag.records.count for lag in parts), all(lag.records.exact for lag in parts))
    seconds = [lag.seconds for lag in parts if lag.seconds is not None]
    # The partition without a time may be the one that is furthest behind.
    if len(seconds) < len(parts):
        return Lag(records, None)
    return Lag(records, max(seconds))


def _offsets(app: Application) -> dict[tuple[str, str], Mapping[TopicPartition, int]]:
    """Return the stored offsets of each store. A task store has one log: several are contradictory, hence unknown."""
    stores: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
    for resolved in resolve(app):
        task = resolved.task
        of_stores = {state.store.name: state.offsets for state in resolved.stores} | dict(resolved.absent)
        for name, offsets in of_stores.items():
            is_clear = task.is_global or len(offsets) <= 1
            stores[task.name, name] = offsets if is_clear else dict.fromkeys(offsets, OFFSET_UNKNOWN)
    return stores


def _following(place: tuple[str, str], offset: int) -> int:
    """Return the next offset to read: a global store states it, another store states the one before."""
    return offset if place[0] == GLOBAL else offset + 1


def _log_lag(
    sources: Sequence[LogSource], key: TopicPartition, offset: int, first: int, *, transactional: bool
) -> LogLag:
    """Return the lag of a store behind one log, or the reason why it is unknown.

    ``first`` is the next offset to apply.
    """
    source = next((source for source in sources if source.log(key) is not None), None)
    if source is None or (log := source.log(key)) is None:
        if offset < 0:
            return LogLag(key, None, None, None, None, UnknownLag.NO_OFFSET)
        return LogLag(key, offset, None, None, None, UnknownLag.NO_LOG)
    start, end = log.start, log.end
    # -4 is not an offset: Streams writes it before it has applied any record.
    if offset < 0:
        return LogLag(key, None, start, end, None, UnknownLag.NO_OFFSET)
    where = log.where(first)
    if where is not Where.INSIDE:
        return LogLag(key, offset, start, end, None, _UNKNOWN_BY_PLACE.get(where, UnknownLag.NO_LOG))
    records = count_records(sources, key, first, transactional=transactional)
    if records is None:
        return LogLag(key, offset, start, end, None, UnknownLag.NO_LOG)
    if records.exact and not records.count:
        return LogLag(key, offset, start, end, Lag(records, 0.0))
    at = source.time_of(key, first)
    if at is None:
        return LogLag(key, offset, start, end, Lag(records, None))
    # The producer sets the time of a record, and its clock may be ahead of this host. So the lag is at least 0.
    return LogLag(key, offset, start, end, Lag(records, max(0.0, (clock.now_ms() - at) / 1000)))
