"""A directory as a topology sees it that is to be started: its tasks, each with the stores that are opened in it.

The other rules of a check work on this view. For the topology, a store in another task is a missing store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kstate_cli.check.judge_offsets import is_logged
from kstate_cli.check.snapshot import AbsentStore, Homes, RequestedTopology, Snapshot, home_of_store, is_left_over
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.offsets.resolve import give_lines
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.statedir.model import Application, CheckpointFile, Task


def as_started(before: Snapshot, topology: RequestedTopology) -> tuple[Application, Homes]:
    """Return the application as the rules must see it, and its differences to the directory, ``before``."""
    inventory = _take_inventory(before, topology)
    # Existing tasks and those that the start creates are judged by the same rules.
    tasks = [_opened_part(before, topology, task) for task in before.app.tasks]
    created = [_without_directory(before, name) for name in sorted(inventory.created_tasks)]
    app = replace(before.app, tasks=tuple(sorted([*tasks, *created], key=lambda task: task.id.order)))
    return app, _homes(inventory, app)


@dataclass(frozen=True, slots=True)
class _Inventory:
    """The stores of a directory, and the tasks that the topology has for their partitions."""

    before: Snapshot
    topology: RequestedTopology
    copies: Mapping[tuple[StoreKey, int], Sequence[Task]]
    """(Store, partition) -> the tasks that have rows or an offset of it."""
    topics: Mapping[StoreKey, str]
    """Store -> the topic that one of its offsets names."""
    partitions: Mapping[Home, frozenset[int]]
    """Sub-topology -> the partitions for which it has a task."""

    @property
    def created_tasks(self) -> set[str]:
        """The tasks that the start creates directories for."""
        names = {home.task(partition) for home, partitions in self.partitions.items() for partition in partitions}
        return names - {task.name for task in self.before.app.tasks if not task.is_global}

    def is_logged(self, task: Task, name: str) -> bool:
        """Return True if a store of a task has a changelog, as far as that task shows."""
        return is_logged(self.before, task, next(store for store in task.stores if store.name == name))

    def is_in_memory(self, name: str) -> bool:
        """Return True if a global store without a directory is surely in memory: it ran here, and left nothing."""
        on_disk, old = self.topology.is_on_disk(name), self.topology.old
        return on_disk is False or (on_disk is None and old is not None and name in old.global_stores)


# --- what the directory has -------------------------------------------------------------------------------------------


def _take_inventory(before: Snapshot, topology: RequestedTopology) -> _Inventory:
    """Return the stores of the directory, and the partitions that follow from them."""
    copies: dict[tuple[StoreKey, int], list[Task]] = {}
    topics: dict[StoreKey, str] = {}
    partitions: dict[Home, set[int]] = {}
    for task in before.app.tasks:
        if task.is_global:
            continue
        # Every task has a partition here, because the folder of the global stores was skipped.
        partition = task.partition or 0
        # If the topology does not have the sub-topology of this directory, it shows nothing about the new
        # sub-topologies.
        if not is_left_over(topology, task.id):
            partitions.setdefault(Home.of(task.id), set()).add(partition)
        for name, offsets in _stores_with_data(before, task).items():
            key = StoreKey(task.topology or "", name)
            for changelog in sorted(offsets):
                topics.setdefault(key, changelog.topic)
            copies.setdefault((key, partition), []).append(task)
            # The new task of a store has the same partitions as its old one.
            for home in topology.new.places(key):
                partitions.setdefault(home, set()).add(partition)
    return _Inventory(before, topology, copies, topics, {home: frozenset(ids) for home, ids in partitions.items()})


def _stores_with_data(before: Snapshot, task: Task) -> Mapping[str, Mapping[TopicPartition, int]]:
    """Return the offsets of the stores of a task, without the empty stores that a failed start leaves."""
    resolved = before.resolved[task.name]
    # kstate cannot read the files of custom stores, so an offset proves that such a store has rows. A negative offset
    # does not: then the store counts as one that never ran here.
    custom = {name: lines for name, lines in resolved.absent.items() if any(offset >= 0 for offset in lines.values())}
    stores = {state.store.name: state.offsets for state in resolved.stores if state.offsets or not state.store.empty}
    return {**custom, **stores}


# --- what the topology opens ------------------------------------------------------------------------------------------


def _opened_part(before: Snapshot, topology: RequestedTopology, task: Task) -> Task:
    """Return a task with only those stores that the topology opens in it."""
    if task.is_global:
        stores = tuple(store for store in task.stores if store.name in topology.new.global_stores)
        return replace(task, stores=stores)
    if is_left_over(topology, task.id):
        return task
    # Folders and lines of stores that belong to another sub-topology are removed, because they are not opened here.
    names = set(topology.new.stores_of(Home.of(task.id)))
    return replace(
        task,
        stores=tuple(store for store in task.stores if store.name in names),
        checkpoint=_without_lines(task.checkpoint, _foreign_lines(before, task, names)),
        store_files={name: file for name, file in task.store_files.items() if name in names},
        position_files={name: file for name, file in task.position_files.items() if name in names},
    )


def _foreign_lines(before: Snapshot, task: Task, names: set[str]) -> set[TopicPartition]:
    """Return the lines of ``.checkpoint`` that belong to other stores only: two stores may share a source topic."""
    owners = give_lines(before.app.app_id, task)
    lines = {**owners.stores, **owners.absent}
    own = {partition for name, offsets in lines.items() if name in names for partition in offsets}
    return {partition for offsets in lines.values() for partition in offsets} - own


def _without_lines(file: CheckpointFile | None, lines: set[TopicPartition]) -> CheckpointFile | None:
    """Return ``.checkpoint`` without lines that no store of the task reads."""
    if file is None or file.content is None or not lines:
        return file
    entries = {partition: offset for partition, offset in file.content.entries.items() if partition not in lines}
    return replace(file, content=replace(file.content, entries=entries))


def _without_directory(before: Snapshot, name: str) -> Task:
    path = before.app.path.joinpath(*name.split("/"))
    return Task(name, path, (), None, {}, {}, (), (), mtime_ns=before.now_ms * 1_000_000)


# --- the differences --------------------------------------------------------------------------------------------------


def _homes(inventory: _Inventory, app: Application) -> Homes:
    """Return the differences between the directory and the topology."""
    before, topology = inventory.before, inventory.topology
    left_over = frozenset(task.name for task in app.tasks if is_left_over(topology, task.id))
    here = {store.name for task in before.app.tasks if task.is_global for store in task.stores}
    global_names = topology.new.global_stores
    absent = _absent_global_stores(inventory, here)
    return Homes(
        missing={
            task.name: dict(_missing_stores(inventory, task))
            for task in app.tasks
            if not task.is_global and task.name not in left_over
        },
        left_over=left_over,
        elsewhere={
            task.name: dict(_stores_elsewhere(topology, task)) for task in before.app.tasks if not task.is_global
        },
        unlogged=frozenset(_unlogged_stores(inventory)),
        topics=inventory.topics,
        stores=frozenset(key.store for key, _ in inventory.copies) | here,
        global_unused=tuple(sorted(here - global_names)),
        global_missing=tuple(sorted(absent)),
        global_on_disk=tuple(sorted({*(here & global_names), *absent})),
        unplaced=tuple(sorted(key for key, home in topology.new.homes.items() if home not in inventory.partitions)),
    )


def _absent_global_stores(inventory: _Inventory, here: set[str]) -> list[str]:
    names = inventory.topology.new.global_stores
    return [name for name in names if name not in here and not inventory.is_in_memory(name)]


def _missing_stores(inventory: _Inventory, task: Task) -> Iterator[tuple[str, AbsentStore]]:
    here = {store.name for store in task.stores}
    for name in inventory.topology.new.stores_of(Home.of(task.id)):
        if name in here:
            continue
        missing = _missing_store(inventory, task.id, name)
        if missing is not None:
            yield name, missing


def _missing_store(inventory: _Inventory, task: TaskId, name: str) -> AbsentStore | None:
    """Return how a task lacks a store; None if the store is probably in memory, and so not missing."""
    key = StoreKey(task.topology or "", name)
    copies = inventory.copies.get((key, task.partition or 0), ())
    if any(copy.name == task.name for copy in copies):
        return _with_offset_only(inventory, task, name)
    # If another task of the same partition has it, its rows are the right ones, in the wrong task.
    if copies:
        return _in_another_task(inventory, key, copies)
    if inventory.topology.is_on_disk(name) is False or not inventory.topology.is_logged(name):
        return None
    if any(other == key for other, _ in inventory.copies):
        return AbsentStore()  # tasks of other partitions have it
    return _new_store(inventory, task, key)


def _with_offset_only(inventory: _Inventory, task: TaskId, name: str) -> AbsentStore | None:
    """Judge a store of which the task has an offset only, as of a custom store: other tasks show whether it is one."""
    tasks = (
        other for other in inventory.before.app.tasks if not other.is_global and Home.of(other.id) == Home.of(task)
    )
    if any(store.name == name for other in tasks for store in other.stores):
        return AbsentStore()
    return None


def _in_another_task(inventory: _Inventory, key: StoreKey, copies: Sequence[Task]) -> AbsentStore:
    """Choose the copy of the task that had the store in the old topology, if there are several."""
    old = inventory.topology.old
    previous = [copy for copy in copies if old is not None and Home.of(copy.id) in old.places(key)]
    copy = (previous or copies)[0]
    return AbsentStore(copy.name, logged=key in inventory.topics or inventory.is_logged(copy, key.store))


def _new_store(inventory: _Inventory, task: TaskId, key: StoreKey) -> AbsentStore | None:
    """Return how a task lacks a store that no task has. It is new, or it is in memory (None).

    It is in memory if the old topology had it here, and other stores of the same sub-topology have left a directory.
    """
    old = inventory.topology.old
    if old is None or (home := old.homes.get(key)) is None:
        return AbsentStore(new=True, on_disk=inventory.topology.is_on_disk(key.store))
    siblings = (StoreKey(key.topology, other) for other in old.stores_of(home) if other != key.store)
    # The task ran here with its other stores. If this store were on disk, it would have left a directory too.
    if any((other, task.partition or 0) in inventory.copies for other in siblings):
        return None
    return AbsentStore(new=True, on_disk=None)


def _stores_elsewhere(topology: RequestedTopology, task: Task) -> Iterator[tuple[str, str | None]]:
    for store in task.stores:
        home = home_of_store(topology, task.id, store.name)
        if home != task.name:
            yield store.name, home


def _unlogged_stores(inventory: _Inventory) -> Iterator[tuple[str, str]]:
    """Yield task and name of each store that has rows and no changelog."""
    for (key, _), tasks in inventory.copies.items():
        if key in inventory.topics:
            continue  # an offset of any partition names the changelog, which all partitions have
        for task in tasks:
            store = next(store for store in task.stores if store.name == key.store)
            if not store.empty and not inventory.is_logged(task, key.store):
                yield task.name, key.store
