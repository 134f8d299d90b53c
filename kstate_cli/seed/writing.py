"""Write records to changelogs in transactions, and read a log again to compare it.

One transactional producer writes all partitions, one after the other. A transaction that a killed run has left open is
aborted by ``init_transactions`` (KIP-98). What is committed then is the beginning of the planned records of each
partition, so the run continues behind it. A digest proves that: it covers key, value, timestamp and headers of every
record in order.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.broker.settings import refused_by_client
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.deadline import contact
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.records import Record, TargetRecords

_GROUP: Final = "kstate-seed"
"""``group.id`` of the consumer that reads the log again. The group is never joined."""
_TRANSACTION_RECORDS: Final = 100_000
_TRANSACTION_SECONDS: Final = 10.0
"""Far below ``transaction.timeout.ms`` (60 s), after which the broker aborts the transaction."""
_INIT_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 60.0
_AT_ONCE: Final = 5_000
_POLL_SECONDS: Final = 0.25
_FULL_QUEUE_SECONDS: Final = 0.05
_AGAIN: Final = "run the same command again. It continues after the committed records"

Progress = Callable[[int], None]
"""Is called with the number of records that were written or compared."""


class LogDigest:
    """Count and SHA-256 of records in order."""

    def __init__(self) -> None:
        self.records = 0
        self._sha256 = hashlib.sha256()

    def add(self, record: Record) -> None:
        """Add a record. Lengths come before contents, so that two different logs have no common byte sequence."""
        key, value, timestamp, headers = record
        size = -1
        if value is not None:
            size = len(value)
        parts = [struct.pack(">iiqi", len(key), size, timestamp, len(headers)), key, value or b""]
        for name, content in headers:
            raw = name.encode()
            parts += [struct.pack(">ii", len(raw), -1 if content is None else len(content)), raw, content or b""]
        self._sha256.update(b"".join(parts))
        self.records += 1

    @property
    def value(self) -> str:
        """The digest so far, in hex."""
        return self._sha256.hexdigest()


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """Count and digest of the records of a partition."""

    records: int
    sha256: str


EMPTY_LOG: Final = WrittenLog(0, LogDigest().value)


def read_log(connection: Connection, key: TopicPartition, progress: Progress) -> WrittenLog:
    """Return count and digest of all committed records of a log. Raises RunFailed."""
    digest = LogDigest()
    for messages in log_messages(connection, ReadFrom(key, 0), committed=True):
        for message in messages:
            digest.add(_record_of(message))
        progress(len(messages))
    return WrittenLog(digest.records, digest.value)


def log_messages(connection: Connection, place: ReadFrom, *, committed: bool) -> Iterator[list[Any]]:
    """Yield the messages of a log from a place to its end, in batches. Raises RunFailed.

    ``committed``: without those of open and aborted transactions.
    """
    from confluent_kafka import KafkaError

    with assigned_consumer(connection.bootstrap, connection.settings, _GROUP, [place], committed=committed) as consumer:
        last_answer = time.monotonic()
        while True:
            answers = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            messages = [message for message in answers if message.error() is None]
            if messages:
                yield messages
            for error in (message.error() for message in answers if message.error() is not None):
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                if not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise RunFailed(f"kstate cannot read {place.key}: {error.str()}", hint=_AGAIN)
            if answers:
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > _SILENT_SECONDS:
                raise RunFailed(
                    f"kstate cannot read {place.key}: the broker sent no data for {_SILENT_SECONDS:.0f} seconds",
                    hint=_AGAIN,
                )


def _record_of(message: Any) -> Record:
    _, timestamp = message.timestamp()
    return Record(message.key() or b"", message.value(), timestamp, message.headers() or [])


class SeedProducer:
    """The one transactional producer of a seed."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._records = 0
        self._began = 0.0

    def send(self, key: TopicPartition, record: Record) -> None:
        """Send a record, and begin or commit a transaction where it is due. Raises KafkaException."""
        if not self._records:
            self._producer.begin_transaction()
            self._began = time.monotonic()
        while True:
            try:
                self._producer.produce(
                    key.topic,
                    value=record.value,
                    key=record.key,
                    partition=key.partition,
                    timestamp=record.timestamp,
                    headers=record.headers or None,
                )
                break
            except BufferError:
                # The queue of librdkafka is full: its thread needs a moment to send.
                self._producer.poll(_FULL_QUEUE_SECONDS)
        self._records += 1
        if self._records >= _TRANSACTION_RECORDS or time.monotonic() - self._began > _TRANSACTION_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Commit the open transaction, if there is one. Raises KafkaException."""
        if self._records:
            # It flushes first, and fails if a single record could not be written.
            self._producer.commit_transaction()
            self._records = 0


@contextmanager
def seed_producer(connection: Connection, app: str) -> Iterator[SeedProducer]:
    """Yield the producer, after it has aborted what a killed run has left open. Raises UsageError and RunFailed."""
    from confluent_kafka import KafkaException, Producer

    contact(connection.bootstrap)
    conf: dict[str, Any] = {
        "log_level": 0,
        **connection.settings,
        "bootstrap.servers": connection.bootstrap,
        # The same for every run of this seed: a second kstate fences the first (KIP-98).
        "transactional.id": f"kstate-seed-{app}",
        "queue.buffering.max.kbytes": 128 << 10,
        "linger.ms": 20,
        "batch.size": 1 << 20,
    }
    try:
        producer = Producer(conf)
    except (KafkaException, ValueError, TypeError) as error:
        raise refused_by_client(error) from None
    try:
        producer.init_transactions(_INIT_SECONDS)
        yield SeedProducer(producer)
    except KafkaException as error:
        raise _failed(error) from None


def _failed(error: Any) -> RunFailed:
    cause = error.args[0]
    if cause.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
        return RunFailed(
            "another run with the same --app has taken over",
            hint="wait until it ends, or stop it and run the command again",
        )
    return RunFailed(f"kstate cannot write to the changelogs: {cause.str()}", hint=_AGAIN)


def write_partition(
    producer: SeedProducer,
    records: TargetRecords,
    target: TopicPartition,
    committed: WrittenLog,
    progress: Progress,
) -> WrittenLog:
    """Write what the log of ``target`` lacks, and return count and digest that it must have then.

    ``committed``: the records of the log. Raises RunFailed if they are not the beginning of the planned ones.
    """
    digest = LogDigest()
    _compare(digest, committed, target)
    for batch in records.batches():
        for record in batch:
            digest.add(record)
            if digest.records > committed.records:
                producer.send(target, record)
            else:
                _compare(digest, committed, target)
        progress(len(batch))
    if digest.records < committed.records:
        raise _foreign(target)
    return WrittenLog(digest.records, digest.value)


def _compare(digest: LogDigest, committed: WrittenLog, target: TopicPartition) -> None:
    """Raise RunFailed if the planned records up to the committed count differ from those of the log."""
    if digest.records == committed.records and digest.value != committed.sha256:
        raise _foreign(target)


def _foreign(target: TopicPartition) -> RunFailed:
    return RunFailed(
        f"{target} has records that this run has not written",
        hint="stop the program that writes to it, delete the topics of the new application, then run the command "
        "again with a new journal",
    )
