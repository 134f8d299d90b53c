"""Make sorted files of a versioned store, where a row depends on all records of its key.

Nearly every key's records come with rising timestamps. Then each version ends where the next record of its key begins
and is stored in the segment of that end, so that whole columns are computed at once. Keys in any other order, and those
that the store already has, are replayed record by record
(:class:`~kstate_cli.restore.sorting.versioned.VersionedReplay`). Both ways give the same rows
(``tests/sorting/test_ordered_versions.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
from kstate_cli.formats.store_kinds import DEFAULT_CF
from kstate_cli.formats.versioned import read_versions
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.sorting import convert
from kstate_cli.restore.sorting.memory import HISTORY_WRITE_ROWS, REPLAYED_VERSION_BYTES
from kstate_cli.restore.sorting.slice_files import CountSink
from kstate_cli.restore.sorting.versioned import NO_TIMESTAMP, VersionedReplay, accepted_mask, segment_id
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.texts import quoted, suggest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kstate_cli.restore.sorting.convert import Ints
    from kstate_cli.restore.sorting.slice_files import Layer


_PREFIX = 8


class RowSink(Protocol):
    """Where rows go."""

    def open(self, segment: int | None) -> Layer:
        """Open the next layer."""


Batches = Callable[[tuple[str, ...]], "Generator[pa.Table, None, None]"]


@dataclass(frozen=True, slots=True)
class _Histories:
    """The accepted records of a job, sorted by key and, within a key, by offset."""

    names: pa.BinaryArray
    """The keys, sorted; a record's key is a number of them."""
    keys: Ints
    times: Ints
    values: pa.LargeBinaryArray


def build_history(job: SliceJob, batches: Batches, layers: RowSink, counts: CountSink) -> int | None:
    """Write the rows of a slice with all records of a partition; return its stream time (ms), or None without records.

    Only keys of the job's bucket are kept in memory. Which records the grace period drops depends on the times of all
    records, so these are read first.
    """
    accepted, stream_time = _accepted(job, batches, counts)
    histories = _read(job, batches, counts, accepted)
    if job.base:
        _write(histories, _in_base(job, histories, stream_time), layers)
    else:
        _write(histories, _rows(job, histories, stream_time), layers)
    if not len(accepted):
        return None
    return stream_time


def _accepted(job: SliceJob, batches: Batches, counts: CountSink) -> tuple[NDArray[np.bool_], int]:
    """Return for every record with a key whether a restore applies it, and the stream time (ms) after all of them."""
    # The empty array is for a slice without records: numpy concatenates no empty list.
    parts = [np.empty(0, dtype=np.int64)]
    with closing(batches(("key", "timestamp"))) as tables:
        for table in tables:
            valid = table.column("key").is_valid().to_numpy()
            if job.bucket[0] == 0:  # every bucket reads all of them
                counts.records += len(table)
                counts.null_keys += len(table) - int(valid.sum())
            counts.data_bytes += table.nbytes
            # Records without a key make no row and do not change the stream time.
            parts.append(table.column("timestamp").to_numpy().astype(np.int64)[valid])
    times = np.concatenate(parts)
    before = NO_TIMESTAMP
    try:
        if job.base:
            before = _newest(job.base)
    except MalformedBytesError as error:
        rebuild = f": {option.REBUILD} {option.STORE} {quoted(job.store)}"
        # Streams itself makes such rows: a store that it has reopened may put a late record in front of older ones.
        raise Refused(
            f"{job.title}: the store has a row with versions in the wrong order: {error}",
            hint=f"rebuild it from the whole changelog{suggest(rebuild, option.REBUILD, option.STORE)}",
        ) from None
    return accepted_mask(times, job.retention_ms, before)


def _rows(job: SliceJob, histories: _Histories, stream_time: int) -> HistoryRows:
    """Return the rows of a store that is built new."""
    # ``odd`` are the few keys with a record that is late, or equal in time, and so changes earlier versions.
    odd = out_of_order(histories.keys, histories.times, ~histories.values.is_valid().to_numpy(zero_copy_only=False))
    plain = ~np.isin(histories.keys, odd)
    values = histories.values.filter(pa.array(plain))
    # Expired segments are left out at the end, by the stream time of all records: no row of the other keys depends on
    # them.
    first_live = segment_id(stream_time - job.retention_ms, job.interval_ms)
    parts = [rows_in_order(histories.keys[plain], histories.times[plain], values, job.interval_ms, first_live)]
    # The columns are not needed any more, and replaying needs their memory for Python objects.
    del values
    parts += [_replayed(job, histories, some, stream_time) for some in _by_memory(odd, histories.keys, job.memory)]
    return HistoryRows(
        np.concatenate([part.segments for part in parts]),
        np.concatenate([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
    )


def _in_base(job: SliceJob, histories: _Histories, stream_time: int) -> HistoryRows:
    """Return the rows that change in a store that exists."""
    return _replayed(job, histories, np.arange(len(histories.names)), stream_time)


def _replayed(job: SliceJob, histories: _Histories, some: Ints, stream_time: int) -> HistoryRows:
    """Return the rows of ``some`` keys, which are replayed record by record."""
    # The rows that the store has already come first: a late record may change their versions.
    replay = VersionedReplay(job.retention_ms, job.interval_ms, stream_time)
    if job.base:
        _load(job, replay, {*histories.names.take(pa.array(some)).to_pylist()})
    mask = np.isin(histories.keys, some)
    numbers = histories.keys[mask]
    keys = histories.names.take(pa.array(numbers)).to_pylist()
    values = histories.values.filter(pa.array(mask)).to_pylist()
    for key, time, value in zip(keys, histories.times[mask].tolist(), values, strict=True):
        replay.put(key, value, time)
    return _rows_of(replay, histories)


def _read(job: SliceJob, batches: Batches, counts: CountSink, accepted: NDArray[np.bool_]) -> _Histories:
    """Return the records of the job's bucket that are ``accepted``, a mask over all records that have a key."""
    keys, values, times, at = [], [], [np.empty(0, dtype=np.int64)], 0
    # Offsets are read again: if a file was replaced since the first reading, they differ.
    with closing(batches(("key", "value", "timestamp", "offset"))) as tables:
        for table in tables:
            counts.data_bytes += table.nbytes
            valid = table.column("key").is_valid().to_numpy()
            # ``accepted`` counts only records with a key, the mask all records of the table.
            mask = valid.copy()
            upto = at + int(valid.sum())
            mask[valid] = accepted[at:upto]
            at = upto
            number, buckets = job.bucket
            # A checksum chooses the bucket of a key, so that buckets are about equal. They need no order: each is
            # written as layers of its own, and each key is in one bucket.
            if buckets > 1:
                mask[mask] = [
                    zlib.crc32(key) % buckets == number for key in table.column("key").filter(mask).to_pylist()
                ]
            # The rows are copied now: slices would keep the whole batch in memory.
            batch = table.filter(pa.array(mask)).combine_chunks()
            keys += batch.column("key").chunks
            # Values get 64-bit offsets, since those of a whole partition may exceed the 2 GiB of 32-bit ones.
            values += batch.column("value").cast(pa.large_binary()).chunks
            times.append(batch.column("timestamp").to_numpy().astype(np.int64))
    coded = pa.chunked_array(keys, pa.binary()).combine_chunks().dictionary_encode()
    sorted_keys = convert.sort_order(coded.dictionary)
    # A key's number is its rank among the sorted keys, so that sorting by numbers sorts by keys.
    rank = np.empty(len(sorted_keys), dtype=np.int64)
    rank[sorted_keys] = np.arange(len(sorted_keys))
    of_record = rank[coded.indices.to_numpy(zero_copy_only=False)]
    # A stable sort keeps the records of one key in the order of their offsets, which the rules depend on.
    by_key = np.argsort(of_record, kind="stable")
    return _Histories(
        names=coded.dictionary.take(pa.array(sorted_keys)),
        keys=of_record[by_key],
        times=np.concatenate(times)[by_key],
        values=pa.chunked_array(values, pa.large_binary()).combine_chunks().take(pa.array(by_key)),
    )


def _by_memory(some: Ints, keys: Ints, memory: int) -> Iterator[Ints]:
    """Yield parts of some keys whose records can be replayed together."""
    if not len(some):
        return
    records = np.searchsorted(keys, some, "right") - np.searchsorted(keys, some, "left")
    # A key with more records than fit is a part alone: its history cannot be cut.
    part = np.cumsum(records) // max(memory // REPLAYED_VERSION_BYTES, 1)
    yield from np.split(some, np.flatnonzero(np.diff(part)) + 1)


def _rows_of(replay: VersionedReplay, histories: _Histories) -> HistoryRows:
    """Return the replayed rows as columns; deleted rows have no value."""
    rows: list[tuple[bytes, bytes | None]] = [*replay.rows(), *((key, None) for key in replay.deleted())]
    prefixes = b"".join(key[:_PREFIX] for key, _ in rows)
    # Rows name keys by number again, as the columns of the other keys do.
    keys = pc.index_in(pa.array([key[_PREFIX:] for key, _ in rows], pa.binary()), histories.names)
    return HistoryRows(
        np.frombuffer(prefixes, dtype=">i8").astype(np.int64),
        keys.to_numpy(zero_copy_only=False).astype(np.int64),
        pa.array([value for _, value in rows], pa.large_binary()),
    )


def _newest(base: str) -> int:
    """Return the stream time that the rows of a store show: the time at which its newest version began."""
    newest = -1
    with Shadow(Path(base)) as shadow:
        # Every row is decoded: the newest version may be in any segment, and rows out of order are refused here.
        for key, value in shadow.rows(DEFAULT_CF):
            at = VersionedKey.from_bytes(key)
            newest = max(newest, read_versions(at, value).newest_time)
    return newest


def _load(job: SliceJob, replay: VersionedReplay, keys: set[bytes]) -> None:
    """Load the rows of the store for the keys that the slice changes."""
    by_key: dict[bytes, list[tuple[bytes, bytes]]] = {}
    with Shadow(Path(job.base)) as shadow:
        # One scan instead of a look-up per key: the rows of a key are in as many places as it has segments.
        for key, value in shadow.rows(DEFAULT_CF):
            if key[_PREFIX:] in keys:
                by_key.setdefault(key[_PREFIX:], []).append((key, value))
    for key, rows in by_key.items():
        replay.load(key, rows)


def _write(histories: _Histories, rows: HistoryRows, layers: RowSink) -> None:
    """Write the rows as one layer, sorted by segment and key."""
    # As unsigned numbers, since RocksDB compares bytes: the segment of the latest versions, -1, comes last.
    order = np.lexsort((rows.keys, rows.segments.view(np.uint64)))
    nothing = pa.scalar(b"")
    layer = layers.open(None)
    for first in range(0, len(order), HISTORY_WRITE_ROWS):
        part = order[first : first + HISTORY_WRITE_ROWS]
        segments = np.ascontiguousarray(rows.segments[part].astype(">i8"))
        prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_PREFIX), len(part), [None, pa.py_buffer(segments)])
        keys = pc.binary_join_element_wise(
            prefixes.cast(pa.binary()), histories.names.take(pa.array(rows.keys[part])), nothing
        )
        # Rows without a value hide rows of the existing store. When a store is built new there are none.
        layer.put(keys, rows.values.take(pa.array(part)), deletes=True)
    layer.close()


_TOMBSTONE: Final = -1
_ROW_HEAD: Final = 16
"""End of the newest version and begin of the oldest one, ``i64`` each."""
_VERSION: Final = 12
"""Begin, ``i64``, and size of the value, ``i32``, -1 of a tombstone."""
_TIME: Final = 8


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """Rows, in no particular order."""

    segments: Ints
    """The id that a row's key begins with, ``LATEST_SEGMENT`` for a latest version."""
    keys: Ints
    """The number of its key."""
    values: pa.LargeBinaryArray


def out_of_order(keys: Ints, times: Ints, tombstones: NDArray[np.bool_]) -> Ints:
    """Return the keys that need a replay, of records sorted by key and, within a key, by offset.

    These are keys with times (ms) that do not rise or are negative, and keys with a tombstone where there is no version
    to end: as their first record, or right after another tombstone.
    """
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    first = np.ones(len(keys), dtype=np.bool_)
    # Records are sorted by key, so a key begins where it differs from the one before.
    first[1:] = keys[1:] != keys[:-1]
    # Two rules that :func:`rows_in_order` leaves out: Java divides times below zero toward zero, and a tombstone
    # without a version is put into the segment of its own time.
    odd = (times < 0) | (first & tombstones)
    # A tombstone after another one finds no version either.
    odd[1:] |= ~first[1:] & ((times[1:] <= times[:-1]) | (tombstones[1:] & tombstones[:-1]))
    return np.unique(keys[odd])


def rows_in_order(
    keys: Ints, times: Ints, values: pa.LargeBinaryArray, interval_ms: int, first_live: int
) -> HistoryRows:
    """Return the rows of records sorted by key, none of which :func:`out_of_order` names; None is a tombstone.

    ``first_live`` is the number of the first segment that has not expired: rows of older ones are left out. Latest
    versions never expire.
    """
    count = len(keys)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    followed = np.zeros(count, dtype=np.bool_)
    followed[:-1] = keys[1:] == keys[:-1]
    sizes = pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    # If the last record of a key is no tombstone, its value is the latest version.
    latest = np.flatnonzero(present & ~followed)
    # Every other value is a version that ended where the next record of the key begins.
    closed = np.flatnonzero(present & followed)
    ends = times[closed + 1]
    # The time when a version ended decides its segment, and so when it expires (``RocksDBVersionedStore``).
    segments = ends // interval_ms
    alive = segments >= first_live
    # Tombstones have no row: within a row they are the gap between two versions.
    closed, ends, segments = closed[alive], ends[alive], segments[alive]
    first = _first_of_each(keys[closed], segments)
    heads, last = _segment_heads(times[closed], ends, sizes[closed], first)
    # A row consists of a head and the values of its versions, which are joined.
    parts = np.concatenate((closed, latest))
    begins = np.concatenate((first, len(closed) + np.arange(len(latest), dtype=np.int64)))
    heads = pa.concat_arrays([heads, _binary(_big_endian(times[latest]).ravel(), np.full(len(latest), _TIME))])
    return HistoryRows(
        np.concatenate((segments[last], np.full(len(latest), LATEST_SEGMENT, dtype=np.int64))),
        np.concatenate((keys[closed][last], keys[latest])),
        _joined(heads, values.take(pa.array(parts)), begins),
    )


def _first_of_each(keys: Ints, segments: Ints) -> Ints:
    """Return where the versions of each row begin."""
    new = np.ones(len(keys), dtype=np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (segments[1:] != segments[:-1])
    return np.flatnonzero(new)


def _segment_heads(begins: Ints, ends: Ints, sizes: Ints, first: Ints) -> tuple[pa.LargeBinaryArray, Ints]:
    """Return the head of each row, which precedes its values, and the last version of each row.

    ``first`` has the first version of each row. The head lists versions newest first; a gap between two of them is a
    tombstone (``RocksDBVersionedStoreSegmentValueFormatter``).
    """
    rows, versions = len(first), len(begins)
    last = np.append(first[1:], versions)[: len(first)] - 1
    gap = np.zeros(versions, dtype=np.bool_)
    # The key was deleted between two versions if the later one begins after the earlier one has ended.
    gap[1:] = begins[1:] > ends[:-1]
    # Before the first version of a row there is none: the one before belongs to another row.
    gap[first] = False
    entries = 1 + gap.astype(np.int64)
    upto = np.cumsum(entries)
    before = upto - entries
    in_row = entries
    if rows:
        # Only with rows: reduceat fails for no groups.
        in_row = np.add.reduceat(entries, first)
    # end:i64 ‖ begin:i64, then begin:i64 ‖ size:i32 of each version, newest first; the values follow.
    lengths = _ROW_HEAD + _VERSION * in_row
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    _write_bytes(data, starts, _big_endian(ends[last]))
    _write_bytes(data, starts + 8, _big_endian(begins[first]))
    row = np.repeat(np.arange(rows), np.diff(np.append(first, versions)))
    # Entries are newest first: the number of an entry counts from the end of its row.
    number = in_row[row] - 1 - (upto - 1 - before[first][row])
    at = starts[row] + _ROW_HEAD + _VERSION * number
    _write_bytes(data, at, _big_endian(begins))
    _write_bytes(data, at + _TIME, _big_endian(sizes, 4))
    gaps = np.flatnonzero(gap)
    # A tombstone begins where the version before it ended. Its entry comes after that of the later version, at ``at``.
    _write_bytes(data, at[gaps] + _VERSION, _big_endian(ends[gaps - 1]))
    _write_bytes(data, at[gaps] + _VERSION + _TIME, _big_endian(np.full(len(gaps), _TOMBSTONE), 4))
    return _binary(data, lengths), last


def _joined(heads: pa.LargeBinaryArray, values: pa.LargeBinaryArray, begins: Ints) -> pa.LargeBinaryArray:
    """Return each head joined with the values of its row; ``begins`` has the number of the first value of each row."""
    rows, count = len(heads), len(values)
    lengths = np.diff(np.append(begins, count)) + 1
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    order = np.empty(rows + count, dtype=np.int64)
    is_value = np.ones(rows + count, dtype=np.bool_)
    is_value[offsets[:-1]] = False
    order[offsets[:-1]] = np.arange(rows)
    order[is_value] = rows + np.arange(count)
    mixed = pa.concat_arrays([heads, values]).take(pa.array(order))
    joined = pa.LargeListArray.from_arrays(pa.array(offsets), mixed)
    return pc.binary_join(joined, pa.scalar(b"", pa.large_binary()))


def _big_endian(numbers: Ints, width: int = _TIME) -> NDArray[np.uint8]:
    """Return one row of ``width`` bytes for each number."""
    return np.ascontiguousarray(numbers.astype(f">i{width}")).view(np.uint8).reshape(-1, width)


def _write_bytes(data: NDArray[np.uint8], starts: Ints, rows: NDArray[np.uint8]) -> None:
    # Rows have different lengths, so there is no table: one byte of all rows at a time.
    for byte in range(rows.shape[1]):
        data[starts + byte] = rows[:, byte]


def _binary(data: NDArray[np.uint8], lengths: Ints) -> pa.LargeBinaryArray:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )
