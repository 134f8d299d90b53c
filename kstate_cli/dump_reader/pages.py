"""Compare the pages of Parquet files with their footers, before any page is decompressed.

kstate plans memory and slices with the sizes in the footers. But pages may be larger than the footer states, and a
dictionary may repeat a large value for every row. So the headers of the pages are read first, which have the sizes that
pyarrow will decompress and the numbers of values. Only if a dictionary could expand to much, its entries are read too.

Only files of this host are compared. In a bucket, the header of each page would be a request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import PageHeader, parse_page_header
from kstate_cli.limits import LEAST_EXPANDED_BYTES, MIB, MOST_EXPANSION, MOST_PAGE_HEADER_BYTES
from kstate_cli.texts import plural, size_text

from .errors import DumpError, DumpRot, printable, unreadable
from .location import is_here
from .model import Piece
from .parquet_file import chunk_start, open_parquet

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

_HEADER_AT_ONCE: Final = 256
"""Bytes in which most headers of pages end."""
_RATIOS: Final = {"UNCOMPRESSED": 1, "SNAPPY": 32}
"""The most bytes that a compressed byte can become. Other codecs reach :data:`MOST_EXPANSION`."""
_TEXT: Final = "BYTE_ARRAY"
_SMALL_BYTES: Final = 64 * MIB
"""A dictionary that expands to so few bytes is not read."""
_ENTRY_BYTES: Final = 16
"""A value of a list beside its bytes: levels, and positions in arrays."""
_ROWS_AT_ONCE: Final = 1 << 16
_WITHOUT_DICTIONARY: Final = (
    "write the dump again without dictionary encoding (Spark: the option parquet.enable.dictionary=false)"
)


class Expansion:
    """The decoded bytes of row groups that are read together, and those that their footers state."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._stated = self._decoded = 0
        self._compared: set[tuple[str, Sequence[int], tuple[str, ...]]] = set()
        self._groups: set[tuple[str, int]] = set()

    def require(
        self, parquet: pq.ParquetFile, path: str, groups: Sequence[int], columns: Collection[str], stated: int
    ) -> None:
        """Add row groups, of which ``stated`` bytes are planned. Raise DumpError if they expand to far more.

        Raises DumpError for damaged headers of pages.
        """
        if not is_here(self._filesystem):
            return
        key = (path, tuple(groups), tuple(sorted(columns)))
        if key in self._compared:
            return
        self._stated += stated
        try:
            with self._filesystem.open_input_file(path) as stream:
                for leaf in _leaves(parquet, groups, columns):
                    self._add(parquet, path, stream, leaf)
        except (OSError, MalformedBytesError) as error:
            raise unreadable(path, error) from None
        # Only now: a refused read would pass if it were repeated.
        self._compared.add(key)

    def _add(self, parquet: pq.ParquetFile, path: str, stream: Any, leaf: _GroupColumn) -> None:
        chunk = leaf.chunk
        self._groups.add((path, leaf.group))
        self._decoded += chunk.num_values * _ENTRY_BYTES * leaf.repeats
        ratio = _RATIOS.get(chunk.compression)
        if ratio is not None and not chunk.has_dictionary_page:
            # No header can make it more.
            self._decoded += chunk.total_compressed_size * ratio
            return
        facts = _page_facts(stream, leaf)
        # No page is decompressed before this comparison.
        self._decoded += facts.bytes + facts.dictionary
        self._refuse(path, leaf, None)
        if leaf.is_text and facts.dictionary:
            self._decoded += self._dictionary_bytes(parquet, path, leaf, facts)
            self._refuse(path, leaf, _WITHOUT_DICTIONARY)

    def _refuse(self, path: str, leaf: _GroupColumn, hint: str | None) -> None:
        most = max(LEAST_EXPANDED_BYTES, MOST_EXPANSION * self._stated)
        if self._decoded > most:
            text = f"column {printable(leaf.chunk.path_in_schema)} of row group {leaf.group} expands"
            footers = "the file's footer states"
            if len(self._groups) > 1:
                text = f"{plural(len(self._groups), 'row group')} that kstate reads together expand"
                footers = "their footers state"
            raise DumpError(
                f"{text} to at least {size_text(self._decoded)}, but {footers} {size_text(self._stated)}. kstate reads "
                f"at most {size_text(most)}",
                where=printable(path),
                hint=hint,
            )

    def _dictionary_bytes(self, parquet: pq.ParquetFile, path: str, leaf: _GroupColumn, facts: _PageFacts) -> int:
        """Return the bytes of the values that refer to a dictionary, or more than these."""
        fine = max(_SMALL_BYTES, leaf.chunk.total_uncompressed_size)
        most = facts.dictionary * facts.in_dictionary
        if most <= fine:
            return most
        with open_parquet(self._filesystem, path, [leaf.chunk.path_in_schema], metadata=parquet.metadata) as file:
            lengths = _lengths(file, leaf)
            # Without a value in the first row, the array has no dictionary.
            if lengths is None:
                return most
            largest = int(lengths.max())
            most = min(most, largest * facts.in_dictionary)
            if most <= fine:
                return most
            if leaf.repeats and facts.in_dictionary < facts.values:
                # pyarrow cannot read a list whose values are partly in a dictionary.
                return most if largest > MIB else most // largest * (facts.dictionary // max(len(lengths), 1) + 1)
            return sum(_decoded_bytes(file, leaf))


@dataclass(frozen=True, slots=True)
class _GroupColumn:
    """A column in one row group."""

    group: int
    chunk: pq.ColumnChunkMetaData
    is_text: bool
    repeats: bool
    """Whether a record may have several values."""


@dataclass(slots=True)
class _PageFacts:
    """The pages of a column of a row group, by their headers. Sizes are uncompressed."""

    bytes: int = 0
    values: int = 0
    """With nulls; more than the rows if a record has several."""
    in_dictionary: int = 0
    """The values of pages that refer to the dictionary."""
    dictionary: int = 0
    """Bytes of the dictionary; 0 without one."""


def check_pages(filesystem: FileSystem, pieces: Iterable[Piece], columns: Collection[str]) -> None:
    """Raise DumpError if pieces that another program will read expand to far more than the footers state."""
    import pyarrow as pa

    if not is_here(filesystem):
        return
    for piece in pieces:
        # Damage is left to that program, which reads all bytes.
        with suppress(DumpRot, OSError, pa.ArrowException), open_parquet(filesystem, piece.path) as parquet:
            Expansion(filesystem).require(parquet, piece.path, piece.row_groups, columns, piece.bytes)


def _leaves(parquet: pq.ParquetFile, groups: Sequence[int], columns: Collection[str]) -> Iterator[_GroupColumn]:
    schema = parquet.schema
    described = [
        (number, column.physical_type == _TEXT, column.max_repetition_level > 0)
        for number, column in ((number, schema.column(number)) for number in range(len(schema)))
        if column.path.partition(".")[0] in columns
    ]
    for group in groups:
        metadata = parquet.metadata.row_group(group)
        for number, is_text, repeats in described:
            yield _GroupColumn(group, metadata.column(number), is_text, repeats)


def _page_facts(stream: Any, leaf: _GroupColumn) -> _PageFacts:
    """Read the headers of all pages of a column chunk. Raise OSError and MalformedBytesError.

    pyarrow refuses pages whose bytes do not have the sizes in their headers.
    """
    facts = _PageFacts()
    start = chunk_start(leaf.chunk)
    for page in _page_headers(stream, start, start + leaf.chunk.total_compressed_size):
        if page.is_dictionary:
            facts.dictionary += page.uncompressed
        elif page.is_data:
            facts.bytes += page.uncompressed
            facts.values += page.values
            facts.in_dictionary += page.values * page.needs_dictionary
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
        yield page


def _lengths(file: pq.ParquetFile, leaf: _GroupColumn) -> Any:
    """Return the length of each entry of a dictionary; None if the first row has no value."""
    import pyarrow.compute as pc

    # Any row comes with the whole dictionary.
    for batch in file.iter_batches(1, row_groups=[leaf.group], columns=[leaf.chunk.path_in_schema], use_threads=False):
        array = _values(batch.column(0))
        if array is None or not len(array.dictionary):
            return None
        return pc.binary_length(array.dictionary).to_numpy(zero_copy_only=False)
    return None


def _decoded_bytes(file: pq.ParquetFile, leaf: _GroupColumn) -> Iterator[int]:
    """Yield the bytes of the values of a column, once its dictionary is decoded, batch by batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in file.iter_batches(
        _ROWS_AT_ONCE, row_groups=[leaf.group], columns=[leaf.chunk.path_in_schema], use_threads=False
    ):
        array = _values(batch.column(0))
        if array is not None:
            lengths = pc.binary_length(array.dictionary).cast(pa.int64())
            yield pc.sum(lengths.take(array.indices)).as_py() or 0


def _values(array: pa.Array) -> pa.DictionaryArray | None:
    """Return the values in an array of lists and structs with a single field; None if they are no dictionary."""
    import pyarrow as pa

    while not pa.types.is_dictionary(array.type):
        if pa.types.is_struct(array.type) and array.type.num_fields == 1:
            array = array.field(0)
        elif pa.types.is_list(array.type):
            array = array.values
        else:
            return None
    return array
