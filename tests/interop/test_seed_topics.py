"""``kstate seed`` against a real broker: what it writes, what it refuses, and what a kill leaves."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from kstate_cli.broker.group_offsets import CommittedOffset, commit_offsets, read_committed
from kstate_cli.errors import Refused, RunFailed, UsageError
from kstate_cli.formats.partitions import PartitionMetadata
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection, read_topics
from kstate_cli.seed.conditions import judge
from kstate_cli.seed.execution import Watcher, carry_out
from kstate_cli.seed.journal import SeedJournal, open_journal
from kstate_cli.seed.model import SeedRequest
from kstate_cli.seed.planner import plan_seed, read_facts
from tests.command_result import CommandResult

from .harness import Harness
from .seeding import METADATA, Source, content, delete_topics, events, page_commands, records_of
from .support import ALL, kstate

pytestmark = [pytest.mark.interop, pytest.mark.rotating(8)]

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


def write_count_spec(source: Source) -> Path:
    """Write the specification of the application."""
    spec = source.folder / "kstate.toml"
    spec.write_text(
        f'format = 1\napplication = "{source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
        f'changelog = "{source.changelog}"\nsubtopology = 0\npartitions = 2\n'
    )
    return spec


def test_with_a_specification_only_the_newest_record_of_a_key_is_written(source: Source) -> None:
    source.seed("--spec", write_count_spec(source))
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


def test_ends_of_emitted_windows_follow_their_stores(source: Source) -> None:
    """Of the input, and of a repartition topic that the new application does not have yet."""
    queue = f"{source.app}-count-repartition"
    source.topic(queue, 3, {"segment.bytes": "52428800"})
    places = {
        TopicPartition(f"{source.app}-in", 0): PartitionMetadata(70, {"final": 60, "other": 30}),
        TopicPartition(queue, 1): PartitionMetadata(80, {"count": 50}),
    }
    committed = {key: CommittedOffset(0, metadata.encode()) for key, metadata in places.items()}
    commit_offsets(source.harness.bootstrap, {}, source.app, committed)
    source.topic(f"{source.app}-final-changelog", 2, source.settings)
    source.dump()
    options = ("--rename-store", "count=total", "--rename-store", "final=last")
    planned = source.seed(*options, "--dry-run")
    new_queue = f"{source.new}-total-repartition"
    assert [row for row in planned.rows if f"kstate creates {new_queue}" in row.get("message", "")], planned.report
    source.seed(*options)
    expected = {
        TopicPartition(f"{source.app}-in", 0): PartitionMetadata(70, {"last": 60, "other": 30}),
        TopicPartition(new_queue, 1): PartitionMetadata(80, {"total": 50}),
    }
    own = read_committed(source.harness.bootstrap, {}, source.new, expected)
    assert {key: (place.offset, PartitionMetadata.decode(place.metadata)) for key, place in own.items()} == {
        key: (0, metadata) for key, metadata in expected.items()
    }
    topics = read_topics(Connection(source.harness.bootstrap, {}), [new_queue])
    assert (topics[new_queue].partitions, topics[new_queue].settings) == (3, {"segment.bytes": "52428800"})
    assert content(source.harness, new_queue) == {0: [], 1: [], 2: []}
    assert source.seed(*options).summary["executed"] is False
    source.undo()
    assert not read_topics(Connection(source.harness.bootstrap, {}), [new_queue])
    source.seed("--no-offsets", "--journal", source.folder / "another.jsonl")
    assert not read_topics(Connection(source.harness.bootstrap, {}), [f"{source.new}-count-repartition"])


def test_keys_are_erased_with_a_receipt(source: Source) -> None:
    keys, receipt = source.folder / "keys", source.folder / "receipt.jsonl"
    keys.write_text("# a person\ncount=key-3\n*:hex=6b65792d3131\ncount=nobody\n")
    options = ("--drop-keys", keys, "--receipt", receipt)
    assert "omit --accept" in kstate(*source.words("--accept", "count")).error["hint"]
    assert "pass directories" in kstate(*source.words("--skip-task", "x")).error["hint"]
    # Without its kind the keys of a store cannot be taken apart.
    unclear = kstate(*source.words(*options))
    assert "kstate does not know the kind of 1 store" in unclear.error["message"]
    accepted = kstate(*source.words(*options, "--accept", "count", "--dry-run"))
    assert [row for row in accepted.rows if "kstate does not erase keys from count" in row.get("message", "")], (
        accepted.report
    )
    spec = source.folder / "kstate.toml"
    spec.write_text(
        f'format = 1\napplication = "{source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
        f'changelog = "{source.changelog}"\nsubtopology = 0\npartitions = 2\n'
    )
    missing = kstate(*source.words("--drop-keys", keys, "--receipt", source.folder / "no" / "r", "--spec", spec))
    assert missing.status == 6
    assert "pass --receipt with another file" in missing.error["hint"]
    assert not receipt.exists()
    source.seed(*options, "--spec", spec)
    written = content(source.harness, f"{source.new}-count-changelog")
    all_records = content(source.harness, source.changelog)
    lines = [json.loads(line) for line in receipt.read_text().splitlines()]
    for partition, records in all_records.items():
        newest = {record[0]: record for record in records if record[1] is not None}
        expected = {key for key in newest if [r for r in records if r[0] == key][-1][1] is not None}
        assert {record[0] for record in written[partition]} == expected - {b"key-3", b"key-11"}
        erased = {line["key"]: line["records"] for line in lines if line.get("partition") == partition}
        assert erased == {base64.b64encode(key).decode(): 1 for key in {b"key-3", b"key-11"} & expected}
    assert [line for line in lines if line["type"] == "nowhere"] == [
        {"type": "nowhere", "store": "count", "key": base64.b64encode(b"nobody").decode()}
    ]
    assert lines[-1]["records"] == sum(line.get("records", 0) for line in lines[:-1]) > 0
    # Another file is another plan.
    journal = source.journal.read_text().splitlines(keepends=True)
    source.journal.write_text("".join(line for line in journal if '"done"' not in line))
    keys.write_text("count=key-4\n")
    assert "belongs to a different plan" in source.seed(*options, "--spec", spec, status=4).error["message"]


def test_windowed_keys_of_a_key_value_store_are_not_kept_silently(source: Source) -> None:
    """The store of a table of windowed keys has the kind of any other table: its keys are not that of the person."""
    window = b"key-3" + (60_000).to_bytes(8, "big")
    source.produce(source.changelog, [(window, b"v", 5, []), (b"key-3", b"v", 6, [])])
    source.dump()
    keys = source.folder / "keys"
    keys.write_text("count=key-3\n")
    options = ("--spec", write_count_spec(source), "--drop-keys", keys, "--receipt", source.folder / "receipt")
    refusal = kstate(*source.words(*options))
    assert refusal.status == 4 and "2 records of count have one of the keys" in refusal.error["message"], refusal.report
    accepted = kstate(*source.words(*options, "--accept", "count", "--dry-run"))
    assert [row for row in accepted.rows if "in a different form" in row.get("message", "")], accepted.report
    keys.write_text(f"count=key-3\ncount:hex={window.hex()}\n")
    source.seed(*options)
    for records in content(source.harness, f"{source.new}-count-changelog").values():
        assert not [record for record in records if (record[0] or b"") in (b"key-3", window)]


def test_the_stores_of_a_join_get_the_new_name_of_the_join(source: Source) -> None:
    suffixes = ("this-join-store", "left-shared-join-store", "Buffer", "subscription-store")
    for suffix in suffixes:
        source.topic(f"{source.app}-join-{suffix}-changelog", 1)
    source.topic(f"{source.app}-disjoin-changelog", 1)
    source.dump()
    outcome = source.seed("--rename-store", "join=purchases")
    targets = {row["target_topic"] for row in outcome.rows if row["type"] == "topic"}
    names = {*(f"purchases-{suffix}" for suffix in suffixes), "disjoin", "count"}
    assert targets == {f"{source.new}-{name}-changelog" for name in names}


def test_undo_deletes_unused_topics_of_the_run_only(source: Source) -> None:
    source.seed()
    new = f"{source.new}-count-changelog"
    source.produce(new, records_of(1, keys=1))
    assert "has records that the run did not write" in source.undo(status=4).error["message"]

    other = Source(source.harness, source.folder / "other", f"{source.app}-b").create()
    other.seed()
    other.commit(other.new, offset=7)
    assert "did not commit" in other.undo(status=4).error["message"]
    other.commit(other.new)
    assert [row["target_topic"] for row in other.undo().rows] == [f"{other.new}-count-changelog"]
    assert not read_topics(Connection(source.harness.bootstrap, {}), [f"{other.new}-count-changelog"])
    # The journal begins again, and so does a new run.
    assert other.seed().summary["written"] == 400


def _grown_log(source: Source) -> None:
    source.produce(source.changelog, records_of(1, keys=1))


def _unread_queue(source: Source) -> None:
    source.topic(f"{source.app}-x-repartition", 1)
    source.produce(f"{source.app}-x-repartition", records_of(1, keys=1))


def _unread_subscription(source: Source) -> None:
    """Of a foreign-key join without a name."""
    source.topic(f"{source.app}-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", 1)
    source.produce(f"{source.app}-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", records_of(1, keys=1))


def _foreign_topic(source: Source) -> None:
    source.topic(f"{source.new}-count-changelog", 2)


def _foreign_offsets(source: Source) -> None:
    source.commit(source.new, offset=3)


def _left_queue(source: Source) -> None:
    """An earlier application with the new id has left records between its sub-topologies."""
    topic = f"{source.new}-x-repartition"
    source.topic(topic, 1)
    source.produce(topic, records_of(1, keys=1))


def _deleted_queue(source: Source) -> None:
    delete_topics(source.harness, [f"{source.new}-x-repartition"])


def _no_change(_source: Source) -> None:
    """The options alone are refused."""


@dataclass(frozen=True)
class Refusal:
    """A situation that is refused, and options with which the same command succeeds, as its hint says."""

    prepare: Callable[[Source], None]
    status: int
    message: str
    options: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    follow: Callable[[Source], None] = _no_change
    """What the hint says besides."""


def _drain(source: Source) -> None:
    names = ("x-repartition", "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic")
    topics = read_topics(Connection(source.harness.bootstrap, {}), [f"{source.app}-{name}" for name in names])
    commit_offsets(
        source.harness.bootstrap, {}, source.app, {TopicPartition(topic, 0): CommittedOffset(1) for topic in topics}
    )


def _dump_twice(source: Source) -> None:
    source.dump()


def _unread_registration(source: Source) -> None:
    """A foreign-key join without a name has numbered topics."""
    topic = f"{source.app}-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"
    source.topic(topic, 1)
    source.produce(topic, records_of(1, keys=1))


def _consumed_registration(source: Source) -> None:
    topic = f"{source.app}-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"
    commit_offsets(source.harness.bootstrap, {}, source.app, {TopicPartition(topic, 0): CommittedOffset(1)})


def _unread_response(source: Source) -> None:
    source.topic(f"{source.app}-fk-subscription-response-topic", 1)
    source.produce(f"{source.app}-fk-subscription-response-topic", records_of(1, keys=1))


def _consumed_response(source: Source) -> None:
    topic = f"{source.app}-fk-subscription-response-topic"
    commit_offsets(source.harness.bootstrap, {}, source.app, {TopicPartition(topic, 0): CommittedOffset(1)})


REFUSALS = {
    "unread-registration": Refusal(_unread_registration, 4, "has not read all records", follow=_consumed_registration),
    "unread-response": Refusal(_unread_response, 4, "has not read all records", follow=_consumed_response),
    "grown-log": Refusal(_grown_log, 4, "the dump ends at offset", follow=_dump_twice),
    "unread-queue": Refusal(_unread_queue, 4, "has not read all records", follow=_drain),
    "unread-subscription": Refusal(_unread_subscription, 4, "has not read all records", follow=_drain),
    "foreign-topic": Refusal(_foreign_topic, 4, "that this run did not create", remedy=("--app", "other-topic")),
    "foreign-offsets": Refusal(_foreign_offsets, 4, "already has committed offsets", remedy=("--app", "other-offsets")),
    "left-queue": Refusal(_left_queue, 4, "already have records", follow=_deleted_queue),
    "source-itself": Refusal(_no_change, 2, "is the source's application.id", ("--app", "SOURCE")),
    "no-such-store": Refusal(_no_change, 2, "no changelog of a store x", ("--rename-store", "x=y")),
    "no-pair": Refusal(_no_change, 2, "is not OLD=NEW", ("--rename-store", "x"), ("--rename-store", "count=total")),
    "no-such-application": Refusal(_no_change, 2, "has no changelog of other", ("--source-app", "other")),
    "no-cluster": Refusal(_no_change, 2, "needs --source-bootstrap-server", ("--source-kafka-settings", "/dev/null")),
    "release-alone": Refusal(_no_change, 2, "--for needs --out", ("--for", "4.3")),
    "directory-alone": Refusal(_no_change, 2, "with --out, kstate needs", ("--out", "/tmp")),
    "only-undo": Refusal(_no_change, 2, "work only together", ("--undo",)),
    "undo-with-run": Refusal(
        _no_change, 2, "cannot be used with --from, --app or --dry-run", ("--undo", "--delete-topics", "/dev/null")
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_write_nothing_and_their_hints_lead_on(source: Source, case: str) -> None:
    refusal = REFUSALS[case]
    refusal.prepare(source)
    options = [source.app if word == "SOURCE" else word for word in refusal.options]
    result = kstate(*source.words(*options))
    assert result.status == refusal.status, result.report
    assert refusal.message in result.error["message"], result.report
    assert not source.journal.exists() or not events(source.journal)
    refusal.follow(source)
    again = kstate(*source.words(*refusal.remedy, "--dry-run"))
    assert again.status == 0, again.report


def test_markers_and_aborted_records_are_no_unread_records(source: Source) -> None:
    """They follow the committed offset in each internal topic, and no application ever reads them."""
    topics = [f"{source.app}-{name}" for name in ("x-repartition", "fk-subscription-registration-topic")]
    for topic in topics:
        source.topic(topic, 1)
        source.produce(topic, records_of(3, keys=1))
        source.produce(topic, records_of(2, keys=1), aborted=True)
        commit_offsets(source.harness.bootstrap, {}, source.app, {TopicPartition(topic, 0): CommittedOffset(3)})
    source.seed()
    # Kafka Streams creates them for the new application.
    assert source.seed().summary["copied_offsets"] == 1


def conditions(result: CommandResult) -> dict[str, str]:
    """Return the conditions that were printed, and their states."""
    return {row["condition"]: row["condition_state"] for row in result.rows if row["type"] == "condition"}


def test_a_dry_run_prints_every_condition(source: Source) -> None:
    """Not only the first that is not met; afterwards the same command shows whether the seed is still complete."""
    met = conditions(kstate(*source.words("--dry-run")))
    assert {name: state for name, state in met.items() if state != "met"} == {
        "source-offsets": "unknown",
        "source-as-specified": "unknown",
        "tables-on-target": "unknown",
        "tables-equal": "unknown",
    }
    _unread_queue(source)
    _grown_log(source)
    result = kstate(*source.words("--dry-run"))
    assert result.status == 4
    several = conditions(result)
    assert {name for name, state in several.items() if state == "not-met"} == {"source-drained", "source-complete"}
    assert several["records-and-offsets"] == "unknown"

    _drain(source)
    source.dump()
    source.seed()
    after = kstate(*source.words("--dry-run"))
    assert after.status == 0 and set(conditions(after).values()) == {"met"}, after.report
    # The new application begins to work: that is no fault.
    source.produce(f"{source.new}-count-changelog", records_of(1, keys=1))
    used = conditions(kstate(*source.words("--dry-run")))
    assert used == {"topics-present": "met", "topics-unused": "unknown", "offsets-committed": "met"}
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    new = f"{source.new}-count-changelog"
    admin.delete_topics([new])[new].result()
    incomplete = kstate(*source.words("--dry-run"))
    assert incomplete.status == 4, incomplete.report
    assert conditions(incomplete)["topics-present"] == "not-met"
    again = kstate(*source.words("--app", "another-again", "--journal", source.folder / "again.jsonl", "--dry-run"))
    assert again.status == 0, again.report


def test_a_dry_run_reports_settings_that_the_target_rejects(source: Source) -> None:
    """The broker validates each topic with its final settings, and creates none."""
    source.topic(f"{source.app}-odd-changelog", 1, {"min.insync.replicas": "1"})
    source.dump()
    assert conditions(kstate(*source.words("--dry-run")))["target-compatible"] == "met"
    cluster = Connection(source.harness.bootstrap, {})
    request = SeedRequest(str(source.folder / "dump"), source.new, None, cluster, cluster, source.journal)
    facts = read_facts(request)
    topics = {name: replace(topic, replicas=3) for name, topic in facts.source_topics.items()}
    judgement = judge(request, replace(facts, source_topics=topics), ())
    (condition,) = (entry for entry in judgement.conditions if entry.name == "target-compatible")
    assert condition.state == "not-met" and "replication factor" in str(condition.why).lower()
    assert isinstance(judgement.refusal, RunFailed)


def test_a_store_that_is_restored_from_a_topic_that_the_target_lacks(source: Source) -> None:
    spec = source.folder / "kstate.toml"
    spec.write_text(
        f'format = 1\napplication = "{source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
        f'changelog = "{source.changelog}"\nsubtopology = 0\npartitions = 2\n'
        f'[stores.customers]\nkind = "timestamped-key-value"\nglobal = true\nsource = "table"\n'
        f'changelog = "{source.app}-customers"\n'
    )
    result = kstate(*source.words("--spec", spec))
    assert result.status == 4 and "the store customers" in result.error["message"], result.report
    source.topic(f"{source.app}-customers", 1)
    source.seed("--spec", spec)


def condition(result: CommandResult, name: str) -> tuple[str, str | None]:
    """Return state and reason of a condition."""
    (row,) = (row for row in result.rows if row["type"] == "condition" and row["condition"] == name)
    return row["condition_state"], row["condition_reason"]


def test_conditions_that_kstate_cannot_judge_are_unknown(source: Source) -> None:
    without = kstate(*source.words("--no-offsets", "--dry-run"))
    assert condition(without, "source-offsets")[0] == "unknown"
    # A broker omits the offsets of topics that the user may not describe, so the user compares the names.
    named = kstate(*source.words("--dry-run"))
    state, reason = condition(named, "source-offsets")
    assert state == "unknown" and f"{source.app}-in" in str(reason), named.report
    notes = [row["message"] for row in named.rows if row["type"] == "note"]
    assert any(f"offsets for these topics: {source.app}-in" in note for note in notes), notes
    source.topic(f"{source.new}-other-changelog", 1)
    left = kstate(*source.words("--dry-run"))
    state, reason = condition(left, "target-empty")
    assert state == "unknown" and f"{source.new}-other-changelog" in str(reason), left.report
    assert left.status == 0
    assert [row for row in source.seed().rows if f"{source.new}-other-changelog" in row.get("message", "")]


def test_topics_without_records_and_topics_of_others_are_no_hindrance(source: Source) -> None:
    """An empty topic of an earlier application with the new id, and that of an application with a longer name."""
    source.topic(f"{source.new}-empty-repartition", 1)
    longer = f"{source.new}-2"
    source.topic(f"{longer}-x-repartition", 1)
    source.produce(f"{longer}-x-repartition", records_of(1, keys=1))
    source.commit(longer)
    met = kstate(*source.words("--dry-run"))
    assert condition(met, "target-empty") == ("met", None), met.report


def test_a_changelog_of_the_dump_that_the_broker_does_not_list(source: Source) -> None:
    """It was deleted, or this user may not describe it: the broker answers in the same way."""
    source.topic(f"{source.app}-gone-changelog", 1)
    source.dump()
    delete_topics(source.harness, [f"{source.app}-gone-changelog"])
    checked = kstate(*source.words("--dry-run"))
    assert checked.status == 4 and condition(checked, "source-complete")[0] == "not-met", checked.report
    refusal = source.seed(status=4)
    assert f"the dump has {source.app}-gone-changelog" in refusal.error["message"], refusal.report
    assert "grant Describe" in refusal.error["hint"] and "--accept gone" in refusal.error["hint"], refusal.report
    assert "omit --accept" in source.seed("--accept", "count", status=2).error["hint"]
    accepted = kstate(*source.words("--accept", "gone", "--dry-run"))
    assert condition(accepted, "source-complete")[0] == "unknown", accepted.report
    notes = [row["message"] for row in source.seed("--accept", "gone").rows if row["type"] == "note"]
    assert any(f"{source.app}-gone-changelog" in note for note in notes), notes


@pytest.mark.parametrize("unreachable", ["source", "target"])
def test_a_cluster_that_does_not_respond_makes_every_condition_unknown(source: Source, unreachable: str) -> None:
    words = source.words("--dry-run")
    place = words.index("--bootstrap-server") + 1
    words += ["--source-bootstrap-server", source.harness.bootstrap if unreachable == "target" else "127.0.0.1:1"]
    if unreachable == "target":
        words[place] = "127.0.0.1:1"
    result = kstate(*words)
    assert result.status == 6, result.report
    states = conditions(result)
    assert states.pop("source-reachable") == ("not-met" if unreachable == "source" else "met")
    assert states.pop("target-reachable") == ("not-met" if unreachable == "target" else "met")
    assert set(states.values()) == {"unknown"} and len(states) > 8, states


def test_a_complete_run_answers_only_for_itself(source: Source) -> None:
    """Its journal says that everything is done: not for another application, other options or another cluster."""
    source.seed()
    keys = source.folder / "keys"
    keys.write_text("count=key-3\n")
    other = source.folder / "other.jsonl"
    erase = ("--drop-keys", keys, "--receipt", source.folder / "receipt")
    spec = write_count_spec(source)
    others = (
        ("--app", "another-than-done"), erase, ("--rename-store", "count=total"), ("--spec", spec),
        ("--accept", "count"), ("--source-app", "another"),
    )  # fmt: skip
    for options in others:
        for dry in ((), ("--dry-run",)):
            refusal = kstate(*source.words(*options, *dry))
            assert refusal.status == 4, refusal.report
            assert "kstate did nothing" in refusal.error["message"]
    dump = [f"{word}-2" if word == source.folder / "dump" else word for word in source.words()]
    refusal = kstate(*dump)
    assert refusal.status == 4 and "from" in refusal.error["message"], refusal.report
    again = source.words("--app", "another-than-done", "--journal", other)
    assert kstate(*again).summary["written"] == 400
    # A journal of an earlier version has no options.
    lines = [json.loads(line) for line in source.journal.read_text().splitlines()]
    for name in ("options", "choices", "cluster"):
        lines[0].pop(name)
    source.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert source.seed().summary["executed"] is False
    new = f"{source.new}-count-changelog"
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    admin.delete_topics([new])[new].result()
    missing = source.seed(status=4)
    assert "the seed is no longer complete" in missing.error["message"]
    assert kstate(*source.words("--app", "another-again", "--journal", source.folder / "new.jsonl")).status == 0


class _Meddling(SeedJournal):
    """A journal that does something after a step was recorded."""

    meddle: Callable[[], None]
    event: str

    def add(self, event: str, **members: Any) -> None:
        """Record the step, then do it."""
        super().add(event, **members)
        if event == self.event:
            self.meddle()


def test_a_log_that_grows_after_it_was_compared(source: Source) -> None:
    """The new application was started and killed in between: no members and no offsets, but records."""
    cluster = Connection(source.harness.bootstrap, {})
    request = SeedRequest(str(source.folder / "dump"), source.new, None, cluster, cluster, source.journal)
    plan = plan_seed(request, read_facts(request), ())
    new = f"{source.new}-count-changelog"
    with open_journal(source.journal) as journal, pytest.raises(RunFailed, match="since kstate compared") as caught:
        descriptor = os.dup(journal._descriptor)
        try:
            meddling = _Meddling(source.journal, descriptor, journal.events)
            meddling.event, meddling.meddle = "verified", lambda: source.produce(new, records_of(1, keys=1))
            carry_out(request, plan, meddling, Watcher())
        finally:
            os.close(descriptor)
    key = TopicPartition(f"{source.app}-in", 0)
    assert not read_committed(source.harness.bootstrap, {}, source.new, [key])
    # As the hint says.
    assert "with a new journal" in str(caught.value.hint)
    delete_topics(source.harness, [new])
    source.seed("--journal", source.folder / "again.jsonl")


class _BeforeComparison(Watcher):
    """Does something between the writing of the records and their comparison."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def begin(self, text: str, records: int) -> None:
        """Act before the comparison."""
        if text == "comparing":
            self._action()


@pytest.mark.parametrize(
    ("event", "message"),
    [("created", "contains records that this run has not written"), ("", "does not contain the records that kstate")],
)
def test_records_of_another_program_stop_the_run(source: Source, event: str, message: str) -> None:
    """Before the first record of the run, or after its last one. The new group gets no offsets."""
    cluster = Connection(source.harness.bootstrap, {})
    request = SeedRequest(str(source.folder / "dump"), source.new, None, cluster, cluster, source.journal)
    plan = plan_seed(request, read_facts(request), ())
    new = f"{source.new}-count-changelog"

    def send() -> None:
        # Not the first planned record, which a run would continue after.
        source.produce(new, records_of(1, keys=1, first=1))

    with open_journal(source.journal) as journal, pytest.raises(RunFailed, match=message):
        descriptor = os.dup(journal._descriptor)
        try:
            meddling = _Meddling(source.journal, descriptor, journal.events)
            meddling.event, meddling.meddle = event, send
            carry_out(request, plan, meddling, Watcher() if event else _BeforeComparison(send))
        finally:
            os.close(descriptor)
    assert not read_committed(source.harness.bootstrap, {}, source.new, [TopicPartition(f"{source.app}-in", 0)])


def test_the_broker_deletes_nothing_before_the_comparison(source: Source) -> None:
    """The topics get the settings of the source afterwards."""
    cluster = Connection(source.harness.bootstrap, {})
    request = SeedRequest(str(source.folder / "dump"), source.new, None, cluster, cluster, source.journal)
    plan = plan_seed(request, read_facts(request), ())
    new = f"{source.new}-count-changelog"
    settings: list[dict[str, str]] = []
    with open_journal(source.journal) as journal:
        read = _BeforeComparison(lambda: settings.append({**read_topics(cluster, [new])[new].settings}))
        carry_out(request, plan, journal, read)
    (during,) = settings
    retention = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert {**retention, "message.timestamp.type": "CreateTime"}.items() <= during.items()
    assert read_topics(cluster, [new])[new].settings == source.settings


def test_an_announced_topic_that_another_program_creates(source: Source) -> None:
    """A run was killed before it created the topic, and Kafka Streams has created it: with compaction."""
    source.seed()
    lines = source.journal.read_text().splitlines(keepends=True)
    new = f"{source.new}-count-changelog"
    delete_topics(source.harness, [new])
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    admin.delete_consumer_groups([source.new])[source.new].result()
    source.journal.write_text("".join(line for line in lines if '"planned"' in line or '"announced"' in line))
    source.topic(new, 2, {"cleanup.policy": "compact"})
    refusal = source.seed(status=4)
    assert "does not have the settings that this run uses for topics" in refusal.error["message"]
    delete_topics(source.harness, [new])
    assert source.seed().summary["written"] == 400


def _run(words: Sequence[object], *, status: int = 0) -> CommandResult:
    result = kstate(*words)
    assert result.status == status, result.report
    return result


def test_the_page_about_another_application_id(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.folder)
    (source.folder / "state").mkdir()
    write_count_spec(source)
    names = {
        "orders-v2": source.new,
        "/dump/orders": "pages",
        "orders": source.app,
        "broker:9092": source.harness.bootstrap,
    }
    names |= {"/var/lib/orders": "state", "kstate.toml": "kstate.toml", "old:9092": "", "new:9092": ""}
    write, judge_conditions, check, restore, undo = page_commands("new-application-id.md", names)
    _run(write)
    # Exit code 1: only the user can compare the input topics.
    _run(judge_conditions, status=1)
    for words in (check, restore):
        _run(words)
    assert list((source.folder / "state" / source.new).glob("0_*"))
    # After the seed, the same command checks what the run has left.
    assert f"the seed of {source.new} is complete" in _run(judge_conditions).out
    _run(undo)
    _run([word for word in check if word != "--dry-run"])


def test_the_page_about_another_name(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.folder)
    names = {
        "orders-v2": source.new,
        "/dump/orders": "pages",
        "orders": source.app,
        "broker:9092": source.harness.bootstrap,
    }
    write, check = page_commands("renamed-store.md", names)
    for words in (write, check, [word for word in check if word != "--dry-run"]):
        _run(words)
    new = f"{source.new}-total-changelog"
    assert content(source.harness, new) == content(source.harness, source.changelog)


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
    missing = kstate(*source.words("--journal", source.folder / "no" / "journal"))
    assert missing.status == 6
    assert missing.error["hint"] == "pass --journal with another file"
    foreign = source.folder / "foreign"
    foreign.write_text("x\n")
    assert "is not a line of a seed journal" in source.seed("--journal", foreign, status=4).error["message"]
    source.seed()
    # Without its journal the run is not recognized; with it, it is.
    other = source.seed("--journal", source.folder / "other.jsonl", status=4)
    assert "pass --journal with the file of the run" in other.error["hint"]
    assert source.seed().summary["written"] == 0


def test_hints_about_the_source_lead_on(harness: Harness, tmp_path: Path) -> None:
    source = Source(harness, tmp_path, f"seed-{next(_names)}").create()
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    admin.delete_consumer_groups([source.app])[source.app].result()
    unknown = kstate(*source.words())
    assert "pass --source-app" in unknown.error["hint"]
    without = kstate(*source.words("--source-app", source.app))
    assert "--no-offsets" in without.error["hint"]
    assert source.seed("--source-app", source.app, "--no-offsets").summary["copied_offsets"] == 0


def test_a_plan_that_changed_is_not_continued(source: Source) -> None:
    source.seed()
    lines = source.journal.read_text().splitlines(keepends=True)
    source.journal.write_text("".join(line for line in lines if '"done"' not in line))
    refusal = kstate(*source.words("--rename-store", "count=total"))
    assert "belongs to a different plan" in refusal.error["message"]
    assert "kstate seed --undo --delete-topics" in refusal.error["hint"]
    (command,) = (line.strip() for line in refusal.error["hint"].splitlines() if "kstate seed --undo" in line)
    undone = kstate(*shlex.split(command.partition("kstate ")[2]))
    assert undone.status == 0, undone.report
    source.seed("--rename-store", "count=total")


def cut_journal(source: Source, *events: str) -> None:
    """Leave only the lines of these events in the journal, as if the run had been killed."""
    lines = [json.loads(line) for line in source.journal.read_text().splitlines()]
    source.journal.write_text("".join(json.dumps(line) + "\n" for line in lines if line["event"] in events))


def test_a_dry_run_of_a_continued_run_judges_the_target(source: Source) -> None:
    """The topics of the journal by their ids, its offsets, and its plan: as the real run does."""
    source.seed()
    new, admin = f"{source.new}-count-changelog", AdminClient({"bootstrap.servers": source.harness.bootstrap})
    cut_journal(source, "planned", "announced", "created", "verified", "committing")
    assert set(conditions(kstate(*source.words("--dry-run"))).values()) <= {"met", "unknown"}
    other_plan = kstate(*source.words("--rename-store", "count=total", "--dry-run"))
    assert other_plan.status == 4 and "belongs to a different plan" in other_plan.error["message"], other_plan.report
    source.commit(source.new, offset=7)
    offsets = kstate(*source.words("--dry-run"))
    assert offsets.status == 4 and condition(offsets, "target-empty")[0] == "not-met", offsets.report
    source.commit(source.new)
    delete_topics(source.harness, [new])
    lost = kstate(*source.words("--dry-run"))
    assert lost.status == 6 and condition(lost, "target-compatible")[0] == "not-met", lost.report
    source.topic(new, 2)
    recreated = kstate(*source.words("--dry-run"))
    assert recreated.status == 4 and condition(recreated, "target-empty")[0] == "not-met", recreated.report
    # It was neither announced nor created by the run.
    admin.delete_consumer_groups([source.new])[source.new].result()
    cut_journal(source, "planned")
    foreign = kstate(*source.words("--dry-run"))
    assert foreign.status == 4 and condition(foreign, "target-empty")[0] == "not-met", foreign.report


def test_undo_deletes_only_on_the_cluster_of_the_run(source: Source) -> None:
    """An undo of topics that the broker does not list must not forget the run."""
    source.seed()
    new = f"{source.new}-count-changelog"
    lines = source.journal.read_text()
    planned = json.loads(lines.splitlines()[0])
    source.journal.write_text(lines.replace(planned["cluster"], "another"))
    refusal = source.undo(status=4)
    assert "the run wrote to the cluster another" in refusal.error["message"], refusal.report
    # Journals of earlier versions do not contain the cluster.
    planned.pop("cluster")
    source.journal.write_text("\n".join([json.dumps(planned), *lines.splitlines()[1:]]) + "\n")
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    delete_topics(source.harness, [new])
    missing = source.undo(status=4)
    assert f"this cluster does not have {new}" in missing.error["message"], missing.report
    assert "undone" not in source.journal.read_text()
    # With the cluster it is certain that the topic was deleted there: the broker reports missing rights in other words.
    source.journal.write_text(lines)
    assert source.undo().summary["executed"]
    assert events(source.journal)[-1] == "undone"
    assert source.new not in [group.group_id for group in admin.list_consumer_groups().result().valid]


def test_a_run_continues_after_the_broker_has_deleted_compared_records(source: Source) -> None:
    """Once a topic has its final settings, compaction and retention change it, and it cannot be compared again."""
    source = Source(source.harness, source.folder / "compacted", f"{source.app}-c")
    source.folder.mkdir()
    source.settings["cleanup.policy"] = "compact,delete"
    source.create().seed()
    cut_journal(source, "planned", "announced", "created", "verified")
    new = f"{source.new}-count-changelog"
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    (future,) = admin.delete_records([ClientPartition(new, 0, 50)]).values()
    future.result()
    admin.delete_consumer_groups([source.new])[source.new].result()
    outcome = source.seed().summary
    assert (outcome["written"], outcome["records"], outcome["copied_offsets"]) == (0, 400, 1)


def test_an_interrupted_undo_continues(source: Source) -> None:
    """A killed undo has deleted some topics. A run does not continue then, because they are missing."""
    source.seed()
    delete_topics(source.harness, [f"{source.new}-count-changelog"])
    cut_journal(source, "planned", "announced", "created", "verified", "committing")
    with source.journal.open("a") as journal:
        journal.write('{"event": "deleting"}\n')
    refusal = source.seed(status=4)
    assert "was interrupted" in refusal.error["message"] and "--undo" in refusal.error["hint"], refusal.report
    source.undo()
    assert source.seed().summary["written"] == 400


def test_a_run_of_another_plan_can_be_undone(source: Source) -> None:
    """One that has not finished a topic: each hint leads to a command that succeeds."""
    source.seed()
    cut_journal(source, "planned", "announced", "created")
    # Such a run has not committed offsets yet.
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    admin.delete_consumer_groups([source.new])[source.new].result()
    refusal = source.seed("--rename-store", "count=total", status=4)
    assert "belongs to a different plan" in refusal.error["message"] and "--undo" in refusal.error["hint"]
    unfinished = source.undo(status=4)
    assert "delete this topic yourself" in unfinished.error["hint"], unfinished.report
    delete_topics(source.harness, [f"{source.new}-count-changelog"])
    source.undo()
    assert source.seed("--rename-store", "count=total").summary["written"] == 400


def _join_group(source: Source) -> object:
    """A consumer in the group of the source application, as if that was started again."""
    consumer = Consumer({"bootstrap.servers": source.harness.bootstrap, "group.id": source.app})
    consumer.subscribe([f"{source.app}-in"])
    while not consumer.assignment():
        consumer.poll(0.2)
    return consumer


def _moved_offset(source: Source) -> None:
    source.commit(offset=1)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [(_grown_log, "has changed"), (_moved_offset, "offsets"), (_join_group, "was started again")],
    ids=["grown-log", "moved-offset", "started"],
)
def test_a_source_that_changes_during_the_run(source: Source, change: Callable[[Source], object], message: str) -> None:
    """The plan was made before. Everything is written, and the offsets of the new application are not set."""
    cluster = Connection(source.harness.bootstrap, {})
    request = SeedRequest(str(source.folder / "dump"), source.new, None, cluster, cluster, source.journal)
    plan = plan_seed(request, read_facts(request), ())
    running = change(source)
    with open_journal(source.journal) as journal, pytest.raises(Refused, match=message) as caught:
        carry_out(request, plan, journal, Watcher())
    if isinstance(running, Consumer):
        running.close()
    assert not read_committed(source.harness.bootstrap, {}, source.new, [TopicPartition(f"{source.app}-in", 0)])
    _, _, command = str(caught.value.hint).partition("kstate ")
    undone = kstate(*shlex.split(command))
    assert undone.status == 0, undone.report
    source.dump()
    assert source.seed().summary["executed"]


def test_settings_that_the_client_rejects(source: Source) -> None:
    key = [TopicPartition("t", 0)]
    for settings in ({"no.such.setting": "secret"}, {"max.poll.interval.ms": "1000"}):
        with pytest.raises(UsageError) as caught:
            read_committed("127.0.0.1:1", settings, "group", key)
        assert caught.value.hint == "correct --kafka-settings"
        assert "secret" not in str(caught.value)
    # Corrected, the broker is the next to be asked.
    with pytest.raises(RunFailed):
        read_committed("127.0.0.1:1", {}, "group", key, timeout_ms=100)
    file = source.folder / "client.properties"
    file.write_text("no.such.setting=1\n")
    assert kstate(*source.words("--kafka-settings", file)).error["hint"] == "correct --kafka-settings"
    file.write_text("client.id=kstate\n")
    assert kstate(*source.words("--kafka-settings", file, "--dry-run")).status == 0


def test_a_topic_that_another_program_created_again(source: Source) -> None:
    source.seed()
    lines = source.journal.read_text().splitlines(keepends=True)
    source.journal.write_text("".join(line for line in lines if '"done"' not in line))
    new = f"{source.new}-count-changelog"
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    admin.delete_topics([new])[new].result()
    assert "no longer exists" in kstate(*source.words()).error["message"]
    source.topic(new, 2)
    assert "created it again" in source.seed(status=4).error["message"]
    assert "created it again" in source.undo(status=4).error["message"]
    assert source.seed("--app", "another", "--journal", source.folder / "another.jsonl").summary["written"] == 400


@pytest.mark.rotating(1)
@pytest.mark.parametrize("moments", [100 if ALL else 15])
def test_a_killed_run_continues_and_writes_each_record_once(harness: Harness, tmp_path: Path, moments: int) -> None:
    source = Source(harness, tmp_path, f"seed-{next(_names)}").create(10_000, 500)
    expected = content(harness, source.changelog)
    # Small transactions, so that a kill leaves a part of the records committed.
    program = (
        "from kstate_cli.seed import writing; writing.TRANSACTION_RECORDS = 1_000; "
        "from kstate_cli.cli.start import main; main()"
    )
    command = [sys.executable, "-c", program, *map(str, source.words())]
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
        if source.journal.exists() and events(source.journal)[-1:] == ["done"]:
            source.undo()
    source.seed()
    assert content(harness, f"{source.new}-count-changelog") == expected
