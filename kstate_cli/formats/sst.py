"""The footer of a RocksDB table file: enough to know which releases can read the file.

The last 53 bytes of a block-based table: byte 0 is the checksum type, bytes 41 to 44 the format version (u32, *little*
endian), bytes 45 to 52 the magic number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .malformed import MalformedBytesError

FOOTER_LENGTH: Final = 53
"""How many bytes at the end of a file :func:`footer` wants."""
CHECKSUM_CRC32C: Final = 1
CHECKSUM_XXH3: Final = 4

_MAGIC: Final = bytes.fromhex("f7cff485b741e288")
_LEGACY_MAGIC: Final = bytes.fromhex("57fb808b247547db")
# none, CRC32c, xxHash, xxHash64, XXH3
_KNOWN_CHECKSUMS: Final = range(5)
_VERSION_AT: Final = slice(FOOTER_LENGTH - 12, FOOTER_LENGTH - 8)


@dataclass(frozen=True, slots=True)
class SstFooter:
    """``checksum_type`` as RocksDB numbers it (1 CRC32c, 4 XXH3) and ``format_version`` (5 up to Kafka 3.9, then 6)."""

    checksum_type: int
    format_version: int


def footer(data: bytes) -> SstFooter:
    """Read the last :data:`FOOTER_LENGTH` bytes of a table file.

    :class:`MalformedBytesError` for another length, a magic number that is not a block-based table's, the one that
    LevelDB used (format version 0, which no supported release writes), version 0, and an unknown checksum type.
    """
    if len(data) != FOOTER_LENGTH:
        raise MalformedBytesError(f"an SST footer has {FOOTER_LENGTH} bytes, not {len(data)}")
    magic = data[-len(_MAGIC) :]
    if magic == _LEGACY_MAGIC:
        raise MalformedBytesError("SST with the magic number of LevelDB (format version 0)")
    if magic != _MAGIC:
        raise MalformedBytesError(f"not a block-based SST: magic number {magic.hex()}", "RocksDBException")
    format_version = int.from_bytes(data[_VERSION_AT], "little")
    checksum_type = data[0]
    if format_version == 0:
        raise MalformedBytesError("SST format version 0 with a new magic number", "RocksDBException")
    if checksum_type not in _KNOWN_CHECKSUMS:
        raise MalformedBytesError(f"unknown SST checksum type {checksum_type}", "RocksDBException")
    return SstFooter(checksum_type, format_version)
