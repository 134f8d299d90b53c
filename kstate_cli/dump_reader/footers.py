"""Open Parquet files, and read their footers: the topic-partitions and offsets of each row group.

The footers must agree with the manifest. The statistics of a row group usually prove topic, partition and offsets. If
they do not, these three columns are read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.topic_partition import TopicPartition, legal_topic

from .errors import NEW_DUMP, Damage, DumpError, printable
from .location import ListedFile, is_here
from .manifest import Manifest, ManifestFile
from .model import Piece, Slice
from .pages import Expansion
from .parquet_file import open_parquet, opened_parquet
from .schema import Columns, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem


# A restoration reads only these columns, so the size of a slice is computed from them.
_READ_COLUMNS: Final = ("key", "value", "timestamp", "headers", "offset")
# int64 and timestamps have eight bytes in memory, even if the file encodes them in fewer.
_FIXED: Final = 8
# Only three small columns are read at once, so a row group of any size needs bounded memory.
_ROWS_AT_ONCE: Final = 1 << 20
_PLACE: Final[Mapping[str, type]] = {"topic": str, "partition": int, "offset": int}
"""The columns that place a record, with the type of their values in Python."""
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder name that Spark and Hive write for null."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts in the footer of one file."""

    file: ListedFile
    columns: Columns
    rows: int
    pieces: tuple[tuple[TopicPartition, Piece], ...]
    null_timestamps: int = 0
    """The number of records without a timestamp, as far as statistics count them."""


@dataclass(frozen=True, slots=True)
class _OffsetRange:
    topic: Any
    partition: Any
    first: Any
    last: Any
    rows: int


def row_batches(
    parquet: pq.ParquetFile, path: str, most_rows: int, row_groups: Iterable[int], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield all rows of some row groups, in tables of at most ``most_rows`` rows.

    Raise DumpError if a row group has another number of rows than the footer records, before rows of the next one are
    yielded. The errors of pyarrow are not translated.
    """
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for index in row_groups:
        count = 0
        # One row group at a time: a column whose pages have too few or too many values would continue with values of
        # the next row group. Then pyarrow would return as many rows as there are, with the values of other records.
        for batch in parquet.iter_batches(most_rows, row_groups=[index], columns=[*columns], use_threads=False):
            count += batch.num_rows
            # Small row groups are joined, because each table costs as much time as hundreds of rows.
            if waiting and size + batch.num_rows > most_rows:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
            waiting.append(batch)
            size += batch.num_rows
            # A table that is half full is not delayed, so that there is never a second one in memory.
            if 2 * size >= most_rows:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
        _require_rows(parquet, path, index, count)
    if waiting:
        yield pa.Table.from_batches(waiting)


def read_rows(parquet: pq.ParquetFile, path: str, row_groups: Iterable[int], columns: Sequence[str]) -> pa.Table:
    """Return all rows of some row groups. Errors as in :func:`row_batches`."""
    import pyarrow as pa

    tables = []
    for index in row_groups:
        table = parquet.read_row_group(index, columns=[*columns], use_threads=False)
        _require_rows(parquet, path, index, table.num_rows)
        tables.append(table)
    return pa.concat_tables(tables)


def _require_rows(parquet: pq.ParquetFile, path: str, index: int, count: int) -> None:
    """Raise DumpError unless ``count``, the rows that were read, is what the footer records for this row group.

    pyarrow ends a row group silently at a page without values, although it writes such pages itself if
    ``data_page_size`` is less than a value.
    """
    rows = parquet.metadata.row_group(index).num_rows
    if count != rows:
        raise DumpError(
            f"kstate could read {count:,} rows of row group {index}, but the file's footer records {rows:,}",
            where=printable(path),
            hint=f"write the file again with larger pages (Parquet's data page size) or {NEW_DUMP}",
        )


def read_facts(filesystem: FileSystem, file: ListedFile, *, of_table: bool = False) -> FileFacts:
    """Open a file and read its footer. Raises DumpError, naming the file, for any defect in it.

    ``of_table``: the log of a table (Delta Lake, Iceberg) names the file. Otherwise files of table formats are refused.
    """
    import pyarrow as pa

    try:
        with open_parquet(filesystem, file.path) as parquet:
            return _facts(filesystem, parquet, file, of_table=of_table)
    except (OSError, pa.ArrowException, ValueError) as error:
        # Such errors come from damaged footers and pages, codecs that are missing in pyarrow, and text that is not
        # UTF-8.
        raise DumpError(f"kstate cannot read the file as Parquet: {error}", where=printable(file.path)) from None


def _facts(filesystem: FileSystem, parquet: pq.ParquetFile, file: ListedFile, *, of_table: bool) -> FileFacts:
    """Return the facts in a footer: the pieces (row groups by topic-partition) with their offsets and sizes."""
    hive = _hive(file)
    columns = check_columns(parquet, file.path, tuple(hive.items()), of_table=of_table)
    in_file = columns.in_file
    pieces = []
    metadata = parquet.metadata
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        # Some writers leave empty row groups, whose statistics have no bounds.
        if not group.num_rows:
            continue
        # Reading the three columns takes time. So they are read only if the statistics do not prove the values.
        proved = _from_statistics(group, hive, in_file)
        if proved:
            ranges = [proved]
        else:
            Expansion(filesystem).require(parquet, file.path, [index], _PLACE.keys(), bytes_of(group, _PLACE.keys()))
            ranges = _from_rows(parquet, index, hive, in_file, printable(file.path))
        size = bytes_of(group, _READ_COLUMNS)
        for offsets in ranges:
            # The rows and the path must name the same partition. Otherwise a moved file would restore the rows of
            # another partition.
            key = _checked(offsets, hive, file)
            values_in_path = tuple((name, value) for name, value in hive.items() if name not in in_file)
            mixed = len(ranges) > 1
            where = (file.path, (index,), group.num_rows, size)
            pieces.append(
                (
                    key,
                    Piece(
                        *where,
                        offsets.first,
                        offsets.last,
                        mixed,
                        values_in_path,
                        offsets.rows,
                        bytes_of(group, ("key",)),
                    ),
                )
            )
    return FileFacts(file, columns, metadata.num_rows, tuple(pieces), _null_timestamps(metadata))


def _null_timestamps(metadata: pq.FileMetaData) -> int:
    total = 0
    for index in range(metadata.num_row_groups):
        for _, column in _columns_of(metadata.row_group(index), ("timestamp",)):
            if column.is_stats_set and column.statistics is not None and column.statistics.has_null_count:
                total += column.statistics.null_count or 0
    return total


def _hive(file: ListedFile) -> dict[str, str]:
    """Return topic and partition in the path of a file (``topic=t/partition=0``).

    Raise DumpError if they are invalid.
    """
    values = dict(file.hive)
    # If a name occurs twice, different readers would use different values. So neither is used.
    if len(values) != len(file.hive):
        raise DumpError("the path names a topic or partition twice", where=printable(file.path))
    if absent := [name for name, value in values.items() if value == _NO_VALUE]:
        raise DumpError(
            f"its records have no {absent[0]}, because {_NO_VALUE} in the path means null",
            where=printable(file.path),
        )
    partition = values.get("partition")
    if partition is not None and not (partition.isascii() and partition.isdigit() and len(partition) < 11):
        raise DumpError(f"partition={printable(partition)} in the path is not a number", where=printable(file.path))
    return values


def _from_statistics(group: Any, hive: dict[str, str], in_file: frozenset[str]) -> _OffsetRange | None:
    """Return the topic-partition and the offsets of a row group.

    None if its statistics do not prove a single partition.

    Equal bounds prove a single value even if a writer truncates bounds, because truncation only moves a bound outwards.
    Bounds of integers are never truncated.
    """
    bounds = trusted_bounds(group)
    # A damaged footer may name another column than the schema.
    if bounds is None or not in_file & _PLACE.keys() <= bounds.keys():
        return None
    values: dict[str, Any] = {}
    for name in ("topic", "partition"):
        if name not in in_file:
            values[name] = _PLACE[name](hive[name])
            continue
        values[name] = bounds[name][0]
    first, last = bounds["offset"]
    return _OffsetRange(values["topic"], values["partition"], first, last, group.num_rows)


def trusted_bounds(group: Any) -> dict[str, tuple[Any, Any]] | None:
    """Return the lowest and highest topic, partition and offset of a row group by its statistics, if it has the column.

    None if they do not prove a single topic and partition. Then the rows are read.
    """
    bounds = {}
    for index in range(group.num_columns):
        column = group.column(index)
        kind = _PLACE.get(column.path_in_schema)
        if kind is None:
            continue
        low_and_high = _bounds(column)
        if low_and_high is None or not isinstance(low_and_high[0], kind):
            return None
        bounds[column.path_in_schema] = low_and_high
    # If the bounds differ, the group may have rows of several partitions. Only the rows show that.
    if any(low != high for name, (low, high) in bounds.items() if name != "offset"):
        return None
    return bounds


def require_within(bounds: Mapping[str, tuple[Any, Any]], table: pa.Table, path: str, index: int) -> None:
    """Raise DumpError if rows of a row group are outside its :func:`trusted_bounds`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, (low, high) in bounds.items():
        column = table.column(name)
        if isinstance(low, str):
            column = column.cast(pa.string())
        extremes = pc.min_max(column).as_py()
        if column.null_count or not low <= extremes["min"] <= extremes["max"] <= high:
            raise DumpError(
                f"the statistics of row group {index} are wrong: it has rows whose {name} is not in {low}..{high}",
                where=printable(path),
                hint=NEW_DUMP,
            )


def require_place(key: TopicPartition, table: pa.Table, path: str, index: int) -> None:
    """Raise DumpError if rows of a row group are not of a topic-partition. Topics may be dictionaries."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, value in (("topic", key.topic), ("partition", key.partition)):
        if name not in table.column_names:
            continue
        for chunk in table.column(name).chunks:
            if name == "topic":
                # Usually the dictionary has a single entry, and no row needs to be read.
                is_proved = pa.types.is_dictionary(chunk.type) and len(chunk.dictionary) == 1
                values = chunk.dictionary if is_proved else pc.unique(chunk)
                contents = {text.decode() if isinstance(text, bytes) else text for text in values.to_pylist()}
            else:
                contents = set(pc.min_max(chunk).as_py().values())
            if chunk.null_count or (len(chunk) and contents != {value}):
                raise DumpError(
                    f"the statistics of row group {index} are wrong: it has rows whose {name} is not {value}",
                    where=printable(path),
                    hint=NEW_DUMP,
                )


def require_headers(group: Any, count: int, path: str, index: int) -> None:
    """Raise DumpError unless a row group has ``count`` headers, where a row without a header counts as one.

    pyarrow does not notice if the keys of headers end before their values: the last headers of a row are missing then.
    """
    for _, column in _columns_of(group, ("headers",)):
        if column.num_values != count:
            raise DumpError(
                f"kstate could read {count:,} header values in row group {index}, but the file's footer records "
                f"{column.num_values:,}",
                where=printable(path),
                hint=NEW_DUMP,
            )


def _bounds(column: Any) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column without nulls; None if its statistics do not prove them."""
    if not column.is_stats_set or column.statistics is None:
        return None
    statistics = column.statistics
    # Bounds ignore nulls. So a column with nulls, or with an unknown number of them, proves nothing.
    if not statistics.has_min_max or not statistics.has_null_count or statistics.null_count:
        return None
    try:
        return statistics.min, statistics.max
    except UnicodeDecodeError:
        return None


def _from_rows(
    parquet: pq.ParquetFile, index: int, hive: dict[str, str], in_file: frozenset[str], where: str
) -> list[_OffsetRange]:
    ranges: dict[tuple[Any, Any], _OffsetRange] = {}
    for topic, partition, first, last, rows in _grouped(parquet, index, hive, in_file, where):
        before = ranges.get((topic, partition))
        if before:
            first, last, rows = min(first, before.first), max(last, before.last), rows + before.rows
        ranges[topic, partition] = _OffsetRange(topic, partition, first, last, rows)
    return list(ranges.values())


def _grouped(
    parquet: pq.ParquetFile, index: int, hive: dict[str, str], in_file: frozenset[str], where: str
) -> Iterator[Any]:
    """Yield topic, partition, lowest and highest offset, and number of rows, for each batch of a row group."""
    import pyarrow as pa

    names = [name for name in _PLACE if name in in_file]
    # Batch by batch, because a row group may be larger than the memory.
    for batch in row_batches(parquet, where, _ROWS_AT_ONCE, [index], names):
        columns: dict[str, pa.ChunkedArray] = {}
        for name, parse in _PLACE.items():
            kind = pa.string() if parse is str else pa.int64()
            if name in in_file:
                columns[name] = batch.column(name).cast(kind)
            else:
                columns[name] = pa.chunked_array([pa.repeat(pa.scalar(parse(hive[name]), kind), len(batch))])
            if columns[name].null_count:
                raise DumpError(f"column {name} has nulls in row group {index}", where=where)
        grouped = pa.table(columns).group_by(["topic", "partition"], use_threads=False)
        result = grouped.aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")]).to_pydict()
        order = ("topic", "partition", "offset_min", "offset_max", "offset_count")
        yield from zip(*(result[name] for name in order), strict=True)


def _checked(range_: _OffsetRange, hive: dict[str, str], file: ListedFile) -> TopicPartition:
    """Return the topic-partition of a range after checking it: valid names and numbers, the same as in the path."""
    where = printable(file.path)
    if not legal_topic(range_.topic):
        raise DumpError(f"{range_.topic[:300]!r} is not the name of a topic", where=where)
    if not 0 <= range_.partition <= MAX_I32:
        raise DumpError(f"{range_.partition} is not a partition of topic {range_.topic}", where=where)
    key = TopicPartition(range_.topic, range_.partition)
    if range_.first < 0:
        raise DumpError(f"{key} has the negative offset {range_.first}", where=where)
    if hive.get("topic", key.topic) != key.topic or int(hive.get("partition", key.partition)) != key.partition:
        raise DumpError(f"the path does not match the rows' topic and partition ({key})", where=where)
    return key


def bytes_of(group: Any, names: Container[str]) -> int:
    """Return the uncompressed bytes of some columns of a row group, as they will be in memory."""
    total = 0
    for name, column in _columns_of(group, names):
        size = column.total_uncompressed_size
        if name in ("offset", "timestamp"):
            # A file encodes these columns in few bytes, but each value has 8 bytes in memory.
            size = max(size, _FIXED * group.num_rows)
        total += size
    return total


def _columns_of(group: Any, names: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of these columns of a row group, each with the name of its column."""
    for index in range(group.num_columns):
        column = group.column(index)
        name = column.path_in_schema.partition(".")[0]
        if name in names:
            yield name, column


def keys_of(file: ManifestFile) -> Iterator[TopicPartition]:
    """Yield the partition of a file as the manifest or the path states it; nothing if neither does."""
    topic, partition = file.topic, file.partition
    if topic is None or partition is None:
        folders = dict(folder.split("=", 1) for folder in file.path.split("/")[:-1] if "=" in folder)
        topic, number = folders.get("topic"), folders.get("partition", "")
        partition = None
        # isdigit() also accepts digits of other scripts, which no writer uses.
        if number.isascii() and number.isdigit():
            partition = int(number)
    if topic is not None and partition is not None:
        yield TopicPartition(topic, partition)


def check_files(manifest: Manifest, files: Iterable[ListedFile], where: str, damage: Damage) -> None:
    """Add the partitions of files that are missing or have another size to ``damage``.

    Raise DumpError for a file that the manifest does not list.
    """
    present = {file.relative: file for file in files}
    by_path = {file.path: file for file in manifest.files}
    for path, file in by_path.items():
        if path not in present:
            error = DumpError(f"{printable(path)} is in the manifest, but not in the dump", where=where)
            damage.add(keys_of(file), error)
        elif present[path].size != file.size:
            error = DumpError(
                f"{printable(path)} has {present[path].size} bytes, but the manifest records {file.size}", where=where
            )
            damage.add(keys_of(file), error)
    for path in present:
        # The writer has not committed such a file. It may have records that were rolled back.
        if path not in by_path:
            raise DumpError(
                f"{printable(path)} is in the dump, but not in the manifest",
                where=where,
                hint=f"{NEW_DUMP}, because a failed or repeated write leaves such files behind",
            )


def check_rows(manifest: Manifest, facts: Iterable[FileFacts], where: str, damage: Damage) -> None:
    """Add the partitions whose rows or offsets in the footers differ from the manifest to ``damage``.

    Raise DumpError for partitions that the manifest does not list, and for files that it lists under another partition.
    """
    rows: dict[TopicPartition, list[int]] = {}
    files = {file.path: file for file in manifest.files}
    for file_facts in facts:
        entry = files[file_facts.file.relative]
        for key, piece in file_facts.pieces:
            if entry.topic not in (None, key.topic) or entry.partition not in (None, key.partition):
                raise DumpError(
                    (
                        f"{printable(entry.path)} contains rows of {key}, but the manifest lists it under "
                        f"{entry.topic}:{entry.partition}"
                    ),
                    where=where,
                )
            range_ = rows.setdefault(key, [piece.first, piece.last, 0])
            rows[key] = [min(range_[0], piece.first), max(range_[1], piece.last), range_[2] + piece.own]
    partitions = {TopicPartition(entry.topic, entry.partition): entry for entry in manifest.partitions}
    for key, in_files in rows.items():
        if key not in partitions:
            raise DumpError(f"the files contain {key}, which is not in the manifest", where=where)
        partition = partitions[key]
        manifest_range = [partition.first, partition.last, partition.rows]
        # A partition with a lost file has fewer rows for this reason, which is recorded already.
        if key not in damage.partitions and manifest_range != in_files:
            error = DumpError(
                (
                    f"{key}: the files contain {in_files[2]} rows with offsets {in_files[0]}..{in_files[1]}, but "
                    f"the manifest records {partition.rows} with {partition.first}..{partition.last}"
                ),
                where=where,
            )
            damage.add([key], error)
    for key, partition in partitions.items():
        if partition.rows and key not in rows and key not in damage.partitions:
            error = DumpError(
                f"{key}: the manifest records {partition.rows} rows, but the files contain none", where=where
            )
            damage.add([key], error)


_OPEN_FILES: Final = 8


class OutOfOrder(Exception):
    """The offsets of a slice do not rise, although the reader expected that.

    The dump is valid. The caller repeats its work with a passage whose :attr:`Passage.ordered` is False.
    """


@dataclass(slots=True)
class Passage:
    """The state that all readings of one slice share.

    A slice is read several times: its keys first, then its values.
    """

    ordered: bool = True
    """Whether offsets rise from row to row, so that no row must be sorted. False after a row has shown the opposite."""
    _rising: tuple[int, int] | None = None
    """The first and last offset of a range that was read completely, and whose offsets rise."""
    _sums: dict[tuple[int, int, str, tuple[int, ...]], int] = field(default_factory=dict)
    """The sum of the offsets that a part has in a piece, for each part and piece that was read completely."""

    def is_rising(self, part: Slice) -> bool:
        """Return whether all rows of the part were read before, and their offsets rise."""
        return self._rising is not None and self._rising[0] <= part.first and part.last <= self._rising[1]

    def mark_rising(self, part: Slice) -> None:
        """Record that all rows of the part were read, and that their offsets rise."""
        first, last = self._rising or (part.first, part.last)
        if first <= part.first <= last + 1:
            self._rising = first, max(last, part.last)

    def require_same_offsets(self, part: Slice, piece: Piece, offsets: int) -> None:
        """Raise DumpError if the sum of the part's offsets in a piece is not that of an earlier reading.

        Readings with different columns are matched by the numbers of their rows. So the file must be the same.
        """
        place = (part.first, part.last, piece.path, piece.row_groups)
        # Sums of 64 bits wrap around, and readings add up batches of different sizes.
        offsets %= 1 << 64
        if self._sums.setdefault(place, offsets) != offsets:
            raise changed(piece)


class OpenFiles:
    """The files that were read last, which stay open: the pieces of a few files may alternate in a slice.

    Their number is limited, because a shuffled dump has thousands of files.
    """

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()
        self._expansion = Expansion(filesystem)
        self._placed: set[tuple[str, tuple[int, ...]]] = set()

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].close(force=True)

    def to_read(self, part: Slice, piece: Piece, columns: Collection[str]) -> pq.ParquetFile:
        """Return the file of a piece, of which the columns are then read.

        Raises DumpError if it is not the file with which the dump was opened, if these columns of all pieces expand to
        far more than the footers state, or if rows are of another topic-partition than the slice.
        """
        parquet = self.get(piece)
        self._expansion.require(parquet, piece.path, piece.row_groups, columns, piece.bytes)
        # Of the readings of a slice, only one has the keys. Rows of a mixed piece are selected by their place.
        if "key" in columns and not piece.mixed:
            self._require_place(TopicPartition(part.topic, part.partition), parquet, piece)
        return parquet

    def _require_place(self, key: TopicPartition, parquet: pq.ParquetFile, piece: Piece) -> None:
        """Raise DumpError unless all rows of a piece are of a topic-partition, as its statistics claim."""
        # In a bucket these columns would be two more requests for each row group.
        if not is_here(self._filesystem):
            return
        place = (piece.path, piece.row_groups)
        names = [name for name in _PLACE if name != "offset" and name in parquet.schema_arrow.names]
        if not names or place in self._placed:
            return
        # As a dictionary, a topic takes four bytes for each row.
        with open_parquet(self._filesystem, piece.path, ["topic"], parquet.metadata) as file:
            for index in piece.row_groups:
                for table in row_batches(file, piece.path, _ROWS_AT_ONCE, [index], names):
                    require_place(key, table, piece.path, index)
        self._placed.add(place)

    def get(self, piece: Piece) -> pq.ParquetFile:
        """Return the file of a piece. Raises DumpError if it is not the file with which the dump was opened."""
        # Removed and added again, so that the dictionary is in the order of the last use.
        parquet = self._open.pop(piece.path, None)
        if parquet is None:
            if len(self._open) >= _OPEN_FILES:
                # Closes the file that was not used for the longest time. With force, the stream is closed too, and not
                # only the reader.
                self._open.popitem(last=False)[1].close(force=True)
            parquet = opened_parquet(self._filesystem, piece.path)
        self._open[piece.path] = parquet
        metadata = parquet.metadata
        has_groups = piece.row_groups[-1] < metadata.num_row_groups
        # The footers were read when the dump was opened. Another writer may have replaced the file since.
        if not has_groups or sum(metadata.row_group(index).num_rows for index in piece.row_groups) != piece.rows:
            raise changed(piece)
        return parquet


def changed(piece: Piece) -> DumpError:
    """Return the error for a file that was replaced since the dump was opened."""
    return DumpError(
        "the file has changed since kstate opened the dump, or its statistics are wrong", where=printable(piece.path)
    )
