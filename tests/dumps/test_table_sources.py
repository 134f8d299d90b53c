"""Tables as dumps: the files that count by their logs, and every history that may have lost a record is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.fs
import pytest

from kstate_cli.dump_reader.errors import DumpError, NoManifestError
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import read_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.topic_partition import TopicPartition

KEY = TopicPartition("app-count-changelog", 0)
COLUMNS = ("key", "value", "timestamp", "offset")


def records(first: int, end: int) -> pa.Table:
    """Records with the columns of Spark's Kafka source."""
    numbers = range(first, end)
    return pa.table(
        {
            "key": pa.array([b"key-%d" % (number % 7) for number in numbers], pa.binary()),
            "value": pa.array([b"value-%d" % number for number in numbers], pa.binary()),
            "topic": [KEY.topic] * len(numbers),
            "partition": pa.array([KEY.partition] * len(numbers), pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([number * 1_000 for number in numbers], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * len(numbers), pa.int32()),
        }
    )


def open_table(place: str) -> Dump:
    return read_dump(place, complete=True, committed_only=True)


def rows(dump: Dump) -> list[dict[str, Any]]:
    (parts, shuffled) = slices(dump.partitions[KEY], after=None, until=None, max_bytes=1 << 30)
    assert not shuffled
    tables = [read_slice(part, COLUMNS, pyarrow.fs.LocalFileSystem()) for part in parts]
    content: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return content


def expected_rows(end: int) -> list[dict[str, Any]]:
    table = records(0, end).select(["key", "value", "timestamp", "offset"])
    return [{**row, "timestamp": number} for number, row in enumerate(table.to_pylist())]


# --- Delta Lake -------------------------------------------------------------------------------------------------------


def delta(folder: Path) -> str:
    """A table of two appends and a compaction, whose superseded files are still in the folder."""
    place = str(folder / "table")
    deltalake.write_deltalake(place, records(0, 10))
    deltalake.write_deltalake(place, records(10, 20), mode="append")
    deltalake.DeltaTable(place).optimize.compact()
    deltalake.write_deltalake(place, records(20, 25), mode="append")
    return place


def test_superseded_files_of_delta_never_count(tmp_path: Path) -> None:
    place = delta(tmp_path)
    assert len([*Path(place).glob("*.parquet")]) == 4
    dump = open_table(place)
    assert rows(dump) == expected_rows(25)
    assert dump.partitions[KEY].rows == 25 and len(dump.columns) == 2
    assert dump.isolation == "read_committed" and not dump.has_headers


def test_a_partitioned_delta_table(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    deltalake.write_deltalake(place, records(0, 10), partition_by=["topic", "partition"])
    assert rows(open_table(place)) == expected_rows(10)


def test_a_delta_table_is_no_dump_unless_the_user_says_that_it_is_complete(tmp_path: Path) -> None:
    place = delta(tmp_path)
    with pytest.raises(NoManifestError, match="no manifest") as refusal:
        read_dump(place, complete=False, committed_only=False)
    assert "--dump-is-complete" in str(refusal.value.hint)
    assert rows(read_dump(place, complete=True, committed_only=False)) == expected_rows(25)


def _delete(place: str) -> None:
    deltalake.DeltaTable(place).delete("offset = 3")


def _overwrite(place: str) -> None:
    deltalake.write_deltalake(place, records(0, 25), mode="overwrite")


def _expire(place: str) -> None:
    table = deltalake.DeltaTable(place)
    table.create_checkpoint()
    (Path(place) / "_delta_log" / f"{0:020d}.json").unlink()


def _edit(place: str, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    path = Path(place) / "_delta_log" / f"{number:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _other_counts(place: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["stats"] = json.dumps({"numRecords": 19})

    _edit(place, 2, change)


def _no_counts(place: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            del action["add"]["stats"]

    _edit(place, 2, change)


def _data_changed(place: str) -> None:
    def change(action: dict[str, Any]) -> None:
        if "remove" in action:
            action["remove"]["dataChange"] = True

    _edit(place, 2, change)


def _lost_file(place: str) -> None:
    max(Path(place).glob("*.parquet"), key=lambda path: path.stat().st_mtime).unlink()


def _cut_file(place: str) -> None:
    path = max(Path(place).glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    path.write_bytes(path.read_bytes()[:-1])


def _damaged_log(place: str) -> None:
    (Path(place) / "_delta_log" / f"{1:020d}.json").write_text("no JSON\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_delete, "removed or replaced records"),
        (_overwrite, "removed or replaced records"),
        (_expire, "commit 0 has expired from its log"),
        (_other_counts, "a different number of records"),
        (_no_counts, "does not know whether it kept all records"),
        (_data_changed, "removed or replaced records"),
        (_lost_file, "not in its folder"),
        (_cut_file, ", but"),
        (_damaged_log, "cannot read"),
    ],
)
def test_a_delta_table_that_may_lack_records_is_refused(
    tmp_path: Path, change: Callable[[str], None], reason: str
) -> None:
    place = delta(tmp_path)
    change(place)
    with pytest.raises(DumpError, match=reason):
        open_table(place)


# --- Iceberg ----------------------------------------------------------------------------------------------------------


def iceberg(folder: Path, *, version: str = "2") -> Any:
    """A table of two appends."""
    from pyiceberg.catalog import sql  # a second, which no other worker needs to wait

    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=records(0, 1).schema, properties={"format-version": version})
    table.append(records(0, 10))
    table.append(records(10, 20))
    return table


def metadata_file(table: Any) -> str:
    return str(table.metadata_location).removeprefix("file://")


def test_an_iceberg_table_by_its_metadata_file(tmp_path: Path) -> None:
    table = iceberg(tmp_path)
    older = metadata_file(table)
    table.append(records(20, 25))
    assert rows(open_table(metadata_file(table))) == expected_rows(25)
    assert rows(open_table(older)) == expected_rows(20), "the snapshot of that metadata file"


def test_the_folder_of_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    """Only the catalog states which metadata file counts."""
    folder = Path(metadata_file(iceberg(tmp_path))).parent.parent
    with pytest.raises(DumpError, match="is a table"):
        open_table(str(folder))


def test_an_iceberg_table_that_lost_records_is_refused(tmp_path: Path) -> None:
    table = iceberg(tmp_path)
    table.delete("offset = 3")
    with pytest.raises(DumpError, match="removed or replaced records"):
        open_table(metadata_file(table))


def test_an_iceberg_table_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    """The records of the snapshots between are lost, and the next ones hide that."""
    table = iceberg(tmp_path)
    first = min(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number).snapshot_id
    path = Path(metadata_file(table))
    content = json.loads(path.read_text())
    content["current-snapshot-id"] = first
    content["refs"]["main"]["snapshot-id"] = first
    path.write_text(json.dumps(content))
    assert rows(open_table(str(path))) == expected_rows(10), "a prefix of the log lacks nothing before its end"
    last = max(content["snapshots"], key=lambda snapshot: int(snapshot["sequence-number"]))
    last["sequence-number"] += 1
    content["current-snapshot-id"] = content["refs"]["main"]["snapshot-id"] = last["snapshot-id"]
    content["last-sequence-number"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(DumpError, match="sequence numbers of its snapshots have gaps"):
        open_table(str(path))


def test_an_iceberg_table_with_expired_snapshots_is_refused(tmp_path: Path) -> None:
    path = Path(metadata_file(iceberg(tmp_path)))
    content = json.loads(path.read_text())
    content["snapshots"] = [row for row in content["snapshots"] if "parent-snapshot-id" in row]
    content["snapshot-log"] = content["snapshot-log"][-1:]
    path.write_text(json.dumps(content))
    with pytest.raises(DumpError, match="has expired"):
        open_table(str(path))


def test_an_iceberg_table_of_version_1_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="sequence numbers"):
        open_table(metadata_file(iceberg(tmp_path, version="1")))
