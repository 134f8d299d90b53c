"""Stores, the tasks that have them, the tasks that are to have them, and the options of ``kstate rehome``, as data.

The options are the new topology, and what the user states about the directory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.specification.draft import IN_MEMORY, SpecDraft, StoreDraft
from kstate_cli.specification.homes import Described, Home, StoreKey, read_pairs
from kstate_cli.specification.toml_file import read_draft
from kstate_cli.specification.topology import read_topology
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    from kstate_cli.change.plan import Step
    from kstate_cli.releases import Release
    from kstate_cli.statedir.model import Application


TaskStore = tuple[str, str]
"""The name of a task and of one of its stores."""
StoresByTask = Mapping[str, tuple[str, ...]]
"""Task -> stores of it."""


class LeaveReason(str, Enum):
    """Why a store leaves without going to another task."""

    # Python 3.10 has no StrEnum, and other versions differ in the text of a member in a format string.
    __str__ = str.__str__

    NO_SUCH_STORE = "the new topology does not have this store. Its changelog topic is kept"
    STARTED = "you have already started the new topology here, and it created this copy"
    EMPTY = "this store is empty because of a failed start. Streams recreates it"
    LOST = (
        "its offset was lost when the new topology ran in its task. The copy that the new topology created has an "
        "offset"
    )
    REMOVED = "its sub-topology was removed. Its changelog topic is kept"
    COPY = "several sub-topologies each had a copy. The changelog has the records of all copies"
    ELSEWHERE = "another host completes this store's task. Its changelog topic is kept"


class WhyRefused(str, Enum):
    """The code of a refusal, for programs."""

    __str__ = str.__str__

    OTHER_APPLICATION = "rehome-other-application"
    OLD_DOES_NOT_FIT = "rehome-old-text-does-not-fit"
    GLOBAL = "rehome-global-store"
    TWO_COPIES = "rehome-two-copies"
    HALF_A_TASK = "rehome-half-a-task"
    GENERATED = "rehome-generated-name"
    NUMBER_TAKEN = "rehome-number-taken"
    KIND_UNKNOWN = "rehome-kind-unknown"
    UNCLEAN = "rehome-unclean"
    FOREIGN = "rehome-foreign-entry"
    MEMBERS = "rehome-group-has-members"
    UNREAD = "rehome-unread-records"
    PARTITIONS = "rehome-partition-counts"
    OTHER_CLUSTER = "rehome-other-cluster"


@dataclass(frozen=True, slots=True)
class DirectoryTask:
    """One task of the directory, and the stores that it has, by what the directory has of each."""

    task: TaskId
    stores: frozenset[str]
    """Stores with rows, or with an offset above -4."""
    offset_only: frozenset[str] = frozenset()
    """Stores that have an offset and no database."""
    lost: frozenset[str] = frozenset()
    """Those of ``stores`` without an offset.

    They have no changelog, or a start of the new topology has written a ``.checkpoint`` without their lines.
    """
    unwritten: frozenset[str] = frozenset()
    """Stores without a row whose offset is -4: never written, wiped, or created by a start like the strays."""
    strays: frozenset[str] = frozenset()
    """Stores without a row and without an offset.

    A start of 4.3 that fails on directories of tasks which the new topology lacks creates all of its stores in each,
    global ones too.
    """

    @property
    def home(self) -> Home:
        """Its sub-topology."""
        return Home.of(self.task)

    @property
    def partition(self) -> int:
        """Its partition."""
        assert self.task.partition is not None
        return self.task.partition

    def key(self, store: str) -> StoreKey:
        """Return the key of one of its stores."""
        return StoreKey(self.task.topology or "", store)


@dataclass(frozen=True, slots=True)
class Placement:
    """One store of one partition, and where it goes."""

    store: str
    source: str
    """The task that has it."""
    target: str | None
    """The task that is to have it; None if it leaves."""
    reason: LeaveReason | None = None
    offset_only: bool = False
    """The directory has only its offsets."""
    stray: bool = False
    """It has neither rows nor an offset."""

    @property
    def moves(self) -> bool:
        """Return True if it goes to another task."""
        # A store may also stay while its task changes around it.
        return self.target not in (None, self.source)


@dataclass(frozen=True, slots=True)
class MissingStore:
    """A store that a task is to have, and of whose partition the directory has nothing."""

    store: str
    existed: bool
    """The old text, or the task of another partition, has it: it is no new store."""
    has_database: bool
    """The task of another partition has a database of it."""
    stray: bool = False
    """There is a database without rows and without an offset."""
    half_of: str | None = None
    """The task that had it and is on another host; None if no other host can have it."""


@dataclass(frozen=True)
class Rehoming:
    """Where all stores go."""

    placements: tuple[Placement, ...] = ()
    missing: Mapping[str, tuple[MissingStore, ...]] = field(default_factory=dict)
    """Task -> the stores that it lacks, for the tasks that some store goes to."""
    partial: frozenset[TaskStore] = frozenset()
    """The copies that stay in use, and have the records of one of several sub-topologies only."""

    @cached_property
    def _by_target(self) -> dict[str, list[Placement]]:
        by_target: dict[str, list[Placement]] = {}
        for placement in self.placements:
            if placement.target is not None:
                by_target.setdefault(placement.target, []).append(placement)
        return by_target

    @cached_property
    def _by_source(self) -> dict[str, list[Placement]]:
        by_source: dict[str, list[Placement]] = {}
        for placement in self.placements:
            by_source.setdefault(placement.source, []).append(placement)
        return by_source

    @property
    def targets(self) -> list[str]:
        """The tasks that are to have a store."""
        return sorted(self._by_target)

    def into(self, task: str) -> list[Placement]:
        """Return what a task is to have."""
        return self._by_target.get(task, [])

    def of(self, task: str) -> list[Placement]:
        """Return what a task has now."""
        return self._by_source.get(task, [])

    @property
    def halves(self) -> dict[str, tuple[str, ...]]:
        """The tasks that are to have a store here and others that another host has: task -> those others."""
        halves = {
            task: tuple(missing.store for missing in stores if missing.half_of) for task, stores in self.missing.items()
        }
        return {task: stores for task, stores in halves.items() if stores}

    def without(self, tasks: Collection[str]) -> Rehoming:
        """Return the same, but nothing goes to these tasks: another host completes them."""
        placements = tuple(_leaving(placement, tasks) for placement in self.placements)
        missing = {task: stores for task, stores in self.missing.items() if task not in tasks}
        return Rehoming(placements, missing, self.partial)


def _leaving(placement: Placement, tasks: Collection[str]) -> Placement:
    if placement.target not in tasks:
        return placement
    return replace(placement, target=None, reason=LeaveReason.ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Completion:
    """The plan, from a dump, for the stores that the half tasks of a host lack."""

    offsets: Mapping[TaskStore, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """The offsets of each store once it is restored."""
    steps: tuple[Step, ...] = ()
    """The steps that announce the stores and write files of their own. ``.checkpoint`` belongs to the whole task."""
    times: Mapping[str, int] = field(default_factory=dict)
    """Task -> as of when its restored stores are, in ns; a task whose time is unknown is missing."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Completer(Protocol):
    """Restores the stores that half tasks lack. ``cli`` gives one, since ``rehome`` and ``restore`` are siblings."""

    @property
    def release(self) -> Release:
        """The release that the stores are built for."""

    def complete(self, app: Application, stores: StoresByTask, /) -> Completion:
        """Plan the restoration. Raises Refused, naming what the dump lacks, or what is unknown about a store."""


_BOTH: Final = f"{option.TOPOLOGY} and {option.MAP} cannot be used together. Omit one of them"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The broker of an application, and the settings of the client."""

    bootstrap: str
    settings: Mapping[str, str]
    """Names and values of librdkafka."""
    only_looks: bool = False
    """A dry run: instances that still run are reported, not refused."""


@dataclass(frozen=True, slots=True)
class RehomeOptions:
    """The new topology, by a text or by numbers, and what the user states about the directory."""

    command: str
    """The name of the run in the journal."""
    new: Described | None = None
    old: Described | None = None
    numbers: Mapping[int, int | None] = field(default_factory=dict)
    """Without texts: old number -> new number, None for a sub-topology that no longer exists."""
    spec: SpecDraft | None = None
    """The kinds of new stores. It must not contradict the directory about those that are here."""
    spec_name: str = ""
    """The name of its file in messages."""
    at_least_once: bool = False
    """The application never ran with exactly-once: uncommitted data cannot be in the stores."""
    wipe_unclean: bool = False
    """Stores that were not left clean are left out."""
    cluster: Cluster | None = None
    """The broker to ask; None to ask none."""
    completer: Completer | None = None
    """Restores what half tasks lack; None to refuse half tasks."""
    complete: frozenset[str] = frozenset()
    """The half tasks that this host completes; empty to let the texts decide."""

    def of_application(self, app_id: str) -> RehomeOptions:
        """Return the same with both texts as ``Topology#describe`` prints them, so that they can be compared."""
        # kafka-streams-groups.sh prints topics with the application's id, Topology#describe without it: a text of
        # one program must equal that of the other.
        new, old = self.new, self.old
        if new is not None:
            new = new.undecorated(app_id)
        if old is not None:
            old = old.undecorated(app_id)
        return replace(self, new=new, old=old)

    @property
    def _stores(self) -> Sequence[StoreDraft]:
        if self.spec is None:
            return ()
        return self.spec.stores

    @property
    def in_memory(self) -> frozenset[str]:
        """The stores that are in memory, by the specification."""
        return frozenset(store.name for store in self._stores if store.kind == IN_MEMORY)

    @property
    def writers(self) -> Mapping[str, int]:
        """Store -> the sub-topology whose copy is complete, by the specification."""
        return {store.name: store.subtopology for store in self._stores if store.subtopology is not None}

    @property
    def unlogged(self) -> frozenset[str]:
        """The stores without a changelog, by the specification."""
        return frozenset(store.name for store in self._stores if store.logged is False)

    def store_spec(self, name: str) -> StoreDraft | None:
        """Return what the specification states about a store; None if it does not state a kind."""
        # A table without a kind states other fields, and the layout of the store stays unknown.
        for store in self._stores:
            if store.name == name and store.kind is not None:
                return store
        return None


def options_of(
    new: Path | None,
    old: Path | None,
    pairs: Sequence[str],
    spec: Path | None,
    *,
    at_least_once: bool,
    wipe_unclean: bool,
) -> RehomeOptions:
    """Read the files that the user passes, and return the options.

    Raises UsageError for unreadable files and contradictions.

    ``pairs`` map old numbers of sub-topologies to new ones (``6=4``), ``spec`` is the path of a specification.
    """
    _refuse_contradictions(new, old, pairs)
    words = ["rehome"]
    options = RehomeOptions("", at_least_once=at_least_once, wipe_unclean=wipe_unclean)
    # In the order of the arguments, so that of several unreadable files the first one is reported.
    if new is not None:
        words.append(f"{option.TOPOLOGY} {quoted(str(new))}")
        options = replace(options, new=Described.by(read_topology(new)))
    if old is not None:
        words.append(f"{option.FROM} {quoted(str(old))}")
        options = replace(options, old=Described.by(read_topology(old)))
    words += [f"{option.MAP} {quoted(pair)}" for pair in pairs]
    options = replace(options, numbers=read_pairs(pairs))
    if spec is not None:
        options = replace(options, spec=read_draft(spec), spec_name=str(spec))
    return replace(options, command=" ".join(words))


def _refuse_contradictions(new: Path | None, old: Path | None, pairs: Sequence[str]) -> None:
    if (new is None) == (not pairs):
        raise UsageError(
            f"specify the new topology: pass {option.TOPOLOGY} FILE or {option.MAP} OLD=NEW" if new is None else _BOTH,
            hint="write the output of System.out.println(builder.build(props).describe()) to a file",
        )
    if old is not None and new is None:
        raise UsageError(
            f"{option.FROM} needs {option.TOPOLOGY}",
            hint=f"also pass {option.TOPOLOGY}, or omit {option.FROM}. {option.MAP} does not need it",
        )
