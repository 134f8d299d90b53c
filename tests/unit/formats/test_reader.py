from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import MalformedBytesError, Reader, i32, i64, zigzag


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (13, "1a"), (100, "c801"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)
def test_zigzag_vectors(value: int, data: str) -> None:
    assert zigzag(value).hex() == data
    assert Reader(bytes.fromhex(data), "x").zigzag("x") == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_zigzag_round_trip(value: int) -> None:
    reader = Reader(zigzag(value) + b"\xff", "x")
    assert reader.zigzag("x") == value
    assert reader.remaining == 1


@pytest.mark.parametrize("data", ["", "80", "8080808080", "ffffffff1f", "808080808000"])
def test_bad_zigzag(data: str) -> None:
    with pytest.raises(MalformedBytesError):
        Reader(bytes.fromhex(data), "x").zigzag("x")


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_too_big_to_write(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        i32(value)
    with pytest.raises(ValueError, match="does not fit"):
        zigzag(value)
    with pytest.raises(ValueError, match="does not fit"):
        i64(value << 32)


def test_reads_never_pass_the_end() -> None:
    reader = Reader(b"abc", "thing")
    with pytest.raises(MalformedBytesError, match="thing: field needs 4 bytes at offset 0, but only 3 bytes are left"):
        reader.i32("field")
    with pytest.raises(MalformedBytesError, match="is negative"):
        reader.take(-1, "field")
    assert reader.take(3, "field") == b"abc"
    reader.end()


def test_left_over_bytes() -> None:
    with pytest.raises(MalformedBytesError, match="3 bytes follow the last field"):
        Reader(b"abc", "thing").end()
