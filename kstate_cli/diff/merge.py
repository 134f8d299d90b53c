"""Two stores side by side in the order of their row keys: nothing is kept but the two rows at hand."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import StoreReader

Pair = tuple[bytes, bytes | None, bytes | None]
"""The key of a row, its value in A and in B; None where it is not there."""
_KEY: Final = itemgetter(0)


def pairs(a: StoreReader, b: StoreReader, filled_a: Sequence[Segment], filled_b: Sequence[Segment]) -> Iterator[Pair]:
    """Every row of both stores once; ``filled`` are the segments that have rows.

    Where segments begin at the same times they are read one after the other. Else all of a store are read at once, in
    the order of keys: wherever a row lies, it meets its other. Raises StoreUnreadable.
    """
    if [one.start for one in filled_a] == [one.start for one in filled_b]:
        for left, right in zip(filled_a, filled_b, strict=True):
            yield from _join(rows_of("A", a, [left]), rows_of("B", b, [right]))
    else:
        yield from _join(rows_of("A", a, filled_a), rows_of("B", b, filled_b))


def rows_of(side: str, store: StoreReader, segments: Sequence[Segment]) -> Iterator[Row]:
    """The rows of one store in the order of their keys, without index rows. Raises StoreUnreadable, naming the side."""
    bounds = store.layout.key.base_rows
    try:
        scans = [segment.scan(*bounds) for segment in segments]
        yield from scans[0] if len(scans) == 1 else heapq.merge(*scans, key=_KEY)
    except StoreUnreadable as error:
        raise error.on(side) from None


def _join(left: Iterator[Row], right: Iterator[Row]) -> Iterator[Pair]:
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(left, None), next(right, None)
