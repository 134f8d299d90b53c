"""Key ranges of one database, of about the same size, by what the MANIFEST says of its SSTs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kstate_cli.rocks.tables import Table

Range = tuple[bytes | None, bytes | None]
"""``lower <= key < below``; None leaves an end open."""


def split(tables: Sequence[Table], size: int) -> list[Range]:
    """Ranges of about ``size`` bytes of SSTs, ascending, that together hold every key.

    A range begins where some SST begins or ends; the bytes of an SST are taken to be spread evenly over such keys
    within it. So a database of one SST is one range.
    """
    keys = sorted({table.first for table in tables} | {table.last for table in tables})
    weights = [0.0] * len(keys)
    for table in tables:
        first, last = bisect_left(keys, table.first), bisect_right(keys, table.last) - 1
        inside = range(first, max(last, first + 1))
        for number in inside:
            weights[number] += table.size / len(inside)
    bounds: list[bytes] = []
    gathered = 0.0
    for key, weight in zip(keys, weights, strict=True):
        if gathered >= size and key:
            bounds.append(key)
            gathered = 0.0
        gathered += weight
    return list(zip([None, *bounds], [*bounds, None], strict=True))
