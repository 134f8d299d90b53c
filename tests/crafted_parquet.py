"""Parquet files with contradictory footers and with pages that expand to any size: a real file, whose structs are changed.

A struct of Thrift is a dictionary: number of a field -> its type and its value. A list is its element type and elements.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.formats.varints import varint

Struct = dict[int, tuple[int, Any]]
Page = tuple[Struct, bytes]
"""The header of a page, and its compressed bytes."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TOPIC = "app-count-changelog"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_GZIP = 2
_PLAIN, _RLE_DICTIONARY = 0, 8
_ZEROS = 1 << 20


def records(rows: int = 100, **columns: pa.Array) -> pa.Table:
    """Records with the columns of Spark's Kafka source; ``columns`` replace some of them."""
    numbers = range(rows)
    return pa.table(
        {
            "key": pa.array([b"k%05d" % number for number in numbers], pa.binary()),
            "value": pa.array([b"v%05d" % number for number in numbers], pa.binary()),
            "topic": [TOPIC] * rows,
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
            "headers": pa.array([[]] * rows, HEADERS),
            **columns,
        }
    )


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a file, by default without dictionaries."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"store_schema": False, "compression": "zstd", "use_dictionary": False, **options})
    return sink.getvalue()


class Crafted:
    """A file whose footer and pages can be changed."""

    def __init__(self, table: pa.Table, **options: Any) -> None:
        data = parquet_bytes(table, **options)
        size = int.from_bytes(data[-8:-4], "little")
        self._body = bytearray(data[: -8 - size])
        self.footer = _Reader(data[-8 - size : -8]).struct()

    @property
    def schema(self) -> list[Struct]:
        """The elements of the schema, which can be changed."""
        elements: list[Struct] = self.footer[2][1][1]
        return elements

    @property
    def groups(self) -> list[Struct]:
        """The row groups, which can be changed."""
        groups: list[Struct] = self.footer[4][1][1]
        return groups

    def chunks(self, group: int = 0) -> list[Struct]:
        """The column chunks of a row group, which can be changed."""
        chunks: list[Struct] = self.groups[group][1][1][1]
        return chunks

    def chunk(self, path: str, group: int = 0) -> Struct:
        """The metadata of the chunk of a column, which can be changed."""
        chunks: list[Struct] = [chunk[3][1] for chunk in self.chunks(group)]
        return next(chunk for chunk in chunks if b".".join(chunk[3][1][1]) == path.encode())

    def put_pages(self, path: str, pages: Sequence[Page], *, uncompressed: int, values: int | None = None) -> None:
        """Replace the pages of a column in the first row group; a dictionary comes first. Without statistics."""
        chunk = self.chunk(path)
        start = first = len(self._body)
        for header, body in pages:
            if header[1][1] == 2:
                first = start + len(_encoded(header)) + len(body)
            self._body += _encoded(header) + body
        set_field(chunk, 4, _GZIP)
        set_field(chunk, 6, uncompressed)
        set_field(chunk, 7, len(self._body) - start)
        set_field(chunk, 9, first)
        if values is not None:
            set_field(chunk, 5, values)
        if first != start:
            chunk[11] = _I64, start
        for statistics in (12, 16):
            chunk.pop(statistics, None)

    def render(self) -> bytes:
        """The bytes of the file."""
        footer = _encoded(self.footer)
        return bytes(self._body) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def set_field(struct: Struct, number: int, value: Any) -> None:
    """Change a field of a struct, which keeps its type."""
    struct[number] = struct[number][0], value


def data_page(values: int, parts: Sequence[bytes | int], *, dictionary: bool = False, size: int | None = None) -> Page:
    """A data page of version 1; a part is bytes, or a number of zero bytes. ``size``: its size by the header."""
    encoding = _RLE_DICTIONARY if dictionary else _PLAIN
    body, length = _compressed(parts)
    facts = {1: (_I32, values), 2: (_I32, encoding), 3: (_I32, 3), 4: (_I32, 3)}
    return _header(0, length if size is None else size, body) | {5: (_STRUCT, facts)}, body


def dictionary_page(values: int, parts: Sequence[bytes | int]) -> Page:
    """A page with a dictionary."""
    body, length = _compressed(parts)
    return _header(2, length, body) | {7: (_STRUCT, {1: (_I32, values), 2: (_I32, _PLAIN)})}, body


def levels(level: int, count: int) -> bytes:
    """The same level for so many values: its length, and one run."""
    run = varint(count << 1) + bytes([level])
    return len(run).to_bytes(4, "little") + run


def indices(count: int) -> bytes:
    """The first entry of a dictionary, for so many values."""
    return b"\1" + varint(count << 1) + b"\0"


def zeros(size: int) -> list[bytes | int]:
    """A value of so many zero bytes."""
    return [size.to_bytes(4, "little"), size]


def large_values(size: int, count: int, *, stated: int) -> Crafted:
    """A file of ``count`` records with values of ``size`` zero bytes, each in a page; ``stated``: the size by its footer."""
    crafted = Crafted(records(count))
    crafted.put_pages("value", [data_page(1, [levels(1, 1), *zeros(size)])] * count, uncompressed=stated)
    return crafted


def large_dictionary(column: str, size: int, count: int) -> Crafted:
    """A file of ``count`` records whose ``column`` is a value of ``size`` zero bytes, which is in the file once."""
    crafted = Crafted(records(count))
    pages = [dictionary_page(1, zeros(size)), data_page(count, [levels(1, count), indices(count)], dictionary=True)]
    crafted.put_pages(column, pages, uncompressed=2_000)
    return crafted


def many_headers(count: int) -> Crafted:
    """A file of a single record with so many headers, as a few bytes."""
    crafted = Crafted(records(1, headers=pa.array([[{"key": "k", "value": b"v"}]], HEADERS)))
    run = varint(1 << 1) + b"\0" + varint(count << 1) + b"\1"
    repetition = len(run).to_bytes(4, "little") + run
    for name in ("key", "value"):
        page = data_page(count + 1, [repetition, levels(4, count + 1), indices(count + 1)], dictionary=True)
        pages = [dictionary_page(1, [b"\1\0\0\0k"]), page]
        crafted.put_pages(f"headers.list.element.{name}", pages, uncompressed=200, values=count + 1)
    return crafted


def _header(kind: int, size: int, body: bytes) -> Struct:
    return {1: (_I32, kind), 2: (_I32, size), 3: (_I32, len(body))}


def _compressed(parts: Sequence[bytes | int]) -> tuple[bytes, int]:
    gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
    out, length, block = b"", 0, bytes(_ZEROS)
    for part in parts:
        if isinstance(part, bytes):
            out += gzip.compress(part)
            length += len(part)
            continue
        length += part
        for begin in range(0, part, _ZEROS):
            out += gzip.compress(block[: part - begin])
    return out + gzip.flush(), length


class _Reader:
    """Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> Struct:
        """The fields of a struct."""
        fields: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = head & 15, self._value(head & 15)
        return fields

    def _value(self, kind: int, *, element: bool = False) -> Any:
        if kind in (1, 2):
            return self._byte() == 1 if element else kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, _I32, _I64):
            return self._integer()
        if kind in (7, _BINARY):
            length = 8 if kind == 7 else self._varint()
            self._at += length
            return self._data[self._at - length : self._at]
        if kind == _LIST:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            return head & 15, [self._value(head & 15, element=True) for _ in range(count)]
        assert kind == _STRUCT, kind
        return self.struct()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


def _encoded(struct: Struct) -> bytes:
    out, last = b"", 0
    for number, (kind, value) in sorted(struct.items()):
        head = (1 if value else 2) if kind in (1, 2) else kind
        out += bytes([(number - last) << 4 | head])
        if kind not in (1, 2):
            out += _encoded_value(kind, value)
        last = number
    return out + b"\0"


def _encoded_value(kind: int, value: Any) -> bytes:
    if kind in (1, 2, 3):
        return bytes([value])
    if kind in (4, _I32, _I64):
        return varint(((value << 1) ^ (value >> 63)) & (1 << 64) - 1)
    if kind in (7, _BINARY):
        return bytes(value) if kind == 7 else varint(len(value)) + value
    if kind == _LIST:
        element, elements = value
        head = (
            bytes([len(elements) << 4 | element])
            if len(elements) < 15
            else bytes([0xF0 | element]) + varint(len(elements))
        )
        return head + b"".join(_encoded_value(element, entry) for entry in elements)
    return _encoded(value)
