"""Find the rows of a slice and their order from its keys alone, in bounded memory.

If the keys do not fit, they are taken range by range: as many of the lowest as fit, then those that follow, each time
from all records. So every row is written once, however many there are. Only time-ordered stores, whose rows have
another order than changelog keys, divide the *records* instead, and each part wins over those before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.slices import cut
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import StoreKind
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.sorting import convert
from kstate_cli.restore.sorting.convert import Winners
from kstate_cli.restore.sorting.memory import (
    INDEXED_ROW_BYTES,
    KEYS_SHARE,
    LEAST_RANGE_SHARE,
    MOST_RANGE_SHARE,
    PLACE_BYTES,
    ROW_BYTES,
    SEGMENTED_ROW_BYTES,
)
from kstate_cli.restore.sorting.slice_files import CountSink, batches, rows_together
from kstate_cli.restore.sorting.values_in_order import Places, WaitingFile, window_starts
from kstate_cli.restore.sorting.winners import LastOfEachKey, numbered

if TYPE_CHECKING:
    import numpy.typing as npt

    from kstate_cli.restore.sorting.convert import Ints


Segments = list[tuple[int | None, int, int]]
"""(segment, first row, end row): the rows of one layer."""


class PositionSink(Protocol):
    """Takes the Positions in headers."""

    def add(self, keys: pa.BinaryArray, headers: pa.ListArray) -> None:
        """Add the Positions of these records."""


@dataclass(slots=True)
class RowOrder:
    """Rows of a slice in the order in which they are written."""

    job: SliceJob
    """With the records that are to be read for their values."""
    keys: KeysInOrder
    """Changelog keys, sorted by segment and row key within each layer."""
    places: Places
    segments: Segments


@dataclass(slots=True)
class Orders:
    """Reads the keys of a slice."""

    job: SliceJob
    kind: StoreKind
    counts: CountSink
    positions: PositionSink
    new_file: Callable[[], str]
    """A path for what waits."""
    passage: Passage
    expired: int = 0
    """Rows of segments that are too old by the keys that were read before them."""
    max_time: int | None = None
    """The highest segment time (ms) so far."""
    _is_counted: bool = field(init=False, default=False)

    def all(self) -> Iterator[RowOrder]:
        """Yield one order after another; a later one wins.

        Raises Refused for keys that no store of the kind has, OSError.
        """
        # Ranges of changelog keys are ranges of rows only where both have one order. Time-ordered stores sort by time
        # first, and a slice out of order was read as a whole already.
        if self.kind.key.time_ordered or not self.job.slice.ordered:
            yield from self._by_offsets()
        else:
            yield from self._by_keys()

    def _by_offsets(self) -> Iterator[RowOrder]:
        """Yield an order for each part of the records: as many as fit the memory, then those after them."""
        rest: Slice | None = self.job.slice
        first = True
        while rest is not None:
            # In a part that is not the first, deletes must be written: rows of the parts before may lie below.
            part = replace(self.job, slice=rest, tombstones=self.job.tombstones or not first)
            order, rest = self._part(part)
            first = False
            yield order
            # The order is released before the keys of the next part are read.
            del order

    def _part(self, part: SliceJob) -> tuple[RowOrder, Slice | None]:
        """Return the order of the rows of as many records as fit the memory, and the rest of the slice."""
        last, upto, number = self._last_of_each(self._budget), part.slice.last, 0
        with closing(self._read(part, "offset")) as tables:
            for table in tables:
                # Numbers count all records, also those without a key, since the values are read by these numbers.
                for chunk in table.column("key").chunks:
                    last.add(*numbered(chunk, number))
                    number += len(chunk)
                # The records so far are a part of their own, and the rest begins after the last of them. If records are
                # out of order, no offset divides them so.
                if last.full and part.slice.ordered:
                    upto = int(table.column("offset")[-1].as_py())
                    break
        mine, rest = cut(part.slice, upto)
        group = _Ranges(rows_together(self.job), KeysInOrder(self.new_file))
        # The part is alone in its group, so its keys stay in memory instead of a file.
        group.add(*self._arranged(last.finish()), alone=True)
        return group.order(replace(part, slice=mine)), rest

    def _by_keys(self) -> Iterator[RowOrder]:
        lowest: bytes | None = b""
        while lowest is not None:
            group = _Ranges(rows_together(self.job), KeysInOrder(self.new_file))
            # Ranges whose places fit together share one reading of the values, the most expensive part of a slice.
            while lowest is not None and group.rows * PLACE_BYTES < self._budget:
                lowest = self._add_range(group, lowest)
            yield group.order(self.job)

    def _add_range(self, group: _Ranges, lowest: bytes) -> bytes | None:
        """Add the lowest keys from ``lowest`` on that fit to the group; return the first key that does not, or None."""
        # The group keeps the records of earlier ranges in memory, so this range gets the rest.
        last = self._range(lowest, self._budget - group.used_bytes)
        # If this is the only range of the group, its keys need not wait in a file.
        alone = last.bound is None and not group.rows
        if self._in_parts and not (alone and last.whole):
            # A part consists of whole windows (the rows that are handed out together), so that each is in one batch of
            # the file.
            rows = last.windows_together(group.width) * group.width
            group.add_parts(last.parts(rows), self._only_segment)
        else:
            group.add(*self._arranged(last.finish()), alone=alone)
        return last.bound

    def _range(self, lowest: bytes, memory: int) -> LastOfEachKey:
        """Return as many of the keys from ``lowest`` on as fit ``memory``, with the last record of each."""
        last, number = self._last_of_each(memory, in_parts=self._in_parts), 0
        # Each range reads the keys of all records again, but no other column, and keys are the smallest in most
        # changelogs.
        with closing(self._read(self.job)) as tables:
            for table in tables:
                for chunk in table.column("key").chunks:
                    last.add(*numbered(chunk, number, lowest, last.bound))
                    number += len(chunk)
                if last.full:
                    # The memory is full. Only so many keys are kept that, with the records still to come, they fill it
                    # about once.
                    part = min(max(number / max(self.job.slice.rows, 1), LEAST_RANGE_SHARE), MOST_RANGE_SHARE)
                    last.cut(part)
        # The first reading has counted all records, whether their keys are in the range or not; further ones need not.
        self._is_counted = True
        return last

    @property
    def _budget(self) -> int:
        return int(self.job.memory * KEYS_SHARE)

    def _last_of_each(self, memory: int, *, in_parts: bool = False) -> LastOfEachKey:
        key, each = self.kind.key, ROW_BYTES
        if key.time_ordered:
            each = INDEXED_ROW_BYTES
        elif key.expires:
            each = SEGMENTED_ROW_BYTES
        return LastOfEachKey(self.job.slice.rows, memory, each, in_parts=in_parts)

    @property
    def _in_parts(self) -> bool:
        """Rows have the order of changelog keys, and are of one database: keys need not be together."""
        return not self.kind.key.segmented or self.kind.key is KeySchema.BUFFER

    @property
    def _only_segment(self) -> int | None:
        """Of a store that is one database."""
        return 0 if self.kind.key.segmented else None

    def _read(self, part: SliceJob, *more: str) -> Generator[pa.Table, None, None]:
        """Yield the keys of all records, and ``more`` columns; the first reading also counts them."""
        columns = ("key", *more)
        if part.positions and not self._is_counted:
            columns += ("headers",)
        with closing(batches(part, columns, self.passage)) as tables:
            for table in tables:
                # Counted once, though the keys are read for each range.
                if not self._is_counted:
                    self._count(part, table)
                yield table

    def _count(self, part: SliceJob, table: pa.Table) -> None:
        column = table.column("key")
        self.counts.records += len(table)
        self.counts.null_keys += column.null_count
        self.counts.data_bytes += column.nbytes
        if part.positions:
            for keys, headers in zip(column.chunks, table.column("headers").chunks, strict=True):
                self.positions.add(keys, headers)

    def _arranged(self, winners: Winners) -> tuple[pa.BinaryArray, Ints, Segments]:
        """Return keys and records of the rows that have not expired, and the bounds of each segment among them."""
        job, key = self.job, self.kind.key
        if self._in_parts:
            if not len(winners.keys):
                return winners.keys, winners.record, []
            return winners.keys, winners.record, [(self._only_segment, 0, len(winners.keys))]
        times = convert.segment_times(winners.keys, key, job.title)
        ids = convert.segment_ids(times, job.interval_ms)
        if len(times):
            self.max_time = max(int(times.max()), self.max_time or 0)
        # What has expired is judged by the keys of this task: the segment of (greatest time - retention) and all later
        # ones stay (``AbstractSegments.cleanupExpiredSegments``). The driver decides again once it knows all slices.
        oldest = oldest_segment(job, self.max_time)
        # The empty array is for slices in which every row has expired: numpy concatenates no empty list.
        parts, segments, at = [np.empty(0, dtype=np.int64)], [], 0
        # A stable sort, so that rows of a segment stay sorted by their changelog keys.
        by_segment = np.argsort(ids, kind="stable")
        numbers, starts = np.unique(ids[by_segment], return_index=True)
        # Not strict: without keys there is no segment, and yet np.split returns one part.
        for number, rows in zip(numbers.tolist(), np.split(by_segment, starts[1:]), strict=False):
            # Streams would delete the folder of this segment, so its rows are not made.
            if oldest is not None and number < oldest:
                continue
            # The rows of a time-ordered store begin with the time, changelog keys end with it: the rows are sorted
            # again.
            if key.time_ordered:
                rows = rows[convert.sort_order(convert.base_keys(key, convert.gather(winners.keys, rows)))]
            parts.append(rows)
            segments.append((number * job.interval_ms, at, at + len(rows)))
            at += len(rows)
        # The numbers of the keys, in the order in which their rows are written.
        live = np.concatenate(parts)
        self.expired += len(ids) - at
        return convert.gather(winners.keys, live), winners.record[live], segments


@dataclass(slots=True)
class _Ranges:
    """Ranges of keys whose values are read together."""

    width: int
    """Rows of a window."""
    keys: KeysInOrder
    records: list[npt.NDArray[np.integer[Any]]] = field(default_factory=list)
    segments: Segments = field(default_factory=list)
    rows: int = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of memory."""
        return sum(record.nbytes for record in self.records)

    def add(self, keys: pa.BinaryArray, record: Ints, segments: Segments, *, alone: bool) -> None:
        """Add the next range. Raises OSError."""
        # Rows are numbered over the whole group.
        mine = [(segment, begin + self.rows, end + self.rows) for segment, begin, end in segments]
        # Of one range, keys fit; of several, all but one would be in memory for nothing while the next is read.
        if alone:
            self.keys.hold(keys)
        elif len(keys):
            self.keys.put_away(keys, self.rows, window_starts(mine, self.width))
        self._add_records(record)
        self.segments += mine

    def add_parts(self, parts: Iterable[Winners], segment: int | None) -> None:
        """Add the next range, of one segment, in parts of whole windows. Raises OSError."""
        first = self.rows
        for part in parts:
            upto = self.rows + len(part.keys)
            # To the file at once: numbers become keys part by part, and so a range never exists as keys in memory.
            self.keys.put_away(part.keys, self.rows, np.arange(self.rows, upto, self.width))
            self._add_records(part.record)
        if self.rows > first:
            self.segments.append((segment, first, self.rows))

    def _add_records(self, record: Ints) -> None:
        # Four bytes for a record instead of eight, unless a slice has more than 2^32 of them.
        if not len(record) or int(record.max()) <= np.iinfo(np.uint32).max:
            self.records.append(record.astype(np.uint32))
        else:
            self.records.append(record)
        self.rows += len(record)

    def order(self, job: SliceJob) -> RowOrder:
        """Return the order of all ranges. Call it once: it gives up the records for the places."""
        order = RowOrder(job, self.keys, Places(self.records), self.segments)
        # Places hold record and row in one number each: the records would exist twice.
        self.records.clear()
        return order


def oldest_segment(job: SliceJob, max_time: int | None) -> int | None:
    """Return the id of the oldest live segment."""
    if max_time is None:
        return None
    return int(convert.segment_ids(np.array([max_time - job.retention_ms]), job.interval_ms)[0])


class KeysInOrder:
    """Takes keys once, hands them out window by window, and is closed."""

    def __init__(self, new_file: Callable[[], str]) -> None:
        """Take ``new_file``: a path for keys that do not stay in memory."""
        self._new_file = new_file
        self._all_keys: pa.BinaryArray | None = None
        self._file: WaitingFile | None = None
        self._starts: list[int] = []
        self._batches: list[tuple[int, int]] = []
        """By window: where it is in the file."""
        self._read: tuple[int, pa.BinaryArray] | None = None
        self._ahead: Generator[list[pa.Array], None, None] | None = None
        """The windows behind the one that was read last."""

    @property
    def nbytes(self) -> int:
        """What they take of memory."""
        if self._all_keys is None:
            return 0
        return int(self._all_keys.nbytes)

    def hold(self, keys: pa.BinaryArray) -> None:
        """Keep all keys in memory."""
        self._all_keys = keys

    def put_away(self, keys: pa.BinaryArray, first: int, starts: Ints) -> None:
        """Write the keys of rows from ``first`` on into a file, one batch for each window.

        ``starts`` are their first rows.

        Raises OSError.
        """
        # The file is made for the first keys that do not stay in memory.
        if self._file is None:
            self._file = WaitingFile(self._new_file(), pa.schema([("key", pa.binary())]))
        begins = [int(start) - first for start in starts]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            self._starts.append(first + begin)
            self._batches.append(self._file.append(keys.slice(begin, end - begin)))

    def between(self, first: int, last: int) -> pa.BinaryArray:
        """Return the keys of rows ``first`` to ``last`` (exclusive), which belong to one window. Raises OSError."""
        if self._all_keys is not None:
            return self._all_keys.slice(first, last - first)
        # The window that the row is in.
        number = bisect_right(self._starts, first) - 1
        if self._read is None or self._read[0] != number:
            self._read = number, self._window(number)
        return self._read[1].slice(first - self._starts[number], last - first)

    def _window(self, number: int) -> pa.BinaryArray:
        assert self._file is not None
        # Windows are nearly always handed out one after another: the reader then has the next ones ready. Index rows go
        # back to the first window of a segment.
        if self._ahead is None or self._read is None or number != self._read[0] + 1:
            self._stop()
            self._ahead = self._file.read_all(self._batches[number:])
        (keys,) = next(self._ahead)
        return keys

    def _stop(self) -> None:
        """Close the reader here: where it is dropped, a signal that comes while a thread is awaited would be lost."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def close(self) -> None:
        """Release memory and disk."""
        self._stop()
        self._all_keys = self._read = None
        if self._file is not None:
            self._file.close()
