"""The same rows come out of every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader.open import read_dump
from kstate_cli.formats.topic_partition import TopicPartition

from .support import A, content, expected_content, open_dump, rows, several, write

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "small files": {"rows_per_file": 11},
    "small groups": {"rows_per_group": 7},
    "hive": {"hive": True},
    "hive, small": {"hive": True, "rows_per_file": 60, "rows_per_group": 9},
    "shuffled": {"shuffle": 3, "rows_per_file": 40},
    "shuffled hive": {"shuffle": 4, "hive": True, "rows_per_file": 40},
    "together": {"together": True},
    "together, shuffled": {"together": True, "shuffle": 5, "rows_per_file": 100, "rows_per_group": 30},
    "duplicates": {"duplicates": 20, "rows_per_file": 64},
    "duplicates shuffled": {"duplicates": 50, "shuffle": 6, "rows_per_file": 64},
    "together with duplicates": {"duplicates": 50, "together": True, "rows_per_group": 41},
    "int96": {"int96": True},
    "int96 hive": {"int96": True, "hive": True, "shuffle": 1},
}


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, manifest: bool, tmp_path: Path) -> None:
    table = several()
    dump = open_dump(write(tmp_path / "d", table, manifest=manifest, **LAYOUTS[name]))
    assert dump.warnings == ()
    assert dump.has_headers
    assert (dump.manifest is not None) == manifest
    assert content(dump) == expected_content(table)
    with_headers = ("headers", "offset", "key")
    assert content(dump, columns=with_headers) == expected_content(table, with_headers)


@pytest.mark.parametrize("name", ["small groups", "hive, small", "small files"])
def test_small_slices(name: str, tmp_path: Path) -> None:
    table = several()
    dump = open_dump(write(tmp_path / "d", table, **LAYOUTS[name]))
    assert content(dump, max_bytes=1) == expected_content(table)
    assert content(dump, max_bytes=2_000) == expected_content(table)


def test_facts_of_a_partition(tmp_path: Path) -> None:
    dump = open_dump(write(tmp_path / "d", several(), shuffle=1, together=True, rows_per_file=50))
    partition = dump.partitions[TopicPartition(A, 1)]
    assert (partition.first, partition.last, partition.rows) == (40, 189, 150)
    assert (partition.log_start, partition.log_end) == (40, 191)
    assert list(partition.pieces) == sorted(partition.pieces, key=lambda piece: piece.first)
    assert sum(piece.own for piece in partition.pieces) == 150
    assert all(piece.mixed for piece in partition.pieces)


def test_without_statistics_and_with_unusual_types(tmp_path: Path) -> None:
    table = several()
    types = {
        "key": pa.large_binary(), "value": pa.binary_view(), "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int64(), "timestamp": pa.timestamp("ms", tz="Europe/Berlin"),
        "headers": pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    }  # fmt: skip
    unusual = pa.table(
        {
            name: column.cast(types.get(name, column.type))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )
    for number, begin in enumerate(range(0, len(unusual), 100)):
        pq.write_table(unusual.slice(begin, 100), tmp_path / f"{number}.parquet", write_statistics=False)
    dump = open_dump(tmp_path)
    assert content(dump) == expected_content(table)
    with_headers = ("headers", "offset", "key")
    assert content(dump, columns=with_headers) == expected_content(table, with_headers)


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.binary()), pa.large_binary(), pa.binary_view()])
def test_kinds_of_binary(kind: pa.DataType, tmp_path: Path) -> None:
    table = rows()
    index = table.schema.get_field_index("key")
    pq.write_table(table.set_column(index, "key", table.column("key").cast(kind)), tmp_path / "a.parquet")
    assert content(open_dump(tmp_path)) == expected_content(table)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_floored(unit: str, tmp_path: Path) -> None:
    values = [0, 1, -1, 999, 1000, -1000, -1001, 1_700_000_000_123_456, -2_000_000_999_999, None]
    per_ms = {"s": None, "ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    stored = [None if value is None else max(min(value, 10**15), -(10**15)) for value in values]
    table = rows(count=len(values))
    column = pa.array(stored, pa.int64()).view(pa.timestamp(unit, tz="UTC"))
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", column)
    # Only this version stores seconds and nanoseconds as they are.
    pq.write_table(table, tmp_path / "a.parquet", version="2.6", coerce_timestamps=None, store_schema=True)
    results = [row[2] for row in content(open_dump(tmp_path))[TopicPartition(A, 0)]]
    assert results == [-1 if v is None else v * 1000 if per_ms is None else v // per_ms for v in stored]


def test_int96_before_1970_and_far_away(tmp_path: Path) -> None:
    values = [-1, -999, -1_000, -1_001, 10**16, -62_135_596_800_000_000, 0, None]
    table = rows(count=len(values))
    column = pa.array(values, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", column)
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    dump = open_dump(tmp_path)
    assert dump.warnings == ()
    results = [row[2] for row in content(dump)[TopicPartition(A, 0)]]
    assert results[:4] == [-1, -1, -1, -2]
    assert results[6:] == [0, -1]
    assert results == [-1 if value is None else value // 1_000 for value in values]


def test_warns_of_timestamps_without_a_zone(tmp_path: Path) -> None:
    table = rows()
    naive = table.column("timestamp").cast(pa.timestamp("us"))
    pq.write_table(table.set_column(5, "timestamp", naive), tmp_path / "a.parquet")
    dump = open_dump(tmp_path)
    assert len(dump.warnings) == 1 and "UTC" in dump.warnings[0]
    assert content(dump) == expected_content(table)


def test_files_that_are_no_part_of_the_dump(tmp_path: Path) -> None:
    table = rows()
    write(tmp_path, table, manifest=False)
    for name in ("_SUCCESS", ".part.parquet.crc", "empty"):
        (tmp_path / name).touch()
    assert open_dump(tmp_path).warnings == ()
    (tmp_path / "_temporary").mkdir()
    pq.write_table(table, tmp_path / "_temporary" / "x.parquet")
    (tmp_path / "README").write_text("a dump")
    dump = open_dump(tmp_path)
    assert len(dump.warnings) == 2 and "_temporary/x.parquet" in dump.warnings[0] and "README" in dump.warnings[1]
    assert content(dump) == expected_content(table)


def test_parquet_without_the_suffix_counts(tmp_path: Path) -> None:
    table = rows()
    pq.write_table(table, tmp_path / "data")
    assert content(open_dump(tmp_path)) == expected_content(table)


def test_topic_with_an_underscore_in_front(tmp_path: Path) -> None:
    table = rows("_confluent-ksql-x-changelog")
    assert content(open_dump(write(tmp_path / "a", table))) == expected_content(table)
    assert content(open_dump(write(tmp_path / "b", table, hive=True, manifest=False))) == expected_content(table)


def test_reads_a_single_file_a_uri_and_odd_names(tmp_path: Path) -> None:
    table = rows()
    folder = tmp_path / "a b [1]{2}*"
    folder.mkdir()
    pq.write_table(table, folder / "x y?.parquet")
    assert content(open_dump(folder)) == expected_content(table)
    assert content(open_dump(folder / "x y?.parquet")) == expected_content(table)
    assert content(open_dump(folder.as_uri())) == expected_content(table)


def test_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(rows(), tmp_path / "x.parquet")
    monkeypatch.chdir(tmp_path)
    dump = open_dump(".")
    monkeypatch.chdir("/")
    assert dump.uri == str(tmp_path)
    assert content(dump) == expected_content(rows())


def test_empty_files_are_fine(tmp_path: Path) -> None:
    pq.write_table(rows().slice(0, 0), tmp_path / "a.parquet")
    pq.write_table(rows(), tmp_path / "b.parquet")
    assert content(open_dump(tmp_path)) == expected_content(rows())


def test_isolation(tmp_path: Path) -> None:
    write(tmp_path / "plain", rows(), manifest=False)
    assert open_dump(tmp_path / "plain").isolation is None
    assert read_dump(str(tmp_path / "plain"), complete=True, committed_only=True).isolation == "read_committed"
    path = write(tmp_path / "told", rows()) / "_manifest.json"
    path.write_text(path.read_text().replace("read_committed", "read_uncommitted"))
    dump = read_dump(str(path.parent), complete=False, committed_only=True)
    assert dump.isolation == "read_uncommitted"
    assert len(dump.warnings) == 1
