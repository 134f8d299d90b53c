"""Facts about the files of a database, read without RocksDB: CURRENT, MANIFEST, OPTIONS, sizes and footers.

The callers interpret them: `statedir` as problems of a directory, `verify` as findings. Errors of the system pass, also
FileNotFoundError. Only the caller knows whether a running application removes files meanwhile, and whether an
unreadable file ends the reading.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.metadata_files import StoredOptions, foreign_settings, parse, torn
from kstate_cli.formats.sst import FOOTER_LENGTH, check_blob_ends, footer
from kstate_cli.limits import MOST_MANIFEST_BYTES, MOST_NAME_BYTES, MOST_OPTIONS_BYTES
from kstate_cli.regular_files import NotReadableError, open_regular, read_small
from kstate_cli.releases import NEWEST_SST_FORMAT
from kstate_cli.rocks.files import CURRENT, check_size, is_manifest, is_own
from kstate_cli.rocks.shadow import LiveFile

_WHOLE_CURRENT: Final = re.compile(rb"(MANIFEST-\d+)\n")
_CUT_CURRENT: Final = re.compile(rb"M?A?N?I?F?E?S?T?-?\d*")


@dataclass(frozen=True, slots=True)
class DatabaseEntry:
    """An entry in the directory of a database."""

    name: str
    status: os.stat_result
    """The status of the entry itself: links are not followed."""
    regular: bool
    """True for a regular file. RocksDB creates no other kind, and a link may lead anywhere."""
    own: bool
    """True for a name that RocksDB gives to its files.

    It ignores other entries, such as its archive of write-ahead logs.
    """
    too_large: NotReadableError | None
    """The error for a file that is much larger than RocksDB makes it, so that it is not read; None for other files."""


def entries(path: Path) -> Iterator[DatabaseEntry]:
    """Yield every entry of the directory, by name. Raises OSError."""
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        # Links are not followed: the target does not belong to this database, and opening a FIFO would wait for a
        # writer.
        status, regular = entry.stat(follow_symlinks=False), entry.is_file(follow_symlinks=False)
        too_large = None
        if regular:
            too_large = check_size(entry.path, status)
        yield DatabaseEntry(entry.name, status, regular, is_own(entry.name), too_large)


@dataclass(frozen=True, slots=True)
class Current:
    """The contents of CURRENT."""

    content: bytes

    @property
    def manifest(self) -> str | None:
        """The MANIFEST that RocksDB reads there: its name and a line end, and nothing else."""
        match = _WHOLE_CURRENT.fullmatch(self.content)
        if match is None:
            return None
        return match[1].decode()

    @property
    def cut(self) -> bool:
        """Whether it is the beginning of a name: what a write that was not finished leaves."""
        return _CUT_CURRENT.fullmatch(self.content) is not None

    @property
    def stated_name(self) -> str | None:
        """Return the content without white space around it, whatever it is; None if it is no ASCII text."""
        try:
            return self.content.decode("ascii").strip()
        except UnicodeDecodeError:
            return None


def current(path: Path) -> Current:
    """Return what CURRENT holds. Raises FileNotFoundError, NotReadableError, OSError."""
    return Current(read_small(path / CURRENT, MOST_NAME_BYTES))


def without_manifest(path: Path) -> bool:
    """Return whether CURRENT names a MANIFEST that is missing; False if CURRENT cannot be read.

    A database looks like this while a running application drops it, because its files are deleted one by one.
    """
    try:
        name = current(path).stated_name
    except OSError:
        return False
    # A database that a running application is just dropping looks like this: its files go one by one.
    return name is not None and is_manifest(name) and not os.path.lexists(path / name)


def manifest_end(manifest: Path) -> str | None:
    """Return what is missing at the end of a MANIFEST, which RocksDB does not report; None if it is whole.

    Raises NotReadableError, OSError.
    """
    return torn(read_small(manifest, MOST_MANIFEST_BYTES))


@dataclass(frozen=True, slots=True)
class OptionsSeen:
    """The contents of an OPTIONS file.

    If RocksDB does not write such a file, ``stored`` is None; ``malformed`` is the error.
    """

    stored: StoredOptions | None
    foreign: tuple[str, ...] = ()
    """Settings that kstate does not handle, a sentence for each."""
    malformed: MalformedBytesError | None = None


def read_options(options: Path) -> OptionsSeen:
    """Reads an OPTIONS file of the database that it lies in. Raises NotReadableError, OSError."""
    try:
        stored = _parsed(read_small(options, MOST_OPTIONS_BYTES))
    except MalformedBytesError as error:
        return OptionsSeen(None, malformed=error)
    return OptionsSeen(stored, foreign_settings(stored, str(options.parent)))


_parsed = lru_cache(maxsize=256)(parse)
"""Cached, because stores of one kind have the same OPTIONS, and an application has few kinds."""


@dataclass(frozen=True, slots=True)
class SstEnd:
    """The end of an SST."""

    size: int
    """Bytes of the whole file."""
    format_version: int | None
    """None if it has no footer that kstate understands; ``malformed`` is the error then."""
    malformed: MalformedBytesError | None = None

    @property
    def cut(self) -> bool:
        """Whether it is too short to have a footer at all."""
        return self.size < FOOTER_LENGTH

    @property
    def newer(self) -> str | None:
        """Where the format is newer than any that a release reads which was run: both numbers, for people."""
        if self.format_version is None or self.format_version <= NEWEST_SST_FORMAT:
            return None
        return f"SST format_version {self.format_version}: the newest version that kstate knows is {NEWEST_SST_FORMAT}"


def sst_end(sst: Path) -> SstEnd:
    """Read the last bytes of an SST. Raise FileNotFoundError, NotReadableError, OSError."""
    with os.fdopen(open_regular(sst), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        # The footer is at the end. So this recognizes a file that was cut off without reading all of it.
        file.seek(max(0, size - FOOTER_LENGTH))
        data = file.read()
    try:
        return SstEnd(size, footer(data).format_version)
    except MalformedBytesError as error:
        return SstEnd(size, None, error)


def blob_ends(blob: Path) -> MalformedBytesError | None:
    """Return what is wrong with header or footer of a blob file, None where both are whole.

    Raises as :func:`sst_end`.
    """
    with os.fdopen(open_regular(blob), "rb") as file:
        try:
            check_blob_ends(file, file.seek(0, os.SEEK_END))
        except MalformedBytesError as error:
            return error
    return None


def live_size(path: Path, file: LiveFile) -> int | None:
    """Return the bytes that a file has which the MANIFEST names; None where it is missing. Raises OSError.

    RocksDB looks at neither where it opens a database leniently.
    """
    try:
        return (path / file.name).stat().st_size
    except FileNotFoundError:
        return None
