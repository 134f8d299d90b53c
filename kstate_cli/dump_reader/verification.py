"""Read files of a dump in full and compare them with the manifest, to find damage before a restoration meets it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.host import cores_here
from kstate_cli.signals import mapped

from .errors import DumpError, DumpRot, printable, rot, unreadable
from .footers import bytes_of, require_headers, require_within, row_batches, trusted_bounds
from .growing_source import newest_manifest
from .location import open_location, uri_text
from .model import Dump, Grown
from .open import read_dump
from .pages import Expansion
from .parquet_file import open_parquet
from .schema import RECORD_COLUMNS
from .sources import check_digest

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ROWS: Final = 8_192
_MOST_NAMES: Final = 5
MISSING: Final = "missing"
"""A file that the manifest names does not exist, or has another size."""
ROT: Final = DumpRot.code
"""The bytes of a file are not those that were written."""
UNREADABLE: Final = "unreadable"
"""The system cannot read the file, so nothing is known about its bytes."""


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file to verify: its path relative to the dump, and its size and digest in the manifest."""

    relative: str
    path: str
    size: int | None = None
    sha256: str | None = None

    def part(self, parts: int) -> int:
        """Return the number (from 1) of the part that the file belongs to, if all files are divided into ``parts``."""
        # The name decides and not the position, so that a new file does not move other files to other parts.
        return int.from_bytes(hashlib.sha256(self.relative.encode()).digest()[:8], "big") % parts + 1


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A file that is damaged, missing or unreadable, with the message."""

    file: DumpFile
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class FilesOfDump:
    """All files of a dump, also those of older full dumps."""

    uri: str
    files: tuple[DumpFile, ...]
    generation: int | None
    """The generation of the manifest; None for a dump that does not grow."""


def files_of_dump(uri: str) -> FilesOfDump:
    """Return the files that the newest manifest names; without a manifest, all Parquet files.

    Raises DumpError and UsageError, as :func:`read_dump`, but not for files that are missing from a dump that grows.
    """
    filesystem, root = open_location(uri)
    grown = newest_manifest(filesystem, root, uri_text(uri))
    if grown is not None:
        return FilesOfDump(uri, _grown_files(grown, root.rstrip("/")), grown.generation)
    return FilesOfDump(uri, files_to_read(read_dump(uri, complete=True, committed_only=False)), None)


def _grown_files(grown: Grown, base: str) -> tuple[DumpFile, ...]:
    return tuple(
        DumpFile(file.path, f"{base}/{file.path}", file.size, file.sha256)
        for full in grown.fulls
        for file in full.files
    )


def files_to_read(dump: Dump) -> tuple[DumpFile, ...]:
    """Return the files that have rows which a restoration may read."""
    root = open_location(dump.uri)[1].rstrip("/")
    by_path = {
        f"{root}/{file.path}": DumpFile(file.path, f"{root}/{file.path}", file.size, file.sha256)
        for file in dump.manifest_files
    }
    paths = {piece.path for partition in dump.partitions.values() for piece in partition.pieces}
    # Without a manifest there is no digest to compare. Then every page is decoded.
    return tuple(by_path.get(path) or DumpFile(path.removeprefix(f"{root}/"), path) for path in sorted(paths))


def verify_files(
    uri: str, files: Iterable[DumpFile], read: Callable[[DumpFile, FileFinding | None], None] | None = None
) -> list[FileFinding]:
    """Read these files and return those that are damaged, missing or unreadable; ``read`` is called after each."""
    filesystem, _ = open_location(uri)

    def judge(file: DumpFile) -> FileFinding | None:
        try:
            missing = _verify(filesystem, file)
            if missing is not None:
                return FileFinding(file, MISSING, missing)
            return None
        # DumpRot is a subclass of DumpError, so it is caught first. Only DumpRot means that the bytes are wrong.
        except DumpRot as error:
            return FileFinding(file, ROT, error.headline)
        except DumpError as error:
            return FileFinding(file, UNREADABLE, error.headline)

    def verify(file: DumpFile) -> FileFinding | None:
        finding = judge(file)
        if read is not None:
            read(file, finding)
        return finding

    with ThreadPoolExecutor(cores_here(), thread_name_prefix="verify") as pool:
        return [finding for finding in mapped(pool, verify, files) if finding is not None]


def _verify(filesystem: FileSystem, file: DumpFile) -> str | None:
    """Return why a file is missing or another one; None if its bytes are right.

    Raise DumpRot if its bytes are wrong, and DumpError if it cannot be read.
    """
    from pyarrow import fs

    try:
        status = filesystem.get_file_info(file.path)
    except OSError as error:
        raise unreadable(file.path, error) from None
    if status.type != fs.FileType.File:
        return "the file does not exist"
    # The size is compared first: it needs no reading, and shows the most frequent cause, a copy that was cut off.
    if file.size is not None and status.size != file.size:
        return f"the file has {status.size:,} B, but the manifest records {file.size:,} B"
    if file.sha256 is not None:
        check_digest(filesystem, file.path, file.sha256)
    else:
        _decode(filesystem, file.path)
    return None


def _decode(filesystem: FileSystem, path: str) -> None:
    """Decode every page of the columns that kstate reads, and compare rows with the statistics that kstate trusts.

    Without a digest, damage inside of a value is not found.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        with open_parquet(filesystem, path) as parquet:
            # Only these columns, because a restoration reads no others.
            names = [name for name in (*RECORD_COLUMNS, "topic", "partition") if name in parquet.schema_arrow.names]
            has_headers = "headers" in names and not pa.types.is_null(parquet.schema_arrow.field("headers").type)
            for index in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(index)
                bounds, headers = trusted_bounds(group) or {}, 0
                Expansion(filesystem).require(parquet, path, [index], names, bytes_of(group, names))
                for table in row_batches(parquet, path, _ROWS, [index], names):
                    require_within(bounds, table, path, index)
                    if has_headers:
                        lengths = pc.fill_null(pc.list_value_length(table.column("headers")), 0)
                        headers += pc.sum(pc.max_element_wise(lengths, 1)).as_py()
                if has_headers:
                    require_headers(group, headers, path, index)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def refuse_damaged(dump: Dump) -> None:
    """Read every file of an open dump that a restore may read. Raise DumpRot, or DumpError, for the first bad one."""
    refuse_damaged_files(dump.uri, files_to_read(dump))


def refuse_damaged_files(uri: str, files: Iterable[DumpFile]) -> None:
    """Read these files of a dump. Raise DumpRot or DumpError for the first damaged one, with the others as details."""
    findings = verify_files(uri, files)
    if not findings:
        return
    first, message = findings[0], findings[0].message
    others = [f"{printable(finding.file.relative)}: {finding.message}" for finding in findings[1:_MOST_NAMES]]
    error = DumpError(message, where=printable(first.file.path))
    if first.code == ROT:
        error = rot(first.file.path, message)
    error.add_details(others)
    raise error
