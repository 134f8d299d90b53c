"""Serdes by name. Without one keys and values are bytes.

:func:`serde` knows them by name:

=================================  =====================================================  ==========================
name                               bytes                                                  text on a command line
=================================  =====================================================  ==========================
``bytes``                          any                                                    ``alice``, ``\\x00\\x2a``
``string``                         UTF-8                                                  ``alice``
``json``                           JSON; written without spaces, members as they come     ``{"id":1}``
``long``, ``int``, ``short``       8, 4, 2 bytes, the greatest first, signed              ``-42``
``double``, ``float``              IEEE 754, 8 and 4 bytes, the greatest first            ``0.5``, ``NaN``
``boolean``                        ``01`` or ``00``                                       ``true``, ``false``
``uuid``                           36 characters (``UUIDSerializer``)                     the same
``hex``, ``base64``                any; shown in that form                                ``00ff``, ``AP8=``
``time-windowed:INNER[:SIZE]``     ``key ‖ start:i64`` (``TimeWindowedSerializer``)       ``KEY@START``
``session-windowed:INNER``         ``key ‖ end:i64 ‖ start:i64``                          ``KEY@START/END``
``MODULE:NAME``                    as that code does                                      as that code does
=================================  =====================================================  ==========================

``SIZE`` of a window is in milliseconds; without it the end of a window is unknown. Times are those of
:func:`~kstate_cli.rows.values.parse_time`. Windowed serdes are for windowed keys in key-value stores: the keys of
window and session stores are taken apart anyway.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.formats.keys import SessionKey
from kstate_cli.rows.serde_type import BYTES, Serde, import_serde
from kstate_cli.rows.values import Windowed, base64_bytes, jsonable, milliseconds, parse_time
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion


def serde(name: str) -> Serde:
    """Return the serde of a name: one of :data:`NAMES`, a windowed one, or ``MODULE:NAME``, which runs that module.

    ``NAME`` is a :class:`Serde`, or an object with ``serialize`` and ``deserialize``, and optionally ``parse``,
    ``render`` and ``text``. It may also be a class, or a function without arguments, that returns one. Raises
    ValueError for an unknown name, and for a module that cannot be imported.
    """
    # kstate's names come first: a module of the user called ``long`` cannot replace the serde ``long``.
    built_in = _BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    # Each level is a call: thousands of them would end in an error of Python.
    if name.count("-windowed:") > _MOST_WINDOWED:
        raise ValueError(f"{name[:100]!r} is not a serde, because it nests more than {_MOST_WINDOWED} windows")
    kind, colon, inner = name.partition(":")
    if colon and kind == "time-windowed":
        return _time_windowed(name, inner)
    if colon and kind == "session-windowed":
        return _session_windowed(name, serde(inner))
    if colon:
        return import_serde(name, kind, inner)
    raise ValueError(f"{name!r} is not a serde. A serde is one of {', '.join(NAMES)}, or MODULE:NAME")


def serde_for(option_name: str, name: str) -> Serde:
    """Return as :func:`serde`, for an option of a command. Raise UsageError with its name."""
    try:
        return serde(name)
    except ValueError as error:
        suggestion = did_you_mean([name], NAMES)
        more = hint_with_suggestion(
            suggestion, f"to list the serdes and to see how to use a custom one, run {command('query', option.HELP)}"
        )
        raise UsageError(f"{option_name}: {error}", hint=more) from None


# --- text and JSON ----------------------------------------------------------------------------------------------------


def _string_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value.encode("utf-8")


def _json_value(data: bytes | str) -> Any:
    try:
        if isinstance(data, bytes):
            # Only UTF-8 is accepted: given bytes, json.loads would also take UTF-16 and UTF-32.
            data = data.decode("utf-8")
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _json_bytes(value: Any) -> bytes:
    try:
        # The same form as Jackson writes by default: without spaces and escapes.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _uuid(text: str) -> UUID:
    uuid = UUID(text)
    # UUID() also accepts braces, ``urn:uuid:`` and digits without dashes. UUIDDeserializer does not.
    if str(uuid) != text.lower():
        raise ValueError(f"{text!r} is not a UUID of 36 characters")
    return uuid


def _uuid_bytes(value: Any) -> bytes:
    if not isinstance(value, UUID):
        raise ValueError(f"{value!r} is not a UUID")
    return str(value).encode("ascii")


def _hex_bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", text):
        raise ValueError(f"{text!r} does not consist of hexadecimal digits, two for each byte")
    return bytes.fromhex(text)


def _base64_text(data: bytes) -> str:
    text: str = jsonable(data)["base64"]
    return text


def _checked(check: Callable[[Any], Any]) -> Callable[[str], str]:
    """Return a parser that returns its text unchanged if ``check`` does not raise."""

    def parse(text: str) -> str:
        check(text)
        return text

    return parse


# --- numbers ----------------------------------------------------------------------------------------------------------


def _number(name: str, form: str) -> Serde:
    """Return the serde of an integer in ``struct``'s format."""
    layout = struct.Struct(form)

    def serialize(value: Any) -> bytes:
        # In Python True is an int, and would be written as 1.
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{value!r} is not an integer")
        try:
            return layout.pack(value)
        except struct.error:
            raise ValueError(f"{value} does not fit into {layout.size} bytes") from None

    def parse(text: str) -> int:
        # int() would also accept underscores, spaces and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ValueError(f"{text!r} is not an integer")
        serialize(int(text))
        return int(text)

    return Serde(name, serialize, _sized(layout), parse)


def _real(name: str, form: str) -> Serde:
    """Return the serde ``name`` of floating-point numbers; ``form`` is their format for :mod:`struct`."""
    layout = struct.Struct(form)

    def serialize(value: Any) -> bytes:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ValueError(f"{value!r} is not a number")
        try:
            return layout.pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value} does not fit into {layout.size} bytes") from None

    def parse(text: str) -> float:
        # float() would also accept underscores.
        if "_" in text:
            raise ValueError(f"{text!r} is not a number")
        value = float(text)
        serialize(value)
        return value

    return Serde(name, serialize, _sized(layout), parse)


def _sized(layout: struct.Struct) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        # The deserializers of Java refuse another length too.
        if len(data) != layout.size:
            raise ValueError(f"it has {len(data)} bytes instead of {layout.size}")
        return layout.unpack(data)[0]

    return deserialize


def _boolean(data: bytes) -> bool:
    # BooleanDeserializer accepts no other byte.
    if data not in (b"\x00", b"\x01"):
        raise ValueError("a boolean is one byte, 00 or 01")
    return data == b"\x01"


def _boolean_bytes(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return bytes([value])


def _boolean_text(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return text == "true"


_BUILT_IN: Final = {
    built_in.name: built_in
    for built_in in (
        BYTES,
        Serde("string", _string_bytes, lambda data: data.decode("utf-8")),
        Serde("json", _json_bytes, _json_value, _json_value, show=lambda value: _json_bytes(jsonable(value)).decode()),
        _number("long", ">q"),
        _number("int", ">i"),
        _number("short", ">h"),
        _real("double", ">d"),
        _real("float", ">f"),
        Serde("boolean", _boolean_bytes, _boolean, _boolean_text),
        Serde("uuid", _uuid_bytes, lambda data: _uuid(data.decode("utf-8")), _uuid),
        Serde("hex", _hex_bytes, bytes.hex, _checked(_hex_bytes)),
        Serde("base64", base64_bytes, _base64_text, _checked(base64_bytes)),
    )
}

NAMES: Final = (*_BUILT_IN, "time-windowed:INNER[:SIZE_MS]", "session-windowed:INNER")
"""All names but those of a user's code."""


# --- windowed keys ----------------------------------------------------------------------------------------------------

_TIME_BYTES: Final = 8
_MOST_WINDOWED: Final = 8


def _time_windowed(name: str, inner: str) -> Serde:
    """Return the serde of ``WindowKeySchema.toBinary(Windowed, …)``: key and start, without a sequence number.

    ``inner`` is the name of the serde of the key, and optionally ``:`` and the size of the windows in ms.
    """
    head, colon, last = inner.rpartition(":")
    size = None
    # The name of the inner serde may contain colons. So only digits after the last colon are a size.
    if colon and last.isascii() and last.isdigit():
        inner, size = head, int(last)
    of = serde(inner)
    if size == 0:
        raise ValueError(f"{name!r}: a window must be longer than 0 ms")

    def end_of(start: int) -> int | None:
        if size is None:
            return None
        return start + size

    def deserialize(data: bytes) -> Windowed[Any]:
        if len(data) < _TIME_BYTES:
            raise ValueError(f"{len(data)} bytes are not a windowed key")
        start = int.from_bytes(data[-_TIME_BYTES:], "big", signed=True)
        return Windowed(of.deserialize(data[:-_TIME_BYTES]), start, end_of(start))

    def serialize(value: Any) -> bytes:
        return of.serialize(_windowed(value).key) + _time(value.start)

    def parse(text: str) -> Windowed[Any]:
        key, start, end = _parts(text)
        first = parse_time(start)
        last = end_of(first)
        if end is not None and size is not None and parse_time(end) != last:
            raise ValueError(f"the window at {first} ends at {last}, not at {end}")
        return Windowed(of.parse(key), first, last)

    return Serde(name, serialize, deserialize, parse, _windowed_json(of), _windowed_text(of))


def _session_windowed(name: str, of: Serde) -> Serde:
    """Return the serde of ``SessionKeySchema.toBinary``."""

    def deserialize(data: bytes) -> Windowed[Any]:
        session = SessionKey.from_bytes(data)
        return Windowed(of.deserialize(session.key), session.start, session.end)

    def serialize(value: Any) -> bytes:
        session = _windowed(value)
        if session.end is None:
            raise ValueError("a session needs an end")
        # The end comes first, because SessionKeySchema sorts sessions by their end.
        return of.serialize(session.key) + _time(session.end) + _time(session.start)

    def parse(text: str) -> Windowed[Any]:
        key, start, end = _parts(text)
        if end is None:
            raise ValueError(f"{text!r} is not KEY@START/END")
        return Windowed(of.parse(key), parse_time(start), parse_time(end))

    return Serde(name, serialize, deserialize, parse, _windowed_json(of), _windowed_text(of))


def _windowed(value: Any) -> Windowed[Any]:
    if not isinstance(value, Windowed):
        raise ValueError(f"{value!r} is not a Windowed")
    return value


def _time(time: int) -> bytes:
    try:
        return time.to_bytes(_TIME_BYTES, "big", signed=True)
    except OverflowError:
        raise ValueError(f"{time} does not fit into 64 bits") from None


def _parts(text: str) -> tuple[str, str, str | None]:
    key, at, window = text.rpartition("@")
    start, slash, end = window.partition("/")
    if not at or not start:
        raise ValueError(f"{text!r} is not KEY@START")
    if not slash:
        return key, start, None
    return key, start, end


def _windowed_json(of: Serde) -> Callable[[Any], Any]:
    return lambda value: {"key": of.render(value.key), "start": value.start, "end": value.end}


def _windowed_text(of: Serde) -> Callable[[Any], str]:
    def show(value: Any) -> str:
        text = f"{of.text(value.key)}@{milliseconds(value.start)}"
        if value.end is None:
            return text
        return f"{text}/{milliseconds(value.end)}"

    return show
