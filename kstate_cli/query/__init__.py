"""Interactive queries without the application: KIP-796's questions and answers, from a state directory.

::

    from kstate_cli.query import KeyQuery, OfflineStreams, in_store

    with OfflineStreams("/var/lib/kafka-streams/orders") as streams:
        answer = streams.query(in_store("count").with_query(KeyQuery.with_key(b"alice")))
        print(answer.only_partition_result)
"""

from __future__ import annotations

from kstate_cli.formats.offsets import Position, PositionBound
from kstate_cli.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    QueryFailedError,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
    ResultOrder,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    in_store,
)
from kstate_cli.query.result import FailureReason, QueryResult, RowIterator, StateQueryResult, collate
from kstate_cli.query.streams import Handlers, OfflineStreams, default_handlers
from kstate_cli.rows.errors import SerdeError, StoreUnreadable, UnknownStateStoreError
from kstate_cli.rows.segment import StoreReader
from kstate_cli.rows.serde_type import BYTES, Serde, StoreSerdes
from kstate_cli.rows.serdes import serde
from kstate_cli.rows.values import ValueAndTimestamp, VersionedRecord, Windowed

__all__ = [
    "BYTES",
    "FailureReason",
    "Handlers",
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "OfflineStreams",
    "Position",
    "PositionBound",
    "Query",
    "QueryFailedError",
    "QueryResult",
    "RangeQuery",
    "RawKeyQuery",
    "RawScanQuery",
    "ResultOrder",
    "RowIterator",
    "Serde",
    "SerdeError",
    "StateQueryRequest",
    "StateQueryResult",
    "StoreReader",
    "StoreSerdes",
    "StoreUnreadable",
    "TimestampedKeyQuery",
    "TimestampedKeyWithHeadersQuery",
    "TimestampedRangeQuery",
    "TimestampedRangeWithHeadersQuery",
    "TimestampedWindowKeyWithHeadersQuery",
    "TimestampedWindowRangeWithHeadersQuery",
    "UnknownStateStoreError",
    "ValueAndTimestamp",
    "VersionedKeyQuery",
    "VersionedRecord",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "Windowed",
    "collate",
    "default_handlers",
    "in_store",
    "serde",
]
