"""The rules for what may be captured while a process may be writing, or after it was killed: one function for each.

Each function takes facts that were read, and returns why a store may not be captured, or None. What no rule permits is
refused. The rules with their proofs are docs/internals/snapshots.md#what-may-be-captured.

The processing guarantee decides most. Kafka Streams does not write it to disk, so only the user can state it. Without
that statement the rules of exactly-once count: rows on disk may be of a transaction that is aborted later. No offset is
derived from rows, and no commit from a missing abort: a compacted log repeats values, an open transaction has no marker
yet, and the cleaner removes aborted records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.formats.binary import MAX_I64, MalformedBytesError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import Ending, all_silent, ending, lowest_position, silent_by_key, stated_offset
from kstate_cli.releases import is_shipped
from kstate_cli.snapshot.model import Generation, StoredDatabase, StoredStore
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.statedir.names import segment_folder, segment_start


@dataclass(frozen=True, slots=True)
class CutFacts:
    """The facts of one task, of one cut for each database."""

    task: Task
    filled: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    """Column families of data that have, or had, an SST since the database was opened."""
    at_least_once: bool = False
    """The user states that the application runs with at-least-once."""

    @property
    def proves_transactions(self) -> bool:
        """Return whether stores of the task are transactional (KIP-892): a database shows a commit without status.

        A release without such stores writes ``status`` 1 with the first flush after it has opened a database.
        """
        endings = {ending(database) for store in self.task.stores for database in store.databases}
        return Ending.COMMITTED in endings and Ending.OPEN not in endings


def why_not(facts: CutFacts, store: Store) -> str | None:
    """Return why a store may not be captured from a cut; None if a rule permits it."""
    for rule in RULES:
        reason = rule(facts, store)
        if reason is not None:
            return reason
    return None


# --- the rules --------------------------------------------------------------------------------------------------------


def has_its_database(_facts: CutFacts, store: Store) -> str | None:
    """A store of one database whose folder has none would open as an empty store that counts as complete."""
    if not store.segmented and len(store.databases) != 1:
        return "its folder contains no database"
    return None


def families_are_one_prefix(_facts: CutFacts, store: Store) -> str | None:
    """Rows and offset are in two column families: only ``atomic_flush`` makes both of one moment.

    The stored option counts, not the release: a RocksDBConfigSetter may set it. Up to 4.2 the offset is in
    ``.checkpoint``, and rows that are ahead of it are harmless, whatever each family has flushed.
    """
    for database in store.databases:
        if database.offsets is not None and not _flushes_all_families(database):
            return TWO_MOMENTS
    return None


TWO_MOMENTS: Final = "its OPTIONS file lacks atomic_flush=true, so its rows and offset may not match"


def _flushes_all_families(database: Database) -> bool:
    return database.options is not None and database.options.db.get("atomic_flush") == "true"


def closing_was_one_flush(database: Database) -> bool:
    """Return whether ``status`` closed proves that rows and offset of a database are of one moment.

    Streams writes the status before it closes RocksDB, which then flushes. Without ``atomic_flush`` a kill in between
    may leave the status and the offset, and not the rows. A database that kstate changed last, such as by ``migrate``,
    has the options of its old release, and kstate has compared the rows since.
    """
    if database.offsets is None or _flushes_all_families(database):
        return True
    return database.options is not None and not is_shipped(database.options.rocksdb_version)


def rows_in_one_family(facts: CutFacts, store: Store) -> str | None:
    """A lazy migration deletes a row in one column family, and puts it into another one: only closing completes both.

    A ``get`` migrates too, and leaves no record in the changelog: a row that a cut lacks would be lost. A family that a
    compaction has emptied meanwhile counts: the MANIFEST still shows that it had SSTs.
    """
    for database in store.databases:
        families = facts.filled.get(database.path, frozenset(database.data_families))
        if len(families) > 1:
            return (
                "Kafka Streams is still moving its rows between the column families "
                f"{', '.join(sorted(families))}. Stop the application first"
            )
    return None


def nothing_uncommitted(facts: CutFacts, store: Store) -> str | None:
    """Under exactly-once, rows may be of a transaction that is aborted later.

    From 4.3 on ``status`` shows it: the first flush after an open writes 1 with the rows, in one atomic flush. Without
    1 on disk nothing was flushed since the open, or the stores are transactional, and each batch was committed. Up to
    4.2 nothing on disk shows it.
    """
    if facts.at_least_once:
        return None
    for database in store.databases:
        end = ending(database)
        if end is None:
            return "under exactly-once, its files do not show whether its rows are committed (releases up to 4.2)"
        if end is Ending.OPEN:
            return "its status is open, so it may contain uncommitted rows under exactly-once"
        if not database.empty and database.offsets and OFFSET_UNKNOWN in database.offsets.offsets.values():
            # As for a closed directory: a run that was killed may have left the -4 of the start.
            return "it contains rows, but its offset is unknown (-4)"
        if end is Ending.SILENT and not (database.empty and facts.proves_transactions):
            return "one of its databases has neither an offset nor a status to show that it was closed"
    return None


def replay_gives_the_same(_facts: CutFacts, store: Store) -> str | None:
    """Rows may be ahead of the offset, and the log is replayed over them: for versioned stores the result may differ.

    ``RocksDBVersionedStore.put`` of an older version over newer ones is not the same as in order
    (:func:`kstate_cli.offsets.resolve.may_be_ahead`).
    """
    if not has_key(store.kind.name, KeySchema.VERSIONED):
        return None
    for database in store.databases:
        closed = ending(database) is Ending.CLOSED and not database.flushed_since_opened
        if not database.empty and not closed:
            return "its rows may be ahead of its offset, and replayed records would change a versioned store"
    return None


def offset_is_of_the_cut(facts: CutFacts, store: Store) -> str | None:
    """Up to 4.2 the offset is in ``.checkpoint``, from 4.3 on in the database: never in both.

    Both exist while a start of 4.3 takes the lines over, and after ``upgrade.from``.
    """
    if store.has_offsets_family:
        if facts.task.checkpoint is not None:
            return "it contains its offset, but its task also has a .checkpoint file with offsets"
        return None
    if facts.task.has_offsets_family and store.databases:
        return (
            "unlike its task's other stores, it does not contain its offset yet, so the application is still starting"
        )
    if facts.task.checkpoint is None or facts.task.checkpoint.content is None:
        return "its task does not have a readable .checkpoint file yet"
    return None


def global_rows_have_an_offset(facts: CutFacts, store: Store) -> str | None:
    """A global store never gets −4, which ends every start: without an offset nothing shows up to where its rows go."""
    if not facts.task.is_global:
        return None
    if all_silent(silent_by_key(store)):
        return "one of its segments has no offset"
    stated = any(database.offsets and database.offsets.offsets for database in store.databases)
    if store.has_offsets_family and not stated and not store.empty:
        return "it contains rows, but no offset"
    return None


RULES = (
    has_its_database,
    families_are_one_prefix,
    rows_in_one_family,
    nothing_uncommitted,
    replay_gives_the_same,
    offset_is_of_the_cut,
    global_rows_have_an_offset,
)


# --- the offset of a cut ----------------------------------------------------------------------------------------------


NO_BOUND: Final = (
    f"a segment was never flushed. Without {option.BOOTSTRAP_SERVER}, kstate does not know where its records begin"
)
NEVER_FLUSHED: Final = (
    f"none of its segments was ever flushed. Without {option.BOOTSTRAP_SERVER}, kstate does not know its offset"
)
NO_TIMES: Final = "a segment was never flushed, and the segment names do not show which records belong to it"
NOT_WRITTEN_YET: Final = "Kafka Streams has not written its offset to .checkpoint yet"
STATED_UNKNOWN: Final = "one of its databases records that its offset is unknown (-4)"


@dataclass(frozen=True, slots=True)
class UnflushedSegments:
    """Segments of a store that were never flushed: all of their records are missing."""

    spans: tuple[tuple[int, int], ...]
    """Times in ms, from the first up to below the second: no record of another time can be in these segments."""
    last: int
    """The lowest offset that the other segments allow: later records are read again anyway. Without any: the highest
    possible offset."""

    def may_have(self, key: bytes | None) -> bool:
        """Return whether a record of that key may be of one of the segments; True for a key that cannot be read.

        The key is read as one of a window and as one of a session: the files may not tell the two apart.
        """
        if key is None:
            return True
        times = []
        # A session has four bytes more behind its key than a window.
        for schema in (KeySchema.WINDOW, KeySchema.SESSION):
            try:
                times.append(schema.segment_time(key))
            except MalformedBytesError:
                continue
        return not times or any(first <= time < end for first, end in self.spans for time in times)

    def offset_before(self, records: Iterable[tuple[int, bytes | None]], start: int) -> int:
        """Return the offset behind which every record of the segments is; -4 if that is the beginning of the log.

        ``records``: offset and key of every record of the log from its ``start`` to ``last`` at least, in order.
        Compaction may have removed some: a later record of the same key is in the log then, or the row was deleted.
        """
        for offset, key in records:
            if offset > self.last:
                break
            if self.may_have(key):
                # The first record of the log: earlier ones of the segment may have been deleted with their file.
                return offset - 1 if offset > start else OFFSET_UNKNOWN
        return self.last


@dataclass(frozen=True, slots=True)
class CutOffset:
    """The offset of a store in a cut."""

    offsets: Mapping[TopicPartition, int]
    """Of each changelog partition; -4 if a segment has no offset, and nothing bounds it."""
    bounded_by: frozenset[str] = frozenset()
    """The generations whose offsets bound segments that state none."""
    unflushed: Mapping[TopicPartition, UnflushedSegments] = field(default_factory=dict)
    """The segments that nothing bounds: the log shows where they begin."""
    why_unknown: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Why an offset is -4."""

    @property
    def is_usable(self) -> bool:
        """Return whether a restoration can continue at the offset."""
        return OFFSET_UNKNOWN not in self.offsets.values()


def offset_of(store: Store, partition: int | None, earlier: Sequence[tuple[str, StoredStore]]) -> CutOffset:
    """Return the offset up to which every record is in the databases of a store that keeps its offsets itself.

    That is the lowest that any database states: each segment has its own prefix of the writes. A segment that states
    none was never flushed, and every record of it is missing. An earlier generation, in which that segment did not
    exist yet, bounds it: all of its records came after each offset that a database of that generation states. Such an
    offset was committed once every record up to it was in its segment. ``earlier``: name and content of the same store
    in earlier generations.
    """
    lowest: dict[TopicPartition, int] = {}
    for record in _records(store):
        for key, offset in record.offsets.items():
            if partition is None or key.partition == partition:
                lowest[key] = min(offset, lowest.get(key, offset))
    bounded_by = set()
    unflushed = {}
    # Every other unknown offset is one that a database states.
    unbounded_because = {key: STATED_UNKNOWN for key, offset in lowest.items() if offset == OFFSET_UNKNOWN}
    for key, silent in silent_by_key(store).items():
        if key not in lowest:
            continue
        unbounded = []
        for segment in silent:
            name, bound = _bound(store, segment, key, earlier)
            if name is None:
                unbounded.append(segment)
                continue
            lowest[key] = min(lowest[key], bound)
            bounded_by.add(name)
        if not unbounded:
            continue
        spans = _spans(store, unbounded)
        unbounded_because[key] = NO_TIMES
        if lowest[key] < 0:
            unbounded_because[key] = STATED_UNKNOWN
        elif spans:
            unbounded_because[key] = NO_BOUND
            unflushed[key] = UnflushedSegments(spans, lowest[key])
        lowest[key] = OFFSET_UNKNOWN
    return CutOffset(lowest, frozenset(bounded_by), unflushed, unbounded_because)


def never_flushed(store: Store) -> UnflushedSegments | None:
    """Return the segments of a store of which none was ever flushed; None for any other store.

    Nothing in such a store shows its changelog, or that it has one. It has no row, so only records behind its first one
    are needed.
    """
    if not store.segmented or not store.has_offsets_family or not store.empty:
        return None
    if any(record.offsets or record.status is not None for record in _records(store)):
        return None
    spans = _spans(store, store.databases)
    if not spans:
        return None
    return UnflushedSegments(spans, MAX_I64)


def with_later_segments(store: Store, segments: UnflushedSegments, folders: Iterable[str]) -> UnflushedSegments | None:
    """Return the segments of a store that was never flushed, with those that Streams created since the cut.

    ``folders``: the names in the folder of the store, read after the end of the log. A record up to that end may be of
    a segment that is newer than the cut. None if a name does not show the times of its segment.
    """
    starts = {database.path.name: database.segment_start for database in store.databases}
    # A segment that was dropped since the cut stays: it can only lower the bound.
    starts |= {name: start for name in folders if (start := segment_start(store.name, name)) is not None}
    spans = _spans_of(store.name, starts, starts)
    if not spans:
        return None
    return replace(segments, spans=spans)


def _spans(store: Store, segments: Sequence[Database]) -> tuple[tuple[int, int], ...]:
    """Return the times that the rows of segments may have, in ms; nothing if the names do not show them."""
    starts = {database.path.name: database.segment_start for database in store.databases}
    return _spans_of(store.name, starts, [segment.path.name for segment in segments])


def _spans_of(store: str, segments: Mapping[str, int | None], folders: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Return the times of the segments in ``folders``. ``segments``: folder -> start in ms, of all of them.

    The interval of the segments is not stored. Each segment begins at a multiple of it
    (``AbstractSegments.segmentId``), so it divides the greatest common divisor of all starts. A span of that length may
    be too long, and never too short.
    """
    starts = {name: start for name, start in segments.items() if start is not None}
    # Before 2.1 Streams rounded the time in the name: its multiples are not those of the interval.
    if len(starts) < len(segments) or any(name != segment_folder(store, start) for name, start in starts.items()):
        return ()
    longest = math.gcd(*starts.values())
    # Only the segment of time 0 exists: it may be of any length.
    return tuple((starts[name], starts[name] + longest if longest else MAX_I64) for name in folders)


def _records(store: Store) -> Iterator[OffsetsRecord]:
    for database in store.databases:
        if database.offsets is not None:
            yield database.offsets


def _bound(
    store: Store, segment: Database, key: TopicPartition, earlier: Iterable[tuple[str, StoredStore]]
) -> tuple[str | None, int]:
    """Return the generation and the offset before the first record of a segment; -4 if no generation shows one."""
    best: tuple[str | None, int] = None, OFFSET_UNKNOWN
    for name, stored in earlier:
        offset = _offset_before(segment, stored, key)
        # Any generation of the same log will do; the highest offset leaves the shortest tail.
        if offset > best[1] and _same_directory(store, stored, key):
            best = name, offset
    return best


def _offset_before(segment: Database, stored: StoredStore, key: TopicPartition) -> int:
    """Return an offset of an earlier generation that is before the first record of a segment; -4 if it shows none."""
    before = next((database for database in stored.databases if database.folder == segment.path.name), None)
    if before is None:
        # The highest of all databases, whatever the offset of the store: it may have had another segment without one.
        offsets = [
            database.offsets.offsets.get(key, OFFSET_UNKNOWN) for database in stored.databases if database.offsets
        ]
        return max(offsets, default=OFFSET_UNKNOWN)
    is_unflushed = before.offsets is None or key not in before.offsets.offsets
    # The same database, which was never flushed then either: what bounded it still does.
    if stored.is_cut and is_unflushed and _identity(before) == (segment.path / "IDENTITY").read_bytes():
        return stored.offsets.get(key, OFFSET_UNKNOWN)
    return OFFSET_UNKNOWN


def _same_directory(store: Store, stored: StoredStore, key: TopicPartition) -> bool:
    """Return whether an earlier generation is of the same databases, and so of the same log.

    RocksDB gives each database an identity when it is created. A topic that was created again begins at offset 0, and
    Streams wipes the stores that are ahead of it.
    """
    identities = {database.folder: _identity(database) for database in stored.databases}
    offsets = {database.folder: database.offsets for database in stored.databases}
    for database in store.databases:
        name = database.path.name
        before = offsets.get(name)
        now = stated_offset(database, key)
        if before is None or now is None or identities[name] != (database.path / "IDENTITY").read_bytes():
            continue
        if now >= before.offsets.get(key, OFFSET_UNKNOWN):
            return True
    return False


def _identity(database: StoredDatabase) -> bytes | None:
    return next((file.data for file in database.files if file.name == "IDENTITY"), None)


def earlier_stores(
    generations: Iterable[tuple[str, Generation]], task: str, store: Store
) -> Iterator[tuple[str, StoredStore]]:
    """Yield name and content of the same store in generations."""
    for name, generation in generations:
        for stored_task in generation.tasks:
            if stored_task.name != task:
                continue
            for stored in stored_task.stores:
                if stored.name == store.name and stored.segmented == store.segmented:
                    yield name, stored


# --- what a restoration writes ----------------------------------------------------------------------------------------


def closed_record(store: StoredStore, database: StoredDatabase) -> OffsetsRecord | None:
    """Return the content of ``offsets`` that a restoration gives a database of a cut.

    None for a store of a release that has no such column family.

    The store was not closed, but its rows and its offset are as those of a closed one: the lowest offset in every
    segment, and ``status`` closed. Transactional stores have no status, and get none.
    """
    records = [other.offsets for other in store.databases if other.offsets is not None]
    if not records:
        return None
    # A segment that Streams was creating may lack the family. Without an offset in it, the store would have none.
    own = database.offsets or OffsetsRecord(records[0].offsets)
    status = None
    if any(record.status is not None for record in records):
        status = STATUS_CLOSED
    position = own.position
    if any(record.position != position for record in records):
        # Streams takes the highest of all segments, which is ahead of the rows of the others.
        position = lowest_position([record.position for record in records])
    return OffsetsRecord(store.offsets or own.offsets, position, status)
