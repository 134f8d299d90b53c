"""Names of the files in a RocksDB directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OPTIONS = re.compile(r"OPTIONS-(\d+)")


def newest_options(path: Path) -> Path | None:
    """The OPTIONS file with the greatest number."""
    numbered = [(int(m[1]), name) for name in os.listdir(path) if (m := _OPTIONS.fullmatch(name))]
    return path / max(numbered)[1] if numbered else None


def unflushed_logs(path: Path) -> list[str]:
    """The write-ahead logs that still hold rows: none in a database that was flushed and closed."""
    return sorted(name for name in os.listdir(path) if name.endswith(".log") and (path / name).stat().st_size)
