"""The layout of a kind of store in its column families, for reading: the newest family, and the parts of a value.

Streams converts rows of an older family when it reads them, and writes them back (``DualColumnFamilyAccessor``). Each
conversion puts a constant before the value, so that kstate can read such rows without writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kstate_cli.formats.layouts import KeySchema, ValueLayout, lifted
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.formats.values import HeadersSessionValue, HeadersValue, TimestampedValue
from kstate_cli.rows.values import ValueAndTimestamp

ValueReader = Callable[[bytes], ValueAndTimestamp[bytes]]
"""Splits the value of a row; the timestamp is -1 without one. Raises MalformedBytesError."""
Family = tuple[str, bytes]
"""A column family, and the prefix that turns its values into those of the newest layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a store's rows. ``families``: the newest first; empty if there are no rows to read."""

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
    """Return the layout of a kind in a store with these column families; None for a name of several kinds."""
    row = store_kind(kind)
    if not row.is_exact:
        return None
    families_here = row.families_in(families)
    newest = families_here[0].layout
    return Layout(kind, tuple((family.name, lifted(family.layout, newest)) for family in families_here), newest)
