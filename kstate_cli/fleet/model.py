"""A fleet: the listing of each host, the tasks that should exist, and how far each copy of a store is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from kstate_cli import option
from kstate_cli.broker.client import GroupMember, StreamsGroup
from kstate_cli.broker.facts import Facts, LogFacts
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import MOST_PARTITIONS, TaskId, TopicPartition
from kstate_cli.specification.draft import IN_MEMORY, SpecDraft


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A store of a task on one host: one line ``store`` of ``kstate ls -o json``."""

    task: str
    store: str
    kind: str
    kind_certain: bool
    has_directory: bool
    """False if only an offset exists: a custom store, a store in memory, or one that was removed."""
    segmented: bool
    size: int
    """Bytes."""
    offsets: Mapping[TopicPartition, int] | None
    """As they are stored: of the last record applied, for a global store of the next one. None if unreadable."""
    inputs: frozenset[TopicPartition]
    """The partitions of source topics that its Position has."""
    opens_in: tuple[str, ...]
    offsets_in: str
    """The place of the offset, in the words of ``kstate ls``."""
    unclean: bool
    """The application is stopped, and the store may contain uncommitted rows."""

    @property
    def id(self) -> TaskId:
        """Return the task id that the name states."""
        return TaskId.parse(self.task)


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """The copy of a store that a restoration takes from a repository of snapshots."""

    repository: str
    """The place: an absolute path, or a URI."""
    snapshot: str
    copy: StoreCopy
    why_not: str | None
    """Why a restoration refuses it; None if nothing shows that it does."""
    is_too_old: bool
    """The log may have forgotten later deletes: a restoration needs a dump, or the consent of the user."""


@dataclass(frozen=True, slots=True)
class RepositoryReport:
    """The snapshots of the application in one repository."""

    name: str
    place: str
    snapshots: tuple[str, ...]
    """Oldest first."""
    copies: tuple[SnapshotCopy, ...]
    messages: tuple[str, ...]
    """The snapshots that kstate could not read, and the reasons."""

    @property
    def stores(self) -> list[StoreCopy]:
        """Return its copies as those of a host."""
        return [stored.copy for stored in self.copies]


@dataclass(frozen=True, slots=True)
class ListedProblem:
    """A line ``problem``, or the error that a listing ended with."""

    code: str
    task: str | None
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The reason why a listing is incomplete, and its line in the file; None if no line shows it."""

    line: int | None
    why: str


@dataclass(slots=True)
class HostReport:
    """The listing of one host."""

    name: str
    source: str
    """The file, or ``-``."""
    line: int
    """Its first line in that file."""
    app: str | None = None
    """The application directory there, absolute."""
    hostname: str | None = None
    """The hostname of the host; None if an older kstate made the listing."""
    process_id: str | None = None
    """``processId`` of ``kafka-streams-process-metadata``; None if it is not known."""
    tells_process_id: bool = False
    """False if an older kstate made the listing, which does not contain it."""
    running: bool | None = None
    copies: list[StoreCopy] = field(default_factory=list)
    problems: list[ListedProblem] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Return True if the listing is complete."""
        return not self.gaps

    @property
    def app_id(self) -> str | None:
        """``application.id``: the name of the directory."""
        if self.app is None:
            return None
        return self.app.rstrip("/").rpartition("/")[2]

    @property
    def size(self) -> int:
        """Return the bytes of its stores."""
        return sum(report.size for report in self.copies)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return its tasks, in order."""
        return tuple(sorted({report.task for report in self.copies}, key=lambda name: TaskId.parse(name).order))


SubTopology = tuple[str | None, int]
"""Name of its topology, where it has one, and number."""


class CountSource(str, Enum):
    """The source of the number of partitions."""

    LOGS = "logs"
    """The changelogs, by the broker or a file of offsets."""
    SPEC = "spec"
    TASKS = "seen"
    """The highest task that any host has: tasks above it may be missing."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """The number of tasks of a sub-topology."""

    count: int
    source: CountSource


def expected_partitions(
    copies: Iterable[StoreCopy], facts: Facts | None, spec: SpecDraft | None, stored: Iterable[StoreCopy] = ()
) -> dict[SubTopology, Partitions]:
    """Return the number of tasks of each sub-topology that any host has or the specification names.

    A sub-topology has a task for each partition of its widest changelog (``PartitionGrouper``). Raises Refused for more
    partitions than a topic can have. ``stored`` are copies in snapshots, which may be of an older topology: they count
    only if their changelogs exist.
    """
    copies = tuple(copies)
    # Later sources override earlier ones: logs are certain, a specification may be old, and tasks may be missing.
    expected = {sub: Partitions(count, CountSource.TASKS) for sub, count in _counts_by_tasks(copies).items()}
    expected |= {sub: Partitions(count, CountSource.SPEC) for sub, count in _counts_by_spec(spec).items()}
    expected |= {
        sub: Partitions(count, CountSource.LOGS) for sub, count in _counts_by_logs((*copies, *stored), facts).items()
    }
    for sub, partitions in expected.items():
        if partitions.count > MOST_PARTITIONS:
            raise Refused(
                (
                    f"sub-topology {sub[1]} has {partitions.count:,} partitions according to "
                    f"{partitions.source.value}, but a topic cannot have that many"
                ),
                hint=f"check the files that you passed with {option.OFFSETS} and {option.SPEC}",
            )
    return expected


def _counts_by_tasks(copies: Iterable[StoreCopy]) -> dict[SubTopology, int]:
    counts: dict[SubTopology, int] = {}
    for copy in copies:
        sub = sub_topology(copy.id)
        if sub is not None and copy.id.partition is not None:
            counts[sub] = max(counts.get(sub, 0), copy.id.partition + 1)
    return counts


def _counts_by_logs(copies: Iterable[StoreCopy], facts: Facts | None) -> dict[SubTopology, int]:
    """Return the number of partitions of each sub-topology according to the logs of its changelogs."""
    width: dict[str, int] = {}
    for key in facts or ():
        # Each task writes to the partition of its number. So the changelog with the most partitions shows how many
        # tasks there are.
        width[key.topic] = max(width.get(key.topic, 0), key.partition + 1)
    counts: dict[SubTopology, int] = {}
    for copy in copies:
        sub = sub_topology(copy.id)
        if sub is None or copy.id.partition is None:
            continue
        for key in copy.offsets or ():
            if key.topic in width:
                counts[sub] = max(counts.get(sub, 0), width[key.topic])
    return counts


def _counts_by_spec(spec: SpecDraft | None) -> dict[SubTopology, int]:
    counts: dict[SubTopology, int] = {}
    if spec is None:
        return counts
    for store in spec.stores:
        # A store in memory, or without its place, shows no task that must have a directory.
        if store.kind == IN_MEMORY or store.is_global or store.subtopology is None or store.partitions is None:
            continue
        sub = (store.topology, store.subtopology)
        counts[sub] = max(counts.get(sub, 0), store.partitions)
    return counts


def sub_topology(of: TaskId) -> SubTopology | None:
    """Return the sub-topology of a task; None for the global stores."""
    if of.subtopology is None:
        return None
    return (of.topology, of.subtopology)


def task_name(sub: SubTopology, partition: int) -> str:
    """Return the name of a task, as :class:`TaskId` reads it."""
    topology, number = sub
    if topology:
        return f"__{topology}__/{number}_{partition}"
    return f"{number}_{partition}"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a copy of a store is. Numbers count offsets: records, and markers of transactions."""

    lag: int | None
    """Behind the ends of its logs, altogether; None if no source states where they end."""
    behind: int | None
    """Behind the copy that is in front, altogether; None if it has no offset that can be compared."""
    outside: tuple[TopicPartition, ...] = ()
    """The logs in which its next offset does not lie."""


def _next_offset(copy: StoreCopy, offset: int) -> int:
    """Return the next offset to read: a global store states that one, another store the last one it applied."""
    return offset if copy.id.is_global else offset + 1


def _sum_if_complete(numbers: Sequence[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            # A sum without one of its parts would look like less lag than there is.
            return None
        total += number
    return total


@dataclass(frozen=True)
class Fleet:
    """The listings of all hosts, the logs, the group, and the tasks that should exist."""

    reports: Sequence[HostReport]
    facts: Facts | None = None
    group: StreamsGroup | None = None
    spec: SpecDraft | None = None
    standby_replicas: int = 0
    """``num.standby.replicas`` of the application."""
    repositories: Sequence[RepositoryReport] = ()
    """No hosts: their copies count neither as standbys nor as copies that make a restoration unnecessary."""

    @property
    def unread(self) -> list[HostReport]:
        """Return the hosts with incomplete listings."""
        return [report for report in self.reports if not report.whole]

    @cached_property
    def tasks(self) -> dict[str, dict[str, list[StoreCopy]]]:
        """Return task -> host -> its stores there, in the order of tasks and of the hosts of the command line."""
        tasks: dict[str, dict[str, list[StoreCopy]]] = {}
        for report in self.reports:
            for copy in report.copies:
                tasks.setdefault(copy.task, {}).setdefault(report.name, []).append(copy)
        return dict(sorted(tasks.items(), key=lambda report: TaskId.parse(report[0]).order))

    @cached_property
    def expected(self) -> dict[SubTopology, Partitions]:
        """Return the number of tasks of each sub-topology."""
        stored = [copy for repository in self.repositories for copy in repository.stores]
        hosts = (copy for report in self.reports for copy in report.copies)
        return expected_partitions(hosts, self.facts, self.spec, stored)

    @cached_property
    def snapshots(self) -> dict[str, list[SnapshotCopy]]:
        """Return task -> its stores in repositories, in the order of the command line."""
        snapshots: dict[str, list[SnapshotCopy]] = {}
        for repository in self.repositories:
            for stored in repository.copies:
                snapshots.setdefault(stored.copy.task, []).append(stored)
        return snapshots

    def lead(self, stored: SnapshotCopy) -> int | None:
        """Return how far a snapshot is ahead of the copies of all hosts; None if that cannot be compared.

        A host has no copy, or the snapshot is refused, for example because it is of another log.
        """
        front = self.front.get((stored.copy.task, stored.copy.store), {})
        offsets = stored.copy.offsets or {}
        if stored.why_not is not None or not offsets or offsets.keys() - front.keys() or min(offsets.values()) < 0:
            return None
        leads = [offset - front[key] for key, offset in offsets.items()]
        # Ahead in one partition of a global store, and behind in another one: neither is the better copy.
        if min(leads) < 0:
            return min(leads)
        return sum(leads)

    def best_copy(self, task: str) -> str | None:
        """Return the host, or the repository, with the most advanced copy of a task; None if that is unknown."""
        hosts = self.tasks.get(task, {})
        stored = self.snapshots.get(task, [])
        for repository in dict.fromkeys(copy.repository for copy in stored):
            copies = [copy for copy in stored if copy.repository == repository]
            if any(copy.why_not is not None for copy in copies):
                continue
            if not hosts or any((self.lead(copy) or 0) > 0 for copy in copies):
                return repository
        behind = {name: self.task_behind(copies) for name, copies in hosts.items()}
        distances = {name: distance for name, distance in behind.items() if distance is not None}
        return min(distances, key=lambda name: distances[name], default=None)

    @cached_property
    def front(self) -> dict[tuple[str, str], dict[TopicPartition, int]]:
        """(Task, store) -> changelog partition -> the highest offset that any copy of the store has."""
        front: dict[tuple[str, str], dict[TopicPartition, int]] = defaultdict(dict)
        for report in self.reports:
            for copy in report.copies:
                best = front[copy.task, copy.store]
                for key, offset in (copy.offsets or {}).items():
                    # A negative offset is not that of a record: -4 means that no offset is known.
                    if offset < 0:
                        continue
                    # The highest offset is determined for each log: a global store has several, and no copy need be
                    # first in all of them.
                    best[key] = max(best.get(key, offset), offset)
        return front

    def standing(self, copy: StoreCopy) -> Standing:
        """Return how far a copy of a store has read its logs, compared with their ends and with the other copies."""
        if not copy.offsets:
            return Standing(None, None)
        lags = [self._lag(copy, key, offset) for key, offset in copy.offsets.items()]
        outside = tuple(key for key, offset in copy.offsets.items() if self._is_outside(copy, key, offset))
        behind = None
        # A negative offset is not that of a record, so its distance means nothing.
        if min(copy.offsets.values()) >= 0:
            front = self.front[copy.task, copy.store]
            # A store of a snapshot that no host has is in front itself.
            behind = sum(max(0, front.get(key, offset) - offset) for key, offset in copy.offsets.items())
        return Standing(_sum_if_complete(lags), behind, outside)

    def _lag(self, copy: StoreCopy, key: TopicPartition, offset: int) -> int | None:
        fact = self._fact(key)
        if fact is None or offset < 0:
            return None
        # A listing may be younger than the facts: then the store is past the end that they state.
        return max(fact.end - _next_offset(copy, offset), 0)

    def _fact(self, key: TopicPartition) -> LogFacts | None:
        return (self.facts or {}).get(key)

    def _is_outside(self, copy: StoreCopy, key: TopicPartition, offset: int) -> bool:
        fact = self._fact(key)
        if fact is None or offset < 0:
            return False
        return not fact.start <= _next_offset(copy, offset) <= fact.end

    def task_behind(self, copies: Sequence[StoreCopy]) -> int | None:
        """Return how far stores are behind the copies in front, in total; None if that is unknown for one of them."""
        return self._altogether(copies, [self.standing(copy).behind for copy in copies])

    def task_lag(self, copies: Sequence[StoreCopy]) -> int | None:
        """Return how far stores are behind the logs, in total; None if that is unknown for one of them."""
        return self._altogether(copies, [self.standing(copy).lag for copy in copies])

    def _altogether(self, copies: Sequence[StoreCopy], numbers: Sequence[int | None]) -> int | None:
        """Return the sum. A store without an offset on any host counts as one without a changelog, and is skipped."""
        # ``copy.offsets`` is None if it could not be read, and empty without any offset: the two differ.
        relevant = [
            number
            for copy, number in zip(copies, numbers, strict=True)
            if number is not None or copy.offsets is None or copy.offsets or self.front.get((copy.task, copy.store))
        ]
        return _sum_if_complete(relevant) if relevant else None

    def host_of(self, member: GroupMember) -> str | None:
        """Return the host whose directory a member uses, if its name contains the process id; None if it does not."""
        having = [report.name for report in self.reports if report.process_id and report.process_id in member.client]
        # Several: a volume was copied, and which of the hosts the member is on is unknown.
        if len(having) != 1:
            return None
        return having[0]

    @cached_property
    def _inputs(self) -> Mapping[SubTopology, frozenset[str]]:
        topics: dict[SubTopology, set[str]] = defaultdict(set)
        for report in self.reports:
            for copy in report.copies:
                sub = sub_topology(copy.id)
                if sub is not None:
                    topics[sub] |= {key.topic for key in copy.inputs}
        return {sub: frozenset(names) for sub, names in topics.items()}

    @cached_property
    def active(self) -> dict[str, str]:
        """Return task -> the host to which the group has assigned it, as far as Positions show its inputs."""
        assigned: dict[TopicPartition, str] = {}
        if self.group is None:
            return {}
        for member in self.group.members:
            host = self.host_of(member)
            if host is not None:
                assigned.update(dict.fromkeys(member.assigned, host))
        active = {}
        if not assigned:
            return {}
        for task in self.tasks:
            of = TaskId.parse(task)
            sub = sub_topology(of)
            if sub is None or of.partition is None:
                continue
            hosts = {assigned.get(TopicPartition(topic, of.partition)) for topic in self._inputs[sub]} - {None}
            # All inputs of a task are assigned to the same member. If the hosts differ, a rebalance is in progress.
            if len(hosts) == 1:
                (host,) = hosts
                active[task] = str(host)
        return active
