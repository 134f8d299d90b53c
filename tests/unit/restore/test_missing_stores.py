"""No store of a task that the specification promises is passed over silently."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from kstate_cli.dump_reader.manifest import Manifest
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, Unclean
from kstate_cli.restore.planning.judge import Permissions
from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan, RestoreSnapshot
from kstate_cli.restore.planning.planner import plan_of
from kstate_cli.specification.draft import IN_MEMORY, Spec, StoreSpec
from tests.unit.model import APP, changelog, database, record, store, task

from .test_planner_rules import COUNT, OPTIONS, dumped_partition

MANIFEST = Manifest(isolation="read_committed", partitions=(), files=())
OTHER = replace(COUNT, name="other", changelog="shop-other-changelog")
COUNT_TOPIC, OTHER_TOPIC = "shop-count-changelog", "shop-other-changelog"


def snapshot(
    rows: Iterable[tuple[str, int]],
    *,
    specs: tuple[StoreSpec, ...] = (COUNT, OTHER),
    tasks: Iterable[TaskOffsets] = (),
    options: RestoreOptions = OPTIONS,
    manifest: Manifest | None = MANIFEST,
) -> RestoreSnapshot:
    parts: list[PartitionDump] = [dumped_partition(topic, number) for topic, number in rows]
    dump = Dump("/dump", {part.key: part for part in parts}, manifest, isolation="read_committed", has_headers=True)
    states = {state.task.name: state for state in tasks}
    return RestoreSnapshot(APP, options, Spec("shop", specs), dump, lambda *_: None, states, ())


def in_directory(name: str, *stores: str, topics: dict[str, str] | None = None) -> TaskOffsets:
    """A task of 4.3 whose ``stores`` have all records of the dump."""
    number = TaskId.parse(name).partition or 0
    entries, states = [], []
    for entry_name in stores:
        key = TopicPartition((topics or {}).get(entry_name, changelog(entry_name).topic), number)
        content = database(entry_name, families=("default", "keyValueWithTimestamp"), offsets=record(99, entry_name))
        entries.append(store(entry_name, content, task=name))
        states.append(StoreOffsets(entries[-1], {key: 99}, places=("column-family",)))
    return TaskOffsets(task(*entries, name=name), tuple(states))


def refusals(facts: RestoreSnapshot) -> str:
    with pytest.raises(Refused) as caught:
        plan_of(facts)
    return "\n".join(caught.value.details)


def warnings(facts: RestoreSnapshot) -> str:
    return "\n".join(plan_of(facts).change.warnings)


def test_a_topic_that_the_dump_lacks() -> None:
    alone = replace(OTHER, subtopology=1)
    for specs, name in (((COUNT, OTHER), "0_0/other"), ((COUNT, alone), "other")):
        text = f"{name}: the dump does not contain {OTHER_TOPIC}"
        assert text in refusals(snapshot([(COUNT_TOPIC, 0)], specs=specs))
        # Without a manifest the topic may be empty.
        without = snapshot([(COUNT_TOPIC, 0)], specs=specs, manifest=None)
        because = f"kstate does not restore {name}, because the dump does not contain {OTHER_TOPIC}"
        assert because in warnings(without)
        named = replace(without, options=replace(OPTIONS, stores=frozenset({"other"})))
        assert "the dump does not contain" in refusals(named)
        # The user has selected another store, or a task without the missing one.
        assert plan_of(replace(without, options=replace(OPTIONS, stores=frozenset({"count"})))).work
    assert not warnings(
        snapshot([(COUNT_TOPIC, 0)], specs=(COUNT, alone), options=replace(OPTIONS, tasks=frozenset({"0_0"})))
    )


def test_a_partition_that_other_stores_of_the_task_have() -> None:
    rows = [(COUNT_TOPIC, 0), (COUNT_TOPIC, 1), (OTHER_TOPIC, 0)]
    assert "0_1/other: the dump does not contain shop-other-changelog, partition 1" in refusals(snapshot(rows))
    assert "kstate does not restore 0_1/other" in warnings(snapshot(rows, manifest=None))


def test_a_partition_between_others() -> None:
    facts = snapshot([(COUNT_TOPIC, 0), (COUNT_TOPIC, 3)], specs=(COUNT,))
    assert warnings(facts) == (
        "kstate does not restore count of 0_1, 0_2, because the dump does not contain these partitions of "
        "shop-count-changelog"
    )
    fewer = replace(facts, options=replace(OPTIONS, elsewhere=frozenset({"0_1"})))
    assert warnings(fewer).endswith("of 0_2, because the dump does not contain partition 2 of shop-count-changelog")
    assert not warnings(replace(facts, options=replace(OPTIONS, elsewhere=frozenset({"0_1", "0_2"}))))
    # A hostile dump may state any number.
    assert "and 99995 more" in warnings(snapshot([(COUNT_TOPIC, 2**31 - 1)], specs=(COUNT,)))


def test_a_task_of_the_directory() -> None:
    facts = snapshot([(COUNT_TOPIC, 0)], specs=(COUNT,), tasks=[in_directory("0_2", "count")])
    plan = plan_of(facts)
    assert [entry.title for entry in plan.unchanged] == ["0_2/count"]
    assert "kstate does not restore count of 0_1," in "\n".join(plan.change.warnings)
    # Its uncommitted rows would stay in a task that is rebuilt.
    both = in_directory("0_0", "count", "other")
    unclean = replace(both, unclean=(reason("0_0"),))
    wiping = replace(OPTIONS, wipe_unclean=True)
    for manifest in (MANIFEST, None):
        facts = snapshot([(COUNT_TOPIC, 0)], tasks=[unclean], options=wiping, manifest=manifest)
        assert "0_0/other: the dump does not contain" in refusals(facts)


def reason(name: str) -> Unclean:
    return Unclean(name, "it was killed")


def test_source_topics_with_fewer_partitions() -> None:
    """A task of merged inputs may have a partition of one of them only."""
    table = replace(OTHER, changelog="prices", source="topic")
    rows = [(COUNT_TOPIC, 0), (COUNT_TOPIC, 1), ("prices", 0)]
    committed = replace(OPTIONS, committed={TopicPartition("prices", 0): 50})
    assert "does not restore" not in warnings(snapshot(rows, specs=(COUNT, table), options=committed))
    there = in_directory("0_1", "other", topics={"other": "prices"})
    plan = plan_of(snapshot(rows, specs=(COUNT, table), options=committed, tasks=[there]))
    assert "0_1/other" in [entry.title for entry in plan.unchanged]


@dataclass(frozen=True, slots=True)
class World:
    """A random dump, specification and directory."""

    facts: RestoreSnapshot
    promised: frozenset[tuple[str, str]]
    """Task and store, for each store that the application has on disk in a task."""


def random_world(seed: int) -> World:
    """Return an application whose specification states few numbers, and of which dump and directory have a part."""
    choice = random.Random(seed)
    specs, promised, rows, directories = [], set(), [], {}
    for subtopology, topology in itertools.product(range(choice.randint(1, 3)), (None, "named")):
        if topology is not None and choice.random() < 0.7:
            continue
        partitions = choice.randint(1, 4)
        stores = [f"s{subtopology}{topology or ''}{number}" for number in range(choice.randint(1, 3))]
        for name in stores:
            topic = f"shop-{name}-changelog"
            kind = IN_MEMORY if choice.random() < 0.1 else "timestamped-key-value"
            stated = choice.random() < 0.2
            specs.append(
                StoreSpec(
                    name=name,
                    kind=kind,
                    changelog=topic,
                    subtopology=subtopology,
                    topology=topology,
                    partitions=partitions if stated else choice.choice([None, 1]),
                    inferred={} if stated else {"partitions": "the highest partition of its tasks"},
                )
            )
            some_partitions = choice.random()
            rows += [(topic, number) for number in range(partitions) if choice.random() < some_partitions]
            if kind != IN_MEMORY:
                promised |= {(TaskId(topology, subtopology, number).name, name) for number in range(partitions)}
        for number in range(partitions):
            if choice.random() < 0.3:
                task_name = TaskId(topology, subtopology, number).name
                names = [name for name in stores if choice.random() < 0.7 and (task_name, name) in promised]
                directories[task_name] = in_directory(task_name, *names)
    options = OPTIONS
    if choice.random() < 0.5:
        options = replace(OPTIONS, permissions=Permissions(accept_resurrected=True), at_least_once=True)
    facts = snapshot(
        rows,
        specs=tuple(specs),
        tasks=directories.values(),
        options=options,
        manifest=choice.choice([None, MANIFEST]),
    )
    return World(facts, frozenset(promised))


@pytest.mark.parametrize("seeds", [range(at, at + 150) for at in range(0, 600, 150)], ids=lambda seeds: f"{seeds[0]}")
def test_every_promised_store_is_in_the_result_or_named(seeds: range) -> None:
    outcomes = set()
    for seed in seeds:
        world = random_world(seed)
        try:
            plan: RestorePlan | None = plan_of(world.facts)
        except Refused as error:
            # A refusal names what it is about; nothing is changed.
            assert error.details, seed
            outcomes.add("refused")
            continue
        assert plan is not None
        outcomes.add("planned")
        result = {(work.task, work.spec.name) for work in plan.work}
        result |= {(entry.task, entry.store) for entry in plan.unchanged}
        texts = [*plan.change.warnings, *plan.change.notes]
        # Nothing shows tasks above the highest one in dump and directory.
        for task_name, name in visible(world):
            if (task_name, name) not in result:
                assert any(is_named(task_name, name, text) for text in texts), (seed, task_name, name, texts)
    assert outcomes == {"refused", "planned"}


def visible(world: World) -> set[tuple[str, str]]:
    """The promised stores whose task is not above all tasks of its sub-topology that dump and directory have."""
    highest: dict[tuple[object, object], int] = {}
    for spec in world.facts.spec.stores:
        dumped = [key.partition for key in world.facts.dump.partitions if key.topic == spec.changelog]
        place = (spec.topology, spec.subtopology)
        highest[place] = max([*dumped, highest.get(place, -1)])
    for name in world.facts.tasks:
        parts = TaskId.parse(name)
        place = (parts.topology, parts.subtopology)
        highest[place] = max(parts.partition or 0, highest.get(place, -1))
    return {
        (name, entry)
        for name, entry in world.promised
        if (parts := TaskId.parse(name)).partition is not None
        and parts.partition <= max(0, highest[parts.topology, parts.subtopology])
    }


def is_named(task_name: str, name: str, text: str) -> bool:
    """Return whether a warning names a store of a task, or the whole store."""
    whole = text.startswith(f"kstate does not restore {name}, because the dump does not contain ")
    part = text.startswith((f"kstate does not restore {task_name}/{name}, ", f"kstate does not restore {name} of "))
    return whole or (part and task_name in text)
