"""The conversions of rows again, in blocks of a few rows: real blocks are larger than any table of a test.

Tests of whole tables pass with one block. What carries from one block into the next, and where each begins, only several show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.restore.sorting import convert, numbered_keys, values_in_order

from .test_convert import test_order_of_any_keys, test_order_of_keys_of_equal_length
from .test_key_numbers import test_numbers_sort_and_differ_as_keys_do, test_the_way_back
from .test_values_in_order import test_values_of_any_order

# Run here too, under the fixture below.
__all__ = [
    "test_numbers_sort_and_differ_as_keys_do",
    "test_order_of_any_keys",
    "test_order_of_keys_of_equal_length",
    "test_the_way_back",
    "test_values_of_any_order",
]
ROWS = 5


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Blocks of so few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "BLOCK_ROWS", ROWS)
        patch.setattr(convert, "COMPARED_KEYS", 2)
        patch.setattr(values_in_order, "BLOCK_ROWS", ROWS)
        patch.setattr(numbered_keys, "RECODE_ROWS", ROWS)
        yield


@given(st.lists(st.binary(min_size=5, max_size=5), min_size=1, max_size=40), st.binary(max_size=2))
def test_numbers_of_keys_have_their_order_and_their_bytes(parts: list[bytes], prefix: bytes) -> None:
    keys = [prefix + part for part in parts]
    table = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
    bits = convert.differing_bits(table)
    assert bits.tolist() == np.bitwise_or.reduce(table ^ table[0], axis=0).tolist()
    (word,) = convert.words(table, bits)
    assert convert.keys_of(word, bits, table[-1]).tobytes() == b"".join(keys)
    assert [keys[at] for at in convert.order_of([word]).tolist()] == sorted(keys)


@given(st.lists(st.binary(min_size=19, max_size=19), min_size=1, max_size=40, unique=True))
def test_keys_of_several_numbers(keys: list[bytes]) -> None:
    column = pa.array(keys, pa.binary())
    assert column.take(pa.array(convert.sort_order(column))).to_pylist() == sorted(keys)
