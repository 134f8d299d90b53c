"""Arrow columns: their types, and record batches, at once where rows allow it (``vectors``), else record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.export.vectors import Splitter, read_all, splitter
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, Row
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.records import Record, Shape
from kstate_cli.rows.serde_type import BYTES, NOT_TAKEN, Serde

if TYPE_CHECKING:
    import pyarrow as pa

Column = Any
"""A binary array of Arrow's, or what the records have there: a sequence."""

PIECES: Final = PieceSizes(first=64, most=8192, most_bytes=4 << 20)
"""Keys and values that are in Python's hands at once; a single row may be larger."""
_BYTES_COLUMNS: Final = ("key", "value", "foreign_key")
_TYPES: Final = {
    "long": "int64", "int": "int32", "short": "int16", "double": "float64", "float": "float32", "boolean": "bool"
}  # fmt: skip
"""Arrow types by serde; what any other serde gives is written as text."""


def schema_of(shape: Shape, key: Serde, value: Serde) -> pa.Schema:
    """The columns of a shape. Times are int64 milliseconds, bytes are ``binary``."""
    import pyarrow as pa

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
    """Rows as record batches: of each piece one, where that need not be read row by row.

    Raises SerdeError for bytes that are none of a serde's, MalformedBytesError for a row that is none of the layout.
    """
    import pyarrow as pa

    schema, serdes = schema_of(shape, key, value), _serdes(shape, key, value)
    split = splitter(layout, schema)
    for columns in _of_records(pieces, layout, shape) if split is None else _of_pieces(pieces, layout, shape, split):
        arrays = [_array(columns[name], schema.field(name), serdes.get(name, BYTES)) for name in shape.columns]
        same = pa.repeat(pa.scalar(partition, pa.int32()), len(arrays[0]))
        yield pa.RecordBatch.from_arrays([same, *arrays], schema=schema)


def _of_pieces(
    pieces: Iterator[FlatPiece], layout: Layout, shape: Shape, split: Splitter
) -> Iterator[dict[str, Column]]:
    for piece in pieces:
        columns = split(piece)
        yield _by_column(shape.records(_rows(piece), layout), shape) if columns is None else columns


def _of_records(pieces: Iterator[FlatPiece], layout: Layout, shape: Shape) -> Iterator[dict[str, Column]]:
    """A row may be many records."""
    records = shape.records(chain.from_iterable(map(_rows, pieces)), layout)
    many = PIECES.first
    while columns := _by_column(islice(records, many), shape):
        yield columns
        size = sum(len(data) for name in _BYTES_COLUMNS for data in columns.get(name, ()) if data)
        many = max(1, min(PIECES.most, 2 * many, PIECES.most_bytes * len(columns["key"]) // (size + 1)))


def _rows(piece: FlatPiece) -> Iterator[Row]:
    return zip(piece[0][::2], piece[0][1::2], strict=True)


def _by_column(records: Iterator[Record], shape: Shape) -> dict[str, Column]:
    taken = list(records)
    return dict(zip(shape.columns, zip(*taken, strict=True), strict=True)) if taken else {}


def _array(column: Column, field: pa.Field, serde: Serde) -> pa.Array:
    """A column as its serde reads it. Raises SerdeError."""
    import pyarrow as pa

    if isinstance(column, pa.Array):
        read = read_all(column, serde)
        if read is not None:
            return read
        column = column.to_pylist()
    if serde is not BYTES:
        column = list(map(_reader(field.name, serde), column))
    try:
        return pa.array(column, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SerdeError(
            f"{field.name} does not fit {field.type}: {error}", hint="name another serde, or bytes"
        ) from None


def _serdes(shape: Shape, key: Serde, value: Serde) -> dict[str, Serde]:
    return {"key": key} if shape.internal else {"key": key, "value": value}


def _arrow_type(serde: Serde) -> pa.DataType:
    import pyarrow as pa

    if serde is BYTES:
        return pa.binary()
    return pa.type_for_alias(_TYPES.get(serde.name, "string"))


def _reader(name: str, serde: Serde) -> Callable[[bytes | None], Any]:
    as_text = serde.name not in _TYPES

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value = serde.deserialize(data)
            return serde.text(value) if as_text else value
        except NOT_TAKEN as error:
            raise SerdeError(
                f"{name} cannot be read as {serde.name}: {error}",
                hint="name the serde that the application uses, or bytes",
            ) from None

    return read
