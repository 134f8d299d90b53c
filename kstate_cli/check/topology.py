"""A topology that is to be started on a directory that another one may have written, as data.

Streams looks for a store in the task of the sub-topology that has it, by number, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.task_id import TaskId
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from kstate_cli.specification.homes import Described, Home, StoreKey
from kstate_cli.specification.model import IN_MEMORY


@dataclass(frozen=True, slots=True)
class Mending:
    """What ``kstate rehome`` says of the same directory and the same topology."""

    words: tuple[str | os.PathLike[str], ...] = ()
    """What follows ``--topology`` in the line that is to be pasted."""
    refused: str | None = None
    """Why it refuses as things are."""
    hint: str | None = None
    """What to do about that."""
    warnings: tuple[str, ...] = ()
    """What it warns of, where it has something to do."""


@dataclass(frozen=True, slots=True)
class AskedTopology:
    """What the user says of the topology that is to be started."""

    new: Described
    old: Described | None = None
    """The one that ran here last."""
    spec: SpecDraft | None = None
    """The kinds of new stores."""
    mending: Mending = field(default_factory=Mending)

    def said(self, store: str) -> StoreDraft | None:
        """What the specification says of a store; None where it does not say its kind."""
        said = self.spec.store(store) if self.spec is not None else None
        return said if said is not None and said.kind is not None else None

    def is_on_disk(self, store: str) -> bool | None:
        """Whether a store is persistent; None where nobody says."""
        said = self.said(store)
        return None if said is None else said.kind != IN_MEMORY

    def is_logged(self, store: str) -> bool:
        """False only where the specification says that a store has no changelog."""
        said = self.said(store)
        return said is None or said.logged is not False


@dataclass(frozen=True, slots=True)
class Lacked:
    """A store that a task is to have, and of which nothing lies there."""

    lies_in: str | None = None
    """The task that has it, of the same partition."""
    logged: bool = True
    """Whether it has a changelog, as far as the task tells that has it."""
    new: bool = False
    """No task of any partition has it, and the topology of before did not have it either."""
    on_disk: bool | None = True
    """None where nobody says: a store in memory costs its task nothing."""


@dataclass(frozen=True, slots=True)
class Homes:
    """What the topology finds in the directory, and what lies elsewhere."""

    lacked: Mapping[str, Mapping[str, Lacked]] = field(default_factory=dict)
    """By task and store."""
    left_over: frozenset[str] = frozenset()
    """Tasks of sub-topologies that it has not."""
    elsewhere: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Stores that lie in a task where it does not look for them, by task -> the task where it does; None: it has no
    such store."""
    unlogged: frozenset[tuple[str, str]] = frozenset()
    """Those of them that have rows and no changelog, by task and store."""
    topics: Mapping[StoreKey, str] = field(default_factory=dict)
    """The topic that a store is restored from, as far as an offset of any partition names it."""
    stores: frozenset[str] = frozenset()
    """The names of all stores of which anything is here, wherever it lies."""
    global_gone: tuple[str, ...] = ()
    """Global stores that it has not any more."""
    global_lacked: tuple[str, ...] = ()
    """Global stores that are not here."""
    global_on_disk: tuple[str, ...] = ()
    """Its global stores, as far as they are not known to be in memory."""
    unplaced: tuple[StoreKey, ...] = ()
    """Its stores of sub-topologies of which nothing is here, so that nobody knows their partitions."""

    def wiped_for(self, task: str, store: str, *, named: bool) -> bool | None:
        """Whether a store that a task lacks costs it everything under exactly-once; None where its kind decides.

        ``named``: a topic that it would be restored from is known.
        """
        one = self.lacked.get(task, {}).get(store)
        if one is None or not (one.lies_in or one.new):
            return named
        if one.lies_in:
            return one.logged or named
        return one.on_disk

    def begins_empty(self, task: str, store: str, *, named: bool) -> bool:
        """Whether a store that lies elsewhere has no changelog to be restored from."""
        one = self.lacked.get(task, {}).get(store)
        return one is not None and one.lies_in is not None and not (one.logged or named)


def home_of_store(asked: AskedTopology, task: TaskId, store: str) -> str | None:
    """The task where the topology looks for a store of the partition of ``task``; None where it has no such store."""
    places = asked.new.places(StoreKey(task.topology or "", store))
    if not places or task.partition is None:
        return None
    own = None if task.is_global else Home.of(task)
    return (own if own is not None and own in places else places[0]).task(task.partition)


def is_left_over(asked: AskedTopology, task: TaskId) -> bool:
    """Whether the topology has no sub-topology of a task's number, or one of global stores."""
    return not task.is_global and asked.new.part(Home.of(task)) is None
