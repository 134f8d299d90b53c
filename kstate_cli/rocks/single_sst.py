"""One SST as a database of its own: what is in it, without a look at the others.

rocksdict has no reader for an SST. So a MANIFEST is written that names no other one, in a private folder with a link to
the SST. (RocksDB's repair would do the same, but refuses SSTs that were ingested, which name no column family.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kstate_cli.formats.crc32c import masked
from kstate_cli.rocks.files import CURRENT
from kstate_cli.rocks.tables import Table

_MANIFEST: Final = "MANIFEST-000001"
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _NEW_FILE = 1, 2, 3, 4, 103
_TERMINATE: Final = 1
_BLOCK: Final = 32 * 1024
_HEADER: Final = 7


def make_database(folder: Path, table: Table, target: str) -> None:
    """Makes ``folder`` a database that consists of the one SST that ``target`` is."""
    folder.mkdir()
    (folder / table.name).symlink_to(target)
    (folder / _MANIFEST).write_bytes(b"".join(_records(_edit(table))))
    (folder / CURRENT).write_text(f"{_MANIFEST}\n")


def _edit(table: Table) -> bytes:
    """The version edit (``VersionEdit::EncodeTo``)."""
    number = int(table.name.partition(".")[0])
    return b"".join(
        (
            _varint(_COMPARATOR) + _sized(b"leveldb.BytewiseComparator"),
            _varint(_LOG_NUMBER) + _varint(0),
            _varint(_NEXT_FILE) + _varint(number + 2),
            _varint(_LAST_SEQUENCE) + _varint(table.largest_sequence),
            # Level 0: nothing is assumed of its keys.
            _varint(_NEW_FILE) + _varint(0) + _varint(number) + _varint(table.size),
            _sized(table.smallest) + _sized(table.largest),
            _varint(table.smallest_sequence) + _varint(table.largest_sequence) + _varint(_TERMINATE),
        )
    )


def _records(data: bytes) -> Iterator[bytes]:
    """The log format: pieces that end with their block of 32 KiB (full 1, first 2, middle 3, last 4)."""
    room = _BLOCK - _HEADER
    pieces = [data[at : at + room] for at in range(0, len(data), room)]
    for number, piece in enumerate(pieces):
        kind = 1 if len(pieces) == 1 else 2 if number == 0 else 4 if number == len(pieces) - 1 else 3
        body = bytes((kind,)) + piece
        yield masked(body).to_bytes(4, "little") + len(piece).to_bytes(2, "little") + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data
