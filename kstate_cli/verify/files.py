"""The files of one database, as :mod:`kstate_cli.rocks.health` sees them, reported as findings; and the content digest.

An error of the system ends the reading, and so does a file that vanishes: :mod:`kstate_cli.verify.database` then reads
all of it again, or reports what it cannot read. So each file is read once. Only the footer of an SST, which is read
beside many others, has a finding of its own if it cannot be read.

Two digests are equal iff the stores have the same rows (column family, key, value) in the same segments. So a digest
does not change when rows are compacted, when offsets move (4.3 to 4.2 and back), when SSTs are rewritten (to 3.9), and
it is the same on every host. Everything without a row is excluded: the column family ``offsets``, empty families, and
segments that only carry an offset. Changed rows change it: rows that lose their headers, and rows that a newer
release moves to another column family while it runs.

Per family, two SHA-256 are taken: of the bytes of all keys and values, one after the other, and of their lengths.
Neither depends on how many rows are hashed at once, and together they show where each key and value ends. SHA-256
because processors compute it: three times as fast as BLAKE2b where they do, and not much slower where they do not.
"""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kstate_cli.host import cannot_be_read
from kstate_cli.regular_files import NotReadableError, is_special, kind_of
from kstate_cli.rocks import health
from kstate_cli.rocks.files import CURRENT, is_manifest, is_sst, manifest_number, newest_options
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.statedir.problems import Place
from kstate_cli.verify.findings import (
    CORRUPT,
    MISSING,
    NOT_UNDERSTOOD,
    TRUNCATED,
    UNDECODABLE,
    UNREADABLE,
    VerifyFinding,
    sst_format_code,
)


def fingerprint(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return inode, size and time of each file of a database: equal values before and after prove that none changed."""
    stats = {}
    for entry in os.scandir(path):
        # RocksDB's log for people: it changes without any change of the data.
        if entry.name.startswith("LOG"):
            continue
        stat = entry.stat(follow_symlinks=False)
        stats[entry.name] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return stats


def check_entries(path: Path, place: Place) -> list[VerifyFinding]:
    """Return findings for links, special files, and small files that are too large: RocksDB creates none of them."""
    findings = []
    for entry in health.entries(path):
        where = place / entry.name
        if not entry.regular:
            if not entry.own and not is_special(entry.status.st_mode):
                continue
            text = f"this is {kind_of(entry.status.st_mode)}, not a regular file"
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, text))
        elif entry.too_large is not None:
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, entry.too_large.why))
    return findings


def check_current(path: Path, place: Place) -> tuple[str | None, list[VerifyFinding]]:
    """Return the name of the MANIFEST in CURRENT (None if there is none), and findings about both files."""
    where = place / CURRENT
    # Sorted by number: as text, MANIFEST-1000000 would come before MANIFEST-999999.
    manifests = sorted(filter(is_manifest, os.listdir(path)), key=manifest_number)
    try:
        reading = health.current(path)
    except FileNotFoundError:
        return None, [VerifyFinding(MISSING, where, "the file is missing, so RocksDB does not know the MANIFEST")]
    except NotReadableError:
        return None, []  # check_entries has named it
    name = reading.manifest
    if name is None:
        code, text = CORRUPT, f"the file contains {reading.content[:40]!r}"
        # On a full disk, a name without its line end may remain. Then the file is cut off, but its bytes are unchanged.
        if reading.cut:
            code = TRUNCATED
        return None, [VerifyFinding(code, where, f"{text} instead of a MANIFEST name and a line end")]
    if name in manifests:
        return name, []
    if manifests:
        return None, [
            VerifyFinding(CORRUPT, where, f"the file names {name}, but the directory contains {', '.join(manifests)}")
        ]
    return None, [VerifyFinding(MISSING, place / name, "the file is missing, although CURRENT names it")]


def newer_manifest(path: Path, name: str) -> str | None:
    """A MANIFEST with a greater number than the one that CURRENT names."""
    others = filter(is_manifest, os.listdir(path))
    newer = [other for other in others if manifest_number(other) > manifest_number(name)]
    return max(newer, key=manifest_number, default=None)


def check_manifest(path: Path, place: Place) -> list[VerifyFinding]:
    """The end of a MANIFEST: RocksDB does not miss what is cut off there."""
    try:
        text = health.manifest_end(path)
    except NotReadableError:
        return []  # check_entries has named it
    if text is None:
        return []
    return [VerifyFinding(TRUNCATED, place, text)]


def check_options(path: Path, place: Place) -> tuple[frozenset[str] | None, list[VerifyFinding], list[str]]:
    """Return the column families in the newest OPTIONS file (None without a readable one), findings, and remarks."""
    newest = newest_options(path)
    if newest is None:
        return (
            None,
            [],
            [(f"{place.text} has no OPTIONS file. RocksDB can open this database, but kstate does not change it")],
        )
    where = place / newest.name
    try:
        reading = health.read_options(newest)
    except NotReadableError:
        return None, [], []  # check_entries has named it
    if reading.stored is None:
        return None, [VerifyFinding(UNDECODABLE, where, str(reading.malformed))], []
    foreign = [VerifyFinding(NOT_UNDERSTOOD, where, reason) for reason in reading.foreign]
    return frozenset(reading.stored.column_families), foreign, []


def check_footer(path: Path, place: Place) -> list[VerifyFinding]:
    """Return findings about the end of an SST: it must have a footer that this RocksDB supports."""
    where = place / path.name

    def judge() -> list[VerifyFinding]:
        end = health.sst_end(path)
        if end.cut:
            return [
                VerifyFinding(
                    TRUNCATED, where, f"the file has {end.size} bytes, which is less than the footer of an SST"
                )
            ]
        if end.format_version is None:
            return [VerifyFinding(CORRUPT, where, str(end.malformed))]
        if end.newer is not None:
            return [VerifyFinding(sst_format_code(end.format_version), where, end.newer)]
        return []

    return _read(judge, where)


def check_blob_ends(path: Path, place: Place) -> list[VerifyFinding]:
    """The first and the last bytes of a blob file."""
    where = place / path.name

    def judge() -> list[VerifyFinding]:
        malformed = health.blob_ends(path)
        if malformed is None:
            return []
        return [VerifyFinding(CORRUPT, where, str(malformed))]

    return _read(judge, where)


def _read(judge: Callable[[], list[VerifyFinding]], where: Place) -> list[VerifyFinding]:
    """Return the findings of ``judge``, which reads one file; or a finding that the file is missing or unreadable."""
    try:
        return judge()
    except FileNotFoundError:
        return [VerifyFinding(MISSING, where, "the file is missing")]
    except NotReadableError:
        return []  # check_entries has named it
    except OSError as error:
        if not cannot_be_read(error):
            raise
        return [VerifyFinding(UNREADABLE, where, f"kstate cannot read the file: {error.strerror}")]


def check_live(path: Path, files: Iterable[LiveFile], place: Place) -> list[VerifyFinding]:
    """Check the SSTs and blob files in the MANIFEST: each must exist with its size, and end as such a file does."""
    findings: list[VerifyFinding] = []
    for file in files:
        where = place / file.name
        size = health.live_size(path, file)
        if size is None:
            findings.append(VerifyFinding(MISSING, where, "the file is missing, although the MANIFEST lists it"))
        # RocksDB never changes a finished SST. So a shorter one was cut off, and a longer one was changed.
        elif size < file.size:
            findings.append(
                VerifyFinding(TRUNCATED, where, f"the file has {size:,} bytes, but the MANIFEST states {file.size:,}")
            )
        elif size > file.size:
            findings.append(
                VerifyFinding(CORRUPT, where, f"the file has {size:,} bytes, but the MANIFEST states {file.size:,}")
            )
        else:
            # Size and end are checked first. So a file that was cut off is reported as such, before RocksDB fails with
            # another text.
            check = check_footer if is_sst(file.name) else check_blob_ends
            findings += check(path / file.name, place)
    return findings


_LABEL: Final = b"kstate content 1\0"
_HEX_DIGITS: Final = 32


class FamilyDigest:
    """The rows of one column family of one database, in key order."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._content = hashlib.sha256()
        self._lengths = hashlib.sha256()

    def add(self, flat: list[bytes], lengths: array[int]) -> None:
        """More rows: key, value, key, value …, and the length of each (type code ``I``)."""
        content = b"".join(flat)
        self.rows += len(flat) // 2
        self.size += len(content)
        self._content.update(content)
        # The digest is of little-endian lengths, so that hosts of both byte orders agree.
        if sys.byteorder == "big":
            lengths = lengths[:]
            lengths.byteswap()
        self._lengths.update(lengths)

    def digest(self) -> bytes:
        """64 bytes."""
        return self._content.digest() + self._lengths.digest()


def database_digest(families: Mapping[str, FamilyDigest]) -> bytes:
    """The data column families of one database; empty bytes where none has a row."""
    whole = hashlib.sha256()
    # Families are sorted by name, and empty ones skipped: a release that adds a family without rows changes nothing.
    filled = sorted((name, family) for name, family in families.items() if family.rows)
    for name, family in filled:
        whole.update(_sized(name.encode()) + family.rows.to_bytes(8, "big") + family.digest())
    return whole.digest() if filled else b""


def store_digest(databases: Iterable[tuple[int | None, bytes]]) -> str:
    """The databases of a store as (start of the segment, digest), as text to compare."""
    whole = hashlib.sha256(_LABEL)
    for start, content in sorted(databases, key=lambda database: database[0] or 0):
        if content:
            # Rows of one segment in another one are other contents: Streams would not find them there.
            name = b""
            if start is not None:
                name = str(start).encode()
            whole.update(_sized(name) + content)
    return whole.hexdigest()[:_HEX_DIGITS]


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
