"""Footers of Parquet files: those of writers are accepted, and those at which pyarrow ends the process are not."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import check_footer
from tests.fuzz.corpus import FINDINGS

NESTED = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def footer_of(data: bytes) -> bytes:
    assert data[-4:] == b"PAR1"
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "1.0", "use_dictionary": False},
        {"version": "2.6", "data_page_version": "2.0", "compression": "zstd"},
        {"write_statistics": False, "store_schema": False},
        {"write_page_index": True, "write_page_checksum": True, "row_group_size": 2},
        {"use_deprecated_int96_timestamps": True},
    ],
)
@pytest.mark.parametrize("rows", [0, 5])
def test_footers_of_pyarrow(options: dict[str, Any], rows: int) -> None:
    table = pa.table(
        {
            "key": pa.array([b"k"] * rows, pa.binary()),
            "partition": pa.array([0] * rows, pa.int32()),
            "headers": pa.array([[{"key": "a", "value": None}]] * rows, NESTED),
            "map": pa.array([[("a", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
            "deep": pa.array([[[1], None]] * rows, pa.list_(pa.list_(pa.int32()))),
            "timestamp": pa.array([1] * rows, pa.timestamp("us")),
            "flag": pa.array([True] * rows, pa.bool_()),
        }
    ).replace_schema_metadata({"a": "b" * 300})
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    check_footer(footer_of(sink.getvalue()))


@pytest.mark.parametrize(("name", "text"), [("levels", "a histogram has"), ("type", "physical type")])
def test_footers_that_end_the_process(name: str, text: str) -> None:
    with pytest.raises(MalformedBytesError, match=text):
        check_footer(footer_of((FINDINGS / f"parquet-footer@{name}").read_bytes()))


def test_a_footer_that_is_cut_off_is_refused_at_every_byte() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), sink)
    footer = footer_of(sink.getvalue())
    for length in range(len(footer)):
        with pytest.raises(MalformedBytesError):
            check_footer(footer[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\x1c" * 100,
        b"\x19" + b"\x19" * 100,
        b"\x19\xfc\xff\xff\xff\xff\x0f",
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x15" + b"\xff" * 11,
        b"\x1d\x00",
        b"\x29\x1c\x15\x02\x00\x29\x1c\x15\x02\x00\x00",
    ],
    ids=["structs", "lists", "long list", "long text", "long number", "is unknown", "no parent"],
)
def test_hostile_footers(data: bytes) -> None:
    with pytest.raises(MalformedBytesError):
        check_footer(data)
