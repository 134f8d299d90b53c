"""What the segments of one store state about its offset, and which of them should state one and do not.

Each segment is a RocksDB of its own, flushes on its own, and states the offset of its own last flush
(``AbstractSegments.commit``). After a kill one may state 199 while another, created earlier, was never flushed: it is
empty, states nothing, and its rows are only in the changelog below 199. So a silent segment makes the offset of the
whole store unknown, whatever it holds.
"""

from __future__ import annotations

from kstate_cli.formats.position import Position
from kstate_cli.offsets.last_run import Ending, ending
from kstate_cli.statedir.model import Database, Store


def stating_segments(store: Store) -> tuple[Database, ...]:
    """Return the segments that state an offset, -4 included."""
    if not store.segmented:
        return ()
    return tuple(database for database in store.databases if database.offsets is not None and database.offsets.offsets)


def silent_segments(store: Store) -> tuple[Database, ...]:
    """Return the segments that make the offset of a store unknown: others state one, and these do not.

    Two proofs make silence harmless, and both need one clean close that all stating segments are at: it closed the
    silent segments too, or Streams created them after it.
    """
    stating = stating_segments(store)
    silent = tuple(database for database in store.databases if not database.offsets or not database.offsets.offsets)
    if not stating or not silent:
        return ()
    # Different offsets prove a transactional run after the close: it leaves a status of 0 in place.
    at_a_close = all(ending(segment) is Ending.CLOSED for segment in stating) and not segments_disagree(store)
    if at_a_close and (_closed(silent) or _created_since(stating, silent)):
        return ()
    return silent


def segments_disagree(store: Store) -> bool:
    """Return True if segments state different offsets: each is that of the segment's own last flush."""
    stated = {frozenset(d.offsets.offsets.items()) for d in stating_segments(store) if d.offsets is not None}
    return len(stated) > 1


def common_position(store: Store) -> Position:
    """Return the Position that all segments of a store have reached: the lowest of each partition that all state.

    Streams merges their Positions by the highest, which is ahead of the rows if one segment is behind.
    """
    stated = [
        {} if segment.offsets is None or segment.offsets.position is None else segment.offsets.position.as_map()
        for segment in store.databases
    ]
    common: dict[str, dict[int, int]] = {}
    for topic, partitions in (stated[0] if stated else {}).items():
        for partition in partitions:
            reached = [position.get(topic, {}).get(partition) for position in stated]
            lowest = [offset for offset in reached if offset is not None]
            if len(lowest) == len(reached):
                common.setdefault(topic, {})[partition] = min(lowest)
    return Position.from_map(common)


def _closed(segments: tuple[Database, ...]) -> bool:
    return all(ending(segment) is Ending.CLOSED for segment in segments)


def _created_since(stating: tuple[Database, ...], silent: tuple[Database, ...]) -> bool:
    """Return True if the silent segments are younger than the opening that followed the clean close.

    The stating ones were opened after it and not flushed since. The silent ones were opened once and never flushed.
    Streams opens every existing segment at a start (``AbstractSegments.openExisting``), so it created these later, for
    records above the offset of the close.
    """
    reopened = not any(segment.flushed_since_opened for segment in stating)
    return reopened and all(segment.opened_once and not any(segment.live.values()) for segment in silent)
