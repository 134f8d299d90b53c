"""
The replay of a versioned store's changelog against the stores of real releases, row by row and byte by byte.

Histories are random, seeded, and go into the real store as restore batches or as puts. KSTATE_VERSIONED_HISTORIES and
KSTATE_VERSIONED_SEED choose how many and which.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from rocksdict import BlockBasedOptions, Options, Rdict

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
from kstate_cli.formats.versioned import SegmentValue
from kstate_cli.restore.sorting.versioned import NO_TIMESTAMP, VersionedReplay, accepted_mask, segment_id
from kstate_cli.rocks.shadow import Shadow

from .releases import classes, streams_jars
from .support import ALL

pytestmark = [pytest.mark.interop, pytest.mark.rotating(2)]

Record = tuple[bytes, bytes | None, int]
Batch = list[Record]
Rows = dict[bytes, bytes]
Kind = Literal["restored", "put", "reopened"]
KINDS: list[Kind] = ["restored", "restored", "put", "reopened"]
RELEASES = ["4.4.0", "4.3.1", "4.2.1", "3.9.2"] if ALL else ["4.3.1", "3.9.2"]
HISTORIES = int(os.environ.get("KSTATE_VERSIONED_HISTORIES", "210"))
SEED = int(os.environ.get("KSTATE_VERSIONED_SEED", "1"))


@dataclass(frozen=True)
class History:
    """What a store is fed, run by run (it is closed after each) and batch by batch."""

    name: str
    kind: Kind
    retention: int
    interval: int
    runs: list[list[Batch]]

    def job(self, folder: Path) -> str:
        """The line that tells the harness."""
        runs = [
            [[[k.hex(), v if v is None else v.hex(), t] for k, v, t in batch] for batch in run] for run in self.runs
        ]
        return json.dumps({"dir": str(folder / self.name), "retention": self.retention, "interval": self.interval,
                           "put": self.kind == "put", "runs": runs})  # fmt: skip


def history(seed: int) -> History:
    """A random one: late, equal and far-off times, tombstones and empty values."""
    chance = random.Random(seed)
    kind = KINDS[seed % 4]
    retention = chance.choice([0, 7, 60, 60, 500, 5000])
    interval = chance.choice([1, 5, 20, 20, 300])
    pace = chance.choice([1, 3, 30, retention // 8])
    late = chance.choice([0.0, 0.2, 0.5, 0.8])
    jump = chance.choice([0.0, 0.02, 0.1])
    tombstones = chance.choice([0.1, 0.4])
    keys = [f"{n:x}".encode() for n in range(chance.choice([1, 2, 5]))]
    now, content, records = chance.choice([0, 10**12]), dict.fromkeys(keys, 0), []
    for _ in range(chance.randrange(1, 150)):
        now += chance.randrange(pace + 1)
        if chance.random() < jump:
            now += chance.randrange(2 * retention + 100)
        key = chance.choice(keys)
        time = now - chance.randrange(retention + retention // 3 + 2) if chance.random() < late else now
        # A store that was reopened files late records wrongly: see the test of that.
        time = max(time, content[key] if kind == "reopened" else 0)
        content[key] = max(content[key], time)
        value = None if chance.random() < tombstones else chance.randbytes(chance.choice([0, 1, 2, 9]))
        records.append((key, value, time))
    runs = list(cut(chance, records, 2)) if kind == "reopened" else [records]
    return History(
        f"{seed:05d}",
        kind,
        retention,
        interval,
        [list(cut(chance, run, chance.choice([1, 3, 10, 200]))) for run in runs],
    )


def cut(chance: random.Random, records: list[Record], parts: int) -> Iterator[list[Record]]:
    """The records in order, in at most so many parts."""
    cuts = sorted({0, len(records), *(chance.randrange(len(records) + 1) for _ in range(parts - 1))})
    for begin, end in pairwise(cuts):
        yield records[begin:end]


def replay(history: History, *, as_batches: bool) -> Rows:
    """What kstate makes of a history."""
    rows: Rows = {}
    for run in history.runs:
        rows = replay_run(history, run, rows, as_batches)
    return rows


def replay_run(history: History, batches: list[Batch], loaded: Rows, as_batches: bool) -> Rows:
    """One run: the stream time begins anew."""
    records = [record for batch in batches for record in batch]
    mask, end = accepted_mask(np.array([time for _, _, time in records], dtype=np.int64), history.retention)
    sizes = [len(batch) for batch in batches]
    ends = accumulate((max((time for _, _, time in batch), default=NO_TIMESTAMP) for batch in batches), max)
    batch_ends = [end for size, end in zip(sizes, ends, strict=True) for _ in range(size)]
    store = VersionedReplay(history.retention, history.interval, end)
    for physical, row in loaded.items():
        store.load(physical[8:], [(physical, row)])
    for (key, value, time), choice, batch_end in zip(records, mask.tolist(), batch_ends, strict=True):
        if choice:
            store.put(key, value, time, batch_end if as_batches else None)
    rows = dict(store.rows())
    assert list(store.deleted()) == sorted(loaded.keys() - rows.keys())
    return rows


def feed_histories(release: str, histories: list[History], folder: Path) -> None:
    """Let the stores of a release take the histories; each leaves a database."""
    jobs = folder / "jobs.jsonl"
    jobs.write_text("".join(f"{history.job(folder)}\n" for history in histories))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
               "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{classes(release)}:{streams_jars(release)}/*",
               "interop.VersionedRestore", str(jobs)]  # fmt: skip
    subprocess.run(command, check=True, timeout=600)


def real_rows(history: History, folder: Path) -> Rows:
    """The rows that the real store left."""
    with Shadow(folder / history.name / "rocksdb" / "store") as database:
        return dict(database.rows("default"))


def live(history: History, rows: Rows) -> Rows:
    """Without expired segments: a store that was reopened forgets to delete those."""
    end = max((time for batch in history.runs[-1] for _, _, time in batch), default=NO_TIMESTAMP)
    first = segment_id(end - history.retention, history.interval)
    keys = {physical: VersionedKey.from_bytes(physical) for physical in rows}
    return {
        physical: row for physical, row in rows.items() if keys[physical].is_latest or keys[physical].segment >= first
    }


@pytest.fixture
def folder() -> Iterator[Path]:
    """Hundreds of small databases: in memory where that is possible, since each close waits for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="kstate-versioned-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.mark.parametrize("release", RELEASES)
def test_random_histories(release: str, folder: Path) -> None:
    histories = [history(seed) for seed in range(SEED, SEED + HISTORIES)]
    feed_histories(release, histories, folder)
    wrong, differs = [], 0
    for messages in histories:
        expected = replay(messages, as_batches=messages.kind != "put")
        rows = real_rows(messages, folder)
        if messages.kind == "reopened":
            rows = live(messages, rows)
        if rows != expected:
            wrong.append(messages.name)
        differs += expected != replay(messages, as_batches=False)
    records = sum(len(batch) for history in histories for run in history.runs for batch in run)
    print(
        f"{release}: seeds {SEED} to {SEED + HISTORIES - 1}, {records} records; in {differs} histories batches matter"
    )
    assert not wrong
    assert records > 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_batch_may_bring_a_deleted_key_back(release: str, folder: Path) -> None:
    records: Batch = [(b"k", b"a", 10), (b"k", None, 20), (b"k", b"late", 15), (b"z", b"", 5000)]
    at_once = History("at-once", "restored", 1000, 10, [[records]])
    history = History("one-by-one", "restored", 1000, 10, [[[record] for record in records]])
    placement = History("put", "put", 1000, 10, [[records]])
    feed_histories(release, [at_once, history, placement], folder)
    latest = VersionedKey(LATEST_SEGMENT, b"k").to_bytes()
    assert real_rows(at_once, folder)[latest] == bytes.fromhex("000000000000000f") + b"late"
    assert real_rows(at_once, folder) == replay(at_once, as_batches=True)
    # The application itself, small batches and kstate keep the key deleted.
    assert latest not in real_rows(placement, folder)
    assert real_rows(placement, folder) == real_rows(history, folder) == replay(at_once, as_batches=False)


@pytest.mark.parametrize("release", RELEASES)
def test_a_delete_at_the_time_of_its_value_may_be_forgotten(release: str, folder: Path) -> None:
    deleted: Batch = [(b"k", b"value", 20), (b"k", None, 20), (b"k", b"late", 15)]
    alone = History("alone", "put", 1000, 10, [[deleted]])
    after_another = History("after-another", "put", 1000, 10, [[[(b"k", b"older", 10), *deleted]]])
    feed_histories(release, [alone, after_another], folder)
    latest = VersionedKey(LATEST_SEGMENT, b"k").to_bytes()
    assert real_rows(alone, folder) == {latest: bytes.fromhex("000000000000000f") + b"late"}
    assert latest not in real_rows(after_another, folder)
    for messages in (alone, after_another):
        assert real_rows(messages, folder) == replay(messages, as_batches=False)


@pytest.mark.parametrize("release", RELEASES)
def test_a_reopened_store_files_late_records_wrongly(release: str, folder: Path) -> None:
    before: Batch = [(b"k", b"a", 10), (b"k", b"b", 20), (b"k", b"c", 30)]
    late: Batch = [(b"k", b"late", 15)]
    reopened = History("reopened", "restored", 1000, 100, [[before], [late]])
    never_closed = History("never-closed", "restored", 1000, 100, [[before, late]])
    feed_histories(release, [reopened, never_closed], folder)
    with pytest.raises(MalformedBytesError, match="older than the minimum"):
        SegmentValue.from_bytes(real_rows(reopened, folder)[VersionedKey(0, b"k").to_bytes()])
    # kstate knows the rows that it goes on from.
    assert replay(reopened, as_batches=False) == real_rows(never_closed, folder)


@pytest.mark.parametrize("release", RELEASES)
def test_a_crash_between_two_writes_is_mended(release: str, folder: Path) -> None:
    """A put writes the older segment first: after a crash that may be all there is of it, and the record comes again."""
    torn, again, loaded = [], [], {}
    for seed in range(SEED, SEED + 40):
        chance = random.Random(seed)
        times = accumulate(chance.randrange(1, 12) for _ in range(30))
        records: Batch = [(b"k", None if chance.random() < 0.2 else bytes([n]), time) for n, time in enumerate(times)]
        crash = chance.randrange(1, 25)
        start = History(f"torn-{seed}", "restored", 1000, chance.choice([5, 20, 100]), [[records[:crash]]])
        ahead = records[: crash + chance.choice([1, 1, 3])]
        after = replay(replace(start, runs=[[ahead]]), as_batches=False)
        torn.append(start)
        again.append(replace(start, runs=[[records[crash:]]]))
        loaded[start.name] = {at: row for at, row in after.items() if not VersionedKey.from_bytes(at).is_latest}
    feed_histories(release, torn, folder)
    for start in torn:
        overwrite(folder / start.name / "rocksdb" / "store", loaded[start.name])
        loaded[start.name] = real_rows(start, folder)
    feed_histories(release, again, folder)
    rows = [replay_run(messages, messages.runs[0], loaded[messages.name], as_batches=True) for messages in again]
    assert [real_rows(messages, folder) for messages in again] == rows


def overwrite(path: Path, rows: Rows) -> None:
    """Put rows into a closed database, in tables that the RocksDB of 3.9 reads."""
    options = Options(raw_mode=True)
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path), options)}
    tables = BlockBasedOptions()
    tables.set_format_version(5)
    for family in (options, *families.values()):
        family.set_block_based_table_factory(tables)
    database = Rdict(str(path), options, column_families=families)
    for key, row in rows.items():
        database[key] = row
    database.close()
