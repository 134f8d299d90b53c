"""What a check knows: the application, the release, the guarantee, the logs, all as it was at one moment.

Nothing here reads a disk or changes: rules are functions of a snapshot, which :mod:`kstate_cli.check.snapshot_reader`
makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from kstate_cli.check.findings import Finding, FindingCode, Level
from kstate_cli.check.logs import LogSource
from kstate_cli.check.misplaced_segments import misplaced_segments
from kstate_cli.check.outcome import Records
from kstate_cli.check.topology import AskedTopology, Homes
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log
from kstate_cli.offsets.ages import Age
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.releases import OffsetsHome, Release, unproven_too
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.locks import Mount
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, LOCK
from kstate_cli.texts import TRANSACTIONAL_STORES, Filling, filled


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What the user asks about."""

    release: Release
    exactly_once: bool = True
    logs: tuple[LogSource, ...] = ()
    """The first that knows a partition tells; the others only whether they name the same topic."""
    headers_format: bool = False
    """The application is started with ``dsl.store.format=HEADERS``."""
    transactional: bool = False
    """The next start uses transactional stores (KIP-892), and the last run did if a database states nothing."""
    max_age: timedelta | None = None
    """``state.cleanup.dir.max.age.ms``; None is off, as it is by default."""
    delete_retention: timedelta | None = None
    """``delete.retention.ms`` of the changelogs; None: what the broker or the dump says, or a day."""
    topology: AskedTopology | None = None
    """None: the one that ran here last."""

    @property
    def vouched(self) -> tuple[str, ...]:
        """Return the options that a command of a hint needs too, because its user has said so of the application."""
        guarantee = () if self.exactly_once else ("--guarantee", "at_least_once")
        return (*guarantee, *((TRANSACTIONAL_STORES,) if self.transactional else ()))

    @property
    def starts_transactional(self) -> bool:
        """Return True if the next start uses transactional stores: the option is on, and the release has them."""
        return self.transactional and self.release.transactional

    @property
    def into_family(self) -> bool:
        """True for a release that keeps offsets in the column family."""
        return self.release.offsets_home is OffsetsHome.COLUMN_FAMILY


@dataclass(frozen=True, slots=True)
class KnownLogs:
    """What the sources of ``CheckRequest.logs`` say of every partition that a rule may ask for."""

    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    """By the first source that knows the partition."""
    known: frozenset[TopicPartition] = frozenset()
    """Every partition that any source names."""
    lacking: frozenset[TopicPartition] = frozenset()
    """Partitions that the broker was asked for, and has not."""
    ids: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)
    """The ids of the topic, by each source that knows one."""
    counts: Mapping[tuple[TopicPartition, int], Records | None] = field(default_factory=dict)
    """How many records lie from an offset to the end."""


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run of kstate, as far as a start of the application meets it."""

    name: str
    damage: str | None = None
    """Why it is not understood."""
    interrupted: bool = False
    kept_bytes: int = 0
    """What it keeps for undo, where that is old."""
    kept_since: str = ""
    """The day."""
    lost: str | None = None
    """What it keeps and the directory has nothing of any more, in words."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is true of the directory as a whole."""

    owner: int = 0
    """The uid that the application directory belongs to."""
    others: tuple[str, ...] = ()
    """Paths below it that belong to somebody else."""
    mount: Mount | None = None
    """What it lies on."""
    runs: tuple[RunSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a check looks at."""

    app: Application
    asked: CheckRequest
    resolved: Mapping[str, TaskOffsets]
    """By the name of the task; nobody changes them."""
    now_ms: int
    entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The names in the directory of each task."""
    segments: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """The names in the folder of each segmented store, sorted."""
    write_ahead: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """The write-ahead logs of databases without CURRENT, sorted."""
    logs: KnownLogs = field(default_factory=KnownLogs)
    ages: Mapping[tuple[str, str], Age] = field(default_factory=dict)
    """What is known of the age of stores, by task and store, where a rule may ask for it."""
    around: Surroundings = field(default_factory=Surroundings)
    homes: Homes | None = None
    """What the topology finds that is asked about: the tasks are as it sees them then. None: nobody asks about one."""
    _families: Mapping[_Family, list[Task]] = field(init=False, repr=False, compare=False)
    """The tasks of each subtopology: rules ask for them for each store of each task."""

    def __post_init__(self) -> None:
        families: dict[_Family, list[Task]] = {}
        for task in self.app.tasks:
            families.setdefault(subtopology(task), []).append(task)
        object.__setattr__(self, "_families", families)

    @property
    def now_seconds(self) -> float:
        """When it was taken, in seconds since 1970."""
        return self.now_ms / 1000

    def finding(self, code: FindingCode, text: str, task: Task | None = None, store: str | None = None,
                level: Level | None = None, hint: str | None = None) -> Finding:  # fmt: skip
        """Return a finding, with the command that helps here: that of its code, or the template ``hint``."""
        name = task.name if task else None
        release, more = self.asked.release.version, (*unproven_too(self.asked.release.name), *self.asked.vouched)
        values: dict[str, Filling | None]
        # The commands of hints that are told a release write for it.
        values = {
            "APP": self.app.path,
            "RELEASE": (release, *more),
            "STARTED": release,
            "TASK": name,
            "STORE": store,
        }
        if self.asked.topology is not None:
            values["NEW"] = self.asked.topology.mending.words
        return Finding(code, level or code.level, filled(hint or code.hint, values), text, name, store)

    def log(self, key: TopicPartition) -> Log | None:
        """The log of a partition, by the first source that knows it."""
        return self.logs.logs.get(key)

    def lacks(self, key: TopicPartition) -> bool:
        """Whether the broker that was asked has no such partition."""
        return key in self.logs.lacking

    def records(self, key: TopicPartition, first: int) -> Records | None:
        """How many records lie from ``first`` to the end; None where nobody knows the log.

        KeyError for what :mod:`kstate_cli.check.snapshot_reader` has not counted: a rule must not take that for none.
        """
        return self.logs.counts[key, first] if key in self.logs.logs else None

    def misplaced_segments(self, task: Task, store: Store) -> tuple[Database, ...]:
        """Segments that Streams does not open, because it would give them other names."""
        others = [other for one in self.siblings(task) for other in one.stores if other.name == store.name]
        return misplaced_segments(store, others)

    def siblings(self, task: Task) -> list[Task]:
        """The tasks of the same subtopology, other than ``task``."""
        return [other for other in self._families.get(subtopology(task), ()) if other is not task]

    @property
    def has_global(self) -> bool:
        """True where the application has, or had, global stores on disk."""
        return any(task.is_global and task.stores for task in self.app.tasks)

    def changelog(self, task: Task, store: str) -> TopicPartition | None:
        """The changelog partition of a store, by its own offsets or those of the same store in other tasks.

        None where it has no offset anywhere: whether it has a changelog at all nobody knows then. Where a topology is
        asked about, tasks of any number tell.
        """
        own = self.own_changelog(task, store)
        if own in self.logs.known:
            return own
        first = None
        for one in (task, *self.siblings(task)):
            for tp in self._offsets(one, store):
                if tp.topic == own.topic:
                    return own
                first = first or tp.topic
        if first is None and self.homes is not None:
            first = self.homes.topics.get(StoreKey(task.topology or "", store))
        return TopicPartition(first, own.partition) if first else None

    def should_have(self, task: Task) -> frozenset[str]:
        """Stores that a task is to have beside those that it has; others of its subtopology have them, or a text."""
        if self.homes is not None:
            return frozenset(self.homes.lacked.get(task.name, {}))
        return frozenset({store.name for other in self.siblings(task) for store in other.stores})

    def wiped_for(self, task: Task, store: str) -> bool | None:
        """Whether a store that a task lacks costs it everything under exactly-once; None where its kind decides."""
        named = self.changelog(task, store) is not None
        return named if self.homes is None else self.homes.wiped_for(task.name, store, named=named)

    def begins_empty(self, task: Task, store: str) -> bool:
        """Whether a store that lies in another task has no changelog to be restored from."""
        named = self.changelog(task, store) is not None
        return self.homes is not None and self.homes.begins_empty(task.name, store, named=named)

    def _offsets(self, task: Task, store: str) -> list[TopicPartition]:
        """The partitions that any place of a task names for a store."""
        resolved = self.resolved[task.name]
        for one in resolved.stores:
            if one.store.name == store:
                return sorted(one.offsets)
        return sorted(resolved.absent.get(store, {}))

    def own_changelog(self, task: Task, store: str) -> TopicPartition:
        """The changelog partition of a store, by the name that it usually has."""
        return usual_changelog(self.app.app_id, task, store)

    def task_is_empty(self, task: Task) -> bool:
        """``StateDirectory.taskDirIsEmpty``: ``.checkpoint`` does not count, in 4.3 nothing that begins so."""
        for name in self.entries[task.name]:
            ignored = name.startswith(CHECKPOINT) if self.asked.into_family else name == CHECKPOINT
            if not ignored and not name.endswith(LOCK):
                return False
        return True


_Family = tuple[str | None, int | None]


def subtopology(task: Task) -> _Family:
    """The topology and the number of the subtopology that a task belongs to; None of the global stores."""
    return task.id.topology, task.id.subtopology
