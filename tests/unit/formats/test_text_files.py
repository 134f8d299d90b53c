"""``.checkpoint`` files and topic-partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import checkpoint
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.topic_partition import (
    TopicPartition,
    changelog_topic,
    legal_store_name,
    legal_topic,
    prefix_of_changelog,
    readings_of_changelog,
    store_in_topologies,
    store_of_changelog,
)

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)
PARTITIONS = st.integers(0, 2**31 - 1)
ENTRIES = st.dictionaries(
    st.builds(TopicPartition, NAMES, PARTITIONS), st.integers(0, 2**63 - 1) | st.just(-4), min_size=1, max_size=8
)


@pytest.mark.parametrize(
    ("data", "exception"),
    [
        (b"", "EOFException"),
        (b"0\n", "EOFException"),
        (b"1\n0\n", "IllegalArgumentException"),
        (b"0\n1\n t 0 1\n", "IOException"),
        (b"0\n1\nt 0\n", "IOException"),
        (b"0\n1\nt 0 1 2\n", "IOException"),
        (b"0\n1\nt 0 1\n\n", "IOException"),
        (b"0\n2\nt 0 1\n", "IOException"),
        (b"0\n2\nt 0 1\nt 0 2\n", "IOException"),
        (b"0\n0\nt 0 1\n", "IOException"),
        (b"x\n0\n", "NumberFormatException"),
        (b"0\nx\n", "NumberFormatException"),
        (b"0\n1\nt x 1\n", "NumberFormatException"),
        (b"0\n1\nt 0 x\n", "NumberFormatException"),
        (b"0\n1\nt 2147483648 1\n", "NumberFormatException"),
        (b"0\n1\nt 0 9223372036854775808\n", "NumberFormatException"),
        (b"\xff", "MalformedInputException"),
    ],
)
def test_refused_as_by_streams(data: bytes, exception: str) -> None:
    with pytest.raises(MalformedBytesError) as caught:
        checkpoint.parse(data)
    assert caught.value.streams_exception == exception


@pytest.mark.parametrize(
    ("data", "offset", "dropped"),
    [
        (b"0\n1\nt 0 39\n", 39, ()),
        (b"0\n1\nt 0 39", 39, ()),
        (b"0\r\n1\r\nt 0 39\r\n", 39, ()),
        (b"0\n1\nt\t 0  39 \n", 39, ()),
        (b"0\n1\nt 0 -4\n", -4, ()),
        (b"0\n1\nt 0 1\nt 0 2\n", 2, ()),
        (b"0\n2\nt 0 5\nu 0 -2\n", 5, ("u 0 -2",)),
    ],
)
def test_accepted_as_by_streams(data: bytes, offset: int, dropped: tuple[str, ...]) -> None:
    assert checkpoint.parse(data) == checkpoint.Checkpoint({TopicPartition("t", 0): offset}, dropped)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {TopicPartition("t", 0): -1},
        {TopicPartition("t", 0): 2**63},
        {TopicPartition("a b", 0): 1},
        {TopicPartition("", 0): 1},
        {TopicPartition("t", 2**31): 1},
    ],
)
def test_not_written(entries: dict[TopicPartition, int]) -> None:
    with pytest.raises(ValueError):
        checkpoint.render(entries)


def test_rendered_text() -> None:
    entries = {TopicPartition("b", 1): 2, TopicPartition("a", 0): -4}
    assert checkpoint.render(entries) == b"0\n2\na 0 -4\nb 1 2\n"


@given(ENTRIES)
def test_checkpoint_round_trip(entries: dict[TopicPartition, int]) -> None:
    assert checkpoint.parse(checkpoint.render(entries)) == checkpoint.Checkpoint(entries)


@given(st.binary() | st.text(alphabet="01-4 tx\r\n").map(str.encode) | st.binary().map(b"0\n1\n".__add__))
def test_checkpoint_of_any_bytes(data: bytes) -> None:
    try:
        checkpoint.parse(data)
    except MalformedBytesError:
        pass


@given(NAMES, PARTITIONS)
def test_topic_partition_round_trip(topic: str, partition: int) -> None:
    parsed = TopicPartition.parse(f"{topic}-{partition}")
    assert parsed == TopicPartition(topic, partition)
    assert parsed.kafka_name == f"{topic}-{partition}"


@pytest.mark.parametrize("text", ["", "t", "-0", "t-", "t-01", "t-+1", "t-2147483648", "t-x"])
def test_not_a_topic_partition(text: str) -> None:
    with pytest.raises(MalformedBytesError):
        TopicPartition.parse(text)


def test_names() -> None:
    assert legal_topic("a.b_c-9") and not legal_topic("..") and not legal_topic("a/b") and not legal_topic("a" * 250)
    assert legal_store_name("s") and not legal_store_name("")
    assert changelog_topic("app", "s") == "app-s-changelog"
    assert store_of_changelog("app-s-changelog", "app") == "s"
    assert store_of_changelog("app-changelog", "app") is None
    assert store_of_changelog("other-s-changelog", "app") is None


def test_a_store_of_a_named_topology() -> None:
    assert store_in_topologies("app-t-s-changelog", "app", {"t"}) == ("s", "t")
    assert store_in_topologies("app-t-s-changelog", "app", {"t", "t-s", "u"}) == ("s", "t")
    assert store_in_topologies("app-t-s-changelog", "app", {None, "u"}) == ("t-s", None)
    assert store_in_topologies("app-s-changelog", "app", set()) == ("s", None)
    assert store_in_topologies("other-s-changelog", "app", {"t"}) is None


def test_every_reading_of_a_changelog() -> None:
    assert list(readings_of_changelog("x-a-b-changelog")) == [("x", "a-b"), ("x-a", "b")]
    for topic in ("users", "changelog", "-changelog", "a-changelog", "x-a-b"):
        assert not list(readings_of_changelog(topic))
    for prefix, store in readings_of_changelog("-x--a-changelog"):
        assert changelog_topic(prefix, store) == "-x--a-changelog"
        assert (store_of_changelog("-x--a-changelog", prefix), prefix_of_changelog("-x--a-changelog", store)) == (
            store,
            prefix,
        )
