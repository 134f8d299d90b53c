"""Change bytes as damage, other programs and enemies do; every choice comes from a generator with a seed.

libFuzzer knows nothing of JSON: its changes of bytes rarely give another document. So a part of the changes is made here, also
for libFuzzer, and the tests need nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from .targets import Shape

MOST_BYTES: Final = 1 << 16
"""The longest input."""

_NUMBERS: Final = (
    *(-(1 << 63), -(1 << 31), -(1 << 31) - 1, -5, -4, -3, -2, -1, 0, 1, 2, 3, 127, 128, 255, 256, 65_535),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64),
)
_TEXTS: Final = (
    *(
        "",
        "a",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\0b",
        "a b",
        "a\nb",
        "\x1b[31m",
        "\ud800",
    ),
    *(
        "\udcff",
        "٣",
        "0",
        "00",
        "-1",
        "1_0",
        "1e3",
        "NaN",
        "global",
        "0_0",
        "__t__/0_0",
        "a" * 300,
        "é" * 100,
        "\u2028",
    ),
)
_VALUES: Final = (None, True, False, [], {}, [[]], {"": {}}, 0.5, 1e300, 1e999, *_NUMBERS, *_TEXTS)
_TOKENS: Final = (
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b"\t",
        b"\x0b",
        b"\x85",
        b"\xe2\x80\xa8",
        b"\0",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
    ),
    *(b"0", b"-0", b"+1", b"00", b"-1", b"-4", b"-5", b"9223372036854775807", b"9223372036854775808", b"1_0", b"1e3"),
    *(b'"', b"\\", b"[", b"]", b"{", b"}", b"=", b"#", b":", b",", b"<--", b"-->", b"...", b"''"),
    *(b"\x80" * 10, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\0" * 16, b"0" * 5_000, b" " * 5_000),
)


def mutate(data: bytes, generator: Random, shape: Shape, others: Sequence[bytes]) -> bytes:
    """Return changed bytes, at most :data:`MOST_BYTES`; ``others`` are inputs from which parts are taken."""
    for _ in range(generator.choice((1, 1, 1, 2, 3, 8))):
        changes = _CHANGES[shape]
        data = generator.choice(changes)(data, generator, others)
    return data[:MOST_BYTES]


_Change = Callable[[bytes, Random, Sequence[bytes]], bytes]


def _at(data: bytes, generator: Random) -> int:
    return generator.randrange(len(data) + 1)


def _part(data: bytes, generator: Random) -> tuple[int, int]:
    begin = _at(data, generator)
    return begin, min(len(data), begin + generator.choice((1, 2, 4, 8, 16, 64, 1_000)))


def _flip(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = generator.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << generator.randrange(8),)) + data[at + 1 :]


def _replace_byte(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    if not data:
        return bytes((generator.randrange(256),))
    at = generator.randrange(len(data))
    return data[:at] + bytes((generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256))),)) + data[at + 1 :]


def _number(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    """Write a number of a limit over other bytes, as Java or RocksDB writes it."""
    size, order = generator.choice((1, 2, 4, 8)), generator.choice(("big", "little"))
    number = generator.choice(_NUMBERS) % (1 << 8 * size)
    at = _at(data, generator)
    return data[:at] + number.to_bytes(size, "big" if order == "big" else "little") + data[at + size :]


def _token(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    at = _at(data, generator)
    return data[:at] + generator.choice(_TOKENS) + data[at + generator.choice((0, 0, 1, 8)) :]


def _cut(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    begin, end = _part(data, generator)
    return data[:begin] + data[end:]


def _end(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    return data[: _at(data, generator)]


def _repeat(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    begin, end = _part(data, generator)
    return data[:end] + data[begin:end] * generator.choice((1, 1, 2, 50)) + data[end:]


def _move(data: bytes, generator: Random, _others: Sequence[bytes]) -> bytes:
    begin, end = _part(data, generator)
    rest = data[:begin] + data[end:]
    at = _at(rest, generator)
    return rest[:at] + data[begin:end] + rest[at:]


def _splice(data: bytes, generator: Random, others: Sequence[bytes]) -> bytes:
    other = generator.choice(others) if others else data
    begin, end = _part(other, generator)
    return generator.choice((data[: _at(data, generator)] + other[begin:], data + other[begin:end]))


_OF_BYTES: Final[tuple[_Change, ...]] = (*(_flip, _replace_byte, _number, _token, _cut, _end, _repeat, _move, _splice),)


# --- lines of a text -----------------------------------------------------------------------------------------------------


def _lines(data: bytes, generator: Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    at, other = generator.randrange(len(lines)), generator.randrange(len(lines))
    match generator.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = generator.choice((lines[at][: _at(lines[at], generator)], lines[at] + lines[other]))
    return b"\n".join(lines)


# --- JSON ----------------------------------------------------------------------------------------------------------------


def _document(data: bytes, generator: Random, others: Sequence[bytes]) -> bytes:
    """Change a value, a name or the order somewhere in a document; the bytes of a text that is no document."""
    lines = data.split(b"\n")
    at = generator.randrange(len(lines))
    whole = data
    if len(lines) > 2:
        whole = lines[at]
    try:
        document = json.loads(whole)
        places = [*_places(document)]
        if not places:
            document = generator.choice(_VALUES)
        else:
            _change(*generator.choice(places), generator, document)
        # Lone surrogates are escapes in JSON, as another program may write them.
        changed = json.dumps(document).encode()
    except (ValueError, RecursionError, TypeError):
        return generator.choice(_OF_BYTES)(data, generator, others)
    if len(lines) > 2:
        lines[at] = changed
        return b"\n".join(lines)
    return changed


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return each container of a document with each of its keys."""
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(places) < 5_000:
        container = waiting.pop()
        if isinstance(container, dict):
            places += [(container, key) for key in container]
            waiting += container.values()
        elif isinstance(container, list):
            places += [(container, number) for number in range(len(container))]
            waiting += container
    return places


def _change(container: Any, key: Any, generator: Random, document: Any) -> None:
    value = container[key]
    match generator.randrange(6):
        case 0:
            del container[key]
        case 1 if isinstance(value, int) and not isinstance(value, bool):
            container[key] = value + generator.choice((-2, -1, 1, 2, 1 << 31, 1 << 62))
        case 2 if isinstance(value, str):
            container[key] = value + generator.choice(_TEXTS)
        case 3 if isinstance(container, dict):
            container[generator.choice((*_TEXTS, f"{key}{key}"))] = container.pop(key)
        case 3:
            container.append(json.loads(json.dumps(value)))
        case 4:
            other, place = generator.choice(_places(document))
            container[key] = json.loads(json.dumps(other[place]))
        case _:
            container[key] = generator.choice(_VALUES)


_CHANGES: Final[dict[Shape, tuple[_Change, ...]]] = {
    Shape.BYTES: _OF_BYTES,
    Shape.TEXT: (*_OF_BYTES, _lines, _lines, _lines),
    Shape.JSON: (*_OF_BYTES, *(_document,) * 12),
}
