"""What an application directory means: two directories with the same meaning serve Streams the same."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from kstate_cli.change.marks import MARKS
from kstate_cli.rocks.shadow import Shadow

_ROCKSDB = re.compile(r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|MANIFEST-\d+|OPTIONS-\d+|\d+\.(sst|blob|log)")
"""The files of a database. `*.dbtmp` is not among them: RocksDB leaves none behind when it has closed a database."""

Meaning = dict[str, str]
"""Relative path -> what is there."""


def meaning(app: Path) -> Meaning:
    """
    Of each database the column families and all their rows, of each other file its bytes, and the folders.

    A directory with nothing but its lock means what none means: Streams makes it and begins with nothing.
    """
    results: Meaning = {}
    for folder, _, files in os.walk(app):
        # A mark says whether a switch has happened, and nothing to Streams (test_streams starts it with one).
        files = [name for name in files if name not in MARKS]
        place = os.path.relpath(folder, app)
        results[place] = "folder"
        database = "CURRENT" in files
        if database:
            results[place] = _database(Path(folder))
        for name in files:
            if not (database and _ROCKSDB.fullmatch(name)):
                results[os.path.join(place, name)] = _file(Path(folder) / name)
    return results if results.keys() - {".", "./.lock"} else {}


def _database(path: Path) -> str:
    with Shadow(path) as shadow:
        return " ".join(f"{name}={_rows(shadow, name)}" for name in shadow.column_families)


def _rows(shadow: Shadow, family: str) -> str:
    digest = hashlib.sha256()
    count = 0
    for key, value in shadow.rows(family):
        digest.update(b"%d %d " % (len(key), len(value)) + key + value)
        count += 1
    return f"{count}:{digest.hexdigest()[:16]}"


def _file(path: Path) -> str:
    if path.name.startswith(".checkpoint") or path.name.endswith(".position"):
        return path.read_bytes().hex()
    return "file"


def fingerprint(app: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of every file and folder: what nobody touched has the same."""
    results = {}
    for folder, _, files in os.walk(app):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            stat = os.stat(path, follow_symlinks=False)
            results[os.path.relpath(path, app)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return results


def differences(meaning: Meaning, other: Meaning) -> list[str]:
    """Where two directories differ, for the message of a failed assertion."""
    return [
        f"{path}: {meaning.get(path)} / {other.get(path)}"
        for path in sorted(meaning.keys() | other.keys())
        if meaning.get(path) != other.get(path)
    ]
