"""What a MANIFEST says of the SSTs of a column family, as RocksDB tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.blob_file import FOOTER_LENGTH, HEADER_LENGTH

_LINE: Final = re.compile(
    r"\s*(\d+):(\d+)\[(\d+) \.\. (\d+)\]"
    r"\['([0-9A-F]*)' seq:(\d+), type:(\d+) \.\. '([0-9A-F]*)' seq:(\d+), type:(\d+)\]"
)

_LEVEL: Final = re.compile(r"--- level (\d+) ---")

_REFERENCE: Final = re.compile(r"\bblob_file:\d+")
_BLOB: Final = re.compile(r"blob_file_number: (\d+) total_blob_count: \d+ total_blob_bytes: (\d+)")


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A blob file as the MANIFEST has it; ``size`` in bytes, header and footer included."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Table:
    """An SST as the MANIFEST has it. RocksDB puts 8 bytes behind keys: their sequence number and type."""

    name: str
    size: int
    smallest_sequence: int
    largest_sequence: int
    smallest: bytes
    largest: bytes
    has_blobs: bool = False
    """Whether values of it are in blob files: it cannot be read without them."""

    @property
    def first(self) -> bytes:
        """The least key."""
        return self.smallest[:-8]

    @property
    def last(self) -> bytes:
        """The greatest key."""
        return self.largest[:-8]


def files_by_level(text: str) -> dict[int, int]:
    """Return how many SSTs each level of a column family has, from RocksDB's property ``rocksdb.sstables``."""
    counts: dict[int, int] = {}
    level = 0
    for line in text.splitlines():
        if heading := _LEVEL.match(line):
            level = int(heading[1])
        elif _LINE.match(line):
            counts[level] = counts.get(level, 0) + 1
    return counts


def tables(text: str) -> Iterator[Table]:
    """The SSTs in RocksDB's property ``rocksdb.sstables``."""
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
    """The blob files in RocksDB's property ``rocksdb.sstables``."""
    for line in text.splitlines():
        if match := _BLOB.match(line):
            yield BlobFile(f"{int(match[1]):06d}.blob", HEADER_LENGTH + int(match[2]) + FOOTER_LENGTH)


def _internal(key: str, sequence: str, kind: str) -> bytes:
    return bytes.fromhex(key) + (int(sequence) << 8 | int(kind)).to_bytes(8, "little")
