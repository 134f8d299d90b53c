"""Random topologies: which kinds of stores over which topics, and how ``kstate.toml`` describes them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

RETENTION_MS, SEGMENT_MS = 1_200_000, 600_000
HISTORY_SEGMENT_MS = 240_000
PREFIX = "mix:"
_NUMBER = re.compile(r"Sub-topology: (\d+)")
_STORES = re.compile(r"\(stores: \[(.*?)\]\)")


@dataclass(frozen=True)
class Store:
    """One store of a topology."""

    name: str
    kind: str
    """As ``kstate.toml`` has it."""
    source: str = ""
    """The input topic that is its changelog."""
    logged: bool = True
    indexed: bool | None = None

    @property
    def is_global(self) -> bool:
        """Return whether it is a global store."""
        return self.name.startswith("global-")

    @property
    def replay(self) -> str:
        """The kind as the replay has it; "opaque" where a row is not the record of the same key."""
        opaque = ("time-ordered", "grace-buffer", "in-memory", "foreign-key")
        return "opaque" if self.kind.startswith(opaque) or not self.logged else self.kind

    def changelog(self, application: str, prefix: str) -> str:
        """Return its topic."""
        return f"{prefix}-{self.source}" if self.source else f"{application}-{self.name}-changelog"


_OF_A_STREAM = {
    "plain": ("key-value", 6),
    "nolog": ("key-value", 1),
    "timestamped": ("timestamped-key-value", 4),
    "window": ("window", 4),
    "duplicates": ("window", 2),
    "session": ("session", 3),
    "count": ("timestamped-key-value", 5),
    "reduce": ("timestamped-key-value", 3),
    "memory": ("in-memory", 1),
    "counts": ("timestamped-window", 5),
    "visits": ("session", 4),
    "closed": ("time-ordered-window", 2),
    "ended": ("time-ordered-session", 2),
    "suppressed": ("timestamped-window", 2),
    "versioned": ("versioned", 5),
    "graced": ("versioned", 2),
}
"""Kind of ``Mix.java`` -> the kind of its store, and how often it is drawn."""
_SPECIAL = {
    "join": (
        Store("join-this-join-store", "window"),
        Store("join-outer-other-join-store", "window"),
        Store("join-left-shared-join-store", "list-value"),
    ),
    "fk": (
        Store("fk-left", "timestamped-key-value", "fk-left"),
        Store("fk-right", "timestamped-key-value", "fk-right"),
        Store("fk-result", "timestamped-key-value"),
        Store("fk-subscription-store", "foreign-key-subscription"),
    ),
    "table": (Store("source-table", "timestamped-key-value", "table"),),
    "global": (Store("global-table", "timestamped-key-value", "global"),),
}
_TOPICS = {"join": ("left", "right"), "fk": ("fk-left", "fk-right"), "table": ("table",), "global": ()}
"""Topics whose records a special part processes; those of a global table count nowhere."""


@dataclass(frozen=True)
class Topology:
    """The parts of a topology, in the order in which they are added: it gives sub-topologies their numbers."""

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which ``Mix.java`` builds it."""
        return PREFIX + ";".join(self.parts)

    @property
    def topics(self) -> list[str]:
        """The topics whose records are processed."""
        return [topic for part in self.parts for topic in _TOPICS.get(part, (part.partition("=")[0],))]

    @property
    def stores(self) -> list[Store]:
        """Its stores."""
        return [store for part in self.parts for store in _stores(part)]

    def reordered(self, dice: random.Random) -> Topology:
        """Return the same parts in another order: other numbers of sub-topologies."""
        return Topology(tuple(dice.sample(self.parts, len(self.parts))))


def _stores(part: str) -> Sequence[Store]:
    if part in _SPECIAL:
        return _SPECIAL[part]
    topic, _, kinds = part.partition("=")
    stores = []
    for kind in kinds.split("+"):
        name = f"{kind}-{topic}"
        indexed = {"closed": False, "ended": True}.get(kind)
        stores.append(Store(name, _OF_A_STREAM[kind][0], logged=kind != "nolog", indexed=indexed))
        if kind == "suppressed":
            stores.append(Store(f"buffer-{name}-store", "in-memory"))
        if kind == "graced":
            stores.append(Store(f"join-{name}-Buffer", "grace-buffer"))
    return stores


def draw(dice: random.Random) -> Topology:
    """Return a random topology of two to about ten stores."""
    parts = [_over("events", dice, 1, 4)]
    if dice.random() < 0.55:
        parts.append(_over("versioned", dice, 1, 3))
    for special, chance in (("join", 0.3), ("fk", 0.2), ("table", 0.35), ("global", 0.3)):
        if dice.random() < chance:
            parts.append(special)
    dice.shuffle(parts)
    return Topology(tuple(parts))


def _over(topic: str, dice: random.Random, least: int, most: int) -> str:
    kinds = list(_OF_A_STREAM)
    weights = [weight for _, weight in _OF_A_STREAM.values()]
    chosen = dict.fromkeys(dice.choices(kinds, weights, k=dice.randint(least, most)))
    return f"{topic}={'+'.join(chosen)}"


def homes(description: str) -> dict[str, int]:
    """Return store -> the number of its sub-topology, from the text of ``Topology#describe``."""
    numbers: dict[str, int] = {}
    number = -1
    for line in description.splitlines():
        if match := _NUMBER.search(line):
            number = int(match[1])
        for stores in _STORES.findall(line):
            numbers.update({store.strip(): number for store in stores.split(",") if store.strip()})
    return numbers


def spec(topology: Topology, description: str, application: str, prefix: str) -> str:
    """Return the ``kstate.toml`` of an application of one partition."""
    numbers = homes(description)
    lines = ["format = 1", f'application = "{application}"']
    for store in topology.stores:
        lines += ["", f"[stores.{store.name}]", f'kind = "{store.kind}"']
        if not store.logged:
            lines.append("logged = false")
        if store.logged and store.kind != "in-memory":
            lines.append(f'changelog = "{store.changelog(application, prefix)}"')
        if store.is_global:
            lines += ["global = true", 'source = "table"']
        else:
            if store.source:
                lines.append('source = "topic"')
            lines += [f"subtopology = {numbers[store.name]}", "partitions = 1"]
        if store.kind == "versioned":
            lines += [f"retention_ms = {RETENTION_MS}", f"segment_interval_ms = {HISTORY_SEGMENT_MS}"]
        elif "window" in store.kind or "session" in store.kind:
            lines += [f"retention_ms = {RETENTION_MS}", f"segment_interval_ms = {SEGMENT_MS}"]
        if store.indexed is not None:
            lines.append(f"indexed = {str(store.indexed).lower()}")
    return "\n".join(lines) + "\n"
