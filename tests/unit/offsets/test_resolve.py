"""Which of the places of an offset counts."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.offsets.keeping import Guesses
from kstate_cli.offsets.resolve import resolve_with
from tests.unit.model import application, changelog, database, store, task


def test_the_file_of_a_store_that_keeps_its_offsets_itself_does_not_count() -> None:
    """4.3 never reads it (LegacyCheckpointingStateStore wraps other stores), nor deletes it: it is from before."""
    inside = OffsetsRecord({changelog("count"): 20}, Position.empty(), 0)
    (resolved,) = resolve_with(application(task(store("count", database(offsets=inside), offset=-4))), {})
    (offsets_,) = resolved.stores
    assert offsets_.offsets == {changelog("count"): 20}
    assert not resolved.unclean and not resolved.warnings
    assert any("kstate ignores .checkpoint_count" in note for note in resolved.notes)


def test_the_file_of_another_store_counts() -> None:
    (resolved,) = resolve_with(application(task(store("count", database(), offset=7))), {})
    assert resolved.stores[0].offsets == {changelog("count"): 7}
    buffer = database(offsets=OffsetsRecord({changelog("j-Buffer"): 5}, Position.empty(), 0), start=0)
    buffers = store("j-Buffer", buffer, kind="grace-buffer", segmented=True, offset=3)
    (resolved,) = resolve_with(application(task(buffers)), {})
    assert resolved.stores[0].offsets == {changelog("j-Buffer"): 3}


def test_places_that_disagree_give_the_lowest_and_a_warning() -> None:
    inside = database(offsets=OffsetsRecord({changelog("count"): 20}, Position.empty(), 0))
    app = application(task(store("count", inside), lines={changelog("count"): 12}))
    (resolved,) = resolve_with(app, {"0_0": ()})
    assert resolved.stores[0].offsets == {changelog("count"): 12}
    assert resolved.stores[0].places == ("checkpoint", "column-family")
    assert [text for text in resolved.warnings if "(12, 20), so kstate uses the lowest" in text]


def test_an_offset_of_another_partition_belongs_to_another_task() -> None:
    inside = database(offsets=OffsetsRecord({changelog("count", 1): 5, changelog("count"): 20}, Position.empty(), 0))
    (resolved,) = resolve_with(application(task(store("count", inside))), {"0_0": ()})
    assert resolved.stores[0].offsets == {changelog("count"): 20}


def test_in_memory_store_of_upgrade_from_is_not_absent() -> None:
    """Next to the column family, .checkpoint may list stores in memory: only an entry proves a custom store."""
    inside = database(offsets=OffsetsRecord({changelog("count"): 20}, Position.empty(), 0))
    app = application(task(store("count", inside), lines={changelog("memory"): 3, changelog("custom"): 4}))
    (resolved,) = resolve_with(app, {"0_0": ("custom",)})
    assert resolved.absent == {"custom": {changelog("custom"): 4}}
    assert [note for note in resolved.notes if "memory has no files in this task" in note]


def test_an_assumed_changelog_holds_for_every_task() -> None:
    """The databases of one store cannot be read in two tasks: one assumption, one warning."""
    damaged = replace(database("count"), column_families=(), live={})
    whole = database("sum", offsets=OffsetsRecord({changelog("sum"): 8}, Position.empty(), 0))
    tasks = [
        task(store("count", damaged, task=name), store("sum", whole, task=name), name=name) for name in ("0_0", "0_1")
    ]
    app = application(*tasks)
    resolved = resolve_with(app, {})
    warnings: list[str] = []
    guesses = Guesses(app, resolved, warnings)
    assumed = [guesses.offsets(task_, task_.stores[0]) for task_ in resolved]
    assert assumed == [{changelog("count", partition): OFFSET_UNKNOWN} for partition in (0, 1)]
    assert len(warnings) == 1 and "changelog is shop-count-changelog" in warnings[0]
    assert guesses.offsets(resolved[0], resolved[0].stores[1]) == {changelog("sum"): 8}
