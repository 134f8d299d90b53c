"""The files of one database, as `kstate_cli.rocks.health` sees them, told as findings.

What the system does not give ends the reading, and so does what vanishes: `kstate_cli.verify.database` then looks at
all of it again, or says what cannot be read. So each file is looked at once. Only the footer of an SST, which is read
beside many others, says by itself that it cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kstate_cli.host import cannot_be_read
from kstate_cli.regular_files import NotReadableError, is_special, kind_of
from kstate_cli.rocks import health
from kstate_cli.rocks.files import CURRENT, is_manifest, is_sst, manifest_number, newest_options
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.statedir.places import Place
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
    """Names, inodes, sizes and times of the files of a database: equal before and after means that nobody wrote."""
    stats = {}
    for entry in os.scandir(path):
        if entry.name.startswith("LOG"):
            continue
        stat = entry.stat(follow_symlinks=False)
        stats[entry.name] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return stats


def check_entries(path: Path, place: Place) -> list[VerifyFinding]:
    """A link may lead anywhere, and RocksDB writes none; nor does it write small files without end."""
    findings = []
    for entry in health.entries(path):
        where = place / entry.name
        if not entry.regular:
            if not entry.own and not is_special(entry.status.st_mode):
                continue
            text = f"is {kind_of(entry.status.st_mode)}, not a regular file"
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, text))
        elif entry.too_large is not None:
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, entry.too_large.why))
    return findings


def check_current(path: Path, place: Place) -> tuple[str | None, list[VerifyFinding]]:
    """The MANIFEST that CURRENT names, and what is wrong with CURRENT, or with the MANIFEST's being there."""
    where = place / CURRENT
    manifests = sorted(filter(is_manifest, os.listdir(path)), key=manifest_number)
    try:
        reading = health.current(path)
    except FileNotFoundError:
        return None, [VerifyFinding(MISSING, where, "is not there: it names the MANIFEST to start from")]
    except NotReadableError:
        return None, []  # check_entries has named it
    name = reading.manifest
    if name is None:
        code, text = TRUNCATED if reading.cut else CORRUPT, f"holds {reading.content[:40]!r}"
        return None, [VerifyFinding(code, where, f"{text}, not the name of a MANIFEST and a line end")]
    if name in manifests:
        return name, []
    if manifests:
        return None, [VerifyFinding(CORRUPT, where, f"names {name}, which is not there; {', '.join(manifests)} is")]
    return None, [VerifyFinding(MISSING, place / name, "is not there; CURRENT names it")]


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
    return [] if text is None else [VerifyFinding(TRUNCATED, place, text)]


def check_options(path: Path, place: Place) -> tuple[frozenset[str] | None, list[VerifyFinding], list[str]]:
    """The column families that the newest OPTIONS file names, findings, and remarks."""
    newest = newest_options(path)
    if newest is None:
        return None, [], [f"{place.text}: no OPTIONS file; RocksDB opens it without, and kstate does not change it"]
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
    """The last bytes of an SST."""
    where = place / path.name

    def judge() -> list[VerifyFinding]:
        end = health.sst_end(path)
        if end.cut:
            return [VerifyFinding(TRUNCATED, where, f"has {end.size} bytes: less than an SST's footer")]
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
    """Return what reading one file finds, or that it is missing or cannot be read."""
    try:
        return judge()
    except FileNotFoundError:
        return [VerifyFinding(MISSING, where, "is not there")]
    except NotReadableError:
        return []  # check_entries has named it
    except OSError as error:
        if not cannot_be_read(error):
            raise
        return [VerifyFinding(UNREADABLE, where, f"cannot be read: {error.strerror}")]


def check_live(path: Path, files: Iterable[LiveFile], place: Place) -> list[VerifyFinding]:
    """Each SST and blob file that the MANIFEST names: it exists, in its size, and ends as such a file does."""
    findings: list[VerifyFinding] = []
    for file in files:
        where = place / file.name
        size = health.live_size(path, file)
        if size is None:
            findings.append(VerifyFinding(MISSING, where, "is not there; the MANIFEST names it"))
        elif size < file.size:
            findings.append(
                VerifyFinding(TRUNCATED, where, f"has {size:,} bytes of the {file.size:,} that the MANIFEST names")
            )
        elif size > file.size:
            findings.append(VerifyFinding(CORRUPT, where, f"has {size:,} bytes, {file.size:,} in the MANIFEST"))
        else:
            check = check_footer if is_sst(file.name) else check_blob_ends
            findings += check(path / file.name, place)
    return findings
