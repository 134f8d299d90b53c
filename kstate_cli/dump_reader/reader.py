"""Read a slice in a worker: its rows by offset, each offset once. Nothing in this module depends on Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from .errors import NEW_DUMP, DumpError, unreadable
from .footers import OpenFiles, OutOfOrder, Passage, changed, read_rows, row_batches
from .model import PartitionDump, Piece, Slice
from .schema import RECORD_COLUMNS, column_type, convert

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyarrow.fs import FileSystem

# Few rows at a time: how much memory dictionary-encoded values need is known only after they were read.
_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 8 << 20
_LEAST_ROWS: Final = 256


def read_slice(part: Slice, columns: Sequence[str], filesystem: FileSystem, passage: Passage | None = None) -> pa.Table:
    """Return all rows of a slice, by offset, each offset once.

    ``columns`` are some of :data:`~kstate_cli.dump_reader.schema.RECORD_COLUMNS`, in that order; ``offset`` is appended
    if it is not among them. Types: key and value binary, timestamp int64 (milliseconds, -1 for none), offset int64,
    headers list<struct<key: string, value: binary>>. Rows with a null key are included. Readings with the same
    ``passage`` must find the same rows.

    Raises DumpError if a file cannot be read or has changed since the dump was opened, and if two different rows have
    the same offset. The message names the file or the offset.
    """
    names = _names(columns)
    with OpenFiles(filesystem) as files:
        tables = []
        for piece in part.pieces:
            of_piece = [*_tables(part, piece, names, files)]
            if passage is not None:
                passage.require_same_offsets(part, piece, sum(_sum(_offsets(table)) for table in of_piece))
            tables += of_piece
        table = _concatenated(tables, names)
        # Usually the offsets rise. Then no row is sorted or compared, which would copy every value.
        if is_rising(_offsets(table)):
            return table
        _compare_repeated(part, table, files)
    return sorted_once(table)


def iter_slice(
    part: Slice,
    columns: Sequence[str],
    filesystem: FileSystem,
    max_rows: int,
    max_bytes: int | None,
    passage: Passage,
) -> Generator[pa.Table, None, None]:
    """Yield the rows of :func:`read_slice` in tables of at most ``max_rows`` rows and about ``max_bytes`` bytes.

    All readings of a slice share one ``passage``. Raises OutOfOrder if offsets do not rise although the passage expects
    that. After a reading has seen that they rise, later ones read the offsets only if ``columns`` has them.

    A slice that is not in order is read once for each table. If a writer has repeated rows, a table may temporarily
    need more memory than its rows.
    """
    names = _names(columns)
    average = max(1, part.bytes // max(part.rows, 1))
    most = max_rows
    if max_bytes is not None:
        most = max(1, min(max_rows, max_bytes // average))
    if max_bytes is None and part.rows <= max_rows:
        table = read_slice(part, columns, filesystem, passage)
        if table.num_rows:
            yield table.select(columns)
        return
    passage.ordered &= part.ordered
    with OpenFiles(filesystem) as files:
        if passage.ordered:
            # Offsets that are known to rise are not read again, which saves eight bytes for each record.
            read = [*columns] if passage.is_rising(part) else names
            tables = _packed(_in_order(part, read, files, most, passage), max_rows, max_bytes)
        else:
            tables = _windows(part, names, files, most, passage)
        yield from (table.select(columns) for table in tables)


def _windows(part: Slice, names: list[str], files: OpenFiles, most: int, passage: Passage) -> Iterator[pa.Table]:
    """Yield the rows of a slice that is not in order: ``most`` offsets at a time, each of these windows sorted."""
    offsets = _all_offsets(part, files, passage)
    for begin in range(0, len(offsets), most):
        low, high = int(offsets[begin]), int(offsets[min(begin + most, len(offsets)) - 1])
        # Each window reads all pieces that overlap it. So more is read, but only the rows of one window are in memory.
        window = Slice(part.topic, part.partition, part.index, part.pieces, low, high, most, part.bytes, False)
        pieces = [piece for piece in part.pieces if piece.first <= high and piece.last >= low]
        parts = [table for piece in pieces for table in _batches(window, piece, names, files)]
        table = _concatenated(parts, names)
        _compare_repeated(window, table, files)
        yield sorted_once(table)


def _names(columns: Sequence[str]) -> list[str]:
    unknown = [name for name in columns if name not in RECORD_COLUMNS]
    if unknown:
        raise ValueError(f"no such columns: {unknown}")
    return [*columns] if "offset" in columns else [*columns, "offset"]


def _tables(part: Slice, piece: Piece, names: list[str], files: OpenFiles) -> Iterator[pa.Table]:
    """Yield the rows of a piece that belong to the slice, in the types of kstate; usually as one table."""
    import pyarrow as pa

    if piece.mixed:
        # Most rows of the piece may be of other partitions, so they are never in memory all at once.
        yield from _batches(part, piece, names, files)
        return
    try:
        table = read_rows(files.to_read(part, piece, names), piece.path, piece.row_groups, names)
        offsets = _canonical(table, ["offset"], piece)
        numbers = _offsets(offsets)
        low, high = int(numbers.min()), int(numbers.max())
        if low < piece.first or high > piece.last:
            raise changed(piece)
        if low < part.first or part.last < high:
            # The slice may need few rows of this piece. So rows outside of it are removed before the values are
            # converted.
            numbered = table.set_column(table.column_names.index("offset"), "offset", offsets.column(0))
            table = within(numbered, part)
        table = _canonical(table, names, piece)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(piece.path, error) from None
    yield table


def _batches(part: Slice, piece: Piece, names: list[str], files: OpenFiles) -> Iterator[pa.Table]:
    """Yield the rows of a piece that belong to the slice, batch by batch, in the order of the file."""
    import pyarrow as pa

    in_path = {name for name, _ in piece.hive}
    select = [name for name in ("topic", "partition") if piece.mixed and name not in in_path]
    # The number of rows follows from the average size of a row. It has a minimum, so that large rows are not read one
    # by one.
    rows = max(_LEAST_ROWS, min(_BATCH_ROWS, _BATCH_BYTES * piece.rows // max(piece.bytes, 1)))
    if "offset" not in names and not _is_inside(part, piece):
        select.append("offset")
    try:
        read = [*names, *select]
        for file_rows in row_batches(files.to_read(part, piece, read), piece.path, rows, piece.row_groups, read):
            own = _own_rows(file_rows, part, select)
            _require_offsets_of(piece, file_rows, own)
            mask = _mask(file_rows, part, piece, own)
            table = _canonical(file_rows, names, piece)
            if mask is not None:
                table = table.filter(mask)
            if table.num_rows:
                yield table
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(piece.path, error) from None


def _is_inside(part: Slice, piece: Piece) -> bool:
    """Return whether all rows of the piece are in the slice, by their offsets."""
    return part.first <= piece.first and piece.last <= part.last


def _own_rows(table: pa.Table, part: Slice, select: list[str]) -> Any:
    """Return a filter for the rows of ``table`` that are of the slice's topic-partition; None if all of them are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    terms = []
    if "topic" in select:
        terms.append(pc.equal(pc.cast(table.column("topic"), pa.string()), part.topic))
    if "partition" in select:
        terms.append(pc.equal(table.column("partition"), part.partition))
    if not terms:
        return None
    return reduce(pc.and_, terms)


def _require_offsets_of(piece: Piece, table: pa.Table, own: Any) -> None:
    """Raise DumpError if a row's offset is outside the range of the piece, where a slice would not look for it.

    ``own`` is a filter for the rows that the range is about. Without the column ``offset`` nothing is compared: an
    earlier reading has compared it.
    """
    import pyarrow.compute as pc

    if "offset" not in table.column_names:
        return
    offsets = table.column("offset")
    if own is not None:
        offsets = offsets.filter(own)
    extremes = pc.min_max(offsets).as_py()
    # Null if there is no row.
    low, high = extremes["min"], extremes["max"]
    if low is not None and not piece.first <= low <= high <= piece.last:
        raise changed(piece)


def _mask(table: pa.Table, part: Slice, piece: Piece, own: Any) -> Any:
    """Return a filter for the rows of ``table`` that belong to the slice; None if all of them do."""
    import pyarrow.compute as pc

    if _is_inside(part, piece):
        return own
    offsets = table.column("offset")
    inside = pc.and_(pc.greater_equal(offsets, part.first), pc.less_equal(offsets, part.last))
    if own is None:
        return inside
    return pc.and_(own, inside)


def _canonical(table: pa.Table, names: list[str], piece: Piece) -> pa.Table:
    import pyarrow as pa

    # The footers showed no null. So the file was replaced, or its statistics are wrong.
    if "offset" in names and table.column("offset").null_count:
        raise changed(piece)
    return pa.table({name: convert(name, table.column(name)) for name in names})


def _concatenated(tables: list[pa.Table], names: list[str]) -> pa.Table:
    import pyarrow as pa

    if not tables:
        return pa.schema([(name, column_type(name)) for name in names]).empty_table()
    # Without copying: the result has the chunks of all tables.
    return pa.concat_tables(tables)


def _compare_repeated(part: Slice, table: pa.Table, files: OpenFiles) -> None:
    """Compare all columns of rows with the same offset. Raises DumpError if two of them differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    again = repeated(_offsets(table))
    if not len(again):
        return
    twice = pa.array(again)
    pieces = [piece for piece in part.pieces if piece.first <= part.last and piece.last >= part.first]
    # A file may have no headers while another one has. Only columns that all files have can be compared.
    columns = [set(files.get(piece).schema_arrow.names) for piece in pieces]
    names = [name for name in RECORD_COLUMNS if all(name in file_columns for file_columns in columns)]
    rows = [
        batch.filter(pc.is_in(batch.column("offset"), value_set=twice))
        for piece in pieces
        for batch in _batches(part, piece, names, files)
    ]
    refuse_differing(_concatenated(rows, names), part)


def _offsets(table: pa.Table) -> npt.NDArray[np.int64]:
    # Copies the values only if the table has several chunks.
    offsets: npt.NDArray[np.int64] = table.column("offset").to_numpy()
    return offsets


def _sum(offsets: npt.NDArray[np.int64]) -> int:
    return int(offsets.sum())


def _all_offsets(part: Slice, files: OpenFiles, passage: Passage) -> npt.NDArray[np.int64]:
    import numpy as np

    offsets: list[npt.NDArray[np.int64]] = []
    for piece in part.pieces:
        of_piece = [_offsets(table) for table in _batches(part, piece, ["offset"], files)]
        passage.require_same_offsets(part, piece, sum(map(_sum, of_piece)))
        offsets += of_piece
    if not offsets:
        return np.empty(0, np.int64)
    return np.unique(np.concatenate(offsets))


def _in_order(part: Slice, names: list[str], files: OpenFiles, most: int, passage: Passage) -> Iterator[pa.Table]:
    """Yield tables of at most ``most`` rows in the order of the files. Raise OutOfOrder if offsets do not rise.

    If the passage has already seen that they rise, a file has changed: raise DumpError then.
    """
    last = -1
    for piece in part.pieces:
        total = 0
        for table in _batches(part, piece, names, files):
            if "offset" in names:
                offsets = _offsets(table)
                if int(offsets[0]) <= last or not is_rising(offsets):
                    if passage.is_rising(part):
                        raise changed(piece)
                    passage.ordered = False
                    # Tables that were yielded already may be wrong. So the caller begins again, with sorted windows.
                    raise OutOfOrder
                last = int(offsets[-1])
                total += _sum(offsets)
            for begin in range(0, table.num_rows, most):
                yield table.slice(begin, most)
        if "offset" in names:
            passage.require_same_offsets(part, piece, total)
    # Marked only after the last table, because a reading that was stopped has not seen all offsets.
    passage.mark_rising(part)


def _packed(tables: Iterator[pa.Table], max_rows: int, max_bytes: int | None) -> Iterator[pa.Table]:
    """Join small tables as long as the result has at most ``max_rows`` rows and ``max_bytes`` bytes."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    rows = size = 0
    for table in _split(tables, max_bytes):
        more = table.nbytes
        if waiting and (rows + table.num_rows > max_rows or (max_bytes is not None and size + more > max_bytes)):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows += table.num_rows
        size += more
    if waiting:
        yield pa.concat_tables(waiting)


def _split(tables: Iterator[pa.Table], max_bytes: int | None) -> Iterator[pa.Table]:
    for table in tables:
        parts = 1
        if max_bytes is not None:
            parts = min(table.num_rows, -(-table.nbytes // max_bytes))
        step = -(-table.num_rows // parts)
        yield from (table.slice(begin, step) for begin in range(0, table.num_rows, step))


_BINARY: Final = ("key", "value")
# The type binary has 32-bit positions in Arrow. So the rows of a larger column are gathered in blocks.
_BLOCK_BYTES: Final = 1 << 30


def is_rising(offsets: npt.NDArray[np.int64]) -> bool:
    """Return whether each offset is greater than the one before."""
    return bool((offsets[1:] > offsets[:-1]).all())


def within(table: pa.Table, part: Slice) -> pa.Table:
    """Return the rows of ``table`` whose offsets are in the slice; without a copy if the offsets rise."""
    import numpy as np

    offsets = table.column("offset").to_numpy()
    if is_rising(offsets):
        begin, end = np.searchsorted(offsets, part.first), np.searchsorted(offsets, part.last, side="right")
        return table.slice(int(begin), int(end - begin))
    return table.filter((offsets >= part.first) & (offsets <= part.last))


def sorted_once(table: pa.Table) -> pa.Table:
    """Return the rows of ``table`` by offset, the first row of each. :func:`refuse_differing` compares the others."""
    import numpy as np

    offsets = table.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        keep = np.ones(len(order), dtype=bool)
        # The sort is stable, so the first of equal offsets is that of the earlier piece.
        keep[again + 1] = False
        order = order[keep]
    return gathered(table, order)


def repeated(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offsets that occur more than once, each once, in order."""
    import numpy as np

    ordered = np.sort(offsets)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def refuse_differing(table: pa.Table, part: Slice) -> None:
    """Raise DumpError, with the offset and the column, if two rows with the same offset are different records.

    One of them is then from another topic-partition, or the topic was recreated. ``table`` has every column of the
    dump, because a record consists of key, value, timestamp and headers.
    """
    import numpy as np

    offsets = table.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    first, second = gathered(table, order[again]), gathered(table, order[again + 1])
    for name in table.column_names:
        differ = _differ(first.column(name), second.column(name))
        if len(differ):
            raise DumpError(
                f"{part.topic}:{part.partition}: two rows have offset {ordered[again[differ[0]]]}, but differ in "
                f"their {name}",
                hint=f"{NEW_DUMP}, because this one mixes two topics, or a topic was deleted and recreated",
            )


def gathered(table: pa.Table, indices: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows at ``indices``, in that order."""
    import pyarrow as pa

    if table.nbytes <= _BLOCK_BYTES:
        return table.combine_chunks().take(indices)
    # Half of the limit, because rows differ in size, and each block must stay below the limit.
    block = max(1, int(table.num_rows * (_BLOCK_BYTES // 2) // table.nbytes))
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        wide = column
        if name in (*_BINARY, "headers"):
            # With 64-bit positions one chunk can have the whole column. Each block is small enough for 32 bits again.
            wide = column.cast(_wide(name))
        wide = wide.combine_chunks()
        chunks = [wide.take(indices[at : at + block]).cast(column.type) for at in range(0, len(indices), block)]
        columns[name] = pa.chunked_array(chunks, column.type)
    return pa.table(columns)


def _wide(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "headers":
        return pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    if name in _BINARY:
        return pa.large_binary()
    return column_type(name)


def _differ(first: pa.ChunkedArray, second: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows in which two columns differ."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(first.type):
        # Arrow cannot compare lists. In Kafka, null headers and an empty list of headers are the same.
        pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
        return np.flatnonzero([(a or []) != (b or []) for a, b in pairs])
    equal = pc.fill_null(pc.equal(first, second), False)
    # For Arrow, null compared with null is null. But two tombstones are equal.
    both_null = pc.and_(pc.is_null(first), pc.is_null(second))
    return np.flatnonzero(~np.asarray(pc.or_(equal, both_null)))


_COLUMNS: Final = ("key", "value", "timestamp")
_MOST_PIECES: Final = 4
"""The most pieces that are searched for a record. In a shuffled dump every row group may have it."""


def record_digest(key: bytes | None, value: bytes | None, timestamp: int) -> str:
    """Return the SHA-256, in hex, of ``timestamp:i64 ‖ field(key) ‖ field(value)``.

    ``field`` is ``length:i32 ‖ bytes``, with the length -1 for null; integers are big-endian. The timestamp is in ms,
    -1 for none. Headers are not included, because not every dump has them.
    """
    digest = hashlib.sha256(timestamp.to_bytes(8, "big", signed=True))
    for field in (key, value):
        # The length comes before the bytes, so that different records never give the same bytes, such as an empty value
        # and null.
        length = -1 if field is None else len(field)
        digest.update(length.to_bytes(4, "big", signed=True))
        digest.update(field or b"")
    return digest.hexdigest()


def key_digest(key: bytes | None) -> str:
    """Return SHA-256 of a key, in hex; 64 zeros for a record without a key."""
    if key is None:
        return "0" * 64
    return hashlib.sha256(key).hexdigest()


def digest_at(filesystem: FileSystem, partition: PartitionDump, offset: int) -> str | None:
    """Return the digest of the record at an offset.

    None if the dump has no record there, or if too many pieces may have it.

    Raises DumpError if the dump cannot be read.
    """
    reading = partition.reading
    if reading is not None and reading.last_record_sha256 is not None and offset == partition.last:
        return reading.last_record_sha256
    pieces = tuple(piece for piece in partition.pieces if piece.first <= offset <= piece.last)
    if not pieces or len(pieces) > _MOST_PIECES:
        return None
    rows, size = sum(piece.own for piece in pieces), sum(piece.share for piece in pieces)
    part = Slice(partition.topic, partition.partition, 0, pieces, offset, offset, rows, size, ordered=False)
    records: list[dict[str, Any]] = read_slice(part, _COLUMNS, filesystem).to_pylist()
    if not records:
        # Compaction has removed the record, or the offset is that of a transaction marker.
        return None
    return record_digest(records[0]["key"], records[0]["value"], records[0]["timestamp"])
