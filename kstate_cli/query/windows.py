"""Handlers of all kinds of stores: key-value and versioned ones, windows, sessions, and raw queries about any of them.

Windows and sessions are sorted by key or by time. Both find a key's rows by the key: a time-ordered store through its
index rows (``01 ‖ key …``), where it has them. Rows come segment by segment, as in Streams, which is the order of time
for one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from kstate_cli.formats.binary import MIN_I64
from kstate_cli.formats.keys import BASE_PREFIX, INDEX_PREFIX, LATEST_SEGMENT, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.versioned import LatestValue, SegmentValue, Version, read_versions
from kstate_cli.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from kstate_cli.query.result import RowIterator
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.segment import Segment, StoreReader, next_prefix
from kstate_cli.rows.values import FOREVER, ValueAndTimestamp, VersionedRecord, Windowed

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
    value, decode = _values(store), None
    # Plain bytes need no call per row: None lets the iterator pass the source through.
    if value is not None:
        decode = _start_and(value, key)
    return RowIterator(_windows_of(store, key, first, query.time_to), order=itemgetter(0), decode=decode)


def _start_and(value: Any, key: bytes) -> Any:
    return lambda row: (row[0], value(row[1], key))


def window_range_query(store: StoreReader, query: WindowRangeQuery[Any, Any]) -> RowIterator[Any]:
    """Return the windows of all keys that begin in a range of times, with their values."""
    # not_by_time has refused queries without these times before the handler is called.
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
    if query.time_from is not None and query.time_to is not None:
        return None
    # The text of StoreQueryUtils, grammar included.
    return "WindowStores only supports WindowRangeQuery.withWindowStartRange"


def not_by_key(query: WindowRangeQuery[Any, Any]) -> str | None:
    """Why a session store does not answer this query."""
    if query.key is not None:
        return None
    return "SessionStores only support WindowRangeQuery.withKey"


def _as_it_is(data: bytes, _key: bytes) -> bytes:
    return data


def _values(store: StoreReader) -> Any:
    """What makes a value of a row's bytes and key: with its timestamp in a store with them. None: the bytes are it."""
    if store.layout.decode is not None:
        return store.stamped
    if store.plain_bytes:
        return None
    return store.value


# --- rows -------------------------------------------------------------------------------------------------------------


def _windows_of(store: StoreReader, key: bytes, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Yield the start and the value of each window of a key that begins from ``first`` to ``last``."""
    schema, read = store.layout.key, store.layout.key.window
    for segment in store.between(first, last):
        if not schema.time_ordered:
            size = len(key) + _WINDOW_TAIL
            # A row key is key ‖ start. Big-endian times sort by value, because windows never start before 1970.
            for row, value in segment.scan(key + _time(first), key + _time(last) + _LAST):
                # Another, longer key may begin with these bytes.
                if len(row) == size:
                    yield segment.own(read(row).start), value
        elif _has_index(segment):
            prefixed = INDEX_PREFIX + key
            size = len(prefixed) + _WINDOW_TAIL
            for row, _ in segment.scan(prefixed + _time(first), prefixed + _time(last) + _LAST):
                if len(row) == size:
                    # Index rows have no value. The value is in the base row, whose key begins with the time.
                    window = WindowKey.from_key_first(row)
                    base = segment.get(window.to_time_first())
                    # If the application dies between two writes, an index row may exist without its base row.
                    if base is not None:
                        yield segment.own(window.start), base
        else:
            for row, value in _base_rows(segment, first):
                window = read(row)
                # Base rows are sorted by time, so no later row can be in the range.
                if window.start > last:
                    break
                if window.key == key:
                    yield segment.own(window.start), value


def _windows(store: StoreReader, first: int, last: int) -> Iterator[_WindowRow]:
    """Yield the windows of all keys that begin from ``first`` to ``last``: segment, row key, value."""
    schema, read = store.layout.key, store.layout.key.window
    for segment in store.between(first, last):
        if schema.time_ordered:
            for row, value in _base_rows(segment, first):
                if segment.own(read(row).start) > last:
                    break
                yield segment.start, row, value
        else:
            # The rows are sorted by key. So the time of every row must be compared.
            for row, value in segment.scan():
                if first <= segment.own(read(row).start) <= last:
                    yield segment.start, row, value


def _sessions_of(store: StoreReader, key: bytes, first: int) -> Iterator[tuple[SessionKey, bytes]]:
    """Yield the sessions of a key that end at or after ``first``, with their values."""
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
    # 00 before 01: all base rows come before all index rows.
    return segment.scan(BASE_PREFIX + _time(first), INDEX_PREFIX)


def _has_index(segment: Segment) -> bool:
    return next(segment.scan(INDEX_PREFIX), None) is not None


def _time(time: int) -> bytes:
    # Clamped, since a negative time would sort behind all others.
    return min(max(time, 0), FOREVER).to_bytes(8, "big")


# --- expiry -----------------------------------------------------------------------------------------------------------


def newest(store: StoreReader) -> int | None:
    """Return the stream time of the store: the start of its newest window, or the end of its newest session.

    It reads the keys of the newest segment that has rows. None without rows.
    """
    ordered, time = store.layout.key.time_ordered, store.layout.key.segment_time
    # From the newest segment backwards: the first segment with a row has the newest row.
    for segment in reversed(store.segments):
        if ordered:
            rows: Iterator[Row] = segment.scan(BASE_PREFIX, INDEX_PREFIX, reverse=True)
            last, newest_time = next(rows, None), None
            # The base rows are sorted by time, so the last one is the newest. Without that order, all keys of the
            # segment are read.
            if last is not None:
                newest_time = int(time(last[0]))
        else:
            newest_time = max((time(row) for row, _ in segment.scan()), default=None)
        if newest_time is not None:
            return newest_time
    return None


def key_query(store: StoreReader, query: KeyQuery[Any, Any]) -> Any:
    """The value, or None."""
    row = _get(store, query.key)
    if row is None:
        return None
    return store.value(row, store.key_bytes(query.key))


def timestamped_key_query(store: StoreReader, query: TimestampedKeyQuery[Any, Any]) -> ValueAndTimestamp[Any] | None:
    """The value and its timestamp, or None."""
    row = _get(store, query.key)
    if row is None:
        return None
    return store.stamped(row, store.key_bytes(query.key))


def range_query(store: StoreReader, query: RangeQuery[Any, Any]) -> RowIterator[Any]:
    """Keys and values."""
    if store.plain_bytes:
        return _rows(store, query, None)
    return _rows(store, query, lambda row: (store.key(row[0]), store.value(row[1], row[0])))


def timestamped_range_query(store: StoreReader, query: TimestampedRangeQuery[Any, Any]) -> RowIterator[Any]:
    """Keys, and values with their timestamps."""
    return _rows(store, query, lambda row: (store.key(row[0]), store.stamped(row[1], row[0])))


def _get(store: StoreReader, key: Any) -> bytes | None:
    data = store.key_bytes(key)
    # A folder without a database: the store was never written, so no key exists.
    if store.database is None:
        return None
    return store.database.get(data)


def _rows(
    store: StoreReader, query: RangeQuery[Any, Any] | TimestampedRangeQuery[Any, Any], decode: Any
) -> RowIterator[Any]:
    """Return the rows of a key-value store in the range of a query, in its order."""
    lower = below = None
    if query.lower is not None:
        lower = store.key_bytes(query.lower)
    # The upper bound is inclusive. No key is between a key and the same key with an additional zero byte.
    if query.upper is not None:
        below = store.key_bytes(query.upper) + b"\0"
    reverse = query.order is ResultOrder.DESCENDING
    source: Iterator[Row] = iter(())
    if store.database is not None:
        source = store.database.scan(lower, below, reverse=reverse)
    return RowIterator(source, order=itemgetter(0), decode=decode, reverse=reverse)


def raw_key_query(store: StoreReader, query: RawKeyQuery) -> bytes | None:
    """The row of the first segment that has the key: a key belongs to one segment only."""
    for segment in store.segments:
        # Raw keys have their segment's time in them, so at most one segment has the key.
        value = segment.get(query.key)
        if value is not None:
            return value
    return None


def raw_scan_query(store: StoreReader, _query: RawScanQuery) -> RowIterator[Row]:
    """All rows, segment by segment. Nothing that has expired is hidden."""
    # A plain store: without a segment there is no time to sort by.
    if len(store.segments) == 1 and store.segments[0].start is None:
        return RowIterator(store.segments[0].scan(), order=itemgetter(0))
    return RowIterator(
        chain.from_iterable(_scans(store.segments)), order=lambda pair: (pair[0], pair[1][0]), decode=itemgetter(1)
    )


def _scans(segments: tuple[Segment, ...]) -> Iterator[Iterator[tuple[int | None, Row]]]:
    for segment in segments:
        # Lazily: the scan of a segment opens its database only when the rows before it are read.
        yield zip(repeat(segment.start), segment.scan())


_ID_BYTES = 8


def versioned_key_query(store: StoreReader, query: VersionedKeyQuery[Any, Any]) -> VersionedRecord[Any] | None:
    """Return the version of a key that was valid at a time.

    None if there was none, it was deleted, or it has expired.
    """
    key = store.key_bytes(query.key)
    as_of = query.as_of_timestamp
    if as_of is None:
        as_of = FOREVER
    if store.database is None:
        return None
    latest = _latest(store.database, key)
    if latest is not None and latest.valid_from <= as_of:
        return _record(store, key, latest.value, latest.valid_from, None)
    # Streams does not return history older than the retention, even if a segment still has it.
    if query.as_of_timestamp is None or as_of < _oldest(store):
        return None
    for version, valid_to in _history(store.database, key):
        if version.valid_from <= as_of:
            # The time is after the end of the version, or in a deletion. In both cases no value was valid then.
            if as_of >= valid_to or version.value is None:
                return None
            return _record(store, key, version.value, version.valid_from, valid_to)
    return None


def multi_versioned_key_query(
    store: StoreReader, query: MultiVersionedKeyQuery[Any, Any]
) -> RowIterator[VersionedRecord[Any]]:
    """Return the versions of a key that were valid in a range of times, by default the newest first."""
    key = store.key_bytes(query.key)
    first, last = query.from_timestamp, query.to_timestamp
    # Compared with None and not by ``or``, because 0 is a time too.
    if first is None:
        first = MIN_I64
    if last is None:
        last = FOREVER
    ascending = query.order is ResultOrder.ASCENDING
    # Versions are read lazily, from the newest one on: a caller that needs one version reads no more.
    versions = _versions(store, key, first, last)
    # For the ascending order they are all read: the history of one key is small, and Streams has all its rows in memory
    # too.
    source = versions
    if ascending:
        source = iter(list(versions)[::-1])
    return RowIterator(source, order=lambda record: record.timestamp, reverse=not ascending)


def _versions(store: StoreReader, key: bytes, first: int, last: int) -> Iterator[VersionedRecord[Any]]:
    """Yield the versions of a key that were valid from ``first`` to ``last``, the newest first."""
    if store.database is None:
        return
    latest = _latest(store.database, key)
    if latest is not None and latest.valid_from <= last:
        # The latest version has no end, so its end is None and not a time in the future.
        yield _record(store, key, latest.value, latest.valid_from, None)
    if last < _oldest(store):
        return
    for version, valid_to in _history(store.database, key):
        # The newest version comes first. So all later ones have ended before ``first`` too.
        if valid_to <= first:
            return
        if version.valid_from <= last and version.value is not None:
            yield _record(store, key, version.value, version.valid_from, valid_to)


def _record(
    store: StoreReader, key: bytes, value: bytes, valid_from: int, valid_to: int | None
) -> VersionedRecord[Any]:
    return VersionedRecord(store.value(value, key), valid_from, valid_to)


def _latest(database: Segment, key: bytes) -> LatestValue | None:
    # Segment -1 holds the latest versions; as an unsigned prefix it sorts behind all others.
    row = database.get(VersionedKey(LATEST_SEGMENT, key).to_bytes())
    if row is None:
        return None
    return LatestValue.from_bytes(row)


def _history(database: Segment, key: bytes) -> Iterator[tuple[Version, int]]:
    """Yield the older versions of a key, the newest first, each with the time at which it ended.

    Deletions are included.
    """
    # The existing segments are used and not a computed range, because a store may have a custom segment interval
    # (KIP-889).
    for prefix in reversed(database.ids(_ID_BYTES)):
        if VersionedKey.from_bytes(prefix).is_latest:
            continue
        # Each logical segment has one row for a key, with all versions that ended in the segment.
        row = database.get(prefix + key)
        if row is None:
            continue
        segment = SegmentValue.from_bytes(row)
        valid_to = segment.next_timestamp
        for version in segment.versions:
            yield version, valid_to
            # Each version of a row ended when the next newer one began.
            valid_to = version.valid_from


def _oldest(store: StoreReader) -> int:
    """The first time that history answers for; the latest version never expires."""
    earliest = store.earliest(_newest)
    # What is hidden is older than stream time less retention; a window's bound is one later.
    if not earliest:
        return MIN_I64
    return earliest - 1


def _newest(store: StoreReader) -> int | None:
    """Return the stream time of a versioned store: the time of its newest version. It reads all latest versions."""
    if store.database is None:
        return None
    newest: int | None = None
    # Both the segment of the latest versions and the newest segment of older ones are read, because the newest of all
    # may be a deletion.
    for prefix in store.database.ids(_ID_BYTES)[-2:]:
        at = VersionedKey.from_bytes(prefix)
        for _, value in store.database.scan(prefix, next_prefix(prefix)):
            time = read_versions(at, value).newest_time
            if newest is None or time > newest:
                newest = time
    return newest
