"""The snapshot of a check: the application, the release, the guarantee, the topology and the logs at one moment.

Rules are functions of a snapshot, which never changes and reads no disk. :mod:`kstate_cli.check.snapshot_reader`
creates it. Streams looks for a store only in the task with the number of its sub-topology. So a topology that is to be
started may not find stores that the directory has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from itertools import combinations
from math import gcd
from pathlib import Path

from kstate_cli import option
from kstate_cli.check.findings import Finding, FindingCode, Level, Outcome, Records
from kstate_cli.check.hints import HintConditions, hint_conditions
from kstate_cli.check.logs import LogSource
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import usual_changelog
from kstate_cli.releases import OffsetsHome, Release, unproven_too
from kstate_cli.specification.draft import IN_MEMORY, SpecDraft, StoreDraft
from kstate_cli.specification.homes import Described, Home, StoreKey
from kstate_cli.specification.intervals import MIN_INTERVAL_MS
from kstate_cli.statedir.locks import Mount
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, LOCK
from kstate_cli.texts import Filling, filled, some

_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The start that the user asks about."""

    release: Release
    exactly_once: bool = True
    logs: tuple[LogSource, ...] = ()
    """The first source that knows a partition decides. The others only confirm that it is the same topic."""
    headers_format: bool = False
    """The application is started with ``dsl.store.format=HEADERS``."""
    transactional: bool = False
    """The next start uses transactional stores (KIP-892). So did the last run, if a database states nothing."""
    max_age: timedelta | None = None
    """``state.cleanup.dir.max.age.ms``; None is off, as it is by default."""
    delete_retention: timedelta | None = None
    """``delete.retention.ms`` of the changelogs. None: the setting of the broker or in the dump, otherwise a day."""
    topology: RequestedTopology | None = None
    """The topology to start; None is the one that ran here last."""

    @property
    def repeated_options(self) -> tuple[str, ...]:
        """Return the options that a command of a hint needs too, because its user has said so of the application."""
        options: tuple[str, ...] = ()
        if not self.exactly_once:
            options = (option.GUARANTEE, "at_least_once")
        if self.transactional:
            options = (*options, option.TRANSACTIONAL_STORES)
        return options

    @property
    def level_of_unclean(self) -> Level | None:
        """Return the level of findings about unclean stores: at least once, Streams opens them like any other."""
        return None if self.exactly_once else Level.EXPECTED

    @property
    def outcome_of_corruption(self) -> Outcome:
        """Return what follows from ``TaskCorruptedException``: at least once, the directory of the task stays."""
        return Outcome.WIPED if self.exactly_once else Outcome.RESTORES_ALL

    @property
    def starts_transactional(self) -> bool:
        """Return True if the next start uses transactional stores: the option is on, and the release has them."""
        return self.transactional and self.release.transactional

    @property
    def into_family(self) -> bool:
        """Return True for a release that keeps offsets in the column family."""
        return self.release.offsets_home is OffsetsHome.COLUMN_FAMILY


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The facts of ``CheckRequest.logs`` about every partition that a rule may need."""

    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    """Partition -> its log, from the first source that knows it."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Every partition that any source names."""
    missing: frozenset[TopicPartition] = frozenset()
    """Partitions for which the broker was asked, and that it does not have."""
    ids: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)
    """Partition -> the topic ids that the sources report."""
    counts: Mapping[tuple[TopicPartition, int], Records | None] = field(default_factory=dict)
    """(Partition, offset) -> the number of records from this offset to the end of the log."""


@dataclass(frozen=True, slots=True)
class KstateRun:
    """A run of kstate, with the facts that matter for a start of the application."""

    name: str
    damage: str | None = None
    """The reason why kstate does not understand it."""
    interrupted: bool = False
    kept_bytes: int = 0
    """The bytes of its backup, if that is old."""
    kept_since: str = ""
    """The day of the backup, as YYYY-MM-DD."""
    lost: str | None = None
    """The stores that exist in its backup only, as a sentence."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about the directory as a whole."""

    owner: int = 0
    """The uid that the application directory belongs to."""
    others: tuple[str, ...] = ()
    """Paths below it that belong to another user."""
    mount: Mount | None = None
    """The file system of the directory."""
    runs: tuple[KstateRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the rules of a check read."""

    app: Application
    request: CheckRequest
    resolved: Mapping[str, TaskOffsets]
    """Name of the task -> its offsets. No rule changes them."""
    now_ms: int
    entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The names in the directory of each task."""
    segments: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """The names in the folder of each segmented store, sorted."""
    write_ahead: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """The write-ahead logs of databases without CURRENT, sorted."""
    logs: LogSnapshot = field(default_factory=LogSnapshot)
    ages: Mapping[tuple[str, str], Age] = field(default_factory=dict)
    """The age of stores, by task and store, if a rule may need it."""
    around: Surroundings = field(default_factory=Surroundings)
    homes: Homes | None = None
    """The differences to the requested topology; ``app`` has its view then. None if no topology was requested."""
    _families: Mapping[_Family, list[Task]] = field(init=False, repr=False, compare=False)
    """The tasks of each sub-topology. They are grouped once, because rules need them for each store of each task."""
    hints: HintConditions = field(init=False, repr=False, compare=False)
    """The conditions for the commands of hints, computed once for all findings."""

    def __post_init__(self) -> None:
        families: dict[_Family, list[Task]] = {}
        for task in self.app.tasks:
            families.setdefault(task.sub_topology, []).append(task)
        # The class is frozen, so this part of its construction needs object.__setattr__.
        object.__setattr__(self, "_families", families)
        hints = hint_conditions(
            self.app,
            self.resolved.values(),
            exactly_once=self.request.exactly_once,
            into_family=self.request.into_family,
        )
        object.__setattr__(self, "hints", hints)

    @property
    def now_seconds(self) -> float:
        """Return the time of the snapshot, in seconds since 1970."""
        return self.now_ms / 1000

    def finding(self, code: FindingCode, text: str, task: Task | None = None, store: str | None = None,
                level: Level | None = None, hint: str | None = None) -> Finding:  # fmt: skip
        """Return a finding.

        Its hint is that of the code, or the template ``hint``, with the names of this directory.
        """
        name = task.name if task else None
        release, more = (
            self.request.release.version,
            (*unproven_too(self.request.release.name), *self.request.repeated_options),
        )
        values: dict[str, Filling | None]
        # Hints with RELEASE are commands that write for this release. So they need the options for an unproven release.
        values = {
            "APP": self.app.path,
            "RELEASE": (release, *more),
            "STARTED": release,
            "TASK": name,
            "STORE": store,
            # Words, because each word of a value is quoted.
            "UNLOGGED": tuple(some(self.hints.unlogged, _MAX_NAMES).split(" ")),
        }
        if self.request.topology is not None:
            # Only hints about rehome have NEW, and they occur only if a topology was requested.
            values["NEW"] = self.request.topology.rehome.words
        return Finding(
            code, level or code.level, filled(self.hints.accepted(hint or code.hint), values), text, name, store
        )

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition, by the first source that knows it."""
        return self.logs.logs.get(key)

    def lacks(self, key: TopicPartition) -> bool:
        """Return True if the broker has no such partition."""
        return key in self.logs.missing

    def records(self, key: TopicPartition, first: int) -> Records | None:
        """Return how many records follow from ``first`` to the end; None if no source knows the log.

        KeyError for what :mod:`kstate_cli.check.snapshot_reader` has not counted: a rule must not take that for none.
        """
        if key not in self.logs.logs:
            return None
        return self.logs.counts[key, first]

    def misplaced_segments(self, task: Task, store: Store) -> tuple[Database, ...]:
        """Return the segments that Streams does not open, because it would give them other names."""
        others = [other for sibling in self.siblings(task) for other in sibling.stores if other.name == store.name]
        return misplaced_segments(store, others)

    def siblings(self, task: Task) -> list[Task]:
        """Return the tasks of the same subtopology, other than ``task``."""
        # Compared by identity: equality would compare all stores of both tasks.
        return [other for other in self._families.get(task.sub_topology, ()) if other is not task]

    @property
    def has_global(self) -> bool:
        """Return True if the application has, or had, global stores on disk."""
        return any(task.is_global and task.stores for task in self.app.tasks)

    def changelog(self, task: Task, store: str) -> TopicPartition | None:
        """Return the changelog partition of a store, from its own offsets or those of the same store in other tasks.

        None if it has no offset in any of them: then it is unknown whether it has a changelog. If a topology was
        requested, tasks of all sub-topologies count.
        """
        # The usual name comes first: if a source has such a partition, it is the changelog.
        own = self.own_changelog(task, store)
        if own in self.logs.partitions:
            return own
        first = None
        for member in (task, *self.siblings(task)):
            for tp in self._offsets(member, store):
                if tp.topic == own.topic:
                    return own
                # This is a source topic, or the changelog under another application.id. It counts only if no usual name
                # is found.
                first = first or tp.topic
        if first is None and self.homes is not None:
            first = self.homes.topics.get(StoreKey(task.topology or "", store))
        if first is None:
            return None
        return TopicPartition(first, own.partition)

    def should_have(self, task: Task) -> frozenset[str]:
        """Return the stores that a task should have too: other tasks of its subtopology have them, or a text does."""
        if self.homes is not None:
            return frozenset(self.homes.missing.get(task.name, {}))
        return frozenset({store.name for other in self.siblings(task) for store in other.stores})

    def wiped_for(self, task: Task, store: str) -> bool | None:
        """Return True if a store that a task lacks costs it everything under exactly-once; None if its kind decides."""
        has_topic = self.changelog(task, store) is not None
        if self.homes is None:
            return has_topic
        return self.homes.wiped_for(task.name, store, has_topic=has_topic)

    def begins_empty(self, task: Task, store: str) -> bool:
        """Return True if a store that is in another task has no changelog to be restored from."""
        has_topic = self.changelog(task, store) is not None
        return self.homes is not None and self.homes.begins_empty(task.name, store, has_topic=has_topic)

    def _offsets(self, task: Task, store: str) -> list[TopicPartition]:
        """Return the partitions that any place of a task names for a store."""
        resolved = self.resolved[task.name]
        for state in resolved.stores:
            if state.store.name == store:
                return sorted(state.offsets)
        return sorted(resolved.absent.get(store, {}))

    def own_changelog(self, task: Task, store: str) -> TopicPartition:
        """Return the changelog partition of a store under its usual name."""
        return usual_changelog(self.app.app_id, task, store)

    def task_is_empty(self, task: Task) -> bool:
        """Return True if a task has no entry that counts for Streams (``StateDirectory.taskDirIsEmpty``).

        ``.checkpoint`` does not count. From 4.3 on, no name that begins with it does.
        """
        for name in self.entries[task.name]:
            is_ignored = name == CHECKPOINT
            if self.request.into_family:
                # Also ``.checkpoint_<store>`` and ``.checkpoint.tmp``.
                is_ignored = name.startswith(CHECKPOINT)
            if not is_ignored and not name.endswith(LOCK):
                return False
        return True


_Family = tuple[str | None, int | None]


def misplaced_segments(store: Store, others: Iterable[Store]) -> tuple[Database, ...]:
    """Return the segments whose start is not a multiple of the segment interval.

    No file states the interval. It divides the starts of the same store in other tasks. If there are none, it divides
    most of the starts of the store itself.
    """
    own = [d.segment_start for d in store.databases if d.segment_start]
    if not store.segmented or not own or reduce(gcd, own) >= MIN_INTERVAL_MS:
        return ()
    other_starts = [d.segment_start for other in others for d in other.databases if d.segment_start]
    # The store has the same interval in other tasks. The common divisor of all their starts is more certain than a
    # guess.
    grid = reduce(gcd, other_starts) if other_starts else _likely(own)
    if grid < MIN_INTERVAL_MS:
        return ()
    return tuple(d for d in store.databases if d.segment_start and d.segment_start % grid)


def _likely(starts: list[int]) -> int:
    """Return the interval that most of the starts are multiples of.

    Without one, the common divisor of their distances.
    """
    steps = [gcd(first, second) for first, second in combinations(starts, 2)]
    # The common divisor of two correct starts is a multiple of the interval. With a misplaced start it is less than any
    # possible interval.
    shared = [step for step in steps if step >= MIN_INTERVAL_MS]
    if not shared:
        return reduce(gcd, [abs(later - starts[0]) for later in starts[1:]], 0)
    # If several divide equally many starts, the largest is taken: 30 s divides everything that 60 s divides.
    return max(shared, key=lambda step: (sum(not start % step for start in starts), step))


@dataclass(frozen=True, slots=True)
class RehomePreview:
    """The result of planning ``kstate rehome`` for the same directory and topology."""

    words: tuple[str | os.PathLike[str], ...] = ()
    """The words after the option of the topology in the command of a hint."""
    refusal: str | None = None
    """The message of its refusal."""
    hint: str | None = None
    """The hint of its refusal."""
    warnings: tuple[str, ...] = ()
    """Its warnings, if its plan is not empty."""


@dataclass(frozen=True, slots=True)
class RequestedTopology:
    """The topology that is to be started, as the user describes it."""

    new: Described
    old: Described | None = None
    """The topology that ran here last; None if the user has not specified it."""
    spec: SpecDraft | None = None
    """The kinds of new stores."""
    rehome: RehomePreview = field(default_factory=RehomePreview)

    def store_draft(self, store: str) -> StoreDraft | None:
        """Return the specification of a store; None if it does not contain its kind."""
        if self.spec is None:
            return None
        draft = self.spec.store(store)
        if draft is None or draft.kind is None:
            return None
        return draft

    def is_on_disk(self, store: str) -> bool | None:
        """Return True if a store is persistent; None if nothing states it."""
        draft = self.store_draft(store)
        if draft is None:
            return None
        return draft.kind != IN_MEMORY

    def is_logged(self, store: str) -> bool:
        """Return False only if the specification states that a store has no changelog."""
        draft = self.store_draft(store)
        return draft is None or draft.logged is not False


@dataclass(frozen=True, slots=True)
class AbsentStore:
    """A store that a task should have, and that its directory does not have."""

    other_task: str | None = None
    """The task of the same partition that has the store."""
    logged: bool = True
    """True if it has a changelog, as far as the other task shows."""
    new: bool = False
    """No task of any partition has it, and the old topology did not have it either."""
    on_disk: bool | None = True
    """None if nothing shows whether it is on disk. A store in memory does not affect its task."""


@dataclass(frozen=True, slots=True)
class Homes:
    """The differences between the topology and the directory."""

    missing: Mapping[str, Mapping[str, AbsentStore]] = field(default_factory=dict)
    """Task -> store -> how the task lacks it."""
    left_over: frozenset[str] = frozenset()
    """Tasks of sub-topologies that the topology lacks."""
    elsewhere: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Task -> store -> the task where the topology looks for it; None if the topology has no such store."""
    unlogged: frozenset[tuple[str, str]] = frozenset()
    """Stores elsewhere that have rows and no changelog, by task and store."""
    topics: Mapping[StoreKey, str] = field(default_factory=dict)
    """Store -> the topic that it is restored from, if an offset of any partition names it."""
    stores: frozenset[str] = frozenset()
    """The names of all stores of which any task has rows or an offset."""
    global_unused: tuple[str, ...] = ()
    """Global stores of the directory that the topology lacks."""
    global_missing: tuple[str, ...] = ()
    """Global stores of the topology that the directory lacks."""
    global_on_disk: tuple[str, ...] = ()
    """Global stores of the topology, without those that are surely in memory."""
    unplaced: tuple[StoreKey, ...] = ()
    """Stores of sub-topologies that have nothing in the directory, so that their partitions are unknown."""

    def wiped_for(self, task: str, store: str, *, has_topic: bool) -> bool | None:
        """Return True if a store that a task lacks costs it everything under exactly-once; None if its kind decides.

        ``has_topic`` says that a topic is known from which the store would be restored.
        """
        missing = self.missing.get(task, {}).get(store)
        if missing is None or not (missing.other_task or missing.new):
            return has_topic
        if missing.other_task:
            return missing.logged or has_topic
        return missing.on_disk

    def begins_empty(self, task: str, store: str, *, has_topic: bool) -> bool:
        """Return True if a store that is elsewhere has no changelog to be restored from."""
        missing = self.missing.get(task, {}).get(store)
        return missing is not None and missing.other_task is not None and not (missing.logged or has_topic)


def home_of_store(topology: RequestedTopology, task: TaskId, store: str) -> str | None:
    """Return the task in which the topology has a store, for the partition of ``task``; None if it does not have it."""
    places = topology.new.places(StoreKey(task.topology or "", store))
    if not places or task.partition is None:
        return None
    # A store may belong to several sub-topologies (KAFKA-20464). If its own task is one of them, it stays there.
    if not task.is_global and Home.of(task) in places:
        return Home.of(task).task(task.partition)
    return places[0].task(task.partition)


def is_left_over(topology: RequestedTopology, task: TaskId) -> bool:
    """Return True if the topology has no sub-topology of a task's number, or one of global stores."""
    return not task.is_global and topology.new.part(Home.of(task)) is None
