"""The files of one database, as `kstate_cli.rocks.health` sees them, told as problems of the directory.

A running application may write and remove them meanwhile: what vanishes is passed over where that may be why, the end
of a MANIFEST is looked at more than once, and what cannot be read is a problem as others, so that the rest is told too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from kstate_cli.formats.options_file import StoredOptions
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.regular_files import NotReadableError, is_special, kind_of
from kstate_cli.rocks import health
from kstate_cli.rocks.files import CURRENT, is_sst, newest_options
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import Problem, ProblemCode

OWN_FOLDER = "only settings that keep the store in its directory are handled"
_LOOKS = 3
_LOOK_SECONDS = 0.05


def unreadable(place: Place, error: OSError) -> Problem:
    """A file that is there, and of which nothing is known."""
    what = f"cannot be read: {error.strerror or error}"
    return Problem(ProblemCode.UNREADABLE, place, what, CHECK_THE_DISK)


def check_files(path: Path, place: Place, problems: list[Problem]) -> int:
    """The bytes of all files. What RocksDB names must be a regular file, and nothing may be a FIFO or a device."""
    size = 0
    for entry in health.entries(path):
        if not entry.regular:
            mode = entry.status.st_mode
            if not entry.own and not is_special(mode):
                continue
            code = ProblemCode.SPECIAL if is_special(mode) else ProblemCode.NOT_A_FILE
            what, rule = f"is {kind_of(mode)}, not a regular file", "a RocksDB directory holds regular files only"
            problems.append(Problem(code, place / entry.name, what, rule))
            continue
        size += entry.status.st_size
        if entry.too_large is not None:
            rule = "RocksDB's own files, but for rows, are small"
            problems.append(Problem(ProblemCode.SPECIAL, place / entry.name, entry.too_large.why, rule))
    if not (path / CURRENT).exists():
        what, rule = "CURRENT is missing", "a RocksDB directory has CURRENT"
        problems.append(Problem(ProblemCode.NO_CURRENT, place, what, rule))
    return size


def sst_formats(path: Path, place: Place, problems: list[Problem], footless: dict[str, Problem]) -> dict[str, int]:
    """The format_version of each SST, from its footer; ``footless`` gets the problems of those without one.

    Whether they count is known only with the MANIFEST: one that was being written when somebody died has none yet.
    """
    formats: dict[str, int] = {}
    for name in sorted(os.listdir(path)):
        if not is_sst(name) or (path / name).is_symlink():
            continue
        try:
            end = health.sst_end(path / name)
        except FileNotFoundError:
            continue  # a live application compacted it away
        except NotReadableError as error:
            what, rule = f"cannot be read: {error.why}", "an SST is a regular file"
            problems.append(Problem(ProblemCode.SST, place / name, what, rule))
            continue
        except OSError as error:
            problems.append(unreadable(place / name, error))
            continue
        if end.format_version is None:
            what, rule = f"not a readable SST: {end.malformed}", "an SST ends in a footer"
            footless[name] = Problem(ProblemCode.SST, place / name, what, rule)
            continue
        formats[name] = end.format_version
        if end.newer is not None:
            problems.append(Problem(ProblemCode.SST, place / name, end.newer, "unknown formats are refused"))
    return formats


def check_manifest(path: Path, place: Place, problems: list[Problem]) -> None:
    """RocksDB opens an older state, or an empty one, where the MANIFEST is cut off: rows would be missing."""
    name, what = "", None
    for _ in range(_LOOKS):
        try:
            # RocksDB has been asked before: what it does not take for a name, it has refused.
            name = health.current(path).meant or ""
            what = health.manifest_end(path / os.path.basename(name))
        except (OSError, ValueError):  # a name may hold a NUL
            return  # RocksDB has said so, or a live application has begun another one
        if what is None:
            return
        time.sleep(_LOOK_SECONDS)  # a live application may be writing it
    rule = "RocksDB ends a MANIFEST with a whole record"
    problems.append(Problem(ProblemCode.TORN_MANIFEST, place / name, what or "", rule))


def check_live(path: Path, files: tuple[LiveFile, ...], place: Place, problems: list[Problem]) -> None:
    """Each SST and blob file that the MANIFEST names must be there in its size; footers have been read before."""
    for file in files:
        code = ProblemCode.SST if is_sst(file.name) else ProblemCode.BLOB
        try:
            size = health.live_size(path, file)
        except OSError as error:
            problems.append(unreadable(place / file.name, error))
            continue
        if size is None:
            rule = "the MANIFEST names it"
            problems.append(Problem(code, place / file.name, "is missing", rule))
        elif size != file.size:
            what, rule = f"has {size} bytes, not {file.size}", "the MANIFEST names its size"
            problems.append(Problem(code, place / file.name, what, rule))


def stored_options(path: Path, place: Place, problems: list[Problem]) -> StoredOptions | None:
    """The newest OPTIONS file, with a problem for every setting that kstate does not handle."""
    newest = newest_options(path)
    if newest is None:
        rule = "a RocksDB directory has one"
        problems.append(Problem(ProblemCode.NO_OPTIONS, place, "no OPTIONS file", rule))
        return None
    try:
        seen = health.read_options(newest)
    except NotReadableError:
        return None  # check_files has named it
    except OSError as error:
        problems.append(unreadable(place / newest.name, error))
        return None
    if seen.malformed is not None:
        what, rule = f"cannot be read: {seen.malformed}", "OPTIONS as RocksDB writes them"
        problems.append(Problem(ProblemCode.MALFORMED_OPTIONS, place / newest.name, what, rule))
    problems.extend(
        Problem(ProblemCode.FOREIGN_SETTING, place / newest.name, reason, OWN_FOLDER) for reason in seen.foreign
    )
    return seen.stored
