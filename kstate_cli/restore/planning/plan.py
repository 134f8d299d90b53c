"""What a restoration is asked for and what it has to do, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli.broker.facts import Facts
from kstate_cli.change.plan import Plan, Step
from kstate_cli.dump_reader.model import Dump, PartitionDump, Piece
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log
from kstate_cli.offsets.ages import Age
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.restore.jobs import task_key
from kstate_cli.restore.planning.judge import Action, Allowed, Verdict
from kstate_cli.specification.model import StoreSpec
from kstate_cli.statedir.places import Place, store_place
from kstate_cli.statedir.problems import Problem


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What the user says about dump and directory, and what to restore."""

    release: Release
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    share: tuple[int, int] | None = None
    """(i, n), 1-based: of all tasks in order every n-th, beginning with the i-th."""
    elsewhere: frozenset[str] = frozenset()
    """Tasks that other hosts have, which are not restored here."""
    only: frozenset[str] | None = None
    """Tasks that are this host's, where that is known: no others are restored, but for global stores."""
    at_least_once: bool = False
    transactional: bool = False
    """The application runs with transactional stores (KIP-892)."""
    unproven: bool = False
    """For a release that nobody has run, too."""
    wipe_unclean: bool = False
    """Tasks that may hold uncommitted data are rebuilt whole; what has no changelog in them is left out."""
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of source topics, over those of the manifest."""
    facts: Facts = field(default_factory=dict)
    """What the broker says of the logs, over the manifest's."""
    broker_asked: bool = False
    """``facts`` are those of a broker: a log that is not among them is not there."""
    allowed: Allowed = field(default_factory=Allowed)
    ignored: tuple[str, ...] = ()
    """Topics of the dump, as shell patterns, that are none of this application's."""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """One changelog partition of a store that is restored."""

    dump: PartitionDump
    log: Log
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StoreWork:
    """One store of one task that is restored."""

    task: str
    spec: StoreSpec
    parts: tuple[RestoredPartition, ...]
    """One, or all partitions of a global store's topic."""
    rebuild: bool
    existing: StoreOffsets | None
    offsets: Mapping[TopicPartition, int]
    """What the store's offsets are when it is complete."""
    as_of_ms: int | None = None
    """As of when its data is then, in ms since 1970; None where the dump does not say when it was read."""

    @property
    def only_copy(self) -> tuple[str, ...]:
        """Why what is replaced may be the only copy of some records; empty where it is not."""
        return tuple(
            f"{self.shown}: it has records that the log of {part.log.key} may have lost"
            for part in self.parts
            if part.verdict.only_copy
        )

    @property
    def key(self) -> str:
        """The task as part of a file name: a named topology's tasks have a slash."""
        return task_key(self.task)

    @property
    def place(self) -> Place:
        """The store's folder."""
        return store_place(self.task, self.spec.name, segmented=self.spec.segmented)

    @property
    def path(self) -> str:
        """The store's folder, relative to the application directory."""
        return self.place.text

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"{self.task}/{self.spec.name}"

    def pieces(self, part: RestoredPartition) -> tuple[Piece, ...]:
        """Those of the dump's pieces that hold records which are wanted: of a dump that grows mostly the newest."""
        if part.verdict.action is Action.LEAVE and not self.rebuild:
            return ()
        after, until = self.bounds(part)
        return tuple(
            piece
            for piece in part.dump.pieces
            if (after is None or piece.last > after) and (until is None or piece.first <= until)
        )

    def bounds(self, part: RestoredPartition) -> tuple[int | None, int | None]:
        """Wanted are offsets above the first and up to the second; None: no bound."""
        return None if self.rebuild else part.verdict.after, part.log.until

    @property
    def records(self) -> int:
        """Records in the dump that are wanted, at most."""
        return sum(piece.own for part in self.parts for piece in self.pieces(part))

    @property
    def bytes(self) -> int:
        """Uncompressed bytes of those, as encoded."""
        return sum(piece.share for part in self.parts for piece in self.pieces(part))


@dataclass(frozen=True, slots=True)
class LeftStore:
    """A store that is left as it is."""

    task: str
    store: str
    why: str

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"{self.task}/{self.store}"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of the change engine, and the work that fills it in."""

    change: Plan
    work: tuple[StoreWork, ...]
    left: tuple[LeftStore, ...]


@dataclass(slots=True)
class RestoreDraft:
    """A plan in the making."""

    app: Path
    options: RestoreOptions
    dump: Dump
    tasks: dict[str, TaskOffsets]
    problems: tuple[Problem, ...]
    ages: tuple[Age, ...] = ()
    """What kstate knows of the age of stores that it has made."""
    unsure: list[str] = field(default_factory=list)
    """Stores that are caught up although nobody knows whether deletes were forgotten meanwhile."""
    steps: list[Step] = field(default_factory=list)
    work: list[StoreWork] = field(default_factory=list)
    left: list[LeftStore] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    only_copies: dict[str, None] = field(default_factory=dict)
    """Stores that may hold records which no log has any more: to be exported before anything else is done."""
    not_in_dump: bool = False
    """Something was refused since the dump lacks a topic, or a partition, that a store is restored from."""

    def refuse_absent(self, text: str) -> None:
        """Something is refused since the dump lacks a topic, or a partition."""
        self.refused.append(text)
        self.not_in_dump = True

    @property
    def into_family(self) -> bool:
        """The release keeps offsets in the stores."""
        return self.options.release.offsets_home is OffsetsHome.COLUMN_FAMILY
