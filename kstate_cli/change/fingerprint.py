"""What a directory consists of, to be compared later: names, sizes, times and small files' contents, never inodes.

RocksDB has a checksum for each block of an SST. Nothing has one for an offset in ``.checkpoint``, for a Position, for
OPTIONS: of those the contents are summed.

The lists are files beside the journal, which keeps their digests: a list that is lost costs the names of what differs,
and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from kstate_cli.change.access import own_like, reading
from kstate_cli.change.marks import MARKS
from kstate_cli.errors import naming
from kstate_cli.formats.json_text import parse_json
from kstate_cli.statedir.names import CHECKPOINT, LOCK, LOST_AND_FOUND

KEPT_LIST: Final = "kept.json"
MADE_LIST: Final = "made.json"
STAGED_LIST: Final = "staged.json"
LISTS: Final = frozenset({KEPT_LIST, MADE_LIST, STAGED_LIST})
_SCHEMA = 1
_MOST_BYTES = 1 << 30
_MOST_SUMMED_BYTES: Final = 16 << 20
"""Larger files are SSTs and write-ahead logs, which RocksDB itself sums."""
_NOT_SUMMED: Final = ("LOG",)
"""What RocksDB tells people; nobody reads it."""
_WATCHED = ("CURRENT", "MANIFEST-", CHECKPOINT)
_UNNAMED = "(which files: their list is lost)"

Listing = dict[str, list[int | str]]
"""Relative path to what there is to say of it."""


def started_files(app: Path) -> Listing:
    """Size, mtime and sum of each CURRENT, MANIFEST and ``.checkpoint…`` file: every start replaces them."""
    return started_of(every_file(app))


def started_of(listing: Listing) -> Listing:
    """Of a whole list, what ``started_files`` gives."""
    return {path: facts for path, facts in listing.items() if os.path.basename(path).startswith(_WATCHED)}


def every_file(app: Path) -> Listing:
    """Of each file [size in bytes, mtime in ns], of each link its target, of each folder nothing.

    Files that no checksum of RocksDB's covers have the SHA-256 of their contents as well.
    Without the lock file, which both directories share, and without marks. Raises Refused for what this user may not
    read, OSError otherwise.
    """
    listing: Listing = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with reading(), os.scandir(os.path.join(app, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if path == LOCK or path in MARKS:
                    continue
                if entry.is_symlink():
                    listing[path] = ["link", os.readlink(entry.path)]
                elif entry.is_dir(follow_symlinks=False):
                    listing[path] = []
                    if entry.name != LOST_AND_FOUND:
                        folders.append(path)
                else:
                    stat = entry.stat(follow_symlinks=False)
                    listing[path] = [stat.st_size, stat.st_mtime_ns, *_sum(entry, stat.st_size)]
    return listing


def _sum(entry: os.DirEntry[str], size: int) -> list[str]:
    if entry.name.endswith(".sst") or entry.name.startswith(_NOT_SUMMED) or size > _MOST_SUMMED_BYTES:
        return []
    with naming(Path(entry.path)), open(entry.path, "rb") as file:
        return [hashlib.sha256(file.read(size)).hexdigest()]


def digest(listing: Listing) -> str:
    """SHA-256 of a listing, the same for the same files."""
    return hashlib.sha256(_encoded(listing)).hexdigest()


def _encoded(listing: Listing) -> bytes:
    return json.dumps({"schema_version": _SCHEMA, "files": listing}, sort_keys=True).encode()


def write_listing(path: Path, listing: Listing) -> str:
    """Writes a list, durable once its folder is synced; returns its digest. Raises OSError."""
    data = _encoded(listing)
    with naming(path), open(path, "xb") as file:
        own_like(file.fileno(), os.stat(path.parent))
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def differences_from(path: Path, wanted: str, now: Listing) -> list[str]:
    """Paths that differ from the list in ``path``, whose digest is ``wanted``."""
    if digest(now) == wanted:
        return []
    before = _read_listing(path, wanted)
    return differences(before, now) if before is not None else [_UNNAMED]


def other_times(path: Path, wanted: str, now: Listing) -> Listing | None:
    """The list in ``path`` where nothing but times of files differs from it; None otherwise, or where it is lost."""
    before = _read_listing(path, wanted)
    return before if before is not None and only_times(before, now) else None


def only_times(before: Listing, now: Listing) -> bool:
    """Whether the same files have the same sizes and sums: a copy without times, or with whole seconds, leaves that."""
    return before.keys() == now.keys() and all(
        _timeless(before[path]) == _timeless(_as_told(before[path], now[path])) for path in now
    )


def _timeless(facts: list[int | str]) -> list[int | str]:
    """Without the time, which a file has and a link has not."""
    return [facts[0], *facts[2:]] if facts and isinstance(facts[0], int) else facts


def _as_told(before: list[int | str], facts: list[int | str]) -> list[int | str]:
    return facts[: len(before)] if before and isinstance(before[0], int) else facts


def set_times(folder: Path, listing: Listing) -> None:
    """Gives files the times of a list. Raises OSError."""
    for path, facts in listing.items():
        if facts and isinstance(facts[0], int):
            os.utime(folder / path, ns=(int(facts[1]), int(facts[1])), follow_symlinks=False)


def more_than_listed(path: Path, wanted: str, now: Listing) -> list[str]:
    """As ``differences_from``, but what is missing now is no difference: somebody has begun to delete it."""
    if not now or digest(now) == wanted:
        return []
    before = _read_listing(path, wanted)
    return [_UNNAMED] if before is None else sorted(name for name in now if before.get(name) != now[name])


def _read_listing(path: Path, wanted: str) -> Listing | None:
    try:
        with reading(), open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
        if hashlib.sha256(data).hexdigest() != wanted:
            return None
        listing: Listing = parse_json(data)["files"]
    except (OSError, ValueError):
        return None
    return listing


def differences(before: Listing, now: Listing) -> list[str]:
    """Paths that came, went or changed, sorted; those of which only the time differs where there are no others.

    A list of an older kstate has no sums: only what it tells is compared.
    """
    now = {path: _as_told(before.get(path, facts), facts) for path, facts in now.items()}
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    more = [p for p in changed if p not in before or p not in now or _timeless(before[p]) != _timeless(now[p])]
    return more or changed
