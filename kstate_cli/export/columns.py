"""Arrow columns: their types, and record batches of many rows at once, or record by record where rows forbid that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter, methodcaller
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kstate_cli.formats.binary import binary_of, fixed_table
from kstate_cli.formats.keys import BASE_PREFIX
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.values import UNKNOWN_TIMESTAMP
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, Row
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.records import Layout, Record, Shape
from kstate_cli.rows.serde_type import BYTES, SERDE_ERRORS, Serde

Column = Any
"""A binary array of Arrow, or the sequence of the records' members."""

PIECES: Final = PieceSizes(first=64, most=8192, most_bytes=4 << 20)
"""Python has at most so many keys and values in memory at once; a single row may be larger."""
_BYTES_COLUMNS: Final = ("key", "value", "foreign_key")
_TYPES: Final = {
    "long": "int64", "int": "int32", "short": "int16", "double": "float64", "float": "float32", "boolean": "bool"
}  # fmt: skip
"""Arrow types by serde; values of any other serde are written as text."""


def schema_of(shape: Shape, key: Serde, value: Serde) -> pa.Schema:
    """Return the Arrow schema for a shape (a form of records) and its serdes.

    Times are int64 ms, bytes are ``binary``.
    """
    serdes = _serdes(shape, key, value)
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    types: dict[str, Any] = {
        "headers": pa.list_(header),
        "seq": pa.int32(),
        "is_latest": pa.bool_(),
        "tombstone": pa.bool_(),
        "side": pa.string(),
    }
    fields = [pa.field("partition", pa.int32())]
    for name in shape.columns:
        if name in _BYTES_COLUMNS:
            fields.append(pa.field(name, _arrow_type(serdes.get(name, BYTES))))
        else:
            fields.append(pa.field(name, types.get(name, pa.int64())))
    return pa.schema(fields)


def batches(
    pieces: Iterator[FlatPiece], layout: Layout, shape: Shape, partition: int | None, key: Serde, value: Serde
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store as record batches, one for each piece (a list of many rows), where possible.

    A layout that must be read row by row gives batches of other sizes. Raises SerdeError for bytes that the serde
    rejects, and MalformedBytesError for a row that does not have the layout.
    """
    schema, serdes = schema_of(shape, key, value), _serdes(shape, key, value)
    split = splitter(layout, schema)
    # Whole columns are converted at once if the layout allows it: a Python call for each row takes longer than reading
    # it.
    by_batch = _of_records(pieces, layout, shape)
    if split is not None:
        by_batch = _of_pieces(pieces, layout, shape, split)
    for columns in by_batch:
        arrays = [_array(columns[name], schema.field(name), serdes.get(name, BYTES)) for name in shape.columns]
        # The partition is not a part of the row. As a column it allows readers to treat all files of the folder as one
        # table.
        same = pa.repeat(pa.scalar(partition, pa.int32()), len(arrays[0]))
        yield pa.RecordBatch.from_arrays([same, *arrays], schema=schema)


def _of_pieces(
    pieces: Iterator[FlatPiece], layout: Layout, shape: Shape, split: Splitter
) -> Iterator[dict[str, Column]]:
    for piece in pieces:
        columns = split(piece)
        if columns is None:
            # A row that does not fit whole columns: this piece record by record, and the next one again at once.
            columns = _by_column(shape.records(_rows(piece), layout), shape)
        yield columns


def _of_records(pieces: Iterator[FlatPiece], layout: Layout, shape: Shape) -> Iterator[dict[str, Column]]:
    """Yield columns record by record, for layouts in which a row has many records."""
    records = shape.records(chain.from_iterable(map(_rows, pieces)), layout)
    many = PIECES.first
    while columns := _by_column(islice(records, many), shape):
        yield columns
        # A row may have many records (a versioned one, a list): so records are counted, not rows.
        size = sum(len(data) for name in _BYTES_COLUMNS for data in columns.get(name, ()) if data)
        many = max(1, min(PIECES.most, 2 * many, PIECES.most_bytes * len(columns["key"]) // (size + 1)))


def _rows(piece: FlatPiece) -> Iterator[Row]:
    return zip(piece[0][::2], piece[0][1::2], strict=True)


def _by_column(records: Iterator[Record], shape: Shape) -> dict[str, Column]:
    rows = list(records)
    if not rows:
        return {}
    return dict(zip(shape.columns, zip(*rows, strict=True), strict=True))


def _array(column: Column, field: pa.Field, serde: Serde) -> pa.Array:
    """Return a column of a record batch, deserialized by its serde. Raise SerdeError."""
    if isinstance(column, pa.Array):
        # Converts the whole column in C, if the serde is one of kstate's and every value is valid.
        read = column_at_once(column, serde)
        if read is not None:
            return read
        # A value is invalid, or the serde has no such shortcut. Row by row, an error names the value.
        column = column.to_pylist()
    if serde is not BYTES:
        column = list(map(_reader(field.name, serde), column))
    try:
        return pa.array(column, field.type)
    # A serde of the user may return values for which Arrow has no suitable type.
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SerdeError(
            f"kstate cannot convert {field.name} to the Parquet type {field.type}: {error}",
            hint="pass a different serde, or bytes",
        ) from None


def _serdes(shape: Shape, key: Serde, value: Serde) -> dict[str, Serde]:
    if shape.internal:
        # The value is Streams' own, so the application's serde does not read it.
        return {"key": key}
    return {"key": key, "value": value}


def _arrow_type(serde: Serde) -> pa.DataType:
    if serde is BYTES:
        return pa.binary()
    return pa.type_for_alias(_TYPES.get(serde.name, "string"))


def _reader(name: str, serde: Serde) -> Callable[[bytes | None], Any]:
    """Return the function that deserializes one value of a column. It raises SerdeError with the name of the column."""
    as_text = serde.name not in _TYPES

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value = serde.deserialize(data)
            return serde.text(value) if as_text else value
        except SERDE_ERRORS as error:
            raise SerdeError(
                f"kstate cannot read {name} as {serde.name}: {error}",
                hint="pass the application's serde, or bytes",
            ) from None

    return read


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
    """Return the function that converts a piece (a list of rows) to columns, without ``partition``.

    None if the layout must be read row by row. The function itself returns None if a piece must be.
    """
    parts = _PARTS.get(layout.key)
    if parts is None:
        return None

    def split(piece: FlatPiece) -> Columns | None:
        # The lengths of key, value, key, value …, as unsigned ints of C (``array("I")``).
        lengths = np.frombuffer(piece[1], np.uintc)
        keys, values = _Parts(piece[0][::2], lengths[::2]), _Parts(piece[0][1::2], lengths[1::2])
        of_keys, of_values = _of_keys(keys, parts), _of_values(values, layout)
        if of_keys is None or of_values is None:
            return None
        columns = of_keys | of_values
        if layout.has_headers:
            # ``_of_values`` returns None if any row has headers, so no header is lost here.
            columns["headers"] = _empty_lists(len(lengths) // 2, schema.field("headers").type)
        # The schema has the columns of all kinds of stores with this form of records (:class:`Shape`). Columns that
        # this layout does not have, such as the end of a window, are null.
        nulls = {field.name: pa.nulls(len(lengths) // 2, field.type) for field in schema if field.name not in columns}
        return columns | nulls

    return split


def column_at_once(column: pa.Array, serde: Serde) -> pa.Array | None:
    """Deserialize a whole column at once; None if the caller must deserialize it row by row.

    That is so if the serde has no such shortcut, or if a value is invalid: the error of the serde then names the row.
    ``column`` is binary and has no nulls, except for the serde ``BYTES``, which returns any column as it is.
    """
    if serde is BYTES:
        return column
    if serde.name == "string":
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return None
    if serde.name not in _FIXED or (numbers := _read_numbers(column, _FIXED[serde.name])) is None:
        return None
    if serde.name == "boolean":
        if (numbers > 1).any():
            # Not a boolean. Row by row, the serde raises an error with the number of the row.
            return None
        return pa.array(numbers != 0)
    if numbers.dtype.kind == "f" and (numbers != numbers).any():  # noqa: PLR0124
        # Python and numpy keep different bits of a NaN. An export must not depend on which of them has read the column.
        return None
    return pa.array(numbers)


class _Parts:
    """Keys or values of many rows, of which parts are taken: those of one length all together, as a table of bytes."""

    def __init__(self, rows: Sequence[bytes], lengths: Any) -> None:
        self._rows = rows
        self.shortest = int(lengths.min())
        self._table: Any = None
        # One length: one copy makes a table of all, and a part of each row is a slice of it.
        if lengths.max() == self.shortest:
            self._table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), self.shortest)

    def all_begin_with(self, prefix: bytes) -> bool:
        return not prefix or all(map(methodcaller("startswith", prefix), self._rows))

    def binary(self, place: slice) -> pa.Array:
        """Return that part of each row."""
        if self._table is None:
            return pa.array(list(map(itemgetter(place), self._rows)), pa.binary())
        return binary_of(self._table[:, place])

    def numbers(self, place: slice, form: str) -> Any:
        """Return the number in that part of each row, in this host's order of bytes. All rows are long enough."""
        if self._table is None:
            return _native(np.frombuffer(b"".join(map(itemgetter(place), self._rows)), form))
        return _native(np.ascontiguousarray(self._table[:, place]).view(form).ravel())


def _of_keys(rows: _Parts, parts: _KeyParts) -> Columns | None:
    # A shorter key is malformed: the codec, row by row, raises its error.
    if rows.shortest < parts.least or not rows.all_begin_with(parts.prefix):
        return None
    numbers = {name: pa.array(rows.numbers(place, _FORMS[name])) for name, place in parts.numbers.items()}
    return {"key": rows.binary(parts.key), **numbers}


def _of_values(rows: _Parts, layout: Layout) -> Columns | None:
    """Return the columns of values; None if a row has headers or is too short, so that rows must be read one by one."""
    before = b""
    if layout.has_headers:
        before = _NO_HEADERS
    if not rows.all_begin_with(before):
        return None
    if not layout.has_timestamps:
        return {"value": rows.binary(slice(len(before), None))}
    end = len(before) + _TIMESTAMP_BYTES
    if rows.shortest < end:
        return None
    times = rows.numbers(slice(len(before), end), _FORMS["timestamp"])
    stamps = pa.array(times)
    unknown = times == UNKNOWN_TIMESTAMP
    if unknown.any():
        # Streams stores -1 if there is no timestamp. In a table it would be a time before all others, so it becomes
        # null.
        stamps = pa.array(times, mask=unknown)
    return {"timestamp": stamps, "value": rows.binary(slice(end, None))}


def _read_numbers(column: pa.Array, form: str) -> Any:
    """Return the numbers that a binary column consists of; None where a width is another."""
    table = fixed_table(column)
    if table is None or table.shape[1] != np.dtype(form).itemsize:
        return None
    return _native(table.view(form).ravel())


def _native(numbers: Any) -> Any:
    # Arrow takes numbers in this host's order of bytes alone; those of a store are big-endian.
    return numbers.astype(numbers.dtype.newbyteorder("="))


def _empty_lists(count: int, kind: pa.DataType) -> pa.Array:
    ends = pa.array(np.zeros(count + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), type=kind)
