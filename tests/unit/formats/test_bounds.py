"""The last value on either side of each limit, and columns that begin within a buffer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import checkpoint
from kstate_cli.formats.binary import MAX_I32, MAX_I64, MIN_I32, MalformedBytesError, binary_of, fixed_table, parse_json
from kstate_cli.formats.keys import JoinSideKey, SessionKey, WindowKey
from kstate_cli.formats.layouts import STRIP, KeySchema, ValueLayout, lifted, stripped
from kstate_cli.formats.offsets import OffsetsRecord, Position, decode_rows, encode_offset, encode_rows
from kstate_cli.formats.partitions import NO_PARTITION, KeyPart, partition_of, partitions_of
from kstate_cli.formats.topic_partition import TopicPartition


def test_the_text_of_an_error() -> None:
    assert str(MalformedBytesError("a reason", "IOException")) == "a reason (Streams: IOException)"
    assert MalformedBytesError("x" * 500).reason == "x" * 500
    assert MalformedBytesError("x" * 501).reason == "x" * 500 + "…"


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 5), st.integers(1, 9), st.binary(min_size=16 * 9))
def test_a_part_of_a_column_is_its_table(before: int, rows: int, after: int, width: int, data: bytes) -> None:
    count = before + rows + after
    values = [data[at * width : (at + 1) * width] for at in range(count)]
    # The first value of the buffer is longer, so that the offsets of the part are no multiples of the width.
    column = pa.array([b"longer than nine", *values], pa.binary()).slice(1 + before, rows)
    table = fixed_table(column)
    assert table is not None
    assert table.tolist() == [list(value) for value in values[before : before + rows]]
    assert binary_of(table).to_pylist() == column.to_pylist()
    assert binary_of(table).buffers()[1].size == 4 * (rows + 1)
    assert fixed_table(pa.array([*values, b"x" * (width + 1)], pa.binary())) is None
    assert fixed_table(pa.array([*values, None], pa.binary())) is None
    # Lengths whose mean is a whole number.
    assert fixed_table(pa.array([b"x" * (width + 1), b"x" * (width - 1)], pa.binary())) is None


@pytest.mark.parametrize("values", [[], [b""], [b"", b""], [None], [None, None]])
def test_columns_without_a_table(values: list[bytes | None]) -> None:
    assert fixed_table(pa.array(values, pa.binary())) is None


def test_the_longest_array() -> None:
    # Rows without memory of their own: each is the same byte.
    longest = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (MAX_I32, 2), (0, 0))
    with pytest.raises(OverflowError):
        binary_of(longest)


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_no_json_is_infinite(number: str) -> None:
    with pytest.raises(MalformedBytesError, match="too large"):
        parse_json(f"[{number}]".encode())


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partition", "offset"), [(MIN_I32, 0), (MAX_I32, MAX_I64), (0, -4)])
def test_the_ends_of_a_checkpoint(partition: int, offset: int) -> None:
    entries = {TopicPartition("t", partition): offset}
    data = checkpoint.render(entries)
    assert data == f"0\n1\nt {partition} {offset}\n".encode()
    assert checkpoint.parse(data).entries == entries


@pytest.mark.parametrize(
    ("partition", "offset"), [(MIN_I32 - 1, 0), (MAX_I32 + 1, 0), (0, MAX_I64 + 1), (0, -1), (0, -3), (0, -5)]
)
def test_beyond_the_ends_of_a_checkpoint(partition: int, offset: int) -> None:
    with pytest.raises(ValueError, match="t"):
        checkpoint.render({TopicPartition("t", partition): offset})


def test_lines_of_a_checkpoint() -> None:
    """Offset -1 is dropped as any other negative one but -4, lines are counted from 1, and their number is limited."""
    assert checkpoint.parse(b"0\n1\nt 0 -1\n").dropped == ("t 0 -1",)
    assert checkpoint.parse(f"0\n1\nt {MIN_I32} 0\n".encode()).entries == {TopicPartition("t", MIN_I32): 0}
    with pytest.raises(MalformedBytesError, match="line 3"):
        checkpoint.parse(b"0\n1\nt 0\n")
    for number, wrong in ((checkpoint.MOST_ENTRIES, None), (checkpoint.MOST_ENTRIES + 1, "has more than")):
        data = f"0\n{number}\n".encode() + b"".join(b"t %d 7\n" % at for at in range(number))
        if wrong is None:
            assert len(checkpoint.parse(data).entries) == number
        else:
            with pytest.raises(MalformedBytesError, match=wrong):
                checkpoint.parse(data)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_sides() -> None:
    assert [JoinSideKey(0, left, b"").side for left in (True, False)] == ["left", "right"]


@pytest.mark.parametrize(
    ("schema", "prefixes"),
    [(schema, (b"\0", b"\1") if schema.time_ordered else (None, None)) for schema in KeySchema],
)
def test_rows_of_a_time_ordered_store_have_a_prefix(
    schema: KeySchema, prefixes: tuple[bytes | None, bytes | None]
) -> None:
    assert schema.base_rows == prefixes


def test_each_index_has_its_reader() -> None:
    window, session = WindowKey(b"k", 5, 1), SessionKey(b"k", 5, 9)
    for schema in KeySchema:
        if schema.time_ordered:
            key = session if schema.sessions else window
            assert schema.read_index(key.to_key_first()) == key


def test_values_that_are_converted() -> None:
    newer = {
        ValueLayout.TIMESTAMPED: {ValueLayout.PLAIN},
        ValueLayout.HEADERS: {ValueLayout.PLAIN, ValueLayout.TIMESTAMPED},
    }
    newer[ValueLayout.HEADERS_SESSION] = {ValueLayout.PLAIN}
    for older in ValueLayout:
        assert lifted(older, older) == b""
        for layout in {*ValueLayout} - {older}:
            if older not in newer.get(layout, ()):
                with pytest.raises(ValueError, match="does not convert values from"):
                    lifted(older, layout)
            # Only headers are taken away again.
            if layout is ValueLayout.TIMESTAMPED or older not in newer.get(layout, ()):
                with pytest.raises(ValueError, match="does not convert values back"):
                    stripped(layout, older, KeySchema.WINDOW)


def test_only_a_time_ordered_store_has_values_without_a_timestamp() -> None:
    headers, session, plain = ValueLayout.HEADERS, ValueLayout.HEADERS_SESSION, ValueLayout.PLAIN
    assert stripped(headers, ValueLayout.TIMESTAMPED, KeySchema.TIME_ORDERED_WINDOW) == "time-ordered"
    assert stripped(headers, ValueLayout.TIMESTAMPED, KeySchema.WINDOW) == "timestamped"
    assert stripped(session, plain, KeySchema.TIME_ORDERED_SESSION) == "session"
    assert stripped(headers, plain, KeySchema.WINDOW) == "plain"
    assert stripped(plain, plain, KeySchema.WINDOW) == "bare"


@pytest.mark.parametrize("value", [b"", b"\0"])
def test_only_an_index_has_empty_values(value: bytes) -> None:
    assert STRIP["time-ordered"](value) == (b"", 0)
    with pytest.raises(MalformedBytesError, match="has no timestamp"):
        STRIP["timestamped"](value)
    assert STRIP["timestamped"](b"\0" + bytes(8) + b"v") == (bytes(8) + b"v", 0)


@pytest.mark.parametrize(
    "read",
    [
        WindowKey.from_bytes,
        SessionKey.from_bytes,
        lambda data: WindowKey.from_time_first(b"\0" + data),
        lambda data: WindowKey.from_key_first(b"\1" + data),
        lambda data: SessionKey.from_time_first(b"\0" + data),
        lambda data: SessionKey.from_key_first(b"\1" + data),
        JoinSideKey.from_bytes,
    ],
)
@pytest.mark.parametrize("length", range(8))
def test_keys_that_end_within_a_number(read: Callable[[bytes], object], length: int) -> None:
    with pytest.raises(MalformedBytesError) as caught:
        read(b"x" * length)
    assert caught.value.streams_exception == "BufferUnderflowException"


# --- the offsets column family ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("t", -1), ("t", MAX_I32 + 1)])
def test_topic_partitions_that_are_no_keys(topic: str, partition: int) -> None:
    with pytest.raises(ValueError, match="cannot be a key"):
        encode_rows(OffsetsRecord({TopicPartition(topic, partition): 5}))


def test_topic_partitions_at_the_ends() -> None:
    for partition in (0, MAX_I32):
        record = OffsetsRecord({TopicPartition("t", partition): 5}, Position(), 1)
        assert encode_rows(record)[f"t-{partition}".encode()] == encode_offset(5)
        assert decode_rows(encode_rows(record).items()) == record


def test_counts_of_a_position_beyond_its_bytes() -> None:
    version = Position().to_bytes()[:1]
    # The smallest topic has a length and a number of partitions, of four bytes each.
    for count, rest in ((2, 15), (1, 7)):
        with pytest.raises(
            MalformedBytesError, match=f"number of topics is {count}, but only {rest} bytes are left"
        ) as caught:
            Position.from_bytes(version + count.to_bytes(4, "big") + bytes(rest))
        assert caught.value.streams_exception == "BufferUnderflowException"
    with pytest.raises(MalformedBytesError, match="number of partitions of '' is 1, but only 11 bytes are left"):
        Position.from_bytes(version + (1).to_bytes(4, "big") + bytes(7) + b"\1" + bytes(11))


# --- partitions -------------------------------------------------------------------------------------------------------


def test_counted_parts_of_keys() -> None:
    part = KeyPart(counted=True)
    cases = {b"\0\0\0\2abc": b"ab", b"\0\0\0\0": b"", b"\0\0\0\2a": None, b"\xff\xff\xff\xffab": None, b"\0\0": None}
    assert {key: part.of(key) for key in cases} == cases
    # A part of an array, with keys before and behind it.
    keys = pa.array([b"before", *cases, b"behind"], pa.binary()).slice(1, len(cases))
    target = [NO_PARTITION if own is None else partition_of(own, 7) for own in cases.values()]
    assert partitions_of(keys, part, 7).tolist() == target
    whole = [partition_of(key, 7) for key in cases]
    assert partitions_of(keys, KeyPart(), 7).tolist() == whole


def test_names_of_kip_796() -> None:
    assert Position.empty_position() == Position.empty() == Position()
    position = Position.from_map({"t": {0: 5, 1: 6}})
    assert position.get_bound("t") == {0: 5, 1: 6}
    assert position.get_bound("u") == {}
