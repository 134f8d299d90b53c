"""Which release of Kafka Streams an application brings: read from its jar, or from the folder with its jars.

Every build of kafka-streams has ``kafka/kafka-streams-version.properties`` (``ClientMetrics`` reads its version there).
It is in the jar itself, in a shaded jar with its contents, and in a jar within a jar (Spring Boot). Any file may have
the name of a jar: kstate reads, unpacks and remembers no more of one than the limits below allow.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kstate_cli.errors import Refused, UsageError
from kstate_cli.regular_files import access_hint
from kstate_cli.releases import Release, release, release_of_build
from kstate_cli.texts import first_lines, size_text

PROPERTIES: Final = "kafka/kafka-streams-version.properties"
_NESTED: Final = re.compile(r"(?:[^/]*/)*(?:[^/]*\.)?kafka-streams-[0-9][^/]*\.jar")
"""A jar within a jar, as build tools call it: ``BOOT-INF/lib/kafka-streams-4.2.1.jar``."""
_ARCHIVES: Final = (".jar", ".war", ".ear", ".zip")
_MOST_PROPERTIES: Final = 64 * 1024
_MOST_NESTED_BYTES: Final = 64 * 1024 * 1024
"""A jar of kafka-streams has 3 MB."""
_MOST_NESTED: Final = 16
_MOST_AT_ONCE: Final = 16 * 1024 * 1024
"""The longest single read of an archive: its directory, which is about 100 bytes for a file."""
_MOST_ENTRIES: Final = 20_000
# A folder of jars is flat, or has one level for each dependency: more levels are a wrong argument, such as "/".
_DEEPEST: Final = 8
_DAMAGED: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What ``zipfile`` raises for what is no archive, is cut off, encrypted, or packed in a way that it does not know."""


@dataclass(frozen=True, slots=True)
class FoundRelease:
    """A release, and where it was read."""

    release: Release
    version: str
    """As the jar has it: ``7.9.1-ccs``."""
    where: str
    """The path of the file; of a jar within it, its name behind a ``!``."""


def release_in(path: Path, option: str | None = None) -> FoundRelease:
    """Return the release of Kafka Streams in a jar, in a jar within it, or in the jars below a folder.

    Raises UsageError where there is no such file; Refused where there is no release in it, where there are several
    different ones, one that kstate does not know, or where a jar is not one or is too large. ``option``: the option
    that names a release, for the hint.
    """
    try:
        kind = os.stat(path).st_mode
    except PermissionError as error:
        raise Refused(f"kstate cannot check {path}: {error.strerror}", hint=access_hint(path)) from None
    except OSError as error:
        raise UsageError(f"kstate cannot read {path}: {error.strerror}", hint=_GIVE) from None
    if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
        raise UsageError(f"{path} is neither a file nor a folder", hint=_GIVE)
    versions: list[tuple[str, str]] = []
    damaged: dict[Path, str] = {}
    files: Iterable[Path] = [path]
    if stat.S_ISDIR(kind):
        files = _archives(path)
    for file in files:
        try:
            versions += _versions(file)
        except OSError as error:
            raise Refused(f"kstate cannot read {file}: {error.strerror or error}", hint=access_hint(file)) from None
        # Refused, not skipped: another jar of the folder might be found instead, and be the wrong one.
        except _Beyond as error:
            raise Refused(f"kstate does not read {file}: {error}", hint=_SAY) from None
        # A damaged jar of another library does not matter, which shows once all files were read.
        except _DAMAGED as error:
            damaged[file] = f"{file}: {error}"
    # A jar of something else that is damaged is not what was asked about.
    if damaged and (not versions or any(_NESTED.fullmatch(file.name) for file in damaged)):
        raise Refused(f"{path} is not a readable jar", details=first_lines([*damaged.values()]), hint=_SAY)
    return _only_release(path, versions, option)


_GIVE: Final = "pass the application's jar or the folder with its jars"
_SAY: Final = f"{_GIVE} or pass the release"


def _only_release(path: Path, versions: list[tuple[str, str]], option: str | None) -> FoundRelease:
    if not versions:
        raise Refused(f"{path} does not contain Kafka Streams, because it has no {PROPERTIES}", hint=_SAY)
    if not _are_alike([version for version, _ in versions]):
        lines = [f"{version}: {where}" for version, where in versions]
        raise Refused(
            f"{path} contains several releases of Kafka Streams, so kstate does not know which one the application "
            "uses",
            details=first_lines(lines),
            hint="pass the jar that is on the class path, or pass the release",
        )
    version, where = versions[0]
    try:
        return FoundRelease(release(release_of_build(version), option), version, where)
    except UsageError as error:
        # The command line is right; kstate does not understand the jar.
        raise Refused(error.headline, where=where, hint=error.hint) from None


def _are_alike(versions: list[str]) -> bool:
    """Return whether versions are of one release and, where both name a patch release, of patch releases alike."""
    try:
        rows = [release(release_of_build(version)) for version in versions]
    except UsageError:
        return len(set(versions)) == 1
    alike = all(len(set(answers) - {None}) <= 1 for answers in zip(*(row.behaviour for row in rows), strict=True))
    return len({row.name for row in rows}) == 1 and alike


class _Beyond(Exception):
    """Something is larger than anything that is read here."""


_TOO_MUCH: Final = (
    f"the jar has a part of more than {size_text(_MOST_AT_ONCE)}, which kstate would have to read at once"
)


class _InPortions(io.BufferedReader):
    """A file that is never asked for more than so much at once: an archive says itself how long its directory is."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as from any file. Raises _Beyond."""
        # One byte more than the limit shows that there is more, without reading all of it.
        most = _MOST_AT_ONCE + 1
        requested = most
        if size is not None and size >= 0:
            requested = min(size, most)
        data = super().read(requested)
        if len(data) > _MOST_AT_ONCE:
            raise _Beyond(_TOO_MUCH)
        return data


def _archives(folder: Path) -> Iterator[Path]:
    """Yield the jars in a folder and in those below it. Links to folders are not followed. Raises Refused."""
    # A stack instead of recursion: the depth is limited by a message, not by the interpreter.
    waiting, count = [(folder, 0)], 0
    while waiting:
        at, depth = waiting.pop()
        try:
            with os.scandir(at) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            raise Refused(f"kstate cannot read {at}: {error.strerror}", hint=access_hint(at)) from None
        count += len(entries)
        if count > _MOST_ENTRIES:
            raise Refused(f"{folder} has more than {_MOST_ENTRIES} entries", hint=_SAY)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth == _DEEPEST:
                    raise Refused(f"{at} is {_DEEPEST} folders below {folder} and contains further folders", hint=_SAY)
                waiting.append((Path(entry.path), depth + 1))
            elif entry.name.lower().endswith(_ARCHIVES) and entry.is_file():
                yield Path(entry.path)


def _versions(file: Path) -> list[tuple[str, str]]:
    """Return (version, place) for each version in a jar or in a jar within it. Raises ``_DAMAGED`` and OSError."""
    with _InPortions(io.FileIO(file)) as stream, zipfile.ZipFile(stream) as archive:
        versions = [(version, str(file)) for version in _of_archive(archive)]
        nested = [entry for entry in archive.infolist() if _NESTED.fullmatch(entry.filename)]
        if len(nested) > _MOST_NESTED:
            raise _Beyond(f"the jar contains {len(nested)} kafka-streams jars")
        for entry in nested:
            data = _content(archive, entry, _MOST_NESTED_BYTES)
            with zipfile.ZipFile(io.BytesIO(data)) as inner:
                versions += [(version, f"{file}!{entry.filename}") for version in _of_archive(inner)]
    return versions


def _of_archive(archive: zipfile.ZipFile) -> list[str]:
    """Return the versions of an archive: it may have two entries of one name, then both count."""
    entries = [entry for entry in archive.infolist() if entry.filename == PROPERTIES]
    return list(dict.fromkeys(_version(_content(archive, entry, _MOST_PROPERTIES)) for entry in entries[:_MOST_NESTED]))


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Return the bytes of an entry. Raises _Beyond if it unpacks to more than ``most``, whatever size it states."""
    # java.util.zip reads only these two, so no application could start with such a jar.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _Beyond(f"{entry.filename} in the jar has a compression that no JVM can read")
    with archive.open(entry) as packed:
        # The size in the directory of the archive is not trusted: a zip bomb states a small one.
        data = _up_to(packed, most + 1)
    if len(data) > most:
        raise _Beyond(f"{entry.filename} in the jar unpacks to more than {size_text(most)}")
    return data


def _up_to(packed: IO[bytes], most: int) -> bytes:
    portions = []
    while most > 0 and (portion := packed.read(min(most, _MOST_PROPERTIES))):
        portions.append(portion)
        most -= len(portion)
    return b"".join(portions)


def _version(properties: bytes) -> str:
    """Return ``version`` as ``java.util.Properties`` has it: the last one counts. ValueError without one."""
    # ISO 8859-1, as java.util.Properties reads a stream: every byte is a character.
    values = re.findall(
        r"^[ \t\f]*version[ \t\f]*[=:][ \t\f]*(.*?)[ \t\f]*\r?$", properties.decode("latin-1"), re.MULTILINE
    )
    if not values:
        raise ValueError(f"{PROPERTIES} in the jar does not contain a version")
    return str(values[-1])
