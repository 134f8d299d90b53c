"""The queries of KIP-796, KIP-968, KIP-992 and KIP-1356 as immutable values, and the request for one.

A query is a question about one store; the handler for the kind of the store answers it (``handlers``). A subclass of
:class:`Query` in a user's code is a query too. Times are milliseconds, inclusive on both ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from kstate_cli.errors import ConditionNotMet
from kstate_cli.formats.offsets import PositionBound
from kstate_cli.query.result import RowIterator
from kstate_cli.rows.values import ValueAndTimestamp, VersionedRecord, Windowed

R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")


class ResultOrder(Enum):
    """In which order rows come (``ResultOrder``): of their keys, or of their times for versions."""

    ANY = "any"
    ASCENDING = "ascending"
    DESCENDING = "descending"


class Query(Generic[R]):
    """A question whose answer is an ``R`` (``org.apache.kafka.streams.query.Query``)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class KeyQuery(Query[V | None], Generic[K, V]):
    """The value of a key, None without one."""

    key: K

    @classmethod
    def with_key(cls, key: K) -> KeyQuery[K, V]:
        """For this key."""
        return cls(key)


@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery(Query[ValueAndTimestamp[V] | None], Generic[K, V]):
    """The value of a key with its timestamp, None without one."""

    key: K

    @classmethod
    def with_key(cls, key: K) -> TimestampedKeyQuery[K, V]:
        """For this key."""
        return cls(key)


@dataclass(frozen=True, slots=True)
class _KeyRange(Generic[K]):
    """Keys from ``lower`` to ``upper``, both inclusive; None leaves an end open. Keys are compared as bytes."""

    lower: K | None = None
    upper: K | None = None
    order: ResultOrder = ResultOrder.ANY

    def with_descending_keys(self: _SelfRange) -> _SelfRange:
        """From the greatest key to the least."""
        return replace(self, order=ResultOrder.DESCENDING)

    def with_ascending_keys(self: _SelfRange) -> _SelfRange:
        """From the least key to the greatest."""
        return replace(self, order=ResultOrder.ASCENDING)


_SelfRange = TypeVar("_SelfRange", bound="_KeyRange[Any]")


@dataclass(frozen=True, slots=True)
class RangeQuery(_KeyRange[K], Query[RowIterator[tuple[K, V]]], Generic[K, V]):
    """Keys and values of a range."""

    @classmethod
    def with_range(cls, lower: K | None, upper: K | None) -> RangeQuery[K, V]:
        """From ``lower`` to ``upper``, both inclusive."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: K) -> RangeQuery[K, V]:
        """From ``lower`` on."""
        return cls(lower, None)

    @classmethod
    def with_upper_bound(cls, upper: K) -> RangeQuery[K, V]:
        """Up to ``upper``, which is included."""
        return cls(None, upper)

    @classmethod
    def with_no_bounds(cls) -> RangeQuery[K, V]:
        """Everything."""
        return cls()


@dataclass(frozen=True, slots=True)
class TimestampedRangeQuery(_KeyRange[K], Query[RowIterator[tuple[K, ValueAndTimestamp[V]]]], Generic[K, V]):
    """Keys of a range, and values with their timestamps."""

    @classmethod
    def with_range(cls, lower: K | None, upper: K | None) -> TimestampedRangeQuery[K, V]:
        """From ``lower`` to ``upper``, both inclusive."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: K) -> TimestampedRangeQuery[K, V]:
        """From ``lower`` on."""
        return cls(lower, None)

    @classmethod
    def with_upper_bound(cls, upper: K) -> TimestampedRangeQuery[K, V]:
        """Up to ``upper``, which is included."""
        return cls(None, upper)

    @classmethod
    def with_no_bounds(cls) -> TimestampedRangeQuery[K, V]:
        """Everything."""
        return cls()


@dataclass(frozen=True, slots=True)
class RawKeyQuery(Query[bytes | None]):
    """The bytes of one row by the bytes of its key, as the store keeps them; None without such a row.

    In a segmented store the row key says to which window or session it belongs; in a versioned store it begins with
    the segment's id.
    """

    key: bytes

    @classmethod
    def with_key(cls, key: bytes) -> RawKeyQuery:
        """For the row of this key."""
        return cls(key)


@dataclass(frozen=True, slots=True)
class RawScanQuery(Query[RowIterator[tuple[bytes, bytes]]]):
    """All rows as the store keeps them: segment by segment, in the order of their keys."""

    @classmethod
    def scan(cls) -> RawScanQuery:
        """Everything."""
        return cls()


@dataclass(frozen=True, slots=True)
class WindowKeyQuery(Query[RowIterator[tuple[int, V]]], Generic[K, V]):
    """The windows of a key that start from ``time_from`` to ``time_to``: their starts, and their values."""

    key: K
    time_from: int
    time_to: int

    @classmethod
    def with_key_and_window_start_range(cls, key: K, time_from: int, time_to: int) -> WindowKeyQuery[K, V]:
        """For this key, and windows that start in this time."""
        return cls(key, time_from, time_to)


@dataclass(frozen=True, slots=True)
class WindowRangeQuery(Query[RowIterator[tuple[Windowed[K], V]]], Generic[K, V]):
    """All sessions of a key, or all windows that start in a time. Windows are asked by time, sessions by key."""

    key: K | None = None
    time_from: int | None = None
    time_to: int | None = None

    @classmethod
    def with_key(cls, key: K) -> WindowRangeQuery[K, V]:
        """The sessions of this key."""
        return cls(key=key)

    @classmethod
    def with_window_start_range(cls, time_from: int, time_to: int) -> WindowRangeQuery[K, V]:
        """The windows that start in this time."""
        return cls(time_from=time_from, time_to=time_to)


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery(Query[VersionedRecord[V] | None], Generic[K, V]):
    """The version of a key that was valid at ``as_of_timestamp``, or its latest one (KIP-960)."""

    key: K
    as_of_timestamp: int | None = None

    @classmethod
    def with_key(cls, key: K) -> VersionedKeyQuery[K, V]:
        """The latest version of this key."""
        return cls(key)

    def as_of(self, timestamp: int) -> VersionedKeyQuery[K, V]:
        """The version that was valid then."""
        return replace(self, as_of_timestamp=timestamp)


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery(Query[RowIterator[VersionedRecord[V]]], Generic[K, V]):
    """The versions of a key that were valid at some time from ``from_timestamp`` to ``to_timestamp`` (KIP-968).

    Deletions have no version. The newest comes first unless ascending timestamps are asked for. ValueError where the
    time ends before it begins, as Streams has it.
    """

    key: K
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    order: ResultOrder = ResultOrder.ANY

    def __post_init__(self) -> None:
        first, last = self.from_timestamp, self.to_timestamp
        if first is not None and last is not None and first > last:
            raise ValueError(f"the time range {first} to {last} ends before it begins")

    @classmethod
    def with_key(cls, key: K) -> MultiVersionedKeyQuery[K, V]:
        """All versions of this key."""
        return cls(key)

    def from_time(self, timestamp: int | None) -> MultiVersionedKeyQuery[K, V]:
        """Those that were valid then or later."""
        return replace(self, from_timestamp=timestamp)

    def to_time(self, timestamp: int | None) -> MultiVersionedKeyQuery[K, V]:
        """Those that were valid then or earlier."""
        return replace(self, to_timestamp=timestamp)

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery[K, V]:
        """The oldest first."""
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery[K, V]:
        """The newest first."""
        return replace(self, order=ResultOrder.DESCENDING)


@dataclass(frozen=True, slots=True)
class TimestampedKeyWithHeadersQuery(TimestampedKeyQuery[K, V], Generic[K, V]):
    """The value of a key with its timestamp and record headers, None without one (KIP-1356).

    Only stores that keep headers answer it, and those of the classes below.
    """


@dataclass(frozen=True, slots=True)
class TimestampedRangeWithHeadersQuery(TimestampedRangeQuery[K, V], Generic[K, V]):
    """Keys of a range, and values with their timestamps and headers."""


@dataclass(frozen=True, slots=True)
class TimestampedWindowKeyWithHeadersQuery(WindowKeyQuery[K, ValueAndTimestamp[V]], Generic[K, V]):
    """The windows of a key that start in a time, and values with their timestamps and headers."""


@dataclass(frozen=True, slots=True)
class TimestampedWindowRangeWithHeadersQuery(WindowRangeQuery[K, ValueAndTimestamp[V]], Generic[K, V]):
    """All windows that start in a time, or all sessions of a key, and values with their headers."""


@dataclass(frozen=True, slots=True)
class InStore:
    """A store's name; :meth:`with_query` makes a request of it."""

    store: str

    def with_query(self, query: Query[R]) -> StateQueryRequest[R]:
        """A request without a bound, for all partitions that are here."""
        return StateQueryRequest(self.store, query)


@dataclass(frozen=True, slots=True)
class StateQueryRequest(Generic[R]):
    """An immutable request; each method returns another one.

    ``partitions`` is None for all that are in the directory.
    """

    store: str
    query: Query[R]
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = PositionBound.unbounded()  # noqa: RUF009 - it is immutable
    is_require_active: bool = False
    execution_info_enabled: bool = False

    @staticmethod
    def in_store(name: str) -> InStore:
        """Begins a request."""
        return InStore(name)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest[R]:
        """Only these partitions; those that are not here answer NOT_PRESENT."""
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest[R]:
        """All partitions that are here."""
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest[R]:
        """Only from a store that has come at least so far."""
        return replace(self, position_bound=bound)

    def require_active(self) -> StateQueryRequest[R]:
        """Only from a running active task; a bound does not matter then."""
        return replace(self, is_require_active=True)

    def enable_execution_info(self) -> StateQueryRequest[R]:
        """Tell how it was executed."""
        return replace(self, execution_info_enabled=True)


in_store = StateQueryRequest.in_store


class QueryFailedError(ConditionNotMet):
    """A partition did not answer, although the query needs an answer from each partition."""

    code = "query-failed"
