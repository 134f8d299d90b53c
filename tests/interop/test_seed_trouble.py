"""``kstate seed`` and a broker in trouble: it ends with a reason and no traceback, and the same command continues."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from kstate_cli.broker.settings import client_settings
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.records import Record, RecordBatch
from kstate_cli.seed.writing import seed_producer

from .broker import Broker
from .harness import Harness
from .seeding import Source, content
from .support import ALL, kstate
from .test_dump_rights import ACL_PROPERTIES, SECRET, grant, settings

pytestmark = [pytest.mark.interop, pytest.mark.rotating(3)]

RECORDS = 60_000
_FILE_BYTES = 1 << 20
"""Less than a partition of the new changelog has: the broker's file system refuses what follows."""


class OwnBroker(Harness):
    """A harness whose broker can be stopped and started again, with its data."""

    def __init__(self, folder: Path, properties: str = "") -> None:
        super().__init__(folder, properties)
        self.pid = 0

    def __enter__(self) -> OwnBroker:
        """Start it."""
        self.restart()
        return self

    def restart(self) -> None:
        """Start the broker again: on another port."""
        if self._broker is not None:
            self._broker.stop()
        self._broker = Broker(self.folder / "broker", properties=self._properties, version=self._version)
        self.pid = self._broker.start()

    def stop(self) -> None:
        """Kill the broker."""
        assert self._broker is not None
        self._broker.stop()


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[OwnBroker]:
    with OwnBroker(tmp_path / "broker") as started:
        yield started


def _kill(broker: OwnBroker) -> None:
    broker.stop()


def _fill(broker: OwnBroker) -> None:
    # No file may grow beyond it: the broker gets the error of a full disk from each write, and stops.
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))


@pytest.mark.sample(1)
@pytest.mark.parametrize("harm", [_kill, _fill])
def test_a_broker_that_stops(trouble: OwnBroker, tmp_path: Path, harm: Callable[[OwnBroker], None]) -> None:
    source = Source(trouble, tmp_path, "trouble").create(RECORDS // 2, 5_000)
    expected = content(trouble, source.changelog)
    (tmp_path / "client.properties").write_text("socket.timeout.ms=4000\ntransaction.timeout.ms=8000\n")
    words = source.words("--kafka-settings", tmp_path / "client.properties")
    if harm is _fill:
        harm(trouble)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kstate_cli", *map(str, words)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while process.poll() is None and "created" not in _text(source.journal) and time.monotonic() < deadline:
        time.sleep(0.01)
    if harm is _kill:
        harm(trouble)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 6, (out, errors)
    assert "Traceback" not in errors, errors
    # The broker's own state, and not the client's reference to reports that no user can see.
    assert "individual delivery reports" not in errors, errors
    assert "then run the same command again" in errors or "check the address" in errors, errors
    trouble.restart()
    source.seed("--kafka-settings", tmp_path / "client.properties")
    assert content(trouble, f"{source.new}-count-changelog") == expected


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_second_run_takes_over(harness: Harness, tmp_path: Path) -> None:
    source = Source(harness, tmp_path, "fenced")
    source.topic("fenced-topic", 1)
    cluster, key = Connection(harness.bootstrap, {}), TopicPartition("fenced-topic", 0)
    batch = RecordBatch.of([Record(b"k", b"v", 1, [])])
    with (
        pytest.raises(RunFailed, match="another run with the same --app has started to write"),
        seed_producer(cluster, "f") as first,
    ):
        first.send(key, batch)
        with seed_producer(cluster, "f") as second:
            second.send(key, batch)
            second.commit()
        first.commit()
    assert len(content(harness, "fenced-topic")[0]) == 1
    # Sending fails too, once the client has noticed it.
    with (
        pytest.raises(RunFailed, match="another run with the same --app has started to write"),
        seed_producer(cluster, "f") as first,
    ):
        first.send(key, batch)
        with seed_producer(cluster, "f"):
            pass
        while True:
            first.send(key, batch)
            time.sleep(0.1)


_ABORTED_SOON = "transaction.abort.timed.out.transaction.cleanup.interval.ms=200"


def test_a_long_pause_between_records(tmp_path: Path) -> None:
    """The sort of a large store may take longer than the broker waits for the end of a transaction."""
    with OwnBroker(tmp_path / "broker", _ABORTED_SOON) as broker:
        source = Source(broker, tmp_path, "pause")
        source.topic("pause-topic", 1)
        cluster = Connection(broker.bootstrap, {"transaction.timeout.ms": "3000"})
        key = TopicPartition("pause-topic", 0)
        with seed_producer(cluster, "p") as producer:
            for number in range(3):
                producer.send(key, RecordBatch.of([Record(b"k%d" % number, b"v", 1, [])]))
                time.sleep(6)
            producer.commit()
        assert len(content(broker, "pause-topic")[0]) == 3


def test_an_undo_without_describe_keeps_the_run(tmp_path: Path) -> None:
    """The broker lists no topic that the user may not describe, as if it had been deleted."""
    with OwnBroker(tmp_path / "broker", ACL_PROPERTIES) as broker:
        admin_file = settings(tmp_path, "admin", "admin")
        source = Source(broker, tmp_path, "rights", client=client_settings(admin_file)).create()
        source.seed("--source-app", source.app, "--kafka-settings", admin_file)
        journal = source.journal.read_text()
        undo = [
            "seed",
            "--undo",
            "--delete-topics",
            source.journal,
            "--bootstrap-server",
            broker.bootstrap,
            "-o",
            "json",
        ]
        refusal = kstate(*undo, "--kafka-settings", settings(tmp_path, "backup", SECRET))
        assert refusal.status == 6, refusal.report
        assert f"grant Describe on the topic {source.new}-count-changelog" in refusal.error["hint"], refusal.report
        assert source.journal.read_text() == journal
        assert kstate(*undo, "--kafka-settings", admin_file).status == 0


@pytest.mark.skipif(not ALL, reason="fifteen calls of kstate on a broker of its own")
def test_rights_that_are_missing_are_named_and_the_run_continues(tmp_path: Path) -> None:
    """Each missing right ends the run with its name. Once all are granted, the same command completes it."""
    with OwnBroker(tmp_path / "broker", ACL_PROPERTIES) as broker:
        admin_settings = client_settings(settings(tmp_path, "admin", "admin"))
        source = Source(broker, tmp_path, "rights", client=admin_settings)
        source.create()
        admin = AdminClient({**admin_settings, "bootstrap.servers": broker.bootstrap})
        words = source.words("--source-app", source.app, "--kafka-settings", settings(tmp_path, "backup", SECRET))
        new = f"{source.new}-count-changelog"
        to_describe = f"grant Describe and DescribeConfigs on {new}, then run"
        write = f"grant Write on the changelogs and on the transactional id kstate-seed-{source.new}, then run the same"
        # What the hint names is what the next step grants. Without Describe the changelog and the input topic of the
        # source would not exist for this user, so kstate would name something else.
        admin_rights = [
            (ResourceType.TOPIC, source.changelog, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, source.changelog, AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.TOPIC, f"{source.app}-in", AclOperation.DESCRIBE),
        ]
        for right in admin_rights:
            grant(admin, *right)
        rights = [
            (
                (ResourceType.GROUP, source.app, AclOperation.DESCRIBE),
                f"grant Describe on the group {source.app}, then",
            ),
            (
                (ResourceType.GROUP, source.new, AclOperation.DESCRIBE),
                f"grant Describe on the group {source.new}, then",
            ),
            ((ResourceType.TOPIC, new, AclOperation.CREATE), "grant Create on the topic or the cluster, then run"),
            # The topic exists from now on, but this user cannot see it.
            (None, to_describe),
            ((ResourceType.TOPIC, new, AclOperation.DESCRIBE), to_describe),
            (
                (ResourceType.TOPIC, new, AclOperation.DESCRIBE_CONFIGS),
                f"grant DescribeConfigs on the topic {new}, then",
            ),
            ((ResourceType.TRANSACTIONAL_ID, f"kstate-seed-{source.new}", AclOperation.WRITE), write),
            ((ResourceType.TOPIC, new, AclOperation.WRITE), write),
            ((ResourceType.TOPIC, new, AclOperation.READ), "grant Read on the topics, then run the same command again"),
            ((ResourceType.TOPIC, new, AclOperation.ALTER_CONFIGS), "grant AlterConfigs on the topic, then run"),
            ((ResourceType.GROUP, source.new, AclOperation.READ), "Read permission on the group and its topics"),
            (
                (ResourceType.TOPIC, f"{source.app}-in", AclOperation.READ),
                "Read permission on the group and its topics",
            ),
        ]
        for number, (required, hint) in enumerate(rights):
            result = kstate(*words)
            assert result.status == 6, (number, required, result.report)
            assert hint in result.error["hint"], (number, required, result.report)
            assert SECRET not in result.report
            if required is not None:
                grant(admin, *required)
        result = kstate(*words)
        assert result.status == 0, result.report
        assert result.summary["records"] == 400
