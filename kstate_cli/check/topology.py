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
class RehomePreview:
    """The answer of ``kstate rehome`` for the same directory and topology."""

    words: tuple[str | os.PathLike[str], ...] = ()
    """The words after ``--topology`` in the command of a hint."""
    refusal: str | None = None
    """The message of its refusal."""
    hint: str | None = None
    """The hint of its refusal."""
    warnings: tuple[str, ...] = ()
    """Its warnings, if its plan is not empty."""


@dataclass(frozen=True, slots=True)
class RequestedTopology:
    """The topology that is to be started, as the user describes it."""

    new: Described
    old: Described | None = None
    """The topology that ran here last."""
    spec: SpecDraft | None = None
    """The kinds of new stores."""
    rehome: RehomePreview = field(default_factory=RehomePreview)

    def store_draft(self, store: str) -> StoreDraft | None:
        """Return the specification of a store; None if it does not contain its kind."""
        draft = self.spec.store(store) if self.spec is not None else None
        return draft if draft is not None and draft.kind is not None else None

    def is_on_disk(self, store: str) -> bool | None:
        """Return True if a store is persistent; None if nothing states it."""
        draft = self.store_draft(store)
        return None if draft is None else draft.kind != IN_MEMORY

    def is_logged(self, store: str) -> bool:
        """Return False only if the specification states that a store has no changelog."""
        draft = self.store_draft(store)
        return draft is None or draft.logged is not False


@dataclass(frozen=True, slots=True)
class AbsentStore:
    """A store that a task should have, and of which its directory has nothing."""

    other_task: str | None = None
    """The task that has it, of the same partition."""
    logged: bool = True
    """True if it has a changelog, as far as the task that has it shows."""
    new: bool = False
    """No task of any partition has it, and the old topology did not have it either."""
    on_disk: bool | None = True
    """None if nothing states it: a store in memory costs its task nothing."""


@dataclass(frozen=True, slots=True)
class Homes:
    """The differences between the topology and the directory."""

    missing: Mapping[str, Mapping[str, AbsentStore]] = field(default_factory=dict)
    """By task and store."""
    left_over: frozenset[str] = frozenset()
    """Tasks of sub-topologies that the topology lacks."""
    elsewhere: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Task -> store -> the task where the topology looks for it; None if the topology has no such store."""
    unlogged: frozenset[tuple[str, str]] = frozenset()
    """Stores elsewhere that have rows and no changelog, by task and store."""
    topics: Mapping[StoreKey, str] = field(default_factory=dict)
    """The topic that a store is restored from, as far as an offset of any partition names it."""
    stores: frozenset[str] = frozenset()
    """The names of all stores of which any task has something."""
    global_unused: tuple[str, ...] = ()
    """Global stores of the directory that the topology lacks."""
    global_missing: tuple[str, ...] = ()
    """Global stores of the topology that the directory lacks."""
    global_on_disk: tuple[str, ...] = ()
    """Global stores of the topology, without those that are surely in memory."""
    unplaced: tuple[StoreKey, ...] = ()
    """Stores of sub-topologies of which the directory has nothing, so that their partitions are unknown."""

    def wiped_for(self, task: str, store: str, *, has_topic: bool) -> bool | None:
        """Return True if a store that a task lacks costs it everything under exactly-once; None if its kind decides.

        ``named``: a topic that it would be restored from is known.
        """
        missing = self.missing.get(task, {}).get(store)
        if missing is None or not (missing.other_task or missing.new):
            return has_topic
        if missing.other_task:
            return missing.logged or has_topic
        return missing.on_disk

    def begins_empty(self, task: str, store: str, *, has_topic: bool) -> bool:
        """Return True if a store that lies elsewhere has no changelog to be restored from."""
        missing = self.missing.get(task, {}).get(store)
        return missing is not None and missing.other_task is not None and not (missing.logged or has_topic)


def home_of_store(topology: RequestedTopology, task: TaskId, store: str) -> str | None:
    """Return the task where the topology looks for a store, in the partition of ``task``; None if it lacks it."""
    places = topology.new.places(StoreKey(task.topology or "", store))
    if not places or task.partition is None:
        return None
    own = None if task.is_global else Home.of(task)
    return (own if own is not None and own in places else places[0]).task(task.partition)


def is_left_over(topology: RequestedTopology, task: TaskId) -> bool:
    """Return True if the topology has no sub-topology of a task's number, or one of global stores."""
    return not task.is_global and topology.new.part(Home.of(task)) is None
