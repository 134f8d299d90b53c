"""The plan of a restoration: every store of every task is left, caught up, rebuilt, or in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kstate_cli.carried import TRANSACTIONAL_STORES, UNPROVEN
from kstate_cli.change.ages import Age, read_ages
from kstate_cli.change.plan import OmitTree, Plan
from kstate_cli.dump.model import Dump, PartitionDump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import expires, store_kind
from kstate_cli.formats.task_id import GLOBAL, TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import log_of
from kstate_cli.offsets.ages import age_of
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.unclean import may_be_ahead
from kstate_cli.offsets.while_running import as_of_note, resolve_to_plan
from kstate_cli.releases import readable_by, unproven_release
from kstate_cli.restore.as_of import another_log, as_of_after, task_times
from kstate_cli.restore.judge import Action, Allowed, Verdict, judge
from kstate_cli.restore.obstacles import (
    broken,
    foreign,
    forgetful,
    judge_topics,
    older_layout,
    refuse_problems,
    refuse_uncommitted,
    refuse_unknown,
    unfit_name,
    warn_of_the_rest,
)
from kstate_cli.restore.plan import LeftStore, RestoredPartition, RestoreDraft, RestoreOptions, RestorePlan, StoreWork
from kstate_cli.restore.task_steps import task_steps
from kstate_cli.spec.model import PROCESSOR, Spec, StoreSpec
from kstate_cli.statedir.model import Application
from kstate_cli.texts import command, did_you_mean, first_lines, quoted, some

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


def _topic_meant(draft: RestoreDraft, store: StoreSpec) -> str:
    """The topic of the dump that is called almost as the changelog of a store, which it has not."""
    meant = did_you_mean([store.changelog or ""], {key.topic for key in draft.dump.partitions})
    return f"; {meant}(changelog = … in [stores.{store.name}])" if meant else ""


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
        work = _judge_store(draft, task, store, resolved, unclean=unclean)
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


def _judge_store(
    draft: RestoreDraft, task: str, store: StoreSpec, resolved: TaskOffsets | None, *, unclean: bool
) -> StoreWork | None:
    shown = f"{task}/{store.name}"
    release = draft.options.release
    if not readable_by(store.kind, release):
        draft.refused.append(f"{shown}: {store.kind} stores are unknown to {release}")
        return None
    unfit = unfit_name(draft, store)
    if unfit is not None:
        draft.refused.append(f"{shown}: {unfit}")
        return None
    if expires(store.kind) and not (store.retention_ms and store.segment_interval_ms):
        draft.refused.append(
            f"{shown}: which segments are live is not known: add retention_ms = … to [stores.{store.name}]"
        )
        return None
    existing = next((one for one in resolved.stores if one.store.name == store.name), None) if resolved else None
    if existing is not None and not existing.store.segmented and not existing.store.databases:
        existing = None  # an empty folder: whatever a file says of its offset, nothing is there
    dumps = _partitions(draft, task, store)
    if not dumps:
        what = f"the dump has no {store.changelog}" + (
            "" if task == GLOBAL else f", partition {TaskId.parse(task).partition}"
        )
        asked = store.name in draft.options.stores or draft.options.allowed.rebuild
        if existing is not None and existing.has_offset and not unclean and not asked:
            draft.left.append(LeftStore(task, store.name, what))
        else:
            draft.refuse_absent(f"{shown}: {what}{_topic_meant(draft, store)}")
        return None
    if store_kind(store.kind).needs_headers and not draft.dump.headers_of(store.changelog):
        draft.refused.append(
            f"{shown}: its rows hold record headers, and the dump has no headers (includeHeaders=true)"
            + (f" in some files of {store.changelog}" if draft.dump.has_headers else "")
        )
        return None
    allowed = _allowed(draft, task, store, existing, resolved, unclean=unclean)
    has_rows = existing is not None and not existing.store.empty
    absent = _absent_partitions(store, existing, dumps)
    if absent:
        draft.refuse_absent(f"{shown}: the dump has no {', '.join(str(tp) for tp in absent)}")
        return None
    before = None if existing is None else age_of(draft.ages, task, existing)
    parts = []
    for dump in dumps:
        committed = _committed(draft, store, dump.key)
        if store.source_topic and committed is None:
            draft.refused.append(
                f"{shown}: {dump.key} is a source topic: beyond the group's committed offset its values are not yet "
                "the table's (--committed-offsets FILE, or committed in the manifest)"
            )
            return None
        facts = draft.options.facts.get(dump.key)
        if facts is None and draft.options.broker_asked:
            draft.refused.append(
                f"{shown}: the broker has no {dump.key}: the topic was deleted, or this is another cluster. Do not "
                "start the application before that is known: it would restore from a log without these records"
            )
            return None
        # Before any offset: in another log they mean nothing, and "already past the dump" would be no news.
        other = None if before is None else another_log(draft.dump, dump, facts, before)
        if other is not None and not allowed.asked:
            _refuse_other_log(draft, shown, store, dump, other)
            return None
        log = log_of(dump, committed, facts)
        offset = existing.offsets.get(dump.key) if existing else None
        verdict = judge(
            log,
            offset,
            is_global=store.is_global,
            has_rows=has_rows,
            allowed=allowed,
            as_of_ms=before.as_of_ms if before is not None else None,
        )
        if _is_emptied(draft, shown, dump, verdict, allowed):
            return None
        verdict = replace(verdict, only_copy=verdict.only_copy or other is not None)
        parts.append(RestoredPartition(dump, log, verdict))
    judged = tuple(parts)
    if len({part.verdict.action for part in judged}) > 1 and any(p.verdict.action is Action.REBUILD for p in judged):
        # A global store is one database: where one partition must be rebuilt, all are, and each needs a base for it. A
        # partition whose log is empty gives no rows then, as it would to Streams.
        others = replace(allowed, rebuild="another partition of its topic must be rebuilt")
        judged = tuple(
            replace(p, verdict=judge(p.log, None, is_global=True, has_rows=False, allowed=others))
            if p.verdict.action in (Action.LEAVE, Action.CATCH_UP)
            else p
            for p in judged
        )
    return _decide(draft, task, store, existing, judged, before)


def _allowed(
    draft: RestoreDraft,
    task: str,
    store: StoreSpec,
    existing: StoreOffsets | None,
    resolved: TaskOffsets | None,
    *,
    unclean: bool,
) -> Allowed:
    """Return what the user vouches for, and why the store is rebuilt although nobody asked for it."""
    allowed = draft.options.allowed
    if unclean:
        allowed = replace(allowed, rebuild="its task was not left clean")
    elif resolved is not None and existing is not None and may_be_ahead(existing.store, resolved):
        # Replaying records that its rows contain already gives other versions than the changelog does.
        allowed = replace(allowed, rebuild="it was killed, and a versioned store cannot replay what it has")
    damage = broken(draft, task, store)
    if damage:
        allowed = replace(allowed, rebuild=f"what is there cannot be used ({damage})")
        draft.warnings.append(f"{task}/{store.name}: {damage}")
    return allowed


def _refuse_other_log(draft: RestoreDraft, shown: str, store: StoreSpec, dump: PartitionDump, why: str) -> None:
    draft.refused.append(
        f"{shown}: {dump.key} is another log than the one that the store was made from: {why}. Do not start the "
        "application"
    )
    draft.only_copies[store.name] = None


def _is_emptied(draft: RestoreDraft, shown: str, dump: PartitionDump, verdict: Verdict, allowed: Allowed) -> bool:
    """Refuse an empty full dump if an older one has rows; return whether it was refused."""
    if dump.older_full is None or allowed.allow_empty or verdict.action is not Action.REBUILD:
        return False
    generation, rows = dump.older_full
    draft.refused.append(
        f"{shown}: the newest full dump of {dump.key} has no record, and that of generation {generation} has {rows:,}: "
        f"--full-dump {quoted(str(generation))} restores from that one, --allow-empty restores an empty store"
    )
    return True


def _absent_partitions(
    store: StoreSpec, existing: StoreOffsets | None, dumps: list[PartitionDump]
) -> list[TopicPartition]:
    """Partitions of a global store's topic that are known of and not in the dump: its rows would be lost."""
    if not store.is_global:
        return []
    known = {tp for tp in (existing.offsets if existing else ()) if tp.topic == store.changelog}
    if store.partitions is not None and "partitions" not in store.inferred:
        known |= {TopicPartition(store.changelog or "", number) for number in range(store.partitions)}
    return sorted(known - {dump.key for dump in dumps})


def _decide(
    draft: RestoreDraft,
    task: str,
    store: StoreSpec,
    existing: StoreOffsets | None,
    parts: tuple[RestoredPartition, ...],
    before: Age | None,
) -> StoreWork | None:
    shown = f"{task}/{store.name}"
    for part in parts:
        if part.verdict.action is Action.REFUSE:
            draft.refused.append(f"{shown}: {part.verdict.why}")
            if part.verdict.only_copy:
                draft.only_copies[store.name] = None
            return None
        if part.verdict.invalid or part.verdict.doubtful:
            draft.warnings.append(f"{shown}: {part.verdict.why}")
    actions = {part.verdict.action for part in parts}
    if actions == {Action.LEAVE}:
        assert existing is not None
        why = foreign(draft, existing.store)
        if why is not None:
            draft.refused.append(f"{shown}: {why}")
            return None
        draft.left.append(LeftStore(task, store.name, parts[0].verdict.why))
        return None
    rebuild = Action.REBUILD in actions
    if not rebuild and existing is not None:
        in_the_way = _not_to_be_caught_up(draft, store, existing)
        if in_the_way is not None:
            draft.refused.append(f"{shown}: {in_the_way}")
            return None
    offsets = {}
    for part in parts:
        last = part.log.last
        old = existing.offsets.get(part.log.key) if existing and not rebuild else None
        if part.verdict.action is Action.LEAVE and old is not None:
            offsets[part.log.key] = old
        elif last is not None:
            offsets[part.log.key] = last + 1 if store.is_global else last
        elif not store.is_global:
            offsets[part.log.key] = OFFSET_UNKNOWN
        elif part.log.start is not None:
            # Streams seeks to what it finds for a global store, -4 included, and does not start then.
            offsets[part.log.key] = part.log.start
    if not rebuild and any(part.verdict.unsure for part in parts):
        draft.unsure.append(shown)
    as_of = as_of_after(parts, rebuild=rebuild, before=before)
    work = StoreWork(task, store, parts, rebuild, existing, offsets, as_of)
    draft.notes += [f"{why}: what is kept of it goes only when its run is cleaned by name" for why in work.only_copy]
    return work


def _not_to_be_caught_up(draft: RestoreDraft, store: StoreSpec, existing: StoreOffsets) -> str | None:
    """Why records cannot be added to what is there; None where they can."""
    if draft.into_family != existing.store.has_offsets_family:
        to = draft.options.release
        home = "column-family" if draft.into_family else "checkpoint"
        return (
            f"it was left by another release than {to} (its offset is not in the {home}): --rebuild, or migrate it "
            f"first: {command('migrate', draft.app, '--to', to.version)}"
        )
    older = older_layout(existing.store, store.kind)
    if older is not None:
        # Streams deletes a record's row in the older column family too; sorted files go to one.
        return f"it still has rows of an older layout in {older}: --rebuild --store {quoted(store.name)}"
    return forgetful(existing.store) or foreign(draft, existing.store)


def _partitions(draft: RestoreDraft, task: str, store: StoreSpec) -> list[PartitionDump]:
    if store.is_global:
        return [d for key, d in sorted(draft.dump.partitions.items()) if key.topic == store.changelog]
    key = TopicPartition(store.changelog or "", TaskId.parse(task).partition or 0)
    dumped = draft.dump.partitions.get(key)
    return [dumped] if dumped else []


def _committed(draft: RestoreDraft, store: StoreSpec, key: TopicPartition) -> int | None:
    if not store.source_topic:
        return None
    facts = draft.options.facts.get(key)
    asked = facts.committed if facts is not None else None
    return draft.options.committed.get(key, draft.dump.committed.get(key) if asked is None else asked)
