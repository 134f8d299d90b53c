"""Plan a restoration from snapshots: from which generation each store comes, and which stores stay.

Stores are matched by their changelog topic and partition, never by the number of a task alone. The newest generation
that has a whole task decides which stores the task has. Each of these stores may come from another generation. No
broker takes part, so every judgement is the cautious one:

- An older generation with a higher offset counts only if topic ids show that both have the same log. A topic that was
  deleted and created again has the same name, and its old offsets are higher than its new ones. A directory that
  another host has left over looks the same. Without topic ids the restoration is refused until the user chooses.
- A store that exists, and has an offset, stays.
- Data is usable for 24 h (Kafka's default of ``delete.retention.ms``) less a margin. Later the log may have forgotten
  deletes, and keys would come back (docs/internals/changelogs.md#forgotten-deletes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.plan import BuildStore, Change, Plan, RemarkKind, steps_of, texts_of, warning
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition, offsets_text
from kstate_cli.logs import RETENTION_MS, DeleteCoverage, delete_coverage, set_back
from kstate_cli.offsets.keeping import Keeping, keeps_offsets_inside
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import resolve_to_plan
from kstate_cli.releases import RELEASES, OffsetsHome, Release, representative
from kstate_cli.snapshot.log_facts import (
    following,
    is_of_another_topic,
    most_cautious,
    topic_ids,
    why_not_continued,
)
from kstate_cli.snapshot.model import NamedGeneration, StoredDatabase, StoredStore, StoredTask
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import store_place
from kstate_cli.texts import did_you_mean, first_lines, moment, plural, quoted, some, span_text

_NS: Final = 1_000_000
_MOST_REFUSALS: Final = 20
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Which stores to restore, and what the user permits."""

    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    share: tuple[int, int] | None = None
    """(i, n), 1-based: every n-th of all tasks in order, beginning with the i-th."""
    elsewhere: frozenset[str] = frozenset()
    """Tasks of other hosts: they are not restored here."""
    only: frozenset[str] | None = None
    """The tasks of this host, if known: only these are restored, and global stores."""
    rebuild: bool = False
    """Existing stores are replaced, whatever their offsets."""
    accept_resurrected: bool = False
    """Rows whose deletes the log may have forgotten may come back."""
    continued: frozenset[TopicPartition] = frozenset()
    """The changelog partitions of a dump that continues the stores in the same run: its rules judge their age."""
    logs: Mapping[TopicPartition, LogFacts] | None = None
    """The logs as a broker states them now; None without a broker."""

    @property
    def command(self) -> str:
        """Return the command as the journal records it."""
        words = [
            f"restore {option.FROM_SNAPSHOT}",
            *(f"{option.TASK} {quoted(name)}" for name in sorted(self.tasks)),
            *(f"{option.STORE} {quoted(name)}" for name in sorted(self.stores)),
        ]
        if self.rebuild:
            words.append(option.REBUILD)
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class ChosenStore:
    """A store that is restored, and the generation that it comes from."""

    task: str
    store: StoredStore
    generation: str
    replaces: bool

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.store.name}"

    @property
    def path(self) -> str:
        """The store's folder, relative to the application directory."""
        return store_place(self.task, self.store.name, segmented=self.store.segmented).text


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The plan of the change engine, and the stores whose files it needs."""

    change: Plan
    stores: tuple[ChosenStore, ...]
    unchanged: Mapping[str, str]
    """``TASK/STORE`` -> why it stays."""
    logs: Mapping[TopicPartition, LogFacts] | None = None
    """The logs that the plan is based on; None without a broker."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all files to copy."""
        return sum(chosen.store.size for chosen in self.stores)


@dataclass(frozen=True, slots=True)
class StoreSource:
    """The copy of a store that a restoration takes, and what stands in its way."""

    task: str
    store: StoredStore
    generation: str
    why_not: str | None
    """Why a restoration refuses it; None if nothing shows that it does."""
    may_lack_deletes: bool
    """The log may have forgotten later deletes, so a restoration needs a dump or the consent of the user."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    generation: str
    task: StoredTask
    store: StoredStore


@dataclass(slots=True)
class _Outcomes:
    """What the rules yield."""

    changes: list[Change] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    too_old: dict[str, int | None] = field(default_factory=dict)
    """``TASK/STORE`` whose deletes the log may have forgotten -> as of when its data is, in ms; None: unknown."""
    retention_ms: int = RETENTION_MS
    """The least time for which the logs of these stores keep deletes, as the snapshots state it."""
    stores: list[ChosenStore] = field(default_factory=list)
    unchanged: dict[str, str] = field(default_factory=dict)
    task_times: dict[str, int] = field(default_factory=dict)


def plan_restore(
    app: Path,
    existing: Application | None,
    generations: Sequence[NamedGeneration],
    options: SnapshotOptions,
    *,
    now_ms: int,
    damaged: Sequence[str] = (),
) -> SnapshotPlan:
    """Return the plan. ``generations`` are those of the application, newest first; ``damaged`` are not readable.

    Raise Refused, naming everything that stands in the way, and UsageError for an unknown task or store.
    """
    outcomes = _Outcomes()
    # An older generation takes the place of a damaged one. Without a warning only the age of the data would show it.
    outcomes.changes += [warning(f"{text}. kstate restores from older snapshots instead") for text in damaged]
    layout = _layout(generations, outcomes)
    _refuse_unknown(layout, options)
    resolved = {}
    if existing is not None:
        resolved = {task.task.name: task for task in resolve_to_plan(existing)}
        _judge_directory(existing, outcomes)
    owners = {key: task.task.name for task in resolved.values() for store in task.stores for key in store.offsets}
    home = newest_home(generations)
    selected = _selected(layout, options)
    for name in selected:
        if layout[name].task.home is not home:
            outcomes.refusals.append(
                f"{name}: the release that wrote snapshot {layout[name].generation} keeps offsets in a different place "
                f"than that of the newest snapshot. Select one snapshot with {option.GENERATION}, or tasks of the same "
                f"release with {option.TASK}"
            )
            continue
        moved = _moved(layout[name].task, owners)
        if moved is not None:
            outcomes.refusals.append(moved)
            continue
        _plan_task(layout[name], resolved.get(name), generations, options, outcomes, now_ms)
    if outcomes.stores and existing is not None and _other_home(existing, home):
        place = "in its stores" if home is OffsetsHome.COLUMN_FAMILY else "in files"
        outcomes.refusals.append(
            f"the snapshot keeps offsets {place}, but {app} does not. Migrate the directory first, or move it away"
        )
    if outcomes.refusals:
        raise Refused(
            f"kstate cannot restore {app} from the snapshot",
            details=first_lines(outcomes.refusals, _MOST_REFUSALS),
            hint="fix each of these causes, then run the command again. kstate has not changed anything",
        )
    if outcomes.too_old:
        raise _too_old(app, outcomes, now_ms)
    release = release_of(home)
    change = Plan(
        app,
        options.command,
        release.name,
        release.name,
        steps_of(outcomes.changes),
        texts_of(outcomes.changes, RemarkKind.WARNING),
        texts_of(outcomes.changes, RemarkKind.NOTE),
        outcomes.task_times,
    )
    return SnapshotPlan(change, tuple(outcomes.stores), outcomes.unchanged, options.logs)


def sources(
    generations: Sequence[NamedGeneration], logs: Mapping[TopicPartition, LogFacts] | None, *, now_ms: int
) -> list[StoreSource]:
    """Return the copy of each store that a restoration of a lost directory takes, in the order of tasks.

    ``generations`` are those of one application, newest first; ``logs`` are None without a broker.
    """
    layout = _layout(generations, _Outcomes())
    options = SnapshotOptions(logs=logs)
    copies = []
    for name in sorted(layout, key=lambda task: TaskId.parse(task).order):
        for store in layout[name].task.stores:
            # The rules of one store, so that the refusal of another one does not hide it.
            outcomes = _Outcomes()
            candidate = _best(layout[name], store, generations, options, outcomes)
            judged, why_not = candidate.store, next(iter(outcomes.refusals), None)
            if logs is not None and why_not is None:
                why_not = why_not_continued(judged, logs, is_global=name == GLOBAL)
            if logs is not None and why_not is None:
                judged = most_cautious(judged, logs)
            may_lack = _may_lack_deletes(judged, now_ms, name)
            copies.append(StoreSource(name, candidate.store, candidate.generation, why_not, may_lack))
    return copies


def newest_home(generations: Sequence[NamedGeneration]) -> OffsetsHome:
    """Return where the release of the newest generation keeps offsets; that of a whole task counts first."""
    tasks = [task for generation in generations for task in generation.content.tasks if task.stores]
    ordered = sorted(tasks, key=lambda task: not task.is_whole)
    return next((task.home for task in ordered), OffsetsHome.COLUMN_FAMILY)


def release_of(home: OffsetsHome) -> Release:
    """Return the release that a plan names for stores that keep offsets there."""
    return representative([release for release in RELEASES if release.offsets_home is home])


def _too_old(app: Path, outcomes: _Outcomes, now_ms: int) -> Refused:
    """Return the refusal for data that the log may not be able to continue."""
    stores = outcomes.too_old
    names = some(list(stores), _MOST_NAMES)
    times = [as_of for as_of in stores.values() if as_of is not None]
    details = []
    if times:
        oldest = min(times)
        details.append(f"the oldest data is from {moment(oldest)}, {span_text(max(0, now_ms - oldest))} ago")
    if len(times) < len(stores):
        details.append("kstate does not know how old the data of some stores is")
    unless = ""
    if outcomes.retention_ms == RETENTION_MS:
        unless = ", unless their delete.retention.ms is longer"
    return Refused(
        f"deleted keys would reappear in {plural(len(stores), 'store')} of {app}: {names}",
        details=[*details, f"the changelogs keep tombstones for {span_text(outcomes.retention_ms)}{unless}"],
        hint="restore from a dump of the changelogs, or start the application without a directory. If it never "
        f"deletes keys, or you accept that deleted keys reappear, pass {option.ACCEPT_RESURRECTED}",
    )


# --- which tasks there are --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Named:
    generation: str
    task: StoredTask


def _layout(generations: Sequence[NamedGeneration], outcomes: _Outcomes) -> dict[str, _Named]:
    """Return the task of each name that decides which stores it has: the newest whole one, else the newest in part."""
    layout: dict[str, _Named] = {}
    owners: dict[TopicPartition, str] = {}
    for whole in (True, False):
        for generation in generations:
            for task in generation.content.tasks:
                if task.is_whole is not whole or task.name in layout:
                    continue
                why = _outdated(task, layout, owners)
                if why is not None:
                    text = f"kstate does not restore task {task.name} of snapshot {generation.name}, because {why}"
                    outcomes.changes.append(warning(text))
                    # One warning for each name: older generations of the same numbering would repeat it.
                    layout[task.name] = _Named(generation.name, _without_stores(task))
                    continue
                layout[task.name] = _Named(generation.name, task)
                owners.update({key: task.name for store in task.stores for key in store.offsets})
    return {name: named for name, named in layout.items() if named.task.stores}


def _without_stores(task: StoredTask) -> StoredTask:
    return StoredTask(task.name, task.mtime_ns, task.home, is_whole=True, stores=())


def _outdated(task: StoredTask, layout: Mapping[str, _Named], owners: Mapping[TopicPartition, str]) -> str | None:
    """Return why a task is of an older topology than a newer generation; None if it is not.

    The number of a task is a position in the topology: an added or removed sub-topology shifts it. Two signs show that.
    """
    for store in task.stores:
        for key in store.offsets:
            if key in owners:
                return f"in a newer snapshot, {store.name} with {key} belongs to task {owners[key]}"
    if not task.is_whole or task.name == GLOBAL:
        return None
    number = _subtopology(task.name)
    names = {store.name for store in task.stores}
    for name, named in layout.items():
        if name != GLOBAL and named.task.is_whole and named.task.stores and _subtopology(name) == number:
            other = {store.name for store in named.task.stores}
            if other != names:
                text = ", ".join(sorted(names ^ other))
                return f"task {name} has different stores in the newer snapshot {named.generation} ({text})"
    return None


def _subtopology(task: str) -> tuple[str | None, int | None]:
    parsed = TaskId.parse(task)
    return parsed.topology, parsed.subtopology


def _refuse_unknown(layout: Mapping[str, _Named], options: SnapshotOptions) -> None:
    stores = {store.name for named in layout.values() for store in named.task.stores}
    for requested, names, noun in ((options.tasks, layout.keys(), "task"), (options.stores, stores, "store")):
        unknown = sorted(requested - names)
        if unknown:
            raise UsageError(
                f"the snapshot does not contain {noun} {', '.join(unknown)}",
                hint=f"{did_you_mean(unknown, set(names))}it contains the {noun}s {', '.join(sorted(names))}",
            )


def _selected(layout: Mapping[str, _Named], options: SnapshotOptions) -> list[str]:
    """Return the tasks of this host, in order. Global stores are on every host."""
    ordered = sorted(layout, key=lambda name: TaskId.parse(name).order)
    tasks = [name for name in ordered if name != GLOBAL]
    if options.share is not None:
        number, parts = options.share
        # Those that other hosts have do not count, as in a restoration from a dump.
        tasks = [name for name in tasks if name not in options.elsewhere][number - 1 :: parts]
    chosen = set(tasks) - options.elsewhere
    if options.only is not None:
        chosen &= options.only
    chosen.add(GLOBAL)
    if options.tasks:
        chosen &= options.tasks
    return [name for name in ordered if name in chosen]


# --- one task ---------------------------------------------------------------------------------------------------------


def _judge_directory(existing: Application, outcomes: _Outcomes) -> None:
    """Refuse a directory with anything that kstate does not understand: a copy of it would hide that."""
    for problem in existing.all_problems():
        if problem.fatal:
            outcomes.refusals.append(problem.reasoned)


def _moved(task: StoredTask, owners: Mapping[TopicPartition, str]) -> str | None:
    """Return why a task is not restored beside the existing ones: its number is that of another topology."""
    for store in task.stores:
        for key in store.offsets:
            if owners.get(key, task.name) != task.name:
                return (
                    f"{task.name}/{store.name}: in the directory, {key} belongs to task {owners[key]}, so the topology "
                    "has changed since the snapshot"
                )
    return None


def _other_home(existing: Application, home: OffsetsHome) -> bool:
    has_stores = any(store.databases for task in existing.tasks for store in task.stores)
    return has_stores and keeps_offsets_inside(existing) is not (home is OffsetsHome.COLUMN_FAMILY)


def _plan_task(
    named: _Named,
    resolved: TaskOffsets | None,
    generations: Sequence[NamedGeneration],
    options: SnapshotOptions,
    outcomes: _Outcomes,
    now_ms: int,
) -> None:
    task = named.task
    present: dict[str, StoreOffsets] = {}
    if resolved is not None:
        present = {store.store.name: store for store in resolved.stores}
    chosen: list[ChosenStore] = []
    for store in task.stores:
        if options.stores and store.name not in options.stores:
            continue
        why = _why_stays(present.get(store.name), resolved, options)
        if why is not None:
            outcomes.unchanged[f"{task.name}/{store.name}"] = why
            continue
        candidate = _best(named, store, generations, options, outcomes)
        if _stands_in_the_way(present.get(store.name), options):
            outcomes.refusals.append(
                f"{task.name}/{store.name} exists, but Kafka Streams may not accept its rows at startup. To "
                f"replace it with the store of the snapshot, pass {option.REBUILD}"
            )
            continue
        judged = candidate.store
        if options.logs is not None and not _is_continued(judged, options):
            why = why_not_continued(judged, options.logs, is_global=task.name == GLOBAL)
            if why is not None:
                # The store counts as chosen all the same: that the task lacks it is no second reason.
                outcomes.refusals.append(
                    f"{task.name}/{store.name}: {why}. Restore the store from a dump, or start the application without "
                    "a directory"
                )
                chosen.append(ChosenStore(task.name, candidate.store, candidate.generation, store.name in present))
                continue
            judged = most_cautious(judged, options.logs)
        if _is_judged_here(judged, options) and _may_lack_deletes(judged, now_ms, task.name):
            first = not outcomes.too_old
            outcomes.too_old[f"{task.name}/{store.name}"] = judged.as_of_ms
            retention_ms = judged.delete_retention_ms
            outcomes.retention_ms = retention_ms if first else min(retention_ms, outcomes.retention_ms)
        chosen.append(ChosenStore(task.name, candidate.store, candidate.generation, store.name in present))
    if not chosen:
        return
    _refuse_part(task, present, chosen, outcomes)
    _judge_rest(task, resolved, chosen, outcomes)
    outcomes.stores += chosen
    outcomes.changes += _steps(task, resolved, chosen)
    if resolved is None:
        outcomes.task_times[task.name] = _age_of_task(task, chosen)


def _refuse_part(
    task: StoredTask, present: Mapping[str, StoreOffsets], chosen: Sequence[ChosenStore], outcomes: _Outcomes
) -> None:
    """Refuse some stores of a task whose other logged stores would be missing.

    Under exactly-once the next start wipes a task with rows in which a logged store has no offset
    (docs/internals/start.md#wiped-tasks), and with it what was restored.
    """
    names = {store.store.name for store in chosen}
    exist = {name for name, store in present.items() if store.store.databases or store.has_offset}
    missing = sorted(store.name for store in task.stores if store.offsets and store.name not in names | exist)
    if missing:
        outcomes.refusals.append(
            f"{task.name}: without {some(missing, _MOST_NAMES)}, Kafka Streams may wipe the task at startup. "
            f"Restore the whole task, without {option.STORE}"
        )


def _why_stays(present: StoreOffsets | None, resolved: TaskOffsets | None, options: SnapshotOptions) -> str | None:
    """Return why an existing store stays; None if it is restored, or if it stands in the way.

    A snapshot is older than a healthy store. A lower offset is no reason to replace it: without the log nothing shows
    that both have the same one.
    """
    if present is None or resolved is None or options.rebuild or not present.store.databases:
        return None
    if present.has_offset and not resolved.unclean:
        return f"it already exists with offset {offsets_text(present.offsets)} (to replace it, pass {option.REBUILD})"
    if not present.offsets and not present.store.empty and not resolved.unclean:
        return f"it already exists and has no changelog (to replace it, pass {option.REBUILD})"
    return None


def _stands_in_the_way(present: StoreOffsets | None, options: SnapshotOptions) -> bool:
    """Return whether a store exists that neither stays nor may be replaced: the options do not rebuild it."""
    return present is not None and bool(present.store.databases) and not options.rebuild


def _is_judged_here(store: StoredStore, options: SnapshotOptions) -> bool:
    """Return whether the age of a store counts: a dump has the deletes, and the user may accept that some lack."""
    return not options.accept_resurrected and not _is_continued(store, options)


def _is_continued(store: StoredStore, options: SnapshotOptions) -> bool:
    """Return whether a dump adds the later records of a store in the same run."""
    return bool(store.offsets) and options.continued.issuperset(store.offsets)


def _may_lack_deletes(store: StoredStore, now_ms: int, task: str) -> bool:
    """Return whether the log may have forgotten deletes since the data of a store was written.

    The data of a store without rows cannot come back, and a store without a changelog is never continued.
    """
    if not store.has_rows or (not store.offsets and task != GLOBAL):
        return False
    if store.as_of_ms is None or set_back(store.as_of_ms, now_ms, store.delete_retention_ms):
        return True
    if any(
        key in store.logs and following(_rows_as_of(store, key), is_global=task == GLOBAL) < store.logs[key].start
        for key in store.offsets
    ):
        # Records between the store and the log were gone already: only a dump may have them.
        return True
    return delete_coverage(store.as_of_ms, now_ms, store.delete_retention_ms) is not DeleteCoverage.YES


def _rows_as_of(store: StoredStore, key: TopicPartition) -> int:
    """Return the offset that the rows of a store have reached at least; -1 if it is unknown.

    The offset of a store is unknown if one of its segments was never flushed. That segment has no row that could come
    back, so the offsets of the others count.
    """
    offset = store.offsets[key]
    if offset != OFFSET_UNKNOWN:
        return offset
    records = [database.offsets for database in store.databases if any(_row_files(database))]
    stated = [record.offsets.get(key, OFFSET_UNKNOWN) if record else OFFSET_UNKNOWN for record in records]
    # A log that begins at 0 has lost nothing, whatever the rows have reached.
    return max(-1, min(stated, default=-1))


def _row_files(database: StoredDatabase) -> Iterator[tuple[str, ...]]:
    return (files for family, files in database.families.items() if family != OFFSETS_CF)


def _best(
    named: _Named,
    store: StoredStore,
    generations: Sequence[NamedGeneration],
    options: SnapshotOptions,
    outcomes: _Outcomes,
) -> _Candidate:
    """Return the generation of the highest offset of the same log; the newest one if nothing shows that it is the same.

    A store without a changelog comes from the newest generation: its rows are nowhere else.
    """
    candidates = [
        _Candidate(generation.name, task, other)
        for generation in generations
        for task in generation.content.tasks
        for other in task.stores
        if _same_store(task, other, named.task, store)
    ]
    # The broker decides between two logs of one name. If no snapshot has its log, the newest one is refused.
    candidates = [each for each in candidates if _is_of_logs(each.store, options.logs)] or candidates
    best = candidates[0]
    if not store.offsets:
        return _Candidate(named.generation, named.task, store)
    for candidate in candidates[1:]:
        if not _ahead(candidate.store.offsets, best.store.offsets):
            continue
        if _other_log(candidate.store, best.store):
            text = f"{named.task.name}/{store.name}: its topic was recreated after snapshot {candidate.generation}"
            outcomes.changes.append(warning(f"{text}, so kstate restores from the newer snapshot {best.generation}"))
        elif _same_log(candidate.store, best.store):
            best = candidate
        else:
            # A directory that another host has left over, or a recreated topic: only the user can tell them apart.
            outcomes.refusals.append(
                f"{named.task.name}/{store.name}: its offset in snapshot {candidate.generation} is higher "
                f"({offsets_text(candidate.store.offsets)}) than in the newer snapshot {best.generation}, and kstate "
                f"cannot confirm that both come from the same log. Choose one with {option.GENERATION}"
            )
            break
    return best


def _is_of_logs(store: StoredStore, logs: Mapping[TopicPartition, LogFacts] | None) -> bool:
    """Return whether nothing shows that a store is of another log than the broker has."""
    return not any(key in (logs or {}) and is_of_another_topic(store, key, (logs or {})[key]) for key in store.offsets)


def _same_store(task: StoredTask, store: StoredStore, target: StoredTask, target_store: StoredStore) -> bool:
    """Return whether two entries are of one store: of one changelog, in one layout of files."""
    same_layout = (store.segmented, store.kind, task.home) == (target_store.segmented, target_store.kind, target.home)
    return store.name == target_store.name and same_layout and store.offsets.keys() == target_store.offsets.keys()


def _ahead(offsets: Mapping[TopicPartition, int], others: Mapping[TopicPartition, int]) -> bool:
    """Return whether offsets are higher in one partition, and lower in none."""
    return offsets != others and all(offset >= others[key] for key, offset in offsets.items())


def _other_log(store: StoredStore, other: StoredStore) -> bool:
    """Return whether the broker stated other topic ids when the two snapshots were taken."""
    keys = [key for key in store.offsets if key in store.logs and key in other.logs]
    ids = [(store.logs[key].topic_id, other.logs[key].topic_id) for key in keys]
    return any(None not in pair and pair[0] != pair[1] for pair in ids)


def _same_log(store: StoredStore, other: StoredStore) -> bool:
    # An id may come from the broker, or from the dump that the store was restored from. Several ones contradict.
    return all(len(ids := topic_ids(store, key)) == 1 and ids == topic_ids(other, key) for key in store.offsets)


def _judge_rest(
    task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore], outcomes: _Outcomes
) -> None:
    """Refuse a task whose other stores would make the next start wipe, or misread, what is restored beside them."""
    if resolved is None:
        return
    names = {store.store.name for store in chosen}
    staying = [store.store.name for store in resolved.stores if store.store.name not in names]
    if resolved.unclean and staying:
        outcomes.refusals.append(
            f"{task.name}: it was not closed cleanly ({resolved.unclean[0]}), and kstate would not replace "
            f"{', '.join(staying)}. Under exactly-once, Kafka Streams would wipe the whole task at startup. Wipe the "
            "task first, then restore it completely"
        )
    if task.home is OffsetsHome.COLUMN_FAMILY and resolved.task.checkpoint is not None:
        outcomes.refusals.append(
            f"{task.name}: it has a .checkpoint file, and at startup, Kafka Streams would replace the offsets in its "
            "stores with the offsets in that file. Migrate the directory first"
        )


def _age_of_task(task: StoredTask, chosen: Sequence[ChosenStore]) -> int:
    """Return the mtime of a restored task directory, in ns: not younger than its oldest data.

    4.3 deletes task directories by their mtime at a start (``state.cleanup.dir.max.age.ms``).
    """
    times = [store.store.as_of_ms * _NS for store in chosen if store.store.as_of_ms and store.store.has_rows]
    return min([task.mtime_ns, *times])


def _steps(task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]) -> Iterator[Change]:
    """Yield the steps of one task: its stores, and the files beside them that state their offsets."""
    for store in chosen:
        offsets = offsets_text(store.store.offsets) or "no changelog"
        text = f"{store.store.kind}, {offsets}; {plural(len(list(store.store.files)), 'file')} of {store.generation}"
        yield BuildStore(store.path, text, replaces=store.replaces, size=store.store.size)
        if not store.store.offsets and store.store.has_rows:
            yield warning(
                f"{store.title}: it has no changelog, so the rows that the application added after snapshot "
                f"{store.generation} are lost"
            )
    keeping = Keeping(task.name)
    if task.home is OffsetsHome.FILES:
        yield from _offset_files(keeping, task, resolved, chosen)
        return
    for store in chosen:
        if store.store.in_file:
            yield keeping.lines_of(store.store.name, store.store.offsets)
    if _is_replaced(resolved, chosen):
        for name, keys in sorted(task.absent.items()):
            # A custom store has no data in a restored task: -4 has it read from the beginning of its changelog.
            yield keeping.lines_of(name, dict.fromkeys(keys, OFFSET_UNKNOWN))


def _is_replaced(resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]) -> bool:
    """Return whether no store of an existing task stays: it is then restored as a missing one."""
    if resolved is None:
        return True
    names = {store.store.name for store in chosen}
    return all(store.store.name in names for store in resolved.stores)


def _offset_files(
    keeping: Keeping, task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]
) -> Iterator[Change]:
    """Yield ``.checkpoint`` and the Positions of a release that keeps them in files."""
    lines: dict[TopicPartition, int] = {}
    if task.name != GLOBAL and _is_replaced(resolved, chosen):
        # Under exactly-once a logged store without a line wipes the whole task (docs/internals/start.md#wiped-tasks).
        lines |= {key: OFFSET_UNKNOWN for keys in task.absent.values() for key in keys}
    if resolved is not None and resolved.task.checkpoint is not None:
        lines |= resolved.task.checkpoint.entries
    for store in chosen:
        lines |= store.store.offsets
    if lines:
        yield keeping.lines(lines)
    for store in chosen:
        if store.store.position is not None and not store.store.position.is_empty:
            yield keeping.position(store.store.name, store.store.position, "Position of the snapshot")
        elif resolved is not None and store.store.name in resolved.task.position_files:
            yield keeping.without_position(store.store.name, "the store is replaced")
