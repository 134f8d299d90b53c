"""Layers in as many files as RocksDB would make of them: the same rows, and databases that keep these files."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from kstate_cli.change.edit import build_database, verify_database
from kstate_cli.change.plan import FEW_LAYERS, BuildDatabase
from kstate_cli.formats.keys import SessionKey, WindowKey
from kstate_cli.formats.store_kinds import store_kind, store_kinds
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceResult, SortedFile
from kstate_cli.restore.sorting import slice_files
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.staging import digest_of
from kstate_cli.rocks.create import data_family
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import Shadow

from .slicing import HOUR, MIB, NOW, Records, job_of, sorted_rows, write_dump

pytestmark = pytest.mark.rotating(2)

KINDS = sorted(kind.name for kind in store_kinds() if kind.is_exact)


@pytest.fixture(autouse=True)
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file ends with the block that is complete."""
    monkeypatch.setattr(slice_files, "LOOK_ROWS", 1)


def records_of(kind: str, seed: int = 0) -> Records:
    """So many that each segment has several blocks of rows; every ninth is a tombstone."""
    rng, schema = random.Random(f"{kind} {seed}"), store_kind(kind).key
    records = []
    for at in range(600):
        name = b"key-%05d" % rng.randrange(400)
        time = NOW + rng.randrange(2) * HOUR
        if schema.windows:
            name = WindowKey(name, time, 0).to_bytes()
        elif schema.sessions:
            name = SessionKey(name, time, time + 1).to_bytes()
        records.append((name, None if at % 9 == 0 else rng.randbytes(100)))
    return records


def sort_slice(
    tmp_path: Path,
    kind: str,
    name: str,
    file_bytes: int,
    memory: int = 64 * MIB,
    seed: int = 0,
    *,
    deletes: bool = False,
    existing: tuple[int | None, ...] = (),
) -> SliceResult:
    dump = tmp_path / "dump"
    if not dump.exists():
        write_dump(dump, records_of(kind, seed))
    (tmp_path / name).mkdir()
    job = replace(job_of(dump, kind, tmp_path / name), file_bytes=file_bytes, memory=memory, tombstones=deletes)
    return build_sorted_files(replace(job, existing=existing))


def by_layer(result: SliceResult) -> dict[tuple[int | None, int], list[SortedFile]]:
    several: dict[tuple[int | None, int], list[SortedFile]] = {}
    for file in result.files:
        several.setdefault((file.segment, file.layer), []).append(file)
    return several


@pytest.mark.parametrize("memory", [64 * MIB, 40_000], ids=["at-once", "in-parts"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_layer_rise_and_have_the_rows_of_a_single_file(tmp_path: Path, kind: str, memory: int) -> None:
    whole = sort_slice(tmp_path, kind, "whole", 0, memory)
    parted = sort_slice(tmp_path, kind, "parted", 1, memory)
    single, several = by_layer(whole), by_layer(parted)
    assert all(len(files) == 1 for files in single.values())
    assert several.keys() == single.keys()
    assert max(len(files) for files in several.values()) > 3
    for layer, files in several.items():
        (file,) = single[layer]
        database = tmp_path / Path(file.path).stem
        together = sorted_rows(replace(parted, files=tuple(files)), database / "parted")
        ranges = key_ranges(database / "parted")
        # The database gives each file the next number, so this is the order in which the layer lists them.
        assert len(ranges) == len(files)
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
        assert together == sorted_rows(replace(whole, files=(file,)), database / "whole")
        assert sum(file.rows for file in files) == file.rows == len(together)
        assert all(file.digest == digest_of(file.path) and file.size == os.path.getsize(file.path) for file in files)
    assert {str(path) for path in (tmp_path / "parted").glob("*.sst")} == {file.path for file in parted.files}
    assert replace(parted, files=(), attempt="", seconds=0.0) == replace(whole, files=(), attempt="", seconds=0.0)


def key_ranges(database: Path) -> list[tuple[bytes, bytes]]:
    """Return the lowest and the highest key of each of its SSTs, in the order in which it took them in."""
    with contextlib.closing(Rdict(str(database), Options(raw_mode=True))) as handle:
        return [(file["start_key"], file["end_key"]) for file in sorted(handle.live_files(), key=itemgetter("name"))]


def step_of(*layers: Sequence[SortedFile]) -> BuildDatabase:
    files = [file for layer in layers for file in layer]
    return BuildDatabase(
        path="0_0/rocksdb/store",
        kind="key-value",
        release=release("4.3"),
        family=data_family("key-value"),
        layers=tuple(tuple(file.path for file in layer) for layer in layers),
        rows=sum(file.rows + file.deletes for file in files),
        deletes=sum(file.deletes for file in files),
        offsets=None,
    )


def test_a_database_keeps_the_files_of_few_layers(tmp_path: Path) -> None:
    """A level of RocksDB for each, however many files they are; a later one wins, and its deletes do."""
    made_of: list[tuple[SortedFile, ...]] = []
    rows: dict[bytes, bytes] = {}
    for number in range(FEW_LAYERS):
        (tmp_path / str(number)).mkdir()
        result = sort_slice(tmp_path / str(number), "key-value", "staging", 1, seed=number, deletes=number > 0)
        made_of.append(result.files)
        for key, value in records_of("key-value", number):
            assert key is not None
            rows.pop(key, None)
            rows |= {} if value is None else {key: value}
    step = step_of(*made_of)
    assert step.stays and step.deletes > 50
    inodes = {os.stat(file.path).st_ino for files in made_of for file in files}
    staged = tmp_path / "staged"
    staged.mkdir()
    build_database(step, staged, staged)
    verify_database(step, staged, full=True)
    inodes_after = {os.stat(file).st_ino for file in (staged / step.path).glob("*.sst")}
    assert inodes_after == inodes
    with Shadow(staged / step.path) as shadow:
        assert dict(shadow.rows(step.family)) == rows


@pytest.mark.parametrize("kind", ["key-value", "window", "time-ordered-window", "versioned", "grace-buffer"])
def test_database_with_rows_gets_a_single_file_per_layer(tmp_path: Path, kind: str) -> None:
    """A new segment of the same store is a new database."""
    plain = sort_slice(tmp_path, kind, "plain", 1)
    segments = sorted({file.segment for file in plain.files}, key=str)
    parted = sort_slice(tmp_path, kind, "parted", 1, existing=(segments[0],))
    of_segment = {segment: [file for file in parted.files if file.segment == segment] for segment in segments}
    assert len(of_segment[segments[0]]) == 1
    assert all(len(of_segment[segment]) > 3 for segment in segments[1:])
    assert len(segments) == (2 if "window" in kind else 1)


def test_entries_of_a_layer_of_many_files_are_counted(tmp_path: Path) -> None:
    """Nothing was merged: a file too few is an error, however many there are."""
    files = sort_slice(tmp_path, "key-value", "staging", 1).files
    assert len(files) > FEW_LAYERS + 1
    step = step_of(files)
    staged = tmp_path / "staged"
    staged.mkdir()
    build_database(replace(step, layers=(step.layers[0][:-1],)), staged, staged)
    with pytest.raises(RocksError, match="entries, but the sorted files have"):
        verify_database(step, staged, full=False)
