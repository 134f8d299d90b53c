"""Rows of two stores side by side: the comparison of their values, and the fields that views print.

Both stores are read in the order of their row keys, so only the two rows at hand are in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.values import timestamp_or_none

Same = Callable[[bytes, bytes], bool]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """The fields that values of two layouts are compared by, besides the value itself."""

    timestamps: bool
    headers: bool
    left_out: tuple[str, ...]
    """The fields that are not compared, each with the reason, for people."""


def comparable(kind: str, other: str) -> bool:
    """Return True for kinds with the same row keys. A key schema that bytes leave open counts as windows."""
    return _key_schema(kind) is _key_schema(other)


def _key_schema(kind: str) -> KeySchema:
    key = store_kind(kind).key
    return KeySchema.WINDOW if key is KeySchema.AMBIGUOUS else key


def compared(a: Layout, b: Layout, *, ignore_timestamps: bool, ignore_headers: bool) -> Compared:
    """Return the fields that both layouts have, without those that the user ignores."""
    left_out: list[str] = []
    answers = []
    for name, in_a, in_b, ignored in (
        ("timestamps", a.has_timestamps, b.has_timestamps, ignore_timestamps),
        ("headers", a.has_headers, b.has_headers, ignore_headers),
    ):
        answers.append(in_a and in_b and not ignored)
        if ignored and (in_a or in_b):
            left_out.append(f"{name}: ignored")
        elif in_a != in_b:
            left_out.append(f"{name}: {'B' if in_a else 'A'}'s layout has none")
    return Compared(answers[0], answers[1], tuple(left_out))


def same_values(a: Layout, b: Layout, fields: Compared) -> Same:
    """Return a function that compares two values of the newest layouts by ``fields``.

    It raises MalformedBytesError for a value that is none of its layout.
    """
    decode_a, decode_b = a.read, b.read
    same_layout = a.values is b.values

    def same(left: bytes, right: bytes) -> bool:
        # Most rows are equal byte by byte: decoding them would take most of the time.
        if same_layout and left == right:
            return True
        value, other = decode_a(left), decode_b(right)
        return (
            value.value == other.value
            and (not fields.timestamps or value.timestamp == other.timestamp)
            and (not fields.headers or value.headers == other.headers)
        )

    return same


def value_fields(layout: Layout, data: bytes) -> Fields:
    """Return a value for people: bytes as hexadecimal digits, and the timestamp and headers if the layout has them."""
    read = layout.read(data)
    fields: Fields = {"value": read.value.hex()}
    if layout.has_timestamps:
        fields["timestamp"] = timestamp_or_none(read.timestamp)
    if layout.has_headers:
        fields["headers"] = [
            {"key": header.key, "value": None if header.value is None else header.value.hex()}
            for header in read.headers
        ]
    return fields


def is_value(layout: Layout, data: bytes) -> bool:
    """Return True if the bytes are a value of the layout."""
    try:
        layout.read(data)
    except MalformedBytesError:
        return False
    return True


def key_fields(kind: str, row: bytes) -> Fields:
    """Return the parts of a row key, bytes unchanged; the whole key if it is none of that kind."""
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


Pair = tuple[bytes, bytes | None, bytes | None]
"""The key of a row, its value in A and in B; None if that side lacks the row."""
_KEY: Final = itemgetter(0)


def pairs(a: StoreReader, b: StoreReader, filled_a: Sequence[Segment], filled_b: Sequence[Segment]) -> Iterator[Pair]:
    """Yield every row of both stores once; ``filled`` are the segments that have rows.

    If the segments of both begin at the same times, they are read one after the other. Otherwise all segments of a
    store are merged in the order of keys, so that equal keys meet whatever segments have them. Raises StoreUnreadable.
    """
    if [segment.start for segment in filled_a] == [segment.start for segment in filled_b]:
        for left, right in zip(filled_a, filled_b, strict=True):
            yield from _join(rows_of("A", a, [left]), rows_of("B", b, [right]))
    else:
        yield from _join(rows_of("A", a, filled_a), rows_of("B", b, filled_b))


def rows_of(side: str, store: StoreReader, segments: Sequence[Segment]) -> Iterator[Row]:
    """The rows of one store in the order of their keys, without index rows. Raises StoreUnreadable, naming the side."""
    bounds = store.layout.key.base_rows
    try:
        scans = [segment.scan(*bounds) for segment in segments]
        yield from scans[0] if len(scans) == 1 else heapq.merge(*scans, key=_KEY)
    except StoreUnreadable as error:
        raise error.on(side) from None


def _join(left: Iterator[Row], right: Iterator[Row]) -> Iterator[Pair]:
    row, other = next(left, None), next(right, None)
    while row is not None or other is not None:
        if other is None or (row is not None and row[0] < other[0]):
            assert row is not None
            yield row[0], row[1], None
            row = next(left, None)
        elif row is None or other[0] < row[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield row[0], row[1], other[1]
            row, other = next(left, None), next(right, None)
