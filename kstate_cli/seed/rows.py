"""Turn the rows of a store into records of its changelog: the reverse of a restoration (``RecordConverters``).

Kafka Streams logs the value without timestamp and headers, which become those of the record, and the key in the form
that is not ordered by time (``ChangeLogging*Store``). A versioned store logs each version with the time from which it
is valid. It skips records that are older than its history, so its versions are written in the order of time over all
keys.
"""

from __future__ import annotations

import heapq
import io
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

from kstate_cli import temporary
from kstate_cli.formats.binary import MAX_I64, MalformedBytesError
from kstate_cli.formats.keys import JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.formats.values import BufferValue
from kstate_cli.formats.versioned import LatestValue, SegmentValue
from kstate_cli.rocks.health import current
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.open import filled, open_whole
from kstate_cli.rows.records import Layout, header_pairs
from kstate_cli.rows.segment import Databases, Segment, StoreReader
from kstate_cli.rows.values import FOREVER
from kstate_cli.seed.records import Record, RecordBatch
from kstate_cli.statedir.model import Database, Store, Task

if TYPE_CHECKING:
    import pyarrow as pa

NO_TIMESTAMP: Final = -1
"""The timestamp of a record without one, which the client passes on unchanged."""
_BATCH_ROWS: Final = 4_096
_BATCH_BYTES: Final = 16 << 20
_SORT_BYTES: Final = 64 << 20
"""Rows or records that are sorted in memory; more go to a temporary file, sorted."""
_PART_BUFFER_BYTES: Final = 32 << 10
"""The buffer for each sorted part of a file."""
_SORTABLE_BYTES: Final = 200
"""Memory of an entry beside key and data: a tuple, two objects of bytes and an int."""
_SEQUENCE_BYTES: Final = 4
_NO_SEQUENCE: Final = bytes(_SEQUENCE_BYTES)
"""``seq:i32`` at the end of a window key."""
_TimedKey = TypeVar("_TimedKey", WindowKey, SessionKey)
_NO_BUFFER_TIME: Final = bytes(8)
"""``RocksDBTimeOrderedKeyValueBuffer`` logs a time behind the ``BufferValue``, which it never reads."""


@dataclass(slots=True)
class RowCounts:
    """What a first pass over the records counts."""

    records: int = 0
    zero: int = 0
    """Records with timestamp 0, which the client would replace."""
    without_time: int = 0
    negative: int = 0
    """Records with a timestamp below -1, which no broker accepts."""
    oldest_ms: int | None = None
    """The lowest timestamp above 0."""
    overlaps: int = 0
    """Rows of versions that overlap a newer one, which hides a part of them."""
    duplicates: bool = False
    """Whether a key of a window has a sequence number: only stores that retain duplicates count from 1."""

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        timestamp = record.timestamp
        if timestamp > 0:
            if self.oldest_ms is None or timestamp < self.oldest_ms:
                self.oldest_ms = timestamp
        elif timestamp == 0:
            self.zero += 1
        elif timestamp == NO_TIMESTAMP:
            self.without_time += 1
        else:
            self.negative += 1


@dataclass(frozen=True, slots=True)
class RowRecords:
    """The records of one store of one task: a partition of its changelog."""

    partition: int
    task: Task
    store: Store
    others: tuple[Store, ...]
    """The stores of that name in all tasks: their rows may prove the kind of an empty one."""
    kind: str
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def records(self) -> int:
        """The number of records."""
        return self.counts.records

    @property
    def without_timestamp(self) -> int:
        """The records with timestamp 0."""
        return self.counts.zero

    @property
    def without_key(self) -> int:
        """None: every row has a key."""
        return 0

    @property
    def identity(self) -> list[object]:
        """The files of its databases: RocksDB never writes to an SST again, and numbers every new one."""
        return [self.task.name, self.store.name, self.kind, self.records, list(map(_files_of, self.store.databases))]

    @property
    def newest(self) -> None:
        """All records are written."""
        return

    def tables(self, batch_bytes: int) -> Iterator[pa.Table]:
        """Yield the records in their order as tables. Raises as batches."""
        import pyarrow as pa

        schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64())])
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        for batch in self.batches(batch_bytes):
            table = pa.table([batch.keys, batch.values, batch.timestamps], schema=schema)
            named = [[{"key": name, "value": value} for name, value in own] for own in batch.headers]
            yield table.append_column("headers", pa.array(named, headers))

    def key_tables(self) -> Iterator[pa.Table]:
        """Yield key and timestamp of all records. Raises as batches."""
        return (table.select(["key", "timestamp"]) for table in self.tables(_BATCH_BYTES))

    def batches(self, batch_bytes: int = _BATCH_BYTES) -> Iterator[RecordBatch]:
        """Yield the records in their order. Raises StoreUnreadable, and HostError for a fault of this host."""
        with closing(Databases()) as databases:
            reader = open_whole(self.task, self.store, self.others, databases, kind=self.kind)
            # A small batch means that many partitions are read at a time.
            records = _records(reader, self.store, self.counts, min(_SORT_BYTES, batch_bytes))
            if reader.layout.key is KeySchema.VERSIONED:
                # The sort has read all rows, so the database need not stay open beside those of other partitions.
                records = chain([*islice(records, 1)], records)
                databases.close()
            batch: list[Record] = []
            size = 0
            for record in records:
                batch.append(record)
                size += len(record.key) + len(record.value or b"")
                # By bytes too: values of a megabyte must not be taken by the thousand.
                if len(batch) >= _BATCH_ROWS or size >= batch_bytes:
                    yield RecordBatch.of(batch)
                    batch, size = [], 0
            if batch:
                yield RecordBatch.of(batch)


def count_records(records: RowRecords) -> RowRecords:
    """Read all records once, and count them: nothing is written before every row was read."""
    numbered = store_kind(records.kind).key.windows
    for batch in records.batches():
        for record in batch:
            records.counts.add(record)
            if numbered and record.key[-_SEQUENCE_BYTES:] != _NO_SEQUENCE:
                records.counts.duplicates = True
    return records


def _files_of(database: Database) -> list[object]:
    """Return what changes with every write to a database, and stays in a copy of it: no times and no inodes."""
    manifest = current(database.path).stated_name
    size = -1
    if manifest is not None:
        # The MANIFEST has the last sequence number and every file: it grows or is replaced with each change.
        size = (database.path / manifest).stat().st_size
    files = [[family, [[file.name, file.size] for file in files]] for family, files in sorted(database.live.items())]
    return [database.segment_start, manifest, size, files]


def _records(reader: StoreReader, store: Store, counts: RowCounts, held_bytes: int) -> Iterator[Record]:
    """Return the records of a store: by segment and key, or by time for versions.

    ``held_bytes``: of versions that stay in memory once they are sorted.
    """
    segments = filled(reader, store)
    layout = reader.layout
    if not layout.families:
        # A store without rows, whose kind nothing shows.
        return iter(())
    if layout.key.expires:
        # Raises if a row belongs to another segment: Streams would not find it, so it is no row of the store.
        reader.between(NO_TIMESTAMP, FOREVER)
    if layout.key is KeySchema.VERSIONED:
        # One database has all logical segments of the store.
        return chain.from_iterable(
            _decoded(segment, layout, lambda rows: _versions_in_order(map(_row_of_key, rows), counts, held_bytes))
            for segment in segments
        )
    convert = _converter(layout)
    return chain.from_iterable(_decoded(segment, layout, partial(map, convert)) for segment in segments)


def _decoded(segment: Segment, layout: Layout, decode: Callable[[Iterator[Row]], Iterator[Record]]) -> Iterator[Record]:
    """Yield the records that ``decode`` makes of the base rows; index rows of time-ordered stores are never logged."""
    try:
        yield from decode(segment.scan(*layout.key.base_rows))
    except MalformedBytesError as error:
        raise segment.blame(error) from None


# --- one row, one record ----------------------------------------------------------------------------------------------


def _converter(layout: Layout) -> Callable[[Row], Record]:
    """Return the function that makes the record of a row, chosen once for all rows."""
    schema, read = layout.key, layout.read
    if schema is KeySchema.BUFFER:
        return _buffered
    if schema.windows:
        return _timed_converter(layout, schema.window, attrgetter("start"))
    if schema.sessions:
        return _timed_converter(layout, schema.session, attrgetter("end"))
    if schema is KeySchema.JOIN_SIDE:
        return _of_list

    def of_key(row: Row) -> Record:
        parts = read(row[1])
        return Record(row[0], parts.value, parts.timestamp, header_pairs(parts.headers))

    return of_key


def _timed_converter(
    layout: Layout, key_of: Callable[[bytes], _TimedKey], time_of: Callable[[_TimedKey], int]
) -> Callable[[Row], Record]:
    """Return the function for rows whose keys have times; ``time_of`` is the one that stands in for a timestamp."""
    read = layout.read

    def of_row(row: Row) -> Record:
        key, parts = key_of(row[0]), read(row[1])
        time = _time(layout, parts.timestamp, time_of(key))
        return Record(key.to_bytes(), parts.value, time, header_pairs(parts.headers))

    return of_row


def _time(layout: Layout, timestamp: int, instead: int) -> int:
    """Return the timestamp of a row, or a time of its key if the store keeps none."""
    if layout.has_timestamps:
        return timestamp
    # A window may begin at 0. That time is only a substitute, and the client would replace it by the current one.
    if instead <= 0:
        return NO_TIMESTAMP
    return instead


def _of_list(row: Row) -> Record:
    # The key has the time of the record that waits for the other side of the join.
    time = JoinSideKey.from_bytes(row[0]).timestamp
    return Record(row[0], row[1], time if time > 0 else NO_TIMESTAMP, [])


def _buffered(row: Row) -> Record:
    value = BufferValue.from_bytes(row[1])
    data = row[1]
    # A row that Streams itself has restored still has the time behind it.
    if not value.trailing:
        data += _NO_BUFFER_TIME
    return Record(row[0], data, value.timestamp, [])


# --- versions ---------------------------------------------------------------------------------------------------------


class _Sortable(NamedTuple):
    """What is sorted: a row of a key, or a record at a time."""

    number: int
    """The segment of a row, or the time of a record."""
    key: bytes
    data: bytes | None


_NEWEST: Final = MAX_I64
"""In place of a segment: the row of the latest version comes after all others of its key."""


def _row_of_key(row: Row) -> _Sortable:
    at = VersionedKey.from_bytes(row[0])
    if at.is_latest:
        return _Sortable(_NEWEST, at.key, row[1])
    return _Sortable(at.segment, at.key, row[1])


def _versions_in_order(rows: Iterable[_Sortable], counts: RowCounts, held_bytes: int) -> Iterator[Record]:
    """Yield the versions of rows as records, by time. Raises MalformedBytesError for a row that is none.

    Rows are sorted by key first, since a delete shows only between two rows of a key. Both sorts use files beyond a
    limit of memory. All rows have been read when the first record is yielded.
    """
    overlaps = 0

    def records() -> Iterator[_Sortable]:
        nonlocal overlaps
        by_key = _sorted(rows, lambda entry: (entry.key, entry.number), _SORT_BYTES)
        for key, of_key in groupby(by_key, key=attrgetter("key")):
            history, overlapping = _history(key, list(of_key))
            overlaps += overlapping
            yield from history

    for entry in _sorted(records(), lambda entry: (entry.number, entry.key), held_bytes):
        yield Record(entry.key, entry.data, entry.number, [])
    counts.overlaps = overlaps


def _history(key: bytes, rows: Sequence[_Sortable]) -> tuple[list[_Sortable], int]:
    """Return the records of one key, and the number of rows that overlap a newer one.

    ``RocksDBVersionedStore.get`` looks from the newest row to the oldest: from its first version on, a row hides all
    older ones. After a kill rows may overlap, since each flush has some of them.
    """
    records: list[_Sortable] = []
    overlapping = 0
    visible_until = None
    for row in reversed(rows):
        if row.number == _NEWEST:
            latest = LatestValue.from_bytes(row.data or b"")
            records.append(_Sortable(latest.valid_from, key, latest.value))
            visible_until = latest.valid_from
            continue
        content = SegmentValue.from_bytes(row.data or b"")
        versions = [v for v in content.versions if visible_until is None or v.valid_from < visible_until]
        end = content.next_timestamp
        if len(versions) < len(content.versions) or (visible_until is not None and end > visible_until):
            overlapping += 1
        # Streams stores no tombstone for the latest version, it removes the row: a key is deleted from the end of its
        # newest row until the next one begins. A lone tombstone ends when it begins.
        elif end != visible_until and not content.is_degenerate:
            records.append(_Sortable(end, key, None))
        records += [_Sortable(version.valid_from, key, version.value) for version in versions]
        visible_until = content.min_timestamp if visible_until is None else min(visible_until, content.min_timestamp)
    return records, overlapping


_Order = Callable[[_Sortable], tuple[object, object]]


def _sorted(entries: Iterable[_Sortable], order: _Order, held_bytes: int) -> Iterator[_Sortable]:
    """Yield entries in order: sorted parts in one temporary file, merged, so that memory and open files have a limit.

    While entries are yielded, at most ``held_bytes`` of them are in memory, besides buffers for the parts.
    """
    with ExitStack() as stack:
        file: BinaryIO | None = None
        ends: list[int] = []
        waiting: list[_Sortable] = []
        size = 0

        def spill() -> None:
            nonlocal file, size
            if file is None:
                file = stack.enter_context(temporary.private_file("seed"))
            waiting.sort(key=order)
            _write_part(waiting, file)
            ends.append(file.tell())
            waiting.clear()
            size = 0

        for entry in entries:
            waiting.append(entry)
            size += _SORTABLE_BYTES + len(entry.key) + len(entry.data or b"")
            if size >= _SORT_BYTES:
                spill()
        if size > held_bytes:
            spill()
        waiting.sort(key=order)
        parts: list[Iterable[_Sortable]] = [waiting]
        if file is not None:
            file.flush()
            parts += [_read_part(file.fileno(), start, end) for start, end in pairwise([0, *ends])]
        yield from heapq.merge(*parts, key=order)


_HEAD: Final = struct.Struct(">qii")
"""Number, the bytes of the key, and those of the data; -1 for none."""


def _write_part(entries: Iterable[_Sortable], file: BinaryIO) -> None:
    for entry in entries:
        size = -1
        if entry.data is not None:
            size = len(entry.data)
        file.write(_HEAD.pack(entry.number, len(entry.key), size))
        file.write(entry.key + (entry.data or b""))


class _Part(io.RawIOBase):
    """A part of an open file, with its own place, so that all parts share one descriptor."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        super().__init__()
        self._descriptor, self._place, self._end = descriptor, start, end

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes; none at the end of the part."""
        size = min(len(buffer), self._end - self._place)
        count = os.preadv(self._descriptor, [memoryview(buffer)[:size]], self._place) if size else 0
        self._place += count
        return count


def _read_part(descriptor: int, start: int, end: int) -> Iterator[_Sortable]:
    file = io.BufferedReader(_Part(descriptor, start, end), _PART_BUFFER_BYTES)
    while head := file.read(_HEAD.size):
        number, key_bytes, data_bytes = _HEAD.unpack(head)
        key = file.read(key_bytes)
        data = None
        if data_bytes >= 0:
            data = file.read(data_bytes)
        yield _Sortable(number, key, data)
