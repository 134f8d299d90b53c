"""An application directory as a plan will make it, as data: the plans of further changes are based on it.

A restoration from a snapshot may also migrate its stores, and add the records of a dump, in the same run. Each of these
planners reads an :class:`Application`. The snapshot states what such a reading would show, so no file is copied for a
plan. The run copies the files, and compares each database with the snapshot before another step changes it.

Two things are not in a snapshot, and nothing may depend on them:

- Rows. A family that has files gets one empty row as its sample: rules only ask whether it has rows.
- The format of SSTs. Only releases that read every format may be the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from kstate_cli import clock
from kstate_cli.change.plan import CreateDatabase, EditDatabase, OmitTree, RemoveFile, Step, WriteFile
from kstate_cli.formats import checkpoint, metadata_files
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.kind_inference import Kind, infer_kind
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import OffsetsRecord
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF, kinds_of_family
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.rocks.files import CURRENT, is_log
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.snapshot.model import StoredDatabase, StoredStore
from kstate_cli.snapshot.planner import SnapshotPlan
from kstate_cli.snapshot.rules import closed_record
from kstate_cli.snapshot.task_steps import ChosenStore
from kstate_cli.statedir.model import Application, CheckpointFile, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, position_file, segment_start, store_checkpoint

_NS: Final = 1_000_000
_SAMPLE: Final = ((b"", b""),)


def overlay(app: Path, existing: Application | None, plan: SnapshotPlan) -> Application:
    """Return the directory with the stores of the snapshot. ``existing``: None for a directory that is lost."""
    before = existing or Application(app, (), running=False, pid=None)
    tasks = {task.name: task for task in before.tasks}
    for chosen in plan.stores:
        task = tasks.get(chosen.task) or _new_task(app, chosen.task)
        stores = [store for store in task.stores if store.name != chosen.store.name]
        tasks[task.name] = _with_stores(task, [*stores, _store(app, chosen)])
    ordered = sorted(tasks.values(), key=lambda task: TaskId.parse(task.name).order)
    return after(replace(before, tasks=tuple(ordered)), plan.change.steps)


def for_specification(application: Application, plan: SnapshotPlan) -> Application:
    """Return the directory for a specification: the stores of the snapshot have a kind and offsets, and no rows.

    A file beside the store states the offsets: the databases, of which rows would be read, are not copied yet.
    """
    restored = {(chosen.task, chosen.store.name): chosen for chosen in plan.stores}
    tasks = []
    for task in application.tasks:
        stores = []
        for store in task.stores:
            chosen = restored.get((task.name, store.name))
            if chosen is not None:
                content = checkpoint.Checkpoint(chosen.store.offsets)
                store = replace(store, databases=(), store_file=CheckpointFile(store.path, content, None, 0))
            stores.append(store)
        tasks.append(_with_stores(task, stores))
    return replace(application, tasks=tuple(tasks))


def after(application: Application, steps: Iterable[Step]) -> Application:
    """Return the directory after the steps of a migration, or the small files of a restoration."""
    tasks = {task.name: task for task in application.tasks}
    for step in steps:
        name = _task_of(tasks, step.path)
        if name is None:
            continue
        task = _changed(application, tasks[name], step)
        if task is None:
            del tasks[name]
        else:
            tasks[name] = task
    return replace(application, tasks=tuple(_bound(task) for task in tasks.values()))


def _task_of(tasks: Iterable[str], path: str) -> str | None:
    return next((name for name in tasks if path == name or path.startswith(f"{name}/")), None)


def _changed(application: Application, task: Task, step: Step) -> Task | None:
    path = application.path / step.path
    if isinstance(step, OmitTree):
        if path == task.path:
            return None
        stores = [_without(store, path) for store in task.stores if store.path != path]
        return _with_stores(task, stores)
    if isinstance(step, EditDatabase):
        return _with_stores(task, [_edited(store, path, step) for store in task.stores])
    if isinstance(step, CreateDatabase):
        return _with_carrier(application, task, path, step.offsets)
    if isinstance(step, (WriteFile, RemoveFile)):
        content = None
        if isinstance(step, WriteFile):
            content = CheckpointFile(path, checkpoint.parse(step.data), None, clock.now_ms() * _NS)
        return _with_file(task, path.name, content)
    return task


def _with_stores(task: Task, stores: Iterable[Store]) -> Task:
    return replace(task, stores=tuple(sorted(stores, key=lambda store: store.name)))


def _without(store: Store, path: Path) -> Store:
    return replace(store, databases=tuple(database for database in store.databases if database.path != path))


def _edited(store: Store, path: Path, step: EditDatabase) -> Store:
    databases = []
    for database in store.databases:
        if database.path == path:
            families = tuple(sorted(step.families_after))
            offsets = database.offsets
            if step.offsets is not None:
                offsets = step.offsets
            elif OFFSETS_CF not in families:
                offsets = None
            live = {name: database.live.get(name, ()) for name in families}
            database = replace(database, column_families=families, live=live, offsets=offsets)
        databases.append(database)
    return replace(store, databases=tuple(databases))


def _with_carrier(application: Application, task: Task, path: Path, record: OffsetsRecord) -> Task:
    """Return the task with a database that only carries an offset."""
    name, start = path.name, None
    if segment_start(path.parent.name, path.name) is not None:
        name = path.parent.name
        start = segment_start(name, path.name)
    store = next((store for store in task.stores if store.name == name), None)
    if store is None:
        same = [store for other in application.tasks for store in other.stores if store.name == name]
        kind = infer_kind(frozenset({DEFAULT_CF}), None if start is None else [start], {}, name)
        if same:
            kind = same[0].kind
        folder = path
        if start is not None:
            folder = path.parent
        store = Store(name, folder, start is not None, (), kind, None, None)
    database = Database(
        path=path,
        segment_start=start,
        column_families=(DEFAULT_CF, OFFSETS_CF),
        live={DEFAULT_CF: (), OFFSETS_CF: ()},
        sst_formats=frozenset(),
        rows=0,
        empty=True,
        samples={DEFAULT_CF: ()},
        offsets=record,
        options=None,
        size=0,
        newest_sst_ns=0,
        opened_ns=clock.now_ms() * _NS,
    )
    changed = replace(store, databases=(*store.databases, database))
    return _with_stores(task, [*(other for other in task.stores if other.name != name), changed])


def _with_file(task: Task, name: str, content: CheckpointFile | None) -> Task:
    """Return the task with the new content of a small file; None removes it."""
    if name == CHECKPOINT:
        return replace(task, checkpoint=content)
    of_store = name.removeprefix(store_checkpoint(""))
    if of_store != name:
        return replace(task, store_files=_files(task.store_files, of_store, content))
    store = name.removesuffix(position_file(""))
    if store != name:
        return replace(task, position_files=_files(task.position_files, store, content))
    return replace(task, leftovers=tuple(leftover for leftover in task.leftovers if leftover != name))


def _files(files: dict[str, CheckpointFile], store: str, content: CheckpointFile | None) -> dict[str, CheckpointFile]:
    changed = {name: file for name, file in files.items() if name != store}
    if content is not None:
        changed[store] = content
    return changed


def _bound(task: Task) -> Task:
    """Return the task with stores that refer to the present files beside them."""
    stores = [
        replace(store, position_file=task.position_files.get(store.name), store_file=task.store_files.get(store.name))
        for store in task.stores
    ]
    return _with_stores(task, stores)


# --- the stores of a snapshot -----------------------------------------------------------------------------------------


def _new_task(app: Path, name: str) -> Task:
    return Task(
        name=name,
        path=app / name,
        stores=(),
        checkpoint=None,
        store_files={},
        position_files={},
        leftovers=(),
        problems=(),
    )


def _store(app: Path, chosen: ChosenStore) -> Store:
    stored, path = chosen.store, app / chosen.path
    databases = tuple(_database(path, stored, database) for database in stored.databases)
    families = {name for database in databases for name in database.data_families}
    kind = Kind(stored.kind, _is_certain(stored.kind, families, segmented=stored.segmented), "the snapshot")
    return Store(stored.name, path, stored.segmented, databases, kind, None, None)


def store_as_captured(app: Path, chosen: ChosenStore) -> Store:
    """Return a store of a snapshot with the offsets that its databases stated when they were captured."""
    return _store(app, replace(chosen, store=replace(chosen.store, is_cut=False)))


def _is_certain(kind: str, families: set[str], *, segmented: bool) -> bool:
    """Return whether the families leave no other kind. A generation does not state whether rows proved the kind."""
    possible = {
        other.name for family in families - {DEFAULT_CF} for other in kinds_of_family(family, segmented=segmented)
    }
    return possible == {kind}


def _database(store_path: Path, store: StoredStore, stored: StoredDatabase) -> Database:
    path, start = store_path, None
    if stored.folder is not None:
        path = store_path / stored.folder
        start = segment_start(store.name, stored.folder)
    offsets = stored.offsets
    if store.is_cut:
        # As the run will place it: the copy of a database that was not closed gets the offset of its store.
        offsets = closed_record(store, stored)
    files = {file.name: file for file in stored.files}
    live = {
        family: tuple(LiveFile(name, files[name].size) for name in names) for family, names in stored.families.items()
    }
    if offsets is not None:
        live.setdefault(OFFSETS_CF, ())
    data = {family: names for family, names in stored.families.items() if family != OFFSETS_CF}
    logs = [int(name.partition(".")[0]) for name in files if is_log(name)]
    return Database(
        path=path,
        segment_start=start,
        column_families=tuple(live),
        live=live,
        sst_formats=frozenset(),
        rows=0,
        empty=not any(data.values()),
        samples={family: _SAMPLE if names else () for family, names in data.items()},
        offsets=offsets,
        options=_options(stored),
        size=stored.size,
        newest_sst_ns=max((files[name].mtime_ns for names in stored.families.values() for name in names), default=0),
        opened_ns=files[CURRENT].mtime_ns,
        wal_number=max(logs, default=None),
    )


def _options(stored: StoredDatabase) -> StoredOptions | None:
    """Return the options that the database was opened with last; None if the generation has none, or odd ones."""
    named = [file for file in stored.files if file.name.startswith("OPTIONS-") and file.data is not None]
    if not named:
        return None
    newest = max(named, key=lambda file: int(file.name.rpartition("-")[2]))
    try:
        return metadata_files.parse(newest.data or b"")
    except MalformedBytesError:
        return None
