"""Handlers of raw queries: rows as they are, of any kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from operator import itemgetter

from kstate_cli.query.queries import RawKeyQuery, RawScanQuery
from kstate_cli.query.rows import RowIterator
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import StoreReader


def raw_key_query(store: StoreReader, query: RawKeyQuery) -> bytes | None:
    """The row of the first segment that has the key: a key belongs to one segment only."""
    for segment in store.segments:
        value = segment.get(query.key)
        if value is not None:
            return value
    return None


def raw_scan_query(store: StoreReader, _query: RawScanQuery) -> RowIterator[Row]:
    """All rows, segment by segment. Nothing that has expired is hidden."""
    if len(store.segments) == 1 and store.segments[0].start is None:
        return RowIterator(store.segments[0].scan(), order=itemgetter(0))
    return RowIterator(
        chain.from_iterable(_scans(store.segments)), order=lambda pair: (pair[0], pair[1][0]), decode=itemgetter(1)
    )


def _scans(segments: tuple[Segment, ...]) -> Iterator[Iterator[tuple[int | None, Row]]]:
    for segment in segments:
        yield zip(repeat(segment.start), segment.scan())
