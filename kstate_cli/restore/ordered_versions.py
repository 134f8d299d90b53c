"""Rows of a versioned store from histories whose records came in order, as whole columns.

Nearly every key's records come with rising timestamps. Then each version ends where the next record of its key begins,
and lies in the segment of that end: no row has to be read again, and
:class:`~kstate_cli.restore.versioned.VersionedReplay` gives the same rows
(``tests/unit/restore/test_ordered_versions.py`` compares them). Keys with records in any other order are named, and
left to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.formats.keys import LATEST_SEGMENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kstate_cli.restore.convert import Ints

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
    """The keys that need a replay, of records that are sorted by key and, within a key, by offset.

    They are those with times (ms) that do not rise or are negative, and with a tombstone where no version is.
    """
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    odd = (times < 0) | (first & tombstones)
    odd[1:] |= ~first[1:] & ((times[1:] <= times[:-1]) | (tombstones[1:] & tombstones[:-1]))
    return np.unique(keys[odd])


def rows_in_order(
    keys: Ints, times: Ints, values: pa.LargeBinaryArray, interval_ms: int, first_live: int
) -> HistoryRows:
    """The rows of records that are sorted by key, none of which :func:`out_of_order` names; ``None`` is a tombstone.

    ``first_live``: rows of older segments have expired. Latest versions never do.
    """
    count = len(keys)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    followed = np.zeros(count, dtype=np.bool_)
    followed[:-1] = keys[1:] == keys[:-1]
    sizes = pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    latest = np.flatnonzero(present & ~followed)
    closed = np.flatnonzero(present & followed)
    ends = times[closed + 1]
    segments = ends // interval_ms
    alive = segments >= first_live
    closed, ends, segments = closed[alive], ends[alive], segments[alive]
    first = _first_of_each(keys[closed], segments)
    heads, last = _segment_heads(times[closed], ends, sizes[closed], first)
    # A row is its head and the values of its versions: heads and values are put behind each other, and joined.
    parts = np.concatenate((closed, latest))
    begins = np.concatenate((first, len(closed) + np.arange(len(latest), dtype=np.int64)))
    heads = pa.concat_arrays([heads, _binary(_big_endian(times[latest]).ravel(), np.full(len(latest), _TIME))])
    return HistoryRows(
        np.concatenate((segments[last], np.full(len(latest), LATEST_SEGMENT, dtype=np.int64))),
        np.concatenate((keys[closed][last], keys[latest])),
        _joined(heads, values.take(pa.array(parts)), begins),
    )


def _first_of_each(keys: Ints, segments: Ints) -> Ints:
    """Where the versions of each row begin."""
    new = np.ones(len(keys), dtype=np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (segments[1:] != segments[:-1])
    return np.flatnonzero(new)


def _segment_heads(begins: Ints, ends: Ints, sizes: Ints, first: Ints) -> tuple[pa.LargeBinaryArray, Ints]:
    """What precedes the values of each row, and the last version of each row.

    ``RocksDBVersionedStoreSegmentValueFormatter``: versions newest first; a gap between two is a tombstone.
    """
    rows, versions = len(first), len(begins)
    last = np.append(first[1:], versions)[: len(first)] - 1
    gap = np.zeros(versions, dtype=np.bool_)
    gap[1:] = begins[1:] > ends[:-1]
    gap[first] = False
    entries = 1 + gap.astype(np.int64)
    upto = np.cumsum(entries)
    before = upto - entries
    in_row = np.add.reduceat(entries, first) if rows else entries
    lengths = _ROW_HEAD + _VERSION * in_row
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    _put(data, starts, _big_endian(ends[last]))
    _put(data, starts + 8, _big_endian(begins[first]))
    row = np.repeat(np.arange(rows), np.diff(np.append(first, versions)))
    # The oldest entry of a row is its last: the number of an entry counts from the row's end.
    number = in_row[row] - 1 - (upto - 1 - before[first][row])
    at = starts[row] + _ROW_HEAD + _VERSION * number
    _put(data, at, _big_endian(begins))
    _put(data, at + _TIME, _big_endian(sizes, 4))
    gaps = np.flatnonzero(gap)
    _put(data, at[gaps] + _VERSION, _big_endian(ends[gaps - 1]))
    _put(data, at[gaps] + _VERSION + _TIME, _big_endian(np.full(len(gaps), _TOMBSTONE), 4))
    return _binary(data, lengths), last


def _joined(heads: pa.LargeBinaryArray, values: pa.LargeBinaryArray, begins: Ints) -> pa.LargeBinaryArray:
    """Each head with the values that follow it; ``begins``: the first value of each head."""
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
    listed = pa.LargeListArray.from_arrays(pa.array(offsets), mixed)
    return pc.binary_join(listed, pa.scalar(b"", pa.large_binary()))


def _big_endian(numbers: Ints, width: int = _TIME) -> NDArray[np.uint8]:
    """One row of ``width`` bytes for each."""
    return np.ascontiguousarray(numbers.astype(f">i{width}")).view(np.uint8).reshape(-1, width)


def _put(data: NDArray[np.uint8], starts: Ints, rows: NDArray[np.uint8]) -> None:
    for byte in range(rows.shape[1]):
        data[starts + byte] = rows[:, byte]


def _binary(data: NDArray[np.uint8], lengths: Ints) -> pa.LargeBinaryArray:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )
