"""The footer of a Parquet file, as far as pyarrow does not notice or survive its contradictions.

A footer is a struct ``FileMetaData`` in Thrift's compact protocol. pyarrow ends the process, without an exception, if a
column chunk contradicts the schema: ``ColumnChunkMetaData`` of Arrow throws an error that its Python part does not
declare. So these facts are compared here before pyarrow reads them:

- each row group has one column chunk for each leaf of the schema, of its physical type;
- histograms of levels (``SizeStatistics``) have one number for each level, or none;
- only byte arrays have a number of unencoded bytes.

pyarrow would skip rows, or return values of other rows, where these facts differ:

- the file has as many rows as its row groups together;
- a column has a value (or a null) for each row of its row group, and a list has at least one;
- columns below the same list have the same number of values;
- all pages are in this file.

Thrift: a field begins with a byte, its distance from the number of the field before in the upper four bits, and its
type in the lower four. Integers are zig-zag varints. Structs and containers are nested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.formats.binary import MalformedBytesError

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = frozenset({4, 5, 6})
_DEEPEST: Final = 32
"""Structs of Parquet are nested eight deep."""
_MOST_VARINT: Final = 10
_LONG_LIST: Final = 15
_DOUBLE_BYTES: Final = 8

# Numbers of fields in parquet.thrift.
_SCHEMA, _FILE_ROWS, _ROW_GROUPS = 2, 3, 4
_TYPE, _REPETITION, _CHILDREN = 1, 3, 5
_COLUMNS, _ROWS = 1, 3
_FILE_PATH, _CHUNK, _ENCRYPTED = 1, 3, 8
_VALUES, _SIZES = 5, 16
_UNENCODED, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
_OPTIONAL, _REPEATED = 1, 2
_BYTE_ARRAY: Final = 6

_Struct = dict[int, Any]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of the schema that has values: its physical type, and its highest levels."""

    kind: object
    definition: int
    repetition: int
    repeated: int
    """The number of the innermost repeated element that has the column, which decides how many values a row has; 0: one
    value.
    """


def check_footer(data: bytes) -> None:
    """Raise MalformedBytesError if a footer, without its length and magic number, would end the process in pyarrow."""
    footer = _Thrift(data).struct(0)
    leaves = _leaves(_list(footer, _SCHEMA))
    groups = [_as_struct(group) for group in _list(footer, _ROW_GROUPS)]
    for group in groups:
        chunks = _list(group, _COLUMNS)
        # Arrow takes the type of a chunk from the schema by its number, and reads beyond the schema.
        if len(chunks) != len(leaves):
            raise _wrong(f"a row group and the schema differ in their columns ({len(chunks)} and {len(leaves)})")
        for chunk, leaf in zip(chunks, leaves, strict=True):
            _check_chunk(_as_struct(chunk), leaf)
        _check_rows(group, leaves)
    rows = sum(_number(group, _ROWS) for group in groups)
    if _number(footer, _FILE_ROWS) != rows:
        raise _wrong(f"the file has {_number(footer, _FILE_ROWS)} rows, but its row groups have {rows}")


def _check_rows(group: _Struct, leaves: list[_Leaf]) -> None:
    rows = _number(group, _ROWS)
    counts = {0: rows}
    for chunk, leaf in zip(map(_as_struct, _list(group, _COLUMNS)), leaves, strict=True):
        if chunk.get(_FILE_PATH):
            raise _wrong("a column has its pages in another file")
        if _ENCRYPTED in chunk:
            continue
        values = _number(_as_struct(chunk.get(_CHUNK)), _VALUES)
        # A list without elements has one value too, which marks it.
        if values != counts.setdefault(leaf.repeated, values) or values < rows:
            raise _wrong(f"a row group has {rows} rows, but one of its columns has {values} values")


def _check_chunk(chunk: _Struct, leaf: _Leaf) -> None:
    # Another check names encrypted files: their metadata may be anything.
    if _ENCRYPTED in chunk:
        return
    facts = _as_struct(chunk.get(_CHUNK))
    if facts.get(_TYPE) != leaf.kind:
        raise _wrong(f"a column has the physical type {facts.get(_TYPE)}, but the schema has {leaf.kind}")
    if _SIZES not in facts:
        return
    sizes = _as_struct(facts[_SIZES])
    for field, highest in ((_REPETITION_LEVELS, leaf.repetition), (_DEFINITION_LEVELS, leaf.definition)):
        if (count := len(_list(sizes, field))) not in {0, highest + 1}:
            raise _wrong(f"a histogram has {count} levels, but the schema has {highest + 1}")
    if _UNENCODED in sizes and leaf.kind != _BYTE_ARRAY:
        raise _wrong("a column without byte arrays has a number of unencoded bytes")


def _leaves(elements: list[Any]) -> list[_Leaf]:
    """Return the leaves of a schema, which lists its elements depth first; the first one is the root."""
    leaves: list[_Leaf] = []
    # How many children of each open element are still to come, with its levels: no recursion on a depth of the file.
    waiting = [[1, 0, 0, 0]]
    for number, element in enumerate(map(_as_struct, elements)):
        while waiting and not waiting[-1][0]:
            waiting.pop()
        if not waiting:
            raise _wrong("its schema has elements without a parent")
        parent = waiting[-1]
        parent[0] -= 1
        definition, repetition, repeated = parent[1:]
        # The root has no levels, whatever it states.
        if number:
            definition += element.get(_REPETITION) in (_OPTIONAL, _REPEATED)
            if element.get(_REPETITION) == _REPEATED:
                repetition, repeated = repetition + 1, number
        children = element.get(_CHILDREN, 0)
        if not isinstance(children, int) or not 0 <= children < len(elements):
            raise _wrong("a schema element has more children than there are remaining elements")
        if children:
            waiting.append([children, definition, repetition, repeated])
        elif number:
            leaves.append(_Leaf(element.get(_TYPE), definition, repetition, repeated))
    return leaves


def _as_struct(value: Any) -> _Struct:
    if not isinstance(value, dict):
        raise _wrong("a struct is missing or has the wrong type")
    return value


def _list(struct: _Struct, field: int) -> list[Any]:
    value = struct.get(field, [])
    if not isinstance(value, list):
        raise _wrong("a list has the wrong type")
    return value


def _number(struct: _Struct, field: int) -> int:
    value = struct.get(field, 0)
    if not isinstance(value, int) or value < 0:
        raise _wrong("a number of rows or values is negative or has the wrong type")
    return value


def _wrong(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"its footer contradicts itself: {problem}")


class _Thrift:
    """A reader of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> _Struct:
        """Read fields up to the stop byte; a field that occurs twice counts with its last value, as in Thrift."""
        # A damaged footer may nest as often as it has bytes, which would end the stack of Python.
        if depth > _DEEPEST:
            raise _wrong("it is nested too deeply")
        fields: _Struct = {}
        number = 0
        while (head := self._byte()) != _STOP:
            delta, kind = head >> 4, head & 0x0F
            number = number + delta if delta else self._integer()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            # A boolean field has no byte, since its type is the value. The elements of a list have one.
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._integer()
        if kind == _DOUBLE:
            return self._bytes(_DOUBLE_BYTES)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            return self._elements(depth)
        if kind == _MAP:
            return self._map(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise _wrong(f"the type {kind} is unknown")

    def _elements(self, depth: int) -> list[Any]:
        head = self._byte()
        size = head >> 4
        if size == _LONG_LIST:
            size = self._varint()
        return [self._element(head & 0x0F, depth + 1) for _ in range(self._count(size))]

    def _map(self, depth: int) -> list[Any]:
        size = self._count(self._varint())
        if not size:
            return []
        kinds = self._byte()
        return [(self._element(kinds >> 4, depth + 1), self._element(kinds & 0x0F, depth + 1)) for _ in range(size)]

    def _element(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _wrong("it is nested too deeply")
        if kind in (_TRUE, _FALSE):
            return self._byte() == _TRUE
        return self._value(kind, depth)

    def _count(self, size: int) -> int:
        # Each element has a byte at least: a larger number would fill the memory before the end is met.
        if size > len(self._data) - self._at:
            raise _wrong(f"a list of {size} elements extends beyond the end of the footer")
        return size

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise _wrong("it ends within a field")
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        begin = self._at
        if length > len(self._data) - begin:
            raise _wrong("it ends within a text")
        self._at += length
        return self._data[begin : self._at]

    def _varint(self) -> int:
        value = 0
        for group in range(_MOST_VARINT):
            byte = self._byte()
            value |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                return value
        raise _wrong("a number has more than 64 bits")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
