"""What moves underneath ``kstate dump``: other writers, kills, a full disk, and logs that are not what they were."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Key
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kstate_cli.dump_reader.growing import name_of, render
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_writer.packing import TOGETHER
from kstate_cli.dump_writer.writing import GRACE_SECONDS
from kstate_cli.formats.topic_partition import TopicPartition
from tests.faults.injection import available
from tests.mounts import mounted
from tests.restore.cluster import Cluster

from .broker import Broker
from .dumping import dump, dumped, files_of, newest
from .harness import Harness
from .restoring import CLEANER, CompactingHarness
from .support import ALL, ROOT, kstate

pytestmark = [pytest.mark.interop, pytest.mark.rotating(5)]

_SECONDS = 600
KILLS = 100 if ALL else 6
KILLED = (
    (),
    ("--follow", "0.1"),
    ("--full", "--keep", "2"),
    ("--follow", "0.1"),
    ("--follow", "0.1"),
    ("--follow", "0.1"),
)
_names = (f"moves-{number}" for number in itertools.count(1))
QUICK = ("--workers", "1")


class Topic:
    """A topic of this test's own, and what was produced to it."""

    def __init__(self, bootstrap: str, name: str | None = None, partitions: int = 1, **config: str) -> None:
        self.bootstrap, self.name = bootstrap, name or next(_names)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.create(partitions, **config)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})

    def create(self, partitions: int = 1, **config: str) -> None:
        # One broker serves the tests of many files in an order that nobody fixes: an earlier test may have left the name.
        if self.name in self.admin.list_topics(timeout=_SECONDS).topics:
            self.delete()
        values = {name.replace("_", "."): value for name, value in config.items()}
        (future,) = self.admin.create_topics([NewTopic(self.name, partitions, 1, config=values)]).values()
        future.result()

    def delete(self) -> None:
        (future,) = self.admin.delete_topics([self.name]).values()
        future.result()
        deadline = time.monotonic() + _SECONDS
        while self.name in self.admin.list_topics(timeout=300).topics:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def alter(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        (future,) = self.admin.incremental_alter_configs([resource]).values()
        future.result()

    def delete_before(self, offset: int, partition: int = 0) -> None:
        (future,) = self.admin.delete_records([Key(self.name, partition, offset)]).values()
        future.result()

    def produce(self, count: int, *, keys: int = 50, partition: int = 0, value: bytes | None = b"v" * 40) -> None:
        for number in range(count):
            key = f"k{number % keys:05d}".encode()
            while True:
                try:
                    self._producer.produce(self.name, value, key, partition, headers=[("h", b"1")])
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(_SECONDS) == 0

    def put(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self.name, value, key, 0)
        assert self._producer.flush(_SECONDS) == 0

    def records(self, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
        """What a plain read_committed consumer has."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody", "enable.partition.eof": True,
                             "isolation.level": "read_committed", "auto.offset.reset": "earliest"})  # fmt: skip
        consumer.assign([Key(self.name, partition, 0)])
        results = []
        while True:
            batch = consumer.consume(1000, 1.0)
            results += [(entry.offset(), entry.key(), entry.value()) for entry in batch if entry.error() is None]
            if any(entry.error() is not None for entry in batch):
                break
        consumer.close()
        return results


def rows(out: Path, topic: Topic, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """The same of a dump."""
    return [record[:3] for record in dumped(out)[TopicPartition(topic.name, partition)]]


def call(harness: Harness, out: Path, topic: Topic, *options: object, status: int = 0) -> Any:
    return dump(harness, out, "--topic", topic.name, *QUICK, *options, status=status)


def argv(harness: Harness, out: Path, topic: Topic, *options: str) -> list[str]:
    return [sys.executable, "-m", "kstate_cli", "dump", "--bootstrap-server", harness.bootstrap, "--out", str(out),
            "--engine", "local", *QUICK, "--topic", topic.name, *options]  # fmt: skip


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(names: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not names():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_complete(out: Path) -> None:
    """What a reader takes for the dump is one: every file there, with its size and its digest."""
    read_dump(str(out), complete=False, committed_only=False, check_digests=True)


# --- who else writes --------------------------------------------------------------------------------------------------


def test_first_of_two_writers_wins_and_the_second_leaves_no_file(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(40_000)
    with running(argv(harness, out, topic, "--max-rate", "300K")) as slow:
        until(out.exists)  # it has looked at the dump, and reads
        call(harness, out, topic)
        won = files_of(out) & {file.path for full in newest(out).fulls for file in full.files}
        _, text = slow.communicate(timeout=_SECONDS)
    assert slow.returncode == 5, text
    assert "another process has written generation 1 of the dump" in text and "does not add this run's records" in text
    assert files_of(out) == won
    assert rows(out, topic) == topic.records()
    assert_complete(out)


def test_killed_at_any_moment(harness: Harness, tmp_path: Path) -> None:
    """The next call completes: nothing is doubled, nothing is missing, and at no moment half a dump passes for one."""
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    moments, had = random.Random(15), 0
    began = time.monotonic()
    for number in range(KILLS):
        topic.produce(2_000)
        with running(argv(harness, out, topic, "--max-rate", "300K", *KILLED[number % len(KILLED)])) as process:
            # From the first import to after the commit; --follow makes small files, and joins them.
            moment = time.monotonic() + moments.uniform(0.2, 4.0)
            while time.monotonic() < moment:
                topic.produce(20)
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.wait()
        if list(out.glob("_manifest-*.json")):
            assert_complete(out)
            results = rows(out, topic)
            assert results == topic.records()[: len(results)], number
            assert len(results) >= had, "what one manifest has, those after it have"
            had = len(results)
    remainder = files_of(out)
    call(harness, out, topic)
    assert rows(out, topic) == topic.records()
    assert_complete(out)
    assert time.monotonic() - began < GRACE_SECONDS
    assert remainder <= files_of(out), "what is young may be of a dump that goes on"
    make_older(out)
    (out / f"topic={topic.name}" / "partition=0" / "notes.parquet").write_bytes(b"of somebody else")
    call(harness, out, topic)
    now = newest(out)
    paths = {file.path for full in now.fulls for file in full.files} | {entry.path for entry in now.forgotten}
    assert files_of(out) == paths | {f"topic={topic.name}/partition=0/notes.parquet"}
    assert [path.name for path in out.iterdir() if path.name.startswith("._")] == []
    assert rows(out, topic) == topic.records()
    assert_complete(out)


def make_older(out: Path, subject: str = "*") -> None:
    """As if it had been there for two days."""
    document = json.loads(render(newest(out)))
    document["generation"] += 1
    old = time.time() - 2 * GRACE_SECONDS
    for entry in document["forgotten"]:
        entry["at_ms"] = int(old * 1000)
    (out / name_of(document["generation"])).write_text(json.dumps(document))
    for path in out.rglob(subject):
        os.utime(path, (old, old))


@pytest.mark.sample(2)
@pytest.mark.skipif(not available(), reason="needs strace")
@pytest.mark.parametrize(
    ("call_", "nth", "there"), [("fsync", 2, 0), ("link", 2, 0), ("unlink", 3, 1), ("fsync", 6, 1)]
)
def test_killed_at_the_commit(harness: Harness, tmp_path: Path, call_: str, nth: int, there: int) -> None:
    """Before the manifest has its name there is no dump, and from then on there is a whole one."""
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(30)
    strace = ["strace", "-qq", "-o", str(tmp_path / "log"), "-e", f"trace={call_}",
              "-e", f"inject={call_}:signal=SIGKILL:when={nth}"]  # fmt: skip
    process = subprocess.run(
        [*strace, *argv(harness, out, topic)], cwd=ROOT, capture_output=True, check=False, timeout=300
    )
    assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), (tmp_path / "log").read_text()
    assert len(list(out.glob("_manifest-*.json"))) == there
    if there:
        assert_complete(out)
        assert rows(out, topic) == topic.records()
    call(harness, out, topic)
    assert_complete(out)
    assert rows(out, topic) == topic.records()


def test_max_rate(harness: Harness, tmp_path: Path) -> None:
    topic = Topic(harness.bootstrap)
    topic.produce(30_000)
    result = call(harness, tmp_path / "dump", topic, "--max-rate", "1M")
    assert result.summary["records"] == 30_000
    assert result.summary["seconds"] > 30_000 * 40 / 2**20, "not even the values could have come by then"


@pytest.mark.rotating(4, "long dumps")
def test_on_spark(harness: Harness, tmp_path: Path) -> None:
    """The same tasks, and so the same files: a full there, what is new here."""
    topic, out = Topic(harness.bootstrap, partitions=2), tmp_path / "dump"
    for partition in (0, 1):
        topic.produce(600_000 if partition else 100, partition=partition)
    result = dump(harness, out, "--topic", topic.name, "--master", "local[2,4]", engine="spark")
    assert result.summary["records"] == 600_100
    assert result.summary["files"] >= 3, "more where its time was over before the end of a range"
    topic.produce(50)
    assert call(harness, out, topic).summary["records"] == 50
    for partition in (0, 1):
        assert rows(out, topic, partition) == topic.records(partition)
    assert_complete(out)


@pytest.mark.in_full("tests/interop/test_dump_moves.py::test_on_spark")
def test_on_a_cluster(harness: Harness, tmp_path: Path) -> None:
    """Executors in processes of two workers, which tell no driver how far they are: the same records."""
    topic, out = Topic(harness.bootstrap, partitions=2), tmp_path / "dump"
    for partition in (0, 1):
        topic.produce(600_000 if partition else 100, partition=partition)
    with Cluster(tmp_path, ["127.0.0.1", "localhost"]) as cluster:
        result = dump(harness, out, "--topic", topic.name, "--master", cluster.master, engine="spark")
        assert result.summary["records"] == 600_100
        topic.produce(50)
        more = dump(harness, out, "--topic", topic.name, "--master", cluster.master, engine="spark")
        assert more.summary["records"] == 50
    for partition in (0, 1):
        assert rows(out, topic, partition) == topic.records(partition)
    assert_complete(out)


def test_a_full_disk(harness: Harness, tmp_path: Path) -> None:
    topic = Topic(harness.bootstrap)
    topic.produce(500)
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=1m", "none") as small:
        out = small / "dump"
        call(harness, out, topic)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for _ in range(2_000):
            topic._producer.produce(topic.name, os.urandom(1_000), b"large", 0)
        assert topic._producer.flush(_SECONDS) == 0
        failed = call(harness, out, topic, status=6)
        assert "the disk is full" in failed.err and "he dump is unchanged" in failed.err
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
        subprocess.run(["mount", "-o", "remount,size=16m", str(small)], check=True)
        call(harness, out, topic)
        assert rows(out, topic) == topic.records()


def on_its_own(out: Path, topic: Topic) -> tuple[str, ...]:
    """The call, for a broker of the test's own, whose address comes last."""
    return ("dump", "--out", str(out), "--engine", "local", "--topic", topic.name, *QUICK, "--bootstrap-server")


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        topic, out = Topic(broker.bootstrap), tmp_path / "dump"
        topic.produce(100)
        command = on_its_own(out, topic)
        result = kstate(*command, broker.bootstrap)
        assert result.status == 0, result.report
        broker.stop()
        missing = kstate(*command, broker.bootstrap)
        assert (
            missing.status == 6 and f"{broker.bootstrap} does not respond" in missing.err and "refused" in missing.err
        )
        assert len(files_of(out)) == 1
        assert_complete(out)


@pytest.mark.in_full
def test_a_broker_that_goes_away(tmp_path: Path) -> None:
    """In the middle of a call: it waits 45 s for it; the dump is as it was then, and the next call goes on."""
    with Broker(tmp_path / "broker") as broker:
        topic, out = Topic(broker.bootstrap), tmp_path / "dump"
        topic.produce(100)
        command = on_its_own(out, topic)
        result = kstate(*command, broker.bootstrap)
        assert result.status == 0, result.report
        first = files_of(out)
        topic.produce(10_000, value=os.urandom(2_000))  # more than the client fetches ahead
        records = topic.records()
        with running([sys.executable, "-m", "kstate_cli", *command, broker.bootstrap, "--max-rate", "2M"]) as slow:
            assert slow.stderr is not None
            assert "at most 10,000 records" in slow.stderr.readline()
            broker.stop()
            _, text = slow.communicate(timeout=2 * _SECONDS)
        assert slow.returncode == 6, text
        assert "no record has arrived for 10 s. After 45 s without data from the broker, the command fails" in text
        assert f"of {topic.name}:0" in text and "run the command again" in text
        assert files_of(out) == first, "what was half read is gone"
        assert_complete(out)
        broker.start()
        again = kstate(*command, broker.bootstrap)
        assert again.status == 0, again.report
        assert rows(out, topic) == records
        assert_complete(out)


def test_follow(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(10)
    metrics = tmp_path / "dump.prom"
    success = 'kstate_last_success_timestamp_seconds{application="dump",command="dump"} '
    report_times = []
    words = argv(harness, out, topic, "--follow", "0.3", "-o", "json", "--metrics-file", str(metrics))
    with running(words) as process:
        for count in range(1, 6):
            until(lambda count=count: list(out.glob("_manifest-*.json")) and len(rows(out, topic)) == count * 10)  # type: ignore[misc]
            until(metrics.exists)
            (line,) = [line for line in metrics.read_text().splitlines() if line.startswith(success)]
            report_times.append(float(line.removeprefix(success)))
            topic.produce(10)
        process.send_signal(signal.SIGTERM)
        messages, _ = process.communicate(timeout=_SECONDS)
    lines = [json.loads(line) for line in messages.splitlines()]
    assert process.returncode == 128 + signal.SIGTERM
    assert report_times == sorted(report_times) and report_times[0] < report_times[-1], (
        "each round tells when it was done"
    )
    ended = metrics.read_text()
    assert f'kstate_last_run_exit_code{{application="dump",command="dump"}} {128 + signal.SIGTERM}.0' in ended
    assert success in ended and "kstate_bytes_pinned{" not in ended
    assert {line["type"] for line in lines[:-1]} == {"round"} and lines[-1]["type"] == "error"
    assert sum(1 for line in lines if line.get("records")) >= 5
    call(harness, out, topic)
    assert rows(out, topic) == topic.records()


def test_small_files_are_joined_and_fulls_dropped(harness: Harness, tmp_path: Path) -> None:
    """A reader of an earlier manifest still finds what that named; a day later it is gone."""
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    key = TopicPartition(topic.name, 0)
    with running(argv(harness, out, topic, "--follow", "0.1", "-o", "json")) as process:
        for count in range(1, TOGETHER + 4):
            topic.produce(3)
            until(lambda count=count: list(out.glob("_manifest-*.json")) and len(rows(out, topic)) == count * 3)  # type: ignore[misc]
            if count == TOGETHER - 1:
                reader = read_dump(str(out), complete=False, committed_only=False)
        process.send_signal(signal.SIGTERM)
        messages, _ = process.communicate(timeout=_SECONDS)
    assert sum(json.loads(line).get("joined", 0) for line in messages.splitlines()) == TOGETHER
    assert rows(out, topic) == topic.records()
    full = newest(out).newest()[key]
    assert len(full.files) == 4 and len(full.ranges) == 2, "the first one says how long the full took"
    assert newest(out).forgotten == (), "a list of what is young would grow with rounds"
    for piece in reader.partitions[key].pieces:
        assert Path(piece.path).exists()
    assert_complete(out)

    rebuild = call(harness, out, topic, "--full", "--keep", "1", status=0)
    assert (rebuild.rows[0]["dumped"], rebuild.rows[0]["start"], rebuild.summary["dropped"]) == ("full", 0, 1)
    assert [full.began for full in newest(out).fulls] == [newest(out).generation]
    assert newest(out).forgotten == ()
    call(harness, out, topic)
    assert len(files_of(out)) == 1 + TOGETHER + 3
    make_older(out, "*.parquet")
    assert call(harness, out, topic).summary["removed"] == TOGETHER + 3
    call(harness, out, topic)
    assert newest(out).forgotten == () and len(files_of(out)) == 1
    assert rows(out, topic) == topic.records()
    assert_complete(out)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(30)
    planned = call(harness, out, topic, "--dry-run")
    assert not out.exists()
    assert (planned.summary["records"], planned.summary["executed"], planned.summary["generation"]) == (30, False, None)
    assert (planned.summary["files"], planned.summary["bytes"], planned.rows[0]["bytes"]) == (1, None, None)
    first = call(harness, out, topic).summary
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    topic.produce(7)
    planned = call(harness, out, topic, "--dry-run")
    assert planned.summary["records"] == 7
    assert planned.summary["bytes"] == planned.rows[0]["bytes"] == round(7 * first["bytes"] / 30), "as what there is"
    assert call(harness, out, topic, "--dry-run", "--full").summary["bytes"] == round(37 * first["bytes"] / 30)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_changelogs_of_another_application_are_named(harness: Harness, tmp_path: Path) -> None:
    app, out = next(_names), tmp_path / "dump"
    topics = {name: Topic(harness.bootstrap, f"{app}-{name}-changelog") for name in ("count", "2-count", "3-count")}
    Topic(harness.bootstrap, f"{app}-count-repartition")
    Topic(harness.bootstrap, f"{app}x-count-changelog")
    consumer = Consumer({"bootstrap.servers": harness.bootstrap, "group.id": f"{app}-2"})
    consumer.commit(offsets=[Key(topics["2-count"].name, 0, 0)], asynchronous=False)
    consumer.close()
    result = dump(harness, out, "--app", app, *QUICK, status=1)
    assert {key.topic for key in newest(out).newest()} == {topics["count"].name, topics["3-count"].name}
    (warning,) = [row["message"] for row in result.rows if row["type"] == "warning"]
    assert (
        f"kstate does not dump {app}-2-count-changelog, because it seems to belong to the application {app}-2"
        in warning
    )
    dump(harness, out, "--app", app, "--topic", topics["2-count"].name, *QUICK)
    assert {key.topic for key in newest(out).newest()} == {topic.name for topic in topics.values()}
    refusal = dump(harness, out, "--app", f"{app}-nobody", *QUICK, status=2)
    assert "the broker has no changelog with this prefix" in refusal.err
    dump(harness, out, "--topic", "no-such-topic", *QUICK, status=2)


def test_nothing_else_is_written_to(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    refusal = call(harness, out, topic, status=4)
    assert "thesis.tex" in refusal.err and [path.name for path in out.iterdir()] == ["thesis.tex"]
    (out / "thesis.tex").rename(out / "_manifest.json")
    assert "cannot add records" in call(harness, out, topic, status=4).err


# --- what becomes of the log ------------------------------------------------------------------------------------------


def warnings_of(result: Any) -> list[str]:
    return [row["message"] for row in result.rows if row["type"] == "warning"]


def begins_anew(harness: Harness, out: Path, topic: Topic, why: str) -> None:
    """The next call says why, begins a full beside the old one, and keeps what there was."""
    key = TopicPartition(topic.name, 0)
    before, old = newest(out).newest()[key], files_of(out)
    (warning,) = warnings_of(call(harness, out, topic, status=1))
    assert why in warning and "kstate starts a new full dump" in warning
    after = newest(out).newest()[key]
    assert after.began == newest(out).generation > before.began
    assert before in newest(out).fulls and old <= files_of(out)
    assert rows(out, topic) == topic.records()
    assert_complete(out)
    assert warnings_of(call(harness, out, topic)) == []
    assert newest(out).newest()[key].began == after.began


def test_a_gap(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap, cleanup_policy="compact,delete"), tmp_path / "dump"
    topic.produce(20)
    call(harness, out, topic)
    topic.produce(20)
    topic.delete_before(20)
    begins_anew(
        harness,
        out,
        topic,
        "cannot check whether this is the log that it read before, because the log no longer has the last 16 records "
        "that kstate read",
    )
    topic.produce(20)
    topic.delete_before(30)
    assert warnings_of(call(harness, out, topic)) == [], "it begins below the end of the dump: nothing is missing"
    topic.produce(20)
    topic.delete_before(70)
    assert newest(out).newest()[TopicPartition(topic.name, 0)].end == 60
    begins_anew(harness, out, topic, "records are missing: the log begins at 70, but kstate had read only up to 60")


def test_a_topic_made_anew(harness: Harness, tmp_path: Path) -> None:
    """With fewer partitions: the one that is no more is no part of what is restored."""
    topic, out = Topic(harness.bootstrap, partitions=2), tmp_path / "dump"
    for partition in (0, 1):
        topic.produce(20, partition=partition)
    call(harness, out, topic)
    topic.delete()
    topic.create()
    topic.produce(30)
    result = call(harness, out, topic, status=1)
    assert any("the topic was recreated" in line for line in warnings_of(result))
    assert any(f"{topic.name}:1: the topic no longer has this partition" in line for line in warnings_of(result))
    assert rows(out, topic) == topic.records()
    assert {str(key) for key in read_dump(str(out), complete=False, committed_only=False).partitions} == {
        f"{topic.name}:0"
    }
    assert len(newest(out).fulls) == 3


def test_an_open_transaction(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(10)
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(_SECONDS)
    for ends in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic.name, b"v", str(number).encode(), 0)
        producer.flush(_SECONDS)
        topic.produce(5)
        before = [] if not out.exists() else rows(out, topic)
        result = kstate("dump", "--bootstrap-server", harness.bootstrap, "--out", out, "--engine", "local", *QUICK,
                      "--topic", topic.name)  # fmt: skip
        assert result.status == 0, result.report
        end = newest(out).newest()[TopicPartition(topic.name, 0)].end
        assert (
            f"a transaction is open, so the next run reads the records after it: {topic.name}:0 at {end}" in result.err
        )
        assert rows(out, topic) == topic.records() and len(rows(out, topic)) >= len(before)
        ends(_SECONDS)
    last = call(harness, out, topic)
    assert last.rows[0]["open_from"] is None
    assert rows(out, topic) == topic.records()
    assert len(rows(out, topic)) == 10 + 5 + 5 + 5


def test_a_transaction_that_stays_open(harness: Harness, tmp_path: Path) -> None:
    """What it holds back is in JSON and metrics too; and a second call that finds it open still, warns in all three."""
    topic, out, metrics = Topic(harness.bootstrap), tmp_path / "dump", tmp_path / "dump.prom"
    topic.produce(10)
    producer = Producer(
        {"bootstrap.servers": harness.bootstrap, "transactional.id": topic.name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.produce(topic.name, b"v", b"open", 0)
    producer.flush(_SECONDS)
    topic.produce(50)
    gauge = 'kstate_held_back_offsets{application="dump",command="dump"}'
    warned = 'kstate_warnings{application="dump",command="dump"}'
    first = call(harness, out, topic, "--metrics-file", metrics)
    assert (first.rows[0]["held_back"], first.summary["held_back"]) == (51, 51)
    (note,) = [row["message"] for row in first.rows if row["type"] == "note"]
    assert (
        note == f"a transaction is open, so the next run reads the records after it: {topic.name}:0 at 10 (51 offsets)"
    )
    assert f"{gauge} 51.0" in metrics.read_text() and f"{warned} 0.0" in metrics.read_text()
    assert newest(out).newest()[TopicPartition(topic.name, 0)].held_back == 51
    second = call(harness, out, topic, "--metrics-file", metrics, status=1)
    (warning,) = warnings_of(second)
    assert (
        "was already open during the previous run and is holding back 51 offsets" in warning and warning in second.err
    )
    assert f"{warned} 1.0" in metrics.read_text()
    producer.abort_transaction(_SECONDS)
    third = call(harness, out, topic)
    assert third.summary["held_back"] == 0 and not [row for row in third.rows if row["type"] == "note"]


@pytest.mark.rotating(1)
def test_another_record_at_the_same_offset(harness: Harness, tmp_path: Path) -> None:
    """An unclean election cuts a log, which then grows again: only the record itself tells."""
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(20)
    call(harness, out, topic)
    facts = newest(out)
    content = json.loads(render(facts))
    content["generation"] += 1
    content["fulls"][0]["last"]["sha256"] = "0" * 64
    content["fulls"][0]["tail"][-1][1] = "0" * 16
    (out / name_of(facts.generation + 1)).write_text(json.dumps(content))
    topic.produce(20)
    begins_anew(harness, out, topic, "the log was replaced: the record at offset 19 has changed")


def test_a_topic_that_is_recreated_while_it_is_read(harness: Harness, tmp_path: Path) -> None:
    """No file has records of both: what was read of the first one is not part of the dump."""
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(6_000, value=b"first" * 200)
    with running(argv(harness, out, topic, "--max-rate", "2M", "-o", "json")) as slow:
        assert slow.stderr is not None
        assert "at most 6,000 records" in slow.stderr.readline()
        topic.delete()
        topic.create()
        topic.produce(9_000, value=b"second")
        messages, text = slow.communicate(timeout=3 * _SECONDS)
    assert slow.returncode == 1, text
    warnings = [line["message"] for line in map(json.loads, messages.splitlines()) if line["type"] == "warning"]
    assert any(
        "the log changed while kstate was reading it (the topic was recreated (id " in warning for warning in warnings
    ), warnings
    assert rows(out, topic) == topic.records()
    assert {value for _, _, value in rows(out, topic)} == {b"second"}
    assert_complete(out)


def test_a_partition_that_is_added_while_it_is_read(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(4_000, value=b"first" * 200)
    with running(argv(harness, out, topic, "--max-rate", "2M", "-o", "json")) as slow:
        assert slow.stderr is not None
        assert "at most 4,000 records" in slow.stderr.readline()
        (future,) = topic.admin.create_partitions([NewPartitions(topic.name, 2)]).values()
        future.result()
        messages, text = slow.communicate(timeout=3 * _SECONDS)
    assert slow.returncode == 1, text
    (warning,) = [line["message"] for line in map(json.loads, messages.splitlines()) if line["type"] == "warning"]
    assert f"{topic.name}:1: the partition was added while kstate was reading" in warning
    assert len(newest(out).newest()) == 1
    call(harness, out, topic)
    assert len(newest(out).newest()) == 2


class KeptBroker:
    """A broker of the test's own whose disk is copied, and restored from that copy: the same ids, another tail."""

    def __init__(self, broker: Broker, copy: Path) -> None:
        self._broker, self._copy = broker, copy

    @property
    def _data(self) -> Path:
        return self._broker.folder / "data"

    def copy(self) -> None:
        self._broker.stop()
        shutil.copytree(self._data, self._copy)
        self._broker.start()

    def restore(self) -> None:
        self._broker.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self._broker.start()


@pytest.mark.in_full("tests/interop/test_dump_moves.py::test_another_record_at_the_same_offset")
def test_a_broker_disk_that_was_restored(tmp_path: Path) -> None:
    """The same topic id, and the last record that was read is compacted away: other records differ, or are missing."""
    out, name = tmp_path / "dump", "restored-disk"
    with Broker(tmp_path / "broker", properties=CLEANER) as broker:
        disk = KeptBroker(broker, tmp_path / "copy")
        topic = Topic(
            broker.bootstrap, name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
        )
        topic.put(b"base", b"1")
        disk.copy()
        topic = _again(broker, name)
        for number in range(3):
            topic.put(b"lost-%d" % number, b"of the log that is lost")
        topic.put(b"hot", b"1")
        first = kstate(*on_its_own(out, topic), broker.bootstrap)
        assert first.status == 0, first.report
        disk.restore()
        topic = _again(broker, name)
        for number in range(5):
            topic.put(b"hot", b"%d" % number)
        deadline = time.monotonic() + 2 * _SECONDS
        while any(1 <= offset <= 4 for offset, _, _ in topic.records()):
            assert time.monotonic() < deadline
            topic.put(b"hot", b"again")  # begins segments: only what is not the newest is compacted
            time.sleep(0.5)
        second = kstate(*on_its_own(out, topic), broker.bootstrap)
        assert second.status == 1, second.report
        assert "kstate starts a new full dump" in second.err, second.report
        assert rows(out, topic) == topic.records()
        assert not any(key is not None and key.startswith(b"lost") for _, key, _ in rows(out, topic))


def _again(broker: Broker, name: str) -> Topic:
    """The topic of a broker that has started again, at another address, once it has it."""
    topic = object.__new__(Topic)
    topic.bootstrap, topic.name = broker.bootstrap, name
    topic.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    until(lambda: name in topic.admin.list_topics(timeout=300).topics)
    topic._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
    return topic


def test_a_log_that_was_cut(harness: Harness, tmp_path: Path) -> None:
    topic, out = Topic(harness.bootstrap), tmp_path / "dump"
    topic.produce(20)
    call(harness, out, topic)
    topic.produce(20)
    call(harness, out, topic)
    document = json.loads(render(newest(out)))
    document["generation"] += 1
    document["fulls"][0]["log_end"] = document["fulls"][0]["ranges"][-1]["end"] = 45
    (out / name_of(document["generation"])).write_text(json.dumps(document))
    begins_anew(harness, out, topic, "the log was truncated: it ends at 40, but kstate had read up to 45")


RETENTION = "10000"
LONGER = "600000"


@pytest.mark.in_full("tests/loop/test_loop.py::test_five_hundred_keys_that_come_back")
def test_no_deleted_key_comes_back(tmp_path: Path) -> None:
    """A tombstone that the cleaner has removed by the time of the next call: what the dump has would keep its key."""
    with CompactingHarness() as harness:
        topic, out = (
            Topic(harness.bootstrap, cleanup_policy="compact", delete_retention_ms=LONGER, segment_ms="100",
                  min_cleanable_dirty_ratio="0.01"),
            tmp_path / "dump",
        )  # fmt: skip
        topic.put(b"deleted", b"1")
        topic.put(b"kept", b"1")
        call(harness, out, topic)
        topic.put(b"deleted", None)
        # Soon enough: it is heard of, and the dump goes on.
        topic.put(b"kept", b"2")
        assert warnings_of(call(harness, out, topic)) == []
        assert (b"deleted", None) in [row[1:] for row in rows(out, topic)]
        topic.put(b"deleted", b"2")
        assert warnings_of(call(harness, out, topic)) == []
        # From now on tombstones are gone ten seconds after the cleaner has come by.
        topic.alter("delete.retention.ms", RETENTION)
        topic.put(b"deleted", None)
        deadline = time.monotonic() + 300
        while any(key == b"deleted" for _, key, _ in topic.records()):
            assert time.monotonic() < deadline
            topic.put(b"kept", b"3")  # begins segments: only what is not the newest is compacted
            time.sleep(1)
        continued = {key: value for _, key, value in [*rows(out, topic), *topic.records()]}
        assert continued[b"deleted"] == b"2", "a dump that went on would bring it back"
        begins_anew(harness, out, topic, "tombstones may be missing, because kstate last read the log ")
        assert all(key != b"deleted" for _, key, _ in rows(out, topic))
