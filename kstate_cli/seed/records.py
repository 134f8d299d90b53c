"""Read the records of a changelog partition that the new changelog gets, in the order of their offsets.

A compacted changelog may have many records of one key. Kafka Streams restores the newest one only, so only that is
written, unless the store keeps the history of its keys: a versioned store skips a record that is older than its
history, so every record and their order count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import PartitionDump
from kstate_cli.dump_reader.reader import iter_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kstate_cli.dump_reader.model import Dump
    from kstate_cli.formats.topic_partition import TopicPartition

_SLICE_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 16_384
_BATCH_BYTES: Final = 16 << 20
_GROUP_ROWS: Final = 1 << 20
"""Rows that are collected before older records of the same keys are dropped: at least this many, and at least as many
as there are keys so far, so that each row is grouped a bounded number of times."""


class Record(NamedTuple):
    """A record as the producer takes it."""

    key: bytes
    value: bytes | None
    timestamp: int
    """In ms since 1970; -1 without one."""
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in their order, a sequence for each member: an object for each record would cost more than sending it."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[list[tuple[str, bytes | None]]]

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordBatch:
        """Return a batch of these records."""
        # Without a record, zip has no columns.
        keys, values, timestamps, headers = tuple(zip(*records, strict=True)) or ((), (), (), ())
        return cls(keys, values, timestamps, headers)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.keys)

    def __iter__(self) -> Iterator[Record]:
        """Return the records one by one."""
        return map(Record, self.keys, self.values, self.timestamps, self.headers)

    def part(self, first: int, end: int) -> RecordBatch:
        """Return the records from one place up to another, which may be behind the last record."""
        place = slice(first, end)
        return RecordBatch(self.keys[place], self.values[place], self.timestamps[place], self.headers[place])


class TargetRecords(Protocol):
    """The records that a partition of a new changelog gets. They are read several times, and are the same each time."""

    @property
    def partition(self) -> int:
        """Number of the partition of the new changelog."""

    @property
    def records(self) -> int:
        """Records to write, at most."""

    @property
    def without_timestamp(self) -> int:
        """Records with timestamp 0, which librdkafka would replace by the current time."""

    @property
    def without_key(self) -> int:
        """Records without a key, which Kafka Streams skips when it restores: they are not written."""

    @property
    def identity(self) -> list[object]:
        """What decides which records these are, for JSON: a run continues only if it is the same."""

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records in their order. Raises DumpError if a file cannot be read."""


class SourceRecords(TargetRecords, Protocol):
    """The records of one partition of a changelog of the source, as tables too: to give them other partitions."""

    @property
    def newest(self) -> npt.NDArray[np.int64] | None:
        """Offsets of the records to write, ascending; None: all."""

    def tables(self, batch_bytes: int) -> Iterator[pa.Table]:
        """Yield key, value, timestamp and perhaps headers of the records to write, in their order."""

    def key_tables(self) -> Iterator[pa.Table]:
        """Yield key and timestamp of all records, and offsets if ``newest`` has some. Raises DumpError."""


@dataclass(frozen=True, slots=True)
class DumpedRecords:
    """The records of one partition of a dump, which the same partition of the new changelog gets."""

    dump: Dump
    source: PartitionDump
    newest: npt.NDArray[np.int64] | None
    """Offsets of the newest record of each key, ascending; None: all records are written."""
    records: int
    """Records to write: an upper bound if ``newest`` is given, since the newest record of a deleted key is skipped."""
    without_timestamp: int
    without_key: int

    @property
    def partition(self) -> int:
        """The number of the partition in the dump."""
        return self.source.partition

    @property
    def identity(self) -> list[object]:
        """Topic id and range of offsets: a dump that was extended has other records."""
        return [self.source.topic_id, self.source.first, self.source.last, self.records]

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records in batches, by offset. Raises DumpError if a file cannot be read."""
        return map(batch_of, self.tables())

    def tables(self, batch_bytes: int = _BATCH_BYTES) -> Iterator[pa.Table]:
        """Yield the rows of the records, by offset, without empty tables. Raises DumpError."""
        columns = ["key", "value", "timestamp", "offset"]
        if self.dump.headers_of(self.source.topic):
            columns.append("headers")
        for table in _tables(self.dump, self.source, columns, batch_bytes):
            rows = _selected(table, self.newest)
            if rows.num_rows:
                yield rows

    def key_tables(self) -> Iterator[pa.Table]:
        """Yield key, offset and timestamp of every row of the partition, those that are not written too.

        Raises DumpError.
        """
        yield from _tables(self.dump, self.source, ["key", "offset", "timestamp"])


def partition_in(dump: Dump, key: TopicPartition) -> PartitionDump:
    """Return a partition of a dump; one without records if the dump does not have it."""
    return dump.partitions.get(key) or PartitionDump(key.topic, key.partition, (), None, None, 0, None, None)


def batch_of(rows: pa.Table) -> RecordBatch:
    """Return the rows of :meth:`DumpedRecords.tables` as records."""
    headers: Sequence[list[tuple[str, bytes | None]]] = [[]] * rows.num_rows
    if "headers" in rows.column_names:
        headers = _headers(rows.column("headers"))
    keys, values, timestamps = (_objects(rows.column(name)) for name in ("key", "value", "timestamp"))
    return RecordBatch(keys, values, timestamps, headers)


def _objects(column: pa.ChunkedArray) -> list[Any]:
    """Return bytes, texts or numbers of a column, None for null."""
    # Through NumPy, since older releases of Arrow make a scalar of its own for each value of ``to_pylist``.
    objects: list[Any] = column.to_numpy().tolist()
    return objects


def _headers(column: pa.ChunkedArray) -> list[list[tuple[str, bytes | None]]]:
    """Return the headers of each row. A dictionary for each header, as ``to_pylist`` makes it, would take most time."""
    import numpy as np
    import pyarrow.compute as pc

    flat = pc.list_flatten(column)
    names, values = (_objects(pc.struct_field(flat, name)) for name in ("key", "value"))
    pairs = list(zip(names, values, strict=True))
    # Rows without headers, which most are, share a list that no reader changes.
    headers: list[list[tuple[str, bytes | None]]] = [[]] * len(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = np.cumsum(lengths)
    (rows,) = np.nonzero(lengths)
    for row, first, end in zip(rows.tolist(), (ends - lengths)[rows].tolist(), ends[rows].tolist(), strict=True):
        headers[row] = pairs[first:end]
    return headers


def select_records(dump: Dump, partition: PartitionDump, *, newest_only: bool) -> DumpedRecords:
    """Read keys, offsets and timestamps of a partition, and return which records are written.

    Raises Refused if only Spark could sort the rows of the partition, DumpError if a file cannot be read.
    """
    import pyarrow.compute as pc

    newest = _NewestOffsets()
    records = zero = keyless = 0
    for table in _tables(dump, partition, ["key", "offset", "timestamp"]):
        keyless += table.column("key").null_count
        zero += int(pc.sum(pc.equal(table.column("timestamp"), 0)).as_py() or 0)
        records += table.num_rows
        if newest_only:
            newest.add(table)
    if not newest_only:
        return DumpedRecords(dump, partition, None, records - keyless, zero, keyless)
    offsets = newest.offsets()
    return DumpedRecords(dump, partition, offsets, len(offsets), zero, keyless)


def _selected(table: pa.Table, newest: npt.NDArray[np.int64] | None) -> pa.Table:
    """Return the rows to write: with a key, and of the newest records those with a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = pc.is_valid(table.column("key"))
    if newest is not None:
        # The new topic is empty: a delete of a key that it never had would change nothing.
        mask = pc.and_(pc.and_(mask, pa.array(is_newest(table, newest))), pc.is_valid(table.column("value")))
    return table.filter(mask)


def is_newest(table: pa.Table, newest: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each row whether its offset is one of ``newest``, which ascend."""
    import numpy as np

    offsets = table.column("offset").to_numpy()
    places = np.searchsorted(newest, offsets)
    if not len(newest):
        return np.zeros(len(offsets), dtype=bool)
    places[places == len(newest)] = 0
    return np.asarray(newest[places] == offsets)


def _tables(
    dump: Dump, partition: PartitionDump, columns: list[str], batch_bytes: int = _BATCH_BYTES
) -> Iterator[pa.Table]:
    parts, unordered = slices(partition, after=None, until=None, max_bytes=_SLICE_BYTES)
    if unordered:
        raise Refused(
            f"kstate cannot read the rows of {partition.key} in offset order, because the dump's files are not "
            "sufficiently sorted by offset",
            hint="write a new dump whose files are in offset order",
        )
    filesystem, _ = open_location(dump.uri)
    for part in parts:
        # A slice that kstate dump wrote is in order. Another one is read in sorted windows.
        passage = Passage(ordered=part.ordered)
        yield from iter_slice(part, columns, filesystem, _BATCH_ROWS, batch_bytes, passage)


class _NewestOffsets:
    """The highest offset of each key, of rows that come in batches."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._grouped: pa.Table | None = None

    def add(self, table: pa.Table) -> None:
        """Add rows with the columns ``key`` and ``offset``. Rows without a key do not count."""
        import pyarrow.compute as pc

        self._waiting.append(table.select(["key", "offset"]).filter(pc.is_valid(table.column("key"))))
        self._rows += table.num_rows
        grouped = 0
        if self._grouped is not None:
            grouped = self._grouped.num_rows
        if self._rows > max(_GROUP_ROWS, grouped):
            self._group()

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the highest offset of each key, ascending."""
        import numpy as np

        self._group()
        if self._grouped is None:
            return np.empty(0, np.int64)
        return np.sort(self._grouped.column("offset").to_numpy())

    def _group(self) -> None:
        import pyarrow as pa

        tables = self._waiting
        if self._grouped is not None:
            tables = [self._grouped, *tables]
        if not tables:
            return
        grouped = pa.concat_tables(tables).group_by("key").aggregate([("offset", "max")])
        self._grouped = grouped.rename_columns(
            ["offset" if name == "offset_max" else name for name in grouped.column_names]
        ).select(["key", "offset"])
        self._waiting, self._rows = [], 0
