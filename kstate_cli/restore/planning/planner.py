"""Plan a restoration: every store of every task is left, caught up, rebuilt, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kstate_cli.change.plan import BuildStore, OmitTree, Plan, Step
from kstate_cli.dump_reader.model import Dump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.task_id import GLOBAL, TaskId
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.ages import read_ages
from kstate_cli.offsets.keeping import Keeping, in_a_file
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.while_running import as_of_note, resolve_to_plan
from kstate_cli.releases import unproven_release, unproven_too
from kstate_cli.restore.planning.as_of import task_times
from kstate_cli.restore.planning.obstacles import (
    foreign,
    judge_topics,
    refuse_problems,
    refuse_uncommitted,
    refuse_unknown,
    warn_of_the_rest,
)
from kstate_cli.restore.planning.plan import LeftStore, RestoreDraft, RestoreOptions, RestorePlan, StoreWork
from kstate_cli.restore.planning.store_work import judge_store
from kstate_cli.specification.model import PROCESSOR, Spec, StoreSpec
from kstate_cli.statedir.model import Application
from kstate_cli.texts import TRANSACTIONAL_STORES, UNPROVEN, command, did_you_mean, first_lines, quoted, some

_NAMED = 5
_DUMP_MORE = "a dump that is told the stores gets all the topics that they are restored from:"


def plan_restore(
    app: Path,
    existing: Application | None,
    spec: Spec,
    dump: Dump,
    options: RestoreOptions,
    *,
    wanted: Mapping[str, Sequence[str]] | None = None,
) -> RestorePlan:
    """Judges every store that is asked for: by ``wanted``, task -> stores of ``spec``, or else by the options.

    Raises Refused, naming everything that stands in the way.
    """
    known = resolve_to_plan(existing, transactional=options.transactional) if existing else []
    tasks = {resolved.task.name: resolved for resolved in known}
    draft = RestoreDraft(app, options, dump, tasks, existing.all_problems() if existing else (), read_ages(app))
    draft.notes += as_of_note(existing) if existing else ()
    refuse_uncommitted(draft)
    draft.warnings += dump.warnings
    refuse_unknown(draft, spec, app.name)
    judge_topics(draft, spec)
    for task, stores in (_wanted(draft, spec) if wanted is None else _named(spec, wanted)).items():
        _plan_task(draft, task, stores)
    rebuilt = [one.spec for one in draft.work if one.rebuild and not one.spec.is_global]
    if not all(dump.headers_of(one.changelog) for one in rebuilt):
        draft.notes.append(
            "the dump has no record headers: Positions of rebuilt stores stay empty, as after Streams' own restore; "
            "a bounded query (IQv2) is not answered before new input comes"
        )
    if draft.unsure:
        draft.warnings.append(
            f"{some(draft.unsure, _NAMED)}: caught up, but nobody knows when {_unknown(draft)}: what was deleted more "
            "than delete.retention.ms before the dump was read may stay"
        )
    refuse_problems(draft)
    warn_of_the_rest(draft, spec)
    if draft.refused:
        raise _refused(draft)
    steps = tuple(draft.steps)
    if steps and options.release.unproven:
        if not options.unproven:
            words = ("restore", app, "--from-changelog", "DUMP", "--for", options.release.version, UNPROVEN)
            raise unproven_release(options.release, app, f"{command(*words)}, and all that was said besides")
        draft.notes.append(f"unproven: no {options.release} was ever started on what is restored for it")
    times = task_times(draft.work, draft.tasks, draft.ages)
    change = Plan(
        app,
        f"restore --for {quoted(options.release.version)}",
        options.release.name,
        options.release.name,
        steps,
        tuple(draft.warnings),
        tuple(draft.notes),
        times,
    )
    return RestorePlan(change, tuple(draft.work), tuple(draft.left))


def _refused(draft: RestoreDraft) -> Refused:
    names = list(draft.only_copies)
    exports = [command("export", draft.app, name, "--out", "DIR") for name in names]
    dumping = [command("dump", "--bootstrap-server", "HOST:PORT", "--out", "DUMP", "--spec", "FILE")]
    first = "export first what may be the only copy; --rebuild then replaces it by what the dump has:"
    return Refused(
        "not restored:",
        details=first_lines(draft.refused),
        where=str(draft.app),
        hint=first if names else _DUMP_MORE if draft.not_in_dump else None,
        hint_details=first_lines(exports) if names else dumping if draft.not_in_dump else (),
    )


def _unknown(draft: RestoreDraft) -> str:
    if any(one.reading is None for one in draft.dump.partitions.values()):
        return "the dump was read (its manifest does not say it)"
    return "their data was written (their SSTs do not say it)"


def _named(spec: Spec, wanted: Mapping[str, Sequence[str]]) -> dict[str, list[StoreSpec]]:
    return {task: [one for one in spec.stores if one.name in names] for task, names in wanted.items()}


def _wanted(draft: RestoreDraft, spec: Spec) -> dict[str, list[StoreSpec]]:
    """Task -> its stores that are asked for, in the order of tasks."""
    options = draft.options
    unknown = sorted(options.stores - {store.name for store in spec.stores})
    if unknown:
        known = some(sorted(store.name for store in spec.stores), _NAMED)
        meant = did_you_mean(unknown, {store.name for store in spec.stores})
        raise UsageError(f"no store of this name: {', '.join(unknown)}", hint=f"{meant}there are: {known}")
    by_task: dict[str, list[StoreSpec]] = {}
    for store in spec.stores:
        if options.stores and store.name not in options.stores:
            continue
        if store.in_memory:
            draft.notes.append(f"{store.name} is in memory: Streams restores it at every start")
            continue
        if not store.logged:
            draft.warnings.append(f"{store.name} has no changelog: it cannot be restored")
            continue
        for task in _tasks_of(draft, store):
            by_task.setdefault(task, []).append(store)
    missing = sorted(options.tasks - by_task.keys())
    if missing and not draft.refused:
        meant = did_you_mean(missing, by_task)
        raise UsageError(
            f"no task of this name: {', '.join(missing)}", hint=f"{meant}tasks: {', '.join(sorted(by_task))}"
        )
    names = sorted(by_task, key=lambda name: TaskId.parse(name).order)
    # Every host has all global stores.
    own = [name for name in names if name != GLOBAL and name not in options.elsewhere]
    if options.only is not None:
        own = [name for name in own if name in options.only]
        lost = sorted(options.only - options.elsewhere - by_task.keys() - {GLOBAL})
        if lost and not options.stores:
            draft.warnings.append(
                f"{some(lost, _NAMED)}: no host has it, and dump and specification know nothing of it"
            )
    if options.share:
        i, n = options.share
        own = own[i - 1 :: n]
    names = [name for name in names if name == GLOBAL or name in set(own)]
    return {name: by_task[name] for name in names if not options.tasks or name in options.tasks}


def _tasks_of(draft: RestoreDraft, store: StoreSpec) -> list[str]:
    if store.is_global:
        return [GLOBAL] if _is_table(draft, store) else []
    partitions = sorted(key.partition for key in draft.dump.partitions if key.topic == store.changelog)
    if store.partitions is not None and "partitions" not in store.inferred:
        beyond = [p for p in partitions if p >= store.partitions]
        if beyond:
            draft.refused.append(
                f"{store.name}: the dump has partition {beyond[0]} of {store.changelog}, "
                f"and no task has it (partitions = {store.partitions} in [stores.{store.name}])"
            )
        partitions = list(range(store.partitions))
    if store.subtopology is None:
        draft.refused.append(
            f"{store.name}: its subtopology is not known: give --topology FILE, "
            f"or add subtopology = … to [stores.{store.name}]"
        )
        return []
    folder = f"__{store.topology}__/" if store.topology else ""
    return [f"{folder}{store.subtopology}_{partition}" for partition in partitions]


def _is_table(draft: RestoreDraft, store: StoreSpec) -> bool:
    """Only a table's records are its rows: a processor may transform them, which only the application can."""
    if store.source == "table":
        return True
    if draft.options.tasks and GLOBAL not in draft.options.tasks:
        return False
    if store.source == PROCESSOR and store.name not in draft.options.stores:
        why = "its processor may transform records: Streams reads its topic at the start"
        draft.left.append(LeftStore(GLOBAL, store.name, why))
    elif store.source == PROCESSOR:
        draft.refused.append(f"{GLOBAL}/{store.name}: its processor may transform records: start Streams instead")
    else:
        draft.refused.append(
            f'{GLOBAL}/{store.name}: add source = "table" to [stores.{store.name}], or "processor", '
            "which may transform records"
        )
    return False


def _plan_task(draft: RestoreDraft, task: str, stores: list[StoreSpec]) -> None:
    resolved = draft.tasks.get(task)
    unclean = bool(resolved and resolved.unclean) and not draft.options.at_least_once
    if unclean:
        assert resolved is not None
        if draft.options.stores or not draft.options.wipe_unclean:
            draft.refused.append(
                f"{task}: not left clean ({resolved.unclean[0]}): under exactly-once Streams wipes all of it; "
                f"--wipe-unclean rebuilds the whole task (no --store), or pass {_vouching(draft, resolved)}"
            )
            return
        draft.warnings.append(f"{task}: not left clean ({resolved.unclean[0]}): all its stores are rebuilt")
    begun = len(draft.work)
    for store in stores:
        work = judge_store(draft, task, store, resolved, unclean=unclean)
        if work is not None:
            draft.work.append(work)
    new = draft.work[begun:]
    if unclean and resolved is not None:
        _leave_out_unlogged(draft, resolved, {one.spec.name for one in new})
    if new:
        task_steps(draft, task, new, resolved)


def _vouching(draft: RestoreDraft, resolved: TaskOffsets) -> str:
    """Return the options with which a user who knows how the application ran says that nothing is uncommitted."""
    ambiguous = any(reason.no_status for reason in resolved.unclean) and not draft.options.transactional
    return f"{TRANSACTIONAL_STORES} or --guarantee at_least_once" if ambiguous else "--guarantee at_least_once"


def _leave_out_unlogged(draft: RestoreDraft, resolved: TaskOffsets, rebuilt: set[str]) -> None:
    """What cannot be rebuilt may hold uncommitted rows, for which Streams would wipe the whole task once more."""
    for one in resolved.stores:
        if one.store.name not in rebuilt and not one.offsets:
            why = "its task was not left clean, and it has no changelog"
            draft.steps.append(OmitTree(str(one.store.path.relative_to(draft.app)), why))
            draft.warnings.append(f"{resolved.task.name}/{one.store.name}: left out: {why}")


def task_steps(draft: RestoreDraft, task: str, work: list[StoreWork], resolved: TaskOffsets | None) -> None:
    """Adds the steps of one task to the plan."""
    for one in work:
        verb = "rebuild" if one.rebuild else "catch up"
        why = one.parts[0].verdict.why
        draft.steps.append(
            BuildStore(
                one.path,
                f"{verb} ({one.spec.kind}): up to {offsets_text(one.offsets)}; {why}",
                replaces=one.rebuild,
                size=one.bytes,
            )
        )
    names = {one.spec.name for one in work}
    others = [s for s in (resolved.stores if resolved else []) if s.store.name not in names]
    for other in others:
        # What vouches for them from now on is the directory of that release.
        in_the_way = foreign(draft, other.store) if other.store.databases else None
        if in_the_way is not None:
            draft.refused.append(f"{task}/{other.store.name}: {in_the_way}")
    if draft.into_family:
        _files_of_family(draft, task, work, resolved, others)
    else:
        draft.steps += _checkpoint(task, work, resolved, others)


def _files_of_family(
    draft: RestoreDraft, task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> None:
    keeping = Keeping(task)
    if resolved is not None and resolved.task.checkpoint is not None:
        # At its next start the release would put the lines of that file over the offsets in the stores.
        # A store that was wiped has a line there and no directory.
        rebuilt, release = {one.spec.name for one in work}, draft.options.release.name
        if any(one.offsets for one in others) or resolved.absent.keys() - rebuilt:
            draft.refused.append(
                f"{task}: it has a .checkpoint, as releases up to 4.2 leave it; migrate it first: "
                + command("migrate", draft.app, "--to", release, *unproven_too(release))
            )
        draft.steps.append(keeping.without_lines("its stores are restored: their offsets are in them"))
    for one in work:
        if in_a_file(one.spec.kind):
            draft.steps.append(keeping.lines_of(one.spec.name, one.offsets))
        draft.steps += _old_position(keeping, one, resolved)


def _checkpoint(
    task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> Iterator[Step]:
    """``.checkpoint`` names every logged persistent store of the task, or Streams wipes it under exactly-once."""
    lines: dict[TopicPartition, int] = {}
    for other in others:
        lines |= other.offsets
    # The file of the global stores does not say whose a line is: those of a rebuilt store are its own.
    rebuilt = {one.spec.changelog for one in work if one.rebuild}
    lines = {tp: offset for tp, offset in lines.items() if tp.topic not in rebuilt}
    for absent in (resolved.absent if resolved else {}).values():
        lines |= absent
    for one in work:
        lines |= one.offsets
    keeping = Keeping(task)
    yield keeping.lines(lines)
    for one in work:
        yield from _old_position(keeping, one, resolved)


def _old_position(keeping: Keeping, work: StoreWork, resolved: TaskOffsets | None) -> Iterator[Step]:
    """The Position of rows that are replaced goes."""
    if resolved is not None and work.spec.name in resolved.task.position_files and work.rebuild:
        yield keeping.without_position(work.spec.name, "the store is rebuilt")
