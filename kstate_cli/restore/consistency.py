"""The ``v`` and ``c`` headers of changelog records (``ChangelogRecordDeserializationHelper``): Positions of a store.

``v`` is a version, one byte; with version 0 ``c`` holds a ``PositionSerde`` Position, which Streams merges into the
store's when it restores the record. Of repeated headers the last counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstate_cli.errors import Refused
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.position import Position

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION, _POSITION = "v", "c"


def position_of(headers: list[dict[str, Any]] | None) -> Position | None:
    """The Position that a record carries; None without one. Raises Refused when it cannot be read.

    A record with version 0 and no Position is fatal for Streams too.
    """
    last = {one["key"]: one["value"] for one in headers or ()}
    if not last.get(_VERSION) or last[_VERSION][0] != 0:
        return None
    value = last.get(_POSITION)
    if value is None:
        raise Refused("it has the header v but not c", hint="Streams cannot restore such a record either")
    try:
        return Position.from_bytes(value)
    except MalformedBytesError as error:
        raise Refused(f"the Position in its header c cannot be read: {error}") from None


def merge_positions(table: pa.Table, segments: Any, found: dict[int, Position], what: str) -> None:
    """Merges the Positions of a batch into ``found``, by segment; a record of segment -1 is left out."""
    offsets = table.column("offset").to_pylist()
    for row, headers in enumerate(table.column("headers").to_pylist()):
        segment = int(segments[row])
        if segment < 0 or not headers:
            continue
        try:
            position = position_of(headers)
        except Refused as error:
            raise Refused(f"{what}: the record at offset {offsets[row]}: {error.message}", hint=error.hint) from None
        if position is not None:
            found[segment] = found[segment].merge(position) if segment in found else position
