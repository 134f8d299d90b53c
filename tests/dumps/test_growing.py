"""``_manifest-<generation>.json``: what it says, everything that is none, and what a reader takes of a dump that grows."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstate_cli.dump_reader.errors import WHOLE_COPY, DumpError
from kstate_cli.dump_reader.growing import MOST_GENERATION, generation_of, name_of, parse, render
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import (
    ClockMark,
    Forgotten,
    Full,
    Grown,
    GrownFile,
    LastRecord,
    PartitionDump,
    Round,
    RowGroup,
    TailRecord,
)
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import read_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.dump_writer.folder import FolderStore
from kstate_cli.dump_writer.writing import RangeFile, schema
from kstate_cli.formats.topic_partition import TopicPartition

KEY = TopicPartition("t", 0)
DIGEST = "0" * 63 + "a"
NAME = name_of(7)
FILE = GrownFile("topic=t/partition=0/f.parquet", 9, DIGEST, (RowGroup(3, 8, 5, 400, 100), RowGroup(9, 18, 4, 300, 90)))
FULL = Full(
    KEY, 2, 3, 20, 1000, (Round(3, 10, 500, 600), Round(10, 20, 700, 1010)), (FILE,), "id", "compact", 5, 1,
    LastRecord(18, DIGEST), 87_600_000, 3,
    (TailRecord(17, DIGEST[:16], DIGEST[-16:], None, tombstone=True), TailRecord(18, DIGEST[:16], DIGEST[-16:], 4)),
    unknown_before_ms=500,
)  # fmt: skip
GROWN = Grown(
    7,
    "read_committed",
    (FULL,),
    {TopicPartition("s", 0): 12},
    (Forgotten("topic=t/partition=0/old", 5),),
    ClockMark("boot", 1, 2, 3, 4, "scale"),
)
CANONICAL = json.loads(render(GROWN))


def parse_bytes(content: Any) -> Grown:
    return parse(json.dumps(content).encode(), NAME, NAME)


def test_there_and_back() -> None:
    assert parse_bytes(CANONICAL) == GROWN
    unsaid = dict.fromkeys(("topic_id", "cleanup_policy", "leader_epoch", "last"))
    unsaid |= {"tail": (), "unknown_before_ms": None}
    unsaid |= dict.fromkeys(("delete_retention_ms", "retention_ms", "min_compaction_lag_ms"))
    bare = replace(FULL, **unsaid)  # type: ignore[arg-type]
    assert parse(render(replace(GROWN, fulls=(bare,))), NAME, NAME).fulls == (bare,)


def _set(*path: Any) -> Callable[[Any], None]:
    *where, name, value = path

    def change(content: Any) -> None:
        for place in where:
            content = content[place]
        content[name] = value

    return change


FULLS: tuple[Any, ...] = ("fulls", 0)
WRONG: dict[str, Callable[[Any], None]] = {
    "a tail that is no list": _set("fulls", 0, "tail", 7),
    "a record of the tail without its key": _set("fulls", 0, "tail", 0, [17, DIGEST[:16], 4, 0]),
    "a digest of the tail that is none": _set("fulls", 0, "tail", 0, 1, "x" * 16),
    "a tail out of order": _set("fulls", 0, "tail", 0, 0, 19),
    "a tail that ends elsewhere": _set("fulls", 0, "tail", 1, 0, 19),
    "a clock of no host": _set("clock", "boot", 7),
    "a clock without its time": _set("clock", "time_ms", None),
    "an older format": _set("format", 2),
    "a newer format": _set("format", 4),
    "another generation than its name": _set("generation", 8),
    "no isolation": _set("isolation", "whatever"),
    "no list": _set("fulls", {}),
    "began later": _set(*FULLS, "began", 8),
    "no topic": _set(*FULLS, "topic", "../t"),
    "no partition": _set(*FULLS, "partition", -1),
    "no ranges": _set(*FULLS, "ranges", []),
    "a gap": _set(*FULLS, "ranges", 1, "start", 11),
    "a range backwards": _set(*FULLS, "ranges", 0, "end", 2),
    "a range beyond the log": _set(*FULLS, "log_end", 19),
    "a log backwards": _set(*FULLS, "log_start", 21),
    "no time": _set(*FULLS, "as_of_ms", 1 << 62),
    "no policy": _set(*FULLS, "cleanup_policy", 3),
    "no retention": _set(*FULLS, "retention_ms", -1),
    "no lag of compaction": _set(*FULLS, "min_compaction_lag_ms", "3"),
    "no epoch": _set(*FULLS, "leader_epoch", "x"),
    "a last record that is none": _set(*FULLS, "last", "offset", 17),
    "no digest of it": _set(*FULLS, "last", "sha256", "x"),
    "a path out of the dump": _set(*FULLS, "files", 0, "path", "../../etc/passwd"),
    "an absolute path": _set(*FULLS, "files", 0, "path", "/etc/passwd"),
    "no size": _set(*FULLS, "files", 0, "size", True),
    "no digest": _set(*FULLS, "files", 0, "sha256", None),
    "no rows": _set(*FULLS, "files", 0, "groups", []),
    "rows without room": _set(*FULLS, "files", 0, "groups", 0, [3, 8, 7, 1, 1]),
    "a group that is none": _set(*FULLS, "files", 0, "groups", 0, [3, 8]),
    "rows in another order": _set(*FULLS, "files", 0, "groups", 1, [8, 18, 4, 1, 1]),
    "rows before the range": _set(*FULLS, "files", 0, "groups", 0, [2, 8, 5, 1, 1]),
    "rows behind the range": _set(*FULLS, "files", 0, "groups", 1, [9, 20, 4, 1, 1]),
    "committed without a number": _set("committed", "s", "0", "x"),
    "a forgotten path out of the dump": _set("forgotten", 0, "path", "../x"),
    "a deleted file that it names": _set("forgotten", 0, "path", FILE.path),
    "forgotten at no time": _set("forgotten", 0, "at_ms", -1),
    "a file twice": lambda content: content["fulls"][0]["files"].append(content["fulls"][0]["files"][0]),
    "a full twice": lambda content: content["fulls"].append({**content["fulls"][0], "files": [], "last": None}),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_refuses_malformed_manifests(change: Callable[[Any], None]) -> None:
    content = copy.deepcopy(CANONICAL)
    change(content)
    with pytest.raises(DumpError, match="kstate cannot read the manifest"):
        parse_bytes(content)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 3', b"\xff", b"[" * 100_000])
def test_refuses_bytes_that_are_no_manifest(data: bytes) -> None:
    with pytest.raises(DumpError, match="kstate cannot read the manifest"):
        parse(data, NAME, NAME)


def test_of_a_topic_made_anew_only_the_partitions_that_it_has() -> None:
    other = replace(FULL, key=TopicPartition("t", 1))
    recreated = replace(FULL, began=5, topic_id="other")
    assert set(Grown(7, "read_committed", (FULL, other)).newest()) == {KEY, other.key}
    assert Grown(7, "read_committed", (recreated, FULL, other)).newest() == {KEY: recreated}


def rows_of(offsets: range) -> Iterator[pa.RecordBatch]:
    """A record at each offset, a few in each batch."""
    for at in range(offsets.start, offsets.stop, 4):
        rows = [
            {"key": f"k{n}".encode(), "value": b"v", "topic": "t", "partition": 0, "offset": n, "timestamp": n,
             "timestampType": 0, "headers": [{"key": "h", "value": b"1"}]}
            for n in range(at, min(at + 4, offsets.stop))
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(rows, schema=schema())


def write_file(folder: Path, name: str, offsets: range) -> GrownFile:
    """A real file with a record at each offset, a few in each row group."""
    relative = f"topic=t/partition=0/{name}.parquet"
    with RangeFile(str(folder / relative), schema(), group_bytes=1) as file:
        for batch in rows_of(offsets):
            file.add(batch)
        grown_file = file.finish(relative)
    assert grown_file is not None
    return grown_file


def commit(folder: Path, generation: int, files: tuple[GrownFile, ...], end: int) -> None:
    full = Full(KEY, 1, 0, end, 1000, (Round(0, end, 900, 1000),), files)
    (folder / name_of(generation)).write_bytes(render(Grown(generation, "read_committed", (full,))))


def offsets_in(part: PartitionDump, uri: str, after: int = -1) -> list[int]:
    offsets: list[int] = []
    for slice_ in slices(part, after=after, until=None, max_bytes=1 << 20)[0]:
        offsets += read_slice(slice_, ("key", "headers"), open_location(uri)[0]).column("offset").to_pylist()
    return offsets


def test_reads_only_the_newest_manifest_and_its_files(tmp_path: Path) -> None:
    first, two = write_file(tmp_path, "one", range(10)), write_file(tmp_path, "two", range(10, 30))
    commit(tmp_path, 1, (first,), 10)
    older = read_dump(str(tmp_path), complete=False, committed_only=False).partitions[KEY]
    (tmp_path / first.path).with_name("two-attempts.parquet").write_bytes(b"no parquet")
    commit(tmp_path, 2, (first, two), 30)
    dump = read_dump(str(tmp_path), complete=False, committed_only=False, check_digests=True)
    assert offsets_in(dump.partitions[KEY], str(tmp_path)) == list(range(30))
    # Who has opened the dump before reads what it was then.
    assert offsets_in(older, str(tmp_path)) == list(range(10))
    # What nobody needs is not opened: damage there is no trouble of who catches up.
    (tmp_path / first.path).write_bytes(b"x" * first.size)
    dump = read_dump(str(tmp_path), complete=False, committed_only=False)
    assert offsets_in(dump.partitions[KEY], str(tmp_path), after=9) == list(range(10, 30))
    with pytest.raises(DumpError, match="cannot decode"):
        offsets_in(dump.partitions[KEY], str(tmp_path))
    with pytest.raises(DumpError, match="SHA-256"):
        read_dump(str(tmp_path), complete=False, committed_only=False, check_digests=True)


@pytest.mark.parametrize("damage", ["gone", "shorter", "a link", "another manifest"])
def test_refuses_files_that_contradict_the_manifest(tmp_path: Path, damage: str) -> None:
    dump = tmp_path / "dump"
    first = write_file(dump, "one", range(10))
    commit(dump, 1, (first,), 10)
    path = dump / first.path
    if damage == "gone":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (dump / "_manifest.json").write_text("{}")
    with pytest.raises(DumpError):
        read_dump(str(dump), complete=False, committed_only=False)


@pytest.mark.parametrize("damage", ["a link", "a link to nothing", "a folder", "a FIFO"])
def test_refuses_links_and_folders_named_like_a_manifest(tmp_path: Path, damage: str) -> None:
    """Left out, an older one would count; followed, one of another dump."""
    dump, other = tmp_path / "dump", tmp_path / "other"
    first = write_file(dump, "one", range(10))
    commit(dump, 1, (first,), 10)
    other.mkdir()
    name = dump / name_of(2)
    if damage == "a folder":
        name.mkdir()
    elif damage == "a FIFO":
        os.mkfifo(name)
    else:
        if damage == "a link":
            commit(other, 2, (first,), 10)
        name.symlink_to(other / name_of(2))
    for read in (
        lambda: read_dump(str(dump), complete=False, committed_only=False),
        lambda: FolderStore(str(dump)).read_newest(),
    ):
        with pytest.raises(DumpError, match="has the name of a manifest, but is") as refusal:
            read()
        assert name_of(2) in refusal.value.message


@pytest.mark.parametrize("generation", [2, MOST_GENERATION])
@pytest.mark.parametrize("data", [b"", b"{}", b'{"format": 3', None])
def test_hint_about_an_unreadable_manifest(tmp_path: Path, generation: int, data: bytes | None) -> None:
    """An older one never counts by itself. The last generation there can be is none: what came after would not count."""
    commit(tmp_path, 1, (write_file(tmp_path, "one", range(10)),), 10)
    if data is None:
        commit(tmp_path, generation, (), 0)
    else:
        (tmp_path / name_of(generation)).write_bytes(data)
    if data is None and generation != MOST_GENERATION:
        assert generation_of(name_of(generation + 1)) == generation + 1
        return
    with pytest.raises(DumpError, match="kstate cannot read the manifest") as refusal:
        read_dump(str(tmp_path), complete=False, committed_only=False)
    assert refusal.value.hint == WHOLE_COPY
    (tmp_path / name_of(generation)).unlink()
    assert read_dump(str(tmp_path), complete=False, committed_only=False).partitions[KEY].rows == 10


def test_a_file_says_the_same_in_its_footer(tmp_path: Path) -> None:
    """What the manifest says of row groups is what reading the footers would have given."""
    commit(tmp_path, 1, (write_file(tmp_path, "one", range(3, 30)),), 30)
    grown = read_dump(str(tmp_path), complete=False, committed_only=False).partitions[KEY]
    (tmp_path / name_of(1)).unlink()
    plain = read_dump(str(tmp_path), complete=True, committed_only=True).partitions[KEY]
    assert [replace(piece, hive=()) for piece in plain.pieces] == list(grown.pieces)
