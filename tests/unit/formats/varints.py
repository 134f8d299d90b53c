"""Varints as RocksDB and Thrift write them, independent of the codecs of kstate."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Return an unsigned number in groups of 7 bits, the lowest first."""
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
