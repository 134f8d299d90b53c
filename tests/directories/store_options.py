"""Other values for every option that a `rocksdb.config.setter` can give a store, and databases that have them.

The options are those that an OPTIONS file of rocksdbjni 10.1.3 lists, and those that it lists only where they are set.
What Java sets and no OPTIONS file shows (an Env, a cache, a rate limiter, statistics, listeners) RocksDB keeps nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import BottommostLevelCompaction, CompactOptions, Env, Options, Rdict, WriteOptions

from kstate_cli.formats.binary import masked
from kstate_cli.formats.metadata_files import StoredOptions, parse
from kstate_cli.rocks.files import CURRENT, newest_options

DATABASE, FAMILY, TABLE = "DBOptions", "CFOptions", "TableOptions"
LOGS: Final = "/LOGS"
"""Stands for a folder that the test makes for `db_log_dir`."""

_VALUES: Final[dict[str, tuple[str, ...]]] = {
    # Of the database.
    "db_host_id": ("host-7",),
    "db_log_dir": (LOGS,),
    "daily_offpeak_time_utc": ("01:00-02:00",),
    "file_checksum_gen_factory": ("FileChecksumGenCrc32cFactory",),
    "info_log_level": ("DEBUG_LEVEL",),
    "lowest_used_cache_tier": ("kVolatileTier",),
    "max_background_compactions": ("2",),
    "max_background_flushes": ("2",),
    "max_file_opening_threads": ("2",),
    "max_manifest_file_size": ("1024",),
    "max_open_files": ("20",),
    "metadata_write_temperature": ("kWarm",),
    "recycle_log_file_num": ("2",),
    "table_cache_numshardbits": ("4",),
    "wal_compression": ("kZSTD",),
    "wal_recovery_mode": ("kAbsoluteConsistency", "kTolerateCorruptedTailRecords"),
    "wal_write_temperature": ("kWarm",),
    # Of a column family.
    "block_protection_bytes_per_key": ("8",),
    "blob_compression_type": ("kLZ4Compression",),
    "blob_garbage_collection_age_cutoff": ("1.000000",),
    "blob_garbage_collection_force_threshold": ("0.500000",),
    "bottommost_compression": ("kZSTD",),
    "compaction_filter": ("RemoveEmptyValueCompactionFilter",),
    "compaction_pri": ("kByCompensatedSize",),
    "compaction_style": ("kCompactionStyleLevel", "kCompactionStyleNone"),
    "compression": (
        "kSnappyCompression", "kZlibCompression", "kBZip2Compression", "kLZ4Compression", "kLZ4HCCompression", "kZSTD",
    ),
    "compression_per_level": ("kNoCompression:kSnappyCompression:kZSTD",),
    "default_temperature": ("kWarm",),
    "default_write_temperature": ("kWarm",),
    "experimental_mempurge_threshold": ("1.000000",),
    "last_level_temperature": ("kCold",),
    "max_bytes_for_level_multiplier": ("4.000000",),
    "max_bytes_for_level_multiplier_additional": ("1:2:1:1:1:1:1",),
    "memtable_factory": (
        "{id=HashSkipListRepFactory;bucket_count=1000;skiplist_height=4;branching_factor=4;}",
        "{id=HashLinkListRepFactory;bucket_count=1000;}",
        "{id=VectorRepFactory;count=100;}",
        "{id=SkipListFactory;lookahead=4;}",
    ),
    "memtable_huge_page_size": ("2097152",),
    "memtable_insert_with_hint_prefix_extractor": ("rocksdb.FixedPrefix.2",),
    "memtable_prefix_bloom_size_ratio": ("0.100000",),
    "memtable_protection_bytes_per_key": ("8",),
    "num_levels": ("12", "1"),
    "prefix_extractor": ("rocksdb.FixedPrefix.2", "rocksdb.CappedPrefix.3", "rocksdb.Noop"),
    "prepopulate_blob_cache": ("kFlushOnly",),
    "sst_partitioner_factory": ("{id=SstPartitionerFixedPrefixFactory;length=2;}",),
    "write_buffer_size": ("65536",),
    # Of a table.
    "checksum": ("kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64"),
    "data_block_index_type": ("kDataBlockBinaryAndHash",),
    "data_block_hash_table_util_ratio": ("0.500000",),
    "filter_policy": ("bloomfilter:16:false", "ribbonfilter:10:0", "nullptr"),
    "flush_block_policy_factory": ("FlushBlockEveryKeyPolicyFactory",),
    "format_version": ("2", "3", "4", "5"),
    "index_shortening": ("kNoShortening",),
    "index_type": ("kHashSearch", "kTwoLevelIndexSearch", "kBinarySearchWithFirstKey"),
    "metadata_cache_options": ("{unpartitioned_pinning=kAll;partition_pinning=kAll;top_level_index_pinning=kAll;}",),
    "prepopulate_block_cache": ("kFlushOnly",),
}  # fmt: skip
"""Values for options that are neither a flag nor a number that may be any other."""

_INNER: Final = {
    "compression_opts": "level=3",
    "bottommost_compression_opts": "max_dict_bytes=4096",
    "compaction_options_universal": "max_size_amplification_percent=50",
    "compaction_options_fifo": "max_table_files_size=4096",
}
"""A member of an option that has several."""

UNREADABLE: Final = {
    "wal_dir": "/elsewhere",
    "comparator": "rocksdb.ReverseBytewiseComparator",
    "env": "{id=EncryptedEnv;}",
    "merge_operator": "{id=StringAppendOperator;delimiter=,;}",
    "persist_stats_to_disk": "true",
    "table_factory": "PlainTable",
}
"""Options with which a database is more than its directory of bytes in bytewise order: kstate changes none."""

OBJECTS: Final = {"compaction_filter_factory", "wal_filter"}
"""Code of the application: an OPTIONS file has no name for it that RocksDB could make an object of."""

_WITH: Final = {
    "kHashSearch": ("prefix_extractor", "rocksdb.FixedPrefix.2"),
    "{id=HashSkipListRepFactory;": ("prefix_extractor", "rocksdb.FixedPrefix.2"),
    "{id=HashLinkListRepFactory;": ("prefix_extractor", "rocksdb.FixedPrefix.2"),
}
"""What a value is of no use without."""

_APART: Final = (
    {"use_direct_reads", "allow_mmap_reads"},
    {"use_direct_io_for_flush_and_compaction", "allow_mmap_writes"},
    {"two_write_queues", "unordered_write", "enable_pipelined_write", "allow_concurrent_memtable_write"},
    {"enable_pipelined_write", "atomic_flush="},
    {"inplace_update_support", "unordered_write", "allow_concurrent_memtable_write="},
    {"memtable_factory", "inplace_update_support", "memtable_insert_with_hint_prefix_extractor"},
    {"memtable_factory", "unordered_write"},
    {"memtable_factory", "paranoid_memory_checks"},
    {"write_identity_file", "write_dbid_to_manifest"},
    {"block_align", "compression", "bottommost_compression", "compression_per_level"},
    {"no_block_cache", "cache_index_and_filter_blocks"},
    {"allow_ingest_behind", "num_levels", "compaction_style"},
    {"preclude_last_level_data_seconds", "num_levels", "compaction_style", "allow_ingest_behind"},
    {"blob_file_starting_level", "num_levels"},
    {"max_bytes_for_level_multiplier_additional", "num_levels"},
    {"recycle_log_file_num", "wal_recovery_mode"},
    {"enable_blob_files", "compaction_filter"},
    {"optimize_filters_for_hits", "compaction_style"},
)  # fmt: skip
"""Options of which a database takes one only."""

_SET_AFTERWARDS: Final = {
    "error_if_exists",
    "disallow_memtable_writes",
    "recycle_log_file_num",
    "track_and_verify_wals",
}
"""With them the database could not be filled here."""


@dataclass(frozen=True, slots=True)
class OtherValue:
    """An option with a value that is not the one that Streams leaves."""

    section: str
    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def other_values(stored: StoredOptions, family: str) -> Iterator[OtherValue]:
    """Every option of a database, of one of its column families, and of the tables of that, with each other value."""
    sections = (DATABASE, stored.db), (FAMILY, stored.column_families[family]), (TABLE, stored.tables[family])
    for section, options in sections:
        unlisted = {DATABASE: ("db_log_dir", "daily_offpeak_time_utc"), FAMILY: ("compression_per_level",)}
        for name in sorted({*options, *unlisted.get(section, ())} - UNREADABLE.keys() - OBJECTS):
            for value in _others(name, options.get(name, "")):
                yield OtherValue(section, name, value)


def _others(name: str, value: str) -> tuple[str, ...]:
    if name in _VALUES:
        return tuple(entry for entry in _VALUES[name] if entry != value)
    if name in _INNER:
        member = _INNER[name].partition("=")[0]
        changed = re.sub(rf"\b{member}=[^;]*", _INNER[name], value)
        assert changed != value, name
        return (changed,)
    if value in ("true", "false"):
        return ("false" if value == "true" else "true",)
    assert value.isdecimal(), f"{name}={value}: no other value of it is in the table"
    return (str(2 * int(value) if int(value) < 1 << 20 else int(value) // 2) if int(value) else "1",)


def groups(values: Sequence[OtherValue]) -> list[list[OtherValue]]:
    """The values in as few groups as can be: none has an option twice, or two that exclude each other."""
    valueses: list[list[OtherValue]] = []
    for value in values:
        fitting = (group for group in valueses if not any(_apart(value, other) for other in group))
        group = next(fitting, None)
        if group is None:
            valueses.append([value])
        else:
            group.append(value)
    return valueses


def _apart(entry: OtherValue, other: OtherValue) -> bool:
    names = {entry.name, other.name}
    needs = {name for value in (entry, other) for name in _needed_names(value)}
    return len(names) == 1 or any(names <= apart for apart in _APART) or bool(needs & names)


def _needed_names(value: OtherValue) -> set[str]:
    return {name for mark, (name, _) in _WITH.items() if value.value.startswith(mark)}


def give(path: Path, values: Sequence[OtherValue], logs: Path) -> None:
    """Opens the database with these values, in all its column families, and writes every row again."""
    needs = [
        OtherValue(FAMILY, name, text)
        for value in values
        for mark, (name, text) in _WITH.items()
        if value.value.startswith(mark)
    ]
    now = [value for value in (*values, *needs) if value.name not in _SET_AFTERWARDS]
    names = {entry.name for entry in now}
    if names & {"enable_pipelined_write"}:
        now.append(OtherValue(DATABASE, "atomic_flush", "false"))
    if names & {"memtable_factory", "inplace_update_support"}:
        now.append(OtherValue(DATABASE, "allow_concurrent_memtable_write", "false"))
    edit_options(path, now, logs)
    _fill(path)
    # As RocksDB 10.1.3 writes them: the one that has filled the database here is older, and knows fewer options.
    edit_options(path, [OtherValue("Version", "rocksdb_version", "10.1.3")], logs)
    edit_options(path, [value for value in values if value.name in _SET_AFTERWARDS], logs)


def give_refused(path: Path, name: str) -> None:
    """Gives a database an option of :data:`UNREADABLE`, as far as one can without what the option names."""
    section = FAMILY if name in ("comparator", "merge_operator", "table_factory") else DATABASE
    value = OtherValue(section, name, UNREADABLE[name])
    edit_options(path, [value], path)
    if name == "persist_stats_to_disk":
        _fill(path)


def rename_comparator(path: Path) -> None:
    """Gives the column families of a database a comparator that RocksDB does not have, in the MANIFEST alone."""
    manifest = path / (path / CURRENT).read_text().strip()
    data, at = bytearray(manifest.read_bytes()), 0
    assert len(data) < 32768
    while at < len(data):
        end = at + 7 + int.from_bytes(data[at + 4 : at + 6], "little")
        data[at + 7 : end] = data[at + 7 : end].replace(b"BytewiseComparator", b"BytewiseComparatoR")
        data[at : at + 4] = masked(bytes(data[at + 6 : end])).to_bytes(4, "little")
        at = end
    manifest.write_bytes(data)


def edit_options(path: Path, values: Sequence[OtherValue], logs: Path) -> None:
    """Writes values into the newest OPTIONS file, in each of the sections that have them."""
    newest = newest_options(path)
    assert newest is not None
    text = newest.read_text(encoding="utf-8")
    for entry in values:
        value = entry.value.replace(LOGS, str(logs))
        heading = re.compile(rf"^(\[{entry.section}\b.*\])$", re.MULTILINE)
        text = re.sub(rf"^  {entry.name}=.*\n", "", text, flags=re.MULTILINE)
        text = heading.sub(rf"\1\n  {entry.name}={value}", text)
    newest.write_text(text, encoding="utf-8")


def _fill(path: Path) -> None:
    options, families = Options.load_latest(str(path), Env(), True)
    database = Rdict(str(path), options, column_families=families)
    writing = WriteOptions()
    writing.disable_wal = True  # type: ignore[method-assign,assignment]
    merging = CompactOptions()
    merging.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    for name in families:
        family = database.get_column_family(name)
        family.set_write_options(writing)
        rows = list(family.items())
        for key, value in rows:
            family[key] = value
        family.flush()
        family.compact_range(None, None, merging)
        if rows:
            # A second file, in the first level.
            family[rows[0][0]] = rows[0][1]
            family.flush()
        del family
    database.close()
    (path / "rocksdict-config.json").unlink(missing_ok=True)


def options_of(path: Path) -> StoredOptions:
    """What the newest OPTIONS file of a database says."""
    newest = newest_options(path)
    assert newest is not None
    return parse(newest.read_bytes())


def databases(app: Path) -> list[Path]:
    """Every database of an application."""
    return sorted(path.parent for path in app.rglob("CURRENT"))


def has(stored: StoredOptions, value: OtherValue) -> bool:
    """Whether a database, or a column family of it, has an option, whatever its value is."""
    sections: Mapping[str, Sequence[Mapping[str, str]]] = {
        DATABASE: (stored.db,),
        FAMILY: tuple(stored.column_families.values()),
        TABLE: tuple(stored.tables.values()),
    }
    return any(value.name in options for options in sections[value.section])


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and size of everything in a folder."""
    return {
        name: (os.stat(folder / name).st_ino, os.stat(folder / name).st_size) for name in sorted(os.listdir(folder))
    }
