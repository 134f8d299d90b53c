"""Make the values of rows, and the Positions of stores, from the columns of changelog records.

The Position is in the headers ``v`` and ``c`` of a record (``ChangelogRecordDeserializationHelper``). ``v`` is a
version of one byte. With version 0, ``c`` holds a ``PositionSerde`` Position that Streams merges into the store's when
it restores the record. Of repeated headers the last counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MalformedBytesError, binary_of, fixed_table
from kstate_cli.formats.layouts import Logged
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import StoreKind
from kstate_cli.formats.values import Header, encode_headers, encoded_sizes

if TYPE_CHECKING:
    from kstate_cli.restore.sorting.convert import Ints


_TIME_BYTES: Final = 8
_SMALL_BYTES: Final = 8_192
"""Headers of fewer bytes are encoded as columns: their lengths are looked up in a table of so many."""


def row_values(
    kind: StoreKind, values: pa.BinaryArray, timestamps: Ints, headers: pa.ListArray | None, place: str
) -> pa.BinaryArray:
    """Return the row values of records, null for a tombstone. ``timestamps`` in ms, -1 unknown.

    Raises Refused for values that no store of the kind has.
    """
    if kind.logged is Logged.BUFFERED:
        return _buffered(values, place)
    layout = kind.family.layout
    if not layout.has_headers:
        if layout.has_timestamps:
            return _after_times(timestamps, values)
        return values
    assert headers is not None
    # ``hs:zz ‖ H ‖ ts:i64 ‖ value`` (KIP-1271); values of session stores have no timestamp.
    before = [encoded_headers(headers)]
    if layout.has_timestamps:
        before.append(_times(timestamps))
    return _joined(before, values)


def _after_times(timestamps: Ints, values: pa.BinaryArray) -> pa.BinaryArray:
    table = fixed_table(values)
    if table is None:
        return _joined([_times(timestamps)], values)
    width = table.shape[1]
    # Time and value as two fields of one row: numpy fills each field by one copy, and the rows are the bytes as RocksDB
    # gets them, ``ts:i64 ‖ value``.
    rows = np.empty(len(table), dtype=[("time", ">i8"), ("value", f"V{width}")])
    rows["time"] = timestamps
    rows["value"] = table.view(f"V{width}").ravel()
    return binary_of(rows.view(np.uint8).reshape(-1, _TIME_BYTES + width))


def _times(timestamps: Ints) -> pa.BinaryArray:
    return binary_of(timestamps.astype(">i8").view(np.uint8).reshape(-1, _TIME_BYTES))


def _joined(before: Sequence[pa.BinaryArray], values: pa.BinaryArray) -> pa.BinaryArray:
    """Return what precedes each value, and the value; null if the value is null."""
    return pc.binary_join_element_wise(*before, values, pa.scalar(b"", pa.binary()))


def encoded_headers(headers: pa.ListArray) -> pa.BinaryArray:
    """Return the bytes of :func:`encode_headers` for each record; a null list has no headers."""
    # ``counts`` has the number of headers of each record, and ``upto`` the bytes before each header of the flat list.
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    flat = headers.flatten()
    keys = pc.cast(pc.struct_field(flat, "key"), pa.binary())
    values = pc.struct_field(flat, "value")
    key_sizes = pc.binary_length(keys).to_numpy().astype(np.int64)
    # A null value has the length -1, whose zig-zag varint is one byte.
    value_sizes = pc.binary_length(values).fill_null(-1).to_numpy().astype(np.int64)
    of_header = _zigzag_bytes(key_sizes) + key_sizes + _zigzag_bytes(value_sizes) + np.maximum(value_sizes, 0)
    upto = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(of_header)))
    ends = np.cumsum(counts)
    # A record without headers has the size hs = 0 and nothing else. Otherwise H begins with the number of headers.
    bodies = np.where(counts > 0, upto[ends] - upto[ends - counts] + _zigzag_bytes(counts), 0)
    # Large headers are rare, and their sizes are not in the table below: they are encoded row by row.
    if int(bodies.max(initial=0)) >= _SMALL_BYTES:
        return pa.array([encode_headers(_headers(row)) for row in headers.to_pylist()], pa.binary())
    # Each row is joined from parts: the encoded numbers, which a table has, the keys, and the values.
    table = _sizes()
    # All parts are in one array, so that one take fetches them for all rows.
    pool = pa.concat_arrays([table, keys, values.fill_null(b"")])
    first_key, first_value = len(table), len(table) + len(keys)
    numbers = np.arange(len(keys))
    # The parts of each header: length of the key, key, length of the value, value. The table begins with -1, hence the
    # + 1.
    of_flat = np.stack((key_sizes + 1, first_key + numbers, value_sizes + 1, first_value + numbers), axis=1)
    # The parts of a row are hs and the number of headers, then four for each header. Without headers hs is the only
    # part.
    lengths = np.where(counts > 0, 2, 1) + 4 * counts
    starts = np.cumsum(lengths) - lengths
    order = np.empty(int(lengths.sum()), dtype=np.int64)
    is_head = np.zeros(len(order), dtype=np.bool_)
    is_head[starts] = True
    some = starts[counts > 0]
    is_head[some + 1] = True
    order[starts] = bodies + 1
    order[some + 1] = counts[counts > 0] + 1
    order[~is_head] = of_flat.ravel()
    bounds = np.append(starts, len(order)).astype(np.int32)
    joined = pa.ListArray.from_arrays(pa.array(bounds), pool.take(pa.array(order)))
    return pc.binary_join(joined, pa.scalar(b"", pa.binary()))


@cache
def _sizes() -> Any:
    return pa.array(encoded_sizes(_SMALL_BYTES), pa.binary())


def _zigzag_bytes(sizes: Ints) -> Ints:
    """Return how many bytes a length takes, -1 too: seven bits each, of twice the number."""
    return np.where(sizes < 0, 1, 1 + sum((sizes >= (1 << bits)).astype(np.int64) for bits in (6, 13, 20, 27)))


def _headers(headers: list[dict[str, Any]] | None) -> tuple[Header, ...]:
    return tuple(Header(header["key"], header["value"]) for header in headers or ())


def _buffered(values: pa.BinaryArray, place: str) -> pa.BinaryArray:
    shortest = pc.min(pc.binary_length(values)).as_py()
    # A buffered record is logged as ``BufferValue`` ‖ time:i64, and its row has the ``BufferValue`` alone.
    if shortest is not None and shortest < _TIME_BYTES:
        raise Refused(
            f"{place}: its changelog has a value that is too short for a buffered record",
            hint="correct its kind in the specification",
        )
    return pc.binary_slice(values, 0, -_TIME_BYTES)


_VERSION, _POSITION = "v", "c"
_VERSION_0 = b"\x00"


def position_of(headers: list[dict[str, Any]] | None) -> Position | None:
    """Return the Position that a record carries; None if it has none, or none that can be read.

    Streams did not write an unreadable one: its consistency headers are off unless an internal setting turns them on.
    If a Position is missing, a bounded query waits; it never answers too early.
    """
    last = {header["key"]: header["value"] for header in headers or ()}
    # Another version may have another layout. No Position is better than one that is misread.
    if last.get(_VERSION) != _VERSION_0 or last.get(_POSITION) is None:
        return None
    try:
        return Position.from_bytes(last[_POSITION])
    except MalformedBytesError:
        return None


def carry_positions(headers: pa.ListArray) -> Ints:
    """Return the numbers of the rows with a header that may be a Position, which nearly no row has."""
    flat = headers.flatten()
    if not len(flat):
        return np.empty(0, dtype=np.int64)
    is_position = pc.equal(pc.struct_field(flat, "key"), _POSITION).fill_null(False).to_numpy(zero_copy_only=False)
    # Most changelogs have no such header. Then only the names of headers were compared, and nothing is decoded.
    if not is_position.any():
        return np.empty(0, dtype=np.int64)
    counts = pc.list_value_length(headers).fill_null(0).to_numpy()
    # A record counts once, even if several of its headers have the key.
    return np.unique(np.repeat(np.arange(len(headers)), counts)[is_position])


def merge_positions(headers: pa.ListArray, segments: Ints, by_segment: dict[int, Position]) -> None:
    """Merge the Positions of records into ``by_segment``, by the segment of each."""
    for segment, record_headers in zip(segments.tolist(), headers.to_pylist(), strict=True):
        position = position_of(record_headers)
        if position is None:
            continue
        if segment in by_segment:
            # The higher offset of each partition counts, so the order of the records does not matter.
            position = by_segment[segment].merge(position)
        by_segment[segment] = position
