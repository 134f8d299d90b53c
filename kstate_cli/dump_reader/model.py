"""What a dump holds, as data. Everything can be pickled: slices travel to Spark's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.topic_partition import TopicPartition

from .manifest import Manifest, Reading
from .schema import Columns


@dataclass(frozen=True, slots=True)
class Piece:
    """Some row groups of one file that hold rows of one topic-partition."""

    path: str
    """Path within the file system (``pyarrow.fs``)."""
    row_groups: tuple[int, ...]
    """Indexes of the row groups, ascending."""
    rows: int
    """Rows in these row groups, of all topic-partitions."""
    bytes: int
    """Uncompressed bytes of the needed columns of these row groups, as encoded: dictionary-encoded values are larger
    once they are read."""
    first: int
    """Lowest offset of the topic-partition's rows."""
    last: int
    """Highest offset of the topic-partition's rows."""
    mixed: bool
    """Rows of other topic-partitions are in there: the reader must filter."""
    hive: tuple[tuple[str, str], ...] = ()
    """``topic`` and ``partition`` where they are taken from the path because the file has no such column."""
    own: int = 0
    """Rows of the topic-partition itself; equal to ``rows`` unless ``mixed``."""
    key_bytes: int = 0
    """Uncompressed bytes of the keys alone, as encoded, of all ``rows``."""

    @property
    def share(self) -> int:
        """Bytes that are left of :attr:`bytes` after the filter, assuming rows of equal size."""
        return self.bytes if not self.mixed else self.bytes * self.own // max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class ClockMark:
    """When a manifest was written, by three clocks; all in ms. See :mod:`kstate_cli.dump_writer.plan`."""

    boot: str
    boot_ms: int
    """:class:`kstate_cli.clock.BootTime`."""
    time_ms: int
    """The time of the dump, which all other times of the manifest are of."""
    wall_ms: int
    """The time of day of the host."""
    max_error_ms: int | None = None
    """How far that may be wrong; None if the kernel does not call it synchronized."""
    scale: str = ""
    """Random, and the same in all manifests of a dump: the times of two scales cannot be compared."""


@dataclass(frozen=True, slots=True)
class Round:
    """Offsets that one reading has covered: ``start`` to below ``end``. Times are ms since 1970."""

    start: int
    end: int
    continues_ms: int
    """When everything was read that the log had before ``start``: deletes from then on had to be heard. Of the first
    reading, which continues nothing: when it began."""
    ended_ms: int
    """After its last record was read."""


@dataclass(frozen=True, slots=True)
class PartitionDump:
    """One partition of a topic: where its rows are, and what the manifest says of the broker's log."""

    topic: str
    partition: int
    pieces: tuple[Piece, ...]
    """One per row group, sorted by first offset."""
    first: int | None
    """Lowest offset; None without rows."""
    last: int | None
    """Highest offset; None without rows."""
    rows: int
    """Rows, duplicates of a retried writer included."""
    log_start: int | None
    """First offset of the broker's log when the dump was taken; None where no manifest says so."""
    log_end: int | None
    """End offset of the broker's log when the dump was taken; None where no manifest says so."""
    start: int | None = None
    """Where reading began; None where no manifest says so."""
    topic_id: str | None = None
    reading: Reading | None = None
    """When it was read, and from what; None where no manifest says so."""
    rounds: tuple[Round, ...] = ()
    """Of a dump that grows: the readings that it consists of, by their offsets."""
    older_full: tuple[int, int] | None = None
    """If this full dump has no record: generation and rows of the newest one before it that has any."""
    held_back: bool = False
    """The log went on behind what was read: a transaction was open there."""
    unknown_before_ms: int | None = None
    """Deletes between any time before this one (ms since 1970) and the dump may be forgotten, however little passed."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Slice:
    """A contiguous, bounded part of a partition: what one task reads."""

    topic: str
    partition: int
    index: int
    """Position among the slices of the partition: a slice with a higher index has higher offsets only."""
    pieces: tuple[Piece, ...]
    """Sorted by first offset. A piece may reach beyond the slice: the reader filters by ``first`` and ``last``."""
    first: int
    """Lowest offset that belongs to the slice."""
    last: int
    """Highest offset that belongs to the slice (inclusive)."""
    rows: int
    """Rows of the topic-partition in the pieces: at least as many as the slice has."""
    bytes: int
    """Uncompressed bytes, as :attr:`Piece.bytes`, of those rows."""
    ordered: bool
    """False where offsets of the pieces overlap or repeat: rows must be sorted, equal offsets taken once."""


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was found to be readable."""

    uri: str
    """What :func:`kstate_cli.dump_reader.location.open_location` takes.

    Local paths are absolute. May hold credentials.
    """
    partitions: Mapping[TopicPartition, PartitionDump]
    """Every topic-partition with rows, and those without rows that the manifest names."""
    manifest: Manifest | None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of source topics (the next offset to read), from the manifest."""
    isolation: str | None = None
    """``read_committed`` or ``read_uncommitted``; None where nobody said it."""
    has_headers: bool = False
    """Whether a file has a column ``headers``."""
    headerless: frozenset[str] = frozenset()
    """Topics with rows in a file without that column: headers of their records are unknown."""
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """The columns of each file, by its path. Empty for a dump that grows, whose files all have the same."""
    warnings: tuple[str, ...] = ()
    clock: ClockMark | None = None
    """The clock of its times; None for a dump that does not grow: the time of day of its writer."""
    damaged: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose files are missing or damaged, each with what is wrong: a reader who needs one refuses.

    Empty unless ``read_dump`` was called for a part of the dump: otherwise it refuses the dump itself.
    """
    hidden: tuple[str, ...] = ()
    """Warnings about files that are usually beside a whole dump, for a refusal that they may explain."""

    def headers_of(self, topic: str | None) -> bool:
        """Return whether every file with rows of the topic has their headers."""
        return self.has_headers and topic not in self.headerless
