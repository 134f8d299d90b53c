"""Segments of one store: a silent one makes the offset unknown, the lowest counts otherwise."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.offsets import Position
from kstate_cli.offsets.last_run import all_silent, common_position, position_reached, silent_by_key
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.offsets.resolve import resolve_with
from kstate_cli.rocks.files import FIRST_WAL
from kstate_cli.statedir.model import Database
from tests.unit.model import application, changelog, database, record, store, task

TP = changelog("w")


def segment(start: int, offset: int | None, *, rows: int, status: int | None, wal: int | None = None) -> Database:
    """One segment; its SST has the number 9, so that it was flushed since the opening with write-ahead log 4."""
    segment_ = database("w", offsets=record(offset, "w", status=status), rows=rows, start=start)
    return dataclasses.replace(segment_, wal_number=FIRST_WAL if wal is None else wal)


def resolve_store(*segments: Database, line: int | None = None, running: bool = False) -> StoreOffsets:
    windows = store("w", *segments, kind="timestamped-window", segmented=True)
    app = application(task(windows, lines=None if line is None else {TP: line}))
    (resolved_task,) = resolve_with(dataclasses.replace(app, running=running), {})
    return resolved_task.stores[0]


CHOICES = [
    (offset, rows, status) for offset, rows, status in product((None, -4, 7, 9), (0, 3), (None, 0, 1)) if rows or offset
]


@pytest.mark.parametrize("line", [None, 8])
@pytest.mark.parametrize("first", CHOICES, ids=str)
def test_no_silent_segment_lets_an_offset_stand(first: tuple[int | None, int, int | None], line: int | None) -> None:
    """Whatever it holds, and whatever any other place states: only a clean close of all of them is a proof."""
    for second in CHOICES:
        offsets = [offset for offset, _, _ in (first, second) if offset is not None]
        segments = [
            segment(at, offset, rows=rows, status=status) for at, (offset, rows, status) in enumerate((first, second))
        ]
        result = resolve_store(*segments, line=line)
        if not offsets:
            assert result.offsets.get(TP) == line
        elif len(offsets) == 1:
            closed_as_a_whole = first[2] == second[2] == 0
            expected = min(offsets + ([] if line is None else [line])) if closed_as_a_whole else OFFSET_UNKNOWN
            assert result.offsets[TP] == expected, (first, second)
            assert bool(result.silent) is not closed_as_a_whole
        else:
            assert result.offsets[TP] == min(offsets + ([] if line is None else [line]))
            assert result.uneven is (len(set(offsets)) > 1)


def test_an_empty_segment_that_was_never_flushed_makes_the_offset_unknown() -> None:
    """What real 4.3.1 and 4.4.0 leave after a kill: rows of the silent segment are only in the changelog."""
    result = resolve_store(segment(0, None, rows=0, status=None), segment(1, 199, rows=3, status=1))
    assert result.offsets == {TP: OFFSET_UNKNOWN}
    assert [offsets_.segment_start for offsets_ in result.silent] == [0]


def test_a_segment_created_after_the_clean_close_changes_nothing() -> None:
    """Killed before the first flush: the others are still at the close, and were opened again (log 21, SST 9)."""
    closed = segment(0, 100, rows=3, status=0, wal=21)
    new = segment(1, None, rows=0, status=None)
    assert resolve_store(closed, new).offsets == {TP: 100}
    for changed in (
        (dataclasses.replace(closed, wal_number=4), new),  # flushed since it was opened
        (dataclasses.replace(closed, wal_number=None), new),
        (closed, dataclasses.replace(new, wal_number=12)),  # it was there at the last start already
        (closed, segment(1, None, rows=3, status=None)),
        (segment(0, 100, rows=3, status=1, wal=21), new),
        (segment(0, 100, rows=3, status=None, wal=21), new),
        (dataclasses.replace(closed, opened_ns=2), dataclasses.replace(new, opened_ns=1)),  # a start that failed
    ):
        assert resolve_store(*changed).offsets == {TP: OFFSET_UNKNOWN}
    other = segment(2, 90, rows=3, status=0, wal=21)
    assert resolve_store(closed, other, new).offsets == {TP: OFFSET_UNKNOWN}
    # Two that agree, and were not flushed since, were closed together, whatever status they have.
    agreeing = [segment(start, 100, rows=3, status=None, wal=21) for start in (0, 2)]
    assert resolve_store(*agreeing, new).offsets == {TP: 100}


def test_an_offset_of_another_changelog_is_no_statement() -> None:
    """A copied directory whose application got another id: one segment still has the old changelog's offset alone."""
    old, new = changelog("old"), changelog("w")
    copied = segment(0, 999, rows=3, status=None)
    assert copied.offsets is not None
    copied = dataclasses.replace(copied, offsets=dataclasses.replace(copied.offsets, offsets={old: 999}))
    flushed = segment(1, 376, rows=3, status=None)
    assert flushed.offsets is not None
    both = dataclasses.replace(flushed.offsets, offsets={old: 999, new: 376})
    result = resolve_store(copied, dataclasses.replace(flushed, offsets=both))
    assert result.offsets == {old: 999, new: OFFSET_UNKNOWN} and result.silent


def test_a_global_store_never_gets_minus_4() -> None:
    """Streams seeks to it, and does not start."""
    windows = store("w", segment(0, None, rows=0, status=None), segment(1, 9, rows=3, status=1), segmented=True)
    (resolved_task,) = resolve_with(application(task(windows, name="global")), {})
    (result,) = resolved_task.stores
    assert result.silent and result.offsets == {}


def test_closing_gives_each_segment_an_offset() -> None:
    segments = (segment(0, None, rows=0, status=None), segment(1, 199, rows=3, status=1))
    result = resolve_store(*segments, running=True)
    assert result.offsets == {TP: 199} and not result.silent and not result.uneven


def test_store_of_a_single_database_has_no_silent_segment() -> None:
    assert all_silent(silent_by_key(store("count", database(offsets=record(None, status=None))))) == ()


def test_position_is_the_minimum_of_all_segments() -> None:
    def at(start: int, position: dict[str, dict[int, int]]) -> Database:
        outputs = segment(start, start, rows=3, status=None)
        assert outputs.offsets is not None
        return dataclasses.replace(
            outputs, offsets=dataclasses.replace(outputs.offsets, position=Position.from_map(position))
        )

    windows = (at(0, {"in": {0: 5, 1: 9}, "other": {0: 1}}), at(1, {"in": {0: 7, 1: 8}}))
    assert common_position(store("w", *windows, segmented=True)).as_map() == {"in": {0: 5, 1: 8}}
    assert resolve_store(*windows).position.as_map() == {"in": {0: 5, 1: 8}}
    assert resolve_store(*windows, segment(2, None, rows=0, status=None)).position.is_empty


@pytest.mark.parametrize("second", [(None, 0), (99, 7), (99, 8), (100, 7), (None, 8)])
def test_a_position_holds_for_every_segment_or_for_none(second: tuple[int | None, int]) -> None:
    """Streams shows the highest of any segment; a bounded query may rely on what all of them have."""
    offset, position = second
    windows = [
        database("w", offsets=record(100, "w", status=1, position=8), start=0),
        database("w", offsets=record(offset, "w", status=None if offset is None else 1, position=position), start=1),
    ]
    reached = position_reached(store("w", *windows, segmented=True))
    assert reached.as_map() == ({"events": {0: position}} if position else {})


def test_clean_close_has_the_highest_position_of_its_segments() -> None:
    """A segment that this run created may state none: the close wrote all of them."""
    windows = [
        database("w", offsets=record(100, "w", position=8), start=0),
        database("w", offsets=record(None, "w"), start=1),
    ]
    assert position_reached(store("w", *windows, segmented=True)).as_map() == {"events": {0: 8}}
