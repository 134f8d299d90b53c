"""Query a store, and print the answers of its partitions: rows, failures, and whether more rows exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.options.query import StoreRequest
from kstate_cli.cli.options.shared import bound_of
from kstate_cli.cli.output import Activity, say, waiting
from kstate_cli.cli.subject import set_app
from kstate_cli.cli.views.query import Row, View, view_of
from kstate_cli.errors import InUse
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import typed_offsets
from kstate_cli.offsets.last_run import reader_remarks
from kstate_cli.query import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    OfflineStreams,
    Query,
    QueryFailedError,
    QueryResult,
    RangeQuery,
    RowIterator,
    SerdeError,
    StateQueryResult,
    StoreUnreadable,
    TimestampedKeyQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    collate,
    in_store,
)
from kstate_cli.query.result import hints
from kstate_cli.query.streams import Handlers
from kstate_cli.rows.errors import Advice, joined, look_closer, own_advice
from kstate_cli.rows.open import stores_of
from kstate_cli.specification.draft import Spec
from kstate_cli.texts import command, plural, some

_MAX_LISTED = 5
_QUERIES_OF_A_KEY = (KeyQuery, MultiVersionedKeyQuery, TimestampedKeyQuery, VersionedKeyQuery, WindowKeyQuery)
_WITHOUT_KEY = frozenset({"range", "window-range", "raw-scan"})


def answer(
    request: StoreRequest,
    query: Query[Any],
    columns: Sequence[str],
    row: Callable[[Any], Row],
    *,
    collated: bool = False,
) -> int:
    """Query the store and print the answer; ``row`` turns a result, or each of its rows, into ``columns``.

    Raise QueryFailedError if a partition did not answer, StoreUnreadable if one could not be read, SerdeError if a
    serde cannot read a stored key or value. All other rows are printed before.
    """
    options = request.options
    # --at is parsed before any store is opened, so that a wrong one is reported at once.
    bound = bound_of(options.at or ())
    # The query is one of kstate's IQv2 library, so that the command answers as that does.
    state_query = in_store(request.store).with_query(query).with_position_bound(bound)
    # Without --partition the query goes to all partitions on this host, as one of Streams does.
    if options.partition:
        state_query = state_query.with_partitions(options.partition)
    if options.require_active:
        state_query = state_query.require_active()
    if options.explain:
        state_query = state_query.enable_execution_info()
    with (
        waiting("reading the store", quiet=options.quiet) as activity,
        OfflineStreams(
            request.app,
            serdes={request.store: request.serdes},
            spec=_spec(request),
            topology=options.topology,
            assume_active=options.assume_active,
            include_expired=options.include_expired,
            last_flush=options.last_flush,
        ) as streams,
    ):
        # The argument may have been the state.dir, but errors must name the directory that was read.
        set_app(streams.path)
        answers = streams.query(state_query)
        running = streams.application(request.store).running
        if running is None or (running and options.last_flush):
            # ``running`` is None if the lock cannot be read from here. The answer may then lack rows of memtables.
            state = "may be running"
            if running:
                state = "is running"
            say(f"the application {state}, so the answer shows the state as of its last flush", quiet=options.quiet)
        doubts = False
        for task, store in streams.stores(request.store):
            # A global store, whose partition is None, answers every query.
            if not options.partition or task.partition in (None, *options.partition):
                for remark in reader_remarks(store, running=bool(running)):
                    say(remark, quiet=options.quiet)
                    doubts = not running
        # Created last: CSV prints its header at once, and no error should come after that.
        view = view_of(request, columns, streams.path)
        has_key = isinstance(query, _QUERIES_OF_A_KEY)
        _Answer(request, view, row, streams, activity, has_key=has_key).print_all(answers, collated=collated)
        return warnings_code(doubts)


class _Answer:
    def __init__(
        self,
        request: StoreRequest,
        view: View,
        row: Callable[[Any], Row],
        streams: OfflineStreams,
        activity: Activity,
        *,
        has_key: bool,
    ) -> None:
        self._request = request
        self._has_key = has_key
        self._view = view
        self._row = row
        self._streams = streams
        self._activity = activity
        self._limit = request.options.limit or view.rows_by_default
        self._more = False
        self._failed: dict[int | None, FailureReason] = {}
        self._by_host = False
        self._advices: list[Advice | None] = []
        self._merged_name = "the global store"

    def print_all(self, answers: StateQueryResult[Any], *, collated: bool) -> None:
        """Print all answers. Raise the most severe failure of a partition."""
        # Rows are merged, so messages about them cannot name one partition.
        if collated and answers.global_result is None:
            self._merged_name = "the merged answer"
        # None stands for the global store, which has no partition.
        results: dict[int | None, QueryResult[Any]] = dict(answers.partition_results.items())
        if answers.global_result is not None:
            results[None] = answers.global_result
        if self._request.options.explain:
            self._explain(results)
        try:
            # Failed partitions are left out here and reported after the rows, where a user sees them.
            values = {partition: result.result for partition, result in results.items() if result.is_success}
            if collated:
                self._print(None, self._collated(values))
            else:
                for partition, rows in values.items():
                    self._print(partition, rows)
        except SerdeError:
            self._view.end()
            if self._view.count:
                # Printed even with --quiet, since the rows above must not pass for all.
                say(f"the answer is incomplete, because kstate stopped after {plural(self._view.count, 'row')}")
            raise
        self._view.end()
        for partition, result in results.items():
            if result.is_failure:
                message = self._view.failure_text(result)
                self._fail(partition, result.failure_reason, message, by_host=result.failed_by_host)
                if result.failure_reason is FailureReason.STORE_EXCEPTION:
                    # The advice of each store is kept: rights on one disk say nothing about another.
                    self._advices.append(result.advice)
        self._view.results.lines(
            [
                {
                    "type": "summary",
                    "store": self._request.store,
                    "rows": self._view.count,
                    "more": self._more,
                    "unread": self._view.unreadable,
                    "failures": len(self._failed),
                }
            ]
        )
        self._view.end()
        self._say_unsupported()
        self._raise_failures()
        self._say_end()

    def _raise_failures(self) -> None:
        """Raise the most severe failure of the partitions, or SerdeError for rows that a serde could not read."""
        if self._failed:
            # This failure is raised before that of a serde: a partition without an answer is worse.
            raise self._verdict()
        if self._view.unreadable:
            count = self._view.unreadable
            subject = "keys or values"
            if count == 1:
                subject = "key or value"
            raise SerdeError(
                f"the serde cannot decode {count:,} {subject}, so kstate prints the bytes",
                hint="pass the application's serde, or one that accepts all bytes: bytes, hex or base64",
            )

    def _say_end(self) -> None:
        if not self._view.count:
            say(f"{self._request.store} has no matching row", quiet=self._request.options.quiet)
        elif self._more:
            cut = f"kstate prints only the first {plural(self._view.count, 'row')}"
            # Without --limit the user did not choose the cut, so the message appears with --quiet too.
            quiet = self._request.options.quiet and self._request.options.limit is not None
            more = "To print N rows, pass --limit N"
            if self._request.options.limit is not None:
                more = "To print more rows, pass a higher --limit"
            say(f"{cut}. {more}. To print all rows, pass -o json or -o csv", quiet=quiet)

    def _collated(self, values: dict[int | None, Any]) -> Any:
        """Return one iterator over all partitions; its rows contain their partition."""
        return collate([_tagged(partition, rows) for partition, rows in values.items()])

    def _print(self, partition: int | None, result: Any) -> None:
        """Print the rows in the answer of a partition, up to the limit."""
        # The result is None if the partition does not have the key.
        if self._more or result is None:
            return
        rows = iter((result,))  # the value of a key is an answer of one row
        if isinstance(result, RowIterator):
            rows = iter(result)
        remaining = None
        if self._limit is not None:
            remaining = self._limit - self._view.count
        try:
            for answer in islice(rows, remaining):
                self._activity.make_way()
                if isinstance(answer, _Tagged):
                    self._view.row(answer.partition, self._row(answer.row))
                else:
                    self._view.row(partition, self._row(answer))
            # One more row is read, since only that tells whether the limit has left out any.
            self._more = remaining is not None and _has_next(rows)
        except StoreUnreadable as error:
            self._view.end()
            self._fail(partition, FailureReason.STORE_EXCEPTION, str(error), by_host=error.by_host)
            self._advices.append(own_advice(error))

    def _fail(self, partition: int | None, reason: FailureReason, message: str, *, by_host: bool) -> None:
        self._failed[partition] = reason
        self._by_host |= by_host
        self._view.results.lines(
            [{"type": "failure", "partition": partition, "code": reason.value, "message": message}]
        )
        self._view.end()
        # All partitions of a store have the same kind, so this reason is printed once, after all of them.
        if reason is not FailureReason.UNKNOWN_QUERY_TYPE:
            say(f"{self._name(partition)} failed with {reason.value}: {message}")

    def _name(self, partition: int | None) -> str:
        return self._merged_name if partition is None else f"partition {partition}"

    def _say_unsupported(self) -> None:
        """Print which subcommands the store supports, if partitions failed because of its kind."""
        partitions = [
            partition for partition, reason in self._failed.items() if reason is FailureReason.UNKNOWN_QUERY_TYPE
        ]
        if not partitions:
            return
        where = ""
        numbers = [str(partition) for partition in partitions if partition is not None]
        if numbers:
            where = f" ({'partition' if len(numbers) == 1 else 'partitions'} {some(numbers, _MAX_LISTED)})"
        kinds = sorted(self._kinds)
        say(
            f"{self._request.store} is a {' or '.join(kinds)} store, which does not support this query{where}. "
            f"Use one of these subcommands: {', '.join(self._supported)}."
        )

    @property
    def _kinds(self) -> set[str]:
        return {store.kind.name for _, store in self._streams.stores(self._request.store)}

    @property
    def _supported(self) -> list[str]:
        """Return the subcommands that the kind of the store answers."""
        return _subcommands(self._kinds, self._streams.handlers)

    def _supported_query(self) -> str:
        """Return the command for the supported query that is most like the failed one."""
        name = next(name for name in self._supported if (name not in _WITHOUT_KEY) is self._has_key)
        key = ("KEY",) if self._has_key else ()
        return command("query", name, self._streams.path, self._request.store, *key)

    def _explain(self, results: dict[int | None, QueryResult[Any]]) -> None:
        """Print how each partition was queried, and the Position of its answer."""
        for partition, result in results.items():
            position = result.position.as_map() if result.position is not None else None
            execution_info = list(result.execution_info)
            self._view.results.show(
                [
                    {
                        "type": "partition",
                        "partition": partition,
                        "position": position,
                        "execution_info": execution_info,
                    }
                ],
                partial(self._say_explanation, partition, position, execution_info),
            )

    def _say_explanation(
        self, partition: int | None, position: Mapping[str, Mapping[int, int]] | None, execution_info: Sequence[str]
    ) -> None:
        offsets = "unknown"
        if position is not None:
            offsets = " ".join(typed_offsets(position)) or "empty"
        say(f"{self._name(partition)}: position {offsets}")
        for line in execution_info:
            say(f"{self._name(partition)}: {line}")

    def _verdict(self) -> InUse | StoreUnreadable | QueryFailedError:
        """Return the error for partitions that did not answer."""
        counts = Counter(reason.value for reason in self._failed.values())
        names = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        rows = "no rows"
        if self._view.count:
            rows = plural(self._view.count, "row")
        message = f"the query failed ({names}), so the answer is incomplete and contains {rows}"
        if {*self._failed.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}:
            # No partition of the store answers it, so there is no answer that could be incomplete.
            hint = "run a query that the store supports:"
            return QueryFailedError(f"the query failed ({names})", hint=hint, hint_details=[self._supported_query()])
        if FailureReason.STORE_EXCEPTION in self._failed.values():
            # A running application may have replaced files before they were opened, which is no damage.
            if self._streams.application(self._request.store).running and not self._request.options.last_flush:
                # As every command that is in the application's way.
                return InUse(
                    message,
                    hint=(
                        "query the application itself, stop it, or pass --last-flush to read its state as of the last "
                        "flush"
                    ),
                )
            usual = look_closer(self._streams.path, by_host=self._by_host)
            hint, details = joined(self._advices, (usual, ()))
            return StoreUnreadable(message, hint=hint, hint_details=details)
        hint_words = hints(self._streams.path)
        # Each hint is given once: many partitions often fail for the same reason.
        first, *more = dict.fromkeys(hint_words[failure] for failure in self._failed.values())
        return QueryFailedError(message, hint=first, hint_details=more)


# A row that its serde cannot read is a row all the same.
def _has_next(rows: Iterator[Any]) -> bool:
    try:
        return next(rows, None) is not None
    except SerdeError:
        return True


class _Tagged:
    # One for each row of an answer, which may have millions.
    __slots__ = ("partition", "row")

    def __init__(self, partition: int | None, row: Any) -> None:
        self.partition = partition
        self.row = row


def _tagged(partition: int | None, rows: RowIterator[Any]) -> RowIterator[_Tagged]:
    return RowIterator(
        rows.ordered(),
        # The raw key: merging compares bytes, as RocksDB does, and decodes only the row that comes next.
        order=lambda pair: pair[0],
        decode=lambda pair: _Tagged(partition, pair[1]),
        close=rows.close,
        reverse=rows.reverse,
    )


def _subcommands(kinds: set[str], handlers: Handlers) -> list[str]:
    """Return the subcommands that have an answer for a store of one of these kinds."""
    queries: list[tuple[str, Query[Any]]] = [
        ("key", KeyQuery(b"")),
        ("range", RangeQuery()),
        ("window-key", WindowKeyQuery(b"", 0, 0)),
        ("window-range", WindowRangeQuery()),
        ("versioned", VersionedKeyQuery(b"")),
        ("multi-versioned", MultiVersionedKeyQuery(b"")),
    ]
    names = [name for name, query in queries if any(handlers.find(query, kind) for kind in kinds)]
    if any(has_key(kind, KeySchema.SESSION, KeySchema.TIME_ORDERED_SESSION) for kind in kinds):
        # For a session store, Streams answers the same class of query (WindowRangeQuery) with the sessions of a key.
        names = [name.replace("window-range", "session") for name in names]
    # Every kind of store answers raw-key and raw-scan.
    return [*names, "raw-key", "raw-scan"]


def _spec(request: StoreRequest) -> Spec | None:
    """Return the specification of the store, from --spec and the directory. Raise UsageError and Refused."""
    if request.options.spec is None:
        return None
    from kstate_cli.specification.combine import resolve_spec
    from kstate_cli.specification.toml_file import read_draft

    draft = read_draft(request.options.spec)
    with OfflineStreams(request.app) as streams:
        directory = streams.application(request.store)
    subtopology = None
    if (store_spec := draft.store(request.store)) is not None:
        subtopology = store_spec.subtopology
    # This raises UsageError if several topologies have the store: the specification must be about the right one.
    stores_of(directory, request.store, topology=request.options.topology, subtopology=subtopology)
    return resolve_spec(directory, draft, file_name=str(request.options.spec), only={request.store})
