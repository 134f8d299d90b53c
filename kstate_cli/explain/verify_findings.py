"""Findings of ``verify``."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.texts import command
from kstate_cli.texts import internals as see
from kstate_cli.verify.findings import (
    CORRUPT,
    IN_USE,
    MISSING,
    NO_SSTS,
    NOT_UNDERSTOOD,
    TOO_NEW,
    TRUNCATED,
    UNDECODABLE,
    UNREADABLE,
)

_SILENT_ROCKSDB = f"RocksDB reads a block, and its checksum, only when a row of it is asked for ({see('rocksdb.md')})"
_REBUILD = (
    f"fill it again: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE', '--rebuild')}",
    f"or have the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",
    "bytes that were right once are wrong now: look at the disk before you trust it again",
)
_CHECK = f"what the next start makes of it: {command('check', 'APP', '--for', 'RELEASE')}"

VERIFY: Final = {
    CORRUPT: Texts(
        "Bytes are not what was written: a checksum, a size, an order or a count does not hold",
        "Streams does not notice until it reads that block. Then the query, or the whole thread, fails.",
        None,
        _SILENT_ROCKSDB,
        _REBUILD,
    ),
    TRUNCATED: Texts(
        "The end of a file is gone",
        "A full disk, a copy that was cut off, a file system after a power failure.",
        (log.STORE_NOT_OPENED,),
        f"RocksDB opens no database whose MANIFEST names an SST of another size ({see('rocksdb.md')})",
        _REBUILD,
    ),
    MISSING: Texts(
        "A file is not there that another one names",
        "Of a database of one store the start fails; of a segment, up to 4.2, the store opens without it and without a "
        "word.",
        (log.STORE_NOT_OPENED,),
        f"RocksDB opens no database without the files that its MANIFEST names ({see('start.md#going-down')})",
        _REBUILD,
    ),
    UNDECODABLE: Texts(
        "RocksDB reads the row, but its key or value is not what a store of this kind writes",
        "Another program has written it, a custom store lies under a usual name, or its kind was taken for another.",
        SILENT,
        f"what a store's rows look like ({see('stores.md')})",
        ("where the kind is not certain, say it with kstate.toml (--spec)", *_REBUILD[:2]),
    ),
    TOO_NEW: Texts(
        "Written by a RocksDB that this kstate does not understand",
        "It may well be good: nothing could be told of it.",
        (log.STORE_NOT_OPENED, log.FORMAT_VERSION),
        f"each RocksDB reads SST formats up to its own ({see('rocksdb.md#sst-formats')})",
        ("verify it with a kstate that knows the release which wrote it", _CHECK),
    ),
    UNREADABLE: Texts(
        "This user may not read the file, or the disk does not give it",
        "Nothing is known of what is in it, so it is no damage of the store. Do not wipe anything for it.",
        None,
        None,
        (CHECK_THE_DISK, "run verify as the user of the application"),
    ),
    NOT_UNDERSTOOD: Texts(
        "Something that Streams leaves in no store, or a setting with which rows cannot be judged",
        "A link, a folder, a foreign comparator. What it would mean for the rows is unknown.",
        None,
        None,
        (f"what lies where: {command('ls', 'APP')}", _CHECK),
    ),
    NO_SSTS: Texts(
        "No SST of a column family is in the directory of the database",
        "It was removed, or the application stores its SSTs in other folders. RocksDB records these in no file.",
        None,
        f"RocksDBConfigSetter: setDbPaths, setCfPaths ({see('rocksdb.md#options')})",
        (
            "if the application sets db_paths or cf_paths: leave this store unchanged",
            f"if it sets neither: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",
        ),
    ),
    IN_USE: Texts(
        "A running application changed the store faster than it could be read",
        "It says nothing of the store.",
        None,
        None,
        ("run it again at a quieter time, or once the application is stopped",),
    ),
}
