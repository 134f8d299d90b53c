"""What is read of each partition, and why: every reason by itself, and every offset once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.model import Full, Grown, Round
from kstate_cli.dump_writer.plan import (
    new_full,
    not_continued,
    of_spec,
    plan_round,
    ranges,
    select_topics,
    too_late,
    up_to,
)
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.specification.draft import Spec, StoreSpec

KEY = TopicPartition("t", 0)
HOUR = 3_600_000
NOW = 1000 * HOUR
BEFORE = Full(KEY, 1, 0, 50, NOW, (Round(0, 50, NOW - HOUR, NOW),), (), "id", "compact", 24 * HOUR, 3)
FACTS = LogFacts(0, 90, "id", None, "compact", 24 * HOUR, 3, 80)


def test_plan_of_new_offsets() -> None:
    grown = Grown(1, "read_committed", (BEFORE,))
    (plan,) = plan_round(grown, {KEY: FACTS}, NOW + HOUR, full=False)
    assert (plan.start, plan.end, plan.continues, plan.open_from, plan.must_read) == (50, 80, BEFORE, 80, True)
    (full,) = plan_round(grown, {KEY: FACTS}, NOW + HOUR, full=True)
    assert (full.start, full.end, full.continues) == (0, 80, None)
    (first,) = plan_round(None, {KEY: FACTS}, NOW + HOUR, full=False)
    assert (first.start, first.end, first.why) == (0, 80, None)
    nothing = replace(FACTS, end=50, stable_end=50)
    (same,) = plan_round(grown, {KEY: nothing}, NOW + HOUR, full=False)
    assert not same.must_read


@pytest.mark.parametrize(
    ("facts", "later", "why"),
    [
        ({}, 0, None),
        ({"start": 50}, 0, None),
        ({"start": 51}, 0, "records are missing"),
        ({"topic_id": "other"}, 0, "recreated"),
        ({"topic_id": None}, 0, None),
        ({"end": 50, "stable_end": 50}, 0, None),
        ({"end": 49, "stable_end": 49}, 0, "the log was truncated"),
        ({"leader_epoch": 2}, 0, "leader epoch"),
        ({"leader_epoch": 4}, 0, None),
        ({}, 23 * HOUR, None),
        ({}, 23 * HOUR + 1, "tombstones may be missing"),
        ({"delete_retention_ms": 2 * HOUR}, 2 * HOUR, "tombstones may be missing"),
        ({"policy": None}, 24 * HOUR, "tombstones may be missing"),
        ({"delete_retention_ms": HOUR}, 0, "so slowly"),
        ({}, -HOUR, None),
        ({}, -HOUR - 1, "According to this host's clock"),
        ({}, -999 * HOUR, "According to this host's clock"),
    ],
)
def test_reasons_for_a_new_full_dump(facts: dict[str, Any], later: int, why: str | None) -> None:
    reason = not_continued(BEFORE, replace(FACTS, **facts), NOW + later)
    assert reason is None if why is None else why in (reason or "")


def test_a_clock_that_was_set_back_says_nothing_of_how_long_it_was() -> None:
    """Neither between two readings, nor in one: who knew less than nothing had passed heard of every delete."""
    back = replace(BEFORE, ranges=(Round(0, 50, NOW, NOW - 2 * HOUR),))
    assert "set back while kstate read the log" in (not_continued(back, FACTS, NOW) or "")
    assert not_continued(replace(BEFORE, ranges=(Round(0, 50, NOW, NOW - HOUR),)), FACTS, NOW) is None
    assert too_late(BEFORE, FACTS, NOW - 2 * HOUR) is not None


def test_a_log_that_was_never_compacted_forgets_nothing() -> None:
    not_compacted = replace(BEFORE, cleanup_policy="delete")
    never = replace(FACTS, policy="delete")
    assert not_continued(not_compacted, never, NOW + 1000 * HOUR) is None
    assert too_late(not_compacted, never, NOW + 1000 * HOUR) is None
    # Compacted before, or since: either may have forgotten.
    assert too_late(BEFORE, never, NOW + 1000 * HOUR) and too_late(not_compacted, FACTS, NOW + 1000 * HOUR)


@given(st.lists(st.integers(0, 30_000_000), min_size=1, max_size=6), st.integers(1, 64))
def test_every_offset_is_read_once(sizes: list[int], slots: int) -> None:
    plans = [
        new_full(TopicPartition("t", number), LogFacts(7, 7 + size), None, NOW) for number, size in enumerate(sizes)
    ]
    cut = ranges(plans, slots)
    for plan in plans:
        own = sorted((start, end) for plan_, start, end in cut if plan_ is plan)
        assert [end for _, end in own[:-1]] == [start for start, _ in own[1:]]
        assert own == [] if not plan.records else (own[0][0], own[-1][1]) == (plan.start, plan.end)
        assert all(start < end for start, end in own)


def test_topics() -> None:
    broker = [
        "a-count-changelog",
        "a-2-count-changelog",
        "a-2-b-changelog",
        "ab-x-changelog",
        "a-count-repartition",
        "in",
    ]
    assert select_topics("a", {}, broker, []).names == ("a-2-b-changelog", "a-2-count-changelog", "a-count-changelog")
    topics = select_topics("a", {"in": "--topic"}, broker, ["a", "a-2", "other"])
    assert topics.names == ("a-count-changelog", "in")
    assert topics.foreign == (("a-2-b-changelog", "a-2"), ("a-2-count-changelog", "a-2"))
    assert select_topics("a", {"a-2-b-changelog": "--topic"}, broker, ["a-2"]).names == (
        "a-2-b-changelog",
        "a-count-changelog",
    )
    wrong: list[tuple[str | None, dict[str, str], str]] = [
        ("nobody", {}, "the broker has no changelog with this prefix"),
        (None, {"On": "--topic"}, "--topic 'On': the broker does not have this topic"),
        (None, {"not/legal": "s.toml names the topic"}, "s.toml names the topic 'not/legal': this is not a valid"),
    ]
    for app, options, message in wrong:
        with pytest.raises(UsageError, match=message):
            select_topics(app, options, broker, [])


def test_topics_of_a_specification() -> None:
    """Source topics and those of global tables, too; not what Streams itself restores at each start."""
    stores = (
        StoreSpec(name="count", kind="key-value", changelog="a-count-changelog"),
        StoreSpec(name="read", kind="key-value", changelog="in", source="topic"),
        StoreSpec(name="same", kind="key-value", changelog="in", source="topic"),
        StoreSpec(name="table", kind="key-value", changelog="global", is_global=True, source="table"),
        StoreSpec(name="made", kind="key-value", changelog="raw", is_global=True, source="processor"),
        StoreSpec(name="memory", kind="in-memory", changelog="a-memory-changelog"),
        StoreSpec(name="unlogged", kind="key-value"),
    )
    assert of_spec(Spec("a", stores)) == ("a-count-changelog", "global", "in")


def test_an_interrupted_reading_does_not_say_that_all_was_read() -> None:
    """A delete behind its end may be older than the last look at the broker: the time before that look still counts.

    A record of the first reading was there at T0 or later, so its delete stays until T0 + retention. With the time of
    the second look, which did not read up to the end either, the third would be allowed to come too late.
    """
    first = up_to(new_full(KEY, FACTS, None, NOW), 30)
    assert (first.start, first.end, first.request_ms) == (0, 30, NOW)
    part = replace(BEFORE, log_end=80, as_of_ms=NOW, ranges=(Round(0, 30, NOW, NOW),))
    (second,) = plan_round(Grown(1, "read_committed", (part,)), {KEY: FACTS}, NOW + HOUR, full=False)
    assert (second.start, second.end, second.request_ms) == (30, 80, NOW + HOUR)
    again = up_to(second, 60)
    assert (again.end, again.request_ms) == (60, NOW)
    third = replace(part, as_of_ms=again.request_ms, ranges=(*part.ranges, Round(30, 60, NOW, NOW + HOUR)))
    assert not_continued(third, FACTS, NOW + 23 * HOUR) is None
    assert "tombstones may be missing" in str(not_continued(third, FACTS, NOW + 23 * HOUR + 1))
