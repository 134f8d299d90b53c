"""The logs that stores are built from, as a broker keeps them: appended to, compacted, cut, made anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from .content import Content, Partition, Store


@dataclass(frozen=True)
class Record:
    """One committed record; no value is a delete."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass
class Log:
    """One partition of one topic."""

    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0
    """The offset of the next record."""

    def append(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Returns the offset of the record."""
        self.records.append(Record(self.end, key, value, timestamp))
        self.end += 1
        return self.end - 1

    def compact(self) -> None:
        """What the cleaner leaves: the last record of each key; deletes stay until `forget`."""
        last = {record.key: record for record in self.records}
        self.records = [record for record in self.records if last[record.key] is record]

    def forget(self) -> None:
        """`delete.retention.ms` is over: deletes leave a compacted log."""
        self.compact()
        self.records = [record for record in self.records if record.value is not None]

    def latest(self) -> dict[bytes, Record]:
        """Key -> the last record, without what is deleted."""
        last = {record.key: record for record in self.records}
        return {key: entry for key, entry in last.items() if entry.value is not None}


def history(store: Store) -> dict[Partition, Log]:
    """A log that could have led to a store that Streams wrote: its rows, ending at its offset."""
    rows = [(key, value) for family in store.rows.values() for key, value in family.items()]
    logs: dict[Partition, Log] = {}
    for tp, offset in store.offsets.items():
        log = Log(end=offset + 1)
        for back, (key, value) in enumerate(reversed(rows)):
            log.records.insert(0, Record(offset - back, key, value[8:], int.from_bytes(value[:8], "big")))
        assert not log.records or log.records[0].offset >= 0, f"{tp}: more rows than offsets"
        logs[tp] = log
    return logs


def histories(content: Content) -> dict[Partition, Log]:
    """The logs of all task stores. A global table's rows do not say which partition they came from."""
    logs: dict[Partition, Log] = {}
    for (task, _), store in content.meaning.items():
        if task != "global":
            logs |= history(store)
    return logs
