"""The partition of a key, and the metadata that Kafka Streams commits with the offset of an input partition.

Kafka's producers and Kafka Streams agree on one rule (``BuiltInPartitioner.partitionForKey``, ``Utils.murmur2``)::

    partition = (murmur2(key) & 0x7fffffff) % partitions

Streams applies it to the record's own key. The key in a changelog has more: a window, a session, the side of a join …
(:class:`KeyPart`).

Metadata is Base64 of the bytes of ``TopicPartitionMetadata`` (magic 2) and ``ProcessorMetadata``::

    02 ‖ partition time:i64 ‖ n:i32 ‖ n × (nameLen:i32 ‖ name UTF-8 ‖ value:i64)
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kstate_cli.formats.binary import MalformedBytesError, Reader, i32, i64

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

NO_PARTITION: Final = -1
"""For a key that is too short to have the part that decides about its partition."""
NO_TIME: Final = -1
"""``RecordQueue.UNKNOWN``: no record of the partition was processed."""

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_U32: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 4
_LENGTH_BYTES: Final = 4
_MAGIC_WITH_PROCESSORS: Final = 2
_MAGIC_TIME_ONLY: Final = 1


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Where the record's own key is in the key of a changelog record."""

    head: int = 0
    """Bytes before it."""
    tail: int = 0
    """Bytes after it."""
    counted: bool = False
    """Its length (i32) comes first, and bytes of any number follow it."""

    def of(self, key: bytes) -> bytes | None:
        """Return the record's own key; None for a changelog key that is too short to have it."""
        if self.counted:
            size = int.from_bytes(key[:_LENGTH_BYTES], "big", signed=True)
            if not 0 <= size <= len(key) - _LENGTH_BYTES:
                return None
            return key[_LENGTH_BYTES : _LENGTH_BYTES + size]
        if len(key) < self.head + self.tail:
            return None
        return key[self.head : len(key) - self.tail]


WHOLE_KEY: Final = KeyPart()


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit hash of a key, unsigned (``Utils.murmur2``)."""
    length = len(key)
    whole = length - length % _WORD
    digest = _SEED ^ length
    for begin in range(0, whole, _WORD):
        word = int.from_bytes(key[begin : begin + _WORD], "little") * _M & _U32
        word = (word ^ word >> _R) * _M & _U32
        digest = digest * _M & _U32 ^ word
    if whole < length:
        digest = (digest ^ int.from_bytes(key[whole:], "little")) * _M & _U32
    digest = (digest ^ digest >> 13) * _M & _U32
    return digest ^ digest >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a record with this key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of(keys: pa.BinaryArray, part: KeyPart, partitions: int) -> npt.NDArray[np.int64]:
    """Return the partition of each key of an array without nulls; NO_PARTITION for a key without that part."""
    import numpy as np

    result = np.full(len(keys), NO_PARTITION, np.int64)
    if not len(keys):
        return result
    _, offsets, buffer = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    # An array of empty keys may have no buffer at all.
    data = np.frombuffer(buffer or b"", np.uint8)
    starts, lengths = _parts(data, bounds[:-1], bounds[1:] - bounds[:-1], part)
    # One pass for each length: within it every step of the hash is one operation on all keys.
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        table = data[starts[rows][:, None] + np.arange(length)]
        result[rows] = (_murmur2_rows(table) & np.uint32(_POSITIVE)).astype(np.int64) % partitions
    return result


def _parts(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], part: KeyPart
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the parts of the keys begin, and their lengths; a length below 0 for a key without the part."""
    import numpy as np

    if not part.counted:
        return starts + part.head, lengths - part.head - part.tail
    sizes = np.full(len(starts), NO_PARTITION, np.int64)
    rows = np.flatnonzero(lengths >= _LENGTH_BYTES)
    prefixes = np.ascontiguousarray(data[starts[rows][:, None] + np.arange(_LENGTH_BYTES)])
    sizes[rows] = prefixes.view(">i4").ravel()
    # A length beyond the end of the key would read the next key.
    sizes[sizes > lengths - _LENGTH_BYTES] = NO_PARTITION
    return starts + _LENGTH_BYTES, sizes


def _murmur2_rows(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return :func:`murmur2` of each row of a table of bytes."""
    import numpy as np

    rows, length = table.shape
    whole = length - length % _WORD
    m = np.uint32(_M)
    # Arrays of uint32 wrap around as Java's int does.
    digest = np.full(rows, _SEED ^ length, np.uint32)
    words = np.ascontiguousarray(table[:, :whole]).view("<u4")
    for column in range(whole // _WORD):
        word = words[:, column] * m
        word = (word ^ word >> np.uint32(_R)) * m
        digest = digest * m ^ word
    if whole < length:
        for place in range(whole, length):
            digest = digest ^ table[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        digest = digest * m
    digest = (digest ^ digest >> np.uint32(13)) * m
    return np.asarray(digest ^ digest >> np.uint32(15), np.uint32)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What a task has committed with an input offset (``TopicPartitionMetadata``)."""

    time: int = NO_TIME
    """Partition time: the highest timestamp that was processed, in ms."""
    processors: Mapping[str, int] = field(default_factory=dict)
    """Name -> value. Aggregations that emit on window close keep the end of what they have emitted, by store."""

    def encode(self) -> bytes:
        """Return the metadata as Kafka Streams commits it, Base64."""
        content = bytes((_MAGIC_WITH_PROCESSORS,)) + i64(self.time)
        # Streams writes no number of entries if there are none, but reads both.
        if self.processors:
            content += i32(len(self.processors))
        for name, value in sorted(self.processors.items()):
            raw = name.encode(errors="surrogateescape")
            content += i32(len(raw)) + raw + i64(value)
        return base64.b64encode(content)

    @classmethod
    def decode(cls, metadata: bytes) -> PartitionMetadata:
        """Read metadata; empty metadata has no time. MalformedBytesError for what Kafka Streams did not write."""
        if not metadata:
            return cls()
        try:
            content = base64.b64decode(metadata, validate=True)
        except (binascii.Error, ValueError):
            raise MalformedBytesError("committed metadata is not Base64") from None
        reader = Reader(content, "committed metadata")
        magic = reader.u8("magic")
        # Magic 1 is that of releases before 3.5: the partition time only.
        if magic not in (_MAGIC_TIME_ONLY, _MAGIC_WITH_PROCESSORS):
            raise reader.fail(f"the magic number {magic} is unknown")
        time = reader.i64("partition time")
        processors: dict[str, int] = {}
        if reader.remaining:
            for _ in range(reader.i32("number of entries")):
                name = reader.take(reader.i32("length of name"), "name").decode(errors="surrogateescape")
                processors[name] = reader.i64("value")
        reader.end()
        return cls(time, processors)
