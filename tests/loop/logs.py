"""A broker whose cleaner runs all the time, and what is done to its topics; the model of its logs follows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicCollection
from confluent_kafka import TopicPartition as Key
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.interop.broker import Broker

from .histories import Histories, Partition, Record, Rows

SECONDS = 300
CLEANER = """
log.cleaner.enable=true
log.cleaner.backoff.ms=20
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=65536
log.segment.delete.delay.ms=200
"""
_POLICY = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "file.delete.delay.ms": "200",
}
Write = tuple[Partition, bytes, bytes | None]
"""Partition, key and value; None deletes."""
_STEP_MS = 1_000
_BEGIN_MS = 1_750_000_000_000


def cleaning_broker(folder: Path) -> Broker:
    """Return a broker whose cleaner passes all the time."""
    return Broker(folder, heap="384m", properties=CLEANER)


class Logs:
    """The logs of one world: their model, and producers of its own. The broker may have those of others too."""

    def __init__(self, folder: Path, broker: Broker, name: str) -> None:
        """``folder``: for a copy of the broker's disk. ``name``: of the transactional producer."""
        self._folder, self._broker, self._name = folder, broker, name
        self._copy: Path | None = None
        self._copied = Histories()
        self.histories = Histories()
        self._now_ms = _BEGIN_MS
        self._plain: Producer | None = None
        self._transactional: Producer | None = None
        self._open = False
        self._connect()

    @property
    def bootstrap(self) -> str:
        """The address of the broker, which changes when it starts again."""
        return self._broker.bootstrap

    def _settings(self, **more: object) -> dict[str, Any]:
        values = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **values}

    def _connect(self) -> None:
        self.admin = AdminClient(self._settings())

    def _disconnect(self) -> None:
        self._plain = self._transactional = None

    # --- topics ---

    def create(self, topic: str, partitions: int, retention_ms: int) -> None:
        """Create a topic that is compacted; its tombstones live so long."""
        config = {**_POLICY, "delete.retention.ms": str(retention_ms)}
        _until(lambda: self._created(topic, partitions, config))
        self.histories.created(topic, self._topic_id(topic), partitions)

    def _created(self, topic: str, partitions: int, config: dict[str, str]) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        (future,) = self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _topic_id(self, topic: str) -> str:
        def described() -> str | None:
            from confluent_kafka import KafkaException

            (future,) = self.admin.describe_topics(TopicCollection([topic])).values()
            try:
                return str(future.result().topic_id)
            except KafkaException:
                return None

        return str(_until(described))

    def recreate(self, topic: str, partitions: int, retention_ms: int) -> None:
        """Delete a topic and create another one with its name; a transaction that is open is aborted."""
        self.end_transaction(committed=False)
        self.delete([topic])
        self._disconnect()
        self.create(topic, partitions, retention_ms)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics, and wait until the broker no longer has them."""
        for future in self.admin.delete_topics(list(topics)).values():
            future.result()
        _until(lambda: not {*topics} & self.admin.list_topics(timeout=SECONDS).topics.keys())

    def alter(self, topic: str, name: str, value: object) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (future,) = self.admin.incremental_alter_configs([resource]).values()
        future.result()

    # --- records ---

    def write(self, writes: Sequence[Write]) -> None:
        """Write records in batches of their own, in segments of their own: all but the last batch can be cleaned."""
        if self._plain is None:
            self._plain = Producer(self._settings(linger_ms=2, acks="all", enable_idempotence=True))
        for record, partition in self._produce(self._plain, writes):
            self.histories.of(partition).records.append(record)

    def begin_transaction(self) -> None:
        """Begin a transaction, unless one is open."""
        if self._open:
            return
        if self._transactional is None:
            self._transactional = Producer(
                self._settings(linger_ms=2, transactional_id=self._name, transaction_timeout_ms=600_000)
            )
            self._transactional.init_transactions(SECONDS)
        self._transactional.begin_transaction()
        self._open = True

    def write_in_transaction(self, writes: Sequence[Write]) -> None:
        """Write records of the transaction that is open."""
        assert self._transactional is not None
        for record, partition in self._produce(self._transactional, writes):
            self.histories.of(partition).pending.append(record)

    def end_transaction(self, *, committed: bool) -> None:
        """Commit or abort the transaction; nothing happens if none is open."""
        if not self._open:
            return
        assert self._transactional is not None
        if committed:
            self._transactional.commit_transaction(SECONDS)
        else:
            self._transactional.abort_transaction(SECONDS)
        self._open = False
        self.histories.decide(committed=committed)

    def _produce(self, producer: Producer, writes: Sequence[Write]) -> list[tuple[Record, Partition]]:
        records: list[tuple[Record, Partition]] = []
        errors: list[object] = []
        self._now_ms += _STEP_MS

        def produce(partition: Partition, key: bytes, value: bytes | None, timestamp: int) -> None:
            def delivered(error: object, message: Any) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    records.append((Record(message.offset(), key, value, timestamp), partition))

            topic, number = partition
            producer.produce(topic, value, key, number, timestamp=timestamp, on_delivery=delivered)

        for partition, key, value in writes:
            produce(partition, key, value, self._now_ms)
        assert producer.flush(SECONDS) == 0 and not errors, errors
        return records

    # --- the broker ---

    def restart(self, *, from_copy: bool) -> None:
        """Kill the broker and start it again: with its disk, of which a copy is kept, or with that older copy.

        No other world may use it meanwhile, nor until the copy is no longer needed.

        A transaction that was open is aborted by the producer that comes next.
        """
        self._disconnect()
        self._broker.stop()
        data, copy = self._broker.folder / "data", self._folder / "copy"
        if from_copy and self._copy is not None:
            shutil.rmtree(data)
            shutil.copytree(copy, data)
            self.histories = self._copied.copy_over(self.histories)
        else:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(data, copy)
            self._copy, self._copied = copy, self.histories.copy()
        self._broker.start()
        self._connect()
        topics = self.histories.ids.keys()
        _until(lambda: topics <= self.admin.list_topics(timeout=SECONDS).topics.keys())
        self._open = False
        self.histories.decide(committed=False)
        self.begin_transaction()  # fences the producer of before, whose transaction is aborted
        self.end_transaction(committed=False)

    def forget_topics(self, topics: Sequence[str]) -> None:
        """Delete topics that are no longer needed, and the copy of the disk."""
        self.end_transaction(committed=False)
        self.delete(topics)
        self._disconnect()
        if self._copy is not None:
            shutil.rmtree(self._copy)

    def rows(self, partition: Partition) -> tuple[Rows, int]:
        """Return what a plain consumer makes of a log now, and how many records it read."""
        consumer = Consumer(
            self._settings(
                group_id="model",
                fetch_wait_max_ms=20,
                enable_partition_eof=True,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        )
        topic, number = partition
        consumer.assign([Key(topic, number, 0)])
        rows: Rows = {}
        count = 0
        try:
            while True:
                for message in consumer.consume(500, 0.05):
                    if message.error() is not None:
                        from confluent_kafka import KafkaError

                        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                        return rows, count
                    count += 1
                    key, value = message.key(), message.value()
                    if value is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = (value, message.timestamp()[1])
        finally:
            consumer.close()


def _until(answer: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (value := answer()):
        assert time.monotonic() < deadline, "the broker does not get there"
        time.sleep(0.03)
    return value
