"""A restoration as data: its options, the snapshot that its rules go by, what they yield, and its plan.

The rules read no directory of their own: :func:`read_snapshot` is the only function here that reads the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli.broker.facts import Facts
from kstate_cli.change.plan import Change, Plan
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Dump, PartitionDump, Piece
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age, read_ages
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import as_of_note, resolve_to_plan
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.restore.jobs import task_key
from kstate_cli.restore.planning.judge import Action, Permissions, Verdict
from kstate_cli.specification.draft import Spec, StoreSpec
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import Place, Problem, store_place


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What to restore, and what the user states about dump and directory."""

    release: Release
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    """Tasks of these partitions alone; empty: of all."""
    share: tuple[int, int] | None = None
    """(i, n), 1-based: every n-th of all tasks in order, beginning with the i-th."""
    elsewhere: frozenset[str] = frozenset()
    """Tasks of other hosts: they are not restored here."""
    only: frozenset[str] | None = None
    """The tasks of this host, if known: only these are restored, and global stores."""
    at_least_once: bool = False
    transactional: bool = False
    """The application runs with transactional stores (KIP-892)."""
    unproven: bool = False
    """The user accepts a release that kstate was never run against."""
    wipe_unclean: bool = False
    """Tasks that may hold uncommitted data are rebuilt as a whole; their stores without a changelog are left out."""
    committed_tasks: frozenset[str] = frozenset()
    """Tasks that have no uncommitted rows, although an offset is unknown: a snapshot of a running application."""
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of source topics; they override the manifest."""
    facts: Facts = field(default_factory=dict)
    """What the broker states about the logs; it overrides the manifest."""
    from_broker: bool = False
    """``facts`` are those of a broker: a log that they lack does not exist."""
    permissions: Permissions = field(default_factory=Permissions)
    ignored: tuple[str, ...] = ()
    """Topics of the dump, as shell patterns, that belong to other applications."""

    @property
    def selects(self) -> bool:
        """Whether only named stores, tasks or partitions are restored: the rest of the dump is not checked then."""
        return bool(self.tasks or self.stores or self.partitions)


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
    """The offsets of the store once it is complete."""
    as_of_ms: int | None = None
    """As of when its data is then, in ms since 1970; None if the dump does not state when it was read."""

    @property
    def unsure(self) -> bool:
        """Return True if it is caught up although deletes may be forgotten: the times of store and dump are unknown."""
        return not self.rebuild and any(part.verdict.unsure for part in self.parts)

    @property
    def only_copy(self) -> tuple[str, ...]:
        """Why the replaced store may be the only copy of some records; empty if it is not."""
        return tuple(
            f"{self.title}: it contains records that may be missing from the log {part.log.key}"
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
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.spec.name}"

    def pieces(self, part: RestoredPartition) -> tuple[Piece, ...]:
        """Return the pieces of the dump with records to restore: of a growing dump mostly the newest."""
        if part.verdict.action is Action.LEAVE and not self.rebuild:
            return ()
        after, until = self.bounds(part)
        return tuple(
            piece
            for piece in part.dump.pieces
            if (after is None or piece.last > after) and (until is None or piece.first <= until)
        )

    def bounds(self, part: RestoredPartition) -> tuple[int | None, int | None]:
        """Return the offset after which records are restored, and the last one that is; None is no bound."""
        return None if self.rebuild else part.verdict.after, part.log.until

    @property
    def records(self) -> int:
        """The records of the dump to restore, at most."""
        return sum(piece.own for part in self.parts for piece in self.pieces(part))

    @property
    def bytes(self) -> int:
        """The uncompressed bytes of those, as encoded."""
        return sum(piece.share for part in self.parts for piece in self.pieces(part))


@dataclass(frozen=True, slots=True)
class UnchangedStore:
    """A store that stays unchanged."""

    task: str
    store: str
    why: str

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.store}"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of the change engine, and the work that makes its sorted files."""

    change: Plan
    work: tuple[StoreWork, ...]
    unchanged: tuple[UnchangedStore, ...]

    @property
    def bytes(self) -> int:
        """The uncompressed bytes of the records to restore, as encoded."""
        return sum(store.bytes for store in self.work)

    @property
    def dump_paths(self) -> frozenset[str]:
        """The files of the dump with records to restore."""
        return frozenset(piece.path for store in self.work for part in store.parts for piece in store.pieces(part))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that stands in the way of the whole restoration."""

    text: str
    only_copies: tuple[str, ...] = ()
    """Stores that may hold records which no log has any more: the user should export them before anything else."""
    not_in_dump: bool = False
    """The dump lacks a topic, or a partition, that a store is restored from."""


Outcome = Change | Refusal | StoreWork | UnchangedStore
"""What a rule of the planner yields."""


RecordDigest = Callable[[PartitionDump, int], str | None]
"""The digest of the record at an offset of a dumped partition; None without that record. Raises DumpError."""


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """An application directory as it is now, the dump, and what the user states."""

    app: Path
    options: RestoreOptions
    spec: Spec
    dump: Dump
    record_digest: RecordDigest
    """Reads one record of the dump: only the stores whose log may be another one need it."""
    tasks: Mapping[str, TaskOffsets]
    """The offsets of each task that exists."""
    problems: tuple[Problem, ...]
    ages: tuple[Age, ...] = ()
    """What kstate recorded about the age of the stores that it built."""
    notes: tuple[str, ...] = ()
    longest_name: int = 255
    """The bytes of a file name that the file system of ``name_folder`` takes."""
    name_folder: Path = Path("/")
    """The lowest folder of ``app`` that exists."""

    @property
    def into_family(self) -> bool:
        """Return True if the release keeps offsets in the stores (KIP-1035)."""
        return self.options.release.offsets_home is OffsetsHome.COLUMN_FAMILY


def read_snapshot(
    app: Path,
    existing: Application | None,
    spec: Spec,
    dump: Dump,
    options: RestoreOptions,
    ages: Sequence[Age] = (),
) -> RestoreSnapshot:
    """Return what the rules of a restoration go by.

    ``existing`` is None if the directory does not exist. Raises Refused.

    ``ages`` is further knowledge of how old data is, beside the records of kstate in the directory.
    """
    resolved = resolve_to_plan(existing, transactional=options.transactional) if existing else []
    folder = app
    while not folder.exists():
        folder = folder.parent
    filesystem = open_location(dump.uri)[0]
    return RestoreSnapshot(
        app,
        options,
        spec,
        dump,
        lambda partition, offset: digest_at(filesystem, partition, offset),
        {state.task.name: state for state in resolved},
        existing.all_problems() if existing else (),
        (*read_ages(app), *ages),
        tuple(as_of_note(existing)) if existing else (),
        os.pathconf(folder, "PC_NAME_MAX"),
        folder,
    )
