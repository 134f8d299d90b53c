"""Handlers of versioned stores (KIP-889): the latest versions in one logical segment, older ones by when they ended.

Streams forgets its segments when it restarts, and answers null for history until it has seen records again; the rows
are there all the while, and are read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kstate_cli.formats.binary import MIN_I64
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
from kstate_cli.formats.versioned import LatestValue, SegmentValue, Version, read_versions
from kstate_cli.query.queries import MultiVersionedKeyQuery, ResultOrder, VersionedKeyQuery
from kstate_cli.query.rows import RowIterator
from kstate_cli.rows.segment import Segment, next_prefix
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.times import FOREVER
from kstate_cli.rows.values import VersionedRecord

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
