"""The column family ``offsets`` that Streams 4.3 keeps in every RocksDB.

Rows: ``<topic>-<partition>`` -> offset:i64 (8 bytes exactly), ``position`` -> ``PositionSerde`` bytes, ``status`` ->
i64, 0 closed and 1 open. Keys are UTF-8 without a length; no topic-partition can be spelled like the other two.

The offset is the bare number: the last *applied* changelog record in a task store (reading goes on at value + 1), the
*next* record to read in a global store (reading goes on at the value). -4 is a consistent store without an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .binary import MAX_I32, i64
from .families import OFFSETS_CF
from .malformed import MalformedBytesError
from .position import Position
from .topic_partition import TopicPartition

POSITION_KEY: Final = b"position"
STATUS_KEY: Final = b"status"
STATUS_CLOSED: Final = 0
STATUS_OPEN: Final = 1
_OFFSET_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class OffsetsRecord:
    """All rows of one ``offsets`` column family; ``None`` for a row that is absent.

    ``offsets`` values are last applied for task stores, next to read for global stores (see the module).
    """

    offsets: Mapping[TopicPartition, int]
    position: Position | None = None
    status: int | None = None


def encode_offset(value: int) -> bytes:
    """i64, 8 bytes (``LongSerializer``); :class:`ValueError` if it does not fit."""
    return i64(value)


def decode_offset(value: bytes) -> int:
    """The i64 in ``value``; any length but 8 raises :class:`MalformedBytesError` (``SerializationException``)."""
    if len(value) != _OFFSET_BYTES:
        raise MalformedBytesError(f"an offset has 8 bytes, not {len(value)}", "SerializationException")
    return int.from_bytes(value, "big", signed=True)


def decode_rows(rows: Iterable[tuple[bytes, bytes]]) -> OffsetsRecord:
    """Read the rows of an ``offsets`` column family, in any order.

    :class:`MalformedBytesError` for a value that is not 8 bytes (``SerializationException``), a position that cannot
    be read, and a key that Streams does not write.
    """
    offsets: dict[TopicPartition, int] = {}
    position: Position | None = None
    status: int | None = None
    for key, value in rows:
        if key == POSITION_KEY:
            position = Position.from_bytes(value)
        elif key == STATUS_KEY:
            status = decode_offset(value)
        else:
            offsets[_topic_partition(key)] = decode_offset(value)
    return OffsetsRecord(offsets, position, status)


def encode_rows(record: OffsetsRecord) -> dict[bytes, bytes]:
    """The rows of ``record``; an absent position or status gives no row.

    :class:`ValueError` for an offset beyond i64 or a topic-partition that would not be read back.
    """
    rows: dict[bytes, bytes] = {}
    for topic_partition, offset in sorted(record.offsets.items()):
        if not topic_partition.topic or not 0 <= topic_partition.partition <= MAX_I32:
            raise ValueError(f"{topic_partition!r} cannot be a key")
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
        raise MalformedBytesError(f"key {key.hex()} of {OFFSETS_CF} is not UTF-8") from None
    return TopicPartition.parse(text)
