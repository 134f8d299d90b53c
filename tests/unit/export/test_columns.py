"""Columns that are made at once are those that are made row by row, to the bytes of each array and to each error."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.export import columns
from kstate_cli.export.columns import batches, splitter
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema, ValueLayout
from kstate_cli.formats.store_kinds import store_kinds
from kstate_cli.formats.values import (
    BufferValue,
    Header,
    HeadersSessionValue,
    HeadersValue,
    ListEntry,
    SubscriptionWrapper,
    TimestampedValue,
    encode_list,
)
from kstate_cli.formats.versioned import LatestValue, SegmentValue, Version
from kstate_cli.rocks.scanning import Row, in_pieces
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.records import Layout, Shape, shape_of
from kstate_cli.rows.serde_type import BYTES
from kstate_cli.rows.serdes import serde

LAYOUTS = sorted(
    {Layout(kind.name, (), family.layout) for kind in store_kinds() for family in kind.families},
    key=lambda layout: (layout.kind, layout.values.value),
)
AT_ONCE = [
    layout for layout in LAYOUTS if splitter(layout, columns.schema_of(shape_of(layout.kind), BYTES, BYTES)) is not None
]
SERDES = {
    "bytes": st.binary(max_size=12),
    "string": st.text(max_size=6).map(str.encode),
    "json": st.sampled_from([b'{"id": 1}', b"[]", b"null", b'"a"']),
    "long": st.integers(-(1 << 63), (1 << 63) - 1).map(struct.Struct(">q").pack),
    "int": st.integers(-(1 << 31), (1 << 31) - 1).map(struct.Struct(">i").pack),
    "short": st.integers(-(1 << 15), (1 << 15) - 1).map(struct.Struct(">h").pack),
    "double": st.binary(min_size=8, max_size=8),
    "float": st.binary(min_size=4, max_size=4),
    "boolean": st.sampled_from([b"\0", b"\1"]),
    "uuid": st.uuids().map(str).map(str.encode),
    "hex": st.binary(max_size=4),
    "base64": st.binary(max_size=4),
    "time-windowed:string:1000": st.text(max_size=3).map(lambda text: text.encode() + bytes(8)),
    "session-windowed:long": st.just(bytes(24)),
}
"""What each serde reads; now and then there is something odd among it (``bytes_of``)."""
GOOD = {
    "bytes": b"\xff",
    "string": "schlüssel".encode(),
    "long": bytes(8),
    "int": bytes(4),
    "double": bytes(8),
    "boolean": b"\1",
}
TIMES = st.sampled_from([-1, 0, 1, -2, 1_700_000_000_000, -(1 << 63), (1 << 63) - 1])
HEADERS = st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2).map(
    lambda pairs: tuple(Header(*pair) for pair in pairs)
)
ODD = st.sampled_from(
    [b"", b"\0", b"\1", b"\2", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", bytes(9)]
)
"""Among them what is UTF-8 for nobody: a surrogate, an overlong zero, more than U+10FFFF."""


@st.composite
def bytes_of(draw: st.DrawFn, name: str, good: bool) -> bytes:
    odd = not good and draw(st.integers(0, 19)) == 0
    return draw(ODD if odd else SERDES[name])


@st.composite
def row_of(draw: st.DrawFn, layout: Layout, key_serde: str, value_serde: str, good: bool) -> tuple[bytes, bytes]:
    key, value = draw(bytes_of(key_serde, good)), draw(bytes_of(value_serde, good))
    row, value = _key_of(layout.key, key, draw(TIMES), draw(TIMES)), _value(draw, layout, value)
    if not good and draw(st.integers(0, 39)) == 0:
        row = draw(st.sampled_from([row[:-1], row[1:], b"\7" + row, b""]))
    if not good and draw(st.integers(0, 39)) == 0:
        value = draw(st.sampled_from([value[:-1], value[:7], b"\5" + value, b""]))
    return row, value


def _key_of(schema: KeySchema, key: bytes, time: int, other: int) -> bytes:
    window, session = WindowKey(key, time, other & 3), SessionKey(key, time, other)
    return {
        KeySchema.KEY: key,
        KeySchema.WINDOW: window.to_bytes(),
        KeySchema.AMBIGUOUS: window.to_bytes(),
        KeySchema.TIME_ORDERED_WINDOW: window.to_time_first(),
        KeySchema.BUFFER: window.to_time_first(),
        KeySchema.SESSION: session.to_bytes(),
        KeySchema.TIME_ORDERED_SESSION: session.to_time_first(),
        KeySchema.VERSIONED: VersionedKey(3 if other & 1 else -1, key).to_bytes(),
        KeySchema.JOIN_SIDE: JoinSideKey(time, bool(other & 1), key).to_bytes(),
        KeySchema.COMBINED: CombinedKey(b"fk", key).to_bytes(),
    }[schema]


def _value(draw: st.DrawFn, layout: Layout, value: bytes) -> bytes:
    if layout.key is KeySchema.VERSIONED:
        versions = (Version(30, value), Version(20, None), Version(10, b""))
        return draw(st.sampled_from([LatestValue(5, value).to_bytes(), SegmentValue(40, versions).to_bytes()]))
    if layout.key is KeySchema.JOIN_SIDE:
        return encode_list((ListEntry(True, value), None))
    if layout.key is KeySchema.BUFFER:
        return BufferValue(draw(TIMES), 2, "t", 0, draw(HEADERS), None, None, value).to_bytes()
    if layout.key is KeySchema.COMBINED:
        value = SubscriptionWrapper(1, 2, bytes(16), value, 0).to_bytes()
    return _value_of(layout.values, value, draw(TIMES), draw(HEADERS))


def _value_of(layout: ValueLayout, value: bytes, time: int, headers: tuple[Header, ...]) -> bytes:
    return {
        ValueLayout.PLAIN: value,
        ValueLayout.TIMESTAMPED: TimestampedValue(time, value).to_bytes(),
        ValueLayout.HEADERS: HeadersValue(headers, time, value).to_bytes(),
        ValueLayout.HEADERS_SESSION: HeadersSessionValue(headers, value).to_bytes(),
    }[layout]


@st.composite
def stores(draw: st.DrawFn) -> tuple[Layout, str, str, list[Row]]:
    layout = draw(st.sampled_from(AT_ONCE if draw(st.integers(0, 3)) else LAYOUTS))
    key = draw(st.sampled_from(sorted(SERDES)))
    value = "bytes" if shape_of(layout.kind).internal else draw(st.sampled_from(sorted(SERDES)))
    good = draw(st.booleans())
    rows = draw(st.lists(row_of(layout, key, value, good), max_size=90))
    return layout, key, value, rows


Outcome = tuple[list[tuple[Any, int]], tuple[str, ...]]


def _outcome(layout: Layout, key: str, value: str, rows: list[Row], shape: Shape | None = None) -> Outcome:
    """The batches, each with the bytes of its buffers, by which row groups are cut; and the error that ended them."""
    results = []
    try:
        for batch in batches(
            in_pieces(iter(rows), columns.PIECES), layout, shape or shape_of(layout.kind), 3, serde(key), serde(value)
        ):
            batch.validate(full=True)
            results.append((batch, batch.nbytes))
    except (SerdeError, MalformedBytesError) as error:
        hint = error.hint if isinstance(error, SerdeError) else ""
        return results, (type(error).__name__, str(error), str(hint))
    return results, ()


def _row_by_row(*store: Any) -> Outcome:
    with (
        mock.patch.object(columns, "splitter", return_value=None),
        mock.patch.object(columns, "column_at_once", return_value=None),
    ):
        return _outcome(*store)


def _same(outcome: Outcome, other: Outcome) -> None:
    assert outcome[1] == other[1]
    assert [size for _, size in outcome[0]] == [size for _, size in other[0]]
    for (batch, _), (expected_batch, _) in zip(outcome[0], other[0], strict=True):
        assert batch.schema.equals(expected_batch.schema, check_metadata=True)
        # A NaN is not equal to itself; its bits are.
        assert list(map(_bits, batch.columns)) == list(map(_bits, expected_batch.columns))


def _bits(column: Any) -> Any:
    return [
        struct.pack(">d", value) if isinstance(value, float) else value for value in column.to_pylist()
    ], column.null_count


@given(stores())
def test_columns_equal_row_by_row_conversion(store: Any) -> None:
    _same(_outcome(*store), _row_by_row(*store))


@pytest.mark.parametrize("layout", AT_ONCE, ids=lambda layout: f"{layout.kind}, {layout.values.value}")
@pytest.mark.parametrize("names", [("string", "long"), ("long", "double"), ("int", "string"), ("bytes", "boolean")])
def test_many_good_rows_are_read_at_once(layout: Layout, names: tuple[str, str]) -> None:
    key, value = (GOOD[name] for name in names)
    rows = [(_key_of(layout.key, key, 1, 2), _value_of(layout.values, value, 7, ()))] * 300

    def fail(*_: Any) -> Any:
        raise AssertionError("a row was read by itself")

    shape = replace(shape_of(layout.kind), records=fail)
    with mock.patch.object(columns, "_reader", fail):
        outcome = _outcome(layout, *names, rows, shape)
    assert [batch.num_rows for batch, _ in outcome[0]] == [64, 128, 108]
    _same(outcome, _row_by_row(layout, *names, rows))
