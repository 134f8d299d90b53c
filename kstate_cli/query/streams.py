"""``OfflineStreams``: the directory of an application that is asked as the application would be.

What the answers mean without a running application:

===================  ==================================================================================================
NOT_ACTIVE           an active task is required, and no task is running here; unless ``assume_active``
NOT_PRESENT          the partition has no task with this store in this directory
DOES_NOT_EXIST       the store has fewer partitions, by the specification or by ``partitions``
NOT_UP_TO_BOUND      the Position on disk is behind
STORE_EXCEPTION      the store is damaged, its kind is not certain, or it is open in a process (``last_flush`` reads on)
===================  ==================================================================================================

The function that answers each query at each kind of store is a handler; a caller may add functions. A handler takes a
:class:`~kstate_cli.rows.segment.StoreReader` and the query, and returns the result, or a QueryResult if it fails. It
may raise StoreUnreadable; rows that it does not return at once go into a RowIterator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from kstate_cli import option
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import is_permitted
from kstate_cli.formats.store_kinds import StoreKind, kind_names, store_kinds
from kstate_cli.formats.topic_partition import GLOBAL
from kstate_cli.offsets.last_run import position_reached
from kstate_cli.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
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
)
from kstate_cli.query.result import STREAMS_SAYS, FailureReason, QueryResult, RowIterator, StateQueryResult
from kstate_cli.query.windows import (
    key_query,
    multi_versioned_key_query,
    no_rows,
    not_by_key,
    not_by_time,
    range_query,
    raw_key_query,
    raw_scan_query,
    session_range_query,
    timestamped_key_query,
    timestamped_range_query,
    versioned_key_query,
    window_key_query,
    window_range_query,
)
from kstate_cli.rows.errors import StoreUnreadable, own_advice
from kstate_cli.rows.open import open_store, stores_of
from kstate_cli.rows.segment import Databases, ReadAs, StoreReader
from kstate_cli.rows.serde_type import StoreSerdes
from kstate_cli.specification.draft import Spec, StoreSpec
from kstate_cli.statedir.find import find_application
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.scan import read_application

R = TypeVar("R")


class OfflineStreams:
    """The stores of an application directory. A context manager; iterators must be read before it is left.

    ``serdes`` are by store; without, keys and values are bytes. ``partitions`` is the number of partitions by store,
    ``spec`` says it too, and the retention by which rows expire; ``include_expired`` shows them all. ``topology`` is
    the named topology where a store name occurs in several. Nothing is written, no lock is taken.
    """

    def __init__(
        self,
        app: Path | str,
        *,
        serdes: Mapping[str, StoreSerdes] | None = None,
        spec: Spec | None = None,
        partitions: Mapping[str, int] | None = None,
        topology: str | None = None,
        handlers: Handlers | None = None,
        assume_active: bool = False,
        include_expired: bool = False,
        last_flush: bool = False,
    ) -> None:
        self.path = find_application(Path(app))
        self.handlers = handlers or default_handlers()
        self._serdes = dict(serdes or {})
        self._spec = spec
        self._partitions = dict(partitions or {})
        self._topology = topology
        self._assume_active = assume_active
        self._include_expired = include_expired
        self._last_flush = last_flush
        self._databases = Databases()
        self._read: dict[str, Application] = {}

    def __enter__(self) -> OfflineStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all databases, and ends what iterators are left."""
        self._databases.close()

    def query(self, request: StateQueryRequest[R]) -> StateQueryResult[R]:
        """Run a query on each partition (as ``KafkaStreams.query``), and return the results.

        Raises UnknownStateStoreError if no task here has the store, SerdeError for a key that its serde rejects,
        UsageError and Refused for a directory that cannot be queried.
        """
        by_task = {task.name: (task, store) for task, store in self.stores(request.store)}
        # A global store has all partitions in one database, so there is one result.
        if GLOBAL in by_task:
            return StateQueryResult(global_result=self._answer(request, *by_task[GLOBAL]))
        # A store belongs to one sub-topology. So each partition has at most one task with the store.
        by_partition = {task.partition: (task, store) for task, store in by_task.values()}
        partitions = request.partitions
        if partitions is None:
            # The directory does not show which other partitions exist. So without a request, only those here are
            # queried.
            partitions = frozenset(partition for partition in by_partition if partition is not None)
        answers: dict[int, QueryResult[R]] = {}
        for partition in sorted(partitions):
            place = by_partition.get(partition)
            if place is None:
                answers[partition] = self._absent(request.store, partition)
            else:
                answers[partition] = self._answer(request, *place)
        return StateQueryResult(answers)

    def stores(self, name: str) -> list[tuple[Task, Store]]:
        """Return the tasks that have the store. Raise UnknownStateStoreError, and Refused as ``stores_of`` does."""
        spec = self._store_spec(name)
        return stores_of(
            self.application(name), name, topology=self._topology, subtopology=spec.subtopology if spec else None
        )

    def reader(self, task: Task, store: Store) -> StoreReader:
        """Return the reader of a store for handlers.

        Raises StoreUnreadable if its kind is uncertain, or if it is in use.
        """
        app = self.application(store.name)
        if app.running and not self._last_flush:
            holder = f"process {app.pid}" if app.pid else "another process"
            raise StoreUnreadable(
                f"{holder} has opened {task.name}/{store.name}, so its newest rows may not be on disk",
                hint=f"query the application itself, stop it, or pass {option.LAST_FLUSH} to read its last flush",
            )
        spec = self._store_spec(store.name)
        # All tasks of a store have its kind. So for an empty store, the kind of the same store in another task decides.
        others = [other for _, other in self.stores(store.name)]
        return open_store(
            task,
            store,
            others,
            self._databases,
            ReadAs(
                kind=spec.kind if spec else None,
                serdes=self._serdes.get(store.name, StoreSerdes()),
                retention_ms=spec.retention_ms if spec and not self._include_expired else None,
            ),
        )

    def application(self, store: str) -> Application:
        """The directory as it was read for a store, with that store only; whether the application runs. Read once."""
        if store not in self._read:
            # Read once per store: a second reading in the middle could mix rows of two flushes.
            self._read[store] = read_application(self.path, stores={store}, workers=1)
        return self._read[store]

    def _store_spec(self, name: str) -> StoreSpec | None:
        if self._spec is None:
            return None
        return self._spec.store(name)

    def _absent(self, store: str, partition: int) -> QueryResult[Any]:
        spec, count = self._store_spec(store), self._partitions.get(store)
        if count is None and spec is not None:
            count = spec.partitions
        if count is not None and not 0 <= partition < count:
            return QueryResult.for_failure(
                FailureReason.DOES_NOT_EXIST,
                f"Store {store} has {count} partitions, so partition {partition} does not exist.",
            )
        return QueryResult.for_failure(FailureReason.NOT_PRESENT, STREAMS_SAYS[FailureReason.NOT_PRESENT])

    def _answer(self, request: StateQueryRequest[R], task: Task, store: Store) -> QueryResult[R]:
        """Return the result of a query on one store, with the Position of the store and, if requested, the time."""
        began = time.perf_counter_ns()
        result = self._ask(request, task, store)
        position = None
        # A Position file that cannot be read may state any offset. So the Position is unknown, and not empty.
        if store.position_is_readable:
            position = position_reached(store)
        result.set_position(position)
        if request.execution_info_enabled:
            spent = time.perf_counter_ns() - began
            result.add_execution_info(
                f"Handled in {store.kind.name} store {store.name} of task {task.name} in {spent}ns"
            )
        return result

    def _ask(self, request: StateQueryRequest[R], task: Task, store: Store) -> QueryResult[R]:
        """Return the result of a query on one store: the checks of Streams in its order, then that of the handler."""
        # Offline, no task is running. Only the user can state that the tasks were active here in the last run.
        if request.is_require_active and not self._assume_active:
            return QueryResult.for_failure(
                FailureReason.NOT_ACTIVE,
                STREAMS_SAYS[FailureReason.NOT_ACTIVE].format(
                    "kstate reads the directory offline, so no task is running."
                ),
            )
        try:
            reader = self.reader(task, store)
            # This is the order of Streams: first refusals of the store itself, then the bound, then queries that it
            # does not know.
            handler = self.handlers.find(request.query, reader.kind)
            because = self.handlers.refusal(request.query, reader.kind)
            if because is not None or (handler is None and not self.handlers.knows(request.query)):
                return QueryResult.for_unknown_query_type(request.query, reader, because)
            bound = request.position_bound
            # Streams ignores the bound if an active task is required. A global store has no partition to which a bound
            # applies.
            bounded = not request.is_require_active and task.partition is not None
            if bounded and not is_permitted(position := position_reached(store), bound, task.partition or 0):
                return QueryResult.not_up_to_bound(position, bound, task.partition)
            if handler is None:
                return QueryResult.for_unknown_query_type(request.query, reader)
            # The handler is called after the bound was checked, because it may read a whole store.
            answer = handler(reader, request.query)
            if isinstance(answer, RowIterator):
                # If no row can be read at all, the query fails, and not only its first row.
                answer.prime(f"{task.name}/{store.name}", task.app)
        except (StoreUnreadable, MalformedBytesError) as error:
            began = STREAMS_SAYS[FailureReason.STORE_EXCEPTION].format(f"{task.name}/{store.name}", request.query)
            message = f"{began}\n{error}"
            # A disk that does not answer, or missing rights, say nothing about the store. So no damage may be reported.
            by_host = isinstance(error, StoreUnreadable) and error.by_host
            return QueryResult.for_failure(
                FailureReason.STORE_EXCEPTION,
                message,
                by_host=by_host,
                in_words=f"kstate cannot read {task.name}/{store.name}: {error}",
                advice=own_advice(error),
            )
        if isinstance(answer, QueryResult):
            return answer
        return QueryResult.for_result(answer)


Handler = Callable[[StoreReader, Any], Any]
Unless = Callable[[Any], "str | None"]


def key_value(kind: StoreKind) -> bool:
    """Whether Streams keeps it as a key-value store: one row for each key."""
    return not kind.key.segmented and kind.key is not KeySchema.VERSIONED


KEY_VALUE_KINDS: Final = frozenset(kind.name for kind in store_kinds() if key_value(kind))
"""For a caller that registers a custom query at all of them."""


def _timestamped(kind: StoreKind) -> bool:
    return key_value(kind) and kind.family.layout.has_timestamps


def _windows(kind: StoreKind) -> bool:
    return kind.key.windows


def _sessions(kind: StoreKind) -> bool:
    return kind.key.sessions


def _with_headers(of_kind: Callable[[StoreKind], bool]) -> Callable[[StoreKind], bool]:
    """Return whether a kind is one of these and one of the kinds with record headers.

    One of them, ``headers-time-ordered-session``, has rows without any: it answers, and its headers are empty.
    """
    return lambda kind: of_kind(kind) and kind.headers_of is not None


def _versioned(kind: StoreKind) -> bool:
    return kind.key is KeySchema.VERSIONED


def _is_uncertain(kind: StoreKind) -> bool:
    return not kind.is_exact


def _any(_kind: StoreKind) -> bool:
    return True


class Handlers:
    """A table of handlers; a query is known by its very class, as in Streams (``StoreQueryUtils``)."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[type[Query[Any]], str], Handler] = {}
        self._unless: dict[tuple[type[Query[Any]], str], Unless] = {}

    def register(
        self, query: type[Query[Any]], kinds: Iterable[str], handler: Handler, *, unless: Unless | None = None
    ) -> None:
        """Let ``handler`` answer ``query`` for these kinds of stores. Raise ValueError for an unknown kind.

        ``unless`` returns a reason why a certain query of this class has no answer for such a store, or None.
        """
        # With a misspelt kind, the handler would silently never be used.
        names = kind_names()
        for kind in kinds:
            if kind not in names:
                raise ValueError(f"{kind!r} is not a kind of store: {', '.join(sorted(names))}")
            self._handlers[query, kind] = handler
            # The old rule belonged to the handler that is replaced.
            self._unless.pop((query, kind), None)
            if unless is not None:
                self._unless[query, kind] = unless

    def find(self, query: Query[Any], kind: str) -> Handler | None:
        """Return the handler, None for a query that this kind does not answer."""
        # The very class and no subclass, as in Streams (StoreQueryUtils.QUERY_HANDLER_MAP).
        return self._handlers.get((type(query), kind))

    def refusal(self, query: Query[Any], kind: str) -> str | None:
        """Return why this kind cannot answer a query although it answers others of its class; None if it can."""
        unless = self._unless.get((type(query), kind))
        if unless is None:
            return None
        return unless(query)

    def knows(self, query: Query[Any]) -> bool:
        """Return whether any kind of store answers queries of this class."""
        return any(handled is type(query) for handled, _ in self._handlers)


def default_handlers() -> Handlers:
    """Return a new table with the handlers of kstate."""
    handlers = Handlers()
    rows: tuple[tuple[type[Query[Any]], Callable[[StoreKind], bool], Handler, Unless | None], ...] = (
        (RawKeyQuery, _any, raw_key_query, None),
        (RawScanQuery, _any, raw_scan_query, None),
        (KeyQuery, key_value, key_query, None),
        (RangeQuery, key_value, range_query, None),
        (TimestampedKeyQuery, _timestamped, timestamped_key_query, None),
        (TimestampedRangeQuery, _timestamped, timestamped_range_query, None),
        (WindowKeyQuery, _windows, window_key_query, None),
        (WindowRangeQuery, _windows, window_range_query, not_by_time),
        (WindowRangeQuery, _sessions, session_range_query, not_by_key),
        (TimestampedKeyWithHeadersQuery, _with_headers(key_value), timestamped_key_query, None),
        (TimestampedRangeWithHeadersQuery, _with_headers(key_value), timestamped_range_query, None),
        (TimestampedWindowKeyWithHeadersQuery, _with_headers(_windows), window_key_query, None),
        (TimestampedWindowRangeWithHeadersQuery, _with_headers(_windows), window_range_query, not_by_time),
        (TimestampedWindowRangeWithHeadersQuery, _with_headers(_sessions), session_range_query, not_by_key),
        # For a store with segments but without rows it is unknown whether it has windows or sessions.
        (WindowKeyQuery, _is_uncertain, window_key_query, None),
        (WindowRangeQuery, _is_uncertain, no_rows, None),
        (VersionedKeyQuery, _versioned, versioned_key_query, None),
        (MultiVersionedKeyQuery, _versioned, multi_versioned_key_query, None),
    )
    for query, of_kind, handler, unless in rows:
        handlers.register(query, [kind.name for kind in store_kinds() if of_kind(kind)], handler, unless=unless)
    return handlers
