"""Each condition of a seed is met by the facts of a stopped application, and a single other fact is enough to miss it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.dump_reader.manifest import Reading
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed import rules
from kstate_cli.seed.cluster import EMPTY, UNKNOWN, Connection, SeedCluster, TopicFacts
from kstate_cli.seed.conditions import offsets_committed
from kstate_cli.seed.findings import CONDITIONS
from kstate_cli.seed.model import SeedFacts, SeedRequest
from kstate_cli.specification.draft import Spec, StoreSpec

CHANGELOG, INPUT, QUEUE = "old-count-changelog", "orders", "old-x-repartition"
PARTITION = TopicPartition(CHANGELOG, 0)
TOPIC = TopicFacts("id", 1, 1, {})
LOG = LogFacts(0, 5, "id", stable_end=5)
DUMPED = PartitionDump(
    CHANGELOG,
    0,
    (),
    0,
    4,
    5,
    log_start=0,
    log_end=5,
    start=0,
    topic_id="id",
    reading=Reading(started_ms=1, ended_ms=2),
)
CLUSTER = SeedCluster(frozenset({CHANGELOG, INPUT}), {"old": EMPTY}, 1)
BROKER = Connection("broker:9092", {})
REQUEST = SeedRequest("dump", "new", None, BROKER, BROKER, Path("seed.jsonl"))
FACTS = SeedFacts(
    Dump("dump", {PARTITION: DUMPED}, None, isolation="read_committed"),
    CLUSTER,
    CLUSTER,
    "old",
    {CHANGELOG: TOPIC},
    {},
    {PARTITION: LOG},
    {TopicPartition(INPUT, 0): CommittedOffset(7)},
    {},
    {},
)
CUSTOMERS = StoreSpec(
    name="customers", kind="timestamped-key-value", changelog="customers", is_global=True, source="table"
)
COUNT = StoreSpec(name="count", kind="timestamped-key-value", changelog=CHANGELOG, partitions=1)


def specified(store: StoreSpec, application: str | None = "old") -> SeedRequest:
    """Return a request with a specification of one store."""
    return replace(REQUEST, spec=Spec(application, (store,)))


WITH_TABLE = replace(REQUEST, spec=Spec("old", (CUSTOMERS,)))


def dumped(**fields: Any) -> SeedFacts:
    """Return facts whose only partition of the dump has other fields."""
    assert FACTS.dump is not None
    return replace(FACTS, dump=replace(FACTS.dump, partitions={PARTITION: replace(DUMPED, **fields)}))


def with_groups(**states: str) -> SeedFacts:
    """Return facts with these groups on the source."""
    return replace(FACTS, source=replace(CLUSTER, groups=states))


def with_target(**fields: Any) -> SeedFacts:
    """Return facts with another target."""
    return replace(FACTS, **fields)


# A condition -> the requests and facts that miss it, each by one difference.
MISSED: Mapping[str, tuple[tuple[SeedRequest, SeedFacts], ...]] = {
    "names-valid": (
        (replace(REQUEST, app="new/app"), FACTS),
        (replace(REQUEST, app=""), FACTS),
        (replace(REQUEST, app="old"), FACTS),
        (replace(REQUEST, renamed={"sum": "total"}), FACTS),
        (replace(REQUEST, renamed={"count": "a/b"}), FACTS),
        (replace(REQUEST, renamed={"count": "total", "customers": "total"}), FACTS),
    ),
    "source-stopped": (
        (REQUEST, with_groups(old="STABLE")),
        (REQUEST, with_groups(old="PREPARING_REBALANCING")),
        (REQUEST, with_groups(old=UNKNOWN)),
    ),
    "source-offsets": ((REQUEST, replace(FACTS, committed={})),),
    "no-open-transaction": ((REQUEST, replace(FACTS, logs={PARTITION: replace(LOG, stable_end=4)})),),
    "source-drained": ((REQUEST, replace(FACTS, undrained={TopicPartition(QUEUE, 0): 1})),),
    "source-complete": (
        (REQUEST, dumped(topic_id="another")),
        (REQUEST, dumped(topic_id=None)),
        (REQUEST, dumped(start=1)),
        (REQUEST, dumped(start=None)),
        (REQUEST, dumped(log_end=4)),
        (REQUEST, dumped(held_back=True)),
        (REQUEST, dumped(reading=None)),
        (REQUEST, replace(FACTS, dump=replace(FACTS.dump or Dump("", {}, None), isolation="read_uncommitted"))),
        (REQUEST, replace(FACTS, dump=replace(FACTS.dump or Dump("", {}, None), isolation=None))),
        (REQUEST, replace(FACTS, dump=replace(FACTS.dump or Dump("", {}, None), partitions={}))),
        (REQUEST, replace(FACTS, source_topics={CHANGELOG: replace(TOPIC, partitions=2)})),
        (REQUEST, replace(FACTS, unlisted={"old-sum-changelog": "sum"})),
        (replace(REQUEST, accepted=frozenset({"count"})), FACTS),
    ),
    "source-as-specified": (
        (specified(COUNT, "another"), FACTS),
        (specified(replace(COUNT, partitions=2)), FACTS),
        (specified(replace(COUNT, name="sum", changelog="old-sum-changelog")), FACTS),
        (
            specified(replace(CUSTOMERS, is_global=False, source="topic", partitions=2)),
            replace(FACTS, source_tables={"customers": TOPIC}, target_tables={"customers": TOPIC}),
        ),
    ),
    "tables-on-target": (
        (WITH_TABLE, FACTS),
        (
            WITH_TABLE,
            replace(
                FACTS, source_tables={"customers": TOPIC}, target_tables={"customers": replace(TOPIC, partitions=2)}
            ),
        ),
    ),
}
OTHER = TopicFacts("another", 1, 1, {})
NEW = "new-count-changelog"
CREATED = ({"event": "announced", "topic": NEW}, {"event": "created", "topic": NEW, "id": "id"})
OCCUPIED: tuple[tuple[SeedFacts, rules.Events], ...] = (
    (with_target(target=replace(CLUSTER, groups={"new": "STABLE"})), ()),
    (with_target(target=replace(CLUSTER, groups={"new": UNKNOWN})), CREATED),
    (with_target(target_queues={TopicPartition("new-x-repartition", 0): 3}), ()),
    (with_target(target_topics={NEW: TOPIC}), ()),
    (with_target(target_topics={NEW: OTHER}), CREATED),
    (with_target(target_committed={TopicPartition(INPUT, 0): CommittedOffset(7)}), ()),
)
"""A target that something else than this run uses, and the journal of the run."""


def missed(request: SeedRequest, facts: SeedFacts) -> list[str]:
    """Return the conditions that are not met."""
    return [code.name for code, rule in rules.RULES if list(rule(request, facts))]


def test_a_stopped_application_meets_every_condition() -> None:
    assert missed(REQUEST, FACTS) == []
    assert list(rules.refusals(REQUEST, FACTS, ())) == []
    # No instance has ever joined the group, or the user confirms that none is running.
    assert missed(REQUEST, with_groups()) == []
    assert missed(replace(REQUEST, source_stopped=True), with_groups(old=UNKNOWN)) == []


@pytest.mark.parametrize(
    ("name", "request_", "facts"),
    [(name, *case) for name, cases in MISSED.items() for case in cases],
    ids=[f"{name}-{number}" for name, cases in MISSED.items() for number in range(len(cases))],
)
def test_a_single_fact_is_enough(name: str, request_: SeedRequest, facts: SeedFacts) -> None:
    assert missed(request_, facts) == [name]
    refusals = list(rules.refusals(request_, facts, ()))
    assert refusals and all(refusal.hint for refusal in refusals)


def test_every_condition_has_a_case() -> None:
    assert MISSED.keys() == {code.name for code, _ in rules.RULES}


@pytest.mark.parametrize(("facts", "events"), OCCUPIED)
def test_a_target_in_use(facts: SeedFacts, events: rules.Events) -> None:
    assert missed(REQUEST, facts) == []
    assert list(rules.refuse_target(REQUEST, facts, events))


def test_a_run_continues_on_its_own_topics() -> None:
    assert not list(rules.refuse_target(REQUEST, with_target(target_topics={NEW: TOPIC}), CREATED))


@pytest.mark.parametrize(
    ("present", "state"),
    [
        ({}, "not-met"),
        ({0: 7}, "not-met"),
        ({0: 6, 1: 2}, "not-met"),
        ({0: 7, 1: 2}, "met"),
        ({0: 9, 1: 2, 2: 1}, "met"),
    ],
)
def test_offsets_after_the_run(present: Mapping[int, int], state: str) -> None:
    """Higher ones are those of the new application."""
    announced = {TopicPartition(INPUT, 0): CommittedOffset(7), TopicPartition(INPUT, 1): CommittedOffset(2)}
    committed = {TopicPartition(INPUT, partition): CommittedOffset(offset) for partition, offset in present.items()}
    assert offsets_committed(announced, committed).state == state


def test_the_specification_of_the_source_is_met() -> None:
    """The topic of a global store may get more partitions, and a changelog without a store is written whole."""
    assert missed(specified(COUNT), FACTS) == missed(specified(COUNT, None), FACTS) == []
    assert missed(specified(replace(COUNT, partitions=None)), FACTS) == []
    with_topics = replace(FACTS, source_tables={"customers": TOPIC}, target_tables={"customers": TOPIC})
    assert missed(specified(replace(CUSTOMERS, partitions=2)), with_topics) == []
    assert rules.unspecified_changelogs(specified(COUNT), FACTS) is None
    assert CHANGELOG in str(rules.unspecified_changelogs(WITH_TABLE, with_topics))
    assert "--spec" in str(rules.unspecified_changelogs(REQUEST, FACTS))


def test_a_store_whose_changelog_the_broker_does_not_list_can_be_accepted() -> None:
    """With a specification too: no rule mistakes its changelog for the topic of a table."""
    unlisted = replace(COUNT, name="sum", changelog="old-sum-changelog")
    request = replace(REQUEST, spec=Spec("old", (COUNT, unlisted)), accepted=frozenset({"sum"}))
    assert missed(request, replace(FACTS, unlisted={"old-sum-changelog": "sum"})) == []


PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/new-application-id.md"


def test_the_page_has_every_condition() -> None:
    """Both tables of the page have the texts of the catalogue."""
    rows = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    texts = {code.name: (code.brief, code.unknown_if) for code in CONDITIONS.values()}
    briefs = [f"| `{name}` | {brief} |" for name, (brief, _) in texts.items()]
    doubts = [f"| `{name}` | {unknown_if} |" for name, (_, unknown_if) in texts.items() if unknown_if]
    assert [row for row in rows if row in (*briefs, *doubts)] == [*briefs, *doubts]
