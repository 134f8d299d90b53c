"""The offset from which a release continues each store, and whether Streams finds the next record in the log.

Up to 4.2 the offset is in the line of ``.checkpoint`` (``ProcessorStateManager.initializeStoreOffsets``). From 4.3 on
that line comes first, and overrides the column family of the newest segment. A migration uses the lowest offset of all
places. ``StoreChangelogReader`` then looks for the next offset in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from kstate_cli.check.codes.logs import AGE_UNKNOWN, LOG_MISSING, OLDER_THAN_TOMBSTONES, TOPIC_RECREATED
from kstate_cli.check.codes.offsets import SEGMENT_BEHIND
from kstate_cli.check.findings import Finding, Records
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import DeleteCoverage, Log, Where, delete_coverage
from kstate_cli.offsets.last_run import silent_by_key, stated_offset
from kstate_cli.offsets.resolve import give_lines
from kstate_cli.patch_releases import BACKWARD_PROBE, BOUNDED_RESTORE, NEWEST_SEGMENT
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.texts import moment, some, span_text

_NEAR = 10
"""The percentage of a log near its start in which an offset is worth a warning."""
_FAR_BEHIND: Final = 16_384
"""At least so far from the log end, a release may skip expired records (``PROBE_MIN_OFFSET_GAP`` of 4.2.2)."""


@dataclass(frozen=True, slots=True)
class Range:
    """The next offset of a store in its log."""

    key: TopicPartition
    following: int
    where: Where
    log: Log | None = None
    records: Records | None = None

    @property
    def outside(self) -> bool:
        """Return True if the broker has no such offset.

        Above the end of a dump that is not sure: the application may have run on since it was taken
        (docs/internals/changelogs.md#dump-or-store).
        """
        return self.where is Where.BELOW or (self.where is Where.ABOVE and self.log is not None and self.log.live)

    @property
    def text(self) -> str:
        """Return the text for a finding."""
        if self.log is None:
            return f"the next offset of {self.key} is {self.following}"
        return (
            f"the next offset of {self.key} is {self.following}, and the log ranges from {self.log.start} to "
            f"{self.log.end}"
        )


def locate(snapshot: Snapshot, key: TopicPartition, following: int) -> Range:
    """Return the place of the next offset in its log, and the number of records after it if it is inside of the log."""
    log = snapshot.log(key)
    if log is None or log.start is None or log.end is None:
        return Range(key, following, Where.UNKNOWN)
    where = log.where(following)
    if where is not Where.INSIDE:
        # From such an offset nothing is restored, so no records are counted.
        return Range(key, following, where, log)
    return Range(key, following, where, log, snapshot.records(key, following))


def whole(snapshot: Snapshot, key: TopicPartition | None, *, expires: bool = False) -> Records | None:
    """Return how many records are restored from the beginning of a log; None if the log is not known.

    ``expires``: it is the log of a window or session store. Some releases skip its expired records, so the number is an
    upper bound then (:data:`kstate_cli.patch_releases.BOUNDED_RESTORE`).
    """
    if key is None or (log := snapshot.log(key)) is None:
        return None
    records = snapshot.records(key, log.start or 0)
    if records is None or not records.count or not expires:
        return records
    # is_new returns None if only some patch releases skip expired records. Then the number may be too high too.
    if snapshot.request.release.is_new(BOUNDED_RESTORE) is False:
        return records
    return replace(records, exact=False)


def catching_up(snapshot: Snapshot, store: Store | None, range_: Range) -> Range:
    """Return the range of a store that continues from its offset.

    Its records are an upper bound if the release skips some.

    Some releases skip expired records if a window or session store is far behind
    (:data:`kstate_cli.patch_releases.BACKWARD_PROBE`).
    """
    log, records = range_.log, range_.records
    # Near the end of the log a release skips nothing, so the number is exact.
    if log is None or log.end is None or records is None or store is None or not _is_windowed(store):
        return range_
    if log.end - range_.following < _FAR_BEHIND or snapshot.request.release.is_new(BACKWARD_PROBE) is False:
        return range_
    return replace(range_, records=replace(records, exact=False))


def may_expire(snapshot: Snapshot, name: str, store: Store | None) -> bool:
    """Return True for a window or session store, and for one of which no task shows the kind.

    ``store``: None if its task lacks it. Then the same store of other tasks counts.
    """
    namesakes = (store for task in snapshot.app.tasks for store in task.stores if store.name == name)
    example = store or next(namesakes, None)
    return example is None or _is_windowed(example)


def _is_windowed(store: Store) -> bool:
    return store.segmented and not store.is_grace_buffer


def near_start(range_: Range) -> bool:
    """Return True if the log will soon lose the record that the store needs next, because its beginning is deleted."""
    log = range_.log
    if (
        range_.where is not Where.INSIDE
        or log is None
        or not log.start
        or log.end is None
        or range_.following >= log.end
    ):
        return False
    return (range_.following - log.start) * 100 <= (log.end - log.start) * _NEAR


def missing(snapshot: Snapshot, key: TopicPartition, task: Task, store: str) -> Finding:
    """Return the finding about a log that the broker does not have."""
    return snapshot.finding(
        LOG_MISSING, f"the store was restored from {key}, but the broker does not have this partition", task, store
    )


def recreated(snapshot: Snapshot, key: TopicPartition, task: Task, store: str) -> tuple[Finding, ...]:
    """Return a finding if a topic was deleted and created again, so that the offset of a store has no meaning in it.

    That is so if sources report several ids of the topic, or if a restoration by kstate has recorded another id.
    """
    ids = dict.fromkeys(snapshot.logs.ids.get(key, ()))
    age = snapshot.ages.get((task.name, store))
    mark = None
    if age is not None:
        mark = age.logs.get(key)
    if mark is not None and mark.topic_id is not None:
        # The id that a restoration by kstate has recorded. The offset of the store belongs to that topic.
        ids[mark.topic_id] = None
    # A source may not know an id: brokers before 2.8 have none (KIP-516).
    if len(ids) < 2:
        return ()
    return (
        snapshot.finding(TOPIC_RECREATED, f"the topic {key.topic} had different ids: {' and '.join(ids)}", task, store),
    )


def judge_age(snapshot: Snapshot, task: Task, store: Store, key: TopicPartition | None) -> Iterator[Finding]:
    """Yield a finding if a store continues from its offset although compaction may have removed deletes since then."""
    if key is None or (log := snapshot.log(key)) is None or not log.forgets or store.empty:
        return
    retention = log.retention_ms
    if snapshot.request.delete_retention is not None:
        # The user may know of an earlier, shorter setting, which no source shows.
        retention = int(snapshot.request.delete_retention.total_seconds() * 1000)
    as_of = snapshot.ages[task.name, store.name].as_of_ms
    deletes_heard = delete_coverage(as_of, snapshot.now_ms, retention)
    if deletes_heard is DeleteCoverage.UNKNOWN or as_of is None:
        yield snapshot.finding(AGE_UNKNOWN, "kstate does not know how old the store's data is", task, store.name)
    elif deletes_heard is DeleteCoverage.NO:
        text = (
            f"the store's data is from {moment(as_of)}, {span_text(snapshot.now_ms - as_of)} ago. Keys that have since "
            f"been deleted may remain in the store (delete.retention.ms is {span_text(retention)})"
        )
        yield snapshot.finding(OLDER_THAN_TOMBSTONES, text, task, store.name)


_LISTED_SEGMENTS: Final = 3


def rows_below(
    snapshot: Snapshot, task: Task, store: Store, key: TopicPartition, offsets: Mapping[TopicPartition, int]
) -> Finding | None:
    """Return the finding about segments that are behind the offset of the start; None if there are none.

    ``offsets`` has the offset of the last applied record for each changelog partition, as the start uses it
    (``AbstractSegments``).
    """
    behind = _behind(store, key, offsets[key])
    if not behind:
        return None
    spans = []
    for span, segment in zip(_spans(store, behind), behind, strict=True):
        offset = stated_offset(segment, key)
        spans.append(f"{span} (no offset)" if offset is None else f"{span} ({offset})")
    text = (
        f"Streams uses offset {offsets[key]} of {key}, but some segments are behind this offset: "
        f"{some(spans, _LISTED_SEGMENTS)}. Their rows up to offset {offsets[key]} are then silently missing"
    )
    return snapshot.finding(SEGMENT_BEHIND, text, task, store.name)


def _behind(store: Store, key: TopicPartition, start_offset: int) -> list[Database]:
    """Return the segments that lack rows up to the offset of the start, in the order of their own starts."""
    silent = silent_by_key(store).get(key, ())
    # Only segments can be at different offsets. Any other store is one database.
    if not store.segmented:
        return []
    offsets = [(segment, stated_offset(segment, key)) for segment in store.databases]
    lower = [segment for segment, offset in offsets if offset is not None and offset < start_offset]
    return sorted((*silent, *lower), key=lambda segment: segment.segment_start or 0)


def _spans(store: Store, segments: Sequence[Database]) -> list[str]:
    """Return the time range of the rows in each segment; its end is a guess from the distance between segments."""
    starts = sorted(database.segment_start or 0 for database in store.databases)
    interval = min((after - before for before, after in pairwise(starts)), default=0)
    spans = []
    for segment in segments:
        start = segment.segment_start or 0
        spans.append(f"{moment(start)} to {moment(start + interval)}" if interval else f"from {moment(start)} on")
    return spans


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """The offsets from which a start continues one store."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    dropped_unknown: bool = False
    """A line of ``.checkpoint`` has -4, which 4.3 drops."""
    line_without_home: bool = False
    """A line of ``.checkpoint`` has an offset, but the store has no segment that could keep it."""
    overridden: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Changelog partition -> the offset in the column family, and that in ``.checkpoint``, which overrides it."""


@dataclass(frozen=True, slots=True)
class TaskInitialOffsets:
    """The offsets from which a start continues the stores of a task."""

    stores: Mapping[str, InitialOffsets] = field(default_factory=dict)
    absent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Store name -> the lines of ``.checkpoint`` for a store without a directory in the task."""


def read_offsets(snapshot: Snapshot, task: Task) -> TaskInitialOffsets:
    """Return the offsets from which the release continues the stores of a task."""
    owners = give_lines(snapshot.app.app_id, task)
    if not snapshot.request.into_family:
        lines = {store.name: InitialOffsets(dict(owners.stores.get(store.name, {}))) for store in task.stores}
        return TaskInitialOffsets(lines, dict(owners.absent))
    oldest_first = snapshot.request.release.is_new(NEWEST_SEGMENT) is False
    stores = {}
    for store in task.stores:
        misplaced = snapshot.misplaced_segments(task, store)
        databases = [database for database in store.databases if database not in misplaced]
        if oldest_first:
            # Databases are in the order of their segments, and the last offset wins. 4.3.0 uses the oldest segment that
            # has one, later releases use the newest.
            databases.reverse()
        stores[store.name] = _from_family(store, databases, task, owners.stores.get(store.name, {}))
    return TaskInitialOffsets(stores, dict(owners.absent))


def _from_family(
    store: Store, databases: Sequence[Database], task: Task, lines: Mapping[TopicPartition, int]
) -> InitialOffsets:
    """Return the offsets that 4.3 and later use: those in the column family, overridden by ``.checkpoint``."""
    dropped = OFFSET_UNKNOWN in lines.values()
    valid = {key: offset for key, offset in lines.items() if offset != OFFSET_UNKNOWN}
    if store.is_grace_buffer:
        # A grace buffer (RocksDBTimeOrderedKeyValueBuffer) stores no offsets itself: LegacyCheckpointingStateStore does
        # so, in a file.
        own_file: Mapping[TopicPartition, int] = {}
        if store.store_file:
            own_file = store.store_file.entries
        return InitialOffsets({**own_file, **valid}, dropped)
    if store.segmented and not databases:
        return InitialOffsets({}, dropped, line_without_home=bool(valid))
    inside = _offsets_inside(databases, task.partition)
    # At a start, Streams moves the lines into the family and deletes the file. So the line wins, even if it is lower.
    overridden = {key: (inside[key], line) for key, line in valid.items() if inside.get(key, line) != line}
    return InitialOffsets({**inside, **valid}, dropped, overridden=overridden)


def _offsets_inside(databases: Sequence[Database], partition: int | None) -> dict[TopicPartition, int]:
    """Return the offsets that databases state; if two state one partition, the later database wins."""
    inside: dict[TopicPartition, int] = {}
    for database in databases:
        if database.offsets is not None:
            inside |= database.offsets.offsets
    # Streams uses only the partition of the task. A global store has all partitions of its topic.
    return {key: offset for key, offset in inside.items() if partition is None or key.partition == partition}
