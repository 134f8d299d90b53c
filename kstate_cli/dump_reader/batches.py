"""Open Parquet files, and read their rows in batches whose size is limited whatever the file states.

pyarrow limits the rows of a batch, but not its bytes. A value may be a million times as large as the average that the
footer states, and a dictionary may repeat a large value for every row. So kstate first reads the headers of the pages,
which have the sizes that pyarrow will decompress (:func:`page_facts`). The page with the largest rows decides how many
rows a batch has. If a dictionary has too large values for that, pyarrow reads the rows as numbers of its entries. Then
:func:`iter_tables` yields as few rows at once as their decoded values allow.

kstate reads the headers of pages only from files of this host. In a bucket, each of them would be a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import PageHeader, check_footer, parse_page_header
from kstate_cli.texts import size_text

from .errors import DumpError, printable, unreadable
from .limits import (
    MOST_EXPANDED_BYTES,
    MOST_EXPANSION,
    MOST_FOOTER_BYTES,
    MOST_HEADERS,
    MOST_HEADERS_BYTES,
    MOST_PAGE_HEADER_BYTES,
    MOST_PAGES,
    SMALLER_GROUPS,
    check_groups,
    chunk_start,
)
from .location import is_here

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

_TAIL_BYTES: Final = 8
"""The bytes at the end of a file: the length of the footer, and the magic number."""
_ENCRYPTED_FOOTER: Final = b"PARE"
_PLAIN_FOOTER: Final = b"PAR1"
_FOOTER_AT_ONCE: Final = 1 << 16
"""Bytes at the end of a file, as many as pyarrow reads at first."""
_SIGNATURE_BYTES: Final = 28
"""The nonce and the tag after a plaintext footer show that columns are encrypted. Without keys, pyarrow would then
crash.
"""
_BUFFER_BYTES: Final = 1 << 20
"""The buffer of a local file."""
_HEADER_AT_ONCE: Final = 256
"""Bytes in which most headers of pages end."""
BATCH_LIMIT: Final = 256 << 20
"""Decoded bytes of a column of a batch. Larger rows are read one by one."""
_LIES: Final = 64
"""The pages of a column may have so many times the bytes that its footer states: some writers state compressed bytes.

Free space and memory are planned with the bytes in the footer.
"""
_LEAST_LIE: Final = 1 << 30
_RATIOS: Final = {"UNCOMPRESSED": 1, "SNAPPY": 32, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 1_100, "ZSTD": 33_000}
"""The most bytes that a compressed byte can become. Codecs that are missing here have no useful limit."""
_ENTRY_BYTES: Final = 16
"""A header of a record beside its name and value: levels, and positions in arrays."""
_VARIABLE: Final = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


@contextmanager
def open_parquet(filesystem: FileSystem, path: str, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, and close it at the end of the block. Raise as :func:`opened_parquet`."""
    parquet = opened_parquet(filesystem, path, dictionaries)
    try:
        yield parquet
    finally:
        # With force, the stream is closed too, and not only the reader.
        parquet.close(force=True)


def opened_parquet(filesystem: FileSystem, path: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file. INT96 is read as microseconds, which cover every timestamp of Kafka.

    ``dictionaries``: paths of columns that are read as dictionaries. Raises DumpError if the file is encrypted or
    exceeds a limit, MalformedBytesError if pyarrow would end the process at its footer, OSError and ArrowException for
    other damage.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = filesystem.open_input_file(path)
    try:
        size = stream.size()
        tail = _footer(stream, path, size)
        digest = hashlib.sha256(tail + size.to_bytes(8, "little")).digest()
        footer = tail[:-_TAIL_BYTES]
        # Each file of a dump is opened several times, and the check takes as long as opening a small one.
        is_checked = digest in _CHECKED
        if footer and not is_checked:
            # A signature follows the footer of a file with encrypted columns: the struct ends before it.
            check_footer(footer)
        parquet = pq.ParquetFile(
            stream,
            # Already read: in a bucket each read is a request.
            metadata=pq.read_metadata(pa.BufferReader(tail)) if footer else None,
            # The default, nanoseconds, ends in the year 2262, and overflows silently.
            coerce_int96_timestamp_unit="us",
            # Pre-buffering would read all column chunks of a call into memory, whatever their size.
            pre_buffer=False,
            # Without a buffer, pyarrow keeps a whole column chunk in memory. But in a bucket each read is a request, so
            # 0 is better there.
            buffer_size=_BUFFER_BYTES if is_here(filesystem) else 0,
            # Compares checksums of pages if the writer has stored them. Without checksums, pages are read unverified.
            page_checksum_verification=True,
            read_dictionary=[*dictionaries],
        )
        if not is_checked:
            # Checked before any column is read, because pyarrow does not raise an exception for an encrypted column.
            if len(footer) - parquet.metadata.serialized_size == _SIGNATURE_BYTES:
                raise _encrypted(path)
            check_groups(parquet.metadata, path, size - len(tail))
            if len(_CHECKED) >= _MOST_CHECKED:
                _CHECKED.clear()
            _CHECKED.add(digest)
    except BaseException:
        stream.close()
        raise
    _SOURCES[parquet] = _Source(filesystem, path, stream)
    return parquet


_CHECKED: Final[set[bytes]] = set()
"""The digests of footers without a defect, with the sizes of their files."""
_MOST_CHECKED: Final = 100_000


def _footer(stream: Any, path: str, file_size: int) -> bytes:
    """Return the footer of a file, with its length and the magic number; only these if they state no footer.

    Raises DumpError if the footer is encrypted or too large.
    """
    # In a bucket a read is a request: one is enough for most footers.
    length = min(file_size, _FOOTER_AT_ONCE)
    tail: bytes = stream.read_at(length, file_size - length)
    if tail[-4:] == _ENCRYPTED_FOOTER:
        raise _encrypted(path)
    size = int.from_bytes(tail[-_TAIL_BYTES:-4], "little")
    # Without this magic number, or within so few bytes, the file has no footer: pyarrow states that.
    if tail[-4:] != _PLAIN_FOOTER or size + _TAIL_BYTES > file_size:
        return tail[-_TAIL_BYTES:]
    if size > MOST_FOOTER_BYTES:
        raise DumpError(
            f"the footer of the file has {size_text(size)}, but kstate reads at most {size_text(MOST_FOOTER_BYTES)}",
            where=printable(path),
            hint="write the dump again with smaller files, or pass another dump",
        )
    if size + _TAIL_BYTES > length:
        tail = stream.read_at(size + _TAIL_BYTES, file_size - _TAIL_BYTES - size)
    return tail[-_TAIL_BYTES - size :]


def _encrypted(path: str) -> DumpError:
    return DumpError(
        "the file is encrypted (Parquet modular encryption), which kstate does not support",
        where=printable(path),
        hint="write the dump again without Parquet encryption. To encrypt it, use an encrypted disk or bucket",
    )


@dataclass(slots=True)
class PageFacts:
    """The pages of a column of a row group, by their headers. Sizes are uncompressed."""

    bytes: int = 0
    values: int = 0
    """The number of values, with nulls; more than the rows if a record has several."""
    most_bytes: int = 0
    """Bytes of a value, in the page with the largest average."""
    dictionary: int = 0
    """Bytes of the dictionary; 0 without one."""
    all_in_dictionary: bool = True
    """Whether no page has values of its own, as writers write them once a dictionary is too large."""


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """How to read some columns of a row group."""

    rows: int
    """Rows of a batch."""
    dictionaries: tuple[str, ...]
    """Columns that are read as dictionaries."""
    bytes: int = field(compare=False)
    """The most bytes that a batch may take: of rows that are all as large as the average of a page, and of those that
    repeat the largest entry of a dictionary.
    """


@dataclass(frozen=True, slots=True)
class _FileColumn:
    """A column of a file that has values."""

    number: int
    path: str
    is_variable: bool
    """Whether its values differ in size, or may be large."""
    fixed: int
    """The size of each value; 0 if they differ."""
    repeats: bool
    """Whether a record may have several values."""


@dataclass(frozen=True, slots=True)
class _GroupColumn:
    """A column in one row group."""

    column: _FileColumn
    group: int
    chunk: pq.ColumnChunkMetaData

    @property
    def path(self) -> str:
        """The path of the column in the schema."""
        return self.column.path


@dataclass(slots=True)
class _Source:
    """Where an open file is, and its columns: it may have thousands of row groups."""

    filesystem: FileSystem
    path: str
    stream: Any
    columns: tuple[_FileColumn, ...] | None = None


_SOURCES: Final[WeakKeyDictionary[pq.ParquetFile, _Source]] = WeakKeyDictionary()


def _columns_of(parquet: pq.ParquetFile) -> tuple[_FileColumn, ...]:
    columns = _SOURCES[parquet].columns
    if columns is None:
        schema = parquet.schema
        described = (schema.column(number) for number in range(len(schema)))
        columns = tuple(
            _FileColumn(
                number,
                column.path,
                column.physical_type in _VARIABLE,
                column.length if column.physical_type == _VARIABLE[1] else 0,
                column.max_repetition_level > 0,
            )
            for number, column in enumerate(described)
        )
        _SOURCES[parquet].columns = columns
    return columns


def iter_tables(
    parquet: pq.ParquetFile, row_groups: Sequence[int], columns: Sequence[str], rows: int
) -> Iterator[pa.Table]:
    """Yield these columns of row groups in tables of at most ``rows`` rows.

    A column of a table has at most :data:`BATCH_LIMIT` decoded bytes, or one page more. Raises DumpError for damage
    and limits, and OSError and ArrowException of pyarrow.
    """
    stored = sum(leaf.chunk.total_compressed_size for index in row_groups for leaf in _leaves(parquet, index, columns))
    most = max(MOST_EXPANDED_BYTES, MOST_EXPANSION * stored)
    size = 0
    for table in _tables_in_groups(parquet, row_groups, columns, rows):
        size += table.nbytes
        if size > most:
            raise DumpError(
                f"{size_text(stored)} of the file expand to more than {size_text(most)}, which is the most that kstate "
                "reads",
                where=printable(_SOURCES[parquet].path),
            )
        yield table


def _tables_in_groups(
    parquet: pq.ParquetFile, row_groups: Sequence[int], columns: Sequence[str], rows: int
) -> Iterator[pa.Table]:
    import pyarrow as pa

    if not is_here(_SOURCES[parquet].filesystem):
        for batch in parquet.iter_batches(rows, row_groups=[*row_groups], columns=[*columns], use_threads=False):
            yield pa.Table.from_batches([batch])
        return
    # Adjacent row groups that are read in the same way are read with one call, but only small ones: a batch may have
    # the rows of all of them.
    groups: list[int] = []
    plan: _ReadPlan | None = None
    size = 0
    for index in row_groups:
        following = _plan(parquet, index, columns, rows, is_single=len(row_groups) == 1)
        size += following.bytes
        if plan is not None and (following != plan or plan.dictionaries or size > BATCH_LIMIT):
            yield from _tables_of(parquet, groups, columns, plan)
            groups, size = [], following.bytes
        plan = following
        groups.append(index)
    if plan is not None:
        yield from _tables_of(parquet, groups, columns, plan)


def _tables_of(
    parquet: pq.ParquetFile, groups: list[int], columns: Sequence[str], plan: _ReadPlan
) -> Iterator[pa.Table]:
    import pyarrow as pa

    options = {"row_groups": groups, "columns": [*columns], "use_threads": False}
    if not plan.dictionaries:
        for batch in parquet.iter_batches(plan.rows, **options):
            yield pa.Table.from_batches([batch])
        return
    source = _SOURCES[parquet]
    with open_parquet(source.filesystem, source.path, plan.dictionaries) as with_dictionaries:
        for batch in with_dictionaries.iter_batches(plan.rows, **options):
            table = pa.Table.from_batches([batch])
            yield from _parts(table)


def decoded_bytes(parquet: pq.ParquetFile, row_groups: Sequence[int], columns: Sequence[str]) -> int:
    """Return the most bytes that columns of these row groups may take in memory, by the headers of their pages.

    In a bucket, where these are not read, return the bytes in the footer.
    """
    total = 0
    for index in row_groups:
        for leaf in _leaves(parquet, index, columns):
            facts = PageFacts(leaf.chunk.total_uncompressed_size)
            if is_here(_SOURCES[parquet].filesystem):
                facts = page_facts(parquet, leaf)
            # Numbers and times have small dictionaries.
            total += facts.bytes + facts.dictionary * facts.values * leaf.column.is_variable
    return total


def _leaves(parquet: pq.ParquetFile, index: int, columns: Sequence[str]) -> Iterator[_GroupColumn]:
    group = parquet.metadata.row_group(index)
    for column in _columns_of(parquet):
        if column.path.partition(".")[0] in columns:
            yield _GroupColumn(column, index, group.column(column.number))


def _plan(parquet: pq.ParquetFile, index: int, columns: Sequence[str], rows: int, *, is_single: bool) -> _ReadPlan:
    """Return how to read these columns of a row group in batches of at most ``rows`` rows.

    ``is_single``: no other row group is read with it.
    """
    in_group = max(parquet.metadata.row_group(index).num_rows, 1)
    most, together = rows, min(rows, in_group)
    dictionaries = []
    total = 0
    for leaf in _leaves(parquet, index, columns):
        if not leaf.column.is_variable and not leaf.column.repeats:
            continue
        chunk = leaf.chunk
        ratio = _RATIOS.get(chunk.compression)
        is_plain = not (chunk.has_dictionary_page or leaf.column.fixed or leaf.column.repeats)
        # Even if the codec expanded every byte as far as it can, all rows together would fit.
        if is_single and is_plain and ratio is not None and chunk.total_compressed_size * ratio <= BATCH_LIMIT:
            continue
        facts = page_facts(parquet, leaf)
        if leaf.column.repeats:
            _check_headers(facts, _SOURCES[parquet].path, leaf)
            # The headers of a record may take more than the average. All of them together are limited.
            size = facts.bytes + facts.values * _ENTRY_BYTES
            most = min(most, max(1, BATCH_LIMIT * in_group // max(size, 1)))
            values = facts.values
        else:
            each = max(facts.most_bytes, leaf.column.fixed, 1)
            most = min(most, max(1, BATCH_LIMIT // each))
            values = min(together, facts.values)
            size = each * together
        largest = facts.dictionary
        if largest * values > BATCH_LIMIT:
            # Only the values show how large the largest one is: usually a dictionary has many of them.
            largest = _largest_entry(parquet, leaf, facts.dictionary)
            if largest * values > BATCH_LIMIT:
                # pyarrow cannot read a list with two dictionaries, as which it would read the other values.
                if leaf.column.repeats and not facts.all_in_dictionary:
                    most = min(most, max(1, BATCH_LIMIT * in_group // (largest * values)))
                else:
                    dictionaries.append(leaf.path)
        total += size + largest * values
    return _ReadPlan(most, tuple(dictionaries), total)


def _check_headers(facts: PageFacts, path: str, leaf: _GroupColumn) -> None:
    """Raise DumpError if the headers of the records of a row group exceed a limit."""
    if facts.values > MOST_HEADERS:
        raise DumpError(
            f"the records of row group {leaf.group} have {facts.values:,} headers, but kstate reads at most "
            f"{MOST_HEADERS:,}",
            where=printable(path),
            hint=SMALLER_GROUPS,
        )
    if facts.bytes > MOST_HEADERS_BYTES:
        raise DumpError(
            f"the headers of row group {leaf.group} have {size_text(facts.bytes)} uncompressed, but kstate reads at "
            f"most {size_text(MOST_HEADERS_BYTES)}",
            where=printable(path),
            hint=SMALLER_GROUPS,
        )


def _largest_entry(parquet: pq.ParquetFile, leaf: _GroupColumn, most: int) -> int:
    """Return the size of the largest value in the dictionary of a column chunk; ``most`` if a read does not show it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if leaf.column.fixed:
        return leaf.column.fixed
    source = _SOURCES[parquet]
    with open_parquet(source.filesystem, source.path, [leaf.path]) as with_dictionary:
        # Any row comes with the whole dictionary.
        batches = with_dictionary.iter_batches(1, row_groups=[leaf.group], columns=[leaf.path], use_threads=False)
        for batch in batches:
            array = batch.column(0)
            while not pa.types.is_dictionary(array.type):
                if pa.types.is_struct(array.type) and array.type.num_fields == 1:
                    array = array.field(0)
                elif pa.types.is_list(array.type):
                    array = array.values
                else:
                    return most
            largest = pc.max(pc.binary_length(array.dictionary)).as_py()
            # Without a value in the first row, the array has no dictionary.
            return most if largest is None else int(largest)
    return most


def page_facts(parquet: pq.ParquetFile, leaf: _GroupColumn) -> PageFacts:
    """Read the headers of all pages of a column chunk. Raises DumpError for damage and limits.

    Sizes in the headers are those that pyarrow decompresses: it refuses pages with other ones.
    """
    facts, source = PageFacts(), _SOURCES[parquet]
    start = chunk_start(leaf.chunk)
    end = start + leaf.chunk.total_compressed_size
    try:
        for number, page in enumerate(_page_headers(source.stream, start, end)):
            if number == MOST_PAGES:
                raise DumpError(
                    f"column {printable(leaf.path)} of row group {leaf.group} has more than {MOST_PAGES:,} pages",
                    where=printable(source.path),
                    hint=SMALLER_GROUPS,
                )
            if page.is_dictionary:
                facts.dictionary = max(facts.dictionary, page.uncompressed)
            elif page.is_data:
                facts.bytes += page.uncompressed
                facts.values += page.values
                facts.all_in_dictionary &= page.needs_dictionary
                # A page without values has none that could be large.
                facts.most_bytes = max(facts.most_bytes, page.uncompressed // max(page.values, 1))
    except (OSError, MalformedBytesError) as error:
        raise unreadable(source.path, error) from None
    stated = leaf.chunk.total_uncompressed_size
    if facts.bytes + facts.dictionary > max(_LEAST_LIE, _LIES * stated):
        raise DumpError(
            f"column {printable(leaf.path)} of row group {leaf.group} has {size_text(facts.bytes + facts.dictionary)} "
            f"uncompressed, but the footer of the file states {size_text(stated)}",
            where=printable(source.path),
        )
    return facts


def _page_headers(stream: Any, start: int, end: int) -> Iterator[PageHeader]:
    """Yield the headers of the pages in a part of a file. Raise OSError and MalformedBytesError."""
    while start < end:
        length = _HEADER_AT_ONCE
        while True:
            data = stream.read_at(min(length, end - start), start)
            try:
                page = parse_page_header(data)
                break
            except MalformedBytesError:
                # Statistics of the page may make its header longer.
                if len(data) < length or length >= MOST_PAGE_HEADER_BYTES:
                    raise
                length *= 16
        start += page.length + page.compressed
        if start > end:
            raise MalformedBytesError("a page extends beyond the end of its column")
        yield page


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Decode the dictionaries of a table, in parts that the decoded bytes of their rows limit."""
    import numpy as np
    import pyarrow.compute as pc

    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.itercolumns():
        sizes += _row_sizes(column.combine_chunks())
    ends = np.cumsum(sizes)
    begin = 0
    while begin < table.num_rows:
        before = int(ends[begin - 1]) if begin else 0
        # One row at least, however large it is.
        end = max(begin + 1, int(np.searchsorted(ends, before + BATCH_LIMIT, side="right")))
        part = table.slice(begin, end - begin)
        for number, column in enumerate(table.schema):
            kind = _decoded_type(column.type)
            if kind != column.type:
                part = part.set_column(number, column.name, pc.cast(part.column(number), kind))
        yield part
        begin = end


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_decoded_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_decoded_type(field.type)) for field in kind])
    return kind


def _row_sizes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each element once dictionaries are decoded; other arrays are limited already."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).cast(pa.int64())
        sizes: npt.NDArray[np.int64] = pc.fill_null(lengths.take(array.indices), 0).to_numpy(zero_copy_only=False)
        return sizes
    if pa.types.is_struct(array.type):
        fields = [_row_sizes(field) for field in array.flatten()]
        return sum(fields, np.zeros(len(array), np.int64))
    if pa.types.is_list(array.type):
        ends: npt.NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(_row_sizes(array.values))])
        offsets = array.offsets.to_numpy()
        of_rows: npt.NDArray[np.int64] = ends[offsets[1:]] - ends[offsets[:-1]]
        return of_rows
    return np.zeros(len(array), np.int64)
