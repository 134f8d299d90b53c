"""Keys of one length as numbers, against Python's own order of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import binary_of
from kstate_cli.restore.sorting.convert import WORD_BITS, count_of, differing_bits, keys_of, order_of, words

KEYS = st.integers(1, 20).flatmap(
    lambda width: st.tuples(
        st.binary(min_size=width, max_size=width),
        st.binary(min_size=width, max_size=width),
        st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=40),
    )
)
"""What all have, the bits that may be others, and those."""


def table_of(keys: tuple[bytes, bytes, list[bytes]]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    same, free, others = (np.frombuffer(key, dtype=np.uint8) for key in (keys[0], keys[1], b"".join(keys[2])))
    return (same & ~free) | (others.reshape(-1, len(same)) & free)


@given(KEYS)
def test_numbers_sort_and_differ_as_keys_do(keys: tuple[bytes, bytes, list[bytes]]) -> None:
    table = table_of(keys)
    rows = [bytes(row) for row in table]
    bits = differing_bits(table)
    parts = words(table, bits)
    numbers = list(zip(*(part.tolist() for part in parts), strict=True))
    for entry, number in zip(rows, numbers, strict=True):
        for other, other_number in zip(rows, numbers, strict=True):
            assert (entry < other, entry == other) == (number < other_number, number == other_number)
    assert [rows[at] for at in order_of(parts)] == sorted(rows)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500, 131_072, 131_073])
@pytest.mark.parametrize("width", [1, 7, 12])
def test_single_differing_bit_is_detected_anywhere(count: int, width: int) -> None:
    rng = np.random.default_rng(count)
    same = rng.integers(0, 256, width, dtype=np.uint8)
    for at in {0, count // 2, count - 1, *rng.integers(0, count, 5).tolist()}:
        table = np.tile(same, (count, 1))
        bits = np.zeros(width, dtype=np.uint8)
        bits[rng.integers(width)] = 1 << rng.integers(8)
        table[at] ^= bits
        assert differing_bits(table).tolist() == (bits if count > 1 else bits * 0).tolist()


@given(KEYS)
def test_the_way_back(keys: tuple[bytes, bytes, list[bytes]]) -> None:
    table = table_of(keys)
    bits = differing_bits(table)
    parts = words(table, bits)
    assert (len(parts) == 1) >= (count_of(bits) <= WORD_BITS)
    if len(parts) == 1:
        assert np.array_equal(keys_of(parts[0], bits, table[-1]), table)


def test_more_bytes_than_an_array_reaches_are_no_array() -> None:
    """Its positions have 32 bits: beyond them keys would be others, without a word."""
    table = np.broadcast_to(np.zeros((1, 1_000), dtype=np.uint8), (2_200_000, 1_000))
    with pytest.raises(OverflowError, match="too large for one array"):
        binary_of(table)


def test_times_of_windows_take_few_bits() -> None:
    """Twelve hours of windows: they are multiples of an hour, so that the lowest bits never differ."""
    times = np.array([1_700_000_000_000 - hours * 3_600_000 for hours in range(12)], dtype=">i8")
    assert count_of(differing_bits(times.view(np.uint8).reshape(-1, 8))) == 19
