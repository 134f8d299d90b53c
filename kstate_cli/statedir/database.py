"""One RocksDB directory: its files, and through a shadow column families, offsets, samples of rows, SST formats.

:mod:`kstate_cli.rocks.health` examines the files; this module makes problems of the directory of its answers. A running
application may write and remove files meanwhile: a file that vanishes is skipped where the application may be the
cause, and the end of a MANIFEST is read several times. An unreadable file is a problem like others, so that the rest is
reported too.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF, all_families, of_no_store
from kstate_cli.host import CHECK_THE_DISK, host_error
from kstate_cli.regular_files import NotReadableError, is_special, kind_of
from kstate_cli.rocks import health
from kstate_cli.rocks.errors import RocksCode, RocksError, cannot_be_read
from kstate_cli.rocks.files import CURRENT, is_manifest, is_sst, newest_log, newest_options
from kstate_cli.rocks.health import without_manifest
from kstate_cli.rocks.shadow import LiveFile, Shadow
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.problems import Place, Problem, ProblemCode

OWN_FOLDER = "kstate supports only settings that keep the store in its directory"
_MANIFEST_ATTEMPTS = 3
_MANIFEST_PAUSE_SECONDS = 0.05
"""The pause between two attempts. An application writes a record with one system call, so a record that is still
partial after the pause is cut off.
"""
_SAMPLE_ROWS = 4
"""Enough rows to infer the kind of a store. So the time to read a directory does not depend on the number of rows."""


def is_database(path: Path) -> bool:
    """Return whether RocksDB has opened a directory: it has CURRENT, or at least a MANIFEST."""
    return any(name == CURRENT or is_manifest(name) for name in os.listdir(path))


def read_database(path: Path, segment: int | None, place: Place, count_bytes: int = 0) -> Database:
    """Read one database; an unreadable or unknown part becomes a Problem, never an exception.

    ``segment`` is the start of its segment in ms, None for a store in ``rocksdb/``. ``place`` names the database in its
    problems. The rows are counted if the files have at most ``count_bytes``. Raises HostError if this host lacks a
    resource, and FileNotFoundError if the database is removed meanwhile.
    """
    problems: list[Problem] = []
    size = check_files(path, place, problems)
    # File name -> problem of an SST without a footer. Only the MANIFEST, which is read later, shows whether it matters.
    footless: dict[str, Problem] = {}
    formats = sst_formats(path, place, problems, footless)
    contents, failure = _Contents(), None
    # A database with a fatal problem is not opened: RocksDB would wait at a FIFO forever, and create a new database if
    # CURRENT is missing.
    if not any(problem.fatal for problem in problems):
        failure = _read_contents(path, contents, count_rows=0 < size <= count_bytes)
        if isinstance(failure, MalformedBytesError):
            problems.append(foreign_offsets(place, failure))
        # Checked although RocksDB has opened the database: if a MANIFEST is cut off, RocksDB shows an older state
        # without an error.
        check_manifest(path, place, problems)
    families, live_names = contents.families, contents.live_names
    # If a process dies while it writes an SST, the SST has no footer, and no MANIFEST names it. RocksDB deletes such a
    # file, so it is no problem.
    problems += [problem for name, problem in footless.items() if not families or name in live_names]
    for files in contents.live.values():
        check_live(path, files, place, problems)
    # If an SST has no footer, its own problem explains why RocksDB could not open the database.
    if isinstance(failure, (RocksError, OSError)) and not footless:
        problems += list(unless_blob(_does_not_open(path, place, failure), problems))
    options = stored_options(path, place, problems)
    if families:
        problems += disagreeing_families(place, families, options)
        # Only if RocksDB has read the MANIFEST: otherwise every SST would look as if the MANIFEST did not name it.
        problems += unnamed_ssts(place, (formats.keys() | footless.keys()) - live_names)
        problems += unknown_families(place, families)
    return Database(
        path=path,
        segment_start=segment,
        column_families=families,
        live=contents.live,
        sst_formats=frozenset(number for name, number in formats.items() if name in live_names),
        rows=contents.estimated_rows,
        empty=not any(contents.samples.values()),
        samples=contents.samples,
        offsets=contents.offsets,
        options=options,
        size=size,
        # Up to 4.2 an SST younger than .checkpoint shows rows that were written after the last commit.
        newest_sst_ns=max((_mtime(path / name) for name in live_names), default=0),
        opened_ns=_mtime(path / CURRENT),
        problems=tuple(problems),
        row_counts=contents.row_counts,
        wal_number=newest_log(path),
    )


def read_copy(path: Path, segment: int | None, place: Place, opened_ns: int) -> Database:
    """Read a private copy of a database; its SSTs and blob files are links to the files that the original has open.

    The caller has copied it, has checked its files, and states when the original was opened
    (:attr:`Database.opened_ns`). Raise RocksError, OSError and MalformedBytesError.
    """
    contents = _Contents()
    problems: list[Problem] = []
    with Shadow(path) as shadow:
        contents.read(shadow)
    options = stored_options(path, place, problems)
    problems += disagreeing_families(place, contents.families, options)
    problems += unknown_families(place, contents.families)
    for file in (file for files in contents.live.values() for file in files):
        # The link shows the size of the linked file. RocksDB compares it with the MANIFEST only when it first reads the
        # file.
        size = os.stat(path / file.name).st_size
        if size != file.size:
            raise FileNotFoundError(
                errno.ENOENT, f"the file has {size} bytes instead of {file.size}", str(path / file.name)
            )
    return Database(
        path=path,
        segment_start=segment,
        column_families=contents.families,
        live=contents.live,
        sst_formats=frozenset(),
        rows=contents.estimated_rows,
        empty=not any(contents.samples.values()),
        samples=contents.samples,
        offsets=contents.offsets,
        options=options,
        size=sum(file.size for files in contents.live.values() for file in files),
        newest_sst_ns=max((_mtime(path / name) for name in contents.live_names), default=0),
        opened_ns=opened_ns,
        problems=tuple(problems),
        wal_number=newest_log(path),
    )


@dataclass(slots=True)
class _Contents:
    """The parts of a database that only RocksDB can read. After a failure, those that were read before it."""

    families: tuple[str, ...] = ()
    live: dict[str, tuple[LiveFile, ...]] = field(default_factory=dict)
    samples: dict[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    offsets: OffsetsRecord | None = None
    estimated_rows: int = 0
    row_counts: tuple[tuple[str, int], ...] | None = None

    @property
    def live_names(self) -> frozenset[str]:
        """The names of all files that the MANIFEST names."""
        return frozenset(file.name for files in self.live.values() for file in files)

    def read(self, shadow: Shadow) -> None:
        """Read families, files, samples and offsets; the row counts remain None."""
        self.families = shadow.column_families
        for name in self.families:
            self.live[name] = shadow.live_files(name)
            if name == OFFSETS_CF:
                self.offsets = decode_rows(shadow.rows(name))
                continue
            self.estimated_rows += shadow.estimated_rows(name)
            self.samples[name] = _samples(shadow, name)


def _read_contents(
    path: Path, contents: _Contents, *, count_rows: bool
) -> RocksError | OSError | MalformedBytesError | None:
    """Fill ``contents`` through a shadow, and return the error that ended the reading."""
    try:
        with Shadow(path) as shadow:
            contents.read(shadow)
            if count_rows:
                contents.row_counts = _row_counts(shadow, contents.samples)
    except (RocksError, OSError, MalformedBytesError) as error:
        return error
    return None


def foreign_offsets(place: Place, error: MalformedBytesError) -> Problem:
    """Return the problem of a column family ``offsets`` with a row that Streams has not written."""
    not_long = error.streams_exception == "SerializationException"
    code = ProblemCode.FOREIGN_OFFSETS
    # Streams fails elsewhere if a value is not a long: its LongDeserializer throws while the application starts.
    if not_long:
        code = ProblemCode.NOT_A_LONG
    return Problem(
        code,
        place,
        f'the column family "offsets" is malformed: {error}',
        "Streams 4.3 does not write such keys or values",
    )


def disagreeing_families(place: Place, families: Sequence[str], options: StoredOptions | None) -> Iterator[Problem]:
    """Yield a problem if OPTIONS and the MANIFEST name different column families; ``families`` are the MANIFEST's."""
    if options is not None and frozenset(families) != frozenset(options.column_families):
        in_options = ", ".join(options.column_families)
        yield Problem(
            ProblemCode.FAMILIES_DISAGREE,
            place,
            f"the MANIFEST lists the column families {', '.join(families)}, but OPTIONS lists {in_options}",
            "the lists differ only if one of the files is truncated",
        )


def unless_blob(failure: Problem, problems: Sequence[Problem]) -> Iterator[Problem]:
    """Yield ``failure``, an error at opening, unless a problem of a blob file explains it.

    RocksDB does not name the blob file in its error.
    """
    if all(problem.code is not ProblemCode.BLOB for problem in problems):
        yield failure


def unknown_families(place: Place, families: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for column families that Streams does not use."""
    unknown = sorted(set(families) - all_families())
    if unknown:
        text = f"the database has the unknown column family {', '.join(map(of_no_store, unknown))}"
        yield Problem(ProblemCode.UNKNOWN_FAMILY, place, text, "kstate supports only column families of Streams")


def unnamed_ssts(place: Place, names: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for SSTs (``names``) that exist but that the MANIFEST does not name: rows may be missing."""
    if names:
        rule = "a crash can leave such files behind. If the application did not crash, the MANIFEST is damaged"
        text = f"the MANIFEST does not list {', '.join(sorted(names))}"
        yield Problem(ProblemCode.SST_NOT_NAMED, place, text, rule)


def _row_counts(shadow: Shadow, samples: Mapping[str, Sequence[object]]) -> tuple[tuple[str, int], ...] | None:
    """Return the number of rows of each data column family; None if a family cannot be read.

    Nothing is reported then: a command that needs all rows reads them again, and reports the damage.
    """
    counts = []
    try:
        for name, sample in samples.items():
            # A sample with fewer rows than its limit has all rows of the family.
            count = len(sample)
            if count >= _SAMPLE_ROWS:
                count = sum(1 for _ in shadow.rows(name))
            counts.append((name, count))
    except RocksError:
        return None
    return tuple(counts)


def _does_not_open(path: Path, place: Place, error: RocksError | OSError) -> Problem:
    """Return the problem of a database that could not be opened or read.

    Raise HostError if this host lacks a resource.
    """
    if isinstance(error, OSError):
        # If this host has no free descriptors or memory, every later database would look damaged too.
        if (shortage := host_error(error)) is not None:
            raise shortage from None
        if cannot_be_read(error):
            return unreadable(place, error)
    elif cannot_be_read(error):
        return Problem(ProblemCode.UNREADABLE, place, f"kstate cannot read it: {error}", CHECK_THE_DISK)
    elif error.code in (RocksCode.REJECTED, RocksCode.TOO_NEW):
        rule = "another version of RocksDB may be able to open the database"
        return Problem(
            ProblemCode.NOT_OPENED_HERE,
            place,
            f"kstate's RocksDB version cannot open the database: {error}",
            rule,
        )
    elif error.code is RocksCode.OTHER_FOLDERS:
        return Problem(ProblemCode.FOREIGN_SETTING, place, str(error), OWN_FOLDER)
    elif error.code is RocksCode.NO_SSTS:
        return Problem(ProblemCode.NO_SSTS, place, str(error), "Streams keeps a store's files in the store's directory")
    code = ProblemCode.DOES_NOT_OPEN
    # A process that is killed while it creates or deletes a database leaves it without a MANIFEST. This is not damage,
    # so it has a code of its own.
    if without_manifest(path):
        code = ProblemCode.NO_MANIFEST
    return Problem(code, place, f"RocksDB cannot open the database: {error}", "Streams must be able to open the store")


def _samples(shadow: Shadow, family: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the first rows of a column family and its last row. The kind of the store is inferred from them."""
    first = list(islice(shadow.rows(family), _SAMPLE_ROWS))
    last = shadow.last_row(family)
    # The last row is needed too: in a time-ordered store the base rows come before the index rows (KIP-825).
    if last is not None and last not in first:
        first.append(last)
    return tuple(first)


def _mtime(path: Path) -> int:
    """Return the mtime of a file in ns; 0 if it was removed."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def unreadable(place: Place, error: OSError) -> Problem:
    """Return the problem of a file that exists and cannot be read: its content is unknown."""
    return Problem(ProblemCode.UNREADABLE, place, f"kstate cannot read it: {error.strerror or error}", CHECK_THE_DISK)


def check_files(path: Path, place: Place, problems: list[Problem]) -> int:
    """Return the size of all files in bytes.

    Add a problem for each special file (such as a FIFO), for each entry with a name of RocksDB that is not a regular
    file, for each small file that is far too large, and for a missing CURRENT.
    """
    size = 0
    for entry in health.entries(path):
        if not entry.regular:
            mode = entry.status.st_mode
            # A folder with a name that RocksDB does not use for its files, such as ``archive``, is not a part of the
            # database.
            if not entry.own and not is_special(mode):
                continue
            code = ProblemCode.NOT_A_FILE
            # RocksDB would wait at a FIFO forever, so a database with a special file is not opened.
            if is_special(mode):
                code = ProblemCode.SPECIAL
            text, rule = (
                f"the entry is {kind_of(mode)}, not a regular file",
                "a RocksDB directory contains only regular files",
            )
            problems.append(Problem(code, place / entry.name, text, rule))
            continue
        size += entry.status.st_size
        if entry.too_large is not None:
            rule = "RocksDB files without rows are small"
            problems.append(Problem(ProblemCode.SPECIAL, place / entry.name, entry.too_large.why, rule))
    if not (path / CURRENT).exists():
        problems.append(
            Problem(ProblemCode.NO_CURRENT, place, "CURRENT is missing", "every RocksDB database has a file CURRENT")
        )
    return size


def sst_formats(path: Path, place: Place, problems: list[Problem], footless: dict[str, Problem]) -> dict[str, int]:
    """Return the format_version of each SST, as its footer states it. An SST without a footer is added to ``footless``.

    Only the MANIFEST shows whether such an SST matters: it may be the rest of a process that died while it wrote the
    file.
    """
    formats: dict[str, int] = {}
    for name in sorted(os.listdir(path)):
        # check_files has reported a link. Following it would read a file of another directory.
        if not is_sst(name) or (path / name).is_symlink():
            continue
        try:
            end = health.sst_end(path / name)
        except FileNotFoundError:
            continue  # a live application compacted it away
        except NotReadableError as error:
            text = f"kstate cannot read it: {error.why}"
            problems.append(Problem(ProblemCode.SST, place / name, text, "an SST is a regular file"))
            continue
        except OSError as error:
            problems.append(unreadable(place / name, error))
            continue
        if end.format_version is None:
            text = f"the file is not a readable SST: {end.malformed}"
            footless[name] = Problem(ProblemCode.SST, place / name, text, "every SST ends with a footer")
            continue
        formats[name] = end.format_version
        if end.newer is not None:
            problems.append(Problem(ProblemCode.SST, place / name, end.newer, "kstate refuses unknown formats"))
    return formats


def check_manifest(path: Path, place: Place, problems: list[Problem]) -> None:
    """Add a problem if the MANIFEST is cut off: RocksDB would open an older or empty state, without an error."""
    name, damage = "", None
    for _ in range(_MANIFEST_ATTEMPTS):
        try:
            # The name is valid, because RocksDB has opened the database, and it rejects a CURRENT without the name of a
            # MANIFEST.
            name = health.current(path).stated_name or ""
            damage = health.manifest_end(path / os.path.basename(name))
        except (OSError, ValueError):  # ValueError: the name contains a NUL
            # Either RocksDB has reported the defect, or a running application has begun another MANIFEST.
            return
        if damage is None:
            return
        time.sleep(_MANIFEST_PAUSE_SECONDS)  # a running application may be writing it
    rule = "RocksDB writes only whole records to a MANIFEST"
    problems.append(Problem(ProblemCode.TORN_MANIFEST, place / name, damage or "", rule))


def check_live(path: Path, files: tuple[LiveFile, ...], place: Place, problems: list[Problem]) -> None:
    """Add a problem for each SST and blob file that the MANIFEST names and that is missing or has another size."""
    for file in files:
        code = ProblemCode.BLOB
        if is_sst(file.name):
            code = ProblemCode.SST
        try:
            size = health.live_size(path, file)
        except OSError as error:
            problems.append(unreadable(place / file.name, error))
            continue
        if size is None:
            rule = "the MANIFEST lists the file"
            problems.append(Problem(code, place / file.name, "the file is missing", rule))
        # RocksDB would open the database although a file is too short, and fail only when it reads after the end.
        elif size != file.size:
            text = f"the file has {size} bytes instead of {file.size}"
            problems.append(Problem(code, place / file.name, text, "the MANIFEST records a different size"))


def stored_options(path: Path, place: Place, problems: list[Problem]) -> StoredOptions | None:
    """Return the newest OPTIONS file, and add a problem for every setting that kstate does not handle.

    Return None, with a problem, if there is no OPTIONS file or it cannot be read.
    """
    newest = newest_options(path)
    if newest is None:
        rule = "every RocksDB database has an OPTIONS file"
        problems.append(Problem(ProblemCode.NO_OPTIONS, place, "the OPTIONS file is missing", rule))
        return None
    try:
        options = health.read_options(newest)
    except NotReadableError:
        return None  # check_files has reported it
    except OSError as error:
        problems.append(unreadable(place / newest.name, error))
        return None
    if options.malformed is not None:
        text, rule = f"kstate cannot read it: {options.malformed}", "RocksDB does not write such an OPTIONS file"
        problems.append(Problem(ProblemCode.MALFORMED_OPTIONS, place / newest.name, text, rule))
    problems.extend(
        Problem(ProblemCode.FOREIGN_SETTING, place / newest.name, reason, OWN_FOLDER) for reason in options.foreign
    )
    return options.stored
