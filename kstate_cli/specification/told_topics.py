"""What a broker, or a dump, says of the topics of an application: evidence for a specification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kstate_cli.broker.facts import Facts
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.formats.topic_partition import TopicPartition, legal_topic


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One topic: its partitions, and those settings that were set for the topic itself (None: not, or not known)."""

    partitions: int | None
    """None where some are not told of: a dump need not have all."""
    written: frozenset[int] = frozenset()
    """Partitions that ever had a record."""
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
    written = _by_topic((key, one.end > 0) for key, one in facts.items())
    return ToldTopics(
        "the broker",
        {
            key.topic: TopicSettings(*written[key.topic], one.retention_ms, one.min_compaction_lag_ms)
            for key, one in facts.items()
            if key.topic in written
        },
        live=True,
    )


def told_by_dump(dump: Dump) -> ToldTopics:
    """By a dump: of each topic what the reading of it that ended last saw; only what its manifest says."""
    written = _by_topic((key, bool(one.log_end)) for key, one in dump.partitions.items())
    newest: dict[str, PartitionDump] = {}
    for key, one in dump.partitions.items():
        if key.topic in written and (key.topic not in newest or _ended(newest[key.topic]) < _ended(one)):
            newest[key.topic] = one
    topics = {}
    for topic, one in newest.items():
        reading = one.reading
        kept, lag = (None, None) if reading is None else (reading.retention_ms, reading.min_compaction_lag_ms)
        topics[topic] = TopicSettings(*written[topic], kept, lag)
    return ToldTopics("the dump", topics)


def _ended(one: PartitionDump) -> int:
    return -1 if one.reading is None else one.reading.ended_ms


def _by_topic(partitions: Iterable[tuple[TopicPartition, bool]]) -> dict[str, tuple[int | None, frozenset[int]]]:
    """How many partitions each topic has, and which of them ever had a record."""
    numbers: dict[str, set[int]] = {}
    written: dict[str, set[int]] = {}
    for key, has_records in partitions:
        if legal_topic(key.topic):
            numbers.setdefault(key.topic, set()).add(key.partition)
            written.setdefault(key.topic, set()).update([key.partition] if has_records else [])
    return {
        topic: (len(known) if max(known) == len(known) - 1 else None, frozenset(written[topic]))
        for topic, known in numbers.items()
    }
