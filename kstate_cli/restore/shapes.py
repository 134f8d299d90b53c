"""How each kind of store lies in RocksDB, and how a changelog record becomes its row (formats §7 and §8).

The converters of Streams (``StateManagerUtil.converterForStore``, ``RecordConverters``) know four values: the record's
own, ``ts ‖ value``, ``headers ‖ ts ‖ value`` and ``headers ‖ value``. Keys are the changelog's own but for time-ordered
stores, whose changelog has the usual window or session key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from kstate_cli.rocks.create import data_family


class KeyRule(Enum):
    """How the key of a row is made, and where its segment time is found."""

    SAME = "same"
    WINDOW = "window"
    """``key ‖ start:i64 ‖ seq:i32``; the segment is that of the start."""
    SESSION = "session"
    """``key ‖ end:i64 ‖ start:i64``; the segment is that of the end."""
    TIME_ORDERED_WINDOW = "time-ordered-window"
    """Changelog key as WINDOW, row key ``00 ‖ start ‖ key ‖ seq``, index row ``01 ‖ changelog key``."""
    TIME_ORDERED_SESSION = "time-ordered-session"
    """Changelog key as SESSION, row key ``00 ‖ end ‖ start ‖ key``, index row ``01 ‖ changelog key``."""
    VERSIONED = "versioned"
    """A history: rows are made by replaying it."""
    ONE_SEGMENT = "one-segment"
    """The grace buffer: unchanged keys, always segment 0."""


class ValueRule(Enum):
    """How the value of a row is made."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"
    HEADERS = "headers"
    HEADERS_SESSION = "headers-session"
    BUFFER = "buffer"
    """``BufferValue``, without the eight bytes of time that the changelog has after it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a kind that restoring needs."""

    family: str
    """The column family that rows go to."""
    key: KeyRule
    value: ValueRule

    @property
    def segmented(self) -> bool:
        """One RocksDB per segment."""
        return self.key not in (KeyRule.SAME, KeyRule.VERSIONED)

    @property
    def expires(self) -> bool:
        """Segments older than the retention are not built."""
        return self.segmented and self.key is not KeyRule.ONE_SEGMENT

    @property
    def time_ordered(self) -> bool:
        """Rows sorted by time, with an index by key beside them."""
        return self.key in (KeyRule.TIME_ORDERED_WINDOW, KeyRule.TIME_ORDERED_SESSION)

    @property
    def needs_headers(self) -> bool:
        """Rows hold the record's headers."""
        return self.value in (ValueRule.HEADERS, ValueRule.HEADERS_SESSION)

    @property
    def needs_timestamp(self) -> bool:
        """Rows hold, or depend on, the record's timestamp."""
        return self.value in (ValueRule.TIMESTAMPED, ValueRule.HEADERS) or self.key is KeyRule.VERSIONED


_K, _V = KeyRule, ValueRule
_RULES: Final = {
    "key-value": (_K.SAME, _V.PLAIN),
    "list-value": (_K.SAME, _V.PLAIN),
    "timestamped-key-value": (_K.SAME, _V.TIMESTAMPED),
    "foreign-key-subscription": (_K.SAME, _V.TIMESTAMPED),
    "headers-key-value": (_K.SAME, _V.HEADERS),
    "versioned": (_K.VERSIONED, _V.PLAIN),
    "window": (_K.WINDOW, _V.PLAIN),
    "timestamped-window": (_K.WINDOW, _V.TIMESTAMPED),
    "headers-window": (_K.WINDOW, _V.HEADERS),
    "session": (_K.SESSION, _V.PLAIN),
    "headers-session": (_K.SESSION, _V.HEADERS_SESSION),
    "time-ordered-window": (_K.TIME_ORDERED_WINDOW, _V.TIMESTAMPED),
    "headers-time-ordered-window": (_K.TIME_ORDERED_WINDOW, _V.HEADERS),
    "time-ordered-session": (_K.TIME_ORDERED_SESSION, _V.PLAIN),
    # 4.3.1 stores bare aggregations in its column family, whatever that is called: seen in every directory it wrote.
    "headers-time-ordered-session": (_K.TIME_ORDERED_SESSION, _V.PLAIN),
    "grace-buffer": (_K.ONE_SEGMENT, _V.BUFFER),
}
SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {kind: Shape(data_family(kind), key, value) for kind, (key, value) in _RULES.items()}
)
"""The shape of each kind of ``formats.kinds.KINDS`` that can be restored."""
