"""Read short spans of several logs again with one consumer, to compare their records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kstate_cli.broker.client import GRANTS, denied, may_pass
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition

GROUP: Final = "kstate-dump"
_AT_ONCE: Final = 500
_POLL_SECONDS: Final = 0.25
_SILENT_SECONDS: Final = 45.0
_MOST_RECORDS: Final = 1_000
"""Limit for one span: a comparison needs only a few records."""


class SpanEnd(Enum):
    """Why the reading of a span ended."""

    COMPLETE = "complete"
    """All of its records were read."""
    TRUNCATED = "truncated"
    """The leader epoch ends below the span (OffsetsForLeaderEpoch, KIP-320)."""
    BELOW_START = "below-start"
    """The log now begins above the first offset of the span."""
    CUT_SHORT = "cut-short"
    """It has more records than a comparison reads."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Offsets ``first`` to below ``end`` of one log.

    With ``epoch``, librdkafka first asks the broker where that leader epoch ends (OffsetsForLeaderEpoch, which
    confluent-kafka does not offer by itself), and the span is TRUNCATED if that is below ``first``.
    """

    key: TopicPartition
    first: int
    end: int
    epoch: int | None = None


@dataclass(slots=True)
class SpanRecords:
    """The records of a span, as a ``read_committed`` consumer gets them, and why the reading ended."""

    records: list[Any] = field(default_factory=list)
    ended: SpanEnd = SpanEnd.COMPLETE


def read_spans(
    bootstrap: str, settings: Mapping[str, str], spans: Iterable[LogSpan]
) -> dict[TopicPartition, SpanRecords]:
    """Return the records of each span (a range of offsets); there is at most one span for each partition.

    Raises RunFailed if the broker does not answer or denies access; UsageError for settings that librdkafka rejects.
    """
    unread = {span.key: span for span in spans}
    read = {key: SpanRecords() for key in unread}
    if not unread:
        return read
    places = [ReadFrom(span.key, span.first, span.epoch) for span in unread.values()]
    with assigned_consumer(bootstrap, settings, GROUP, places, committed=True) as consumer:
        last_answer = time.monotonic()
        while unread:
            records = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            ended: list[TopicPartition] = []
            for record in records:
                if record.topic() is None or record.partition() is None:
                    _require_passing(record)
                    continue
                key = TopicPartition(record.topic(), record.partition())
                if key in unread and _add(record, unread[key], read[key]):
                    del unread[key]
                    ended.append(key)
                    last_answer = time.monotonic()
            # Otherwise librdkafka would fetch the rest of these logs into its queue.
            _stop(consumer, ended)
            if records:
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > _SILENT_SECONDS:
                key = min(unread)
                raise RunFailed(
                    f"kstate cannot read the last records of {key}, because the broker sent no data for "
                    f"{_SILENT_SECONDS:.0f} seconds",
                    hint="check that the partition leader is available, then run the command again",
                )
    return read


def _add(record: Any, span: LogSpan, read: SpanRecords) -> bool:
    """Add a record to its span, or handle an error; return whether the span is complete. Raises RunFailed."""
    from confluent_kafka import KafkaError

    error = record.error()
    if error is None:
        # Compaction leaves holes. If the last record of the span is missing, a later one ends it.
        if record.offset() < span.end:
            read.records.append(record)
        # A comparison of more records would take longer than reading the log again.
        if len(read.records) > _MOST_RECORDS:
            read.ended = SpanEnd.CUT_SHORT
            return True
        return bool(record.offset() >= span.end - 1)
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        return True
    # After an unclean leader election, the broker has truncated the log. Other records may have these offsets now.
    if code == KafkaError._LOG_TRUNCATION:
        read.ended = SpanEnd.TRUNCATED
        return True
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        read.ended = SpanEnd.BELOW_START
        return True
    _require_passing(record)
    return False


def _require_passing(record: Any) -> None:
    """Raise RunFailed unless the error of a record may pass by itself."""
    from confluent_kafka import KafkaError

    error = record.error()
    if error is None or may_pass(error):
        return
    if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
        return
    place = "the log"
    if record.topic():
        place = f"{record.topic()}:{record.partition()}"
    if denied(error):
        raise RunFailed(
            f"kstate cannot read {place}, because this user does not have permission to read it: {error.str()}",
            hint=GRANTS,
        )
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        raise RunFailed(
            f"{place} no longer exists, because the topic was deleted after the command started",
            hint="run the command again to read the topics that exist now",
        )
    raise RunFailed(
        f"kstate cannot read {place}: {error.str()}", hint="check that the broker is up, then run the command again"
    )


def _stop(consumer: Any, keys: list[TopicPartition]) -> None:
    from confluent_kafka import TopicPartition as Key

    if keys:
        consumer.incremental_unassign([Key(key.topic, key.partition) for key in keys])
