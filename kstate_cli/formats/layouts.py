"""Of what a row is made: how its key is built, and what its value has before the value proper.

A kind of store (:mod:`~kstate_cli.formats.store_kinds`) is a combination of these. Who reads or writes rows does so by
key schema and value layout, never by the name of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import (
    BASE_PREFIX,
    INDEX_PREFIX,
    CombinedKey,
    JoinSideKey,
    SessionKey,
    VersionedKey,
    WindowKey,
)
from kstate_cli.formats.partitions import KeyPart
from kstate_cli.formats.values import strip_headers_to_plain, strip_headers_to_timestamped, strip_session_headers

RowKey = bytes | WindowKey | SessionKey | VersionedKey | JoinSideKey | CombinedKey
"""The key of a row, read."""


class KeySchema(Enum):
    """How the key of a row is built (:mod:`~kstate_cli.formats.keys`). Rows of one schema can be compared."""

    KEY = "key-value"
    """The record's key."""
    VERSIONED = "versioned"
    """``segment id:i64 ‖ key``: a history in one database."""
    JOIN_SIDE = "list-value"
    """``ts:i64 ‖ side:u8 ‖ key``."""
    COMBINED = "foreign-key-subscription"
    """``fkLen:i32 ‖ fk ‖ pk``."""
    WINDOW = "window"
    """``key ‖ start:i64 ‖ seq:i32``; the segment is that of the start."""
    SESSION = "session"
    """``key ‖ end:i64 ‖ start:i64``; the segment is that of the end."""
    TIME_ORDERED_WINDOW = "time-ordered-window"
    """``00 ‖ start ‖ key ‖ seq``, and an index row ``01 ‖ key ‖ start ‖ seq``; logged as WINDOW."""
    TIME_ORDERED_SESSION = "time-ordered-session"
    """``00 ‖ end ‖ start ‖ key``, and an index row ``01 ‖ key ‖ end ‖ start``; logged as SESSION."""
    BUFFER = "grace-buffer"
    """As the rows of TIME_ORDERED_WINDOW; all lie in segment 0, and no time in a key decides anything."""
    AMBIGUOUS = "windowed"
    """One database per segment: windows or sessions, nothing tells."""

    @property
    def segmented(self) -> bool:
        """One database per segment: ``<store>/<store>.<start>``."""
        return self in _SEGMENTED

    @property
    def windows(self) -> bool:
        """A row is a window."""
        return self in (KeySchema.WINDOW, KeySchema.TIME_ORDERED_WINDOW)

    @property
    def sessions(self) -> bool:
        """A row is a session."""
        return self in (KeySchema.SESSION, KeySchema.TIME_ORDERED_SESSION)

    @property
    def expires(self) -> bool:
        """Segments are dropped once they are older than the retention."""
        return self.windows or self.sessions

    @property
    def time_ordered(self) -> bool:
        """Rows sorted by time, with an index by key beside them."""
        return self in (KeySchema.TIME_ORDERED_WINDOW, KeySchema.TIME_ORDERED_SESSION)

    @property
    def tail(self) -> int:
        """Bytes of a changelog key after the record's key; of a key that expires, the segment's time comes first."""
        if self.windows:
            return _WINDOW_TAIL
        if self.sessions:
            return _SESSION_TAIL
        return 0

    @property
    def logged_key(self) -> KeyPart:
        """Where the record's key, which decides about the partition, is in the key of a changelog record."""
        return _LOGGED_KEY.get(self, KeyPart(tail=self.tail))

    @property
    def base_rows(self) -> tuple[bytes | None, bytes | None]:
        """Row keys that hold data, ``lower <= key < below``: index rows repeat the others. None leaves an end open."""
        if not self.time_ordered:
            return None, None
        # Base rows begin with 00 and index rows with 01, so all base rows come first.
        return BASE_PREFIX, INDEX_PREFIX

    # These choose the reader of a row once: a caller that reads many rows takes the function out of the loop.

    @property
    def read(self) -> Callable[[bytes], RowKey]:
        """Reads the key of a base row of any schema; the key as it is where it has no parts, or nothing tells.

        It raises MalformedBytesError for what is none.
        """
        if self.windows:
            return self.window
        if self.sessions:
            return self.session
        return _READ[self]

    @property
    def window(self) -> Callable[[bytes], WindowKey]:
        """Reads the key of a base row of a window store. It raises MalformedBytesError for what is none."""
        if self.time_ordered:
            return WindowKey.from_time_first
        return WindowKey.from_bytes

    @property
    def session(self) -> Callable[[bytes], SessionKey]:
        """Reads the key of a base row of a session store. It raises MalformedBytesError for what is none."""
        if self.time_ordered:
            return SessionKey.from_time_first
        return SessionKey.from_bytes

    @property
    def read_index(self) -> Callable[[bytes], WindowKey | SessionKey]:
        """Reads the key of an index row, of a time-ordered schema only. It raises MalformedBytesError for no such."""
        if self.sessions:
            return SessionKey.from_key_first
        return WindowKey.from_key_first

    @property
    def segment_time(self) -> Callable[[bytes], int]:
        """The function that reads, from a row's key, the time (ms) that chooses its segment (``segmentTimestamp``).

        It reads index rows too. It exists only for a schema whose rows expire, and raises MalformedBytesError for a key
        of another schema.
        """
        # The schema is looked up here, once, and not in the function, which is called for each row.
        session, window = self.session, self.window
        if self.time_ordered:
            if self.sessions:
                return lambda row: (session if row.startswith(BASE_PREFIX) else SessionKey.from_key_first)(row).end
            return lambda row: (window if row.startswith(BASE_PREFIX) else WindowKey.from_key_first)(row).start
        if self.sessions:
            return lambda row: session(row).end
        return lambda row: window(row).start


def _itself(row: bytes) -> bytes:
    return row


# Schemas whose reader is one function; windows and sessions have one for each order of their rows.
_READ: Final[Mapping[KeySchema, Callable[[bytes], RowKey]]] = MappingProxyType(
    {
        KeySchema.KEY: _itself,
        KeySchema.VERSIONED: VersionedKey.from_bytes,
        KeySchema.JOIN_SIDE: JoinSideKey.from_bytes,
        KeySchema.COMBINED: CombinedKey.from_bytes,
        KeySchema.BUFFER: WindowKey.from_time_first,
        KeySchema.AMBIGUOUS: _itself,
    }
)
# Of windows and sessions the tail is enough: time-ordered stores too log them with the key first. A versioned store
# logs the record's own key.
_LOGGED_KEY: Final[Mapping[KeySchema, KeyPart]] = MappingProxyType(
    {
        # ts:i64 and side:u8 come before the key.
        KeySchema.JOIN_SIDE: KeyPart(head=9),
        # A subscription is stored with the right table, which is partitioned by the foreign key.
        KeySchema.COMBINED: KeyPart(counted=True),
        # 00 and time:i64 before the key, seq:i32 after it: a grace buffer logs its row's key.
        KeySchema.BUFFER: KeyPart(head=9, tail=4),
    }
)
_WINDOW_TAIL: Final = 12
_SESSION_TAIL: Final = 16
_SEGMENTED: Final = frozenset(
    {
        KeySchema.WINDOW,
        KeySchema.SESSION,
        KeySchema.TIME_ORDERED_WINDOW,
        KeySchema.TIME_ORDERED_SESSION,
        KeySchema.BUFFER,
        KeySchema.AMBIGUOUS,
    }
)


class ValueLayout(Enum):
    """What comes before the value in a row (:mod:`~kstate_cli.formats.values`)."""

    PLAIN = "plain"
    """Nothing."""
    TIMESTAMPED = "timestamped"
    """``ts:i64``."""
    HEADERS = "headers"
    """``hs:zz ‖ H ‖ ts:i64``."""
    HEADERS_SESSION = "headers-session"
    """``hs:zz ‖ H``."""

    @property
    def has_timestamps(self) -> bool:
        """Whether values carry the record's timestamp."""
        return self in (ValueLayout.TIMESTAMPED, ValueLayout.HEADERS)

    @property
    def has_headers(self) -> bool:
        """Whether values carry the record's headers."""
        return self in (ValueLayout.HEADERS, ValueLayout.HEADERS_SESSION)


class Inner(Enum):
    """What the value proper is, where Streams itself owns its format."""

    ANY = "any"
    """The application's serde decides."""
    LIST = "list"
    """``decode_list``."""
    VERSIONS = "versions"
    """``LatestValue`` or ``SegmentValue``, as the key says."""
    SUBSCRIPTION = "subscription"
    """``SubscriptionWrapper``."""
    BUFFERED = "buffered"
    """``BufferValue``."""


class Logged(Enum):
    """What of a row its changelog record has."""

    VALUE = "value"
    """The value proper; timestamp and headers are the record's own (``RecordConverters``)."""
    HISTORY = "history"
    """One version of a key: rows are made by replaying them."""
    BUFFERED = "buffered"
    """The row's value with eight bytes of time after it."""


_NO_TIMESTAMP: Final = b"\xff" * 8
_NO_HEADERS: Final = b"\x00"
# What ``DualColumnFamilyAccessor`` puts before an older value, as constants: -1 for a timestamp that no one wrote, 00
# for no headers.
_LIFTED: Final[Mapping[tuple[ValueLayout, ValueLayout], bytes]] = MappingProxyType(
    {
        (ValueLayout.PLAIN, ValueLayout.TIMESTAMPED): _NO_TIMESTAMP,
        (ValueLayout.PLAIN, ValueLayout.HEADERS): _NO_HEADERS + _NO_TIMESTAMP,
        (ValueLayout.TIMESTAMPED, ValueLayout.HEADERS): _NO_HEADERS,
        (ValueLayout.PLAIN, ValueLayout.HEADERS_SESSION): _NO_HEADERS,
    }
)


def lifted(older: ValueLayout, newer: ValueLayout) -> bytes:
    """Return the prefix that makes an older value one of the newer layout (``DualColumnFamilyAccessor``).

    ValueError for two layouts of which none follows the other.
    """
    if older is newer:
        return b""
    header = _LIFTED.get((older, newer))
    if header is None:
        raise ValueError(f"kstate does not convert values from {older.value} to {newer.value}")
    return header


Strip = Callable[[bytes], tuple[bytes, int]]


def _strict_timestamped(value: bytes) -> tuple[bytes, int]:
    """Strip headers of a row that must have a timestamp: only index rows of time-ordered stores are empty."""
    # As an index row, a damaged value would silently become an empty one.
    if value in (b"", _NO_HEADERS):
        raise MalformedBytesError("a value with headers has no timestamp")
    return strip_headers_to_timestamped(value)


STRIP: Final[Mapping[str, Strip]] = MappingProxyType(
    {
        "timestamped": _strict_timestamped,
        "time-ordered": strip_headers_to_timestamped,
        "plain": strip_headers_to_plain,
        "session": strip_session_headers,
        "bare": lambda value: (value, 0),
    }
)
"""What is left of a value of a family with headers in each older layout, and how many headers it loses."""
_STRIPPED: Final[Mapping[tuple[ValueLayout, ValueLayout], str]] = MappingProxyType(
    {
        (ValueLayout.HEADERS, ValueLayout.TIMESTAMPED): "timestamped",
        (ValueLayout.HEADERS, ValueLayout.PLAIN): "plain",
        (ValueLayout.HEADERS_SESSION, ValueLayout.PLAIN): "session",
        (ValueLayout.PLAIN, ValueLayout.PLAIN): "bare",
    }
)


def stripped(newer: ValueLayout, older: ValueLayout, key: KeySchema) -> str:
    """Return the name in :data:`STRIP` of what takes a value back to the older layout. ValueError if nothing does."""
    name = _STRIPPED.get((newer, older))
    if name is None:
        raise ValueError(f"kstate does not convert values back from {newer.value} to {older.value}")
    return "time-ordered" if name == "timestamped" and key.time_ordered else name
