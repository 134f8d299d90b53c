"""Sorted files of any slice of any kind, against what a loop over its records makes of it."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstate_cli.change.edit import build_database, verify_database
from kstate_cli.change.plan import BuildDatabase
from kstate_cli.dump_reader import reader
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.slices import cut
from kstate_cli.formats.keys import SessionKey, WindowKey
from kstate_cli.formats.layouts import KeySchema, Logged, ValueLayout
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import StoreKind, store_kind, store_kinds
from kstate_cli.formats.values import Header, encode_headers
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.sorting import row_order
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.sorting.winners import LastOfEachKey
from kstate_cli.restore.staging import digest_of
from kstate_cli.rocks.shadow import Shadow
from tests import sampling

from .slicing import HOUR, MIB, NOW, Headers, job_of, sorted_rows, write_dump

pytestmark = pytest.mark.rotating(2)

KINDS = sorted(kind.name for kind in store_kinds() if kind.is_exact and kind.key is not KeySchema.VERSIONED)
Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]
SAME_LENGTH = st.integers(0, 60).map(lambda number: b"key-%08d" % number)
EIGHT = st.sampled_from([bytes([number, 255 - number]) * 4 for number in range(40)])
SHORT = st.sampled_from([b"", b"a", b"aa", b"b", b"\0", b"\xff"])
VALUE = st.none() | st.sampled_from([b"", b"v", b"w"]) | st.binary(min_size=3, max_size=40)
TIME = st.sampled_from([0, 1, -1, -5, NOW, NOW, NOW + 1, NOW - HOUR, NOW + 3 * HOUR])
HEADERS = st.none() | st.lists(
    st.tuples(st.sampled_from(["h", "", "v", "c", "long" * 20]), st.none() | st.binary(max_size=9)), max_size=5
)


def records_of(kind: StoreKind) -> st.SearchStrategy[list[Record]]:
    """Nulls among the keys, tombstones, empty values, times of every kind, and up to five headers."""
    value = VALUE
    if kind.logged is Logged.BUFFERED:
        value = VALUE.map(lambda data: None if data is None else data + bytes(8))

    def of(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Record]]:
        key = names
        if kind.key.windows:
            key = st.builds(lambda name, at, seq: WindowKey(name, at, seq).to_bytes(), names, AT, st.integers(0, 2))
        elif kind.key.sessions:
            key = st.builds(lambda name, at, more: SessionKey(name, at, at + more).to_bytes(), names, AT, MORE)
        return st.lists(st.tuples(st.none() | key, value, TIME, HEADERS), min_size=1, max_size=60)

    return of(SAME_LENGTH) | of(EIGHT) | of(SHORT) | of(SHORT | SAME_LENGTH)


AT = st.sampled_from([NOW + step * HOUR // 2 for step in range(-6, 6)])
MORE = st.sampled_from([0, 1, HOUR])


def orders_of(count: int) -> st.SearchStrategy[list[int] | None]:
    """Of the rows in their file: as they should be, two exchanged that follow each other, or any."""
    exchanged = st.integers(0, max(count - 2, 0)).map(
        lambda at: [*range(at), *range(at, min(at + 2, count))[::-1], *range(at + 2, count)]
    )
    return st.none() | exchanged | st.permutations(range(count))


def row_value(kind: StoreKind, record: Record) -> bytes:
    _, value, time, headers = record
    assert value is not None
    if kind.logged is Logged.BUFFERED:
        return value[:-8]
    encoded = encode_headers(Header(key, header) for key, header in headers or ())
    stamp = time.to_bytes(8, "big", signed=True)
    return {
        ValueLayout.PLAIN: b"",
        ValueLayout.TIMESTAMPED: stamp,
        ValueLayout.HEADERS: encoded + stamp,
        ValueLayout.HEADERS_SESSION: encoded,
    }[kind.family.layout] + value


def expected_rows(kind: StoreKind, records: Sequence[Record], job: SliceJob) -> tuple[dict[bytes, bytes], int | None]:
    """Rows, and the oldest live segment."""
    last = {record[0]: record for record in records if record[0] is not None}
    read = SessionKey.from_bytes if kind.key.sessions else WindowKey.from_bytes
    times: dict[bytes, int] = {}
    for key in last if kind.key.expires else ():
        at = read(key)
        times[key] = at.end if isinstance(at, SessionKey) else at.start
    oldest = (max(times.values()) - job.retention_ms) // HOUR if times else None
    rows = {}
    for key, record in last.items():
        if record[1] is None or (oldest is not None and times[key] // HOUR < oldest):
            continue
        if kind.key.time_ordered:
            rows[read(key).to_time_first()] = row_value(kind, record)
            rows[read(key).to_key_first()] = b""
        else:
            rows[key] = row_value(kind, record)
    return rows, oldest


BATCH_ROWS = (8, 8_192)
"""Rows that are read together. With few, a row out of order is seen only with a later batch."""


@contextlib.contextmanager
def batches_of(rows: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BATCH_ROWS", rows)
        patch.setattr(reader, "_LEAST_ROWS", 1)
        yield


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with few entries above: who opens a dump lists the folders above it."""
    folder = tmp_path_factory.mktemp("slices") / "a" / "b"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("kind_name", KINDS)
@pytest.mark.parametrize("memory", [64 * MIB, 4_000, 300], ids=["at-once", "waiting-in-a-file", "in-parts"])
@settings(max_examples=12 if sampling.ALL else 4, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), batch_rows=st.sampled_from(BATCH_ROWS))
def test_rows_of_any_records(parent: Path, kind_name: str, memory: int, data: st.DataObject, batch_rows: int) -> None:
    kind = store_kind(kind_name)
    records = data.draw(records_of(kind))
    with tempfile.TemporaryDirectory(dir=parent) as folder, batches_of(batch_rows):
        dump = write_dump(
            Path(folder) / "dump",
            [(key, value) for key, value, *_ in records],
            [time for *_, time, _ in records],
            [headers for *_, headers in records],
            row_group_size=data.draw(st.integers(1, 40)),
            order=data.draw(orders_of(len(records))),
        )
        staging = Path(folder) / "staging"
        staging.mkdir()
        job = replace(job_of(dump, kind_name, staging), memory=memory)
        result = build_sorted_files(job)
        assert all(file.digest == digest_of(file.path) for file in result.files)
        rows, oldest = expected_rows(kind, records, job)
        live = [file for file in result.files if oldest is None or (file.segment or 0) >= oldest * HOUR]
        assert sorted_rows(replace(result, files=tuple(live)), Path(folder) / "database") == rows
        assert (result.records, result.null_keys) == (len(records), sum(key is None for key, *_ in records))
        # Nothing of an attempt that took the rows for ordered.
        assert {str(path) for path in staging.glob("*.sst")} == {file.path for file in result.files}
        assert [path for path in staging.iterdir() if path.suffix not in (".sst", ".done", ".started")] == []


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if store_kind(kind).key.time_ordered and "window" in kind])
def test_a_late_row_of_a_part_that_has_expired(tmp_path: Path, kind: str, batch_rows: int) -> None:
    """Of a part without a live row no value is read; a row of it that comes last in the file is live all the same."""
    live = (0, 30)
    records = [
        (WindowKey(b"key-%06d" % at, NOW + (3 * HOUR if at in live else -50 * HOUR), 0).to_bytes(), b"value")
        for at in range(60)
    ]
    rows = {}
    for name, order in (("ordered", None), ("late", [at for at in range(60) if at != 30] + [30])):
        staging = tmp_path / name
        staging.mkdir()
        dump = write_dump(tmp_path / f"dump-{name}", records, order=order)
        with batches_of(batch_rows):
            result = build_sorted_files(replace(job_of(dump, kind, staging), memory=300))
        assert result.records == len(records)
        rows[name] = sorted_rows(result, tmp_path / f"database-{name}")
    assert rows["late"] == rows["ordered"] and len(rows["late"]) >= len(live)


def test_nothing_of_an_attempt_is_held_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys take more than half of a task's memory."""
    references: list[weakref.ref[LastOfEachKey]] = []

    class Watched(LastOfEachKey):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            assert all(reference() is None for reference in references)
            super().__init__(*args, **kwargs)
            references.append(weakref.ref(self))

    monkeypatch.setattr(row_order, "LastOfEachKey", Watched)
    records = [(b"key-%05d" % at, b"value") for at in range(3_000)]
    dump = write_dump(tmp_path / "dump", records, order=[*range(2_998), 2_999, 2_998])
    (tmp_path / "staging").mkdir()
    result = build_sorted_files(job_of(dump, "key-value", tmp_path / "staging"))
    assert (result.records, len(references)) == (3_000, 2)


@pytest.mark.parametrize("kind", ["key-value", "session"])
def test_each_row_is_written_once_however_small_the_memory_is(tmp_path: Path, kind: str) -> None:
    most = {"key-value": 50_000, "session": 64 * MIB}  # keys of one database are told part by part, and take less
    rng = random.Random(7)
    names = [b"key-%05d" % rng.randrange(1_000) for _ in range(2_500)]
    keys = [SessionKey(name, NOW, NOW + int(name[-1:])).to_bytes() if kind == "session" else name for name in names]
    records = [(key, b"value-%d" % at) for at, key in enumerate(keys)]
    dump = write_dump(tmp_path / "dump", records, row_group_size=250)
    for memory in (64 * MIB, 50_000, 20_000):
        staging = tmp_path / f"staging-{memory}"
        staging.mkdir()
        result = build_sorted_files(replace(job_of(dump, kind, staging), memory=memory))
        assert sum(file.rows for file in result.files) == len({*keys})
        assert (len(result.files) > 1) is (memory < most[kind]), memory
        assert result.records == len(records)
        assert sorted_rows(result, tmp_path / f"database-{memory}") == dict(records)


def test_a_small_memory_makes_parts_and_files(tmp_path: Path) -> None:
    """Else the test above compares nothing new."""
    records: list[tuple[bytes | None, bytes | None]] = [(b"key-%05d" % (n % 900), b"value" * 9) for n in range(3_000)]
    dump = write_dump(tmp_path / "dump", records, row_group_size=500)
    counts = {}
    for memory in (64 * MIB, 100_000, 20_000):
        staging = tmp_path / f"staging-{memory}"
        staging.mkdir()
        result = build_sorted_files(replace(job_of(dump, "key-value", staging), memory=memory))
        assert sorted_rows(result, tmp_path / f"database-{memory}") == {key: value for key, value in records if key}
        counts[memory] = len(result.files)
    assert counts[64 * MIB] == 1
    assert counts[20_000] > counts[100_000] >= 1


@pytest.mark.parametrize("overlap", [True, False])
def test_many_sorted_files_become_a_single_database(tmp_path: Path, overlap: bool) -> None:
    """Where they overlap they are merged; where they do not, they stay the very files that they were."""
    rng = random.Random(5)
    numbers = [rng.randrange(2_000) if overlap else n for n in range(6_000)]
    records = [(b"key-%05d" % n, None if at % 9 == 0 else b"value-%d" % at) for at, n in enumerate(numbers)]
    staging = tmp_path / "staging"
    staging.mkdir()
    rest: Slice | None = job_of(dump := write_dump(tmp_path / "dump", records), "key-value", staging).slice
    files = []
    for number in range(6):
        assert rest is not None
        mine, rest = cut(rest, 1_000 * (number + 1) - 1)
        files += build_sorted_files(replace(job_of(dump, "key-value", staging), slice=mine, number=number)).files
    assert rest is None
    assert len(files) > 4
    assert sum(file.deletes for file in files) > 0
    step = BuildDatabase(
        path="0_0/rocksdb/store",
        kind="key-value",
        release=release("4.3"),
        family="default",
        layers=tuple((file.path,) for file in files),
        rows=sum(file.rows + file.deletes for file in files),
        deletes=sum(file.deletes for file in files),
        offsets=None,
    )
    inodes = {os.stat(file.path).st_ino for file in files}
    staged = tmp_path / "staged"
    staged.mkdir()
    build_database(step, staged, staged)
    verify_database(step, staged, full=True)
    with Shadow(staged / step.path) as shadow:
        assert dict(shadow.rows("default")) == {key: value for key, value in dict(records).items() if value is not None}
    inodes_after = {os.stat(file).st_ino for file in (staged / step.path).glob("*.sst")}
    assert (inodes_after == inodes) is not overlap


def carrying(offset: int) -> list[tuple[str, bytes | None]]:
    return [("v", b"\0"), ("c", Position.from_map({"in": {0: offset}}).to_bytes())]


@pytest.mark.parametrize("memory", [64 * MIB, 300])
def test_positions_are_those_of_live_segments(tmp_path: Path, memory: int) -> None:
    """Of records without a key none, of other headers none; a later record without one changes nothing."""
    window = [WindowKey(b"k", NOW + step * HOUR).to_bytes() for step in (0, 5, 6)]
    keys = [window[1], window[0], window[2], None, window[2], window[1]]
    headers: Headers = [carrying(7), carrying(90), carrying(9), carrying(99), [("v", b"\1"), ("c", b"x")], []]
    records = [(key, b"value") for key in keys]
    dump = write_dump(tmp_path / "dump", records, headers=headers, row_group_size=1)
    (tmp_path / "staging").mkdir()
    result = build_sorted_files(replace(job_of(dump, "window", tmp_path / "staging"), memory=memory))
    hour = NOW // HOUR * HOUR
    assert {segment: position.as_map() for segment, position in result.positions} == {
        hour + 5 * HOUR: {"in": {0: 7}},
        hour + 6 * HOUR: {"in": {0: 9}},
    }
