"""A MANIFEST, which RocksDB writes as a log of records in blocks of 32 KiB. Each record is a ``VersionEdit``.

A record begins with a masked CRC32C, a length of two bytes and a type. An edit is a sequence of tags and their fields:
varints, low 7-bit group first, and byte strings behind a varint of their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError

_BLOCK: Final = 32 * 1024
_HEADER: Final = 7
_RECYCLABLE_HEADER: Final = 11
_RECYCLABLE: Final = range(5, 9)
_FULL: Final = 1
_FIRST: Final = 2
_LAST: Final = 4

_PATH_ID: Final = re.compile(rb"\x41\x01[\x01-\x03]")
"""The custom field of a new SST that has a path id above 0: its tag, its length, its value."""
_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 203, 300})
"""Tags followed by one number: logs, the next file, the last sequence number, the rest of an atomic group."""
_COMPARATOR: Final = 1
_COMPACT_CURSOR: Final = 5
_DELETED: Final = 6
_NEW: Final = 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED = 200, 201, 202
_BLOB_ADDED, _BLOB_GARBAGE = 400, 401
_BLOB_NUMBERS: Final = 3
_IGNORABLE: Final = 1 << 13
"""Tags with this bit are followed by a byte string that a reader may skip."""
_NEW_END, _NEW_PATH = 1, 65
_MORE: Final = 0x80


def torn(data: bytes) -> str | None:
    """Return what is missing at the end of a MANIFEST; None if its last record is whole.

    RocksDB treats a MANIFEST that is cut off as a shorter one, and silently opens an older state. RocksDB itself checks
    the checksums of the records.
    """
    at, within = 0, False
    while at < len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER:
            at += rest  # RocksDB pads a block that has no space for another header
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


def live_tables(data: bytes) -> Mapping[int, Mapping[int, int]]:
    """Return the path id of each SST that a MANIFEST names in the end, by column family and number of the SST.

    A path id counts the folders of ``cf_paths`` or ``db_paths``. RocksDB has one folder where an application sets
    neither, and every path id is 0. :class:`MalformedBytesError` for an edit that is not understood here, such as one
    of RocksDB before 5.
    """
    families: dict[int, dict[int, int]] = {}
    for record in _records(data):
        edit = _VersionEdit(record)
        edit.read()
        if edit.dropped:
            families.pop(edit.family, None)
            continue
        tables = families.setdefault(edit.family, {})
        for number in edit.deleted:
            tables.pop(number, None)
        tables.update(edit.added)
    return families


def may_have_paths(data: bytes) -> bool:
    """Return whether any SST may have a path id above 0, without reading each edit."""
    return any(_PATH_ID.search(record) for record in _records(data))


def _records(data: bytes) -> Iterator[bytes]:
    """Yield whole records; an incomplete one at the end is skipped, as RocksDB skips it."""
    at = 0
    pieces: list[bytes] = []
    while at + _HEADER <= len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER:
            at += rest
            continue
        kind, size = data[at + 6], int.from_bytes(data[at + 4 : at + 6], "little")
        if kind == 0:
            return  # space that RocksDB has reserved
        begin = at + (_RECYCLABLE_HEADER if kind in _RECYCLABLE else _HEADER)
        piece = kind - _RECYCLABLE[0] + 1 if kind in _RECYCLABLE else kind
        at = begin + size
        if at > len(data):
            return
        if piece in (_FULL, _FIRST):
            pieces = []
        pieces.append(data[begin:at])
        if piece in (_FULL, _LAST):
            yield b"".join(pieces)


class _VersionEdit:
    """One ``VersionEdit``: which SSTs of which column family it adds and removes."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._at = 0
        self.family = 0
        self.dropped = False
        self.added: dict[int, int] = {}
        self.deleted: list[int] = []

    def read(self) -> None:
        """Read all fields. Raises MalformedBytesError."""
        while self._at < len(self._record):
            tag = self._number()
            if tag == _NEW:
                self._table()
            elif tag == _DELETED:
                self._number()  # the level
                self.deleted.append(self._number())
            elif tag == _FAMILY:
                self.family = self._number()
            elif tag == _FAMILY_DROPPED:
                self.dropped = True
            elif tag in (_BLOB_ADDED, _BLOB_GARBAGE):
                self._blob(checksum=tag == _BLOB_ADDED)
            else:
                self._other(tag)

    def _table(self) -> None:
        """An SST: level, number, size, two keys, two sequence numbers, custom fields."""
        self._number()
        number = self._number()
        self._number()
        self._skip()
        self._skip()
        self._number()
        self._number()
        path = 0
        while (tag := self._number()) != _NEW_END:
            begin = self._at
            self._skip()
            if tag == _NEW_PATH:
                if self._at != begin + 2:
                    raise _unclear("a path id has one byte")
                path = self._record[begin + 1]
        self.added[number] = path

    def _blob(self, *, checksum: bool) -> None:
        for _ in range(_BLOB_NUMBERS):
            self._number()
        for _ in range(2 if checksum else 0):  # method and value
            self._skip()
        while self._number():
            self._skip()

    def _other(self, tag: int) -> None:
        if tag in (_COMPARATOR, _FAMILY_ADDED) or tag & _IGNORABLE:
            self._skip()
        elif tag == _COMPACT_CURSOR:
            self._number()
            self._skip()
        elif tag in _NUMBERS:
            self._number()
        else:
            raise _unclear(f"unknown tag {tag}")

    def _number(self) -> int:
        value = shift = 0
        while self._at < len(self._record):
            byte = self._record[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < _MORE:
                return value
            shift += 7
        raise _unclear("a number runs past the end")

    def _skip(self) -> None:
        size = self._number()
        self._at += size
        if self._at > len(self._record):
            raise _unclear("a byte string runs past the end")


def _unclear(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"MANIFEST: {problem}")
