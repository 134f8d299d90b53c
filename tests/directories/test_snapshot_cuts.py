"""Cuts of a database that a process writes: files vanish, a MANIFEST is half written, segments come and go."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rocksdict import BottommostLevelCompaction, CompactOptions, Options, Rdict, WriteBatch, WriteOptions

from kstate_cli.formats.metadata_files import families_with_tables, live_tables, torn, whole_records
from kstate_cli.rocks.files import is_sst
from kstate_cli.snapshot.cuts import CHANGING, Cuts, cut_task, open_held
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.problems import Place
from tests.golden import unpack

from .support import tree_hash

pytestmark = pytest.mark.rotating(6)

PLACE = Place(("0_0", "rocksdb", "count"))
STORES = ("kv-timestamped", "window-count")


def _manifest(path: Path) -> Path:
    return path / (path / "CURRENT").read_text().strip()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack("4.3.1-kinds-eos", tmp_path / "state")


def test_every_cut_through_a_manifest_ends_with_a_whole_record(app: Path) -> None:
    """A record is being written at any moment: the beginning up to the last whole one is what RocksDB would read."""
    data = _manifest(app / "0_0" / "rocksdb" / "kv-timestamped").read_bytes()
    assert whole_records(data) == data
    ends = set()
    for size in range(len(data) + 1):
        whole = whole_records(data[:size])
        assert data.startswith(whole) and len(whole) <= size
        assert not whole or torn(whole) is None
        ends.add(len(whole))
    # Each record once: none is skipped, and none is cut in two.
    assert len(ends) > 3 and whole_records(data[:-1]) != data
    assert live_tables(data) == live_tables(whole_records(data))


def test_a_family_that_was_emptied_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = Rdict(str(path), Options(raw_mode=True))
    db.create_column_family("newer", Options(raw_mode=True))
    db[b"a"] = b"1"
    db.flush()
    del db[b"a"]
    db.flush()
    forced = CompactOptions()
    forced.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    db.compact_range(None, None, forced)
    data = _manifest(path).read_bytes()
    assert not live_tables(data).get(0)
    assert list(families_with_tables(data).values()) == ["default"]
    newer = db.get_column_family("newer")
    newer[b"b"] = b"2"
    newer.flush()
    assert sorted(families_with_tables(_manifest(path).read_bytes()).values()) == ["default", "newer"]
    del newer
    db.close()


@dataclass
class _Progress:
    written: int = 0
    """Rows that are written."""
    allowed: int = 300
    """Rows that may be written: without it a slow reader meets thousands of SSTs, and no descriptor is left."""


@contextmanager
def _writing(path: Path) -> Iterator[_Progress]:
    """Write to both column families in one batch each until the block ends: RocksDB flushes after some 200 rows.

    Not by hand: ``Flush`` of one column family flushes that one alone, also with atomic_flush. Streams never calls it.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_atomic_flush(True)
    options.set_write_buffer_size(1 << 16)
    db = Rdict(str(path), options)
    db.create_column_family("offsets", Options(raw_mode=True))
    handles = [db.get_column_family_handle("default"), db.get_column_family_handle("offsets")]
    no_wal = WriteOptions()
    no_wal.disable_wal = True  # type: ignore[method-assign,assignment]
    stop, progress = threading.Event(), _Progress()

    def write() -> None:
        while not stop.is_set():
            if progress.written >= progress.allowed:
                time.sleep(0.001)
                continue
            batch = WriteBatch(raw_mode=True)
            number = progress.written.to_bytes(8, "big")
            batch.put(number, number * 40, handles[0])
            batch.put(b"app-count-changelog-0", number, handles[1])
            db.write(batch, no_wal)
            progress.written += 1
            if progress.written % 400 == 0:
                db.compact_range(None, None)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield progress
    finally:
        stop.set()
        thread.join()
        handles.clear()
        db.close()


def test_rows_and_offset_of_a_cut_share_a_moment(tmp_path: Path) -> None:
    """Flushes and compactions run all the time: each cut has exactly the rows up to its offset."""
    path = tmp_path / "app" / "0_0" / "rocksdb" / "count"
    path.parent.mkdir(parents=True)
    offsets = set()
    with _writing(path) as progress:
        while progress.written < progress.allowed:
            time.sleep(0.01)
        # Under load an attempt may meet a compaction, or the same flush again: until there were enough moments.
        for _ in range(100):
            if len(offsets) > 6:
                break
            progress.allowed = progress.written + 4_000
            with Cuts(tmp_path / "app") as cuts:
                database = cuts.read(path, None, PLACE)
                if database is None or database.offsets is None or not database.offsets.offsets:
                    continue
                (offset,) = database.offsets.offsets.values()
                # The SSTs are read again after RocksDB may have deleted them.
                copy = tmp_path / "copy"
                copy.mkdir()
                for name, file in cuts.files(database).items():
                    if file.descriptor is None:
                        shutil.copy(database.path / name, copy / name)
                        continue
                    with os.fdopen(open_held(file), "rb") as source:
                        (copy / name).write_bytes(source.read())
                read = Rdict(str(copy), Options(raw_mode=True), column_families={
                    "default": Options(raw_mode=True), "offsets": Options(raw_mode=True)})  # fmt: skip
                rows = [int.from_bytes(key, "big") for key in _keys(read)]
                read.close()
                shutil.rmtree(copy)
                assert rows == list(range(offset + 1))
                offsets.add(offset)
    assert len(offsets) > 6


def _keys(db: Rdict) -> list[bytes]:
    iterator = db.iter()
    iterator.seek_to_first()
    keys = []
    while iterator.valid():
        keys.append(iterator.key())
        iterator.next()
    iterator.status()
    return keys


def test_a_cut_changes_nothing_and_closes_every_file(app: Path) -> None:
    before, descriptors = tree_hash(app), set(os.listdir("/proc/self/fd"))
    with Cuts(app) as cuts:
        task = cut_task(cuts, "0_0", app / "0_0", STORES, list, at_least_once=True)
        assert not isinstance(task, str) and task is not None, task
    assert tree_hash(app) == before
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_a_database_that_never_settles_is_named(app: Path) -> None:
    path = app / "0_0" / "rocksdb" / "kv-timestamped"
    for name in filter(is_sst, os.listdir(path)):
        # As an SST that a compaction removes again and again: the MANIFEST names it.
        (path / name).unlink()
    with Cuts(app) as cuts:
        outcome = cut_task(cuts, "0_0", app / "0_0", STORES, list, at_least_once=True)
    assert isinstance(outcome, str) and "kv-timestamped" in outcome and CHANGING in outcome


def test_rows_in_a_write_ahead_log_are_named(app: Path) -> None:
    path = app / "0_0" / "rocksdb" / "kv-timestamped"
    (path / "000099.log").write_bytes(b"x" * 64)
    with Cuts(app) as cuts:
        outcome = cut_task(cuts, "0_0", app / "0_0", STORES, list, at_least_once=True)
    assert isinstance(outcome, str) and "000099.log" in outcome


def test_a_task_that_is_deleted_and_created_again_starts_again(app: Path) -> None:
    """The offsets that were read first would be past the rows of the new databases."""
    task, copy, reads = app / "0_0", app / "copy", []
    shutil.copytree(task, copy)

    class Replaced(Cuts):
        def read(self, path: Path, start: int | None, place: Place) -> Database | None:
            if not reads:
                shutil.rmtree(task)
                copy.rename(task)
            reads.append(path)
            return super().read(path, start, place)

    with Replaced(app) as cuts:
        outcome = cut_task(cuts, "0_0", task, STORES, list, at_least_once=True)
        assert not isinstance(outcome, str) and outcome is not None, outcome
    assert len(reads) == 2 * len(set(reads))


def test_a_segment_that_is_created_meanwhile_starts_the_task_again(app: Path) -> None:
    store = app / "0_0" / "window-count"
    segments = sorted(store.iterdir())
    moved = app / "elsewhere"
    segments[-1].rename(moved)

    class Late(Cuts):
        def read(self, path: Path, start: int | None, place: Place) -> Database | None:
            database = super().read(path, start, place)
            if path.parent == store and moved.exists():
                moved.rename(segments[-1])
            return database

    with Late(app) as cuts:
        task = cut_task(cuts, "0_0", app / "0_0", STORES, list, at_least_once=True)
        assert not isinstance(task, str) and task is not None, task
        (windows,) = [each.offsets.store for each in task.stores if each.offsets.store.name == "window-count"]
        assert [database.path.name for database in windows.databases] == [path.name for path in segments]
