"""What is known of the offsets of one task and of each of its stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.position import Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.statedir.model import Database, Store, Task


@dataclass(frozen=True, slots=True)
class Unclean:
    """Why uncommitted data may be in a task; ``str()`` is the sentence for people."""

    place: str
    what: str
    store: str | None = None
    """None where it is the task as a whole."""
    no_status: bool = False
    """All that is known is that a database says neither that it was left open nor that it was closed."""
    younger: bool = False
    """All that is known is that an SST is younger than ``.checkpoint``: there are harmless reasons for that."""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True, slots=True)
class StoreOffsets:
    """What is known about one store."""

    store: Store
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    position: Position = field(default_factory=Position.empty)
    places: tuple[str, ...] = ()
    """Where an offset was found: ``column-family``, ``checkpoint``, ``store-file``."""
    stale: bool = False
    """A global store that the last run did not open."""
    silent: tuple[Database, ...] = ()
    """Segments that should state an offset and do not: they make the store's offset unknown."""
    uneven: bool = False
    """Its segments state different offsets, or some should state one and do not."""

    @property
    def has_offset(self) -> bool:
        """Return True if every offset of the store is known; -4 is none unless the store has no rows."""
        return bool(self.offsets) and (self.store.empty or OFFSET_UNKNOWN not in self.offsets.values())

    @property
    def offsets_in(self) -> str:
        """The place that Streams reads first (``.checkpoint`` overrides the column family), or ``none``."""
        for place in (
            ("store-file", "checkpoint", "column-family")
            if self.store.is_grace_buffer
            else (
                "checkpoint",
                "column-family",
                "store-file",
            )
        ):
            if place in self.places:
                return place
        return "none"

    @property
    def position_shown(self) -> dict[str, dict[int, int]] | None:
        """The Position as ``{topic: {partition: offset}}``; None where nobody knows it."""
        return self.position.as_map() if self.store.position_is_readable else None


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """What is known about one task."""

    task: Task
    stores: tuple[StoreOffsets, ...] = ()
    absent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Offsets of stores without a directory, from ``.checkpoint`` or ``.checkpoint_<store>``."""
    unknown: Mapping[TopicPartition, int] = field(default_factory=dict)
    unclean: tuple[Unclean, ...] = ()
    """Why uncommitted data may be in the task, if the application ran with exactly-once."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def uneven_stores(self) -> tuple[StoreOffsets, ...]:
        """The stores whose segments state different offsets, or of which some should state one and do not."""
        return tuple(store for store in self.stores if store.uneven)

    @property
    def unreadable(self) -> bool:
        """Nobody knows the offsets of the task: its file has them and cannot be read."""
        return self.task.checkpoint is not None and self.task.checkpoint.content is None

    def offsets_shown(self, store: StoreOffsets) -> dict[str, dict[int, int]] | None:
        """The offsets of one of its stores as ``{topic: {partition: offset}}``; None where nobody knows them."""
        return None if self.unreadable and not store.offsets else by_topic(store.offsets)


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """``{topic: {partition: offset}}``."""
    topics: dict[str, dict[int, int]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, {})[tp.partition] = offset
    return topics
