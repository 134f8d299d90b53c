"""``kstate seed --from APP``: the changelogs are lost, and the directories of real Kafka Streams are what is left."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kstate_cli.broker.group_offsets import CommittedOffset, commit_offsets, read_committed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import EMPTY, Connection, read_cluster, read_topics
from kstate_cli.statedir.scan import read_application
from tests.command_result import CommandResult
from tests.golden import unpack

from . import dumps
from .harness import App, Harness, Run
from .restoring import write_spec
from .seeding import GARBLED, Record, content, delete_topics, events, own_changelogs
from .support import ALL, BATCH, ROOT, application, good, kstate, wipes_task

pytestmark = [pytest.mark.interop, pytest.mark.rotating(5)]

CASES = [("4.3.1", "eos"), ("4.4.0", "alos"), ("4.4.0", "eos"), ("4.3.1", "alos")]
ACCEPTED = ("versioned", "fk-result")
"""Kafka Streams keeps no Position of a versioned store, and nothing else is in its task. The last answers of a
foreign-key join change no row of its result."""
IN_MEMORY = ("kv-memory",)
NOT_SEEDED = ("kv-memory", "kv-nolog", GARBLED)
VERSIONED = ("versioned", "grace-table")
"""Stores that Kafka Streams changes if it restores records over their rows. It does so in the old directories if their
offset is inside the new log, which depends on the number of transactions: kstate tells users to wipe them."""
WITHOUT_TIMESTAMPS = (
    "kv-plain",
    "window-plain",
    "window-duplicates",
    "session-plain",
    "session-count",
    "session-final",
    "join-left-shared-join-store",
    GARBLED,
)
"""Stores whose rows have no timestamp, or another one than the record."""


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file and folder."""
    paths = [directory, *sorted(directory.rglob("*"))]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def await_empty(harness: Harness, group: str) -> None:
    """Wait until the broker has removed the members of a group: Kafka Streams leaves none when it is closed."""
    deadline = time.monotonic() + 300
    while read_cluster(Connection(harness.bootstrap, {})).groups.get(group) != EMPTY:
        assert time.monotonic() < deadline, group
        time.sleep(0.5)


def seed(harness: Harness, directory: Path, folder: Path, app: str, *options: object, status: int = 0) -> CommandResult:
    """Run the command."""
    words = ["seed", "--from", directory, "--app", app, "--bootstrap-server", harness.bootstrap]
    result = kstate(*words, "--journal", folder / f"journal-{app}.jsonl", "-o", "json", *options)
    assert result.status == status, result.report
    return result


def newest(records: Iterable[Record]) -> dict[bytes, Record]:
    """The newest record of each key; deleted keys have none."""
    by_key: dict[bytes, Record] = {}
    for record in records:
        by_key.pop(record[0] or b"", None)
        if record[1] is not None:
            by_key[record[0] or b""] = record
    return by_key


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_an_application_continues_from_its_directories(
    harness: Harness, tmp_path: Path, release: str, guarantee: str
) -> None:
    """Under another id it counts on as the old one does; under its own id it has the same rows as before the loss."""
    old = application("kinds", guarantee)
    new = replace(old, name=f"{old.name}-new", prefix=old.input)
    harness.produce(release, old, BATCH)
    good(harness.run(release, old, tmp_path / "old", Run(read=False)))
    directory = tmp_path / "old" / old.name
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=True)
    options = ["--spec", spec, *(word for store in ACCEPTED for word in ("--accept", store))]
    before = files(directory)
    await_empty(harness, old.name)
    seeded = seed(harness, directory, tmp_path, new.name, *options)
    assert files(directory) == before
    assert seeded.summary["written"] == seeded.summary["records"] > 0
    _same_as_the_logs(harness, old, new)
    assert seed(harness, directory, tmp_path, new.name, *options).summary["written"] == 0

    harness.produce(release, old, BATCH.next())
    for app, folder in ((old, "old"), (new, "new")):
        reply = good(harness.run(release, app, tmp_path / folder, Run(dump=tmp_path / f"{folder}.jsonl")))
        assert not wipes_task(reply)
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl", ignore=NOT_SEEDED)
    assert not [str(difference) for difference in differences]

    delete_topics(harness, own_changelogs(harness, old))
    await_empty(harness, old.name)
    shutil.copytree(directory, tmp_path / "copy" / old.name)
    again = seed(harness, directory, tmp_path, old.name, *options)
    assert again.summary["copied_offsets"] == 0
    # In an empty state directory, and in the one with offsets of the lost log: Kafka Streams finds the logs shorter.
    # With at-least-once it keeps the files, and restores over their rows. It never drops an offset in a file of its own.
    files_of_stores = list((tmp_path / "copy").rglob(".checkpoint_*"))
    assert [file.name for file in files_of_stores] == [f".checkpoint_{GARBLED}"] * 2
    for file in files_of_stores if guarantee == "alos" else ():
        file.unlink()
    assert [row for row in again.rows if "a grace buffer's offset" in row.get("message", "")], again.report
    for folder, ignored in (("empty", NOT_SEEDED), ("copy", (*NOT_SEEDED, *VERSIONED))):
        good(harness.run(release, old, tmp_path / folder, Run(dump=tmp_path / f"{folder}.jsonl")))
        differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / f"{folder}.jsonl", ignore=ignored)
        assert not [str(difference) for difference in differences], folder


def _same_as_the_logs(harness: Harness, old: App, new: App) -> None:
    """Every record of a row is the newest one of its key in the changelog; settings are those of the changelog."""
    connection = Connection(harness.bootstrap, {})
    for topic in own_changelogs(harness, old):
        target = topic.replace(old.name, new.name)
        store = topic.removeprefix(f"{old.name}-").removesuffix("-changelog")
        if store in IN_MEMORY:
            continue
        both = read_topics(connection, [topic, target])
        # Input of the tests is older than any retention, so that stays unlimited.
        expected = {**both[topic].settings}
        if "retention.ms" in expected:
            expected["retention.ms"] = "-1"
        assert both[target].settings == expected, topic
        seeded = content(harness, target)
        for partition, records in content(harness, topic).items():
            logged, rows = newest(records), newest(seeded[partition])
            assert rows.keys() == logged.keys(), topic
            assert [rows[key][1] for key in sorted(rows)] == [logged[key][1] for key in sorted(rows)], topic
            if store not in WITHOUT_TIMESTAMPS:
                assert [rows[key][2] for key in sorted(rows)] == [logged[key][2] for key in sorted(rows)], topic


@dataclass
class Left:
    """What is left of an application of 4.2.1: a directory of all kinds, its input topics and its offsets.

    Nothing ran here: the broker gets topics with the names that the Positions have, and the offsets behind them.
    """

    harness: Harness
    folder: Path
    new: str

    @property
    def directory(self) -> Path:
        """The application directory."""
        return self.folder / "host1" / "golden-421-kinds-eos"

    @property
    def other(self) -> Path:
        """The directory of another host."""
        return self.folder / "host2" / self.directory.name

    @property
    def spec(self) -> Path:
        """Its specification."""
        return self.folder / "kstate.toml"

    def create(self) -> Left:
        """Unpack the directory, and give the broker what it lacks."""
        unpack("4.2.1-kinds-eos", self.folder / "host1")
        write_spec(self.directory, self.spec)
        committed: dict[TopicPartition, CommittedOffset] = {}
        for task in read_application(self.directory).tasks:
            for store in task.stores:
                for topic, partitions in store.position.as_map().items():
                    for partition, offset in partitions.items():
                        key = TopicPartition(topic, partition)
                        committed[key] = max(
                            committed.get(key, CommittedOffset(0)), CommittedOffset(offset + 1), key=lambda c: c.offset
                        )
        admin = AdminClient({"bootstrap.servers": self.harness.bootstrap})
        # Tables and global stores are restored from topics that the specification names.
        tables = set(re.findall(r'^changelog = "([^"]*(?<!-changelog))"', self.spec.read_text(), flags=re.MULTILINE))
        missing = {*tables, *(key.topic for key in committed)} - admin.list_topics(timeout=300).topics.keys()
        if missing:
            for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in missing]).values():
                future.result()
        self.commit(committed)
        return self

    def inputs(self) -> set[str]:
        """The topics that its Positions name."""
        return {
            topic
            for task in read_application(self.directory).tasks
            for store in task.stores
            for topic in store.position.as_map()
        }

    def enlarge(self, topics: Iterable[str], count: int) -> None:
        """Give each of these topics so many partitions."""
        admin = AdminClient({"bootstrap.servers": self.harness.bootstrap})
        for future in admin.create_partitions([NewPartitions(topic, count) for topic in topics]).values():
            future.result()

    def commit(self, committed: dict[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets of the application."""
        commit_offsets(self.harness.bootstrap, {}, self.directory.name, committed)

    def words(self, *options: object, sources: tuple[Path, ...] = (), spec: bool = True) -> list[object]:
        """The command line."""
        words: list[object] = ["seed", "--app", self.new, "--bootstrap-server", self.harness.bootstrap]
        for source in sources or (self.directory,):
            words += ["--from", source]
        if spec:
            words += ["--spec", self.spec]
        return [*words, "--journal", self.folder / "journal.jsonl", "-o", "json", *options]


@pytest.fixture
def left(harness: Harness, tmp_path: Path) -> Left:
    return Left(harness, tmp_path, f"left-{next(_numbers)}").create()


_numbers = itertools.count(1)


def _moved_task(left: Left) -> None:
    left.other.mkdir(parents=True)
    (left.directory / "0_1").rename(left.other / "0_1")


def _double_task(left: Left) -> None:
    shutil.copytree(left.directory / "0_1", left.other / "0_1")


def _behind(left: Left) -> None:
    left.commit({TopicPartition(f"{left.directory.name}-in-versioned", 0): CommittedOffset(99)})


def _unstable(left: Left) -> None:
    """A copy is stale by records of a transaction that is open: a consumer of committed records ends before them."""
    key = TopicPartition(f"{left.directory.name}-in-versioned", 0)
    first = read_committed(left.harness.bootstrap, {}, left.directory.name, [key])[key].offset
    plain = Producer({"bootstrap.servers": left.harness.bootstrap})
    for _ in range(first):
        plain.produce(key.topic, b"v", b"k", key.partition)
    assert not plain.flush(300)
    conf = {"transactional.id": f"open-{key.topic}", "transaction.timeout.ms": 600_000}
    producer = Producer({**conf, "bootstrap.servers": left.harness.bootstrap})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(key.topic, b"v", b"k", key.partition)
    assert not producer.flush(300)
    left.commit({key: CommittedOffset(first + 2)})


def _beyond(left: Left) -> None:
    shutil.copytree(left.directory / "3_1", left.directory / "3_7")
    # A file that states another number is refused before.
    left.spec.write_text(re.sub(r"^partitions = .*\n", "", left.spec.read_text(), flags=re.MULTILINE))


def _less(left: Left) -> None:
    shutil.rmtree(left.directory / "0_1" / "rocksdb" / "count")


def _damage(left: Left) -> None:
    (left.directory / "0_1" / "rocksdb" / "count" / "CURRENT").unlink()


def _restore(left: Left) -> None:
    shutil.rmtree(left.folder / "host1")
    unpack("4.2.1-kinds-eos", left.folder / "host1")


def _without_topic(left: Left) -> None:
    """Of a global store: the instance could not start."""
    delete_topics(left.harness, [f"{left.directory.name}-in-global"])


def _with_topic(left: Left) -> None:
    admin = AdminClient({"bootstrap.servers": left.harness.bootstrap})
    (future,) = admin.create_topics([NewTopic(f"{left.directory.name}-in-global", 2, 1)]).values()
    future.result()


def _another_name(left: Left) -> None:
    shutil.copytree(left.directory, left.folder / "host2" / "copy")


def _count(number: int) -> Callable[[Left], None]:
    def write(left: Left) -> None:
        text = left.spec.read_text()
        left.spec.write_text(re.sub(r"^partitions = \d+", f"partitions = {number}", text, flags=re.MULTILINE))

    return write


def _no_change(_left: Left) -> None:
    """The options alone are refused."""


@dataclass(frozen=True)
class Refusal:
    """A situation that is refused, and the options with which the same command succeeds, as its hint says."""

    prepare: Callable[[Left], None]
    status: int
    message: str
    options: tuple[str, ...] = ()
    sources: tuple[str, ...] = ("host1",)
    remedy: tuple[str, ...] = ()
    follow: Callable[[Left], None] = _no_change
    """What the hint says besides."""
    follow_sources: tuple[str, ...] = ("host1",)
    """The directories of the run after the remedy."""
    spec: bool = True


REFUSALS = {
    "moved-task": Refusal(_moved_task, 4, "the directories lack these tasks: 0_1", follow_sources=("host1", "host2")),
    "double-task": Refusal(
        _double_task, 4, "have the same task: 0_1", sources=("host1", "host2"), follow_sources=("host1", "host2"),
        remedy=("--skip-task", "OTHER/0_1"),
    ),
    "no-such-task": Refusal(_no_change, 2, "is not the path of a task in the directories", ("--skip-task", "OTHER/9_9")),
    "behind": Refusal(_behind, 4, "updates may be missing from 1 store: versioned", remedy=("--accept", "versioned")),
    "unstable": Refusal(
        _unstable, 4, "updates may be missing from 1 store: versioned", remedy=("--accept", "versioned")
    ),
    "no-such-store": Refusal(_no_change, 2, "kstate writes no changelog for a store with this name", ("--accept", "nothing")),
    "beyond": Refusal(_beyond, 4, "no longer has the tasks 3_7", remedy=("--skip-task", "HERE/3_7")),
    "damaged": Refusal(_damage, 4, "count", follow=_restore),
    "lacking-store": Refusal(_less, 4, "has no store count", follow=_restore),
    "twice": Refusal(_no_change, 2, "names the same directory twice", sources=("host1", "host1")),
    "other-name": Refusal(_another_name, 2, "have different names", sources=("host1", "host2")),
    "with-a-dump": Refusal(_no_change, 2, "must be one dump or", ("--from", "/no/dump")),
    "source-app": Refusal(_no_change, 2, "--source-app works only with dumps", ("--source-app", "x")),
    "other-count": Refusal(_count(3), 4, "but the specification states 3", follow=_count(2)),
    "without-a-topic": Refusal(_without_topic, 4, "the target does not have", follow=_with_topic),
    "no-retention": Refusal(_no_change, 4, "the specification is incomplete", spec=False),
    "no-receipt": Refusal(_no_change, 2, "only with --drop-keys", ("--receipt", "x")),
}  # fmt: skip


@pytest.fixture
def own_inputs(left: Left) -> Iterator[Left]:
    """What is left, with input topics that a test may change: the next test creates them again."""
    inputs = left.inputs()
    yield left
    delete_topics(left.harness, inputs)
    admin = AdminClient({"bootstrap.servers": left.harness.bootstrap})
    admin.delete_consumer_groups([left.directory.name])[left.directory.name].result()


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
def test_lost_changelogs_get_another_number_of_partitions(own_inputs: Left) -> None:
    """They are those of a seed with the old number, followed by one of its dump: all kinds, record by record."""
    left = own_inputs
    inputs = left.inputs()
    # What is restored from its input topic cannot move, and the foreign-key join keeps the partitions of its left table.
    for task in ("1_*", "4_*", "5_*"):
        for path in left.directory.glob(task):
            shutil.rmtree(path)
    tables = r'^\[stores\."?(?:source-table|fk-[a-z-]+)"?\]\n(?:(?!\[).*\n)*'
    left.spec.write_text(re.sub(tables, "", left.spec.read_text(), flags=re.MULTILINE))
    two = f"{left.new}-two"
    first = ["--app", two, "--journal", left.folder / "two.jsonl"]
    words = left.words("--accept", "versioned")
    assert kstate(*words, *first).status == 0
    dumped = ["dump", "--bootstrap-server", left.harness.bootstrap, "--app", two, "--out", left.folder / "dump"]
    assert kstate(*dumped).status == 0
    own = [*words, "--partitions", 3]
    early = kstate(*own)
    assert early.status == 4 and "increase the number of partitions" in early.error["hint"], early.report
    itself = kstate(*own, "--app", left.directory.name)
    assert itself.status == 2 and itself.error["hint"] == "pass another --app", itself.report

    left.enlarge(inputs, 3)
    text = left.spec.read_text()
    left.spec.write_text(re.sub(r"^partitions = .*\n", "", text, flags=re.MULTILINE))
    missing = kstate(*own)
    assert missing.status == 4 and "to the old number" in missing.error["hint"], missing.report
    left.spec.write_text(text)
    checked = kstate(*own, "--dry-run")
    assert checked.status == 0, checked.report
    states = {row["condition"]: row["condition_state"] for row in checked.rows if row["type"] == "condition"}
    assert states["source-complete"] == "unknown"
    seeded = kstate(*own)
    assert seeded.status == 0, seeded.report
    three = f"{left.new}-three"
    spec = left.folder / "two.toml"
    own_names = text.replace(f'"{left.directory.name}"', f'"{two}"')
    spec.write_text(re.sub(f'"{left.directory.name}-(.*-changelog)"', rf'"{two}-\1"', own_names))
    moved = ["seed", "--from", left.folder / "dump", "--app", three, "--spec", spec, "--partitions", 3]
    moved += ["--bootstrap-server", left.harness.bootstrap, "--journal", left.folder / "three.jsonl", "-o", "json"]
    through_dump = kstate(*moved)
    assert through_dump.status == 0, through_dump.report
    topics = [row["target_topic"] for row in seeded.rows if row["type"] == "topic"]
    assert len(topics) > 10
    for topic in topics:
        rows = content(left.harness, topic)
        assert rows == content(left.harness, topic.replace(left.new, three, 1)), topic
        assert len(rows) == 3
    left.commit({TopicPartition(topic, 2): CommittedOffset(7) for topic in left.inputs()})
    read = kstate(*own, "--app", f"{left.new}-read", "--journal", left.folder / "read.jsonl")
    assert read.status == 4 and "so the application had more than 2 tasks" in read.error["message"], read.report


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_write_nothing_and_their_hints_lead_on(left: Left, case: str) -> None:
    refusal = REFUSALS[case]
    refusal.prepare(left)

    def run(words: tuple[str, ...], hosts: tuple[str, ...], *, spec: bool = True) -> CommandResult:
        filled = [word.replace("OTHER", str(left.other)).replace("HERE", str(left.directory)) for word in words]
        folders = tuple(next(path for path in (left.folder / host).iterdir()) for host in hosts)
        return kstate(*left.words(*filled, "--dry-run", sources=folders, spec=spec))

    result = run(refusal.options, refusal.sources, spec=refusal.spec)
    assert result.status == refusal.status, result.report
    assert refusal.message in result.error["message"], result.report
    refusal.follow(left)
    again = run(refusal.remedy, refusal.follow_sources)
    assert again.status == 0, again.report


def test_unknown_inputs_need_partitions_in_the_specification(harness: Harness, tmp_path: Path) -> None:
    """No topic of the cluster says how many tasks there are, so the file must."""
    directory = unpack("4.3.1-demo-eos", tmp_path)
    spec = write_spec(directory, tmp_path / "kstate.toml")
    text = spec.read_text()
    spec.write_text(re.sub(r"^partitions = .*\n", "", text, flags=re.MULTILINE))
    words = ["seed", "--from", directory, "--app", "demo-left", "--bootstrap-server", harness.bootstrap, "--spec", spec]
    words += ["--dry-run", "-o", "json", "--no-offsets"]
    for store in ("latest-order", "orders-per-minute", "visits"):
        words += ["--accept", store]
    refusal = kstate(*words)
    assert "set partitions for store" in refusal.error["hint"], refusal.report
    spec.write_text(text)
    mistyped = kstate(*words, "--accept", "vistis")
    assert mistyped.error["hint"] == "did you mean visits? Pass the name of a store with a changelog", mistyped.report
    lacking = kstate(*words)
    assert "the target does not have shop-global" in lacking.error["message"], lacking.report
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    if "shop-global" not in admin.list_topics(timeout=300).topics:
        (future,) = admin.create_topics([NewTopic("shop-global", 2, 1)]).values()
        future.result()
    assert kstate(*words).status == 0
    # A hint about a table names it, so its name is accepted too.
    table = re.search(r'^\[stores\."?([^"\]]+)"?\]\n[^\[]*^changelog = "shop-global"', text, flags=re.MULTILINE)
    assert table is not None
    assert kstate(*words, "--accept", table[1]).status == 0


@dataclass
class Orders:
    """The application of the pages: its directory on two hosts, its input topic and its offsets."""

    harness: Harness
    folder: Path

    def create(self) -> Orders:
        """Unpack the directory, split it, and give the broker what it lacks."""
        for host in ("host1", "host2"):
            (self.folder / "hosts" / host / "state").mkdir(parents=True)
        unpack("4.3.1-demo-eos", self.folder / "hosts" / "host1" / "state")
        shutil.copytree(self.directories[0], self.directories[1])
        shutil.rmtree(self.directories[0] / "0_1")
        shutil.rmtree(self.directories[1] / "0_0")
        admin = AdminClient({"bootstrap.servers": self.harness.bootstrap})
        # The global table is restored from its topic, which the specification names.
        for topic in {"shop-events", "shop-global"} - admin.list_topics(timeout=300).topics.keys():
            (future,) = admin.create_topics([NewTopic(topic, 2, 1)]).values()
            future.result()
        offsets = {0: 29, 1: 51}
        committed = {TopicPartition("shop-events", number): CommittedOffset(at) for number, at in offsets.items()}
        commit_offsets(self.harness.bootstrap, {}, "orders", committed)
        delete_topics(
            self.harness, [topic for topic in admin.list_topics(timeout=300).topics if topic.startswith("orders")]
        )
        return self

    @property
    def directories(self) -> tuple[Path, Path]:
        """The application directories."""
        first, second = (self.folder / "hosts" / host / "state" / "orders" for host in ("host1", "host2"))
        return first, second

    def content(self, app: str) -> dict[str, dict[int, list[Record]]]:
        """The changelogs of an application, by store."""
        stores = ("latest-order", "orders-per-minute", "visits")
        return {store: content(self.harness, f"{app}-{store}-changelog") for store in stores}


@pytest.fixture
def orders(harness: Harness, tmp_path: Path) -> Orders:
    return Orders(harness, tmp_path).create()


def _commands(page: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    return [line.strip() for line in re.findall(r"^ {4,}((?:kstate|mkdir|cp|sed|echo) .*)$", text, flags=re.MULTILINE)]


def test_the_commands_of_the_pages_run_in_order(orders: Orders) -> None:
    """The second page dumps the changelogs that the first one has written."""
    commands = [*_commands("lost-changelog.md"), *_commands("erase-a-person.md")]
    assert len(commands) == 15
    for command in commands:
        for place in ("copies", "hosts", "dump"):
            command = command.replace(f" /{place}", f" {orders.folder}/{place}")
        command = command.replace("broker:9092", orders.harness.bootstrap)
        process = subprocess.run(
            ["bash", "-c", command.replace("kstate ", f"{sys.executable} -m kstate_cli ")], cwd=orders.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        # Exit code 1: the specification has a line to fill in.
        assert process.returncode in ((0, 1) if "--spec >" in command else (0,)), (command, process.stderr)
        if command.startswith("sed"):
            spec = orders.folder / "kstate.toml"
            spec.write_text(re.sub(r"^# source = .*$", 'source = "table"', spec.read_text(), flags=re.MULTILINE))
    lost, erased = orders.content("orders"), orders.content("orders-v2")
    for store, partitions in lost.items():
        for partition, records in partitions.items():
            keys = (b"k0002", b"k0003") if store == "visits" else (b"k0002",)
            assert erased[store][partition] == [r for r in records if not (r[0] or b"").startswith(keys)]
    lines = [
        json.loads(line) for line in (orders.folder / "kstate-seed-orders-v2-erased.jsonl").read_text().splitlines()
    ]
    assert lines[-1]["records"] == sum(
        len(records) - len(erased[store][partition])
        for store, partitions in lost.items()
        for partition, records in partitions.items()
    ) > 0  # fmt: skip


@pytest.mark.parametrize("moments", [30 if ALL else 6])
def test_a_killed_run_writes_the_same_records(orders: Orders, moments: int) -> None:
    first, second = orders.directories
    spec = orders.folder / "kstate.toml"
    write_spec(first, spec)
    spec.write_text(re.sub(r"^partitions = .*\n", "", spec.read_text(), flags=re.MULTILINE))
    words = ["--from", second, "--spec", spec]
    seed(orders.harness, first, orders.folder, "orders-whole", *words)
    expected = orders.content("orders-whole")
    journal = orders.folder / "killed.jsonl"
    arguments = ["seed", "--from", first, *words, "--app", "orders-killed", "--journal", journal]
    command = [
        sys.executable,
        "-m",
        "kstate_cli",
        *map(str, [*arguments, "--bootstrap-server", orders.harness.bootstrap]),
    ]
    chance = random.Random(20261127)
    for _ in range(moments):
        process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(chance.uniform(0.3, 5.0))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert b"Traceback" not in errors, errors
        if journal.exists() and events(journal)[-1:] == ["done"]:
            undone = ["seed", "--undo", "--delete-topics", journal, "--bootstrap-server", orders.harness.bootstrap]
            assert kstate(*undone).status == 0
    assert kstate(*arguments, "--bootstrap-server", orders.harness.bootstrap).status == 0
    assert orders.content("orders-killed") == expected


def test_an_undo_of_lost_changelogs_keeps_the_group(orders: Orders) -> None:
    """The group is that of the application: its offsets were there before."""
    first, second = orders.directories
    spec = orders.folder / "kstate.toml"
    write_spec(first, spec)
    spec.write_text(re.sub(r"^partitions = .*\n", "", spec.read_text(), flags=re.MULTILINE))
    key = TopicPartition("shop-events", 1)
    before = read_committed(orders.harness.bootstrap, {}, "orders", [key])
    seeded = seed(orders.harness, first, orders.folder, "orders", "--from", second, "--spec", spec)
    assert [row for row in seeded.rows if "kstate wipe" in row.get("message", "")]
    undo = ["seed", "--undo", "--delete-topics", orders.folder / "journal-orders.jsonl"]
    undone = kstate(*undo, "--bootstrap-server", orders.harness.bootstrap, "-o", "json")
    assert undone.status == 0, undone.report
    assert len(undone.rows) == 3
    assert read_committed(orders.harness.bootstrap, {}, "orders", [key]) == before
    # The undone run no longer counts.
    partly = seed(orders.harness, first, orders.folder, "orders", "--from", second, "--spec", spec)
    assert partly.summary["written"] > 0
