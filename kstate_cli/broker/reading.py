"""A consumer that reads given partitions from given offsets: it never joins a group and never commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.broker.settings import refused_by_client
from kstate_cli.deadline import contact
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition

_QUEUE_KBYTES: Final = 8 << 10
"""What is fetched beyond the end of a range is thrown away."""
_FULL_QUEUE_MS: Final = 10
"""librdkafka looks a second later whether a queue that was full has room again (``fetch.queue.backoff.ms``): a reader
that empties it in a tenth of a second then waits for most of its time."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where a partition is read from."""

    key: TopicPartition
    offset: int
    epoch: int | None = None
    """The leader epoch of the record before: the broker says then whether the log was cut below it (KIP-320)."""


@contextmanager
def assigned_consumer(
    bootstrap: str, settings: Mapping[str, str], group: str, places: list[ReadFrom], *, committed: bool
) -> Iterator[Any]:
    """Gives the consumer, which is closed at the end.

    ``group``: librdkafka makes no consumer without a ``group.id``; the group itself is never used. ``committed``:
    records of transactions only once they are committed. Raises UsageError without the Kafka client, and for settings
    that it does not take.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka import TopicPartition as Key
    except ImportError as error:
        raise UsageError(
            f"the Kafka client is missing where the records are read: {error}", hint="pip install 'kstate[kafka]'"
        ) from None
    conf: dict[str, Any] = {
        "log_level": 0,
        **settings,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "queued.max.messages.kbytes": _QUEUE_KBYTES,
        "fetch.queue.backoff.ms": _FULL_QUEUE_MS,
    }
    contact(bootstrap)
    try:
        consumer = Consumer(conf)
    except (KafkaException, ValueError, TypeError) as error:
        raise refused_by_client(error) from None
    try:
        consumer.incremental_assign(
            [
                Key(
                    one.key.topic,
                    one.key.partition,
                    one.offset,
                    **({} if one.epoch is None else {"leader_epoch": one.epoch}),
                )
                for one in places
            ]
        )
        yield consumer
    finally:
        consumer.close()
