"""What ``OffsetCheckpoint.read`` does with files that nobody writes on purpose."""

from __future__ import annotations

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.checkpoint import Checkpoint, parse
from kstate_cli.formats.topic_partition import TopicPartition

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (b"0\n0", {}),
        (b"0\r1\ra 0 39\r", {A0: 39}),
        (b"+0\n+1\na +0 +39\n", {A0: 39}),
        (b"-0\n01\na 00 0039\n", {A0: 39}),
        (b"0\n1\na\x0b0\x0c39\n", {A0: 39}),
        (b"0\n1\na 0 9223372036854775807\n", {A0: 2**63 - 1}),
        (b"0\n1\na -1 5\n", {TopicPartition("a", -1): 5}),
        ("0\n1\nä\u2003b\x85 0 5\n".encode(), {TopicPartition("ä\u2003b\x85", 0): 5}),
    ],
)
def test_accepted(data: bytes, target: dict[TopicPartition, int]) -> None:
    assert parse(data) == Checkpoint(target)


@pytest.mark.parametrize(
    ("data", "checkpoint"),
    [
        (b"0\n1\na 1 -5\n", Checkpoint({}, ("a 1 -5",))),
        (b"0\n3\na 0 -2\na 0 -3\na 1 7\n", Checkpoint({A1: 7}, ("a 0 -2", "a 0 -3"))),
    ],
)
def test_each_dropped_line_lowers_the_expected_count(data: bytes, checkpoint: Checkpoint) -> None:
    assert parse(data) == checkpoint


@pytest.mark.parametrize(
    ("data", "java"),
    [
        (b"0", "EOFException"),
        (b"\n0\n", "NumberFormatException"),
        # The version is judged before the second line is read.
        (b"1\n", "IllegalArgumentException"),
        (b"-1\n0\n", "IllegalArgumentException"),
        (b"0 \n0\n", "NumberFormatException"),
        (b"\xef\xbb\xbf0\n0\n", "NumberFormatException"),
        (b"0\n2147483648\n", "NumberFormatException"),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", "NumberFormatException"),
        (b"0\n1\na 0 1_0\n", "NumberFormatException"),
        (b"0\n1\na 0 +-5\n", "NumberFormatException"),
        ("0\n1\na 0 ٣\n".encode(), "NumberFormatException"),
        (b"0\n1\n\na 0 1\n", "IOException"),
        (b"0\n0\n \n", "IOException"),
        ("0\n1\na\u20030 1\n".encode(), "IOException"),
        (b"0\n0\na 0 -7\n", "IOException"),
        (b"0\n-1\n", "IOException"),
        (b"0\n1\n\xff 0 1\n", "MalformedInputException"),
    ],
)
def test_refused(data: bytes, java: str) -> None:
    with pytest.raises(MalformedBytesError) as caught:
        parse(data)
    assert caught.value.streams_exception == java


def test_a_topic_without_a_name_is_refused() -> None:
    # Streams reads it: a leading blank makes an empty first field. No changelog has the name, and nothing could write it.
    with pytest.raises(MalformedBytesError, match="does not contain a topic") as caught:
        parse(b"0\n1\n 1 5\n")
    assert caught.value.streams_exception is None
