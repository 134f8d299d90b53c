"""The plan of a wipe: stores leave with their offsets and Positions, and the rest of their tasks stays.

The directory is read once (:func:`read_snapshot`). Rules then turn the snapshot into steps and warnings. The next
start, or a restoration, rebuilds the stores from the earliest offset.

Under exactly-once Streams deletes a whole task in which a logged store has no offset
(docs/internals/start.md#wiped-tasks). So a store that leaves its task leaves an offset of -4 behind, which means
"consistent, read from the beginning": as the line of ``.checkpoint`` up to 4.2, in an empty database from 4.3 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kstate_cli import option
from kstate_cli.change.plan import Change, OmitTree, Plan, RemarkKind, RemoveFile, steps_of, texts_of, warning
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.keeping import (
    Guesses,
    Keeping,
    keeps_offsets_inside,
    left_behind,
    offset_unreadable,
    release_of,
)
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import as_of_note, resolve_to_plan
from kstate_cli.statedir.model import Application, Task
from kstate_cli.statedir.names import PROCESS_FILE
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion, quoted


@dataclass(frozen=True, slots=True)
class WipeOptions:
    """The selection: the stores of these names in these tasks, if both are given."""

    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    global_stores: bool = False
    every_task: bool = False
    """All tasks and the global stores."""
    own_files: bool = False
    """``kafka-streams-process-metadata`` too. Only ``.lock`` stays.

    A process that waits for ``.lock`` would get the lock of a file that is no longer in APP. Another process would make
    a new file and lock that: both would own APP.
    """

    @property
    def command(self) -> str:
        """Return the command line of these options, without the application directory."""
        flags = (
            (option.GLOBAL, self.global_stores),
            (option.ALL, self.every_task),
            (option.EVERYTHING, self.own_files),
        )
        words = [
            "wipe",
            *(f"{option.TASK} {quoted(name)}" for name in sorted(self.tasks)),
            *(f"{option.STORE} {quoted(name)}" for name in sorted(self.stores)),
            *(name for name, is_set in flags if is_set),
        ]
        return " ".join(words)

    def selects(self, task: Task) -> bool:
        """Return True if anything in a task may be selected."""
        if self.every_task or task.name in self.tasks:
            return True
        if task.is_global and self.global_stores:
            return True
        # Stores that are named without a task are wiped in every task.
        return bool(self.stores) and not self.tasks and not self.global_stores


@dataclass(frozen=True, slots=True)
class WipeSnapshot:
    """An application directory at one moment, and what is to leave it."""

    app: Application
    options: WipeOptions
    offsets: tuple[TaskOffsets, ...]
    """Those of every task, in the order of the tasks."""
    has_process_file: bool = False

    @property
    def selected(self) -> tuple[TaskOffsets, ...]:
        """The tasks in which anything may be selected."""
        return tuple(task for task in self.offsets if self.options.selects(task.task))

    @property
    def inside(self) -> bool:
        """Return True if a release that keeps offsets in its stores has opened the application."""
        return keeps_offsets_inside(self.app)

    def relative(self, path: Path) -> str:
        """Return a path as steps have it: relative to the application directory."""
        return str(path.relative_to(self.app.path))


@dataclass(frozen=True, slots=True)
class _Departure:
    """A store that leaves its task."""

    offsets: StoreOffsets
    """With the offsets that it is assumed to have, if damage hides them or its line is missing."""
    lacks_line: bool
    """The store has no offset although ``.checkpoint`` has lines: the wipe adds the line of its changelog."""
    assumptions: tuple[str, ...] = ()
    """Warnings about offsets that are only assumed."""


def plan_wipe(app: Application, options: WipeOptions) -> Plan:
    """Return the plan, which is empty if nothing of the selection exists any more.

    Raises UsageError if the selection is empty or names what does not exist, Refused if a store cannot leave alone.
    """
    return plan_of(read_snapshot(app, options))


def read_snapshot(app: Application, options: WipeOptions) -> WipeSnapshot:
    """Return what a wipe goes by. Raises OSError if a task directory cannot be listed."""
    # The only reading of the disk; every rule after it is a function of these facts.
    return WipeSnapshot(app, options, tuple(resolve_to_plan(app)), (app.path / PROCESS_FILE).exists())


def plan_of(snapshot: WipeSnapshot) -> Plan:
    """Return the plan by what a snapshot states; nothing is read from disk. Raises UsageError and Refused."""
    options = snapshot.options
    refuse_contradictions(options)
    refuse_unknown_names(snapshot)
    # The generators are exhausted before the plan exists: a refusal in a later task leaves no half of a plan.
    changes = [*_changes_of_tasks(snapshot)]
    # Never the lock file: a process that waits for it would then guard a file that is no longer in APP.
    if options.own_files and snapshot.has_process_file:
        changes.append(
            RemoveFile(PROCESS_FILE, (f"{option.EVERYTHING} removes this file, and Streams creates a new one"))
        )
    release = release_of(snapshot.app)
    return Plan(
        snapshot.app.path,
        options.command,
        release.name,
        release.name,
        steps_of(changes),
        texts_of(changes, RemarkKind.WARNING),
        as_of_note(snapshot.app),
    )


# --- refusals ---------------------------------------------------------------------------------------------------------


def refuse_contradictions(options: WipeOptions) -> None:
    """Raise UsageError for an empty selection, or options that exclude each other."""
    is_named = bool(options.tasks or options.stores or options.global_stores)
    if not (is_named or options.every_task):
        raise UsageError(
            "no store is selected", hint=f"pass {option.TASK}, {option.STORE}, {option.GLOBAL} or {option.ALL}"
        )
    if options.every_task and is_named:
        raise UsageError(
            f"{option.ALL} already selects all stores, so omit {option.TASK}, {option.STORE} and {option.GLOBAL}"
        )
    if options.own_files and not options.every_task:
        raise UsageError(f"{option.EVERYTHING} works only with {option.ALL}")


def refuse_unknown_names(snapshot: WipeSnapshot) -> None:
    """Raise UsageError for tasks and stores that do not exist."""
    tasks = {task.name for task in snapshot.app.tasks}
    if unknown := sorted(snapshot.options.tasks - tasks):
        raise UsageError(
            f"the directory does not contain {_nouns('task', unknown)} {', '.join(unknown)}",
            hint=hint_with_suggestion(
                did_you_mean(unknown, tasks), f"the directory contains {', '.join(sorted(tasks)) or 'no tasks'}"
            ),
        )
    # A store that was wiped before leaves its line in .checkpoint, up to 4.2: nothing to do is no error.
    stores = {
        name for task in snapshot.selected for name in (*task.absent, *(store.store.name for store in task.stores))
    }
    if missing := sorted(snapshot.options.stores - stores):
        raise UsageError(
            f"the selected tasks do not contain {_nouns('store', missing)} {', '.join(missing)}",
            hint=hint_with_suggestion(
                did_you_mean(missing, stores), f"to list the stores, run {command('ls', snapshot.app.path)}"
            ),
        )


def _nouns(noun: str, names: Sequence[str]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def refuse_shared_lines(task: TaskOffsets, leaving: Sequence[StoreOffsets]) -> None:
    """Raise Refused if a line of ``.checkpoint`` may belong to a store that stays as well as to one that leaves."""
    names = {store.store.name for store in leaving}
    lines = _lines(task)
    for store in leaving:
        for partition in store.offsets:
            others = [s.store.name for s in task.stores if partition in s.offsets and s.store.name not in names]
            # Without a line nothing is shared: each store names its own topics in its database.
            if others and partition in lines:
                raise Refused(
                    f"in task {task.task.name}, the offset for {partition} in .checkpoint may belong to "
                    f"{store.store.name} or to {', '.join(others)}",
                    hint=f"to wipe all of these stores, run {_wipe_of_whole_task(task.task)}",
                )


def _wipe_of_whole_task(task: Task) -> str:
    if task.is_global:
        return command("wipe", task.app, option.GLOBAL)
    return command("wipe", task.app, option.TASK, task.name)


# --- steps and warnings -----------------------------------------------------------------------------------------------


def _changes_of_tasks(snapshot: WipeSnapshot) -> Iterator[Change]:
    # One object for all tasks: what it assumes about a store of one task holds for the others.
    guesses = Guesses(snapshot.app, snapshot.offsets, [])
    for task in snapshot.selected:
        yield from map(warning, task.warnings)
        if snapshot.options.stores:
            yield from _leaving_stores(snapshot, task, guesses)
        else:
            yield from _leaving_task(snapshot, task)


def _leaving_task(snapshot: WipeSnapshot, task: TaskOffsets) -> Iterator[Change]:
    """Yield the changes if all stores leave: the directory leaves too, and Streams makes a new one."""
    names = ", ".join(store.store.name for store in task.stores) or "no store"
    yield OmitTree(snapshot.relative(task.task.path), f"wiped: {names}", names)
    for store in task.stores:
        yield from _unlogged_warnings(task, store, "")
        yield from _other_folder_warnings(task, store)


def _leaving_stores(snapshot: WipeSnapshot, task: TaskOffsets, guesses: Guesses) -> Iterator[Change]:
    """Yield the changes if some stores leave a task."""
    leaving = [store for store in task.stores if store.store.name in snapshot.options.stores]
    refuse_shared_lines(task, leaving)
    departures = [_departure(snapshot, task, store, guesses) for store in leaving]
    for departure in departures:
        yield from map(warning, departure.assumptions)
        yield from _leaving_store(snapshot, task, departure)
    yield from _line_changes(snapshot, task, departures)


def _departure(snapshot: WipeSnapshot, task: TaskOffsets, store: StoreOffsets, guesses: Guesses) -> _Departure:
    """Return a store that leaves with its offsets, or with those that it is assumed to have."""
    lacks_line = not store.offsets and bool(_lines(task)) and not snapshot.inside
    if not (lacks_line or offset_unreadable(store.store)):
        return _Departure(store, lacks_line)
    # ``guesses`` collects for all stores: only the warnings behind this mark are about this one.
    before = len(guesses.warnings)
    offsets = guesses.offsets(task, store)
    return _Departure(replace(store, offsets=offsets), lacks_line, tuple(guesses.warnings[before:]))


def _leaving_store(snapshot: WipeSnapshot, task: TaskOffsets, departure: _Departure) -> Iterator[Change]:
    """Yield the changes to the files of one store that leaves; ``.checkpoint`` changes once for all of them."""
    keeping, store = Keeping(snapshot.relative(task.task.path)), departure.offsets
    offsets = offsets_text(store.offsets)
    if offsets:
        yield OmitTree(snapshot.relative(store.store.path), f"wiped: {offsets}", f"offset {offsets}")
    else:
        yield OmitTree(snapshot.relative(store.store.path), "wiped: no offset", "no offset")
    yield from _other_folder_warnings(task, store)
    yield from _unlogged_warnings(
        task, store, ". If the store has a changelog, Streams restores the whole task under exactly-once"
    )
    if store.store.position_file is not None:
        yield keeping.without_position(store.store.name, "kstate wipes its store")
    if not task.task.is_global:
        unknown = dict.fromkeys(store.offsets, OFFSET_UNKNOWN)
        yield from left_behind(keeping, store.store, unknown, inside=snapshot.inside)


def _line_changes(snapshot: WipeSnapshot, task: TaskOffsets, departures: Sequence[_Departure]) -> Iterator[Change]:
    """Yield the step about ``.checkpoint``, if its lines change."""
    keeping, before = Keeping(snapshot.relative(task.task.path)), _lines(task)
    after = remaining_lines(task, snapshot.options.stores, departures)
    # OffsetCheckpoint.write deletes the file when it has no entry, so kstate leaves none either.
    if before and not after:
        yield keeping.without_lines("no offsets remain in the task")
    elif after != before:
        yield keeping.lines(after, keep_time=True)


def remaining_lines(
    task: TaskOffsets, names: frozenset[str], departures: Sequence[_Departure]
) -> dict[TopicPartition, int]:
    """Return the lines of ``.checkpoint`` after stores have left, -4 for each of theirs.

    A global store leaves no line: Streams seeks to the offset of a line, so -4 is fatal, and no offset means the
    beginning. Lines of ``names`` whose directories are missing become -4 too.
    """
    lines = dict(_lines(task))
    outlived = [partition for name, stale in task.absent.items() if name in names for partition in stale]
    lines |= {partition: OFFSET_UNKNOWN for partition in outlived if partition in lines}
    for departure in departures:
        offsets = departure.offsets.offsets
        if task.task.is_global:
            lines = {partition: offset for partition, offset in lines.items() if partition not in offsets}
        else:
            lines |= {key: OFFSET_UNKNOWN for key in offsets if departure.lacks_line or key in lines}
    return lines


def _lines(task: TaskOffsets) -> Mapping[TopicPartition, int]:
    return task.task.checkpoint.entries if task.task.checkpoint else {}


def _unlogged_warnings(task: TaskOffsets, store: StoreOffsets, more: str) -> Iterator[Change]:
    # Every global store has a topic that it is read from (InternalTopologyBuilder.addGlobalStore).
    if not store.offsets and not store.store.empty and not task.task.is_global:
        name = f"{task.task.name}/{store.store.name}"
        yield warning(f"{name} has rows, but no offset. If the store has no changelog, these rows are lost{more}")


def _other_folder_warnings(task: TaskOffsets, store: StoreOffsets) -> Iterator[Change]:
    """Yield a warning if SSTs may be in other folders: RocksDB removes those that a new MANIFEST does not name."""
    codes = {problem.code for database in store.store.databases for problem in database.problems}
    if codes & {ProblemCode.FOREIGN_SETTING, ProblemCode.NO_SSTS}:
        yield warning(
            f"{task.task.name}/{store.store.name} may have files in other folders. Streams removes these files at "
            "startup, and kstate cannot restore them"
        )
