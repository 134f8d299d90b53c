"""``Position`` and ``PositionBound`` of interactive queries, and the bytes of ``PositionSerde``.

A position says up to which *input* offset a store has been fed, per topic and partition; it is never about changelog
offsets. Bytes, version 0::

    00 ‖ nTopics:i32 ‖ nTopics × (nameLen:i32 ‖ name UTF-8 ‖ nPairs:i32 ‖ nPairs × (partition:i32 ‖ offset:i64))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .binary import MAX_I32, MAX_I64, MIN_I64, Reader, i32, i64
from .checkpoint import Checkpoint
from .topic_partition import TopicPartition

_VERSION: Final = 0
_PAIR_BYTES: Final = 12
_MIN_TOPIC_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Position:
    """An immutable position; two are equal iff they have the same components.

    Build it with :meth:`empty`, :meth:`from_map` and :meth:`with_component`. A topic without partitions says nothing
    and is not kept.
    """

    _components: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    @classmethod
    def empty(cls) -> Position:
        """The position of a store that has seen nothing."""
        return cls()

    @classmethod
    def empty_position(cls) -> Position:
        """As :meth:`empty`, by the name that KIP-796 gives it."""
        return cls()

    @classmethod
    def from_map(cls, offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """From ``{topic: {partition: offset}}``; :class:`ValueError` for numbers that do not fit i32 and i64."""
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                if not 0 <= partition <= MAX_I32 or not MIN_I64 <= offset <= MAX_I64:
                    raise ValueError(f"{topic}:{partition} at {offset} is out of range")
        return cls(
            tuple(
                (topic, tuple(sorted(partitions.items())))
                for topic, partitions in sorted(offsets.items())
                if partitions
            )
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Position:
        """The position that a ``<store>.position`` file holds (``StoreQueryUtils.readPositionFromCheckpoint``).

        :class:`ValueError` for a negative partition, which the text format lets through.
        """
        offsets: dict[str, dict[int, int]] = {}
        for topic_partition, offset in checkpoint.entries.items():
            offsets.setdefault(topic_partition.topic, {})[topic_partition.partition] = offset
        return cls.from_map(offsets)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that have a component, sorted."""
        return tuple(topic for topic, _ in self._components)

    @property
    def is_empty(self) -> bool:
        """Whether there is no component at all."""
        return not self._components

    def partition_positions(self, topic: str) -> dict[int, int]:
        """``{partition: offset}`` of ``topic``; empty if the position does not know it."""
        for name, partitions in self._components:
            if name == topic:
                return dict(partitions)
        return {}

    def get_bound(self, topic: str) -> dict[int, int]:
        """As :meth:`partition_positions`, by the name that KIP-796 gives it."""
        return self.partition_positions(topic)

    def as_map(self) -> dict[str, dict[int, int]]:
        """``{topic: {partition: offset}}``, a copy."""
        return {topic: dict(partitions) for topic, partitions in self._components}

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """This position, advanced: a component never goes back (``Position.withComponent``)."""
        return self.merge(Position.from_map({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """The greater offset of each component (``Position.merge``)."""
        merged = self.as_map()
        for topic, partitions in other._components:
            mine = merged.setdefault(topic, {})
            for partition, offset in partitions:
                mine[partition] = max(offset, mine.get(partition, offset))
        return Position.from_map(merged)

    def to_checkpoint_entries(self) -> dict[TopicPartition, int]:
        """Entries for :func:`kstate_cli.formats.checkpoint.render`; empty means that the file is to be deleted."""
        return {
            TopicPartition(topic, partition): offset
            for topic, partitions in self._components
            for partition, offset in partitions
        }

    def to_bytes(self) -> bytes:
        """The bytes that ``PositionSerde.serialize`` gives, with its zero padding.

        Kafka adds up field sizes in bits where bytes are meant and keeps the whole buffer, so the result is
        ``40 + Σ(64 + nameLen + 96·nPartitions)`` bytes long, most of them zero. Topics and partitions are sorted here;
        Kafka writes them in hash order.
        """
        out = bytearray((_VERSION,))
        out += i32(len(self._components))
        length = 8 + 32
        for topic, partitions in self._components:
            name = topic.encode("utf-8")
            out += i32(len(name)) + name + i32(len(partitions))
            for partition, offset in partitions:
                out += i32(partition) + i64(offset)
            length += 32 + len(name) + 32 + 96 * len(partitions)
        return bytes(out.ljust(length, b"\0"))

    @classmethod
    def from_bytes(cls, data: bytes) -> Position:
        """Read ``PositionSerde`` bytes; whatever follows the last component is padding and is ignored.

        :class:`~kstate_cli.formats.malformed.MalformedBytesError` for another version than 0
        (``IllegalArgumentException``), bytes that end too early (``BufferUnderflowException``), negative counts,
        negative partitions, and names that are not UTF-8.
        """
        reader = Reader(data, "position")
        version = reader.u8("version")
        if version != _VERSION:
            raise reader.fail(f"unknown version {version}", "IllegalArgumentException")
        offsets: dict[str, dict[int, int]] = {}
        for _ in range(_count(reader, _MIN_TOPIC_BYTES, "number of topics")):
            topic = reader.text(reader.i32("topic length"), "topic")
            partitions = offsets.setdefault(topic, {})
            for _ in range(_count(reader, _PAIR_BYTES, f"number of partitions of {topic!r}")):
                partition = reader.i32("partition")
                if partition < 0:
                    raise reader.fail(f"negative partition {partition} of {topic!r}")
                partitions[partition] = reader.i64("offset")
        return cls.from_map(offsets)


@dataclass(frozen=True, slots=True)
class PositionBound:
    """How far a store must have come for a query to be answered; the empty position bounds nothing."""

    position: Position

    @classmethod
    def unbounded(cls) -> PositionBound:
        """No bound."""
        return cls(Position.empty())

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """At least ``position``."""
        return cls(position)

    @property
    def is_unbounded(self) -> bool:
        """Whether every position passes."""
        return self.position.is_empty


def is_permitted(position: Position, bound: PositionBound, partition: int) -> bool:
    """Return whether a store of task partition ``partition`` at ``position`` satisfies ``bound``.

    Per topic of the bound only the component of ``partition`` counts (``StoreQueryUtils.isPermitted``): absent from
    the bound passes, absent from the position fails, and an equal offset is enough.
    """
    for topic in bound.position.topics:
        least = bound.position.partition_positions(topic).get(partition)
        if least is None:
            continue
        reached = position.partition_positions(topic).get(partition)
        if reached is None or reached < least:
            return False
    return True


def _count(reader: Reader, size: int, field: str) -> int:
    count = reader.i32(field)
    if count < 0:
        raise reader.fail(f"negative {field}: {count}", "IllegalArgumentException")
    # A count that the rest cannot hold is found here, not after reading what there is.
    if count * size > reader.remaining:
        raise reader.fail(f"{field} is {count}, {reader.remaining} bytes left", "BufferUnderflowException")
    return count
