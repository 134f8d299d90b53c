"""Row values as columns, against the codec that writes them one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.formats.values import Header, decode_headers, encode_headers
from kstate_cli.restore.sorting.row_values import encoded_headers, row_values

HEADER = st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70))
HEADERS = st.lists(st.none() | st.lists(HEADER, max_size=5), max_size=12)
TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def column(header_lists: list[list[tuple[str, bytes | None]] | None]) -> pa.ListArray:
    rows = [
        None if headers is None else [{"key": key, "value": value} for key, value in headers]
        for headers in header_lists
    ]
    return pa.array(rows, TYPE)


def plain(headers: list[tuple[str, bytes | None]] | None) -> bytes:
    return encode_headers(Header(key, value) for key, value in headers or ())


@given(HEADERS, st.integers(0, 12))
def test_headers(header_lists: list[list[tuple[str, bytes | None]] | None], first: int) -> None:
    assert encoded_headers(column(header_lists).slice(first)).to_pylist() == [
        plain(headers) for headers in header_lists[first:]
    ]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 65, 4_000, 8_183, 8_184, 8_185, 8_190, 8_191, 8_192, 100_000])
def test_headers_of_every_size(size: int) -> None:
    """Where a length takes one byte more, and where the table of lengths ends."""
    header_lists: list[list[tuple[str, bytes | None]] | None] = [
        [("h", b"x" * size)], None, [("k" * size, None), ("", b"")], [], [("h", b"y")] * min(size, 2_000),
    ]  # fmt: skip
    encodings = encoded_headers(column(header_lists)).to_pylist()
    assert encodings == [plain(header_list) for header_list in header_lists]
    for data, headers in zip(encodings, header_lists, strict=True):
        assert decode_headers(data) == (tuple(Header(key, value) for key, value in headers or ()), len(data))


def test_null_value_stays_null() -> None:
    headers = column([[("h", b"v")], None, [("h", None)]])
    values = pa.array([None, b"", b"v"], pa.binary())
    times = np.array([1, -1, 2], dtype=np.int64)
    head = plain([("h", None)])
    for kind, expected in {
        "headers-key-value": [None, b"\0" + b"\xff" * 8, head + (2).to_bytes(8, "big") + b"v"],
        "headers-session": [None, b"\0", head + b"v"],
        "timestamped-key-value": [None, b"\xff" * 8, (2).to_bytes(8, "big") + b"v"],
        "key-value": [None, b"", b"v"],
    }.items():
        assert row_values(store_kind(kind), values, times, headers, "s").to_pylist() == expected
