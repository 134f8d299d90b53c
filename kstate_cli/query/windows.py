"""Handlers of window and session stores, sorted by key or by time.

Both find a key's rows by the key: a time-ordered store through its index rows (``01 ‖ key …``), where it has them.
Rows come segment by segment, as in Streams, and that is the order of time for one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from kstate_cli.formats.keys import BASE_PREFIX, INDEX_PREFIX, SessionKey, WindowKey
from kstate_cli.query.queries import WindowKeyQuery, WindowRangeQuery
from kstate_cli.query.result import RowIterator
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.values import FOREVER, Windowed

_WINDOW_TAIL = 12
_SESSION_TAIL = 16
_LAST = b"\xff" * 8
"""Behind every sequence number and every start of a session."""

_WindowRow = tuple[int | None, bytes, bytes]
"""Start of the segment, key of the row, value of the row."""


def window_key_query(store: StoreReader, query: WindowKeyQuery[Any, Any]) -> RowIterator[Any]:
    """Starts and values of a key's windows."""
    key = store.key_bytes(query.key)
    first = max(0, query.time_from, store.earliest(newest))
    value = _values(store)
    return RowIterator(
        _windows_of(store, key, first, query.time_to),
        order=itemgetter(0),
        decode=None if value is None else lambda row: (row[0], value(row[1], key)),
    )


def window_range_query(store: StoreReader, query: WindowRangeQuery[Any, Any]) -> RowIterator[Any]:
    """Windows and values of all keys in a time."""
    assert query.time_from is not None
    assert query.time_to is not None
    first = max(0, query.time_from, store.earliest(newest))
    read = store.layout.key.window
    value = _values(store) or _as_it_is

    def decode(row: _WindowRow) -> tuple[Windowed[Any], Any]:
        window = read(row[1])
        return Windowed(store.key(window.key), window.start, None), value(row[2], window.key)

    return RowIterator(_windows(store, first, query.time_to), order=itemgetter(0, 1), decode=decode)


def session_range_query(store: StoreReader, query: WindowRangeQuery[Any, Any]) -> RowIterator[Any]:
    """The sessions of a key, and their values."""
    key = store.key_bytes(query.key)
    value = _values(store) or _as_it_is

    def decode(row: tuple[SessionKey, bytes]) -> tuple[Windowed[Any], Any]:
        return Windowed(query.key, row[0].start, row[0].end), value(row[1], key)

    first = store.earliest(newest)
    return RowIterator(_sessions_of(store, key, first), order=lambda row: (row[0].end, row[0].start), decode=decode)


def no_rows(_store: StoreReader, _query: WindowRangeQuery[Any, Any]) -> RowIterator[Any]:
    """Of a store that has none, whatever it is asked by."""
    return RowIterator((), order=itemgetter(0))


def not_by_time(query: WindowRangeQuery[Any, Any]) -> str | None:
    """Why a window store does not answer this query."""
    by_time = query.time_from is not None and query.time_to is not None
    return None if by_time else "WindowStores only supports WindowRangeQuery.withWindowStartRange"


def not_by_key(query: WindowRangeQuery[Any, Any]) -> str | None:
    """Why a session store does not answer this query."""
    return None if query.key is not None else "SessionStores only support WindowRangeQuery.withKey"


def _as_it_is(data: bytes, _key: bytes) -> bytes:
    return data


def _values(store: StoreReader) -> Any:
    """What makes a value of a row's bytes and key: with its timestamp in a store with them. None: the bytes are it."""
    if store.layout.decode is not None:
        return store.stamped
    return None if store.plain_bytes else store.value


# --- rows -------------------------------------------------------------------------------------------------------------


def _windows_of(store: StoreReader, key: bytes, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    schema, read = store.layout.key, store.layout.key.window
    for segment in store.between(first, last):
        if not schema.time_ordered:
            size = len(key) + _WINDOW_TAIL
            for row, value in segment.scan(key + _time(first), key + _time(last) + _LAST):
                # A longer key may begin with this one.
                if len(row) == size:
                    yield segment.own(read(row).start), value
        elif _has_index(segment):
            prefixed = INDEX_PREFIX + key
            size = len(prefixed) + _WINDOW_TAIL
            for row, _ in segment.scan(prefixed + _time(first), prefixed + _time(last) + _LAST):
                if len(row) == size:
                    window = WindowKey.from_key_first(row)
                    base = segment.get(window.to_time_first())
                    # An index row may outlive its base row when the application dies between two writes.
                    if base is not None:
                        yield segment.own(window.start), base
        else:
            for row, value in _base_rows(segment, first):
                window = read(row)
                if window.start > last:
                    break
                if window.key == key:
                    yield segment.own(window.start), value


def _windows(store: StoreReader, first: int, last: int) -> Iterator[_WindowRow]:
    schema, read = store.layout.key, store.layout.key.window
    for segment in store.between(first, last):
        if schema.time_ordered:
            for row, value in _base_rows(segment, first):
                if segment.own(read(row).start) > last:
                    break
                yield segment.start, row, value
        else:
            for row, value in segment.scan():
                if first <= segment.own(read(row).start) <= last:
                    yield segment.start, row, value


def _sessions_of(store: StoreReader, key: bytes, first: int) -> Iterator[tuple[SessionKey, bytes]]:
    schema, read = store.layout.key, store.layout.key.session
    for segment in store.between(first, FOREVER):
        if not schema.time_ordered:
            size = len(key) + _SESSION_TAIL
            for row, value in segment.scan(key + _time(first), key + _time(FOREVER) + _LAST + b"\0"):
                if len(row) == size:
                    session = read(row)
                    segment.own(session.end)
                    yield session, value
        elif _has_index(segment):
            prefixed = INDEX_PREFIX + key
            size = len(prefixed) + _SESSION_TAIL
            for row, _ in segment.scan(prefixed + _time(first), prefixed + _time(FOREVER) + _LAST + b"\0"):
                if len(row) == size:
                    session = SessionKey.from_key_first(row)
                    base = segment.get(session.to_time_first())
                    if base is not None:
                        segment.own(session.end)
                        yield session, base
        else:
            for row, value in _base_rows(segment, first):
                session = read(row)
                if session.key == key:
                    segment.own(session.end)
                    yield session, value


def _base_rows(segment: Segment, first: int) -> Iterator[Row]:
    return segment.scan(BASE_PREFIX + _time(first), INDEX_PREFIX)


def _has_index(segment: Segment) -> bool:
    return next(segment.scan(INDEX_PREFIX), None) is not None


def _time(time: int) -> bytes:
    return min(max(time, 0), FOREVER).to_bytes(8, "big")


# --- expiry -----------------------------------------------------------------------------------------------------------


def newest(store: StoreReader) -> int | None:
    """The start of the newest window, or the end of the newest session: the stream time that Streams has seen.

    Reads the keys of the last segment.
    """
    ordered, time = store.layout.key.time_ordered, store.layout.key.segment_time
    for segment in reversed(store.segments):
        if ordered:
            rows: Iterator[Row] = segment.scan(BASE_PREFIX, INDEX_PREFIX, reverse=True)
            last = next(rows, None)
            newest_time = None if last is None else int(time(last[0]))
        else:
            newest_time = max((time(row) for row, _ in segment.scan()), default=None)
        if newest_time is not None:
            return newest_time
    return None
