"""What a broker that was asked does not have at all: a finding for each store that was made from it."""

from __future__ import annotations

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.check.codes.logs import LOG_MISSING
from kstate_cli.check.findings import Level, Outcome
from kstate_cli.check.logs import FactLogs
from kstate_cli.check.predict import Report, check, topics_of
from kstate_cli.check.snapshot import CheckRequest
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.resolve import resolve
from kstate_cli.releases import release
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command
from tests.golden import unpack

pytestmark = pytest.mark.rotating(4)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Application:
    return read_application(unpack("4.3.1-kinds-eos", tmp_path_factory.mktemp("missing-logs")), workers=1)


def keys(app: Application) -> dict[TopicPartition, set[tuple[str, str]]]:
    """Every partition that offsets name, and the stores that they are of."""
    rows: dict[TopicPartition, set[tuple[str, str]]] = {}
    for task in resolve(app):
        for store in task.stores:
            for key in store.offsets:
                rows.setdefault(key, set()).add((task.task.name, store.store.name))
    return rows


def facts_of(app: Application, missing: set[TopicPartition], *, live: bool = True) -> Report:
    facts = {key: LogFacts(0, 1 << 40) for key in keys(app) if key not in missing}
    logs = FactLogs(facts, frozenset(topics_of(app)) if live else frozenset())
    return check(app, CheckRequest(release("4.3"), logs=(logs,)))


def named_stores(report: Report) -> set[tuple[str, str]]:
    return {(str(finding.task), str(finding.store)) for finding in report.findings if finding.code == LOG_MISSING}


def test_a_topic_or_a_partition_that_the_broker_does_not_have(app: Application) -> None:
    every = keys(app)
    assert named_stores(facts_of(app, set())) == set()
    for key in sorted(every)[::3]:
        stores = every[key]
        topic = {other for other in every if other.topic == key.topic}
        for missing in ({key}, topic):
            report = facts_of(app, missing)
            assert named_stores(report) == set.union(*(every[entry] for entry in missing)), key
            for finding in report.findings:
                if finding.code == LOG_MISSING:
                    assert finding.level is Level.ERROR
                    assert command("export", app.path, str(finding.store)) in finding.hint
            outcomes = {
                prediction.outcome for prediction in report.predictions if (prediction.task, prediction.store) in stores
            }
            assert outcomes <= {Outcome.UNKNOWN}, key
    assert named_stores(facts_of(app, set(every))) == {store for stores in every.values() for store in stores}


def test_file_may_omit_topics(app: Application) -> None:
    assert named_stores(facts_of(app, set(keys(app)), live=False)) == set()
