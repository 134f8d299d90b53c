"""The ``v`` and ``c`` headers of changelog records (``ChangelogRecordDeserializationHelper``): Positions of a store.

``v`` is a version, one byte; with version 0 ``c`` holds a ``PositionSerde`` Position, which Streams merges into the
store's when it restores the record. Of repeated headers the last counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.position import Position

if TYPE_CHECKING:
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_VERSION, _POSITION = "v", "c"
_VERSION_0 = b"\x00"


def position_of(headers: list[dict[str, Any]] | None) -> Position | None:
    """The Position that a record carries; None without one.

    What cannot be read is not Streams': its consistency headers are off unless an internal setting turns them on. A
    Position that is left out makes a bounded query wait, never answer too early.
    """
    last = {one["key"]: one["value"] for one in headers or ()}
    if last.get(_VERSION) != _VERSION_0 or last.get(_POSITION) is None:
        return None
    try:
        return Position.from_bytes(last[_POSITION])
    except MalformedBytesError:
        return None


def carry_positions(headers: pa.ListArray) -> Ints:
    """The rows with a header that may be a Position: nearly always none."""
    import numpy as np
    import pyarrow.compute as pc

    flat = headers.flatten()
    if not len(flat):
        return np.empty(0, dtype=np.int64)
    named = pc.equal(pc.struct_field(flat, "key"), _POSITION).fill_null(False).to_numpy(zero_copy_only=False)
    if not named.any():
        return np.empty(0, dtype=np.int64)
    counts = pc.list_value_length(headers).fill_null(0).to_numpy()
    return np.unique(np.repeat(np.arange(len(headers)), counts)[named])


def merge_positions(headers: pa.ListArray, segments: Ints, by_segment: dict[int, Position]) -> None:
    """Merges the Positions of records into ``by_segment``, by the segment of each."""
    for segment, said in zip(segments.tolist(), headers.to_pylist(), strict=True):
        position = position_of(said)
        if position is not None:
            by_segment[segment] = by_segment[segment].merge(position) if segment in by_segment else position
