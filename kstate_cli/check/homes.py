"""A directory as the topology sees it that is to be started: its tasks with the stores that it looks for in them.

Everything else follows by the rules that hold for any start: what lies elsewhere is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kstate_cli.check.judge_offsets import is_logged
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.topology import AskedTopology, Homes, Lacked, home_of_store, is_left_over
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.owners import give_lines
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.statedir.model import Application, CheckpointFile, Task


def as_started(before: Snapshot, asked: AskedTopology) -> tuple[Application, Homes]:
    """The application as it is to be judged, and what that leaves out. ``before`` is the directory as it lies there."""
    directory = _Found(before, asked)
    for task in before.app.tasks:
        directory.look_at(task)
    tasks = [directory.seen(task) for task in before.app.tasks]
    made = [_without_directory(before, name) for name in sorted(directory.made)]
    app = replace(before.app, tasks=tuple(sorted([*tasks, *made], key=lambda one: one.id.order)))
    return app, directory.homes(app)


_Copies = dict[tuple[StoreKey, int], list[Task]]


@dataclass(frozen=True, slots=True)
class _Found:
    """What lies where."""

    before: Snapshot
    asked: AskedTopology
    copies: _Copies = field(default_factory=dict)
    """Store and partition -> the tasks that have it, with a row or an offset."""
    topics: dict[StoreKey, str] = field(default_factory=dict)
    partitions: dict[Home, set[int]] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    def look_at(self, task: Task) -> None:
        """One more task of the directory."""
        if task.is_global:
            return
        partition, topology = task.partition or 0, task.topology or ""
        self.directories.add(task.name)
        if not is_left_over(self.asked, task.id):
            self.partitions.setdefault(Home.of(task.id), set()).add(partition)
        resolved = self.before.resolved[task.name]
        # What a start that has failed leaves is empty, and says nothing.
        known = {one.store.name: one.offsets for one in resolved.stores if one.offsets or not one.store.empty}
        # Custom stores, whose bytes nobody reads here.
        custom = {name: lines for name, lines in resolved.absent.items() if any(at >= 0 for at in lines.values())}
        for name, offsets in {**custom, **known}.items():
            key = StoreKey(topology, name)
            for tp in sorted(offsets):
                self.topics.setdefault(key, tp.topic)
            self.copies.setdefault((key, partition), []).append(task)
            for home in self.asked.new.places(key):
                self.partitions.setdefault(home, set()).add(partition)

    @property
    def made(self) -> set[str]:
        """The tasks that the start makes directories for."""
        names = {home.task(one) for home, those in self.partitions.items() for one in those}
        return names - self.directories

    def seen(self, task: Task) -> Task:
        """A task with nothing but the stores that the topology opens in it."""
        if task.is_global:
            stores = tuple(one for one in task.stores if one.name in self.asked.new.global_stores)
            return replace(task, stores=stores)
        if is_left_over(self.asked, task.id):
            return task
        names = set(self.asked.new.stores_of(Home.of(task.id)))
        owners = give_lines(self.before.app.app_id, task)
        lines = {**owners.stores, **owners.absent}
        wanted = {tp for name, of_one in lines.items() if name in names for tp in of_one}
        others = {tp for name, of_one in lines.items() if name not in names for tp in of_one} - wanted
        return replace(
            task,
            stores=tuple(one for one in task.stores if one.name in names),
            checkpoint=_without(task.checkpoint, others),
            store_files={name: file for name, file in task.store_files.items() if name in names},
            position_files={name: file for name, file in task.position_files.items() if name in names},
        )

    def homes(self, app: Application) -> Homes:
        """Everything that is not as the topology has it."""
        here = {one.name for task in self.before.app.tasks if task.is_global for one in task.stores}
        wanted = self.asked.new.global_stores
        return Homes(
            {task.name: dict(self._lacked(task)) for task in app.tasks if not self._is_passed_over(task)},
            frozenset(task.name for task in app.tasks if is_left_over(self.asked, task.id)),
            {task.name: dict(self._elsewhere(task)) for task in self.before.app.tasks if not task.is_global},
            frozenset(self._unlogged()),
            self.topics,
            frozenset(key.store for key, _ in self.copies) | here,
            tuple(sorted(here - wanted)),
            tuple(sorted(one for one in wanted - here if not self._in_memory_globally(one))),
            tuple(sorted(one for one in wanted if one in here or not self._in_memory_globally(one))),
            tuple(sorted(key for key, home in self.asked.new.homes.items() if home not in self.partitions)),
        )

    def _is_passed_over(self, task: Task) -> bool:
        return task.is_global or is_left_over(self.asked, task.id)

    def _lacked(self, task: Task) -> Iterator[tuple[str, Lacked]]:
        here = {one.name for one in task.stores}
        for name in self.asked.new.stores_of(Home.of(task.id)):
            lacked = None if name in here else self._of_one(task.id, name)
            if lacked is not None:
                yield name, lacked

    def _of_one(self, task: TaskId, name: str) -> Lacked | None:
        """Why a task lacks a store; None where it is in memory, as far as anybody says."""
        key = StoreKey(task.topology or "", name)
        copies = self.copies.get((key, task.partition or 0), [])
        old = self.asked.old
        if any(one.name == task.name for one in copies):
            # Only an offset is here, as of a custom store: what that means other tasks say.
            alike = (one for one in self.before.app.tasks if not one.is_global and Home.of(one.id) == Home.of(task))
            return Lacked() if any(store.name == name for one in alike for store in one.stores) else None
        if copies:
            of_old = [one for one in copies if old is not None and Home.of(one.id) in old.places(key)]
            chosen = (of_old or copies)[0]
            return Lacked(chosen.name, logged=key in self.topics or self._is_logged(chosen, name))
        if self.asked.is_on_disk(name) is False or not self.asked.is_logged(name):
            return None
        if any(other == key for other, _ in self.copies):
            return Lacked()
        home = old.homes.get(key) if old is not None else None
        if old is not None and home is not None:
            beside = (StoreKey(key.topology, other) for other in old.stores_of(home) if other != name)
            ran_here = any((other, task.partition or 0) in self.copies for other in beside)
            return None if ran_here else Lacked(new=True, on_disk=None)
        return Lacked(new=True, on_disk=self.asked.is_on_disk(name))

    def _is_logged(self, task: Task, name: str) -> bool:
        store = next(one for one in task.stores if one.name == name)
        return is_logged(self.before, task, store)

    def _elsewhere(self, task: Task) -> Iterator[tuple[str, str | None]]:
        for one in task.stores:
            home = home_of_store(self.asked, task.id, one.name)
            if home != task.name:
                yield one.name, home

    def _unlogged(self) -> Iterator[tuple[str, str]]:
        for (key, _), tasks in self.copies.items():
            for task in tasks if key not in self.topics else ():
                store = next(one for one in task.stores if one.name == key.store)
                if not store.empty and not self._is_logged(task, key.store):
                    yield task.name, key.store

    def _in_memory_globally(self, name: str) -> bool:
        """Whether a global store that is not here is known to be in memory: it ran here, and left nothing."""
        on_disk, old = self.asked.is_on_disk(name), self.asked.old
        return on_disk is False or (on_disk is None and old is not None and name in old.global_stores)


def _without(file: CheckpointFile | None, lines: set[TopicPartition]) -> CheckpointFile | None:
    """``.checkpoint`` without the lines that nobody in the task asks for."""
    if file is None or file.content is None or not lines:
        return file
    entries = {tp: offset for tp, offset in file.content.entries.items() if tp not in lines}
    return replace(file, content=replace(file.content, entries=entries))


def _without_directory(before: Snapshot, name: str) -> Task:
    path = before.app.path.joinpath(*name.split("/"))
    return Task(name, path, (), None, {}, {}, (), (), mtime_ns=before.now_ms * 1_000_000)
