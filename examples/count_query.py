"""A query of one's own: how many rows a store has, and how many bytes, without decoding one of them.

::

    python examples/count_query.py /var/lib/kafka-streams/orders latest-order

A query is a subclass of ``Query``; a handler answers it, and is registered for the kinds of store that it knows.
Stores of other kinds answer UNKNOWN_QUERY_TYPE, as in Streams. Everything else comes for free: partitions, bounds,
damage that is a failure and not a short answer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from kstate_cli.query import OfflineStreams, Query, StoreReader, default_handlers, in_store
from kstate_cli.query.streams import KEY_VALUE_KINDS, Handlers


@dataclass(frozen=True, slots=True)
class Count:
    """Rows, and bytes of keys and values in the newest layout."""

    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class CountQuery(Query[Count]):
    """How many rows there are with this prefix."""

    prefix: bytes = b""


def count(store: StoreReader, query: CountQuery) -> Count:
    """The handler. What goes wrong while it reads becomes a failure STORE_EXCEPTION."""
    rows = size = 0
    for segment in store.segments:
        for key, value in segment.scan(query.prefix or None):
            if not key.startswith(query.prefix):
                break
            rows += 1
            size += len(key) + len(value)
    return Count(rows, size)


def handlers() -> Handlers:
    """The handlers of kstate, and this one."""
    known = default_handlers()
    known.register(CountQuery, KEY_VALUE_KINDS, count)
    return known


def main(app: str, store: str) -> int:
    """Prints the answer of each partition."""
    with OfflineStreams(app, handlers=handlers()) as streams:
        answers = streams.query(in_store(store).with_query(CountQuery()))
    failed = 0
    for partition, answer in answers.partition_results.items():
        if answer.is_success:
            print(f"{partition}: {answer.result.rows} rows, {answer.result.size} bytes")
        else:
            failed = 3
            print(f"{partition}: {answer.failure_reason.value}: {answer.failure_message}")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
