"""What a task makes of its slice of a changelog: sorted files, in bounded memory.

A slice is read twice. First its keys: the last record of each key, the segments, and the order of rows follow from
them alone. Then its values, of those last records only, in as many passes over the slice as memory asks for; rows come
out in order, so that each segment is one SST however many passes there are.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kstate_cli.dump.location import open_location
from kstate_cli.dump.reader import iter_slice, read_slice
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import StoreKind, is_segmented, store_kind
from kstate_cli.releases import release
from kstate_cli.restore import convert
from kstate_cli.restore.consistency import merge_positions
from kstate_cli.restore.jobs import SliceJob, SliceResult, SortedFile
from kstate_cli.restore.staging import Staging
from kstate_cli.restore.winners import LastOfEachKey, Winners
from kstate_cli.rocks.sorted_file import SortedFileWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_BATCH_RECORDS = 131_072
_WRITE_ROWS = 32_768
_LEAST_ROWS = 64
"""A pass is never for fewer rows, however large they are."""
_BATCH_PARTS = 16
"""A batch takes at most so small a part of a task's memory."""
_VALUE_COPIES = 2.5
"""A pass holds the values as they were taken, once more in one piece, and a batch of them as Python objects."""


@dataclass(slots=True)
class _RowOrder:
    """The rows of a slice in the order in which they are written."""

    keys: pa.BinaryArray
    """Changelog keys, sorted by segment and row key."""
    record: Ints
    """The record of the slice that each row is made from."""
    segments: list[tuple[int | None, int, int]]
    """(segment, first row, end row): the rows of one SST."""
    expired: int = 0
    max_time: int | None = None
    segment_of_record: Any = None
    """Per record the segment that it lies in, -1 for none; only where Positions are wanted."""


@dataclass(slots=True)
class _RecordCounts:
    records: int = 0
    null_keys: int = 0
    data_bytes: int = 0


@dataclass(slots=True)
class _SortedFileSink:
    """The SST that is being written; rows come segment by segment."""

    job: SliceJob
    staging: Staging
    attempt: str
    files: list[SortedFile] = field(default_factory=list)

    def open(self, segment: int | None) -> SortedFileWriter:
        where = "" if segment is None else f"-{segment}"
        path = self.staging.new_file(f"{self.job.label}{where}-{self.attempt}.sst")
        return SortedFileWriter(path, release(self.job.release))

    def close(self, writer: SortedFileWriter, segment: int | None) -> None:
        if writer.finish():
            size = os.path.getsize(writer.path)
            path, digest = self.staging.publish(writer.path)
            self.files.append(SortedFile(segment, path, writer.rows, writer.deletes, size, digest))


def build_sorted_files(job: SliceJob) -> SliceResult:
    """Makes the sorted files of one slice. Every attempt writes files of its own name, so that attempts never meet.

    Raises Refused for a dump that the spec does not fit, OSError and RocksError.
    """
    started = time.monotonic()
    attempt = uuid.uuid4().hex[:12]
    staging = Staging(job.staging)
    staging.mark_started(job, attempt)
    kind = store_kind(job.kind)
    counts = _RecordCounts()
    writers = _SortedFileSink(job, staging, attempt)
    try:
        if kind.key is KeySchema.VERSIONED:
            from kstate_cli.restore.history import build_history

            order = None
            max_time = build_history(job, partial(_batches, job), writers, counts)
        else:
            order = _order(job, kind, counts)
            max_time = order.max_time
            _write(job, kind, order, writers, counts)
    except BaseException:
        staging.discard(attempt)
        raise
    positions: tuple[tuple[int | None, Position], ...] = ()
    if job.positions and order is not None:
        positions = _positions(job, order)
    result = SliceResult(
        number=job.number,
        task=job.task,
        store=job.store,
        attempt=attempt,
        files=tuple(writers.files),
        records=counts.records,
        data_bytes=counts.data_bytes,
        null_keys=counts.null_keys,
        expired=order.expired if order is not None else 0,
        max_time=max_time,
        positions=positions,
        seconds=time.monotonic() - started,
    )
    staging.mark_done(job, result)
    return result


def _batches(job: SliceJob, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    filesystem = open_location(job.dump_uri)[0]
    if job.slice.ordered:
        yield from iter_slice(
            job.slice, columns, filesystem, max_rows=_BATCH_RECORDS, max_bytes=job.memory // _BATCH_PARTS
        )
        return
    # Out of order it has to be sorted as a whole; such slices are small enough for that.
    table = read_slice(job.slice, columns, filesystem)
    for first in range(0, len(table), _BATCH_RECORDS):
        yield table.slice(first, _BATCH_RECORDS)


def _order(job: SliceJob, kind: StoreKind, counts: _RecordCounts) -> _RowOrder:
    """The first reading: keys only."""
    import numpy as np
    import pyarrow as pa

    last = LastOfEachKey(job.slice.rows, job.memory, with_codes=job.positions)
    for table in _batches(job, ("key",)):
        column = table.column("key")
        counts.data_bytes += column.nbytes
        for chunk in column.chunks:
            last.add(chunk)
    counts.records, counts.null_keys = last.records, last.null_keys
    winners = last.finish()
    if not kind.key.segmented or kind.key is KeySchema.BUFFER:
        order = convert.sort_order(winners.keys)
        whole = (0 if kind.key.segmented else None, 0, len(order))
        in_order = _RowOrder(winners.keys.take(pa.array(order)), winners.record[order], [whole] if len(order) else [])
        if job.positions:
            assert winners.codes is not None, "codes were asked for"
            in_order.segment_of_record = np.where(winners.codes >= 0, whole[0] or 0, -1)
        return in_order
    return _order_by_segment(job, kind, winners)


def _order_by_segment(job: SliceJob, kind: StoreKind, winners: Winners) -> _RowOrder:
    import numpy as np
    import pyarrow as pa

    times = convert.segment_times(winners.keys, kind.key, job.shown)
    ids = convert.segment_ids(times, job.interval_ms)
    max_time = int(times.max()) if len(times) else None
    oldest = None
    if max_time is not None:
        oldest = int(convert.segment_ids(np.array([max_time - job.retention_ms]), job.interval_ms)[0])
    parts, segments, at = [], [], 0
    by_segment = np.argsort(ids, kind="stable")
    numbers, starts = np.unique(ids[by_segment], return_index=True)
    # Where no record has a key there is no segment either; what is split is one part, however little it is.
    for number, rows in zip(numbers.tolist(), np.split(by_segment, starts[1:]) if len(ids) else [], strict=True):
        if oldest is not None and number < oldest:
            continue
        keys = winners.keys.take(pa.array(rows))
        if kind.key.time_ordered:
            to_base = convert.base_key(kind.key)
            keys = pa.array([to_base(key) for key in keys.to_pylist()], pa.binary())
        parts.append(rows[convert.sort_order(keys)])
        segments.append((number * job.interval_ms, at, at + len(rows)))
        at += len(rows)
    live = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    order = _RowOrder(winners.keys.take(pa.array(live)), winners.record[live], segments, len(ids) - at, max_time)
    if job.positions:
        assert winners.codes is not None, "codes were asked for"
        codes = winners.codes
        times = np.where(ids >= (oldest or 0), ids * job.interval_ms, -1)
        order.segment_of_record = np.where(codes >= 0, times[np.maximum(codes, 0)] if len(times) else -1, -1)
    return order


def _write(job: SliceJob, kind: StoreKind, order: _RowOrder, writers: _SortedFileSink, counts: _RecordCounts) -> None:
    """The second reading: values of the winners, pass by pass, and one SST per segment."""
    passes = _passes(job, len(order.record), counts.records)
    rows_per_pass = -(-len(order.record) // passes) if passes else 0
    source = _RowValues(job, kind, order, rows_per_pass, counts)
    at_once = _rows_at_once(job)
    for segment, begin, end in order.segments:
        writer = writers.open(segment)
        index: list[tuple[bytes, bool]] = []
        for first in range(begin, end, at_once):
            last = min(first + at_once, end)
            keys = order.keys.slice(first, last - first).to_pylist()
            values = source.rows(first, last)
            if kind.key.time_ordered:
                to_base = convert.base_key(kind.key)
                if job.indexed:
                    index += [(b"\x01" + key, value is None) for key, value in zip(keys, values, strict=True)]
                keys = [to_base(key) for key in keys]
            writer.put(keys, values, deletes=job.tombstones)
        index.sort()
        # Index rows begin with 01, base rows with 00: they come after all of them.
        writer.put([key for key, _ in index], [None if gone else b"" for _, gone in index], deletes=job.tombstones)
        writers.close(writer, segment)


def _rows_at_once(job: SliceJob) -> int:
    """Rows that become Python objects together: few where values are large."""
    each = max(job.slice.bytes // max(job.slice.rows, 1), 1)
    return max(1, min(_WRITE_ROWS, job.memory // _BATCH_PARTS // each))


def _passes(job: SliceJob, rows: int, records: int) -> int:
    """How often the slice is read for its values, so that those of one pass fit."""
    if not rows:
        return 0
    values = job.slice.bytes * rows / max(records, 1)
    return max(1, -(-int(values * _VALUE_COPIES) // max(job.memory // 2, 1)))


class _RowValues:
    """Row values by row number, in rising order; holds those of one pass."""

    def __init__(
        self, job: SliceJob, kind: StoreKind, order: _RowOrder, rows_per_pass: int, counts: _RecordCounts
    ) -> None:
        self._job, self._kind, self._order, self._counts = job, kind, order, counts
        self._per_pass = rows_per_pass
        self._begin = self._end = 0
        self._table: pa.Table | None = None
        self._place: Ints | None = None
        self._columns: tuple[str, ...] = ("value",)
        if kind.needs_timestamp:
            self._columns += ("timestamp",)
        if kind.needs_headers:
            self._columns += ("headers",)

    def rows(self, first: int, last: int) -> list[bytes | None]:
        """The values of rows ``first`` to ``last`` (exclusive)."""
        values: list[bytes | None] = []
        while first < last:
            if first >= self._end:
                self._load(first)
            upto = min(last, self._end)
            values += self._values(first, upto)
            first = upto
        return values

    def _load(self, first: int) -> None:
        import numpy as np
        import pyarrow as pa

        self._table = None
        self._begin, self._end = first, min(first + self._per_pass, len(self._order.record))
        wanted = self._order.record[self._begin : self._end]
        by_record = np.argsort(wanted)
        ascending = wanted[by_record]
        place = np.empty(len(wanted), dtype=np.int64)
        place[by_record] = np.arange(len(wanted))
        parts, number, size = [], 0, 0
        for table in _batches(self._job, self._columns):
            low, high = np.searchsorted(ascending, (number, number + len(table)))
            if high > low:
                parts.append(table.take(pa.array(ascending[low:high] - number)))
                size += parts[-1].nbytes
            number += len(table)
            if size * _VALUE_COPIES > self._job.memory and self._per_pass > _LEAST_ROWS:
                # Footers count bytes as they are encoded: repeated values are larger than they say.
                self._per_pass = max(_LEAST_ROWS, int(self._per_pass * int(high) / len(ascending) / 2))
                del parts, table
                self._load(first)
                return
        self._table, self._place = pa.concat_tables(parts).combine_chunks(), place
        self._counts.data_bytes += self._table.nbytes

    def _values(self, first: int, last: int) -> list[bytes | None]:
        import numpy as np
        import pyarrow as pa

        assert self._table is not None
        assert self._place is not None
        part = self._table.take(pa.array(self._place[first - self._begin : last - self._begin]))
        times = (
            part.column("timestamp").to_numpy().astype(np.int64)
            if self._kind.needs_timestamp
            else np.empty(0, dtype=np.int64)
        )
        headers = part.column("headers").to_pylist() if self._kind.needs_headers else None
        return convert.row_values(self._kind, part.column("value").to_pylist(), times, headers, self._job.shown)


def _positions(job: SliceJob, order: _RowOrder) -> tuple[tuple[int | None, Position], ...]:
    """Merges the Positions in the ``c`` headers of records whose segment is live."""
    segmented = is_segmented(job.kind)
    by_segment: dict[int, Position] = {}
    number = 0
    for table in _batches(job, ("headers",)):
        segments = order.segment_of_record[number : number + len(table)]
        merge_positions(table, segments, by_segment)
        number += len(table)
    return tuple((segment if segmented else None, position) for segment, position in sorted(by_segment.items()))
