"""What is refused, and that the message names the file and the column."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import UsageError

from .support import A, open_dump, rows, several, write


def refusal(path: Path | str, **options: bool) -> DumpError:
    with pytest.raises(DumpError) as caught:
        read_dump(str(path), **{"complete": True, "committed_only": False, **options})
    assert caught.value.exit_code == 4
    return caught.value


def text(error: DumpError) -> str:
    return f"{error.where}: {error.message} {error.hint}"


def save(table: pa.Table, path: Path, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def test_without_a_manifest(tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=False)
    error = refusal(tmp_path, complete=False)
    assert "--dump-is-complete" in text(error) and "--dump-is-committed" in text(error)


@pytest.mark.parametrize("name", ["key", "value", "topic", "partition", "offset", "timestamp"])
def test_missing_column(name: str, tmp_path: Path) -> None:
    path = save(rows().drop_columns([name]), tmp_path / "a.parquet")
    error = refusal(tmp_path)
    assert error.where == str(path)
    assert f"column {name} is missing" in error.message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("key", pa.string()), ("value", pa.string()), ("topic", pa.int32()), ("partition", pa.string()),
        ("offset", pa.int32()), ("offset", pa.float64()), ("timestamp", pa.int64()), ("timestampType", pa.int64()),
        ("value", pa.null()), ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
        ("headers", pa.map_(pa.string(), pa.binary())), ("headers", pa.binary()),
    ],
)  # fmt: skip
def test_mistyped_column(name: str, kind: pa.DataType, tmp_path: Path) -> None:
    path = save(with_column(rows(count=3), name, pa.nulls(3, kind)), tmp_path / "a.parquet")
    error = refusal(tmp_path)
    assert error.where == str(path)
    assert f"column {name} has type" in error.message and "expected" in error.message


def test_repeated_column(tmp_path: Path) -> None:
    save(rows().append_column("key", rows().column("key")), tmp_path / "a.parquet")
    assert "key occurs 2 times" in refusal(tmp_path).message


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("offset", -1, "negative offset -1"), ("partition", -1, "not a partition"),
        ("topic", "../../etc", "not the name of a topic"), ("topic", "", "not the name of a topic"),
        ("topic", "x" * 250, "not the name of a topic"), ("topic", "a\x1b[31m", "not the name of a topic"),
        ("offset", None, "nulls"), ("partition", None, "nulls"), ("topic", None, "nulls"),
    ],
)  # fmt: skip
def test_hostile_values(name: str, value: Any, message: str, statistics: bool, tmp_path: Path) -> None:
    table = rows(count=10)
    values = [*table.column(name).to_pylist()[:9], value]
    path = save(
        with_column(table, name, pa.array(values, table.schema.field(name).type)),
        tmp_path / "a.parquet",
        write_statistics=statistics,
    )
    error = refusal(tmp_path)
    assert error.where == str(path) and message in error.message
    assert error.message.isprintable()


def test_partition_beyond_32_bits(tmp_path: Path) -> None:
    save(with_column(rows(count=2), "partition", pa.array([1 << 31] * 2)), tmp_path / "a.parquet")
    assert "not a partition" in refusal(tmp_path).message


def test_topic_that_is_not_utf8(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"\xff\xfe"], pa.binary()).buffers())
    save(with_column(rows(count=2), "topic", bad), tmp_path / "a.parquet")
    refusal(tmp_path)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("topic=..%2F..%2Fetc/partition=0", "not the name of a topic"),
        ("topic=a/partition=x", "not a number"),
        ("topic=a/partition=-1", "not a number"),
        ("topic=a/partition=99999999999", "not a number"),
        ("topic=a/partition=4294967296", "not a partition"),
        ("topic=a/partition=__HIVE_DEFAULT_PARTITION__", "means null"),
        ("topic=__HIVE_DEFAULT_PARTITION__/partition=0", "means null"),
        ("topic=a/topic=b/partition=0", "twice"),
    ],
)
def test_hostile_hive_folders(folder: str, message: str, tmp_path: Path) -> None:
    save(rows().drop_columns(["topic", "partition"]), tmp_path / folder / "a.parquet")
    error = refusal(tmp_path)
    assert message in error.message and "a.parquet" in str(error.where)


@pytest.mark.parametrize("folder", ["topic=other/partition=0", f"topic={A}/partition=1"])
def test_folder_and_rows_disagree(folder: str, tmp_path: Path) -> None:
    save(rows(), tmp_path / folder / "a.parquet")
    assert "the path does not match" in refusal(tmp_path).message


def test_hive_folders_that_agree_are_fine(tmp_path: Path) -> None:
    save(rows(), tmp_path / f"topic={A}" / "partition=0" / "a.parquet")
    assert open_dump(tmp_path).partitions


@pytest.mark.parametrize("cut", [0, 3, 100, -1, -9])
def test_damaged_file(cut: int, tmp_path: Path) -> None:
    path = save(rows(), tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:cut])
    error = refusal(tmp_path)
    assert error.where == str(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_dump(tmp_path / "missing")
    with pytest.raises(UsageError, match="is not a dump: it contains no Parquet file"):
        open_dump(tmp_path)
    with pytest.raises(UsageError) as caught:
        open_dump("nonsense://user:secret@host/path?secret_key=secret")
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


def test_links(tmp_path: Path) -> None:
    outside = save(rows(), tmp_path / "outside" / "a.parquet")
    inside = tmp_path / "dump"
    save(rows(start=1000), inside / "a.parquet")
    (inside / "b.parquet").symlink_to("a.parquet")
    assert len(open_dump(inside).partitions) == 1
    (inside / "c.parquet").symlink_to(outside)
    assert "symbolic link" in refusal(inside).message
    (inside / "c.parquet").unlink()
    (inside / "loop").symlink_to(inside)
    assert "symbolic link" in refusal(inside).message


def test_table_formats(tmp_path: Path) -> None:
    save(rows(), tmp_path / "a.parquet")
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{}")
    assert "Delta Lake" in refusal(tmp_path).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path: Path) -> None:
    save(rows(), tmp_path / "a.parquet").chmod(0)
    refusal(tmp_path)


# -- the manifest against the files


def edit_manifest(path: Path, edit: Callable[[Any], None]) -> Path:
    manifest = json.loads((path / "_manifest.json").read_text())
    edit(manifest)
    (path / "_manifest.json").write_text(json.dumps(manifest))
    return path


def test_file_is_missing(tmp_path: Path) -> None:
    dump = write(tmp_path, several(), rows_per_file=50)
    lost = next((dump / A / "0").iterdir())
    lost.unlink()
    error = refusal(dump, complete=False)
    assert f"{A}/0/{lost.name} is in the manifest, but not in the dump" in error.message


def test_file_is_not_listed(tmp_path: Path) -> None:
    dump = write(tmp_path, several())
    save(rows(start=5000), dump / "new.parquet")
    assert "new.parquet is in the dump, but not in the manifest" in refusal(dump).message


def test_file_has_another_size(tmp_path: Path) -> None:
    dump = write(tmp_path, several())
    path = dump / A / "0" / "part-00000.parquet"
    save(rows(count=201), path)
    assert f"{A}/0/part-00000.parquet has {path.stat().st_size} bytes" in refusal(dump).message


def test_digest(tmp_path: Path) -> None:
    dump = write(tmp_path, several())
    read_dump(str(dump), complete=False, committed_only=False, check_digests=True)
    path = dump / A / "0" / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    read_dump(str(dump), complete=False, committed_only=False)
    error = refusal(dump, check_digests=True)
    assert error.where == str(path) and "SHA-256" in error.message


@pytest.mark.parametrize(("field", "by"), [("rows", 1), ("first", 1), ("last", 1), ("last", -1)])
def test_rows_disagree(field: str, by: int, tmp_path: Path) -> None:
    def edit(manifest: Any) -> None:
        manifest["partitions"][0][field] += by
        manifest["partitions"][0]["log_end"] += 5

    error = refusal(edit_manifest(write(tmp_path, several()), edit))
    assert f"{A}:0" in error.message and "the manifest records" in error.message


def test_partitions_disagree(tmp_path: Path) -> None:
    dump = write(tmp_path, several())
    edit_manifest(dump, lambda manifest: manifest["partitions"].pop(0))
    assert f"{A}:0, which is not in the manifest" in refusal(dump).message
    write(tmp_path, several())
    more = {"topic": "t", "partition": 0, "log_start": 0, "log_end": 5, "first": 1, "last": 2, "rows": 2}
    edit_manifest(dump, lambda manifest: manifest["partitions"].append(more))
    assert "t:0: the manifest records 2 rows, but the files contain none" in refusal(dump).message
    edit_manifest(dump, lambda manifest: manifest["partitions"][-1].update(rows=0, first=None, last=None))
    partition = open_dump(dump).partitions
    empty = next(part for key, part in partition.items() if key.topic == "t")
    assert (empty.rows, empty.first, empty.log_end, empty.pieces) == (0, None, 5, ())


def test_file_of_another_partition(tmp_path: Path) -> None:
    dump = edit_manifest(write(tmp_path, several()), lambda manifest: manifest["files"][0].update(partition=1))
    assert f"{A}/0/part-00000.parquet contains rows of {A}:0" in refusal(dump).message
