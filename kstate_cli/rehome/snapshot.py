"""The facts of a rehoming, read from disk once, and the layout that the rules derive from them.

*Half tasks*: if sub-topologies are merged, the tasks of one partition may be on different hosts, so each host has only
a half of the new task. One host completes the task from a dump, and every other host removes its half. No host asks
another one: each gets the same two texts, and decides by them. The task is completed on the host that had the task with
the lowest number among the merged sub-topologies, or where the user names the task (``RehomeOptions.complete``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import Change, note, warning
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.offsets.keeping import keeps_offsets_inside, release_of
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import Owners, give_lines, resolve_to_plan
from kstate_cli.rehome.model import (
    Completion,
    DirectoryTask,
    Placement,
    RehomeOptions,
    Rehoming,
    StoresByTask,
    TaskStore,
)
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.specification.combine import refuse_other_kinds
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.specification.topology import Subtopology
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command, did_you_mean, first_lines, hint_with_suggestion, quoted, some


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
        """Return the stores of one task, sorted by what they have: rows, no rows, only an offset, or nothing at all."""
        resolved = self.tasks[name]
        task = resolved.task
        # A failed start of 4.3 creates all stores in left-over directories. Such stores prove nothing about the task.
        strays = frozenset(state.store.name for state in resolved.stores if is_stray(state))
        unwritten = frozenset(state.store.name for state in resolved.stores if is_unwritten(state))
        lost = frozenset(state.store.name for state in resolved.stores if not state.offsets) - strays
        stores = {store.name for store in task.stores} - strays - unwritten | self.custom[name].keys()
        # These are in-memory and custom stores: their offset moves although there is no database.
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
        if new is None:
            return None
        return new.part(Home.of(task))

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
    """Read all facts of a rehoming.

    Raises Refused for damage, and for a specification that contradicts the directory.
    """
    # Unlike in a migration, no damaged task is skipped: other tasks may need its stores.
    fatal = [problem.reasoned for problem in app.all_problems() if problem.fatal]
    if fatal:
        raise Refused(
            "kstate cannot rehome this directory because of these problems",
            details=first_lines(fatal),
            where=str(app.path),
            hint="to see what to do about each problem, run "
            f"{command('check', app.path, option.FOR, release_of(app).name)}",
        )
    # Only the kinds are compared, because the file may be of the new topology, which has other numbers.
    if options.spec is not None:
        refuse_other_kinds(app, options.spec, file_name=options.spec_name)
    # Read once, so that all rules see the same moment. None of them lists a directory again.
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
    # A directory that nothing names as a store has no known owner: it is refused in tasks that stores leave.
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


_MOST: Final = 5
"""Names in one sentence."""
NONE: Final = "none"
"""What the user passes instead of a task on a host that completes none."""


@dataclass(frozen=True, slots=True)
class HalfTasks:
    """The half tasks of a directory, by what becomes of them here."""

    completed: StoresByTask
    """Task -> the stores that this host restores."""
    leaving: frozenset[str]
    """The tasks that another host completes."""


def complete_halves(layout: RehomeLayout) -> tuple[RehomeLayout, list[Change]]:
    """Return the layout in which half tasks are completed or removed, and remarks about them.

    Raises UsageError for a half task that is not here, Refused for stores that the dump cannot complete.
    """
    halves = _restorable(layout)
    changes = list(_unrestorable_remarks(layout))
    _refuse_unknown_tasks(layout, halves)
    completer = layout.snapshot.options.completer
    if not halves or completer is None:
        return layout, changes
    # The texts alone decide, so that every host comes to the same result.
    decision = _decide(layout, halves)
    changes += _leaving_remarks(layout, decision)
    layout = replace(layout, rehoming=layout.rehoming.without(decision.leaving))
    if decision.completed:
        _refuse_other_release(layout, completer.release)
        # ``restore`` adds its steps to the same change. So moved and restored stores are exchanged together.
        completion = completer.complete(layout.snapshot.app, decision.completed)
        layout = replace(layout, completion=completion)
        changes += [warning(text) for text in completion.warnings]
        changes += [note(text) for text in completion.notes]
    return layout, changes


def _restorable(layout: RehomeLayout) -> dict[str, tuple[str, ...]]:
    """Return the half tasks, with the stores that they lack and that have a changelog."""
    unlogged = layout.snapshot.options.unlogged
    logged = {
        name: tuple(store for store in stores if store not in unlogged)
        for name, stores in layout.rehoming.halves.items()
    }
    return {name: stores for name, stores in logged.items() if stores}


def _unrestorable_remarks(layout: RehomeLayout) -> Iterator[Change]:
    unlogged = layout.snapshot.options.unlogged
    for name, stores in layout.rehoming.halves.items():
        # No dump has these rows: they exist on the other host only, and only a warning can say so.
        if without := sorted(set(stores) & unlogged):
            yield warning(
                f"{name}: kstate cannot restore stores without a changelog ({some(without, _MOST)}). Their rows on "
                "other hosts remain there"
            )


def _refuse_unknown_tasks(layout: RehomeLayout, halves: Mapping[str, tuple[str, ...]]) -> None:
    """Raise UsageError if the user names a task to complete that is not a half task of this host."""
    complete = layout.snapshot.options.complete
    if NONE in complete and len(complete) > 1:
        raise UsageError(
            f"{option.COMPLETE} {quoted(NONE)} cannot be used together with a task name", hint="omit one of them"
        )
    if unknown := sorted(complete - {*layout.rehoming.targets, NONE}):
        raise UsageError(
            f"{option.COMPLETE}: no store on this host moves to {some(unknown, _MOST)}",
            hint=hint_with_suggestion(
                did_you_mean(unknown, halves), f"the incomplete tasks here are {some(sorted(halves), _MOST) or 'none'}"
            ),
        )


def _decide(layout: RehomeLayout, halves: Mapping[str, tuple[str, ...]]) -> HalfTasks:
    """Return which half tasks this host completes: those that the user names, else those whose first task it had."""
    complete = layout.snapshot.options.complete
    if complete:
        here = halves.keys() & complete
    else:
        # The lowest task of the old text exists on one host only, so exactly one host completes each
        # half.
        here = {name for name in halves if _first_source(layout, name) in layout.snapshot.tasks}
    return HalfTasks({name: halves[name] for name in sorted(here)}, frozenset(halves.keys() - here))


def _leaving_remarks(layout: RehomeLayout, decision: HalfTasks) -> Iterator[Change]:
    for name in sorted(decision.leaving):
        sources = sorted({placement.source for placement in layout.rehoming.into(name)})
        yield warning(
            f"{name}: kstate removes {some(sources, _MOST)} from this host, because {_host(layout, name)} completes "
            f"{name}. If no host does, pass {option.COMPLETE} {quoted(name)} on one host"
        )


def _host(layout: RehomeLayout, task: str) -> str:
    """Return how messages call the host that completes a task."""
    if layout.snapshot.options.complete:
        return "another host"
    return f"the host that has {_first_source(layout, task)}"


def _first_source(layout: RehomeLayout, task: str) -> str:
    """Return the lowest task before the change, of those whose stores come together in ``task``."""
    options = layout.snapshot.options
    new, old = options.new, options.old
    assert new is not None
    assert old is not None
    target = TaskId.parse(task)
    home, nowhere = Home.of(target), options.in_memory | options.unlogged
    # In-memory and unlogged stores are on no host that could be asked, so they do not decide.
    keys = [StoreKey(home.topology, store) for store in new.stores_of(home) if store not in nowhere]
    return min(old.homes[key] for key in keys if key in old.homes).task(target.partition or 0)


def _refuse_other_release(layout: RehomeLayout, release: Release) -> None:
    """Raise Refused if the release of the restored stores cannot open the stores here."""
    snapshot = layout.snapshot
    inside = release.offsets_home is OffsetsHome.COLUMN_FAMILY
    wrong = sorted(_unreadable(layout, release))
    # A task must not have offsets in two places (KIP-1035), because a release reads only one of them.
    if inside != snapshot.inside:
        wrong = ["this release keeps offsets in a different place"]
    if wrong:
        raise Refused(
            f"{release} cannot open the directory",
            details=first_lines(wrong),
            where=str(snapshot.app.path),
            hint=f"pass {option.FOR} with the release that runs here. Or first migrate the directory: "
            + command("migrate", snapshot.app.path, option.TO, release.name),
        )


def _unreadable(layout: RehomeLayout, release: Release) -> Iterator[str]:
    for task in layout.snapshot.app.tasks:
        for store in task.stores:
            if store.databases and not store.opens_in(release):
                yield f"{task.name}/{store.name}"
