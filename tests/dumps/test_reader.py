"""Reading slices: order, duplicates, ranges, bounded tables, and files that change."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from kstate_cli.dump_reader import footers, reader
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.footers import OutOfOrder, Passage
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.reader import iter_slice, read_slice
from kstate_cli.dump_reader.schema import RECORD_COLUMNS
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.topic_partition import TopicPartition
from tests import sampling
from tests.interop.to_parquet import SCHEMA

from .support import ALL, OTHER, A, all_tables, content, expected_content, open_dump, rows, several, write

LOCAL = fs.LocalFileSystem()
KEY = TopicPartition(A, 0)


def whole_slice(path: Path, max_bytes: int = 1 << 30, after: int | None = None, until: int | None = None) -> Slice:
    cut, again = slices(open_dump(path).partitions[KEY], after=after, until=until, max_bytes=max_bytes)
    assert not again and len(cut) == 1
    return cut[0]


def save(table: pa.Table, path: Path, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def offsets(table: pa.Table) -> list[int]:
    numbers: list[int] = table.column("offset").to_pylist()
    return numbers


@pytest.mark.parametrize(
    "layout", [{}, {"rows_per_group": 10}, {"together": True}, {"shuffle": 1}, {"duplicates": 30}, {"hive": True}]
)
@pytest.mark.parametrize(("after", "until"), [(None, 57), (57, None), (20, 57), (19, 39), (198, None), (198, 400)])
def test_range(layout: dict[str, Any], after: int | None, until: int | None, tmp_path: Path) -> None:
    table = several()
    part = whole_slice(write(tmp_path / "d", table, **layout), after=after, until=until)
    expected_rows = [
        row
        for row in expected_content(table)[KEY]
        if (after or 0) < row[3] + (after is None) and row[3] <= (until or 999)
    ]
    results = read_slice(part, ALL, LOCAL)
    assert [tuple(row.values()) for row in results.to_pylist()] == expected_rows


def test_types_and_offset_is_always_there(tmp_path: Path) -> None:
    part = whole_slice(save(rows(), tmp_path / "a.parquet"))
    table = read_slice(part, ("headers", "value", "timestamp"), LOCAL)
    assert table.schema.names == ["headers", "value", "timestamp", "offset"]
    assert [str(kind) for kind in table.schema.types] == [
        "list<element: struct<key: string, value: binary>>", "binary", "int64", "int64",
    ]  # fmt: skip
    empty = read_slice(replace(part, pieces=()), ("headers", "key"), LOCAL)
    assert empty.schema.names == ["headers", "key", "offset"]
    with pytest.raises(ValueError, match="nonsense"):
        read_slice(part, ("nonsense",), LOCAL)


def test_rows_in_disorder_within_a_row_group(tmp_path: Path) -> None:
    """Footers cannot tell: the slice says that it is ordered, the reader finds out."""
    table = rows()
    part = whole_slice(save(table.take(np.random.default_rng(1).permutation(100)), tmp_path / "a.parquet"))
    assert part.ordered
    assert [tuple(row.values()) for row in read_slice(part, ALL, LOCAL).to_pylist()] == expected_content(table)[KEY]
    tables = all_tables(part, ALL, 7)
    assert all(table.num_rows <= 7 for table in tables)
    assert [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()] == expected_content(table)[KEY]


@pytest.mark.parametrize("batch", [8, 8_192])
@pytest.mark.parametrize("until", [None, 50])
@pytest.mark.parametrize("at", [3, 7, 9, 30, 60, 79, 98])
def test_disorder_is_detected_while_reading(
    at: int, until: int | None, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First it is no error, wherever it is; of what was seen in order once it is another file."""
    monkeypatch.setattr(reader, "_BATCH_ROWS", batch)
    monkeypatch.setattr(reader, "_LEAST_ROWS", 1)
    table = rows()
    swapped = [*range(100)]
    swapped[at], swapped[at + 1] = at + 1, at
    path = save(table, tmp_path / "a.parquet", row_group_size=100)
    part = whole_slice(path, until=until)
    expected_rows = [row for row in expected_content(table)[KEY] if until is None or row[3] <= until]
    passage = Passage()
    assert pa.concat_tables(iter_slice(part, ALL, LOCAL, 7, None, passage)).num_rows == len(expected_rows)
    assert passage.ordered and passage.is_rising(part)
    keys = pa.concat_tables(iter_slice(part, ("key",), LOCAL, 7, None, passage))
    assert keys.column_names == ["key"]
    assert keys.column("key").to_pylist() == [row[0] for row in expected_rows]
    save(table.take(swapped), path, row_group_size=100)
    if until is None or at < until:
        with pytest.raises(DumpError, match="has changed since"):
            list(iter_slice(part, ALL, LOCAL, 7, None, passage))
        with pytest.raises(OutOfOrder):
            list(iter_slice(part, ALL, LOCAL, 7, None, Passage()))
    # What was seen of the first rows says nothing of the others.
    first = replace(part, last=20)
    passage = Passage()
    assert pa.concat_tables(all_tables(first, ALL, 7, passage=passage)).num_rows == 21
    assert passage.ordered is passage.is_rising(first) is (at > 19)
    assert not passage.is_rising(part)
    tables = all_tables(part, ALL, 7, passage=passage)
    assert [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()] == expected_rows


def test_rising_offsets_are_a_single_range(tmp_path: Path) -> None:
    part = replace(whole_slice(save(rows(), tmp_path / "a.parquet")), first=10, last=20)
    passage = Passage()
    assert not passage.is_rising(part)
    passage.mark_rising(part)
    passage.mark_rising(replace(part, first=22, last=30))  # of 21 nobody knows
    passage.mark_rising(replace(part, first=5, last=12))
    assert passage.is_rising(replace(part, first=12)) and not passage.is_rising(replace(part, last=21))
    passage.mark_rising(replace(part, first=21, last=25))
    assert passage.is_rising(replace(part, last=25)) and not passage.is_rising(replace(part, first=9))


def test_equal_duplicates_count_once(tmp_path: Path) -> None:
    table = rows()
    save(table, tmp_path / "a.parquet")
    save(table.slice(30, 50), tmp_path / "b.parquet")
    part = whole_slice(tmp_path)
    assert not part.ordered and part.rows == 150
    assert content(open_dump(tmp_path)) == expected_content(table)
    for max_rows in (1, 7, 100, 1000):
        tables = all_tables(part, ALL, max_rows)
        assert all(table.num_rows <= max_rows for table in tables)
        assert [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()] == expected_content(table)[KEY]


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("value", [b"another", None, b""])
def test_duplicates_that_differ(name: str, value: bytes | None, tmp_path: Path) -> None:
    table = rows(count=20)
    other = table.slice(7, 3)
    changed = other.column(name).to_pylist()
    changed[1] = value if changed[1] != value else b"x"
    save(table, tmp_path / "a.parquet")
    save(
        other.set_column(other.schema.get_field_index(name), name, pa.array(changed, pa.binary())),
        tmp_path / "b.parquet",
    )
    part = whole_slice(tmp_path)
    for read in (lambda: read_slice(part, ALL, LOCAL), lambda: all_tables(part, ALL, 3)):
        with pytest.raises(DumpError, match=rf"{A}:0: two rows have offset 8, but differ in their {name}") as caught:
            read()
        assert caught.value.exit_code == 4
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.message, again.hint) == (caught.value.message, caught.value.hint)


@pytest.mark.parametrize("columns", [("key",), ("value", "timestamp"), ("offset",), (*ALL, "headers")])
@pytest.mark.parametrize("name", OTHER)
def test_a_record_is_compared_as_a_whole(name: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever columns are asked for: a restoration reads keys first, and of plain stores never the timestamps."""
    assert OTHER.keys() == set(RECORD_COLUMNS) - {"offset"}
    table = rows(count=20)
    other = table.slice(8, 1)
    save(table, tmp_path / "a.parquet")
    save(other.set_column(other.schema.get_field_index(name), name, OTHER[name]), tmp_path / "b.parquet")
    part = whole_slice(tmp_path)
    for read in (lambda: read_slice(part, columns, LOCAL), lambda: all_tables(part, columns, 3)):
        with pytest.raises(DumpError, match=rf"{A}:0: two rows have offset 8, but differ in their {name}"):
            read()


def test_no_headers_and_an_empty_list_of_them_are_the_same(tmp_path: Path) -> None:
    table = rows(count=20)
    again = table.slice(9, 1)
    assert again.column("headers").to_pylist() == [[]]
    nothing = pa.array([None], SCHEMA.field("headers").type)
    save(table, tmp_path / "a.parquet")
    save(again.set_column(again.schema.get_field_index("headers"), "headers", nothing), tmp_path / "b.parquet")
    assert len(read_slice(whole_slice(tmp_path), ALL, LOCAL)) == 20


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with few entries above: who opens a dump lists the folders above it."""
    folder = tmp_path_factory.mktemp("dumps") / "a" / "b"
    folder.mkdir(parents=True)
    return folder


@settings(max_examples=100 if sampling.ALL else 25, deadline=None)
@given(
    seed=st.integers(0, 999), max_rows=st.integers(1, 120), max_bytes=st.none() | st.integers(1, 4000),
    after=st.none() | st.integers(0, 100), layout=st.sampled_from(({}, {"rows_per_group": 9}, {"together": True}, {"duplicates": 9},
    {"shuffle": 1, "rows_per_file": 50}, {"together": True, "rows_per_group": 31, "shuffle": 2})),
)  # fmt: skip
def test_iterating_gives_the_same_rows(
    seed: int,
    max_rows: int,
    max_bytes: int | None,
    after: int | None,
    layout: dict[str, Any],
    parent: Path,
) -> None:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        path = write(Path(folder), pa.concat_tables([rows(seed=seed), rows(partition=1, seed=seed)]), **layout)
        cut, _ = slices(open_dump(path).partitions[KEY], after=after, until=None, max_bytes=1 << 30)
        for part in cut:
            tables = all_tables(part, ALL, max_rows, max_bytes)
            assert all(0 < table.num_rows <= max_rows for table in tables)
            assert pa.concat_tables(tables).to_pylist() == read_slice(part, ALL, LOCAL).to_pylist()


def test_bytes_bound_tables_whose_values_are_encoded_away(tmp_path: Path) -> None:
    """A value that repeats is stored once: the footer's bytes say nothing of what it needs when read."""
    table = rows(count=20_000)
    table = table.set_column(1, "value", pa.array([b"x" * 1000] * 20_000))
    part = whole_slice(save(table, tmp_path / "a.parquet"))
    assert part.bytes < 1_000_000
    tables = all_tables(part, ALL, 1 << 20, 2_000_000)
    assert sum(table.num_rows for table in tables) == 20_000
    assert max(table.nbytes for table in tables) < 3_000_000


def test_only_the_row_groups_of_the_slice_are_read(tmp_path: Path) -> None:
    path = save(rows(), tmp_path / "a.parquet", row_group_size=10, compression="none")
    cut, _ = slices(open_dump(path).partitions[KEY], after=None, until=None, max_bytes=1)
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(5).column(0).data_page_offset
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    for part in cut[:5] + cut[6:]:
        assert read_slice(part, ("key",), LOCAL).num_rows == 10
    with pytest.raises(DumpError) as caught:
        read_slice(cut[5], ("key",), LOCAL)
    assert caught.value.where == str(path)


def test_a_flipped_byte_is_seen_by_the_page_checksum(tmp_path: Path) -> None:
    path = save(rows(), tmp_path / "a.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
    part = whole_slice(path)
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DumpError):
        read_slice(part, ALL, LOCAL)


def test_file_changed_or_gone(tmp_path: Path) -> None:
    path = save(rows(), tmp_path / "a.parquet")
    part = whole_slice(path)
    for other in (rows(count=99), rows(start=1), rows(start=1000)):
        save(other, path)
        with pytest.raises(DumpError, match="has changed since"):
            read_slice(part, ALL, LOCAL)
    save(rows(count=99), path)
    with pytest.raises(DumpError, match="has changed since"):
        all_tables(part, ALL, 10)
    path.unlink()
    with pytest.raises(DumpError) as caught:
        read_slice(part, ALL, LOCAL)
    assert caught.value.where == str(path)


def test_more_files_than_are_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_OPEN_FILES", 2)
    table = several()
    dump = open_dump(write(tmp_path / "d", table, together=True, shuffle=1, rows_per_file=20, rows_per_group=5))
    assert content(dump) == expected_content(table)


def test_columns_that_are_gathered_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = several()
    dump = open_dump(write(tmp_path / "d", table, shuffle=1, duplicates=30))
    monkeypatch.setattr(reader, "_BLOCK_BYTES", 900)
    names = (*ALL, "headers")
    assert content(dump, columns=names) == expected_content(table, names)


def test_the_package_does_not_import_pyarrow() -> None:
    names = ", ".join(path.stem for path in Path(reader.__file__).parent.glob("[a-z]*.py"))
    code = f"import sys; from kstate_cli.dump_reader import {names}"
    code += "; assert not {'pyarrow', 'numpy', 'pyspark'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
