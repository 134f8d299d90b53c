"""How far stores are behind their logs, and how much a start restores, by logs that are given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.tails import Tail
from kstate_cli.check.findings import Outcome, Prediction, Records
from kstate_cli.check.logs import FactLogs
from kstate_cli.check.snapshot_reader import Lag, lags, until_running
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.statedir.model import Application
from tests.unit.specification.small import application, store, task

PLAIN = TopicPartition("app-plain-changelog", 0)
GLOBAL = [TopicPartition("t", number) for number in range(2)]


def app(offset: int) -> Application:
    tasks = [task("0_0", store("plain"), store("never"), lines={PLAIN.kafka_name: offset})]
    return application(*tasks, task("global", store("g"), lines={"t-0": 4, "t-1": 6}))


def behind(
    facts: Mapping[TopicPartition, LogFacts],
    offset: int = 4,
    tail: Tail | None = None,
    exactly_once: bool | None = None,
) -> Lag | None:
    logs = FactLogs(facts, tails={} if tail is None else {PLAIN: tail})
    return lags(app(offset), (logs,), exactly_once=exactly_once).get(("0_0", "plain"))


def test_lag_is_the_distance_from_the_offset_to_the_end() -> None:
    assert behind({PLAIN: LogFacts(0, 10)}) == Lag(Records(5, exact=False), None)
    assert behind({PLAIN: LogFacts(0, 5)}) == Lag(Records(0, exact=True), 0.0)
    # Where nobody says that transactions are used, the last entry may well be a record.
    assert behind({PLAIN: LogFacts(0, 6)}) == Lag(Records(1, exact=False), None)
    assert behind({PLAIN: LogFacts(0, 6)}, exactly_once=True) == Lag(Records(0, exact=True), 0.0)


@pytest.mark.parametrize(
    ("facts", "offset"),
    [({}, 4), ({PLAIN: LogFacts(6, 10)}, 4), ({PLAIN: LogFacts(0, 3)}, 4), ({PLAIN: LogFacts(0, 9)}, -4)],
    ids=["no log", "below its start", "above its end", "no offset"],
)
def test_nobody_knows_it(facts: Mapping[TopicPartition, LogFacts], offset: int) -> None:
    assert behind(facts, offset) is None


def test_tail_makes_the_lag_exact_with_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: 9_000)
    facts = {PLAIN: LogFacts(0, 10)}
    assert behind(facts, tail=Tail((3, 5, 8), 3, (1, 2_500, 8_000))) == Lag(Records(2, exact=True), 6.5)
    assert behind(facts, tail=Tail((), 5, ())) == Lag(Records(0, exact=True), 0.0)
    # It was read from further on: the bounds are all that is known.
    assert behind(facts, tail=Tail((8,), 6, (8_000,))) == Lag(Records(5, exact=False), None)
    # The clock of a producer may be ahead.
    assert behind(facts, tail=Tail((5,), 5, (99_000,))) == Lag(Records(1, exact=True), 0.0)


def test_a_global_store_has_all_partitions_of_its_topic() -> None:
    facts = {key: LogFacts(0, 10) for key in GLOBAL}
    assert lags(app(4), (FactLogs(facts),))["global", "g"] == Lag(Records(10, exact=False), None)
    assert ("global", "g") not in lags(app(4), (FactLogs({GLOBAL[0]: LogFacts(0, 10)}),))


def test_reads_only_the_requested_logs() -> None:
    questions = []

    def read(
        target: Mapping[TopicPartition, tuple[set[int], int]], *, committed: bool
    ) -> Mapping[TopicPartition, Tail]:
        questions.append((dict(target), committed))
        return {}

    facts = {PLAIN: LogFacts(0, 10), **{key: LogFacts(0, 10) for key in GLOBAL}}
    lags(app(4), (FactLogs(facts, read=read),), places={("0_0", "plain")})
    assert questions == [({PLAIN: ({5}, 10)}, True)]


def prediction(
    outcome: Outcome, count: int | None, *, exact: bool = True, or_else: Outcome | None = None
) -> Prediction:
    return Prediction("0_0", "s", outcome, None if count is None else Records(count, exact=exact), or_else=or_else)


OPENS = prediction(Outcome.OPENS, 0)


@pytest.mark.parametrize(
    ("predictions", "records"),
    [
        ([], Records(0, exact=True)),
        ([OPENS, prediction(Outcome.RESTORES, 5), prediction(Outcome.WIPED, 7)], Records(12, exact=True)),
        ([OPENS, prediction(Outcome.RESTORES_ALL, 5, exact=False)], Records(5, exact=False)),
        ([prediction(Outcome.WIPED, 5, or_else=Outcome.OPENS)], Records(5, exact=False)),
        ([OPENS, prediction(Outcome.LOST, None), prediction(Outcome.IGNORED, None)], Records(0, exact=True)),
        ([OPENS, prediction(Outcome.RESTORES, None)], None),
        ([OPENS, prediction(Outcome.FAILS, None)], None),
        ([OPENS, prediction(Outcome.UNKNOWN, None)], None),
    ],
)
def test_records_restored_until_running(predictions: list[Prediction], records: Records | None) -> None:
    """Nothing is left out of the sum: where it is not known of one store it is not known."""
    assert until_running(predictions) == records
