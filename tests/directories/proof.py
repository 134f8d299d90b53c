"""What a directory and what kstate keeps beside it look like, to hold a command to its word."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

NOTHING = re.compile(
    r"nothing (has |had |was )?changed|kstate has (changed nothing|not changed (anything|the directory))"
    r"|the application directory is unchanged"
)
"""What a command may only say where it is so."""
_RECORD = "journal.jsonl"


def digest(app: Path) -> dict[str, tuple[str, int, int, int]]:
    """
    Bytes, mode, owner and time of every file of the application directory and of every run that is kept of it.

    Not the lock file, which every command may create, and of no run its journal: that a run failed is written down.
    """
    results = {}
    for root in (app, app.parent / ".kstate" / app.name):
        for folder, _, files in os.walk(root):
            for name in files:
                path = Path(folder) / name
                if name == ".lock" or (root != app and path.relative_to(root).parts[1:] == (_RECORD,)):
                    continue
                stat = path.lstat()
                text = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else os.readlink(path)
                results[os.path.relpath(path, app.parent)] = (text, stat.st_mode, stat.st_uid, stat.st_mtime_ns)
    return results


def hold_to_its_word(messages: str, before: dict[str, tuple[str, int, int, int]], app: Path) -> None:
    """Fail where "nothing has changed" was said, and something has."""
    if NOTHING.search(messages):
        assert digest(app) == before, messages
