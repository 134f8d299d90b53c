"""The plan of a seed: the request, the facts that were read, and what becomes of each topic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.dump_reader.model import Dump
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection, SeedCluster, TopicFacts
from kstate_cli.seed.directories import SeedDirectories
from kstate_cli.seed.erasure import KeysToErase
from kstate_cli.seed.moved_inputs import MovedInput
from kstate_cli.seed.partitioning import PartitionRequest, ProvenPartitioning
from kstate_cli.seed.records import TargetRecords
from kstate_cli.specification.draft import Spec, SpecDraft, StoreDraft, StoreSpec

_Value = TypeVar("_Value")
DERIVED_SUFFIXES: Final = (
    # ``StreamJoined.withStoreName`` (``KStreamImplJoin``), with and without a left or outer join.
    "-outer-this-join-store",
    "-outer-other-join-store",
    "-this-join-store",
    "-other-join-store",
    "-left-shared-join-store",
    "-outer-shared-join-store",
    # ``Joined.as`` with a grace period, and ``TableJoined.as``.
    "-Buffer",
    "-subscription-store",
)
"""What Kafka Streams appends to the name of an operation for the stores that it creates for it."""


@dataclass(frozen=True, slots=True)
class SeedRequest:
    """What to seed, from where, and for which application."""

    dump: str | None
    """Dump of the changelogs; None: ``directories`` are the source."""
    app: str
    """``application.id`` of the new application."""
    source_app: str | None
    """``application.id`` of the application whose changelogs the dump has; None: the only one."""
    target: Connection
    source: Connection
    journal: Path
    spec: Spec | None = None
    """The kinds of stores. Without it, the full history of every changelog is written."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old name of a store -> its new name."""
    copies_offsets: bool = True
    """Whether the offsets of the input topics are copied to the group of the new application."""
    start_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets of input topics that the user states."""
    partitions: PartitionRequest | None = None
    """The number of partitions of the new changelogs; None: those of the source."""
    directories: tuple[Path, ...] = ()
    """Application directories whose rows are written; empty for a dump."""
    draft: SpecDraft | None = None
    """The specification file for directories, which need not be complete."""
    spec_name: str = "kstate.toml"
    accepted: frozenset[str] = frozenset()
    """Stores that are written although they may lack updates, and lost ones that are not written."""
    skipped_tasks: frozenset[Path] = frozenset()
    """Task directories that are ignored: standby copies."""
    erased: KeysToErase | None = None
    receipt: Path | None = None
    """Where the receipt of an erasure goes; given with ``erased``."""

    source_stopped: bool = False
    """Whether the user confirms that no instance of the source runs; it matters only if kstate cannot read that."""
    source_place: str = option.SOURCE_APP
    """What states ``source_app`` on the command line, for hints."""

    @property
    def source_text(self) -> str:
        """The source, for the journal."""
        return self.dump or ", ".join(map(str, self.directories))

    def renamed_store(self, store: str) -> str:
        """Return the name of a store in the new application.

        ``join=purchases`` also renames the stores of a join with that name, such as ``join-this-join-store``.
        """
        if store in self.renamed:
            return self.renamed[store]
        for suffix in DERIVED_SUFFIXES:
            name = store.removesuffix(suffix)
            if name != store and name in self.renamed:
                return f"{self.renamed[name]}{suffix}"
        return store

    def specified_stores(self, topic: str) -> tuple[StoreSpec, ...]:
        """Return the stores whose changelog the specification says a topic is; none without a specification."""
        if self.spec is None:
            return ()
        return tuple(store for store in self.spec.stores if store.changelog == topic)

    @property
    def options_digest(self) -> str:
        """SHA-256 of the options that decide what a run writes: a complete run has done nothing about others."""
        partitions: list[object] = []
        if self.partitions is not None:
            partitions = [
                _pairs(self.partitions.counts),
                _pairs({scope: partitioner.name for scope, partitioner in self.partitions.partitioners.items()}),
                _pairs({store: form.name for store, form in self.partitions.keys.items()}),
            ]
        erased: list[object] = []
        if self.erased is not None:
            erased = [[store, sorted(key.hex() for key in keys)] for store, keys in _pairs(self.erased.by_store)]
        content = [
            _pairs(self.renamed),
            self.copies_offsets,
            [[key.topic, key.partition, offset] for key, offset in sorted(self.start_offsets.items())],
            partitions,
            erased,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def choices_digest(self) -> str:
        """SHA-256 of the kinds of stores, and of the stores and tasks that the user has accepted or skipped.

        Earlier versions did not record them, so they are not part of :attr:`options_digest`.
        """
        stores: list[StoreSpec | StoreDraft] = [*(self.spec.stores if self.spec is not None else ())]
        stores += self.draft.stores if self.draft is not None else ()
        content = [
            sorted([store.name, store.kind or "", store.changelog or ""] for store in stores),
            sorted(self.accepted),
            sorted(map(str, self.skipped_tasks)),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def same_cluster(self) -> bool:
        """Whether source and target are given by one address."""
        return self.source.bootstrap == self.target.bootstrap


def _pairs(values: Mapping[str, _Value] | Mapping[str | None, _Value]) -> list[tuple[str | None, _Value]]:
    """Return names and values in the order of the names, None first."""
    return sorted(values.items(), key=lambda pair: (pair[0] is not None, pair[0] or ""))


@dataclass(frozen=True, slots=True)
class SeedFacts:
    """What was read before the first judgement. The rules judge nothing else."""

    dump: Dump | None
    source: SeedCluster
    target: SeedCluster
    source_app: str
    source_topics: Mapping[str, TopicFacts]
    """The changelogs of the source application on its broker."""
    target_topics: Mapping[str, TopicFacts]
    """Of the topics to create: those that exist already."""
    logs: Mapping[TopicPartition, LogFacts]
    """The logs of changelogs and internal topics of the source."""
    committed: Mapping[TopicPartition, CommittedOffset]
    """What the group of the source application has committed."""
    target_committed: Mapping[TopicPartition, CommittedOffset]
    """What the group of the new application has committed already."""
    undrained: Mapping[TopicPartition, int]
    """Internal topics of the source -> records that it has not read yet."""
    directories: SeedDirectories | None = None
    """The source if there is no dump."""
    unlisted: Mapping[str, str] = field(default_factory=dict)
    """Changelogs of the source that the dump has and its broker does not list, and their stores."""
    source_queues: Mapping[str, TopicFacts] = field(default_factory=dict)
    """Internal topics of the source whose offsets alone show which windows were emitted."""
    target_queues: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Internal topics of the new application with records from before: Kafka Streams would count these."""
    target_changelogs: frozenset[str] = frozenset()
    """Changelogs on the target that are perhaps those of the new application, and that the run does not create."""
    source_tables: Mapping[str, TopicFacts] = field(default_factory=dict)
    target_tables: Mapping[str, TopicFacts] = field(default_factory=dict)
    """On each cluster: topics that are no changelogs, and from which stores of the specification are restored."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A changelog to write."""

    source: str
    target: str
    store: str
    newest_only: bool
    partitions: tuple[TargetRecords, ...]
    """By partition of the new topic, from 0."""
    replicas: int
    """-1: the default of the target."""
    settings: Mapping[str, str]
    """The final settings."""
    proven: ProvenPartitioning | None = None
    """The rule by which the records get other partitions; None: each partition is that of the source."""

    @property
    def records(self) -> int:
        """Records to write, at most."""
        return sum(partition.records for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What a run does. The printed plan is this one."""

    app: str
    source_app: str
    topics: tuple[PlannedTopic, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]
    """The offsets of the new group; empty if none are copied."""
    logs: Mapping[TopicPartition, LogFacts]
    """The logs of the source, to be compared again before the offsets are committed."""
    committed: Mapping[TopicPartition, CommittedOffset]
    """The offsets of the source's group that ``offsets`` stand for: on another cluster they differ."""
    facts: SeedFacts
    """What the plan was made of."""
    moved: tuple[MovedInput, ...] = ()
    """Input topics with another number of partitions, whose unread records are checked again too."""
    notes: tuple[str, ...] = ()
    keeps_id: bool = False
    """Whether the lost changelogs of an application are written again, under its own id. Its offsets stay."""
    stated: bool = False
    """Whether the user has stated some of ``offsets``."""
    kept_offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    """All offsets of the source's group: by directories they show that no update is missing, so they must stay."""
    directories: SeedDirectories | None = None

    @property
    def records(self) -> int:
        """Records to write, at most."""
        return sum(topic.records for topic in self.topics)

    @property
    def targets(self) -> tuple[str, ...]:
        """The topics of the new application."""
        return tuple(topic.target for topic in self.topics)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is written: a run continues only the plan of its journal."""
        content = [
            self.app,
            self.source_app,
            [
                [
                    topic.source,
                    topic.target,
                    topic.newest_only,
                    [partition.identity for partition in topic.partitions],
                ]
                for topic in self.topics
            ],
            [
                [key.topic, key.partition, committed.offset, committed.metadata.hex()]
                for key, committed in sorted({**self.offsets, **self.kept_offsets}.items())
            ],
        ]
        if self.stated:
            # Kept offsets of the source may hide those of the same partition on another cluster.
            content.append([[key.topic, key.partition, place.offset] for key, place in sorted(self.offsets.items())])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()
