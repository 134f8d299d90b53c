"""Everything that a rehoming goes by, read from disk once, and the layout that the rules derive from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.keeping import keeps_offsets_inside, release_of
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import Owners, give_lines, resolve_to_plan
from kstate_cli.rehome.model import Completion, DirectoryTask, Placement, Rehoming, TaskStore
from kstate_cli.rehome.options import RehomeOptions
from kstate_cli.specification.combine import refuse_other_kinds
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.specification.topology import Subtopology
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command, first_lines


@dataclass(frozen=True, slots=True)
class RehomeSnapshot:
    """An application directory as it is now, and what the user states about it."""

    app: Application
    options: RehomeOptions
    resolved: tuple[TaskOffsets, ...]
    """The offsets of all tasks, ``global`` included."""
    tasks: Mapping[str, TaskOffsets]
    """The same by task, without ``global``."""
    owners: Mapping[str, Owners]
    """Task -> the lines of its ``.checkpoint`` by store."""
    foreign: Mapping[str, Mapping[str, Path]]
    """Task -> entries that are not of Streams, by their path below the task."""
    custom: Mapping[str, Mapping[str, Path]]
    """Task -> those of ``foreign`` that are directories of custom stores: they move unchanged."""

    @property
    def inside(self) -> bool:
        """Return True if the application keeps offsets in its stores (KIP-1035)."""
        return keeps_offsets_inside(self.app)

    @property
    def directory(self) -> tuple[DirectoryTask, ...]:
        """What the directory has of each store."""
        return tuple(self._directory_task(name) for name in self.tasks)

    def _directory_task(self, name: str) -> DirectoryTask:
        resolved = self.tasks[name]
        task = resolved.task
        strays = frozenset(state.store.name for state in resolved.stores if is_stray(state))
        unwritten = frozenset(state.store.name for state in resolved.stores if is_unwritten(state))
        lost = frozenset(state.store.name for state in resolved.stores if not state.offsets) - strays
        stores = {store.name for store in task.stores} - strays - unwritten | self.custom[name].keys()
        offset_only = {*resolved.absent, *self.owners[name].absent, *task.store_files} - stores - strays - unwritten
        return DirectoryTask(task.id, frozenset(stores), frozenset(offset_only), lost, unwritten, strays)

    def store(self, task: str, name: str) -> StoreOffsets | None:
        """Return the offsets of a store; None if the task has no database of it."""
        return next((state for state in self.tasks[task].stores if state.store.name == name), None)

    def elsewhere(self, task: str, name: str) -> list[StoreOffsets]:
        """Return the same store in other tasks of the named topology, where it has rows or an offset."""
        topology = TaskId.parse(task).topology
        return [
            state
            for other in self.tasks.values()
            for state in other.stores
            if state.store.name == name and other.task.topology == topology and not is_stray(state)
        ]

    def new_part(self, task: TaskId) -> Subtopology | None:
        """Return the sub-topology of a task in the new text; None without a text, or if it has none of that number."""
        new = self.options.new
        return None if new is None else new.part(Home.of(task))

    def relative(self, path: Path) -> str:
        """Return a path as steps have it: relative to the application directory."""
        return str(path.relative_to(self.app.path))


def is_stray(state: StoreOffsets) -> bool:
    """Return True if a store has neither a row nor an offset, so that nothing is lost with it."""
    return state.store.empty and not state.offsets


def is_unwritten(state: StoreOffsets) -> bool:
    """Return True if a store has no row, and its offset is "read from the beginning"."""
    return state.store.empty and bool(state.offsets) and set(state.offsets.values()) == {OFFSET_UNKNOWN}


def read_snapshot(app: Application, options: RehomeOptions) -> RehomeSnapshot:
    """Return what a rehoming goes by. Raises Refused for damage, and for a specification that contradicts the disk."""
    fatal = [problem.reasoned for problem in app.all_problems() if problem.fatal]
    if fatal:
        raise Refused(
            "the directory cannot be rehomed as it is",
            details=first_lines(fatal),
            where=str(app.path),
            hint=f"what to do about each: {command('check', app.path, '--for', release_of(app).name)}",
        )
    if options.spec is not None:
        refuse_other_kinds(app, options.spec, file_name=options.spec_name)
    resolved = tuple(resolve_to_plan(app))
    tasks = {state.task.name: state for state in resolved if not state.task.is_global}
    foreign = {name: _foreign_entries(state) for name, state in tasks.items()}
    return RehomeSnapshot(
        app,
        options,
        resolved,
        tasks,
        {name: give_lines(app.app_id, state.task) for name, state in tasks.items()},
        foreign,
        {name: _custom_stores(state, foreign[name], options) for name, state in tasks.items()},
    )


def _foreign_entries(resolved: TaskOffsets) -> dict[str, Path]:
    task, length = resolved.task, len(resolved.task.place.names)
    return {
        "/".join(problem.place.names[length:]): task.path.joinpath(*problem.place.names[length:])
        for problem in task.problems
        if problem.code is ProblemCode.FOREIGN
    }


def _custom_stores(resolved: TaskOffsets, foreign: Mapping[str, Path], options: RehomeOptions) -> dict[str, Path]:
    """Return the directories of a task that a text, or an offset, names as a store."""
    task = resolved.task
    names = {*resolved.absent, *task.store_files}
    for described in (options.new, options.old):
        if described is not None:
            names |= {key.store for key in described.homes if key == StoreKey(task.topology or "", key.store)}
    return {name: path for name, path in foreign.items() if name in names and path.is_dir()}


@dataclass(frozen=True, slots=True)
class RehomeLayout:
    """Where the stores of a snapshot go, and what becomes of those that do not go on as they are."""

    snapshot: RehomeSnapshot
    rehoming: Rehoming
    completion: Completion = field(default_factory=Completion)
    """What the half tasks of this host get from a dump."""
    left_out: Mapping[TaskStore, str] = field(default_factory=dict)
    """The stores whose rows may not be kept, and why."""

    def store(self, placement: Placement) -> StoreOffsets | None:
        """Return the offsets of a store in the task that has it; None if there is no database of it."""
        return self.snapshot.store(placement.source, placement.store)

    def lines_of(self, placement: Placement) -> dict[TopicPartition, int]:
        """Return the lines that a store has in the ``.checkpoint`` of the task that has it."""
        owners = self.snapshot.owners[placement.source]
        return owners.stores.get(placement.store) or owners.absent.get(placement.store) or {}

    def homes(self) -> Iterator[tuple[Home, Subtopology]]:
        """Yield the sub-topologies of the new text that get stores here."""
        new = self.snapshot.options.new
        if new is None:
            return
        for home in sorted({Home.of(TaskId.parse(name)) for name in self.rehoming.targets}):
            part = new.part(home)
            if part is not None:
                yield home, part

    def tasks_of(self, home: Home) -> list[str]:
        """Return the tasks of a sub-topology that get stores."""
        return [name for name in self.rehoming.targets if Home.of(TaskId.parse(name)) == home]

    def changelogs_into(self, home: Home) -> set[str]:
        """Return the topics that the stores of a sub-topology are restored from."""
        tasks = self.tasks_of(home)
        states = [self.store(placement) for name in tasks for placement in self.rehoming.into(name)]
        topics = {tp.topic for state in states if state is not None for tp in state.offsets}
        restored = (offsets for (task, _), offsets in self.completion.offsets.items() if task in tasks)
        return topics | {tp.topic for offsets in restored for tp in offsets}
