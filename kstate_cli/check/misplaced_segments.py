"""Segments whose names are on no grid: Streams opens others in their place (``AbstractSegments.segmentName``)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import combinations
from math import gcd

from kstate_cli.specification.intervals import MIN_INTERVAL_MS
from kstate_cli.statedir.model import Database, Store


def misplaced_segments(store: Store, others: Iterable[Store]) -> tuple[Database, ...]:
    """The segments whose start is no multiple of the interval.

    The interval is not written anywhere: it divides the starts of the same store in other tasks, else most of its own.
    """
    own = [d.segment_start for d in store.databases if d.segment_start]
    if not store.segmented or not own or reduce(gcd, own) >= MIN_INTERVAL_MS:
        return ()
    known = [d.segment_start for other in others for d in other.databases if d.segment_start]
    grid = reduce(gcd, known) if known else _likely(own)
    if grid < MIN_INTERVAL_MS:
        return ()
    return tuple(d for d in store.databases if d.segment_start and d.segment_start % grid)


def _likely(starts: list[int]) -> int:
    """The divisor that most of the starts have; where none has one, the step between all of them."""
    steps = [gcd(one, other) for one, other in combinations(starts, 2)]
    shared = [step for step in steps if step >= MIN_INTERVAL_MS]
    if not shared:
        return reduce(gcd, [abs(one - starts[0]) for one in starts[1:]], 0)
    return max(shared, key=lambda step: (sum(not start % step for start in starts), step))
