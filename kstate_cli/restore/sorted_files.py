"""What a task makes of its slice of a changelog: sorted files, in bounded memory.

A slice is read twice. First its keys: the last record of each key, the segments, and the order of rows follow from
them alone. Then the values of those last records; rows come out in order, so that each segment is one SST. Where the
keys alone would take too much memory, the slice is made in parts, one after the other, each of which wins over those
before it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kstate_cli.dump.location import open_location
from kstate_cli.dump.model import Slice
from kstate_cli.dump.reader import iter_slice, read_slice
from kstate_cli.dump.slices import cut
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import StoreKind, is_segmented, store_kind
from kstate_cli.releases import release
from kstate_cli.restore import convert
from kstate_cli.restore.consistency import carry_positions, merge_positions
from kstate_cli.restore.jobs import SliceJob, SliceResult, SortedFile
from kstate_cli.restore.row_values import row_values
from kstate_cli.restore.staging import Staging
from kstate_cli.restore.values_in_order import Places, ValuesInOrder, window_starts
from kstate_cli.restore.winners import LastOfEachKey, Winners
from kstate_cli.rocks.sorted_file import SortedFileWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_BATCH_RECORDS = 131_072
_WRITE_ROWS = 32_768
_BATCH_PARTS = 16
"""A batch takes at most so small a part of a task's memory."""
_MOST_BATCH_BYTES = 64 << 20
"""And no more than caches and 32-bit positions have room for."""
_KEYS_PART = 0.6
"""What keys and order of rows may take of a task's memory."""
_ROW_BYTES = 32
"""What a row takes beside its key until its value is read: its record, its place, and what sorts them."""
_SEGMENTED_ROW_BYTES = 64
"""The same where the segment of each key is told from its time."""
_INDEXED_ROW_BYTES = 120
"""The same for a time-ordered store, whose row keys are made from those of the changelog."""
_VALUES_PART = 0.7
"""What values may take of the rest; allocators keep some of what was freed."""
_BATCH_COPIES = 4
"""A batch is held as it was read, as what is wanted of it, and in the order of the rows."""


@dataclass(slots=True)
class _RowOrder:
    """The rows of a slice in the order in which they are written."""

    keys: pa.BinaryArray
    """Changelog keys, sorted by segment and row key."""
    places: Places
    segments: list[tuple[int | None, int, int]]
    """(segment, first row, end row): the rows of one SST."""
    expired: int = 0
    max_time: int | None = None
    """The highest segment time (ms) of these rows, and of those before them."""


@dataclass(slots=True)
class _RecordCounts:
    records: int = 0
    null_keys: int = 0
    data_bytes: int = 0


@dataclass(slots=True)
class _SortedFileSink:
    """The SST that is being written; rows come segment by segment, part by part."""

    job: SliceJob
    staging: Staging
    attempt: str
    files: list[SortedFile] = field(default_factory=list)
    part: int = 0

    def open(self, segment: int | None) -> SortedFileWriter:
        where = "" if segment is None else f"-{segment}"
        path = self.staging.new_file(f"{self.job.label}{where}-{self.attempt}{self._of_part}.sst")
        return SortedFileWriter(path, release(self.job.release))

    def aside(self) -> str:
        """A path for values that wait."""
        return self.staging.new_file(f"{self.job.label}-{self.attempt}{self._of_part}.values")

    @property
    def _of_part(self) -> str:
        return f"-{self.part}" if self.part else ""

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

            expired, positions = 0, _Positions(job, kind)
            max_time = build_history(job, partial(_batches, job), writers, counts)
        else:
            expired, max_time, positions = _build_rows(job, kind, writers, counts)
    except BaseException:
        staging.discard(attempt)
        raise
    result = SliceResult(
        number=job.number,
        task=job.task,
        store=job.store,
        attempt=attempt,
        files=tuple(writers.files),
        records=counts.records,
        data_bytes=counts.data_bytes,
        null_keys=counts.null_keys,
        expired=expired,
        max_time=max_time,
        positions=positions.told(max_time),
        seconds=time.monotonic() - started,
    )
    staging.mark_done(job, result)
    return result


@dataclass(slots=True)
class _Positions:
    """What the ``c`` headers of records say, merged by segment; 0 without segments."""

    job: SliceJob
    kind: StoreKind
    by_segment: dict[int, Position] = field(default_factory=dict)

    def add(self, keys: pa.BinaryArray, headers: pa.ListArray) -> None:
        """Records without a key are none of the store's. Raises Refused for keys that no store of the kind has."""
        import numpy as np
        import pyarrow as pa

        carrying = carry_positions(headers)
        carrying = carrying[keys.is_valid().to_numpy(zero_copy_only=False)[carrying]]
        if not len(carrying):
            return
        segments = np.zeros(len(carrying), dtype=np.int64)
        if self.kind.key.expires:
            job = self.job
            times = convert.segment_times(keys.take(pa.array(carrying)), self.kind.key, job.shown)
            segments = convert.segment_ids(times, job.interval_ms) * job.interval_ms
        merge_positions(headers.take(pa.array(carrying)), segments, self.by_segment)

    def told(self, max_time: int | None) -> tuple[tuple[int | None, Position], ...]:
        """By segment, of those that are live."""
        segmented = is_segmented(self.job.kind)
        oldest = _oldest(self.job, max_time) if self.kind.key.expires else None
        return tuple(
            (segment if segmented else None, position)
            for segment, position in sorted(self.by_segment.items())
            if oldest is None or segment >= oldest * self.job.interval_ms
        )


def _build_rows(
    job: SliceJob, kind: StoreKind, writers: _SortedFileSink, counts: _RecordCounts
) -> tuple[int, int | None, _Positions]:
    """Part by part: the rows of segments that have expired, the highest segment time, and what Positions there are."""
    import pyarrow as pa

    rest: Slice | None = job.slice
    expired, max_time = 0, None
    positions = _Positions(job, kind)
    while rest is not None:
        # Something lies beneath all but the first part: deletes must be written.
        part = replace(job, slice=rest, tombstones=job.tombstones or writers.part > 0)
        order, upto = _order(part, kind, counts, positions, max_time)
        mine, rest = cut(rest, upto)
        expired, max_time = expired + order.expired, order.max_time
        _write(replace(part, slice=mine), kind, order, writers, counts)
        writers.part += 1
        del order
        pa.default_memory_pool().release_unused()
    return expired, max_time, positions


def _batches(job: SliceJob, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    filesystem = open_location(job.dump_uri)[0]
    if job.slice.ordered:
        yield from iter_slice(job.slice, columns, filesystem, max_rows=_BATCH_RECORDS, max_bytes=_batch_bytes(job))
        return
    # Out of order it has to be sorted as a whole; such slices are small enough for that.
    table = read_slice(job.slice, columns, filesystem)
    for first in range(0, len(table), _BATCH_RECORDS):
        yield table.slice(first, _BATCH_RECORDS)


def _batch_bytes(job: SliceJob) -> int:
    return min(job.memory // _BATCH_PARTS, _MOST_BATCH_BYTES)


def _order(
    job: SliceJob, kind: StoreKind, counts: _RecordCounts, positions: _Positions, max_time: int | None
) -> tuple[_RowOrder, int]:
    """The first reading: keys only, of as many records as memory has room for; and the offset that they go up to.

    ``max_time``: the highest segment time before.
    """
    last = LastOfEachKey(job.slice.rows, int(job.memory * _KEYS_PART), _row_bytes(kind))
    upto = job.slice.last
    for table in _batches(job, ("key", "headers") if job.positions else ("key",)):
        column = table.column("key")
        counts.data_bytes += column.nbytes
        for number, chunk in enumerate(column.chunks):
            last.add(chunk)
            if job.positions:
                positions.add(chunk, table.column("headers").chunk(number))
        if last.full and job.slice.ordered:
            upto = int(table.column("offset")[-1].as_py())
            break
    counts.records += last.records
    counts.null_keys += last.null_keys
    winners = last.finish()
    if not kind.key.segmented or kind.key is KeySchema.BUFFER:
        whole = (0 if kind.key.segmented else None, 0, len(winners.keys))
        return _RowOrder(winners.keys, Places(winners.record), [whole] if len(winners.keys) else []), upto
    return _order_by_segment(job, kind, winners, max_time), upto


def _row_bytes(kind: StoreKind) -> int:
    if kind.key.time_ordered:
        return _INDEXED_ROW_BYTES
    return _SEGMENTED_ROW_BYTES if kind.key.expires else _ROW_BYTES


def _oldest(job: SliceJob, max_time: int | None) -> int | None:
    """The oldest segment that is live, by its id."""
    import numpy as np

    if max_time is None:
        return None
    return int(convert.segment_ids(np.array([max_time - job.retention_ms]), job.interval_ms)[0])


def _order_by_segment(job: SliceJob, kind: StoreKind, winners: Winners, max_time: int | None) -> _RowOrder:
    import numpy as np

    times = convert.segment_times(winners.keys, kind.key, job.shown)
    ids = convert.segment_ids(times, job.interval_ms)
    if len(times):
        max_time = max(int(times.max()), int(times.max()) if max_time is None else max_time)
    oldest = _oldest(job, max_time)
    parts, segments, at = [], [], 0
    # Within a segment rows stay sorted by their changelog keys.
    by_segment = np.argsort(ids, kind="stable")
    numbers, starts = np.unique(ids[by_segment], return_index=True)
    # Where no record has a key there is no segment either; what is split is one part, however little it is.
    for number, rows in zip(numbers.tolist(), np.split(by_segment, starts[1:]) if len(ids) else [], strict=True):
        if oldest is not None and number < oldest:
            continue
        if kind.key.time_ordered:
            rows = rows[convert.sort_order(convert.base_keys(kind.key, convert.taken(winners.keys, rows)))]
        parts.append(rows)
        segments.append((number * job.interval_ms, at, at + len(rows)))
        at += len(rows)
    live = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return _RowOrder(convert.taken(winners.keys, live), Places(winners.record[live]), segments, len(ids) - at, max_time)


def _write(job: SliceJob, kind: StoreKind, order: _RowOrder, writers: _SortedFileSink, counts: _RecordCounts) -> None:
    """The second reading: values of the winners, and one SST per segment."""
    import numpy as np
    import pyarrow.compute as pc

    values = _values(job, kind, order, writers, counts)
    windows = values.windows()
    for segment, begin, end in order.segments:
        writer = writers.open(segment)
        gone = np.zeros(end - begin, dtype=np.bool_)
        last = begin
        while last < end:
            first, last, some = next(windows)
            keys = order.keys.slice(first, last - first)
            if kind.key.time_ordered:
                keys = convert.base_keys(kind.key, keys)
                gone[first - begin : last - begin] = pc.is_null(some).to_numpy(zero_copy_only=False)
            writer.put(keys.to_pylist(), some.to_pylist(), deletes=job.tombstones)
        if kind.key.time_ordered and job.indexed:
            _write_index(job, order.keys.slice(begin, end - begin), gone, writer)
        writers.close(writer, segment)


def _write_index(job: SliceJob, keys: pa.BinaryArray, gone: npt.NDArray[np.bool_], writer: SortedFileWriter) -> None:
    """Index rows begin with 01, base rows with 00: they come after all of them."""
    by_key = convert.sort_order(keys)
    for first in range(0, len(keys), _WRITE_ROWS):
        part = by_key[first : first + _WRITE_ROWS]
        values = [None if one else b"" for one in gone[part].tolist()]
        writer.put(convert.index_keys(convert.taken(keys, part)).to_pylist(), values, deletes=job.tombstones)


def _values(
    job: SliceJob, kind: StoreKind, order: _RowOrder, writers: _SortedFileSink, counts: _RecordCounts
) -> ValuesInOrder:
    """Reads the values of all rows; one that does not fit the memory waits in a file."""
    import numpy as np
    import pyarrow as pa

    each = max(job.slice.bytes // max(job.slice.rows, 1), 1)
    most = max(job.memory // _BATCH_PARTS, 1)
    held = order.keys.nbytes + order.places.nbytes + _BATCH_COPIES * min(_batch_bytes(job), _BATCH_RECORDS * each)
    values = ValuesInOrder(
        rows=order.places.rows,
        starts=window_starts(order.segments, max(1, min(_WRITE_ROWS, most // each))),
        memory=max(int((job.memory - held) * _VALUES_PART), most),
        most=most,
        new_file=writers.aside,
    )
    if not order.places.rows:
        return values
    columns = ["value"]
    if kind.needs_timestamp:
        columns.append("timestamp")
    if kind.needs_headers:
        columns.append("headers")
    number = 0
    for table in _batches(job, tuple(columns)):
        chosen, rows = order.places.wanted(number, len(table))
        number += len(table)
        if not len(rows):
            continue
        counts.data_bytes += table.nbytes
        bounds = np.cumsum([0, *(batch.num_rows for batch in table.to_batches())])
        cuts = np.searchsorted(chosen, bounds)
        parts = [
            (batch, chosen[low:high] - bound)
            for batch, bound, low, high in zip(table.to_batches(), bounds, cuts, cuts[1:], strict=False)
            if high > low
        ]
        some = pa.concat_arrays([convert.taken(batch.column("value"), at) for batch, at in parts])
        times, headers = np.empty(0, dtype=np.int64), None
        if kind.needs_timestamp:
            times = np.concatenate([batch.column("timestamp").to_numpy()[at] for batch, at in parts])
        if kind.needs_headers:
            headers = pa.concat_arrays([batch.column("headers").take(pa.array(at)) for batch, at in parts])
        values.add(rows, row_values(kind, some, times, headers, job.shown))
    return values
