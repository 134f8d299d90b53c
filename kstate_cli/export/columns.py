"""Arrow columns: their types, and record batches of the records that ``rows.records`` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.records import Record, Shape
from kstate_cli.rows.serde_type import BYTES, NOT_TAKEN, Serde

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_ROWS: Final = 64
_MOST_ROWS: Final = 8192
_BATCH_BYTES: Final = 4 << 20
"""Keys and values that are in Python's hands at once, about; a single row may be larger."""
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
    records: Iterator[Record], shape: Shape, schema: pa.Schema, partition: int | None, key: Serde, value: Serde
) -> Iterator[pa.RecordBatch]:
    """Record batches of a few MiB each. Raises SerdeError for bytes that are none of a serde's."""
    import pyarrow as pa

    readers = {name: _reader(name, serde) for name, serde in _serdes(shape, key, value).items() if serde is not BYTES}
    many = _FIRST_ROWS
    while taken := list(islice(records, many)):
        columns = dict(zip(shape.columns, zip(*taken, strict=True), strict=True))
        size = sum(sum(map(_size, columns[name])) for name in _BYTES_COLUMNS if name in columns)
        many = max(1, min(_MOST_ROWS, 2 * many, _BATCH_BYTES * len(taken) // (size + 1)))
        arrays = [pa.array([partition] * len(taken), pa.int32())]
        for name, column in columns.items():
            read = readers.get(name)
            arrays.append(_array(column if read is None else list(map(read, column)), schema.field(name).type, name))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Sequence[Any], wanted: pa.DataType, name: str) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(column, wanted)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SerdeError(f"{name} does not fit {wanted}: {error}", hint="name another serde, or bytes") from None


def _size(data: bytes | None) -> int:
    return 0 if data is None else len(data)


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
