"""The function that answers each query at each kind of store. A caller may add functions.

A handler takes a :class:`~kstate_cli.rows.store.StoreReader` and the query, and returns the result, or a QueryResult
if it fails. It may raise StoreUnreadable; rows that it does not return at once go into a RowIterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import StoreKind, kind_names, store_kinds
from kstate_cli.query.key_value import (
    key_query,
    multi_versioned_key_query,
    range_query,
    raw_key_query,
    raw_scan_query,
    timestamped_key_query,
    timestamped_range_query,
    versioned_key_query,
)
from kstate_cli.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
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
from kstate_cli.query.windows import (
    no_rows,
    not_by_key,
    not_by_time,
    session_range_query,
    window_key_query,
    window_range_query,
)
from kstate_cli.rows.store import StoreReader

Handler = Callable[[StoreReader, Any], Any]
Unless = Callable[[Any], "str | None"]


def key_value(kind: StoreKind) -> bool:
    """Whether Streams keeps it as a key-value store: one row for each key."""
    return not kind.key.segmented and kind.key is not KeySchema.VERSIONED


KEY_VALUE_KINDS: Final = frozenset(kind.name for kind in store_kinds() if key_value(kind))
"""For whoever registers a query of their own at all of them."""


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
        """From now on ``handler`` answers ``query`` at these kinds. ValueError for what is no kind of store.

        ``unless`` may return why a query of the class has no answer at such a store.
        """
        names = kind_names()
        for kind in kinds:
            if kind not in names:
                raise ValueError(f"{kind!r} is not a kind of store: {', '.join(sorted(names))}")
            self._handlers[query, kind] = handler
            self._unless.pop((query, kind), None)
            if unless is not None:
                self._unless[query, kind] = unless

    def find(self, query: Query[Any], kind: str) -> Handler | None:
        """Return the handler, None for a query that this kind does not answer."""
        return self._handlers.get((type(query), kind))

    def refusal(self, query: Query[Any], kind: str) -> str | None:
        """Return why this kind cannot answer a query although it answers others of its class; None if it can."""
        unless = self._unless.get((type(query), kind))
        return None if unless is None else unless(query)

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
        # Segments without any rows: windows or sessions, that is not known.
        (WindowKeyQuery, _is_uncertain, window_key_query, None),
        (WindowRangeQuery, _is_uncertain, no_rows, None),
        (VersionedKeyQuery, _versioned, versioned_key_query, None),
        (MultiVersionedKeyQuery, _versioned, multi_versioned_key_query, None),
    )
    for query, of_kind, handler, unless in rows:
        handlers.register(query, [kind.name for kind in store_kinds() if of_kind(kind)], handler, unless=unless)
    return handlers
