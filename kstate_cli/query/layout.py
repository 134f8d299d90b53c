"""How a kind of store lies in its column families, for reading: which family is newest, and what a value holds.

Rows of an older family have not been migrated yet; Streams converts them when it reads them, and writes them back
(``DualColumnFamilyAccessor``). Each conversion puts a constant before the value, so that reading needs no writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kstate_cli.formats.kinds import (
    DEFAULT_CF,
    HEADERS_CF,
    SESSION_HEADERS_CF,
    TIMESTAMPED_CF,
    WINDOW_HEADERS_CF,
)
from kstate_cli.formats.values import HeadersSessionValue, HeadersValue, TimestampedValue
from kstate_cli.query.values import ValueAndTimestamp

_NO_TIMESTAMP: Final = b"\xff" * 8
_NO_HEADERS: Final = b"\x00"
_AS_IS: Final = b""

Family = tuple[str, bytes]
"""A column family, and what makes the newest layout of its values when it is put before them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``families`` are the newest first."""

    kind: str
    families: tuple[Family, ...]
    decode: Callable[[bytes], ValueAndTimestamp[bytes]] | None = None
    """Splits a value of the newest layout; None where the value is the whole of it."""

    @property
    def has_headers(self) -> bool:
        """Whether values carry the record's headers."""
        return self.decode in (_headers, _headers_session)

    @property
    def has_timestamps(self) -> bool:
        """Whether values carry the record's timestamp."""
        return self.decode in (_headers, _timestamped)


def _timestamped(data: bytes) -> ValueAndTimestamp[bytes]:
    found = TimestampedValue.from_bytes(data)
    return ValueAndTimestamp(found.value, found.timestamp)


def _headers(data: bytes) -> ValueAndTimestamp[bytes]:
    found = HeadersValue.from_bytes(data)
    return ValueAndTimestamp(found.value, found.timestamp, found.headers)


def _headers_session(data: bytes) -> ValueAndTimestamp[bytes]:
    found = HeadersSessionValue.from_bytes(data)
    return ValueAndTimestamp(found.value, -1, found.headers)


_DEFAULT: Final[Family] = (DEFAULT_CF, _AS_IS)
_TIMESTAMPED: Final[tuple[Family, ...]] = ((TIMESTAMPED_CF, _AS_IS), (DEFAULT_CF, _NO_TIMESTAMP))
_HEADERS: Final[tuple[Family, ...]] = (
    (HEADERS_CF, _AS_IS),
    (TIMESTAMPED_CF, _NO_HEADERS),
    (DEFAULT_CF, _NO_HEADERS + _NO_TIMESTAMP),
)
_LAYOUTS: Final[Mapping[str, Layout]] = MappingProxyType(
    {
        layout.kind: layout
        for layout in (
            Layout("key-value", (_DEFAULT,)),
            Layout("list-value", (_DEFAULT,)),
            Layout("versioned", (_DEFAULT,)),
            Layout("grace-buffer", (_DEFAULT,)),
            Layout("timestamped-key-value", _TIMESTAMPED, _timestamped),
            Layout("headers-key-value", _HEADERS, _headers),
            Layout("window", (_DEFAULT,)),
            Layout("timestamped-window", _TIMESTAMPED, _timestamped),
            Layout("headers-window", _HEADERS, _headers),
            Layout("session", (_DEFAULT,)),
            Layout("headers-session", ((SESSION_HEADERS_CF, _AS_IS), (DEFAULT_CF, _NO_HEADERS)), _headers_session),
            Layout("time-ordered-window", (_DEFAULT,), _timestamped),
            Layout("headers-time-ordered-window", ((WINDOW_HEADERS_CF, _AS_IS), (DEFAULT_CF, _NO_HEADERS)), _headers),
            Layout("time-ordered-session", (_DEFAULT,)),
            # 4.3.1 writes bare aggregations into this family, and reads back nothing else.
            Layout("headers-time-ordered-session", ((SESSION_HEADERS_CF, _AS_IS), _DEFAULT)),
        )
    }
)


def layout_of(kind: str, families: frozenset[str]) -> Layout | None:
    """The layout of a kind in a store with these column families; None for a kind that has none of its own."""
    if kind == "foreign-key-subscription":
        return Layout(kind, _HEADERS, _headers) if HEADERS_CF in families else Layout(kind, _TIMESTAMPED, _timestamped)
    return _LAYOUTS.get(kind)
