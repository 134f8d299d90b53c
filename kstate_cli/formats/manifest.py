"""The end of a MANIFEST, which RocksDB writes as a log of records in blocks of 32 KiB."""

from __future__ import annotations

from typing import Final

_BLOCK: Final = 32 * 1024
_HEADER: Final = 7
_RECYCLABLE_HEADER: Final = 11
_RECYCLABLE: Final = range(5, 9)
_FULL: Final = 1
_LAST: Final = 4


def torn(data: bytes) -> str | None:
    """What is missing at the end of a MANIFEST; None where its last record is whole.

    RocksDB takes a MANIFEST whose end is cut off for a shorter one, and opens an older state without a word. The
    checksums of its records are left to RocksDB.
    """
    at, within = 0, False
    while at < len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            at += left
            continue
        kind = data[at + 6] if at + 6 < len(data) else 0
        size = int.from_bytes(data[at + 4 : at + 6], "little")
        if kind == 0 and not any(data[at:]):
            break  # space that RocksDB has reserved
        end = at + (_RECYCLABLE_HEADER if kind in _RECYCLABLE else _HEADER) + size
        if end > len(data):
            return f"ends {end - len(data)} bytes before the end of its last record"
        piece = kind - _RECYCLABLE[0] + 1 if kind in _RECYCLABLE else kind
        within = piece not in (_FULL, _LAST)
        at = end
    if within:
        return "ends within a record"
    return None if data else "is empty"
