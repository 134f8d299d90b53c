"""Whether rows decode as the store's kind writes them.

Each rule is a codec of ``formats``, which decides, and a quick test of many rows at once, which says yes only where
the codec would. Rows that it does not vouch for are decoded one by one. A Python call per row would take longer than
reading the row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from kstate_cli.formats.keys import BASE_PREFIX, CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kinds import (
    DEFAULT_CF,
    HEADERS_CF,
    SESSION_HEADERS_CF,
    TIMESTAMPED_CF,
    WINDOW_HEADERS_CF,
    Kind,
)
from kstate_cli.formats.values import (
    BufferValue,
    HeadersSessionValue,
    HeadersValue,
    SubscriptionWrapper,
    TimestampedValue,
    decode_list,
    strip_index_headers,
)
from kstate_cli.formats.versioned import LatestValue, SegmentValue
from kstate_cli.verify.quick import headers_end, list_fits, segment_fits, subscription_fits

Rows = list[bytes]
_WINDOW_TAIL, _SESSION_TAIL = 12, 16
_TIMESTAMP = 8
_COMBINED = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Rule:
    """``decode`` raises MalformedBytesError for a bad row; ``fits`` is true only where it would raise for none."""

    decode: Callable[[bytes, bytes], object]
    fits: Callable[[Rows, Rows], bool]


def rule_for(kind: Kind, family: str, *, segmented: bool) -> Rule | None:
    """How the rows of a column family are checked; None where any bytes are good.

    Where the kind is not certain, only what the column family itself promises is checked.
    """
    if kind.certain:
        found = _BY_KIND.get((kind.name, family))
        if found is not None:
            return found
    return (_SEGMENTED if segmented else _SINGLE).get(family)


# --- quick tests ------------------------------------------------------------------------------------------------------


def _lengths(key: int, value: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        return min(map(len, keys)) >= key and min(map(len, values)) >= value

    return fits


def _headers(key: int, tail: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        least = 1 + tail
        return min(map(len, keys)) >= key and all(
            len(v) >= least if v[:1] == b"\0" else headers_end(v, tail) for v in values
        )

    return fits


def _time_ordered(key: int, base: Callable[[bytes], bool], index: frozenset[bytes]) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        if min(map(len, keys)) <= key:
            return False
        return all(base(v) if k[0] == 0 else k[0] == 1 and v in index for k, v in zip(keys, values, strict=True))

    return fits


def _versioned(keys: Rows, values: Rows) -> bool:
    return min(map(len, keys)) >= _TIMESTAMP and all(
        segment_fits(v) if k[0] < 0x80 else k.startswith(b"\xff" * 8) and len(v) >= _TIMESTAMP
        for k, v in zip(keys, values, strict=True)
    )


def _list(keys: Rows, values: Rows) -> bool:
    return min(map(len, keys)) > _TIMESTAMP and all(k[_TIMESTAMP] <= 1 for k in keys) and all(map(list_fits, values))


def _combined(keys: Rows) -> bool:
    return min(map(len, keys)) >= _COMBINED.size and all(
        0 <= _COMBINED.unpack_from(k)[0] <= len(k) - _COMBINED.size for k in keys
    )


def _subscription(at: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        return _combined(keys) and all(subscription_fits(v, at) for v in values)

    return fits


def _subscription_with_headers(keys: Rows, values: Rows) -> bool:
    # Without headers the size of the headers is one byte, 0.
    return _combined(keys) and all(v[:1] == b"\0" and subscription_fits(v, 1 + _TIMESTAMP) for v in values)


def _never(_keys: Rows, _values: Rows) -> bool:
    return False


# --- codecs -----------------------------------------------------------------------------------------------------------

Decoder = Callable[[bytes], object]


def _row(key: Decoder, value: Decoder) -> Callable[[bytes, bytes], object]:
    def decode(k: bytes, v: bytes) -> object:
        return key(k), value(v)

    return decode


def _prefixed(base: tuple[Decoder, Decoder], index: tuple[Decoder, Decoder]) -> Callable[[bytes, bytes], object]:
    def decode(k: bytes, v: bytes) -> object:
        key, value = base if k.startswith(BASE_PREFIX) else index
        return key(k), value(v)

    return decode


def _decode_versioned(key: bytes, value: bytes) -> object:
    if VersionedKey.from_bytes(key).is_latest:
        return LatestValue.from_bytes(value)
    return SegmentValue.from_bytes(value)


def _anything(data: bytes) -> object:
    return data


def _within(decode: Callable[[bytes], TimestampedValue | HeadersValue]) -> Decoder:
    def inner(data: bytes) -> object:
        return SubscriptionWrapper.from_bytes(decode(data).value)

    return inner


def _time_first_window(base: Decoder, fits: Callable[[bytes], bool], index: frozenset[bytes]) -> Rule:
    keys = (WindowKey.from_time_first, WindowKey.from_key_first)
    return Rule(_prefixed((keys[0], base), (keys[1], strip_index_headers)), _time_ordered(_WINDOW_TAIL, fits, index))


def _time_first_session(base: Decoder, fits: Callable[[bytes], bool], index: frozenset[bytes]) -> Rule:
    keys = (SessionKey.from_time_first, SessionKey.from_key_first)
    return Rule(_prefixed((keys[0], base), (keys[1], strip_index_headers)), _time_ordered(_SESSION_TAIL, fits, index))


# --- rules ------------------------------------------------------------------------------------------------------------

_EMPTY = frozenset({b""})
_EMPTY_OR_MIGRATED = frozenset({b"", b"\0"})
_WINDOW = Rule(_row(WindowKey.from_bytes, _anything), _lengths(_WINDOW_TAIL, 0))
_SESSION = Rule(_row(SessionKey.from_bytes, _anything), _lengths(_SESSION_TAIL, 0))
_TIME_WINDOW = _time_first_window(TimestampedValue.from_bytes, lambda v: len(v) >= _TIMESTAMP, _EMPTY)
_TIME_SESSION = _time_first_session(_anything, lambda _: True, _EMPTY)

_SINGLE: dict[str, Rule] = {
    TIMESTAMPED_CF: Rule(_row(_anything, TimestampedValue.from_bytes), _lengths(0, _TIMESTAMP)),
    HEADERS_CF: Rule(_row(_anything, HeadersValue.from_bytes), _headers(0, _TIMESTAMP)),
}
_SEGMENTED: dict[str, Rule] = {
    TIMESTAMPED_CF: Rule(_row(WindowKey.from_bytes, TimestampedValue.from_bytes), _lengths(_WINDOW_TAIL, _TIMESTAMP)),
    HEADERS_CF: Rule(_row(WindowKey.from_bytes, HeadersValue.from_bytes), _headers(_WINDOW_TAIL, _TIMESTAMP)),
    WINDOW_HEADERS_CF: _time_first_window(
        HeadersValue.from_bytes, lambda v: headers_end(v, _TIMESTAMP), _EMPTY_OR_MIGRATED
    ),
}
_BY_KIND: dict[tuple[str, str], Rule] = {
    ("versioned", DEFAULT_CF): Rule(_decode_versioned, _versioned),
    ("list-value", DEFAULT_CF): Rule(_row(JoinSideKey.from_bytes, decode_list), _list),
    # Rows of an older family are those of the older layout, until Streams moves them.
    ("foreign-key-subscription", DEFAULT_CF): Rule(
        _row(CombinedKey.from_bytes, SubscriptionWrapper.from_bytes), _subscription(0)
    ),
    ("foreign-key-subscription", TIMESTAMPED_CF): Rule(
        _row(CombinedKey.from_bytes, _within(TimestampedValue.from_bytes)), _subscription(_TIMESTAMP)
    ),
    ("foreign-key-subscription", HEADERS_CF): Rule(
        _row(CombinedKey.from_bytes, _within(HeadersValue.from_bytes)), _subscription_with_headers
    ),
    ("window", DEFAULT_CF): _WINDOW,
    ("timestamped-window", DEFAULT_CF): _WINDOW,
    ("headers-window", DEFAULT_CF): _WINDOW,
    ("session", DEFAULT_CF): _SESSION,
    ("headers-session", DEFAULT_CF): _SESSION,
    ("headers-session", SESSION_HEADERS_CF): Rule(
        _row(SessionKey.from_bytes, HeadersSessionValue.from_bytes), _headers(_SESSION_TAIL, 0)
    ),
    ("time-ordered-window", DEFAULT_CF): _TIME_WINDOW,
    ("headers-time-ordered-window", DEFAULT_CF): _TIME_WINDOW,
    ("time-ordered-session", DEFAULT_CF): _TIME_SESSION,
    ("headers-time-ordered-session", DEFAULT_CF): _TIME_SESSION,
    # The family is named for headers, and 4.3.1 writes bare aggregations into it.
    ("headers-time-ordered-session", SESSION_HEADERS_CF): _time_first_session(
        _anything, lambda _: True, _EMPTY_OR_MIGRATED
    ),
    ("grace-buffer", DEFAULT_CF): Rule(_row(WindowKey.from_time_first, BufferValue.from_bytes), _never),
}
