"""The keys that Streams builds around a record's key.

============================================== ==================================== ==================================
``WindowKeySchema``                            ``WindowKey.from_bytes``             ``key ‖ start:i64 ‖ seq:i32``
``TimeFirstWindowKeySchema``                   ``WindowKey.from_time_first``        ``00 ‖ start:i64 ‖ key ‖ seq:i32``
``KeyFirstWindowKeySchema`` (index)            ``WindowKey.from_key_first``         ``01 ‖ key ‖ start:i64 ‖ seq:i32``
``SessionKeySchema``                           ``SessionKey.from_bytes``            ``key ‖ end:i64 ‖ start:i64``
``TimeFirstSessionKeySchema``                  ``SessionKey.from_time_first``       ``00 ‖ end:i64 ‖ start:i64 ‖ key``
``KeyFirstSessionKeySchema`` (index)           ``SessionKey.from_key_first``        ``01 ‖ key ‖ end:i64 ‖ start:i64``
``RocksDBVersionedStore``                      ``VersionedKey.from_bytes``          ``segment id:i64 ‖ key``
``TimestampedKeyAndJoinSideSerializer``        ``JoinSideKey.from_bytes``           ``ts:i64 ‖ side:u8 ‖ key``
``CombinedKeySchema``                          ``CombinedKey.from_bytes``           ``fkLen:i32 ‖ fk ‖ pk``
============================================== ==================================== ==================================

Nothing in a key says which of them it follows. Every reader raises
:class:`~kstate_cli.formats.binary.MalformedBytesError` for a key that is too short or has another prefix byte; the
writers raise :class:`ValueError` for numbers that do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import Reader, i32, i64

LATEST_SEGMENT: Final = -1
"""Segment id of the latest versions: the prefix ``ffffffffffffffff``, which sorts last."""
BASE_PREFIX: Final = b"\x00"
"""First byte of the rows of a time-ordered store."""
INDEX_PREFIX: Final = b"\x01"
"""First byte of the index rows of a time-ordered store."""

_WINDOW_TAIL: Final = 12
_SESSION_TAIL: Final = 16
_SEQUENCE_BYTES: Final = 4
_LEFT: Final = 1


@dataclass(frozen=True, slots=True)
class WindowKey:
    """``seq`` is 0 unless the store retains duplicates; the end of the window is not stored."""

    key: bytes
    start: int
    seq: int = 0

    def to_bytes(self) -> bytes:
        """Return ``key ‖ start:i64 ‖ seq:i32``."""
        return self.key + i64(self.start) + i32(self.seq)

    def to_time_first(self) -> bytes:
        """Return ``00 ‖ start:i64 ‖ key ‖ seq:i32``, also the key of a grace buffer."""
        return BASE_PREFIX + i64(self.start) + self.key + i32(self.seq)

    def to_key_first(self) -> bytes:
        """Return ``01 ‖ key ‖ start:i64 ‖ seq:i32``."""
        return INDEX_PREFIX + self.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> WindowKey:
        """Read ``key ‖ start:i64 ‖ seq:i32``."""
        return cls._read(Reader(data, "window key"))

    @classmethod
    def from_time_first(cls, data: bytes) -> WindowKey:
        """Read ``00 ‖ start:i64 ‖ key ‖ seq:i32``."""
        reader = _prefixed(data, BASE_PREFIX, "time-first window key")
        start = reader.i64("start")
        # The key has no length of its own: it is what the numbers around it leave. A row that is too short fails at the
        # number, whose name the message has.
        key = reader.take(max(reader.remaining - _SEQUENCE_BYTES, 0), "key")
        return cls(key, start, reader.i32("sequence number"))

    @classmethod
    def from_key_first(cls, data: bytes) -> WindowKey:
        """Read ``01 ‖ key ‖ start:i64 ‖ seq:i32``."""
        return cls._read(_prefixed(data, INDEX_PREFIX, "key-first window key"))

    @classmethod
    def _read(cls, reader: Reader) -> WindowKey:
        # start:i64 and seq:i32 are behind the key.
        key = reader.take(max(reader.remaining - _WINDOW_TAIL, 0), "key")
        start = reader.i64("start")
        return cls(key, start, reader.i32("sequence number"))


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session from ``start`` to ``end``, both inclusive; the end comes first in the bytes."""

    key: bytes
    start: int
    end: int

    def to_bytes(self) -> bytes:
        """Return ``key ‖ end:i64 ‖ start:i64``."""
        return self.key + i64(self.end) + i64(self.start)

    def to_time_first(self) -> bytes:
        """Return ``00 ‖ end:i64 ‖ start:i64 ‖ key``."""
        return BASE_PREFIX + i64(self.end) + i64(self.start) + self.key

    def to_key_first(self) -> bytes:
        """Return ``01 ‖ key ‖ end:i64 ‖ start:i64``."""
        return INDEX_PREFIX + self.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> SessionKey:
        """Read ``key ‖ end:i64 ‖ start:i64``."""
        return cls._read(Reader(data, "session key"))

    @classmethod
    def from_time_first(cls, data: bytes) -> SessionKey:
        """Read ``00 ‖ end:i64 ‖ start:i64 ‖ key``."""
        reader = _prefixed(data, BASE_PREFIX, "time-first session key")
        end = reader.i64("end")
        start = reader.i64("start")
        return cls(reader.rest(), start, end)

    @classmethod
    def from_key_first(cls, data: bytes) -> SessionKey:
        """Read ``01 ‖ key ‖ end:i64 ‖ start:i64``."""
        return cls._read(_prefixed(data, INDEX_PREFIX, "key-first session key"))

    @classmethod
    def _read(cls, reader: Reader) -> SessionKey:
        # end:i64 and start:i64 are behind the key.
        key = reader.take(max(reader.remaining - _SESSION_TAIL, 0), "key")
        end = reader.i64("end")
        return cls(key, reader.i64("start"), end)


@dataclass(frozen=True, slots=True)
class VersionedKey:
    """``segment`` is :data:`LATEST_SEGMENT` for the latest version, else the id of a logical segment."""

    segment: int
    key: bytes

    @property
    def is_latest(self) -> bool:
        """Whether the row holds the latest version."""
        return self.segment == LATEST_SEGMENT

    def to_bytes(self) -> bytes:
        """Return ``segment id:i64 ‖ key``."""
        return i64(self.segment) + self.key

    @classmethod
    def from_bytes(cls, data: bytes) -> VersionedKey:
        """Read ``segment id:i64 ‖ key``; a negative id other than :data:`LATEST_SEGMENT` is malformed."""
        reader = Reader(data, "versioned key")
        segment = reader.i64("segment id")
        # Streams uses -1 for the latest versions (``RocksDBVersionedStore``), and ids of segments are times divided by
        # an interval.
        if segment < LATEST_SEGMENT:
            raise reader.fail(f"the segment id {segment} is not valid")
        return cls(segment, reader.rest())


@dataclass(frozen=True, slots=True)
class JoinSideKey:
    """Key of an outer join's shared store; ``left`` says which stream the record came from."""

    timestamp: int
    left: bool
    key: bytes

    @property
    def side(self) -> str:
        """``left`` or ``right``."""
        if self.left:
            return "left"
        return "right"

    def to_bytes(self) -> bytes:
        """Return ``ts:i64 ‖ side:u8 ‖ key``, side 1 left and 0 right."""
        return i64(self.timestamp) + bytes((int(self.left),)) + self.key

    @classmethod
    def from_bytes(cls, data: bytes) -> JoinSideKey:
        """Read ``ts:i64 ‖ side:u8 ‖ key``; a side above 1 is malformed."""
        reader = Reader(data, "join key")
        timestamp = reader.i64("timestamp")
        side = reader.u8("side")
        # ``TimestampedKeyAndJoinSideSerializer`` writes 1 for left and 0 for right: another byte is another kind's key.
        if side > _LEFT:
            raise reader.fail(f"the side {side} is not valid")
        return cls(timestamp, side == _LEFT, reader.rest())


@dataclass(frozen=True, slots=True)
class CombinedKey:
    """Key of an FK join's subscription store."""

    foreign_key: bytes
    primary_key: bytes

    def to_bytes(self) -> bytes:
        """Return ``fkLen:i32 ‖ fk ‖ pk``."""
        return i32(len(self.foreign_key)) + self.foreign_key + self.primary_key

    @classmethod
    def from_bytes(cls, data: bytes) -> CombinedKey:
        """Read ``fkLen:i32 ‖ fk ‖ pk``."""
        reader = Reader(data, "combined key")
        # The only key with a length in it, so that a scan by foreign key finds whole keys (``CombinedKeySchema``).
        foreign_key = reader.take(reader.i32("length of foreign key"), "foreign key")
        return cls(foreign_key, reader.rest())


def _prefixed(data: bytes, prefix: bytes, subject: str) -> Reader:
    reader = Reader(data, subject)
    first = reader.take(1, "prefix")
    # Without this check any long key would pass as a time-ordered one.
    if first != prefix:
        raise reader.fail(f"the prefix is {first.hex()} instead of {prefix.hex()}")
    return reader
