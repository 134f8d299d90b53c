"""The verification of one database, which a worker process runs. It imports little: every process pays for it."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.offsets import decode_rows
from kstate_cli.formats.sst import blob_records, is_whole_blob
from kstate_cli.formats.store_kinds import OFFSETS_CF, all_families, of_no_store
from kstate_cli.host import cannot_be_read, host_error
from kstate_cli.parallel import Counter, Progress, leave_everything_in
from kstate_cli.regular_files import open_regular
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import CURRENT, Table, is_sst
from kstate_cli.rocks.shadow import LiveFile, no_ssts
from kstate_cli.rocks.whole_database import EntryCounts, WholeDatabase
from kstate_cli.rows.checks import RowCheck, row_check_for
from kstate_cli.statedir.problems import Place
from kstate_cli.verify import files
from kstate_cli.verify.files import FamilyDigest, database_digest
from kstate_cli.verify.findings import (
    CORRUPT,
    IN_USE,
    MISSING,
    NO_SSTS,
    NOT_UNDERSTOOD,
    UNDECODABLE,
    UNREADABLE,
    VerifyCode,
    VerifyFinding,
    code_of,
)

_ATTEMPTS = 5
"""Readings of a database that a running application keeps changing, before verify reports it as in use."""
_PAUSE = 0.2
"""Seconds by which the pause grows with each reading."""
_SHOWN_KEY = 40
_UNDER_WAY = (
    "the running application is creating or dropping this database, so kstate did not verify it. Stop the "
    "application and verify the directory again"
)


@dataclass(frozen=True, slots=True)
class DatabaseJob:
    """One database to verify; a worker process gets it as data."""

    path: Path
    place: Place
    """Its name in findings."""
    kind: Kind
    segment: int | None
    size: int
    """Bytes of its SSTs, for the progress."""
    each_sst: bool = False
    """Also read each SST by itself, and hold its entries against its properties."""
    running: bool = False
    """While the application is running, an incomplete database may be about to be created or dropped."""
    counter: Counter | None = None
    """Receives the progress."""


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """The result of one database."""

    findings: tuple[VerifyFinding, ...] = ()
    remarks: tuple[str, ...] = ()
    rows: int = 0
    content_bytes: int = 0
    """Bytes of keys and values."""
    digest: bytes = b""
    dropped: bool = False
    """The running application dropped it meanwhile."""


def verify_database(job: DatabaseJob) -> DatabaseReport:
    """Read a database completely; every defect becomes a finding, never an exception.

    A running application writes, compacts and drops segments meanwhile. So kstate reads a database with a defect again
    before it reports the defect. A wrong checksum in an SST is certain at once, since RocksDB never changes an SST.
    """
    firm: tuple[VerifyFinding, ...] = ()
    for attempt in range(_ATTEMPTS):
        try:
            # Equal fingerprints before and after prove that no process wrote meanwhile, so the findings are certain.
            before = files.fingerprint(job.path)
            report = _Verification(job).report()
            firm = tuple(finding for finding in report.findings if _is_firm(finding, job))
            if len(firm) == len(report.findings) or files.fingerprint(job.path) == before:
                return report
        except FileNotFoundError:
            if not job.path.exists():
                return DatabaseReport(
                    dropped=True,
                    remarks=(f"{job.place.text}: the application dropped this database while kstate was reading it",),
                )
        except OSError as error:
            if not cannot_be_read(error):
                # This host has no free descriptors or memory, so every other database would fail too.
                raise host_error(error) or error from None
            text = f"kstate cannot read the file: {error.strerror}"
            return DatabaseReport(findings=(VerifyFinding(UNREADABLE, _place_in(job, error.filename), text),))
        # Each pause is longer than the one before, because a compaction of a large store takes seconds.
        time.sleep(_PAUSE * attempt)
    busy = VerifyFinding(
        IN_USE, job.place, f"kstate read the database {_ATTEMPTS} times, and its files changed each time"
    )
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
        """Check the files of the database, then read all of it through RocksDB; return the report."""
        path, place = self._job.path, self._job.place
        self._findings += files.check_entries(path, place)
        options_families, findings, remarks = files.check_options(path, place)
        self._findings += findings
        self._remarks += remarks
        # The files are checked first, because RocksDB reports only the first defect that it finds.
        manifest, findings = files.check_current(path, place)
        if self._job.running and findings and all(finding.code == MISSING for finding in findings):
            return DatabaseReport(remarks=(f"{place.text}: {_UNDER_WAY}",), dropped=True)
        self._findings += findings
        if manifest is None:
            self._check_unnamed_ssts()
        else:
            self._findings += files.check_manifest(path / manifest, place / manifest)
            # A database with a link or with an endless file is not opened.
            if not any(finding.code == NOT_UNDERSTOOD for finding in self._findings):
                self._open(manifest, options_families)
        self._progress.finished()
        report = DatabaseReport(
            findings=tuple(sorted(dict.fromkeys(self._findings), key=lambda finding: finding.file)),
            remarks=tuple(self._remarks),
            rows=sum(family.rows for family in self._families.values()),
            content_bytes=sum(family.size for family in self._families.values()),
        )
        if report.findings:
            return report
        return replace(report, digest=database_digest(self._families))

    def _open(self, manifest: str, options_families: frozenset[str] | None) -> None:
        try:
            with WholeDatabase(self._job.path) as database:
                self._check_families(database, manifest, options_families)
                self._read(database, manifest)
        except RocksError as error:
            self._rocks(error, manifest)

    def _check_unnamed_ssts(self) -> None:
        """Check the end of every SST: without a MANIFEST it is unknown which of them are alive."""
        for name in sorted(name for name in os.listdir(self._job.path) if is_sst(name)):
            self._findings += files.check_footer(self._job.path / name, self._job.place)

    def _check_families(self, database: WholeDatabase, manifest: str, options_families: frozenset[str] | None) -> None:
        place, families = self._job.place, frozenset(database.column_families)
        if options_families is not None and options_families != families:
            text = (
                f"the MANIFEST contains the column families {_names(families)}, but the OPTIONS file contains "
                f"{_names(options_families)}"
            )
            if self._job.running:
                self._remarks.append(f"{place.text}: {text}. Probably {_UNDER_WAY}")
            else:
                self._findings.append(
                    VerifyFinding(CORRUPT, place / manifest, f"{text}, so one of the files is truncated")
                )
        for family in sorted(families - all_families()):
            text = f"column family {of_no_store(family)} does not belong to Streams"
            self._findings.append(VerifyFinding(NOT_UNDERSTOOD, place, text))

    def _read(self, database: WholeDatabase, manifest: str) -> None:
        """Check the live files of an opened database, and read each of its column families."""
        live = {family: database.live_files(family) for family in database.column_families}
        self._orphans(manifest, {file.name for family_files in live.values() for file in family_files})
        # If the SSTs of a family are in another folder, it cannot be read. This proves no damage.
        absent = self._absent_families(live)
        readable = {family: family_files for family, family_files in live.items() if family not in absent}
        files_of_readable = [file for family_files in readable.values() for file in family_files]
        findings = files.check_live(self._job.path, files_of_readable, self._job.place)
        self._findings += findings
        damaged = {finding.place.name for finding in findings}
        for family, family_files in readable.items():
            self._read_family(database, family, family_files, damaged)

    def _absent_families(self, live: Mapping[str, Sequence[LiveFile]]) -> set[str]:
        """Return the column families none of whose SSTs exists: the application may store them in another folder."""
        absent = set()
        for family, family_files in live.items():
            # An empty family has no SST, and nothing is absent then.
            names = [file.name for file in family_files if is_sst(file.name)]
            if names and not any(map(self._exists, names)):
                text = f"column family {family}: {no_ssts(len(names))}"
                self._findings.append(VerifyFinding(NO_SSTS, self._job.place, text, tuple(names)))
                absent.add(family)
        return absent

    def _read_family(
        self, database: WholeDatabase, family: str, family_files: Sequence[LiveFile], damaged: set[str]
    ) -> None:
        """Read one column family as a whole, or its SSTs one by one if some of its files are damaged."""
        tables = database.tables(family)
        blobs = tuple(file.name for file in family_files if not is_sst(file.name))
        # Reading the whole family would fail at the damaged file. So the other SSTs are read one by one.
        if damaged & {table.name for table in tables}:
            self._alone(database, [table for table in tables if table.name not in damaged])
        elif damaged.intersection(blobs):
            # Reading the rows would fail, and RocksDB would not report which blob file is the reason.
            self._alone(database, tables)
        elif self._family(database, family, tables, blobs) or self._job.each_sst:
            self._alone(database, tables)

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self._job.path / name)

    def _family(self, database: WholeDatabase, family: str, tables: list[Table], blobs: tuple[str, ...]) -> bool:
        """Read a column family; return True if its SSTs must be read one by one too.

        That is so after an error, so that every damaged SST is named. It is also so if there is a range deletion,
        because RocksDB then skips blocks that have only deleted rows.
        """
        counts = database.counts(family)
        try:
            if family == OFFSETS_CF:
                decode_rows(database.rows(family))
            else:
                self._families[family] = self._rows(database, family, tables)
        except MalformedBytesError as error:
            text = f"column family {family}: {error}"
            self._findings.append(self._in_tables(UNDECODABLE, tables, text))
        except RocksError as error:
            if blobs and (error.rocks_message is None or error.rocks_message.file is None):
                self._blobs(database, family, blobs, error)
            else:
                self._rocks(error, "")
            return True
        if counts is None:
            return bool(tables)
        if family in self._families and not database.unflushed(family):
            self._compare(database, family, self._families[family].rows, counts, tables)
        return bool(counts.range_deletions)

    def _rows(self, database: WholeDatabase, family: str, tables: list[Table]) -> FamilyDigest:
        """Read all rows of a family: check the order of keys, and decode keys and values.

        Return the digest of the rows.
        """
        digest = FamilyDigest()
        rule = row_check_for(self._job.kind, family, segmented=self._job.segment is not None)
        last: bytes | None = None
        for flat, lengths in database.pieces(family):
            keys = flat[::2]
            # Keys must be strictly ascending: with equal keys, a key would have two visible rows. ``map`` compares them
            # in C.
            if (last is not None and keys[0] <= last) or not all(map(operator.lt, keys, islice(keys, 1, None))):
                self._out_of_order(family, last, keys, tables)
            last = keys[-1]
            # Each list of rows is tested as a whole first. Only if it fails, its rows are decoded one by one.
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
        """Decode rows one by one, and report the first malformed one. Return the rule for the rows after these.

        After a malformed row that is None, so that no more rows of the family are decoded.
        """
        for key, value in zip(keys, values, strict=True):
            try:
                rule.decode(key, value)
            except MalformedBytesError as error:
                text = f"column family {family}, key {_hex(key)}: {error} (the store has kind {self._job.kind.name})"
                self._findings.append(self._in_tables(UNDECODABLE, tables, text, key))
                return None
        return rule

    def _out_of_order(self, family: str, last: bytes | None, keys: list[bytes], tables: list[Table]) -> None:
        for key in keys:
            if last is not None and key <= last:
                text = f"in column family {family}, key {_hex(key)} follows the greater key {_hex(last)}"
                self._findings.append(self._in_tables(CORRUPT, tables, text, key))
                return
            last = key

    def _compare(
        self, database: WholeDatabase, family: str, rows: int, counts: EntryCounts, tables: list[Table]
    ) -> None:
        """Compare the number of visible rows with the table properties of the SSTs.

        ``tables`` are all SSTs of the column family, ordered by their first keys. The caller does not compare a column
        family with rows from a write-ahead log, which no SST counts.

        An SST has an entry for each version of a key, deletions included. So each visible row is at least one entry
        that is not a deletion. If SSTs do not overlap, each such entry is a row. There are three exceptions: a range
        deletion covers entries in the same SST, several merge operands are one row, and a snapshot of RocksDB needed
        older versions. Keys in the wrong order are found here too, because RocksDB skips a key that is not greater
        than the one before it.
        """
        # RocksDB counts range deletions as entries and as deletions.
        expected_rows = counts.entries - counts.deletions
        apart = all(table.last < other.first for table, other in pairwise(tables))
        exact = apart and not counts.range_deletions and not counts.merges
        # Each visible row is at least one entry. So more rows than entries prove damage.
        if rows > expected_rows or (exact and rows != expected_rows and not database.has_old_versions(family, counts)):
            text = f"column family {family} has {rows:,} rows, but the properties of its SSTs record {expected_rows:,}"
            self._findings.append(self._in_tables(CORRUPT, tables, text))

    def _blobs(self, database: WholeDatabase, family: str, blobs: tuple[str, ...], error: RocksError) -> None:
        """Add a finding for each damaged blob file: RocksDB does not name the one that it could not read."""
        before = len(self._findings)
        for name in blobs:
            if (text := self._damaged_blob(database, family, name)) is not None:
                self._add(CORRUPT, self._job.place / name, text)
        if len(self._findings) == before:
            self._findings.append(VerifyFinding(code_of(error), self._job.place, error.plain, blobs))

    def _damaged_blob(self, database: WholeDatabase, family: str, name: str) -> str | None:
        """Return the first defect in the records of a blob file; None if there is none."""
        with os.fdopen(open_regular(self._job.path / name), "rb") as file:
            try:
                for record in blob_records(file, file.seek(0, os.SEEK_END)):
                    # If RocksDB can read the record of the key, it has compared the checksum. An overwritten record
                    # cannot be read through RocksDB, so its checksum is compared here.
                    if not _reads(database, family, record.key) and not is_whole_blob(file, record):
                        return f"in column family {family}, the blob at byte {record.at} does not match its checksum"
            except MalformedBytesError as error:
                return str(error)
        return None

    def _alone(self, database: WholeDatabase, tables: list[Table]) -> None:
        """Read SSTs one by one, except for those whose values are in blob files."""
        if with_blobs := [table.name for table in tables if table.has_blobs]:
            self._remarks.append(
                f"{self._job.place.text}: kstate did not read some SSTs separately, because they need blob files: "
                f"{', '.join(with_blobs)}"
            )
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
            # None: RocksDB cannot read the properties, so no number of rows is expected. A range deletion may cover
            # rows of its own SST, and several merge operands may be one row.
            if counts is None or counts.range_deletions or counts.merges:
                continue
            # No other SST can overwrite or delete a row here. A deletion is newer than the version that it deletes:
            # RocksDB drops that version when it writes both into one SST, unless a snapshot needed it.
            expected_rows = counts.entries - counts.deletions
            if contents.rows != expected_rows and not contents.has_old_versions:
                # RocksDB skips a key that is not greater than the one before it, so a wrong order loses rows too.
                text = (
                    f"the SST has {contents.rows:,} rows, but its properties record {expected_rows:,}, so some rows "
                    "are missing or out of order"
                )
                self._add(CORRUPT, place, text)

    def _orphans(self, manifest: str, alive: set[str]) -> None:
        """Report SSTs that the MANIFEST does not name: as damage if a newer MANIFEST exists, otherwise as a remark."""
        path, place = self._job.path, self._job.place
        orphans = sorted(name for name in os.listdir(path) if is_sst(name) and name not in alive)
        if not orphans:
            return
        newer = files.newer_manifest(path, manifest)
        # RocksDB replaces CURRENT when a new MANIFEST is complete. So if a newer MANIFEST exists, CURRENT is an old
        # one.
        if newer is not None:
            text = f"CURRENT names {manifest}, but {newer} is newer, and {manifest} does not list {', '.join(orphans)}"
            self._findings.append(VerifyFinding(CORRUPT, place / CURRENT, text))
        else:
            self._remarks.append(
                f"{place.text}: {manifest} does not list {', '.join(orphans)}. A crash can cause this. If the "
                "application did not crash, the MANIFEST is damaged"
            )

    def _rocks(self, error: RocksError, otherwise: str) -> None:
        name = (error.rocks_message.file if error.rocks_message is not None else None) or otherwise
        self._add(code_of(error), self._job.place / name if name else self._job.place, error.plain)

    def _add(self, code: VerifyCode, place: Place, text: str) -> None:
        """Add a finding, unless the file already has one: missing, cut off or too new."""
        if not any(finding.place == place and not finding.among for finding in self._findings):
            self._findings.append(VerifyFinding(code, place, text))

    def _in_tables(
        self, code: VerifyCode, tables: Iterable[Table], text: str, key: bytes | None = None
    ) -> VerifyFinding:
        """Return a finding about the SSTs that may contain a key: one SST, if they do not overlap.

        Without a key it is about all of them.
        """
        names = sorted(table.name for table in tables if key is None or table.first <= key <= table.last)
        # SSTs of upper levels overlap: then the finding names all that may have the key.
        if len(names) == 1:
            return VerifyFinding(code, self._job.place / names[0], text)
        return VerifyFinding(code, self._job.place, text, tuple(names))


def _reads(database: WholeDatabase, family: str, key: bytes) -> bool:
    try:
        return database.get(family, key) is not None
    except RocksError:
        return False


def _names(families: frozenset[str]) -> str:
    return ", ".join(sorted(families))


def _hex(key: bytes) -> str:
    text = key.hex()
    if len(text) <= _SHOWN_KEY:
        return text
    return f"{text[:_SHOWN_KEY]}… ({len(key)} bytes)"


def verify_in_worker(arguments: tuple[DatabaseJob, Path]) -> tuple[DatabaseReport, float]:
    """Return the report on a database, and the seconds it took. The parent removes the folder of the shadows."""
    job, scratch = arguments
    leave_everything_in(scratch)
    began = time.monotonic()
    return verify_database(job), time.monotonic() - began
