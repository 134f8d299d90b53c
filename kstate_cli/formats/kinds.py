"""Which kind of store wrote a database, as far as its column families and a few rows tell.

Column families decide most of it: since they name the layout, they cannot be wrong. What shares the family ``default``
(plain, versioned, list-value; or plain window, session, time-ordered and grace buffer) is told apart by rows, and only
by rules that rows of the other kinds could meet by accident alone. Where rows allow two answers, none is given.

:data:`KINDS` lists the names. A kind is about bytes, not about the API: a timestamped builder over a plain supplier
leaves a plain store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ._reader import MAX_I64
from .keys import BASE_PREFIX, INDEX_PREFIX, CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from .malformed import MalformedBytesError
from .offsets import OFFSETS_CF
from .values import (
    UNKNOWN_TIMESTAMP,
    BufferValue,
    HeadersValue,
    SubscriptionWrapper,
    TimestampedValue,
    decode_list,
)
from .versioned import LatestValue, SegmentValue

DEFAULT_CF: Final = "default"
TIMESTAMPED_CF: Final = "keyValueWithTimestamp"
HEADERS_CF: Final = "keyValueWithTimestampAndHeaders"
SESSION_HEADERS_CF: Final = "sessionKeyValueWithHeaders"
WINDOW_HEADERS_CF: Final = "windowKeyValueWithHeaders"

KINDS: Final = frozenset(
    {
        "key-value",
        "timestamped-key-value",
        "headers-key-value",
        "versioned",
        "list-value",
        "foreign-key-subscription",
        "window",
        "timestamped-window",
        "headers-window",
        "session",
        "headers-session",
        "time-ordered-window",
        "headers-time-ordered-window",
        "time-ordered-session",
        "headers-time-ordered-session",
        "grace-buffer",
        "windowed",
    }
)
"""Every name that :func:`infer_kind` gives; ``windowed`` is a segmented store that could be more than one of them."""

_KNOWN_FAMILIES: Final = frozenset(
    {DEFAULT_CF, TIMESTAMPED_CF, HEADERS_CF, SESSION_HEADERS_CF, WINDOW_HEADERS_CF, OFFSETS_CF}
)
# With no segment but the one at 0 nothing bounds its end. A time in it is then taken for milliseconds before the year
# 2248: enough to see that four bytes of a key and four of a time are not one number.
_UNBOUNDED_END: Final = 1 << 43
_BUFFER_NAME: Final = "-Buffer"

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Kind:
    """A name of :data:`KINDS`, whether the bytes leave no other, and what it was taken from, as text for a reader."""

    name: str
    certain: bool
    inferred_from: str


def infer_kind(
    families: frozenset[str],
    segment_starts: Sequence[int] | None,
    samples: Mapping[str, Sequence[Row]],
    store_name: str,
    sample_start: int | None = None,
) -> Kind:
    """Name the kind of a store.

    ``families`` are those of one database of the store (none without a segment), ``samples`` the first and last few
    rows of each data family. ``segment_starts`` is ``None`` for ``rocksdb/<store>``, else the starts (ms) of the
    ``<store>/<store>.<start>``; then the rows come from the segment that starts at ``sample_start`` (the first one if
    ``None``), and the other starts narrow down where it ends. Without rows the answer rests on families and name, and
    is never certain. Nothing is raised for strange rows: they fit no special kind.
    """
    rows = {family: tuple(samples.get(family, ())) for family in families if family != OFFSETS_CF}
    foreign = sorted(families - _KNOWN_FAMILIES)
    if foreign:
        name = "key-value" if segment_starts is None else "windowed"
        return Kind(name, False, f"column families that Streams does not create: {', '.join(foreign)}")
    if segment_starts is None:
        kind = _single(rows, store_name)
    else:
        starts = sorted(segment_starts)
        if sample_start is not None:
            starts.insert(0, sample_start)
        kind = _segmented(rows, starts, store_name)
    if kind.certain and not any(rows.values()):
        return Kind(kind.name, False, f"{kind.inferred_from}; no rows")
    return kind


# --- stores of one database -------------------------------------------------------------------------------------------


def _single(rows: Mapping[str, tuple[Row, ...]], store_name: str) -> Kind:
    wrong = sorted(rows.keys() & {SESSION_HEADERS_CF, WINDOW_HEADERS_CF})
    if wrong:
        return Kind("key-value", False, f"column family {wrong[0]} belongs to a segmented store")
    family = next((name for name in (HEADERS_CF, TIMESTAMPED_CF) if name in rows), None)
    if family is not None:
        by_rows = _subscription(rows)
        if by_rows is not None:
            return by_rows
        if not any(rows.values()) and _names_subscription(store_name):
            return Kind("foreign-key-subscription", False, f"column family {family} and the store's name; no rows")
        name = "headers-key-value" if family == HEADERS_CF else "timestamped-key-value"
        return Kind(name, True, f"column family {family}")
    plain = rows.get(DEFAULT_CF, ())
    if not plain:
        if _names_shared_join(store_name):
            return Kind("list-value", False, "the store's name; no rows")
        return Kind("key-value", False, "column family default; no rows, so it could be versioned or list-value too")
    if _every(_is_list_row, plain):
        return Kind("list-value", True, "rows with join-side keys and lists of entries of that side")
    if _every(_is_versioned_row, plain):
        latest = any(key.startswith(b"\xff" * 8) for key, _ in plain)
        return Kind("versioned", True, f"rows of {'latest values' if latest else 'version segments'}")
    return Kind("key-value", True, "rows in column family default that are neither versioned nor list-value")


def _subscription(rows: Mapping[str, tuple[Row, ...]]) -> Kind | None:
    try:
        unwrapped = [(key, _inner_value(name, value)) for name, sampled in rows.items() for key, value in sampled]
    except MalformedBytesError:
        return None
    if not unwrapped or not _every(_is_subscription_row, unwrapped):
        return None
    # The primary key is written twice. Its two serializers may still differ (schema ids), so that unequal bytes do not
    # rule the kind out; but then only a few bits speak for it.
    agree = all(
        CombinedKey.from_bytes(key).primary_key == SubscriptionWrapper.from_bytes(value).primary_key
        for key, value in unwrapped
    )
    if agree:
        return Kind("foreign-key-subscription", True, "combined keys, and subscriptions with the same primary keys")
    return Kind("foreign-key-subscription", False, "rows that decode as combined keys and subscriptions")


def _inner_value(family: str, value: bytes) -> bytes:
    if family == HEADERS_CF:
        return HeadersValue.from_bytes(value).value
    if family == TIMESTAMPED_CF:
        return TimestampedValue.from_bytes(value).value
    # A row of default has not been migrated: it is the plain value.
    return value


def _is_subscription_row(key: bytes, value: bytes) -> bool:
    CombinedKey.from_bytes(key)
    wrapper = SubscriptionWrapper.from_bytes(value)
    return wrapper.partition is None or wrapper.partition >= 0


def _is_list_row(key: bytes, value: bytes) -> bool:
    join_key = JoinSideKey.from_bytes(key)
    entries = decode_list(value)
    return (
        join_key.timestamp >= UNKNOWN_TIMESTAMP
        and bool(entries)
        and all(entry is not None and entry.left == join_key.left for entry in entries)
    )


def _is_versioned_row(key: bytes, value: bytes) -> bool:
    versioned_key = VersionedKey.from_bytes(key)
    if versioned_key.is_latest:
        return 0 <= LatestValue.from_bytes(value).valid_from < MAX_I64
    return SegmentValue.from_bytes(value).min_timestamp >= 0


# --- stores of one database per segment -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """Times that belong to the sampled segment: ``start <= time < end``."""

    start: int
    end: int

    def __contains__(self, time: int) -> bool:
        return self.start <= time < self.end


def _segmented(rows: Mapping[str, tuple[Row, ...]], starts: Sequence[int], store_name: str) -> Kind:
    # A time-ordered window store is recognised by its own family before any row is read; the other two share theirs
    # between windows and joins, whose rows look alike because they are alike.
    for family, name in (
        (WINDOW_HEADERS_CF, "headers-time-ordered-window"),
        (HEADERS_CF, "headers-window"),
        (TIMESTAMPED_CF, "timestamped-window"),
    ):
        if family in rows:
            return Kind(name, True, f"column family {family}")
    sampled = [row for family in rows for row in rows[family]]
    span = _span(starts)
    if SESSION_HEADERS_CF in rows:
        return _headers_session(rows, span)
    if not sampled:
        return _empty_segmented(starts, store_name)
    if set(starts) == {0} and _every(_is_buffer_row, sampled):
        return Kind("grace-buffer", True, "one segment at 0, with time-first keys and buffered records")
    if store_name.endswith(_BUFFER_NAME) and set(starts) == {0}:
        return Kind("grace-buffer", False, "the store's name and its only segment, 0; rows that do not tell")
    tests: dict[str, Callable[[bytes, bytes], bool]] = {
        "window": lambda key, _: _is_window(WindowKey.from_bytes(key), span),
        "session": lambda key, _: _is_session(SessionKey.from_bytes(key), span),
        "time-ordered-window": lambda key, value: _is_time_ordered_window_row(key, value, span),
        "time-ordered-session": lambda key, value: _is_time_ordered_session_row(key, value, span),
    }
    fitting = [name for name, test in tests.items() if _every(test, sampled)]
    if len(fitting) == 1:
        return Kind(fitting[0], True, f"{len(sampled)} rows whose keys fit only this schema and their segment")
    if not fitting:
        return Kind("windowed", False, "rows whose keys fit no schema in their segment")
    return Kind("windowed", False, f"rows whose keys fit {' and '.join(fitting)}")


def _headers_session(rows: Mapping[str, tuple[Row, ...]], span: _Span) -> Kind:
    # Not yet migrated rows lie in default, with the same keys.
    sampled = [row for family in rows for row in rows[family]]
    if not sampled:
        return Kind(
            "headers-session", False, f"column family {SESSION_HEADERS_CF}; no rows, so it could be time-ordered"
        )
    by_key = _every(lambda key, _: _is_session(SessionKey.from_bytes(key), span), sampled)
    # Whatever the family is called, a time-ordered store has bare aggregations in it: any bytes.
    by_time = _every(lambda key, _: _is_time_ordered_session_key(key, span), sampled) and all(
        _is_index_value(value) for key, value in sampled if key.startswith(INDEX_PREFIX)
    )
    if by_key == by_time:
        why = "both session schemas" if by_key else "no session schema"
        return Kind("headers-session", False, f"column family {SESSION_HEADERS_CF}, rows whose keys fit {why}")
    name = "headers-time-ordered-session" if by_time else "headers-session"
    return Kind(name, True, f"column family {SESSION_HEADERS_CF} and keys")


def _empty_segmented(starts: Sequence[int], store_name: str) -> Kind:
    # A segment .0 without rows is no sign of a buffer: it may merely carry the offset of a store without segments.
    if store_name.endswith(_BUFFER_NAME) and not set(starts) - {0}:
        return Kind("grace-buffer", False, "the store's name; no rows")
    if _names_join(store_name):
        return Kind("window", False, "the store's name; no rows")
    return Kind("windowed", False, "segments with column family default only; no rows")


def _span(starts: Sequence[int]) -> _Span:
    start = starts[0] if starts else 0
    # Every start is a multiple of the segment interval, so the interval divides all of them; and no segment reaches
    # into the next one that is there.
    interval = math.gcd(*starts)
    ends = [other for other in starts if other > start]
    if interval:
        ends.append(start + interval)
    return _Span(start, min(ends, default=_UNBOUNDED_END))


def _is_window(key: WindowKey, span: _Span) -> bool:
    return key.start in span and key.seq >= 0


def _is_session(key: SessionKey, span: _Span) -> bool:
    return key.end in span and 0 <= key.start <= key.end


def _is_time_ordered_window_row(key: bytes, value: bytes, span: _Span) -> bool:
    if key.startswith(INDEX_PREFIX):
        return _is_window(WindowKey.from_key_first(key), span) and not value
    return (
        _is_window(WindowKey.from_time_first(key), span)
        and TimestampedValue.from_bytes(value).timestamp >= UNKNOWN_TIMESTAMP
    )


def _is_time_ordered_session_key(key: bytes, span: _Span) -> bool:
    by_key = key.startswith(INDEX_PREFIX)
    return _is_session(SessionKey.from_key_first(key) if by_key else SessionKey.from_time_first(key), span)


def _is_time_ordered_session_row(key: bytes, value: bytes, span: _Span) -> bool:
    return _is_time_ordered_session_key(key, span) and not (key.startswith(INDEX_PREFIX) and value)


def _is_index_value(value: bytes) -> bool:
    return value in {b"", b"\x00"}


def _is_buffer_row(key: bytes, value: bytes) -> bool:
    # The time in the key is not looked at: Streams garbles it when it restores a buffer.
    if not key.startswith(BASE_PREFIX):
        return False
    WindowKey.from_time_first(key)
    return BufferValue.from_bytes(value).partition >= UNKNOWN_TIMESTAMP


# --- helpers ----------------------------------------------------------------------------------------------------------


def _every(test: Callable[[bytes, bytes], bool], rows: Iterable[Row]) -> bool:
    try:
        return all(test(key, value) for key, value in rows)
    except MalformedBytesError:
        return False


def _names_subscription(store_name: str) -> bool:
    # <name>-subscription-store, and KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-<number> without a name.
    return "subscription-st" in store_name.lower()


def _names_shared_join(store_name: str) -> bool:
    # <name>-left-shared-join-store, <name>-outer-shared-join-store, KSTREAM-OUTERSHARED-<number>-store.
    return store_name.endswith("-shared-join-store") or store_name.startswith("KSTREAM-OUTERSHARED-")


def _names_join(store_name: str) -> bool:
    return store_name.endswith(("-this-join-store", "-other-join-store")) or store_name.startswith(
        ("KSTREAM-JOINTHIS-", "KSTREAM-JOINOTHER-", "KSTREAM-OUTERTHIS-", "KSTREAM-OUTEROTHER-")
    )
