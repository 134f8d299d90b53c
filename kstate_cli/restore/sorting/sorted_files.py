"""Turn one slice of a changelog into sorted files of a store: this is what a task runs.

A task reads its slice at least twice. First it reads the keys: the last record of each key, the segments, and the order
of rows follow from keys alone (:mod:`~kstate_cli.restore.sorting.row_order`). Then it reads the values of those last
records. Rows come out in order, so that each segment is one layer, or one for each range of keys where keys are many
(:mod:`~kstate_cli.restore.sorting.slice_files`).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.dump_reader.footers import OutOfOrder, Passage
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import StoreKind, is_segmented, store_kind
from kstate_cli.restore.jobs import SliceJob, SliceResult
from kstate_cli.restore.sorting import convert
from kstate_cli.restore.sorting.history import build_history
from kstate_cli.restore.sorting.memory import (
    BATCH_COPIES,
    BATCH_SHARE,
    INDEX_ROWS,
    SORTED_COPIES,
    SORTED_SHARE,
    VALUE_ROW_BYTES,
    VALUES_SHARE,
)
from kstate_cli.restore.sorting.row_order import Orders, RowOrder, oldest_segment
from kstate_cli.restore.sorting.row_values import carry_positions, merge_positions, row_values
from kstate_cli.restore.sorting.slice_files import (
    Layer,
    Layers,
    NoLayers,
    batch_bytes,
    batch_records,
    batches,
    choose_pool,
    rows_together,
)
from kstate_cli.restore.sorting.values_in_order import ValuesInOrder, window_starts
from kstate_cli.restore.staging import Staging

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(slots=True)
class _RecordCounts:
    records: int = 0
    null_keys: int = 0
    data_bytes: int = 0


def build_sorted_files(job: SliceJob) -> SliceResult:
    """Make the sorted files of one slice.

    The files of each attempt have its name, so attempts do not disturb each other.

    Raises Refused for a dump that the specification does not fit, OSError and RocksError.
    """
    # The pool is chosen before the first array of this slice, since an array stays in the pool that it came from.
    choose_pool(fits=job.slice.bytes <= job.memory)
    started = time.monotonic()
    # The first attempt assumes that records are in order, as they nearly always are: checking that would need one more
    # reading of all offsets.
    with contextlib.suppress(OutOfOrder):
        return _attempt(job, started, ordered=True)
    # The second attempt is outside of the block: an exception that is being handled keeps the memory of its attempt.
    return _attempt(job, started, ordered=False)


def read_slice_only(job: SliceJob) -> SliceResult:
    """Read a slice as :func:`build_sorted_files` does, and make no file of it: of a dry run.

    Raises what that raises for what it reads.
    """
    choose_pool(fits=job.slice.bytes <= job.memory)
    started = time.monotonic()
    with contextlib.suppress(OutOfOrder):
        return _attempt(job, started, ordered=True, writes=False)
    return _attempt(job, started, ordered=False, writes=False)


def _attempt(job: SliceJob, started: float, *, ordered: bool, writes: bool = True) -> SliceResult:
    """Make the files of one attempt. Raises OutOfOrder if offsets should be ``ordered`` and are not."""
    # The name is random: attempts of one slice may run on two hosts at once (Spark's speculation).
    attempt = uuid.uuid4().hex[:12]
    staging = Staging(job.staging)
    if writes:
        # This note is for people: it shows which process made files that no note of a finished attempt names.
        staging.mark_started(job, attempt)
    kind = store_kind(job.kind)
    counts = _RecordCounts()
    layers = Layers(job, staging, attempt)
    if not writes:
        layers = NoLayers(job, staging, attempt)
    try:
        passage = Passage(ordered)
        if kind.key is KeySchema.VERSIONED:
            expired, positions = 0, _Positions(job, kind)
            max_time = build_history(job, partial(batches, job, passage=passage), layers, counts)
        else:
            expired, max_time, positions = _build_rows(job, kind, layers, counts, passage)
    except BaseException:
        # BaseException, because a signal too must not leave files that no note names.
        staging.discard(attempt)
        raise
    result = SliceResult(
        number=job.number,
        task=job.task,
        store=job.store,
        attempt=attempt,
        files=tuple(layers.files),
        records=counts.records,
        data_bytes=counts.data_bytes,
        null_keys=counts.null_keys,
        expired=expired,
        max_time=max_time,
        positions=positions.live(max_time),
        seconds=time.monotonic() - started,
    )
    if writes:
        staging.mark_finished(job, result)
    return result


@dataclass(slots=True)
class _Positions:
    """The Positions in ``c`` headers of records, merged by segment; 0 without segments."""

    job: SliceJob
    kind: StoreKind
    by_segment: dict[int, Position] = field(default_factory=dict)

    def add(self, keys: pa.BinaryArray, headers: pa.ListArray) -> None:
        """Add the Positions in the headers of records.

        Raises Refused for keys that no store of the kind has.
        """
        carrying = carry_positions(headers)
        # Records without a key are left out: StoreChangelogReader skips them, and so never sees their headers.
        carrying = carrying[keys.is_valid().to_numpy(zero_copy_only=False)[carrying]]
        if not len(carrying):
            return
        segments = np.zeros(len(carrying), dtype=np.int64)
        # A Position belongs to the database of its record's segment, which the driver names by its start in ms.
        if self.kind.key.expires:
            job = self.job
            times = convert.segment_times(keys.take(pa.array(carrying)), self.kind.key, job.title)
            segments = convert.segment_ids(times, job.interval_ms) * job.interval_ms
        merge_positions(headers.take(pa.array(carrying)), segments, self.by_segment)

    def live(self, max_time: int | None) -> tuple[tuple[int | None, Position], ...]:
        """Return the Positions of live segments."""
        positions = sorted(self.by_segment.items())
        if not is_segmented(self.job.kind):
            return tuple((None, position) for _, position in positions)
        if not self.kind.key.expires or (oldest := oldest_segment(self.job, max_time)) is None:
            return tuple(positions)
        # The Position of an expired segment describes rows that the store does not have.
        return tuple(pair for pair in positions if pair[0] >= oldest * self.job.interval_ms)


def _build_rows(
    job: SliceJob, kind: StoreKind, layers: Layers, counts: _RecordCounts, passage: Passage
) -> tuple[int, int | None, _Positions]:
    """Write all rows; return the rows of expired segments, the highest segment time, and the Positions."""
    positions = _Positions(job, kind)
    orders = Orders(job, kind, counts, positions, layers.aside, passage)
    for order in orders.all():
        try:
            # A dry run only reads the values, and so refuses what the restoration would refuse. It needs no order.
            if isinstance(layers, NoLayers):
                _read_values(kind, order, NoValues(), counts, passage)
            else:
                _write(kind, order, layers, counts, passage)
        finally:
            # Closed also after an error: keys that wait in a file have a thread, and disk space that only closing
            # frees.
            order.keys.close()
        # The order is released before the generator reads the keys of the next one, since both would not fit the
        # memory.
        del order
        pa.default_memory_pool().release_unused()
    return orders.expired, orders.max_time, positions


def _write(kind: StoreKind, order: RowOrder, layers: Layers, counts: _RecordCounts, passage: Passage) -> None:
    """Read the values of the winners, and write their SSTs."""
    with contextlib.closing(_values(order, layers)) as values:
        _read_values(kind, order, values, counts, passage)
        _write_rows(kind, order, values, layers)


def _write_rows(kind: StoreKind, order: RowOrder, values: ValuesInOrder, layers: Layers) -> None:
    """Write the rows of all segments, each segment as one layer, with the index rows after the others."""
    job = order.job
    with contextlib.closing(values.windows()) as windows:
        for segment, begin, end in order.segments:
            layer = layers.open(segment)
            # Deleted rows are noted here, because they get no index row, and the index is made after the other rows.
            deleted = np.zeros(end - begin, dtype=np.bool_)
            last = begin
            while last < end:
                first, last, some = next(windows)
                # A window, the rows that are handed out together, is within one segment, so its keys are one slice of
                # the keys.
                keys = order.keys.between(first, last)
                if kind.key.time_ordered:
                    keys = convert.base_keys(kind.key, keys)
                    deleted[first - begin : last - begin] = pc.is_null(some).to_numpy(zero_copy_only=False)
                # Tombstones are written only if older rows may lie below: in a new store there is nothing to hide.
                layer.put(keys, some, deletes=job.tombstones)
            if kind.key.time_ordered and job.indexed:
                _write_index(job, order.keys.between(begin, end), deleted, layer)
            layer.close()


def _write_index(job: SliceJob, keys: pa.BinaryArray, deleted: npt.NDArray[np.bool_], layer: Layer) -> None:
    """Write index rows: they begin with 01 and base rows with 00, so they come after all of them."""
    by_key = convert.sort_order(keys)
    for first in range(0, len(keys), INDEX_ROWS):
        part = by_key[first : first + INDEX_ROWS]
        values = pa.array([None if is_deleted else b"" for is_deleted in deleted[part].tolist()], pa.binary())
        layer.put(convert.index_keys(convert.gather(keys, part)), values, deletes=job.tombstones)


def _values(order: RowOrder, layers: Layers) -> ValuesInOrder:
    """Return the object that collects the values of all rows; those that do not fit the memory wait in a file."""
    job = order.job
    # The average size of an uncompressed record, by the footers of the dump.
    each = max(job.slice.bytes // max(job.slice.rows, 1), 1)
    # The largest window: its values exist as Python objects for a moment, which take more memory than their bytes.
    most = max(job.memory // BATCH_SHARE, 1)
    together = batch_bytes(job) // SORTED_SHARE
    # What else is in memory meanwhile. Keys from the file are not counted: they are read only while rows are handed
    # out, and then there are no batches any more.
    bytes_in_use = (
        order.keys.nbytes + order.places.nbytes + BATCH_COPIES * min(batch_bytes(job), batch_records(job) * each)
    )
    bytes_in_use += SORTED_COPIES * min(together, order.places.rows * (each + VALUE_ROW_BYTES))
    return ValuesInOrder(
        rows=order.places.rows,
        starts=window_starts(order.segments, rows_together(job)),
        # At least one window must fit, however small the memory of the task is.
        memory=max(int((job.memory - bytes_in_use) * VALUES_SHARE), most),
        most=most,
        new_file=layers.aside,
        together=together,
    )


class NoValues:
    """Takes the values of rows, and keeps none."""

    def add(self, rows: npt.NDArray[np.int64], values: pa.BinaryArray) -> None:
        """Take the values: making them has checked them already."""


def _read_values(
    kind: StoreKind, order: RowOrder, values: ValuesInOrder | NoValues, counts: _RecordCounts, passage: Passage
) -> None:
    """Read the records again, and add the values of all rows to ``values``, in the order of the records."""
    job = order.job
    if not order.places.rows:
        # All rows have expired or are deleted, so no value is read. The order of the records is then checked on its
        # own.
        if not passage.is_rising(job.slice):
            _check_order(job, passage)
        return
    # Offsets are read again: if a file was replaced since its keys were read, they differ.
    columns = ["value", "offset"]
    # Columns that the kind does not need are neither read nor decompressed.
    if kind.needs_timestamp:
        columns.append("timestamp")
    if kind.needs_headers:
        columns.append("headers")
    number = 0
    with contextlib.closing(batches(job, tuple(columns), passage)) as tables:
        for table in tables:
            # The numbers of the records that are needed rise within the table, so they are gathered in one pass.
            records, rows = order.places.rows_of(number, len(table))
            number += len(table)
            if len(rows):
                counts.data_bytes += table.nbytes
                values.add(rows, _row_values_of(kind, table, records, job.title))


def _check_order(job: SliceJob, passage: Passage) -> None:
    """Read all offsets, though no row is made of them: a later part skips the records before its first offset.

    A record that is late in its file would otherwise be lost without a trace.
    """
    with contextlib.closing(batches(job, ("offset",), passage)) as tables:
        for _ in tables:
            pass


def _row_values_of(
    kind: StoreKind, table: pa.Table, records: npt.NDArray[np.integer[Any]], place: str
) -> pa.BinaryArray:
    """Return the row values of ``records``, the rising numbers of rows of a table; ``place`` is for messages."""
    record_batches = table.to_batches()
    bounds = np.cumsum([0, *(batch.num_rows for batch in record_batches)])
    cuts = np.searchsorted(records, bounds)
    # The values are gathered batch by batch: from a chunked column, Arrow would copy all of it first.
    parts = [
        (batch, records[low:high] - bound)
        for batch, bound, low, high in zip(record_batches, bounds, cuts, cuts[1:], strict=False)
        if high > low
    ]
    values = pa.concat_arrays([convert.gather(batch.column("value"), at) for batch, at in parts])
    times, headers = np.empty(0, dtype=np.int64), None
    if kind.needs_timestamp:
        times = np.concatenate([batch.column("timestamp").to_numpy()[at] for batch, at in parts])
    if kind.needs_headers:
        headers = pa.concat_arrays([batch.column("headers").take(pa.array(at)) for batch, at in parts])
    return row_values(kind, values, times, headers, place)
