"""Folders of table formats are refused by name, wherever the folder and the dump are: never read file by file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader import table_formats
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.open import read_dump

from .support import A, content, expected_content, open_dump, rows, several, write
from .test_refusals import refusal, text

pytestmark = pytest.mark.rotating(2)

UUID = "0198c7a2-1111-7abc-8def-0123456789ab"
TABLES = {
    "_delta_log/00000000000000000000.json": "Delta Lake",
    "_delta_log/_last_checkpoint": "Delta Lake",
    ".hoodie/hoodie.properties": "Hudi",
    "_spark_metadata/0": "Spark file sink",
    "_spark_metadata/9.compact": "Spark file sink",
    "metadata/00002-4f1c.metadata.json": "Iceberg",
    "metadata/v3.metadata.json": "Iceberg",
    "metadata/v3.gz.metadata.json": "Iceberg",
    "metadata/00002-4f1c.metadata.json.gz": "Iceberg",
    "metadata/version-hint.text": "Iceberg",
    "metadata/snap-123-1-4f1c.avro": "Iceberg",
    "schema/schema-0": "Paimon",
    "snapshot/snapshot-1": "Paimon",
    "snapshot/LATEST": "Paimon",
    f"manifest/manifest-{UUID}-0": "Paimon",
    f"manifest/manifest-list-{UUID}-1": "Paimon",
    f"manifest/index-manifest-{UUID}-0": "Paimon",
    "base_0000005/bucket_00000": "Hive ACID",
    "base_0000005_v0000012/bucket_00000": "Hive ACID",
    "delta_0000001_0000002/bucket_00000": "Hive ACID",
    "delta_0000001_0000002_0003/bucket_00000": "Hive ACID",
    "delete_delta_0000003_0000003_0000/bucket_00000": "Hive ACID",
    f"ducklake-{UUID}.parquet": "DuckLake",
    "_started_77": "Databricks commit",
}
"""A file that the log of a table has, by its path in the folder of the table, and the format."""


def with_log(table: Path, marker: str) -> None:
    (table / marker).parent.mkdir(parents=True, exist_ok=True)
    (table / marker).write_bytes(b"v1\n")


def test_the_sweep_has_every_marker() -> None:
    names = {part for marker in TABLES for part in marker.split("/")}
    assert {*table_formats._MARKERS, *table_formats._LOG_FILES} <= names
    formats = {var.name for var in vars(table_formats).values() if isinstance(var, table_formats.TableFormat)}
    assert formats == set(TABLES.values())


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A dump without and one with a manifest; tests link their files, and add others."""
    return {
        manifest: write(tmp_path_factory.mktemp("dump"), several(), manifest=manifest) for manifest in (False, True)
    }


@pytest.mark.parametrize("manifest", [False, True])
@pytest.mark.parametrize("marker", TABLES)
@pytest.mark.parametrize("folder", ["", A, f"{A}/0", "deeper/and/deeper"])
def test_a_table_in_the_dump(marker: str, folder: str, manifest: bool, dumps: dict[bool, Path], tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(dumps[manifest], dump, copy_function=os.link)
    with_log(dump / folder, marker)
    error = refusal(dump)
    place = str(dump / folder) if folder else str(dump)
    assert f"{place} is a table ({TABLES[marker]})" in error.message, text(error)
    assert "plain Parquet" in str(error.hint)


@pytest.mark.parametrize("marker", [table for table in TABLES if not table.startswith(("base_", "delta_", "delete_"))])
@pytest.mark.parametrize("place", ["d", "d/deeper", "d/deeper/part.parquet"])
def test_the_dump_is_in_a_table(marker: str, place: str, tmp_path: Path) -> None:
    """Its own folder has no log: the table above has it."""
    if TABLES[marker] in ("DuckLake", "Databricks commit"):
        pytest.skip("each folder has its own")
    path = tmp_path / "table" / "d" / "deeper" / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows(), path)
    assert content(open_dump(tmp_path / "table" / place))
    with_log(tmp_path / "table", marker)
    assert f"{tmp_path}/table is a table ({TABLES[marker]})" in refusal(tmp_path / "table" / place).message
    (tmp_path / "link").symlink_to(tmp_path / "table" / place)
    assert f"{tmp_path}/table is a table ({TABLES[marker]})" in refusal(tmp_path / "link").message


@pytest.mark.parametrize("folder", ["base_0000001", "delta_0000001_0000001", "dt=1/base_0000004_v0000009"])
def test_the_dump_is_a_folder_of_hive(folder: str, tmp_path: Path) -> None:
    path = tmp_path / "table" / folder / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows(), path)
    assert (
        f"{tmp_path / 'table' / folder}".rpartition("/")[0] + " is a table (Hive ACID)" in refusal(path.parent).message
    )


@pytest.mark.parametrize("name", ["_delta_log", ".hoodie", "_spark_metadata"])
def test_empty_log_marks_a_table(name: str, tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=False)
    (tmp_path / A / name).mkdir()
    assert "Only the table's log" in refusal(tmp_path).message


def test_a_partition_of_hudi_that_was_copied_alone(tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=False)
    (tmp_path / A / "0" / ".hoodie_partition_metadata").write_text("commitTime=1")
    assert f"{tmp_path}/{A}/0 is a table (Hudi)" in refusal(tmp_path).message


@pytest.mark.parametrize("column", ["_hoodie_commit_time", "_VALUE_KIND"])
def test_a_file_of_a_table_without_its_log(column: str, tmp_path: Path) -> None:
    table = rows()
    pq.write_table(table.append_column(column, pa.array(["x"] * len(table))), tmp_path / "a.parquet")
    error = refusal(tmp_path)
    assert "the file belongs to a table (" in error.message and error.where == str(tmp_path / "a.parquet")


def test_a_file_of_iceberg_without_its_log(tmp_path: Path) -> None:
    pq.write_table(rows().replace_schema_metadata({"iceberg.schema": "{}"}), tmp_path / "a.parquet")
    assert "the file belongs to a table (Iceberg)" in refusal(tmp_path).message


def test_topics_with_such_names_are_topics(tmp_path: Path) -> None:
    """Only folders of logs have these files: a topic may have the name of such a folder."""
    table = pa.concat_tables([rows(name) for name in ("metadata", "schema", "snapshot", "manifest", "base_1", "delta")])
    assert content(open_dump(write(tmp_path, table, manifest=False))) == expected_content(table)


def test_a_hidden_table_that_is_not_read_is_no_obstacle(tmp_path: Path) -> None:
    table = rows()
    write(tmp_path, table, manifest=False)
    with_log(tmp_path / ".trash" / "old", "_delta_log/0.json")
    pq.write_table(table, tmp_path / ".trash" / "old" / "a.parquet")
    dump = open_dump(tmp_path)
    assert content(dump) == expected_content(table) and ".trash/old/a.parquet" in dump.warnings[0]


def test_several_tables_are_named(tmp_path: Path) -> None:
    write(tmp_path, several(), manifest=False)
    with_log(tmp_path / A, "_delta_log/0.json")
    with_log(tmp_path / "other", ".hoodie/hoodie.properties")
    error = refusal(tmp_path)
    assert f"{tmp_path}/{A}, {tmp_path}/other are tables (Delta Lake or Hudi)" in error.message
    assert f'DeltaTable("{tmp_path}/{A}").to_pyarrow_dataset(), "COPY/{A}"' in error.advice
    assert "Also copy the rest of the dump to this folder" in error.advice


@pytest.mark.parametrize(
    ("commits", "reads"),
    [
        ({"_started_1": "", "_committed_1": '{"added": ["part-00000.parquet"], "removed": []}'}, True),
        ({"_committed_1": '{"added": [], "removed": ["part-00000.parquet"]}'}, False),
        ({"_started_1": "", "_committed_2": '{"added": [], "removed": []}'}, False),
        ({"_committed_1": "no JSON"}, False),
        ({"_committed_1": "[]"}, False),
    ],
)
def test_transactions_of_databricks(commits: dict[str, str], reads: bool, tmp_path: Path) -> None:
    """Plain Parquet once every transaction has ended and replaced nothing."""
    write(tmp_path, rows(), manifest=False)
    for name, text_ in commits.items():
        (tmp_path / A / "0" / name).write_text(text_)
    if reads:
        assert content(open_dump(tmp_path)) == expected_content(rows())
    else:
        assert f"{tmp_path}/{A}/0 is a table (Databricks commit)" in refusal(tmp_path).message


# -- a dump with a manifest is a table with a log, too


@pytest.mark.parametrize("manifest", ["_manifest.json", "_manifest-0000000003.json"])
def test_files_of_a_dump_are_not_read_without_its_manifest(manifest: str, tmp_path: Path) -> None:
    dump = write(tmp_path / "backups" / "orders", several(), manifest=False)
    assert content(open_dump(tmp_path / "backups"))
    (dump / manifest).write_text(json.dumps({}))
    for place in (tmp_path / "backups", dump / A, dump / A / "0", next((dump / A / "0").iterdir())):
        error = refusal(place)
        assert f"the dump {dump}" in error.message and error.hint == "pass that folder"
        with pytest.raises(DumpError, match="the dump "):
            read_dump(str(place), complete=False, committed_only=False)
