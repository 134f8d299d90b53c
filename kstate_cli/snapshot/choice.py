"""From which generation each task and each store of a snapshot comes, and what a copy may lack.

Stores are matched by their changelog topic and partition, never by the number of a task alone. The newest generation
that has a whole task decides which stores the task has. Each of these stores may come from another generation.

- An older generation with a higher offset counts only if topic ids show that both have the same log. A topic that was
  deleted and created again has the same name, and its old offsets are higher than its new ones. A directory that
  another host has left over looks the same. Without topic ids the restoration is refused until the user chooses.
- Data is usable for 24 h (Kafka's default of ``delete.retention.ms``) less a margin. Later the log may have forgotten
  deletes, and keys would come back (docs/internals/changelogs.md#forgotten-deletes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition, offsets_text
from kstate_cli.logs import DeleteCoverage, delete_coverage, set_back
from kstate_cli.releases import RELEASES, OffsetsHome, Release, representative
from kstate_cli.snapshot.log_facts import (
    following,
    is_of_another_topic,
    most_cautious,
    topic_ids,
    why_not_continued,
)
from kstate_cli.snapshot.model import NamedGeneration, StoredDatabase, StoredStore, StoredTask

_Identity: TypeAlias = tuple[str, bool, str, OffsetsHome, frozenset[TopicPartition]]
"""What two copies of one store have in common: its name, layout and changelog."""


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
class NamedTask:
    """A task of a generation."""

    generation: str
    task: StoredTask


@dataclass(frozen=True, slots=True)
class StoreCandidate:
    """The copy of a store in one generation."""

    generation: str
    store: StoredStore


@dataclass(frozen=True, slots=True)
class SnapshotLayout:
    """The tasks of a snapshot, each as the generation has it that decides which stores it has."""

    tasks: Mapping[str, NamedTask]
    warnings: tuple[str, ...]
    """A sentence for each task of an older topology, which is not restored."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Task that the newest snapshot of a host skipped, and that no snapshot has -> a sentence with the reason."""


@dataclass(frozen=True, slots=True)
class CopyChoice:
    """The copy of a store that a restoration takes."""

    candidate: StoreCandidate
    warnings: tuple[str, ...]
    """A sentence for each copy with a higher offset of a topic that was recreated."""
    refusal: str | None
    """Why only the user can choose between two copies."""


class GenerationCopies:
    """The copies of every store in all generations of an application."""

    def __init__(self, generations: Sequence[NamedGeneration]) -> None:
        """Take the generations, newest first."""
        self._copies: dict[_Identity, list[StoreCandidate]] = {}
        for generation in generations:
            for task, store in generation.content.stores:
                candidate = StoreCandidate(generation.name, store)
                self._copies.setdefault(_identity(task, store), []).append(candidate)

    def of(self, task: StoredTask, store: StoredStore) -> Sequence[StoreCandidate]:
        """Return the copies of one store, newest first: of one changelog, in one layout of files."""
        return self._copies[_identity(task, store)]


def _identity(task: StoredTask, store: StoredStore) -> _Identity:
    return store.name, store.segmented, store.kind, task.home, frozenset(store.offsets)


def sources(
    generations: Sequence[NamedGeneration], logs: Mapping[TopicPartition, LogFacts] | None, *, now_ms: int
) -> list[StoreSource]:
    """Return the copy of each store that a restoration of a lost directory takes, in the order of tasks.

    ``generations`` are those of one application, newest first; ``logs`` are None without a broker.
    """
    tasks = read_layout(generations).tasks
    copies = GenerationCopies(generations)
    store_sources = []
    for name in sorted(tasks, key=lambda task: TaskId.parse(task).order):
        for store in tasks[name].task.stores:
            choice = choose_copy(tasks[name], store, copies, logs)
            candidate, judged, why_not = choice.candidate, choice.candidate.store, choice.refusal
            if logs is not None and why_not is None:
                why_not = why_not_continued(judged, logs, is_global=name == GLOBAL)
            if logs is not None and why_not is None:
                judged = most_cautious(judged, logs)
            may_lack = may_lack_deletes(judged, now_ms, name)
            store_sources.append(StoreSource(name, candidate.store, candidate.generation, why_not, may_lack))
    return store_sources


def newest_home(generations: Sequence[NamedGeneration]) -> OffsetsHome:
    """Return where the release of the newest generation keeps offsets; that of a whole task counts first."""
    tasks = [task for generation in generations for task in generation.content.tasks if task.stores]
    ordered = sorted(tasks, key=lambda task: not task.is_whole)
    return next((task.home for task in ordered), OffsetsHome.COLUMN_FAMILY)


def release_of(home: OffsetsHome) -> Release:
    """Return the release that a plan names for stores that keep offsets there."""
    return representative([release for release in RELEASES if release.offsets_home is home])


# --- which tasks there are --------------------------------------------------------------------------------------------


def read_layout(generations: Sequence[NamedGeneration]) -> SnapshotLayout:
    """Return the task of each name that decides which stores it has: the newest whole one, else the newest in part."""
    layout: dict[str, NamedTask] = {}
    owners: dict[TopicPartition, str] = {}
    warnings: list[str] = []
    for is_whole in (True, False):
        for generation in generations:
            for task in generation.content.tasks:
                if task.is_whole is not is_whole or task.name in layout:
                    continue
                why = _outdated(task, layout, owners)
                if why is not None:
                    warnings.append(
                        f"kstate does not restore task {task.name} from snapshot {generation.name}, because {why}"
                    )
                    # One warning for each name: older generations of the same numbering would repeat it.
                    layout[task.name] = NamedTask(generation.name, _without_stores(task))
                    continue
                layout[task.name] = NamedTask(generation.name, task)
                owners.update({key: task.name for store in task.stores for key in store.offsets})
    tasks = {name: named for name, named in layout.items() if named.task.stores}
    return SnapshotLayout(tasks, tuple(warnings), _skipped(generations, layout.keys()))


def _skipped(generations: Sequence[NamedGeneration], present: Collection[str]) -> dict[str, str]:
    """Return the tasks that the newest generation of a host skipped, unless a generation has them."""
    skipped: dict[str, str] = {}
    hosts: set[str] = set()
    for generation in generations:
        host = generation.content.host
        # An older generation of the same host may have skipped a task that the host no longer has.
        if host in hosts:
            continue
        hosts.add(host)
        for task, why in generation.content.skipped.items():
            if task not in present and task not in skipped:
                text = f"kstate cannot copy task {task}, because snapshot {generation.name} does not contain it"
                skipped[task] = f"{text}: {why}"
    return skipped


def _without_stores(task: StoredTask) -> StoredTask:
    return StoredTask(task.name, task.mtime_ns, task.home, is_whole=True, stores=())


def _outdated(task: StoredTask, layout: Mapping[str, NamedTask], owners: Mapping[TopicPartition, str]) -> str | None:
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


# --- which copy of a store is taken -----------------------------------------------------------------------------------


def choose_copy(
    named: NamedTask, store: StoredStore, copies: GenerationCopies, logs: Mapping[TopicPartition, LogFacts] | None
) -> CopyChoice:
    """Return the generation of the highest offset of the same log; the newest one if nothing shows that it is the same.

    A store without a changelog comes from the newest generation: its rows are nowhere else.
    """
    if not store.offsets:
        return CopyChoice(StoreCandidate(named.generation, store), (), None)
    candidates = copies.of(named.task, store)
    # The broker decides between two logs of one name. If no snapshot has its log, the newest one is refused.
    candidates = [each for each in candidates if _is_of_logs(each.store, logs)] or candidates
    best = candidates[0]
    warnings = []
    for candidate in candidates[1:]:
        if not _ahead(candidate.store.offsets, best.store.offsets):
            continue
        if _other_log(candidate.store, best.store):
            text = f"{named.task.name}/{store.name}: its topic was recreated after snapshot {candidate.generation}"
            warnings.append(f"{text}, so kstate restores from the newer snapshot {best.generation}")
        elif _same_log(candidate.store, best.store):
            best = candidate
        else:
            # A directory that another host has left over, or a recreated topic: only the user can tell them apart.
            refusal = (
                f"{named.task.name}/{store.name}: its offset in snapshot {candidate.generation} "
                f"({offsets_text(candidate.store.offsets)}) is higher than in the newer snapshot {best.generation}, "
                "and kstate cannot confirm that both come from the same log. Choose a snapshot with "
                f"{option.GENERATION}"
            )
            return CopyChoice(best, tuple(warnings), refusal)
    return CopyChoice(best, tuple(warnings), None)


def _is_of_logs(store: StoredStore, logs: Mapping[TopicPartition, LogFacts] | None) -> bool:
    """Return whether nothing shows that a store is of another log than the broker has."""
    return not any(key in (logs or {}) and is_of_another_topic(store, key, (logs or {})[key]) for key in store.offsets)


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


# --- what a copy may lack ---------------------------------------------------------------------------------------------


def may_lack_deletes(store: StoredStore, now_ms: int, task: str) -> bool:
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
