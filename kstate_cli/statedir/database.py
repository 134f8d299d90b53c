"""One RocksDB directory, read through a shadow: column families, offsets, samples of rows, SST formats."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from kstate_cli.formats.families import OFFSETS_CF, of_no_store
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows
from kstate_cli.formats.store_kinds import known_families
from kstate_cli.host import CHECK_THE_DISK, host_error
from kstate_cli.rocks.errors import RocksCode, RocksError, cannot_be_read
from kstate_cli.rocks.files import CURRENT, is_manifest, newest_log
from kstate_cli.rocks.health import without_manifest
from kstate_cli.rocks.shadow import LiveFile, Shadow
from kstate_cli.statedir.database_files import (
    OWN_FOLDER,
    check_files,
    check_live,
    check_manifest,
    sst_formats,
    stored_options,
    unreadable,
)
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import Problem, ProblemCode

_SAMPLE_ROWS = 4


def is_database(path: Path) -> bool:
    """True for a directory that RocksDB has opened: it has CURRENT, or at least a MANIFEST."""
    return any(name == CURRENT or is_manifest(name) for name in os.listdir(path))


def read_database(path: Path, segment: int | None, place: Place, count_bytes: int = 0) -> Database:
    """Reads one database; what cannot be read or is not understood becomes a Problem, never an exception.

    ``place`` is where it is, for its problems. Its rows are counted if its files have ``count_bytes`` at most.
    """
    problems: list[Problem] = []
    size = check_files(path, place, problems)
    families: tuple[str, ...] = ()
    live: dict[str, tuple[LiveFile, ...]] = {}
    samples: dict[str, tuple[tuple[bytes, bytes], ...]] = {}
    counted: tuple[tuple[str, int], ...] | None = None
    offsets: OffsetsRecord | None = None
    rows = 0
    footless: dict[str, Problem] = {}
    failure: Problem | None = None
    formats = sst_formats(path, place, problems, footless)
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
                if 0 < size <= count_bytes:
                    counted = _counted(shadow, samples)
        except (RocksError, OSError) as error:
            if not footless:
                failure = _does_not_open(path, place, error)
        except MalformedBytesError as error:
            what, rule = f"column family offsets: {error}", "keys and values as Streams 4.3 writes them"
            not_long = error.streams_exception == "SerializationException"
            code = ProblemCode.NOT_A_LONG if not_long else ProblemCode.FOREIGN_OFFSETS
            problems.append(Problem(code, place, what, rule))
        check_manifest(path, place, problems)
    alive = {file.name for files in live.values() for file in files}
    # One that was being written when somebody died has no footer yet, and no MANIFEST names it: RocksDB deletes it.
    problems += [problem for name, problem in footless.items() if not families or name in alive]
    for files in live.values():
        check_live(path, files, place, problems)
    if failure is not None and not any(problem.code is ProblemCode.BLOB for problem in problems):
        # RocksDB does not name a blob file that it cannot read.
        problems.append(failure)
    options = stored_options(path, place, problems)
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
        what, rule = (
            f"unknown column family {', '.join(map(of_no_store, unknown))}",
            "only column families of Streams are understood",
        )
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
        opened_ns=_mtime(path / CURRENT),
        problems=tuple(problems),
        counted=counted,
        wal_number=newest_log(path),
    )


def _counted(shadow: Shadow, samples: Mapping[str, Sequence[object]]) -> tuple[tuple[str, int], ...] | None:
    """The rows of each data column family, while it is open. Whoever wants them all is told of what cannot be read."""
    try:
        return tuple(
            (name, len(some) if len(some) < _SAMPLE_ROWS else sum(1 for _ in shadow.rows(name)))
            for name, some in samples.items()
        )
    except RocksError:
        return None


def _does_not_open(path: Path, place: Place, error: RocksError | OSError) -> Problem:
    """Why a database cannot be read. Raises HostError where that is because of something that this host is short of."""
    if isinstance(error, OSError):
        if (short := host_error(error)) is not None:
            raise short from None
        if cannot_be_read(error):
            return unreadable(place, error)
    elif cannot_be_read(error):
        return Problem(ProblemCode.UNREADABLE, place, f"cannot be read: {error}", CHECK_THE_DISK)
    elif error.code in (RocksCode.REFUSED, RocksCode.TOO_NEW):
        rule = "another RocksDB may open it"
        return Problem(ProblemCode.NOT_OPENED_HERE, place, f"it does not open with this RocksDB: {error}", rule)
    elif error.code is RocksCode.OTHER_FOLDERS:
        return Problem(ProblemCode.FOREIGN_SETTING, place, str(error), OWN_FOLDER)
    elif error.code is RocksCode.NO_SSTS:
        return Problem(ProblemCode.NO_SSTS, place, str(error), "a store is in its own directory")
    code = ProblemCode.NO_MANIFEST if without_manifest(path) else ProblemCode.DOES_NOT_OPEN
    return Problem(code, place, f"RocksDB cannot read it: {error}", "a store must open")


def _samples(shadow: Shadow, family: str) -> tuple[tuple[bytes, bytes], ...]:
    first = list(islice(shadow.rows(family), _SAMPLE_ROWS))
    last = shadow.last_row(family)
    return tuple(first) + ((last,) if last is not None and last not in first else ())


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
