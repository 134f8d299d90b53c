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

A footer may also need far more memory than it has bytes, because a reader makes a large object of an element that takes
one byte. So its columns, levels, column chunks and elements are limited, before pyarrow reads it.

The header of a page (:func:`parse_page_header`) is a struct in the same protocol.

Thrift: a field begins with a byte, its distance from the number of the field before in the upper four bits, and its
type in the lower four. Integers are zig-zag varints. Structs and containers are nested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.limits import MOST_CHUNKS, MOST_COLUMNS, MOST_FOOTER_ELEMENTS, MOST_SCHEMA_LEVELS

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = frozenset({4, 5, 6})
_DEEPEST: Final = 32
"""Structs of Parquet are nested eight deep."""
_SHIFTS: Final = range(7, 70, 7)
"""Of the bytes of a varint after the first: it has ten bytes at most."""
_IN_FIELD: Final = "it ends within a field"
_MOST_STRUCTS: Final = 4 * MOST_CHUNKS
"""Structs that are kept in memory: a column chunk has three."""
_LONG_LIST: Final = 15
_DOUBLE_BYTES: Final = 8
_FIXED: Final = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: _DOUBLE_BYTES}
"""The bytes of a field of these types: the value of a boolean is its type."""

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
_Fields: TypeAlias = "Mapping[int, _Fields]"
"""The fields to read, each with the fields of its own structs. All other fields are skipped."""
_NOTHING: Final[_Fields] = {}
_READ: Final[_Fields] = {
    _SCHEMA: {_TYPE: {}, _REPETITION: {}, _CHILDREN: {}},
    _FILE_ROWS: {},
    _ROW_GROUPS: {
        _COLUMNS: {
            _FILE_PATH: {},
            _CHUNK: {
                _TYPE: {},
                _VALUES: {},
                _SIZES: {_UNENCODED: {}, _REPETITION_LEVELS: {}, _DEFINITION_LEVELS: {}},
            },
            _ENCRYPTED: {},
        },
        _ROWS: {},
    },
}


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


class FooterLimitError(MalformedBytesError):
    """A footer exceeds a limit of :mod:`kstate_cli.limits`."""


def check_footer(data: bytes) -> None:
    """Raise MalformedBytesError if a footer, without its length and magic number, would end the process in pyarrow.

    Raise FooterLimitError if it exceeds a limit.
    """
    footer = _Thrift(data, MOST_FOOTER_ELEMENTS).struct(0, _READ)
    leaves = _leaves(_list(footer, _SCHEMA))
    groups = [_as_struct(group) for group in _list(footer, _ROW_GROUPS)]
    if len(leaves) > MOST_COLUMNS:
        raise FooterLimitError(f"it has {len(leaves):,} columns, but kstate reads at most {MOST_COLUMNS:,}")
    if (count := len(groups) * len(leaves)) > MOST_CHUNKS:
        raise FooterLimitError(f"it has {count:,} column chunks, but kstate reads at most {MOST_CHUNKS:,}")
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
            # The bottom entry belongs to no element, and the next one to the root.
            if len(waiting) - 2 > MOST_SCHEMA_LEVELS:
                raise FooterLimitError(f"its schema has more than {MOST_SCHEMA_LEVELS} levels")
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


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The header of a page. Sizes in bytes, without the header; ``values`` includes nulls."""

    kind: int
    compressed: int
    uncompressed: int
    values: int
    encoding: int
    """The number of the encoding of the values."""
    length: int
    """The bytes of the header itself."""

    @property
    def is_dictionary(self) -> bool:
        """Whether the page has the dictionary of a column chunk."""
        return self.kind == _DICTIONARY_PAGE

    @property
    def is_data(self) -> bool:
        """Whether the page has values."""
        return self.kind in (_DATA_PAGE, _DATA_PAGE_2)

    @property
    def needs_dictionary(self) -> bool:
        """Whether its values are numbers of entries of a dictionary."""
        return self.encoding in _DICTIONARY_ENCODINGS


_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_2 = 0, 2, 3
_KIND, _UNCOMPRESSED, _COMPRESSED, _DATA_HEADER, _DICTIONARY_HEADER, _DATA_2_HEADER = 1, 2, 3, 5, 7, 8
_DICTIONARY_ENCODINGS: Final = (2, 8)
_PAGE_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
_HEADER_OF: Final[Mapping[object, int]] = {
    _DATA_PAGE: _DATA_HEADER,
    _DICTIONARY_PAGE: _DICTIONARY_HEADER,
    _DATA_PAGE_2: _DATA_2_HEADER,
}
_READ_OF_PAGE: Final[_Fields] = {
    _KIND: {},
    _UNCOMPRESSED: {},
    _COMPRESSED: {},
    _DATA_HEADER: {_PAGE_VALUES: {}, _ENCODING: {}},
    _DICTIONARY_HEADER: {_PAGE_VALUES: {}},
    _DATA_2_HEADER: {_PAGE_VALUES: {}, _ENCODING_2: {}},
}


def parse_page_header(data: bytes) -> PageHeader:
    """Return the page header at the start of ``data``. Raise MalformedBytesError if it is none, or is cut off."""
    thrift = _Thrift(data, len(data))
    facts: _Struct = {}
    try:
        page = thrift.struct(0, _READ_OF_PAGE)
        kind = page.get(_KIND)
        # Another kind of page, such as an index, has no values.
        if kind in _HEADER_OF:
            facts = _as_struct(page.get(_HEADER_OF[kind]))
    except MalformedBytesError:
        # The reader's own messages are about a footer.
        raise MalformedBytesError("the header of a page is malformed or incomplete") from None
    encoding = facts.get(_ENCODING_2 if kind == _DATA_PAGE_2 else _ENCODING, 0)
    numbers = kind, page.get(_COMPRESSED), page.get(_UNCOMPRESSED), facts.get(_PAGE_VALUES, 0), encoding
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise MalformedBytesError("the header of a page has no sizes, or negative ones")
    return PageHeader(*numbers, thrift.at)  # type: ignore[arg-type]


class _Thrift:
    """A reader of Thrift's compact protocol."""

    def __init__(self, data: bytes, most_elements: int) -> None:
        self._data = data
        self.at = 0
        """The bytes that were read."""
        self._elements_left = most_elements
        self._structs_left = _MOST_STRUCTS

    def struct(self, depth: int, read: _Fields) -> _Struct:
        """Read fields up to the stop byte; a field that occurs twice counts with its last value, as in Thrift."""
        # A damaged footer may nest as often as it has bytes, which would end the stack of Python.
        if depth > _DEEPEST:
            raise _wrong("it is nested too deeply")
        fields: _Struct = {}
        number = 0
        data = self._data
        if read:
            self._structs_left -= 1
            if self._structs_left < 0:
                raise FooterLimitError(f"it has more than {_MOST_STRUCTS:,} structs, which is kstate's limit")
        while True:
            # Most fields are skipped, and a footer has millions of them: this loop reads their heads without a call.
            if self.at >= len(data):
                raise _wrong(_IN_FIELD)
            head = data[self.at]
            self.at += 1
            if head == _STOP:
                return fields
            delta = head >> 4
            number = number + delta if delta else self._integer()
            if number in read:
                fields[number] = self._value(head & 0x0F, depth, read[number])
            else:
                self._skip(head & 0x0F, depth)

    def _value(self, kind: int, depth: int, read: _Fields) -> Any:
        if kind in (_TRUE, _FALSE):
            # A boolean field has no byte, since its type is the value. The elements of a list have one.
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            self._pass(length := self._varint())
            return self._data[self.at - length : self.at]
        if kind == _STRUCT:
            return self.struct(depth + 1, read)
        if kind in (_LIST, _SET):
            element, size = self._list_head()
            # Each row group has a column chunk at least: the loop would make an object of each.
            if size > MOST_CHUNKS and read is _READ[_ROW_GROUPS]:
                raise FooterLimitError(f"it has {size:,} row groups, but kstate reads at most {MOST_CHUNKS:,}")
            return [self._element(element, depth + 1, read) for _ in range(size)]
        # No field that is read is of another type.
        self._skip(kind, depth)
        return None

    def _element(self, kind: int, depth: int, read: _Fields) -> Any:
        if depth > _DEEPEST:
            raise _wrong("it is nested too deeply")
        if kind in (_TRUE, _FALSE):
            return self._byte() == _TRUE
        return self._value(kind, depth, read)

    def _skip(self, kind: int, depth: int) -> None:
        """Read a value that nothing needs, without keeping it."""
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind == _STRUCT:
            self.struct(depth + 1, _NOTHING)
        elif kind in (_LIST, _SET):
            element, size = self._list_head()
            for _ in range(size):
                self._skip_element(element, depth + 1)
        elif kind in _FIXED:
            self._pass(_FIXED[kind])
        elif kind == _MAP:
            if size := self._count(self._varint()):
                kinds = self._byte()
                for _ in range(size):
                    self._skip_element(kinds >> 4, depth + 1)
                    self._skip_element(kinds & 0x0F, depth + 1)
        else:
            raise _wrong(f"the type {kind} is unknown")

    def _skip_element(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise _wrong("it is nested too deeply")
        if kind in (_TRUE, _FALSE):
            self._pass(1)
        else:
            self._skip(kind, depth)

    def _list_head(self) -> tuple[int, int]:
        """Return the type and the number of the elements of a list."""
        head = self._byte()
        size = head >> 4
        if size == _LONG_LIST:
            size = self._varint()
        return head & 0x0F, self._count(size)

    def _count(self, size: int) -> int:
        # Each element has a byte at least: a larger number would fill the memory before the end is met.
        if size > len(self._data) - self.at:
            raise _wrong(f"a list of {size} elements extends beyond the end of the footer")
        self._elements_left -= size
        if self._elements_left < 0:
            raise FooterLimitError(f"its lists have more than {MOST_FOOTER_ELEMENTS:,} elements, which is the limit")
        return size

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise _wrong(_IN_FIELD)
        self.at += 1
        return self._data[self.at - 1]

    def _pass(self, length: int) -> None:
        if length > len(self._data) - self.at:
            raise _wrong("it ends within a string")
        self.at += length

    def _varint(self) -> int:
        data, at = self._data, self.at
        try:
            value = data[at]
            if value >= 0x80:
                value &= 0x7F
                for shift in _SHIFTS:
                    at += 1
                    byte = data[at]
                    value |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                else:
                    raise _wrong("a number has more than 64 bits")
        except IndexError:
            raise _wrong(_IN_FIELD) from None
        self.at = at + 1
        return value

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
