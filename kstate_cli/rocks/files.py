"""Names of the files in a RocksDB directory.

RocksDB's own rule (``ParseFileName``) decides what a file is. It ignores every other name, and so does kstate: what an
operating system, an editor or a backup tool leaves in the directory is no part of the database.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from kstate_cli.regular_files import (
    MOST_MANIFEST_BYTES,
    MOST_NAME_BYTES,
    MOST_OPTIONS_BYTES,
    NotReadableError,
    read_small,
    too_large,
)

CURRENT: Final = "CURRENT"
"""Names the MANIFEST that an open starts from: RocksDB makes a new database where it is missing."""

FIRST_WAL: Final = 4
"""The number of the write-ahead log of a database that was opened once (RocksDB 9.8, 10.1); later ones are higher.

With a RocksDB that begins higher, a new database counts as reopened, which is the cautious answer.
"""

_MANIFEST: Final = re.compile(r"MANIFEST-([0-9]+)")
_OPTIONS: Final = re.compile(r"OPTIONS-([0-9]+)")
_SST: Final = re.compile(r"([0-9]+)\.sst")
_NEVER_CHANGED: Final = re.compile(r"[0-9]+\.(?:sst|blob)")
_LOG: Final = re.compile(r"([0-9]+)\.log")
_OWN: Final = re.compile(
    rf"{CURRENT}|IDENTITY|LOCK|LOG(?:\.old(?:\.[0-9]+)?)?|(?:MANIFEST|METADB)-[0-9]+|OPTIONS-[0-9]+(?:\.dbtmp)?"
    r"|[0-9]+\.(?:log|sst|ldb|blob|dbtmp)"
)
_NUM_LEVELS: Final = re.compile(r"^\s*num_levels=(\d{1,6})\s*$", re.MULTILINE)
_USUAL_LEVELS: Final = 64

_MOST: Final = (
    (re.compile(rf"{CURRENT}|IDENTITY"), MOST_NAME_BYTES),
    (_OPTIONS, MOST_OPTIONS_BYTES),
    (_MANIFEST, MOST_MANIFEST_BYTES),
)
"""Files that are read or copied whole; SSTs are linked, and write-ahead logs are as large as their rows."""


def is_manifest(name: str) -> bool:
    """``MANIFEST-<number>``."""
    return _MANIFEST.fullmatch(name) is not None


def manifest_number(name: str) -> int:
    """The number of a MANIFEST: a later one has a greater number."""
    return int(name.rpartition("-")[2])


def sst_number(name: str) -> int | None:
    """Return the number of an SST, None for a name that is not ``<number>.sst``."""
    match = _SST.fullmatch(name)
    return None if match is None else int(match[1])


def is_sst(name: str) -> bool:
    """``<number>.sst``."""
    return _SST.fullmatch(name) is not None


def is_never_changed(name: str) -> bool:
    """``<number>.sst`` or ``<number>.blob``: RocksDB changes neither once it is written, so that both may be linked."""
    return _NEVER_CHANGED.fullmatch(name) is not None


def is_log(name: str) -> bool:
    """``<number>.log``: a write-ahead log."""
    return _LOG.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Whether RocksDB gives a file of a database that name."""
    return _OWN.fullmatch(name) is not None


def check_size(path: str, status: os.stat_result) -> NotReadableError | None:
    """The error for a file of RocksDB that is far larger than RocksDB makes it; None where it is not."""
    name = os.path.basename(path)
    most = next((most for pattern, most in _MOST if pattern.fullmatch(name)), None)
    return None if most is None or status.st_size <= most else too_large(path, status.st_size, most)


def newest_options(path: Path) -> Path | None:
    """The OPTIONS file with the greatest number."""
    numbered = [(int(m[1]), name) for name in os.listdir(path) if (m := _OPTIONS.fullmatch(name))]
    return path / max(numbered)[1] if numbered else None


def newest_log(path: Path) -> int | None:
    """Return the number of the newest write-ahead log, None if there is none here."""
    numbers = [int(m[1]) for name in os.listdir(path) if (m := _LOG.fullmatch(name))]
    return max(numbers, default=None)


def most_levels(path: Path) -> int:
    """Return a number of levels that no column family of the database exceeds.

    RocksDB refuses to open a database that has more levels than ``num_levels``, and opens one that has fewer. Without a
    readable OPTIONS file the result is far above RocksDB's default of 7.
    """
    try:
        newest = newest_options(path)
        text = "" if newest is None else read_small(newest, MOST_OPTIONS_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    return max((_USUAL_LEVELS, *map(int, _NUM_LEVELS.findall(text))))


def unflushed_logs(path: Path) -> list[str]:
    """The write-ahead logs that still hold rows: none in a database that was flushed and closed."""
    return sorted(name for name in os.listdir(path) if is_log(name) and (path / name).stat().st_size)
