"""Cut a partition into contiguous, bounded slices: from footers alone, nothing is read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .model import PartitionDump, Piece, Slice

_MOST_READS: Final = 2
"""How often the bytes of overlapping pieces may be read in all before a range repartition is cheaper."""


@dataclass(slots=True)
class _SlicePart:
    """An offset range and the pieces that have rows in it."""

    pieces: list[Piece]
    first: int
    last: int
    bytes: int
    ordered: bool


def slices(
    partition: PartitionDump, *, after: int | None, until: int | None, max_bytes: int
) -> tuple[list[Slice], bool]:
    """The slices of a partition in offset order, and whether a range repartition is needed first.

    Only offsets > ``after`` and <= ``until`` (None: no bound). Each slice has at most ``max_bytes`` (as
    :attr:`Slice.bytes`), except that a row group which is larger makes a slice of its own; the reader can go through it
    in batches. Row groups whose offsets overlap come into one slice, which is not ``ordered``; where they are too
    many for that the range is cut between them, and they are read for each of its parts. When that would read the
    partition more than twice, or a single offset range has more than ``max_bytes``, the answer is ``([], True)``.
    """
    low = 0 if after is None else after + 1
    if until is not None and until < low:
        return [], False
    wanted = [piece for piece in partition.pieces if piece.last >= low and (until is None or piece.first <= until)]
    parts: list[_SlicePart] = []
    for group in _overlapping(wanted):
        cut = _cut(group, low, until, max_bytes)
        if cut is None:
            return [], True
        parts += cut
    return [_slice(partition, index, part) for index, part in enumerate(_pack(parts, max_bytes))], False


def _overlapping(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Groups of pieces such that the offsets of different groups do not overlap, lowest first."""
    group: list[Piece] = []
    last = -1
    for piece in sorted(pieces, key=lambda one: (one.first, one.last, one.path, one.row_groups)):
        if group and piece.first > last:
            yield group
            group = []
        group.append(piece)
        last = max(last, piece.last)
    if group:
        yield group


def _cut(group: list[Piece], low: int, until: int | None, max_bytes: int) -> list[_SlicePart] | None:
    first = max(low, group[0].first)
    last = max(piece.last for piece in group)
    last = last if until is None else min(last, until)
    whole = _part(group, first, last)
    if len(group) == 1 or whole.bytes <= max_bytes:
        return [whole]
    parts = _ranges(group, first, last, max_bytes)
    if parts is None or sum(part.bytes for part in parts) > _MOST_READS * whole.bytes:
        return None
    return parts


def _ranges(group: list[Piece], first: int, last: int, max_bytes: int) -> list[_SlicePart] | None:
    """Cut a group where its pieces begin and end, each range as long as ``max_bytes`` allows."""
    bounds = {first, *(piece.first for piece in group), *(piece.last + 1 for piece in group)}
    starts = sorted(bound for bound in bounds if first <= bound <= last)
    ends = [*(start - 1 for start in starts[1:]), last]
    parts: list[_SlicePart] = []
    waiting = iter(group)
    upcoming = next(waiting, None)
    active: list[tuple[int, int, Piece]] = []
    current: list[Piece] = []
    size = number = 0
    for start, end in zip(starts, ends, strict=True):
        while active and active[0][0] < start:
            heapq.heappop(active)
        fresh = []
        while upcoming is not None and upcoming.first <= end:
            if upcoming.last >= start:
                number += 1
                heapq.heappush(active, (upcoming.last, number, upcoming))
                fresh.append(upcoming)
            upcoming = next(waiting, None)
        if not active:
            continue
        added = sum(piece.share for piece in fresh)
        if current and (not fresh or size + added <= max_bytes):
            current += fresh
            size += added
            parts[-1].last = end
        else:
            current = [piece for _, _, piece in active]
            size = sum(piece.share for piece in current)
            if len(current) > 1 and size > max_bytes:
                return None
            parts.append(_SlicePart(current, start, end, 0, False))
    return [_part(part.pieces, part.first, part.last) for part in parts]


def _part(pieces: list[Piece], first: int, last: int) -> _SlicePart:
    # More rows than offsets: some repeat, even within one row group.
    ordered = len(pieces) == 1 and pieces[0].own <= pieces[0].last - pieces[0].first + 1
    return _SlicePart(list(pieces), first, last, sum(piece.share for piece in pieces), ordered)


def _pack(parts: Iterable[_SlicePart], max_bytes: int) -> list[_SlicePart]:
    packed: list[_SlicePart] = []
    for part in parts:
        before = packed[-1] if packed else None
        if before is None or before.bytes + part.bytes > max_bytes:
            packed.append(part)
            continue
        # What begins earlier is there already: parts of one group share pieces.
        before.pieces += [piece for piece in part.pieces if piece.first > before.last]
        before.last = part.last
        before.bytes += part.bytes
        before.ordered = before.ordered and part.ordered
    return packed


def _slice(partition: PartitionDump, index: int, part: _SlicePart) -> Slice:
    pieces = tuple(_joined(sorted(part.pieces, key=lambda one: (one.first, one.last, one.path, one.row_groups))))
    rows = sum(piece.own for piece in pieces)
    return Slice(
        partition.topic, partition.partition, index, pieces, part.first, part.last, rows, part.bytes, part.ordered
    )


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbouring row groups of one file as one piece: they are read with one call."""
    joined: Piece | None = None
    for piece in pieces:
        if joined and _continues(joined, piece):
            joined = replace(
                joined,
                row_groups=joined.row_groups + piece.row_groups,
                rows=joined.rows + piece.rows,
                bytes=joined.bytes + piece.bytes,
                last=piece.last,
                own=joined.own + piece.own,
                key_bytes=joined.key_bytes + piece.key_bytes,
            )
            continue
        if joined:
            yield joined
        joined = piece
    if joined:
        yield joined


def _continues(one: Piece, other: Piece) -> bool:
    same = one.path == other.path and one.mixed == other.mixed and one.hive == other.hive
    return same and one.row_groups[-1] + 1 == other.row_groups[0] and one.last < other.first


def cut(part: Slice, upto: int) -> tuple[Slice, Slice | None]:
    """A slice up to an offset (inclusive), and what follows; None where nothing does."""
    if upto >= part.last:
        return part, None
    low = [piece for piece in part.pieces if piece.first <= upto]
    high = [piece for piece in part.pieces if piece.last > upto]
    return _some(part, low, part.first, upto), _some(part, high, upto + 1, part.last)


def _some(part: Slice, pieces: Sequence[Piece], first: int, last: int) -> Slice:
    rows, size = sum(piece.own for piece in pieces), sum(piece.share for piece in pieces)
    return replace(part, pieces=tuple(pieces), first=first, last=last, rows=rows, bytes=size)
