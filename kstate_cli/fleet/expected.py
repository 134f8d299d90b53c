"""Which tasks there should be: as the logs say, or a specification, or the tasks themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.broker.facts import Facts
from kstate_cli.errors import Refused
from kstate_cli.fleet.model import StoreCopy
from kstate_cli.formats.task_id import TaskId
from kstate_cli.specification.draft import SpecDraft
from kstate_cli.specification.model import IN_MEMORY

MOST_PARTITIONS: Final = 100_000
"""No topic has so many: a number of a damaged file does not make a list of them."""
SubTopology = tuple[str | None, int]
"""Name of its topology, where it has one, and number."""


class KnownFrom(str, Enum):
    """Where the number of partitions comes from."""

    LOGS = "logs"
    """Of the changelogs, as the broker or a file of offsets has them."""
    SPEC = "spec"
    SEEN = "seen"
    """The highest task that any host has: what lies above it is not known to be missing."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """How many tasks a sub-topology has."""

    count: int
    known_from: KnownFrom


def expected_partitions(
    copies: Iterable[StoreCopy], facts: Facts | None, spec: SpecDraft | None
) -> dict[SubTopology, Partitions]:
    """The number of tasks of each sub-topology that any host has or the specification names.

    A task for each partition of the widest changelog of the sub-topology (``PartitionGrouper``). Raises Refused for
    more partitions than any topic has.
    """
    width: dict[str, int] = {}
    for key in facts or ():
        width[key.topic] = max(width.get(key.topic, 0), key.partition + 1)
    seen: dict[SubTopology, int] = {}
    logs: dict[SubTopology, int] = {}
    for copy in copies:
        of = copy.id
        sub = sub_topology(of)
        if sub is None or of.partition is None:
            continue
        seen[sub] = max(seen.get(sub, 0), of.partition + 1)
        for key in copy.offsets or ():
            if key.topic in width:
                logs[sub] = max(logs.get(sub, 0), width[key.topic])
    told: dict[SubTopology, int] = {}
    for store in spec.stores if spec is not None else ():
        if store.kind == IN_MEMORY or store.is_global:
            continue
        if store.subtopology is not None and store.partitions is not None:
            named = (store.topology, store.subtopology)
            told[named] = max(told.get(named, 0), store.partitions)
    expected = {sub: Partitions(count, KnownFrom.SEEN) for sub, count in seen.items()}
    expected |= {sub: Partitions(count, KnownFrom.SPEC) for sub, count in told.items()}
    expected |= {sub: Partitions(count, KnownFrom.LOGS) for sub, count in logs.items()}
    for sub, partitions in expected.items():
        if partitions.count > MOST_PARTITIONS:
            raise Refused(
                f"sub-topology {sub[1]} has {partitions.count:,} partitions, as {partitions.known_from.value} say: no "
                "topic has so many",
                hint="look at what --offsets and --spec name",
            )
    return expected


def sub_topology(of: TaskId) -> SubTopology | None:
    """That of a task; None of the global stores."""
    return None if of.subtopology is None else (of.topology, of.subtopology)


def task_name(sub: SubTopology, partition: int) -> str:
    """As :class:`TaskId` reads it."""
    topology, number = sub
    return f"{f'__{topology}__/' if topology else ''}{number}_{partition}"
