"""The location of a dump: a local path, or a URI that pyarrow reads; and the files and folders in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kstate_cli.deadline import contact
from kstate_cli.diagnosis import shown_uri
from kstate_cli.errors import UsageError
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.limits import MOST_DUMP_FILES, MOST_DUMP_LEVELS
from kstate_cli.regular_files import is_utf8, kind_of

from .errors import FEWER_FILES, NEW_DUMP, NOT_REACHED, DumpError, printable, unreadable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|file:")
# Hadoop calls these what pyarrow calls s3.
_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
_PARQUET: Final = (".parquet", ".parq", ".pq")
_MAGIC: Final = (b"PAR1", b"PARE")
_HIVE: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the dump: its path within the file system and relative to the dump, its size in bytes."""

    path: str
    relative: str
    size: int

    @property
    def hive(self) -> tuple[tuple[str, str], ...]:
        """``topic`` and ``partition`` as folders of the form ``name=value`` give them (values unescaped)."""
        folders = (part.partition("=") for part in self.relative.split("/")[:-1])
        return tuple((name, unquote(value)) for name, equals, value in folders if equals and name in _HIVE)


@dataclass(frozen=True, slots=True)
class DumpListing:
    """All entries of a dump: its files, sorted by path, and its folders, relative to the dump."""

    files: list[ListedFile]
    folders: list[str]


def absolute(uri: str) -> str:
    """Return the same place for a process with another working directory."""
    if _URI.match(uri):
        return uri
    return os.path.abspath(uri)


def uri_text(uri: str) -> str:
    """Return a URI for messages, without the parts that may be secret: user, password and query."""
    return printable(shown_uri(uri))


def open_location(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of ``uri`` and the path in it. Raises UsageError for a URI that pyarrow does not know."""
    # Checked before pyarrow is loaded: its thread pools end the process if the host has no free thread.
    require_headroom(WRITING_THREADS)
    import pyarrow as pa
    from pyarrow import fs

    if not is_utf8(uri):
        raise UsageError(
            f"{uri_text(uri)} is not UTF-8, and pyarrow cannot open such a path", hint="pass a path in UTF-8"
        )
    match = _URI.match(uri)
    if match is None:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    scheme = match[1] or "file"
    if scheme.lower() in _ALIASES:
        uri = _ALIASES[scheme.lower()] + uri[len(scheme) :]
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        # The message of pyarrow may contain the URI with its secrets, so only its class is printed.
        raise UsageError(
            f"kstate cannot open {uri_text(uri)} ({type(error).__name__})",
            hint="pass a local path or a URI that pyarrow supports: file://, s3://, gs://, abfss://, hdfs://",
        ) from None
    if not is_here(filesystem):
        # From now on a signal must end the command after a limited time, because a client of a bucket retries for
        # minutes.
        contact(uri_text(uri))
    return filesystem, path


def is_here(filesystem: FileSystem) -> bool:
    """Return whether paths of the file system are paths of this host."""
    from pyarrow.fs import LocalFileSystem

    return isinstance(filesystem, LocalFileSystem)


def list_files(filesystem: FileSystem, root: str, shown_as: str) -> DumpListing:
    """Return every file and folder below ``root``; ``root`` itself if it is a file.

    Raises UsageError if nothing exists there. Raises DumpError if it cannot be listed, if a symbolic link leads out of
    it or to nothing, and for special files. If these were skipped, a lost file would look like compaction.
    """
    from pyarrow import fs

    try:
        status = filesystem.get_file_info(root)
        if status.type == fs.FileType.NotFound:
            raise UsageError(f"{shown_as} does not exist", hint="pass the folder of the dump")
        if is_here(filesystem) and status.type == fs.FileType.Unknown:
            raise _special(root, shown_as)
        if status.type == fs.FileType.File:
            return DumpListing([ListedFile(status.path, status.base_name, status.size)], [])
        if is_here(filesystem):
            # Checked before pyarrow lists the folder, because pyarrow skips entries of unknown types.
            _refuse_foreign(root, shown_as)
        entries = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise not_listed(error, shown_as) from None
    if len(entries) > MOST_DUMP_FILES:
        raise _too_many_files(shown_as)
    base = root.rstrip("/") + "/"
    files = [
        ListedFile(entry.path, entry.path.removeprefix(base), entry.size)
        for entry in entries
        if entry.type == fs.FileType.File
    ]
    folders = [entry.path.removeprefix(base) for entry in entries if entry.type == fs.FileType.Directory]
    return DumpListing(sorted(files, key=lambda file: file.relative), sorted(folders))


def _too_many_files(shown_as: str) -> DumpError:
    return DumpError(
        f"the dump has more than {MOST_DUMP_FILES:,} files and folders, which is kstate's limit",
        where=shown_as,
        hint=FEWER_FILES,
    )


def not_listed(error: OSError, shown_as: str) -> DumpError:
    """Return the error for a dump that cannot be listed, which does not mean that it is empty."""
    return DumpError(
        f"kstate cannot list the dump: {error}",
        where=shown_as,
        hint=NOT_REACHED,
    )


def _refuse_foreign(root: str, shown_as: str) -> None:
    """Raise DumpError for special files and links below ``root``.

    pyarrow skips links to nothing, and only distinguishes files and folders. So this refuses FIFOs, sockets and
    devices; links to nothing, to a folder, or out of the dump; and folders that are too deep.
    """
    # The dump itself may be a link. The entries below it must stay below its real path.
    inside = os.path.realpath(root).rstrip("/") + "/"
    # A stack and no recursion, with a limited number of levels: a loop of folders would never end.
    waiting = [(root, 0)]
    count = 0
    while waiting:
        folder, level = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if count > MOST_DUMP_FILES:
                    raise _too_many_files(shown_as)
                # pyarrow could not open a file later whose name is not UTF-8.
                if not is_utf8(entry.name):
                    raise DumpError(f"the name of {printable(entry.path)} is not UTF-8", where=shown_as)
                if entry.is_symlink():
                    _refuse_link(entry.path, inside, shown_as)
                elif entry.is_dir(follow_symlinks=False):
                    if level == MOST_DUMP_LEVELS:
                        raise DumpError(
                            f"the dump has more than {MOST_DUMP_LEVELS} levels of nested folders", where=shown_as
                        )
                    waiting.append((entry.path, level + 1))
                elif not entry.is_file(follow_symlinks=False):
                    raise _special(entry.path, shown_as)


def _refuse_link(path: str, inside: str, shown_as: str) -> None:
    """Raise DumpError unless a link in the dump leads to a regular file below ``inside``, the real path of the dump."""
    if not os.path.exists(path):
        # The link is not skipped, because its missing file would look like compaction.
        raise DumpError(
            f"{printable(path)} is a symbolic link to a missing file",
            where=shown_as,
            hint=f"restore this file or {NEW_DUMP}",
        )
    # A link to a folder may be a loop. A link out of the dump would add files that do not belong to it.
    if os.path.isdir(path) or not os.path.realpath(path).startswith(inside):
        raise DumpError(
            f"{printable(path)} is a symbolic link to a folder or to a place outside the dump",
            where=shown_as,
            hint="copy the link's target into the dump",
        )
    if not os.path.isfile(path):
        raise _special(path, shown_as)


def _special(path: str, shown_as: str) -> DumpError:
    kind = kind_of(os.stat(path).st_mode)
    return DumpError(f"{printable(path)} is {kind}, not a regular file", where=shown_as, hint=NEW_DUMP)


def is_link(path: str, base: str) -> bool:
    """Return whether a path below the local folder ``base`` contains a symbolic link, and so may lead out of it."""
    inside = os.path.realpath(base).rstrip("/") + "/"
    # Any folder in the path may be a link, so the whole path is resolved.
    return os.path.realpath(path) != inside + os.path.relpath(path, base)


def is_hidden(relative: str) -> bool:
    """Return whether Spark skips the file when it reads the folder."""
    parts = relative.split("/")
    # The rule of Spark (HadoopFSUtils.shouldFilterOutPathName): partition folders such as _p=1 are read.
    return parts[-1].endswith("._COPYING_") or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts
    )


def is_byproduct(relative: str) -> bool:
    """Return whether a hidden file is a byproduct of a complete dump: a checksum, a mark or a summary."""
    name = relative.rpartition("/")[2]
    return name.endswith(".crc") or name in ("_SUCCESS", "_metadata", "_common_metadata", "_manifest.json")


def is_parquet_name(relative: str) -> bool:
    """Return whether the file has a name of Parquet files."""
    return relative.lower().endswith(_PARQUET)


def is_parquet(filesystem: FileSystem, file: ListedFile) -> bool:
    """Return whether the file begins as Parquet files do."""
    try:
        with filesystem.open_input_file(file.path) as stream:
            return stream.read(4) in _MAGIC
    except OSError as error:
        raise unreadable(file.path, error) from None
