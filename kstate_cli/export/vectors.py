"""Columns of many rows at once: no record, number or text becomes a Python object, only bytes do.

They do so only where every row of a batch is as it should be. Where one is not (too short, not a serde's, with headers)
the answer is None, and whoever asked reads the batch row by row: that way decides what a bad row is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.byte_tables import binary_of, fixed_table
from kstate_cli.formats.keys import BASE_PREFIX
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.values import UNKNOWN_TIMESTAMP
from kstate_cli.rocks.scanning import FlatPiece
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.serde_type import BYTES, Serde

if TYPE_CHECKING:
    import pyarrow as pa

_FIXED: Final = {"long": ">i8", "int": ">i4", "short": ">i2", "double": ">f8", "float": ">f4", "boolean": ">u1"}
"""Serdes whose bytes are one number of numpy's (``rows.serdes``)."""
_FORMS: Final = {"timestamp": ">i8", "window_start": ">i8", "window_end": ">i8", "seq": ">i4"}
_NO_HEADERS: Final = b"\0"
_TIMESTAMP_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _KeyParts:
    """Where the parts of a row key lie."""

    key: slice
    numbers: Mapping[str, slice]
    least: int
    """Bytes of the shortest row key."""
    prefix: bytes = b""


_PARTS: Final[Mapping[KeySchema, _KeyParts]] = MappingProxyType(
    {
        KeySchema.KEY: _KeyParts(slice(None), {}, 0),
        KeySchema.WINDOW: _KeyParts(slice(-12), {"window_start": slice(-12, -4), "seq": slice(-4, None)}, 12),
        KeySchema.SESSION: _KeyParts(slice(-16), {"window_end": slice(-16, -8), "window_start": slice(-8, None)}, 16),
        KeySchema.TIME_ORDERED_WINDOW: _KeyParts(
            slice(9, -4), {"window_start": slice(1, 9), "seq": slice(-4, None)}, 13, BASE_PREFIX
        ),
        KeySchema.TIME_ORDERED_SESSION: _KeyParts(
            slice(17, None), {"window_end": slice(1, 9), "window_start": slice(9, 17)}, 17, BASE_PREFIX
        ),
    }
)
"""``formats.keys`` says the same of one row. Other schemas are read row by row."""
Columns = dict[str, Any]
"""Arrow's arrays by name; ``key`` and ``value`` are binary, as the store has them."""
Splitter = Callable[[FlatPiece], Columns | None]


def splitter(layout: Layout, schema: pa.Schema) -> Splitter | None:
    """What makes the columns of rows, but for ``partition``; None for a layout that is read row by row."""
    parts = _PARTS.get(layout.key)
    if parts is None:
        return None

    def split(piece: FlatPiece) -> Columns | None:
        import numpy as np
        import pyarrow as pa

        lengths = np.frombuffer(piece[1], np.uintc)
        keys, values = _Parts(piece[0][::2], lengths[::2]), _Parts(piece[0][1::2], lengths[1::2])
        of_keys, of_values = _of_keys(keys, parts), _of_values(values, layout)
        if of_keys is None or of_values is None:
            return None
        columns = of_keys | of_values
        if layout.has_headers:
            columns["headers"] = _empty_lists(len(lengths) // 2, schema.field("headers").type)
        nulls = {field.name: pa.nulls(len(lengths) // 2, field.type) for field in schema if field.name not in columns}
        return columns | nulls

    return split


def read_all(column: pa.Array, serde: Serde) -> pa.Array | None:
    """A column as a serde reads it; None where it does not read all of it, or not this way.

    A binary column without nulls; with ``BYTES`` any column, which stays as it is.
    """
    import pyarrow as pa

    if serde is BYTES:
        return column
    if serde.name == "string":
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return None
    numbers = _read_numbers(column, _FIXED[serde.name]) if serde.name in _FIXED else None
    if numbers is None:
        return None
    if serde.name == "boolean":
        return pa.array(numbers != 0) if (numbers <= 1).all() else None
    # Of a NaN Python keeps other bits than numpy.
    return None if numbers.dtype.kind == "f" and (numbers != numbers).any() else pa.array(numbers)  # noqa: PLR0124


class _Parts:
    """Keys or values of many rows, of which parts are taken: those of one length all together, as a table of bytes."""

    def __init__(self, rows: Sequence[bytes], lengths: Any) -> None:
        import numpy as np

        self._rows = rows
        self.shortest = int(lengths.min())
        self._table: Any = None
        if lengths.max() == self.shortest:
            self._table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), self.shortest)

    def all_begin_with(self, prefix: bytes) -> bool:
        return not prefix or all(map(methodcaller("startswith", prefix), self._rows))

    def binary(self, place: slice) -> pa.Array:
        """That part of each row."""
        import pyarrow as pa

        if self._table is None:
            return pa.array(list(map(itemgetter(place), self._rows)), pa.binary())
        return binary_of(self._table[:, place])

    def numbers(self, place: slice, form: str) -> Any:
        """The number in that part of each row, in this host's order of bytes. All rows are long enough."""
        import numpy as np

        if self._table is None:
            return _native(np.frombuffer(b"".join(map(itemgetter(place), self._rows)), form))
        return _native(np.ascontiguousarray(self._table[:, place]).view(form).ravel())


def _of_keys(rows: _Parts, parts: _KeyParts) -> Columns | None:
    import pyarrow as pa

    if rows.shortest < parts.least or not rows.all_begin_with(parts.prefix):
        return None
    numbers = {name: pa.array(rows.numbers(place, _FORMS[name])) for name, place in parts.numbers.items()}
    return {"key": rows.binary(parts.key), **numbers}


def _of_values(rows: _Parts, layout: Layout) -> Columns | None:
    """Of a layout with headers only rows that have none."""
    import pyarrow as pa

    before = _NO_HEADERS if layout.has_headers else b""
    if not rows.all_begin_with(before):
        return None
    if not layout.has_timestamps:
        return {"value": rows.binary(slice(len(before), None))}
    end = len(before) + _TIMESTAMP_BYTES
    if rows.shortest < end:
        return None
    times = rows.numbers(slice(len(before), end), _FORMS["timestamp"])
    unknown = times == UNKNOWN_TIMESTAMP
    return {
        "timestamp": pa.array(times, mask=unknown) if unknown.any() else pa.array(times),
        "value": rows.binary(slice(end, None)),
    }


def _read_numbers(column: pa.Array, form: str) -> Any:
    """The numbers that a binary column consists of; None where a width is another."""
    import numpy as np

    table = fixed_table(column)
    if table is None or table.shape[1] != np.dtype(form).itemsize:
        return None
    return _native(table.view(form).ravel())


def _native(numbers: Any) -> Any:
    return numbers.astype(numbers.dtype.newbyteorder("="))


def _empty_lists(count: int, kind: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    ends = pa.array(np.zeros(count + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), type=kind)
