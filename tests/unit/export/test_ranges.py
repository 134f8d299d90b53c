"""Ranges of a database: every key is in exactly one of them, whatever its SSTs are like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.export.store_export import Range, split
from kstate_cli.rocks.files import Table

KEY = st.binary(max_size=3)


def table(first: bytes, last: bytes, size: int) -> Table:
    behind = bytes(8)  # sequence number and type
    return Table("000009.sst", size, 0, 0, first + behind, last + behind)


TABLES = st.lists(
    st.builds(lambda ends, size: table(min(ends), max(ends), size), st.tuples(KEY, KEY), st.integers(0, 5000)),
    max_size=8,
)


def holds(span: Range, key: bytes) -> bool:
    lower, below = span
    return (lower is None or lower <= key) and (below is None or key < below)


@given(TABLES, st.integers(1, 6000), st.lists(KEY, max_size=10))
def test_every_key_is_in_a_single_range(tables: list[Table], size: int, keys: list[bytes]) -> None:
    ranges = split(tables, size)
    assert ranges[0][0] is None and ranges[-1][1] is None
    for key in [*keys, *(table.first for table in tables), *(table.last for table in tables)]:
        assert sum(holds(span, key) for span in ranges) == 1
    assert len(ranges) <= 1 + sum(table.size for table in tables) / size


def test_ranges_have_the_requested_size() -> None:
    tables = [table(b"%03d" % n, b"%03d" % (n + 9), 100) for n in range(0, 100, 10)]
    assert split(tables, 1_000_000) == [(None, None)]
    assert len(split(tables, 250)) in (3, 4, 5)
    assert split([table(b"a", b"z", 1000)], 10) in ([(None, None)], [(None, b"z"), (b"z", None)])
    assert split([], 10) == [(None, None)]
