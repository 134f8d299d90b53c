"""RocksDB's blob files: long values beside the SSTs that refer to them (``BlobLogHeader``, ``…Record``, ``…Footer``).

A header of 30 bytes, records, a footer of 32 bytes; numbers are little-endian. The header has magic number, version,
column family (4 bytes each), flags, compression and two expirations, which are 0; the footer ends in a checksum. A
record is a header of 32 bytes, key and value. Its header has the lengths of key and value, an expiration, the masked
CRC32C of these 24 bytes, and that of key and value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from .binary import masked
from .malformed import MalformedBytesError

HEADER_LENGTH: Final = 30
FOOTER_LENGTH: Final = 32
_MAGIC: Final = (2_395_959).to_bytes(4, "little")
_VERSION: Final = (1).to_bytes(4, "little")
_EXPIRATION: Final = 14
_RECORD: Final = struct.Struct("<QQQII")
_SUMMED: Final = 24
_CRC: Final = 4


@dataclass(frozen=True, slots=True)
class BlobRecord:
    """One record: its key, and where key and value are in the file."""

    key: bytes
    at: int
    length: int
    """Bytes of key and value."""
    crc: int


def records(file: BinaryIO, size: int) -> Iterator[BlobRecord]:
    """Yield the records of a file of ``size`` bytes in their order; values are not read.

    :class:`MalformedBytesError` where the header, the footer, or the header of a record is not what RocksDB wrote, and
    where the file ends too early.
    """
    check_ends(file, size)
    at, end = HEADER_LENGTH, size - FOOTER_LENGTH
    while at < end:
        file.seek(at)
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            raise _malformed(f"ends within the record at byte {at}")
        key_length, value_length, _, head_crc, crc = _RECORD.unpack(head)
        after = at + _RECORD.size + key_length + value_length
        if masked(head[:_SUMMED]) != head_crc or after > end:
            raise _malformed(f"the header of the record at byte {at} does not match its checksum")
        yield BlobRecord(file.read(key_length), at + _RECORD.size, key_length + value_length, crc)
        at = after


def check_ends(file: BinaryIO, size: int) -> None:
    """Read header and footer. Raises as :func:`records`."""
    file.seek(0)
    header = file.read(HEADER_LENGTH)
    if len(header) < HEADER_LENGTH or header[:8] != _MAGIC + _VERSION or header[12] or any(header[_EXPIRATION:]):
        raise _malformed("does not begin as RocksDB writes it")
    file.seek(max(0, size - FOOTER_LENGTH))
    footer = file.read(FOOTER_LENGTH)
    summed = footer[:-_CRC]
    if len(footer) < FOOTER_LENGTH or footer[:4] != _MAGIC or masked(summed).to_bytes(_CRC, "little") != footer[-_CRC:]:
        raise _malformed("has no footer that matches its checksum")


def is_whole(file: BinaryIO, record: BlobRecord) -> bool:
    """Return whether key and value of a record match their checksum."""
    file.seek(record.at)
    return masked(file.read(record.length)) == record.crc


def _malformed(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"blob file: {problem}", "RocksDBException")
