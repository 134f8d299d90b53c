"""The facts of a broker about the logs of topics, and the file that may record them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I32, JsonObject, parse_json
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id, legal_topic, parse_partition
from kstate_cli.regular_files import read_given


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One partition on the broker."""

    start: int
    """Log start offset."""
    end: int
    """Log end offset: that of the next record."""
    topic_id: str | None = None
    """KIP-516: another id is another topic, whatever its name."""
    committed: int | None = None
    """The next offset that the application's group reads of a source topic."""
    policy: str | None = None
    """``cleanup.policy`` of the topic."""
    delete_retention_ms: int | None = None
    """``delete.retention.ms`` of the topic."""
    leader_epoch: int | None = None
    """Of the end of the log (KIP-320)."""
    stable_end: int | None = None
    """Last stable offset: records from here on belong to an open transaction, or follow one."""
    retention_ms: int | None = None
    """``retention.ms`` that was set for the topic itself; None for the broker's default, and for no limit."""
    min_compaction_lag_ms: int | None = None
    """``min.compaction.lag.ms`` that was set for the topic itself."""

    @property
    def compacted(self) -> bool | None:
        """Whether ``cleanup.policy`` has ``compact``; None if it is unknown."""
        return None if self.policy is None else "compact" in self.policy


Facts = Mapping[TopicPartition, LogFacts]


def read_facts(path: Path) -> dict[TopicPartition, LogFacts]:
    """Read log facts from a file ``{topic: {partition: {"start": n, "end": n}}}``.

    Optional members: ``id``, ``committed``, ``policy``, ``delete_retention_ms``, ``leader_epoch``, ``retention_ms`` and
    ``min_compaction_lag_ms``. Raises UsageError with the error and its place.
    """
    by_partition: dict[TopicPartition, LogFacts] = {}
    try:
        for topic, partitions in JsonObject.of(parse_json(read_given(path)), "the file").members.items():
            if not legal_topic(topic):
                raise ValueError(f"{topic[:100]!r} is not the name of a topic")
            for partition, facts in JsonObject.of(partitions, topic).members.items():
                key = TopicPartition(topic, parse_partition(partition))
                # The file replaces a broker, so every value is checked strictly.
                by_partition[key] = _facts(JsonObject.of(facts, str(key)))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"kstate cannot read {path} as log offsets: {error}",
            hint='write {"TOPIC": {"0": {"start": 0, "end": 42}}}, and optionally "id", "committed", "policy", '
            '"delete_retention_ms", "leader_epoch", "retention_ms" and "min_compaction_lag_ms"',
        ) from None
    return by_partition


def _facts(facts: JsonObject) -> LogFacts:
    """Return the facts about one partition. Raise ValueError if they are invalid."""
    start, end = facts.number("start"), facts.number("end")
    if start > end:
        raise ValueError(f"{facts.noun}: start {start} is above end {end}")
    topic_id = facts.text_or_none("id")
    # Kafka prints ids in base64, other tools as UUIDs. In the canonical form they can be compared.
    if topic_id is not None:
        topic_id = canonical_topic_id(topic_id)
    return LogFacts(
        start,
        end,
        topic_id,
        facts.number_or_none("committed"),
        facts.text_or_none("policy"),
        facts.number_or_none("delete_retention_ms"),
        facts.number_or_none("leader_epoch", MAX_I32),
        retention_ms=facts.number_or_none("retention_ms"),
        min_compaction_lag_ms=facts.number_or_none("min_compaction_lag_ms"),
    )
