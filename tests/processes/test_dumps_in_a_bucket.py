"""Reading dumps in a bucket, on a store in a process of its own: tables next to them, denied listings, and damage."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.verification import ROT, files_of_dump, verify_files
from kstate_cli.dump_writer.verified import VerifiedPart, read_verified, record
from kstate_cli.formats.topic_partition import TopicPartition
from tests.dumps.support import A, content, expected_content, open_dump, rows
from tests.growing import GrowingDump
from tests.object_store import Fault, ObjectStore

pytestmark = pytest.mark.rotating(2)

KEY = TopicPartition("app-a-changelog", 0)


@pytest.mark.parametrize("marker", ["_delta_log/0.json", "metadata/v1.metadata.json", "_spark_metadata/0"])
def test_in_a_bucket(marker: str, objects: ObjectStore, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    objects.put(f"lake/dump/{A}/part=0/a.parquet", data)
    assert content(open_dump(objects.uri("lake/dump"))) == expected_content(rows())
    objects.put(f"lake/dump/{A}/{marker}", b"v1\n")
    for place in ("lake", "lake/dump", f"lake/dump/{A}", f"lake/dump/{A}/part=0", f"lake/dump/{A}/part=0/a.parquet"):
        with pytest.raises(DumpError) as caught:
            open_dump(objects.uri(place))
        assert f"lake/dump/{A} is a table (" in caught.value.message and "Only the table's log" in caught.value.message


def test_denied_listing_above_a_dump_in_a_bucket_is_a_warning(objects: ObjectStore, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "a.parquet")
    objects.put("lake/dump/a.parquet", (tmp_path / "a.parquet").read_bytes())
    objects.behave(Fault("lake/(_|[.])", 403, "AccessDenied"), Fault("lake%2F(_|[.])", 403, "AccessDenied"))
    dump = open_dump(objects.uri("lake/dump"))
    assert content(dump) == expected_content(rows())
    assert "so it does not know whether the dump is part of a table there" in " ".join(dump.warnings)


def test_damage_in_a_bucket(objects: ObjectStore) -> None:
    uri = objects.uri("backup/app")
    dump = GrowingDump(uri)
    dump.add({KEY: [(b"k", b"v" * 100, 1)]})
    files = files_of_dump(uri).files
    assert verify_files(uri, files) == []
    recorded = record(uri, 1, 1, VerifiedPart(1_000, 1, 1, 0))
    assert read_verified(uri) == recorded
    dump.add({KEY: [(b"k", b"w", 2)]})
    key = next(key for key in objects.keys("backup/app/") if key.endswith(".parquet"))
    data = bytearray(objects.content(f"backup/app/{key}"))
    data[50] ^= 1
    objects.put(f"backup/app/{key}", bytes(data))
    assert [finding.code for finding in verify_files(uri, files_of_dump(uri).files)] == [ROT]
