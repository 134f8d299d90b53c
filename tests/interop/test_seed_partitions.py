"""``kstate seed --partitions``: an application continues with another number of partitions, as if it always had it."""

from __future__ import annotations

import itertools
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.group_offsets import CommittedOffset, commit_offsets, read_committed
from kstate_cli.errors import Refused
from kstate_cli.formats.keys import CombinedKey
from kstate_cli.formats.partitions import PartitionMetadata, partition_of
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.formats.values import SubscriptionWrapper
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.execution import Watcher, carry_out
from kstate_cli.seed.journal import open_journal
from kstate_cli.seed.model import SeedRequest
from kstate_cli.seed.partitioning import PartitionRequest
from kstate_cli.seed.planner import plan_seed, read_facts
from kstate_cli.specification.toml_file import read_spec
from tests.command_result import CommandResult

from .dumping import dump
from .harness import App, Harness, Run
from .restoring import write_spec
from .seeding import add_partitions, content, events, meaning
from .support import ALL, BATCH, application, good, kstate, restored_records, wipes_task

pytestmark = [pytest.mark.interop, pytest.mark.rotating(6)]

# Tables keep changelogs of their own: what is restored from an input topic cannot move.
CONF = {"topology.optimization": "none"}


@dataclass(frozen=True)
class Case:
    """A release, its guarantee, and the numbers of partitions before and after."""

    release: str
    guarantee: str
    old: int
    new: int

    @property
    def id(self) -> str:
        """Its name."""
        return f"{self.release}-{self.guarantee}-{self.old}-{self.new}"


CASES = [
    Case("4.3.1", "eos", 2, 3),
    Case("4.2.1", "alos", 2, 5),
    Case("4.4.0", "eos", 6, 2),
    Case("4.3.1", "alos", 6, 2),
    Case("4.2.1", "eos", 2, 3),
    Case("4.4.0", "alos", 2, 5),
]


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_application_continues_with_another_number_of_partitions(
    harness: Harness, tmp_path: Path, case: Case
) -> None:
    """All kinds in one topology: what it has after further input is what one has that always had the new number."""
    batch = replace(BATCH, partitions=case.old)
    old = application("kinds", case.guarantee)
    new, oracle = replace(old, name=f"{old.name}-new", prefix=old.input), application("kinds", case.guarantee)
    harness.produce(case.release, old, batch)
    good(harness.run(case.release, old, tmp_path / "old", Run(read=False, conf=CONF)))
    spec = write_spec(tmp_path / "old" / old.name, tmp_path / "kstate.toml", memory=True)
    dump(harness, tmp_path / "dump", "--app", old.name)
    if case.new > case.old:
        add_partitions(harness, old.input, case.new)
    else:
        new = replace(new, prefix=f"{old.name}-fewer")
    words = seed_words(harness, tmp_path, new, spec, case.new)
    if case.new < case.old:
        words.append("--no-offsets")

    planned = kstate(*words, "--dry-run")
    assert planned.status == 0, planned.report
    partitionings = {row["store"]: row for row in planned.rows if row["type"] == "partitioning"}
    assert partitionings["count"]["key_form"] == "key-value"
    assert partitionings["fk-subscription-store"]["primary_partitions"] == case.new
    assert all(
        (row["source_partitions"], row["partitions"], len(row["partition_records"])) == (case.old, case.new, case.new)
        for row in partitionings.values()
    )
    seeded = kstate(*words)
    assert seeded.status == 0, seeded.report
    assert kstate(*words).summary["executed"] is False

    harness.produce(case.release, new, replace(batch.next(), partitions=case.new))
    for records in (batch, batch.next()):
        harness.produce(case.release, oracle, replace(records, partitions=case.new))
    rows = {}
    for app, folder, runs in ((new, "new", 2), (oracle, "oracle", 1)):
        for number in range(runs):
            # Deleted directories are restored from the seeded changelogs, and those have what the run added.
            state, file = tmp_path / f"{folder}-{number}", tmp_path / f"{folder}-{number}.jsonl"
            reply = good(harness.run(case.release, app, state, reading(file)))
            assert not wipes_task(reply)
            assert restored_records(reply) or folder == "oracle"
            rows[folder, number] = meaning(file)
    assert set(rows["oracle", 0]) > {"count", "window-count", "session-final", "versioned", "fk-result", "kv-memory"}
    expected = rows["oracle", 0]
    differences = {
        (number, store): (own - expected[store], expected[store] - own)
        for number in range(2)
        for store in expected
        if (own := rows["new", number].get(store, Counter())) != expected[store]
    }
    assert not differences


def reading(file: Path) -> Run:
    """A run that consumes everything and writes what its stores have."""
    return Run(dump=file, conf=CONF, options={"every-partition": True})


def seed_words(harness: Harness, folder: Path, new: App, spec: Path, count: int) -> list[object]:
    """The command line of the seed."""
    words: list[object] = [
        "seed",
        "--from",
        folder / "dump",
        "--app",
        new.name,
        "--bootstrap-server",
        harness.bootstrap,
    ]
    words += ["--journal", folder / "journal.jsonl", "--spec", spec, "--partitions", count]
    return [*words, "--key-of", "kv-memory=key-value", "-o", "json"]


# --- without an application -------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/more-partitions.md"


@dataclass
class Counting:
    """An application "orders" that has stopped: stores and input topic with two partitions, and its group."""

    harness: Harness
    folder: Path
    app: str
    stores: tuple[str, ...] = ("count",)
    partitions: int = 2

    @property
    def input(self) -> str:
        """Its input topic."""
        return f"{self.app}-in"

    def create(self, keys: int = 60) -> Counting:
        """Create topics with a record of each key, read to the end, a dump and a specification."""
        self.create_topic(self.input)
        self.produce(self.input, range(keys))
        for store in self.stores:
            self.create_topic(f"{self.app}-{store}-changelog")
            self.produce(f"{self.app}-{store}-changelog", range(keys))
        self.commit()
        self.dump()
        self.specify()
        return self

    def create_topic(self, name: str) -> None:
        """Create a topic with two partitions."""
        admin = AdminClient({"bootstrap.servers": self.harness.bootstrap})
        (future,) = admin.create_topics([NewTopic(name, self.partitions, 1)]).values()
        future.result()

    def produce(self, topic: str, keys: Iterable[int], *, count: int | None = None) -> None:
        """Send a record of each key to the partition that producers choose with ``count`` partitions."""
        producer = Producer({"bootstrap.servers": self.harness.bootstrap})
        for number in keys:
            key = b"key-%d" % number
            partition = partition_of(key, count or self.partitions)
            producer.produce(topic, b"v%d" % number, key, partition, timestamp=1_000 + number)
        producer.flush()

    def specify(self, kind: str = "timestamped-key-value", more: str = "", *, subtopologies: bool = True) -> None:
        """Write the specification."""
        text = f'format = 1\napplication = "{self.app}"\n'
        for number, store in enumerate(self.stores):
            text += f'[stores.{store}]\nkind = "{kind}"\nchangelog = "{self.app}-{store}-changelog"\n'
            text += f"partitions = {self.partitions}\n" + f"subtopology = {number}\n" * subtopologies
        self.spec.write_text(text + more)

    def commit(self) -> None:
        """Commit the ends of the input topic, with a partition time each, and two ends of emitted windows."""
        logs = ask_broker(self.harness.bootstrap, {}, group=None, topics=[self.input])
        committed = {
            key: CommittedOffset(
                log.end, PartitionMetadata(5_000 + key.partition, {"final": 700 - key.partition, "other": 9}).encode()
            )
            for key, log in logs.items()
        }
        commit_offsets(self.harness.bootstrap, {}, self.app, committed)

    def dump(self) -> None:
        """Write a dump, or extend it."""
        dump(self.harness, self.folder / "dump", "--app", self.app)

    @property
    def spec(self) -> Path:
        """Its specification."""
        return self.folder / "kstate.toml"

    @property
    def journal(self) -> Path:
        """The journal of the run."""
        return self.folder / "journal.jsonl"

    def enlarge(self, count: int) -> None:
        """Add partitions to the input topic."""
        admin = AdminClient({"bootstrap.servers": self.harness.bootstrap})
        (future,) = admin.create_partitions([NewPartitions(self.input, count)]).values()
        future.result()

    def words(self, *options: object) -> list[object]:
        """The command line of the seed."""
        words: list[object] = ["seed", "--from", self.folder / "dump", "--app", f"{self.app}-new", "-o", "json"]
        words += ["--bootstrap-server", self.harness.bootstrap, "--journal", self.journal]
        if "--spec" not in options:
            words += ["--spec", self.spec]
        return [*words, *(option for option in options if option not in ("--spec", ""))]

    def seed(self, *options: object, status: int = 0) -> CommandResult:
        """Run the command."""
        result = kstate(*self.words(*options))
        assert result.status == status, result.report
        return result


_names = itertools.count(1)


@pytest.fixture
def counting(harness: Harness, tmp_path: Path) -> Counting:
    return Counting(harness, tmp_path, f"parts-{next(_names)}").create()


def test_offsets_and_metadata_of_more_partitions(counting: Counting) -> None:
    counting.enlarge(4)
    outcome = counting.seed("--partitions", 4)
    assert outcome.summary["copied_offsets"] == 4
    keys = [TopicPartition(counting.input, number) for number in range(4)]
    before = read_committed(counting.harness.bootstrap, {}, counting.app, keys)
    after = read_committed(counting.harness.bootstrap, {}, f"{counting.app}-new", keys)
    assert {key: committed.offset for key, committed in after.items()} == {
        key: before[key].offset if key in before else 0 for key in keys
    }
    metadata = [PartitionMetadata.decode(after[key].metadata) for key in keys]
    # New partitions have the highest time; an emitted end is the lowest of all, so that no window is lost.
    assert [own.time for own in metadata] == [5_000, 5_001, 5_001, 5_001]
    assert [own.processors for own in metadata] == [{"final": 699, "other": 9}] * 4
    written = content(counting.harness, f"{counting.app}-new-count-changelog")
    assert {partition_of(key, 4): number for number, rows in written.items() for key, *_ in rows if key} == {
        number: number for number in range(4)
    }
    assert sum(map(len, written.values())) == 60


def _write_offsets(counting: Counting, *lines: str) -> Path:
    """Write a file of start offsets."""
    file = counting.folder / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def _smaller_topic(counting: Counting, count: int = 1) -> str:
    """Create another input topic with the records that the application has read, and with later ones."""
    topic = f"{counting.app}-smaller"
    admin = AdminClient({"bootstrap.servers": counting.harness.bootstrap})
    (future,) = admin.create_topics([NewTopic(topic, count, 1)]).values()
    future.result()
    counting.produce(topic, range(80), count=count)
    return topic


def test_fewer_partitions_begin_at_stated_offsets(counting: Counting) -> None:
    topic = _smaller_topic(counting)
    counting.produce(counting.input, range(60, 70))
    outcome = counting.seed("--partitions", 1, "--start-offsets", _write_offsets(counting, f"{topic},0,60"))
    notes = [row["message"] for row in outcome.rows if row["type"] == "note"]
    assert any("will not be read, because the source has not read them yet" in note for note in notes), outcome.report
    assert [
        row for row in outcome.rows if f"does not copy the offsets of {counting.input}" in row.get("message", "")
    ], outcome.report
    keys = [TopicPartition(name, 0) for name in (topic, counting.input)]
    committed = read_committed(counting.harness.bootstrap, {}, f"{counting.app}-new", keys)
    # Every task of the source has emitted the windows up to the lowest end.
    metadata = PartitionMetadata(processors={"final": 699, "other": 9}).encode()
    assert committed == {keys[0]: CommittedOffset(60, metadata)}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("TOPIC,0,81", "81 is not between the log start 0 and the log end 80"),
        ("TOPIC,1,0", "the target does not have this partition"),
        ("missing,0,0", "missing:0: the target does not have this partition"),
    ],
)
def test_stated_offsets_that_do_not_exist(counting: Counting, line: str, message: str) -> None:
    topic = _smaller_topic(counting)
    file = _write_offsets(counting, line.replace("TOPIC", topic))
    refusal = counting.seed("--partitions", 1, "--start-offsets", file, "--dry-run", status=4)
    assert any(message in detail for detail in refusal.error["details"]), refusal.report
    assert "correct the --start-offsets file" in refusal.error["hint"]
    counting.seed("--partitions", 1, "--start-offsets", _write_offsets(counting, f"{topic},0,0"), "--dry-run")


def test_stated_offsets_of_some_partitions_or_of_other_keys(counting: Counting) -> None:
    topic = _smaller_topic(counting, 3)
    counting.enlarge(3)
    partly = counting.seed("--partitions", 3, "--start-offsets", _write_offsets(counting, f"{topic},0,0"), status=4)
    assert any("the file has no offset for this partition" in detail for detail in partly.error["details"]), (
        partly.report
    )
    # Two of the three partitions of the topic have records of all keys.
    counting.produce(topic, range(80), count=2)
    file = _write_offsets(counting, *[f"{topic},{number},0" for number in range(3)])
    strangers = counting.seed("--partitions", 3, "--start-offsets", file, "--dry-run", status=4)
    assert "belongs to partition" in strangers.error["message"], strangers.report
    larger = counting.seed("--partitions", "1", "--start-offsets", file, "--dry-run", status=4)
    assert "has 3 partitions, but the new changelogs have 1" in larger.error["message"], larger.report


@pytest.mark.sample(2)
@pytest.mark.parametrize("line", ["topic,0", "topic,0,x", "topic,-1,0", "to/pic,0,0", "t,0,0\nt,0,1", "", "t,0,1_0"])
def test_a_file_that_states_no_offsets(counting: Counting, line: str) -> None:
    refusal = counting.seed("--start-offsets", _write_offsets(counting, line), status=2)
    assert "line" in refusal.error["message"] or "contains no offsets" in refusal.error["message"], refusal.report


def _unread(counting: Counting) -> None:
    counting.produce(counting.input, range(60, 90))
    counting.enlarge(3)


def _unread_in_place(counting: Counting) -> None:
    counting.enlarge(3)
    counting.produce(counting.input, range(60, 90), count=3)


def _enlarge(counting: Counting) -> None:
    counting.enlarge(3)


def _nothing(_counting: Counting) -> None:
    """The topic keeps its partitions."""


def _stray(counting: Counting) -> None:
    counting.enlarge(3)
    producer = Producer({"bootstrap.servers": counting.harness.bootstrap})
    producer.produce(f"{counting.app}-count-changelog", None, b"stray", 1 - partition_of(b"stray", 2), timestamp=5_000)
    producer.flush()
    counting.dump()


def _unknown_kind(counting: Counting) -> None:
    counting.enlarge(3)
    counting.spec.write_text(f'format = 1\napplication = "{counting.app}"\n')


def _other_kind(counting: Counting) -> None:
    counting.enlarge(3)
    counting.specify("list-value")


def _source_table(counting: Counting) -> None:
    counting.enlarge(3)
    counting.create_topic(f"{counting.app}-prices")
    counting.specify(
        more=f'[stores.table]\nkind = "timestamped-key-value"\nchangelog = "{counting.app}-prices"\nsource = "topic"\n'
        "subtopology = 7\npartitions = 2\n"
    )


def _unknown_sub_topology(counting: Counting) -> None:
    counting.enlarge(3)
    counting.create_topic(f"{counting.app}-total-changelog")
    counting.dump()
    counting.stores = ("count", "total")
    counting.specify(subtopologies=False)


def _other_metadata(counting: Counting) -> None:
    counting.enlarge(3)
    commit_offsets(
        counting.harness.bootstrap, {}, counting.app, {TopicPartition(counting.input, 0): CommittedOffset(1, b"text")}
    )


def _subscriptions(counting: Counting, *values: bytes) -> None:
    """A store "fk-subscription-store" with one record for each value."""
    counting.enlarge(3)
    topic = f"{counting.app}-fk-subscription-store-changelog"
    counting.create_topic(topic)
    producer = Producer({"bootstrap.servers": counting.harness.bootstrap})
    for number, value in enumerate(values):
        key = CombinedKey(b"f%d" % number, b"p").to_bytes()
        producer.produce(topic, value, key, partition_of(b"f%d" % number, 2), timestamp=1_000)
    producer.flush()
    counting.dump()
    counting.specify(
        more=f'[stores.fk-subscription-store]\nkind = "foreign-key-subscription"\nchangelog = "{topic}"\n'
        "subtopology = 3\npartitions = 2\n"
    )


def _wrapper(partition: int) -> bytes:
    return SubscriptionWrapper(1, 2, bytes(16), b"p", partition).to_bytes()


def _ambiguous_left_table(counting: Counting) -> None:
    counting.create_topic(f"{counting.app}-total-changelog")
    counting.stores = ("count", "total")
    _subscriptions(counting, *[_wrapper(partition_of(b"p", 2))] * 3)


def _other_left_table(counting: Counting) -> None:
    _subscriptions(counting, _wrapper(1 - partition_of(b"p", 2)))


def _no_subscription(counting: Counting) -> None:
    _subscriptions(counting, b"text")


def partition_by_hand(key: bytes, count: int) -> int:
    """A partitioner of a user, that is murmur2 but for a key of the left table."""
    partition = partition_of(key, count)
    if key == b"p":
        return (partition + 1) % count
    return partition


@dataclass(frozen=True)
class Refusal:
    """A situation, what is printed about it, and options with which the hint leads on."""

    prepare: Callable[[Counting], None]
    message: str
    options: tuple[str, ...] = ("--partitions", "3")
    status: int = 4
    remedy: tuple[str, ...] | None = None


REFUSALS = {
    "unread": Refusal(_unread, "the application has not read a record of"),
    "not-enlarged": Refusal(
        _nothing, "has 2 partitions, but the new application needs 3", remedy=("--partitions", "3", "--no-offsets")
    ),
    "fewer": Refusal(
        _nothing,
        "has 2 partitions, but the new application needs 1",
        ("--partitions", "1"),
        remedy=("--partitions", "1", "--no-offsets"),
    ),
    "stray": Refusal(_stray, "the record with key stray is in partition"),
    "custom": Refusal(
        _enlarge,
        "are not in the partition that tests.unit.seed.test_partitioning:by_last_byte selects",
        ("--partitions", "3", "--partitioner", "tests.unit.seed.test_partitioning:by_last_byte"),
        remedy=("--partitions", "3", "--partitioner", "murmur2"),
    ),
    "unknown-kind": Refusal(
        _unknown_kind,
        "kstate does not know the form of the keys in store count",
        remedy=("--partitions", "3", "--key-of", "count=key-value"),
    ),
    "other-kind": Refusal(
        _other_kind,
        "but its key is too short for the kind list-value",
        remedy=("--partitions", "3", "--key-of", "count=key-value"),
    ),
    "source-table": Refusal(
        _source_table, "Kafka Streams restores table from its input topic", remedy=("--partitions", "0=3")
    ),
    "unknown-sub-topology": Refusal(
        _unknown_sub_topology,
        "kstate does not know whether total belongs to",
        ("--partitions", "count=3"),
        2,
        ("--partitions", "count=3", "--partitions", "total=2"),
    ),
    "other-metadata": Refusal(
        _other_metadata,
        "has metadata that Kafka Streams did not write",
        remedy=("--partitions", "3", "--no-offsets"),
    ),
    "ambiguous-left-table": Refusal(
        _ambiguous_left_table,
        "contain partition numbers of another table",
        ("--partitions", "0=3", "--partitions", "3=3"),
        remedy=("--partitions", "3"),
    ),
    "other-left-table": Refusal(
        _other_left_table,
        "of the left table, but murmur2 selects",
        remedy=("--partitions", "3", "--partitioner", "tests.interop.test_seed_partitions:left_by_hand"),
    ),
    "no-subscription": Refusal(_no_subscription, "is not a subscription of a foreign-key join"),
    "no-specification": Refusal(
        _enlarge, "needs the stores' kinds", ("--partitions", "3", "--spec", ""), 2, ("--partitions", "3")
    ),
    "same": Refusal(_nothing, "already has this number of partitions", ("--partitions", "2"), 2, ()),
    "unknown-store": Refusal(
        _enlarge, "has no store or sub-topology with this name", ("--partitions", "x=3"), 2, ("--partitions", "count=3")
    ),
    "contradiction": Refusal(
        _enlarge,
        "specifies different numbers",
        ("--partitions", "0=3", "--partitions", "count=4"),
        2,
        ("--partitions", "0=3"),
    ),
    "unknown-topic": Refusal(
        _enlarge,
        "has no store or sub-topology with this name",
        ("--partitions", "3", "--partitioner", "another=murmur2"),
        2,
        ("--partitions", "3", "--partitioner", "count=murmur2"),
    ),
    "no-number": Refusal(_enlarge, "is not a number", ("--partitions", "many"), 2, ("--partitions", "count=3")),
    "no-scope": Refusal(_enlarge, "has no scope or no value", ("--partitions", "=3"), 2, ("--partitions", "3")),
    "no-store": Refusal(
        _enlarge,
        "does not name a store",
        ("--partitions", "3", "--key-of", "window"),
        2,
        ("--partitions", "3", "--key-of", "count=key-value"),
    ),
    "alone": Refusal(_enlarge, "need --partitions", ("--partitioner", "murmur2"), 2, ("--partitions", "3")),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_write_nothing_and_their_hints_lead_on(counting: Counting, case: str) -> None:
    refusal = REFUSALS[case]
    refusal.prepare(counting)
    result = kstate(*counting.words(*refusal.options))
    assert result.status == refusal.status, result.report
    assert refusal.message in result.error["message"], result.report
    assert result.error["hint"]
    assert not counting.journal.exists() or not events(counting.journal)
    if refusal.remedy is not None:
        again = kstate(*counting.words(*refusal.remedy, "--dry-run"))
        assert again.status == 0, again.report


def test_a_single_partition_proves_no_rule(harness: Harness, tmp_path: Path) -> None:
    counting = Counting(harness, tmp_path, f"parts-{next(_names)}", partitions=1).create()
    counting.enlarge(3)
    refusal = kstate(*counting.words("--partitions", 3))
    assert "--partitioner murmur2" in refusal.error["hint"], refusal.report
    assert kstate(*counting.words("--partitions", 3, "--partitioner", "murmur2")).status == 0


def test_unread_records_that_are_in_place(counting: Counting) -> None:
    _unread_in_place(counting)
    assert counting.seed("--partitions", 3).summary["copied_offsets"] == 3


@pytest.mark.parametrize("stated", [False, True])
def test_a_producer_that_knows_the_old_number_only_stops_the_offsets(counting: Counting, stated: bool) -> None:
    """The plan was made before: everything is written, and the new group gets no offsets. Also if all are stated."""
    counting.enlarge(3)
    cluster = Connection(counting.harness.bootstrap, {})
    places = [TopicPartition(counting.input, number) for number in range(3)]
    start_offsets: dict[TopicPartition, int] = {}
    if stated:
        committed = read_committed(counting.harness.bootstrap, {}, counting.app, places)
        start_offsets = {key: committed[key].offset if key in committed else 0 for key in places}
    request = SeedRequest(
        str(counting.folder / "dump"),
        f"{counting.app}-new",
        None,
        cluster,
        cluster,
        counting.journal,
        spec=read_spec(counting.spec),
        partitions=PartitionRequest({None: 3}),
        start_offsets=start_offsets,
    )
    plan = plan_seed(request, read_facts(request), ())
    counting.produce(counting.input, range(60, 90))
    with open_journal(counting.journal) as journal, pytest.raises(Refused, match="has not read a record of"):
        carry_out(request, plan, journal, Watcher())
    keys = [TopicPartition(counting.input, number) for number in range(3)]
    assert not read_committed(counting.harness.bootstrap, {}, f"{counting.app}-new", keys)


def test_only_a_sub_topology_gets_another_number(harness: Harness, tmp_path: Path) -> None:
    counting = Counting(harness, tmp_path, f"parts-{next(_names)}", ("count", "total")).create()
    counting.enlarge(3)
    outcome = counting.seed("--partitions", "1=3", "--no-offsets")
    assert {row["store"]: row["partitions"] for row in outcome.rows if row["type"] == "topic"} == {
        "count": 2,
        "total": 3,
    }
    # The other changelog is copied, partition by partition.
    assert content(harness, f"{counting.app}-new-count-changelog") == content(
        harness, f"{counting.app}-count-changelog"
    )


def test_a_killed_run_continues(harness: Harness, tmp_path: Path) -> None:
    counting = Counting(harness, tmp_path, f"parts-{next(_names)}").create(20_000)
    counting.enlarge(3)
    command = [sys.executable, "-m", "kstate_cli", *map(str, counting.words("--partitions", 3))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance = random.Random(20261128)
    for _ in range(30 if ALL else 4):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(chance.uniform(0.5, 4.0))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert b"Traceback" not in errors, errors
    counting.seed("--partitions", 3)
    written = content(harness, f"{counting.app}-new-count-changelog")
    assert sorted(key for rows in written.values() for key, *_ in rows if key) == sorted(
        b"key-%d" % number for number in range(20_000)
    )
    assert all(partition_of(key, 3) == number for number, rows in written.items() for key, *_ in rows if key)


def test_the_page_about_more_partitions(harness: Harness, tmp_path: Path) -> None:
    """Every command of the page, with the names of this application."""
    counting = Counting(harness, tmp_path, f"parts-{next(_names)}").create()
    (tmp_path / "dump").rename(tmp_path / "first-dump")
    names = {
        "/dump/orders": str(tmp_path / "dump"),
        "broker:9092": harness.bootstrap,
        "orders-in": counting.input,
        "orders-v2": f"{counting.app}-v2",
        "orders": counting.app,
        "kstate.toml": str(counting.spec),
    }
    lines = re.findall(r"^ {6,}((?:kstate|kafka-topics.sh) .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [line.split()[:2] for line in lines] == [
        ["kstate", "ls"],
        ["kstate", "dump"],
        ["kstate", "seed"],
        ["kafka-topics.sh", "--bootstrap-server"],
        ["kstate", "seed"],
    ]
    for line in lines[1:]:
        words = [names.get(word, word) for word in shlex.split(line)]
        if words[0] == "kafka-topics.sh":
            assert words[3:] == ["--alter", "--topic", counting.input, "--partitions", "3"]
            counting.enlarge(3)
            continue
        if words[1] == "seed":
            words += ["--journal", str(counting.journal)]
        result = kstate(*words[1:])
        assert result.status == 0, result.report
    written = content(harness, f"{counting.app}-v2-count-changelog")
    assert len(written) == 3
    assert sum(map(len, written.values())) == 60
    keys = [TopicPartition(counting.input, number) for number in range(3)]
    assert len(read_committed(harness.bootstrap, {}, f"{counting.app}-v2", keys)) == 3
