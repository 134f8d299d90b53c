"""Single records of a dump, and the digest that tells one from another at the same offset."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from .model import PartitionDump, Slice
from .reader import read_slice

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COLUMNS: Final = ("key", "value", "timestamp")
_MOST_PIECES: Final = 4
"""In a shuffled dump every row group may have the record: it is not looked for there."""


def record_digest(key: bytes | None, value: bytes | None, timestamp: int) -> str:
    """SHA-256, in hex, of ``timestamp:i64 ‖ field(key) ‖ field(value)``.

    ``field`` is ``length:i32 ‖ bytes``, length -1 for null; integers are big-endian. The timestamp is in ms, -1 for
    none. Headers are not part of it: not every dump has them.
    """
    digest = hashlib.sha256(timestamp.to_bytes(8, "big", signed=True))
    for field in (key, value):
        digest.update((-1 if field is None else len(field)).to_bytes(4, "big", signed=True))
        digest.update(field or b"")
    return digest.hexdigest()


def key_digest(key: bytes | None) -> str:
    """Return SHA-256 of a key, in hex; 64 zeros for a record without a key."""
    return "0" * 64 if key is None else hashlib.sha256(key).hexdigest()


def digest_at(filesystem: FileSystem, partition: PartitionDump, offset: int) -> str | None:
    """The digest of the record at an offset; None where the dump has none there, or in too many places to look.

    Raises DumpError where the dump cannot be read.
    """
    reading = partition.reading
    if reading is not None and reading.last_record_sha256 is not None and offset == partition.last:
        return reading.last_record_sha256
    pieces = tuple(piece for piece in partition.pieces if piece.first <= offset <= piece.last)
    if not pieces or len(pieces) > _MOST_PIECES:
        return None
    rows, size = sum(piece.own for piece in pieces), sum(piece.share for piece in pieces)
    part = Slice(partition.topic, partition.partition, 0, pieces, offset, offset, rows, size, ordered=False)
    records: list[dict[str, Any]] = read_slice(part, _COLUMNS, filesystem).to_pylist()
    return record_digest(records[0]["key"], records[0]["value"], records[0]["timestamp"]) if records else None
