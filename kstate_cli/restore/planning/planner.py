"""Plan a restoration: every store of every task stays, is caught up, is rebuilt, or stands in the way.

The directory is read once (``plan.read_snapshot``). Rules then yield outcomes, and the outcomes become the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import BuildStore, OmitTree, Plan, Remark, RemarkKind, Step, note, texts_of, warning
from kstate_cli.dump_reader.model import Dump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition, numbers_text, offsets_text
from kstate_cli.offsets.keeping import Keeping, in_a_file
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.releases import unproven_release, unproven_too
from kstate_cli.restore.planning.as_of import task_times
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.missing_stores import PromisedTasks
from kstate_cli.restore.planning.obstacles import (
    incompatible,
    judge_problems,
    judge_topics,
    no_changelog,
    refuse_uncommitted,
    stores_without_offset,
    unknown_topics,
)
from kstate_cli.restore.planning.plan import (
    Outcome,
    Refusal,
    RestoreOptions,
    RestorePlan,
    RestoreSnapshot,
    StoreWork,
    UnchangedStore,
    read_snapshot,
)
from kstate_cli.restore.planning.store_work import has_stated_partitions, judge_store
from kstate_cli.specification.draft import PROCESSOR, Spec, StoreSpec, table_of
from kstate_cli.statedir.model import Application
from kstate_cli.texts import command, did_you_mean, first_lines, hint_with_suggestion, quoted, some, suggest

_MOST: Final = 5
"""Names in one sentence."""
_DUMP_MORE: Final = f"write a new dump with {option.SPEC} so that it contains the topics of all stores:"
_EXPORT_FIRST: Final = (
    f"this store may be the only copy, so export it first. {option.REBUILD} then replaces it with the dump's contents:"
)


def plan_restore(
    app: Path,
    existing: Application | None,
    spec: Spec,
    dump: Dump,
    options: RestoreOptions,
    *,
    stores_by_task: Mapping[str, Sequence[str]] | None = None,
) -> RestorePlan:
    """Return the plan for the stores in ``stores_by_task``, or those that the options select.

    Raises Refused, naming everything that stands in the way.
    """
    return plan_of(read_snapshot(app, existing, spec, dump, options), stores_by_task)


def plan_of(snapshot: RestoreSnapshot, stores_by_task: Mapping[str, Sequence[str]] | None = None) -> RestorePlan:
    """Return the plan by what a snapshot states. Raises Refused."""
    # Tested first: if the dump may have records of aborted transactions, every store is concerned, and nothing else
    # matters.
    refuse_uncommitted(snapshot)
    outcomes: list[Outcome] = [*map(note, snapshot.notes), *map(warning, snapshot.dump.warnings)]
    selected = _selected_partitions(snapshot)
    outcomes += [*unknown_topics(snapshot), *judge_topics(snapshot, selected), *_damage_elsewhere(snapshot, selected)]
    selection = _selection(snapshot, stores_by_task, is_refused=bool(_refusals(outcomes)))
    outcomes += selection.outcomes
    for task, stores in selection.stores.items():
        outcomes += _task_outcomes(snapshot, task, stores)
    outcomes += _remarks_on_work(snapshot, outcomes)
    # All refusals are reported at once: a user who sees one at a time would have the dump read again for each.
    if refusals := _refusals(outcomes):
        raise _not_restored(snapshot, refusals)
    # Whether the release is proven matters only if something is written for it, so this is tested last.
    outcomes += _unproven(snapshot, _steps(outcomes))
    return _plan(snapshot, outcomes)


def _plan(snapshot: RestoreSnapshot, outcomes: Sequence[Outcome]) -> RestorePlan:
    """Return the plan that outcomes without a refusal make."""
    release, work = snapshot.options.release, _work(outcomes)
    remarks = [outcome for outcome in outcomes if isinstance(outcome, Remark)]
    change = Plan(
        snapshot.app,
        f"restore {option.FOR} {quoted(release.version)}",
        release.name,
        release.name,
        _steps(outcomes),
        texts_of(remarks, RemarkKind.WARNING),
        texts_of(remarks, RemarkKind.NOTE),
        task_times(work, snapshot.tasks, snapshot.ages),
    )
    return RestorePlan(change, work, _unchanged(outcomes))


def _steps(outcomes: Iterable[Outcome]) -> tuple[Step, ...]:
    return tuple(
        outcome for outcome in outcomes if not isinstance(outcome, Remark | Refusal | StoreWork | UnchangedStore)
    )


def _work(outcomes: Iterable[Outcome]) -> tuple[StoreWork, ...]:
    return tuple(outcome for outcome in outcomes if isinstance(outcome, StoreWork))


def _unchanged(outcomes: Iterable[Outcome]) -> tuple[UnchangedStore, ...]:
    return tuple(outcome for outcome in outcomes if isinstance(outcome, UnchangedStore))


def _refusals(outcomes: Iterable[Outcome]) -> tuple[Refusal, ...]:
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal))


def _not_restored(snapshot: RestoreSnapshot, refusals: Sequence[Refusal]) -> Refused:
    """Return the error for everything that stands in the way, with the most urgent advice."""
    names = list(dict.fromkeys(name for refusal in refusals for name in refusal.only_copies))
    hint, commands = None, []
    # Only the most urgent advice is given: a rebuild before the export would delete the only copy of a store.
    if names:
        hint = _EXPORT_FIRST
        commands = [command("export", snapshot.app, name, option.OUT, "DIR") for name in names]
    elif any(refusal.not_in_dump for refusal in refusals):
        hint = _DUMP_MORE
        commands = [command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.OUT, "DUMP", option.SPEC, "FILE")]
    return Refused(
        "kstate cannot restore the directory:",
        details=first_lines([refusal.text for refusal in refusals]),
        where=str(snapshot.app),
        hint=hint,
        hint_details=first_lines(commands),
    )


def _remarks_on_work(snapshot: RestoreSnapshot, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """Yield what the work on all stores means for the directory as a whole."""
    work = _work(outcomes)
    rebuilt = [store.spec for store in work if store.rebuild and not store.spec.is_global]
    # A Position can be restored from the headers of records only.
    if not all(snapshot.dump.headers_of(spec.changelog) for spec in rebuilt):
        yield note(
            "the dump has no record headers, so rebuilt stores have an empty Position, just as when Kafka Streams "
            "restores them. Bounded queries (IQv2) fail until the application has read new input"
        )
    if unsure := [store.title for store in work if store.unsure]:
        yield warning(
            f"deleted keys may remain in {some(unsure, _MOST)}. {_unknown_time(snapshot.dump)}, so kstate cannot "
            "rule out that tombstones were already removed (delete.retention.ms)"
        )
    yield from judge_problems(snapshot.problems, work, by_user=snapshot.options.permissions.by_user)
    restored = {(store.task, store.spec.name) for store in work}
    restored |= {(store.task, store.store) for store in _unchanged(outcomes)}
    yield from stores_without_offset(snapshot, {store.task for store in work}, restored)


def _unknown_time(dump: Dump) -> str:
    if any(partition.reading is None for partition in dump.partitions.values()):
        return "The manifest does not record when the dump was read"
    return "The SSTs do not record how old the data is"


def _unproven(snapshot: RestoreSnapshot, steps: Sequence[Step]) -> Iterator[Outcome]:
    """Refuse, or note, a release that kstate was never run against."""
    options = snapshot.options
    if not steps or not options.release.unproven:
        return
    if not options.unproven:
        words = (
            "restore",
            snapshot.app,
            option.FROM_CHANGELOG,
            "DUMP",
            option.FOR,
            options.release.version,
            option.UNPROVEN,
        )
        raise unproven_release(options.release, snapshot.app, f"{command(*words)}, with your other options")
    yield note(f"{options.release} is unproven: no test has started it with state that kstate restored")


@dataclass(frozen=True, slots=True)
class _Selection:
    """The stores to judge, by task in the order of tasks, and remarks on the selection itself."""

    stores: Mapping[str, Sequence[StoreSpec]]
    outcomes: Sequence[Outcome] = ()


def _selection(
    snapshot: RestoreSnapshot, stores_by_task: Mapping[str, Sequence[str]] | None, *, is_refused: bool
) -> _Selection:
    """Return the stores to judge. Raises UsageError for names that do not exist, unless something ``is_refused``."""
    specs = snapshot.spec.stores
    # Another command, such as rehome, has already selected the stores.
    if stores_by_task is not None:
        return _Selection(
            {task: [spec for spec in specs if spec.name in names] for task, names in stores_by_task.items()}
        )
    _refuse_unknown_stores(snapshot)
    by_task: dict[str, list[StoreSpec]] = {}
    outcomes: list[Outcome] = []
    promised = PromisedTasks(snapshot)
    selected = [spec for spec in specs if not snapshot.options.stores or spec.name in snapshot.options.stores]
    for spec in selected:
        tasks = _tasks_of(snapshot, spec, promised)
        outcomes += tasks.outcomes
        for task in tasks.names:
            by_task.setdefault(task, []).append(spec)
    # If something is refused, the list of tasks may be incomplete, so a task that is not in it may exist.
    if not is_refused and not _refusals(outcomes):
        _refuse_unknown_tasks(snapshot.options, by_task)
    outcomes += _lost_tasks(snapshot.options, by_task)
    outcomes += promised.missing(selected, by_task)
    return _Selection({name: by_task[name] for name in _tasks_here(snapshot.options, by_task)}, outcomes)


def _refuse_unknown_stores(snapshot: RestoreSnapshot) -> None:
    names = {spec.name for spec in snapshot.spec.stores}
    unknown = sorted(snapshot.options.stores - names)
    if unknown:
        raise UsageError(
            f"these stores do not exist: {', '.join(unknown)}",
            hint=hint_with_suggestion(did_you_mean(unknown, names), f"the stores are {some(sorted(names), _MOST)}"),
        )


def _selected_partitions(snapshot: RestoreSnapshot) -> frozenset[TopicPartition] | None:
    """Return the changelog partitions that the options name by store, task or partition; None if they name none."""
    options = snapshot.options
    if not options.selects:
        return None
    stores = [spec for spec in snapshot.spec.stores if not options.stores or spec.name in options.stores]
    return frozenset(
        key
        for key in snapshot.dump.partitions
        for spec in stores
        if spec.changelog == key.topic and _is_selected(options, spec, key.partition)
    )


def _is_selected(options: RestoreOptions, spec: StoreSpec, partition: int) -> bool:
    """Return whether the options name the task of a store's changelog partition; ``global`` has every partition."""
    task = GLOBAL
    if not spec.is_global:
        task = f"{_folder(spec)}{spec.subtopology}_{partition}"
    if options.tasks and task not in options.tasks:
        return False
    return not options.partitions or (partition in options.partitions and not spec.is_global)


def _damage_elsewhere(snapshot: RestoreSnapshot, selected: frozenset[TopicPartition] | None) -> Iterator[Outcome]:
    """Note the damaged partitions of the dump that are not selected: a later restoration may need them."""
    for key, damage in sorted(snapshot.dump.damaged.items()):
        if selected is not None and key not in selected:
            yield note(f"the dump's {key} is damaged, but this restoration does not need it: {damage}")


def _folder(spec: StoreSpec) -> str:
    if not spec.topology:
        return ""
    return f"__{spec.topology}__/"


def _refuse_unknown_tasks(options: RestoreOptions, tasks: Collection[str]) -> None:
    """Raise UsageError if the options name a task or a partition that no store has."""
    unknown = sorted(options.tasks - set(tasks))
    if unknown:
        raise UsageError(
            f"these tasks do not exist: {', '.join(unknown)}",
            hint=hint_with_suggestion(did_you_mean(unknown, tasks), f"the tasks are {', '.join(sorted(tasks))}"),
        )
    numbers = {number for task in tasks if (number := TaskId.parse(task).partition) is not None}
    absent = sorted(options.partitions - numbers)
    if absent:
        there = some([str(number) for number in sorted(numbers)], _MOST)
        raise UsageError(f"no task has partition {absent[0]}", hint=f"the partitions are {there}")


def _lost_tasks(options: RestoreOptions, tasks: Collection[str]) -> Iterator[Outcome]:
    """Warn of tasks that no host has and that neither dump nor specification has."""
    # Without a list of hosts nothing can be missing, and a user who names stores did not ask for all tasks.
    if options.only is None or options.stores:
        return
    if lost := sorted(options.only - options.elsewhere - set(tasks) - {GLOBAL}):
        them = "them" if len(lost) > 1 else "it"
        yield warning(
            f"kstate cannot restore {some(lost, _MOST)}, because no host has {them} and neither the dump nor the "
            f"specification describes {them}"
        )


def _tasks_here(options: RestoreOptions, tasks: Iterable[str]) -> list[str]:
    """Return the tasks to restore on this host, in the order of their names; every host has the global stores."""
    names = sorted(tasks, key=lambda name: TaskId.parse(name).order)
    own = [name for name in names if name != GLOBAL and name not in options.elsewhere]
    if options.only is not None:
        own = [name for name in own if name in options.only]
    if options.share:
        i, n = options.share
        # The share is taken from all tasks, before partitions are selected: all hosts must divide the same list.
        own = own[i - 1 :: n]
    here = {*own, GLOBAL}
    if options.partitions:
        here = {name for name in own if TaskId.parse(name).partition in options.partitions}
    return [name for name in names if name in here and (not options.tasks or name in options.tasks)]


@dataclass(frozen=True, slots=True)
class _StoreTasks:
    """The tasks that have a store, and remarks on them."""

    names: Sequence[str] = ()
    outcomes: Sequence[Outcome] = ()


def _tasks_of(snapshot: RestoreSnapshot, spec: StoreSpec, promised: PromisedTasks) -> _StoreTasks:
    """Return the tasks in which a store is restored."""
    if spec.in_memory:
        text = (
            f"kstate does not restore {spec.name}, because it is an in-memory store. Kafka Streams restores such "
            "stores every time it starts"
        )
        return _StoreTasks(outcomes=[note(text)])
    if not spec.logged:
        return _StoreTasks(outcomes=[warning(no_changelog(spec.name))])
    if spec.is_global:
        return _global_obstacle(snapshot.options, spec) or _StoreTasks([GLOBAL])
    outcomes: list[Outcome] = []
    partitions: list[int] = []
    if spec.partitions is not None and has_stated_partitions(spec):
        dumped = sorted(key.partition for key in snapshot.dump.partitions if key.topic == spec.changelog)
        outcomes += _surplus_partition(spec, dumped)
        partitions = list(range(spec.partitions))
    elif spec.subtopology is not None:
        partitions = promised.partitions(spec)
    if spec.subtopology is None:
        refusal = Refusal(
            f"{spec.name}: kstate does not know its sub-topology. "
            f"{suggest(f'Pass {option.TOPOLOGY} FILE or add', option.TOPOLOGY) or 'Add'} subtopology = … to "
            f"{table_of(spec.name)}"
        )
        return _StoreTasks(outcomes=[*outcomes, refusal])
    return _StoreTasks([f"{_folder(spec)}{spec.subtopology}_{partition}" for partition in partitions], outcomes)


def _surplus_partition(spec: StoreSpec, partitions: Sequence[int]) -> Iterator[Outcome]:
    """Refuse a partition of the dump that no task has, by the specification."""
    surplus = [partition for partition in partitions if partition >= (spec.partitions or 0)]
    if surplus:
        yield Refusal(
            f"{spec.name}: the dump has partition {surplus[0]} of {spec.changelog}, but no task has this partition "
            f"(partitions = {spec.partitions} in {table_of(spec.name)})"
        )


def _global_obstacle(options: RestoreOptions, spec: StoreSpec) -> _StoreTasks | None:
    """Return the outcome that replaces the restoration of a global store; None if it can be restored.

    It can be if its source is a table. A processor may transform records, which only the application can do.
    """
    # Streams puts the records of a global table into the store unchanged (``GlobalStateManagerImpl``), so they are its
    # rows.
    if spec.source == "table":
        return None
    # The user selected other tasks, so this store is neither an obstacle nor worth a remark.
    if options.tasks and GLOBAL not in options.tasks:
        return _StoreTasks()
    if spec.source == PROCESSOR and spec.name not in options.stores:
        why = (
            "its processor may transform records, so kstate leaves it to Kafka Streams, which reads the topic at "
            "startup"
        )
        return _StoreTasks(outcomes=[UnchangedStore(GLOBAL, spec.name, why)])
    if spec.source == PROCESSOR:
        text = f"{GLOBAL}/{spec.name}: its processor may transform records. To restore it, start Kafka Streams"
    else:
        text = (
            f'{GLOBAL}/{spec.name}: add source = "table" to {table_of(spec.name)}, or source = "processor" if its '
            "processor may transform records"
        )
    return _StoreTasks(outcomes=[Refusal(text)])


def _task_outcomes(snapshot: RestoreSnapshot, task: str, stores: Sequence[StoreSpec]) -> Iterator[Outcome]:
    """Yield what becomes of the stores of one task, and of the files beside them."""
    resolved = snapshot.tasks.get(task)
    unclean = None
    is_committed = snapshot.options.at_least_once or task in snapshot.options.committed_tasks
    if resolved is not None and resolved.unclean and not is_committed:
        unclean = resolved
        refusal = _unclean_refusal(snapshot.options, resolved)
        if refusal is not None:
            yield refusal
            return
        reason = resolved.unclean[0]
        yield warning(f"{task}: kstate rebuilds all stores of this task, because it was not closed cleanly ({reason})")
    work: list[StoreWork] = []
    for spec in stores:
        outcomes = judge_store(snapshot, task, spec, resolved, unclean=unclean is not None)
        work += _work(outcomes)
        yield from outcomes
    if unclean is not None:
        yield from _omit_unlogged(snapshot, unclean, {store.spec.name for store in work})
    if work:
        yield from task_steps(snapshot, task, work, resolved)


def _unclean_refusal(options: RestoreOptions, resolved: TaskOffsets) -> Refusal | None:
    """Refuse a task that was not left clean, unless the user allows to rebuild all of it."""
    # Under exactly-once Streams wipes a whole task, so a part of it is not enough.
    if options.wipe_unclean and not options.stores:
        return None
    alone = suggest(f" (without {option.STORE})", option.STORE)
    rebuild = suggest(f"Pass {option.WIPE_UNCLEAN}{alone} to rebuild the task, or pass", option.WIPE_UNCLEAN)
    return Refusal(
        f"{resolved.task.name}: this task was not closed cleanly ({resolved.unclean[0]}). Under exactly-once, Kafka "
        f"Streams would delete the state of the whole task. {rebuild or 'Pass'} {_vouching(options, resolved)}"
    )


def _vouching(options: RestoreOptions, resolved: TaskOffsets) -> str:
    """Return the options with which a user vouches, who knows how the application ran, that nothing is uncommitted."""
    if any(reason.no_status for reason in resolved.unclean) and not options.transactional:
        # A store without ``status`` was killed, or is transactional and never writes it: both look the same.
        transactional = suggest(f"{option.TRANSACTIONAL_STORES} or ", option.TRANSACTIONAL_STORES)
        return f"{transactional}{option.GUARANTEE} at_least_once"
    return f"{option.GUARANTEE} at_least_once"


def _omit_unlogged(snapshot: RestoreSnapshot, resolved: TaskOffsets, rebuilt: Collection[str]) -> Iterator[Outcome]:
    """Leave out the stores of an unclean task that cannot be rebuilt.

    They may have uncommitted rows, for which Streams would wipe the whole task once more.
    """
    for state in resolved.stores:
        # Its uncommitted rows cannot be told from the others, and no changelog gives the others back.
        if state.store.name not in rebuilt and not state.offsets:
            why = "the store has no changelog, and its task was not closed cleanly"
            yield OmitTree(str(state.store.path.relative_to(snapshot.app)), why)
            yield warning(f"kstate skips {resolved.task.name}/{state.store.name}, because {why}")


def _work_text(store: StoreWork) -> str:
    """Return the line of the plan for a store, with the reason of the first partition that has work."""
    action = Action.REBUILD if store.rebuild else Action.CATCH_UP
    why = next(part.verdict.why for part in store.parts if part.verdict.action is action)
    kind, end = store.spec.kind, f"up to {offsets_text(store.offsets)}"
    if store.rebuild:
        return f"rebuild ({kind}) from the earliest offset {end}, because {why}"
    return f"catch up ({kind}) {why} {end}"


def _screen_text(store: StoreWork) -> str:
    """Return the line of the plan for people, without the kind; a missing store is its own reason."""
    action = Action.REBUILD if store.rebuild else Action.CATCH_UP
    why = next(part.verdict.why for part in store.parts if part.verdict.action is action)
    end = offsets_text(store.offsets)
    if not store.rebuild:
        return f"catch up {why} to {end}"
    if store.existing is None:
        why = "the store does not exist"
    return f"rebuild from the earliest offset up to {end}, because {why}"


def _short_text(store: StoreWork) -> str:
    """Return the line of the plan for a terminal: the path of the step names the store, so its topic is omitted."""
    action = Action.REBUILD if store.rebuild else Action.CATCH_UP
    why = next(part.verdict.why for part in store.parts if part.verdict.action is action)
    end = numbers_text(store.offsets)
    if not store.rebuild:
        return f"catch up {why} to {end}"
    if store.existing is None:
        return f"missing: rebuild up to {end}"
    return f"rebuild up to {end}, because {why}"


def task_steps(
    snapshot: RestoreSnapshot, task: str, work: Sequence[StoreWork], resolved: TaskOffsets | None
) -> Iterator[Outcome]:
    """Yield the steps of one task: its stores, and the files beside them that state their offsets."""
    for store in work:
        yield BuildStore(
            store.path,
            _work_text(store),
            replaces=store.rebuild,
            size=store.bytes,
            screen_text=_screen_text(store),
            short_text=_short_text(store),
        )
    names = {store.spec.name for store in work}
    others: list[StoreOffsets] = []
    if resolved is not None:
        others = [state for state in resolved.stores if state.store.name not in names]
    for other in others:
        if not other.store.databases:
            continue
        # The directory will be one of the new release, so that release must be able to open the stores that stay, too.
        obstacle = incompatible(snapshot, other.store)
        if obstacle is not None:
            yield Refusal(f"{task}/{other.store.name}: {obstacle}")
    if snapshot.into_family:
        yield from _files_of_family(snapshot, task, work, resolved, others)
    else:
        yield from _checkpoint(task, work, resolved, others)


def _files_of_family(
    snapshot: RestoreSnapshot,
    task: str,
    work: Sequence[StoreWork],
    resolved: TaskOffsets | None,
    others: Sequence[StoreOffsets],
) -> Iterator[Outcome]:
    """Yield the files of a task for a release that keeps offsets in the stores."""
    keeping = Keeping(task)
    # At its start, a release that keeps offsets in stores migrates the lines of a .checkpoint (KIP-1035).
    if resolved is not None and resolved.task.checkpoint is not None:
        # It would put the offsets of that file over those in the stores. The lines of rebuilt stores can go, but those
        # of others, even of a store without a directory, are still needed.
        rebuilt, release = {store.spec.name for store in work}, snapshot.options.release.name
        if any(other.offsets for other in others) or resolved.absent.keys() - rebuilt:
            yield Refusal(
                f"{task}: it has a .checkpoint file, which releases up to 4.2 write. First migrate the directory: "
                + command("migrate", snapshot.app, option.TO, release, *unproven_too(release))
            )
        yield keeping.without_lines("its stores are restored and contain their offsets")
    for store in work:
        if in_a_file(store.spec.kind):
            yield keeping.lines_of(store.spec.name, store.offsets)
        yield from _old_position(keeping, store, resolved)


def _checkpoint(
    task: str, work: Sequence[StoreWork], resolved: TaskOffsets | None, others: Sequence[StoreOffsets]
) -> Iterator[Outcome]:
    """Yield the step that writes ``.checkpoint``, with a line for each logged persistent store of the task.

    If one is missing, Streams wipes the task under exactly-once.
    """
    lines: dict[TopicPartition, int] = {}
    for other in others:
        lines |= other.offsets
    # All lines with the topic of a rebuilt store are its own, also in the file of the global stores, which names no
    # store.
    rebuilt = {store.spec.changelog for store in work if store.rebuild}
    # They are dropped: after the rebuild a partition may have no offset, and its old line must not remain.
    lines = {tp: offset for tp, offset in lines.items() if tp.topic not in rebuilt}
    if resolved is not None:
        # Lines of stores that the file names and the directory lacks stay, as Streams itself keeps them.
        for offsets in resolved.absent.values():
            lines |= offsets
    for store in work:
        lines |= store.offsets
    keeping = Keeping(task)
    yield keeping.lines(lines)
    for store in work:
        yield from _old_position(keeping, store, resolved)


def _old_position(keeping: Keeping, work: StoreWork, resolved: TaskOffsets | None) -> Iterator[Outcome]:
    """Remove the Position of rows that are replaced."""
    if resolved is not None and work.spec.name in resolved.task.position_files and work.rebuild:
        yield keeping.without_position(work.spec.name, "the store is rebuilt")
