"""Records that ``kstate seed`` makes of the rows of real releases: a restoration makes the same rows of them again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.keys import CombinedKey, VersionedKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.partitions import partition_of
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.restore.sorting.convert import base_keys
from kstate_cli.restore.sorting.row_values import row_values
from kstate_cli.restore.sorting.versioned import VersionedReplay
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.open import filled, open_whole
from kstate_cli.rows.segment import Databases
from kstate_cli.seed import partitioning
from kstate_cli.seed import rows as seed_rows
from kstate_cli.seed.erasure import (
    KeysToErase,
    RemainingRecords,
    batches_of,
    erase_keys,
    erasure_notes,
    read_keys,
    write_receipt,
)
from kstate_cli.seed.model import PlannedTopic
from kstate_cli.seed.partitioning import (
    Partitioner,
    Partitioning,
    PartitionRule,
    RepartitionedRecords,
    key_form_of,
)
from kstate_cli.seed.records import Record, RecordBatch
from kstate_cli.seed.rows import RowRecords, count_records
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.scan import read_application
from tests.golden import names, unpack

pytestmark = pytest.mark.rotating(6)

INTERVAL_MS = 240_000
"""The segment interval of the versioned stores of the golden directories."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _kind_and_rows(task: Task, store: Store) -> tuple[str, list[Row]]:
    """The kind of a store, and its base rows in the newest layout."""
    with closing(Databases()) as databases:
        reader = open_whole(task, store, [store], databases)
        bounds = reader.layout.key.base_rows
        segments = filled(reader, store)
        return reader.kind, list(chain.from_iterable(segment.scan(*bounds) for segment in segments))


def _restore_rows(kind: str, records: list[Record]) -> list[Row]:
    """The rows that a restoration makes of changelog records."""
    row = store_kind(kind)
    if row.key is KeySchema.VERSIONED:
        # A retention that nothing exceeds: every version stays.
        replay = VersionedReplay(1 << 50, INTERVAL_MS, max(record.timestamp for record in records))
        for record in records:
            replay.put(record.key, record.value, record.timestamp)
        return sorted((key, value) for key, value in replay.rows() if value is not None)
    keys = pa.array([record.key for record in records], pa.binary())
    values = row_values(
        row,
        pa.array([record.value for record in records], pa.binary()),
        np.array([record.timestamp for record in records], dtype=np.int64),
        pa.array([[{"key": key, "value": value} for key, value in record.headers] for record in records], _HEADERS),
        kind,
    )
    if row.key.time_ordered:
        keys = base_keys(row.key, keys)
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def _latest(rows: list[Row]) -> list[Row]:
    return [row for row in rows if VersionedKey.from_bytes(row[0]).is_latest]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", names())
def test_a_restoration_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    app = read_application(unpack(name, tmp_path))
    compared = 0
    for task in app.tasks:
        for store in task.stores:
            if task.is_global or store.empty or not store.kind.certain:
                continue
            kind, rows = _kind_and_rows(task, store)
            records = count_records(RowRecords(task.partition or 0, task, store, (store,), kind))
            written = [record for batch in records.batches() for record in batch]
            assert len(written) == records.records
            if store_kind(kind).key is KeySchema.VERSIONED:
                times = [record.timestamp for record in written]
                assert times == sorted(times)
            restored = _restore_rows(kind, written)
            if records.counts.overlaps:
                # Of a killed application: what newer rows hide of older ones is not written.
                assert "killed" in name
                restored, rows = _latest(restored), _latest(rows)
            assert restored == rows, f"{task.name}/{store.name}: {kind}"
            compared += len(rows)
    assert compared


def test_versions_beyond_memory_are_sorted_by_way_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files of a few versions each the records are the same."""
    app = read_application(unpack("4.3.1-kinds-eos", tmp_path))
    (task,) = (task for task in app.tasks if task.name == "6_1")
    (store,) = task.stores
    records = RowRecords(1, task, store, (store,), "versioned")
    batches = list(records.batches())
    monkeypatch.setattr(seed_rows, "_SORT_BYTES", 1_000)
    assert list(records.batches()) == batches
    assert sum(map(len, batches)) > 20


@pytest.mark.parametrize("merged_bytes", [1, partitioning._MERGED_BYTES])
def test_many_partitions_are_read_once_with_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged_bytes: int
) -> None:
    """However many new partitions there are, and however many sorted parts each old one has."""
    app = read_application(unpack("4.3.1-kinds-eos", tmp_path))
    (task,) = (task for task in app.tasks if task.name == "6_1")
    (store,) = task.stores
    source = RowRecords(1, task, store, (store,), "versioned")
    expected = [record for batch in source.batches() for record in batch]
    # Each part has one entry. Without room in memory, each partition keeps its records in a file.
    monkeypatch.setattr(seed_rows, "_SORT_BYTES", 1)
    monkeypatch.setattr(partitioning, "_LEAST_BATCH_BYTES", 1)
    monkeypatch.setattr(partitioning, "_MERGED_BYTES", merged_bytes)
    readings = []

    def count_reading(*arguments: Any, **options: Any) -> Any:
        readings.append(arguments)
        return open_whole(*arguments, **options)

    monkeypatch.setattr(seed_rows, "open_whole", count_reading)
    rule = PartitionRule(Partitioner(), key_form_of("versioned"))
    changed = Partitioning("versioned", 50, 60, rule)
    targets = [RepartitionedRecords(number, (source,) * 50, changed, 0, 0, 0) for number in range(60)]
    most = before = len(os.listdir("/proc/self/fd"))
    written = []
    for place, batch in batches_of(targets):
        most = max(most, len(os.listdir("/proc/self/fd")))
        assert all(partition_of(record.key, 60) == place for record in batch)
        written += [*batch]
    assert len(readings) == 50
    assert most - before < 2 * 50
    assert sorted(written, key=repr) == sorted(50 * expected, key=repr)


@pytest.mark.parametrize("name", ["4.3.1-kinds-eos", "4.2.1-kinds-alos", "4.3.1-headers-joins-eos"])
def test_a_key_is_erased_with_all_its_windows_and_versions(name: str, tmp_path: Path) -> None:
    """What remains, and what is erased, are those records whose key has that of the record in it."""
    app = read_application(unpack(name, tmp_path))
    erased_kinds = set()
    for task in app.tasks:
        for store in task.stores:
            if task.is_global or store.empty or not store.kind.certain:
                continue
            kind, _ = _kind_and_rows(task, store)
            records = count_records(RowRecords(task.partition or 0, task, store, (store,), kind))
            topic = PlannedTopic("old", "new", store.name, True, (records,), -1, {})
            all_records = [record for batch in records.batches() for record in batch]
            for key in (b"k0002", b"k0003"):
                keys = KeysToErase({"*": frozenset({key})})
                (remaining,) = erase_keys([topic], keys, {store.name: kind}, ())[0].partitions
                remainder = [record for batch in remaining.batches() for record in batch]
                assert isinstance(remaining, RemainingRecords)
                assert remaining.records == len(remainder)
                assert remainder == [record for record in all_records if key not in record.key]
                assert remaining.erased[key] == len(all_records) - len(remainder)
                if len(remainder) < len(all_records):
                    erased_kinds.add(store_kind(kind).key)
    assert len(erased_kinds) >= 5


@dataclass(frozen=True)
class _Keys:
    """Records with these keys, without a store."""

    keys: tuple[bytes, ...]
    partition: int = 0
    without_timestamp: int = 0
    without_key: int = 0

    @property
    def records(self) -> int:
        """Their number."""
        return len(self.keys)

    @property
    def identity(self) -> list[object]:
        """The keys."""
        return [*self.keys]

    def batches(self) -> Iterator[RecordBatch]:
        """Yield one batch."""
        yield RecordBatch.of(Record(key, b"v", 5, []) for key in self.keys)


_TIME = (1_700_000_000_000).to_bytes(8, "big")
_OTHER = b"other" + _TIME + _TIME
_FORMS = {
    "windowed-key": ("key-value", b"person" + _TIME),
    "window": ("key-value", b"person" + _TIME + bytes(4)),
    "session": ("timestamped-key-value", b"person" + _TIME + _TIME),
    "join-side": ("key-value", _TIME + b"\x01" + b"person"),
    "session-as-window": ("window", b"person" + _TIME + _TIME),
}


@pytest.mark.parametrize("form", _FORMS)
def test_a_key_in_the_form_of_another_kind_is_not_kept_silently(form: str) -> None:
    """A store of windowed keys, or a kind that is wrong in the file: the person would stay in the new changelog."""
    kind, key = _FORMS[form]
    topic = PlannedTopic("old", "new", "store", True, (_Keys((key, _OTHER)),), -1, {})
    keys = KeysToErase({"*": frozenset({b"person"})})
    with pytest.raises(Refused) as caught:
        erase_keys([topic], keys, {"store": kind}, ())
    assert "--accept store" in str(caught.value.hint)
    (accepted,) = erase_keys([topic], keys, {"store": kind}, ("store",))
    assert [note for note in erasure_notes([accepted], keys) if "in a different form" in note]
    if store_kind(kind).key.windows:
        # The hint says to correct the kind.
        (corrected,) = erase_keys([topic], keys, {"store": "session"}, ())
        assert [record.key for batch in corrected.partitions[0].batches() for record in batch] == [_OTHER]
        return
    whole = KeysToErase({"store": frozenset({b"person", key})})
    (erased,) = erase_keys([topic], whole, {"store": kind}, ())
    assert [record.key for batch in erased.partitions[0].batches() for record in batch] == [_OTHER]


def test_a_receipt_names_foreign_keys_that_stay(tmp_path: Path) -> None:
    """A subscription belongs to its primary key; the receipt shows that its foreign key is still there."""
    of_person = CombinedKey(b"customer", b"person").to_bytes()
    to_person = CombinedKey(b"person", b"order").to_bytes()
    topic = PlannedTopic("old", "new", "fk-subscription-store", True, (_Keys((of_person, to_person)),), -1, {})
    keys = KeysToErase({"*": frozenset({b"person"})})
    topics = erase_keys([topic], keys, {topic.store: "foreign-key-subscription"}, ())
    assert [record.key for batch in topics[0].partitions[0].batches() for record in batch] == [to_person]
    write_receipt(tmp_path / "receipt", "app", "digest", topics, keys)
    lines = [json.loads(line) for line in (tmp_path / "receipt").read_text().splitlines()]
    assert [(line["type"], line.get("records")) for line in lines] == [("erased", 1), ("kept", 1), ("summary", 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("count", "does not have the form STORE=KEY"),
        ("=k", "does not have the form STORE=KEY"),
        ("count=k\r", "does not have the form STORE=KEY"),
        ("count:long=x", "the key is not a valid long"),
        ("count:nothing=x", "is not a serde"),
    ],
)
def test_a_line_that_names_no_key_is_rejected(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(f"# keys\n{line}\n".encode())
    with pytest.raises(UsageError, match=message):
        read_keys(file)


def test_keys_of_a_file_have_the_bytes_of_their_serdes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"count=a=b \ncount:long=42\n\n*:base64=AP8=\n*=\\x00x\n")
    keys = read_keys(file)
    assert keys.of("count") == {b"a=b ", (42).to_bytes(8, "big"), b"\x00\xff", b"\x00x"}
    assert keys.of("other") == {b"\x00\xff", b"\x00x"}
    assert keys.stores == {"count"}
