"""Names of the files in a RocksDB directory, and the SSTs and blob files that its MANIFEST lists.

RocksDB's own rule (``ParseFileName``) decides which names are its files. It ignores every other name, and so does
kstate: files of an operating system, an editor or a backup tool are no part of the database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli.formats.sst import BLOB_FOOTER_LENGTH, BLOB_HEADER_LENGTH
from kstate_cli.limits import MOST_MANIFEST_BYTES, MOST_NAME_BYTES, MOST_OPTIONS_BYTES
from kstate_cli.regular_files import NotReadableError, read_small, too_large

CURRENT: Final = "CURRENT"
"""The file with the name of the MANIFEST. If it is missing, RocksDB creates a new database."""

FIRST_WAL: Final = 4
"""The number of the write-ahead log of a database that was opened once (RocksDB 9.8, 10.1). Later logs are higher.

If a RocksDB starts with a higher number, a new database looks as if it was opened again, which is the cautious result.
"""

_MANIFEST: Final = re.compile(r"MANIFEST-([0-9]+)")
_OPTIONS: Final = re.compile(r"OPTIONS-([0-9]+)")
_SST: Final = re.compile(r"([0-9]+)\.sst")
_NEVER_CHANGED: Final = re.compile(r"[0-9]+\.(?:sst|blob)")
_LOG: Final = re.compile(r"([0-9]+)\.log")
_OWN: Final = re.compile(
    rf"{CURRENT}|IDENTITY|LOCK|LOG(?:\.old(?:\.[0-9]+)?)?|(?:MANIFEST|METADB)-[0-9]+|OPTIONS-[0-9]+(?:\.dbtmp)?"
    r"|[0-9]+\.(?:log|sst|ldb|blob|dbtmp)"
)
_NUM_LEVELS: Final = re.compile(r"^\s*num_levels=(\d{1,6})\s*$", re.MULTILINE)
_USUAL_LEVELS: Final = 64

_MOST: Final = (
    (re.compile(rf"{CURRENT}|IDENTITY"), MOST_NAME_BYTES),
    (_OPTIONS, MOST_OPTIONS_BYTES),
    (_MANIFEST, MOST_MANIFEST_BYTES),
)
"""The most bytes of files that are read or copied whole. SSTs are only linked, and logs are as large as their rows."""


def is_manifest(name: str) -> bool:
    """Return whether a name is ``MANIFEST-<number>``."""
    return _MANIFEST.fullmatch(name) is not None


def manifest_number(name: str) -> int:
    """Return the number of a MANIFEST: a later one has a greater number."""
    return int(name.rpartition("-")[2])


def sst_number(name: str) -> int | None:
    """Return the number of an SST, None for a name that is not ``<number>.sst``."""
    match = _SST.fullmatch(name)
    if match is None:
        return None
    return int(match[1])


def is_sst(name: str) -> bool:
    """Return whether a name is ``<number>.sst``."""
    return _SST.fullmatch(name) is not None


def is_never_changed(name: str) -> bool:
    """Return whether a name is ``<number>.sst`` or ``.blob``: RocksDB never changes these, so they may be linked."""
    return _NEVER_CHANGED.fullmatch(name) is not None


def is_log(name: str) -> bool:
    """Return whether a name is that of a write-ahead log, ``<number>.log``."""
    return _LOG.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Return whether RocksDB gives a file of a database that name."""
    return _OWN.fullmatch(name) is not None


def check_size(path: str, status: os.stat_result) -> NotReadableError | None:
    """Return the error for a file of RocksDB that is far larger than RocksDB makes it; None where it is not."""
    name = os.path.basename(path)
    most = next((most for pattern, most in _MOST if pattern.fullmatch(name)), None)
    if most is None or status.st_size <= most:
        return None
    return too_large(path, status.st_size, most)


def newest_options(path: Path) -> Path | None:
    """Return the OPTIONS file with the greatest number."""
    numbered = [(int(m[1]), name) for name in os.listdir(path) if (m := _OPTIONS.fullmatch(name))]
    if not numbered:
        return None
    # Compared by number and not by name: OPTIONS-10 comes after OPTIONS-9.
    return path / max(numbered)[1]


def newest_log(path: Path) -> int | None:
    """Return the number of the newest write-ahead log, None if there is none here."""
    numbers = [int(m[1]) for name in os.listdir(path) if (m := _LOG.fullmatch(name))]
    return max(numbers, default=None)


def most_levels(path: Path) -> int:
    """Return a number of levels that no column family of the database exceeds.

    RocksDB refuses to open a database with more levels than ``num_levels``, but opens one with fewer. If there is no
    readable OPTIONS file, the result is far above RocksDB's default of 7.
    """
    text = ""
    try:
        newest = newest_options(path)
        if newest is not None:
            text = read_small(newest, MOST_OPTIONS_BYTES).decode("utf-8", "replace")
    except OSError:
        # A higher number is harmless. If the file is damaged, opening the database reports it.
        pass
    return max((_USUAL_LEVELS, *map(int, _NUM_LEVELS.findall(text))))


def unflushed_logs(path: Path) -> list[str]:
    """Return the write-ahead logs that still have rows; none of a database that was flushed and closed."""
    # RocksDB creates an empty log at each open. So only a log with bytes has rows.
    return sorted(name for name in os.listdir(path) if is_log(name) and (path / name).stat().st_size)


_LINE: Final = re.compile(
    r"\s*(\d+):(\d+)\[(\d+) \.\. (\d+)\]"
    r"\['([0-9A-F]*)' seq:(\d+), type:(\d+) \.\. '([0-9A-F]*)' seq:(\d+), type:(\d+)\]"
)

_LEVEL: Final = re.compile(r"--- level (\d+) ---")

_REFERENCE: Final = re.compile(r"\bblob_file:\d+")
_BLOB: Final = re.compile(r"blob_file_number: (\d+) total_blob_count: \d+ total_blob_bytes: (\d+)")


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A blob file that the MANIFEST lists; ``size`` in bytes, with header and footer."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Table:
    """An SST that the MANIFEST lists. RocksDB appends 8 bytes to each key: sequence number and type."""

    name: str
    size: int
    smallest_sequence: int
    largest_sequence: int
    smallest: bytes
    largest: bytes
    has_blobs: bool = False
    """True if some of its values are in blob files: it cannot be read without them."""

    @property
    def first(self) -> bytes:
        """The least key."""
        return self.smallest[:-8]

    @property
    def last(self) -> bytes:
        """The greatest key."""
        return self.largest[:-8]


def files_by_level(text: str) -> dict[int, int]:
    """Return level -> number of SSTs of a column family, from RocksDB's property ``rocksdb.sstables``."""
    counts: dict[int, int] = {}
    level = 0
    for line in text.splitlines():
        if heading := _LEVEL.match(line):
            level = int(heading[1])
        # The text, which RocksDB prints for people, has a line ``number:size[sequences]['first key' .. 'last key']``
        # for each SST.
        elif _LINE.match(line):
            counts[level] = counts.get(level, 0) + 1
    return counts


def tables(text: str) -> Iterator[Table]:
    """Yield the SSTs in RocksDB's property ``rocksdb.sstables``."""
    for line in text.splitlines():
        if match := _LINE.match(line):
            yield Table(
                f"{int(match[1]):06d}.sst",
                int(match[2]),
                int(match[3]),
                int(match[4]),
                _internal(match[5], match[6], match[7]),
                _internal(match[8], match[9], match[10]),
                _REFERENCE.search(line, match.end()) is not None,
            )


def blob_files(text: str) -> Iterator[BlobFile]:
    """Yield the blob files in RocksDB's property ``rocksdb.sstables``."""
    for line in text.splitlines():
        if match := _BLOB.match(line):
            # The number of bytes in the text is that of the records, without header and footer of the file.
            yield BlobFile(f"{int(match[1]):06d}.blob", BLOB_HEADER_LENGTH + int(match[2]) + BLOB_FOOTER_LENGTH)


def _internal(key: str, sequence: str, kind: str) -> bytes:
    # An internal key: user key ‖ (sequence << 8 | type):u64, little-endian (``dbformat.h``).
    return bytes.fromhex(key) + (int(sequence) << 8 | int(kind)).to_bytes(8, "little")
