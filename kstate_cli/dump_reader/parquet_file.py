"""Open Parquet files whose footers respect the limits, and describe no bytes outside of the file.

pyarrow reads a footer of any size, ends the process at some contradictions, and would read the same bytes for several
columns. So kstate reads the footer first, and gives it to pyarrow only after it was checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import FooterLimitError, check_footer
from kstate_cli.limits import MOST_FOOTER_BYTES, MOST_GROUP_ROWS
from kstate_cli.texts import size_text

from .errors import SMALLER_GROUPS, DumpError, printable
from .location import is_here

if TYPE_CHECKING:
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
_CHECKED: Final[set[bytes]] = set()
"""The digests of footers without a defect, with the sizes of their files."""
_MOST_CHECKED: Final = 100_000


@contextmanager
def open_parquet(
    filesystem: FileSystem,
    path: str,
    dictionaries: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, and close it at the end of the block. Raise as :func:`opened_parquet`."""
    parquet = opened_parquet(filesystem, path, dictionaries, metadata)
    try:
        yield parquet
    finally:
        # With force, the stream is closed too, and not only the reader.
        parquet.close(force=True)


def opened_parquet(
    filesystem: FileSystem,
    path: str,
    dictionaries: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> pq.ParquetFile:
    """Open a Parquet file. INT96 is read as microseconds, which cover every timestamp of Kafka.

    ``dictionaries``: paths of columns that are read as dictionaries. ``metadata``: its checked footer.

    Raises DumpError if the file is encrypted or exceeds a limit, or if pyarrow would end the process at its footer;
    OSError and ArrowException for other damage.
    """
    import pyarrow.parquet as pq

    stream = filesystem.open_input_file(path)
    try:
        if metadata is None:
            metadata = _checked_metadata(stream, path)
        return pq.ParquetFile(
            stream,
            # Already read: in a bucket each read is a request.
            metadata=metadata,
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
    except BaseException:
        stream.close()
        raise


def _checked_metadata(stream: Any, path: str) -> pq.FileMetaData | None:
    """Return the footer of a file; None if it has none. Raises as :func:`opened_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = stream.size()
    tail = _footer(stream, path, size)
    footer = tail[:-_TAIL_BYTES]
    if not footer:
        return None
    # Each file of a dump is opened several times, and the check takes as long as opening a small one.
    digest = hashlib.sha256(tail + size.to_bytes(8, "little")).digest()
    is_checked = digest in _CHECKED
    if not is_checked:
        # A signature follows the footer of a file with encrypted columns: the struct ends before it.
        _check_footer(footer, path)
    metadata = pq.read_metadata(pa.BufferReader(tail))
    if not is_checked:
        # Checked before any column is read, because pyarrow does not raise an exception for an encrypted column.
        if len(footer) - metadata.serialized_size == _SIGNATURE_BYTES:
            raise _encrypted(path)
        _check_groups(metadata, path, size - len(tail))
        if len(_CHECKED) >= _MOST_CHECKED:
            _CHECKED.clear()
        _CHECKED.add(digest)
    return metadata


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
            f"the file's footer has {size_text(size)}, but kstate reads at most {size_text(MOST_FOOTER_BYTES)}",
            where=printable(path),
            hint=SMALLER_GROUPS,
        )
    if size + _TAIL_BYTES > length:
        tail = stream.read_at(size + _TAIL_BYTES, file_size - _TAIL_BYTES - size)
    return tail[-_TAIL_BYTES - size :]


def _check_footer(footer: bytes, path: str) -> None:
    try:
        check_footer(footer)
    except MalformedBytesError as error:
        hint = SMALLER_GROUPS if isinstance(error, FooterLimitError) else None
        raise DumpError(f"kstate cannot read the file as Parquet: {error}", where=printable(path), hint=hint) from None


def _encrypted(path: str) -> DumpError:
    return DumpError(
        "the file is encrypted (Parquet modular encryption), which kstate does not support",
        where=printable(path),
        hint="write the dump again without Parquet encryption. To encrypt it, use an encrypted disk or bucket",
    )


def _check_groups(metadata: pq.FileMetaData, path: str, size: int) -> None:
    """Raise DumpError for a row group that cannot exist in the ``size`` bytes before a footer, or exceeds a limit.

    A small file whose columns share bytes could have any number of rows.
    """
    stored = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        # Writers state anything about the columns of an empty row group.
        if not group.num_rows:
            continue
        if not 0 <= group.num_rows <= MOST_GROUP_ROWS:
            raise DumpError(
                f"row group {index} has {group.num_rows:,} rows, but kstate reads at most {MOST_GROUP_ROWS:,}",
                where=printable(path),
                hint="write the dump again with smaller row groups",
            )
        for number in range(group.num_columns):
            chunk = group.column(number)
            compressed = chunk.total_compressed_size
            stored += compressed
            start = chunk_start(chunk)
            if min(compressed, chunk.total_uncompressed_size, start) < 0 or max(start + compressed, stored) > size:
                raise DumpError(
                    f"column {printable(chunk.path_in_schema)} of row group {index} is outside the file, or shares "
                    "bytes with another column",
                    where=printable(path),
                )


def chunk_start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the offset in the file at which pyarrow begins to read a column of a row group."""
    start: int = chunk.data_page_offset
    # Some writers state 0 for a dictionary that does not exist.
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start
