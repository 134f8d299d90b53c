"""How rows of two stores are held against each other: what of a value both layouts have, and how a row is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.values import known

Same = Callable[[bytes, bytes], bool]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """What of the values of two layouts is compared."""

    timestamps: bool
    headers: bool
    left_out: tuple[str, ...]
    """What is not, and why: for the reader."""


def comparable(one: str, other: str) -> bool:
    """Kinds with the same row keys: their rows can be held against each other. What is untold counts as windows."""
    return _key_schema(one) is _key_schema(other)


def _key_schema(kind: str) -> KeySchema:
    key = store_kind(kind).key
    return KeySchema.WINDOW if key is KeySchema.UNTOLD else key


def compared(a: Layout, b: Layout, *, ignore_timestamps: bool, ignore_headers: bool) -> Compared:
    """What both layouts have, less what is to be ignored."""
    left_out: list[str] = []
    answers = []
    for what, in_a, in_b, ignored in (
        ("timestamps", a.has_timestamps, b.has_timestamps, ignore_timestamps),
        ("headers", a.has_headers, b.has_headers, ignore_headers),
    ):
        answers.append(in_a and in_b and not ignored)
        if ignored and (in_a or in_b):
            left_out.append(f"{what}: ignored")
        elif in_a != in_b:
            left_out.append(f"{what}: {'B' if in_a else 'A'}'s layout has none")
    return Compared(answers[0], answers[1], tuple(left_out))


def same_values(a: Layout, b: Layout, what: Compared) -> Same:
    """Tells whether two values, of the newest layouts, are the same as far as ``what`` goes.

    It raises MalformedBytesError for a value that is none of its layout.
    """
    decode_a, decode_b = a.read, b.read
    one_layout = a.values is b.values

    def same(left: bytes, right: bytes) -> bool:
        if one_layout and left == right:
            return True
        one, other = decode_a(left), decode_b(right)
        return (
            one.value == other.value
            and (not what.timestamps or one.timestamp == other.timestamp)
            and (not what.headers or one.headers == other.headers)
        )

    return same


def value_fields(layout: Layout, data: bytes) -> Fields:
    """A value to show: bytes as hexadecimal digits, and what the layout has beside the value."""
    read = layout.read(data)
    fields: Fields = {"value": read.value.hex()}
    if layout.has_timestamps:
        fields["timestamp"] = known(read.timestamp)
    if layout.has_headers:
        fields["headers"] = [
            {"key": one.key, "value": None if one.value is None else one.value.hex()} for one in read.headers
        ]
    return fields


def is_value(layout: Layout, data: bytes) -> bool:
    """Whether it can be read as a value of the layout."""
    try:
        layout.read(data)
    except MalformedBytesError:
        return False
    return True


def key_fields(kind: str, row: bytes) -> Fields:
    """The parts of a row's key, bytes as they are. The whole of it where it is none of that kind."""
    try:
        return _key_fields(kind, row)
    except MalformedBytesError:
        return {"key": row}


def _key_fields(kind: str, row: bytes) -> Fields:
    schema = _key_schema(kind)
    key = schema.read(row)
    if isinstance(key, bytes):
        return {"key": key}
    if isinstance(key, WindowKey):
        time = "buffer_time" if schema is KeySchema.BUFFER else "window_start"
        return {"key": key.key, time: key.start, "seq": key.seq}
    if isinstance(key, SessionKey):
        return {"key": key.key, "window_start": key.start, "window_end": key.end}
    if isinstance(key, VersionedKey):
        return {"key": key.key, "segment": "latest" if key.is_latest else key.segment}
    if isinstance(key, JoinSideKey):
        return {"key": key.key, "timestamp": key.timestamp, "side": key.side}
    assert isinstance(key, CombinedKey)
    return {"key": key.primary_key, "foreign_key": key.foreign_key}


def as_text(fields: Mapping[str, Any]) -> str:
    """Parts of a key on one line: the key first, the rest by name."""
    rest = "".join(f" {name}={_text(value)}" for name, value in fields.items() if name != "key")
    return f"{_text(fields['key'])}{rest}"


def as_json(fields: Mapping[str, Any]) -> Fields:
    """Parts of a key, bytes as hexadecimal digits."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text and text.isprintable() else f"0x{value.hex()}"
