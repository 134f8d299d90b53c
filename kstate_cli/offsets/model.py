"""The offsets of one task and of each of its stores, as far as the directory states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.statedir.model import Database, Store, Task


@dataclass(frozen=True, slots=True)
class Unclean:
    """A reason why uncommitted data may be in a task; ``str()`` is the sentence for people."""

    place: str
    text: str
    store: str | None = None
    """The store; None if the reason is about the task as a whole."""
    no_status: bool = False
    """The only sign is a database that states neither that it was open nor that it was closed."""
    younger: bool = False
    """The only sign is an SST that is younger than ``.checkpoint``, which has harmless reasons too."""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True, slots=True)
class StoreOffsets:
    """The offsets of one store."""

    store: Store
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    position: Position = field(default_factory=Position.empty)
    places: tuple[str, ...] = ()
    """The places that state an offset: ``column-family``, ``checkpoint``, ``store-file``."""
    stale: bool = False
    """The store is a global one that the last run did not open."""
    silent: tuple[Database, ...] = ()
    """The segments that make the store's offset unknown, because they should state one and do not
    (:mod:`kstate_cli.offsets.last_run`).
    """
    uneven: bool = False
    """The segments of the store state different offsets, or some should state one and do not."""

    @property
    def has_offset(self) -> bool:
        """Return True if every offset of the store is known. -4 counts as known only if the store has no rows."""
        return bool(self.offsets) and (self.store.empty or OFFSET_UNKNOWN not in self.offsets.values())

    @property
    def offsets_in(self) -> str:
        """Return the place that Streams reads first (``.checkpoint`` overrides the column family), or ``none``."""
        order = ["checkpoint", "column-family", "store-file"]
        if self.store.is_grace_buffer:
            order = ["store-file", "checkpoint", "column-family"]
        return next((place for place in order if place in self.places), "none")

    @property
    def position_shown(self) -> dict[str, dict[int, int]] | None:
        """Return the Position as ``{topic: {partition: offset}}``; None if it is unknown."""
        if self.store.position_is_readable:
            return self.position.as_map()
        return None


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """The offsets of one task."""

    task: Task
    stores: tuple[StoreOffsets, ...] = ()
    absent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Store name -> offsets, for stores without a directory, from ``.checkpoint`` or ``.checkpoint_<store>``."""
    unknown: Mapping[TopicPartition, int] = field(default_factory=dict)
    unclean: tuple[Unclean, ...] = ()
    """The reasons why uncommitted data may be in the task, if the application ran with exactly-once."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def uneven_stores(self) -> tuple[StoreOffsets, ...]:
        """The stores whose segments state different offsets, or of which some should state one and do not."""
        return tuple(store for store in self.stores if store.uneven)

    @property
    def unreadable(self) -> bool:
        """Return True if the offsets of the task are unknown, because its ``.checkpoint`` cannot be read."""
        return self.task.checkpoint is not None and self.task.checkpoint.content is None

    def offsets_shown(self, store: StoreOffsets) -> dict[str, dict[int, int]] | None:
        """Return the offsets of one of its stores as ``{topic: {partition: offset}}``; None if they are unknown."""
        if self.unreadable and not store.offsets:
            return None
        return by_topic(store.offsets)


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Return offsets as ``{topic: {partition: offset}}``."""
    topics: dict[str, dict[int, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[tp.partition] = offset
    return topics
