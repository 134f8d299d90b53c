"""Hints of commands that ask a broker, carried out: what they name lets the command do its work, and nothing is lost."""

from __future__ import annotations

import re
import shlex
import shutil
import threading
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.restore.support import APP, SPEC, TOPIC

from .dumping import dumped
from .harness import Harness
from .support import kstate
from .test_dump_moves import QUICK, Topic, rows

pytestmark = [pytest.mark.interop, pytest.mark.rotating(3)]


@pytest.fixture
def topic(harness: Harness) -> Topic:
    """The changelog of the application of the specification, new for each test."""
    return Topic(harness.bootstrap, TOPIC, partitions=2, cleanup_policy="compact")


def printed_words(messages: str, **arguments: str) -> list[str]:
    """The words of the last command that a hint prints, with what stands for a value replaced."""
    line = re.findall(r"^    kstate (.*)$", messages, flags=re.MULTILINE)[-1]
    return [arguments.get(word, word) for word in shlex.split(line)]


def test_hints_about_topics_and_bootstrap_servers(harness: Harness, topic: Topic, tmp_path: Path) -> None:
    topic.produce(10)
    out = ("--out", tmp_path / "dump", "--engine", "local", *QUICK)
    refusal = kstate("dump", "--bootstrap-server", harness.bootstrap, *out)
    assert refusal.status == 2 and "pass --app ID, --spec FILE, or --topic TOPIC" in refusal.err, refusal.report
    refusal = kstate("dump", "--bootstrap-server", "127.0.0.1:9", *out, "--topic", topic.name)
    assert refusal.status == 6 and "check the address" in refusal.err, refusal.report
    settings = tmp_path / "kafka.properties"
    settings.write_text("no.such.setting=1\n")
    words = ("dump", "--bootstrap-server", harness.bootstrap, *out, "--topic", topic.name, "--kafka-settings", settings)
    refusal = kstate(*words)
    assert refusal.status == 2 and "--kafka-settings" in refusal.err, refusal.report
    settings.write_text("client.id=test\n")
    assert kstate(*words).status == 0
    (tmp_path / "kstate.toml").write_text(SPEC)
    for text in (("--app", APP), ("--spec", tmp_path / "kstate.toml")):
        result = kstate("dump", "--bootstrap-server", harness.bootstrap, *out, *text)
        assert result.status == 0, result.report


def test_a_file_of_a_dump_that_is_lost(harness: Harness, topic: Topic, tmp_path: Path) -> None:
    """It is copied again from another copy, or a new dump begins elsewhere, and the old one keeps its records."""
    topic.produce(100, keys=100)
    words = (
        "dump",
        "--bootstrap-server",
        harness.bootstrap,
        "--engine",
        "local",
        *QUICK,
        "--topic",
        topic.name,
        "--out",
    )
    assert kstate(*words, tmp_path / "dump").status == 0
    copy = shutil.copytree(tmp_path / "dump", tmp_path / "copy")
    (file,) = (tmp_path / "dump").rglob("*.parquet")
    file.unlink()
    topic.produce(5)
    refusal = kstate(*words, tmp_path / "dump")
    assert refusal.status == 4 and "copy this file from another copy" in refusal.err and "--out" in refusal.err, (
        refusal.report
    )
    assert kstate(*words, tmp_path / "new").status == 0
    assert len(dumped(tmp_path / "new")[TopicPartition(topic.name, 0)]) == 105
    shutil.copy(copy / file.relative_to(tmp_path / "dump"), file)
    assert kstate(*words, tmp_path / "dump").status == 0
    assert len(dumped(tmp_path / "dump")[TopicPartition(topic.name, 0)]) == 105


def test_rot_and_a_dump_that_does_not_grow(harness: Harness, topic: Topic, tmp_path: Path) -> None:
    """The printed command adds a new full dump, from which the application is restored; or makes one that grows."""
    for partition in (0, 1):
        topic.produce(50, partition=partition, keys=50)
    dump = tmp_path / "dump"
    (tmp_path / "kstate.toml").write_text(SPEC)
    more = ("--engine", "local", *QUICK)
    assert kstate("dump", "--bootstrap-server", harness.bootstrap, "--app", APP, "--out", dump, *more).status == 0
    file = min(dump.rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)
    (tmp_path / "state").mkdir()
    restore = ("restore", tmp_path / "state" / APP, "--from-changelog", dump, "--spec", tmp_path / "kstate.toml", "--for", "4.3",
               "--engine", "local", "--verify-dump")  # fmt: skip
    refusal = kstate(*restore)
    assert refusal.status == 4, refusal.report
    verified = kstate("verify-dump", dump)
    assert verified.status == 3, verified.report
    followed = kstate(*printed_words(verified.err, **{"HOST:PORT": harness.bootstrap, "ID": APP}), *more)
    assert followed.status in (0, 1), followed.report
    result = kstate(*restore)
    assert result.status in (0, 1), result.report

    plain = tmp_path / "plain"
    shutil.copytree(dump, plain)
    for manifest in plain.glob("_*"):
        manifest.unlink()
    shutil.rmtree(tmp_path / "state" / APP)
    follow = [*restore[:-1], "--standby", "--follow", "1", "--dump-is-complete", "--dump-is-committed"]
    follow[3] = plain
    refusal = kstate(*follow)
    assert refusal.status == 4 and "follow a dump that you update with this command:" in refusal.err, refusal.report
    arguments = {"HOST:PORT": harness.bootstrap, "ID": APP, "DUMP": str(tmp_path / "grows")}
    assert kstate(*printed_words(refusal.err, **arguments), *more).status == 0
    follow = [*restore[:-1], "--standby"]
    follow[3], follow[1] = tmp_path / "grows", tmp_path / "standby" / APP
    (tmp_path / "standby").mkdir()
    result = kstate(*follow)
    assert result.status in (0, 1), result.report


def test_a_log_that_changes_again_and_again(harness: Harness, tmp_path: Path) -> None:
    """Once its records stay, or with more `--workers`, the command reads all of it."""
    partitions, records = 6, 500
    topic = Topic(harness.bootstrap, partitions=partitions)
    for partition in range(partitions):
        topic.produce(records, partition=partition, value=b"v" * 1_000)
    words = ("dump", "--bootstrap-server", harness.bootstrap, "--engine", "local", "--topic", topic.name)
    ended = threading.Event()

    def delete() -> None:
        # One process reads one partition after the other: the first records of the later ones are deleted by then.
        for offset in range(1, records // 2):
            if not ended.wait(0.2):
                for partition in range(partitions):
                    topic.delete_before(offset, partition)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        out = tmp_path / "dump"
        refusal = kstate(*words, "--out", out, "--workers", "1", "--max-rate", "500K")
    finally:
        ended.set()
        thread.join()
    if refusal.status == 0:
        pytest.skip("this machine deleted more slowly")
    assert refusal.status == 6 and "keeps changing while kstate reads it" in refusal.err, refusal.report
    assert "find out what deletes its records. To read faster, pass more --workers" in refusal.err, refusal.report
    assert not [*out.rglob("_manifest*")], "nothing of a log that changed counts"
    result = kstate(*words, "--out", out, "--workers", str(partitions))
    assert result.status == 0, result.report
    assert all(rows(out, topic, partition) == topic.records(partition) for partition in range(partitions))


def test_a_topic_that_the_dump_lacks(harness: Harness, topic: Topic, tmp_path: Path) -> None:
    """The printed command dumps the topics of every store of the specification, and the application is restored."""
    source = Topic(harness.bootstrap)
    for partition in (0, 1):
        topic.produce(50, partition=partition, keys=50)
    source.produce(20, keys=20)
    spec = tmp_path / "kstate.toml"
    spec.write_text(
        SPEC
        + f"""[stores.table]
kind = "timestamped-key-value"
global = true
source = "table"
changelog = "{source.name}"
partitions = 1
"""
    )
    more = ("--engine", "local", *QUICK)
    dump = tmp_path / "dump"
    assert kstate("dump", "--bootstrap-server", harness.bootstrap, "--app", APP, "--out", dump, *more).status == 0
    (tmp_path / "state").mkdir()
    restore = [
        "restore",
        tmp_path / "state" / APP,
        "--from-changelog",
        dump,
        "--spec",
        spec,
        "--for",
        "4.3",
        "--engine",
        "local",
    ]
    refusal = kstate(*restore)
    assert refusal.status == 4 and f"the dump does not contain {source.name}" in refusal.err, refusal.report
    arguments = {"HOST:PORT": harness.bootstrap, "DUMP": str(tmp_path / "new"), "FILE": str(spec)}
    assert kstate(*printed_words(refusal.err, **arguments), *more).status == 0
    restore[3] = tmp_path / "new"
    result = kstate(*restore)
    assert result.status in (0, 1), result.report
