"""Small databases, and changes of SSTs that their checksums allow."""

from __future__ import annotations

from pathlib import Path

from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict

from kstate_cli.formats.kind_inference import Kind
from kstate_cli.statedir.problems import Place
from kstate_cli.verify.database import DatabaseJob, DatabaseReport, verify_database

FAMILIES = ("default", "offsets")
_TABLE = [0] * 256
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    _TABLE[_byte] = _crc


def options() -> Options:
    """As Streams 3.9 writes: SST format 5 and CRC32c; nothing is compacted."""
    table = BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.crc32c())
    table.set_bloom_filter(10, False)
    settings = Options(raw_mode=True)
    settings.create_if_missing(True)
    settings.create_missing_column_families(True)
    settings.set_block_based_table_factory(table)
    settings.set_compression_type(DBCompressionType.none())
    settings.set_disable_auto_compactions(True)
    return settings


def database(path: Path, *runs: dict[bytes, bytes | None], family: str = "default") -> Path:
    """A database with one SST for each run; a value of None deletes the key."""
    names = sorted({*FAMILIES, family})
    db = Rdict(str(path), options(), column_families={name: options() for name in names})
    handle = db.get_column_family(family)
    for run in runs:
        for key, value in run.items():
            if value is None:
                del handle[key]
            else:
                handle[key] = value
        handle.flush()
    del handle
    db.close()
    return path


def rows(count: int, start: int = 0, step: int = 1, size: int = 100) -> dict[bytes, bytes | None]:
    return {b"key-%09d" % number: bytes(size) for number in range(start, count, step)}


def verify(path: Path, kind: str = "key-value", *, segment: int | None = None, each: bool = False) -> DatabaseReport:
    return verify_database(DatabaseJob(path, Place(("0_0", "db")), Kind(kind, True, "the test"), segment, 1, each))


def ssts(path: Path) -> list[Path]:
    return sorted(path.glob("*.sst"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def crc32c(data: bytes, crc: int = 0xFFFFFFFF) -> int:
    """The state; masked() makes of it what RocksDB stores."""
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc


def mask(state: int) -> bytes:
    crc = state ^ 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def first_block_end(data: bytes) -> int:
    """The length of the first data block: where a type byte and a good checksum follow."""
    state = 0xFFFFFFFF
    for end in range(len(data)):
        if data[end] == 0 and mask(crc32c(data[end : end + 1], state)) == data[end + 1 : end + 5]:
            return end
        state = crc32c(data[end : end + 1], state)
    raise AssertionError("no block")


def change_first_block(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes in the first data block, and makes its checksum good again."""
    data = path.read_bytes()
    end = first_block_end(data)
    block = data[:end].replace(old, new, 1)
    assert len(block) == end
    assert block != data[:end]
    path.write_bytes(block + b"\0" + mask(crc32c(block + b"\0")) + data[end + 5 :])


def change_property(path: Path, name: bytes, add: int) -> None:
    """Adds to a small number in the properties block, and makes the checksum good again."""
    data = bytearray(path.read_bytes())
    at = data.index(name) + len(name)
    footer = data[-53:]
    metaindex, shift = 0, 0
    for byte in footer[1:]:
        metaindex |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    end = metaindex - 5
    start = next(
        start for start in range(at, 0, -1) if mask(crc32c(bytes(data[start : end + 1]))) == data[end + 1 : end + 5]
    )
    assert data[at] + add < 0x80
    data[at] += add
    data[end + 1 : end + 5] = mask(crc32c(bytes(data[start : end + 1])))
    path.write_bytes(data)
