"""Columns of a dump as kstate works with them, whatever types the file has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = ("key", "value", "timestamp", "offset", "headers")
"""The columns that can be asked for."""

_NO_TIMESTAMP: Final = -1
# Units per millisecond, or milliseconds per unit.
_FINER: Final = {"us": 1_000, "ns": 1_000_000}
_SECOND: Final = 1_000


def column_type(name: str) -> pa.DataType:
    """The type of a column of the tables that the reader returns."""
    import pyarrow as pa

    if name in ("timestamp", "offset"):
        return pa.int64()
    if name == "headers":
        return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.binary()


def converted(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as :func:`column_type`; timestamps as milliseconds, -1 for null (what Kafka and Spark say for none).

    ``ArrowInvalid`` where a value does not fit.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = column_type(name)
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return pa.chunked_array([_milliseconds(chunk) for chunk in column.chunks], wanted)
    if column.type.equals(wanted):
        return column
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return column if column.type.equals(wanted) else pc.cast(column, wanted)


def _milliseconds(column: pa.Array) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = column.type.unit
    plain = column.view(pa.int64())
    finer = _FINER.get(unit)
    if finer is not None:
        if plain.null_count:
            plain = plain.fill_null(_NO_TIMESTAMP * finer)
        # Kafka's milliseconds come back from before 1970 only when they are floored, as numpy does; Arrow truncates.
        return pa.array(np.floor_divide(plain.to_numpy(zero_copy_only=False), finer))
    if unit == "s":
        plain = pc.multiply_checked(plain, _SECOND)
    return plain.fill_null(_NO_TIMESTAMP) if plain.null_count else plain
