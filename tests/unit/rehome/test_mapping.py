"""Where stores go, from directories and topologies that are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.rehome.mapping import Specified, by_numbers, by_texts, stranded
from kstate_cli.rehome.model import DirectoryTask, LeaveReason, Rehoming, WhyRefused
from kstate_cli.specification.homes import Described, Home, StoreKey, generated, read_pairs
from kstate_cli.specification.topology import parse_topology

from .texts import description, text


def contents(
    stores: Mapping[str, Sequence[str]], traces: Mapping[str, Sequence[str]] | None = None
) -> list[DirectoryTask]:
    names = {*stores, *(traces or {})}
    return [
        DirectoryTask(TaskId.parse(name), frozenset(stores.get(name, ())), frozenset((traces or {}).get(name, ())))
        for name in sorted(names)
    ]


def homes(rehoming: Rehoming) -> dict[str, str | None]:
    return {f"{placement.source}/{placement.store}": placement.target for placement in rehoming.placements}


def refusal_text(
    why: WhyRefused, stores: Mapping[str, Sequence[str]], new: Described, old: Described | None = None
) -> Refused:
    with pytest.raises(Refused) as caught:
        by_texts(contents(stores), (), new, old)
    assert caught.value.code == why, caught.value.message
    assert caught.value.hint
    return caught.value


A = {0: ("gone",), 1: ("split-a", "split-b"), 2: ("one",), 3: ("other",), 4: ("last",)}
B = {0: ("split-a",), 1: ("split-b",), 2: ("one", "other", "new"), 3: ("last",)}


def test_every_store_goes_where_it_is_now() -> None:
    here = {f"{number}_{p}": stores for number, stores in A.items() for p in (0, 1)}
    rehoming = by_texts(contents(here), (), description(B), description(A))
    assert homes(rehoming) == {
        f"{source}_{p}/{store}": None if target is None else f"{target}_{p}"
        for p in (0, 1)
        for source, store, target in (
            (0, "gone", None),
            (1, "split-a", 0),
            (1, "split-b", 1),
            (2, "one", 2),
            (3, "other", 2),
            (4, "last", 3),
        )
    }
    assert {task: [(entry.store, entry.existed) for entry in stores] for task, stores in rehoming.missing.items()} == {
        "2_0": [("new", False)],
        "2_1": [("new", False)],
    }


@given(st.data())
def test_back_again_everything_is_where_it_was(data: st.DataObject) -> None:
    """Two ways to put the same stores into sub-topologies: there and back, and a second time nothing is to do."""
    names = [f"s{n}" for n in range(data.draw(st.integers(1, 8)))]
    ways = []
    for _ in range(2):
        parts: dict[int, list[str]] = {}
        for name in names:
            parts.setdefault(data.draw(st.integers(0, 5)), []).append(name)
        ways.append(parts)
    old, new = map(description, ways)
    before = {f"{number}_{p}": tuple(stores) for number, stores in ways[0].items() for p in range(2)}
    there = by_texts(contents(before), (), new, old)
    after: dict[str, list[str]] = {}
    for placement in there.placements:
        assert (
            placement.target is not None and placement.target.rpartition("_")[2] == placement.source.rpartition("_")[2]
        )
        after.setdefault(placement.target, []).append(placement.store)
    assert {name: sorted(stores) for name, stores in after.items()} == {
        f"{number}_{p}": sorted(stores) for number, stores in ways[1].items() for p in range(2)
    }
    assert not there.missing
    again = by_texts(contents(after), (), new, old)
    assert not [placement for placement in again.placements if placement.moves or placement.target is None]
    back = by_texts(contents(after), (), old, new)
    assert {f"{placement.target}/{placement.store}" for placement in back.placements} == {
        f"{name}/{store}" for name, stores in before.items() for store in stores
    }


def test_missing_store_is_new_without_the_old_topology() -> None:
    rehoming = by_texts(contents({"0_0": ["a"]}), (), description({1: ("a", "b")}), None)
    assert [(entry.store, entry.existed, entry.has_database) for entry in rehoming.missing["1_0"]] == [
        ("b", False, False)
    ]
    rehoming = by_texts(contents({"0_0": ["a"], "0_1": ["a", "b"]}), (), description({1: ("a", "b")}), None)
    assert [(entry.store, entry.existed, entry.has_database) for entry in rehoming.missing["1_0"]] == [
        ("b", True, True)
    ]


def test_another_application() -> None:
    refusal_text(WhyRefused.OTHER_APPLICATION, {"0_0": ["a"]}, description({0: ("b",)}))
    refusal_text(WhyRefused.OTHER_APPLICATION, {"0_0": ["a", "b", "c"]}, description({1: ("a",)}))
    by_texts(contents({"0_0": ["a", "b", "c"]}), (), description({1: ("a",)}), description({0: ("a", "b", "c")}))
    by_texts([], (), description({0: ("b",)}), None)


def test_an_old_text_that_does_not_fit() -> None:
    why = refusal_text(WhyRefused.OLD_DOES_NOT_FIT, {"2_0": ["a"]}, description({1: ("a",)}), description({0: ("a",)}))
    assert "2_0/a: the old topology has this store in sub-topology 0" in why.message
    why = refusal_text(
        WhyRefused.OLD_DOES_NOT_FIT, {"0_0": ["a", "x"]}, description({1: ("a",)}), description({0: ("a",)})
    )
    assert "0_0/x: the old topology does not have this store" in why.message


def test_stores_that_become_global() -> None:
    refusal_text(WhyRefused.GLOBAL, {"0_0": ["a", "b"]}, description({0: ("a",)}, global_stores=["b"]))
    with pytest.raises(Refused) as caught:
        by_texts(contents({"0_0": ["a"]}), ["b"], description({0: ("a", "b")}), None)
    assert caught.value.code == WhyRefused.GLOBAL


def test_two_copies() -> None:
    both = {"0_0": ["a"], "1_0": ["a"]}
    refusal_text(WhyRefused.TWO_COPIES, both, description({1: ("a",)}))
    rehoming = by_texts(contents(both), (), description({1: ("a",)}), description({0: ("a",)}))
    assert homes(rehoming) == {"0_0/a": "1_0", "1_0/a": None}
    assert [placement.reason for placement in rehoming.placements] == [None, LeaveReason.STARTED]
    # An offset alone is no copy: that of the database counts.
    rehoming = by_texts(contents({"0_0": ["a"]}, {"1_0": ["a"]}), (), description({1: ("a",)}), None)
    assert homes(rehoming) == {"0_0/a": "1_0", "1_0/a": None}


def test_a_copy_without_an_offset_gives_way() -> None:
    """Up to 4.2 a start of the new topology writes a .checkpoint that has no line of a store that went elsewhere."""
    old, new = description({2: ("a", "b")}), description({1: ("a",), 2: ("b",)})
    here = [
        DirectoryTask(TaskId.parse("1_0"), frozenset({"a"})),
        DirectoryTask(TaskId.parse("2_0"), frozenset({"a", "b"}), lost=frozenset({"a"})),
    ]
    rehoming = by_texts(here, (), new, old)
    assert homes(rehoming) == {"1_0/a": "1_0", "2_0/a": None, "2_0/b": "2_0"}
    assert [placement.reason for placement in rehoming.placements if placement.target is None] == [LeaveReason.LOST]
    # One without a changelog has an offset nowhere: that of before counts.
    here = [replace(entry, lost=entry.stores) for entry in here]
    assert homes(by_texts(here, (), new, old)) == {"1_0/a": None, "2_0/a": "1_0", "2_0/b": "2_0"}


def test_empty_stores_count_only_without_other_copies() -> None:
    old, new = (
        description({2: ("a",), 3: ("b",)}, global_stores=["g"]),
        description({1: ("a",), 2: ("b",)}, global_stores=["g"]),
    )
    here = [
        DirectoryTask(TaskId.parse("2_0"), frozenset(), unwritten=frozenset({"a"})),
        DirectoryTask(TaskId.parse("3_0"), frozenset({"b"}), unwritten=frozenset({"a", "g"})),
        DirectoryTask(TaskId.parse("1_0"), frozenset(), unwritten=frozenset({"a"})),
    ]
    target = {"1_0/a": None, "2_0/a": "1_0", "3_0/a": None, "3_0/b": "2_0", "3_0/g": None}
    assert homes(by_texts(here, ["g"], new, old)) == target
    assert homes(by_texts(here, ["g"], new, None)) == {**target, "1_0/a": "1_0", "2_0/a": None}
    assert homes(by_numbers(here[:2], {3: 4})) == {"2_0/a": "2_0", "3_0/a": "4_0", "3_0/b": "4_0", "3_0/g": "4_0"}


def test_half_a_task() -> None:
    old, new = description({0: ("a",), 1: ("b",)}), description({0: ("a", "b")})
    for given_old in (old, None):
        why = refusal_text(WhyRefused.HALF_A_TASK, {"0_0": ["a"], "1_0": ["b"], "1_1": ["b"]}, new, given_old)
        assert "0_1: this host has 1_1, but not a of 0_1" in why.message
    by_texts(contents({"0_0": ["a"], "1_0": ["b"]}), (), new, old)
    # Its task is here, and it is not: it was wiped, or is in memory.
    rehoming = by_texts(contents({"0_0": ["a"], "1_0": []}), (), new, old)
    assert [(entry.store, entry.existed, entry.has_database) for entry in rehoming.missing["0_0"]] == [
        ("b", True, False)
    ]


def test_stores_of_a_failed_start_are_ignored() -> None:
    """4.3 builds all stores, global ones too, in the left-over directories, and then fails: empty, without an offset."""
    old = description({0: ("a",), 6: ("z",)}, global_stores=["g"])
    new = description({0: ("a", "new"), 4: ("z",)}, global_stores=["g"])
    here = [
        DirectoryTask(TaskId.parse("0_0"), frozenset({"a"}), strays=frozenset({"new"})),
        DirectoryTask(TaskId.parse("6_0"), frozenset({"z"}), strays=frozenset({"a", "g", "new"})),
        DirectoryTask(TaskId.parse("4_0"), frozenset(), strays=frozenset({"z"})),
    ]
    for given_old in (old, None):
        rehoming = by_texts(here, ["g"], new, given_old)
        assert homes(rehoming) == {
            "0_0/a": "0_0",
            "0_0/new": "0_0",
            "4_0/z": None,
            "6_0/a": None,
            "6_0/g": None,
            "6_0/new": None,
            "6_0/z": "4_0",
        }
        assert {placement.reason for placement in rehoming.placements if placement.target is None} == {
            LeaveReason.EMPTY
        }
        assert [(entry.store, entry.existed, entry.has_database, entry.stray) for entry in rehoming.missing["0_0"]] == [
            ("new", False, False, True)
        ]
    moves = by_numbers(here, {6: 7})
    assert {key: target for key, target in homes(moves).items() if target != key.partition("/")[0]} == {
        "6_0/a": None,
        "6_0/g": None,
        "6_0/new": None,
        "6_0/z": "7_0",
    }


def test_a_task_whose_stores_have_come_is_no_half() -> None:
    """A store in memory has no directory to come from, and the one that it had is gone."""
    old, new = description({0: ("a",), 6: ("b", "memory")}), description({0: ("a", "memory"), 5: ("b",)})
    rehoming = by_texts(contents({"5_0": ["b"]}), (), new, old)
    assert not [placement for placement in rehoming.placements if placement.moves]
    refusal_text(WhyRefused.HALF_A_TASK, {"0_0": ["a"], "5_0": ["b"]}, new, old)
    rehoming = by_texts(
        contents({"0_0": ["a"], "5_0": ["b"]}), (), new, old, specified=Specified(in_memory=frozenset({"memory"}))
    )
    assert not rehoming.missing
    joined = description({5: ("b", "memory")})
    rehoming = by_texts(contents({"5_0": ["b"]}), (), joined, old)
    assert [(entry.store, entry.existed, entry.has_database) for entry in rehoming.missing["5_0"]] == [
        ("memory", True, False)
    ]


NAME = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"


def test_generated_names_move_where_the_same_operators_make_them() -> None:
    here = {"1_0": [NAME, "b"]}
    new = description({0: (NAME, "b")})
    why = refusal_text(WhyRefused.GENERATED, here, new)
    assert NAME in why.message
    other = text({1: (NAME, "b")}).replace("in-", "another-")
    why = refusal_text(WhyRefused.GENERATED, here, new, Described.by(parse_topology(other)))
    assert f'Materialized.as("{NAME}")' in str(why.hint)
    same = text({1: (NAME, "b")}).replace("from-1", "from-0")
    assert homes(by_texts(contents(here), (), new, Described.by(parse_topology(same)))) == {
        f"1_0/{NAME}": "0_0",
        "1_0/b": "0_0",
    }


def test_a_generated_name_behind_another_repartition_topic_is_another_store() -> None:
    def repartitioned(behind: str) -> str:
        return f"""Topologies:
   Sub-topology: 0
    Source: source (topics: [{behind}])
      --> sink
    Sink: sink (topic: {NAME}-repartition)
      <-- source
  Sub-topology: 1
    Source: again (topics: [{NAME}-repartition])
      --> aggregate
    Processor: aggregate (stores: [{NAME}])
      --> none
      <-- again
"""

    old, new = (Described.by(parse_topology(repartitioned(topic))) for topic in ("orders", "visits"))
    refusal_text(WhyRefused.GENERATED, {"1_0": [NAME]}, new, old)
    assert homes(by_texts(contents({"1_0": [NAME]}), (), old, old)) == {f"1_0/{NAME}": "1_0"}
    assert list(stranded(old, old)) == []
    without = Described.by(parse_topology(repartitioned("orders").replace(f"[{NAME}-rep", "[x-rep")))
    assert list(stranded(without, old)) == [f"{NAME}-repartition"]


@pytest.mark.parametrize(
    ("name", "is_generated"),
    [
        (NAME, True),
        ("topic-STATE-STORE-0000000000", True),
        ("KSTREAM-JOINTHIS-0000000016-store", True),
        ("KSTREAM-JOIN-0000000012-Buffer", True),
        ("count", False),
        ("count-12", False),
        ("count0000000012", False),
    ],
)
def test_generated_names(name: str, is_generated: bool) -> None:
    assert generated(name) is is_generated


def test_a_store_of_another_named_topology_is_another_store() -> None:
    new = Described.by(parse_topology(text({0: ("a",)}, names="t") + text({0: ("b",)}, names="u")))
    rehoming = by_texts(contents({"__t__/1_0": ["a", "b"]}), (), new, None)
    assert homes(rehoming) == {"__t__/1_0/a": "__t__/0_0", "__t__/1_0/b": None}
    assert new.homes[StoreKey("u", "b")] == Home("u", 0)


def test_numbers() -> None:
    here = {"4_0": ["x"], "5_0": ["y"], "6_0": ["z"]}
    rehoming = by_numbers(contents(here), read_pairs(["6=4", "4=gone", "5=gone"]))
    assert homes(rehoming) == {"4_0/x": None, "5_0/y": None, "6_0/z": "4_0"}
    assert homes(by_numbers(contents(here), read_pairs(["4=5", "5=4"])))["5_0/y"] == "4_0"
    with pytest.raises(Refused) as caught:
        by_numbers(contents(here), read_pairs(["6=4"]))
    assert caught.value.code == WhyRefused.NUMBER_TAKEN and "--map 4=gone" in str(caught.value.hint)
    with pytest.raises(Refused) as caught:
        by_numbers(contents({"4_0": [NAME]}), read_pairs(["4=5"]))
    assert caught.value.code == WhyRefused.GENERATED
    with pytest.raises(Refused, match="named topologies"):
        by_numbers(contents({"__t__/4_0": ["x"]}), read_pairs(["4=5"]))


@pytest.mark.parametrize("pair", ["6", "6=", "=4", "06=4", "6=4=5", "-6=4", "6=9999999999", "six=4", "6=４"])
def test_refuses_malformed_pairs_of_numbers(pair: str) -> None:
    with pytest.raises(UsageError, match="does not map one sub-topology number to another"):
        read_pairs([pair])


@pytest.mark.parametrize("pairs", [["6=4", "6=5"], ["6=4", "5=4"]])
def test_numbers_that_contradict_each_other(pairs: list[str]) -> None:
    with pytest.raises(UsageError):
        read_pairs(pairs)


@given(st.dictionaries(st.integers(0, 5), st.sets(st.sampled_from("abcdef"), min_size=1), max_size=5), st.data())
def test_every_store_is_placed_or_refused(here: dict[int, set[str]], data: st.DataObject) -> None:
    """Whatever lies where: each store of each task has one fate, and no two copies of one go to the same task."""
    parts: dict[int, list[str]] = {}
    for name in "abcdef":
        parts.setdefault(data.draw(st.integers(0, 5)), []).append(name)
    tasks = contents({f"{number}_0": sorted(stores) for number, stores in here.items()})
    try:
        rehoming = by_texts(tasks, (), description(parts), None)
    except Refused as error:
        assert error.code in list(WhyRefused)
        return
    assert sorted(homes(rehoming)) == sorted(f"{task.task.name}/{store}" for task in tasks for store in task.stores)
    targets = [(placement.target, placement.store) for placement in rehoming.placements if placement.target is not None]
    assert len(set(targets)) == len(targets)


APART = {0: ("count", "shared"), 1: ("second", "shared"), 2: ("last",)}
ENTRY = {0: ("count", "second", "shared"), 1: ("last",)}
"""One StoreBuilder of two suppliers, as releases before and since KAFKA-20464 group it."""
REMAINDER = {"0_0": ("count", "shared"), "1_0": ("second", "shared"), "2_0": ("last",)}


def test_copies_of_several_sub_topologies_are_not_complete() -> None:
    rehoming = by_texts(contents(REMAINDER), (), description(ENTRY), description(APART))
    moves = {"0_0/count": "0_0", "1_0/second": "0_0", "2_0/last": "1_0"}
    assert homes(rehoming) == {**moves, "0_0/shared": "0_0", "1_0/shared": None}
    assert rehoming.partial == {("0_0", "shared")}
    assert {entry.reason for entry in rehoming.of("1_0") if entry.store == "shared"} == {LeaveReason.COPY}


@pytest.mark.parametrize(("writer", "task", "other"), [(0, "0_0", "1_0"), (1, "1_0", "0_0")])
def test_the_copy_of_the_only_writer_is_complete(writer: int, task: str, other: str) -> None:
    rehoming = by_texts(
        contents(REMAINDER), (), description(ENTRY), description(APART), specified=Specified(writers={"shared": writer})
    )
    assert homes(rehoming)[f"{task}/shared"] == "0_0" and homes(rehoming)[f"{other}/shared"] is None
    assert not rehoming.partial


def test_single_copy_on_a_host_is_partial() -> None:
    """The other may be on another host, or wiped: emptiness proves nothing."""
    here = {"1_0": ("second", "shared")}
    rehoming = by_texts(contents(here), (), description(ENTRY), description(APART), halves=True)
    assert rehoming.partial == {("1_0", "shared")}


def test_the_same_topology_leaves_every_copy_where_it_is() -> None:
    for old in (description(APART), None):
        rehoming = by_texts(contents(REMAINDER), (), description(APART), old)
        assert (
            all(placement.source == placement.target for placement in rehoming.placements)
            and not rehoming.partial
            and not rehoming.missing
        )


def test_back_to_copies_the_first_gets_the_store_and_the_other_lacks_it() -> None:
    joined = {"0_0": ("count", "second", "shared"), "1_0": ("last",)}
    rehoming = by_texts(contents(joined), (), description(APART), description(ENTRY))
    assert homes(rehoming)["0_0/shared"] == "0_0" and homes(rehoming)["0_0/second"] == "1_0"
    assert [entry.store for entry in rehoming.missing["1_0"]] == ["shared"] and not rehoming.partial


def test_copies_without_the_old_text_are_refused() -> None:
    refusal_text(WhyRefused.TWO_COPIES, REMAINDER, description(ENTRY))
