"""Java's numbers as bytes, RocksDB's CRC32C, tables of bytes, JSON, and the error of every decoder.

The reader never runs past the end: bytes that end too early raise :class:`MalformedBytesError`. A column of values of
equal length is also a table of bytes, a row for each value. JSON that others wrote (:func:`parse_json`), such as the
manifest of a dump, is decoded by the same rule: whatever is ambiguous is refused. :class:`JsonObject` reads its
members.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kstate_cli.limits import MOST_JSON_LEVELS, MOST_JSON_VALUES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_MAX_VARINT_BYTES: Final = 5
_MAX_U32: Final = (1 << 32) - 1
_VARINT_MORE: Final = 0x80
_UNDERFLOW: Final = "BufferUnderflowException"
_MOST_REASON: Final = 500
"""Characters of the reason of an error."""


class MalformedBytesError(ValueError):
    """The bytes do not follow the format.

    ``reason`` says what is wrong; ``streams_exception`` is the simple name of the Java exception that Kafka Streams
    raises for the same bytes, or ``None`` where Streams is known to raise none or its answer is unknown. ``str()``
    gives both. ``streams_message`` is how that exception's message begins, where it is known: it is what an operator
    sees in the log.
    """

    def __init__(
        self, reason: str, streams_exception: str | None = None, *, streams_message: str | None = None
    ) -> None:
        # A reason may quote a name of any length, which would hide the rest of the message.
        if len(reason) > _MOST_REASON:
            reason = f"{reason[:_MOST_REASON]}…"
        text = reason
        if streams_exception is not None:
            text = f"{reason} (Streams: {streams_exception})"
        super().__init__(text)
        self.reason = reason
        self.streams_exception = streams_exception
        self.streams_message = streams_message

    def __reduce__(self) -> tuple[type[MalformedBytesError], tuple[str, str | None], dict[str, str | None]]:
        # The default would rebuild from ``args``, that is from the message instead of the two parts.
        return type(self), (self.reason, self.streams_exception), {"streams_message": self.streams_message}


def i32(value: int) -> bytes:
    """Return four bytes, big-endian, signed; :class:`ValueError` if it does not fit."""
    if not MIN_I32 <= value <= MAX_I32:
        raise ValueError(f"{value} does not fit in 4 bytes")
    return _I32.pack(value)


def i64(value: int) -> bytes:
    """Return eight bytes, big-endian, signed; :class:`ValueError` if it does not fit."""
    if not MIN_I64 <= value <= MAX_I64:
        raise ValueError(f"{value} does not fit in 8 bytes")
    # Java has no unsigned long: -1 is eight bytes ff.
    return _I64.pack(value)


def zigzag(value: int) -> bytes:
    """Return a zig-zag varint of an i32 as ``ByteUtils.writeVarint`` writes it: 1 to 5 bytes, low 7-bit group first."""
    if not MIN_I32 <= value <= MAX_I32:
        raise ValueError(f"{value} does not fit in a 32-bit varint")
    # Zig-zag: 0, -1, 1, -2 … become 0, 1, 2, 3 …, so that small numbers of either sign are short.
    rest = ((value << 1) ^ (value >> 31)) & _MAX_U32
    out = bytearray()
    while rest >= _VARINT_MORE:
        out.append((rest & 0x7F) | _VARINT_MORE)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Reader:
    """A cursor over bytes. A read past the end raises :class:`MalformedBytesError`, which names ``subject``."""

    __slots__ = ("_data", "_subject", "offset")

    def __init__(self, data: bytes, subject: str, start: int = 0) -> None:
        self._data = data
        self._subject = subject
        self.offset = start

    @property
    def remaining(self) -> int:
        """Return the number of unread bytes."""
        return len(self._data) - self.offset

    def fail(self, problem: str, streams_exception: str | None = None) -> MalformedBytesError:
        """Return the error to raise for ``problem`` in these bytes."""
        return MalformedBytesError(f"{self._subject}: {problem}", streams_exception)

    def take(self, length: int, field: str) -> bytes:
        """Return the next ``length`` bytes."""
        if length < 0:
            raise self.fail(f"the length of {length} is negative: {field}", "NegativeArraySizeException")
        if length > self.remaining:
            raise self.fail(
                f"{field} needs {length} bytes at offset {self.offset}, but only {self.remaining} bytes are left",
                _UNDERFLOW,
            )
        # The slice of ``bytes`` is a copy, so that a record does not keep the whole row in memory.
        start = self.offset
        self.offset = start + length
        return self._data[start : self.offset]

    def rest(self) -> bytes:
        """Return everything unread."""
        return self.take(self.remaining, "rest")

    def u8(self, field: str) -> int:
        """Return one unsigned byte."""
        return self.take(1, field)[0]

    def i32(self, field: str) -> int:
        """Return four bytes as a number, big-endian, signed."""
        value: int = _I32.unpack(self.take(4, field))[0]
        return value

    def i64(self, field: str) -> int:
        """Return eight bytes as a number, big-endian, signed."""
        value: int = _I64.unpack(self.take(8, field))[0]
        return value

    def zigzag(self, field: str) -> int:
        """Return a zig-zag varint as ``ByteUtils.readVarint`` reads it; more than 5 bytes or 32 bits is malformed."""
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.u8(field)
            value |= (byte & 0x7F) << (7 * index)
            if byte < _VARINT_MORE:
                # Five bytes hold 35 bits, and Java would drop the upper three silently: a larger number is refused
                # below.
                if value > _MAX_U32:
                    break
                # Zig-zag: the lowest bit is the sign, and the other bits are the magnitude.
                return (value >> 1) ^ -(value & 1)
        raise self.fail(f"{field} is a varint of more than 32 bits", "IllegalArgumentException")

    def text(self, length: int, field: str) -> str:
        """Return ``length`` bytes of UTF-8 as text."""
        raw = self.take(length, field)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            # Java puts U+FFFD in place of bad bytes; a name read that way names nothing, so it is refused here.
            raise self.fail(f"{field} is not UTF-8") from None

    def end(self) -> None:
        """Raise MalformedBytesError if anything follows."""
        if self.remaining:
            raise self.fail(f"{self.remaining} bytes follow the last field")


MIN_I32: Final = -(1 << 31)
MAX_I32: Final = (1 << 31) - 1
MIN_I64: Final = -(1 << 63)
MAX_I64: Final = (1 << 63) - 1


# CRC-32C (Castagnoli), bits reversed: RocksDB computes it with the processor's instruction. Here a table does, because
# only short pieces are checked.
_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_entry, range(256)))


def masked(data: bytes) -> int:
    """Return the masked CRC32C of bytes (``crc32c::Mask``). About 10 MB a second."""
    crc, table = _U32, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= _U32
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _U32


def fixed_table(array: pa.BinaryArray) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of a binary array with values of equal length as a table, a row for each value; else None.

    None too for an array without values, of empty values, or with a null. The bytes are not copied.
    """
    import numpy as np

    rows = len(array)
    # A null has no bytes: an array of nulls only would look like one of values of length 0.
    if not rows or array.null_count:
        return None
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + rows + 1]
    width, rest = divmod(int(bounds[-1]) - int(bounds[0]), rows)
    if rest or not width or not bool((bounds[1:] - bounds[:-1] == width).all()):
        return None
    return np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]].reshape(rows, width)


def binary_of(table: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the rows of a table of bytes as values; contiguous bytes are not copied.

    Raise OverflowError for more bytes than the 32-bit offsets of an array of pyarrow reach.
    """
    import numpy as np
    import pyarrow as pa

    rows, width = table.shape
    if rows * width > np.iinfo(np.int32).max:
        raise OverflowError(f"a table of {rows} × {width} values is too large for one array")
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(table)
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def parse_json(data: bytes, most_values: int | None = None) -> Any:
    """Return the value of a JSON text in UTF-8. Raises MalformedBytesError for anything else or ambiguous.

    Python's own parser does not refuse all of that: it ends in RecursionError for a text that is nested too deeply,
    takes the last of several members with the same name, and accepts NaN and Infinity, which JSON does not have.

    ``most_values``: MOST_JSON_VALUES by default.
    """
    # Imported here to save time: most commands import this module before they print their help, which needs no JSON.
    import json

    # Counted in the bytes, before the parser makes an object of each value: 512 MiB of "[]," would fill the memory.
    # Marks in texts count too, which are few.
    most = MOST_JSON_VALUES if most_values is None else most_values
    if sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise MalformedBytesError(f"it has more than {most:,} values, which is kstate's limit")
    try:
        # "utf-8-sig" drops a byte order mark, which some editors put in front.
        document = json.loads(data.decode("utf-8-sig"), **_STRICT)
    except MalformedBytesError:
        raise
    except RecursionError:
        raise MalformedBytesError("the JSON text is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MalformedBytesError(str(error)) from None
    except ValueError:
        # Python converts no number of more than 4,300 digits, because that takes quadratic time.
        raise MalformedBytesError("a number in the JSON text has too many digits") from None
    _check_depth(document)
    return document


def _check_depth(document: Any) -> None:
    """Raise MalformedBytesError for nesting that Python reads and cannot print: a message would end in an error."""
    level = [document]
    for _ in range(MOST_JSON_LEVELS):
        # Level by level, without recursion: the check itself must not end in the error that it prevents.
        level = [member for value in level if isinstance(value, (dict, list)) for member in _members(value)]
        if not level:
            return
    raise MalformedBytesError("the JSON text is nested too deeply")


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            # Which of the two counts is left to the reader by JSON; here it would decide what is restored.
            raise MalformedBytesError(f"an object contains the same name twice: {name[:100]!r}")
        members[name] = value
    return members


def _no_number(text: str) -> NoReturn:
    raise MalformedBytesError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    # Python reads 1e999 as infinity, and would write it as a word that no other parser of JSON reads.
    if number in (float("inf"), float("-inf")):
        raise MalformedBytesError(f"the number {text[:100]} is too large")
    return number


_STRICT: Final[dict[str, Any]] = {
    "object_pairs_hook": _distinct,
    "parse_constant": _no_number,
    "parse_float": _finite,
}


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object whose members are read by type and range.

    Every method raises MalformedBytesError, which names the object and the member. A member that is null counts as
    missing. Unknown members are allowed: a newer writer may add some.
    """

    members: Mapping[str, Any]
    noun: str
    """What the object is, for the error."""

    @staticmethod
    def of(content: object, noun: str) -> JsonObject:
        """Return ``content`` if it is an object."""
        if not isinstance(content, dict):
            raise MalformedBytesError(f"{noun} is not a JSON object")
        return JsonObject(content, noun)

    def number(self, name: str, most: int = MAX_I64, least: int = 0) -> int:
        """Return a member that is an integer from ``least`` to ``most``."""
        value = self.members.get(name)
        # bool is a subclass of int in Python, and JSON may hold numbers of any size: Java's have 32 or 64 bits.
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._error(name, f"a number from {least} to {most}")
        return value

    def number_or_none(self, name: str, most: int = MAX_I64, least: int = 0) -> int | None:
        """Return a member as :meth:`number` does; None if it is missing."""
        if self.members.get(name) is None:
            return None
        return self.number(name, most, least)

    def text(self, name: str) -> str:
        """Return a member that is a text."""
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self._error(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """Return a member that is a text; None if it is missing."""
        if self.members.get(name) is None:
            return None
        return self.text(name)

    def items(self, name: str) -> list[Any]:
        """Return a member that is a list."""
        value = self.members.get(name)
        if not isinstance(value, list):
            raise self._error(name, "a list")
        return value

    def rows(self, name: str, length: int) -> list[list[Any]]:
        """Return a member that is a list of lists of ``length`` values each."""
        rows = self.items(name)
        if not all(isinstance(row, list) and len(row) == length for row in rows):
            raise self._error(name, f"a list of lists of {length}")
        return rows

    def object(self, name: str) -> JsonObject:
        """Return a member that is an object."""
        return JsonObject.of(self.members.get(name), f"{self.noun}: {name}")

    def _error(self, name: str, kind: str) -> MalformedBytesError:
        # Cut: a value from another program may have any length.
        return MalformedBytesError(f"{self.noun}: {name} is {repr(self.members.get(name))[:100]}, not {kind}")
