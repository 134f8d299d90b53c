"""The rules of a rehoming over layouts that are made up: none of them reads a disk, a broker or a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.change.plan import MoveStore, OmitTree, RemarkKind, RemoveFile, WriteFile, steps_of, texts_of
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, Unclean
from kstate_cli.offsets.resolve import give_lines
from kstate_cli.rehome.live import judge_partitions
from kstate_cli.rehome.mapping import by_texts
from kstate_cli.rehome.model import RehomeOptions, Rehoming, WhyRefused
from kstate_cli.rehome.planner import changes_of, leave_out, offset_remarks, refuse_foreign, rehoming_of
from kstate_cli.rehome.snapshot import RehomeLayout, RehomeSnapshot, complete_halves
from tests.unit.model import APP, application, changelog, database, store, task

from .texts import description

OLD = description({0: ("a",), 1: ("b",)})
MERGED = description({0: ("a", "b")})
OPTIONS = RehomeOptions("rehome", new=MERGED, old=OLD)
Here = Mapping[str, Mapping[str, int | None]]
"""Task -> its stores, each with its offset; None for a store with rows and without an offset."""
HERE: Here = {"0_0": {"a": 7}, "1_0": {"b": 9}}


def offsets_of(name: str, stores: Mapping[str, int | None], **more: object) -> TaskOffsets:
    """A task with such stores, whose offsets are in its ``.checkpoint``."""
    partition = int(name.rpartition("_")[2])
    lines = {changelog(key, partition): offset for key, offset in stores.items() if offset is not None}
    entries = [store(key, database(key), task=name) for key in stores]
    states = tuple(
        StoreOffsets(entry, {tp: offset for tp, offset in lines.items() if tp == changelog(entry.name, partition)})
        for entry in entries
    )
    return TaskOffsets(task(*entries, name=name, lines=lines), states, **more)  # type: ignore[arg-type]


def layout(here: Here = HERE, options: RehomeOptions = OPTIONS, **tasks: TaskOffsets) -> RehomeLayout:
    """Where such stores go; ``tasks`` replace those of ``here``."""
    states = {name: offsets_of(name, stores) for name, stores in here.items()}
    states |= {name.removeprefix("t"): state for name, state in tasks.items()}
    app = application(*(state.task for state in states.values()))
    snapshot = RehomeSnapshot(
        app,
        options,
        tuple(states.values()),
        states,
        {name: give_lines(app.app_id, state.task) for name, state in states.items()},
        {name: {} for name in states},
        {name: {} for name in states},
    )
    return RehomeLayout(snapshot, rehoming_of(snapshot))


def warnings(changes: Sequence[object]) -> tuple[str, ...]:
    return texts_of(changes, RemarkKind.WARNING)  # type: ignore[arg-type]


def test_a_store_moves_with_its_line_and_the_empty_task_goes() -> None:
    steps = steps_of(changes_of(layout()))
    move, omit, checkpoint = steps
    assert isinstance(move, MoveStore) and (move.source, move.path) == ("1_0/rocksdb/b", "0_0/rocksdb/b")
    assert isinstance(omit, OmitTree) and omit.path == "1_0"
    assert isinstance(checkpoint, WriteFile) and checkpoint.path == "0_0/.checkpoint"
    for line in ("shop-a-changelog 0 7", "shop-b-changelog 0 9"):
        assert line in checkpoint.data.decode()


def test_where_every_store_is_at_home_nothing_changes() -> None:
    assert not changes_of(layout(options=replace(OPTIONS, new=OLD)))


def test_an_unclean_store_is_refused_left_out_or_vouched_for() -> None:
    unclean = offsets_of("1_0", {"b": 9}, unclean=(Unclean("1_0/b", "it was killed"),))
    with pytest.raises(Refused) as caught:
        leave_out(layout(t1_0=unclean), {"0_0", "1_0"})
    assert caught.value.code == WhyRefused.UNCLEAN and "1_0/b: it was killed" in caught.value.details[0]
    # A task that does not change keeps its stores, however they were left.
    assert not leave_out(layout(t1_0=unclean), {"0_0"})[0].left_out
    wiping = layout(options=replace(OPTIONS, wipe_unclean=True), t1_0=unclean)
    decided, _ = leave_out(wiping, {"0_0", "1_0"})
    assert decided.left_out == {("1_0", "b"): "its task was not closed cleanly"}
    changes = changes_of(decided)
    omit, *_ = steps_of(changes)
    assert isinstance(omit, OmitTree) and omit.path == "1_0/rocksdb/b"
    (checkpoint,) = [step for step in steps_of(changes) if isinstance(step, WriteFile)]
    assert f"shop-b-changelog 0 {OFFSET_UNKNOWN}" in checkpoint.data.decode()
    vouched = layout(options=replace(OPTIONS, at_least_once=True), t1_0=unclean)
    assert not leave_out(vouched, {"0_0", "1_0"})[0].left_out


def test_store_without_its_offset_is_omitted_if_another_partition_has_an_offset() -> None:
    here: Here = {"0_0": {"a": 7}, "1_0": {"b": None}}
    alone, changes = leave_out(layout(here), {"0_0", "1_0"})
    assert not alone.left_out
    assert warnings(changes) == ("1_0/b: the store has no offset, so kstate assumes that it has no changelog",)
    others, changes = leave_out(layout({**here, "0_1": {"a": 7}, "1_1": {"b": 3}}), {"0_0", "1_0"})
    assert others.left_out == {("1_0", "b"): "it contains rows, but its offset is lost"}
    assert not warnings(changes)


def test_segments_at_several_offsets_do_not_move() -> None:
    state = offsets_of("1_0", {"b": 9})
    uneven = replace(state, stores=tuple(replace(entry, uneven=True) for entry in state.stores))
    decided, _ = leave_out(layout(t1_0=uneven), {"0_0", "1_0"})
    assert decided.left_out == {("1_0", "b"): "its segments have different offsets"}


def test_copies_are_omitted_unless_they_have_no_changelog() -> None:
    shared = description({0: ("a", "s"), 1: ("b", "s")})
    single_home = replace(OPTIONS, old=shared, new=description({0: ("a", "s"), 1: ("b",)}))
    both = layout({"0_0": {"a": 7, "s": 4}, "1_0": {"b": 9, "s": 5}}, single_home)
    decided, changes = leave_out(both, {"0_0", "1_0"})
    assert list(decided.left_out) == [("0_0", "s")]
    assert "subtopology = N" in texts_of(changes, RemarkKind.NOTE)[0]
    unlogged = layout({"0_0": {"a": 7, "s": None}, "1_0": {"b": 9, "s": None}}, single_home)
    decided, changes = leave_out(unlogged, {"0_0", "1_0"})
    assert not decided.left_out and "0_0 gets this copy" in warnings(changes)[0]


def test_an_unknown_entry_in_a_task_that_stores_leave() -> None:
    layout_here = layout()
    entry = {"1_0": {"notes.txt": APP / "1_0" / "notes.txt"}, "0_0": {}}
    with pytest.raises(Refused) as caught:
        refuse_foreign(replace(layout_here, snapshot=replace(layout_here.snapshot, foreign=entry)))
    assert caught.value.code == WhyRefused.FOREIGN and caught.value.details == ("1_0/notes.txt",)
    stays = {"0_0": {"notes.txt": APP / "0_0" / "notes.txt"}, "1_0": {}}
    refuse_foreign(replace(layout_here, snapshot=replace(layout_here.snapshot, foreign=stays)))


def test_names_of_half_tasks() -> None:
    half = {"0_0": {"a": 7}}
    for names, text in (
        ({"none", "0_0"}, "cannot be used together"),
        ({"5_0"}, "no store on this host moves to 5_0"),
    ):
        with pytest.raises(UsageError, match=text):
            complete_halves(layout(half, replace(OPTIONS, complete=frozenset(names))))
    # Without a dump half tasks stay what they are: the planner refuses them.
    unchanged, changes = complete_halves(layout(half))
    assert unchanged.rehoming.halves == {"0_0": ("b",)} and not changes


def test_another_cluster_and_other_partition_counts() -> None:
    with pytest.raises(Refused) as caught:
        judge_partitions(layout(), {"in-a-b": 1})
    assert caught.value.code == WhyRefused.OTHER_CLUSTER
    counts = {"in-a-b": 1, "shop-a-changelog": 1, "shop-b-changelog": 2}
    with pytest.raises(Refused) as caught:
        judge_partitions(layout(), counts)
    assert caught.value.code == WhyRefused.PARTITIONS and "shop-b-changelog has 2" in caught.value.details[0]
    assert not judge_partitions(layout(), {**counts, "shop-b-changelog": 1})


def test_the_files_of_a_store_leave_with_it() -> None:
    placed = store("b", database("b"), task="1_0", position=3)
    state = StoreOffsets(placed, {changelog("b"): 9})
    back = replace(OPTIONS, old=MERGED, new=description({0: ("a",), 2: ("b",)}))
    other = TaskOffsets(task(placed, name="0_0", lines={changelog("b"): 9}), (state,))
    steps = steps_of(changes_of(layout({}, back, t0_0=other)))
    assert "0_0/b.position" not in [step.path for step in steps if isinstance(step, RemoveFile)]
    assert "2_0/b.position" in [step.path for step in steps if isinstance(step, WriteFile)]


def test_nothing_of_a_rehoming_changes_where_it_is() -> None:
    """``without`` and ``replace`` give new values: rules cannot disturb each other."""
    rehoming = layout().rehoming
    before = rehoming.placements
    assert rehoming.without({"0_0"}).into("0_0") == [] and rehoming.placements == before
    assert isinstance(by_texts((), (), MERGED, OLD), Rehoming)
    assert not by_texts((), (), MERGED, OLD).placements
    assert TopicPartition("shop-a-changelog", 0) == changelog("a") and Path("/state/shop") == APP


def test_remarks_on_tasks_come_in_the_order_of_the_tasks() -> None:
    """Not in that of a set of names, which differs from process to process."""
    here: Here = {f"0_{number}": {"a": 7} for number in range(9)}
    tasks = {f"t{name}": offsets_of(name, stores, warnings=(f"{name}: odd",)) for name, stores in here.items()}
    moves = replace(OPTIONS, old=description({0: ("a",)}), new=description({3: ("a",)}))
    snapshot = layout(here, moves, **tasks).snapshot
    assert warnings([*offset_remarks(snapshot, set(here))]) == tuple(f"{name}: odd" for name in sorted(here))
