"""The schema of Spark's Kafka source: check the columns of each file, and convert them to the types of kstate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import DumpError, printable
from .table_formats import file_refusal, format_of_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

HEADERS: Final = "list<struct<key: string, value: binary>>"
_EXPECTED: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int32",
    "offset": "int64",
    "timestamp": "timestamp",
    "timestampType": "int32",
    "headers": HEADERS,
}
_OPTIONAL: Final = {"timestampType", "headers"}
# Types with the same values. All other types are rejected, because a conversion could change values.
_ALSO: Final = {
    "partition": {"int64"},
    # Impala, Hive and ClickHouse write strings as binary, without marking them as text.
    "topic": {"binary"},
    "headers": {"list<struct<key: binary, value: binary>>"},
}
_LOCAL_TIMES: Final = "impala"
"""The beginning of Impala's name as a writer. Impala writes INT96 in the time zone of its host."""
_HINT: Final = "write the dump with the unchanged columns of Spark's Kafka source (option includeHeaders)"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file: name -> type, in a canonical form; None if the value is in the path."""

    kinds: tuple[tuple[str, str | None], ...]
    zoned: bool
    """False if the timestamps have no time zone. INT96 has none; it is UTC unless Impala wrote it."""

    @property
    def has_headers(self) -> bool:
        """Whether the file has a ``headers`` column."""
        return any(name == "headers" for name, _ in self.kinds)

    @property
    def in_file(self) -> frozenset[str]:
        """The columns whose values are in the file itself."""
        return frozenset(name for name, kind in self.kinds if kind is not None)


def check_columns(
    parquet: pq.ParquetFile, path: str, hive: tuple[tuple[str, str], ...], *, of_table: bool = False
) -> Columns:
    """Return the columns of an open file. Raises DumpError, naming file and column, for an unexpected one."""
    schema = parquet.schema_arrow
    if not of_table:
        # The file belongs to a table. Only the log of the table, which was not read here, states which of its files
        # count.
        table_format = format_of_file(schema, parquet.metadata.metadata or ())
        if table_format is not None:
            raise file_refusal(path, table_format)
    in_path = {name for name, _ in hive}
    kinds: list[tuple[str, str | None]] = []
    zoned = True
    for name, expected in _EXPECTED.items():
        indices = schema.get_all_field_indices(name)
        # Parquet allows two columns with the same name, and different readers use different ones.
        if len(indices) > 1:
            raise DumpError(f"column {name} occurs {len(indices)} times", where=printable(path))
        if not indices:
            if name in in_path:
                kinds.append((name, None))
            elif name not in _OPTIONAL:
                raise DumpError(f"column {name} is missing (expected: {expected})", where=printable(path), hint=_HINT)
            continue
        field_type = schema.field(indices[0]).type
        kind = kind_of(field_type)
        if kind == "null" and name in _OPTIONAL:
            continue  # the writer derives types from values and had none, so the column counts as missing
        if name == "timestamp" and _is_timestamp(field_type):
            kind, zoned = _timestamp_kind(parquet, field_type)
        elif kind not in (expected, *_ALSO.get(name, ())):
            raise DumpError(
                f"column {name} has type {printable(kind)} (expected: {expected})", where=printable(path), hint=_HINT
            )
        kinds.append((name, kind))
    return Columns(tuple(kinds), zoned)


def _is_timestamp(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind))


def _timestamp_kind(parquet: pq.ParquetFile, kind: pa.TimestampType) -> tuple[str, bool]:
    """Return the type of the column ``timestamp``, and whether its values are UTC."""
    if _physical_type(parquet, "timestamp") != "INT96":
        return kind_of(kind), kind.tz is not None
    # INT96 is a number of days and nanoseconds without a time zone. Spark writes it in UTC.
    utc = not (parquet.metadata.created_by or "").startswith(_LOCAL_TIMES)
    return "INT96", utc or kind.tz is not None


def kind_of(kind: pa.DataType) -> str:
    """Return the name of a type.

    Widths of positions, views, dictionaries and time zones are ignored: they do not matter.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or _is_named(kind, "binary_view"):
        return "binary"
    if pa.types.is_large_string(kind) or _is_named(kind, "string_view"):
        return "string"
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}]"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        entry = kind.value_type
        if pa.types.is_struct(entry) and [entry.field(i).name for i in range(entry.num_fields)] == ["key", "value"]:
            return f"list<struct<key: {kind_of(entry.field(0).type)}, value: {kind_of(entry.field(1).type)}>>"
    return str(kind)


def _is_named(kind: pa.DataType, name: str) -> bool:
    return str(kind) == name


def _physical_type(parquet: pq.ParquetFile, name: str) -> str:
    schema = parquet.schema
    return next(str(schema.column(i).physical_type) for i in range(len(schema)) if schema.column(i).path == name)


RECORD_COLUMNS: Final = ("key", "value", "timestamp", "offset", "headers")
"""The columns that a reader may request."""

_NO_TIMESTAMP: Final = -1
# Units in a millisecond.
_FINER: Final = {"us": 1_000, "ns": 1_000_000}
_SECOND: Final = 1_000


def column_type(name: str) -> pa.DataType:
    """Return the type of a column in the tables that the reader returns."""
    import pyarrow as pa

    if name in ("timestamp", "offset"):
        return pa.int64()
    if name == "headers":
        return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.binary()


def convert(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in the type of :func:`column_type`. Timestamps are in ms, -1 for null, as in Kafka and Spark.

    Raises ``ArrowInvalid`` if a value does not fit.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    target = column_type(name)
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return pa.chunked_array([_milliseconds(chunk) for chunk in column.chunks], target)
    if column.type.equals(target):
        return column
    if pa.types.is_dictionary(column.type):
        # Decoded to plain values first, because Arrow cannot convert a dictionary to every type.
        column = pc.cast(column, column.type.value_type)
    if column.type.equals(target):
        return column
    # The cast is safe, which is the default: it raises ArrowInvalid if a value does not fit.
    return pc.cast(column, target)


def _milliseconds(column: pa.Array) -> pa.Array:
    """Return a column of timestamps as milliseconds since 1970, with the number of no timestamp in place of null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = column.type.unit
    # The view has the numbers without a copy. A cast between units would truncate, or check every value.
    plain = column.view(pa.int64())
    finer = _FINER.get(unit)
    if finer is not None:
        if plain.null_count:
            plain = plain.fill_null(_NO_TIMESTAMP * finer)
        # Times before 1970 must be rounded down, as Kafka's milliseconds. NumPy rounds down, Arrow rounds towards zero.
        return pa.array(np.floor_divide(plain.to_numpy(zero_copy_only=False), finer))
    if unit == "s":
        plain = pc.multiply_checked(plain, _SECOND)
    if not plain.null_count:
        return plain
    return plain.fill_null(_NO_TIMESTAMP)
