"""The content of a dump, and the manifest of a dump that grows, as data.

Everything can be pickled, because slices travel to Spark's workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.topic_partition import TopicPartition

from .manifest import Manifest, ManifestFile, Reading
from .schema import Columns


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file that have rows of one topic-partition."""

    path: str
    """Path within the file system (``pyarrow.fs``)."""
    row_groups: tuple[int, ...]
    """Indexes of the row groups, ascending."""
    rows: int
    """Rows in these row groups, of all topic-partitions."""
    bytes: int
    """Uncompressed bytes of the needed columns of these row groups in their encoding.

    Dictionary-encoded values are larger in memory.
    """
    first: int
    """Lowest offset of the topic-partition's rows."""
    last: int
    """Highest offset of the topic-partition's rows."""
    mixed: bool
    """True if these row groups have rows of other topic-partitions too, so that the reader must filter."""
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
    """The time at which a manifest was written, by three clocks, in ms. See :mod:`kstate_cli.dump_writer.plan`."""

    boot: str
    boot_ms: int
    """:class:`kstate_cli.clock.BootTime`."""
    time_ms: int
    """The time of the dump, which is also the clock of all other times in the manifest."""
    wall_ms: int
    """The time of day of the host."""
    max_error_ms: int | None = None
    """Maximum error of that time; None if the kernel does not report it as synchronized."""
    scale: str = ""
    """A random text, the same in all manifests of a dump. Times with different scales cannot be compared."""


@dataclass(frozen=True, slots=True)
class Round:
    """The offsets of one reading (an increment of a growing dump): from ``start`` to below ``end``.

    Times: ms since 1970.
    """

    start: int
    end: int
    continues_ms: int
    """The time at which the log was read up to ``start``: this reading must have seen all deletes since then.

    For the first reading, which continues none, the time at which it began.
    """
    ended_ms: int
    """The time after its last record was read."""


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
    """The number of rows, with duplicates of a writer that repeated a task."""
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
    """True if the log had further offsets, which could not be read because of an open transaction."""
    unknown_before_ms: int | None = None
    """Before this time (ms since 1970) the log may have lost deletes, even if little time has passed."""

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
    """Sorted by first offset.

    A piece may have rows outside of the slice: the reader filters by ``first`` and ``last``.
    """
    first: int
    """Lowest offset that belongs to the slice."""
    last: int
    """Highest offset that belongs to the slice (inclusive)."""
    rows: int
    """Rows of the topic-partition in the pieces: at least as many as the slice has."""
    bytes: int
    """Uncompressed bytes, as :attr:`Piece.bytes`, of those rows."""
    ordered: bool
    """False if offsets of the pieces overlap or repeat: rows must be sorted, and equal offsets taken only once."""


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was opened and is readable."""

    uri: str
    """The argument of :func:`kstate_cli.dump_reader.location.open_location`.

    Local paths are absolute. It may contain credentials.
    """
    partitions: Mapping[TopicPartition, PartitionDump]
    """Every topic-partition with rows, and those without rows that the manifest names."""
    manifest: Manifest | None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of source topics (the next offset to read), from the manifest."""
    isolation: str | None = None
    """``read_committed`` or ``read_uncommitted``; None if unknown."""
    has_headers: bool = False
    """True if a file has a column ``headers``."""
    headerless: frozenset[str] = frozenset()
    """Topics with rows in a file without that column: headers of their records are unknown."""
    columns: Mapping[str, Columns] = field(default_factory=dict)
    """The columns of each file, by its path. Empty for a growing dump, because all its files have the same columns."""
    warnings: tuple[str, ...] = ()
    clock: ClockMark | None = None
    """The clock of its times; None for a dump that does not grow, because its writer used another clock."""
    damaged: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose files are missing or damaged -> the defect. A reader that needs one of them refuses.

    Empty unless ``read_dump`` was called with ``in_part``: otherwise it refuses the dump itself.
    """
    hidden: tuple[str, ...] = ()
    """Warnings about hidden files, which a complete dump may have too. They may explain a later refusal."""

    @property
    def manifest_files(self) -> tuple[ManifestFile, ...]:
        """The files that the manifest names; none without a manifest."""
        return () if self.manifest is None else self.manifest.files

    def headers_of(self, topic: str | None) -> bool:
        """Return whether every file with rows of the topic has their headers."""
        # A store must not mix rows with and without headers. So one file without headers decides for its topic.
        return self.has_headers and topic not in self.headerless


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: its offsets, its rows, and the uncompressed bytes of all columns read, and of the keys alone."""

    first: int
    last: int
    rows: int
    bytes: int
    key_bytes: int


@dataclass(frozen=True, slots=True)
class GrownFile:
    """A Parquet file of one partition; ``path`` is relative to the dump, with ``/``. ``size`` is in bytes."""

    path: str
    size: int
    sha256: str
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """Rows of all its groups."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that was read, as :func:`kstate_cli.dump_reader.reader.record_digest` has it."""

    offset: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One of the last records of a full, by which the log is recognized: ``[offset, sha256, key, epoch, tombstone]``.

    Digests are the first 16 hex digits of SHA-256: of the record
    (:func:`kstate_cli.dump_reader.reader.record_digest`), and of the key
    (:func:`kstate_cli.dump_reader.reader.key_digest`).
    ``epoch`` is the leader epoch of the record's batch, -1 in JSON where
    the broker does not report one; ``tombstone`` is 1 for a record without a value, else 0.
    """

    offset: int
    sha256: str
    key: str
    epoch: int | None = None
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Full:
    """A full dump of a partition: a reading from its log start, with the increments after it."""

    key: TopicPartition
    began: int
    """The generation of the manifest in which it began."""
    log_start: int
    log_end: int
    """The bounds of the log at the last request to the broker. The end is the last stable offset."""
    as_of_ms: int
    """The time before that request."""
    ranges: tuple[Round, ...]
    files: tuple[GrownFile, ...]
    topic_id: str | None = None
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None
    leader_epoch: int | None = None
    last: LastRecord | None = None
    retention_ms: int | None = None
    """``retention.ms`` and ``min.compaction.lag.ms`` of the topic itself at the last request."""
    min_compaction_lag_ms: int | None = None
    tail: tuple[TailRecord, ...] = ()
    """The last records of its files, in order. Empty in manifests of versions that did not write it."""
    unknown_before_ms: int | None = None
    """Before this time (ms since 1970) the log may have lost deletes, even if little time has passed."""
    held_back: int = 0
    """The number of offsets at the end of its log that could not be read because of an open transaction."""

    @property
    def start(self) -> int:
        """The first offset of its reading."""
        return self.ranges[0].start

    @property
    def end(self) -> int:
        """The offset at which the next reading continues."""
        return self.ranges[-1].end

    @property
    def latest_ms(self) -> int:
        """The latest time in it."""
        # All ranges are compared: if the clock was set back, an earlier range may have a later time.
        return max(self.as_of_ms, *(max(reading.continues_ms, reading.ended_ms) for reading in self.ranges))

    @property
    def rows(self) -> int:
        """The number of records in its files."""
        return sum(file.rows for file in self.files)

    @property
    def compacted(self) -> bool:
        """True if its log may have lost deletes; also if its policy is unknown."""
        # A topic with the policy "compact,delete" is compacted too.
        return self.cleanup_policy is None or "compact" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A file that the manifest no longer names; ``path`` as :attr:`GrownFile.path`."""

    path: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Grown:
    """The content of a manifest."""

    generation: int
    isolation: str
    fulls: tuple[Full, ...]
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    forgotten: tuple[Forgotten, ...] = ()
    clock: ClockMark | None = None

    def last_with_rows(self, key: TopicPartition) -> Full | None:
        """Return the full of a partition that began last of those that have a record; None if none has."""
        return max(
            (full for full in self.fulls if full.key == key and full.rows), key=lambda full: full.began, default=None
        )

    def newest(self) -> dict[TopicPartition, Full]:
        """Return the newest full dump of each partition, without partitions that a recreated topic no longer has."""
        newest: dict[TopicPartition, Full] = {}
        for full in sorted(self.fulls, key=lambda full: full.began):
            newest[full.key] = full
        # A recreated topic may have fewer partitions. Full dumps of the others are of the old topic.
        latest: dict[str, Full] = {}
        for full in newest.values():
            before = latest.get(full.key.topic)
            if before is None or (before.began, before.as_of_ms) < (full.began, full.as_of_ms):
                latest[full.key.topic] = full
        return {
            key: full
            for key, full in newest.items()
            # If an id is unknown, nothing proves that the topic is another one (brokers before 2.8 have no ids,
            # KIP-516).
            if None in (full.topic_id, latest[key.topic].topic_id) or full.topic_id == latest[key.topic].topic_id
        }
