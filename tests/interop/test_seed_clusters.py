"""``kstate seed`` to another cluster: input offsets are those of identified records, or they are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kstate_cli.broker.group_offsets import CommittedOffset, commit_offsets, read_committed
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TopicPartition as Key
from kstate_cli.seed.cluster import Connection, read_topics
from kstate_cli.seed.execution import Watcher, carry_out
from kstate_cli.seed.input_offsets import translate_offsets
from kstate_cli.seed.journal import open_journal
from kstate_cli.seed.model import SeedRequest
from kstate_cli.seed.planner import plan_seed, read_facts
from kstate_cli.specification.toml_file import read_spec
from tests.command_result import CommandResult

from . import dumps
from .harness import Harness, Run
from .mirroring import ABORTED, MANY_ABORTED, Entry, Mirror, create, write
from .restoring import changelogs
from .seeding import METADATA, Record, Source, await_end, content, delete_topics, page_commands
from .support import BATCH, application, good, kstate, restored_records, wipes_task

pytestmark = [pytest.mark.interop, pytest.mark.rotating(6)]

_names = itertools.count(1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Another cluster."""
    with Harness(tmp_path_factory.mktemp("other")) as started:
        yield started


def record(number: int, *, timestamp: int | None = None, key: bytes | None = b"k", header: bytes = b"h") -> Record:
    """Return a record that no other number has."""
    return (
        key,
        f"value-{number}".encode(),
        1_000 + number if timestamp is None else timestamp,
        [("h", header), ("n", None)],
    )


R = [record(number) for number in range(6)]


@dataclass(frozen=True)
class Case:
    """The logs of both clusters, the committed offset of the source, and the offset on the target or why there is none."""

    source: Sequence[Entry]
    target: Sequence[Entry]
    committed: int
    expected: int | str
    deleted: int = 0
    """Log start of the source: the records before were deleted."""


CASES = {
    "same-logs": Case(R, R, 2, 2),
    "gap-in-source": Case([*R[:2], ABORTED, *R[2:]], R, 4, 2),
    "gap-in-source-offset-in-it": Case([*R[:2], ABORTED, *R[2:]], R, 3, 2),
    "wide-gap-in-source": Case([*R[:2], MANY_ABORTED, *R[2:]], R, 1_503, 2),
    "gap-in-target": Case(R, [ABORTED, *R[:2], ABORTED, *R[2:]], 2, 6),
    "compacted-target": Case(R, [R[1], R[2], R[5]], 2, 1),
    "compacted-source": Case([R[1], R[2], R[5]], [R[1], R[2], R[5]], 1, 1),
    "start": Case(R, [ABORTED, *R], 0, 2),
    "start-with-records-before": Case(
        R, [record(9), *R], 0, "before the first unconsumed record, the target has records"
    ),
    "end": Case(R, [*R, ABORTED], 6, 6),
    "end-behind-marker": Case([*R, ABORTED], R, 8, 6),
    "end-with-records-behind": Case(R, [*R, record(9)], 6, "after the last consumed record, the target has records"),
    "empty": Case([], [], 0, 0),
    "only-aborted": Case([ABORTED], [ABORTED], 2, 0),
    "empty-source": Case([], R, 0, "the source has no records, but the target has some"),
    "empty-target": Case(R, [], 3, "does not have the last consumed record"),
    "consumed-twice": Case(R, [*R[:2], R[1], *R[2:]], 2, "has the last consumed record 2 times"),
    "unconsumed-twice": Case(R, [*R, R[2]], 2, "has the first unconsumed record 2 times"),
    "twice-in-both": Case([R[0], R[0], R[1]], [R[0], R[0], R[1]], 1, "has the last consumed record 2 times"),
    "consumed-missing": Case(R, [R[0], *R[2:]], 2, "does not have the last consumed record"),
    "unconsumed-missing": Case(R, [*R[:2], *R[3:]], 2, "does not have the first unconsumed record"),
    "record-between": Case(R, [*R[:2], record(9), *R[2:]], 2, "does not follow the last consumed one"),
    "other-order": Case(R, [R[0], R[2], R[1], *R[3:]], 2, "does not follow the last consumed one"),
    "other-header": Case(R, [R[0], record(1, header=b"x"), *R[2:]], 2, "does not have the last consumed record"),
    "other-timestamp": Case(R, [R[0], record(1, timestamp=5), *R[2:]], 2, "does not have the last consumed record"),
    "no-key": Case(
        [record(0, key=b""), R[1]], [record(0, key=None), R[1]], 1, "does not have the last consumed record"
    ),
    "times-in-other-order": Case(
        [record(0), record(1, timestamp=9_000), record(2, timestamp=50), record(3)],
        [record(0), record(1, timestamp=9_000), record(2, timestamp=50), record(3)],
        2,
        2,
    ),
    "no-timestamps": Case(
        [record(number, timestamp=-1) for number in range(4)],
        [record(number, timestamp=-1) for number in range(4)],
        2,
        2,
    ),
    "deleted-before": Case(R, R[3:], 3, 0, deleted=3),
    "deleted-before-in-source-only": Case(R, R, 3, "that the source no longer has", deleted=3),
    "deleted-behind": Case(R, R, 3, "is below the log start 4", deleted=4),
    "beyond-end": Case(R, R, 7, "is above the log end 6"),
}


def translate(harness: Harness, other: Harness, topic: str, committed: int) -> CommittedOffset:
    """Translate the offset of the partition."""
    key = Key(topic, 0)
    source, target = Connection(harness.bootstrap, {}), Connection(other.bootstrap, {})
    offsets = translate_offsets(source, target, {key: CommittedOffset(committed, METADATA, 3)})
    return offsets[key]


@pytest.fixture(scope="module")
def _logs(harness: Harness, other: Harness) -> None:
    """A topic for each case, on both clusters."""
    for cluster in (harness, other):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in CASES]).values():
            future.result()
    for name, case in CASES.items():
        write(harness, name, case.source)
        write(other, name, case.target)
        if case.deleted:
            admin = AdminClient({"bootstrap.servers": harness.bootstrap})
            (future,) = admin.delete_records([TopicPartition(name, 0, case.deleted)]).values()
            future.result()


@pytest.mark.rotating(8)
@pytest.mark.usefixtures("_logs")
@pytest.mark.parametrize("topic", CASES)
def test_an_offset_is_that_of_identified_records(harness: Harness, other: Harness, topic: str) -> None:
    case = CASES[topic]
    if isinstance(case.expected, int):
        assert translate(harness, other, topic, case.committed) == CommittedOffset(case.expected, METADATA, None)
        return
    with pytest.raises(Refused) as caught:
        translate(harness, other, topic, case.committed)
    (detail,) = caught.value.details
    assert detail.startswith(f"{Key(topic, 0)}: ") and case.expected in detail


def test_topics_that_cannot_be_compared(harness: Harness, other: Harness) -> None:
    create(harness, "two-here", 2)
    create(other, "two-here", 1)
    create(harness, "missing-there")
    for cluster in (harness, other):
        create(cluster, "open")
    write(harness, "open", R)
    producer = Producer({"bootstrap.servers": other.bootstrap, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("open", b"open", b"open", 0)
    producer.flush()
    for topic, reason in (
        ("two-here", "2 partitions on the source and 1 on the target"),
        ("missing-there", "the topic does not exist on the target"),
        ("missing-here", "the topic no longer exists on the source"),
        ("open", "a transaction is open in the target topic"),
    ):
        with pytest.raises(Refused) as caught:
            translate(harness, other, topic, 1)
        assert reason in caught.value.details[0]
    producer.abort_transaction()


def test_the_hint_about_uncertain_offsets_leads_on(harness: Harness, other: Harness, tmp_path: Path) -> None:
    source = Source(harness, tmp_path, f"clusters-{next(_names)}").create()
    words: list[object] = ["seed", "--from", tmp_path / "dump", "--app", source.app, "--journal", source.journal]
    words += ["--source-bootstrap-server", harness.bootstrap, "--bootstrap-server", other.bootstrap, "-o", "json"]
    refusal = kstate(*words)
    for option in ("--start-offsets", "--no-offsets"):
        assert refusal.status == 4 and option in refusal.error["hint"], refusal.report
    assert refusal.error["details"] == [f"{Key(f'{source.app}-in', 0)}: the topic does not exist on the target"]
    checked = kstate(*words, "--no-offsets", "--dry-run")
    assert checked.status == 0, checked.report
    create(other, f"{source.app}-in")
    write(other, f"{source.app}-in", R)
    stated = tmp_path / "offsets.csv"
    stated.write_text(f'# by the operator\n"{source.app}-in",0,4\n')
    seeded = kstate(*words, "--start-offsets", stated)
    assert seeded.status == 0, seeded.report
    assert content(other, source.changelog) == content(harness, source.changelog)
    key = Key(f"{source.app}-in", 0)
    # The metadata contains the emitted windows of the source, also if a file contains the offset.
    assert read_committed(other.bootstrap, {}, source.app, [key])[key] == CommittedOffset(4, METADATA)


def row(key: bytes, value: bytes | None, number: int) -> Record:
    """Return a record of a table."""
    return key, value, 1_000 + number, []


T = [
    row(b"a", b"a1", 0), row(b"b", b"b1", 1), row(b"c", b"c1", 2), row(b"a", b"a2", 3), row(b"c", None, 4),
    row(b"d", b"d1", 5), row(b"b", b"b2", 6),
]  # fmt: skip
"""The last one is not consumed yet."""
TABLES: dict[str, tuple[Sequence[Entry], str | None]] = {
    "whole": ([ABORTED, *T], None),
    "compacted": ([T[1], T[3], T[5], T[6]], None),
    "with-a-gap": ([T[0], T[2], T[3], T[4], T[5], T[6]], "lacks 1 key,"),
    "without-a-delete": ([T[1], T[2], T[3], T[5], T[6]], "has 1 key that the source does not have"),
    "without-an-update": ([T[0], T[1], T[2], T[4], T[5], T[6]], "different records for 1 key"),
    "compacted-behind-the-offset": ([T[3], T[4], T[5], T[6]], "lacks 1 key,"),
}
"""Logs of the target, and what differs from the table that the application has."""


@pytest.mark.parametrize("case", TABLES)
def test_rows_of_a_table_are_those_of_the_source(harness: Harness, other: Harness, tmp_path: Path, case: str) -> None:
    """The offset is certain in each case; what a restoration reads before it is not."""
    source = Source(harness, tmp_path, f"clusters-{next(_names)}").create()
    log, difference = TABLES[case]
    customers, everywhere = f"{source.app}-customers", f"{source.app}-everywhere"
    for cluster, entries in ((harness, T), (other, log)):
        create(cluster, customers)
        write(cluster, customers, entries)
        create(cluster, everywhere)
        write(cluster, everywhere, entries)
    create(other, f"{source.app}-in")
    committed = {Key(customers, 0): CommittedOffset(6, METADATA)}
    commit_offsets(harness.bootstrap, {}, source.app, committed)
    spec = tmp_path / "kstate.toml"
    spec.write_text(
        f'format = 1\napplication = "{source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
        f'changelog = "{source.changelog}"\nsubtopology = 0\npartitions = 2\n'
        f'[stores.customers]\nkind = "timestamped-key-value"\nsource = "topic"\nchangelog = "{customers}"\n'
        f'subtopology = 1\npartitions = 1\n[stores.everywhere]\nkind = "timestamped-key-value"\nglobal = true\n'
        f'source = "table"\nchangelog = "{everywhere}"\n'
    )
    words: list[object] = ["seed", "--from", tmp_path / "dump", "--app", source.app, "--journal", source.journal]
    words += ["--source-bootstrap-server", harness.bootstrap, "--bootstrap-server", other.bootstrap, "-o", "json"]
    without = kstate(*words, "--dry-run")
    assert _condition(without, "tables-equal") == "unknown"
    checked = kstate(*words, "--spec", spec, "--dry-run")
    if difference is None:
        assert _condition(checked, "tables-equal") == "met", checked.report
        assert kstate(*words, "--spec", spec).status == 0
        return
    assert _condition(checked, "tables-equal") == "not-met", checked.report
    refusal = kstate(*words, "--spec", spec)
    assert refusal.status == 4 and "different rows for the table customers" in refusal.error["message"], refusal.report
    (detail,) = refusal.error["details"]
    assert detail.startswith(f"{customers}:0: ") and difference in detail
    accepted = kstate(*words, "--spec", spec, "--accept", "customers", "--dry-run")
    assert (accepted.status, _condition(accepted, "tables-equal")) == (0, "unknown"), accepted.report
    # A global store continues to read its topic, so a difference is only reported.
    seeded = kstate(*words, "--spec", spec, "--accept", "customers")
    assert seeded.status == 0, seeded.report
    notes = [line["message"] for line in seeded.rows if line["type"] == "note"]
    assert any("you accept that the rows of customers differ" in note for note in notes)
    # It is restored up to the log end, where b has a newer record.
    differs = any("global store everywhere differs" in note for note in notes)
    assert differs is (case in ("without-a-delete", "without-an-update")), notes


@dataclass(frozen=True)
class Tables:
    """A table and a global store on two clusters, and the command of a seed between them."""

    source: Source
    other: Harness
    kind: str = "timestamped-key-value"

    @property
    def customers(self) -> str:
        """The topic of the table."""
        return f"{self.source.app}-customers"

    @property
    def everywhere(self) -> str:
        """The topic of the global store."""
        return f"{self.source.app}-everywhere"

    def create(self, ours: Sequence[Entry] = T, theirs: Sequence[Entry] = T) -> Tables:
        """Create the topics on both clusters, and commit an offset before the last record."""
        for cluster, entries in ((self.source.harness, ours), (self.other, theirs)):
            for topic in (self.customers, self.everywhere):
                create(cluster, topic)
                write(cluster, topic, entries)
        create(self.other, f"{self.source.app}-in")
        committed = {Key(self.customers, 0): CommittedOffset(len(ours) - 1, METADATA)}
        commit_offsets(self.source.harness.bootstrap, {}, self.source.app, committed)
        return self

    def check(self, *options: object) -> CommandResult:
        """Dry-run the seed to the other cluster."""
        return self.run("--source-bootstrap-server", self.source.harness.bootstrap, *options, "--dry-run")

    def run(self, *options: object, target: Harness | None = None) -> CommandResult:
        """Run it."""
        retention = "retention_ms = 3600000\n" if self.kind == "versioned" else ""
        spec = self.source.folder / "kstate.toml"
        spec.write_text(
            f'format = 1\napplication = "{self.source.app}"\n[stores.count]\nkind = "timestamped-key-value"\n'
            f'changelog = "{self.source.changelog}"\nsubtopology = 0\npartitions = 2\n'
            f'[stores.customers]\nkind = "{self.kind}"\nsource = "topic"\nchangelog = "{self.customers}"\n'
            f'subtopology = 1\npartitions = 1\n{retention}[stores.everywhere]\nkind = "timestamped-key-value"\n'
            f'global = true\nsource = "table"\nchangelog = "{self.everywhere}"\n'
        )
        words: list[object] = ["seed", "--from", self.source.folder / "dump", "--app", self.source.new, "--spec", spec]
        words += [
            "--journal",
            self.source.journal,
            "--bootstrap-server",
            (target or self.other).bootstrap,
            "-o",
            "json",
        ]
        return kstate(*words, *options)


@pytest.fixture
def tables(harness: Harness, other: Harness, tmp_path: Path) -> Tables:
    return Tables(Source(harness, tmp_path, f"clusters-{next(_names)}").create(), other)


def test_a_topic_of_a_global_store_that_the_source_does_not_list(tables: Tables) -> None:
    tables.create()
    delete_topics(tables.source.harness, [tables.everywhere])
    checked = tables.check()
    assert (checked.status, _condition(checked, "tables-equal")) == (0, "unknown"), checked.report
    assert f"the source does not list {tables.everywhere}" in checked.report


def test_a_comparison_ends_at_an_open_transaction(tables: Tables) -> None:
    """The user states an offset behind it, so only the comparison reads the log."""
    tables.create()
    producer = Producer({"bootstrap.servers": tables.other.bootstrap, "transactional.id": tables.customers})
    producer.init_transactions()
    producer.begin_transaction()
    for topic in (tables.customers, tables.everywhere):
        producer.produce(topic, b"open", b"z", 0)
    producer.flush()
    stated = tables.source.folder / "offsets.csv"
    stated.write_text(f'"{tables.customers}",0,8\n"{tables.source.app}-in",0,0\n')
    checked = tables.check("--start-offsets", stated)
    assert (checked.status, _condition(checked, "tables-equal")) == (4, "not-met"), checked.report
    assert "a transaction is open" in checked.error["details"][0]
    accepted = tables.check("--start-offsets", stated, "--accept", "customers")
    assert (accepted.status, _condition(accepted, "tables-equal")) == (0, "unknown"), accepted.report
    producer.abort_transaction()


@pytest.mark.parametrize(("kind", "state"), [("versioned", "not-met"), ("timestamped-key-value", "met")])
def test_older_versions_count_in_a_versioned_table(tables: Tables, kind: str, state: str) -> None:
    versions = replace(tables, kind=kind).create(T, [T[1], T[2], T[3], T[4], T[5], T[6]])
    checked = versions.check()
    assert _condition(checked, "tables-equal") == state, checked.report


@pytest.mark.parametrize("same", [True, False])
def test_rows_of_deleted_records_are_not_restored(tables: Tables, same: bool) -> None:
    """A table of a topic with retention: the old application still has the rows, on the same cluster too."""
    tables.create()
    admin = AdminClient({"bootstrap.servers": tables.source.harness.bootstrap})
    (future,) = admin.delete_records([TopicPartition(tables.customers, 0, 2)]).values()
    future.result()
    check = tables.check
    if same:
        check = partial(tables.run, "--dry-run", target=tables.source.harness)
    checked = check()
    assert (checked.status, _condition(checked, "tables-equal")) == (4, "not-met"), checked.report
    assert "records before offset 2 were deleted" in checked.error["details"][0]
    accepted = check("--accept", "customers")
    assert (accepted.status, _condition(accepted, "tables-equal")) == (0, "unknown"), accepted.report


@pytest.mark.parametrize("same", [True, False])
def test_tables_are_compared_again_before_the_offsets(tables: Tables, same: bool) -> None:
    """Writing takes hours. Meanwhile retention may have deleted records on the target, which may be the same cluster."""
    tables.create()
    cluster = tables.source.harness if same else tables.other
    source, target = Connection(tables.source.harness.bootstrap, {}), Connection(cluster.bootstrap, {})
    assert tables.check().status == 0
    request = SeedRequest(
        str(tables.source.folder / "dump"), tables.source.new, None, target, source, tables.source.journal,
        spec=read_spec(tables.source.folder / "kstate.toml"),
    )  # fmt: skip
    plan = plan_seed(request, read_facts(request), ())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.delete_records([TopicPartition(tables.customers, 0, 3)]).values()
    future.result()
    reason = "the same rows for the table" if same else "different rows for the table"
    with open_journal(tables.source.journal) as journal, pytest.raises(Refused, match=reason):
        carry_out(request, plan, journal, Watcher())
    key = Key(tables.customers, 0)
    assert not read_committed(cluster.bootstrap, {}, tables.source.new, [key])


def _condition(result: CommandResult, name: str) -> str:
    (state,) = (
        line["condition_state"] for line in result.rows if line["type"] == "condition" and line["condition"] == name
    )
    return str(state)


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.parametrize(("release", "guarantee"), [("4.2.1", "eos")])
def test_the_same_application_continues_on_another_cluster(
    harness: Harness, other: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, guarantee: str
) -> None:
    """Real Kafka Streams continues there with the same rows; the old application continues as well."""
    app = application("kinds", guarantee)
    harness.produce(release, app, BATCH)
    first = good(harness.run(release, app, tmp_path / "old", Run(read=False)))
    await_end(harness, app)
    mirror = Mirror(harness, other, f"{app.input}-")
    mirror.run()
    topics = changelogs(first)
    # The page has the same id on both clusters: each cluster has an application of its own.
    monkeypatch.chdir(tmp_path)
    names = {"/dump/orders": "dump", "orders": app.name, "old:9092": harness.bootstrap, "new:9092": other.bootstrap}
    write, judge_conditions, check = page_commands("another-cluster.md", names)
    dumped = kstate(*write)
    assert dumped.status == 0, dumped.report
    # Only the user can compare the input topics and, without a specification, the tables.
    judged = kstate(*judge_conditions, "-o", "json")
    assert judged.status == 1 and not judged.summary["errors"], judged.report
    checked = kstate(*check, "-o", "json")
    assert checked.status == 0, checked.report
    before = {name: facts.topic_id for name, facts in read_topics(Connection(harness.bootstrap, {}), topics).items()}
    seeded = kstate(*[word for word in check if word != "--dry-run"], "-o", "json")
    assert seeded.status == 0, seeded.report
    assert seeded.summary["written"] > 0 and seeded.summary["copied_offsets"] > 0
    complete = kstate(*judge_conditions, "-o", "json")
    assert complete.status == 0, complete.report
    assert before == {
        name: facts.topic_id for name, facts in read_topics(Connection(harness.bootstrap, {}), topics).items()
    }

    harness.produce(release, app, BATCH.next())
    mirror.run()
    for cluster, folder in ((harness, "old"), (other, "new")):
        run = Run(dump=tmp_path / f"{folder}.jsonl")
        outcome = good(cluster.run(release, app, tmp_path / folder, run))
        assert not wipes_task(outcome)
    assert restored_records(outcome)
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert not [str(difference) for difference in differences]
