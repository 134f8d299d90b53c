"""Lists of the files of a directory, to compare it later: names, sizes, times and digests of small files, never inodes.

RocksDB has a checksum for each block of an SST. An offset in ``.checkpoint``, a Position and OPTIONS have none: the
lists hold SHA-256 digests of such files.

The lists are files beside the journal, which records their digests. If a list is lost, messages cannot name the
differing files, but the comparison still works. Each list is synced when it is written; its folder is synced with the
file system before the journal announces the switch.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from kstate_cli.change import nofollow
from kstate_cli.change.access import own_like, reading
from kstate_cli.change.marks import MARKS
from kstate_cli.errors import naming
from kstate_cli.formats.binary import parse_json
from kstate_cli.statedir.names import CHECKPOINT, LOCK, LOST_AND_FOUND

KEPT_LIST: Final = "kept.json"
MADE_LIST: Final = "made.json"
STAGED_LIST: Final = "staged.json"
LISTS: Final = frozenset({KEPT_LIST, MADE_LIST, STAGED_LIST})
_SCHEMA = 1
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MOST_BYTES = 1 << 30
_MOST_SUMMED_BYTES: Final = 16 << 20
"""Larger files are SSTs and write-ahead logs, which have checksums of RocksDB."""
_NOT_SUMMED: Final = ("LOG",)
"""RocksDB's log for people, which no program reads."""
_WATCHED = ("CURRENT", "MANIFEST-", CHECKPOINT)
_UNNAMED = "(the list of these files is missing)"

Listing = dict[str, list[int | str]]
"""Path relative to the directory -> facts of the entry: see :func:`every_file`."""


def start_files(app: Path) -> Listing:
    """Return size, mtime and digest of each CURRENT, MANIFEST and ``.checkpoint…`` file: every start replaces them."""
    return start_files_of(every_file(app))


def start_files_of(listing: Listing) -> Listing:
    """Return the part of a whole list that :func:`start_files` returns."""
    return {path: facts for path, facts in listing.items() if os.path.basename(path).startswith(_WATCHED)}


def every_file(app: Path) -> Listing:
    """Return the list of a directory: relative path -> facts.

    The facts of a file are [size in bytes, mtime in ns], those of a link ["link", target], those of a folder []. A file
    for which RocksDB has no checksum also has the SHA-256 of its contents. The lock file and marks are excluded. Raise
    Refused if this user may not read a file, OSError otherwise.
    """
    listing: Listing = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with reading(), nofollow.directory(app / folder) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                # The directory and its staged copy share the lock file, and have different marks (the files in which
                # kstate records the state of a run). The lists of both must be equal, so these files are left out.
                if path == LOCK or path in MARKS:
                    continue
                if entry.is_symlink():
                    # Links are not followed: the target is outside of the tree, and its contents prove nothing about
                    # the tree.
                    listing[path] = ["link", os.readlink(entry.name, dir_fd=descriptor)]
                elif entry.is_dir(follow_symlinks=False):
                    listing[path] = []
                    # Usually only root can read lost+found. It is listed as a folder without contents, so that its
                    # removal would be noticed.
                    if entry.name != LOST_AND_FOUND:
                        folders.append(path)
                else:
                    stat = entry.stat(follow_symlinks=False)
                    listing[path] = [stat.st_size, stat.st_mtime_ns, *_sum(descriptor, app / path, stat.st_size)]
    return listing


def _sum(folder: int, path: Path, size: int) -> list[str]:
    """Return the digest of a file in a list; empty for SSTs, RocksDB's LOG and large files, which get none.

    ``folder`` is a descriptor of the directory of the file.
    """
    if path.name.endswith(".sst") or path.name.startswith(_NOT_SUMMED) or size > _MOST_SUMMED_BYTES:
        return []
    with naming(path), nofollow.reader(nofollow.read_at(folder, path.name, path)) as file:
        return [hashlib.sha256(file.read(size)).hexdigest()]


def digest(listing: Listing) -> str:
    """Return the SHA-256 of a list; equal for equal files."""
    return hashlib.sha256(_encoded(listing)).hexdigest()


def _encoded(listing: Listing) -> bytes:
    return json.dumps({"schema_version": _SCHEMA, "files": listing}, sort_keys=True).encode()


def write_listing(path: Path, listing: Listing) -> str:
    """Write a list, and return its digest. Its bytes are durable, its name is not: the caller syncs the folder.

    Raise OSError.
    """
    data = _encoded(listing)
    with naming(path), open(nofollow.open_file(path, _NEW, 0o644), "wb") as file:
        # The owner is set through the descriptor, so that a link that replaces the name meanwhile cannot redirect the
        # chown.
        own_like(file.fileno(), nofollow.stat(path.parent))
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
        file.flush()
        # Durable before ``switching`` names its digest: recovery compares the tree with this list.
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def differences_from(path: Path, list_digest: str, now: Listing) -> list[str]:
    """Return the paths that differ from the list in ``path``, whose digest is ``list_digest``."""
    if digest(now) == list_digest:
        return []
    before = _read_listing(path, list_digest)
    # The digests differ, so at least one file does. Without the list kstate cannot name it.
    if before is None:
        return [_UNNAMED]
    return differences(before, now)


def other_times(path: Path, list_digest: str, now: Listing) -> Listing | None:
    """Return the list in ``path`` if only times of files differ from it; None otherwise, or if the list is lost."""
    before = _read_listing(path, list_digest)
    if before is None or not only_times(before, now):
        return None
    return before


def only_times(before: Listing, now: Listing) -> bool:
    """Return whether the same files have the same sizes and digests, as after a copy without times."""
    return before.keys() == now.keys() and all(
        _timeless(before[path]) == _timeless(_comparable(before[path], now[path])) for path in now
    )


def _timeless(facts: list[int | str]) -> list[int | str]:
    """Return the facts of an entry without the mtime. Links and folders have none, so theirs stay as they are."""
    if not facts or not isinstance(facts[0], int):
        return facts
    return [facts[0], *facts[2:]]


def _comparable(before: list[int | str], facts: list[int | str]) -> list[int | str]:
    """Return ``facts`` cut to the members of ``before``: a list of an older kstate has no digests to compare with."""
    if not before or not isinstance(before[0], int):
        return facts
    return facts[: len(before)]


def set_times(folder: Path, listing: Listing) -> None:
    """Give files the times of a list. Raise OSError."""
    for path, facts in listing.items():
        if facts and isinstance(facts[0], int):
            nofollow.utime(folder / path, ns=(int(facts[1]), int(facts[1])))


def added_or_changed(path: Path, list_digest: str, now: Listing) -> list[str]:
    """As :func:`differences_from`, but do not report missing paths: an interrupted removal may have deleted them."""
    if not now or digest(now) == list_digest:
        return []
    before = _read_listing(path, list_digest)
    if before is None:
        return [_UNNAMED]
    return sorted(name for name in now if before.get(name) != now[name])


def _read_listing(path: Path, list_digest: str) -> Listing | None:
    """Return the list in ``path``; None if it is lost or another than the journal recorded."""
    try:
        with reading(), nofollow.reader(nofollow.open_file(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
            data = file.read(_MOST_BYTES)
        # The journal has the digest, protected by its own checksum. So a changed list cannot hide that the tree has
        # changed.
        if hashlib.sha256(data).hexdigest() != list_digest:
            return None
        listing: Listing = parse_json(data)["files"]
    except (OSError, ValueError):
        return None
    return listing


def differences(before: Listing, now: Listing) -> list[str]:
    """Return the added, removed and changed paths, sorted. If only times differ, return the paths with another time.

    A list of an older kstate has no digests, so none are compared with it.
    """
    now = {path: _comparable(before.get(path, facts), facts) for path, facts in now.items()}
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    more = [p for p in changed if p not in before or p not in now or _timeless(before[p]) != _timeless(now[p])]
    return more or changed
