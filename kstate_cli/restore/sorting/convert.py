"""Convert the columns of a changelog to the rows of a store, vectorised.

Keys decide everything that must be known before values are read: which record is the last of its key, its segment, and
the order of the rows. Only then are values read, and only those of the last records.

Keys of one length become numbers: only the bits in which keys differ decide how they are sorted, and those are few.
Digits differ in the low half of a byte, times of windows neither in their high bits nor, as multiples of the window's
length, in their lowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.errors import Refused
from kstate_cli.formats.binary import fixed_table
from kstate_cli.formats.keys import BASE_PREFIX, INDEX_PREFIX
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.restore.sorting.memory import BLOCK_ROWS, COMPARED_KEYS

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]


_TIME_BYTES = 8
_SEQUENCE_BYTES = 4
_LATEST_MS = 1 << 43
"""In the year 2248: with a later time, four bytes of a key and four of a time were read as one number."""


def buffers(array: pa.BinaryArray) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets (one more than rows) and the bytes of a binary array without nulls."""
    # A slice of an array shares the buffers of the whole: its offsets begin at array.offset, and count from the
    # beginning of all bytes. Arrow leaves the data buffer out if there is not a byte.
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return bounds, np.frombuffer(data or b"", dtype=np.uint8)


def segment_times(keys: pa.BinaryArray, rule: KeySchema, place: str) -> Ints:
    """Return the time (ms) in each key that decides its segment.

    Raises Refused for keys that no store of the kind has: of a lost store only the specification says what kind it is.
    """
    offsets, data = buffers(keys)
    tail = rule.tail
    if len(keys) == 0:
        return np.empty(0, dtype=np.int64)
    # Checked before bytes are read at a distance from the end of a key: in a shorter key they would be bytes of another
    # one.
    if int((offsets[1:] - offsets[:-1]).min()) < tail:
        raise Refused(
            f"{place}: the changelog has a key of fewer than {tail} bytes, so the store is not a {rule.value} store",
            hint="correct its kind in the specification",
        )
    starts = offsets[1:] - tail
    # Window keys end in time (i64) and sequence (i32), session keys in end and start (i64 each). The first of these two
    # numbers decides the segment (WindowKeySchema, SessionKeySchema).
    times = _numbers(data, starts, ">i8")
    windows = rule.windows
    # The second number must make sense too: a sequence is never negative, and a session begins before it ends.
    rest = _numbers(data, starts + _TIME_BYTES, ">i4" if windows else ">i8")
    # Such keys are refused, since the kind in the specification is wrong: other bytes would count as a time, and rows
    # would be put into segments of that time.
    fits = (times >= 0) & (times < _LATEST_MS) & (rest >= 0) & (windows | (rest <= times))
    if not bool(fits.all()):
        key = keys[int(np.argmin(fits))].as_py()
        raise Refused(
            f"{place}: key {key.hex()} in its changelog does not contain the times of a {rule.value} store",
            hint="correct its kind in the specification",
        )
    return times


def _numbers(data: npt.NDArray[np.uint8], starts: Ints, kind: str) -> Ints:
    """Return the big-endian numbers that begin at ``starts``."""
    width = np.dtype(kind).itemsize
    numbers = np.empty(len(starts), dtype=np.int64)
    # Block by block, since the indexes of all keys at once would take eight times as much memory as their bytes.
    for first in range(0, len(starts), BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        picked = data[starts[block, None] + np.arange(width)]
        # Keys begin at any byte, but numpy reads numbers only from contiguous rows, so the bytes of each are copied
        # first.
        numbers[block] = np.ascontiguousarray(picked).view(kind).ravel()
    return numbers


def segment_ids(times: Ints, interval_ms: int) -> Ints:
    """Return ``AbstractSegments.segmentId``: Java's division truncates toward zero."""
    return np.where(times >= 0, times // interval_ms, -((-times) // interval_ms)).astype(np.int64)


def base_keys(rule: KeySchema, keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return the row keys of a time-ordered store from its changelog keys (``TimeFirst…KeySchema``)."""
    tail = rule.tail
    # In the changelog a key has its time at the end; in the store the time comes first. A window keeps its sequence at
    # the end, and a session has both times in front.
    parts = [pc.binary_slice(keys, 0, -tail)]
    if rule is KeySchema.TIME_ORDERED_WINDOW:
        parts = [pc.binary_slice(keys, -tail, -_SEQUENCE_BYTES), *parts, pc.binary_slice(keys, -_SEQUENCE_BYTES, None)]
    else:
        parts = [pc.binary_slice(keys, -tail, None), *parts]
    # The last argument of this function is the separator.
    nothing = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(pa.scalar(BASE_PREFIX, pa.binary()), *parts, nothing)


def index_keys(keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return the keys of a time-ordered store's index rows from its changelog keys (``KeyFirst…KeySchema``)."""
    return pc.binary_join_element_wise(pa.scalar(INDEX_PREFIX, pa.binary()), keys, pa.scalar(b"", pa.binary()))


def apart(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy into Arrow's memory: lasting arrays are there, passing ones in numpy's. Mixed they would leave holes."""
    # numpy's arrays come from malloc. Those that die soon and those that stay would share its pages, and no page with
    # one that stays goes back to the kernel.
    copy = np.frombuffer(pa.allocate_buffer(array.nbytes), dtype=array.dtype)
    copy[:] = array
    return copy


def gather(array: pa.BinaryArray, indices: npt.NDArray[np.integer[Any]]) -> pa.BinaryArray:
    """Return ``array.take(indices)``, several times faster if all values have one length."""
    table = fixed_table(array)
    if table is None:
        return array.take(pa.array(indices))
    # Each value is seen as one field of ``width`` bytes, so that numpy copies whole values and needs no offsets.
    width = table.shape[1]
    data = pa.allocate_buffer(len(indices) * width)
    rows = np.frombuffer(data, dtype=f"V{width}")
    # "clip" is the mode that copies only once. It would hide wrong indices, but kstate has computed these.
    np.take(table.view(rows.dtype).ravel(), indices, out=rows, mode="clip")
    # The offsets of values of one length are multiples of it. 32 bits suffice, since arrays have at most 2 GiB.
    ends = apart(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(width))
    return pa.BinaryArray.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), data])


def sort_order(keys: pa.BinaryArray) -> Ints:
    """Return the order of keys in RocksDB's bytewise comparator; equal keys come in any order."""
    table = fixed_table(keys)
    if table is not None:
        # Sorting numbers is several times faster than comparing strings, and most changelogs have keys of one length.
        return order_of(words(table, differing_bits(table)))
    # Arrow compares binary values as RocksDB's bytewise comparator does: unsigned bytes, and a prefix before what it
    # begins.
    by_comparison: Ints = pc.array_sort_indices(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    return by_comparison


@dataclass(frozen=True, slots=True)
class Winners:
    """The last record of each key that was added."""

    keys: pa.BinaryArray
    """Distinct changelog keys, sorted as RocksDB does."""
    record: Ints
    """For each key the number of its last record, counted over the slice's records."""


WORD_BITS: Final = 64


def differing_bits(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return, for each byte of keys of one length, the bits in which keys differ; only these decide their order."""
    # Bits that are set in some keys and not in all differ.
    count, width = table.shape
    in_some, in_all = np.zeros(width, dtype=np.uint8), np.full(width, 0xFF, dtype=np.uint8)
    for first in range(0, count, BLOCK_ROWS):
        block = table[first : first + BLOCK_ROWS]
        # Several rows are combined at a time, as one wide row; then come the rows that are left.
        rows = len(block) - len(block) % COMPARED_KEYS
        wide = block[:rows].reshape(-1, COMPARED_KEYS * width)
        for part in (wide, block[rows:]):
            if len(part):
                in_some |= np.bitwise_or.reduce(np.bitwise_or.reduce(part, axis=0).reshape(-1, width), axis=0)
                in_all &= np.bitwise_and.reduce(np.bitwise_and.reduce(part, axis=0).reshape(-1, width), axis=0)
    return in_some & ~in_all


def count_of(bits: npt.NDArray[np.uint8]) -> int:
    """Return how many bits are set."""
    return int.from_bytes(bits.tobytes(), "big").bit_count()


def words(table: npt.NDArray[np.uint8], bits: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint64]]:
    """Return keys as numbers that sort, and differ, as the keys do: one of 64 bits, or several, highest first.

    ``bits`` are the bits to use of each byte (:func:`differing_bits`).
    """
    # Bits are taken from the first byte on, which weighs most when RocksDB compares keys. The bits of a byte stay in
    # one number, so that whole columns of bytes are added at a time.
    columns: list[list[int]] = [[]]
    free_bits = WORD_BITS
    for column in np.flatnonzero(bits).tolist():
        size = int(bits[column]).bit_count()
        if size > free_bits:
            columns.append([])
            free_bits = WORD_BITS
        columns[-1].append(column)
        free_bits -= size
    parts = [np.zeros(len(table), dtype=np.uint64) for _ in columns]
    for first in range(0, len(table), BLOCK_ROWS):
        block = table[first : first + BLOCK_ROWS]
        for word, some in zip(parts, columns, strict=True):
            part = word[first : first + BLOCK_ROWS]
            for column in some:
                mask = int(bits[column])
                # The number is built in place, column by column, so that no other array as long as the block is needed.
                part <<= np.uint64(mask.bit_count())
                # If the bits are the lowest ones of the byte, they need not be moved together.
                part |= block[:, column] & np.uint8(mask) if _is_low(mask) else _together(mask)[block[:, column]]
    return parts


def keys_of(
    word: npt.NDArray[np.uint64], bits: npt.NDArray[np.uint8], like: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return the keys that were made into one number each; ``like`` is any key, with the bits that all keys share."""
    table = np.empty((len(word), len(like)), dtype=np.uint8)
    for first in range(0, len(table), BLOCK_ROWS):
        part, block = word[first : first + BLOCK_ROWS].copy(), table[first : first + BLOCK_ROWS]
        # The last byte comes first: its bits are the lowest of the number, and each step takes bits from the low end.
        for column in range(len(like) - 1, -1, -1):
            mask = int(bits[column])
            # Bits that all keys share are not in the number, and are taken from any key.
            block[:, column] = int(like[column]) & ~mask
            if not mask:
                continue
            low = part.astype(np.uint8) & np.uint8((1 << mask.bit_count()) - 1)
            block[:, column] |= low if _is_low(mask) else _apart(mask)[low]
            part >>= np.uint64(mask.bit_count())
    return table


def order_of(parts: list[npt.NDArray[np.uint64]]) -> Ints:
    """Return the order of keys that consist of several numbers; equal keys come in any order."""
    # The first number decides for nearly all keys. The sort need not be stable, because equal keys may come in any
    # order.
    order: Ints = np.argsort(parts[0]).astype(np.int64, copy=False)
    if len(parts) == 1:
        return order
    ordered = parts[0][order]
    equal = ordered[1:] == ordered[:-1]
    if not bool(equal.any()):
        return order
    # Only rows that share their first number need the others.
    begins = np.append(np.True_, ~equal)
    shared = np.flatnonzero(np.append(equal, np.False_) | ~begins)
    # Sorted by their first number (the group) first, so that other rows stay where they are.
    group = np.cumsum(begins)[shared]
    rows = order[shared]
    order[shared] = rows[np.lexsort((*(word[rows] for word in reversed(parts[1:])), group))]
    return order


def _is_low(mask: int) -> bool:
    return mask & (mask + 1) == 0


@cache
def _together(mask: int) -> npt.NDArray[np.uint8]:
    """Return for each byte its bits of ``mask``, moved together as the lowest, in their order."""
    # A table of all 256 bytes, made once for a mask: a look-up for each key is several times as fast as shifting each
    # bit of each key.
    byte, packed, place = np.arange(256, dtype=np.uint8), np.zeros(256, dtype=np.uint8), 0
    for bit in range(8):
        if mask >> bit & 1:
            packed |= (byte >> np.uint8(bit) & np.uint8(1)) << np.uint8(place)
            place += 1
    return packed


@cache
def _apart(mask: int) -> npt.NDArray[np.uint8]:
    """Return the inverse: for bits that were moved together, the byte that has them in the places of ``mask``."""
    packed = _together(mask)
    byte = np.arange(256, dtype=np.uint8)
    # Only bytes that have no other bit: for each of them the moved bits are another number, so that the table has an
    # inverse.
    mine = byte & np.uint8(mask) == byte
    spread = np.zeros(1 << mask.bit_count(), dtype=np.uint8)
    spread[packed[mine]] = byte[mine]
    return spread
