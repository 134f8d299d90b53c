"""``kstate dump ls``: what a dump holds, by its manifest, and what is missing from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.dump_reader.open import gaps_between
from kstate_cli.formats.topic_partition import TopicPartition
from tests.growing import GrowingDump

from .support import kstate_here, tree_hash

DUMP = Path(__file__).resolve().parents[2] / "examples" / "dump"
KEY = TopicPartition("orders-latest-order-changelog", 0)
FILE = "orders-visits-changelog/1/part-00000.parquet"
RECORDS = [(b"key-%d" % number, b"value", number) for number in range(5)]


def test_a_dump_that_was_written_at_once() -> None:
    before = tree_hash(DUMP)
    result = kstate_here("ls-dump", DUMP, "-o", "json")
    partitions = [row for row in result.rows if row["type"] == "partition"]
    assert len(partitions) == result.summary["partitions"] == 8
    assert {row["full_dumps"] for row in partitions} == {1}
    assert {str(row["gaps"]) for row in partitions} == {"[]"}
    assert sum(row["records"] for row in partitions) == result.summary["records"] == 328
    assert all(row["end"] == row["log_end"] and row["bytes"] for row in partitions)
    assert (result.summary["ok"], result.summary["generation"], result.summary["verified"]) == (True, None, None)
    assert tree_hash(DUMP) == before


@pytest.mark.parametrize(
    "words", [("dump", "ls"), ("ls-dump",), ("dump", "ls", "--dump"), ("ls-dump", "--from-changelog")]
)
def test_its_names(words: tuple[str, ...]) -> None:
    result = kstate_here(*words, DUMP)
    assert "orders-latest-order-changelog" in result.out
    assert result.out.endswith("\n8 partitions, 328 records, 30.1 KiB, no gaps, written in one go: none damaged\n")


def test_a_dump_that_grows(tmp_path: Path) -> None:
    dump = GrowingDump(tmp_path / "dump")
    dump.add({KEY: RECORDS})
    dump.add({KEY: RECORDS})
    (row,) = _partitions(dump.path)
    assert (row["full_dumps"], row["incremental_dumps"], row["start"], row["end"]) == (1, 1, 0, 10)
    assert (row["files"], row["records"], row["gaps"]) == (2, 10, [])
    assert row["dumped_at"].endswith("Z") and row["bytes"] > 0
    dump.begin_full(KEY, 25, keep=True)
    dump.add({KEY: RECORDS})
    (row,) = _partitions(dump.path)
    assert (row["full_dumps"], row["incremental_dumps"], row["start"], row["end"]) == (2, 0, 25, 30)
    assert row["gaps"] == [{"start": 10, "end": 25}]
    result = kstate_here("dump", "ls", dump.path)
    assert "10-24" in result.out
    assert "1 partition, 15 records, " in result.out and ", 1 gap, generation 3: none damaged" in result.out
    assert "kstate verify-dump" in result.err
    kstate_here("dump", "verify", dump.path)
    assert "kstate last verified every file at 20" in kstate_here("dump", "ls", dump.path).err


def _partitions(dump: Path, status: int = 0) -> list[dict[str, Any]]:
    return [row for row in kstate_here("ls-dump", dump, "-o", "json", status=status).rows if row["type"] == "partition"]


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    dump = Path(shutil.copytree(DUMP, tmp_path / "dump"))
    (dump / FILE).unlink()
    result = kstate_here("dump", "ls", dump, status=3)
    assert "the dump is damaged in 1 partition: orders-visits-changelog:1" in result.err
    assert f"{FILE} is in the manifest, but not in the dump" in result.err
    damages = {row["damage"] for row in _partitions(dump, 3) if row["damage"] is not None}
    assert len(damages) == 1
    assert kstate_here("ls-dump", dump, "-o", "json", status=3).summary["ok"] is False


def test_refuses_a_folder_without_a_dump(tmp_path: Path) -> None:
    kstate_here("dump", "ls", tmp_path / "nowhere", status=2)
    (tmp_path / "_manifest.json").write_text("{}", encoding="utf-8")
    kstate_here("dump", "ls", tmp_path, status=4)


@pytest.mark.parametrize(
    ("ranges", "gaps"),
    [
        ([], ()),
        ([(0, 5)], ()),
        ([(0, 5), (5, 9)], ()),
        ([(5, 9), (0, 5)], ()),
        ([(0, 5), (7, 9)], ((5, 7),)),
        ([(0, 9), (2, 3), (12, 13), (20, 21)], ((9, 12), (13, 20))),
    ],
)
def test_gaps(ranges: list[tuple[int, int]], gaps: tuple[tuple[int, int], ...]) -> None:
    assert gaps_between(ranges) == gaps
