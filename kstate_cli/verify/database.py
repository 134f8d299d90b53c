"""One database, verified: what a worker process does with a job."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from kstate_cli.formats.blob_file import is_whole, records
from kstate_cli.formats.families import OFFSETS_CF, of_no_store
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import decode_rows
from kstate_cli.formats.store_kinds import known_families
from kstate_cli.host import cannot_be_read, host_error
from kstate_cli.parallel.workers import Counter, Progress
from kstate_cli.regular_files import open_regular
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import CURRENT, is_sst
from kstate_cli.rocks.private_copy import no_ssts
from kstate_cli.rocks.tables import Table
from kstate_cli.rocks.whole_database import EntryCounts, WholeDatabase
from kstate_cli.rows.checks import RowCheck, row_check_for
from kstate_cli.statedir.places import Place
from kstate_cli.verify import files
from kstate_cli.verify.digest import FamilyDigest, database_digest
from kstate_cli.verify.findings import (
    CORRUPT,
    IN_USE,
    MISSING,
    NO_SSTS,
    NOT_UNDERSTOOD,
    UNDECODABLE,
    UNREADABLE,
    VerifyFinding,
    code_of,
)

_ATTEMPTS = 5
_PAUSE = 0.2
_SHOWN_KEY = 40
_UNDER_WAY = "is being made or dropped by the running application: once that is closed, a check tells what it is"


@dataclass(frozen=True, slots=True)
class DatabaseJob:
    """One database to verify; a worker process gets it as data."""

    path: Path
    place: Place
    """What it is called in findings."""
    kind: Kind
    segment: int | None
    size: int
    """Bytes of its SSTs, for the progress."""
    each_sst: bool = False
    """Also read each SST by itself, and hold its entries against its properties."""
    running: bool = False
    """Beside a running application: what is not whole may be in the making."""
    counter: Counter | None = None
    """Where to tell how far it is."""


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """What was found in one database."""

    findings: tuple[VerifyFinding, ...] = ()
    remarks: tuple[str, ...] = ()
    rows: int = 0
    content_bytes: int = 0
    """Bytes of keys and values."""
    digest: bytes = b""
    gone: bool = False
    """A running application has dropped it meanwhile."""


def verify_database(job: DatabaseJob) -> DatabaseReport:
    """Reads a database; whatever is wrong with it becomes a finding, never an exception.

    What looks wrong while a running application writes, compacts and drops segments is looked at again; a checksum that
    does not hold in an SST is a fact at once, since nobody ever changes an SST.
    """
    firm: tuple[VerifyFinding, ...] = ()
    for attempt in range(_ATTEMPTS):
        try:
            before = files.fingerprint(job.path)
            report = _Verification(job).report()
            firm = tuple(one for one in report.findings if _is_firm(one, job))
            if len(firm) == len(report.findings) or files.fingerprint(job.path) == before:
                return report
        except FileNotFoundError:
            if not job.path.exists():
                return DatabaseReport(gone=True, remarks=(f"{job.place.text} was dropped meanwhile",))
        except OSError as error:
            if not cannot_be_read(error):
                raise host_error(error) or error from None
            what = f"cannot be read: {error.strerror}"
            return DatabaseReport(findings=(VerifyFinding(UNREADABLE, _place_in(job, error.filename), what),))
        time.sleep(_PAUSE * attempt)
    busy = VerifyFinding(IN_USE, job.place, f"its files were others after each of {_ATTEMPTS} readings")
    return DatabaseReport(findings=(*firm, busy))


def _is_firm(finding: VerifyFinding, job: DatabaseJob) -> bool:
    return finding.code in (CORRUPT, UNDECODABLE) and finding.in_ssts_of(job.place)


def _place_in(job: DatabaseJob, file: Any) -> Place:
    """The file of the database that an error of the system names, else the database."""
    if isinstance(file, str) and Path(file).is_relative_to(job.path):
        return Place((*job.place.names, *Path(file).relative_to(job.path).parts))
    return job.place


class _Verification:
    """One reading of one database."""

    def __init__(self, job: DatabaseJob) -> None:
        self._job = job
        self._findings: list[VerifyFinding] = []
        self._remarks: list[str] = []
        self._families: dict[str, FamilyDigest] = {}
        self._progress = Progress(job.counter, job.size)

    def report(self) -> DatabaseReport:
        path, place = self._job.path, self._job.place
        self._findings += files.check_entries(path, place)
        options_families, findings, remarks = files.check_options(path, place)
        self._findings += findings
        self._remarks += remarks
        manifest, findings = files.check_current(path, place)
        if self._job.running and findings and all(one.code == MISSING for one in findings):
            return DatabaseReport(remarks=(f"{place.text} {_UNDER_WAY}",), gone=True)
        self._findings += findings
        if manifest is not None:
            self._findings += files.check_manifest(path / manifest, place / manifest)
        if manifest is not None and not any(one.code == NOT_UNDERSTOOD for one in self._findings):
            try:
                with WholeDatabase(path) as database:
                    self._check_families(database, manifest, options_families)
                    self._read(database, manifest)
            except RocksError as error:
                self._rocks(error, manifest)
        elif manifest is None:
            # Nobody can tell which of them are alive; those that are no SSTs are worth a word.
            for name in sorted(name for name in os.listdir(path) if is_sst(name)):
                self._findings += files.check_footer(path / name, place)
        self._progress.finished()
        report = DatabaseReport(
            findings=tuple(sorted(dict.fromkeys(self._findings), key=lambda one: one.file)),
            remarks=tuple(self._remarks),
            rows=sum(family.rows for family in self._families.values()),
            content_bytes=sum(family.size for family in self._families.values()),
        )
        return report if report.findings else replace(report, digest=database_digest(self._families))

    def _check_families(self, database: WholeDatabase, manifest: str, named: frozenset[str] | None) -> None:
        place, families = self._job.place, frozenset(database.column_families)
        if named is not None and named != families:
            what = f"names the column families {_names(families)}, OPTIONS {_names(named)}"
            if self._job.running:
                self._remarks.append(f"{place.text}/{manifest} {what}: {place.text} {_UNDER_WAY}")
            else:
                self._findings.append(VerifyFinding(CORRUPT, place / manifest, f"{what}: one of them is cut off"))
        for family in sorted(families - known_families()):
            what = f"column family {of_no_store(family)} is none of Streams"
            self._findings.append(VerifyFinding(NOT_UNDERSTOOD, place, what))

    def _read(self, database: WholeDatabase, manifest: str) -> None:
        path, place = self._job.path, self._job.place
        live = {family: database.live_files(family) for family in database.column_families}
        every = [file for of_family in live.values() for file in of_family]
        self._orphans(manifest, {file.name for file in every})
        ssts = {family: [file.name for file in of_family if is_sst(file.name)] for family, of_family in live.items()}
        absent = {family: names for family, names in ssts.items() if names and not any(map(self._exists, names))}
        for family, names in absent.items():
            what = f"column family {family}: {no_ssts(len(names))}"
            self._findings.append(VerifyFinding(NO_SSTS, place, what, tuple(names)))
        bad = files.check_live(path, [file for family in live.keys() - absent for file in live[family]], place)
        self._findings += bad
        damaged = {one.place.name for one in bad}
        for family, files_of_family in live.items():
            if family in absent:
                continue
            tables = database.tables(family)
            blobs = tuple(file.name for file in files_of_family if not is_sst(file.name))
            if damaged & {table.name for table in tables}:
                self._alone(database, [table for table in tables if table.name not in damaged])
            elif damaged.intersection(blobs):
                # Its rows cannot be read, and RocksDB would not say which file is why.
                self._alone(database, tables)
            elif self._family(database, family, tables, blobs) or self._job.each_sst:
                self._alone(database, tables)

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self._job.path / name)

    def _family(self, database: WholeDatabase, family: str, tables: list[Table], blobs: tuple[str, ...]) -> bool:
        """Reads a column family; true where its SSTs must be read one by one too.

        That is after an error, to name every SST that has one, and where a range deletion lets RocksDB pass over blocks
        that hold nothing but deleted rows.
        """
        counts = database.counts(family)
        try:
            if family == OFFSETS_CF:
                decode_rows(database.rows(family))
            else:
                self._families[family] = self._rows(database, family, tables)
        except MalformedBytesError as error:
            what = f"column family {family}: {error}"
            self._findings.append(self._held(UNDECODABLE, tables, None, what))
        except RocksError as error:
            if blobs and (error.said is None or error.said.file is None):
                self._blobs(database, family, blobs, error)
            else:
                self._rocks(error, "")
            return True
        if counts is None:
            return bool(tables)
        if family in self._families and not database.unflushed(family):
            self._compare(family, self._families[family].rows, counts, tables)
        return bool(counts.range_deletions)

    def _rows(self, database: WholeDatabase, family: str, tables: list[Table]) -> FamilyDigest:
        digest = FamilyDigest()
        rule = row_check_for(self._job.kind, family, segmented=self._job.segment is not None)
        last: bytes | None = None
        for flat, lengths in database.pieces(family):
            keys = flat[::2]
            if (last is not None and keys[0] <= last) or not all(map(operator.lt, keys, islice(keys, 1, None))):
                self._out_of_order(family, last, keys, tables)
            last = keys[-1]
            if rule is not None:
                values = flat[1::2]
                if not rule.fits(keys, values):
                    rule = self._decode(family, rule, keys, values, tables)
            before = digest.size
            digest.add(flat, lengths)
            self._progress.add(digest.size - before)
        return digest

    def _decode(
        self, family: str, rule: RowCheck, keys: list[bytes], values: list[bytes], tables: list[Table]
    ) -> RowCheck | None:
        """Asks the codec; after the first row that it refuses no more rows of the family are asked for."""
        for key, value in zip(keys, values, strict=True):
            try:
                rule.decode(key, value)
            except MalformedBytesError as error:
                what = f"column family {family}, key {_hex(key)}: {error} ({self._job.kind.name} store)"
                self._findings.append(self._held(UNDECODABLE, tables, key, what))
                return None
        return rule

    def _out_of_order(self, family: str, last: bytes | None, keys: list[bytes], tables: list[Table]) -> None:
        for key in keys:
            if last is not None and key <= last:
                what = f"column family {family}: key {_hex(key)} comes after {_hex(last)}"
                self._findings.append(self._held(CORRUPT, tables, key, what))
                return
            last = key

    def _compare(self, family: str, rows: int, counts: EntryCounts, tables: list[Table]) -> None:
        """What table properties can be held to, knowing only the rows that are visible.

        An SST has an entry for each version of a key that it holds, deletions among them, and each visible row is at
        least one entry that is no deletion. Where SSTs do not overlap, there is nothing to overwrite: each such entry
        is a row, unless a range deletion of the same SST covers it. Keys out of order are seen here too, since RocksDB
        passes over a key that is not greater than the one before.
        """
        most = counts.entries - counts.deletions
        apart = all(one.last < other.first for one, other in pairwise(tables))
        exact = apart and not counts.range_deletions and not counts.merges
        if rows > most or (exact and rows != most):
            what = f"column family {family} has {rows:,} rows, the properties of its SSTs count {most:,}"
            self._findings.append(self._held(CORRUPT, tables, None, what))

    def _blobs(self, database: WholeDatabase, family: str, blobs: tuple[str, ...], error: RocksError) -> None:
        """Finds the blob files that a row could not be read from: RocksDB does not name them."""
        before = len(self._findings)
        for name in blobs:
            if (what := self._damaged_blob(database, family, name)) is not None:
                self._add(CORRUPT, self._job.place / name, what)
        if len(self._findings) == before:
            self._findings.append(VerifyFinding(code_of(error), self._job.place, error.plain, blobs))

    def _damaged_blob(self, database: WholeDatabase, family: str, name: str) -> str | None:
        """What is wrong with the records of a blob file; those are not summed that RocksDB reads."""
        with os.fdopen(open_regular(self._job.path / name), "rb") as file:
            try:
                for record in records(file, file.seek(0, os.SEEK_END)):
                    if not _reads(database, family, record.key) and not is_whole(file, record):
                        return f"column family {family}: the blob at byte {record.at} does not match its checksum"
            except MalformedBytesError as error:
                return str(error)
        return None

    def _alone(self, database: WholeDatabase, tables: list[Table]) -> None:
        """Reads SSTs one by one; not those with values in blob files, which one SST alone does not give."""
        if with_blobs := [table.name for table in tables if table.has_blobs]:
            self._remarks.append(f"{self._job.place.text}: read with their blob files only: {', '.join(with_blobs)}")
        for table in tables:
            if table.has_blobs:
                continue
            place = self._job.place / table.name
            try:
                contents = database.alone(table)
            except RocksError as error:
                self._add(code_of(error), place, error.plain)
                continue
            counts = contents.counts
            if counts is None or counts.range_deletions or counts.merges:
                continue
            most = counts.entries - counts.deletions
            if contents.rows != most:
                what = (
                    f"gives {contents.rows:,} rows, its properties count {most:,}: some are not there, or not in order"
                )
                self._add(CORRUPT, place, what)

    def _orphans(self, manifest: str, alive: set[str]) -> None:
        path, place = self._job.path, self._job.place
        orphans = sorted(name for name in os.listdir(path) if is_sst(name) and name not in alive)
        if not orphans:
            return
        newer = files.newer_manifest(path, manifest)
        if newer is not None:
            what = f"names {manifest}, but {newer} is newer, and {', '.join(orphans)} are in none that is named"
            self._findings.append(VerifyFinding(CORRUPT, place / CURRENT, what))
        else:
            self._remarks.append(
                f"{place.text}: {manifest} does not name {', '.join(orphans)}; a crash leaves such files, and if there "
                "was none, the MANIFEST is damaged"
            )

    def _rocks(self, error: RocksError, otherwise: str) -> None:
        name = (error.said.file if error.said is not None else None) or otherwise
        self._add(code_of(error), self._job.place / name if name else self._job.place, error.plain)

    def _add(self, code: str, place: Place, what: str) -> None:
        """What reading has met; not where that file has been found missing, cut off or too new already."""
        if not any(one.place == place and not one.among for one in self._findings):
            self._findings.append(VerifyFinding(code, place, what))

    def _held(self, code: str, tables: Iterable[Table], key: bytes | None, what: str) -> VerifyFinding:
        """A finding in the SSTs that a key can be in: one, where they do not overlap."""
        names = sorted(one.name for one in tables if key is None or one.first <= key <= one.last)
        if len(names) == 1:
            return VerifyFinding(code, self._job.place / names[0], what)
        return VerifyFinding(code, self._job.place, what, tuple(names))


def _reads(database: WholeDatabase, family: str, key: bytes) -> bool:
    try:
        return database.get(family, key) is not None
    except RocksError:
        return False


def _names(families: frozenset[str]) -> str:
    return ", ".join(sorted(families))


def _hex(key: bytes) -> str:
    text = key.hex()
    return text if len(text) <= _SHOWN_KEY else f"{text[:_SHOWN_KEY]}… ({len(key)} bytes)"
