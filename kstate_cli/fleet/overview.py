"""The fleet put together: of each task who has it, and how far each copy is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kstate_cli.broker.client import GroupMember, StreamsGroup
from kstate_cli.broker.facts import Facts
from kstate_cli.fleet.expected import Partitions, SubTopology, expected_partitions, sub_topology
from kstate_cli.fleet.model import HostReport, StoreCopy
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.specification.draft import SpecDraft


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a copy of a store is. Numbers are of offsets: of records, and of what marks the end of transactions."""

    lag: int | None
    """Behind the ends of its logs, altogether; None where nobody says where they end."""
    behind: int | None
    """Behind the copy that is in front, altogether; None where it has no offset that can be compared."""
    outside: tuple[TopicPartition, ...] = ()
    """The logs in which its next offset does not lie."""


@dataclass(frozen=True)
class Fleet:
    """What hosts said, what the logs and the group say, and what there should be."""

    reports: Sequence[HostReport]
    facts: Facts | None = None
    group: StreamsGroup | None = None
    spec: SpecDraft | None = None
    standby_replicas: int = 0
    """``num.standby.replicas`` of the application."""

    @property
    def unread(self) -> list[HostReport]:
        """Hosts of which something is not known."""
        return [one for one in self.reports if not one.whole]

    @cached_property
    def tasks(self) -> dict[str, dict[str, list[StoreCopy]]]:
        """Task -> host -> its stores there; in the order of tasks and of the hosts given."""
        tasks: dict[str, dict[str, list[StoreCopy]]] = {}
        for report in self.reports:
            for copy in report.copies:
                tasks.setdefault(copy.task, {}).setdefault(report.name, []).append(copy)
        return dict(sorted(tasks.items(), key=lambda one: TaskId.parse(one[0]).order))

    @cached_property
    def expected(self) -> dict[SubTopology, Partitions]:
        """How many tasks each sub-topology has."""
        return expected_partitions((copy for one in self.reports for copy in one.copies), self.facts, self.spec)

    @cached_property
    def front(self) -> dict[tuple[str, str], dict[TopicPartition, int]]:
        """The highest offset that any copy of a store has of each of its logs: (task, store) -> log -> offset."""
        front: dict[tuple[str, str], dict[TopicPartition, int]] = defaultdict(dict)
        for report in self.reports:
            for copy in report.copies:
                best = front[copy.task, copy.store]
                for key, offset in (copy.offsets or {}).items():
                    # What is below zero is no offset of a record: -4 says that none was known.
                    if offset < 0:
                        continue
                    best[key] = max(best.get(key, offset), offset)
        return front

    def standing(self, copy: StoreCopy) -> Standing:
        """How far a copy is."""
        if not copy.offsets:
            return Standing(None, None)
        next_is = 0 if copy.id.is_global else 1
        front = self.front[copy.task, copy.store]
        told = min(copy.offsets.values()) >= 0
        behind = sum(front[key] - offset for key, offset in copy.offsets.items()) if told else None
        lags: list[int | None] = []
        outside = []
        for key, offset in copy.offsets.items():
            fact = None if self.facts is None else self.facts.get(key)
            if fact is None or offset < 0:
                lags.append(None)
                continue
            following = offset + next_is
            if not fact.start <= following <= fact.end:
                outside.append(key)
            lags.append(max(fact.end - following, 0))
        known = [one for one in lags if one is not None]
        return Standing(sum(known) if len(known) == len(lags) else None, behind, tuple(outside))

    def task_behind(self, copies: Sequence[StoreCopy]) -> int | None:
        """How far stores are behind the copies in front, altogether; None where that is not known of one of them."""
        return self._altogether(copies, [self.standing(copy).behind for copy in copies])

    def task_lag(self, copies: Sequence[StoreCopy]) -> int | None:
        """How far stores are behind the logs, altogether; None where that is not known of one of them."""
        return self._altogether(copies, [self.standing(copy).lag for copy in copies])

    def _altogether(self, copies: Sequence[StoreCopy], told: Sequence[int | None]) -> int | None:
        """A store that has no offset anywhere has no changelog, as far as anybody can tell, and does not count."""
        counted = [
            number
            for copy, number in zip(copies, told, strict=True)
            if number is not None or copy.offsets is None or copy.offsets or self.front.get((copy.task, copy.store))
        ]
        known = [number for number in counted if number is not None]
        return sum(known) if known and len(known) == len(counted) else None

    def host_of(self, member: GroupMember) -> str | None:
        """The host whose directory a member works on, where its name has the process id; None where nobody can tell."""
        having = [one.name for one in self.reports if one.process_id and one.process_id in member.client]
        return having[0] if len(having) == 1 else None

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
        """Task -> the host that the group has given it to, as far as Positions say what it reads."""
        given: dict[TopicPartition, str] = {}
        for member in self.group.members if self.group is not None else ():
            host = self.host_of(member)
            if host is not None:
                given.update(dict.fromkeys(member.assigned, host))
        active = {}
        for task in self.tasks if given else ():
            of = TaskId.parse(task)
            sub = sub_topology(of)
            if sub is None or of.partition is None:
                continue
            hosts = {given.get(TopicPartition(topic, of.partition)) for topic in self._inputs[sub]} - {None}
            if len(hosts) == 1:
                (host,) = hosts
                active[task] = str(host)
        return active
