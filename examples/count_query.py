"""A custom query: how many rows a store has, and how many bytes, without decoding any of them.

::

    python examples/count_query.py /var/lib/kafka-streams/orders latest-order

A query is a subclass of ``Query``. A handler answers it, and is registered for certain kinds of store. Stores of other
kinds answer UNKNOWN_QUERY_TYPE, as in Streams. kstate does the rest: partitions, bounds, and damage, which becomes a
failure and not a short answer.
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
    """Count the rows whose keys begin with this prefix."""

    prefix: bytes = b""


def count(store: StoreReader, query: CountQuery) -> Count:
    """Execute a query. A read error becomes a STORE_EXCEPTION failure."""
    rows = size = 0
    for segment in store.segments:
        for key, value in segment.scan(query.prefix or None):
            # Rows are sorted by key. A scan begins at the prefix and continues to the end of the segment.
            if not key.startswith(query.prefix):
                break
            rows += 1
            size += len(key) + len(value)
    return Count(rows, size)


def handlers() -> Handlers:
    """Return the handlers of kstate, and the handler of this query."""
    all_handlers = default_handlers()
    all_handlers.register(CountQuery, KEY_VALUE_KINDS, count)
    return all_handlers


def main(app: str, store: str) -> int:
    """Print the result of each partition; return the exit code."""
    with OfflineStreams(app, handlers=handlers()) as streams:
        answers = streams.query(in_store(store).with_query(CountQuery()))
    failed = 0
    for partition, answer in answers.partition_results.items():
        if answer.is_success:
            print(f"{partition}: {answer.result.rows} rows, {answer.result.size} bytes")
        else:
            # Like kstate query: exit code 3 if a partition has no result.
            failed = 3
            print(f"{partition}: {answer.failure_reason.value}: {answer.failure_message}")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
