"""One RocksDB directory, read through a shadow: column families, offsets, samples of rows, SST formats."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from itertools import islice
from pathlib import Path

from kstate_cli.formats import sst
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.manifest import torn
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows
from kstate_cli.formats.options_file import StoredOptions, foreign_settings, parse
from kstate_cli.formats.store_kinds import known_families
from kstate_cli.host import CHECK_THE_DISK, host_error
from kstate_cli.regular import (
    MOST_MANIFEST_BYTES,
    MOST_NAME_BYTES,
    MOST_OPTIONS_BYTES,
    NotReadableError,
    is_special,
    kind_of,
    open_regular,
    read_small,
)
from kstate_cli.releases import NEWEST_SST_FORMAT
from kstate_cli.rocks.errors import RocksError, cannot_be_read
from kstate_cli.rocks.files import check_size, newest_options
from kstate_cli.rocks.shadow import LiveFile, Shadow
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import Problem, ProblemCode

_SAMPLE_ROWS = 4
_LOOKS = 3
_LOOK_SECONDS = 0.05
_MANIFEST = re.compile(r"MANIFEST-\d+")


def is_database(path: Path) -> bool:
    """True for a directory that RocksDB has opened: it has CURRENT, or at least a MANIFEST."""
    return any(name == "CURRENT" or _MANIFEST.fullmatch(name) for name in os.listdir(path))


def read_database(path: Path, segment: int | None, place: Place) -> Database:
    """Reads one database; what cannot be read or is not understood becomes a Problem, never an exception.

    ``place`` is where it is, for its problems.
    """
    problems: list[Problem] = []
    size = _check_files(path, place, problems)
    families: tuple[str, ...] = ()
    live: dict[str, tuple[LiveFile, ...]] = {}
    samples: dict[str, tuple[tuple[bytes, bytes], ...]] = {}
    offsets: OffsetsRecord | None = None
    rows = 0
    footless: dict[str, Problem] = {}
    formats = _sst_formats(path, place, problems, footless)
    if not any(p.fatal for p in problems):
        try:
            with Shadow(path) as shadow:
                families = shadow.column_families
                for name in families:
                    live[name] = shadow.live_files(name)
                    if name == OFFSETS_CF:
                        offsets = decode_rows(shadow.rows(name))
                        continue
                    rows += shadow.estimated_rows(name)
                    samples[name] = _samples(shadow, name)
        except (RocksError, OSError) as error:
            if not footless:
                problems.append(_does_not_open(path, place, error))
        except MalformedBytesError as error:
            what, rule = f"column family offsets: {error}", "keys and values as Streams 4.3 writes them"
            not_long = error.streams_exception == "SerializationException"
            code = ProblemCode.NOT_A_LONG if not_long else ProblemCode.FOREIGN_OFFSETS
            problems.append(Problem(code, place, what, rule))
        _check_manifest(path, place, problems)
    alive = {file.name for files in live.values() for file in files}
    # One that was being written when somebody died has no footer yet, and no MANIFEST names it: RocksDB deletes it.
    problems += [problem for name, problem in footless.items() if not families or name in alive]
    for files in live.values():
        _check_live(path, files, place, problems)
    options = _stored_options(path, place, problems)
    if families and options is not None and frozenset(families) != frozenset(options.column_families):
        problems.append(
            Problem(
                ProblemCode.FAMILIES_DISAGREE,
                place,
                f"MANIFEST names column families {', '.join(families)}, OPTIONS {', '.join(options.column_families)}",
                "they agree unless one of them is cut off",
            )
        )
    orphans = sorted((formats.keys() | footless.keys()) - alive) if families else []
    if orphans:
        rule = "a crash leaves such files; if there was none, the MANIFEST is damaged"
        what = f"the MANIFEST does not name {', '.join(orphans)}"
        problems.append(Problem(ProblemCode.SST_NOT_NAMED, place, what, rule))
    unknown = sorted(set(families) - known_families())
    if unknown:
        what, rule = f"unknown column family {', '.join(unknown)}", "only column families of Streams are understood"
        problems.append(Problem(ProblemCode.UNKNOWN_FAMILY, place, what, rule))
    return Database(
        path=path,
        segment_start=segment,
        column_families=families,
        live=live,
        sst_formats=frozenset(number for name, number in formats.items() if name in alive),
        rows=rows,
        empty=not any(samples.values()),
        samples=samples,
        offsets=offsets,
        options=options,
        size=size,
        newest_sst_ns=max((_mtime(path / name) for name in alive), default=0),
        opened_ns=_mtime(path / "CURRENT"),
        problems=tuple(problems),
    )


def _does_not_open(path: Path, place: Place, error: RocksError | OSError) -> Problem:
    """Why a database cannot be read. Raises HostError where that is because of something that this host is short of."""
    if isinstance(error, OSError):
        if (short := host_error(error)) is not None:
            raise short from None
        if cannot_be_read(error):
            return _unreadable(place, error)
    elif cannot_be_read(error):
        return Problem(ProblemCode.UNREADABLE, place, f"cannot be read: {error}", CHECK_THE_DISK)
    code = ProblemCode.NO_MANIFEST if _without_manifest(path) else ProblemCode.DOES_NOT_OPEN
    return Problem(code, place, f"RocksDB cannot read it: {error}", "a store must open")


def _unreadable(place: Place, error: OSError) -> Problem:
    """A file that is there, and of which nothing is known."""
    what = f"cannot be read: {error.strerror or error}"
    return Problem(ProblemCode.UNREADABLE, place, what, CHECK_THE_DISK)


def _without_manifest(path: Path) -> bool:
    """CURRENT names a MANIFEST that is not there: a running application that drops the database has gone so far."""
    try:
        name = read_small(path / "CURRENT", MOST_NAME_BYTES).decode("ascii").strip()
    except (OSError, ValueError):
        return False
    return bool(_MANIFEST.fullmatch(name)) and not os.path.lexists(path / name)


def _check_files(path: Path, place: Place, problems: list[Problem]) -> int:
    """The bytes of all files; anything but a regular file is a problem."""
    size = 0
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
            mode = entry.stat(follow_symlinks=False).st_mode
            code = ProblemCode.SPECIAL if is_special(mode) else ProblemCode.NOT_A_FILE
            what, rule = f"is {kind_of(mode)}, not a regular file", "a RocksDB directory holds regular files only"
            problems.append(Problem(code, place / entry.name, what, rule))
            continue
        status = entry.stat(follow_symlinks=False)
        size += status.st_size
        if (too_large := check_size(entry.path, status)) is not None:
            rule = "RocksDB's own files, but for rows, are small"
            problems.append(Problem(ProblemCode.SPECIAL, place / entry.name, too_large.why, rule))
    if not (path / "CURRENT").exists():
        what, rule = "CURRENT is missing", "a RocksDB directory has CURRENT"
        problems.append(Problem(ProblemCode.NO_CURRENT, place, what, rule))
    return size


def _sst_formats(path: Path, place: Place, problems: list[Problem], footless: dict[str, Problem]) -> dict[str, int]:
    """The format_version of each SST, from its footer; ``footless`` gets those without one."""
    formats: dict[str, int] = {}
    for name in sorted(os.listdir(path)):
        if not name.endswith(".sst") or (path / name).is_symlink():
            continue
        try:
            with os.fdopen(open_regular(path / name), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - sst.FOOTER_LENGTH))
                footer = sst.footer(file.read())
        except FileNotFoundError:
            continue  # a live application compacted it away
        except MalformedBytesError as error:
            what, rule = f"not a readable SST: {error}", "an SST ends in a footer"
            footless[name] = Problem(ProblemCode.SST, place / name, what, rule)
            continue
        except NotReadableError as error:
            what, rule = f"cannot be read: {error.why}", "an SST is a regular file"
            problems.append(Problem(ProblemCode.SST, place / name, what, rule))
            continue
        except OSError as error:
            problems.append(_unreadable(place / name, error))
            continue
        formats[name] = footer.format_version
        if footer.format_version > NEWEST_SST_FORMAT:
            problems.append(
                Problem(
                    ProblemCode.SST,
                    place / name,
                    f"SST format_version {footer.format_version}: the newest that kstate knows is {NEWEST_SST_FORMAT}",
                    "unknown formats are refused",
                )
            )
    return formats


def _check_manifest(path: Path, place: Place, problems: list[Problem]) -> None:
    """RocksDB opens an older state, or an empty one, where the MANIFEST is cut off: rows would be missing."""
    name, what = "", None
    for _ in range(_LOOKS):
        try:
            name = read_small(path / "CURRENT", MOST_NAME_BYTES).decode("ascii").strip()
            what = torn(read_small(path / os.path.basename(name), MOST_MANIFEST_BYTES))
        except (OSError, ValueError):
            return  # RocksDB has said so, or a live application has begun another one
        if what is None:
            return
        time.sleep(_LOOK_SECONDS)  # a live application may be writing it
    rule = "RocksDB ends a MANIFEST with a whole record"
    problems.append(Problem(ProblemCode.TORN_MANIFEST, place / name, what or "", rule))


def _check_live(path: Path, files: tuple[LiveFile, ...], place: Place, problems: list[Problem]) -> None:
    """Each SST that the MANIFEST names must be there in its size: a lenient open does not look."""
    for file in files:
        try:
            size = (path / file.name).stat().st_size
        except FileNotFoundError:
            rule = "the MANIFEST names it"
            problems.append(Problem(ProblemCode.SST, place / file.name, "is missing", rule))
            continue
        except OSError as error:
            problems.append(_unreadable(place / file.name, error))
            continue
        if size != file.size:
            what, rule = f"has {size} bytes, not {file.size}", "the MANIFEST names its size"
            problems.append(Problem(ProblemCode.SST, place / file.name, what, rule))


def _samples(shadow: Shadow, family: str) -> tuple[tuple[bytes, bytes], ...]:
    first = list(islice(shadow.rows(family), _SAMPLE_ROWS))
    last = shadow.last_row(family)
    return tuple(first) + ((last,) if last is not None and last not in first else ())


def _stored_options(path: Path, place: Place, problems: list[Problem]) -> StoredOptions | None:
    """The newest OPTIONS file, with a problem for every setting that kstate does not handle."""
    newest = newest_options(path)
    if newest is None:
        rule = "a RocksDB directory has one"
        problems.append(Problem(ProblemCode.NO_OPTIONS, place, "no OPTIONS file", rule))
        return None
    try:
        stored = _parsed(read_small(newest, MOST_OPTIONS_BYTES))
    except NotReadableError:
        return None  # _check_files has named it
    except MalformedBytesError as error:
        what, rule = f"cannot be read: {error}", "OPTIONS as RocksDB writes them"
        problems.append(Problem(ProblemCode.MALFORMED_OPTIONS, place / newest.name, what, rule))
        return None
    except OSError as error:
        problems.append(_unreadable(place / newest.name, error))
        return None
    rule = "only settings that keep the store in its directory are handled"
    problems.extend(
        Problem(ProblemCode.FOREIGN_SETTING, place / newest.name, reason, rule)
        for reason in foreign_settings(stored, str(path))
    )
    return stored


_parsed = lru_cache(maxsize=256)(parse)
"""Stores of one kind have the same OPTIONS, and an application has few kinds."""


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
