"""The same records as different writers encode them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

BINARY: dict[str, pa.DataType] = {
    "binary": pa.binary(),
    "large": pa.large_binary(),
    "view": pa.binary_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.binary()),
    "fixed": pa.binary(1),
}
"""`fixed`: of the length of the values, where all have one."""
STRING: dict[str, pa.DataType] = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "binary": pa.binary(),
}
TIMES = ("s", "ms", "us", "ns", "INT96")
ZONES = (None, "UTC", "Europe/Berlin", "+05:30")
HEADERS: dict[str, pa.DataType] = {
    "list": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "large": pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    "binary keys": pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    "not null": pa.list_(
        pa.field("element", pa.struct([pa.field("key", pa.string(), False), ("value", pa.binary())]), False)
    ),
}
EXTRA: dict[str, pa.Array] = {
    "unsigned": pa.array([7], pa.uint64()),
    "Key": pa.array(["another case"]),
    "time": pa.array([1], pa.time64("us")),
    "nested": pa.array([{"offset": 1, "topic": "x"}]),
    "nothing": pa.array([None], pa.null()),
}


@dataclass(frozen=True)
class Writer:
    """How one file is written."""

    key: str = "binary"
    value: str = "binary"
    topic: str = "string"
    partition: str = "int32"
    offset: str = "int64"
    time: str = "us"
    zone: str | None = "UTC"
    headers: str | None = "list"
    no_headers: str = "empty"
    """How a record without headers is written: as an empty list or null."""
    timestamp_type: bool = True
    order: int = 0
    extra: tuple[str, ...] = ()
    nullable: bool = True
    statistics: bool = True
    dictionary: bool = True
    compression: str = "snappy"
    pages: str = "1.0"
    group: int = 1 << 20
    hive: bool = False

    def write(self, table: pa.Table, folder: Path, name: str) -> Path:
        """Write the rows of one topic-partition, with times in whole milliseconds."""
        topic, partition = table.column("topic")[0].as_py(), table.column("partition")[0].as_py()
        columns: dict[str, pa.Array] = {}
        for column in table.column_names:
            columns[column] = self._encoded(column, table.column(column).combine_chunks())
        for column in self.extra:
            columns[column] = pa.concat_arrays([EXTRA[column]] * len(table))
        if not self.timestamp_type:
            del columns["timestampType"]
        if self.headers is None:
            del columns["headers"]
        if self.hive:
            folder = folder / f"topic={topic}" / f"partition={partition}"
            del columns["topic"], columns["partition"]
        names = sorted(columns)
        names = names[self.order % len(names) :] + names[: self.order % len(names)]
        required = ("topic", "partition", "offset", "timestampType")
        schema = pa.schema(
            [pa.field(name, columns[name].type, self.nullable or name not in required) for name in names]
        )
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        pq.write_table(
            pa.table([columns[name] for name in names], schema=schema),
            path,
            version="2.6",
            use_deprecated_int96_timestamps=self.time == "INT96",
            write_statistics=self.statistics,
            use_dictionary=self.dictionary,
            compression=self.compression,
            data_page_version=self.pages,
            row_group_size=self.group,
        )
        return path

    def _encoded(self, name: str, column: pa.Array) -> pa.Array:
        if name in ("key", "value"):
            return _cast(column, BINARY[self.key if name == "key" else self.value])
        if name == "topic":
            return _cast(column, STRING[self.topic])
        if name in ("partition", "offset"):
            kind = self.partition if name == "partition" else self.offset
            return column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
        if name == "timestamp":
            unit = "us" if self.time == "INT96" else self.time
            return column.cast(pa.timestamp(unit, tz="UTC")).view(pa.int64()).view(pa.timestamp(unit, tz=self.zone))
        if name == "headers" and self.headers is not None:
            values: list[Any] = [row or (None if self.no_headers == "null" else []) for row in column.to_pylist()]
            if self.headers == "binary keys":
                values = [
                    None if value is None else [{**header, "key": header["key"].encode()} for header in value]
                    for value in values
                ]
            return pa.array(values, HEADERS[self.headers])
        return column


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(kind):
        lengths = {len(value) for value in column.to_pylist() if value is not None}
        kind = pa.binary(lengths.pop()) if len(lengths) == 1 else pa.binary()
    return column.dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(column.to_pylist(), kind)


WRITERS = st.builds(
    Writer,
    key=st.sampled_from([*BINARY]),
    value=st.sampled_from([*BINARY]),
    topic=st.sampled_from([*STRING]),
    partition=st.sampled_from(["int32", "int64", "dictionary"]),
    offset=st.sampled_from(["int64", "dictionary"]),
    time=st.sampled_from(TIMES),
    zone=st.sampled_from(ZONES),
    headers=st.sampled_from([*HEADERS]),
    no_headers=st.sampled_from(["empty", "null"]),
    timestamp_type=st.booleans(),
    order=st.integers(0, 12),
    extra=st.lists(st.sampled_from([*EXTRA]), unique=True, max_size=2).map(tuple),
    nullable=st.booleans(),
    statistics=st.booleans(),
    dictionary=st.booleans(),
    compression=st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
    pages=st.sampled_from(["1.0", "2.0"]),
    group=st.sampled_from([7, 40, 1 << 20]),
    hive=st.booleans(),
)
"""Every encoding that kstate reads."""


def records(topic: str = "app-a-changelog", partition: int = 0, count: int = 120) -> pa.Table:
    """Return records with times in whole seconds, so that every unit can hold them."""
    from .support import rows

    table = rows(topic, partition, count)
    times = pa.array(
        [None if n % 11 == 10 else (n - 5) * 1_000_000 for n in range(count)], pa.timestamp("us", tz="UTC")
    )
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)
