"""What the segments of one store state about its offset, and which of them should state one and do not.

Each segment is a RocksDB of its own, flushes on its own, and states the offset of its own last flush
(``AbstractSegments.commit``). After a kill one may state 199 while another, created earlier, was never flushed: it is
empty, states nothing, and its rows are only in the changelog below 199. So a silent segment makes the offset of the
whole store unknown, whatever it holds.

A carrier segment of kstate always states an offset, so it is no exception. It is not found next to segments of a later
run either: Streams removes it as expired when it creates the first one (``getOrCreateSegmentIfLive``).
"""

from __future__ import annotations

from collections.abc import Mapping

from kstate_cli.formats.position import Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import Ending, ending
from kstate_cli.statedir.model import Database, Store


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
    records = [segment.offsets for segment in store.databases if segment.offsets is not None]
    keys = sorted({key for record in records for key in record.offsets})
    return {key: silent for key in keys if (silent := _silent(store, key))}


def _silent(store: Store, key: TopicPartition) -> tuple[Database, ...]:
    """Return the segments that state no offset of a changelog partition, unless their silence is harmless."""
    stating = tuple(segment for segment in store.databases if stated_offset(segment, key) is not None)
    without = tuple(segment for segment in store.databases if stated_offset(segment, key) is None)
    # Different offsets prove a kill after the last close: nothing makes silence harmless then.
    agree = len({stated_offset(segment, key) for segment in stating}) == 1
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
    for segment in store.databases:
        for key, offset in (segment.offsets.offsets if segment.offsets is not None else {}).items():
            offsets_by_key.setdefault(key, set()).add(offset)
    return any(len(offsets) > 1 for offsets in offsets_by_key.values())


def common_position(store: Store) -> Position:
    """Return the Position that all segments of a store have reached: the lowest of each partition that all state.

    Streams merges their Positions by the highest, which is ahead of the rows if one segment is behind.
    """
    positions = [
        {} if segment.offsets is None or segment.offsets.position is None else segment.offsets.position.as_map()
        for segment in store.databases
    ]
    common: dict[str, dict[int, int]] = {}
    for topic, partitions in (positions[0] if positions else {}).items():
        for partition in partitions:
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
    """Return what whoever reads a store should be told: rows may be missing, or its Position cannot be read.

    ``running``: each segment of a running application has the rows of its own last flush, which proves no loss.
    """
    remark = None if running else silent_remark(store)
    return store.remarks if remark is None else (*store.remarks, remark)


def silent_remark(store: Store) -> str | None:
    """Return what to tell of the silent segments of a store that no application uses now, None if there are none."""
    silent = all_silent(silent_by_key(store))
    if not silent:
        return None
    starts = ", ".join(str(segment.segment_start) for segment in silent)
    return (
        f"{store.path.parent.name}/{store.name}: segments without an offset ({starts}), while others have one: a kill "
        "came before their first flush, so they may lack rows"
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
    reopened = not any(segment.flushed_since_opened for segment in stating)
    new = all(segment.opened_once and not any(segment.live.values()) for segment in silent)
    # A start that failed half-way opens some of them again, and leaves the others as the kill before did.
    later = min(segment.opened_ns for segment in silent) >= max(segment.opened_ns for segment in stating)
    at_rest = len(stating) > 1 or ending(stating[0]) is Ending.CLOSED
    return reopened and new and later and at_rest
