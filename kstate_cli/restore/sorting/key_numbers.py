"""Keys of one length as numbers: only the bits in which keys differ decide how they are sorted, and those are few.

Digits differ in the low half of a byte, times of windows neither in their high bits nor, as multiples of the window's
length, in their lowest.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from kstate_cli.restore.sorting.memory import BLOCK_ROWS, COMPARED_KEYS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

WORD_BITS: Final = 64


def differing_bits(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return for each byte of keys of one length the bits in which they differ: the others decide nothing."""
    import numpy as np

    count, width = table.shape
    in_some, in_all = np.zeros(width, dtype=np.uint8), np.full(width, 0xFF, dtype=np.uint8)
    for first in range(0, count, BLOCK_ROWS):
        block = table[first : first + BLOCK_ROWS]
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

    ``bits``: the bits to use of each byte (:func:`differing_bits`).
    """
    import numpy as np

    columns: list[list[int]] = [[]]
    room = WORD_BITS
    for column in np.flatnonzero(bits).tolist():
        size = int(bits[column]).bit_count()
        if size > room:
            columns.append([])
            room = WORD_BITS
        columns[-1].append(column)
        room -= size
    parts = [np.zeros(len(table), dtype=np.uint64) for _ in columns]
    for first in range(0, len(table), BLOCK_ROWS):
        block = table[first : first + BLOCK_ROWS]
        for word, some in zip(parts, columns, strict=True):
            part = word[first : first + BLOCK_ROWS]
            for column in some:
                mask = int(bits[column])
                part <<= np.uint64(mask.bit_count())
                # Low bits are together already.
                part |= block[:, column] & np.uint8(mask) if _is_low(mask) else _together(mask)[block[:, column]]
    return parts


def keys_of(
    word: npt.NDArray[np.uint64], bits: npt.NDArray[np.uint8], like: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return the keys that one number each was made of; ``like``: any key, whose other bits all keys share."""
    import numpy as np

    table = np.empty((len(word), len(like)), dtype=np.uint8)
    for first in range(0, len(table), BLOCK_ROWS):
        part, block = word[first : first + BLOCK_ROWS].copy(), table[first : first + BLOCK_ROWS]
        for column in range(len(like) - 1, -1, -1):
            mask = int(bits[column])
            block[:, column] = int(like[column]) & ~mask
            if not mask:
                continue
            low = part.astype(np.uint8) & np.uint8((1 << mask.bit_count()) - 1)
            block[:, column] |= low if _is_low(mask) else _apart(mask)[low]
            part >>= np.uint64(mask.bit_count())
    return table


def order_of(parts: list[npt.NDArray[np.uint64]]) -> Ints:
    """Return the order of keys that are several numbers each; equal keys come in any order."""
    import numpy as np

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
    group = np.cumsum(begins)[shared]
    rows = order[shared]
    order[shared] = rows[np.lexsort((*(word[rows] for word in reversed(parts[1:])), group))]
    return order


def _is_low(mask: int) -> bool:
    return mask & (mask + 1) == 0


@cache
def _together(mask: int) -> npt.NDArray[np.uint8]:
    """Return for each byte its bits of ``mask``, moved together as the lowest, in their order."""
    import numpy as np

    byte, packed, place = np.arange(256, dtype=np.uint8), np.zeros(256, dtype=np.uint8), 0
    for bit in range(8):
        if mask >> bit & 1:
            packed |= (byte >> np.uint8(bit) & np.uint8(1)) << np.uint8(place)
            place += 1
    return packed


@cache
def _apart(mask: int) -> npt.NDArray[np.uint8]:
    """Return the inverse: for bits that were moved together, the byte that has them in the places of ``mask``."""
    import numpy as np

    packed = _together(mask)
    byte = np.arange(256, dtype=np.uint8)
    mine = byte & np.uint8(mask) == byte
    spread = np.zeros(1 << mask.bit_count(), dtype=np.uint8)
    spread[packed[mine]] = byte[mine]
    return spread
