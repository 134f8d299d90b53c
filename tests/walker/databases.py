"""RocksDB as the walker itself reads and writes it: with rocksdict alone, nothing of kstate's code."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    ChecksumType,
    DBCompactionStyle,
    DBCompressionType,
    Env,
    Options,
    Rdict,
    WriteOptions,
)

Rows = dict[bytes, bytes]
OFFSETS = "offsets"
_CONFIG = "rocksdict-config.json"
_FORMAT_AT = slice(-12, -8)
"""The last bytes of an SST: format_version:u32 little endian, magic:u64."""


@dataclass(frozen=True)
class Database:
    """What one RocksDB holds."""

    families: Mapping[str, Rows]
    formats: frozenset[int]
    """`format_version` of its SSTs, by their footers; files that no MANIFEST names count as well."""

    @property
    def data(self) -> dict[str, Rows]:
        """The column families with rows of the store."""
        return {name: rows for name, rows in self.families.items() if name != OFFSETS and rows}


def is_database(folder: Path) -> bool:
    """Whether RocksDB lives, or has lived, in this folder."""
    return (folder / "CURRENT").exists() or any(folder.glob("MANIFEST-*"))


def read(folder: Path) -> Database:
    """Every row of every column family. It is a copy that is opened: opening leaves traces."""
    with tempfile.TemporaryDirectory(prefix="walker-read-") as scratch:
        copy = Path(scratch) / "db"
        shutil.copytree(folder, copy)
        options, families = Options.load_latest(str(copy), Env(), True)
        database = Rdict(str(copy), options, column_families=families, access_type=AccessType.read_only())
        rows = {name: _rows(database.get_column_family(name)) for name in families}
        database.close()
    return Database(rows, formats(folder))


def formats(folder: Path) -> frozenset[int]:
    """The `format_version` of every SST in a folder."""
    results = set()
    for path in folder.glob("*.sst"):
        results.add(int.from_bytes(path.read_bytes()[_FORMAT_AT], "little"))
    return frozenset(results)


def _rows(family: Rdict) -> Rows:
    results: Rows = {}
    rows = family.iter()
    rows.seek_to_first()
    while rows.valid():
        results[rows.key()] = rows.value()
        rows.next()
    rows.status()
    return results


def write(folder: Path, families: Mapping[str, Mapping[bytes, bytes | None]], *, sst_format: int, atomic: bool) -> None:
    """
    Open a database as a store of Streams does, make it where it is missing, put and delete rows, flush, close.

    It must not have other column families than these: RocksDB refuses that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options, families_options = _options(folder, families, sst_format)
    options.set_atomic_flush(atomic)
    database = Rdict(str(folder), options, column_families=families_options)
    quietly = WriteOptions()
    quietly.disable_wal = True  # type: ignore[method-assign,assignment]
    for name, rows in families.items():
        family = database.get_column_family(name)
        for key, value in rows.items():
            if value is None:
                family.delete(key, quietly)
            else:
                family.put(key, value, quietly)
        if rows:
            family.flush()
        del family
    database.close()
    (folder / _CONFIG).unlink(missing_ok=True)


def _options(folder: Path, families: Mapping[str, object], sst_format: int) -> tuple[Options, dict[str, Options]]:
    if (folder / "CURRENT").exists():
        options, facts = Options.load_latest(str(folder), Env(), True)
        options.create_missing_column_families(True)
        missing = {name: _fresh(sst_format) for name in families if name not in facts}
        # An open without one of the column families fails; that is how ≤ 4.2 meets a directory of 4.3.
        backup = {name: entry for name, entry in facts.items() if name in families}
        for option in (options, *backup.values()):
            option.set_disable_auto_compactions(True)
        return options, {**backup, **missing}
    options = _fresh(sst_format)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return options, {name: _fresh(sst_format) for name in families}


def _fresh(sst_format: int) -> Options:
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_size(4096)
    table.set_bloom_filter(10, False)
    table.set_format_version(sst_format)
    table.set_checksum_type(ChecksumType.crc32c() if sst_format <= 5 else ChecksumType.xxh3())
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_disable_auto_compactions(True)
    return options


def flip(path: Path, at: int) -> None:
    """Turn one byte of a file around."""
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0xFF
    with open(path, "r+b") as file:
        file.write(data)
        os.fsync(file.fileno())
