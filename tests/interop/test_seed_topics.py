"""``kstate seed`` against a real broker: what it writes, what it refuses, and what a kill leaves."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kstate_cli.broker.group_offsets import CommittedOffset, read_committed
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection, read_topics

from .harness import Harness
from .seeding import METADATA, Source, content, events, records_of
from .support import ALL, kstate

pytestmark = pytest.mark.interop

_names = itertools.count(1)


@pytest.fixture
def source(harness: Harness, tmp_path: Path) -> Source:
    return Source(harness, tmp_path, f"seed-{next(_names)}").create()


def test_records_settings_and_offsets_are_those_of_the_source(source: Source) -> None:
    outcome = source.seed().summary
    new = f"{source.new}-count-changelog"
    assert content(source.harness, new) == content(source.harness, source.changelog)
    assert (outcome["written"], outcome["copied_offsets"], outcome["created"]) == (400, 1, 1)
    connection = Connection(source.harness.bootstrap, {})
    topics = read_topics(connection, [new, source.changelog])
    assert topics[new].settings == topics[source.changelog].settings
    key = TopicPartition(f"{source.app}-in", 0)
    committed = read_committed(source.harness.bootstrap, {}, source.new, [key])
    assert committed == {key: CommittedOffset(0, METADATA)}
    assert events(source.journal)[-1] == "done"
    # A complete seed is left alone, whatever the new application has done since.
    source.produce(new, records_of(1, keys=1))
    assert source.seed().summary["executed"] is False


def test_with_a_specification_only_the_newest_record_of_a_key_is_written(source: Source) -> None:
    spec = source.folder / "kstate.toml"
    spec.write_text(
        f'application = "{source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
        f'changelog = "{source.changelog}"\nsubtopology = 0\npartitions = 2\n'
    )
    source.seed("--spec", spec)
    written = content(source.harness, f"{source.new}-count-changelog")
    for partition, records in content(source.harness, source.changelog).items():
        newest = {key: number for number, (key, *_) in enumerate(records)}
        expected = [records[number] for number in sorted(newest.values()) if records[number][1] is not None]
        assert written[partition] == expected


def test_a_renamed_store_and_a_topic_without_records(source: Source) -> None:
    source.topic(f"{source.app}-empty-changelog", 1, {"cleanup.policy": "compact"})
    source.dump()
    assert source.seed("--rename-store", "count=total").summary["topics"] == 2
    total = content(source.harness, f"{source.new}-total-changelog")
    assert total == content(source.harness, source.changelog)
    assert content(source.harness, f"{source.new}-empty-changelog") == {0: []}


def test_an_undo_deletes_what_the_run_created_and_nothing_that_is_used(source: Source) -> None:
    source.seed()
    new = f"{source.new}-count-changelog"
    source.produce(new, records_of(1, keys=1))
    assert "has other records" in source.undo(status=4).error["message"]

    other = Source(source.harness, source.folder / "other", f"{source.app}-b").create()
    other.seed()
    other.commit(other.new, offset=7)
    assert "did not commit" in other.undo(status=4).error["message"]
    other.commit(other.new)
    assert other.undo().of("undone")[0]["deleted_topics"] == [f"{other.new}-count-changelog"]
    assert not read_topics(Connection(source.harness.bootstrap, {}), [f"{other.new}-count-changelog"])
    # The journal begins again, and so does a new run.
    assert other.seed().summary["written"] == 400


def _running(source: Source) -> None:
    source.harness.bootstrap  # noqa: B018


REFUSALS: dict[str, tuple[Callable[[Source], object], int, str, tuple[str, ...]]] = {
    "a dump that ends before the log": (
        lambda source: source.produce(source.changelog, records_of(1, keys=1)),
        4,
        "the dump ends at offset",
        (),
    ),
    "records that the application has not read from itself": (
        lambda source: (
            source.topic(f"{source.app}-x-repartition", 1),
            source.produce(f"{source.app}-x-repartition", records_of(1, keys=1)),
        ),
        4,
        "has not read all records",
        (),
    ),
    "timestamps of 0": (
        lambda source: (source.produce(source.changelog, [(b"k", b"v", 1, [])]), source.dump()),
        0,
        "",
        (),
    ),
    "topics of another program": (
        lambda source: source.topic(f"{source.new}-count-changelog", 2),
        4,
        "that this run did not create",
        (),
    ),
    "offsets of another program": (
        lambda source: source.commit(source.new, offset=3),
        4,
        "has committed offsets already",
        (),
    ),
    "the source itself": (lambda _source: None, 2, "is the source application itself", ("--app", "SOURCE")),
    "a store that it does not have": (lambda _source: None, 2, "no changelog of a store x", ("--rename-store", "x=y")),
    "no pair of names": (lambda _source: None, 2, "is not OLD=NEW", ("--rename-store", "x")),
    "an application without changelogs": (
        lambda _source: None,
        2,
        "has no changelog of nobody",
        ("--source-app", "nobody"),
    ),
    "settings without their cluster": (
        lambda _source: None,
        2,
        "needs --source-bootstrap-server",
        ("--source-kafka-settings", "/dev/null"),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_write_nothing(source: Source, case: str) -> None:
    prepare, status, message, options = REFUSALS[case]
    prepare(source)
    options = tuple(source.app if word == "SOURCE" else word for word in options)
    result = source.seed(*options, status=status)
    if status:
        assert message in result.error["message"], result.report
        assert not source.journal.exists() or not events(source.journal)


def test_timestamp_zero_is_refused_because_the_client_replaces_it(harness: Harness, tmp_path: Path) -> None:
    """The client cannot send it, so the record of a dump has it only if another producer has: it is made so here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = Source(harness, tmp_path, f"seed-{next(_names)}")
    source.topic(source.changelog, 1)
    source.partitions = 1
    source.topic(f"{source.app}-in", 1)
    source.commit()
    source.produce(source.changelog, [(b"k", b"v", 0, [])])
    ((_, _, timestamp, _),) = content(harness, source.changelog)[0]
    assert timestamp > 1_600_000_000_000
    from kstate_cli.dump_reader.open import read_dump
    from kstate_cli.seed.records import select_records

    (tmp_path / "plain").mkdir()
    names = {"topic": ["t"], "partition": [0], "offset": [0], "key": [b"k"], "value": [b"v"]}
    table = pa.table({**names, "timestamp": pa.array([0], pa.timestamp("ms", "UTC"))})
    table = table.set_column(1, "partition", table.column("partition").cast(pa.int32()))
    pq.write_table(table, tmp_path / "plain" / "part.parquet")
    plain = read_dump(str(tmp_path / "plain"), complete=True, committed_only=True)
    (partition,) = plain.partitions.values()
    assert select_records(plain, partition, newest_only=True).without_timestamp == 1


def test_hints_of_journals_lead_on(source: Source) -> None:
    missing = source.seed("--journal", source.folder / "no" / "journal", status=6)
    assert missing.error["hint"] == "pass --journal with another file"
    foreign = source.folder / "foreign"
    foreign.write_text("x\n")
    assert "this is no journal of a seed" in source.seed("--journal", foreign, status=4).error["message"]
    source.seed()
    # Without its journal the run is not recognized; with it, it is.
    other = source.seed("--journal", source.folder / "other.jsonl", status=4)
    assert "pass --journal with the file of the run" in other.error["hint"]
    assert source.seed().summary["written"] == 0


def test_hints_about_the_source_lead_on(harness: Harness, tmp_path: Path) -> None:
    source = Source(harness, tmp_path, f"seed-{next(_names)}").create()
    AdminClient({"bootstrap.servers": harness.bootstrap}).delete_consumer_groups([source.app])[source.app].result()
    unknown = source.seed(status=2)
    assert "pass --source-app" in unknown.error["hint"]
    without = source.seed("--source-app", source.app, status=4)
    assert "--no-offsets" in without.error["hint"]
    assert source.seed("--source-app", source.app, "--no-offsets").summary["copied_offsets"] == 0


def test_a_plan_that_changed_is_not_continued(source: Source) -> None:
    source.seed()
    lines = source.journal.read_text().splitlines(keepends=True)
    source.journal.write_text("".join(line for line in lines if '"done"' not in line))
    refused = source.seed("--rename-store", "count=total", status=4)
    assert "is of another plan" in refused.error["message"]
    assert "kstate seed --undo --delete-topics" in refused.error["hint"]
    source.undo()
    source.seed("--rename-store", "count=total")


def test_settings_that_the_client_rejects() -> None:
    key = [TopicPartition("t", 0)]
    for settings in ({"no.such.setting": "secret"}, {"max.poll.interval.ms": "1000"}):
        with pytest.raises(UsageError) as caught:
            read_committed("127.0.0.1:1", settings, "group", key)
        assert caught.value.hint == "correct --kafka-settings"
        assert "secret" not in str(caught.value)


def test_a_topic_that_another_program_created_again(source: Source) -> None:
    source.seed()
    lines = source.journal.read_text().splitlines(keepends=True)
    source.journal.write_text("".join(line for line in lines if '"done"' not in line))
    new = f"{source.new}-count-changelog"
    AdminClient({"bootstrap.servers": source.harness.bootstrap}).delete_topics([new])[new].result()
    assert "no longer exists" in source.seed(status=6).error["message"]
    source.topic(new, 2)
    assert "created again" in source.seed(status=6).error["message"]
    assert "created again" in source.undo(status=4).error["message"]


@pytest.mark.parametrize("moments", [100 if ALL else 15])
def test_a_killed_run_continues_and_writes_each_record_once(harness: Harness, tmp_path: Path, moments: int) -> None:
    source = Source(harness, tmp_path, f"seed-{next(_names)}").create(10_000, 500)
    expected = content(harness, source.changelog)
    command = [sys.executable, "-m", "kstate_cli", *map(str, source.words())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance = random.Random(20261127)
    kills = 0
    while kills < moments:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # From before the first request to behind the last one: a run takes about so long.
        time.sleep(chance.uniform(0.3, 4.0))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert b"Traceback" not in errors, errors
        kills += 1
        if source.journal.exists() and "done" in events(source.journal):
            source.undo()
    source.seed()
    assert content(harness, f"{source.new}-count-changelog") == expected


def test_help_of_a_killed_group_is_not_needed() -> None:
    assert kstate("seed", "--help").status == 0
