"""Rows that pyarrow does not return, and rows outside the range of their file: no command takes the rest for the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.model import Dump, Slice
from kstate_cli.dump_reader.reader import read_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.dump_reader.verification import files_of_dump, verify_files
from kstate_cli.formats.topic_partition import TopicPartition

from .support import ALL, A, all_tables, open_dump, rows

COLUMNS = (*ALL, "headers")
KEY = TopicPartition(A, 0)
WRITERS = [
    dict(zip(("use_dictionary", "data_page_version", "write_batch_size", "row_group_size"), options, strict=True))
    for options in product((True, False), ("1.0", "2.0"), (1, 2, 7), (1, 9, 1000))
]
TINY_PAGES = {"data_page_size": 1}


def with_headers(count: int) -> pa.Table:
    """Rows of which many have no headers, and others several with empty values."""
    table = rows(count=count)
    headers = [
        [None, [], [{"key": "a", "value": b""}] * 5, [{"key": "b", "value": None}]][number % 4]
        for number in range(count)
    ]
    at = table.schema.get_field_index("headers")
    return table.set_column(at, "headers", pa.array(headers, table.schema.field("headers").type))


def whole(dump: Dump) -> Slice:
    (part,), _ = slices(dump.partitions[KEY], after=None, until=None, max_bytes=1 << 30)
    return part


def read_at_once(part: Slice) -> pa.Table:
    return read_slice(part, COLUMNS, fs.LocalFileSystem())


def read_in_batches(part: Slice) -> pa.Table:
    return pa.concat_tables(all_tables(part, COLUMNS, 10))


def read_without_offsets(part: Slice) -> pa.Table:
    """What a converter reads a second time."""
    return pa.concat_tables(all_tables(part, ["headers"], 10))


@pytest.mark.parametrize("read", [read_at_once, read_in_batches, read_without_offsets])
def test_all_rows_or_an_error(tmp_path: Path, read: Callable[[Slice], pa.Table]) -> None:
    """pyarrow writes pages without values, and its reader ends the row group there."""
    table = with_headers(60)
    missing = 0
    for number, options in enumerate(WRITERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        pq.write_table(table, folder / "a.parquet", **TINY_PAGES, **options)
        dump = open_dump(folder)
        try:
            result = read(whole(dump))
        except DumpError as error:
            missing += 1
            assert error.where == str(folder / "a.parquet"), options
        else:
            expected = [value or [] for value in table.column("headers").to_pylist()]
            assert [value or [] for value in result.column("headers").to_pylist()] == expected, options
    # Else this pyarrow reads such pages, and no option shows the error.
    assert 0 < missing < len(WRITERS)


def test_verification_finds_them(tmp_path: Path) -> None:
    """A dump of another program has no digests, so each page is decoded."""
    options: dict[str, Any] = {"use_dictionary": True, "write_batch_size": 2, "row_group_size": 1}
    pq.write_table(with_headers(60), tmp_path / "a.parquet", **TINY_PAGES, **options)
    dump = files_of_dump(str(tmp_path))
    (finding,) = verify_files(dump.uri, dump.files)
    assert "kstate could read 0 rows of row group 0, but the file's footer records 1" in finding.message


@pytest.mark.parametrize("read", [read_at_once, read_in_batches])
@pytest.mark.parametrize("mixed", [False, True])
def test_offsets_outside_the_range_of_their_file(
    tmp_path: Path, mixed: bool, read: Callable[[Slice], pa.Table]
) -> None:
    """No slice would look there. Here the file was replaced by one with as many rows."""
    others = [rows(A, 1, 50)] if mixed else []
    path = tmp_path / "a.parquet"
    pq.write_table(pa.concat_tables([rows(A, 0, 50), *others]), path)
    part = whole(open_dump(tmp_path))
    pq.write_table(pa.concat_tables([rows(A, 0, 50, start=25), *others]), path)
    with pytest.raises(DumpError, match="has changed since"):
        read(part)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("max_rows", [10, 1000])
def test_files_that_were_replaced_between_two_readings(tmp_path: Path, ordered: bool, max_rows: int) -> None:
    """A restoration reads keys first and values later, by the numbers of their rows."""
    path, table = tmp_path / "a.parquet", rows(count=60)
    missing = [pc.not_equal(table.column("offset"), offset) for offset in (20, 40)]
    pq.write_table(table.filter(missing[0]), path)
    part = replace(whole(open_dump(tmp_path)), ordered=ordered)
    passage = Passage(ordered)
    assert sum(keys.num_rows for keys in all_tables(part, ["key"], max_rows, 1 << 20, passage)) == 59
    assert sum(values.num_rows for values in all_tables(part, ["value", "offset"], max_rows, 1 << 20, passage)) == 59
    pq.write_table(table.filter(missing[1]), path)
    with pytest.raises(DumpError, match="has changed since"):
        all_tables(part, ["value", "offset"], max_rows, 1 << 20, passage)


def test_files_that_were_replaced_between_two_readings_at_once(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", rows(count=60)
    missing = [pc.not_equal(table.column("offset"), offset) for offset in (20, 40)]
    pq.write_table(table.filter(missing[0]), path)
    part, passage = whole(open_dump(tmp_path)), Passage()
    read_slice(part, ["key"], fs.LocalFileSystem(), passage)
    read_slice(part, ["value"], fs.LocalFileSystem(), passage)
    pq.write_table(table.filter(missing[1]), path)
    with pytest.raises(DumpError, match="has changed since"):
        read_slice(part, ["value"], fs.LocalFileSystem(), passage)


def test_readings_agree_about_offsets_whose_sum_exceeds_64_bits(tmp_path: Path) -> None:
    """At once and in batches: each reading adds up other numbers of rows."""
    pq.write_table(rows(A, 0, 12_001, start=3 * 2**61 - 12_001), tmp_path / "a.parquet", row_group_size=900)
    part, passage = whole(open_dump(tmp_path)), Passage()
    read = [
        sum(table.num_rows for table in all_tables(part, columns, most, passage=passage))
        for columns, most in ((("key", "offset"), 20_000), (("value", "offset"), 700))
    ]
    assert read == [12_001, 12_001]
