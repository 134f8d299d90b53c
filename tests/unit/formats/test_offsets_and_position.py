"""The ``offsets`` column family and positions."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import offsets
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.checkpoint import Checkpoint
from kstate_cli.formats.offsets import Position, PositionBound, is_permitted
from kstate_cli.formats.topic_partition import TopicPartition

I64 = st.integers(-(2**63), 2**63 - 1)
POSITIONS = st.dictionaries(
    st.text(max_size=8).filter(lambda text: text.isprintable()),
    st.dictionaries(st.integers(0, 2**31 - 1), I64, max_size=3),
    max_size=3,
).map(Position.from_map)


@pytest.mark.parametrize(
    ("value", "encoded"), [(39, "0000000000000027"), (-4, "fffffffffffffffc"), (1, "0" * 15 + "1")]
)
def test_golden_offsets(value: int, encoded: str) -> None:
    assert offsets.encode_offset(value).hex() == encoded
    assert offsets.decode_offset(bytes.fromhex(encoded)) == value


def test_golden_position() -> None:
    position = Position.from_map({"in": {0: 39}})
    useful = bytes.fromhex("00 00000001 00000002 696e 00000001 00000000 0000000000000027")
    assert position.to_bytes() == useful + bytes(175)
    assert Position.from_bytes(useful) == position
    assert Position.empty().to_bytes() == bytes(40)


@given(POSITIONS)
def test_position_round_trip(position: Position) -> None:
    assert Position.from_bytes(position.to_bytes()) == position


@given(st.binary() | st.binary().map(bytes((0, 0, 0, 0)).__add__))
def test_position_of_any_bytes(data: bytes) -> None:
    try:
        Position.from_bytes(data)
    except MalformedBytesError:
        pass


@pytest.mark.parametrize("encoded", ["", "01", "00ffffffff", "0000000001", "0000000001 00000001 ff 00000000"])
def test_malformed_positions(encoded: str) -> None:
    with pytest.raises(MalformedBytesError):
        Position.from_bytes(bytes.fromhex(encoded))


@given(POSITIONS, POSITIONS)
def test_merge_never_goes_back(entry: Position, other: Position) -> None:
    merged = entry.merge(other)
    assert merged == other.merge(entry)
    for position in (entry, other):
        assert merged.merge(position) == merged


def test_bounds() -> None:
    position = Position.empty().with_component("t", 0, 5).with_component("t", 0, 3)
    assert position.partition_positions("t") == {0: 5}
    assert is_permitted(position, PositionBound.at(position), 0)
    assert is_permitted(position, PositionBound.at(Position.from_map({"t": {1: 9}})), 0)
    assert not is_permitted(position, PositionBound.at(Position.from_map({"t": {0: 6}})), 0)
    assert not is_permitted(position, PositionBound.at(Position.from_map({"u": {0: 0}})), 0)
    assert PositionBound.unbounded().is_unbounded and is_permitted(Position.empty(), PositionBound.unbounded(), 0)


def test_position_file() -> None:
    entries = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    position = Position.from_checkpoint(Checkpoint(entries))
    assert position.topics == ("t",) and position.to_checkpoint_entries() == entries
    with pytest.raises(ValueError):
        Position.from_checkpoint(Checkpoint({TopicPartition("t", -1): 0}))


@given(
    st.dictionaries(st.builds(TopicPartition, st.from_regex(r"[a-z.-]{1,9}", fullmatch=True), st.integers(0, 99)), I64),
    st.none() | POSITIONS,
    st.sampled_from([None, 0, 1]),
)
def test_offset_rows_round_trip(
    entries: dict[TopicPartition, int], position: Position | None, status: int | None
) -> None:
    record = offsets.OffsetsRecord(entries, position, status)
    assert offsets.decode_rows(offsets.encode_rows(record).items()) == record


@given(st.binary(), st.binary())
def test_offset_rows_of_any_bytes(key: bytes, value: bytes) -> None:
    try:
        offsets.decode_rows([(key, value)])
    except MalformedBytesError:
        pass


@pytest.mark.parametrize("row", [(b"status", b"\0"), (b"position", b"\1"), (b"t-0", bytes(9)), (b"\xff", bytes(8))])
def test_malformed_offset_rows(row: tuple[bytes, bytes]) -> None:
    with pytest.raises(MalformedBytesError):
        offsets.decode_rows([row])


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MalformedBytesError("reason", "IOException")))
    assert (error.reason, error.streams_exception, str(error)) == (
        "reason",
        "IOException",
        "reason (Streams: IOException)",
    )
