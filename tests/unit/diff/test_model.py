"""When two directories are equal: never where something could not be read, whatever else was found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.diff.model import Diff, StoreDiff, _join

KINDS = ("window", "window")
Rows = dict[bytes, bytes]


def task_diff(*stores: StoreDiff, positions: bool = False, as_of: str = "closed", **more: object) -> Diff:
    members = {"tasks": [], "unreadable": [], **more}
    return Diff(list(stores), positions=positions, as_of=(as_of, "closed"), **members)  # type: ignore[arg-type]


def store_diff(**more: object) -> StoreDiff:
    return StoreDiff("0_0", "count", kinds=KINDS, rows_a=5, rows_b=5, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("flaw", ["only_a", "only_b", "different"])
def test_a_single_row_makes_a_difference(flaw: str) -> None:
    assert store_diff().equal and task_diff(store_diff()).equal
    differing = task_diff(store_diff(), store_diff(**{flaw: 1}))
    assert not differing.equal and differing.differing == 1


def test_unread_stores_are_neither_equal_nor_different() -> None:
    for diff in (task_diff(store_diff(unreadable="is damaged")), task_diff(store_diff(), unreadable=["0_1 is a link"])):
        assert not diff.equal and diff.unread == 1 and diff.differing == 0


def test_store_or_task_on_a_single_side_differs() -> None:
    assert task_diff(store_diff(where="a")).differing == 1
    assert task_diff(tasks=[("0_1", "b")]).differing == 1


def test_offsets_count_only_with_the_option() -> None:
    other = store_diff(offsets={"changelog": (1, 2)})
    assert task_diff(other).equal
    assert task_diff(other, positions=True).differing == 1


@pytest.mark.parametrize(
    ("kinds", "comparable"),
    [
        (("timestamped-key-value", "headers-key-value"), True),
        (("key-value", "timestamped-key-value"), True),
        (("window", "timestamped-window"), True),
        (("window", "session"), False),
        (("key-value", "versioned"), False),
    ],
)
def test_kinds_that_can_be_held_against_each_other(kinds: tuple[str, str], comparable: bool) -> None:
    assert StoreDiff("0_0", "count", kinds=kinds).comparable == comparable
    assert StoreDiff("0_0", "count", kinds=kinds).equal == comparable


def test_remark_prevents_equality_only_while_nothing_runs() -> None:
    assert not task_diff(store_diff(), remarks=("an SST that no MANIFEST names",)).equal
    assert task_diff(store_diff(), remarks=("an SST that no MANIFEST names",), as_of="last-flush").equal


ROWS = st.dictionaries(st.binary(max_size=2), st.binary(max_size=2), max_size=12)


@given(ROWS, ROWS)
def test_every_row_of_both_sides_comes_once_and_meets_its_other(a: Rows, b: Rows) -> None:
    def rows(of: Rows) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(of.items()))

    joined = list(_join(rows(a), rows(b)))
    assert joined == [(key, a.get(key), b.get(key)) for key in sorted({*a, *b})]
    assert all(earlier[0] < right[0] for earlier, right in itertools.pairwise(joined))
