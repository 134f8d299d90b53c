"""Positions: padding, immutability, ranges, and the bound rule case by case."""

from __future__ import annotations

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.offsets import Position, PositionBound, is_permitted

GOLDEN = bytes.fromhex("0000000001" + "00000002" + "696e" + "00000001" + "00000000" + "0000000000000027")


def test_bytes_after_the_last_component_are_ignored() -> None:
    assert Position.from_bytes(GOLDEN + b"anything") == Position.from_bytes(GOLDEN)


def test_the_length_counts_bits_as_bytes() -> None:
    position = Position.from_map({"ä": {0: 1, 1: 2}, "b": {7: 3}})
    assert len(position.to_bytes()) == 40 + (64 + 2 + 2 * 96) + (64 + 1 + 96)


def test_copies_cannot_change_a_position() -> None:
    position = Position.from_map({"a": {0: 1}})
    position.as_map()["a"][0] = 9
    position.partition_positions("a")[0] = 9
    assert position.as_map() == {"a": {0: 1}}
    assert hash(position) == hash(Position.empty().with_component("a", 0, 1))


def test_a_topic_without_partitions_is_not_kept() -> None:
    assert Position.from_map({"a": {}}) == Position.empty()
    assert Position.empty().is_empty


@pytest.mark.parametrize("target", [{"a": {-1: 0}}, {"a": {2**31: 0}}, {"a": {0: 2**63}}])
def test_numbers_out_of_range(target: dict[str, dict[int, int]]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Position.from_map(target)


@pytest.mark.parametrize(
    ("data", "java"),
    [
        ("ff0000000000", "IllegalArgumentException"),
        ("007fffffff", "BufferUnderflowException"),
        (GOLDEN[:-1].hex(), "BufferUnderflowException"),
        ("0000000001" + "ffffffff" + "00000000", "NegativeArraySizeException"),
        ("0000000001" + "00000001" + "61" + "ffffffff", "IllegalArgumentException"),
        ("0000000001" + "00000000" + "00000001" + "ffffffff" + "00" * 8, None),
    ],
)
def test_refused(data: str, java: str | None) -> None:
    with pytest.raises(MalformedBytesError) as caught:
        Position.from_bytes(bytes.fromhex(data))
    assert caught.value.streams_exception == java


@pytest.mark.parametrize(
    ("position", "bound", "permitted"),
    [
        ({}, {}, True),
        ({"a": {0: 6}}, {"a": {0: 5}}, True),
        ({"a": {0: 4}}, {"a": {0: 5}}, False),
        ({}, {"a": {0: 5}}, False),
        ({"a": {1: 9}}, {"a": {0: 5}}, False),
        ({"a": {0: 5}}, {"a": {0: 5, 1: 99}}, True),
        ({}, {"a": {1: 99}}, True),
        ({"a": {0: 5}}, {"a": {0: 5}, "b": {0: 0}}, False),
    ],
)
def test_is_permitted(position: dict[str, dict[int, int]], bound: dict[str, dict[int, int]], permitted: bool) -> None:
    limit = PositionBound.at(Position.from_map(bound))
    assert is_permitted(Position.from_map(position), limit, 0) is permitted
    assert limit.is_unbounded is (not bound)
