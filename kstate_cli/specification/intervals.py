"""Segment intervals in milliseconds: the rules of Streams, and the interval that the rows of a store prove.

Every segment start is a multiple of the interval, so the interval divides them all. Every row of a segment is in
``[start, start + interval)``, so the interval exceeds the greatest distance of a row from the start of its segment. The
greatest common divisor of the starts always meets both conditions. It *is* the interval if no smaller divisor does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import VersionedKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import OFFSETS_CF, has_key, has_retention, store_kind
from kstate_cli.formats.versioned import SegmentValue
from kstate_cli.host import host_error
from kstate_cli.rocks.errors import RocksError, cannot_be_read
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.model import Database

MIN_INTERVAL_MS: Final = 60_000
"""Segments of window and session stores are never shorter."""
_HISTORIES: Final = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))
"""(history retention up to, parts, least interval) of versioned stores."""


def default_segment_interval(kind: str, retention_ms: int) -> int | None:
    """Return the segment interval that Streams chooses for a retention; None for a kind without segments.

    ``max(retention / 2, 60000)`` for windows, sessions and joins (``Stores.persistentWindowStore``,
    ``RocksDbSessionBytesStoreSupplier``); by a table for versioned stores
    (``RocksDbVersionedKeyValueBytesStoreSupplier``).
    """
    if not has_retention(kind):
        return None
    if not has_key(kind, KeySchema.VERSIONED):
        return max(retention_ms // 2, MIN_INTERVAL_MS)
    for longest, parts, least in _HISTORIES:
        if retention_ms <= longest:
            return max(retention_ms // parts, least)
    return max(retention_ms // 24, 300_000)


def histories_of(interval_ms: int) -> tuple[tuple[int, int], ...]:
    """Return the (least, greatest) history retentions whose versioned stores have this segment interval by default."""
    histories: list[tuple[int, int]] = []
    lower = 1
    for longest, parts, least in (*_HISTORIES, (None, 24, 300_000)):
        # Retentions for which retention // parts gives this interval. Below, the least interval serves all smaller ones
        # too.
        first = max(lower, interval_ms * parts)
        if interval_ms == least:
            first = lower
        last = interval_ms * parts + parts - 1
        if longest is not None:
            last, lower = min(last, longest), longest + 1
        if interval_ms >= least and first <= last:
            histories.append((first, last))
    return tuple(histories)


MAX_ROWS: Final = 500_000
"""At most so many rows of a store are read. Fewer rows leave more intervals possible, and never a wrong one."""
_MAX_FACTOR: Final = 1_000_000
_MOST_EXAMPLES: Final = 6


@dataclass(frozen=True, slots=True)
class Interval:
    """The segment intervals that a store may have."""

    divides: int = 0
    """The interval divides this number (0: any interval may)."""
    least: int = MIN_INTERVAL_MS
    greatest: int | None = None
    all_rows: bool = True
    """False if :data:`MAX_ROWS` ended the reading."""
    unread: str | None = None
    """The reason why further rows could not be read, a disk or rights; this proves nothing about the rows."""
    wrong: str | None = None
    """The reason why no interval fits."""

    def fits(self, interval: int) -> bool:
        """Return False if the rows or the names of the segments rule this interval out."""
        if self.wrong is not None:
            return False
        within = interval >= self.least and (self.greatest is None or interval <= self.greatest)
        return within and (self.divides == 0 or self.divides % interval == 0)

    @property
    def exact(self) -> int | None:
        """The interval if only one is possible, else None; :attr:`greatest` is set for versioned stores only."""
        if self.wrong is not None:
            return None
        if self.greatest is not None:
            if self.least != self.greatest:
                return None
            return self.least
        if self.divides == 0 or self.divides < self.least:
            return None
        # A smaller divisor that still exceeds the distances of all rows is possible too, so nothing is proved.
        if self.next_smaller() >= self.least:
            return None
        return self.divides

    @property
    def examples(self) -> tuple[int, ...]:
        """Possible intervals in whole minutes, the shortest first, for messages."""
        if self.divides == 0 or self.wrong is not None:
            return ()
        # Rounded up: a shorter interval is ruled out.
        first = -(-self.least // MIN_INTERVAL_MS)
        minutes = (m * MIN_INTERVAL_MS for m in range(first, first + _MAX_FACTOR // 10))
        return tuple(islice((m for m in minutes if m <= self.divides and self.divides % m == 0), _MOST_EXAMPLES))

    def next_smaller(self) -> int:
        """Return the greatest proper divisor of :attr:`divides`; a number above it if finding it would take long."""
        if self.divides == 1:
            return 0
        # Divided by its smallest factor, a number gives its greatest proper divisor. The loop takes a fraction of a
        # second.
        for factor in range(2, _MAX_FACTOR):
            if factor * factor > self.divides:
                return 1
            if self.divides % factor == 0:
                return self.divides // factor
        return self.divides // _MAX_FACTOR


def segment_interval(kind: str, databases: Sequence[Database], *, read: bool = True) -> Interval:
    """Return the interval of a segmented store; ``databases`` are its segments in all tasks.

    With ``read`` rows are read as long as they can still rule an interval out; otherwise only the rows sampled before
    count. Raises HostError.
    """
    all_starts = [database.segment_start for database in databases if database.segment_start is not None]
    # 0 is a multiple of every number and proves nothing about the divisor.
    starts = [start for start in all_starts if start > 0]
    if min(all_starts, default=0) < 0:
        return Interval(wrong="segments before 1970, where Kafka Streams rounds toward zero")
    divides = math.gcd(*starts)
    # Streams makes no shorter segments of windows and sessions, so it did not give the directories these names.
    if 0 < divides < MIN_INTERVAL_MS:
        return Interval(divides, wrong=f"segment starts whose only common divisor is {divides} ms")
    time_of = store_kind(kind).key.segment_time
    # The greatest distance of a row from the start of its segment. It is -1 while no row is read, and then rules out no
    # interval.
    farthest = -1
    try:
        for database in databases:
            keys = (key for rows in database.samples.values() for key, _ in rows)
            farthest = max(farthest, _farthest(database, keys, time_of))
        interval = _interval(divides, farthest)
        # With a single start many divisors remain whatever the rows show, so reading them all would not decide.
        if read and len(set(starts)) > 1 and interval.exact is None:
            return _read(divides, farthest, databases, time_of)
    except _OutsideError as error:
        return Interval(divides, wrong=str(error))
    except (MalformedBytesError, RocksError, OSError) as error:
        return _unread_interval(divides, farthest, error)
    return interval


def _unread_interval(divides: int, farthest: int, error: Exception) -> Interval:
    """Return the possible intervals after a failure to read rows. Raise HostError if this host lacks a resource."""
    if isinstance(error, OSError) and (shortage := host_error(error)) is not None:
        raise shortage from None
    if isinstance(error, (RocksError, OSError)) and cannot_be_read(error):
        # No row contradicts anything: as with the bound on rows, more intervals stay possible.
        return replace(_interval(divides, farthest, all_rows=False), unread=str(error))
    return Interval(divides, wrong=f"unreadable rows: {error}")


def _interval(divides: int, farthest: int, all_rows: bool = True) -> Interval:
    return Interval(divides, max(MIN_INTERVAL_MS, farthest + 1), all_rows=all_rows)


class _OutsideError(Exception):
    """A row outside of its segment."""


def _read(divides: int, farthest: int, databases: Sequence[Database], time_of: Callable[[bytes], int]) -> Interval:
    """Return the interval after reading the rows of all segments, until only one is left or after ``MAX_ROWS`` rows."""
    remaining = MAX_ROWS
    # From this distance on only one interval is left, and reading can stop.
    enough = Interval(divides).next_smaller()
    for database in databases:
        if database.empty:
            continue
        # Each shadow, the copy that is opened instead of the segment, is closed before the next: a store may have
        # hundreds.
        with Shadow(database.path) as shadow:
            for family in (name for name in shadow.column_families if name != OFFSETS_CF):
                for key, _ in shadow.rows(family):
                    # The limit holds for all segments together, so that a store with many of them takes no longer than
                    # one with few.
                    if remaining == 0:
                        return _interval(divides, farthest, all_rows=False)
                    remaining -= 1
                    farthest = max(farthest, _distance(database, key, time_of))
                    if farthest >= enough:
                        return _interval(divides, farthest)
    return _interval(divides, farthest)


def _farthest(database: Database, keys: Iterable[bytes], time_of: Callable[[bytes], int]) -> int:
    return max((_distance(database, key, time_of) for key in keys), default=-1)


def _distance(database: Database, key: bytes, time_of: Callable[[bytes], int]) -> int:
    distance = time_of(key) - (database.segment_start or 0)
    # A row before its segment proves another key layout or another store, so no interval may be
    # inferred.
    if distance < 0:
        raise _OutsideError(f"a row that is older than its segment {database.segment_start}")
    return distance


# --- versioned stores -------------------------------------------------------------------------------------------------


def versioned_interval(databases: Iterable[Database]) -> Interval:
    """Return the interval of a versioned store's logical segments, from the sampled rows.

    A row of segment ``s`` holds versions that end at times ``t`` with ``t // interval == s``
    (``RocksDBVersionedStore``), so that ``t / (s + 1) < interval <= t / s``: with today's times a single row leaves one
    number.
    """
    least, greatest = 1, None
    for database in databases:
        try:
            ends = [end for rows in database.samples.values() for row in rows for end in _ends(*row)]
        except MalformedBytesError as error:
            return Interval(wrong=f"unreadable rows: {error}")
        for segment, end in ends:
            least = max(least, end // (segment + 1) + 1)
            # Segment 0 gives no upper bound: its number is t // interval for every interval above t.
            if segment and (greatest is None or end // segment < greatest):
                greatest = end // segment
    wrong = None
    if greatest is not None and greatest < least:
        wrong = "versions that fit no common interval"
    return Interval(0, least, greatest, wrong=wrong)


def versioned_span(databases: Iterable[Database]) -> int:
    """Return the distance of the first and the last logical segment, in segments, by the sampled rows of one task."""
    try:
        rows = (row for database in databases for sample in database.samples.values() for row in sample)
        segments = [segment for row in rows for segment, _ in _ends(*row)]
    except MalformedBytesError:
        return 0
    return max(segments, default=0) - min(segments, default=0)


def _ends(key: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Yield (segment, end of validity in ms) for each version in a segment's row."""
    # The latest versions are in segment -1 and state no end, so they prove nothing about the interval.
    where = VersionedKey.from_bytes(key)
    if where.is_latest:
        return
    row = SegmentValue.from_bytes(value)
    yield where.segment, row.next_timestamp
    # From the newest to the oldest: each version ends where the next newer one begins.
    for version in row.versions[:-1]:
        yield where.segment, version.valid_from
