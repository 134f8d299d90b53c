"""The sub-topology of each store: by texts of ``Topology#describe``, or by numbers that a user gives.

A changelog is called after its store, and after the named topology that the store is part of, never after a
sub-topology (``ProcessorStateManager.storeChangelogTopic``). So a store of another named topology is another store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.specification.topology import Subtopology, TopologyText

REMOVED: Final = "gone"
"""The new number, in a mapping, of a sub-topology that the topology does not have any more."""
_PAIR: Final = re.compile(rf"(0|[1-9][0-9]{{0,9}})=(0|[1-9][0-9]{{0,9}}|{REMOVED})")
_GENERATED: Final = re.compile(r"(?:.*-)?[0-9]{10}(?:-.*)?")


@dataclass(frozen=True, slots=True, order=True)
class StoreKey:
    """One store of all partitions."""

    topology: str
    """The named topology that it is part of; empty without one."""
    store: str

    def __str__(self) -> str:
        if not self.topology:
            return self.store
        return f"{self.topology}/{self.store}"


@dataclass(frozen=True, slots=True, order=True)
class Home:
    """One sub-topology."""

    topology: str
    number: int

    @classmethod
    def of(cls, task: TaskId) -> Home:
        """Return the sub-topology of a task other than ``global``."""
        assert task.subtopology is not None
        return cls(task.topology or "", task.subtopology)

    def task(self, partition: int) -> str:
        """Return the name of its task's directory for a partition."""
        return TaskId(self.topology or None, self.number, partition).name

    def __str__(self) -> str:
        if not self.topology:
            return str(self.number)
        return f"{self.topology}/{self.number}"


@dataclass(frozen=True, slots=True)
class Described:
    """A text of ``Topology#describe`` as the sub-topologies of stores."""

    text: TopologyText
    homes: Mapping[StoreKey, Home]
    """The sub-topology of each store of a task; the first if several have a copy."""
    global_stores: frozenset[str]
    copies: Mapping[StoreKey, tuple[Home, ...]] = field(default_factory=dict)
    """The sub-topologies of the stores that several have a copy of (``patch_releases.SHARED_STORE_BUILDER``)."""

    @classmethod
    def by(cls, text: TopologyText) -> Described:
        """Return the sub-topologies of the stores of a text."""
        # Global stores have a number in the text but no task, so no task directory is named after that number.
        tasks = [part for part in text.subtopologies if not part.is_global]
        places: dict[StoreKey, list[Home]] = {}
        for part in tasks:
            for name in part.stores:
                # One store may occur several times: releases before KAFKA-20464 print it in each sub-topology whose
                # processors share its builder.
                places.setdefault(StoreKey(part.topology or "", name), []).append(home_of(part))
        copies = {key: tuple(homes) for key, homes in places.items() if len(homes) > 1}
        return cls(text, {key: homes[0] for key, homes in places.items()}, frozenset(text.global_stores), copies)

    def undecorated(self, app_id: str) -> Described:
        """Return the same with topics as ``Topology#describe`` prints them, whichever program printed this text."""
        return replace(self, text=self.text.undecorated(app_id))

    def places(self, key: StoreKey) -> tuple[Home, ...]:
        """Return the sub-topologies that have a store: none, one, or several that have a copy each."""
        if key in self.copies:
            return self.copies[key]
        if key in self.homes:
            return (self.homes[key],)
        return ()

    def stores_of(self, home: Home) -> tuple[str, ...]:
        """Return the stores of a sub-topology, in the order of the text."""
        return tuple(key.store for key in self.homes if home in self.places(key))

    def part(self, home: Home) -> Subtopology | None:
        """Return the sub-topology; None if the text has none of that number."""
        return next((p for p in self.text.subtopologies if not p.is_global and home_of(p) == home), None)


def home_of(part: Subtopology) -> Home:
    """Return the sub-topology after which the directories of its tasks are named."""
    return Home(part.topology or "", part.number)


def generated(store: str) -> bool:
    """Return whether the DSL may have generated a name, with the number of its operator (``newStoreName``).

    Such a name has ten digits between dashes. kstate also asks about a store whose author chose such a name.
    """
    return _GENERATED.fullmatch(store) is not None


def of_another_operator(key: StoreKey, new: Described, old: Described) -> bool:
    """Return whether a generated name that both texts have belongs to another operator now: it is another store."""
    # A given name identifies a store. A generated one only counts operators, so its sources must agree
    # as well.
    return generated(key.store) and new.text.origin(key.store) != old.text.origin(key.store)


def read_pairs(pairs: Iterable[str]) -> dict[int, int | None]:
    """Return the new number for each old one, None for ``gone``. Raise UsageError for anything but a change of numbers.

    Two old numbers with the same new one are refused: a merge of sub-topologies and a replacement look the same, and
    only texts of the topology show which it is.
    """
    numbers: dict[int, int | None] = {}
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None or any(number != REMOVED and int(number) > MAX_I32 for number in match.groups()):
            raise UsageError(f"{pair!r} does not map one sub-topology number to another", hint=_HINT)
        old, new = int(match[1]), _new_number(match[2])
        # The same change may be given twice, since scripts repeat options. Only another target is a contradiction.
        if numbers.setdefault(old, new) != new:
            raise UsageError(f"the mapping gives sub-topology {old} two new numbers", hint=_HINT)
    # ``gone`` is left out of the check for repeated targets: any number of sub-topologies may disappear.
    targets = [new for new in numbers.values() if new is not None]
    for twice in sorted({new for new in targets if targets.count(new) > 1}):
        raise UsageError(
            f"the mapping gives two sub-topologies the number {twice}",
            hint=(
                f"for merged sub-topologies, pass both topology descriptions instead, with {option.TOPOLOGY} and "
                f"{option.FROM}"
            ),
        )
    return numbers


def _new_number(text: str) -> int | None:
    return None if text == REMOVED else int(text)


_HINT: Final = (
    f"pass {option.MAP} OLD=NEW, such as 6=4, or 5={REMOVED} if the new topology does not have sub-topology 5"
)
