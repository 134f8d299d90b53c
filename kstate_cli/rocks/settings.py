"""Options of databases: those that Streams sets, and those of a staged database while kstate writes to it.

A new database gets the options of its release (``RocksDBStore.openDB``, ``offsetsCFOptions``).

An application may set any option in its ``RocksDBConfigSetter``. Some options write outside the directory, some need
the application's own hardware or file system, and some drop rows by themselves. kstate opens the *staged* copy with
other values for these, and restores the values in the OPTIONS file after it has closed the copy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kstate_cli.formats.metadata_files import with_settings
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.host import cores_here
from kstate_cli.releases import OLD_SST_FORMAT, OffsetsHome, Release

if TYPE_CHECKING:
    from rocksdict import BlockBasedOptions, Options

OWN_SST_FORMAT: Final = 6
"""The highest SST format that the RocksDB of rocksdict writes and reads. Releases that read a later one read it too."""
TARGET_FILE_BYTES: Final = 64 << 20
"""The size at which a compaction starts the next file, below the first level (``target_file_size_base``): RocksDB's
default, which Streams keeps."""
# ``RocksDBStore``: BLOCK_SIZE, the filter of 10 bits, WRITE_BUFFER_SIZE and MAX_WRITE_BUFFERS, universal compaction,
# and no compression.
_BLOCK_BYTES = 4096
_BLOOM_BITS = 10
_DATA_BUFFER_BYTES, _DATA_BUFFERS = 16 * 1024 * 1024, 3
_OFFSETS_BUFFER_BYTES, _OFFSETS_BUFFERS = 1024 * 1024, 2
_NAMELESS_FILTER = re.compile(r"filter_policy=bloomfilter$", re.MULTILINE)


def with_filter_bits(options_file: str) -> str:
    """Return OPTIONS with the bits of the filter: RocksDB's C interface omits them, and the next open would lose it."""
    return _NAMELESS_FILTER.sub(f"filter_policy=bloomfilter:{_BLOOM_BITS}:false", options_file)


def with_quiet_log(options_file: str) -> str:
    """Return OPTIONS with Streams' log level, which rocksdict cannot set: by default each open writes 50 KB of LOG."""
    return options_file.replace("info_log_level=INFO_LEVEL", "info_log_level=ERROR_LEVEL")


def database_options(release: Release) -> Options:
    """Return the options of a new database and its column family ``default``."""
    options = data_options(release)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # With atomic flush, offsets are never ahead of the rows that they describe.
    options.set_atomic_flush(release.offsets_home is OffsetsHome.COLUMN_FAMILY)
    return options


def family_options(family: str, release: Release) -> Options:
    """Return the options of a column family by its name."""
    if family == OFFSETS_CF:
        return offsets_options(release)
    return data_options(release)


def data_options(release: Release) -> Options:
    """Return the options of a data column family: universal compaction, no compression, 10-bit bloom filter."""
    from rocksdict import DBCompactionStyle, DBCompressionType, Options

    options = Options(raw_mode=True)
    table = _table(release)
    table.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_write_buffer_size(_DATA_BUFFER_BYTES)
    options.set_max_write_buffer_number(_DATA_BUFFERS)
    # Releases before 4.0 intend to set this option, but call its getter.
    options.set_optimize_filters_for_hits(release.reads_sst_format > OLD_SST_FORMAT)
    return options


def offsets_options(release: Release) -> Options:
    """Return the options of the column family ``offsets``: RocksDB's defaults, no compression, a small buffer."""
    from rocksdict import DBCompactionStyle, DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_block_based_table_factory(_table(release))
    options.set_compression_type(DBCompressionType.none())
    options.set_compaction_style(DBCompactionStyle.level())
    options.set_write_buffer_size(_OFFSETS_BUFFER_BYTES)
    options.set_max_write_buffer_number(_OFFSETS_BUFFERS)
    return options


def _table(release: Release) -> BlockBasedOptions:
    from rocksdict import BlockBasedOptions, ChecksumType

    table = BlockBasedOptions()
    table.set_block_size(_BLOCK_BYTES)
    table.set_format_version(min(release.reads_sst_format, OWN_SST_FORMAT))
    # Every release can read the checksum that it writes itself.
    if release.reads_sst_format <= OLD_SST_FORMAT:
        table.set_checksum_type(ChecksumType.crc32c())
    else:
        table.set_checksum_type(ChecksumType.xxh3())
    return table


# kstate may have many databases open at the same time, one for each store and segment, so each gets few descriptors.
_OPEN_FILES: Final = 256
_MANIFEST_PREALLOCATION: Final = 64 * 1024
_BACKGROUND_JOBS: Final = 2 * max(2, cores_here())

_DATABASE: Final = {
    # The staged copy exists. If it did not, RocksDB must not create an empty database in its place.
    "create_if_missing": "false",
    "create_missing_column_families": "false",
    "error_if_exists": "false",
    # A damaged or missing file must end the run with an error.
    "paranoid_checks": "true",
    "best_efforts_recovery": "false",
    "skip_checking_sst_file_sizes_on_db_open": "false",
    "fail_if_options_file_error": "true",
    # Not every file system supports mmap and direct I/O.
    "allow_mmap_reads": "false",
    "allow_mmap_writes": "false",
    "use_direct_reads": "false",
    "use_direct_io_for_flush_and_compaction": "false",
    # kstate writes without a write-ahead log and then flushes. It leaves only empty logs, and no archive of logs.
    "avoid_flush_during_recovery": "false",
    "avoid_flush_during_shutdown": "false",
    "allow_2pc": "false",
    "enable_pipelined_write": "false",
    "manual_wal_flush": "false",
    "recycle_log_file_num": "0",
    "two_write_queues": "false",
    "unordered_write": "false",
    "wal_compression": "kNoCompression",
    "wal_filter": "nullptr",
    "WAL_size_limit_MB": "0",
    "WAL_ttl_seconds": "0",
    # Statistics cost time, and persistent ones would add a column family.
    "persist_stats_to_disk": "false",
    "skip_stats_update_on_db_open": "true",
    "stats_dump_period_sec": "0",
    "stats_persist_period_sec": "0",
    # kstate uses few threads, descriptors and little disk space, for a short time. All databases of a process share
    # RocksDB's threads. With the default of two jobs, stores would be compacted one after the other.
    "manifest_preallocation_size": str(_MANIFEST_PREALLOCATION),
    "max_background_compactions": "-1",
    "max_background_flushes": "-1",
    "max_background_jobs": str(_BACKGROUND_JOBS),
    "max_file_opening_threads": "1",
    "max_open_files": str(_OPEN_FILES),
}

_FAMILY: Final = {
    # No automatic compaction may replace a linked SST. With a ttl, RocksDB would drop files of a FIFO compaction, and
    # would refuse to open them with a limited number of descriptors.
    "disable_auto_compactions": "true",
    "periodic_compaction_seconds": "0",
    "ttl": "0",
    # A filter of the application must not remove rows when kstate rewrites SSTs.
    "compaction_filter": "nullptr",
    "compaction_filter_factory": "nullptr",
    # With this option the SSTs of the bottommost level have no filter, and a rewrite puts all rows there.
    "optimize_filters_for_hits": "false",
    # A memtable that accepts any key, in any order, from any thread.
    "disallow_memtable_writes": "false",
    "experimental_mempurge_threshold": "0",
    "inplace_update_support": "false",
    "memtable_factory": "SkipListFactory",
    "memtable_huge_page_size": "0",
}

_STYLES: Final = {"kCompactionStyleNone": "kCompactionStyleLevel"}
"""Without a style RocksDB merges nothing, even on request."""


def with_writing_settings(options_file: str) -> str:
    """Return the text of an OPTIONS file with the settings that a database has while kstate writes to it."""
    return with_settings(options_file, _DATABASE, _FAMILY, {"compaction_style": _STYLES})
