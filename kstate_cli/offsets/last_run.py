"""How the last run left the databases of a store: closed, open, or with every commit complete (KIP-892); their offsets.

This is about the run before. Whether the next start uses transactional stores is another question, which the user
answers (``--transactional-stores``); the bytes answer this one, except for a database that states nothing at all.

Each segment of a store is a RocksDB of its own, flushes on its own, and states the offset of its own last flush
(``AbstractSegments.commit``). After a kill one may state 199 while another, created earlier, was never flushed: it is
empty, states nothing, and its rows are only in the changelog below 199. So a silent segment makes the offset of the
whole store unknown, whatever it holds.

A carrier segment of kstate always states an offset, so it is no exception. It never exists beside segments of a later
run: Streams removes it as expired when it creates the first one (``getOrCreateSegmentIfLive``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from kstate_cli.formats.offsets import STATUS_CLOSED, Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import written_by
from kstate_cli.statedir.model import Database, Store


class Ending(Enum):
    """How a run left a database that has the column family ``offsets``."""

    CLOSED = "closed"
    """``status`` is 0: a run without transactional stores closed it, or a later one has not flushed since."""
    OPEN = "open"
    """``status`` is 1: killed after a flush, so uncommitted rows are possible under exactly-once."""
    COMMITTED = "committed"
    """No ``status``, and an offset or a Position: only transactional stores write these alone.

    Without the option ``AbstractColumnFamilyAccessor.open`` writes ``status`` before anything else, and RocksDB flushes
    all column families together. Rows, offset and Position of a commit are one ``WriteBatch``
    (``RocksDBTransactionBuffer``), so nothing uncommitted is on disk.
    """
    SILENT = "silent"
    """No row at all: never flushed, or the run ended before the first commit. The bytes prove nothing."""


def ending(database: Database, *, transactional: bool = False) -> Ending | None:
    """Return how a database was left, None if it has no column family ``offsets``.

    ``transactional``: the user says that the application ran with transactional stores. That decides about a database
    with rows that states nothing, if a release with such stores may have written it, and about no other.
    """
    record = database.offsets
    if record is None:
        return None
    if record.status is not None:
        return Ending.CLOSED if record.status == STATUS_CLOSED else Ending.OPEN
    if _transactional_release_possible(database):
        has_statement = bool(record.offsets) or record.position is not None
        if has_statement or (transactional and not database.empty):
            return Ending.COMMITTED
    return Ending.SILENT


def left_committed(store: Store, *, transactional: bool = False) -> bool:
    """Return True if no database of a store can hold uncommitted rows because its last run was transactional.

    Databases with ``status`` 0 count if another one of the store proves that run, or the user states it: such a run
    leaves the 0 of the run before in place.
    """
    endings = [ending(database, transactional=transactional) for database in store.databases]
    rows = [end for end, database in zip(endings, store.databases, strict=True) if not database.empty]
    if Ending.OPEN in endings or None in rows or Ending.SILENT in rows:
        return False
    return Ending.COMMITTED in endings or (transactional and Ending.CLOSED in endings)


def has_offset_if_logged(store: Store, *, transactional: bool = False) -> bool:
    """Return True if a store that has a changelog would have an offset in its databases.

    It was closed, for which it is committed (``StreamTask.closeClean``); or its rows came with their offset in one
    batch (KIP-892), so that a Position without an offset and a status proves that there is no changelog.
    """
    if store.status is not None:
        return store.status == "closed"
    return left_committed(store, transactional=transactional)


def _transactional_release_possible(database: Database) -> bool:
    """Return True if a release that has transactional stores may have opened the database last."""
    version = database.options.rocksdb_version if database.options else None
    return any(release.transactional for release in written_by(version, frozenset(database.column_families)))


def stated_offset(segment: Database, key: TopicPartition) -> int | None:
    """Return the offset of a changelog partition that a segment states, -4 included; None if it states none."""
    if segment.offsets is None:
        return None
    return segment.offsets.offsets.get(key)


def silent_by_key(store: Store) -> Mapping[TopicPartition, tuple[Database, ...]]:
    """Return, for each changelog partition that segments state, those that make its offset unknown by stating none.

    Another changelog's offset is no statement: a copied directory may have those of an application with another id.
    """
    if not store.segmented:
        return {}
    # The keys come from segments that have the family; one without it is silent about all of them.
    records = [segment.offsets for segment in store.databases if segment.offsets is not None]
    keys = sorted({key for record in records for key in record.offsets})
    return {key: silent for key in keys if (silent := _silent(store, key))}


def _silent(store: Store, key: TopicPartition) -> tuple[Database, ...]:
    """Return the segments that state no offset of a changelog partition, unless their silence is harmless."""
    stating = tuple(segment for segment in store.databases if stated_offset(segment, key) is not None)
    without = tuple(segment for segment in store.databases if stated_offset(segment, key) is None)
    # Different offsets prove a kill after the last close: nothing makes silence harmless then.
    agree = len({stated_offset(segment, key) for segment in stating}) == 1
    # Agreement is required first: closing writes one offset into every segment of the store.
    if without and agree and (_closed_together(stating, without) or _created_since(stating, without)):
        return ()
    return without


def all_silent(silent: Mapping[TopicPartition, tuple[Database, ...]]) -> tuple[Database, ...]:
    """Return the segments that are silent about any changelog partition, by their start."""
    by_path = {segment.path: segment for segments in silent.values() for segment in segments}
    return tuple(sorted(by_path.values(), key=lambda segment: segment.segment_start or 0))


def segments_disagree(store: Store) -> bool:
    """Return True if segments state different offsets of one changelog: each is that of the segment's last flush."""
    if not store.segmented:
        return False
    offsets_by_key: dict[TopicPartition, set[int]] = {}
    # A running map of all stated offsets by partition; -4 counts as a statement like any other.
    for segment in store.databases:
        record = segment.offsets
        for key, offset in record.offsets.items() if record is not None else ():
            offsets_by_key.setdefault(key, set()).add(offset)
    return any(len(offsets) > 1 for offsets in offsets_by_key.values())


def common_position(store: Store) -> Position:
    """Return the Position that all segments of a store have reached: the lowest of each partition that all state.

    Streams merges their Positions by the highest, which is ahead of the rows if one segment is behind.
    """
    return lowest_position([segment.offsets.position if segment.offsets else None for segment in store.databases])


def lowest_position(stated: Sequence[Position | None]) -> Position:
    """Return the lowest offset of each partition that all of the Positions state; None states nothing."""
    positions = [position.as_map() if position else {} for position in stated]
    if not positions:
        return Position.empty()
    common: dict[str, dict[int, int]] = {}
    for topic, partitions in positions[0].items():
        for partition in partitions:
            # A segment that does not state the partition may have none of its records: None, and the partition is
            # left out, which makes a bounded query refuse instead of answering too early.
            reached = [position.get(topic, {}).get(partition) for position in positions]
            lowest = [offset for offset in reached if offset is not None]
            if len(lowest) == len(reached):
                common.setdefault(topic, {})[partition] = min(lowest)
    return Position.from_map(common)


def position_reached(store: Store) -> Position:
    """Return the Position up to which a store has every record: what a bounded query may rely on.

    A clean close writes one Position into all segments. Different ones, or a silent segment, prove that one is behind.
    """
    positions = [
        d.offsets.position for d in store.databases if d.offsets is not None and d.offsets.position is not None
    ]
    apart = store.segmented and any(position != positions[0] for position in positions)
    if apart or segments_disagree(store) or silent_by_key(store):
        return common_position(store)
    return store.position


def reader_remarks(store: Store, *, running: bool) -> tuple[str, ...]:
    """Return the remarks for a reader of the store: rows may be missing, or its Position cannot be read.

    ``running``: each segment of a running application has the rows of its own last flush, which proves no loss.
    """
    # While the application is running, silence only means that a segment has not flushed yet.
    if running:
        return store.remarks
    remark = silent_remark(store)
    if remark is None:
        return store.remarks
    return (*store.remarks, remark)


def silent_remark(store: Store) -> str | None:
    """Return what to tell of the silent segments of a store that no application uses now, None if there are none."""
    silent = all_silent(silent_by_key(store))
    if not silent:
        return None
    starts = ", ".join(str(segment.segment_start) for segment in silent)
    return (
        f"{store.path.parent.name}/{store.name}: segments without an offset ({starts}), while others have one: "
        "the application was killed before it flushed them, so rows may be missing"
    )


def _closed_together(stating: tuple[Database, ...], silent: tuple[Database, ...]) -> bool:
    """Return True if one clean close wrote all of them."""
    return all(ending(segment) is Ending.CLOSED for segment in (*stating, *silent))


def _created_since(stating: tuple[Database, ...], silent: tuple[Database, ...]) -> bool:
    """Return True if Streams created the silent segments after the start at which the others were opened last.

    Streams opens every existing segment at a start (``AbstractSegments.openExisting``). The stating ones, which agree,
    were opened and not flushed since, so they are as that start met them. The silent ones were opened once, later than
    these, and never flushed: they got records above the offset only. One segment alone agrees with itself even after a
    kill, so it must have been closed.
    """
    # RocksDB numbers write-ahead logs and SSTs with one counter, so the order needs no clock.
    reopened = not any(segment.flushed_since_opened for segment in stating)
    new = all(segment.opened_once and not any(segment.live.values()) for segment in silent)
    # A start that failed half-way opens some of them again, and leaves the others as the kill before did.
    # mtimes of CURRENT, which RocksDB replaces at each open for writing: a copy keeps their order (cp
    # -a).
    later = min(segment.opened_ns for segment in silent) >= max(segment.opened_ns for segment in stating)
    at_rest = len(stating) > 1 or ending(stating[0]) is Ending.CLOSED
    return reopened and new and later and at_rest
