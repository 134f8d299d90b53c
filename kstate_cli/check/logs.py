"""The logs of changelogs as a check sees them, from the manifest of a dump, a broker, or a file.

:class:`kstate_cli.logs.Log` is one log: its start and end, and how far a source topic may be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from kstate_cli.broker.facts import Facts
from kstate_cli.broker.tails import Tail
from kstate_cli.check.findings import Records
from kstate_cli.dump_reader.model import Dump, PartitionDump, Piece, Slice
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog
from kstate_cli.logs import Log, log_of


class LogSource(Protocol):
    """A source of log ranges."""

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition; None if the source does not know it."""

    def topic_id(self, key: TopicPartition) -> str | None:
        """Return the id of the topic (KIP-516), if it is known."""

    def lacks(self, key: TopicPartition) -> bool:
        """Return True if there is no such topic, or no such partition of it: not merely unknown here."""

    def partitions(self) -> Iterable[TopicPartition]:
        """Return every partition that the source knows."""

    def records(self, key: TopicPartition, first: int, *, transactional: bool) -> Records | None:
        """Return how many records a consumer gets from offset ``first`` to the end; None if that is unknown."""

    def prepare(self, first_offsets: Mapping[TopicPartition, set[int]], *, transactional: bool) -> None:
        """Read everything at once that later calls for these offsets need."""

    def time_of(self, key: TopicPartition, first: int) -> int | None:
        """Return the time of the first record from offset ``first`` on, in ms since 1970; None if it is unknown."""


def at_most(log: Log, first: int, *, marker: bool) -> Records | None:
    """Return the number of records between ``first`` and the end of a log as an upper bound, from its bounds alone.

    ``marker``: transactions write to the log. None if the end is unknown.
    """
    if log.end is None:
        return None
    end = _end_of(log, log.end)
    span = max(0, end - max(first, log.start or 0))
    if marker:
        # The last entry is a marker then, because only transactions that have ended are read.
        span = max(0, span - 1)
    # The bounds do not show the holes in between. So the number is exact only if it is 0.
    return Records(span, exact=span == 0)


def _end_of(log: Log, end: int) -> int:
    """Return the end of the restoration: a source topic is restored up to the committed offset of the group only."""
    if log.until is None:
        return end
    return min(end, log.until + 1)


class ReadTails(Protocol):
    """Reads the ends of logs. Logs that cannot be read, or whose end is too long, are skipped."""

    def __call__(
        self, first_offsets: Mapping[TopicPartition, tuple[set[int], int]], /, *, committed: bool
    ) -> Mapping[TopicPartition, Tail]:
        """Read the ends of logs; ``first_offsets`` are, for each log, the offsets that later calls need and its end."""


@dataclass(frozen=True, slots=True)
class FactLogs:
    """Log starts and ends as a broker has, or had, them: from the broker, or from a file."""

    facts: Facts
    requested_topics: frozenset[str] = frozenset()
    """Topics for which a broker was asked. If it has returned nothing about one of them, it does not have the topic."""
    read: ReadTails | None = None
    """Reads the ends of logs from the broker; None without a broker."""
    tails: dict[TopicPartition, Tail] = field(default_factory=dict, compare=False)
    """The ends that were read so far."""

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition; None if the facts do not contain it."""
        facts = self.facts.get(key)
        if facts is None:
            return None
        # log_of combines a dump with facts of a broker. Here the dump is empty, so the facts alone decide.
        nothing = PartitionDump(key.topic, key.partition, (), None, None, 0, None, None)
        return log_of(nothing, facts.committed, facts)

    def topic_id(self, key: TopicPartition) -> str | None:
        """Return the id of the topic; None if the facts do not contain it."""
        facts = self.facts.get(key)
        if facts is None:
            return None
        return facts.topic_id

    def lacks(self, key: TopicPartition) -> bool:
        """Return True if the broker was asked and lacks the partition. A file may omit partitions for any reason."""
        return key.topic in self.requested_topics and key not in self.facts

    def partitions(self) -> Iterable[TopicPartition]:
        """Return every partition of the facts."""
        return self.facts.keys()

    def records(self, key: TopicPartition, first: int, *, transactional: bool) -> Records | None:
        """Return the number of records that were counted; an upper bound where the end of the log was not read."""
        log = self.log(key)
        tail = self.tails.get(key)
        if log is not None and log.end is not None and tail is not None:
            count = tail.records(first, _end_of(log, log.end))
            if count is not None:
                return Records(count, exact=True)
        if log is None:
            return None
        return at_most(log, first, marker=transactional and is_changelog(key.topic))

    def prepare(self, first_offsets: Mapping[TopicPartition, set[int]], *, transactional: bool) -> None:
        """Read the ends of the logs, unless they are too long. The offsets are those at which reading may start."""
        if self.read is None:
            return
        ends = {key: _end_of(log, log.end) for key in first_offsets if (log := self.log(key)) is not None and log.end}
        # Ends that an earlier call has read are not read again: the lag and the check need the same ones.
        request = {
            key: (first_offsets[key], end) for key, end in ends.items() if not self._has(key, first_offsets[key], end)
        }
        if request:
            self.tails.update(self.read(request, committed=transactional))

    def _has(self, key: TopicPartition, firsts: set[int], end: int) -> bool:
        tail = self.tails.get(key)
        return tail is not None and min((offset for offset in firsts if offset < end), default=end) >= tail.began

    def time_of(self, key: TopicPartition, first: int) -> int | None:
        """Return the time of the first record from ``first`` on; None where the end of the log was not read."""
        tail = self.tails.get(key)
        if tail is None:
            return None
        return tail.time_of_first(first)


class DumpLogs:
    """The logs of the broker as the manifest of a dump records them. Records can be counted.

    ``times``: the time of a record is read from the files of the dump if it is requested.
    """

    def __init__(self, dump: Dump, *, times: bool = False) -> None:
        self._dump = dump
        self._ids: dict[TopicPartition, str] = {}
        if dump.manifest is not None:
            parts = dump.manifest.partitions
            self._ids = {TopicPartition(p.topic, p.partition): p.topic_id for p in parts if p.topic_id is not None}
        self._times = times

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition; None if the manifest does not state its start and end."""
        partition = self._dump.partitions.get(key)
        if partition is None or partition.log_start is None or partition.log_end is None:
            return None
        return log_of(partition, self._dump.committed.get(key))

    def topic_id(self, key: TopicPartition) -> str | None:
        """Return the id of the topic; None if the manifest does not state it."""
        return self._ids.get(key)

    def lacks(self, key: TopicPartition) -> bool:
        """Return False: a dump has only the partitions that its writer selected."""
        return False

    def partitions(self) -> Iterable[TopicPartition]:
        """Return every partition of the dump."""
        return self._dump.partitions.keys()

    def records(self, key: TopicPartition, first: int, *, transactional: bool) -> Records | None:
        """Return the number of records from ``first`` to the end of the log.

        It is exact if the dump has all of these records as Streams would read them. Otherwise it is an upper bound.
        """
        partition, log = self._dump.partitions.get(key), self.log(key)
        if partition is None or log is None:
            return None
        # The dump may begin after the offset and after the log start. Then it has only a part of the records.
        complete = partition.start is not None and log.start is not None and partition.start <= max(first, log.start)
        if complete and (not transactional or self._dump.isolation == "read_committed"):
            count = _count(self._dump.uri, partition, first, log.until)
            if count is not None:
                return Records(count, exact=True)
        return at_most(log, first, marker=transactional and is_changelog(key.topic))

    def prepare(self, first_offsets: Mapping[TopicPartition, set[int]], *, transactional: bool) -> None:
        """Do nothing: records are counted on demand."""

    def time_of(self, key: TopicPartition, first: int) -> int | None:
        """Return the time of the first record in the dump from offset ``first`` on; None if the dump may lack it."""
        partition, log = self._dump.partitions.get(key), self.log(key)
        if not self._times or partition is None or log is None or partition.start is None:
            return None
        if log.start is None or partition.start > max(first, log.start):
            return None
        return _time_of_first(self._dump.uri, partition, first)


def _count(uri: str, partition: PartitionDump, first: int, until: int | None) -> int | None:
    """Return the number of rows with offsets from ``first`` to ``until``; None if rows may be in the dump twice."""
    # If Spark repeats a failed task, two files may have the same rows. Then files overlap, and offsets would count
    # twice.
    if any(piece.last >= other.first for piece, other in pairwise(partition.pieces)):
        return None
    last = _last_offset(partition, until)
    if last is None or last < first:
        return 0
    inside = [piece for piece in partition.pieces if piece.last >= first and piece.first <= last]
    # Only the files (pieces) at both ends of the range are read, at most two. The manifest has the number of rows of
    # the others.
    cut = [piece for piece in inside if piece.first < first or piece.last > last]
    rows = sum(piece.own or piece.rows for piece in inside if piece not in cut)
    return rows + sum(_rows_of(uri, partition, piece, max(first, piece.first), min(last, piece.last)) for piece in cut)


def _last_offset(partition: PartitionDump, until: int | None) -> int | None:
    """Return the last offset to count: that of the dump, or ``until`` if the dump goes further."""
    if partition.last is None or until is None:
        return partition.last
    return min(until, partition.last)


def _time_of_first(uri: str, partition: PartitionDump, first: int) -> int | None:
    """Return the time, in ms since 1970, of the first record from offset ``first`` on.

    None if there is no such record, or if it has no time.
    """
    from kstate_cli.dump_reader.location import open_location
    from kstate_cli.dump_reader.reader import read_slice

    later = [piece for piece in partition.pieces if piece.last >= first]
    if not later:
        return None
    # Files (pieces) are sorted by their first offset and may overlap. Each that begins before the end of the first one
    # may have the record.
    last = later[0].last
    pieces = tuple(piece for piece in later if piece.first <= last)
    rows, size = sum(piece.rows for piece in pieces), sum(piece.bytes for piece in pieces)
    part = Slice(partition.topic, partition.partition, 0, pieces, first, last, rows, size, ordered=False)
    times = read_slice(part, ["timestamp"], open_location(uri)[0])
    if not times.num_rows:
        return None
    time = int(times.column("timestamp")[0].as_py())
    # Records of message format 0 have the time -1, which would be an age of more than 50 years.
    return None if time < 0 else time


def _rows_of(uri: str, partition: PartitionDump, piece: Piece, first: int, last: int) -> int:
    from kstate_cli.dump_reader.location import open_location
    from kstate_cli.dump_reader.reader import read_slice

    part = Slice(partition.topic, partition.partition, 0, (piece,), first, last, piece.rows, piece.bytes, ordered=False)
    return int(read_slice(part, ["offset"], open_location(uri)[0]).num_rows)
