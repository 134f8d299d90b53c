"""One changelog partition: its bounds, where an offset is in it, and whether compaction forgot deletes.

The bounds come from the manifest of a dump or from a broker. A tombstone lives ``delete.retention.ms`` after the
cleaner first reached it. Then nothing in the log shows that the row was deleted. A store is a copy of its log at some
time, so only a reading that ends soon enough after that time can continue it safely.
The rules: docs/internals/changelogs.md#forgotten-deletes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
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
"""Clocks differ, and reading is noted a little before or after it is done: a tenth, and at most an hour."""
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


class Heard(Enum):
    """Whether every delete was heard of."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def heard(as_of_ms: int | None, ended_ms: int | None, retention_ms: int) -> Heard:
    """Of data as of one time, continued by a reading that ended at another (ms since 1970)."""
    if as_of_ms is None or ended_ms is None:
        return Heard.UNKNOWN
    return Heard.YES if ended_ms - as_of_ms <= most_ms(retention_ms) else Heard.NO


def most_ms(retention_ms: int) -> int:
    """How long after what it continues a reading may end, and still hear of every delete."""
    return retention_ms - _margin(retention_ms)


def set_back(as_of_ms: int, ended_ms: int, retention_ms: int) -> bool:
    """Whether a clock was set back between two times, by more than clocks differ: how much passed is not known then."""
    return ended_ms < as_of_ms - _margin(retention_ms)


def _margin(retention_ms: int) -> int:
    return min(retention_ms // _MARGIN, _MOST_MARGIN_MS)


def shown(duration_ms: int) -> str:
    """A duration for people, in the largest unit of which there are at least two."""
    for size, name in _UNITS:
        if duration_ms >= 2 * size:
            return f"{duration_ms // size} {name}"
    return f"{duration_ms} ms"


def moment(at_ms: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(" ", "seconds").removesuffix("+00:00") + " UTC"


class Where(Enum):
    """Where the next offset to read lies in a log."""

    UNKNOWN = "unknown"
    INSIDE = "inside"
    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True, slots=True)
class Log:
    """One changelog partition as the dump and its manifest know it; offsets inclusive but ``end``."""

    key: TopicPartition
    start: int | None
    """Log start on the broker when the dump was taken; None where nobody says."""
    end: int | None
    first: int | None
    """First and last record in the dump, as far as it may be read."""
    last: int | None
    until: int | None = None
    """Highest offset that may be read: a source topic is restored to the group's committed offset only."""
    live: bool = False
    """``start`` and ``end`` are those of now, not those of the time of the dump."""
    begin: int | None = None
    """Where reading began, None where nobody says: below it the log may have had more records."""
    reading: Reading | None = None
    """When the dump of it was read."""
    retention_ms: int = RETENTION_MS
    """``delete.retention.ms``."""
    forgets: bool = True
    """Its tombstones are compacted away; False where ``cleanup.policy`` says otherwise."""
    rounds: tuple[Round, ...] = ()
    """The readings that the dump of it consists of, where it grows."""
    unknown_before_ms: int | None = None
    """As :attr:`PartitionDump.unknown_before_ms`."""
    read_end: int | None = None
    """The offset below which the dump has every record that the log had; None where nobody says."""
    held_back: bool = False
    """The log went on behind that offset."""

    def hides_deletes(self, following: int) -> bool:
        """Return whether deletes from ``following`` on may be gone, of which the dump has no record from there on.

        The last offset of a log is never cleaned: if the dump has no record there, it is the marker of a transaction.
        """
        if self.read_end is None:
            return False
        return following < (self.read_end if self.held_back else self.read_end - 1)

    def read_by(self, following: int) -> int | None:
        """When the records from ``following`` on were read that the dump has of one reading; None where nobody says."""
        if self.rounds:
            return next((one.ended_ms for one in self.rounds if following < one.end), self.rounds[-1].ended_ms)
        return None if self.reading is None else self.reading.ended_ms

    def deaf_round(self, following: int | None = None) -> Round | None:
        """The first reading that came too late to hear of every delete since the one before; None where none did.

        ``following``: only of those after the one that has this offset.
        """
        later = [one for one in self.rounds if following is None or one.start > following]
        return next(
            (one for one in later if heard(one.continues_ms, one.ended_ms, self.retention_ms) is Heard.NO), None
        )

    @property
    def covered_from(self) -> int | None:
        """The offset from which on nothing is missing; of a compacted log the first record may lie far above it."""
        return self.first if self.begin is None else self.begin

    def where(self, following: int) -> Where:
        """Where the next offset to read lies: valid from the log start to the log end, both included.

        docs/internals/changelogs.md#log-ends

        ``following`` is what a global store keeps, and one more than what a task's store keeps.
        """
        if self.start is not None and following < self.start:
            return Where.BELOW
        if self.end is not None and following > self.end:
            return Where.ABOVE
        return Where.UNKNOWN if self.start is None or self.end is None else Where.INSIDE


def log_of(dump: PartitionDump, committed: int | None, facts: LogFacts | None = None) -> Log:
    """The log of a partition; ``committed`` (the next offset to read) limits a source topic.

    ``facts`` are what the broker says of it, over the manifest's.
    """
    last = dump.last
    if committed is not None and last is not None and last >= committed:
        last = committed - 1
    first = dump.first
    if first is not None and last is not None and last < first:
        first = last = None
    until = None if committed is None else committed - 1
    start, end = (dump.log_start, dump.log_end) if facts is None else (facts.start, facts.end)
    reading = dump.reading
    retentions = [facts.delete_retention_ms if facts else None, reading.delete_retention_ms if reading else None]
    # What is compacted today may not have been then, and the other way: both would have forgotten.
    policies = [facts.policy if facts else None, reading.cleanup_policy if reading else None]
    told = [one for one in policies if one is not None]
    return Log(
        dump.key,
        start,
        end,
        first,
        last,
        until,
        facts is not None,
        dump.start,
        reading,
        min((one for one in retentions if one is not None), default=RETENTION_MS),
        not told or any("compact" in one for one in told),
        dump.rounds,
        dump.unknown_before_ms,
        _read_end(dump, until),
        dump.held_back or until is not None,
    )


def _read_end(dump: PartitionDump, until: int | None) -> int | None:
    end = dump.rounds[-1].end if dump.rounds else dump.log_end
    return end if end is None or until is None else min(end, until + 1)
