"""Topics whose logs have gaps, and a mirror of topics to another cluster with other offsets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.facts import LogFacts
from kstate_cli.formats.topic_partition import TopicPartition as Key

from .harness import Harness
from .seeding import Record, content

_names = itertools.count(1)
ABORTED = "aborted"
"""A transaction that was aborted: a record and a marker, which no application reads."""
MANY_ABORTED = "many aborted"
"""More than kstate reads before an offset at first."""
Entry = Record | str


def create(harness: Harness, topic: str, partitions: int = 1) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    (future,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    future.result()


def write(harness: Harness, topic: str, entries: Sequence[Entry], partition: int = 0) -> None:
    """Write records to a partition, without a transaction, and aborted transactions between them."""
    plain = Producer({"bootstrap.servers": harness.bootstrap, "linger.ms": 0})
    for entry in entries:
        if isinstance(entry, str):
            assert not plain.flush(300)
            _abort(harness, topic, partition, 1 if entry == ABORTED else 1_500)
            continue
        key, value, timestamp, headers = entry
        plain.produce(topic, value, key, partition, timestamp=timestamp, headers=headers or None)
    assert not plain.flush(300)


def _abort(harness: Harness, topic: str, partition: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": f"abort-{next(_names)}"})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"aborted", b"aborted", partition)
    producer.flush()
    producer.abort_transaction()
    _await_marker(harness, topic, partition)


def _await_marker(harness: Harness, topic: str, partition: int) -> None:
    # The coordinator writes the marker later than it answers: records of other producers could come before.
    deadline = time.monotonic() + 300
    while (log := _log(harness, topic, partition)).stable_end != log.end:
        assert time.monotonic() < deadline, f"{topic} keeps an open transaction"
        time.sleep(0.05)


def _log(harness: Harness, topic: str, partition: int) -> LogFacts:
    logs = ask_broker(harness.bootstrap, {}, group=None, topics=[topic], stable=True)
    return logs[Key(topic, partition)]


def _write_transaction(harness: Harness, topic: str, partition: int, entries: Sequence[Entry]) -> None:
    if not entries:
        return
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": f"mirror-{next(_names)}"})
    producer.init_transactions()
    producer.begin_transaction()
    for entry in entries:
        assert not isinstance(entry, str)
        key, value, timestamp, headers = entry
        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers or None)
    producer.commit_transaction()
    _await_marker(harness, topic, partition)


class Mirror:
    """Copies the input topics of an application to another cluster: to other offsets, and not every record."""

    def __init__(self, source: Harness, target: Harness, prefix: str, *, aborts: bool = True) -> None:
        """``aborts``: gaps by aborted transactions, whose records an application without transactions reads."""
        self._aborts = aborts
        self._source, self._target, self._prefix = source, target, prefix
        self._copied: dict[Key, int] = {}

    def run(self) -> None:
        """Copy what has come since the last time."""
        for topic in sorted(name for name in _topics(self._source) if name.startswith(self._prefix)):
            partitions = content(self._source, topic)
            if topic.endswith("-out"):
                # Each cluster has its own results.
                partitions = {partition: [] for partition in partitions}
            if topic not in _topics(self._target):
                create(self._target, topic, len(partitions))
                for partition, records in partitions.items():
                    if self._aborts and records:
                        write(self._target, topic, [ABORTED], partition)
            for partition, records in partitions.items():
                copied = self._copied.get(Key(topic, partition))
                entries: list[Entry] = [*records[copied or 0 :]]
                # Only the first time: the application has consumed these records. Of a partition that was empty then, it
                # has consumed nothing.
                if copied is None and topic.endswith(("-left", "-right")) and "-fk-" not in topic:
                    # Retention has deleted them here.
                    entries = entries[min(7, len(entries) // 2) :]
                if copied is None and topic.endswith(("-table", "-global")):
                    entries = _compacted(records)
                # No marker is at the end: an application commits no offset behind it.
                gap = min(3, max(0, len(entries) - 1))
                if self._aborts and entries:
                    write(self._target, topic, [*entries[:gap], ABORTED, *entries[gap:]], partition)
                else:
                    _write_transaction(self._target, topic, partition, entries[:gap])
                    write(self._target, topic, entries[gap:], partition)
                self._copied[Key(topic, partition)] = len(records)


def _compacted(records: Sequence[Record]) -> list[Entry]:
    """Return the newest record of each key, and the last ten whatever their keys: compaction spares the end of a log."""
    newest = {key: number for number, (key, *_) in enumerate(records)}
    return [entry for number, entry in enumerate(records) if number == newest[entry[0]] or number >= len(records) - 10]


def _topics(harness: Harness) -> frozenset[str]:
    return frozenset(AdminClient({"bootstrap.servers": harness.bootstrap}).list_topics(timeout=300).topics)
