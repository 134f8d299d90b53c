"""Results of queries: of one partition (:class:`QueryResult`), and of all (:class:`StateQueryResult`).

A result is a value, an iterator over rows, or a failure with a hint. :func:`collate` merges the rows of partitions.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from kstate_cli import option
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.offsets import Position, PositionBound
from kstate_cli.formats.topic_partition import typed_offsets
from kstate_cli.rows.errors import Advice, StoreUnreadable, look_closer
from kstate_cli.texts import command

R = TypeVar("R")
S = TypeVar("S")


def _typed(position: Position) -> str:
    return " ".join(typed_offsets(position.as_map())) or "no offset"


class FailureReason(Enum):
    """Why a query has no answer (``org.apache.kafka.streams.query.FailureReason``)."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """This kind of store does not support this query."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """The query requires a running active task."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The store has not reached the bound."""
    NOT_PRESENT = "NOT_PRESENT"
    """The directory does not contain the partition."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The store does not have this partition on any host."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """kstate could not read the store."""


STREAMS_SAYS: Final = {
    FailureReason.UNKNOWN_QUERY_TYPE: "This store ({}) doesn't know how to execute the given query ({})",
    FailureReason.NOT_ACTIVE: "Query requires a running active task, but {}",
    FailureReason.NOT_UP_TO_BOUND: "For store partition {}, the current position {} is not yet up to the bound {}",
    FailureReason.NOT_PRESENT: "The requested partition was not present at the time of the query.",
    FailureReason.STORE_EXCEPTION: "{} failed to handle query {}:",
}
"""How a failure's message begins, in Streams and here; ``{}`` is filled in. No release gives DOES_NOT_EXIST."""


class QueryResult(Generic[R]):
    """The answer of one partition: a result or a failure, with the Position of the store and execution info.

    Built by :meth:`for_result`, :meth:`for_failure`, :meth:`for_unknown_query_type` and :meth:`not_up_to_bound`.
    """

    __slots__ = ("_advice", "_by_host", "_in_words", "_info", "_message", "_position", "_reason", "_result")

    def __init__(self, result: R | None, reason: FailureReason | None, message: str | None) -> None:
        self._result = result
        self._reason = reason
        self._message = message
        self._advice: Advice | None = None
        self._by_host = False
        self._in_words: str | None = None
        self._position: Position | None = None
        self._info: list[str] = []

    @classmethod
    def for_result(cls, result: R) -> QueryResult[R]:
        """A success. The result may be None: a key query for a key that is not there."""
        return cls(result, None, None)

    @classmethod
    def for_failure(
        cls,
        reason: FailureReason,
        message: str,
        *,
        by_host: bool = False,
        in_words: str | None = None,
        advice: Advice | None = None,
    ) -> QueryResult[R]:
        """Return the result of a failed query.

        ``message`` is the text of Streams. ``in_words`` replaces it for people; None if it is good enough. ``by_host``:
        a disk that does not answer, or missing rights, is the cause. ``advice`` is a hint that only this failure has.
        """
        failed: QueryResult[R] = cls(None, reason, message)
        failed._by_host = by_host
        failed._in_words = in_words
        failed._advice = advice
        return failed

    @classmethod
    def for_unknown_query_type(cls, query: object, store: object, because: str | None = None) -> QueryResult[R]:
        """The store's kind has no handler for the query, or none for this one ``because`` of what it asks."""
        why = ""
        if because:
            why = f" because {because}"
        return cls.for_failure(
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"{STREAMS_SAYS[FailureReason.UNKNOWN_QUERY_TYPE].format(store, query)}{why}.",
            in_words=f"{store} does not support this query{why}.",
        )

    @classmethod
    def not_up_to_bound(cls, position: Position, bound: PositionBound, partition: int | None) -> QueryResult[R]:
        """The store is behind the bound."""
        return cls.for_failure(
            FailureReason.NOT_UP_TO_BOUND,
            STREAMS_SAYS[FailureReason.NOT_UP_TO_BOUND].format(partition, position.as_map(), bound.position.as_map()),
            in_words=f"the store is at {_typed(position)}, but the query requires at least {_typed(bound.position)}",
        )

    def swap_result(self, result: S) -> QueryResult[S]:
        """The same answer with another result: Position and execution info are kept. ValueError for a failure."""
        if self.is_failure:
            raise ValueError("the query failed, so it has no result to swap")
        swapped: QueryResult[S] = QueryResult(result, None, None)
        # The rows are the same, so what is known about them stays.
        swapped._position = self._position
        swapped._info = list(self._info)
        return swapped

    def add_execution_info(self, message: str) -> None:
        """Appends to the execution info."""
        self._info.append(message)

    def set_position(self, position: Position | None) -> None:
        """The Position of the store when it was asked; None where it is not known."""
        self._position = position

    @property
    def is_success(self) -> bool:
        """Whether there is a result."""
        return self._reason is None

    @property
    def is_failure(self) -> bool:
        """Whether there is a failure reason."""
        return self._reason is not None

    @property
    def result(self) -> R:
        """The result. ValueError for a failure, with its reason."""
        if self._reason is not None:
            raise ValueError(f"the query failed with {self._reason.value}, so it has no result: {self._message}")
        return self._result  # type: ignore[return-value] # None is an R then

    @property
    def failure_reason(self) -> FailureReason:
        """Why it failed. ValueError for a success."""
        if self._reason is None:
            raise ValueError("the query succeeded, so it has no failure reason")
        return self._reason

    @property
    def failure_message(self) -> str:
        """What went wrong, for a reader. ValueError for a success."""
        if self._reason is None:
            raise ValueError("the query succeeded, so it has no failure message")
        return self._message or ""

    @property
    def failure_in_words(self) -> str:
        """What went wrong, without names of classes and maps. ValueError for a success."""
        message = self.failure_message
        if self._in_words is None:
            return message
        return self._in_words

    @property
    def failed_by_host(self) -> bool:
        """Whether it failed for a disk that does not answer, or for rights: that says nothing of the store."""
        return self._by_host

    @property
    def advice(self) -> Advice | None:
        """Return what to do about this very failure; None where the reason alone tells."""
        return self._advice

    @property
    def position(self) -> Position | None:
        """The Position of the store; None without a store."""
        return self._position

    @property
    def execution_info(self) -> tuple[str, ...]:
        """The steps of the execution, if the request enabled them."""
        return tuple(self._info)

    def __repr__(self) -> str:
        text = f"result={self._result!r}" if self._reason is None else f"{self._reason.value}: {self._message}"
        return f"QueryResult({text}, position={self._position and self._position.as_map()})"


class StateQueryResult(Generic[R]):
    """The results of all requested partitions, or that of a global store."""

    __slots__ = ("_global", "_partitions")

    def __init__(
        self, partitions: Mapping[int, QueryResult[R]] | None = None, global_result: QueryResult[R] | None = None
    ) -> None:
        self._partitions = dict(sorted((partitions or {}).items()))
        self._global = global_result

    @property
    def partition_results(self) -> dict[int, QueryResult[R]]:
        """Partition -> its result, sorted; empty for a global store."""
        return dict(self._partitions)

    @property
    def global_result(self) -> QueryResult[R] | None:
        """The result of a global store."""
        return self._global

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """Return the result of the only partition that has one.

        None if all partitions succeeded without a result. If no partition has a result and some have failed, the first
        failure is returned, while Streams skips failures silently. Raises ValueError if more than one partition has a
        result.
        """
        successes = [result for result in self._partitions.values() if result.is_success and result.result is not None]
        # Streams throws IllegalArgumentException in this case, because one result would hide the others.
        if len(successes) > 1:
            with_result = [partition for partition, result in self._partitions.items() if result in successes]
            raise ValueError(f"more than one partition has a result: {', '.join(map(str, with_result))}")
        if successes:
            return successes[0]
        return next((result for result in self._partitions.values() if result.is_failure), None)

    @property
    def position(self) -> Position:
        """The Positions of all results, merged."""
        merged = Position.empty()
        for result in (*self._partitions.values(), self._global):
            if result is not None and result.position is not None:
                merged = merged.merge(result.position)
        return merged

    def __repr__(self) -> str:
        return f"StateQueryResult({self._global or self._partitions!r})"


def hints(app: str | os.PathLike[str]) -> dict[FailureReason, str]:
    """Return the hint for each reason of a failure, with commands about ``app``.

    STORE_EXCEPTION has that for damage.
    """
    return {
        FailureReason.NOT_ACTIVE: (
            f"omit {option.REQUIRE_ACTIVE}, or pass {option.ASSUME_ACTIVE} if the tasks were active on this host"
        ),
        FailureReason.NOT_UP_TO_BOUND: f"to see how far each store has read: {command('inspect-position', app)}",
        FailureReason.NOT_PRESENT: (
            f"query the host that has this partition. To list this host's tasks: {command('ls', app)}"
        ),
        FailureReason.DOES_NOT_EXIST: "pass a partition that exists. The first partition is 0",
        FailureReason.UNKNOWN_QUERY_TYPE: (
            f"to see the subcommands for each kind of store: {command('query', option.HELP)}"
        ),
        FailureReason.STORE_EXCEPTION: look_closer(app),
    }


T = TypeVar("T")


class RowIterator(Generic[T]):
    """An iterator over rows in constant memory, for a store of any size. A context manager.

    It has a source of rows and two functions, so that the fast path has no Python call per row. ``order`` returns the
    sort key of a row (bytes of the key, time of the window). ``decode`` converts a source row for the caller; None
    leaves it unchanged. Close it, or leave its ``with``, before the directory is closed. Raises StoreUnreadable at a
    row that cannot be read: a result never ends early silently.
    """

    __slots__ = ("_close", "_decode", "_hint", "_order", "_source", "_where", "reverse")

    def __init__(
        self,
        source: Iterable[Any],
        *,
        order: Callable[[Any], Any],
        decode: Callable[[Any], T] | None = None,
        close: Callable[[], None] | None = None,
        reverse: bool = False,
    ) -> None:
        self._source = iter(source)
        self._order = order
        self._decode = decode
        self._close = close
        self._where = "a store"
        self._hint: str | None = None
        self.reverse = reverse
        """Whether rows are in descending order."""

    def __iter__(self) -> Iterator[T]:
        try:
            # Rows that need no decoding cost no call.
            yield from self._source if self._decode is None else map(self._decode, self._source)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None

    def __next__(self) -> T:
        row = next(self._source)
        try:
            # None means that the source rows are what the caller gets, without a call per row.
            decoded: T = row if self._decode is None else self._decode(row)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None
        return decoded

    def prime(self, where: str, app: Path) -> None:
        """Read the first row now, so that an error in it is an error of the query.

        ``where`` is the name of the store in messages about rows, ``app`` the directory for their hints.
        """
        self._where = where
        # Set before the first row is read, so that its error has the store and the hint already.
        self._hint = look_closer(app)
        # Only one row is read: an error at the first block belongs to the query, later ones belong to the rows that
        # they affect.
        first = list(islice(self._source, 1))
        self._source = chain(first, self._source)

    def ordered(self) -> Iterator[tuple[Any, T]]:
        """Yield each row with its sort key."""
        order, decode = self._order, self._decode
        try:
            for row in self._source:
                yield order(row), row if decode is None else decode(row)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        """End the reading. Closing twice does nothing."""
        # Dropped, not only marked: a live iterator of RocksDB keeps its database from closing.
        self._source = iter(())
        # Taken before the call, so that an error in it is not followed by a second call.
        close, self._close = self._close, None
        if close is not None:
            close()

    def _unreadable(self, error: MalformedBytesError) -> StoreUnreadable:
        return StoreUnreadable(f"{self._where}: {error}", hint=self._hint)

    def __enter__(self) -> RowIterator[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def collate(iterators: Iterable[RowIterator[T]]) -> RowIterator[T]:
    """Return one iterator over the rows of several partitions in key order; closing it closes them all.

    Raises ValueError unless all are ascending or all are descending.
    """
    parts = list(iterators)
    directions = {part.reverse for part in parts}
    # With mixed directions, heapq.merge would silently return rows in no order.
    if len(directions) > 1:
        raise ValueError("some iterators are ascending, and others are descending")
    reverse = directions == {True}

    def close() -> None:
        for part in parts:
            part.close()

    # Each part is sorted, so only one row of each part is in memory.
    merged = heapq.merge(*(part.ordered() for part in parts), key=lambda pair: pair[0], reverse=reverse)
    return RowIterator(merged, order=lambda pair: pair[0], decode=lambda pair: pair[1], close=close, reverse=reverse)
