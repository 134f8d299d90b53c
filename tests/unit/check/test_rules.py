"""Small rules of ``kstate check``: the grid of segments, how many records a log may still have, what Java says."""

from __future__ import annotations

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.check.logs import FactLogs, at_most
from kstate_cli.check.rule import java_text
from kstate_cli.check.snapshot import _likely
from kstate_cli.formats import checkpoint
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log

KEY = TopicPartition("app-store-changelog", 0)
TEN_MINUTES = 600_000


@pytest.mark.parametrize(
    ("starts", "grid"),
    [
        ([TEN_MINUTES * 5, TEN_MINUTES * 6, TEN_MINUTES * 7 + 7], TEN_MINUTES),  # one of three is off
        ([TEN_MINUTES * 5 + 7, TEN_MINUTES * 6 + 7, TEN_MINUTES * 7 + 7], TEN_MINUTES),  # all are, by as much
        ([7], 0),  # nothing to compare with
    ],
)
def test_the_grid_of_segments(starts: list[int], grid: int) -> None:
    assert _likely(starts) == grid


@pytest.mark.parametrize(
    ("first", "marker", "until", "count", "exact"),
    [
        (10, False, None, 30, False),
        (10, True, None, 29, False),  # the last entry of a transactional log is a marker
        (39, True, None, 0, True),  # nothing but the marker
        (40, False, None, 0, True),
        (0, False, None, 35, False),  # below the log start
        (10, False, 19, 10, False),  # a source topic is read to the committed offset only
    ],
)
def test_how_many_records_at_most(first: int, marker: bool, until: int | None, count: int, exact: bool) -> None:
    records = at_most(Log(KEY, 5, 40, None, None, until), first, marker=marker)
    assert records is not None
    assert (records.count, records.exact) == (count, exact)


def test_source_topics_have_no_markers_at_their_end() -> None:
    source = TopicPartition("orders", 0)
    logs = FactLogs({KEY: LogFacts(0, 10), source: LogFacts(0, 10, committed=8)})
    for key, count in ((KEY, 9), (source, 8)):
        records = logs.records(key, 0, transactional=True)
        assert records is not None
        assert records.count == count
    assert logs.records(TopicPartition("other", 0), 0, transactional=True) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "File ended prematurely."),
        (b"1\n0\n", "Unknown offset checkpoint version: "),
        (b"0\n1\nx 0\n", "Malformed line in offset checkpoint file: "),
        (b"0\n2\nx 0 5\n", "entries but found only "),
        (b"0\nx\n", "For input string: "),
    ],
)
def test_message_of_java_about_a_malformed_file(data: bytes, text: str) -> None:
    with pytest.raises(MalformedBytesError) as error:
        checkpoint.parse(data)
    assert java_text(error.value) == text
