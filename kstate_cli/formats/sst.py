"""RocksDB's table files and blob files: enough to know which releases can read a file, and whether it is whole.

*Table files* (SSTs). The last 53 bytes of a block-based table: byte 0 is the checksum type, bytes 41 to 44 the format
version (u32, *little* endian), bytes 45 to 52 the magic number.

*Blob files* hold long values beside the SSTs that refer to them (``BlobLogHeader``, ``…Record``, ``…Footer``): a header
of 30 bytes, records, a footer of 32 bytes; numbers are little-endian. The header has magic number, version, column
family (4 bytes each), flags, compression and two expirations, which are 0; the footer ends in a checksum. A record is a
header of 32 bytes, key and value. Its header has the lengths of key and value, an expiration, the masked CRC32C of
these 24 bytes, and that of key and value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from kstate_cli.formats.binary import MalformedBytesError, masked

FOOTER_LENGTH: Final = 53
"""How many bytes at the end of a file :func:`footer` wants."""
CHECKSUM_CRC32C: Final = 1
CHECKSUM_XXH3: Final = 4

_MAGIC: Final = bytes.fromhex("f7cff485b741e288")
_LEGACY_MAGIC: Final = bytes.fromhex("57fb808b247547db")
# none, CRC32c, xxHash, xxHash64, XXH3
_CHECKSUM_TYPES: Final = range(5)
_VERSION_AT: Final = slice(FOOTER_LENGTH - 12, FOOTER_LENGTH - 8)


@dataclass(frozen=True, slots=True)
class SstFooter:
    """``checksum_type`` as RocksDB numbers it (1 CRC32c, 4 XXH3) and ``format_version`` (5 up to Kafka 3.9, then 6)."""

    checksum_type: int
    format_version: int


def footer(data: bytes) -> SstFooter:
    """Read the footer of a table file, its last :data:`FOOTER_LENGTH` bytes.

    Raises :class:`MalformedBytesError` for another length, for a magic number that is not that of a block-based table,
    for that of LevelDB's tables (format version 0, which no supported release writes), for format version 0 in a newer
    footer, and for an unknown checksum type.
    """
    if len(data) != FOOTER_LENGTH:
        raise MalformedBytesError(f"an SST footer should have {FOOTER_LENGTH} bytes, but has {len(data)}")
    magic = data[-len(_MAGIC) :]
    # LevelDB's footer is shorter, so what is read below as version and checksum type would be other bytes.
    if magic == _LEGACY_MAGIC:
        raise MalformedBytesError("the SST has the magic number of LevelDB (format version 0)")
    if magic != _MAGIC:
        raise MalformedBytesError(
            f"the file is not a block-based SST, because its magic number is {magic.hex()}", "RocksDBException"
        )
    format_version = int.from_bytes(data[_VERSION_AT], "little")
    checksum_type = data[0]
    if format_version == 0:
        raise MalformedBytesError("the SST has format version 0, but a newer magic number", "RocksDBException")
    if checksum_type not in _CHECKSUM_TYPES:
        raise MalformedBytesError(f"the SST has the unknown checksum type {checksum_type}", "RocksDBException")
    return SstFooter(checksum_type, format_version)


_TRAILER: Final = 5
_MAX_BLOCK: Final = 1 << 20
_HANDLE_AT: Final = 1
_SIZE_AT: Final = slice(13, 17)
_NEW_FOOTER: Final = 6
_PROPERTIES: Final = (b"rocksdb.properties", b"rocksdb.stats")
_EXTERNAL: Final = b"rocksdb.external_sst_file.version"
_FAMILY: Final = b"rocksdb.column.family.name"
_MAX_VARINT: Final = 10
_UNIQUE: Final = (
    b"rocksdb.creating.db.identity",
    b"rocksdb.creating.session.identity",
    b"rocksdb.original.file.number",
)
"""Of these RocksDB computes the unique id of a table file (``GetUniqueIdFromTableProperties``)."""


@dataclass(frozen=True, slots=True)
class SstProperties:
    """What a table file says of itself. Times are seconds since 1970; None where the file does not say (0)."""

    raw: bytes
    """The whole block: with database, session and the number that the file had first, so that no two files share it."""
    family: str | None
    """Name of the column family; None in a file of ``SstFileWriter``."""
    created: int | None
    """``rocksdb.file.creation.time``: when the file was made, by a flush or by a compaction."""
    oldest_ancestor: int | None
    """``rocksdb.creation.time``: when the first row of a flush came; of a compaction the oldest of its sources."""
    oldest_key: int | None
    """``rocksdb.oldest.key.time``: only a flush knows it."""
    newest_key: int | None
    """``rocksdb.newest.key.time``, which later releases of RocksDB keep through compactions."""
    external: bool
    """Written outside of any database, and taken in later (``SstFileWriter``)."""
    has_unique_id: bool = False
    """Database, session and number of its making are recorded: then no other file has these properties."""

    @property
    def newest_data(self) -> int | None:
        """Return a lower bound of the time of the last write to the rows of this file; None if no property shows one.

        The unit is seconds since 1970. The bound may be too early, never too late: a late bound would make old rows
        look young (`kstate_cli.offsets.ages.sst_age` says what would be lost then).
        """
        # The file was written outside of this database and imported. Its creation time says nothing about when its rows
        # were written.
        if self.external:
            return None
        if self.newest_key is not None:
            # A file is created after its newest row was written. If a clock was wrong, the earlier time is safe.
            return min(self.newest_key, self.created or self.newest_key)
        # Only a flush, which writes the rows from memory to a file, records the time of the oldest key. It happens
        # while the application writes, so the creation time of the file is a time of writing.
        if self.oldest_key is not None:
            return self.created
        # An older RocksDB wrote the file in a compaction: the file is young, its rows are old, and the only time of
        # them is the creation of the oldest file that was compacted.
        return self.oldest_ancestor


def read_properties(file: BinaryIO) -> SstProperties:
    """Return the properties of an open table file. Raises :class:`MalformedBytesError` for other contents, OSError."""
    size = file.seek(0, 2)
    if size < FOOTER_LENGTH:
        raise MalformedBytesError(f"the file has only {size} bytes, so it has no footer")
    tail = _read(file, size - FOOTER_LENGTH, FOOTER_LENGTH)
    # Properties are found through the metaindex block. From format 6 on, the footer has no handle of it, which is
    # offset and size, but only the size: it is right before the footer.
    if footer(tail).format_version >= _NEW_FOOTER:
        length = int.from_bytes(tail[_SIZE_AT], "little")
        at = size - FOOTER_LENGTH - _TRAILER - length
    else:
        at, next_ = _varint(tail, _HANDLE_AT)
        length, _ = _varint(tail, next_)
    index = dict(_entries(_block(file, at, length, size)))
    # RocksDB has renamed the block of the properties, so both names are looked up.
    handle = next((index[name] for name in _PROPERTIES if name in index), None)
    if handle is None:
        raise MalformedBytesError("the SST has no properties")
    at, next_ = _varint(handle, 0)
    length, _ = _varint(handle, next_)
    block = _block(file, at, length, size)
    properties = dict(_entries(block))
    return SstProperties(
        raw=block,
        family=properties[_FAMILY].decode("utf-8", "replace") if _FAMILY in properties else None,
        created=_number(properties, b"rocksdb.file.creation.time"),
        oldest_ancestor=_number(properties, b"rocksdb.creation.time"),
        oldest_key=_number(properties, b"rocksdb.oldest.key.time"),
        newest_key=_number(properties, b"rocksdb.newest.key.time"),
        external=_EXTERNAL in properties,
        has_unique_id=all(properties.get(name) for name in _UNIQUE),
    )


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    data = file.read(length)
    if len(data) != length:
        raise MalformedBytesError(f"the SST ends less than {length} bytes after byte {at}")
    return data


def _block(file: BinaryIO, at: int, length: int, size: int) -> bytes:
    # A damaged handle may state any size: at most a mebibyte is read.
    if not 0 < length <= _MAX_BLOCK or not 0 <= at <= size - FOOTER_LENGTH - _TRAILER - length:
        raise MalformedBytesError(f"a block of {length} bytes at byte {at} extends beyond the SST")
    data = _read(file, at, length + 1)
    # The byte behind a block is its compression; RocksDB never compresses the properties.
    if data[-1]:
        raise MalformedBytesError(f"the block at byte {at} is compressed, but RocksDB never compresses properties")
    return data[:-1]


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return keys and values of a block of a table file."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    entries: list[tuple[bytes, bytes]] = []
    at, key, expanded = 0, b"", 0
    if end < 0:
        raise MalformedBytesError("a block has more restart points than bytes")
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + unshared + length > end:
            raise MalformedBytesError("an entry extends beyond its block")
        # A key begins with the first ``shared`` bytes of the key before, so only the rest of it is stored.
        key = key[:shared] + block[at : at + unshared]
        # A few bytes can repeat a long key: a damaged block of a mebibyte would become gigabytes.
        expanded += len(key)
        if expanded > _MAX_BLOCK:
            raise MalformedBytesError("the keys of a block are longer than any block")
        at += unshared
        entries.append((key, block[at : at + length]))
        at += length
    return entries


def _number(properties: dict[bytes, bytes], name: bytes) -> int | None:
    """Return a number; None if it is missing, and for 0, by which RocksDB states that it does not know."""
    data = properties.get(name)
    if not data:
        return None
    return _varint(data, 0)[0] or None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint64 and where the next byte is."""
    value = 0
    for number in range(_MAX_VARINT):
        if at + number >= len(data):
            break
        byte = data[at + number]
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, at + number + 1
    raise MalformedBytesError("a varint has no end")


BLOB_HEADER_LENGTH: Final = 30
BLOB_FOOTER_LENGTH: Final = 32
_BLOB_MAGIC: Final = (2_395_959).to_bytes(4, "little")
_BLOB_VERSION: Final = (1).to_bytes(4, "little")
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


def blob_records(file: BinaryIO, size: int) -> Iterator[BlobRecord]:
    """Yield the records of a file of ``size`` bytes in their order; values are not read.

    :class:`MalformedBytesError` where the header, the footer, or the header of a record is not what RocksDB wrote, and
    where the file ends too early.
    """
    check_blob_ends(file, size)
    at, end = BLOB_HEADER_LENGTH, size - BLOB_FOOTER_LENGTH
    while at < end:
        file.seek(at)
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            raise _malformed(f"the file ends within the record at byte {at}")
        key_length, value_length, _, head_crc, crc = _RECORD.unpack(head)
        after = at + _RECORD.size + key_length + value_length
        # The checksum is compared before the lengths are used: damaged ones would lead anywhere in the file.
        if masked(head[:_SUMMED]) != head_crc or after > end:
            raise _malformed(f"the header of the record at byte {at} does not match its checksum")
        yield BlobRecord(file.read(key_length), at + _RECORD.size, key_length + value_length, crc)
        at = after


def check_blob_ends(file: BinaryIO, size: int) -> None:
    """Check header and footer of a blob file of ``size`` bytes. Raises as :func:`blob_records`."""
    file.seek(0)
    header = file.read(BLOB_HEADER_LENGTH)
    if (
        len(header) < BLOB_HEADER_LENGTH
        or header[:8] != _BLOB_MAGIC + _BLOB_VERSION
        or header[12]
        or any(header[_EXPIRATION:])
    ):
        raise _malformed("the file does not begin with the header of a blob file")
    file.seek(max(0, size - BLOB_FOOTER_LENGTH))
    footer = file.read(BLOB_FOOTER_LENGTH)
    summed = footer[:-_CRC]
    if (
        len(footer) < BLOB_FOOTER_LENGTH
        or footer[:4] != _BLOB_MAGIC
        or masked(summed).to_bytes(_CRC, "little") != footer[-_CRC:]
    ):
        raise _malformed("the file has no footer that matches its checksum")


def is_whole_blob(file: BinaryIO, record: BlobRecord) -> bool:
    """Return whether key and value of a record match their checksum."""
    file.seek(record.at)
    return masked(file.read(record.length)) == record.crc


def _malformed(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"blob file: {problem}", "RocksDBException")
