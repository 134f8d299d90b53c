"""The options of a *staged* database while kstate has it open for writing: those of its OPTIONS file, but for a few.

An application may set anything in its ``RocksDBConfigSetter``. Some of it writes outside the directory, some needs the
application's own hardware or file system, some drops rows by itself. kstate opens the staged copy with other values for
these, and restores the values in the OPTIONS file after it has closed the copy.
"""

from __future__ import annotations

from typing import Final

from kstate_cli.formats.options_file import with_settings
from kstate_cli.host import cores_here

_OPEN_FILES: Final = 256
_MANIFEST_PREALLOCATION: Final = 64 * 1024
_BACKGROUND_JOBS: Final = 2 * max(2, cores_here())

_DATABASE: Final = {
    # The staged copy exists, and an empty database must never take its place.
    "create_if_missing": "false",
    "create_missing_column_families": "false",
    "error_if_exists": "false",
    # A damaged or missing file ends the run.
    "paranoid_checks": "true",
    "best_efforts_recovery": "false",
    "skip_checking_sst_file_sizes_on_db_open": "false",
    "fail_if_options_file_error": "true",
    # Not every file system has them.
    "allow_mmap_reads": "false",
    "allow_mmap_writes": "false",
    "use_direct_reads": "false",
    "use_direct_io_for_flush_and_compaction": "false",
    # kstate writes without a write-ahead log, flushes, and leaves empty logs and no archive of logs behind.
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
    # Statistics cost time, and persistent ones add a column family.
    "persist_stats_to_disk": "false",
    "skip_stats_update_on_db_open": "true",
    "stats_dump_period_sec": "0",
    "stats_persist_period_sec": "0",
    # Threads, descriptors and disk space for a short while. All databases of a process share RocksDB's threads: with
    # the default of two jobs stores would be compacted in turns.
    "manifest_preallocation_size": str(_MANIFEST_PREALLOCATION),
    "max_background_compactions": "-1",
    "max_background_flushes": "-1",
    "max_background_jobs": str(_BACKGROUND_JOBS),
    "max_file_opening_threads": "1",
    "max_open_files": str(_OPEN_FILES),
}

_FAMILY: Final = {
    # Linked SSTs must stay the very files that they are. With a ttl RocksDB drops files of a FIFO compaction, and
    # refuses to open them with a limited number of descriptors.
    "disable_auto_compactions": "true",
    "periodic_compaction_seconds": "0",
    "ttl": "0",
    # A rewrite keeps every row.
    "compaction_filter": "nullptr",
    "compaction_filter_factory": "nullptr",
    # With it RocksDB leaves the filter out of the bottommost level, where a rewrite puts everything.
    "optimize_filters_for_hits": "false",
    # Memory that any key fits into, in any order, from any thread.
    "disallow_memtable_writes": "false",
    "experimental_mempurge_threshold": "0",
    "inplace_update_support": "false",
    "memtable_factory": "SkipListFactory",
    "memtable_huge_page_size": "0",
}

_STYLES: Final = {"kCompactionStyleNone": "kCompactionStyleLevel"}
"""RocksDB merges nothing without a style, even if it is asked to."""


def held(options_file: str) -> str:
    """Return the text of an OPTIONS file with the settings that a database has while kstate writes to it."""
    return with_settings(options_file, _DATABASE, _FAMILY, {"compaction_style": _STYLES})
