"""A changelog's columns to the rows of a store, vectorised where there are many rows.

Keys decide everything that has to be known before a value is looked at: which records are the last of their key, which
segment they lie in, and in which order rows are written. Values are read once that is known, winners only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import KeySchema, Logged, ValueLayout
from kstate_cli.formats.store_kinds import StoreKind
from kstate_cli.formats.values import Header, encode_headers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.int64]

_TIME_BYTES = 8
_SEQUENCE_BYTES = 4
_BLOCK_ROWS = 131_072
_LATEST_MS = 1 << 43
"""In the year 2248: with a later time, four bytes of a key and four of a time were read as one number."""


def buffers(array: pa.BinaryArray) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """The offsets (one more than rows) and the bytes of a binary array without nulls."""
    import numpy as np

    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return bounds, np.frombuffer(data or b"", dtype=np.uint8)


def segment_times(keys: pa.BinaryArray, rule: KeySchema, what: str) -> Ints:
    """The time (ms) in each key that decides its segment.

    Raises Refused for keys that no store of the kind has: only the spec says of a lost store what it was.
    """
    import numpy as np

    offsets, data = buffers(keys)
    tail = rule.tail
    if len(keys) == 0:
        return np.empty(0, dtype=np.int64)
    if int((offsets[1:] - offsets[:-1]).min()) < tail:
        raise Refused(
            f"{what}: a key of its changelog is shorter than {tail} bytes: it is no {rule.value} store",
            hint="correct its kind in the spec",
        )
    starts = offsets[1:] - tail
    times = _numbers(data, starts, ">i8")
    windows = rule.windows
    # A window's number among duplicates is never negative, and a session begins before it ends.
    rest = _numbers(data, starts + _TIME_BYTES, ">i4" if windows else ">i8")
    fits = (times >= 0) & (times < _LATEST_MS) & (rest >= 0) & (windows | (rest <= times))
    if not bool(fits.all()):
        key = keys[int(np.argmin(fits))].as_py()
        raise Refused(
            f"{what}: key {key.hex()} of its changelog has no time of a {rule.value} store",
            hint="correct its kind in the spec",
        )
    return times


def _numbers(data: npt.NDArray[np.uint8], starts: Ints, kind: str) -> Ints:
    """The big-endian numbers that begin at ``starts``."""
    import numpy as np

    width = np.dtype(kind).itemsize
    numbers = np.empty(len(starts), dtype=np.int64)
    # Block by block: the indexes take as much again as the bytes, eight times over.
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        taken = data[starts[block, None] + np.arange(width)]
        numbers[block] = np.ascontiguousarray(taken).view(kind).ravel()
    return numbers


def segment_ids(times: Ints, interval_ms: int) -> Ints:
    """``AbstractSegments.segmentId``: Java's division, which truncates toward zero."""
    import numpy as np

    return np.where(times >= 0, times // interval_ms, -((-times) // interval_ms)).astype(np.int64)


def base_key(rule: KeySchema) -> Callable[[bytes], bytes]:
    """The row key of a time-ordered store from its changelog key (``TimeFirst…KeySchema``)."""
    if rule is KeySchema.TIME_ORDERED_WINDOW:
        return lambda key: b"\x00" + key[-12:-4] + key[:-12] + key[-4:]
    return lambda key: b"\x00" + key[-16:] + key[:-16]


def sort_order(keys: pa.BinaryArray) -> Ints:
    """The order that sorts keys as RocksDB's bytewise comparator does."""
    import numpy as np
    import pyarrow.compute as pc

    order = _order_by_word(keys)
    if order is not None:
        return order
    by_comparison: Ints = pc.array_sort_indices(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    return by_comparison


def _order_by_word(keys: pa.BinaryArray) -> Ints | None:
    """Sorts keys of one length by the eight bytes after what all of them begin with; None where that does not decide.

    Sorting numbers is several times faster than comparing strings, and most changelogs have such keys.
    """
    import numpy as np

    rows = len(keys)
    offsets, data = buffers(keys)
    if rows < 2 or int(offsets[-1] - offsets[0]) % rows:
        return None
    width = int(offsets[1] - offsets[0])
    if width == 0 or not bool((np.diff(offsets) == width).all()):
        return None
    table = data[offsets[0] : offsets[-1]].reshape(rows, width)
    # Equal first bytes decide nothing: compare the columns one by one with the first row, up to the first difference.
    begin = 0
    while begin < width and bool((table[:, begin] == table[0, begin]).all()):
        begin += 1
    taken = min(_TIME_BYTES, width - begin)
    numbers = np.zeros(rows, dtype=np.uint64)
    for column in range(begin, begin + taken):
        numbers <<= np.uint64(8)
        numbers |= table[:, column]
    order = np.argsort(numbers)
    if begin + taken < width:
        ordered = numbers[order]
        if bool((ordered[1:] == ordered[:-1]).any()):
            return None
    return order.astype(np.int64)


def row_values(
    kind: StoreKind, values: list[bytes | None], timestamps: Ints, headers: list[Any] | None, what: str
) -> list[bytes | None]:
    """The row values of records, None for a tombstone. ``timestamps`` in ms, -1 unknown."""
    if kind.logged is Logged.BUFFERED:
        return [None if value is None else _buffered(value, what) for value in values]
    layout = kind.family.layout
    if layout is ValueLayout.PLAIN:
        return values
    if layout is ValueLayout.HEADERS_SESSION:
        assert headers is not None
        return [
            None if value is None else encode_headers(_headers(h)) + value
            for value, h in zip(values, headers, strict=True)
        ]
    times = timestamps.astype(">i8").view("V8").tolist()
    if layout is ValueLayout.HEADERS:
        assert headers is not None
        return [
            None if value is None else encode_headers(_headers(h)) + time + value
            for value, time, h in zip(values, times, headers, strict=True)
        ]
    return [None if value is None else time + value for value, time in zip(values, times, strict=True)]


def _headers(headers: list[dict[str, Any]] | None) -> tuple[Header, ...]:
    return tuple(Header(one["key"], one["value"]) for one in headers or ())


def _buffered(value: bytes, what: str) -> bytes:
    if len(value) < _TIME_BYTES:
        raise Refused(
            f"{what}: a value of its changelog is too short for a buffered record", hint="correct its kind in the spec"
        )
    return value[:-_TIME_BYTES]
