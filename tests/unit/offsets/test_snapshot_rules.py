"""What may be captured of a database that was not closed: each rule, and the offset of a store of several segments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord, Position
from kstate_cli.rocks.files import FIRST_WAL
from kstate_cli.snapshot.model import StoredDatabase, StoredFile, StoredStore
from kstate_cli.snapshot.rules import CutFacts, closed_record, offset_of, why_not
from kstate_cli.statedir.model import Database, Store
from tests.unit.model import NEW, changelog, database, record, store, task

TP = changelog("w")


def cut(
    offset: int | None = 7,
    *,
    name: str = "count",
    status: int | None = 1,
    rows: int = 3,
    atomic: bool = True,
    start: int | None = None,
) -> Database:
    """A database of 4.3 that was flushed since it was opened."""
    made = database(name, offsets=record(offset, name, status=status), rows=rows, start=start)
    db = {"atomic_flush": "true"} if atomic else {}
    return dataclasses.replace(made, options=StoredOptions(NEW, db, {}, {}), wal_number=FIRST_WAL)


def reason(*databases: Database, at_least_once: bool = True, filled: int = 1, **words: object) -> str | None:
    """Why a store of these databases may not be captured."""
    checked: Store = store("count", *databases, **words)  # type: ignore[arg-type]
    families = frozenset(["default", "keyValueWithTimestamp"][:filled])
    lines = {changelog("count"): 5} if not checked.has_offsets_family else None
    facts = CutFacts(
        task(checked, lines=lines), {each.path: families for each in checked.databases}, at_least_once=at_least_once
    )
    return why_not(facts, checked)


def test_at_least_once_captures_flushed_rows() -> None:
    assert reason(cut()) is None
    assert reason(database()) is None  # up to 4.2, with the offset of .checkpoint


@pytest.mark.parametrize(("status", "captured"), [(0, True), (1, False), (None, True)])
def test_exactly_once_captures_databases_without_open_status(status: int | None, captured: bool) -> None:
    assert (reason(cut(status=status), at_least_once=False) is None) is captured
    assert reason(database(), at_least_once=False) is not None  # up to 4.2 nothing shows it


def test_a_database_that_states_nothing() -> None:
    silent = cut(None, status=None, rows=0)
    assert reason(silent, at_least_once=False) is not None
    # Beside a transactional store it was never flushed.
    other = store("other", cut(3, name="other", status=None))
    empty = store("count", silent)
    facts = CutFacts(task(empty, other), {}, at_least_once=False)
    assert facts.proves_transactions and why_not(facts, empty) is None
    with_rows = store("count", cut(None, status=None))
    assert why_not(CutFacts(task(with_rows, other)), with_rows) is not None
    opened = store("third", cut(3, name="third", status=1))
    assert why_not(CutFacts(task(empty, other, opened)), empty) is not None


def test_families_without_atomic_flush() -> None:
    why = reason(cut(atomic=False))
    assert why is not None and "atomic_flush" in why
    assert reason(dataclasses.replace(cut(), options=None)) is not None


def test_a_store_between_two_families() -> None:
    why = reason(cut(), filled=2)
    assert why is not None and "migrated" in why


def test_a_versioned_store_whose_rows_may_be_ahead() -> None:
    assert reason(cut(), kind="versioned") is not None
    closed = dataclasses.replace(cut(status=STATUS_CLOSED), wal_number=99)
    assert reason(closed, kind="versioned") is None


def test_offsets_in_two_places() -> None:
    both = store("count", cut())
    facts = CutFacts(task(both, lines={changelog("count"): 5}), at_least_once=True)
    assert why_not(facts, both) is not None
    old, new = store("old", database("old")), store("new", cut(name="new"))
    assert why_not(CutFacts(task(old, new), at_least_once=True), old) is not None
    assert why_not(CutFacts(task(old), at_least_once=True), old) is not None  # no .checkpoint yet


# --- segments ---------------------------------------------------------------------------------------------------------


def segment(start: int, offset: int | None, *, rows: int = 3) -> Database:
    """A segment of a running application; without an offset it was never flushed."""
    status = None if offset is None else 1
    return cut(offset, name="w", status=status, rows=rows if offset is not None else 0, start=start)


def windows(tmp_path: Path, *segments: Database) -> Store:
    """A store of them, each with an identity."""
    made = store("w", *segments, kind="timestamped-window", segmented=True)
    placed = []
    for database_ in made.databases:
        path = tmp_path / database_.path.name
        path.mkdir()
        (path / "IDENTITY").write_bytes(path.name.encode())
        placed.append(dataclasses.replace(database_, path=path))
    return dataclasses.replace(made, databases=tuple(placed))


def generation(offset: int, *starts: int, identity: str = "") -> StoredStore:
    """An earlier snapshot of the store, with these segments."""
    databases = []
    for start in starts:
        folder = f"w.{start}"
        file = StoredFile("IDENTITY", 0, "", 0, None, (identity or folder).encode())
        databases.append(StoredDatabase(folder, {}, OffsetsRecord({TP: offset}, None, 1), (file,)))
    return StoredStore("w", True, "timestamped-window", {TP: offset}, False, None, None, {}, tuple(databases))


def silent_store() -> StoredStore:
    """An earlier snapshot whose offset was unknown: one segment states 33, another one nothing."""
    stored = generation(33, 0, 60)
    silent = dataclasses.replace(stored.databases[1], offsets=OffsetsRecord({}, None, None))
    return dataclasses.replace(stored, offsets={TP: OFFSET_UNKNOWN}, databases=(stored.databases[0], silent))


def test_the_lowest_offset_of_all_segments(tmp_path: Path) -> None:
    assert offset_of(windows(tmp_path, segment(0, 40), segment(60, 70)), 0, ()).offsets == {TP: 40}


def test_a_segment_without_an_offset_is_unknown_or_bounded(tmp_path: Path) -> None:
    store_ = windows(tmp_path, segment(0, 40), segment(60, 70), segment(120, None))
    assert offset_of(store_, 0, ()).offsets == {TP: OFFSET_UNKNOWN}
    cases = [
        ("before it existed", [("a", generation(30, 0))], 30, {"a"}),
        ("the highest", [("a", generation(20, 0)), ("b", generation(35, 0, 60))], 35, {"b"}),
        ("never above the lowest stated", [("a", generation(39, 0)), ("b", generation(40, 0))], 40, {"b"}),
        ("it existed", [("a", generation(30, 0, 120))], OFFSET_UNKNOWN, set()),
        ("another directory", [("a", generation(30, 0, identity="other"))], OFFSET_UNKNOWN, set()),
        ("a log that was created again", [("a", generation(90, 0))], OFFSET_UNKNOWN, set()),
        ("its other segments were silent", [("a", silent_store())], 33, {"a"}),
        ("an unknown offset", [("a", generation(OFFSET_UNKNOWN, 0))], OFFSET_UNKNOWN, set()),
    ]
    for title, earlier, offset, names in cases:
        result = offset_of(store_, 0, earlier)
        assert result.offsets == {TP: offset} and result.bounded_by == frozenset(names), title
        assert result.is_usable is (offset >= 0)


def test_a_restored_cut_is_as_closed() -> None:
    stored = generation(40, 0, 60)
    positions = [Position.from_map({"in": {0: 9}}), Position.from_map({"in": {0: 5}})]
    records = [OffsetsRecord({TP: 40}, positions[0], 1), OffsetsRecord({TP: 70}, positions[1], 1)]
    silent = OffsetsRecord({}, None, None)
    databases = [dataclasses.replace(stored.databases[0], offsets=each) for each in (*records, silent)]
    whole = dataclasses.replace(stored, offsets={TP: 30}, databases=tuple(databases))
    for each in databases:
        assert closed_record(whole, each) == OffsetsRecord({TP: 30}, Position.empty(), STATUS_CLOSED)
    two = dataclasses.replace(whole, databases=tuple(databases[:2]))
    assert closed_record(two, databases[0]) == OffsetsRecord({TP: 30}, positions[1], STATUS_CLOSED)
    transactional = dataclasses.replace(databases[0], offsets=OffsetsRecord({TP: 40}, positions[0], None))
    alone = dataclasses.replace(whole, offsets={TP: 40}, databases=(transactional,))
    assert closed_record(alone, transactional) == transactional.offsets
