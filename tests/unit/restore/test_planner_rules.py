"""The rules of a restoration's planner over snapshots that are made up: none of them reads a disk or a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.plan import BuildStore, OmitTree, WriteFile
from kstate_cli.dump_reader.manifest import Manifest, ManifestPartition
from kstate_cli.dump_reader.model import Dump, PartitionDump, Piece
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, Unclean
from kstate_cli.releases import release
from kstate_cli.restore.planning.judge import Permissions
from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan, RestoreSnapshot
from kstate_cli.restore.planning.planner import plan_of
from kstate_cli.specification.draft import BY_NAMES, IN_MEMORY, Spec, StoreSpec
from tests.unit.model import APP, changelog, database, record, store, task

OPTIONS = RestoreOptions(release("4.3"))
COUNT = StoreSpec(name="count", kind="timestamped-key-value", changelog="shop-count-changelog", subtopology=0)


def dumped_partition(topic: str, partition: int = 0, *, last: int = 99) -> PartitionDump:
    """A partition with the records 0 to ``last``, from the start of its log on."""
    piece = Piece("file.parquet", (0,), last + 1, 1000, 0, last, mixed=False, own=last + 1)
    return PartitionDump(topic, partition, (piece,), 0, last, last + 1, log_start=0, log_end=last + 1, start=0)


def snapshot(
    *partitions: PartitionDump,
    specs: tuple[StoreSpec, ...] = (COUNT,),
    tasks: tuple[TaskOffsets, ...] = (),
    options: RestoreOptions = OPTIONS,
    manifest: Manifest | None = None,
) -> RestoreSnapshot:
    rows = partitions or (dumped_partition("shop-count-changelog"),)
    dump = Dump("/dump", {part.key: part for part in rows}, manifest, isolation="read_committed", has_headers=True)
    states = {state.task.name: state for state in tasks}
    return RestoreSnapshot(APP, options, Spec("shop", specs), dump, lambda *_: None, states, ())


def existing(offset: int, *, unclean: bool = False, name: str = "count") -> TaskOffsets:
    """Task 0_0 with one store of 4.3 at an offset."""
    entry = store(name, database(name, families=("default", "keyValueWithTimestamp"), offsets=record(offset, name)))
    state = StoreOffsets(entry, {changelog(name): offset}, places=("column-family",))
    return TaskOffsets(task(entry), (state,), unclean=(Unclean("0_0", "it was killed"),) if unclean else ())


def refusal(facts: RestoreSnapshot) -> Refused:
    with pytest.raises(Refused) as caught:
        plan_of(facts)
    return caught.value


def test_a_store_that_does_not_exist_is_built_up_to_the_last_record() -> None:
    plan = plan_of(snapshot())
    (work,) = plan.work
    assert work.rebuild and work.offsets == {changelog("count"): 99} and work.records == 100
    (step,) = plan.change.steps
    assert isinstance(step, BuildStore) and step.path == "0_0/rocksdb/count" and step.replaces


def test_a_release_that_keeps_offsets_in_files_gets_a_checkpoint_with_all_stores() -> None:
    other = TaskOffsets(
        task(store("other", database("other", version="9.7.3")), lines={changelog("other"): 5}),
        (StoreOffsets(store("other", database("other", version="9.7.3")), {changelog("other"): 5}),),
    )
    plan = plan_of(snapshot(tasks=(other,), options=replace(OPTIONS, release=release("4.2"))))
    (checkpoint,) = [step for step in plan.change.steps if isinstance(step, WriteFile)]
    assert checkpoint.path == "0_0/.checkpoint"
    for line in ("shop-count-changelog 0 99", "shop-other-changelog 0 5"):
        assert line in checkpoint.data.decode()


def test_a_store_is_caught_up_or_stays() -> None:
    (work,) = plan_of(snapshot(tasks=(existing(49),))).work
    assert not work.rebuild and work.offsets == {changelog("count"): 99}
    plan = plan_of(snapshot(tasks=(existing(99),)))
    assert not plan.work and [entry.title for entry in plan.unchanged] == ["0_0/count"]


def test_an_unclean_task_is_refused_rebuilt_or_vouched_for() -> None:
    killed = snapshot(tasks=(existing(49, unclean=True),))
    assert "not closed cleanly (0_0: it was killed)" in refusal(killed).details[0]
    wiping = replace(OPTIONS, wipe_unclean=True)
    (work,) = plan_of(replace(killed, options=wiping)).work
    assert work.rebuild
    # Of a task that is rebuilt as a whole no single store can be chosen.
    assert refusal(replace(killed, options=replace(wiping, stores=frozenset({"count"}))))
    (work,) = plan_of(replace(killed, options=replace(OPTIONS, at_least_once=True))).work
    assert not work.rebuild


def test_store_without_changelog_leaves_an_unclean_task() -> None:
    existing_tasks = existing(49, unclean=True)
    entry = store("scratch", database("scratch"))
    both = replace(
        existing_tasks,
        task=replace(existing_tasks.task, stores=(*existing_tasks.task.stores, entry)),
        stores=(*existing_tasks.stores, StoreOffsets(entry)),
    )
    plan = plan_of(snapshot(tasks=(both,), options=replace(OPTIONS, wipe_unclean=True)))
    assert [step.path for step in plan.change.steps if isinstance(step, OmitTree)] == ["0_0/rocksdb/scratch"]
    assert any(text.startswith("kstate skips 0_0/scratch, ") for text in plan.change.warnings)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="these stores do not exist: cuont") as caught:
        plan_of(snapshot(options=replace(OPTIONS, stores=frozenset({"cuont"}))))
    assert "count" in str(caught.value.hint)
    with pytest.raises(UsageError, match="these tasks do not exist: 0_7"):
        plan_of(snapshot(options=replace(OPTIONS, tasks=frozenset({"0_7"}))))
    # What stands in the way comes before a name that it may explain.
    surplus = replace(COUNT, partitions=1)
    rows = (dumped_partition("shop-count-changelog"), dumped_partition("shop-count-changelog", 1))
    error = refusal(snapshot(*rows, specs=(surplus,), options=replace(OPTIONS, tasks=frozenset({"0_7"}))))
    assert "the dump has partition 1" in error.details[0]


def tasks_of(plan: RestorePlan) -> list[str]:
    return [work.task for work in plan.work]


def test_the_tasks_of_this_host() -> None:
    rows = [dumped_partition("shop-count-changelog", number) for number in range(4)]
    assert tasks_of(plan_of(snapshot(*rows))) == ["0_0", "0_1", "0_2", "0_3"]
    shared = snapshot(*rows, options=replace(OPTIONS, share=(2, 3)))
    assert tasks_of(plan_of(shared)) == ["0_1"]
    elsewhere = snapshot(*rows, options=replace(OPTIONS, elsewhere=frozenset({"0_0", "0_3"})))
    assert tasks_of(plan_of(elsewhere)) == ["0_1", "0_2"]
    only = snapshot(*rows, options=replace(OPTIONS, only=frozenset({"0_2", "5_5"})))
    assert tasks_of(plan_of(only)) == ["0_2"]
    assert any(
        text.startswith("kstate cannot restore 5_5, because no host has it") for text in plan_of(only).change.warnings
    )


def test_stores_that_are_not_restored() -> None:
    memory = StoreSpec(name="memory", kind=IN_MEMORY, changelog="shop-memory-changelog", subtopology=0)
    unlogged = StoreSpec(name="scratch", kind="key-value", changelog=None, subtopology=0)
    plan = plan_of(snapshot(specs=(COUNT, memory, unlogged)))
    assert plan.change.notes[0].startswith("kstate does not restore memory, because it is an in-memory store")
    assert plan.change.warnings == ("kstate cannot restore scratch, because it has no changelog",)


def test_a_global_store_needs_to_be_a_table() -> None:
    prices = StoreSpec(name="prices", kind="key-value", changelog="prices", is_global=True, source="processor")
    rows = (dumped_partition("shop-count-changelog"), dumped_partition("prices"))
    plan = plan_of(snapshot(*rows, specs=(COUNT, prices)))
    assert [entry.title for entry in plan.unchanged] == ["global/prices"]
    selection = replace(OPTIONS, stores=frozenset({"prices"}))
    assert (
        "To restore it, start Kafka Streams"
        in refusal(snapshot(*rows, specs=(COUNT, prices), options=selection)).details[0]
    )
    unknown = replace(prices, source=None)
    assert 'source = "table"' in refusal(snapshot(*rows, specs=(COUNT, unknown))).details[0]
    table = replace(prices, source="table")
    # A global store keeps the next offset.
    assert plan_of(snapshot(*rows, specs=(COUNT, table))).work[-1].offsets == {TopicPartition("prices", 0): 100}


def test_a_table_of_an_input_partition_that_never_had_a_record() -> None:
    """A group commits no offset of such a partition, and there is no value beyond one."""
    table = StoreSpec(name="table", kind="timestamped-key-value", changelog="prices", source="topic", subtopology=0)
    empty = PartitionDump("prices", 0, (), None, None, 0, log_start=0, log_end=0, start=0)
    plan = plan_of(snapshot(empty, specs=(table,)))
    (work,) = plan.work
    assert work.records == 0
    error = refusal(snapshot(dumped_partition("prices"), specs=(table,)))
    assert "beyond the group's committed offset" in error.details[0]
    # Records that came after the dump may belong to the table.
    grown = replace(OPTIONS, facts={TopicPartition("prices", 0): LogFacts(0, 1)}, from_broker=True)
    assert "beyond the group's committed offset" in refusal(snapshot(empty, specs=(table,), options=grown)).details[0]


def test_changelogs_of_stores_that_nothing_describes() -> None:
    rows = (
        dumped_partition("shop-count-changelog"),
        dumped_partition("shop-other-changelog"),
        dumped_partition("events"),
    )
    error = refusal(snapshot(*rows))
    assert error.details == ("other",) and "[stores.other]" in error.hint_details
    ignoring = replace(OPTIONS, ignored=("shop-other-*",))
    assert plan_of(snapshot(*rows, options=ignoring)).change.notes[0].startswith("kstate skips the topic events,")


def test_records_of_aborted_transactions() -> None:
    facts = snapshot()
    dirty = replace(facts, dump=replace(facts.dump, isolation="read_uncommitted"))
    assert "aborted transactions" in refusal(dirty).message
    assert plan_of(replace(dirty, options=replace(OPTIONS, at_least_once=True))).work


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (LogFacts(0, 100, topic_id="new"), "the topic was recreated"),
        (LogFacts(0, 60, topic_id="old"), "the broker's log ends at 60"),
    ],
)
def test_another_log_of_the_broker_refuses_all(log: LogFacts, text: str) -> None:
    partition = ManifestPartition("shop-count-changelog", 0, 0, 100, 0, 99, 100, topic_id="old")
    manifest = Manifest(isolation="read_committed", partitions=(partition,), files=())
    options = replace(OPTIONS, facts={changelog("count"): log}, from_broker=True)
    facts = snapshot(tasks=(existing(49),), options=options, manifest=manifest)
    error = refusal(facts)
    assert text in error.details[0]
    if "ends at" in text:
        # The store may hold records that the log lost: the advice is to export it first.
        assert (
            str(error.hint).startswith("this store may be the only copy, so export it first")
            and "kstate export" in error.hint_details[0]
        )
        by_user = replace(options, permissions=Permissions("asked for", by_user=True))
        assert any(text in line for line in plan_of(replace(facts, options=by_user)).change.warnings)


def test_a_topic_that_the_dump_lacks() -> None:
    other = replace(COUNT, name="other", changelog="shop-other-changelog")
    plan = plan_of(snapshot(specs=(COUNT, other), options=replace(OPTIONS, stores=frozenset({"count"}))))
    assert tasks_of(plan) == ["0_0"]
    only = replace(other, partitions=1)
    error = refusal(snapshot(specs=(COUNT, only)))
    assert (
        "the dump does not contain shop-other-changelog" in error.details[0] and "kstate dump" in error.hint_details[0]
    )
    assert "logged" not in error.details[0] and "did you mean" not in error.details[0]


def test_a_store_whose_changelog_nothing_names() -> None:
    """It may have none. A similar topic is suggested after a typing error only, and never that of another store."""

    def text(name: str, *topics: str) -> str:
        store = replace(COUNT, name=name, changelog=f"shop-{name}-changelog", inferred={"changelog": BY_NAMES})
        rows = map(dumped_partition, ("shop-count-changelog", *topics))
        return refusal(snapshot(*rows, specs=(COUNT, replace(store, partitions=1)))).details[0]

    assert text("couns").endswith("for the store, set logged = false in [stores.couns]")
    assert 'set changelog = "shop-count-v-changelgo" in [stores.count-v])' in text("count-v", "shop-count-v-changelgo")
    assert "did you mean" not in text("plain", "shop-noisy-chngelgo")
