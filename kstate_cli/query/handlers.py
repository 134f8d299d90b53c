"""Which function answers which query at which kind of store. Anybody may add to it.

A handler takes a :class:`~kstate_cli.query.store.StoreReader` and the query, and returns the result, or a QueryResult
where it fails. It may raise StoreUnreadable; rows that it does not return at once go into a RowIterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kstate_cli.formats.kinds import KINDS
from kstate_cli.query.key_value import key_query, range_query, timestamped_key_query, timestamped_range_query
from kstate_cli.query.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from kstate_cli.query.raw import raw_key_query, raw_scan_query
from kstate_cli.query.store import StoreReader
from kstate_cli.query.versions import multi_versioned_key_query, versioned_key_query
from kstate_cli.query.windows import (
    no_rows,
    not_by_key,
    not_by_time,
    session_range_query,
    window_key_query,
    window_range_query,
)
from kstate_cli.spec.model import SESSION_KINDS, VERSIONED, WINDOW_KINDS

Handler = Callable[[StoreReader, Any], Any]
Unless = Callable[[Any], "str | None"]

KEY_VALUE_KINDS = frozenset(
    {"key-value", "timestamped-key-value", "headers-key-value", "list-value", "foreign-key-subscription"}
)
TIMESTAMPED_KINDS = frozenset({"timestamped-key-value", "headers-key-value", "foreign-key-subscription"})


class Handlers:
    """A table of handlers; a query is known by its very class, as in Streams (``StoreQueryUtils``)."""

    def __init__(self) -> None:
        self._known: dict[tuple[type[Query[Any]], str], Handler] = {}
        self._unless: dict[tuple[type[Query[Any]], str], Unless] = {}

    def register(
        self, query: type[Query[Any]], kinds: Iterable[str], handler: Handler, *, unless: Unless | None = None
    ) -> None:
        """From now on ``handler`` answers ``query`` at these kinds. ValueError for what is not in ``KINDS``.

        ``unless`` may tell of one query of the class why it has no answer at such a store.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is not a kind of store: {', '.join(sorted(KINDS))}")
            self._known[query, kind] = handler
            self._unless.pop((query, kind), None)
            if unless is not None:
                self._unless[query, kind] = unless

    def find(self, query: Query[Any], kind: str) -> Handler | None:
        """The handler, None for a query that this kind does not answer."""
        return self._known.get((type(query), kind))

    def refusal(self, query: Query[Any], kind: str) -> str | None:
        """Why a query of a class that this kind answers has no answer itself; None where it has one."""
        unless = self._unless.get((type(query), kind))
        return None if unless is None else unless(query)

    def knows(self, query: Query[Any]) -> bool:
        """Whether any kind of store answers queries of this class."""
        return any(known is type(query) for known, _ in self._known)


def default_handlers() -> Handlers:
    """A new table with the handlers of kstate."""
    handlers = Handlers()
    for query, kinds, handler in (
        (RawKeyQuery, KINDS, raw_key_query),
        (RawScanQuery, KINDS, raw_scan_query),
        (KeyQuery, KEY_VALUE_KINDS, key_query),
        (RangeQuery, KEY_VALUE_KINDS, range_query),
        (TimestampedKeyQuery, TIMESTAMPED_KINDS, timestamped_key_query),
        (TimestampedRangeQuery, TIMESTAMPED_KINDS, timestamped_range_query),
        # Segments without any rows: windows or sessions, that is not known.
        (WindowKeyQuery, WINDOW_KINDS | {"windowed"}, window_key_query),
        (WindowRangeQuery, {"windowed"}, no_rows),
        (VersionedKeyQuery, {VERSIONED}, versioned_key_query),
        (MultiVersionedKeyQuery, {VERSIONED}, multi_versioned_key_query),
    ):
        handlers.register(query, kinds, handler)
    handlers.register(WindowRangeQuery, WINDOW_KINDS, window_range_query, unless=not_by_time)
    handlers.register(WindowRangeQuery, SESSION_KINDS, session_range_query, unless=not_by_key)
    return handlers
