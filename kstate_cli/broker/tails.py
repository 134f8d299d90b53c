"""Read records of given partitions from given offsets, and count those at the ends of logs.

The consumer never joins a group and never commits. Bounds alone do not count records: transaction markers and compacted
records have offsets, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kstate_cli.broker.settings import refused_by_client
from kstate_cli.deadline import contact
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition

GROUP: Final = "kstate-check"
_AT_ONCE: Final = 5_000
_POLL_SECONDS: Final = 0.25
_SILENT_SECONDS: Final = 10.0
_MOST_OFFSETS: Final = 50_000
"""Of one partition: what is further behind is not counted."""
_MOST_ALTOGETHER: Final = 500_000
_MOST_BYTES: Final = 256 << 20
"""Of keys and values: a look must not become a load. What is not read by then is not counted."""
_MOST_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Tail:
    """What was read of the end of one log."""

    offsets: tuple[int, ...]
    """Of the records from where reading began, in order."""
    began: int
    times_ms: tuple[int | None, ...] = ()
    """Of each of them, ms since 1970; None where it has none."""

    def records(self, first: int, end: int) -> int | None:
        """How many from ``first`` to below ``end``; None where it was not read from there."""
        return None if first < self.began else sum(1 for one in self.offsets if first <= one < end)

    def time_of_first(self, first: int) -> int | None:
        """The time of the first record from ``first`` on; None without one, and where it was not read from there."""
        if first < self.began:
            return None
        return next((at for one, at in zip(self.offsets, self.times_ms, strict=True) if one >= first), None)


@dataclass(slots=True)
class _TailReading:
    begin: int
    end: int
    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)


def chosen(wanted: Mapping[TopicPartition, tuple[set[int], int]]) -> dict[TopicPartition, tuple[int, int]]:
    """From where to where each log is read, so that it is little: the first offset that is not too far from the end.

    ``wanted``: the offsets that are asked about, and the end. The smallest come first until it is enough altogether.
    """
    spans: list[tuple[int, TopicPartition, int, int]] = []
    for key, (firsts, end) in wanted.items():
        near = [first for first in firsts if first >= 0 and 0 < end - first <= _MOST_OFFSETS]
        spans += [(end - min(near), key, min(near), end)] if near else []
    left, taken = _MOST_ALTOGETHER, {}
    for span, key, first, end in sorted(spans):
        if span > left:
            break
        left -= span
        taken[key] = (first, end)
    return taken


def read_tails(
    bootstrap: str,
    settings: Mapping[str, str],
    wanted: Mapping[TopicPartition, tuple[set[int], int]],
    *,
    committed: bool,
) -> dict[TopicPartition, Tail]:
    """The ends of these logs, as far as they are short and this user may read them: no more is known of the others.

    ``committed``: as a consumer with ``read_committed``. Raises UsageError for settings that librdkafka does not take.
    """
    readings = {key: _TailReading(*bounds) for key, bounds in chosen(wanted).items()}
    if not readings:
        return {}
    places = [ReadFrom(key, one.begin) for key, one in readings.items()]
    with assigned_consumer(bootstrap, settings, GROUP, places, committed=committed) as consumer:
        done = _read(consumer, dict(readings))
    return {key: Tail(tuple(readings[key].offsets), readings[key].begin, tuple(readings[key].times)) for key in done}


def _read(consumer: Any, left: dict[TopicPartition, _TailReading]) -> set[TopicPartition]:
    """Reads until all of them are at their ends, nothing comes any more, or it is enough; returns those that are."""
    from confluent_kafka import KafkaError

    at_end = KafkaError._PARTITION_EOF
    done: set[TopicPartition] = set()
    began = heard = time.monotonic()
    size = 0
    while left and size < _MOST_BYTES and time.monotonic() < min(heard + _SILENT_SECONDS, began + _MOST_SECONDS):
        for record in consumer.consume(_AT_ONCE, _POLL_SECONDS):
            if record.topic() is None or record.partition() is None:
                continue
            key = TopicPartition(record.topic(), record.partition())
            if key not in left:
                continue
            heard = time.monotonic()
            one = left[key]
            error = record.error()
            if error is None and record.offset() < one.end:
                kind, at = record.timestamp()
                one.offsets.append(record.offset())
                one.times.append(at if kind else None)
                size += len(record.key() or b"") + len(record.value() or b"")
            ended = error is not None and error.code() == at_end
            if ended or (error is None and record.offset() >= one.end - 1):
                done.add(key)
            if key in done or (error is not None and not ended):
                del left[key]
                _stop(consumer, key)
    return done


def _stop(consumer: Any, key: TopicPartition) -> None:
    from confluent_kafka import TopicPartition as Key

    consumer.incremental_unassign([Key(key.topic, key.partition)])


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
