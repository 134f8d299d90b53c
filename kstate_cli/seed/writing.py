"""Write records to changelogs in transactions, and read a log again to compare it.

One transactional producer writes all partitions, one after the other. A transaction that a killed run has left open is
aborted by ``init_transactions`` (KIP-98). What is committed then is the beginning of the planned records of each
partition, so the run continues behind it. A digest proves that: it covers key, value, timestamp and headers of every
record in order.
"""

from __future__ import annotations

import hashlib
import marshal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.client import denied, may_pass
from kstate_cli.broker.settings import cause_of, refused_by_client
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.deadline import contact
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.records import RecordBatch
from kstate_cli.signals import start
from kstate_cli.texts import some

GROUP: Final = "kstate-seed"
"""``group.id`` of the consumers of a seed. The group is never joined."""
TRANSACTION_RECORDS: Final = 100_000
_TRANSACTION_SECONDS: Final = 10.0
"""A longer transaction is committed."""
_TIMEOUT_SETTING: Final = "transaction.timeout.ms"
_TIMEOUT_SECONDS: Final = 60.0
"""The default of ``transaction.timeout.ms``, after which the broker aborts the transaction."""
_TIMEOUT_PARTS: Final = 4
"""A transaction has ended after about this part of the timeout."""
_INIT_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 60.0
_AT_ONCE: Final = 5_000
_LOGS_AT_ONCE: Final = 32
_POLL_SECONDS: Final = 0.25
_FULL_QUEUE_SECONDS: Final = 0.05
_SENT_AT_ONCE: Final = 1_000
_AGAIN: Final = "run the same command again to continue after the committed records"

Progress = Callable[[int], None]
"""Is called with the number of records that were written or compared."""


_MARSHAL_VERSION: Final = 2
"""The newest without references to equal objects: it writes equal records as equal bytes."""
_LIST_PREFIX: Final = 5
"""Bytes that ``marshal`` writes before the members of a sequence: its type and ``count:i32``."""


class LogDigest:
    """Count and SHA-256 of records in order."""

    def __init__(self) -> None:
        self.records = 0
        # A hash for each member of a record: so a batch takes four calls, and an object for each record none at all.
        self._members = [hashlib.sha256() for _ in range(4)]

    def add(self, records: RecordBatch) -> None:
        """Add records. Their division into batches does not matter."""
        members: tuple[Any, ...] = (records.keys, records.values, records.timestamps, records.headers)
        for digest, column in zip(self._members, members, strict=True):
            # Type and size come before each value, so that two different logs have no common byte sequence. Without
            # the prefix of the whole column, which has the number of records of this batch.
            digest.update(memoryview(marshal.dumps(column, _MARSHAL_VERSION))[_LIST_PREFIX:])
        self.records += len(records)

    @property
    def value(self) -> str:
        """The digest so far, in hex."""
        return hashlib.sha256(b"".join(digest.digest() for digest in self._members)).hexdigest()


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """Count and digest of the records of a partition."""

    records: int
    sha256: str


EMPTY_LOG: Final = WrittenLog(0, LogDigest().value)


def read_logs(
    connection: Connection, keys: Iterable[TopicPartition], progress: Progress
) -> dict[TopicPartition, WrittenLog]:
    """Return count and digest of all committed records of each log. Raises RunFailed."""
    logs: dict[TopicPartition, WrittenLog] = {}
    remaining = sorted(keys)
    # The start of a consumer takes longer than most logs, and each log has a queue of its own in memory.
    while remaining:
        batch, remaining = remaining[:_LOGS_AT_ONCE], remaining[_LOGS_AT_ONCE:]
        digests = {(key.topic, key.partition): LogDigest() for key in batch}
        with closing(message_batches(connection, [ReadFrom(key, 0) for key in batch])) as batches:
            for messages in batches:
                by_log: dict[tuple[str, int], list[Any]] = {}
                for entry in messages:
                    by_log.setdefault((entry.topic(), entry.partition()), []).append(entry)
                for log, of_log in by_log.items():
                    digests[log].add(_records_of(of_log))
                progress(len(messages))
        for key in batch:
            digest = digests[key.topic, key.partition]
            logs[key] = WrittenLog(digest.records, digest.value)
    return logs


def message_batches(
    connection: Connection, places: list[ReadFrom], *, committed: bool = True
) -> Generator[list[Any], None, None]:
    """Yield the messages of logs, from an offset of each to its end, in batches. Raises RunFailed.

    ``committed``: without those of open and aborted transactions. Messages of one log are in order. A log that ends
    before its offset has none. Close the generator if you do not read to the end.
    """
    from confluent_kafka import KafkaError

    unread = {(place.key.topic, place.key.partition) for place in places}
    with assigned_consumer(connection.bootstrap, connection.settings, GROUP, places, committed=committed) as consumer:
        last_answer = time.monotonic()
        while unread:
            messages = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            records = [message for message in messages if message.error() is None]
            if records:
                yield records
            for entry in messages:
                error = entry.error()
                if error is None:
                    continue
                # librdkafka reports the end of a log once, and after all records before it.
                if error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((entry.topic(), entry.partition()))
                elif error.code() != KafkaError._TRANSPORT and not may_pass(error):
                    hint = _AGAIN
                    if denied(error):
                        hint = f"grant Read on the topics, then {_AGAIN}"
                    raise RunFailed(f"kstate cannot read {_names(unread)}: {error.str()}", hint=hint)
            if records:
                # After the caller has worked on the batch, so that only the silence of the broker counts.
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > _SILENT_SECONDS:
                raise RunFailed(
                    f"kstate cannot read {_names(unread)}: the broker sent no data for {_SILENT_SECONDS:.0f} seconds",
                    hint=_AGAIN,
                )


def _names(logs: Iterable[tuple[str, int]]) -> str:
    return some([str(TopicPartition(topic, partition)) for topic, partition in sorted(logs)], 3)


def _records_of(messages: Sequence[Any]) -> RecordBatch:
    return RecordBatch(
        [message.key() or b"" for message in messages],
        [message.value() for message in messages],
        [message.timestamp()[1] for message in messages],
        [message.headers() or [] for message in messages],
    )


class SeedProducer:
    """The one transactional producer of a seed."""

    def __init__(self, producer: Any, transaction_seconds: float) -> None:
        self._producer = producer
        self._transaction_seconds = transaction_seconds
        self._records = 0
        self._began = 0.0
        # A reentrant lock: sending commits too.
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._failure: Exception | None = None

    @contextmanager
    def committing(self) -> Iterator[SeedProducer]:
        """Commit open transactions in time even if no more records come, for example while kstate sorts a store.

        Otherwise the broker would abort the transaction, and each further run would end in the same way.
        """
        # A daemon, because a commit may wait for a broker that has stopped.
        start(threading.Thread(target=self._commit_in_time, name="kstate-seed-commit", daemon=True))
        try:
            yield self
        finally:
            self._closed.set()

    def _commit_in_time(self) -> None:
        from confluent_kafka import KafkaException

        while not self._closed.wait(self._transaction_seconds / _TIMEOUT_PARTS):
            with self._lock:
                try:
                    self._commit_if_due()
                except KafkaException as error:
                    # Only the other thread can end the run.
                    self._failure = error
                    return

    def send(self, key: TopicPartition, records: RecordBatch) -> None:
        """Send records, and begin or commit a transaction where it is due. Raises KafkaException."""
        # Few at a time, so that a transaction ends long before the broker aborts it, however large the records are.
        for first in range(0, len(records), _SENT_AT_ONCE):
            part = records.part(first, first + _SENT_AT_ONCE)
            with self._lock:
                self._raise_failure()
                if not self._records:
                    self._producer.begin_transaction()
                    self._began = time.monotonic()
                # Counted first: a transaction without records is open too.
                self._records += len(part)
                self._send(key, part)
                self._commit_if_due()

    def _commit_if_due(self) -> None:
        is_old = time.monotonic() - self._began > self._transaction_seconds
        if self._records >= TRANSACTION_RECORDS or (self._records and is_old):
            self.commit()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send(self, key: TopicPartition, records: RecordBatch) -> None:
        produce, topic, partition = self._producer.produce, key.topic, key.partition
        members = zip(records.keys, records.values, records.timestamps, records.headers, strict=True)
        for record_key, value, timestamp, headers in members:
            while True:
                try:
                    if headers:
                        produce(topic, value, record_key, partition, timestamp=timestamp, headers=headers)
                    else:
                        produce(topic, value, record_key, partition, timestamp=timestamp)
                    break
                except BufferError:
                    # The queue of librdkafka is full: its thread needs a moment to send.
                    self._producer.poll(_FULL_QUEUE_SECONDS)

    def commit(self) -> None:
        """Commit the open transaction, if there is one. Raises KafkaException."""
        with self._lock:
            self._raise_failure()
            if self._records:
                # It flushes first, and fails if a single record could not be written.
                self._producer.commit_transaction()
                self._records = 0


def _transactional_id(app: str) -> str:
    return f"kstate-seed-{app}"


def producer_settings(connection: Connection, app: str) -> dict[str, Any]:
    """Return the settings of the transactional producer."""
    return {
        "log_level": 0,
        **connection.settings,
        "bootstrap.servers": connection.bootstrap,
        # The same for every run of this seed: a second kstate fences the first (KIP-98).
        "transactional.id": _transactional_id(app),
        "queue.buffering.max.kbytes": 128 << 10,
        "linger.ms": 20,
        "batch.size": 1 << 20,
    }


@contextmanager
def seed_producer(connection: Connection, app: str) -> Iterator[SeedProducer]:
    """Yield the producer, after it has aborted what a killed run has left open. Raises UsageError and RunFailed."""
    from confluent_kafka import KafkaException, Producer

    contact(connection.bootstrap)
    broker_errors: list[Any] = []
    try:
        producer = Producer({**producer_settings(connection, app), "error_cb": broker_errors.append})
    except (KafkaException, ValueError, TypeError) as error:
        raise refused_by_client(error) from None
    try:
        producer.init_transactions(_INIT_SECONDS)
        with SeedProducer(producer, _transaction_seconds(connection.settings)).committing() as seeding:
            yield seeding
        # After an error, the client would wait for a broker that may have stopped.
        producer.close()
    except KafkaException as error:
        raise _failed(_reason(producer, error, broker_errors), app) from None


def _transaction_seconds(settings: Mapping[str, str]) -> float:
    """Return after how many seconds a transaction is committed. The client has accepted the settings."""
    timeout = float(settings.get(_TIMEOUT_SETTING, _TIMEOUT_SECONDS * 1000)) / 1000
    return min(_TRANSACTION_SECONDS, timeout / _TIMEOUT_PARTS)


def _reason(producer: Any, error: Any, broker_errors: Sequence[Any]) -> Any:
    """Return the cause of an error as KafkaError; ``broker_errors``: what the client reported about the brokers."""
    from confluent_kafka import KafkaError, KafkaException

    cause = cause_of(error)
    if cause.code() in (KafkaError._STATE, KafkaError._FATAL):
        # The broker has rejected an earlier record. Each later one only gets the state of the transaction or of the
        # client, whose cause librdkafka reports with the attempt to commit.
        try:
            producer.commit_transaction(_INIT_SECONDS)
        except KafkaException as reported:
            cause = cause_of(reported)
    if cause.code() == KafkaError._INCONSISTENT:
        # Records were not delivered in time, for example to a broker that stopped because its disk is full. The
        # client's own text refers to a report of each record, while the state of the broker has the cause.
        specific = [entry for entry in broker_errors if entry.code() != KafkaError._ALL_BROKERS_DOWN]
        return next(reversed(specific), cause)
    return cause


def _failed(cause: Any, app: str) -> RunFailed:
    if cause.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
        return RunFailed(
            f"another run with the same {option.APP} has started to write to the changelogs",
            hint="wait until that run ends. Or stop it and run the command again",
        )
    hint = f"check that the broker is up and has free disk space, then {_AGAIN}"
    if denied(cause):
        hint = f"grant Write on the changelogs and on the transactional id {_transactional_id(app)}, then {_AGAIN}"
    return RunFailed(f"kstate cannot write to the changelogs: {cause.str()}", hint=hint)


class PartitionWriter:
    """Writes what the log of a partition lacks."""

    def __init__(self, producer: SeedProducer, target: TopicPartition, committed: WrittenLog) -> None:
        """``committed``: the records of the log. Raises RunFailed if they are not the beginning of the planned ones."""
        self._producer = producer
        self._target = target
        self._committed = committed
        self._digest = LogDigest()
        self._compare()

    def add(self, batch: RecordBatch) -> None:
        """Compare the planned records that the log has, and send the others. Raises KafkaException and RunFailed."""
        present, missing = _split(batch, self._committed.records - self._digest.records)
        if present:
            self._digest.add(present)
            self._compare()
        if missing:
            self._digest.add(missing)
            self._producer.send(self._target, missing)

    def finish(self) -> WrittenLog:
        """Return count and digest that the log must have then. Raise RunFailed if it has more than the plan."""
        if self._digest.records < self._committed.records:
            raise _foreign(self._target)
        return WrittenLog(self._digest.records, self._digest.value)

    def _compare(self) -> None:
        """Raise RunFailed if the planned records up to the committed count differ from those of the log."""
        if self._digest.records == self._committed.records and self._digest.value != self._committed.sha256:
            raise _foreign(self._target)


def _split(batch: RecordBatch, count: int) -> tuple[RecordBatch, RecordBatch]:
    """Return the first ``count`` records, and the others."""
    first = max(0, count)
    return batch.part(0, first), batch.part(first, len(batch))


def _foreign(target: TopicPartition) -> RunFailed:
    return RunFailed(
        f"{target} contains records that this run has not written",
        hint="stop the program that writes to this partition, delete the topics of the new application, then run the "
        "command again with a new journal",
    )
