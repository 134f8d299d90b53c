"""Parquet files with contradictory footers and pages: a real file, whose structs are changed.

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
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_GZIP = 2
_DICTIONARY_PAGE, _RLE_DICTIONARY = 2, 8
_ZEROS = 1 << 20


class Crafted:
    """A file whose footer and pages can be changed."""

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[-8:-4], "little")
        self._body = bytearray(data[: -8 - size])
        self.footer = _Reader(data[-8 - size : -8]).struct()

    @classmethod
    def of_table(cls, table: pa.Table, **options: Any) -> Crafted:
        """The file that pyarrow writes with these options, by default without dictionaries."""
        sink = io.BytesIO()
        pq.write_table(
            table, sink, **{"store_schema": False, "compression": "zstd", "use_dictionary": False, **options}
        )
        return cls(sink.getvalue())

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

    def put_pages(
        self, path: str, pages: Sequence[Page], group: int = 0, *, stated: int | None = None, codec: int = _GZIP
    ) -> None:
        """Replace the pages of a column in a row group; a dictionary comes first.

        The number of values in the footer stays. ``stated``: the uncompressed bytes by the footer.
        """
        chunk = self.chunk(path, group)
        start = first = len(self._body)
        for header, body in pages:
            if header[1][1] == _DICTIONARY_PAGE:
                first = start + len(_encoded(header)) + len(body)
            self._body += _encoded(header) + body
        set_field(chunk, 4, codec)
        set_field(chunk, 7, len(self._body) - start)
        set_field(chunk, 9, first)
        if stated is not None:
            set_field(chunk, 6, stated)
        if first != start:
            chunk[11] = _I64, start
            # Bounds, and sizes, of the values that were replaced.
            for statistics in (12, 16):
                chunk.pop(statistics, None)

    def render(self) -> bytes:
        """The bytes of the file."""
        footer = _encoded(self.footer)
        return bytes(self._body) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def set_field(struct: Struct, number: int, value: Any) -> None:
    """Change a field of a struct, which keeps its type."""
    struct[number] = struct[number][0], value


def data_page(count: int, parts: Sequence[bytes | int], *, dictionary: bool = False, codec: str = "gzip") -> Page:
    """A data page of version 1, with ``count`` values by its header; a number among the parts is as many zero bytes.

    The values are plain, or numbers of entries of a ``dictionary``.
    """
    body, length = _compressed(parts, codec)
    facts = {1: (_I32, count), 2: (_I32, _RLE_DICTIONARY if dictionary else 0), 3: (_I32, 3), 4: (_I32, 3)}
    return {1: (_I32, 0), 2: (_I32, length), 3: (_I32, len(body)), 5: (_STRUCT, facts)}, body


def dictionary_page(count: int, parts: Sequence[bytes | int]) -> Page:
    """A page with a dictionary."""
    body, length = _compressed(parts, "gzip")
    facts = {1: (_I32, count), 2: (_I32, 0)}
    return {1: (_I32, _DICTIONARY_PAGE), 2: (_I32, length), 3: (_I32, len(body)), 7: (_STRUCT, facts)}, body


def zeros(size: int) -> list[bytes | int]:
    """A value of so many zero bytes."""
    return [size.to_bytes(4, "little"), size]


def indices(count: int) -> bytes:
    """The first entry of a dictionary, for so many values."""
    return b"\1" + varint(count << 1) + b"\0"


def _compressed(parts: Sequence[bytes | int], codec: str) -> tuple[bytes, int]:
    """Return the compressed bytes, and how many they become. Zeros are never all in memory with gzip."""
    if codec != "gzip":
        content = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
        return pa.Codec(codec).compress(content, asbytes=True), len(content)
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


def levels(level: int, count: int) -> bytes:
    """The same level for so many values: its length, and one run."""
    run = varint(count << 1) + bytes([level])
    return len(run).to_bytes(4, "little") + run


def values(some: Sequence[bytes | int]) -> bytes:
    """Values as they are in a plain page: bytes with their length, and numbers of eight bytes."""
    return b"".join(
        len(value).to_bytes(4, "little") + value if isinstance(value, bytes) else value.to_bytes(8, "little")
        for value in some
    )


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
