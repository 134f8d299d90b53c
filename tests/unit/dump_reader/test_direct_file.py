"""Files around the page cache: the same rows, the same digests, and each block from the disk once."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.direct_io import PAGE_BYTES
from kstate_cli.dump_reader import digests_beside, direct_file, footers
from kstate_cli.dump_reader.digests_beside import DigestsBeside
from kstate_cli.dump_reader.direct_file import DirectFile, larger_than_cache
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.open_files import OpenFiles, Passage
from kstate_cli.dump_reader.reader import iter_slice
from kstate_cli.signals import FullPool

from .support import ALL, all_tables, several, write
from .test_reader import LOCAL, whole

BLOCK = PAGE_BYTES
ROWS = 4_000
FOOTER = (64 << 10) // BLOCK + 2
"""Blocks that pyarrow reads of the end of a file, before anything else."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that a small file has many."""
    monkeypatch.setattr(direct_file, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(digests_beside, "BLOCK_BYTES", BLOCK)
    yield
    assert not [one.name for one in threading.enumerate() if one.name == "digests"]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often each block of a file was read."""
    counted: Counter[tuple[str, int]] = Counter()

    def counting(read: Callable[[int, memoryview, int], int]) -> Callable[[int, memoryview, int], int]:
        def counted_read(descriptor: int, buffer: memoryview, begin: int) -> int:
            counted[os.readlink(f"/proc/self/fd/{descriptor}"), begin // BLOCK] += 1
            return read(descriptor, buffer, begin)

        return counted_read

    for module in (direct_file, digests_beside):
        monkeypatch.setattr(module, "read_into", counting(module.read_into))
    return counted


def large(path: Path, row_group_size: int = 1_000, **options: Any) -> Path:
    """One file of some row groups, values random, so that nothing makes it small."""
    rng = random.Random(3)
    table = pa.concat_tables([several()] * 20).slice(0, ROWS)
    columns = {
        "key": pa.array([b"key-%05d" % rng.randrange(900) for _ in range(ROWS)]),
        "value": pa.array([rng.randbytes(rng.choice([0, 40, 200])) for _ in range(ROWS)], pa.binary()),
        "topic": pa.array([table.column("topic")[0].as_py()] * ROWS),
        "partition": pa.array([0] * ROWS, pa.int32()),
        "offset": pa.array(range(ROWS), pa.int64()),
        "timestamp": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
    }
    path.mkdir()
    pq.write_table(pa.table(columns), path / "a.parquet", row_group_size=row_group_size, **options)
    return path


def expected_of(folder: Path) -> list[tuple[str, str]]:
    return [(str(one), hashlib.sha256(one.read_bytes()).hexdigest()) for one in sorted(folder.rglob("*.parquet"))]


def rows_of(part: Slice, columns: tuple[str, ...], passage: Passage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.concat_tables(all_tables(part, columns, 300, 100_000, passage)).to_pylist()
    return found


@pytest.mark.parametrize("path", ["a", "b"])
def test_a_file_like_any_other(tmp_path: Path, path: str) -> None:
    data = random.Random(path).randbytes(10 * BLOCK if path == "a" else 10 * BLOCK + 77)
    (tmp_path / path).write_bytes(data)
    rng = random.Random(11)
    with (
        FullPool(2, "read-ahead") as pool,
        DirectFile(str(tmp_path / path), pool) as file,
        open(tmp_path / path, "rb") as it,
    ):
        assert file.readable() and file.seekable()
        for at in range(300):
            if at % 50 == 0:
                bounds = sorted(rng.randrange(len(data)) for _ in range(6))
                file.expect([[(bounds[0], bounds[1]), (bounds[1], bounds[2])], [(bounds[3], bounds[4])]])
            if at % 70 == 0:
                file.rest()
            whence = rng.choice([os.SEEK_SET, os.SEEK_END])
            place = rng.randrange(len(data) + 100)
            assert file.seek(place - (len(data) if whence else 0), whence) == it.seek(place)
            size = rng.choice([-1, 0, 1, 100, BLOCK, 3 * BLOCK])
            assert bytes(file.read(size)) == it.read(size)
            assert file.tell() == it.tell()


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"rows_per_group": 10},
    {"together": True},
    {"shuffle": 1},
    {"duplicates": 30},
    {"hive": True},
]


@pytest.mark.parametrize("columns", [ALL, ("key",), ("value",)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_rows_and_digests_of_any_layout(layout: dict[str, Any], columns: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "d", several(), **layout)
    part = whole(folder)
    plain = rows_of(part, columns, Passage())
    with DigestsBeside(expected_of(folder)) as digests:
        passage = Passage(direct=True, listener=digests)
        for _ in range(2):  # a slice may be gone through as often as it likes
            assert rows_of(part, columns, passage) == plain
        digests.finish()


@pytest.mark.parametrize(
    "options", [{}, {"compression": "none", "use_dictionary": ["topic"]}, {"row_group_size": 4_000}]
)
def test_each_block_is_read_once(options: dict[str, Any], tmp_path: Path, reads: Counter[tuple[str, int]]) -> None:
    """By the reader and for the digest together; a few at the borders of row groups twice."""
    folder = large(tmp_path / "d", **options)
    part = whole(folder)
    ((path, _),) = expected = expected_of(folder)
    blocks = -(-os.path.getsize(path) // BLOCK)
    assert blocks > 40
    with DigestsBeside(expected) as digests:
        passage = Passage(direct=True, listener=digests)
        assert len(rows_of(part, ("value", "timestamp", "offset"), passage)) == ROWS
        digests.finish()
    assert {number for _, number in reads} >= {*range(blocks)}
    groups = pq.ParquetFile(path).num_row_groups
    assert sum(reads.values()) <= blocks + FOOTER + 8 * groups, sorted(reads.items())


def test_of_the_keys_alone_nothing_else_is_read(tmp_path: Path, reads: Counter[tuple[str, int]]) -> None:
    folder = large(tmp_path / "d", compression="none", use_dictionary=["topic"])
    blocks = -(-os.path.getsize(folder / "a.parquet") // BLOCK)
    with DigestsBeside(expected_of(folder)) as digests:
        passage = Passage(direct=True, listener=digests)
        rows_of(whole(folder), ("key",), passage)
        with_offsets = sum(reads.values())
        assert with_offsets < blocks * 2 // 3
        # They were seen to rise: of them nothing is read any more.
        reads.clear()
        rows_of(whole(folder), ("key",), passage)
        offsets = ROWS * 8 // BLOCK
        assert offsets > 3
        assert sum(reads.values()) <= with_offsets - offsets


@pytest.mark.parametrize("read", ["all", "keys", "nothing"])
@pytest.mark.parametrize("part", [0.3, 0.5, 0.7])
def test_rot_is_told_wherever_it_is(part: float, read: str, tmp_path: Path) -> None:
    """A bit in a value is still Parquet."""
    folder = large(tmp_path / "d", compression="none", use_dictionary=["topic"])
    expected = expected_of(folder)
    data = bytearray((folder / "a.parquet").read_bytes())
    value = pq.read_table(folder / "a.parquet").column("value")[int(ROWS * part)].as_py() or b""
    at = data.index(value, len(data) // 5) if len(value) > 9 else int(len(data) * part)
    data[at] ^= 1
    (folder / "a.parquet").write_bytes(data)
    with DigestsBeside(expected) as digests:
        passage = Passage(direct=True, listener=digests)
        if read != "nothing":
            rows_of(whole(folder), ("key", "value") if read == "all" else ("key",), passage)
        with pytest.raises(DumpError, match=r"its SHA-256 differs") as told:
            digests.finish()
    assert "a.parquet" in str(told.value.where)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with DigestsBeside([(str(tmp_path / "gone.parquet"), "0" * 64)]) as digests:
        for number in range(100):
            digests.offer(str(tmp_path / "gone.parquet"), 10 + number, memoryview(b"x" * BLOCK))
        with pytest.raises(DumpError, match=r"cannot be read: .*No such file") as told:
            digests.finish()
    assert "gone.parquet" in str(told.value.where)


class Block(bytearray):
    """Memory that can be counted."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def test_what_is_held_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of all of them than a task's memory has room for (restore/running/prepare.py)."""
    alive: WeakSet[Block] = WeakSet()
    most = [0]

    def counted(size: int) -> memoryview:
        block = Block(size)
        alive.add(block)
        most[0] = max(most[0], len(alive))
        return memoryview(block)

    monkeypatch.setattr(footers, "_BUFFER_BYTES", BLOCK)
    for module in (direct_file, digests_beside):
        monkeypatch.setattr(module, "aligned", counted)
        # Such memory is at the beginning of no page.
        monkeypatch.setattr(module, "open_direct", os.open)
    folders = [large(tmp_path / str(number), compression="none", use_dictionary=["topic"]) for number in range(10)]
    pieces = [whole(folder).pieces[0] for folder in folders]
    columns = "value", "timestamp", "offset"
    with DigestsBeside([one for folder in folders for one in expected_of(folder)]) as digests:
        with OpenFiles(LOCAL, direct=True, listener=digests) as files:
            for piece in [*pieces, *pieces]:
                parquet = files.get(piece, frozenset(columns))
                rows = [*parquet.iter_batches(100, row_groups=[*piece.row_groups], columns=[*columns])]
                assert sum(len(one) for one in rows) == piece.rows
        digests.finish()
    assert 10 < most[0] <= 48


def test_who_leaves_early_waits_for_nothing(tmp_path: Path) -> None:
    """And no thread stays: the fixture looks."""
    folder = large(tmp_path / "d")
    with pytest.raises(KeyboardInterrupt), DigestsBeside(expected_of(folder)) as digests:
        tables = iter_slice(whole(folder), ALL, LOCAL, 300, 100_000, Passage(direct=True, listener=digests))
        next(tables)
        raise KeyboardInterrupt


def test_larger_than_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(1_000))
        paths.append(str(tmp_path / name))
    for memory, larger in ((2_664, True), (2_668, False)):
        monkeypatch.setattr(direct_file, "memory_here", lambda memory=memory: memory)
        assert larger_than_cache(paths) is larger
    assert not larger_than_cache([*paths, str(tmp_path / "gone")])
