"""Handlers of key-value stores, of versioned stores, and of raw queries about any kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from kstate_cli.formats.binary import MIN_I64
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
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
)
from kstate_cli.query.result import RowIterator
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.segment import Segment, next_prefix
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.values import FOREVER, ValueAndTimestamp, VersionedRecord


def key_query(store: StoreReader, query: KeyQuery[Any, Any]) -> Any:
    """The value, or None."""
    row = _get(store, query.key)
    return None if row is None else store.value(row, store.key_bytes(query.key))


def timestamped_key_query(store: StoreReader, query: TimestampedKeyQuery[Any, Any]) -> ValueAndTimestamp[Any] | None:
    """The value and its timestamp, or None."""
    row = _get(store, query.key)
    return None if row is None else store.stamped(row, store.key_bytes(query.key))


def range_query(store: StoreReader, query: RangeQuery[Any, Any]) -> RowIterator[Any]:
    """Keys and values."""
    decode = None if store.plain_bytes else lambda row: (store.key(row[0]), store.value(row[1], row[0]))
    return _rows(store, query, decode)


def timestamped_range_query(store: StoreReader, query: TimestampedRangeQuery[Any, Any]) -> RowIterator[Any]:
    """Keys, and values with their timestamps."""
    return _rows(store, query, lambda row: (store.key(row[0]), store.stamped(row[1], row[0])))


def _get(store: StoreReader, key: Any) -> bytes | None:
    data = store.key_bytes(key)
    return None if store.database is None else store.database.get(data)


def _rows(
    store: StoreReader, query: RangeQuery[Any, Any] | TimestampedRangeQuery[Any, Any], decode: Any
) -> RowIterator[Any]:
    lower = None if query.lower is None else store.key_bytes(query.lower)
    # The upper bound is inclusive: nothing lies between a key and the same key with a zero byte behind it.
    below = None if query.upper is None else store.key_bytes(query.upper) + b"\0"
    reverse = query.order is ResultOrder.DESCENDING
    database = store.database
    source: Iterator[Row] = iter(()) if database is None else database.scan(lower, below, reverse=reverse)
    return RowIterator(source, order=itemgetter(0), decode=decode, reverse=reverse)


def raw_key_query(store: StoreReader, query: RawKeyQuery) -> bytes | None:
    """The row of the first segment that has the key: a key belongs to one segment only."""
    for segment in store.segments:
        value = segment.get(query.key)
        if value is not None:
            return value
    return None


def raw_scan_query(store: StoreReader, _query: RawScanQuery) -> RowIterator[Row]:
    """All rows, segment by segment. Nothing that has expired is hidden."""
    if len(store.segments) == 1 and store.segments[0].start is None:
        return RowIterator(store.segments[0].scan(), order=itemgetter(0))
    return RowIterator(
        chain.from_iterable(_scans(store.segments)), order=lambda pair: (pair[0], pair[1][0]), decode=itemgetter(1)
    )


def _scans(segments: tuple[Segment, ...]) -> Iterator[Iterator[tuple[int | None, Row]]]:
    for segment in segments:
        yield zip(repeat(segment.start), segment.scan())


_ID_BYTES = 8


def versioned_key_query(store: StoreReader, query: VersionedKeyQuery[Any, Any]) -> VersionedRecord[Any] | None:
    """The version that was valid then; None where there was none, or it was deleted, or has expired."""
    key = store.key_bytes(query.key)
    as_of = FOREVER if query.as_of_timestamp is None else query.as_of_timestamp
    if store.database is None:
        return None
    latest = _latest(store.database, key)
    if latest is not None and latest.valid_from <= as_of:
        return _record(store, key, latest.value, latest.valid_from, None)
    if query.as_of_timestamp is None or as_of < _oldest(store):
        return None
    for version, valid_to in _history(store.database, key):
        if version.valid_from <= as_of:
            if as_of >= valid_to or version.value is None:
                return None
            return _record(store, key, version.value, version.valid_from, valid_to)
    return None


def multi_versioned_key_query(
    store: StoreReader, query: MultiVersionedKeyQuery[Any, Any]
) -> RowIterator[VersionedRecord[Any]]:
    """The versions that were valid in a time, the newest first unless asked otherwise."""
    key = store.key_bytes(query.key)
    first = MIN_I64 if query.from_timestamp is None else query.from_timestamp
    last = FOREVER if query.to_timestamp is None else query.to_timestamp
    ascending = query.order is ResultOrder.ASCENDING
    versions = _versions(store, key, first, last)
    # One key's history is small: Streams, too, holds all of its rows.
    source = iter(list(versions)[::-1]) if ascending else versions
    return RowIterator(source, order=lambda record: record.timestamp, reverse=not ascending)


def _versions(store: StoreReader, key: bytes, first: int, last: int) -> Iterator[VersionedRecord[Any]]:
    if store.database is None:
        return
    latest = _latest(store.database, key)
    if latest is not None and latest.valid_from <= last:
        yield _record(store, key, latest.value, latest.valid_from, None)
    if last < _oldest(store):
        return
    for version, valid_to in _history(store.database, key):
        if valid_to <= first:
            return
        if version.valid_from <= last and version.value is not None:
            yield _record(store, key, version.value, version.valid_from, valid_to)


def _record(
    store: StoreReader, key: bytes, value: bytes, valid_from: int, valid_to: int | None
) -> VersionedRecord[Any]:
    return VersionedRecord(store.value(value, key), valid_from, valid_to)


def _latest(database: Segment, key: bytes) -> LatestValue | None:
    row = database.get(VersionedKey(LATEST_SEGMENT, key).to_bytes())
    return None if row is None else LatestValue.from_bytes(row)


def _history(database: Segment, key: bytes) -> Iterator[tuple[Version, int]]:
    """Older versions of a key, the newest first, each with the time at which it ended. Deletions are among them."""
    for prefix in reversed(database.ids(_ID_BYTES)):
        if VersionedKey.from_bytes(prefix).is_latest:
            continue
        row = database.get(prefix + key)
        if row is None:
            continue
        segment = SegmentValue.from_bytes(row)
        valid_to = segment.next_timestamp
        for version in segment.versions:
            yield version, valid_to
            valid_to = version.valid_from


def _oldest(store: StoreReader) -> int:
    """The first time that history answers for; the latest version never expires."""
    earliest = store.earliest(_newest)
    # What is hidden is older than stream time less retention; a window's bound is one later.
    return earliest - 1 if earliest else MIN_I64


def _newest(store: StoreReader) -> int | None:
    """The time of the newest version: the stream time that Streams has seen. Reads all latest versions."""
    if store.database is None:
        return None
    newest: int | None = None
    for prefix in store.database.ids(_ID_BYTES)[-2:]:
        at = VersionedKey.from_bytes(prefix)
        for _, value in store.database.scan(prefix, next_prefix(prefix)):
            time = read_versions(at, value).newest_time
            newest = time if newest is None else max(newest, time)
    return newest
