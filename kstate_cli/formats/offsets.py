"""The column family ``offsets`` that Streams 4.3 keeps in every RocksDB, and the Position in it.

Rows: ``<topic>-<partition>`` -> offset:i64 (8 bytes exactly), ``position`` -> ``PositionSerde`` bytes, ``status`` ->
i64, 0 closed and 1 open. Keys are UTF-8 without a length; no topic-partition can be spelled like the other two.

The offset is the bare number: the last *applied* changelog record in a task store (reading continues at value + 1), the
*next* record to read in a global store (reading continues at the value). -4 is a consistent store without an offset.

A ``Position`` states up to which *input* offset a store has been fed, per topic and partition. It never is about
changelog offsets. Bytes of ``PositionSerde``, version 0::

    00 ‖ nTopics:i32 ‖ nTopics × (nameLen:i32 ‖ name UTF-8 ‖ nPairs:i32 ‖ nPairs × (partition:i32 ‖ offset:i64))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import MAX_I32, MAX_I64, MIN_I64, MalformedBytesError, Reader, i32, i64
from kstate_cli.formats.checkpoint import Checkpoint
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition

POSITION_KEY: Final = b"position"
STATUS_KEY: Final = b"status"
STATUS_CLOSED: Final = 0
STATUS_OPEN: Final = 1
_OFFSET_BYTES: Final = 8
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
        """Return the position of a store that has seen nothing."""
        return cls()

    @classmethod
    def empty_position(cls) -> Position:
        """Return the empty position, by the name that KIP-796 gives it."""
        return cls()

    @classmethod
    def from_map(cls, offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """Take ``{topic: {partition: offset}}``; :class:`ValueError` for numbers that do not fit i32 and i64."""
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
        """Return the position that a ``<store>.position`` file holds (``StoreQueryUtils.readPositionFromCheckpoint``).

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
        """Return ``{partition: offset}`` of ``topic``; empty if the position does not have it."""
        for name, partitions in self._components:
            if name == topic:
                return dict(partitions)
        return {}

    def get_bound(self, topic: str) -> dict[int, int]:
        """Return :meth:`partition_positions`, by the name that KIP-796 gives it."""
        return self.partition_positions(topic)

    def as_map(self) -> dict[str, dict[int, int]]:
        """Return ``{topic: {partition: offset}}``, a copy."""
        return {topic: dict(partitions) for topic, partitions in self._components}

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position, advanced: a component never goes back (``Position.withComponent``)."""
        return self.merge(Position.from_map({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """Return the greater offset of each component (``Position.merge``)."""
        merged = self.as_map()
        for topic, partitions in other._components:
            mine = merged.setdefault(topic, {})
            for partition, offset in partitions:
                mine[partition] = max(offset, mine.get(partition, offset))
        return Position.from_map(merged)

    def to_checkpoint_entries(self) -> dict[TopicPartition, int]:
        """Return entries for ``formats.checkpoint.render``; empty means that the file is to be deleted."""
        return {
            TopicPartition(topic, partition): offset
            for topic, partitions in self._components
            for partition, offset in partitions
        }

    def to_bytes(self) -> bytes:
        """Return the bytes that ``PositionSerde.serialize`` gives, including its zero padding.

        Kafka adds up the sizes of fields in bits where bytes are meant, and returns the whole buffer. So the result has
        ``40 + Σ(64 + nameLen + 96·nPartitions)`` bytes, most of them zero. The order differs from Kafka's, which is
        that of a hash table: topics and partitions are sorted here.
        """
        out = bytearray((_VERSION,))
        out += i32(len(self._components))
        # Kafka's calculation, copied: 8 for the version and 32 for the number of topics are sizes in bits.
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
        """Read ``PositionSerde`` bytes; whatever follows the last partition is padding and is ignored.

        Raises :class:`~kstate_cli.formats.binary.MalformedBytesError` for another version than 0
        (``IllegalArgumentException``), bytes that end too early (``BufferUnderflowException``), negative counts,
        negative partitions, and names that are not UTF-8.
        """
        reader = Reader(data, "position")
        version = reader.u8("version")
        if version != _VERSION:
            raise reader.fail(f"the version {version} is unknown", "IllegalArgumentException")
        offsets: dict[str, dict[int, int]] = {}
        for _ in range(_count(reader, _MIN_TOPIC_BYTES, "number of topics")):
            topic = reader.text(reader.i32("topic length"), "topic")
            partitions = offsets.setdefault(topic, {})
            for _ in range(_count(reader, _PAIR_BYTES, f"number of partitions of {topic!r}")):
                partition = reader.i32("partition")
                # A negative number is no partition: the bytes are damaged, or of another format.
                if partition < 0:
                    raise reader.fail(f"the partition {partition} of {topic!r} is negative")
                partitions[partition] = reader.i64("offset")
        return cls.from_map(offsets)


@dataclass(frozen=True, slots=True)
class PositionBound:
    """How far a store must have come for a query to be answered; the empty position bounds nothing."""

    position: Position

    @classmethod
    def unbounded(cls) -> PositionBound:
        """Return no bound."""
        return cls(Position.empty())

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """Return the bound that at least ``position`` is reached."""
        return cls(position)

    @property
    def is_unbounded(self) -> bool:
        """Whether every position passes."""
        return self.position.is_empty


def is_permitted(position: Position, bound: PositionBound, partition: int) -> bool:
    """Return whether a store of task partition ``partition`` at ``position`` has reached ``bound``.

    For each topic of the bound only the offset of ``partition`` counts (``StoreQueryUtils.isPermitted``). A topic
    passes if the bound has no such offset, or if the position has an equal or higher one.
    """
    for topic in bound.position.topics:
        least = bound.position.partition_positions(topic).get(partition)
        # The bound requires nothing of this partition: another task has the partition that it names.
        if least is None:
            continue
        reached = position.partition_positions(topic).get(partition)
        if reached is None or reached < least:
            return False
    return True


def _count(reader: Reader, size: int, field: str) -> int:
    count = reader.i32(field)
    if count < 0:
        raise reader.fail(f"the {field} is negative: {count}", "IllegalArgumentException")
    # A count that the rest cannot hold is found here, not after reading what there is.
    if count * size > reader.remaining:
        raise reader.fail(
            f"the {field} is {count}, but only {reader.remaining} bytes are left", "BufferUnderflowException"
        )
    return count


@dataclass(frozen=True, slots=True)
class OffsetsRecord:
    """All rows of one ``offsets`` column family; ``None`` for a row that is absent.

    ``offsets`` values are last applied for task stores, next to read for global stores (see the module).
    """

    offsets: Mapping[TopicPartition, int]
    position: Position | None = None
    status: int | None = None


def encode_offset(value: int) -> bytes:
    """Return i64, 8 bytes (``LongSerializer``); :class:`ValueError` if it does not fit."""
    return i64(value)


def decode_offset(value: bytes) -> int:
    """Return the i64 in ``value``; :class:`MalformedBytesError` (``SerializationException``) unless it has 8 bytes."""
    if len(value) != _OFFSET_BYTES:
        raise MalformedBytesError(f"an offset has {len(value)} bytes instead of 8", "SerializationException")
    return int.from_bytes(value, "big", signed=True)


def decode_rows(rows: Iterable[tuple[bytes, bytes]]) -> OffsetsRecord:
    """Read the rows of an ``offsets`` column family, in any order.

    Raises :class:`MalformedBytesError` for an offset that is not 8 bytes (``SerializationException``), a position that
    cannot be read, and a key that Streams does not write.
    """
    offsets: dict[TopicPartition, int] = {}
    position: Position | None = None
    status: int | None = None
    for key, value in rows:
        # These two keys cannot be confused with a topic-partition, which ends in a dash and a number.
        if key == POSITION_KEY:
            position = Position.from_bytes(value)
        elif key == STATUS_KEY:
            status = decode_offset(value)
        else:
            offsets[_topic_partition(key)] = decode_offset(value)
    return OffsetsRecord(offsets, position, status)


def encode_rows(record: OffsetsRecord) -> dict[bytes, bytes]:
    """Return the rows of ``record``; an absent position or status gives no row.

    :class:`ValueError` for an offset beyond i64 or a topic-partition that would not be read back.
    """
    rows: dict[bytes, bytes] = {}
    for topic_partition, offset in sorted(record.offsets.items()):
        # Such a key is refused before it is written, since it would not be read back as this topic-partition.
        if not topic_partition.topic or not 0 <= topic_partition.partition <= MAX_I32:
            raise ValueError(f"{topic_partition!r} cannot be a key")
        # Kafka's own spelling: Streams parses it back with ``TopicPartition``.
        rows[topic_partition.kafka_name.encode("utf-8")] = encode_offset(offset)
    if record.position is not None:
        rows[POSITION_KEY] = record.position.to_bytes()
    if record.status is not None:
        rows[STATUS_KEY] = encode_offset(record.status)
    return rows


def _topic_partition(key: bytes) -> TopicPartition:
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedBytesError(f"the key {key.hex()} of {OFFSETS_CF} is not encoded in UTF-8") from None
    return TopicPartition.parse(text)
