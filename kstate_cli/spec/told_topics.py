"""What a broker, or a dump, says of the topics of an application: evidence for a specification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kstate_cli.broker.facts import Facts
from kstate_cli.dump.model import Dump
from kstate_cli.formats.topic_partition import legal_topic


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One topic: its partitions, and those settings that were set for the topic itself (None: not, or not known)."""

    partitions: int
    retention_ms: int | None = None
    min_compaction_lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToldTopics:
    """What one source says of topics with legal names."""

    by: str
    """``the broker`` or ``the dump``."""
    topics: Mapping[str, TopicSettings]
    live: bool = False
    """A topic that is not among them is not there, or this user may not see it."""


def told_by_broker(facts: Facts) -> ToldTopics:
    """By what a broker answered."""
    count = _partitions(key.topic for key in facts)
    topics = {
        key.topic: TopicSettings(count[key.topic], one.retention_ms, one.min_compaction_lag_ms)
        for key, one in facts.items()
        if legal_topic(key.topic)
    }
    return ToldTopics("the broker", topics, live=True)


def told_by_dump(dump: Dump) -> ToldTopics:
    """By a dump: of each topic what the reading of it that ended last saw; only what its manifest says."""
    count = _partitions(key.topic for key in dump.partitions)
    topics: dict[str, TopicSettings] = {}
    ended: dict[str, int] = {}
    for key, one in dump.partitions.items():
        reading = one.reading
        at = -1 if reading is None else reading.ended_ms
        if at > ended.get(key.topic, -2):
            kept, lag = (None, None) if reading is None else (reading.retention_ms, reading.min_compaction_lag_ms)
            topics[key.topic], ended[key.topic] = TopicSettings(count[key.topic], kept, lag), at
    return ToldTopics("the dump", topics)


def _partitions(topics: Iterable[str]) -> dict[str, int]:
    count: dict[str, int] = {}
    for topic in topics:
        count[topic] = count.get(topic, 0) + 1
    return count
