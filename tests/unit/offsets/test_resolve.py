"""Which of the places of an offset counts."""

from __future__ import annotations

from kstate_cli.formats.offsets import OffsetsRecord
from kstate_cli.formats.position import Position
from kstate_cli.offsets.resolve import resolve_with
from tests.unit.model import application, changelog, database, store, task


def test_the_file_of_a_store_that_keeps_its_offsets_itself_does_not_count() -> None:
    """4.3 never reads it (LegacyCheckpointingStateStore wraps other stores), nor deletes it: it is from before."""
    inside = OffsetsRecord({changelog("count"): 20}, Position.empty(), 0)
    (resolved,) = resolve_with(application(task(store("count", database(offsets=inside), offset=-4))), {})
    (one,) = resolved.stores
    assert one.offsets == {changelog("count"): 20}
    assert not resolved.unclean and not resolved.warnings
    assert any(".checkpoint_count is passed over" in note for note in resolved.notes)


def test_the_file_of_another_store_counts() -> None:
    (resolved,) = resolve_with(application(task(store("count", database(), offset=7))), {})
    assert resolved.stores[0].offsets == {changelog("count"): 7}
    buffer = database(offsets=OffsetsRecord({changelog("j-Buffer"): 5}, Position.empty(), 0), start=0)
    kept = store("j-Buffer", buffer, kind="grace-buffer", segmented=True, offset=3)
    (resolved,) = resolve_with(application(task(kept)), {})
    assert resolved.stores[0].offsets == {changelog("j-Buffer"): 3}
