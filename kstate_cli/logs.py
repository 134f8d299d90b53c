"""One changelog partition: its bounds, where an offset is in it, and whether compaction forgot deletes.

The bounds come from the manifest of a dump or from a broker. A tombstone lives ``delete.retention.ms`` after the
cleaner first reached it. Then nothing in the log shows that the row was deleted. A store is a copy of its log at some
time, so only a reading that ends soon enough after that time can continue it safely.
The rules: docs/internals/changelogs.md#forgotten-deletes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.manifest import Reading
from kstate_cli.dump_reader.model import PartitionDump, Round
from kstate_cli.formats.topic_partition import TopicPartition

RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``."""
_MOST_MARGIN_MS: Final = 3_600_000
_MARGIN: Final = 10
"""Clocks differ, and times are recorded a little before or after a reading: a tenth, and at most an hour."""


class DeleteCoverage(Enum):
    """Whether a reading has the tombstone of every delete since the time that it continues."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def delete_coverage(as_of_ms: int | None, ended_ms: int | None, retention_ms: int) -> DeleteCoverage:
    """Judge data of ``as_of_ms`` that is continued by a reading that ended at ``ended_ms`` (ms since 1970)."""
    if as_of_ms is None or ended_ms is None:
        return DeleteCoverage.UNKNOWN
    # A tombstone that was written right after as_of may be cleaned this long afterwards, and no earlier.
    if ended_ms - as_of_ms <= most_ms(retention_ms):
        return DeleteCoverage.YES
    return DeleteCoverage.NO


def most_ms(retention_ms: int) -> int:
    """Return how long after the time that it continues a reading may end, and still have every delete."""
    return retention_ms - _margin(retention_ms)


def set_back(as_of_ms: int, ended_ms: int, retention_ms: int) -> bool:
    """Return whether a clock was set back between two times by more than the margin: the duration is unknown then."""
    # A little backwards is normal between two hosts; more means that the difference proves nothing.
    return ended_ms < as_of_ms - _margin(retention_ms)


def _margin(retention_ms: int) -> int:
    # An hour suffices for clocks; without the cap a long retention would waste days of a dump's use.
    return min(retention_ms // _MARGIN, _MOST_MARGIN_MS)


class Where(Enum):
    """Where the next offset to read is in a log."""

    UNKNOWN = "unknown"
    INSIDE = "inside"
    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True, slots=True)
class Log:
    """One changelog partition as the dump and its manifest describe it; offsets are inclusive except ``end``."""

    key: TopicPartition
    start: int | None
    """Log start on the broker when the dump was taken; None if unknown."""
    end: int | None
    first: int | None
    """First and last record in the dump that may be read."""
    last: int | None
    until: int | None = None
    """Highest offset that may be read: a source topic is restored to the group's committed offset only."""
    live: bool = False
    """``start`` and ``end`` are those of the broker now, not those of the time of the dump."""
    begin: int | None = None
    """The first offset of the reading; None if unknown. Below it the log may have had more records."""
    reading: Reading | None = None
    """When the dump read it."""
    retention_ms: int = RETENTION_MS
    """``delete.retention.ms``."""
    forgets: bool = True
    """Whether its tombstones are compacted away, as ``cleanup.policy`` states; True if unknown."""
    rounds: tuple[Round, ...] = ()
    """The readings of a dump that grows."""
    unknown_before_ms: int | None = None
    """As :attr:`PartitionDump.unknown_before_ms`."""
    read_end: int | None = None
    """The offset below which the dump has every record that the log had; None if unknown."""
    held_back: bool = False
    """Whether the log had offsets from ``read_end`` on that the dump does not have."""

    def hides_deletes(self, following: int) -> bool:
        """Return whether deletes from ``following`` on may be forgotten, if the dump has no record from there on.

        The last offset of a log is never cleaned: if the dump has no record there, it is the marker of a transaction.
        """
        if self.read_end is None:
            return False
        if self.held_back:
            return following < self.read_end
        return following < self.read_end - 1

    def read_by(self, following: int) -> int | None:
        """Return when the reading ended that has the record at ``following``; None if unknown."""
        if self.rounds:
            return next(
                (reading.ended_ms for reading in self.rounds if following < reading.end), self.rounds[-1].ended_ms
            )
        if self.reading is None:
            return None
        return self.reading.ended_ms

    def late_round(self, following: int | None = None) -> Round | None:
        """Return the first reading that came too late to have every delete since the one before; None without one.

        ``following``: only readings after the one that has this offset.
        """
        # Readings before it are in the store already: what they missed, the store has missed as well.
        later = [reading for reading in self.rounds if following is None or reading.start > following]
        return next(
            (
                reading
                for reading in later
                if delete_coverage(reading.continues_ms, reading.ended_ms, self.retention_ms) is DeleteCoverage.NO
            ),
            None,
        )

    @property
    def covered_from(self) -> int | None:
        """The offset from which no record is missing; the first record of a compacted log may be far above it."""
        # Compaction removes the first records of a log, so only the reading itself knows where it began.
        if self.begin is None:
            return self.first
        return self.begin

    def where(self, following: int) -> Where:
        """Return where the next offset to read is: it is valid from the log start to the log end, both included.

        docs/internals/changelogs.md#log-ends

        A global store keeps ``following`` itself as its offset, the store of a task keeps one less.
        """
        if self.start is not None and following < self.start:
            return Where.BELOW
        if self.end is not None and following > self.end:
            return Where.ABOVE
        # One bound alone proves only that the offset is on its wrong side.
        if self.start is None or self.end is None:
            return Where.UNKNOWN
        return Where.INSIDE


def log_of(dump: PartitionDump, committed: int | None, facts: LogFacts | None = None) -> Log:
    """Return the log of a partition; ``committed`` (the next offset to read) limits a source topic.

    ``facts`` are those of the broker, and override the bounds of the manifest.
    """
    until = None
    if committed is not None:
        until = committed - 1
    # Records behind the committed offset were processed by no instance, so a table must not have them.
    first, last = _readable(dump, until)
    start, end = dump.log_start, dump.log_end
    # The broker knows the log of today: the manifest is as old as the dump.
    if facts is not None:
        start, end = facts.start, facts.end
    return Log(
        dump.key,
        start,
        end,
        first,
        last,
        until,
        facts is not None,
        dump.start,
        dump.reading,
        _least_retention(facts, dump.reading),
        _may_forget(facts, dump.reading),
        dump.rounds,
        dump.unknown_before_ms,
        _read_end(dump, until),
        dump.held_back or until is not None,
    )


def _readable(dump: PartitionDump, until: int | None) -> tuple[int | None, int | None]:
    """Return the first and last record of the dump up to ``until``; twice None if it has none."""
    if dump.first is None or dump.last is None or until is None:
        return dump.first, dump.last
    last = min(dump.last, until)
    if last < dump.first:
        return None, None
    return dump.first, last


def _least_retention(facts: LogFacts | None, reading: Reading | None) -> int:
    """Return the shorter ``delete.retention.ms`` of the broker and the manifest, in ms; Kafka's default if unknown."""
    retentions = [source.delete_retention_ms for source in (facts, reading) if source is not None]
    return min((retention for retention in retentions if retention is not None), default=RETENTION_MS)


def _may_forget(facts: LogFacts | None, reading: Reading | None) -> bool:
    """Return whether tombstones may be compacted away.

    A topic that is compacted now may not have been then, and the reverse: deletes may be forgotten in both cases.
    """
    policies = []
    if facts is not None and facts.policy is not None:
        policies.append(facts.policy)
    if reading is not None and reading.cleanup_policy is not None:
        policies.append(reading.cleanup_policy)
    # Unknown counts as compacted: a delete that is assumed to be forgotten costs a rebuild, the reverse
    # brings rows back.
    return not policies or any("compact" in policy for policy in policies)


def _read_end(dump: PartitionDump, until: int | None) -> int | None:
    end = dump.log_end
    if dump.rounds:
        end = dump.rounds[-1].end
    if end is None or until is None:
        return end
    return min(end, until + 1)
