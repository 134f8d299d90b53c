"""What a versioned store holds after its changelog has been restored: the same rows, byte for byte.

The rules are those of ``RocksDBVersionedStore`` (``restoreBatch``, ``doPut``), of
``RocksDBVersionedStoreSegmentValueFormatter`` and of ``LogicalKeyValueSegments``; they are the same from 3.9 to 4.3.
Times are milliseconds.

*Batches.* Streams restores batch by batch, and judges what has expired by the greatest timestamp of the batch, that is
too early for the records before it. What a batch throws away too early can be missed by a later record of the same key:
a record that arrives late and belongs *before* a tombstone whose segment is gone becomes the latest version, so a
deleted key is back. :class:`VersionedReplay` therefore replays record by record, as the application wrote them, which
is what small batches give; ``batch_end`` selects a batch's own view. In the record-by-record view nothing
that an accepted record touches has expired, so expiry is only the last step.

*Reopened stores.* A store that Streams reopens does not know the segments it has on disk until a record writes to them
(``LogicalKeyValueSegments.openExisting``), and files a late record wrongly then. Rows given to
:meth:`VersionedReplay.load` are all known: the result is that of a store which was never closed.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from kstate_cli.formats.binary import MIN_I64
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
from kstate_cli.formats.versioned import LatestValue, SegmentValue

if TYPE_CHECKING:
    from numpy.typing import NDArray


NO_TIMESTAMP: Final = -1
"""The stream time with which a store begins at every start (``ConsumerRecord.NO_TIMESTAMP``)."""

_TOMBSTONE: Final = -1
_PREFIX: Final = struct.Struct(">q")
_ENDS: Final = struct.Struct(">qq")
_VERSION: Final = struct.Struct(">qi")
_LATEST_PREFIX: Final = _PREFIX.pack(LATEST_SEGMENT)


def segment_id(timestamp: int, segment_interval_ms: int) -> int:
    """Return the segment of a time (``AbstractSegments.segmentId``): a Java division, toward zero."""
    if timestamp < 0:
        return -(-timestamp // segment_interval_ms)
    return timestamp // segment_interval_ms


def accepted_mask(
    timestamps: NDArray[np.int64], history_retention_ms: int, start: int = NO_TIMESTAMP
) -> tuple[NDArray[np.bool_], int]:
    """Return which records of a partition, in offset order, a restore applies, and the stream time (ms) after them.

    ``RocksDBVersionedStore.restoreBatch`` drops a record that is older than the stream time before it minus the history
    retention, which is the store's grace period too. Tombstones count like values. Records without a key do not count
    (``StoreChangelogReader``), so the caller leaves them out. How Streams divides the records into batches makes no
    difference, and a dropped record never changes the stream time. So the answer for a slice depends only on the stream
    time after the slice before it, ``start``.
    """
    times = np.asarray(timestamps, dtype=np.int64)
    # The stream time before each record, and after the last one. A record that is dropped is older than that, so it
    # cannot raise it, and the maximum over all records is exact.
    stream_time = np.maximum.accumulate(np.concatenate((np.array([start], dtype=np.int64), times)))
    return times >= stream_time[:-1] - history_retention_ms, int(stream_time[-1])


class VersionedReplay:
    """The histories of one key or of many; each key's accepted records are put in offset order.

    ``observed_stream_time`` is the greatest timestamp of the partition's whole changelog: segments that have expired by
    then are not part of the result.
    """

    def __init__(self, history_retention_ms: int, segment_interval_ms: int, observed_stream_time: int) -> None:
        self._retention = history_retention_ms
        self._interval = segment_interval_ms
        self._first_live = segment_id(observed_stream_time - history_retention_ms, segment_interval_ms)
        self._histories: dict[bytes, _History] = {}
        self._loaded: set[bytes] = set()

    def load(self, key: bytes, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take over the rows that the store has of a key, before the first :meth:`put` of that key.

        Raises :class:`~kstate_cli.formats.binary.MalformedBytesError` for a row that cannot be decoded, here or when a
        record first touches it. Streams itself makes such rows (see the module); only a rebuild from the whole
        changelog repairs them.
        """
        history = self._histories.setdefault(key, _History(self._interval))
        for physical, value in rows:
            at = VersionedKey.from_bytes(physical)
            # This is a bug of the caller: rows of another key would be written back under this one.
            if at.key != key:
                raise ValueError(f"row {physical.hex()} belongs to a different key than {key.hex()}")
            if at.is_latest:
                latest = LatestValue.from_bytes(value)
                history.time, history.value = latest.valid_from, latest.value
            else:
                history.add(at.segment, value)
            self._loaded.add(physical)

    def put(self, key: bytes, value: bytes | None, timestamp: int, batch_end: int | None = None) -> None:
        """Replay one accepted record; ``None`` is a tombstone.

        With ``batch_end``, the greatest timestamp up to the end of a restore batch, expiry is judged as that batch
        does, else as when the record was written.
        """
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History(self._interval)
        # Judged when each record was written, no segment that it touches has expired, so none is removed before it.
        if batch_end is None:
            history.put(value, timestamp, MIN_I64)
            return
        oldest = batch_end - self._retention
        # A restore batch removes segments before a record that might have needed them.
        history.expire(segment_id(oldest, self._interval))
        history.put(value, timestamp, oldest)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the physical rows of all keys, sorted by physical key, without rows of expired segments."""
        encoded: list[tuple[bytes, bytes]] = []
        for key, history in self._histories.items():
            encoded.extend((_PREFIX.pack(at) + key, row) for at, row in history.encoded(self._first_live))
            if history.time is not None:
                encoded.append((_LATEST_PREFIX + key, _PREFIX.pack(history.time) + history.value))
        # Physical keys are segment:i64 ‖ key. Sorted as bytes, the segment of the latest versions, -1, comes last.
        encoded.sort()
        return iter(encoded)

    def deleted(self) -> Iterator[bytes]:
        """Return the physical keys that were loaded and are not among :meth:`rows`, sorted."""
        return iter(sorted(physical for physical in self._loaded if not self._has(VersionedKey.from_bytes(physical))))

    def _has(self, at: VersionedKey) -> bool:
        history = self._histories[at.key]
        if at.is_latest:
            return history.time is not None
        return at.segment >= self._first_live and at.segment in history.rows


class _History:
    """One key: its latest version, unless that is a tombstone, and its rows by segment (bytes until touched)."""

    __slots__ = ("interval", "rows", "segments", "time", "value")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.time: int | None = None
        self.value = b""
        self.segments: list[int] = []
        self.rows: dict[int, _Row | bytes] = {}

    def add(self, segment: int, row: _Row | bytes) -> None:
        # A list in order beside the dictionary: puts look at the newest segments first, and expiry cuts the oldest.
        if segment not in self.rows:
            insort(self.segments, segment)
        self.rows[segment] = row

    def expire(self, first_live: int) -> None:
        """Remove expired segments (``AbstractSegments.cleanupExpiredSegments``)."""
        if self.segments and self.segments[0] < first_live:
            expired = bisect_left(self.segments, first_live)
            for segment in self.segments[:expired]:
                del self.rows[segment]
            del self.segments[:expired]

    def encoded(self, first_live: int) -> Iterator[tuple[int, bytes]]:
        for segment in self.segments[bisect_left(self.segments, first_live) :]:
            row = self.rows[segment]
            if isinstance(row, _Row):
                row = row.to_bytes()
            yield segment, row

    def put(self, value: bytes | None, timestamp: int, oldest: int) -> None:
        """Apply a record (``RocksDBVersionedStore.doPut``); versions that ended before ``oldest`` may be skipped.

        Streams also skips what belongs into an expired segment. Here it is written, and ``expire`` removes it.
        """
        # ``doPut`` looks at the latest version first, then at the segments from newest to oldest, until it finds where
        # the record belongs.
        valid_to = self.time
        if valid_to is not None and timestamp >= valid_to:
            # At the same time the record replaces the latest version, and nothing ends.
            if timestamp > valid_to:
                self._close(self.value, valid_to, timestamp)
            self._set_latest(value, timestamp)
            return
        # A version is in the segment of its end, so no older segment has one that is valid at this time.
        earliest = segment_id(timestamp, self.interval)
        for segment in reversed(self.segments):
            if segment < earliest:
                break
            row = self._row(segment)
            # All versions of this row ended before the record: it belongs in front of ``valid_to``.
            if row is None or row.end <= timestamp:
                break
            begin = row.times[0]
            if begin <= timestamp:
                self._put_inside(row, segment, value, timestamp)
                return
            # The record would end, at ``begin``, before the batch's expiry: Streams drops it.
            if begin < oldest:
                return
            # The record ends where the oldest version of this row begins, unless an older row says otherwise.
            valid_to = begin
        if valid_to is not None:
            self._put_before(value, timestamp, valid_to)
        elif value is not None:
            self._set_latest(value, timestamp)
        else:
            self._put_lone_tombstone(timestamp)

    def _set_latest(self, value: bytes | None, timestamp: int) -> None:
        # A tombstone leaves no row of its own in the latest segment: its time is the end of the version before.
        if value is None:
            self.time, self.value = None, b""
        else:
            self.time, self.value = timestamp, value

    def _row(self, segment: int) -> _Row | None:
        row = self.rows.get(segment)
        if isinstance(row, bytes):
            # Rows stay bytes until a record touches them: most rows of a base are written back unchanged.
            row = self.rows[segment] = _Row.from_bytes(row)
        return row

    def _close(self, value: bytes | None, valid_from: int, valid_to: int) -> None:
        """File a version under its end, as the newest of that segment."""
        segment = segment_id(valid_to, self.interval)
        row = self._row(segment)
        if row is None:
            self.add(segment, _Row(valid_to, [valid_from], [value]))
        else:
            row.append(valid_from, valid_to, value)

    def _put_inside(self, row: _Row, segment: int, value: bytes | None, timestamp: int) -> None:
        """Insert a record between the versions of a row (``putToSegment``).

        The version before it may then end in an older segment, and moves there.
        """
        at = bisect_right(row.times, timestamp) - 1
        # The version before the record ends where the record begins.
        before = row.times[at]
        if before == timestamp:
            row.values[at] = value
        # The new end of that version is in this segment, so both are in this row.
        elif segment_id(timestamp, self.interval) == segment:
            row.times.insert(at + 1, timestamp)
            row.values.insert(at + 1, value)
        else:
            self._close(row.values[at], before, timestamp)
            # That version has moved to the segment of its new end, and the record takes its place here.
            row.times[at], row.values[at] = timestamp, value

    def _put_before(self, value: bytes | None, timestamp: int, valid_to: int) -> None:
        """Insert a record that is valid until ``valid_to``, where a later version begins (``finishPut``).

        No row has versions from before and after the record, so the segment of its end gets it.
        """
        segment = segment_id(valid_to, self.interval)
        row = self._row(segment)
        # All versions of this row are older than the record, which becomes the newest.
        if row is None or row.end <= timestamp:
            self._close(value, timestamp, valid_to)
        else:
            row.prepend(timestamp, value)

    def _put_lone_tombstone(self, timestamp: int) -> None:
        """Insert without a later version (``finishPut``): a tombstone has no end, so it is filed under its begin."""
        segment = segment_id(timestamp, self.interval)
        row = self._row(segment)
        if row is None:
            self.add(segment, _Row(timestamp, [timestamp], [None]))
        elif row.end != timestamp:
            row.append(row.end, timestamp, None)


class _Row:
    """The versions of one key in one segment, oldest first; the newest ends at ``end``.

    ``RocksDBVersionedStoreSegmentValueFormatter.SegmentValue``; a lone tombstone that ends when it begins is a
    *degenerate* row, which the first real version replaces.
    """

    __slots__ = ("end", "times", "values")

    def __init__(self, end: int, times: list[int], values: list[bytes | None]) -> None:
        self.end = end
        self.times = times
        self.values = values

    @classmethod
    def from_bytes(cls, data: bytes) -> _Row:
        return cls._read(data) or cls._invalid(data)

    @classmethod
    def _read(cls, data: bytes) -> _Row | None:
        """Return the row; None if anything about it is wrong: ``SegmentValue``, which is slow, says what."""
        try:
            # end:i64 ‖ begin of the oldest version:i64, then begin:i64 ‖ size:i32 of each version, newest first, then
            # the values, oldest first. Only the begin of the oldest version shows where the list of versions ends.
            end, first = _ENDS.unpack_from(data)
            later, size = _VERSION.unpack_from(data, _ENDS.size)
            times, sizes = [later], [size]
            offset = _ENDS.size + _VERSION.size
            while later > first:
                time, size = _VERSION.unpack_from(data, offset)
                # Versions are out of order.
                if time >= later:
                    return None
                times.append(time)
                sizes.append(size)
                offset += _VERSION.size
                later = time
        except struct.error:
            return None
        # The head states the oldest begin a second time, and -1 is the only negative size.
        if later != first or min(sizes) < _TOMBSTONE:
            return None
        # A row ends after its newest version begins, unless it is a lone tombstone.
        if times[0] >= end and not (times[0] == end and sizes == [_TOMBSTONE]):
            return None
        values: list[bytes | None] = []
        # Sizes are newest first, and values oldest first.
        for size in reversed(sizes):
            if size == _TOMBSTONE:
                values.append(None)
            else:
                values.append(data[offset : offset + size])
                offset += size
        times.reverse()
        if offset != len(data):
            return None
        return cls(end, times, values)

    @classmethod
    def _invalid(cls, data: bytes) -> _Row:
        SegmentValue.from_bytes(data)
        raise AssertionError(f"the two readers of segment rows disagree: {data.hex()}")

    def append(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Append a version (``insertAsLatest``): a gap before it becomes a tombstone, overlapped versions give way."""
        if valid_from < self.end:
            # Streams writes a version to the older segment first: a crash before the second write leaves it in both.
            # Versions from ``valid_from`` on are removed, and the one before them ends there.
            remaining = bisect_left(self.times, valid_from)
            del self.times[remaining:], self.values[remaining:]
            self.end = valid_from
        elif self.times[0] == self.end:
            self.times.clear()
            self.values.clear()
        if self.end < valid_from:
            self.times.append(self.end)
            self.values.append(None)
        self.times.append(valid_from)
        self.values.append(value)
        self.end = valid_to

    def prepend(self, timestamp: int, value: bytes | None) -> None:
        """Insert the earliest version (``insertAsEarliest``)."""
        if self.times[0] == self.end:
            self.times, self.values = [timestamp], [value]
        else:
            self.times.insert(0, timestamp)
            self.values.insert(0, value)

    def to_bytes(self) -> bytes:
        # Newest first in the head, while the values keep the order of the lists, oldest first.
        head = [self.end, self.times[0]]
        for time, value in zip(reversed(self.times), reversed(self.values), strict=True):
            head.append(time)
            head.append(_TOMBSTONE if value is None else len(value))
        return b"".join((_head(len(self.times)).pack(*head), *filter(None, self.values)))


@lru_cache(maxsize=1024)
def _head(versions: int) -> struct.Struct:
    """Return the layout of a row's head: end, minimum, and time and size of every version."""
    return struct.Struct(">qq" + "qi" * versions)
