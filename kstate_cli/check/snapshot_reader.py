"""Takes the snapshot that a check judges: all that needs the disk, a dump or the clock is read here, and only here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from kstate_cli import clock
from kstate_cli.change.engine import pinned_bytes
from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import UNFINISHED
from kstate_cli.change.lost import lost_copies
from kstate_cli.check.counting import known_logs
from kstate_cli.check.homes import as_started
from kstate_cli.check.snapshot import CheckRequest, RunSeen, Snapshot, Surroundings
from kstate_cli.check.topology import AskedTopology, Homes
from kstate_cli.offsets.ages import Age, age_of, read_ages
from kstate_cli.offsets.left_behind import release_of
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.offsets.resolve import resolve, resolve_with
from kstate_cli.rocks.files import is_log
from kstate_cli.statedir.locks import mount_of, read_lock_table, read_mounts
from kstate_cli.statedir.model import Application, CheckpointFile, Task
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.problems import ProblemCode

_KEPT = timedelta(days=7)


def read_snapshot(app: Application, asked: CheckRequest) -> Snapshot:
    """Everything about ``app`` that a rule may ask for. Changes nothing.

    Raises Refused where what kstate wrote down of its own runs cannot be understood, DumpError where a dump cannot be
    read, OSError where the system does not give a file of offsets for a reason that nobody knows.
    """
    for file in _read_by_streams(app, asked):
        if isinstance(file.error, OSError):
            raise file.error
    entries = {task.name: frozenset(_names(task.path)) for task in app.tasks}
    databases = [database for task in app.tasks for store in task.stores for database in store.databases]
    bare = Snapshot(
        app,
        asked,
        {one.task.name: one for one in resolve_with(app, entries, transactional=asked.transactional)},
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
    if asked.topology is not None:
        bare = _as_started(bare, asked.topology)
    with_logs = replace(bare, logs=known_logs(bare))
    return replace(with_logs, ages=_ages(with_logs), around=_around(app))


def read_homes(app: Application, asked: AskedTopology) -> Homes:
    """Where a topology has what is in a directory, and nothing else of it. Raises OSError as ``resolve`` does."""
    resolved = {one.task.name: one for one in resolve(app)}
    request = CheckRequest(release_of(app), topology=asked)
    return as_started(Snapshot(app, request, resolved, clock.now_ms()), asked)[1]


def _as_started(before: Snapshot, asked: AskedTopology) -> Snapshot:
    """The same directory as the topology sees it."""
    app, homes = as_started(before, asked)
    entries = {task.name: before.entries.get(task.name, frozenset()) for task in app.tasks}
    resolved = resolve_with(app, entries, transactional=before.asked.transactional)
    return replace(before, app=app, resolved={one.task.name: one for one in resolved}, entries=entries, homes=homes)


def _names(folder: Path) -> list[str]:
    """What is in a folder, sorted; nothing where a running application has dropped it."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _read_by_streams(app: Application, asked: CheckRequest) -> Iterable[CheckpointFile]:
    for task in app.tasks:
        for store in task.stores:
            own = store.store_file if asked.into_family and store.is_grace_buffer else None
            yield from (one for one in (store.position_file, own) if one is not None)
        if task.checkpoint is not None:
            yield task.checkpoint


def _ages(snapshot: Snapshot) -> dict[tuple[str, str], Age]:
    """What is known of every store that kstate may have made, and of those whose log forgets deletes.

    By the times in its SSTs and what kstate wrote down of its own runs: an mtime is made young by every copy.
    """
    written_down = read_ages(snapshot.app.path)
    return {
        (task.name, one.store.name): age_of(written_down, task.name, one)
        for task in snapshot.app.tasks
        for one in snapshot.resolved[task.name].stores
        if written_down or _may_forget(snapshot, task, one)
    }


def _may_forget(snapshot: Snapshot, task: Task, one: StoreOffsets) -> bool:
    keys = [*one.offsets, snapshot.changelog(task, one.store.name)]
    logs = [snapshot.log(key) for key in keys if key is not None]
    return not one.store.empty and any(log.forgets for log in logs if log is not None)


def _around(app: Application) -> Surroundings:
    owner = app.path.stat().st_uid
    return Surroundings(
        owner, tuple(sorted(_of_others(app, owner))), mount_of(app.path, read_mounts()), tuple(_runs(app))
    )


def _of_others(app: Application, owner: int) -> Iterable[str]:
    """Files of another owner than the application directory's."""
    for folder, _, names in os.walk(app.path):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                other = os.stat(path, follow_symlinks=False).st_uid != owner
            except FileNotFoundError:
                continue  # beside a running application
            if other:
                yield os.path.relpath(path, app.path)


def _runs(app: Application) -> Iterable[RunSeen]:
    limit = clock.now() - _KEPT
    held = read_lock_table().is_locked(app.path / LOCK)
    runs = read_runs(app.path)
    lost = {one.run.name: one.sentences for one in lost_copies(app.path, runs)}
    for run in runs:
        if run.damage is not None:
            yield RunSeen(run.name, run.damage)
        elif run.state in UNFINISHED:
            yield RunSeen(run.name, interrupted=held is False)
        elif run.name in lost:
            yield RunSeen(run.name, lost=lost[run.name])
        elif run.events and datetime.fromisoformat(run.events[-1]["at"]) <= limit:
            yield RunSeen(run.name, kept_bytes=pinned_bytes(run), kept_since=run.events[-1]["at"][:10])
