"""The logs of topics as a broker has them, and the file in which somebody may have written them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstate_cli.errors import UsageError
from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.topic_partition import TopicPartition, legal_topic, parse_partition

_MAX_OFFSET = (1 << 63) - 1


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

    @property
    def compacted(self) -> bool | None:
        """None where nobody said it."""
        return None if self.policy is None else "compact" in self.policy


Facts = Mapping[TopicPartition, LogFacts]


def read_facts(path: Path) -> dict[TopicPartition, LogFacts]:
    """Reads ``{topic: {partition: {"start": n, "end": n}}}``, with ``id``, ``committed`` and ``policy`` where known.

    Raises UsageError, saying what is wrong.
    """
    found: dict[TopicPartition, LogFacts] = {}
    try:
        for topic, partitions in _object(parse_json(path.read_bytes()), "the file").items():
            if not legal_topic(topic):
                raise ValueError(f"{topic[:100]!r} is not the name of a topic")
            for partition, facts in _object(partitions, topic).items():
                key = TopicPartition(topic, parse_partition(partition))
                found[key] = _facts(key, _object(facts, str(key)))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read as log offsets: {error}",
            hint='{"TOPIC": {"0": {"start": 0, "end": 42}}}, with "id", "committed" and "policy" where they are known',
        ) from None
    return found


def _object(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{what} is not a JSON object")
    return content


def _facts(key: TopicPartition, facts: dict[str, Any]) -> LogFacts:
    start, end, committed = facts.get("start"), facts.get("end"), facts.get("committed")
    for value in (start, end, 0 if committed is None else committed):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_OFFSET:
            raise ValueError(f"{key}: {str(value)[:100]} is not an offset")
    assert start is not None
    assert end is not None
    if start > end:
        raise ValueError(f"{key}: start {start} lies above end {end}")
    texts = [None if facts.get(name) is None else str(facts[name]) for name in ("id", "policy")]
    return LogFacts(start, end, texts[0], committed, texts[1])
