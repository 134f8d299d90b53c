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


def merge_positions(table: pa.Table, segments: Any, by_segment: dict[int, Position]) -> None:
    """Merges the Positions of a batch into ``by_segment``; a record of segment -1 is left out."""
    for row, headers in enumerate(table.column("headers").to_pylist()):
        segment = int(segments[row])
        position = position_of(headers) if headers and segment >= 0 else None
        if position is not None:
            by_segment[segment] = by_segment[segment].merge(position) if segment in by_segment else position
