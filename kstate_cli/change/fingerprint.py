"""Whether Streams has run on a directory since kstate left it: the files that every start replaces."""

from __future__ import annotations

import os
from pathlib import Path

_WATCHED = ("CURRENT", "MANIFEST-", ".checkpoint")


def fingerprint(app: Path) -> dict[str, list[int]]:
    """{relative path: [inode, size in bytes, mtime in ns]} of each CURRENT, MANIFEST and ``.checkpoint…`` file."""
    found: dict[str, list[int]] = {}
    for folder, folders, files in os.walk(app):
        folders.sort()
        for name in files:
            if name.startswith(_WATCHED):
                path = os.path.join(folder, name)
                stat = os.stat(path, follow_symlinks=False)
                found[os.path.relpath(path, app)] = [stat.st_ino, stat.st_size, stat.st_mtime_ns]
    return found


def differences(before: dict[str, list[int]], now: dict[str, list[int]]) -> list[str]:
    """Paths that came, went or changed, sorted."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
