"""What may be captured of a database that was not closed: each rule, and the offset of a store of several segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import RunFailed
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.keys import SessionKey, WindowKey
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord, Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.files import FIRST_WAL
from kstate_cli.snapshot.dump_bounds import offset_in_dump
from kstate_cli.snapshot.log_facts import offset_in_log
from kstate_cli.snapshot.model import StoredDatabase, StoredFile, StoredStore
from kstate_cli.snapshot.rules import (
    CutFacts,
    UnflushedSegments,
    closed_record,
    closing_was_one_flush,
    never_flushed,
    offset_of,
    why_not,
    with_later_segments,
)
from kstate_cli.statedir.model import Database, Store
from tests.unit.model import NEW, changelog, database, record, store, task

TP = changelog("w")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "dump"


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
    original = database(name, offsets=record(offset, name, status=status), rows=rows, start=start)
    db = {"atomic_flush": "true"} if atomic else {}
    return dataclasses.replace(original, options=StoredOptions(NEW, db, {}, {}), wal_number=FIRST_WAL)


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
    open_store = store("third", cut(3, name="third", status=1))
    assert why_not(CutFacts(task(empty, other, open_store)), empty) is not None


def test_families_without_atomic_flush() -> None:
    why = reason(cut(atomic=False))
    assert why is not None and "atomic_flush" in why
    assert reason(dataclasses.replace(cut(), options=None)) is not None


def test_a_store_between_two_families() -> None:
    why = reason(cut(), filled=2)
    assert why is not None and "moving its rows" in why


def test_a_status_proves_a_closing_only_with_atomic_flush() -> None:
    assert closing_was_one_flush(cut(status=STATUS_CLOSED))
    apart = cut(status=STATUS_CLOSED, atomic=False)
    assert not closing_was_one_flush(apart)
    assert not closing_was_one_flush(dataclasses.replace(apart, options=None))
    # Up to 4.2 the offset is in a file, which is written after the rows.
    assert closing_was_one_flush(database())
    # ``migrate`` keeps the options of the release before, and names the RocksDB of kstate.
    assert apart.options is not None
    migrated = dataclasses.replace(apart.options, rocksdb_version="9.8.4")
    assert closing_was_one_flush(dataclasses.replace(apart, options=migrated))


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
    original = store("w", *segments, kind="timestamped-window", segmented=True)
    placed = []
    for database_ in original.databases:
        path = tmp_path / database_.path.name
        path.mkdir()
        (path / "IDENTITY").write_bytes(path.name.encode())
        placed.append(dataclasses.replace(database_, path=path))
    return dataclasses.replace(original, databases=tuple(placed))


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
        assert result.is_usable is (offset >= 0) is (not result.why_unknown)


def unflushed_store(offset: int, *, is_cut: bool = True, identity: str = "") -> StoredStore:
    """An earlier snapshot in which the segment 120 existed, and was bounded."""
    stored = generation(offset, 0, 120)
    segment_ = generation(offset, 120, identity=identity).databases[0]
    silent = dataclasses.replace(segment_, offsets=OffsetsRecord({}, None, None))
    return dataclasses.replace(stored, databases=(stored.databases[0], silent), is_cut=is_cut)


def test_a_segment_inherits_the_bound_of_an_earlier_snapshot(tmp_path: Path) -> None:
    store_ = windows(tmp_path, segment(0, 40), segment(120, None))
    cases = [
        (unflushed_store(25), 25),
        (unflushed_store(OFFSET_UNKNOWN), OFFSET_UNKNOWN),
        # A closed store has all of its rows, so its offset bounds nothing that is missing now.
        (unflushed_store(25, is_cut=False), OFFSET_UNKNOWN),
        # Another database of the same name: the segment expired, and a late record created it again.
        (unflushed_store(25, identity="other"), OFFSET_UNKNOWN),
        # It had an offset then, so it is not the same one.
        (generation(25, 0, 120), OFFSET_UNKNOWN),
    ]
    for earlier, offset in cases:
        assert offset_of(store_, 0, [("a", earlier)]).offsets == {TP: offset}


def window(start: int, key: bytes = b"key") -> bytes:
    """The key of a record of a window store."""
    return WindowKey(key, start).to_bytes()


def session(end: int) -> bytes:
    """The key of a record of a session store."""
    return SessionKey(b"key", end - 7, end).to_bytes()


def test_the_log_shows_where_a_segment_begins(tmp_path: Path) -> None:
    store_ = windows(tmp_path, segment(0, 40), segment(60, 70), segment(120, None))
    unflushed = offset_of(store_, 0, ()).unflushed[TP]
    # 60 is the greatest common divisor of the starts, and 40 the lowest offset of the other segments.
    assert unflushed == UnflushedSegments(((120, 180),), 40)
    cases: list[tuple[str, list[tuple[int, bytes | None]], int]] = [
        ("its first record", [(3, window(119)), (5, window(120)), (9, window(179))], 4),
        ("of a session", [(3, session(119)), (7, session(179))], 6),
        ("a record of a key that cannot be read", [(3, window(1)), (6, b"short")], 5),
        ("a record without a key", [(3, window(1)), (8, None)], 7),
        ("none up to the lowest offset", [(3, window(1)), (40, window(180)), (41, window(120))], 40),
        ("none at all", [], 40),
        ("at the lowest offset", [(3, window(1)), (40, window(121))], 39),
        ("the first record of the log", [(3, window(120))], OFFSET_UNKNOWN),
    ]
    for title, records, offset in cases:
        assert unflushed.offset_before(records, 3) == offset, title


def test_the_span_of_a_segment_is_never_too_short(tmp_path: Path) -> None:
    cases = [
        # Starts, of which the last one is silent, and its span.
        ((0, 600, 1500), (1500, 1800)),
        ((600, 900, 1800), (1800, 2100)),
        ((1200, 2400), (2400, 3600)),
    ]
    for number, (starts, span) in enumerate(cases):
        home = tmp_path / str(number)
        home.mkdir()
        *others, last = starts
        store_ = windows(home, *(segment(start, 40) for start in others), segment(last, None))
        assert offset_of(store_, 0, ()).unflushed[TP].spans == (span,)
    # A name in another form has a time that Streams rounded to minutes.
    old = dataclasses.replace(store_.databases[0], path=tmp_path / "w-197001010020")
    renamed = dataclasses.replace(store_, databases=(old, *store_.databases[1:]))
    assert not offset_of(renamed, 0, ()).unflushed


def test_a_store_that_was_never_flushed_has_only_a_first_record(tmp_path: Path) -> None:
    silent = windows(tmp_path, segment(600, None), segment(900, None))
    assert never_flushed(silent) == UnflushedSegments(((600, 900), (900, 1200)), MAX_I64)
    for other in (
        dataclasses.replace(silent, databases=(segment(600, 40), silent.databases[1])),  # its changelog is stated
        dataclasses.replace(silent, databases=(cut(None, status=0, rows=0, start=600),)),  # closed without a changelog
        dataclasses.replace(silent, databases=(cut(None, status=None, start=600),)),  # it has rows
        store("w", cut(None, status=None, rows=0)),
    ):
        assert never_flushed(other) is None


def test_segments_that_are_newer_than_a_cut_bound_the_offset_too(tmp_path: Path) -> None:
    """The end of the log is newer than the cut: a record of a segment that was created in between may be below it."""
    silent = windows(tmp_path, segment(600, None), segment(900, None))
    cut_segments = never_flushed(silent)
    assert cut_segments is not None
    # 600 was dropped, and 300 and 1200 were created: a late record, and one of now.
    segments = with_later_segments(silent, cut_segments, ["w.900", "w.1200", "w.300", "lost+found"])
    assert segments is not None
    records = [(5, window(100)), (7, window(1300)), (8, window(950))]
    assert segments.offset_before(records, 3) == 6 and cut_segments.offset_before(records, 3) == 7
    assert segments.offset_before([(5, window(100)), (6, window(310))], 3) == 5
    assert with_later_segments(silent, cut_segments, ["w-202401010000"]) is None


def test_a_log_shows_the_offset_of_segments() -> None:
    segments = UnflushedSegments(((120, 180),), 40)

    def offset(log: LogFacts | None, *records: tuple[int, bytes], last: int = 40) -> int:
        requests = []

        def read(key: TopicPartition, first: int, end: int) -> Iterator[tuple[int, bytes]]:
            requests.append((first, end))
            yield from records
            # As the broker: the end of the log must not come before the last offset.
            if first > 5:
                raise RunFailed("the log was cut off")

        result = offset_in_log(TP, dataclasses.replace(segments, last=last), read, log)
        # A user always learns why the offset is unknown.
        assert (result.offset == OFFSET_UNKNOWN) is (result.why_unknown is not None)
        assert log is None or requests in ([], [(log.start, min(last, log.end - 1))])
        return result.offset

    assert offset(LogFacts(3, 50), (3, window(1)), (9, window(130))) == 8
    assert offset(LogFacts(3, 50), (9, window(1))) == 40
    assert offset(None) == OFFSET_UNKNOWN
    # The log begins above the offset, or ends below it; the reading fails.
    assert offset(LogFacts(41, 50), (41, window(130))) == OFFSET_UNKNOWN
    assert offset(LogFacts(3, 40), (9, window(130))) == OFFSET_UNKNOWN
    assert offset(LogFacts(6, 50), (6, window(1))) == OFFSET_UNKNOWN
    # Nothing was flushed: only records that come later may be needed.
    assert offset(LogFacts(3, 50), (3, window(1)), last=MAX_I64) == 49
    assert offset(LogFacts(0, 0), last=MAX_I64) == OFFSET_UNKNOWN
    assert offset_in_log(TP, segments, None, LogFacts(3, 50)).offset == OFFSET_UNKNOWN


def test_a_dump_shows_the_offset_of_segments() -> None:
    dump = read_dump(str(EXAMPLE), complete=False, committed_only=False)
    key = TopicPartition("orders-orders-per-minute-changelog", 1)
    partition = dataclasses.replace(dump.partitions[key], topic_id="A" * 22)
    # Its records from offset 31 to 52 are of this segment.
    segments = UnflushedSegments(((1_704_067_800_000, 1_704_068_400_000),), 51)

    def offset(last: int = 51, topic_id: str | None = None, **facts: object) -> int:
        changed = dataclasses.replace(partition, **facts)  # type: ignore[arg-type]
        ids = {} if topic_id is None else {key.topic: topic_id}
        stored = dataclasses.replace(generation(40, 0), offsets={key: OFFSET_UNKNOWN}, topic_ids=ids)
        partitions = dataclasses.replace(dump, partitions={key: changed})
        return offset_in_dump(key, dataclasses.replace(segments, last=last), partitions, stored)

    assert offset() == offset(topic_id="A" * 22) == 30
    assert offset(last=20) == 20
    # The dump ends too early, or begins above the log start, or does not state these; it is of another topic.
    unknown = [offset(last=61), offset(start=1), offset(start=None), offset(log_start=None), offset(log_end=None),
               offset(topic_id="B" * 22)]  # fmt: skip
    assert unknown == [OFFSET_UNKNOWN] * len(unknown)


@settings(max_examples=300, deadline=None)
@given(
    records=strategies.lists(strategies.integers(0, 3), max_size=30),
    flushed=strategies.lists(strategies.integers(-1, 30), min_size=4, max_size=4),
    interval=strategies.integers(1, 50),
)
def test_rows_and_the_rest_of_the_log_are_all_of_it(records: list[int], flushed: list[int], interval: int) -> None:
    """Each record is of a segment, and each segment is flushed up to some offset, or never: no record may be lost."""
    lengths = [min(offset, len(records) - 1) for offset in flushed]
    stating = [number for number, offset in enumerate(lengths) if offset >= 0]
    if not stating:
        return
    databases = [
        cut(offset if offset >= 0 else None, name="w", status=1, rows=offset + 1, start=number * interval)
        for number, offset in enumerate(lengths)
    ]
    placed = [dataclasses.replace(each, path=Path(f"w.{each.segment_start}")) for each in databases]
    store_ = dataclasses.replace(
        store("w", *placed, kind="timestamped-window", segmented=True), databases=tuple(placed)
    )
    result = offset_of(store_, 0, ())
    offset = result.offsets[TP]
    if TP in result.unflushed:
        keys = [(at, window(number * interval + interval - 1)) for at, number in enumerate(records)]
        offset = result.unflushed[TP].offset_before(keys, 0)
    lost = [at for at, number in enumerate(records) if lengths[number] < at <= offset]
    assert not lost


def test_a_restored_cut_is_as_closed() -> None:
    stored = generation(40, 0, 60)
    positions = [Position.from_map({"in": {0: 9}}), Position.from_map({"in": {0: 5}})]
    records = [OffsetsRecord({TP: 40}, positions[0], 1), OffsetsRecord({TP: 70}, positions[1], 1)]
    silent = OffsetsRecord({}, None, None)
    databases = [dataclasses.replace(stored.databases[0], offsets=each) for each in (*records, silent)]
    whole = dataclasses.replace(stored, offsets={TP: 30}, databases=tuple(databases))
    for each in databases:
        assert closed_record(whole, each) == OffsetsRecord({TP: 30}, Position.empty(), STATUS_CLOSED)
    # Of a segment that Streams was creating, the family may not exist yet; up to 4.2 it never does.
    created = dataclasses.replace(stored.databases[0], offsets=None)
    assert closed_record(dataclasses.replace(whole, databases=(*databases, created)), created) == OffsetsRecord(
        {TP: 30}, Position.empty(), STATUS_CLOSED
    )
    assert closed_record(dataclasses.replace(whole, databases=(created, created)), created) is None
    two = dataclasses.replace(whole, databases=tuple(databases[:2]))
    assert closed_record(two, databases[0]) == OffsetsRecord({TP: 30}, positions[1], STATUS_CLOSED)
    transactional = dataclasses.replace(databases[0], offsets=OffsetsRecord({TP: 40}, positions[0], None))
    alone = dataclasses.replace(whole, offsets={TP: 40}, databases=(transactional,))
    assert closed_record(alone, transactional) == transactional.offsets
