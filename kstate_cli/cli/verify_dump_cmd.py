"""``kstate verify-dump``: reads the files of a dump in full, and names those that are damaged."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.meter import BYTES, Meter
from kstate_cli.cli.options import Output, Quiet, part_of
from kstate_cli.cli.output import Format
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.dump.verification import DumpFile, FileFinding


def verify_dump(
    dump: Annotated[str, typer.Argument(metavar="DUMP", help="Changelog dump: path or URI.", show_default=False)],
    subset: Annotated[
        str,
        typer.Option("--subset", metavar="I/N", help="Part I of N of the files: 1/7 on Monday, 2/7 on Tuesday, …"),
    ] = "1/1",
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Leave no note in the dump of what was read, and when.")
    ] = False,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Read files of a dump in full: compare each with the SHA-256 of the manifest, or decode every page of it.

    Files of older full dumps are read as well. A file stays in its part while the dump grows. _verified.json in the
    dump records when each part was read; kstate check --dump shows it. Exit codes: 3 a file is damaged or missing,
    4 a file cannot be read.
    """
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.cli.output import say
    from kstate_cli.dump.location import absolute, shown
    from kstate_cli.dump.verification import files_of_dump, verify_files
    from kstate_cli.texts import plural, size_text

    number, parts = part_of("--subset", subset, "for example 1/7")
    began = time.monotonic()
    known = files_of_dump(dump)
    chosen = [file for file in known.files if file.part(parts) == number]
    with _ReadBytes(chosen, quiet=quiet) as progress:
        findings = verify_files(dump, chosen, progress.read)
    size = sum(file.size or 0 for file in chosen)
    warning = None if no_record else _recorded(dump, (number, parts), known.generation, len(chosen), findings)
    if output is Format.json:
        lines = JsonLines(None)
        for finding in findings:
            lines.line(
                "finding",
                {
                    "code": finding.code,
                    "level": "unknown" if finding.code == _unreadable() else "damage",
                    "path": finding.file.path,
                    "message": finding.message,
                },
            )
        if warning:
            lines.line("warning", {"message": warning})
        lines.summary(
            {
                "path": shown(absolute(dump)),
                "ok": not findings,
                "files": len(chosen),
                "bytes": size,
                "findings": dict(Counter(finding.code for finding in findings)),
                "subset": subset,
                "left_out": len(known.files) - len(chosen),
                "seconds": round(time.monotonic() - began, 3),
            }
        )
    else:
        _show(findings)
        verdict = "nothing is damaged" if not findings else f"{plural(len(findings), 'file')} not as written"
        others = "" if parts == 1 else f" of part {subset}"
        sys.stdout.write(f"{plural(len(chosen), 'file')}{others}, {size_text(size)}: {verdict}\n")
    sys.stdout.flush()
    if warning and output is not Format.json:
        say(f"warning: {warning}")
    if findings:
        raise _verdict(findings, None if known.generation is None else dump)
    return EXIT_WARNINGS if warning else EXIT_OK


def _unreadable() -> str:
    from kstate_cli.dump.verification import UNREADABLE

    return UNREADABLE


def _recorded(
    dump: str, part: tuple[int, int], generation: int | None, files: int, findings: Sequence[FileFinding]
) -> str | None:
    """Record that the part was read; return a warning where that fails. What could not be read was not verified."""
    from kstate_cli import clock
    from kstate_cli.capture.verified import VerifiedPart, record

    if any(finding.code == _unreadable() for finding in findings):
        return None
    try:
        record(dump, *part, VerifiedPart(clock.now_ms(), generation, files, len(findings)))
    except OSError as error:
        return f"cannot record in the dump that the part was read: {error.strerror or error}"
    return None


def _show(findings: Sequence[FileFinding]) -> None:
    from kstate_cli.cli.columns import Column, Fold
    from kstate_cli.cli.output import table

    if findings:
        rows = [(finding.file.relative, finding.code, finding.message) for finding in findings]
        table(None, ("file", "code", Column("message", fold=Fold.WORDS)), rows)


def _verdict(findings: Sequence[FileFinding], growing: str | None) -> Exception:
    from kstate_cli.dump.errors import NOT_REACHED, WHOLE_COPY, rot
    from kstate_cli.dump.verification import ROT
    from kstate_cli.errors import ConditionNotMet, Refused
    from kstate_cli.texts import plural, some

    named = some([finding.file.relative for finding in findings], 5)
    damaged = [finding for finding in findings if finding.code != _unreadable()]
    if not damaged:
        return Refused(f"{plural(len(findings), 'file')} cannot be read: {named}", hint=NOT_REACHED)
    advice = rot("", "", growing=growing)
    rotten = any(finding.code == ROT for finding in damaged)
    return ConditionNotMet(
        f"{plural(len(damaged), 'file')} damaged or missing: {named}",
        hint=advice.hint if rotten else WHOLE_COPY,
        hint_details=advice.hint_details if rotten else (),
        code=ROT if rotten else None,
    )


class _ReadBytes:
    """Shows how much of the part was read."""

    def __init__(self, files: Sequence[DumpFile], *, quiet: bool) -> None:
        self._total, self._read = sum(file.size or 0 for file in files), 0
        self._meter = Meter("verifying", quiet=quiet)
        self._lock = threading.Lock()

    def __enter__(self) -> _ReadBytes:
        self._meter.begin(self._total, BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def read(self, file: DumpFile) -> None:
        """Count a file that was read."""
        with self._lock:
            self._read += file.size or 0
            self._meter.at(self._read)
