"""Topics between sub-topologies by the broker's names, and how many tasks a sub-topology has."""

from __future__ import annotations

import pytest

from kstate_cli.rehome.live import between, other_counts, source_counts
from kstate_cli.specification.homes import Described, Home
from kstate_cli.specification.topology import parse_topology

APP = "shop"
GROUPS = [APP, f"{APP}-2", "other"]


def chain(*names: str, sources: str = "orders", text: str | None = None, extra_source: str = "") -> Described:
    """A sub-topology that reads sources and writes topics, and one that reads those, and another topic maybe."""
    lines = [
        f"Topology: {text}:" if text else "Topologies:",
        "  Sub-topology: 0",
        f"    Source: a (topics: [{sources}])",
    ]
    lines += ["      --> b"]
    for at, name in enumerate(names):
        lines += [f"    Sink: sink-{at} (topic: {name})", "      <-- a"]
    lines += [
        "  Sub-topology: 1",
        f"    Source: c (topics: [{', '.join((*names, *filter(None, [extra_source])))}])",
        "      --> d",
    ]
    lines += ["    Processor: d (stores: [count])", "      --> none", "      <-- c"]
    return Described.by(parse_topology("\n".join(lines) + "\n"))


def test_topics_of_the_old_text_by_the_names_that_the_broker_has() -> None:
    texts = ["orders", f"{APP}-by-day-repartition", "between", f"{APP}-left-repartition", f"{APP}-2-by-day-repartition"]
    new = chain("by-week-repartition")
    assert between(APP, new, chain("by-day-repartition", "between"), texts, GROUPS) == ["between", texts[1]]
    assert between(APP, chain("by-day-repartition"), chain("by-day-repartition"), texts, GROUPS) == []
    # One that is not there has nothing in it.
    assert between(APP, new, chain("gone-repartition"), texts, GROUPS) == []
    # What is read from outside alone is nobody's between.
    assert between(APP, new, chain("x-repartition", sources="between"), texts, GROUPS) == []


def test_named_topologies_have_topics_of_their_own() -> None:
    texts = [f"{APP}-t-by-day-repartition", f"{APP}-by-day-repartition"]
    old = chain("by-day-repartition", text="t")
    assert between(APP, chain("by-day-repartition"), old, texts, GROUPS) == [texts[0]]
    assert between(APP, old, old, texts, GROUPS) == []


def test_without_the_old_text_the_names_tell() -> None:
    texts = [
        f"{APP}-by-day-repartition",
        f"{APP}-fk-subscription-registration-topic",
        f"{APP}-fk-subscription-response-topic",
        f"{APP}-count-changelog",
        f"{APP}-2-by-day-repartition",
        f"{APP}s-by-day-repartition",
        "by-day-repartition",
    ]
    assert between(APP, None, None, texts, GROUPS) == texts[:3]
    assert between(APP, chain("by-day-repartition"), None, texts, GROUPS) == texts[1:3]
    assert between(APP, None, None, texts, [APP]) == sorted([*texts[:3], texts[4]])


def partition_counts(new: Described, number: int, counts: dict[str, int]) -> dict[str, int | None]:
    part = new.part(Home("", number))
    assert part is not None
    return source_counts(APP, new, part, counts)


def test_missing_repartition_topic_has_the_partitions_of_its_writers() -> None:
    new = chain("x-repartition", sources="orders, visits")
    counts = {"orders": 2, "visits": 4}
    assert partition_counts(new, 0, counts) == counts
    assert partition_counts(new, 1, counts) == {"x-repartition": 4}
    assert partition_counts(new, 1, {**counts, f"{APP}-x-repartition": 7}) == {f"{APP}-x-repartition": 7}
    assert partition_counts(new, 1, {}) == {"x-repartition": None}
    # A topic that comes back to itself has no number of its own.
    assert partition_counts(chain("x-repartition", sources="x-repartition"), 1, {}) == {"x-repartition": None}


@pytest.mark.parametrize(
    ("sources", "changelogs", "wrong"),
    [
        ({"a": 2, "b": 4}, {"c-changelog": 4}, []),
        ({"a": 2, "b": 4}, {"c-changelog": 2}, ["c-changelog has 2 partitions, but sub-topology 0 has 4 tasks"]),
        ({"a": 2}, {"c-changelog": 4}, ["c-changelog has 4 partitions, but sub-topology 0 has 2 tasks"]),
        # A table that is restored from its source topic.
        ({"a": 2, "b": 4}, {"b": 4}, []),
        ({"a": 2, "b": 4}, {"a": 2}, ["a has 2 partitions, but sub-topology 0 has 4 tasks"]),
        # One that is not there is made as it is needed.
        ({"a": 2}, {"new-changelog": None}, []),
    ],
)
def test_changelogs_that_do_not_go_with_the_tasks(
    sources: dict[str, int | None], changelogs: dict[str, int | None], wrong: list[str]
) -> None:
    counts = {name: count for name, count in {**sources, **changelogs}.items() if count is not None}
    names = list(other_counts(Home("", 0), sources, changelogs.keys(), counts))
    assert [line.partition(",")[0] + "," + line.split(",")[1] for line in names] == wrong
