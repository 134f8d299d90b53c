"""Handlers of key-value stores: plain, timestamped, with headers, list-value, foreign-key subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from kstate_cli.query.queries import (
    KeyQuery,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
)
from kstate_cli.query.rows import RowIterator
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.values import ValueAndTimestamp


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
