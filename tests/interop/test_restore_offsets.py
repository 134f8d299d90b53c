"""
Offsets at the edges of a changelog's log: what `kstate restore` decides, and what real 4.3.1 does with the same directory.

An offset is edited into a copy of a healthy directory. The log of partition 0 begins in its middle (its first records are
deleted), that of partition 1 at its end (all are). `next` is what would be read first: v + 1 for a task store, v for a global one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kstate_cli.broker.client import ask_broker
from kstate_cli.errors import RunFailed
from kstate_cli.formats.offsets import decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore

from . import dumps
from .harness import App, Harness, Run
from .jvm import Reply
from .restoring import changelog as changelog_of
from .restoring import (
    changelogs,
    delete_before,
    different,
    dump_changelogs,
    log_bounds,
    restore,
    rows_by_store,
    run_restore,
    write_spec,
)
from .support import ALL, BATCH, REFUSAL, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
TASK_STORE, GLOBAL_STORE = "latest-order", "customers"
REMAINDER, CAUGHT_UP, REBUILT, NOT_DONE = "left", "caught up", "rebuilt", "refused"
DOUBTED = "left, with a warning"
GOES_ON, WIPES, FAILS = "goes on", "wipes and restores", "deletes the store and fails"
EITHER = f"{GOES_ON}, or {WIPES}"
"""
Whether it finds the store complete before its first fetch is answered is chance: both were seen
(docs/internals/changelogs.md#log-ends).
"""
_LOST_GLOBAL = re.compile(r"(Bootstrapping|Updating) global state failed")
_SOON = 200
"""Seconds after which an application that has lost its global thread is given up: 4.3.1 stays REBALANCING for ever."""


@dataclass(frozen=True)
class Log:
    """What the broker has of one partition."""

    start: int
    end: int


@dataclass(frozen=True)
class Edge:
    """An offset of a store, by the bounds of the log, and what becomes of it."""

    store: str
    partition: int
    name: str
    offset: Callable[[Log], int]
    kstate: str
    streams: str

    def __str__(self) -> str:
        """The name of its test."""
        return f"{self.store}-{'empty' if self.partition else 'begun'}-{self.name}"


EDGES = [
    Edge(TASK_STORE, 0, "start-2", lambda log: log.start - 2, REBUILT, WIPES),
    Edge(TASK_STORE, 0, "start-1", lambda log: log.start - 1, CAUGHT_UP, GOES_ON),
    Edge(TASK_STORE, 0, "end-1", lambda log: log.end - 1, REMAINDER, GOES_ON),
    Edge(TASK_STORE, 0, "end", lambda log: log.end, DOUBTED, EITHER),
    Edge(TASK_STORE, 1, "end-2", lambda log: log.end - 2, NOT_DONE, WIPES),
    Edge(TASK_STORE, 1, "end-1", lambda log: log.end - 1, REMAINDER, GOES_ON),
    Edge(GLOBAL_STORE, 0, "start-2", lambda log: log.start - 2, REBUILT, FAILS),
    Edge(GLOBAL_STORE, 0, "start-1", lambda log: log.start - 1, REBUILT, FAILS),
    Edge(GLOBAL_STORE, 0, "start", lambda log: log.start, CAUGHT_UP, GOES_ON),
    Edge(GLOBAL_STORE, 0, "end-1", lambda log: log.end - 1, CAUGHT_UP, GOES_ON),
    Edge(GLOBAL_STORE, 0, "end", lambda log: log.end, REMAINDER, GOES_ON),
    Edge(GLOBAL_STORE, 0, "end+1", lambda log: log.end + 1, DOUBTED, FAILS),
    Edge(GLOBAL_STORE, 1, "end-1", lambda log: log.end - 1, NOT_DONE, FAILS),
    Edge(GLOBAL_STORE, 1, "end", lambda log: log.end, REMAINDER, GOES_ON),
]


@dataclass(frozen=True)
class Setup:
    """A healthy directory, and changelogs whose beginnings are gone."""

    app: App
    folder: Path
    logs: dict[tuple[str, int], Log]

    @property
    def dump(self) -> Path:
        """The changelogs as they are now."""
        return self.folder / "dump"

    @property
    def spec(self) -> Path:
        """kstate.toml."""
        return self.folder / "kstate.toml"

    def topic(self, store: str) -> str:
        """What the store is restored from."""
        return f"{self.app.input}-global" if store == GLOBAL_STORE else changelog_of(self.app, store)

    def copy(self, state: Path) -> Path:
        """A copy of the application's directory, in the state.dir `state`: healthy whatever its log has lost."""
        directory = state / self.app.name
        shutil.copytree(self.folder / "healthy", directory)
        # Under exactly-once the log ends in a marker, and the last record's successor is gone too.
        key = TopicPartition(self.topic(TASK_STORE), 1)
        set_offset(directory / "0_1" / "rocksdb" / TASK_STORE, key, self.logs[key.topic, 1].end - 1)
        return directory


@pytest.fixture(scope="module", params=["eos", "alos"] if ALL else ["eos"])
def setup(request: pytest.FixtureRequest, harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """One application for all edges: nothing that is done here changes its topics."""
    folder = tmp_path_factory.mktemp("edges")
    app = application("demo", request.param)
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, folder / "state", Run(read=False)))
    (folder / "state" / app.name).rename(folder / "healthy")
    whole = log_bounds(dump_changelogs(harness, RELEASE, changelogs(first), folder / "whole"))
    cut = {}
    for topic in (changelog_of(app, TASK_STORE), f"{app.input}-global"):
        start, end, _ = whole[topic, 0]
        assert start == 0
        assert end > 12
        cut[topic, 0], cut[topic, 1] = end // 2, whole[topic, 1][1]
    delete_before(harness, RELEASE, cut)
    now = log_bounds(dump_changelogs(harness, RELEASE, changelogs(first), folder / "dump"))
    outputs = Setup(app, folder, {key: Log(start, end) for key, (start, end, _) in now.items()})
    for key, start in cut.items():
        assert outputs.logs[key].start == start
    write_spec(outputs.copy(folder / "for-spec"), outputs.spec)
    return outputs


def set_offset(database: Path, key: TopicPartition, value: int) -> None:
    """Edits an offset in the column family of a database that nobody has open."""
    with Shadow(database) as shadow:
        record = decode_rows(shadow.rows(OFFSETS_CF))
    assert key in record.offsets
    with WritableStore(database) as store:
        store.set_offsets(encode_rows(dataclasses.replace(record, offsets={**record.offsets, key: value})))


def decision_of(directory: Path, outputs: Setup, task: str, store: str) -> str:
    """What kstate would do with the store; with all others it would do nothing."""
    result = run_restore(directory, outputs.dump, RELEASE, outputs.spec, "--dry-run", "--warnings-ok")
    if result.status == REFUSAL:
        assert re.findall(r"^  (\S+): ", result.err, re.MULTILINE) == [f"{task}/{store}"], result.report
        return NOT_DONE
    assert result.status == 0, result.report
    steps = {row["path"]: row["message"] for row in result.rows if row["type"] == "step"}
    texts = {f"{row['task']}/{row['store']}" for row in result.rows if row["type"] == "left"}
    assert steps.keys() == {f"{task}/rocksdb/{store}"} - {entry.replace("/", "/rocksdb/", 1) for entry in texts}, (
        result.report
    )
    if not steps:
        doubted = any("above the log end" in row["message"] for row in result.rows if row["type"] == "warning")
        return DOUBTED if doubted else REMAINDER
    return {"catch": CAUGHT_UP, "rebuild": REBUILT}[next(iter(steps.values())).split(" ")[0]]


def done_by_streams(reply: Reply, store: str, partition: int) -> tuple[str, int]:
    """What real Streams did, and how many records it restored into the store's partition."""
    records = sum(
        event["restored"] for event in reply.of("restore-end")
        if event["store"] == store and event["partition"] == partition
    )  # fmt: skip
    if _LOST_GLOBAL.search(reply.report()):
        assert reply.rc in (2, 3), reply.report()
        return FAILS, records
    good(reply)
    return (WIPES if wipes_task(reply) else GOES_ON), records


@pytest.mark.rotating(2)
@pytest.mark.sample(3)
@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_an_offset_at_the_edge_of_the_log(harness: Harness, tmp_path: Path, setup: Setup, edge: Edge) -> None:
    key = TopicPartition(setup.topic(edge.store), edge.partition)
    log = setup.logs[key.topic, key.partition]
    value = edge.offset(log)
    task = "global" if edge.store == GLOBAL_STORE else f"0_{edge.partition}"
    directory = setup.copy(tmp_path / "state")
    set_offset(directory / task / "rocksdb" / edge.store, key, value)

    decision = decision_of(directory, setup, task, edge.store)
    run = Run(read=False, options={"timeout": _SOON} if edge.streams == FAILS else {})
    reply = harness.run(RELEASE, setup.app, tmp_path / "state", run)
    streams, records = done_by_streams(reply, edge.store, edge.partition)
    print(
        f"{setup.app.guarantee} {edge}: v={value} in {log.start}..{log.end}: kstate: {decision}, Streams: {streams}, {records} records"
    )
    assert (streams == FAILS) == (not list((directory / "global").glob("rocksdb/*")))
    assert decision == edge.kstate
    assert streams in edge.streams if edge.streams == EITHER else streams == edge.streams


@pytest.mark.in_full("tests/interop/test_restore_offsets.py::test_an_offset_at_the_edge_of_the_log")
def test_a_global_store_below_the_log_start_is_rebuilt(harness: Harness, tmp_path: Path, setup: Setup) -> None:
    """KIP-406: real Streams deletes such a store and never gets to RUNNING; after kstate it does, and restores nothing."""
    key = TopicPartition(setup.topic(GLOBAL_STORE), 0)
    log = setup.logs[key.topic, key.partition]
    for name in ("alone", "state"):
        set_offset(setup.copy(tmp_path / name) / "global" / "rocksdb" / GLOBAL_STORE, key, log.start - 1)
    foreseen = kstate("check", tmp_path / "alone" / setup.app.name, "--for", "4.3", "--dump", setup.dump, "-o", "json")
    (failing,) = [row for row in foreseen.rows if row["type"] == "prediction" and row["outcome"] == "start-fails"]
    assert (foreseen.status, failing["store"]) == (3, GLOBAL_STORE), foreseen.report
    alone = harness.run(RELEASE, setup.app, tmp_path / "alone", Run(read=False, options={"timeout": _SOON}))
    assert done_by_streams(alone, GLOBAL_STORE, 0) == (FAILS, 0)

    directory = tmp_path / "state" / setup.app.name
    # Partition 1 has no records any more, so that its rows cannot be rebuilt: somebody has to say that this is right.
    result = restore(directory, setup.dump, RELEASE, setup.spec, "--allow-empty")
    assert result.steps.keys() == {f"global/rocksdb/{GLOBAL_STORE}"}, result.command.report
    assert any(f"is below the log start {log.start}" in row["message"] for row in result.of("warning")), (
        result.command.report
    )
    served, reference = tmp_path / "served.jsonl", tmp_path / "reference.jsonl"
    reply = good(harness.run(RELEASE, setup.app, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not wipes_task(reply), reply.report()

    shutil.copytree(setup.copy(tmp_path / "copy"), tmp_path / "streams" / setup.app.name)
    shutil.rmtree(tmp_path / "streams" / setup.app.name / "global")
    good(harness.run(RELEASE, setup.app, tmp_path / "streams", Run(read=False)))
    good(harness.run(RELEASE, setup.app, tmp_path / "streams", Run(dump=reference, expect_no_restore=True)))
    assert not [str(difference) for difference in dumps.differences(reference, served)]
    rows = rows_by_store(directory, task="global")
    assert rows
    assert not different(rows, rows_by_store(tmp_path / "streams" / setup.app.name, task="global"))


@pytest.mark.in_full("tests/interop/test_restore_offsets.py::test_an_offset_at_the_edge_of_the_log")
def test_a_task_store_below_the_log_start_is_rebuilt(harness: Harness, tmp_path: Path, setup: Setup) -> None:
    """Real Streams wipes it (under exactly-once its whole task) and restores; after kstate it restores nothing."""
    key = TopicPartition(setup.topic(TASK_STORE), 0)
    log = setup.logs[key.topic, key.partition]
    for name in ("alone", "state"):
        set_offset(setup.copy(tmp_path / name) / "0_0" / "rocksdb" / TASK_STORE, key, log.start - 2)
    alone = harness.run(RELEASE, setup.app, tmp_path / "alone", Run(read=False))
    assert done_by_streams(alone, TASK_STORE, 0)[0] == WIPES
    served, reference = tmp_path / "served.jsonl", tmp_path / "reference.jsonl"
    good(harness.run(RELEASE, setup.app, tmp_path / "alone", Run(dump=reference, expect_no_restore=True)))

    result = restore(tmp_path / "state" / setup.app.name, setup.dump, RELEASE, setup.spec)
    assert result.steps.keys() == {f"0_0/rocksdb/{TASK_STORE}"}, result.command.report
    reply = good(harness.run(RELEASE, setup.app, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not wipes_task(reply), reply.report()
    others = {event["store"] for event in reply.of("store")} - {TASK_STORE}
    assert not [str(difference) for difference in dumps.differences(reference, served, ignore=others)]


def test_broker_reports_the_bounds_of_its_logs(harness: Harness, setup: Setup) -> None:
    events = f"{setup.app.input}-events"
    topics = {topic for topic, _ in setup.logs} | {events}
    facts = ask_broker(harness.bootstrap, {}, group=setup.app.name, topics=[*topics, "no-topic-of-this-name"])
    assert {
        (key.topic, key.partition): Log(fact.start, fact.end) for key, fact in facts.items() if key.topic != events
    } == setup.logs
    assert {fact.committed is not None for key, fact in facts.items() if key.topic == events} == {True}
    assert {fact.compacted for key, fact in facts.items() if key.topic == setup.topic(TASK_STORE)} == {True}
    assert {fact.compacted for key, fact in facts.items() if key.topic == events} == {False}
    assert len({fact.topic_id for fact in facts.values()}) == len(topics)
    with pytest.raises(RunFailed, match=r"does not respond: .*Connection refused"):
        ask_broker("127.0.0.1:1", {"socket.timeout.ms": "1000"}, group="none", topics=topics)


def test_an_offset_that_only_the_broker_knows_to_be_gone(harness: Harness, tmp_path: Path, setup: Setup) -> None:
    """A dump that is older than the deletion says that the offset is valid."""
    key = TopicPartition(setup.topic(TASK_STORE), 0)
    log = setup.logs[key.topic, key.partition]
    directory = setup.copy(tmp_path / "state")
    set_offset(directory / "0_0" / "rocksdb" / TASK_STORE, key, log.start - 2)
    file = tmp_path / "logs.json"
    facts = ask_broker(harness.bootstrap, {}, group=setup.app.name, topics={topic for topic, _ in setup.logs})
    rows: dict[str, dict[str, dict[str, int]]] = {}
    for place, fact in facts.items():
        rows.setdefault(place.topic, {})[str(place.partition)] = {"start": fact.start, "end": fact.end}
    file.write_text(json.dumps(rows), encoding="utf-8")

    def planned(*options: object) -> str:
        result = run_restore(
            directory, setup.folder / "whole", RELEASE, setup.spec, "--dry-run", "--warnings-ok", *map(str, options)
        )
        if result.status == REFUSAL:
            assert "--on-invalid-offset rebuild" in result.err, result.report
            return NOT_DONE
        assert result.status == 0, result.report
        steps = {row["path"]: row["message"] for row in result.rows if row["type"] == "step"}
        return {"catch": CAUGHT_UP, "rebuild": REBUILT}[steps[f"0_0/rocksdb/{TASK_STORE}"].split(" ")[0]]

    assert planned() == CAUGHT_UP
    for text in (("--bootstrap-server", harness.bootstrap), ("--offsets", file)):
        assert planned(*text) == REBUILT
        assert planned(*text, "--on-invalid-offset", "fail") == NOT_DONE
        check = kstate("check", directory, "--for", "4.3", *text, "-o", "json")
        assert check.status == 3
        assert any(
            row.get("store") == TASK_STORE and row.get("task") == "0_0"
            for row in check.rows
            if row["type"] == "finding"
        )
