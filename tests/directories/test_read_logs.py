"""From where the ends of logs are read: only offsets that the log has, whatever a directory says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.tails import Tail, short_tails
from kstate_cli.check.logs import FactLogs
from kstate_cli.check.predict import check, topics_of
from kstate_cli.check.snapshot import CheckRequest
from kstate_cli.check.snapshot_reader import lags
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import release
from kstate_cli.statedir.scan import read_application
from tests.golden import names, unpack

pytestmark = pytest.mark.rotating(4)

Offsets = Mapping[TopicPartition, tuple[set[int], int]]


class Reader:
    """Read nothing, and record the requested ranges."""

    def __init__(self) -> None:
        self.requests: list[tuple[TopicPartition, int, int]] = []

    def __call__(self, expectation: Offsets, *, committed: bool) -> dict[TopicPartition, Tail]:
        self.requests += [(key, first, end) for key, (firsts, end) in expectation.items() for first in firsts]
        assert all(0 <= first < end for first, end in short_tails(expectation).values())
        return {}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", names())
def test_logs_are_read_from_their_start_offset(name: str, tmp_path: Path) -> None:
    app = read_application(unpack(name, tmp_path))
    reader = Reader()
    # Short: what is no offset is near enough to its end.
    facts = {TopicPartition(topic, number): LogFacts(3, 40) for topic in topics_of(app) for number in range(2)}
    logs = FactLogs(facts, frozenset(topics_of(app)), reader)
    check(app, CheckRequest(release("4.3"), logs=(logs,)))
    assert {(key, first) for key, first, _ in reader.requests if not 3 <= first <= 40} == set()
    lags(app, (logs,))
