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

from kstate_cli.broker.client import may_pass
from kstate_cli.broker.settings import refused_by_client
from kstate_cli.deadline import contact
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition

GROUP: Final = "kstate-check"
_AT_ONCE: Final = 5_000
_POLL_SECONDS: Final = 0.25
_SILENT_SECONDS: Final = 10.0
_MOST_OFFSETS: Final = 50_000
"""Limit for one partition: a store that is further behind gets no count."""
_MOST_ALTOGETHER: Final = 500_000
_MOST_BYTES: Final = 256 << 20
"""Limit for keys and values, so that a check puts little load on the broker. Later records are not counted."""
_MOST_SECONDS: Final = 60.0
_MOST_SEARCH_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Tail:
    """The records at the end of one log."""

    offsets: tuple[int, ...]
    """Offsets of the records from the first offset read, in order."""
    began: int
    times_ms: tuple[int | None, ...] = ()
    """The timestamp of each, ms since 1970; None for a record without one."""

    def records(self, first: int, end: int) -> int | None:
        """Return the number of records from ``first`` to below ``end``; None if reading began above ``first``."""
        if first < self.began:
            return None
        return sum(1 for offset in self.offsets if first <= offset < end)

    def time_of_first(self, first: int) -> int | None:
        """Return the timestamp of the first record from ``first`` on; None without one, or if reading began above."""
        if first < self.began:
            return None
        return next(
            (time_ms for offset, time_ms in zip(self.offsets, self.times_ms, strict=True) if offset >= first), None
        )


@dataclass(slots=True)
class _TailReading:
    """The records of one log that were read so far; ``end`` is exclusive."""

    begin: int
    end: int
    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)

    def add(self, record: Any) -> int:
        """Add a record below the end; return the bytes of its key and value."""
        # The log grows while it is read: later records are not part of the question.
        if record.offset() >= self.end:
            return 0
        kind, time_ms = record.timestamp()
        self.offsets.append(record.offset())
        # TIMESTAMP_NOT_AVAILABLE is 0.
        self.times.append(time_ms if kind else None)
        return len(record.key() or b"") + len(record.value() or b"")


def short_tails(requests: Mapping[TopicPartition, tuple[set[int], int]]) -> dict[TopicPartition, tuple[int, int]]:
    """Return, for each log, the first offset to read and its end, so that few records are read in total.

    ``requests`` has the next offsets of stores, and the end of each log. An offset too far from the end is skipped. The
    shortest ends come first, until the limit for all logs is reached.
    """
    spans: list[tuple[int, TopicPartition, int, int]] = []
    for key, (firsts, end) in requests.items():
        near = [first for first in firsts if first >= 0 and 0 < end - first <= _MOST_OFFSETS]
        if near:
            spans.append((end - min(near), key, min(near), end))
    budget, spans_to_read = _MOST_ALTOGETHER, {}
    # The shortest ones come first, so that one store that is far behind does not prevent counting for all others.
    for span, key, first, end in sorted(spans):
        if span > budget:
            break
        budget -= span
        spans_to_read[key] = (first, end)
    return spans_to_read


def read_tails(
    bootstrap: str,
    settings: Mapping[str, str],
    requests: Mapping[TopicPartition, tuple[set[int], int]],
    *,
    committed: bool,
) -> dict[TopicPartition, Tail]:
    """Return the records at the ends of these logs, except for ends that are too long or that this user may not read.

    ``committed``: read as a consumer with ``read_committed``. Raises UsageError for settings that librdkafka rejects.
    """
    readings = {key: _TailReading(*bounds) for key, bounds in short_tails(requests).items()}
    if not readings:
        return {}
    places = [ReadFrom(key, reading.begin) for key, reading in readings.items()]
    with assigned_consumer(bootstrap, settings, GROUP, places, committed=committed) as consumer:
        complete = _read(consumer, dict(readings))
    return {
        key: Tail(tuple(readings[key].offsets), readings[key].begin, tuple(readings[key].times)) for key in complete
    }


def _read(consumer: Any, unread: dict[TopicPartition, _TailReading]) -> set[TopicPartition]:
    """Read until all logs are at their ends, the broker is silent, or a limit is reached; return the complete logs."""
    from confluent_kafka import KafkaError

    at_end = KafkaError._PARTITION_EOF
    complete: set[TopicPartition] = set()
    last = time.monotonic() + _MOST_SECONDS
    deadline = time.monotonic() + _SILENT_SECONDS
    size = 0
    while unread and size < _MOST_BYTES and time.monotonic() < min(deadline, last):
        for record in consumer.consume(_AT_ONCE, _POLL_SECONDS):
            key = _key_of(record)
            if key is None or key not in unread:
                continue
            deadline = time.monotonic() + _SILENT_SECONDS
            reading, error = unread[key], record.error()
            if error is None:
                size += reading.add(record)
                ended = record.offset() >= reading.end - 1
            else:
                # librdkafka reports the end of a log as an event (enable.partition.eof) and not as a record.
                ended = error.code() == at_end
            if ended:
                complete.add(key)
            if ended or error is not None:
                # For any other error (missing rights, a change of the leader) the log is given up, so its records are
                # not counted.
                del unread[key]
                _stop(consumer, key)
    return complete


def _key_of(record: Any) -> TopicPartition | None:
    """Return the partition of a record; None for an error of the client as a whole."""
    if record.topic() is None or record.partition() is None:
        return None
    return TopicPartition(record.topic(), record.partition())


def _stop(consumer: Any, key: TopicPartition) -> None:
    from confluent_kafka import TopicPartition as Key

    # The partition is unassigned at once, since librdkafka would continue to fetch it.
    consumer.incremental_unassign([Key(key.topic, key.partition)])


def read_keys(
    bootstrap: str, settings: Mapping[str, str], key: TopicPartition, first: int, last: int
) -> Iterator[tuple[int, bytes | None]]:
    """Yield offset and key of every record of a log from ``first`` to ``last``, in order, with aborted ones.

    A later record may end the iteration. Raise RunFailed if the log does not have all of these offsets, if the broker
    does not answer, or if this takes longer than two minutes.
    """
    from confluent_kafka import KafkaError

    began = answer = time.monotonic()
    # Uncommitted records are read too: a caller that looks for the first record of some kind must not miss one.
    with assigned_consumer(bootstrap, settings, GROUP, [ReadFrom(key, first)], committed=False) as consumer:
        while True:
            records = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            now = time.monotonic()
            if records:
                answer = now
            if now - answer > _SILENT_SECONDS:
                raise RunFailed(
                    f"kstate cannot read {key}, because the broker sent no data for {_SILENT_SECONDS:.0f} seconds",
                    hint="check that the partition leader is available, then run the command again",
                )
            if now - began > _MOST_SEARCH_SECONDS:
                raise RunFailed(
                    f"kstate could not read all records of {key} within {_MOST_SEARCH_SECONDS:.0f} seconds",
                    hint="check whether the broker is overloaded, then run the command again",
                )
            for record in records:
                error = record.error()
                if error is None:
                    yield record.offset(), record.key()
                    if record.offset() >= last:
                        return
                elif error.code() == KafkaError._PARTITION_EOF and record.offset() > last:
                    # The record at ``last`` was removed by compaction, or is a transaction marker.
                    return
                elif not may_pass(error):
                    # Also the end of the log before ``last``: the log was truncated, or it is another log.
                    raise RunFailed(
                        f"kstate cannot read {key} up to offset {last}: {error.str()}",
                        hint="check that the broker is up, then run the command again",
                    )


_QUEUE_KBYTES: Final = 8 << 10
"""Small, because records that librdkafka fetches beyond the end of a range are discarded."""
_FULL_QUEUE_MS: Final = 10
"""``fetch.queue.backoff.ms``: by default librdkafka checks a full queue only a second later. A reader that empties it
in a tenth of a second would wait for most of its time."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """The first offset to read of a partition."""

    key: TopicPartition
    offset: int
    epoch: int | None = None
    """The leader epoch of the record before. With it the broker reports whether the log was cut below it (KIP-320)."""


def _position(place: ReadFrom) -> Any:
    """Return where the consumer begins, as the client takes it."""
    from confluent_kafka import TopicPartition as Key

    if place.epoch is None:
        return Key(place.key.topic, place.key.partition, place.offset)
    # With an epoch librdkafka sends OffsetsForLeaderEpoch before the first fetch.
    return Key(place.key.topic, place.key.partition, place.offset, leader_epoch=place.epoch)


@contextmanager
def assigned_consumer(
    bootstrap: str, settings: Mapping[str, str], group: str, places: list[ReadFrom], *, committed: bool
) -> Iterator[Any]:
    """Yield a consumer that reads the given partitions from the given offsets, and close it afterwards.

    ``group`` is only needed because librdkafka requires a ``group.id``; the group is never used. ``committed``: only
    records of committed transactions. Raises UsageError if the Kafka client is missing, and for settings that it
    rejects.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise UsageError(
            f"the Kafka client is missing on the host that reads the records: {error}",
            hint="pip install 'kstate[kafka]'",
        ) from None
    isolation = "read_uncommitted"
    # The log has records of aborted transactions too, which no application has processed.
    if committed:
        isolation = "read_committed"
    conf: dict[str, Any] = {
        "log_level": 0,
        **settings,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        # An offset outside of the log must be an error. A reset would silently read other records.
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
        consumer.incremental_assign([_position(place) for place in places])
        yield consumer
    finally:
        # Otherwise threads of librdkafka would call Python after the block, while it ends.
        consumer.close()
