"""How the last run of the application left the databases of a store, and which offsets they state.

A database may have been closed, may be open, or may have only complete commits (transactional stores, KIP-892). Whether
the next start uses transactional stores is another question, which the user answers.

Each segment of a store is a separate RocksDB, flushes separately, and states the offset of its own last flush
(``AbstractSegments.commit``). After a kill one segment may state 199 while another, created earlier, was never flushed.
The latter is *silent*: it is empty and states no offset, and its rows below 199 are only in the changelog. So one
silent segment makes the offset of the whole store unknown.

A carrier segment (created by kstate to record an offset, without rows) always states an offset. It never exists
together with segments of a later run: Streams removes it as expired when it creates the first one
(``getOrCreateSegmentIfLive``).
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
    """``status`` is 0: a run without transactional stores closed it. A later run has written nothing to it since."""
    OPEN = "open"
    """``status`` is 1: the run was killed after a flush. Under exactly-once, uncommitted rows are possible."""
    COMMITTED = "committed"
    """No ``status``, and an offset or a Position: only transactional stores write these alone.

    Without the option ``AbstractColumnFamilyAccessor.open`` writes ``status`` before anything else, and RocksDB flushes
    all column families together. Rows, offset and Position of a commit are one ``WriteBatch``
    (``RocksDBTransactionBuffer``), so nothing uncommitted is on disk.
    """
    SILENT = "silent"
    """The column family has no row: nothing was flushed, or the run ended before the first commit.

    This proves nothing.
    """


def ending(database: Database, *, transactional: bool = False) -> Ending | None:
    """Return how a database was left; None if it has no column family ``offsets``.

    ``transactional``: the user states that the application ran with transactional stores. This only decides about a
    database that has rows and states nothing, if a release with such stores may have written it.
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
    """Return True if no database of a store can have uncommitted rows because its last run was transactional.

    A transactional run leaves the ``status`` 0 of an earlier run in place. So databases with 0 count too, if another
    database of the store proves a transactional run, or the user states it.
    """
    endings = [ending(database, transactional=transactional) for database in store.databases]
    rows = [end for end, database in zip(endings, store.databases, strict=True) if not database.empty]
    if Ending.OPEN in endings or None in rows or Ending.SILENT in rows:
        return False
    return Ending.COMMITTED in endings or (transactional and Ending.CLOSED in endings)


def has_offset_if_logged(store: Store, *, transactional: bool = False) -> bool:
    """Return True if the databases of the store would have an offset if it had a changelog.

    That is so if the store was closed, which commits its offset (``StreamTask.closeClean``). It is also so if rows and
    offset were always committed in one batch (KIP-892). Then a store without an offset has no changelog.
    """
    if store.status is not None:
        return store.status == "closed"
    return left_committed(store, transactional=transactional)


def _transactional_release_possible(database: Database) -> bool:
    """Return True if a release that has transactional stores may have opened the database last."""
    version = database.options.rocksdb_version if database.options else None
    return any(release.transactional for release in written_by(version, frozenset(database.column_families)))


def stated_offset(segment: Database, key: TopicPartition) -> int | None:
    """Return the offset of a changelog partition that a segment states, which may be -4; None if it states none."""
    if segment.offsets is None:
        return None
    return segment.offsets.offsets.get(key)


def silent_by_key(store: Store) -> Mapping[TopicPartition, tuple[Database, ...]]:
    """Return changelog partition -> the segments that do not state its offset and so make the store's offset unknown.

    Only partitions that some segment states are in the result. An offset of another changelog does not count: a copied
    directory may have offsets of an application with another id.
    """
    if not store.segmented:
        return {}
    # The partitions come from segments that have the column family. A segment without it states none of them.
    records = [segment.offsets for segment in store.databases if segment.offsets is not None]
    keys = sorted({key for record in records for key in record.offsets})
    return {key: silent for key in keys if (silent := _silent(store, key))}


def _silent(store: Store, key: TopicPartition) -> tuple[Database, ...]:
    """Return the segments that state no offset of a changelog partition; none if this is proved to be harmless."""
    stating = tuple(segment for segment in store.databases if stated_offset(segment, key) is not None)
    without = tuple(segment for segment in store.databases if stated_offset(segment, key) is None)
    # Different offsets prove a kill after the last close. Then a segment without an offset may have lost rows. Equal
    # ones are necessary because closing a store writes one offset into all its segments.
    agree = len({stated_offset(segment, key) for segment in stating}) == 1
    # Agreement is required first: closing writes one offset into every segment of the store.
    if without and agree and (_closed_together(stating, without) or _created_since(stating, without)):
        return ()
    return without


def all_silent(silent: Mapping[TopicPartition, tuple[Database, ...]]) -> tuple[Database, ...]:
    """Return the segments that lack the offset of any changelog partition, in the order of their starts."""
    by_path = {segment.path: segment for segments in silent.values() for segment in segments}
    return tuple(sorted(by_path.values(), key=lambda segment: segment.segment_start or 0))


def segments_disagree(store: Store) -> bool:
    """Return True if segments state different offsets of one changelog partition: each that of its own last flush."""
    if not store.segmented:
        return False
    offsets_by_key: dict[TopicPartition, set[int]] = {}
    # Changelog partition -> all offsets that segments state for it; -4 counts like any other.
    for segment in store.databases:
        record = segment.offsets
        for key, offset in record.offsets.items() if record is not None else ():
            offsets_by_key.setdefault(key, set()).add(offset)
    return any(len(offsets) > 1 for offsets in offsets_by_key.values())


def common_position(store: Store) -> Position:
    """Return the Position that all segments of a store have reached.

    It has the partitions that all segments state, each with the lowest of their offsets. Streams merges them by the
    highest one, which is ahead of the rows if one segment is behind.
    """
    return lowest_position([segment.offsets.position if segment.offsets else None for segment in store.databases])


def lowest_position(stated: Sequence[Position | None]) -> Position:
    """Return the lowest offset of each partition that all of the Positions state.

    A None among them states no partition.
    """
    positions = [position.as_map() if position else {} for position in stated]
    if not positions:
        return Position.empty()
    common: dict[str, dict[int, int]] = {}
    for topic, partitions in positions[0].items():
        for partition in partitions:
            # A segment that does not state the partition may have none of its records. Then the partition is omitted,
            # so that a bounded query is refused instead of answered too early.
            reached = [position.get(topic, {}).get(partition) for position in positions]
            lowest = [offset for offset in reached if offset is not None]
            if len(lowest) == len(reached):
                common.setdefault(topic, {})[partition] = min(lowest)
    return Position.from_map(common)


def position_reached(store: Store) -> Position:
    """Return the Position up to which a store has every record, so that a bounded query may rely on it.

    A clean close writes the same Position into all segments. If they differ, or one is silent, a segment is behind.
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

    If the application is ``running``, each segment has the rows of its own last flush, which proves no loss.
    """
    # While the application is running, a segment without an offset may just not have been flushed yet.
    if running:
        return store.remarks
    remark = silent_remark(store)
    if remark is None:
        return store.remarks
    return (*store.remarks, remark)


def silent_remark(store: Store) -> str | None:
    """Return a remark about the silent segments of a store that no application uses now; None if it has none."""
    silent = all_silent(silent_by_key(store))
    if not silent:
        return None
    starts = ", ".join(str(segment.segment_start) for segment in silent)
    return (
        f"{store.path.parent.name}/{store.name}: some segments have no offset ({starts}), but others do. The "
        "application was killed before it flushed these segments, so rows may be missing"
    )


def _closed_together(stating: tuple[Database, ...], silent: tuple[Database, ...]) -> bool:
    """Return True if one clean close wrote all these segments, so that the silent ones had nothing to state."""
    return all(ending(segment) is Ending.CLOSED for segment in (*stating, *silent))


def _created_since(stating: tuple[Database, ...], silent: tuple[Database, ...]) -> bool:
    """Return True if Streams created the silent segments after it had last opened the others.

    Streams opens every existing segment at a start (``AbstractSegments.openExisting``). The stating segments, which all
    state the same offset, were opened then and not flushed since, so they are as that start found them. The silent
    segments were opened once, later than the others, and never flushed. So they only got records above the offset,
    which the next start restores. If there is just one stating segment, it must also have been closed: after a kill it
    would state the same offset as itself too.
    """
    # RocksDB numbers write-ahead logs and SSTs with one counter, so their order needs no clock.
    reopened = not any(segment.flushed_since_opened for segment in stating)
    new = all(segment.opened_once and not any(segment.live.values()) for segment in silent)
    # A start that fails half-way opens only some segments again, and leaves the others as the kill before did. So the
    # times of the opening are compared: the mtimes of CURRENT, which RocksDB replaces at each open for writing. A copy
    # with cp -a keeps their order.
    later = min(segment.opened_ns for segment in silent) >= max(segment.opened_ns for segment in stating)
    at_rest = len(stating) > 1 or ending(stating[0]) is Ending.CLOSED
    return reopened and new and later and at_rest
