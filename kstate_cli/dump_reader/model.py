"""The content of a dump, as data. Everything can be pickled, because slices travel to Spark's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.topic_partition import TopicPartition

from .manifest import Manifest, ManifestFile, Reading
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
    """``topic`` and ``partition`` from the path, if the file has no such column."""
    own: int = 0
    """Rows of the topic-partition itself; equal to ``rows`` unless ``mixed``."""
    key_bytes: int = 0
    """Uncompressed bytes of the keys alone, as encoded, of all ``rows``."""

    @property
    def share(self) -> int:
        """Bytes of the rows of the topic-partition, if all rows have the same size."""
        if not self.mixed:
            return self.bytes
        return self.bytes * self.own // max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class ClockMark:
    """When a manifest was written, by three clocks; all in ms. See :mod:`kstate_cli.dump_writer.plan`."""

    boot: str
    boot_ms: int
    """:class:`kstate_cli.clock.BootTime`."""
    time_ms: int
    """The time of the dump, as all other times of the manifest."""
    wall_ms: int
    """The time of day of the host."""
    max_error_ms: int | None = None
    """Maximum error of that time; None if the kernel does not report it as synchronized."""
    scale: str = ""
    """Random, and the same in all manifests of a dump. Times of different scales cannot be compared."""


@dataclass(frozen=True, slots=True)
class Round:
    """The offsets of one reading: ``start`` to below ``end``. Times are ms since 1970."""

    start: int
    end: int
    continues_ms: int
    """When everything was read that the log had before ``start``: the reading needs the deletes since then. For the
    first reading, which continues nothing, the time when it began."""
    ended_ms: int
    """After its last record was read."""


@dataclass(frozen=True, slots=True)
class PartitionDump:
    """One partition of a topic: the places of its rows, and the broker's log as the manifest describes it."""

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
    """First offset of the broker's log when the dump was taken; None without a manifest."""
    log_end: int | None
    """End offset of the broker's log when the dump was taken; None without a manifest."""
    start: int | None = None
    """The first offset of the reading; None if unknown."""
    topic_id: str | None = None
    reading: Reading | None = None
    """When it was read, and from which log; None if unknown."""
    rounds: tuple[Round, ...] = ()
    """The readings of a dump that grows, by offset."""
    older_full: tuple[int, int] | None = None
    """If this full dump has no record: generation and rows of the newest full dump before it with records."""
    held_back: bool = False
    """Whether the log had further offsets, which an open transaction held back."""
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
    """A dump that was opened and is readable."""

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
    """``read_committed`` or ``read_uncommitted``; None if unknown."""
    has_headers: bool = False
    """Whether a file has a column ``headers``."""
    headerless: frozenset[str] = frozenset()
    """Topics with rows in a file without that column: headers of their records are unknown."""
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """The columns of each file, by its path. Empty for a dump that grows, whose files all have the same."""
    warnings: tuple[str, ...] = ()
    clock: ClockMark | None = None
    """The clock of its times; None for a dump that does not grow, whose times are those of its writer."""
    damaged: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose files are missing or damaged, each with what is wrong: a reader who needs one refuses.

    Empty unless ``read_dump`` was called for a part of the dump: otherwise it refuses the dump itself.
    """
    hidden: tuple[str, ...] = ()
    """Warnings about files that a complete dump may have. They may explain a refusal."""

    @property
    def manifest_files(self) -> tuple[ManifestFile, ...]:
        """The files that the manifest names; none without a manifest."""
        return () if self.manifest is None else self.manifest.files

    def headers_of(self, topic: str | None) -> bool:
        """Return whether every file with rows of the topic has their headers."""
        # A store must not mix rows with and without headers: one file without them decides for its topic.
        return self.has_headers and topic not in self.headerless
