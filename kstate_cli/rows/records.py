"""Records of the rows of each kind of store: one function per shape, from rows in the newest layout to records.

A record is a tuple in the order of the shape's columns. Its keys and values are bytes; a serde converts them later.
Kinds that differ only in the parts of a value share a shape, so that tasks of a store in different layouts fit
together. All times are ms. A timestamp is None if the row has none.

A ``Layout`` describes how a store's column families are read: the newest family, and the parts of a value. Streams
converts rows of an older family when it reads them, and writes them back (``DualColumnFamilyAccessor``). Each of these
conversions puts a constant before the value, so that kstate can read such rows without writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from kstate_cli.formats.keys import CombinedKey, JoinSideKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema, ValueLayout, lifted
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.formats.values import (
    BufferValue,
    Header,
    HeadersSessionValue,
    HeadersValue,
    TimestampedValue,
    decode_list,
)
from kstate_cli.formats.versioned import LatestValue, read_versions
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.values import ValueAndTimestamp, timestamp_or_none

Record = tuple[Any, ...]
_I64: Final = Struct(">q")


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of the records of several kinds of stores.

    ``columns`` are the members of a record after ``partition``. ``internal``: the value has Streams' own format, so no
    serde reads it.
    """

    name: str
    columns: tuple[str, ...]
    records: Callable[[Iterable[Row], Layout], Iterator[Record]]
    """Raises MalformedBytesError for a row that is not one of this shape."""
    internal: bool = False


def shape_of(kind: str) -> Shape:
    """Return the shape of a kind of store (``formats.store_kinds``)."""
    return _SHAPES[store_kind(kind).key]


def header_pairs(headers: tuple[Header, ...]) -> list[tuple[str, bytes | None]]:
    """Return headers in the form that Arrow accepts for a list of structs."""
    return [(header.key, header.value) for header in headers]


def _splitter(layout: Layout) -> Callable[[bytes], tuple[bytes, int | None, Any]]:
    """Return the function that splits a row's value into value, timestamp and headers."""
    decode = layout.decode
    # The value in the row is the value of the application, without a timestamp or headers.
    if decode is None:
        return lambda data: (data, None, None)
    if layout.has_headers:
        return lambda data: _stamped(decode(data))

    def split(data: bytes) -> tuple[bytes, int | None, Any]:
        # Does the same as the decoder, but without an object for each row, which is several times as fast.
        if len(data) < _I64.size:
            decode(data)  # raises
        return data[_I64.size :], timestamp_or_none(_I64.unpack_from(data)[0]), None

    return split


def _stamped(stamped: ValueAndTimestamp[bytes]) -> tuple[bytes, int | None, Any]:
    return stamped.value, timestamp_or_none(stamped.timestamp), header_pairs(stamped.headers)


def _key_value(rows: Iterable[Row], layout: Layout) -> Iterator[Record]:
    split = _splitter(layout)
    # A generator expression has one frame for all rows. A generator function would be resumed for each row.
    return ((key, *split(value)) for key, value in rows)


def _window(rows: Iterable[Row], layout: Layout) -> Iterator[Record]:
    read = layout.key.window
    split = _splitter(layout)
    for row, data in rows:
        key = read(row)
        yield key.key, *split(data), key.start, None, key.seq


def _session(rows: Iterable[Row], layout: Layout) -> Iterator[Record]:
    read = layout.key.session
    split = _splitter(layout)
    for row, data in rows:
        key = read(row)
        value, _, headers = split(data)
        yield key.key, value, headers, key.start, key.end


def _versions(rows: Iterable[Row], _layout: Layout) -> Iterator[Record]:
    """Yield each version in the rows of a versioned store as a record."""
    for row, data in rows:
        key = VersionedKey.from_bytes(row)
        segment = read_versions(key, data)
        if isinstance(segment, LatestValue):
            yield key.key, segment.value, segment.valid_from, None, True, False
            continue
        # A lone tombstone has no end: Streams stores its own timestamp in its place.
        valid_to: int | None = segment.next_timestamp
        if segment.is_degenerate:
            valid_to = None
        for version in segment.versions:
            yield key.key, version.value, version.valid_from, valid_to, False, version.value is None
            # The newest version comes first. So each version ends where the one before it in the row begins.
            valid_to = version.valid_from


def _list(rows: Iterable[Row], _layout: Layout) -> Iterator[Record]:
    for row, data in rows:
        key = JoinSideKey.from_bytes(row)
        for number, entry in enumerate(decode_list(data)):
            yield key.key, None if entry is None else entry.value, key.timestamp, key.side, number


def _subscription(rows: Iterable[Row], layout: Layout) -> Iterator[Record]:
    split = _splitter(layout)
    for row, data in rows:
        key = CombinedKey.from_bytes(row)
        yield key.primary_key, key.foreign_key, *split(data)


def _buffer(rows: Iterable[Row], _layout: Layout) -> Iterator[Record]:
    for row, data in rows:
        key, value = WindowKey.from_time_first(row), BufferValue.from_bytes(data)
        yield key.key, data, timestamp_or_none(value.timestamp), header_pairs(value.headers), key.start, key.seq


_KEY_VALUE: Final = Shape(KeySchema.KEY.value, ("key", "value", "timestamp", "headers"), _key_value)
_WINDOW: Final = Shape(
    KeySchema.WINDOW.value, ("key", "value", "timestamp", "headers", "window_start", "window_end", "seq"), _window
)
_SESSION: Final = Shape(KeySchema.SESSION.value, ("key", "value", "headers", "window_start", "window_end"), _session)
_SHAPES: Final[Mapping[KeySchema, Shape]] = MappingProxyType(
    {
        KeySchema.KEY: _KEY_VALUE,
        KeySchema.WINDOW: _WINDOW,
        KeySchema.TIME_ORDERED_WINDOW: _WINDOW,
        # Such a store consists of an empty folder, so it has no rows.
        KeySchema.AMBIGUOUS: _WINDOW,
        KeySchema.SESSION: _SESSION,
        KeySchema.TIME_ORDERED_SESSION: _SESSION,
        KeySchema.VERSIONED: Shape(
            KeySchema.VERSIONED.value, ("key", "value", "valid_from", "valid_to", "is_latest", "tombstone"), _versions
        ),
        KeySchema.JOIN_SIDE: Shape(KeySchema.JOIN_SIDE.value, ("key", "value", "timestamp", "side", "seq"), _list),
        KeySchema.COMBINED: Shape(
            KeySchema.COMBINED.value,
            ("key", "foreign_key", "value", "timestamp", "headers"),
            _subscription,
            internal=True,
        ),
        KeySchema.BUFFER: Shape(
            KeySchema.BUFFER.value,
            ("key", "value", "timestamp", "headers", "buffer_time", "seq"),
            _buffer,
            internal=True,
        ),
    }
)


ValueReader = Callable[[bytes], ValueAndTimestamp[bytes]]
"""Splits the value of a row; the timestamp is -1 without one. Raises MalformedBytesError."""
Family = tuple[str, bytes]
"""A column family, and the prefix that turns its values into those of the newest layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a store's rows. ``families``: the newest family first; empty if there are no rows to read."""

    kind: str
    families: tuple[Family, ...]
    values: ValueLayout = ValueLayout.PLAIN

    @property
    def key(self) -> KeySchema:
        """The schema of its keys."""
        return store_kind(self.kind).key

    @property
    def decode(self) -> ValueReader | None:
        """The function that splits a value of the newest layout; None if the value has no other part."""
        return _DECODE.get(self.values)

    @property
    def read(self) -> ValueReader:
        """As ``decode``, for every layout."""
        return value_reader(self.values)

    @property
    def has_headers(self) -> bool:
        """Whether values carry the record's headers."""
        return self.values.has_headers

    @property
    def has_timestamps(self) -> bool:
        """Whether values carry the record's timestamp."""
        return self.values.has_timestamps


def value_reader(values: ValueLayout) -> ValueReader:
    """Return the function that reads the values of a layout."""
    return _DECODE.get(values, _plain)


def _plain(data: bytes) -> ValueAndTimestamp[bytes]:
    return ValueAndTimestamp(data, -1)


def _timestamped(data: bytes) -> ValueAndTimestamp[bytes]:
    parts = TimestampedValue.from_bytes(data)
    return ValueAndTimestamp(parts.value, parts.timestamp)


def _headers(data: bytes) -> ValueAndTimestamp[bytes]:
    parts = HeadersValue.from_bytes(data)
    return ValueAndTimestamp(parts.value, parts.timestamp, parts.headers)


def _headers_session(data: bytes) -> ValueAndTimestamp[bytes]:
    parts = HeadersSessionValue.from_bytes(data)
    return ValueAndTimestamp(parts.value, -1, parts.headers)


_DECODE: Final[Mapping[ValueLayout, ValueReader]] = MappingProxyType(
    {
        ValueLayout.TIMESTAMPED: _timestamped,
        ValueLayout.HEADERS: _headers,
        ValueLayout.HEADERS_SESSION: _headers_session,
    }
)


def layout_of(kind: str, families: frozenset[str]) -> Layout | None:
    """Return the layout of a kind in a store with these column families; None if the name stands for several kinds."""
    row = store_kind(kind)
    # The several kinds have different layouts in the same families, so kstate cannot choose one of them.
    if not row.is_exact:
        return None
    families_here = row.families_in(families)
    newest = families_here[0].layout
    return Layout(kind, tuple((family.name, lifted(family.layout, newest)) for family in families_here), newest)
