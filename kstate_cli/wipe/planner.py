"""The plan of a wipe: stores leave with their offsets and Positions, and nothing else of their tasks does.

Under exactly-once Streams deletes a whole task in which a logged store has no offset
(docs/internals/start.md#wiped-tasks). So a store that leaves a task to others leaves an offset of -4 behind, which says
"consistent, read from the beginning": as the line of ``.checkpoint`` up to 4.2, in an empty database from 4.3 on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kstate_cli.change.plan import (
    OmitTree,
    Plan,
    RemoveFile,
    Step,
)
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.keeping import Keeping
from kstate_cli.offsets.left_behind import Guesses, keeps_offsets_inside, left_behind, offset_unreadable, release_of
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.while_running import as_of_note, resolve_to_plan
from kstate_cli.statedir.model import Application, Task
from kstate_cli.statedir.names import PROCESS_FILE
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command, did_you_mean, quoted


@dataclass(frozen=True, slots=True)
class WipeOptions:
    """What leaves: the stores of these names in these tasks, where both are given."""

    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    global_stores: bool = False
    every_task: bool = False
    """All tasks and the global stores."""
    own_files: bool = False
    """``kafka-streams-process-metadata`` too. Only ``.lock`` stays.

    A process that waits for it would hold the lock of a file that is not in APP any more, beside one that makes a new
    file: both would think that APP is theirs.
    """


@dataclass(slots=True)
class _WipeDraft:
    app: Application
    tasks: list[TaskOffsets]
    guesses: Guesses
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def relative(self, task: Task) -> str:
        return str(task.path.relative_to(self.app.path))


def plan_wipe(app: Application, options: WipeOptions) -> Plan:
    """The plan; empty where nothing is there any more.

    Raises UsageError where nothing, or nothing that is there, was named; Refused where a store cannot leave alone.
    """
    chosen = [task for task in app.tasks if _chosen(task, options)]
    tasks, warnings = resolve_to_plan(app), list[str]()
    draft = _WipeDraft(app, tasks, Guesses(app, tasks, warnings), warnings=warnings)
    _check_names(app, [task for task in draft.tasks if task.task in chosen], options)
    for task in draft.tasks:
        if task.task not in chosen:
            continue
        draft.warnings += task.warnings
        if options.stores:
            gone = [tp for name, lines in task.absent.items() if name in options.stores for tp in lines]
            _some_stores(draft, task, [one for one in task.stores if one.store.name in options.stores], gone)
        else:
            _whole_task(draft, task)
    # Not the lock file: who waits for it, Streams too, would then guard a file that is not in APP any more.
    if options.own_files and (app.path / PROCESS_FILE).exists():
        draft.steps.append(RemoveFile(PROCESS_FILE, "asked for: Streams makes a new one"))
    release = release_of(app)
    return Plan(
        app.path,
        _command(options),
        release.name,
        release.name,
        tuple(draft.steps),
        tuple(draft.warnings),
        as_of_note(app),
    )


def _command(options: WipeOptions) -> str:
    parts = ["wipe"]
    parts += [f"--task {quoted(name)}" for name in sorted(options.tasks)]
    parts += [f"--store {quoted(name)}" for name in sorted(options.stores)]
    flags = (
        ("--global", options.global_stores),
        ("--all", options.every_task),
        ("--everything", options.own_files),
    )
    return " ".join(parts + [name for name, given in flags if given])


def _chosen(task: Task, options: WipeOptions) -> bool:
    if options.every_task or task.name in options.tasks:
        return True
    if task.is_global and options.global_stores:
        return True
    # Stores that are named alone are wiped wherever they are.
    return bool(options.stores) and not options.tasks and not options.global_stores


def _check_names(app: Application, chosen: list[TaskOffsets], options: WipeOptions) -> None:
    if not (options.tasks or options.stores or options.global_stores or options.every_task):
        raise UsageError("nothing was named", hint="say what is to go: --task, --store, --global or --all")
    if options.every_task and (options.tasks or options.stores or options.global_stores):
        raise UsageError("--all is everything: no --task, --store or --global beside it")
    if options.own_files and not options.every_task:
        raise UsageError("--everything goes with --all")
    tasks = {task.name for task in app.tasks}
    if unknown := sorted(options.tasks - tasks):
        raise UsageError(
            f"no task of this name here: {', '.join(unknown)}",
            hint=f"{did_you_mean(unknown, tasks)}tasks: {', '.join(sorted(tasks))}",
        )
    # What was wiped already leaves its line in .checkpoint, up to 4.2: nothing to do is no error.
    stores = {name for task in chosen for name in (*task.absent, *(one.store.name for one in task.stores))}
    if missing := sorted(options.stores - stores):
        raise UsageError(
            f"no store of this name there: {', '.join(missing)}",
            hint=f"{did_you_mean(missing, stores)}their names: {command('ls', app.path)}",
        )


def _whole_task(draft: _WipeDraft, task: TaskOffsets) -> None:
    """All stores leave, and so does the directory: Streams makes a new one."""
    what = ", ".join(one.store.name for one in task.stores) or "no store"
    draft.steps.append(OmitTree(draft.relative(task.task), f"wiped: {what}"))
    for one in task.stores:
        _warn_unlogged(draft, task, one, "")
        _warn_of_other_folders(draft, task, one)


def _some_stores(draft: _WipeDraft, task: TaskOffsets, stores: list[StoreOffsets], gone: list[TopicPartition]) -> None:
    """``gone``: offsets that have outlived the directories of their stores."""
    _refuse_shared(task, stores)
    keeping = Keeping(draft.relative(task.task))
    lines = dict(task.task.checkpoint.entries) if task.task.checkpoint else {}
    before, inside = dict(lines), keeps_offsets_inside(draft.app)
    lines |= {tp: OFFSET_UNKNOWN for tp in gone if tp in lines}
    for one in stores:
        in_no_line = not one.offsets and bool(before) and not inside
        if in_no_line or offset_unreadable(one.store):
            one = replace(one, offsets=draft.guesses.offsets(task, one))
        draft.steps.append(OmitTree(str(one.store.path.relative_to(draft.app.path)), f"wiped: {_offsets(one)}"))
        _warn_of_other_folders(draft, task, one)
        _warn_unlogged(draft, task, one, "; where it is logged, exactly-once Streams restores its whole task")
        if one.store.position_file is not None:
            draft.steps.append(keeping.without_position(one.store.name, "its store is wiped"))
        unknown = dict.fromkeys(one.offsets, OFFSET_UNKNOWN)
        if task.task.is_global:
            # Streams seeks a global consumer to whatever is written: -4 there is fatal, no offset means the beginning.
            lines = {tp: offset for tp, offset in lines.items() if tp not in one.offsets}
        else:
            lines |= {tp: OFFSET_UNKNOWN for tp in one.offsets if in_no_line or tp in lines}
            draft.steps += left_behind(keeping, one.store, unknown, inside=inside)
    if before and not lines:
        draft.steps.append(keeping.without_lines("no offset is left"))
    elif lines != before:
        draft.steps.append(keeping.lines(lines, keep_time=True))


def _refuse_shared(task: TaskOffsets, stores: list[StoreOffsets]) -> None:
    """A line of ``.checkpoint`` that may be another store's too must not be touched for one of them."""
    leaving = {one.store.name for one in stores}
    files = task.task.checkpoint.entries if task.task.checkpoint else {}
    for one in stores:
        for tp in one.offsets:
            others = [s.store.name for s in task.stores if tp in s.offsets and s.store.name not in leaving]
            if others and tp in files:
                app, name = task.task.app, task.task.name
                whole = (
                    command("wipe", app, "--global") if task.task.is_global else command("wipe", app, "--task", name)
                )
                raise Refused(
                    f"{task.task.name}: .checkpoint does not say whether the offset of {tp} is that of "
                    f"{one.store.name} or of {', '.join(others)}",
                    hint=f"wipe all of them: {whole}",
                )


def _warn_unlogged(draft: _WipeDraft, task: TaskOffsets, one: StoreOffsets, more: str) -> None:
    # No global store is without a topic that it is read from (InternalTopologyBuilder.addGlobalStore).
    if not one.offsets and not one.store.empty and not task.task.is_global:
        draft.warnings.append(
            f"{task.task.name}/{one.store.name} has rows and no offset: without a changelog they are lost{more}"
        )


def _warn_of_other_folders(draft: _WipeDraft, task: TaskOffsets, one: StoreOffsets) -> None:
    """RocksDB removes SSTs from all its folders that a new MANIFEST does not name."""
    codes = {problem.code for database in one.store.databases for problem in database.problems}
    if codes & {ProblemCode.FOREIGN_SETTING, ProblemCode.NO_SSTS}:
        draft.warnings.append(
            f"{task.task.name}/{one.store.name}: files of it may be in other folders; the next start removes them "
            "there, and undo does not restore them"
        )


def _offsets(known: StoreOffsets) -> str:
    return offsets_text(known.offsets) or "no offset"
