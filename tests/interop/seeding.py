"""Sources for ``kstate seed`` that need no application: changelogs, input offsets and a dump of them."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kstate_cli.broker.group_offsets import CommittedOffset, commit_offsets
from kstate_cli.formats.topic_partition import TopicPartition as Key
from kstate_cli.seed.cluster import EMPTY, Connection, read_cluster
from tests.command_result import CommandResult

from .dumping import dump
from .harness import App, Harness
from .support import ROOT, kstate

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
INPUTS = ("events", "table", "versioned", "left", "right", "fk-left", "fk-right")
"""The topics of "kinds" that its tasks read."""
GARBLED = "grace-join-Buffer"
"""Kafka Streams itself garbles the rows of such a buffer when it restores it."""
UNLOGGED = ("kv-nolog",)
NOT_COMPARED = (*UNLOGGED, GARBLED)
BASE_MS = 1_704_067_200_000
"""``Naming.BASE_TS``: where the event times of the harness begin."""
UNEXPIRED_MS = BASE_MS + 2 * 26 * 60_000 - 10 * 60_000
"""From here on no window and no version is older than a retention, whatever time a partition has reached."""
METADATA = b"AgAAAYzQ=="
"""Any text: no client may change it, or append to it."""


def records_of(count: int, *, keys: int, first: int = 0) -> list[Record]:
    """Records with repeated keys, deletes, headers, and one record without a timestamp."""
    records: list[Record] = []
    for number in range(first, first + count):
        value = None if number % 17 == 3 else f"value-{number}".encode() * (1 + number % 5)
        headers: list[tuple[str, bytes | None]] = []
        if number % 7 == 0:
            headers = [("h", str(number).encode()), ("h", None), ("", b"")]
        records.append((f"key-{number % keys}".encode(), value, -1 if number == first + 5 else 1_000 + number, headers))
    return records


@dataclass
class Source:
    """An application that has stopped: ``<app>-count-changelog``, its input topic, and its group."""

    harness: Harness
    folder: Path
    app: str
    partitions: int = 2
    settings: dict[str, str] = field(default_factory=lambda: {"cleanup.policy": "compact", "segment.ms": "604800000"})
    client: dict[str, str] = field(default_factory=dict)
    """Settings of the Kafka client."""

    @property
    def new(self) -> str:
        """The application.id to seed."""
        return f"{self.app}-new"

    @property
    def changelog(self) -> str:
        """Its one changelog."""
        return f"{self.app}-count-changelog"

    def create(self, count: int = 200, keys: int = 20) -> Source:
        """Create its topics with ``count`` records in each partition, its offsets, and a dump."""
        self.topic(self.changelog, self.partitions, self.settings)
        self.topic(f"{self.app}-in", 1)
        self.produce(self.changelog, records_of(count, keys=keys))
        self.commit()
        self.dump()
        return self

    def topic(self, name: str, partitions: int, settings: dict[str, str] | None = None) -> None:
        """Create a topic."""
        admin = AdminClient({**self.client, "bootstrap.servers": self.harness.bootstrap})
        new = NewTopic(name, partitions, 1, config=settings or {})
        (future,) = admin.create_topics([new]).values()
        future.result()

    def produce(self, topic: str, records: Sequence[Record], *, aborted: bool = False) -> None:
        """Send the records to every partition in one transaction."""
        conf = {**self.client, "bootstrap.servers": self.harness.bootstrap, "transactional.id": f"test-{topic}"}
        producer = Producer(conf)
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(self.partitions if topic == self.changelog else 1):
            for key, value, timestamp, headers in records:
                producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers or None)
                producer.poll(0)
        if aborted:
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    def commit(self, group: str | None = None, offset: int = 0) -> None:
        """Commit an offset of the input topic."""
        committed = {Key(f"{self.app}-in", 0): CommittedOffset(offset, METADATA)}
        commit_offsets(self.harness.bootstrap, self.client, group or self.app, committed)

    def dump(self) -> None:
        """Write a dump, or extend it."""
        words: list[object] = ["--app", self.app]
        if self.client:
            file = self.folder / "source.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in self.client.items()))
            words += ["--kafka-settings", file]
        dump(self.harness, self.folder / "dump", *words)

    @property
    def journal(self) -> Path:
        """The journal of the run."""
        return self.folder / "journal.jsonl"

    def words(self, *options: object) -> list[object]:
        """The command line of the seed."""
        words: list[object] = ["seed", "--from", self.folder / "dump", "--app", self.new]
        return [*words, "--bootstrap-server", self.harness.bootstrap, "--journal", self.journal, "-o", "json", *options]

    def seed(self, *options: object, status: int = 0) -> CommandResult:
        """Run it."""
        result = kstate(*self.words(*options))
        assert result.status == status, result.report
        return result

    def undo(self, status: int = 0) -> CommandResult:
        """Undo the run of the journal."""
        words = ["seed", "--undo", "--delete-topics", self.journal, "--bootstrap-server", self.harness.bootstrap]
        result = kstate(*words, "-o", "json")
        assert result.status == status, result.report
        return result


def await_end(harness: Harness, app: App) -> None:
    """Wait until the sessions of the stopped instances have timed out: Kafka Streams does not leave its group."""
    deadline = time.monotonic() + 300
    # The client does not list a streams group, which its instances leave.
    while read_cluster(Connection(harness.bootstrap, {})).groups.get(app.name, EMPTY) != EMPTY:
        assert time.monotonic() < deadline, f"{app.name} still has members"
        time.sleep(0.5)


def content(harness: Harness, topic: str) -> dict[int, list[Record]]:
    """The committed records of each partition of a topic, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": harness.bootstrap,
            "group.id": "test-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, timeout=300).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records: dict[int, list[Record]] = {partition: [] for partition in partitions}
    at_end: set[int] = set()
    while len(at_end) < len(partitions):
        message: Any = consumer.poll(300)
        assert message is not None, f"{topic} cannot be read"
        if message.error() is not None:
            at_end.add(message.partition())
            continue
        record = (message.key(), message.value(), message.timestamp()[1], message.headers() or [])
        records[message.partition()].append(record)
    consumer.close()
    return records


def events(journal: Path) -> list[str]:
    """The events of a journal."""
    return [json.loads(line)["event"] for line in journal.read_text(encoding="utf-8").splitlines()]


def page_commands(page: str, names: Mapping[str, str]) -> list[list[str]]:
    """Return the commands of a how-to page, with these names instead of those of the page."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    commands = re.findall(r"^ {4,}kstate (.*)$", text, re.MULTILINE)  # a list item indents its prose by two
    # The longest name first: orders-v2 has orders in it.
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    return [shlex.split(pattern.sub(lambda match: names[match[0]], command)) for command in commands]


def own_changelogs(harness: Harness, app: App) -> list[str]:
    """The changelogs of an application that the broker has."""
    topics = AdminClient({"bootstrap.servers": harness.bootstrap}).list_topics(timeout=300).topics
    names = [topic for topic in topics if topic.startswith(f"{app.name}-") and topic.endswith("-changelog")]
    return sorted(name for name in names if not name.startswith(f"{app.name}-new-"))


def delete_topics(harness: Harness, topics: Iterable[str]) -> None:
    """Delete topics, and wait until the broker no longer lists them."""
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    names = list(topics)
    if not names:
        return
    for future in admin.delete_topics(names).values():
        future.result()
    deadline = time.monotonic() + 300
    while set(names) & admin.list_topics(timeout=300).topics.keys():
        assert time.monotonic() < deadline, names
        time.sleep(0.1)


def send(harness: Harness, topic: str, rows: Iterable[tuple[str, str, int]]) -> None:
    """Send text with event times in seconds, to the partitions of Kafka's own producer."""
    producer = Producer({"bootstrap.servers": harness.bootstrap, "partitioner": "murmur2_random", "linger.ms": 0})
    for key, value, second in rows:
        producer.produce(topic, value, key, timestamp=BASE_MS + 1000 * second)
    assert not producer.flush(300)


def add_partitions(harness: Harness, prefix: str, count: int, names: Sequence[str] = INPUTS) -> None:
    """Add partitions to the input topics."""
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    for future in admin.create_partitions([NewPartitions(f"{prefix}-{name}", count) for name in names]).values():
        future.result()


def meaning(file: Path) -> dict[str, Counter[str]]:
    """The rows of each store, without the partition in which they are, and without what may have expired."""
    stores: dict[str, Counter[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        store = row["store"]
        own = stores.setdefault(store, Counter())
        if store in NOT_COMPARED or not is_unexpired(row):
            continue
        del row["partition"]
        own[json.dumps(row, sort_keys=True)] += 1
    return stores


def is_unexpired(row: dict[str, Any]) -> bool:
    """Whether a row is the same whatever its partition has seen of other keys."""
    if "asOf" in row:
        # Each key is asked for in every partition: those without it have none.
        return row["value"] is not None and (row["asOf"] == "latest" or int(row["asOf"]) >= UNEXPIRED_MS)
    return int(row.get("start", UNEXPIRED_MS)) >= UNEXPIRED_MS
