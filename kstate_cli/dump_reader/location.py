"""Where a dump lies: a local path, or a URI that pyarrow reads; and which of its files are the dump."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kstate_cli.deadline import contact
from kstate_cli.errors import UsageError
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.redaction import shown_uri
from kstate_cli.regular_files import is_utf8, kind_of

from .errors import NEW_DUMP, NOT_REACHED, DumpError, printable, unreadable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|file:")
_MOST_LEVELS: Final = 100
# Hadoop's names for what pyarrow calls s3.
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
class Listing:
    """Everything below a dump: its files, sorted by path, and its folders, relative to the dump."""

    files: list[ListedFile]
    folders: list[str]


def absolute(uri: str) -> str:
    """The same place for a process with another working directory."""
    return uri if _URI.match(uri) else os.path.abspath(uri)


def shown(uri: str) -> str:
    """A URI without what may be a secret: user, password and query."""
    return printable(shown_uri(uri))


def open_location(uri: str) -> tuple[FileSystem, str]:
    """The file system of ``uri`` and the path within it. UsageError where pyarrow does not know such a URI."""
    require_headroom(WRITING_THREADS)
    import pyarrow as pa
    from pyarrow import fs

    if not is_utf8(uri):
        raise UsageError(f"{shown(uri)} is not UTF-8: pyarrow cannot be given it", hint="give a path in UTF-8")
    match = _URI.match(uri)
    if match is None:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    scheme = match[1] or "file"
    if scheme.lower() in _ALIASES:
        uri = _ALIASES[scheme.lower()] + uri[len(scheme) :]
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        # pyarrow's message may repeat the URI with its secrets.
        raise UsageError(
            f"{shown(uri)} cannot be opened ({type(error).__name__})",
            hint="give a local path or a URI that pyarrow knows: file://, s3://, gs://, abfss://, hdfs://",
        ) from None
    if not is_here(filesystem):
        contact(shown(uri))
    return filesystem, path


def is_here(filesystem: FileSystem) -> bool:
    """Whether its paths are those of this host."""
    from pyarrow.fs import LocalFileSystem

    return isinstance(filesystem, LocalFileSystem)


def list_files(filesystem: FileSystem, root: str, shown_as: str) -> Listing:
    """Return every file and folder below ``root``; ``root`` itself where it is a file.

    UsageError where there is nothing, DumpError where it cannot be listed, where a symbolic link leads elsewhere or
    nowhere, and where something is neither a file nor a directory: left out, a lost file would look like compaction.
    """
    from pyarrow import fs

    try:
        status = filesystem.get_file_info(root)
        if status.type == fs.FileType.NotFound:
            raise UsageError(f"{shown_as} does not exist", hint="give the folder of the dump")
        if is_here(filesystem) and status.type == fs.FileType.Unknown:
            raise _special(root, shown_as)
        if status.type == fs.FileType.File:
            return Listing([ListedFile(status.path, status.base_name, status.size)], [])
        if is_here(filesystem):
            _refuse_foreign(root, shown_as)
        entries = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise not_listed(error, shown_as) from None
    base = root.rstrip("/") + "/"
    files = [
        ListedFile(entry.path, entry.path.removeprefix(base), entry.size)
        for entry in entries
        if entry.type == fs.FileType.File
    ]
    folders = [entry.path.removeprefix(base) for entry in entries if entry.type == fs.FileType.Directory]
    return Listing(sorted(files, key=lambda file: file.relative), sorted(folders))


def not_listed(error: OSError, shown_as: str) -> DumpError:
    """What it is where a dump is not looked into, and not that nothing is there."""
    return DumpError(
        f"the dump cannot be listed: {error}",
        where=shown_as,
        hint=NOT_REACHED,
    )


def _refuse_foreign(root: str, shown_as: str) -> None:
    """Looks at all below ``root``: pyarrow leaves out links to nothing, and knows no kinds but files and folders.

    Raises DumpError for FIFOs, sockets and devices, for links that lead nowhere, out of the dump or to a folder, and
    for folders without an end.
    """
    inside = os.path.realpath(root).rstrip("/") + "/"
    waiting = [(root, 0)]
    while waiting:
        folder, level = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_utf8(entry.name):
                    raise DumpError(f"the name of {printable(entry.path)} is not UTF-8", where=shown_as)
                if entry.is_symlink():
                    _refuse_link(entry.path, inside, shown_as)
                elif entry.is_dir(follow_symlinks=False):
                    if level == _MOST_LEVELS:
                        raise DumpError(f"the dump goes deeper than {_MOST_LEVELS} levels", where=shown_as)
                    waiting.append((entry.path, level + 1))
                elif not entry.is_file(follow_symlinks=False):
                    raise _special(entry.path, shown_as)


def _refuse_link(path: str, inside: str, shown_as: str) -> None:
    if not os.path.exists(path):
        # Left out, the file that it should lead to would look like compaction.
        raise DumpError(
            f"{printable(path)} is a symbolic link to nothing",
            where=shown_as,
            hint=f"restore the file that it points to, or {NEW_DUMP}",
        )
    # A link to a folder may be a loop; one that leads out would read files that nobody meant to give.
    if os.path.isdir(path) or not os.path.realpath(path).startswith(inside):
        raise DumpError(
            f"{printable(path)} is a symbolic link to a folder or to something outside the dump",
            where=shown_as,
            hint="copy what it points to into the dump",
        )
    if not os.path.isfile(path):
        raise _special(path, shown_as)


def _special(path: str, shown_as: str) -> DumpError:
    what = kind_of(os.stat(path).st_mode)
    return DumpError(f"{printable(path)} is {what}, not a regular file", where=shown_as, hint=NEW_DUMP)


def is_link(path: str, base: str) -> bool:
    """Whether a path below the local folder ``base`` leads over a symbolic link, and so maybe out of it."""
    inside = os.path.realpath(base).rstrip("/") + "/"
    return os.path.realpath(path) != inside + os.path.relpath(path, base)


def is_hidden(relative: str) -> bool:
    """Whether Spark leaves the file out when it reads the folder."""
    parts = relative.split("/")
    return parts[-1].endswith("._COPYING_") or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts
    )


def is_byproduct(relative: str) -> bool:
    """Return whether a hidden file is one that writers leave beside a whole dump: checksums, marks, summaries."""
    name = relative.rpartition("/")[2]
    return name.endswith(".crc") or name in ("_SUCCESS", "_metadata", "_common_metadata", "_manifest.json")


def is_parquet_name(relative: str) -> bool:
    """Whether the name says that the file is Parquet."""
    return relative.lower().endswith(_PARQUET)


def is_parquet(filesystem: FileSystem, file: ListedFile) -> bool:
    """Whether the first bytes say that the file is Parquet."""
    try:
        with filesystem.open_input_file(file.path) as stream:
            return stream.read(4) in _MAGIC
    except OSError as error:
        raise unreadable(file.path, error) from None
