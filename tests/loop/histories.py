"""The model of the logs: every record that the broker has acknowledged, whatever its cleaner has removed since.

Nothing here reads the broker or anything of kstate: offsets come from the delivery reports of the producers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Rows = dict[bytes, tuple[bytes, int]]
"""Key -> value, and timestamp in ms."""
Partition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Record:
    """One record of a log; ``value`` is None for a delete."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass
class History:
    """All records of one log, and those of a transaction that is open."""

    records: list[Record] = field(default_factory=list)
    pending: list[Record] = field(default_factory=list)

    def rows(self, end: int) -> Rows:
        """Return what the records below an offset amount to."""
        rows: Rows = {}
        for record in sorted(self.records, key=lambda record: record.offset):
            if record.offset >= end:
                break
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = (record.value, record.timestamp)
        return rows

    @property
    def stable(self) -> int:
        """Return the offset below which a reading that begins now has to have every record."""
        first = min((record.offset for record in self.pending), default=None)
        ends = [record.offset + 1 for record in self.records if first is None or record.offset < first]
        return max(ends, default=0)

    def decide(self, *, committed: bool) -> None:
        """End the open transaction."""
        if committed:
            self.records += self.pending
        self.pending = []

    def copy(self) -> History:
        """Return the same, which does not grow with this one."""
        return History(list(self.records), list(self.pending))


@dataclass
class Histories:
    """The logs that exist now, and those of topics that were deleted."""

    by_id: dict[tuple[str, int], History] = field(default_factory=dict)
    """Topic id and partition -> its log."""
    ids: dict[str, str] = field(default_factory=dict)
    """Topic -> the id that it has now."""

    def created(self, topic: str, topic_id: str, partitions: int) -> None:
        """Add a topic, or replace one that was deleted."""
        self.ids[topic] = topic_id
        for partition in range(partitions):
            self.by_id[topic_id, partition] = History()

    def of(self, partition: Partition) -> History:
        """Return the log that a partition has now."""
        topic, number = partition
        return self.by_id[self.ids[topic], number]

    def decide(self, *, committed: bool) -> None:
        """End the open transaction in all logs."""
        for history in self.by_id.values():
            history.decide(committed=committed)

    def copy(self) -> Histories:
        """Return what a copy of the broker's disk has."""
        return Histories({key: history.copy() for key, history in self.by_id.items()}, dict(self.ids))

    def copy_over(self, now: Histories) -> Histories:
        """Return what exists after a copy was put in the place of what exists now: newer topics no longer exist.

        Dumps that were read before keep the logs that they were read from.
        """
        copied = self.copy()
        return Histories(now.by_id | copied.by_id, copied.ids)
