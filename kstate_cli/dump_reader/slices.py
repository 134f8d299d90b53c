"""Divide a partition into contiguous, bounded slices, by footers alone."""

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
    """Return the slices of a partition in offset order, and whether a range repartition is needed first.

    Only offsets > ``after`` and <= ``until`` (None: no bound). Each slice has at most ``max_bytes`` (as
    :attr:`Slice.bytes`). A larger row group is a slice of its own, which the reader can read in batches. Row groups
    whose offsets overlap are one slice, which is not ``ordered``. If they are too many, their range is divided, and
    they are read for each of its parts. If that would read the partition more than twice, or if a single range has more
    than ``max_bytes``, the result is ``([], True)``.
    """
    low = 0 if after is None else after + 1
    if until is not None and until < low:
        return [], False
    pieces = [piece for piece in partition.pieces if piece.last >= low and (until is None or piece.first <= until)]
    parts: list[_SlicePart] = []
    for group in _overlapping(pieces):
        cut = _cut(group, low, until, max_bytes)
        if cut is None:
            return [], True
        parts += cut
    return [_slice(partition, index, part) for index, part in enumerate(_pack(parts, max_bytes))], False


def _overlapping(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield groups of pieces so that the offsets of different groups do not overlap, lowest first."""
    group: list[Piece] = []
    last = -1
    for piece in sorted(pieces, key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups)):
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
    """Divide a group where its pieces begin and end, each range as long as ``max_bytes`` allows.

    None if the pieces of a single range have more than ``max_bytes``.
    """
    parts: list[_SlicePart] = []
    current: list[Piece] = []
    size = 0
    for start, end, active, fresh in _sweep(group, first, last):
        fresh_bytes = sum(piece.share for piece in fresh)
        if current and (not fresh or size + fresh_bytes <= max_bytes):
            current += fresh
            size += fresh_bytes
            parts[-1].last = end
        else:
            current = [piece for _, _, piece in active]
            size = sum(piece.share for piece in current)
            if len(current) > 1 and size > max_bytes:
                return None
            parts.append(_SlicePart(current, start, end, 0, False))
    return [_part(part.pieces, part.first, part.last) for part in parts]


_ActivePiece = tuple[int, int, Piece]
"""A piece with its last offset and a number, as an entry of a heap."""


def _sweep(group: list[Piece], first: int, last: int) -> Iterator[tuple[int, int, list[_ActivePiece], list[Piece]]]:
    """Yield the shortest ranges between bounds of pieces: first and last offset, all pieces, and the new ones.

    ``group`` is sorted by first offset. Ranges without a piece are skipped. The list of all pieces changes with the
    next range: copying it for each one would take quadratic time in a shuffled dump.
    """
    bounds = {first, *(piece.first for piece in group), *(piece.last + 1 for piece in group)}
    starts = sorted(bound for bound in bounds if first <= bound <= last)
    ends = [*(start - 1 for start in starts[1:]), last]
    waiting = iter(group)
    upcoming = next(waiting, None)
    # A heap by last offset, so that pieces that end leave it first. The number keeps pieces from being compared.
    active: list[_ActivePiece] = []
    number = 0
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
        if active:
            yield start, end, active, fresh


def _part(pieces: list[Piece], first: int, last: int) -> _SlicePart:
    # More rows than offsets means that some offsets repeat, even within one row group.
    ordered = len(pieces) == 1 and pieces[0].own <= pieces[0].last - pieces[0].first + 1
    return _SlicePart(list(pieces), first, last, sum(piece.share for piece in pieces), ordered)


def _pack(parts: Iterable[_SlicePart], max_bytes: int) -> list[_SlicePart]:
    packed: list[_SlicePart] = []
    for part in parts:
        before = packed[-1] if packed else None
        if before is None or before.bytes + part.bytes > max_bytes:
            packed.append(part)
            continue
        # Parts of one group share pieces: those that begin earlier are in the list already.
        before.pieces += [piece for piece in part.pieces if piece.first > before.last]
        before.last = part.last
        before.bytes += part.bytes
        before.ordered = before.ordered and part.ordered
    return packed


def _slice(partition: PartitionDump, index: int, part: _SlicePart) -> Slice:
    pieces = tuple(
        _joined(sorted(part.pieces, key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups)))
    )
    rows = sum(piece.own for piece in pieces)
    return Slice(
        partition.topic, partition.partition, index, pieces, part.first, part.last, rows, part.bytes, part.ordered
    )


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield adjacent row groups of one file as one piece, which is read with one call."""
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


def _continues(piece: Piece, following: Piece) -> bool:
    same = piece.path == following.path and piece.mixed == following.mixed and piece.hive == following.hive
    return same and piece.row_groups[-1] + 1 == following.row_groups[0] and piece.last < following.first


def cut(part: Slice, upto: int) -> tuple[Slice, Slice | None]:
    """Return a slice up to an offset (inclusive), and the rest; None if there is none."""
    if upto >= part.last:
        return part, None
    low = [piece for piece in part.pieces if piece.first <= upto]
    high = [piece for piece in part.pieces if piece.last > upto]
    return _sub_slice(part, low, part.first, upto), _sub_slice(part, high, upto + 1, part.last)


def _sub_slice(part: Slice, pieces: Sequence[Piece], first: int, last: int) -> Slice:
    rows, size = sum(piece.own for piece in pieces), sum(piece.share for piece in pieces)
    return replace(part, pieces=tuple(pieces), first=first, last=last, rows=rows, bytes=size)
