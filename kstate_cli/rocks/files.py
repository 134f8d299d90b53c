"""Names of the files in a RocksDB directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kstate_cli.regular import MOST_MANIFEST_BYTES, MOST_NAME_BYTES, MOST_OPTIONS_BYTES, NotReadableError, too_large

_OPTIONS = re.compile(r"OPTIONS-(\d+)")

_MOST = (
    (re.compile(r"CURRENT|IDENTITY"), MOST_NAME_BYTES),
    (re.compile(r"OPTIONS-\d+"), MOST_OPTIONS_BYTES),
    (re.compile(r"MANIFEST-\d+"), MOST_MANIFEST_BYTES),
)
"""Files that are read or copied whole; SSTs are linked, and write-ahead logs are as large as their rows."""


def check_size(path: str, status: os.stat_result) -> NotReadableError | None:
    """The error for a file of RocksDB that is far larger than RocksDB makes it; None where it is not."""
    name = os.path.basename(path)
    most = next((most for pattern, most in _MOST if pattern.fullmatch(name)), None)
    return None if most is None or status.st_size <= most else too_large(path, status.st_size, most)


def newest_options(path: Path) -> Path | None:
    """The OPTIONS file with the greatest number."""
    numbered = [(int(m[1]), name) for name in os.listdir(path) if (m := _OPTIONS.fullmatch(name))]
    return path / max(numbered)[1] if numbered else None


def unflushed_logs(path: Path) -> list[str]:
    """The write-ahead logs that still hold rows: none in a database that was flushed and closed."""
    return sorted(name for name in os.listdir(path) if name.endswith(".log") and (path / name).stat().st_size)
