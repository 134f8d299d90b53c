"""Divide a partition into contiguous, bounded slices, from the footers alone.

If its rows are scattered over the files, Spark first sorts them by offset, with one shuffle.
"""

from __future__ import annotations

import contextlib
import heapq
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option
from kstate_cli.errors import KstateError, RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import first_line

from .errors import NEW_DUMP, DumpError
from .location import is_here, open_location
from .model import Dump, PartitionDump, Piece, Slice
from .open import read_dump
from .pages import check_pages
from .schema import RECORD_COLUMNS, Columns

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

_MOST_READS: Final = 2
"""The most times that the bytes of overlapping pieces may be read in total.

Beyond that, sorting in Spark is cheaper.
"""


@dataclass(slots=True)
class _SlicePart:
    """An offset range and the pieces that have rows in it."""

    pieces: list[Piece]
    first: int
    last: int
    bytes: int
    ordered: bool


def slices(
    partition: PartitionDump, *, after: int | None, until: int | None, max_bytes: int
) -> tuple[list[Slice], bool]:
    """Return the slices of a partition in the order of offsets, and whether Spark must first sort the partition.

    Only offsets > ``after`` and <= ``until`` count (None: no bound). Each slice has at most ``max_bytes`` (as
    :attr:`Slice.bytes`). A larger row group is a slice by itself, which the reader can read in batches. Row groups
    whose offsets overlap are one slice, which is not ``ordered``. If these are too large, their range of offsets is
    divided, and they are read again for each part. If so the partition would be read more than twice, or if a single
    range has more than ``max_bytes``, the result is ``([], True)``.
    """
    low = 0
    if after is not None:
        low = after + 1
    if until is not None and until < low:
        return [], False
    pieces = [piece for piece in partition.pieces if piece.last >= low and (until is None or piece.first <= until)]
    parts: list[_SlicePart] = []
    for group in _overlapping(pieces):
        cut = _cut(group, low, until, max_bytes)
        if cut is None:
            return [], True
        parts += cut
    return [_slice(partition, index, part) for index, part in enumerate(_pack(parts, max_bytes))], False


def _overlapping(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield groups of pieces, lowest first: the offsets of pieces in different groups do not overlap."""
    group: list[Piece] = []
    last = -1
    for piece in sorted(pieces, key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups)):
        if group and piece.first > last:
            yield group
            group = []
        group.append(piece)
        last = max(last, piece.last)
    if group:
        yield group


def _cut(group: list[Piece], low: int, until: int | None, max_bytes: int) -> list[_SlicePart] | None:
    """Divide a group of overlapping pieces into parts; None if sorting it in Spark is cheaper."""
    first = max(low, group[0].first)
    last = max(piece.last for piece in group)
    if until is not None:
        last = min(last, until)
    whole = _part(group, first, last)
    if len(group) == 1 or whole.bytes <= max_bytes:
        return [whole]
    parts = _ranges(group, first, last, max_bytes)
    # A shuffle in Spark reads and writes everything once. So it is cheaper than reading everything more than twice.
    if parts is None or sum(part.bytes for part in parts) > _MOST_READS * whole.bytes:
        return None
    return parts


def _ranges(group: list[Piece], first: int, last: int, max_bytes: int) -> list[_SlicePart] | None:
    """Divide a group at the offsets where its pieces begin and end. Each range is as long as ``max_bytes`` allows.

    Return None if the pieces of a single range have more than ``max_bytes``.
    """
    parts: list[_SlicePart] = []
    current: list[Piece] = []
    size = 0
    for start, end, active, fresh in _sweep(group, first, last):
        fresh_bytes = sum(piece.share for piece in fresh)
        # A range without a new piece costs nothing, because its pieces are read for the range before it anyway.
        if current and (not fresh or size + fresh_bytes <= max_bytes):
            current += fresh
            size += fresh_bytes
            parts[-1].last = end
        else:
            current = [piece for _, _, piece in active]
            size = sum(piece.share for piece in current)
            if len(current) > 1 and size > max_bytes:
                return None
            parts.append(_SlicePart(current, start, end, 0, False))
    return [_part(part.pieces, part.first, part.last) for part in parts]


_ActivePiece = tuple[int, int, Piece]
"""A piece with its last offset and a number, as an entry of a heap."""


def _sweep(group: list[Piece], first: int, last: int) -> Iterator[tuple[int, int, list[_ActivePiece], list[Piece]]]:
    """Yield the shortest ranges of offsets in which no piece begins or ends, without ranges that no piece covers.

    A range is its first and last offset, all pieces that cover it, and those among them that begin in it. ``group`` is
    sorted by first offset. The list of all pieces is changed by the next step, so the caller must not keep it: copying
    it for each range would take quadratic time in a shuffled dump.
    """
    bounds = {first, *(piece.first for piece in group), *(piece.last + 1 for piece in group)}
    starts = sorted(bound for bound in bounds if first <= bound <= last)
    ends = [*(start - 1 for start in starts[1:]), last]
    waiting = iter(group)
    upcoming = next(waiting, None)
    # A heap by last offset, so that the piece that ends first is removed first. The unique number prevents that two
    # pieces are compared.
    active: list[_ActivePiece] = []
    number = 0
    for start, end in zip(starts, ends, strict=True):
        # The heap has the piece with the lowest last offset on top.
        while active and active[0][0] < start:
            heapq.heappop(active)
        fresh = []
        while upcoming is not None and upcoming.first <= end:
            if upcoming.last >= start:
                number += 1
                heapq.heappush(active, (upcoming.last, number, upcoming))
                fresh.append(upcoming)
            upcoming = next(waiting, None)
        if active:
            yield start, end, active, fresh


def _part(pieces: list[Piece], first: int, last: int) -> _SlicePart:
    # If a row group has more rows than offsets, some offsets repeat.
    ordered = len(pieces) == 1 and pieces[0].own <= pieces[0].last - pieces[0].first + 1
    return _SlicePart(list(pieces), first, last, sum(piece.share for piece in pieces), ordered)


def _pack(parts: Iterable[_SlicePart], max_bytes: int) -> list[_SlicePart]:
    """Join adjacent parts as long as the result has at most ``max_bytes``."""
    packed: list[_SlicePart] = []
    for part in parts:
        if not packed or packed[-1].bytes + part.bytes > max_bytes:
            packed.append(part)
            continue
        before = packed[-1]
        # Parts of one group share pieces. Those that begin before this part are in the list already.
        before.pieces += [piece for piece in part.pieces if piece.first > before.last]
        before.last = part.last
        before.bytes += part.bytes
        before.ordered = before.ordered and part.ordered
    return packed


def _slice(partition: PartitionDump, index: int, part: _SlicePart) -> Slice:
    pieces = tuple(
        _joined(sorted(part.pieces, key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups)))
    )
    rows = sum(piece.own for piece in pieces)
    return Slice(
        partition.topic, partition.partition, index, pieces, part.first, part.last, rows, part.bytes, part.ordered
    )


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join adjacent row groups of the same file into one piece, which is read with one call."""
    joined: Piece | None = None
    for piece in pieces:
        if joined and _continues(joined, piece):
            joined = replace(
                joined,
                row_groups=joined.row_groups + piece.row_groups,
                rows=joined.rows + piece.rows,
                bytes=joined.bytes + piece.bytes,
                last=piece.last,
                own=joined.own + piece.own,
                key_bytes=joined.key_bytes + piece.key_bytes,
            )
            continue
        if joined:
            yield joined
        joined = piece
    if joined:
        yield joined


def _continues(piece: Piece, following: Piece) -> bool:
    same = piece.path == following.path and piece.mixed == following.mixed and piece.hive == following.hive
    return same and piece.row_groups[-1] + 1 == following.row_groups[0] and piece.last < following.first


def cut(part: Slice, upto: int) -> tuple[Slice, Slice | None]:
    """Return the part of a slice up to an offset (inclusive), and the rest of it; None if nothing remains."""
    if upto >= part.last:
        return part, None
    # A piece on both sides of the cut is read twice, and filtered by offset each time.
    low = [piece for piece in part.pieces if piece.first <= upto]
    high = [piece for piece in part.pieces if piece.last > upto]
    return _sub_slice(part, low, part.first, upto), _sub_slice(part, high, upto + 1, part.last)


def _sub_slice(part: Slice, pieces: Sequence[Piece], first: int, last: int) -> Slice:
    rows, size = sum(piece.own for piece in pieces), sum(piece.share for piece in pieces)
    return replace(part, pieces=tuple(pieces), first=first, last=last, rows=rows, bytes=size)


_RANGE_BYTES: Final = 64 << 20
# Slices consist of row groups. Small row groups fit any budget of memory.
_ROW_GROUP_BYTES: Final = 16 << 20
_BY_OFFSET: Final = ("topic", "partition", "offset")
_PATTERN: Final = re.compile(r"([\\\[\]{}*?])")
# Timestamps must not be changed, whatever their year and unit are.
_CONF: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # A timestamp without a time zone is UTC. Columns whose names differ only in case are different columns.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # The configuration of a cluster may let Spark skip damaged files.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
_READ_OPTIONS: Final = {
    # As in pyarrow: pages are compared with their checksums if the writer has stored them.
    "parquet.page.verify-checksum.enabled": "true",
    # Spark skips rows by these, but kstate trusts only the statistics of row groups.
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
}
# Computed in integers, because a quotient in floating point could be rounded up to the next millisecond.
_FLOORED: Final = "timestamp_millis(({value} - pmod({value}, {unit})) div {unit})"
_NO_HEADERS: Final = "cast(array() as array<struct<key: string, value: binary>>)"
# Writers express "no headers" as an empty list or as null. Duplicates with either must be equal.
_SOME_HEADERS: Final = f"coalesce(headers, {_NO_HEADERS})"

_MOST_TEXT: Final = 300
_ODD = f"check the disks of {option.STAGING} and of the executors, then run the command again"


def repartition(context: SparkContext, dump: Dump, partitions: Iterable[TopicPartition], target_uri: str) -> Dump:
    """Write the rows of ``partitions`` to ``target_uri`` by offset, each offset once; return the new dump.

    ``target_uri`` (a local path, or a URI that both pyarrow and Spark support) must not exist. The new dump has no
    other partitions and no manifest. Facts about the broker's logs are copied from the manifest of ``dump``.

    Raises DumpError if different rows have the same offset, RunFailed if Spark fails.
    """
    partitions_to_order = [dump.partitions[key] for key in sorted(set(partitions))]
    # Without rows, no session of Spark is started.
    if not any(partition.rows for partition in partitions_to_order):
        return replace(dump, partitions={partition.key: partition for partition in partitions_to_order}, manifest=None)
    # The executors read these files without kstate.
    check_pages(
        open_location(dump.uri)[0],
        [piece for partition in partitions_to_order for piece in partition.pieces],
        (*RECORD_COLUMNS, "topic", "partition"),
    )
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession(context)
        with _conf(spark, _CONF):
            rows = _ordered(spark, dump, partitions_to_order)
            rows.write.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(hadoop_uri(target_uri))
    except KstateError:
        raise  # its message has the cause already
    except Exception as error:
        raise RunFailed(
            f"Spark could not sort the dump: {_reason(error)}",
            hint="fix the cause, then run the command again",
        ) from error
    ordered = read_dump(target_uri, complete=True, committed_only=False)
    ordered_partitions = {partition.key: _carried_over(partition, ordered) for partition in partitions_to_order}
    return replace(
        ordered,
        partitions=ordered_partitions,
        committed=dump.committed,
        isolation=dump.isolation,
        has_headers=dump.has_headers,
        headerless=dump.headerless,
    )


def _reason(error: Exception) -> str:
    """Return the text of an error of Spark; for one of Java, its first and its last cause."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return first_line(error) or type(error).__name__
    # The text of the Python error begins with the name of a call.
    causes = [java]
    while (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    texts = dict.fromkeys(str(cause.toString()) for cause in (causes[0], causes[-1]))
    return ": ".join(" ".join(text[:_MOST_TEXT].split()) for text in texts)


def _ordered(spark: SparkSession, dump: Dump, partitions: list[PartitionDump]) -> DataFrame:
    # Equal rows are in the same range, so removing duplicates needs no second shuffle. Different rows with the same
    # offset both stay, and reading them is refused.
    rows = _rows(spark, dump, partitions)
    size = sum(piece.share for partition in partitions for piece in partition.pieces)
    count = max(spark.sparkContext.defaultParallelism, -(-size // _RANGE_BYTES))
    in_ranges = rows.repartitionByRange(count, *_BY_OFFSET)
    return in_ranges.dropDuplicates().sortWithinPartitions(*_BY_OFFSET)


def _rows(spark: SparkSession, dump: Dump, selected: list[PartitionDump]) -> DataFrame:
    """Return the rows of partitions as a frame of Spark, in the same columns for all files."""
    from pyspark.sql import DataFrame, functions

    # For each partition only its own files are read. If a file does not have topic and partition, they come from its
    # path. Spark reads all files of a frame with the same columns, so files with other types need another frame.
    sources: dict[tuple[tuple[tuple[str, str], ...], Columns | None, tuple[str, ...]], list[PartitionDump]] = {}
    for partition in selected:
        alike: dict[tuple[tuple[tuple[str, str], ...], Columns | None], set[str]] = {}
        for piece in partition.pieces:
            alike.setdefault((piece.hive, dump.columns.get(piece.path)), set()).add(piece.path)
        for (hive, columns), paths in alike.items():
            sources.setdefault((hive, columns, tuple(sorted(paths))), []).append(partition)
    names = _Names(dump.uri)
    columns_out = ["key", "value", *_BY_OFFSET, "timestamp"]
    if dump.has_headers:
        columns_out.append("headers")
    frames = []
    for (hive, columns, paths_of_source), partitions in sources.items():
        reader = spark.read.options(**_READ_OPTIONS)
        if columns is not None:
            # Without a schema, Spark uses that of any one file, and then casts the others or fails.
            reader = reader.schema(_spark_schema(columns))
        frame = reader.parquet(*(names.pattern(path) for path in paths_of_source))
        for name, value in hive:
            frame = frame.withColumn(name, functions.lit(value))
        frame = frame.withColumn("partition", functions.col("partition").cast("int"))
        frame = frame.withColumn("timestamp", functions.expr(_milliseconds(dict(frame.dtypes)["timestamp"])))
        for headers in (_SOME_HEADERS, _NO_HEADERS):
            keys = [part.key for part in partitions if dump.headers_of(part.topic) is (headers == _SOME_HEADERS)]
            if not keys:
                continue
            rows = frame.where(reduce(operator.or_, map(_is_of, keys)))
            if dump.has_headers:
                rows = rows.withColumn("headers", functions.expr(headers))
            frames.append(rows.select(*columns_out))
    return reduce(DataFrame.unionByName, frames)


def _is_of(key: TopicPartition) -> Column:
    """Return the condition that selects the rows of a partition."""
    from pyspark.sql import functions

    return (functions.col("topic") == key.topic) & (functions.col("partition") == key.partition)


def _spark_schema(columns: Columns) -> str:
    """Return the columns of a file as Spark reads them, in its DDL."""
    kinds = {"int32": "int", "int64": "bigint"}
    # Strings that the writer has not marked as text are read as text too.
    texts = {"topic": "string", "headers": "array<struct<key: string, value: binary>>"}
    types = {name: texts.get(name, kinds.get(kind, kind)) for name, kind in columns.kinds if kind is not None}
    if types["timestamp"] == "timestamp[ns]":
        types["timestamp"] = "bigint"  # Spark has no nanoseconds, and reads them as numbers (nanosAsLong)
    elif columns.zoned:
        types["timestamp"] = "timestamp"
    else:
        types["timestamp"] = "timestamp_ntz"
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


def _milliseconds(kind: str) -> str:
    """Return Spark's expression for the column ``timestamp`` of such a type, floored to milliseconds."""
    if kind == "bigint":
        return _FLOORED.format(value="timestamp", unit=1_000_000)
    return _FLOORED.format(value="unix_micros(cast(timestamp as timestamp))", unit=1_000)


class _Names:
    """Hadoop's names of the files of a dump."""

    def __init__(self, uri: str) -> None:
        self._root = open_location(uri)[1].rstrip("/")
        self._uri = hadoop_uri(uri).rstrip("/")

    def pattern(self, path: str) -> str:
        """Return a pattern for ``spark.read`` that matches only this path of the file system."""
        return _PATTERN.sub(r"\\\1", self._uri + path.removeprefix(self._root))


def hadoop_uri(uri: str) -> str:
    """Return Hadoop's URI of a place: it does not decode local paths, needs ``s3a``, and takes no query."""
    filesystem, path = open_location(uri)
    if is_here(filesystem):
        return f"file://{path}"
    plain = uri.partition("?")[0]
    scheme, separator, rest = plain.partition("://")
    if scheme in ("s3", "s3n", "s3a"):
        authority, slash, key = rest.partition("/")
        return f"s3a://{authority.rpartition('@')[2]}{slash}{key}"
    return f"{scheme}{separator}{rest}"


@contextlib.contextmanager
def _conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Run the block with these settings of the Spark session."""
    # The session belongs to the caller, so every setting is restored afterwards.
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _carried_over(before: PartitionDump, dump: Dump) -> PartitionDump:
    """Return a sorted partition with the facts about its log from before. Raise an error if Spark has lost records."""
    after = dump.partitions.get(before.key)
    if after is None:
        if before.rows:
            raise RunFailed(f"Spark lost the rows of {before.key}", where=dump.uri, hint=_ODD)
        return before
    # Duplicates may be removed, so there may be fewer rows. But other bounds mean that records were lost.
    if (after.first, after.last) != (before.first, before.last) or after.rows > before.rows:
        raise RunFailed(
            f"for {before.key}, the rows that Spark wrote differ from the rows that it had read",
            where=dump.uri,
            hint=_ODD,
        )
    for piece, following in zip(after.pieces, after.pieces[1:], strict=False):
        if following.first <= piece.last:
            raise DumpError(
                f"{before.key}: two rows have offset {following.first}, but differ",
                hint=f"{NEW_DUMP}, because this one mixes two topics, or a topic was deleted and recreated",
            )
    stated_facts = {name: getattr(before, name) for name in ("log_start", "log_end", "start", "topic_id", "reading")}
    return replace(after, **stated_facts)
