"""Every offset is in exactly one slice, the bounds hold, and slices are in order."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.dump_reader.model import PartitionDump, Piece, Slice
from kstate_cli.dump_reader.slices import slices


def piece(
    first: int, last: int, *, number: int = 0, size: int = 100, own: int | None = None, path: str = "f", rows: int = 0
) -> Piece:
    own = last - first + 1 if own is None else own
    rows = max(rows, own)
    return Piece(path, (number,), rows, size, first, last, rows > own, (), own)


def partition(*pieces: Piece) -> PartitionDump:
    ordered = tuple(sorted(pieces, key=lambda piece_: (piece_.first, piece_.last, piece_.path, piece_.row_groups)))
    first = min((piece_.first for piece_ in pieces), default=None)
    last = max((piece_.last for piece_ in pieces), default=None)
    return PartitionDump("t", 0, ordered, first, last, sum(piece_.own for piece_ in pieces), None, None)


@st.composite
def any_pieces(draw: st.DrawFn) -> list[Piece]:
    results = []
    for number in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 60))
        last = first + draw(st.integers(0, 25))
        own = draw(st.integers(1, last - first + 3))
        results.append(
            piece(first, last, number=number, size=draw(st.integers(1, 300)), own=own, rows=draw(st.integers(0, 40)),
                  path=draw(st.sampled_from("fgh")))
        )  # fmt: skip
    return results


@st.composite
def disjoint_pieces(draw: st.DrawFn) -> list[Piece]:
    results, first = [], 0
    for number in range(draw(st.integers(0, 12))):
        first += draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 9))
        results.append(
            piece(first, last, number=number, size=draw(st.integers(1, 300)), path=draw(st.sampled_from("fg")))
        )
        first = last + 1
    return results


bounds = st.none() | st.integers(-1, 90)
limits = st.integers(1, 1500)


def row_groups(part: Slice) -> list[tuple[str, int]]:
    return [(piece_.path, number) for piece_ in part.pieces for number in piece_.row_groups]


def check(pieces: list[Piece], cut: list[Slice], after: int | None, until: int | None, max_bytes: int) -> None:
    by_group = {(former.path, former.row_groups[0]): former for former in pieces}
    assert [part.index for part in cut] == list(range(len(cut)))
    assert all(former.last < other.first for former, other in itertools.pairwise(cut))
    low, high = -1 if after is None else after, 10_000 if until is None else until
    for part in cut:
        assert low < part.first <= part.last <= high
        groups = row_groups(part)
        assert len(groups) == len(set(groups))
        assert part.bytes <= max_bytes or len(groups) == 1
        assert part.bytes == sum(by_group[group].share for group in groups)
        assert part.rows == sum(by_group[group].own for group in groups)
        members = [by_group[group] for group in groups]
        rising = all(former.last < other.first for former, other in itertools.pairwise(members))
        distinct = all(member.own <= member.last - member.first + 1 for member in members)
        assert part.ordered == (rising and distinct)
        assert list(part.pieces) == sorted(part.pieces, key=lambda former: former.first)
    for group, piece_ in by_group.items():
        for offset in range(piece_.first, piece_.last + 1):
            holders = [part for part in cut if part.first <= offset <= part.last]
            if low < offset <= high:
                assert len(holders) == 1
                assert group in row_groups(holders[0])
            else:
                assert not holders


@given(any_pieces(), bounds, bounds, limits)
def test_any_pieces(pieces: list[Piece], after: int | None, until: int | None, max_bytes: int) -> None:
    cut, again = slices(partition(*pieces), after=after, until=until, max_bytes=max_bytes)
    if again:
        assert cut == []
        return
    check(pieces, cut, after, until, max_bytes)
    read = sum(part.bytes for part in cut)
    assert read <= 2 * sum(piece_.share for piece_ in pieces)


@given(disjoint_pieces(), bounds, bounds, limits)
def test_disjoint_pieces_never_need_a_shuffle(
    pieces: list[Piece], after: int | None, until: int | None, max_bytes: int
) -> None:
    cut, again = slices(partition(*pieces), after=after, until=until, max_bytes=max_bytes)
    assert not again
    check(pieces, cut, after, until, max_bytes)
    assert all(part.ordered for part in cut)
    # As full as they can be: two neighbours do not fit into one.
    assert all(piece_.bytes + other.bytes > max_bytes for piece_, other in itertools.pairwise(cut))


@given(any_pieces(), bounds, bounds)
def test_enough_memory_never_needs_a_shuffle(pieces: list[Piece], after: int | None, until: int | None) -> None:
    cut, again = slices(partition(*pieces), after=after, until=until, max_bytes=10_000)
    assert not again
    assert len(cut) <= 1


def test_neighbours_become_a_single_piece() -> None:
    cut, _ = slices(
        partition(*(piece(10 * n, 10 * n + 9, number=n) for n in range(6))), after=None, until=None, max_bytes=300
    )
    assert [[piece_.row_groups for piece_ in part.pieces] for part in cut] == [[(0, 1, 2)], [(3, 4, 5)]]
    assert [(piece_.first, piece_.last, piece_.rows, piece_.bytes, piece_.own) for piece_ in cut[1].pieces] == [
        (30, 59, 30, 300, 30)
    ]


def test_a_whole_copy_with_other_bounds_is_cut() -> None:
    """A second writer's copy overlaps everywhere, yet two row groups at a time are enough."""
    pieces = [piece(10 * n, 10 * n + 9, number=n, path="a") for n in range(50)]
    other = [piece(max(0, 10 * n - 5), min(499, 10 * n + 4), number=n, path="b") for n in range(51)]
    cut, again = slices(partition(*pieces, *other), after=None, until=None, max_bytes=1_000)
    assert not again
    check([*pieces, *other], cut, None, None, 1_000)
    assert len(cut) < 20


def test_shuffled_dump_needs_a_repartition() -> None:
    pieces = [piece(n, 1000 - n, number=n) for n in range(50)]
    assert slices(partition(*pieces), after=None, until=None, max_bytes=1_000) == ([], True)
    assert not slices(partition(*pieces), after=1000, until=None, max_bytes=1_000)[1]


def test_a_mixed_row_group_counts_with_its_share() -> None:
    pieces = [piece(10 * n, 10 * n + 9, number=n, rows=100) for n in range(6)]
    cut, _ = slices(partition(*pieces), after=None, until=None, max_bytes=30)
    assert [(part.bytes, part.rows) for part in cut] == [(30, 30), (30, 30)]


@pytest.mark.parametrize(("after", "until"), [(500, None), (None, -1), (30, 30), (40, 20)])
def test_nothing_wanted(after: int | None, until: int | None) -> None:
    assert slices(partition(piece(0, 99)), after=after, until=until, max_bytes=1) == ([], False)


def test_many_small_pieces_are_quick() -> None:
    pieces = [piece(10 * n, 10 * n + 9, number=n, path=f"{n % 7}") for n in range(20_000)]
    doubled = pieces + [piece(10 * n + 2, 10 * n + 12, number=n, path="x") for n in range(20_000)]
    for max_bytes in (1_000, 1 << 40):
        assert not slices(partition(*pieces), after=None, until=None, max_bytes=max_bytes)[1]
        assert not slices(partition(*doubled), after=None, until=None, max_bytes=max_bytes)[1]


def test_pickles() -> None:
    cut, _ = slices(partition(piece(0, 9), piece(10, 19, number=1)), after=None, until=None, max_bytes=500)
    assert pickle.loads(pickle.dumps(cut)) == cut
