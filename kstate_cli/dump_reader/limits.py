"""The limits of a dump: how much kstate reads of a file that another program wrote.

A dump may come from anywhere, and a few bytes can claim or expand to terabytes. So everything that a command must hold
in memory as a whole has a limit here, far above the dumps of real writers. A limit is compared with the facts of the
dump before anything is decompressed, and again while pages are read, because the facts of a footer may be wrong
(:mod:`.batches`).

The limits of a schema and of the lists of a footer are in :mod:`kstate_cli.formats.parquet_footer`, which reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.parquet_footer import MOST_COLUMNS, MOST_LEVELS
from kstate_cli.texts import size_text

from .errors import DumpError, printable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["MOST_COLUMNS", "MOST_LEVELS"]

_MIB: Final = 1 << 20

MOST_FILES: Final = 1_000_000
"""Files and folders of a dump, without those that only older generations have."""
MOST_FOLDER_LEVELS: Final = 100
"""The most levels of folders. With more levels it is a loop, or not a dump."""
MOST_FOOTER_BYTES: Final = 64 * _MIB
"""A footer. One of this size has more than 50,000 row groups."""
MOST_GROUP_ROWS: Final = MAX_I32
"""Rows of a row group. Writers have at most some millions."""
MOST_CHUNK_BYTES: Final = 1 << 40
"""A column of a row group, uncompressed. Writers have at most some GiB."""
MOST_EXPANDED_BYTES: Final = 64 << 30
"""Row groups of a file that are read together, decoded. Larger ones may have :data:`MOST_EXPANSION` times their size in
the file.
"""
MOST_EXPANSION: Final = 100_000
"""Decoded bytes of a byte in the file. Real records differ in their keys, so they stay far below."""
MOST_PAGES: Final = 1_000_000
"""Pages of a column of a row group."""
MOST_PAGE_HEADER_BYTES: Final = 16 * _MIB
"""The header of a page, which may have statistics. pyarrow has the same limit."""
MOST_HEADERS: Final = 1 << 27
"""Headers of the records of a row group. The headers of a batch cannot be read in parts."""
MOST_HEADERS_BYTES: Final = 2 << 30
"""Names or values of the headers of a row group, uncompressed. A record of Kafka has at most 2 GiB."""
MOST_MANIFEST_BYTES: Final = 256 * _MIB
"""A manifest, or a commit of a table, which is read as a whole. One of this size lists more than a million files."""
MOST_MANIFEST_VALUES: Final = 20_000_000
"""Elements and members in it: each takes about 100 bytes of memory, even if it has three bytes in the file."""
MOST_TABLE_BYTES: Final = 4 << 30
"""Memory of the process that reads the log of a table (Delta Lake, Iceberg)."""
MOST_TABLE_SECONDS: Final = 600
"""Processor time of that process."""

SMALLER_GROUPS: Final = "write the dump again with smaller row groups, or pass another dump"


def check_groups(metadata: pq.FileMetaData, path: str, size: int) -> None:
    """Raise DumpError for a row group that cannot exist in the ``size`` bytes before a footer, or exceeds a limit.

    pyarrow would read the same bytes for several columns, so a small file could have any number of rows.
    """
    stored = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if not 0 <= group.num_rows <= MOST_GROUP_ROWS:
            raise DumpError(
                f"row group {index} has {group.num_rows:,} rows, but kstate reads at most {MOST_GROUP_ROWS:,}",
                where=printable(path),
                hint=SMALLER_GROUPS,
            )
        for number in range(group.num_columns):
            chunk = group.column(number)
            compressed, uncompressed = chunk.total_compressed_size, chunk.total_uncompressed_size
            stored += compressed
            start = chunk_start(chunk)
            if compressed < 0 or uncompressed < 0 or start < 0 or start + compressed > size or stored > size:
                raise DumpError(
                    f"column {printable(chunk.path_in_schema)} of row group {index} is outside of the file, or shares "
                    "bytes with another column",
                    where=printable(path),
                )
            if uncompressed > MOST_CHUNK_BYTES:
                raise DumpError(
                    f"column {printable(chunk.path_in_schema)} of row group {index} has {size_text(uncompressed)} "
                    f"uncompressed, but kstate reads at most {size_text(MOST_CHUNK_BYTES)}",
                    where=printable(path),
                    hint=SMALLER_GROUPS,
                )


def chunk_start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the offset in the file at which pyarrow begins to read a column of a row group."""
    start: int = chunk.data_page_offset
    # Some writers state 0 for a dictionary that does not exist.
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start


def check_values(data: bytes, where: str, noun: str) -> None:
    """Raise DumpError for a JSON text with so many values that Python would need gigabytes for them."""
    # Each element or member follows one of these characters. Those in texts count too, which are few.
    count = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    if count > MOST_MANIFEST_VALUES:
        raise DumpError(
            f"the {noun} has about {count:,} values, but kstate reads at most {MOST_MANIFEST_VALUES:,}",
            where=printable(where),
        )
