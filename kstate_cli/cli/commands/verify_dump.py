"""``kstate verify-dump``: read the files of a dump in full, and report damage."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import clock, option
from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import MetricsFile, OutputFormat, Quiet, part_of
from kstate_cli.cli.output import Format, output_of, say, table, waiting
from kstate_cli.cli.views.plan import ByteProgress
from kstate_cli.clock import utc_text
from kstate_cli.errors import ConditionNotMet, Refused, note
from kstate_cli.texts import plural, size_text, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kstate_cli.cli.lines.dumps import VerifyDumpFindingLine, VerifyDumpLine, VerifyDumpSummaryLine
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.output import Output
    from kstate_cli.dump_reader.verification import DumpFile, FileFinding
    from kstate_cli.dump_writer.verified import VerifiedPart

HELP_EXAMPLES: Final = {
    "verify-dump": (
        Example("Read all files once", "verify-dump /dump/orders"),
        Example(
            "Read a seventh of the data each night, from cron",
            'verify-dump /dump/orders --subset "$(date +\\%u)/7" --quiet',
        ),
    ),
}


_RECORD_SECONDS = 10
"""Seconds between records of the files that were read."""


def verify_dump(
    dump: Annotated[str, typer.Argument(metavar="DUMP", help="Path or URI of the changelog dump.", show_default=False)],
    subset: Annotated[
        str,
        typer.Option(
            option.SUBSET,
            metavar="I/N",
            help="Read only part I of N. For example, pass 1/7 on Monday and 2/7 on Tuesday.",
        ),
    ] = "1/1",
    no_record: Annotated[
        bool,
        typer.Option(option.NO_RECORD, help=("Write nothing to the dump. You then cannot resume this verification.")),
    ] = False,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Read all files in a dump, and compare each file with its SHA-256 in the manifest.

    If a manifest has no SHA-256, kstate decodes every page instead. kstate also reads the files of older full dumps.
    With --subset, a file does not move to a different part if the dump grows. _verified.json contains the time when
    kstate last read each part, and `kstate ls-dump` shows this time. To resume an interrupted verification, run the
    command again.

    The exit code is 3 if a file is damaged or missing, and 4 if kstate cannot read a file.
    """
    from kstate_cli.cli.metrics import Metrics, folder_at
    from kstate_cli.dump_reader.location import absolute

    part = part_of(option.SUBSET, subset, "for example 1/7")
    place = absolute(dump)
    name = place.rstrip("/").rpartition("/")[2]
    with Metrics(metrics_file, "verify-dump", folder_at(place), application=name) as metrics:
        results: Output[VerifyDumpLine] = output_of(output, None, quiet=quiet)
        return metrics.finish(_verify(dump, part, results, metrics, is_recorded=not no_record))


def _verify(
    dump: str, part: tuple[int, int], results: Output[VerifyDumpLine], metrics: Metrics, *, is_recorded: bool
) -> int:
    """Read one part of a dump and print the result. Return the exit code. Raise ConditionNotMet and Refused."""
    from kstate_cli.dump_reader.location import absolute, uri_text
    from kstate_cli.dump_reader.verification import files_of_dump, verify_files
    from kstate_cli.dump_writer.verified import VerifiedPart

    number, parts = part
    quiet = results.quiet
    began = time.monotonic()
    with waiting("reading the manifest", quiet=quiet):
        # The files are those of the manifest: one that is missing has to be reported, and only the manifest names it.
        dump_files = files_of_dump(dump)
    # The part follows from the name of the file, so that it stays while the dump grows.
    files = [file for file in dump_files.files if file.part(parts) == number]
    reading = _PartReading(dump, (number, parts), files, recorded=is_recorded)
    if reading.earlier:
        results.say(
            f"kstate is resuming an interrupted run, which has read {reading.earlier} of {plural(len(files), 'file')} "
            f"since {utc_text(reading.began_ms)}"
        )

    def read(file: DumpFile, finding: FileFinding | None) -> None:
        progress.add(file.size or 0)
        reading.read(file, finding)

    with ByteProgress("verifying", quiet=quiet) as progress, reading:
        progress.begin(sum(file.size or 0 for file in reading.files))
        findings = verify_files(dump, reading.files, read)
    # Counted before they are printed: the metrics have the findings even if standard output is lost.
    metrics.findings = Counter((finding.code, _level(finding)) for finding in findings)
    size = sum(file.size or 0 for file in files)
    verified = VerifiedPart(reading.began_ms, dump_files.generation, len(files), len(findings))
    warning = None
    if is_recorded:
        warning = _recorded(dump, part, verified, findings)
    files_text = plural(len(files), "file")
    if parts > 1:
        files_text += f" of part {number}/{parts}"
    summary: VerifyDumpSummaryLine = {
        "type": "summary",
        "path": uri_text(absolute(dump)),
        "ok": not findings,
        "files": len(files),
        "bytes": size,
        "findings": dict(Counter(finding.code for finding in findings)),
        "subset": f"{number}/{parts}",
        "read_before": reading.earlier,
        "left_out": len(dump_files.files) - len(files),
        "seconds": round(time.monotonic() - began, 3),
    }
    results.show(
        _lines(findings, warning, summary),
        lambda: _show(findings, warning, f"{files_text}, {size_text(size)}", quiet=quiet),
    )
    sys.stdout.flush()
    if findings:
        raise _verdict(findings, None if dump_files.generation is None else dump)
    return warnings_code(warning)


def _lines(
    findings: Sequence[FileFinding], warning: str | None, summary: VerifyDumpSummaryLine
) -> Iterator[VerifyDumpLine]:
    yield from map(_finding_line, findings)
    if warning:
        yield {"type": "warning", "message": warning}
    yield summary


def _finding_line(finding: FileFinding) -> VerifyDumpFindingLine:
    return {
        "type": "finding",
        "code": finding.code,
        "level": _level(finding),
        "path": finding.file.path,
        "message": finding.message,
    }


def _level(finding: FileFinding) -> str:
    # Rights or a host that does not answer: nothing is known of the bytes.
    return "unknown" if finding.code == _unreadable() else "damage"


def _unreadable() -> str:
    from kstate_cli.dump_reader.verification import UNREADABLE

    return UNREADABLE


def _recorded(dump: str, number: tuple[int, int], part: VerifiedPart, findings: Sequence[FileFinding]) -> str | None:
    """Record that the part was read; return a warning if that fails. An unreadable file keeps it unverified."""
    from kstate_cli.dump_writer.verified import record

    # A record would claim that the part was read.
    if any(finding.code == _unreadable() for finding in findings):
        return None
    try:
        record(dump, *number, part)
    except OSError as error:
        return f"kstate cannot record in the dump that this part was verified: {error.strerror or error}"
    return None


def _show(findings: Sequence[FileFinding], warning: str | None, files_text: str, *, quiet: bool) -> None:
    """Print the findings as a table, then the number of files and the verdict; with ``quiet`` only with findings."""
    verdict = "no damage"
    if findings:
        # Relative to the dump: absolute paths of a bucket would fill the line.
        rows = [(finding.file.relative, finding.code, finding.message) for finding in findings]
        table(None, ("file", "code", Column("message", fold=Fold.WORDS)), rows)
        verdict = f"{plural(len(findings), 'file')} with findings"
    if findings or not quiet:
        sys.stdout.write(f"{files_text}: {verdict}\n")
        sys.stdout.flush()
    if warning:
        say(f"warning: {warning}")


def _verdict(findings: Sequence[FileFinding], growing: str | None) -> Exception:
    """Return the error for files that are damaged, missing or unreadable."""
    from kstate_cli.dump_reader.errors import NOT_REACHED, WHOLE_COPY, rot
    from kstate_cli.dump_reader.verification import ROT

    names = some([finding.file.relative for finding in findings], 5)
    damaged = [finding for finding in findings if finding.code != _unreadable()]
    if not damaged:
        return Refused(f"kstate cannot read {plural(len(findings), 'file')}: {names}", hint=NOT_REACHED)
    message = f"kstate found {plural(len(damaged), 'damaged or missing file')}: {names}"
    if not any(finding.code == ROT for finding in damaged):
        return ConditionNotMet(message, hint=WHOLE_COPY)
    # Changed bytes are the worse news: a copy of the dump may have them too.
    advice = rot("", "", growing=growing)
    return ConditionNotMet(message, hint=advice.hint, hint_details=advice.hint_details, code=ROT)


class _PartReading:
    """The reading of one part, and which of its files an interrupted call has read. A context manager.

    The files that were read whole are recorded in the dump now and then, and when an error or a signal ends the
    reading. Only a file whose SHA-256 the manifest states can be recognized by the next call.
    """

    def __init__(self, dump: str, part: tuple[int, int], files: Sequence[DumpFile], *, recorded: bool) -> None:
        from kstate_cli.dump_writer.verified import read_verified

        self._dump, self._part, self._recorded = dump, part, recorded
        self._lock = threading.Lock()
        self._written_at = time.monotonic()
        before = None
        with contextlib.suppress(OSError):
            record = None
            if recorded:
                record = read_verified(dump)
            # With another number of parts, part 1 has other files.
            if record is not None and record.parts == part[1]:
                before = record.unfinished.get(part[0])
        whole: Mapping[str, str] = {}
        if before is not None:
            whole = before.files
        self._whole = {
            file.relative: file.sha256
            for file in files
            if file.sha256 is not None and whole.get(file.relative) == file.sha256
        }
        self.earlier = len(self._whole)
        self.files = [file for file in files if file.relative not in self._whole]
        self.began_ms = clock.now_ms()
        if before is not None and self._whole:
            # The oldest reading counts: a file that was read then may have rotted since.
            self.began_ms = before.began_ms

    def __enter__(self) -> _PartReading:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and self._write():
            note(
                error,
                (f"kstate has read {plural(len(self._whole), 'file')} of this part. The next run resumes there"),
            )

    def read(self, file: DumpFile, finding: FileFinding | None) -> None:
        """Note a file that was read; a damaged one is read again by every call."""
        with self._lock:
            # Only with its digest can the next call know that it is still the same file.
            if finding is None and file.sha256 is not None:
                self._whole[file.relative] = file.sha256
            if time.monotonic() - self._written_at >= _RECORD_SECONDS:
                self._write()
                self._written_at = time.monotonic()

    def _write(self) -> bool:
        """Record the files that were read; return whether there were any and that worked."""
        from kstate_cli.dump_writer.verified import Unfinished, record_unfinished

        if not self._recorded or not self._whole:
            return False
        try:
            record_unfinished(self._dump, *self._part, Unfinished(self.began_ms, dict(self._whole)))
        except OSError:
            return False  # the whole part is reported as not recorded in the end
        return True
