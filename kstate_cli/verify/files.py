"""What can be seen of a database's files without RocksDB: CURRENT, the MANIFEST's end, OPTIONS, sizes and footers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from kstate_cli.formats import sst
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.manifest import torn
from kstate_cli.formats.options_file import foreign_settings, parse
from kstate_cli.host import cannot_be_read
from kstate_cli.regular import (
    MOST_MANIFEST_BYTES,
    MOST_NAME_BYTES,
    MOST_OPTIONS_BYTES,
    NotReadableError,
    kind_of,
    open_regular,
    read_small,
)
from kstate_cli.releases import NEWEST_SST_FORMAT
from kstate_cli.rocks.files import check_size, newest_options
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

_MANIFEST = re.compile(r"MANIFEST-(\d+)")
_CURRENT = re.compile(rb"(MANIFEST-\d+)\n")
_CUT_CURRENT = re.compile(rb"M?A?N?I?F?E?S?T?-?\d*")


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
    for entry in sorted(os.scandir(path), key=lambda one: one.name):
        where = place / entry.name
        stat = entry.stat(follow_symlinks=False)
        if not entry.is_file(follow_symlinks=False):
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, f"is {kind_of(stat.st_mode)}, not a regular file"))
        elif (too_large := check_size(entry.path, stat)) is not None:
            findings.append(VerifyFinding(NOT_UNDERSTOOD, where, too_large.why))
    return findings


def check_current(path: Path, place: Place) -> tuple[str | None, list[VerifyFinding]]:
    """The MANIFEST that CURRENT names, and what is wrong with CURRENT, or with the MANIFEST's being there."""
    where = place / "CURRENT"
    manifests = sorted((name for name in os.listdir(path) if _MANIFEST.fullmatch(name)), key=_number)
    try:
        text = read_small(path / "CURRENT", MOST_NAME_BYTES)
    except FileNotFoundError:
        return None, [VerifyFinding(MISSING, where, "is not there: it names the MANIFEST to start from")]
    except NotReadableError:
        return None, []  # check_entries has named it
    match = _CURRENT.fullmatch(text)
    if match is None:
        code = TRUNCATED if _CUT_CURRENT.fullmatch(text) else CORRUPT
        return None, [VerifyFinding(code, where, f"holds {text[:40]!r}, not the name of a MANIFEST and a line end")]
    name = match[1].decode()
    if name in manifests:
        return name, []
    if manifests:
        return None, [VerifyFinding(CORRUPT, where, f"names {name}, which is not there; {', '.join(manifests)} is")]
    return None, [VerifyFinding(MISSING, place / name, "is not there; CURRENT names it")]


def newer_manifest(path: Path, name: str) -> str | None:
    """A MANIFEST with a greater number than the one that CURRENT names."""
    newer = [other for other in os.listdir(path) if _MANIFEST.fullmatch(other) and _number(other) > _number(name)]
    return max(newer, key=_number, default=None)


def check_manifest(path: Path, place: Place) -> list[VerifyFinding]:
    """The end of a MANIFEST: RocksDB does not miss what is cut off there."""
    try:
        what = torn(read_small(path, MOST_MANIFEST_BYTES))
    except NotReadableError:
        return []  # check_entries has named it
    return [] if what is None else [VerifyFinding(TRUNCATED, place, what)]


def check_options(path: Path, place: Place) -> tuple[frozenset[str] | None, list[VerifyFinding], list[str]]:
    """The column families that the newest OPTIONS file names, findings, and remarks."""
    newest = newest_options(path)
    if newest is None:
        return None, [], [f"{place.text}: no OPTIONS file; RocksDB opens it without, and kstate does not change it"]
    where = place / newest.name
    try:
        stored = parse(read_small(newest, MOST_OPTIONS_BYTES))
    except MalformedBytesError as error:
        return None, [VerifyFinding(UNDECODABLE, where, str(error))], []
    except NotReadableError:
        return None, [], []  # check_entries has named it
    foreign = [VerifyFinding(NOT_UNDERSTOOD, where, reason) for reason in foreign_settings(stored, str(path))]
    return frozenset(stored.column_families), foreign, []


def check_footer(path: Path, place: Place) -> list[VerifyFinding]:
    """The last bytes of an SST."""
    where = place / path.name
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - sst.FOOTER_LENGTH))
            data = file.read()
        if size < sst.FOOTER_LENGTH:
            return [VerifyFinding(TRUNCATED, where, f"has {size} bytes: less than an SST's footer")]
        number = sst.footer(data).format_version
    except FileNotFoundError:
        return [VerifyFinding(MISSING, where, "is not there")]
    except MalformedBytesError as error:
        return [VerifyFinding(CORRUPT, where, str(error))]
    except OSError as error:
        if not cannot_be_read(error):
            raise
        return [VerifyFinding(UNREADABLE, where, f"cannot be read: {error.strerror}")]
    if number > NEWEST_SST_FORMAT:
        what = f"SST format_version {number}: the newest that kstate knows is {NEWEST_SST_FORMAT}"
        return [VerifyFinding(sst_format_code(number), where, what)]
    return []


def check_live(path: Path, files: Iterable[LiveFile], place: Place) -> list[VerifyFinding]:
    """Each SST that the MANIFEST names: it is there, in its size, and ends as an SST does."""
    findings: list[VerifyFinding] = []
    for file in files:
        where = place / file.name
        try:
            size = (path / file.name).stat().st_size
        except FileNotFoundError:
            findings.append(VerifyFinding(MISSING, where, "is not there; the MANIFEST names it"))
            continue
        if size < file.size:
            findings.append(
                VerifyFinding(TRUNCATED, where, f"has {size:,} bytes of the {file.size:,} that the MANIFEST names")
            )
        elif size > file.size:
            findings.append(VerifyFinding(CORRUPT, where, f"has {size:,} bytes, {file.size:,} in the MANIFEST"))
        else:
            findings += check_footer(path / file.name, place)
    return findings


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
