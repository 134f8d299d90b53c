"""The plan of a restoration: every store of every task is left, caught up, rebuilt, or in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kstate_cli.change.build import BuildStore
from kstate_cli.change.plan import OmitTree, Plan, RemoveFile, Step, WriteFile
from kstate_cli.dump.model import Dump, PartitionDump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN, render
from kstate_cli.formats.topic_partition import TopicPartition, store_of_changelog
from kstate_cli.migrate.resolve import StoreOffsets, TaskOffsets, resolve
from kstate_cli.releases import OffsetsHome, Release, readable_by
from kstate_cli.restore.judge import Action, Allowed, Log, Verdict, judge, log_of
from kstate_cli.restore.shapes import SHAPES
from kstate_cli.spec.model import Spec, StoreSpec
from kstate_cli.statedir.model import GLOBAL, Application, Problem


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What the user says about dump and directory, and what to restore."""

    release: Release
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    share: tuple[int, int] | None = None
    """(i, n), 1-based: of all tasks in order every n-th, beginning with the i-th."""
    at_least_once: bool = False
    committed_only: bool = False
    """The dump holds committed records only, although no manifest says so."""
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of source topics, over those of the manifest."""
    allowed: Allowed = field(default_factory=Allowed)
    ignored: tuple[str, ...] = ()
    """Topics of the dump, as shell patterns, that are none of this application's."""


@dataclass(frozen=True, slots=True)
class Part:
    """One changelog partition of a store that is restored."""

    dump: PartitionDump
    log: Log
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StoreWork:
    """One store of one task that is restored."""

    task: str
    spec: StoreSpec
    parts: tuple[Part, ...]
    """One, or all partitions of a global store's topic."""
    rebuild: bool
    existing: StoreOffsets | None
    offsets: Mapping[TopicPartition, int]
    """What the store's offsets are when it is complete."""

    @property
    def path(self) -> str:
        """The store's folder, relative to the application directory."""
        folder = "" if self.spec.segmented else "rocksdb/"
        return f"{self.task}/{folder}{self.spec.name}"

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"{self.task}/{self.spec.name}"

    @property
    def records(self) -> int:
        """Records in the dump, at most."""
        return sum(part.dump.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of the change engine, and the work that fills it in."""

    change: Plan
    work: tuple[StoreWork, ...]
    left: tuple[tuple[str, str], ...]
    """(store, why) of stores that are left as they are."""


@dataclass(slots=True)
class _Draft:
    app: Path
    options: RestoreOptions
    dump: Dump
    tasks: dict[str, TaskOffsets]
    problems: tuple[Problem, ...]
    steps: list[Step] = field(default_factory=list)
    work: list[StoreWork] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def into_family(self) -> bool:
        return self.options.release.offsets_home is OffsetsHome.COLUMN_FAMILY


def plan_restore(app: Path, found: Application | None, spec: Spec, dump: Dump, options: RestoreOptions) -> RestorePlan:
    """Judges every store that is asked for. Raises Refused, naming everything that stands in the way."""
    tasks = {resolved.task.name: resolved for resolved in (resolve(found) if found else [])}
    draft = _Draft(app, options, dump, tasks, found.all_problems() if found else ())
    _refuse_uncommitted(draft)
    draft.warnings += dump.warnings
    _refuse_unknown(draft, spec, app.name)
    wanted = _wanted(draft, spec)
    for task, stores in wanted.items():
        _plan_task(draft, task, stores)
    if any(one.rebuild and not one.spec.is_global for one in draft.work) and not dump.has_headers:
        draft.notes.append(
            "the dump has no record headers: Positions of rebuilt stores stay empty, as after Streams' own restore; "
            "a bounded query (IQv2) is not answered before new input comes"
        )
    _refuse_problems(draft)
    _warn_of_the_rest(draft, spec)
    if draft.refused:
        raise Refused(_listed("not restored", draft.refused), where=str(app))
    steps = tuple(draft.steps)
    command = f"restore --for {options.release}"
    change = Plan(
        app, command, options.release.name, options.release.name, steps, tuple(draft.warnings), tuple(draft.notes)
    )
    return RestorePlan(change, tuple(draft.work), tuple(draft.left))


def _listed(headline: str, lines: list[str]) -> str:
    shown = lines[:20] + ([f"… and {len(lines) - 20} more"] if len(lines) > 20 else [])
    return headline + ":" + "".join(f"\n  {line}" for line in shown)


def _refuse_problems(draft: _Draft) -> None:
    """What Streams or kstate cannot take stays in the way, unless it lies in a store that is replaced."""
    replaced = tuple(f"{one.path}/" for one in draft.work if one.rebuild)
    for problem in draft.problems:
        if not f"{problem.where}/".startswith(replaced):
            line = f"{problem.where}: {problem.what} ({problem.rule})"
            (draft.refused if problem.fatal else draft.warnings).append(line)


def _warn_of_the_rest(draft: _Draft, spec: Spec) -> None:
    """Under exactly-once a task with rows and a logged store without an offset is wiped whole at the next start."""
    restored = {one.shown for one in draft.work} | {name for name, _ in draft.left}
    for task in sorted({one.task for one in draft.work}):
        if task == GLOBAL:
            continue
        resolved = draft.tasks.get(task)
        here = {one.store.name for one in resolved.stores if one.offsets} if resolved else set()
        topology, _, name = task.rpartition("/")
        missing = [
            store.name
            for store in spec.stores
            if store.logged
            and not store.in_memory
            and not store.is_global
            and str(store.subtopology) == name.split("_")[0]
            and (store.topology or "") == topology.strip("_")
            and f"{task}/{store.name}" not in restored
            and store.name not in here
        ]
        if missing:
            draft.warnings.append(
                f"{task}: {', '.join(missing)} have no offset: under exactly-once Streams wipes such a task whole"
            )


def _refuse_uncommitted(draft: _Draft) -> None:
    """A record of an aborted transaction looks like any other; only who made the dump knows."""
    if draft.dump.isolation == "read_committed" or draft.options.at_least_once or draft.options.committed_only:
        return
    raise Refused(
        "the dump may hold records of aborted transactions"
        + (" (isolation read_uncommitted)" if draft.dump.isolation else " (no manifest says otherwise)"),
        hint="dump with kafka.isolation.level=read_committed and say --dump-is-committed, "
        "or --guarantee at_least_once where the application never used transactions",
    )


def _refuse_unknown(draft: _Draft, spec: Spec, app_id: str) -> None:
    """Changelogs in the dump that no store of the spec is restored from: leaving them out would lose a store."""
    known = {store.changelog for store in spec.stores}
    missing = sorted(
        topic
        for topic in {key.topic for key in draft.dump.partitions} - known
        if not any(fnmatchcase(topic, pattern) for pattern in draft.options.ignored)
    )
    names = {topic: store_of_changelog(topic, app_id) for topic in missing}
    stores = [name for name in names.values() if name is not None]
    if draft.options.stores:
        stores = [name for name in stores if name in draft.options.stores]
    if stores:
        lines = [f'[stores.{name}] kind = "…", subtopology = …' for name in stores]
        raise Refused(
            _listed("the dump has changelogs of stores that nothing describes", stores),
            hint="what kind they are cannot be told from a changelog: give --spec kstate.toml with\n  "
            + "\n  ".join(lines)
            + "\n  or, where they belong to another application, --ignore TOPIC",
        )
    draft.notes += [
        f"{topic} is in the dump, and no store is restored from it" for topic, name in names.items() if not name
    ]


def _wanted(draft: _Draft, spec: Spec) -> dict[str, list[StoreSpec]]:
    """Task -> its stores that are asked for, in the order of tasks."""
    options = draft.options
    unknown = sorted(options.stores - {store.name for store in spec.stores})
    if unknown:
        raise UsageError(f"no store of this name: {', '.join(unknown)}", hint="kstate ls --spec shows the names")
    found: dict[str, list[StoreSpec]] = {}
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
            found.setdefault(task, []).append(store)
    missing = sorted(options.tasks - found.keys())
    if missing:
        raise UsageError(f"no task of this name: {', '.join(missing)}", hint=f"tasks: {', '.join(sorted(found))}")
    names = sorted(found, key=_task_order)
    if options.share:
        i, n = options.share
        # Every host has all global stores.
        names = [name for at, name in enumerate(names) if name == GLOBAL or at % n == i - 1]
    return {name: found[name] for name in names if not options.tasks or name in options.tasks}


def _task_order(name: str) -> tuple[bool, str, list[int]]:
    topology, _, task = name.rpartition("/")
    return name == GLOBAL, topology, [int(part) for part in task.split("_")] if task != GLOBAL else []


def _tasks_of(draft: _Draft, store: StoreSpec) -> list[str]:
    if store.is_global:
        if store.source != "table":
            draft.refused.append(
                f"global store {store.name}: "
                + (
                    "its processor transforms records, which only the application can: start Streams instead"
                    if store.source == "processor"
                    else f'add source = "table" (or "processor", which may transform records) to [stores.{store.name}]'
                )
            )
            return []
        return [GLOBAL]
    partitions = sorted(key.partition for key in draft.dump.partitions if key.topic == store.changelog)
    if store.partitions is not None:
        beyond = [p for p in partitions if p >= store.partitions]
        if beyond:
            draft.refused.append(
                f"{store.name}: the dump has partition {beyond[0]} of {store.changelog}, "
                f"and no task has it (partitions = {store.partitions})"
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


def _plan_task(draft: _Draft, task: str, stores: list[StoreSpec]) -> None:
    resolved = draft.tasks.get(task)
    unclean = bool(resolved and resolved.unclean) and not draft.options.at_least_once
    if unclean:
        assert resolved is not None
        if draft.options.stores:
            draft.refused.append(
                f"{task}: not left clean ({resolved.unclean[0]}): under exactly-once Streams wipes all of it; "
                "restore the whole task (no --store), or say --guarantee at_least_once"
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
        _task_steps(draft, task, new, resolved)


def _leave_out_unlogged(draft: _Draft, resolved: TaskOffsets, rebuilt: set[str]) -> None:
    """What cannot be rebuilt may hold uncommitted rows, for which Streams would wipe the whole task once more."""
    for one in resolved.stores:
        if one.store.name not in rebuilt and not one.offsets:
            why = "its task was not left clean, and it has no changelog"
            draft.steps.append(OmitTree(str(one.store.path.relative_to(draft.app)), why))
            draft.warnings.append(f"{resolved.task.name}/{one.store.name}: left out: {why}")


def _judge_store(
    draft: _Draft, task: str, store: StoreSpec, resolved: TaskOffsets | None, *, unclean: bool
) -> StoreWork | None:
    shown = f"{task}/{store.name}"
    release = draft.options.release
    if not readable_by(store.kind, release):
        draft.refused.append(f"{shown}: {store.kind} stores are unknown to {release}")
        return None
    if SHAPES[store.kind].expires and not (store.retention_ms and store.segment_interval_ms):
        draft.refused.append(
            f"{shown}: which segments are live is not known: add retention_ms = … to [stores.{store.name}]"
        )
        return None
    existing = next((one for one in resolved.stores if one.store.name == store.name), None) if resolved else None
    dumps = _partitions(draft, task, store)
    if not dumps:
        what = f"the dump has no {store.changelog}" + (
            "" if task == GLOBAL else f", partition {task.rpartition('_')[2]}"
        )
        if existing is not None and existing.offsets and not unclean:
            draft.left.append((shown, what))
        else:
            draft.refused.append(f"{shown}: {what}")
        return None
    if SHAPES[store.kind].needs_headers and not draft.dump.has_headers:
        draft.refused.append(
            f"{shown}: its rows hold record headers, and the dump has no headers (includeHeaders=true)"
        )
        return None
    allowed = draft.options.allowed
    if unclean:
        allowed = replace(allowed, rebuild="its task was not left clean")
    broken = _broken(draft, task, store)
    if broken:
        allowed = replace(allowed, rebuild=f"what is there cannot be used ({broken})")
        draft.warnings.append(f"{shown}: {broken}")
    parts = []
    for dump in dumps:
        committed = _committed(draft, store, dump.key)
        if store.source_topic and committed is None:
            draft.refused.append(
                f"{shown}: {dump.key} is a source topic: beyond the group's committed offset its values are not yet "
                "the table's (--committed-offsets FILE, or committed in the manifest)"
            )
            return None
        log = log_of(dump, committed)
        offset = existing.offsets.get(dump.key) if existing else None
        has_rows = existing is not None and not existing.store.empty
        parts.append(Part(dump, log, judge(log, offset, is_global=store.is_global, has_rows=has_rows, allowed=allowed)))
    return _decide(draft, task, store, existing, tuple(parts))


def _broken(draft: _Draft, task: str, store: StoreSpec) -> str | None:
    folder = f"{task}/{store.name}/" if store.segmented else f"{task}/rocksdb/{store.name}/"
    for problem in draft.problems:
        if problem.fatal and f"{problem.where}/".startswith(folder):
            return f"{problem.where}: {problem.what}"
    return None


def _decide(
    draft: _Draft, task: str, store: StoreSpec, existing: StoreOffsets | None, parts: tuple[Part, ...]
) -> StoreWork | None:
    shown = f"{task}/{store.name}"
    for part in parts:
        if part.verdict.action is Action.REFUSE:
            draft.refused.append(f"{shown}: {part.verdict.why}")
            return None
        if part.verdict.doubtful or part.verdict.invalid:
            draft.warnings.append(f"{shown}: {part.verdict.why}")
    actions = {part.verdict.action for part in parts}
    if actions == {Action.LEAVE}:
        draft.left.append((shown, parts[0].verdict.why))
        return None
    # A global store is one database: where one partition must be rebuilt, all are.
    rebuild = Action.REBUILD in actions
    if not rebuild:
        assert existing is not None
        home = "column-family" if draft.into_family else "checkpoint"
        if draft.into_family != existing.store.has_offsets_family:
            draft.refused.append(
                f"{shown}: it was left by another release than {draft.options.release} (its offset is not in the "
                f"{home}): kstate migrate --to {draft.options.release} first, or --rebuild"
            )
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
    return StoreWork(task, store, parts, rebuild, existing, offsets)


def _partitions(draft: _Draft, task: str, store: StoreSpec) -> list[PartitionDump]:
    if store.is_global:
        return [d for key, d in sorted(draft.dump.partitions.items()) if key.topic == store.changelog]
    key = TopicPartition(store.changelog or "", int(task.rpartition("_")[2]))
    found = draft.dump.partitions.get(key)
    return [found] if found else []


def _committed(draft: _Draft, store: StoreSpec, key: TopicPartition) -> int | None:
    if not store.source_topic:
        return None
    return draft.options.committed.get(key, draft.dump.committed.get(key))


def _task_steps(draft: _Draft, task: str, work: list[StoreWork], resolved: TaskOffsets | None) -> None:
    for one in work:
        verb = "rebuild" if one.rebuild else "catch up"
        offsets = ", ".join(f"{tp}={offset}" for tp, offset in sorted(one.offsets.items()))
        why = one.parts[0].verdict.why
        draft.steps.append(
            BuildStore(
                one.path,
                f"{verb} ({one.spec.kind}): up to {offsets}; {why}",
                replaces=one.rebuild,
                size=sum(piece.share for part in one.parts for piece in part.dump.pieces),
            )
        )
    names = {one.spec.name for one in work}
    others = [s for s in (resolved.stores if resolved else []) if s.store.name not in names]
    if draft.into_family:
        _files_of_family(draft, task, work, resolved, others)
    else:
        draft.steps += _checkpoint(draft, task, work, resolved, others)


def _files_of_family(
    draft: _Draft, task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> None:
    if resolved is not None and resolved.task.checkpoint is not None:
        # At its next start 4.3 would put the lines of that file over the offsets in the stores.
        if any(one.offsets for one in others) or resolved.absent:
            draft.refused.append(
                f"{task}: it has a .checkpoint, as releases up to 4.2 leave it: kstate migrate --to "
                f"{draft.options.release} first"
            )
        draft.steps.append(RemoveFile(f"{task}/.checkpoint", "its stores are restored: their offsets are in them"))
    for one in work:
        if one.spec.kind == "grace-buffer":
            draft.steps.append(_offsets_file(f"{task}/.checkpoint_{one.spec.name}", one.offsets))
        if resolved is not None and one.spec.name in resolved.task.position_files and one.rebuild:
            draft.steps.append(RemoveFile(f"{task}/{one.spec.name}.position", "the store is rebuilt"))


def _checkpoint(
    draft: _Draft, task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> Iterator[Step]:
    """``.checkpoint`` names every logged persistent store of the task, or Streams wipes it under exactly-once."""
    lines: dict[TopicPartition, int] = {}
    for other in others:
        lines |= other.offsets
    for absent in (resolved.absent if resolved else {}).values():
        lines |= absent
    for one in work:
        lines |= one.offsets
    yield _offsets_file(f"{task}/.checkpoint", lines)
    for one in work:
        if resolved is not None and one.spec.name in resolved.task.position_files and one.rebuild:
            yield RemoveFile(f"{task}/{one.spec.name}.position", "the store is rebuilt")


def _offsets_file(path: str, offsets: Mapping[TopicPartition, int]) -> WriteFile:
    text = ", ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items()))
    return WriteFile(path, render(offsets), f"offsets: {text}")


def expired_segment(app: Path, path: Path) -> OmitTree:
    """A segment that has expired since it was written."""
    return OmitTree(str(path.relative_to(app)), "older than the retention, by the records that were restored")
