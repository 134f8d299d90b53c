"""What leaves with a store and what must stay, from directories that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.change.plan import CreateDatabase, OmitTree, Plan, RemoveFile, WriteFile
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.resolve import resolve_with
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import PROCESS_FILE
from kstate_cli.wipe import WipeOptions, WipeSnapshot, plan_of, plan_wipe, remaining_lines
from tests.unit.model import OLD, application, changelog, database, record, store, task

COUNT, SUM = changelog("count"), changelog("sum")


def wipe(app: Application, *stores: str, **more: object) -> Plan:
    options = {"tasks": frozenset(more.pop("tasks", ())), **more}  # type: ignore[call-overload]
    return plan_of(snapshot(app, WipeOptions(stores=frozenset(stores), **options)))


def snapshot(app: Application, options: WipeOptions, *, has_process_file: bool = False) -> WipeSnapshot:
    """A snapshot without a disk: no task has files of a custom store."""
    return WipeSnapshot(app, options, tuple(resolve_with(app, {})), has_process_file)


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(step.action, step.path) for step in plan.steps]


def old() -> Application:
    count, total = (store(name, database(name, version=OLD), position=3) for name in ("count", "sum"))
    return application(task(count, total, lines={COUNT: 41, SUM: 8}, mtime=5))


def new() -> Application:
    count, total = (store(name, database(name, offsets=record(41, name))) for name in ("count", "sum"))
    return application(task(count, total))


def test_up_to_42_a_line_says_from_the_beginning() -> None:
    plan = wipe(old(), "count")
    omitted, position, offsets_step = plan.steps
    assert isinstance(omitted, OmitTree) and omitted.path == "0_0/rocksdb/count"
    assert isinstance(position, RemoveFile) and position.path == "0_0/count.position"
    assert isinstance(offsets_step, WriteFile) and offsets_step.keep_time, (
        "or the age of the other stores' data would be lost"
    )
    assert (
        f"{COUNT.topic} 0 {OFFSET_UNKNOWN}\n".encode() in offsets_step.data
        and f"{SUM.topic} 0 8\n".encode() in offsets_step.data
    )
    assert (plan.source, plan.target, plan.command) == ("4.2", "4.2", "wipe --store count")


def test_from_43_on_an_empty_database_says_it() -> None:
    omitted, created = wipe(new(), "count").steps
    assert isinstance(omitted, OmitTree) and isinstance(created, CreateDatabase)
    assert omitted.path == created.path == "0_0/rocksdb/count"
    assert created.offsets.offsets == {COUNT: OFFSET_UNKNOWN} and created.offsets.position is None


def test_of_a_segmented_store_a_segment_says_it() -> None:
    segments = (database("win", start=n, offsets=record(7, "win")) for n in (0, 60))
    app = application(task(store("win", *segments, kind="window", segmented=True), *new().tasks[0].stores))
    assert steps(wipe(app, "win")) == [("leave out", "0_0/win"), ("create carrier segment", "0_0/win/win.0")]


def test_a_grace_buffer_keeps_only_its_file() -> None:
    inside = database("b-Buffer", start=0, offsets=record(9, "b-Buffer"))
    buffer = store("b-Buffer", inside, kind="grace-buffer", segmented=True, offset=9)
    plan = wipe(application(task(buffer)), "b-Buffer")
    assert steps(plan) == [("leave out", "0_0/b-Buffer"), ("write file", "0_0/.checkpoint_b-Buffer")]
    step = plan.steps[1]
    assert isinstance(step, WriteFile) and step.data.endswith(b" 0 -4\n")


@pytest.mark.parametrize("app", [old(), new()], ids=["4.2", "4.3"])
def test_a_whole_task_leaves_nothing_behind(app: Application) -> None:
    assert steps(wipe(app, tasks=["0_0"])) == [("leave out", "0_0")]
    assert steps(wipe(app, every_task=True)) == [("leave out", "0_0")]


def test_a_global_store_leaves_no_line() -> None:
    topic = TopicPartition("customers", 0)
    customers = store("customers", database("customers", version=OLD))
    customers = replace(customers, path=Path("/state/shop/global/rocksdb/customers"))
    app = application(task(customers, name="global", lines={topic: 5}))
    assert steps(wipe(app, "customers")) == [
        ("leave out", "global/rocksdb/customers"), ("remove file", "global/.checkpoint"),
    ]  # fmt: skip
    assert steps(wipe(app, global_stores=True)) == [("leave out", "global")]


def test_a_line_that_may_be_another_stores_is_not_touched() -> None:
    source = TopicPartition("events", 0)
    stores = (store(name, database(name, version=OLD), position=3) for name in ("one", "two"))
    app = application(task(*stores, lines={source: 5}))
    with pytest.raises(Refused, match=r"the offset for events:0 in .checkpoint may belong to one or to two") as refusal:
        wipe(app, "one")
    assert refusal.value.advice.endswith("kstate wipe /state/shop --task 0_0")
    assert ("write file", "0_0/.checkpoint") in steps(wipe(app, "one", "two"))


def test_a_database_that_cannot_be_read_keeps_its_task() -> None:
    """Without an offset 4.3 wipes the whole task: which changelog it has another task tells, or its usual name."""
    damaged = replace(database("count"), column_families=(), live={})
    alone = application(task(store("count", damaged), store("sum", database("sum", offsets=record(8, "sum")))))
    plan = wipe(alone, "count")
    created = plan.steps[1]
    assert isinstance(created, CreateDatabase) and created.offsets.offsets == {COUNT: OFFSET_UNKNOWN}
    assert any("assumes that the store's changelog is" in warning for warning in plan.warnings)
    renamed = replace(record(4), offsets={TopicPartition("other-name", 1): 4})
    twin = task(store("count", database("count", offsets=renamed), task="0_1"), name="0_1")
    created = wipe(application(*alone.tasks, twin), "count", tasks=["0_0"]).steps[1]
    assert isinstance(created, CreateDatabase)
    assert created.offsets.offsets == {TopicPartition("other-name", 0): OFFSET_UNKNOWN}
    unlogged = task(store("count", database("count", offsets=record(None)), task="0_1"), name="0_1")
    assert steps(wipe(application(*alone.tasks, unlogged), "count", tasks=["0_0"])) == [
        ("leave out", "0_0/rocksdb/count")
    ]


def test_rows_without_an_offset_are_named() -> None:
    app = application(task(store("plain", database("plain", version=OLD)), lines={}))
    for plan in (wipe(app, "plain"), wipe(app, tasks=["0_0"])):
        assert any("has rows, but no offset" in warning for warning in plan.warnings)


def test_wiped_store_needs_no_step() -> None:
    app = application(task(store("sum", database("sum", version=OLD)), lines={COUNT: OFFSET_UNKNOWN, SUM: 8}))
    assert wipe(app, "count").empty


@pytest.mark.parametrize(
    ("stores", "more", "message"),
    [
        ((), {}, "no store is selected"),
        (("count",), {"every_task": True}, "--all already selects all stores"),
        ((), {"tasks": ["0_0"], "own_files": True}, "--everything works only with --all"),
        ((), {"tasks": ["9_9"]}, "the directory does not contain task 9_9"),
        (("nobody",), {}, "the selected tasks do not contain store nobody"),
        (("sum",), {"tasks": ["0_1"]}, "the selected tasks do not contain store sum"),
    ],
)
def test_names_that_are_not_there(stores: tuple[str, ...], more: dict[str, object], message: str) -> None:
    app = application(*old().tasks, task(store("count", database(version=OLD), task="0_1"), name="0_1"))
    with pytest.raises(UsageError, match=message):
        wipe(app, *stores, **more)


def test_the_process_file_leaves_only_with_everything(tmp_path: Path) -> None:
    (tmp_path / PROCESS_FILE).touch()
    app = replace(old(), path=tmp_path, tasks=())
    assert plan_wipe(app, WipeOptions(every_task=True)).empty
    everything = WipeOptions(every_task=True, own_files=True)
    assert steps(plan_wipe(app, everything)) == [("remove file", PROCESS_FILE)]
    assert steps(plan_of(snapshot(app, everything, has_process_file=True))) == [("remove file", PROCESS_FILE)]
    assert plan_of(snapshot(app, everything)).empty


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (WipeOptions(tasks=frozenset({"0_1", "0_0"})), "wipe --task 0_0 --task 0_1"),
        (WipeOptions(stores=frozenset({"a b"}), global_stores=True), "wipe --store 'a b' --global"),
        (WipeOptions(every_task=True, own_files=True), "wipe --all --everything"),
    ],
)
def test_the_command_of_the_options(options: WipeOptions, command: str) -> None:
    assert options.command == command


def test_every_line_of_a_store_without_a_directory_is_kept_but_its_own() -> None:
    """A store that was wiped by hand: its line stays as an offset, and the next start would skip its records."""
    app = application(task(store("sum", database("sum", version=OLD)), lines={COUNT: 41, SUM: 8}))
    (offsets,) = resolve_with(app, {})
    assert remaining_lines(offsets, frozenset({"count"}), ()) == {COUNT: OFFSET_UNKNOWN, SUM: 8}
    assert remaining_lines(offsets, frozenset({"other"}), ()) == {COUNT: 41, SUM: 8}


def test_a_plan_does_not_change_its_snapshot() -> None:
    """The rules are functions: a second plan of the same snapshot is the same plan."""
    damaged = replace(database("count"), column_families=(), live={})
    app = application(task(store("count", damaged), store("sum", database("sum", offsets=record(8, "sum")))))
    before = snapshot(app, WipeOptions(stores=frozenset({"count"})))
    assert plan_of(before) == plan_of(before)
    assert plan_of(before).warnings
