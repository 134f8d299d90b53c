"""Stores, and where they go, as data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kstate_cli.formats.task_id import TaskId
from kstate_cli.specification.homes import Home, StoreKey


class Because(StrEnum):
    """Why a store leaves without going anywhere."""

    NO_SUCH_STORE = "the new topology has no such store; its changelog stays"
    STARTED = "the new topology was started here once, and made this copy"
    EMPTY = "empty, as a start that fails leaves it; Streams makes it anew"
    LOST = "its offset is lost, since the new topology ran in its task; the copy that was made then has one"
    GONE = "its sub-topology is gone; its changelog stays"
    COPY = "several sub-topologies had a copy of it each; its changelog has the records of all"
    ELSEWHERE = "half of a task that another host completes; its changelog stays"


class WhyRefused(StrEnum):
    """What the error is called, for programs."""

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
class Held:
    """One task of the directory, and the stores that something is here of."""

    task: TaskId
    stores: frozenset[str]
    traces: frozenset[str] = frozenset()
    """Stores of which offsets are here, and no database."""
    lost: frozenset[str] = frozenset()
    """Those of ``stores`` that have no offset: without a changelog, or a start of the new topology has written a
    ``.checkpoint`` without their lines."""
    virgins: frozenset[str] = frozenset()
    """Stores without a row whose offset is -4: never written, wiped, or made by a start as the next ones are."""
    strays: frozenset[str] = frozenset()
    """Stores without a row and without an offset. A start of 4.3 that fails on directories of tasks which the new
    topology has not builds all of its stores in each, global ones too."""

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
        """One of its stores."""
        return StoreKey(self.task.topology or "", store)


@dataclass(frozen=True, slots=True)
class Placed:
    """One store of one partition."""

    store: str
    source: str
    """The task that has it."""
    target: str | None
    """The task that is to have it; None where it leaves."""
    because: Because | None = None
    trace: bool = False
    """Offsets alone are here of it."""
    stray: bool = False
    """It has neither rows nor an offset."""

    @property
    def moves(self) -> bool:
        """Whether it goes to another task."""
        return self.target not in (None, self.source)


@dataclass(frozen=True, slots=True)
class Lacking:
    """A store that a task is to have, and of which nothing is here for its partition."""

    store: str
    told: bool
    """The old text has it, or another partition's task: so it is no new one."""
    seen: bool
    """Another partition's task has a database of it."""
    stray: bool = False
    """There is one, without rows and without an offset."""
    half: str | None = None
    """The task that had it and is not here: another host has it. None where that is no question."""


@dataclass(slots=True)
class Rehoming:
    """Where everything goes."""

    placed: list[Placed] = field(default_factory=list)
    _into: dict[str, list[Placed]] = field(default_factory=dict)
    _of: dict[str, list[Placed]] = field(default_factory=dict)
    lacking: dict[str, list[Lacking]] = field(default_factory=dict)
    """Task -> what it is to have beside what goes there; nothing where nothing goes there."""
    partial: set[tuple[str, str]] = field(default_factory=set)
    """Task and store of the copies that go on and have the records of one of several sub-topologies only."""

    def add(self, placed: Placed) -> None:
        """One more store."""
        self.placed.append(placed)
        self._of.setdefault(placed.source, []).append(placed)
        if placed.target is not None:
            self._into.setdefault(placed.target, []).append(placed)

    @property
    def targets(self) -> list[str]:
        """The tasks that are to have something."""
        return sorted(self._into)

    def into(self, task: str) -> list[Placed]:
        """What a task is to have."""
        return self._into.get(task, [])

    def of(self, task: str) -> list[Placed]:
        """What a task has had."""
        return self._of.get(task, [])

    @property
    def halves(self) -> dict[str, tuple[str, ...]]:
        """The tasks that are to have something, and more that another host has: task -> those stores."""
        halves = {name: tuple(one.store for one in those if one.half) for name, those in self.lacking.items()}
        return {name: stores for name, stores in halves.items() if stores}

    def without(self, tasks: Collection[str]) -> Rehoming:
        """The same, but nothing goes to these tasks: another host completes them."""
        lacking = {name: those for name, those in self.lacking.items() if name not in tasks}
        left = Rehoming(lacking=lacking, partial=self.partial)
        for one in self.placed:
            left.add(replace(one, target=None, because=Because.ELSEWHERE) if one.target in tasks else one)
        return left
