"""``kstate verify-snapshots``: read the files of a repository in full."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import MetricsFile, OutputFormat, Quiet, at_once, part_of, workers_option
from kstate_cli.cli.output import Format, output_of
from kstate_cli.cli.views.plan import ByteProgress
from kstate_cli.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.cli.lines.snapshots import VerifySnapshotsLine, VerifySnapshotsSummaryLine
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.output import Output
    from kstate_cli.snapshot.health import RepositoryFinding
    from kstate_cli.snapshot.repository import Repository

HELP_EXAMPLES: Final = {
    "verify-snapshots": (
        Example("Read all files once", "verify-snapshots /backup/snapshots"),
        Example(
            "Read a seventh of the data each night, from cron",
            'verify-snapshots /backup/snapshots --subset "$(date +\\%u)/7" --quiet',
        ),
    ),
}


def verify_snapshots(
    repository: Annotated[
        str,
        typer.Argument(metavar="REPO", help="Path to the snapshot repository (a folder or s3://BUCKET/PREFIX)."),
    ],
    subset: Annotated[
        str,
        typer.Option(
            option.SUBSET,
            metavar="I/N",
            help="Read only part I of N. For example, pass 1/7 on Monday and 2/7 on Tuesday.",
        ),
    ] = "1/1",
    workers: Annotated[int, workers_option("Read N files")] = 0,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Read all files in a snapshot repository, and compare each file with its SHA-256.

    Each run reads the file lists of all snapshots. --subset applies only to SSTs and blob files, and a file does not
    move to a different part if the repository grows. The exit code is 3 if a file is damaged or missing, and 4 if
    kstate cannot read a file.
    """
    from kstate_cli.cli.metrics import Metrics, folder_at
    from kstate_cli.snapshot.places import repository_of

    part = part_of(option.SUBSET, subset, "for example 1/7")
    place = repository_of(repository)
    folder = folder_at(place.where)
    name = place.where.rstrip("/").rpartition("/")[2]
    with Metrics(metrics_file, "verify-snapshots", folder, application=name, place="repository") as metrics:
        results: Output[VerifySnapshotsLine] = output_of(output, None, quiet=quiet)
        return metrics.finish(_verify(place, part, results, metrics, workers=at_once(workers)))


def _verify(
    place: Repository,
    part: tuple[int, int],
    results: Output[VerifySnapshotsLine],
    metrics: Metrics,
    *,
    workers: int,
) -> int:
    """Read one part of a repository and print the result. Return the exit code. Raise ConditionNotMet and Refused."""
    from kstate_cli.snapshot.health import verify
    from kstate_cli.snapshot.places import require_repository

    quiet = results.quiet
    began = time.monotonic()
    with ByteProgress("verifying", quiet=quiet) as progress:
        require_repository(place)
        result = verify(place, part, workers=workers, begin=progress.begin, progress=progress.add)
    summary: VerifySnapshotsSummaryLine = {
        "type": "summary",
        "path": place.where,
        "ok": not result.findings,
        "files": result.files,
        "bytes": result.bytes,
        "findings": dict(Counter(finding.code for finding in result.findings)),
        "subset": "/".join(map(str, part)),
        "left_out": result.left_out,
        "seconds": round(time.monotonic() - began, 3),
    }
    # Counted before they are printed: the metrics have the findings even if standard output is lost.
    metrics.findings = Counter((finding.code, _level(finding)) for finding in result.findings)
    results.show(
        _lines(result.findings, summary), lambda: _show(result.findings, result.files, result.bytes, quiet=quiet)
    )
    if result.findings:
        raise _verdict(result.findings)
    return EXIT_OK


def _level(finding: RepositoryFinding) -> str:
    from kstate_cli.snapshot.health import UNREADABLE

    # Rights, or a disk that does not answer: nothing is known of the bytes.
    return "unknown" if finding.code == UNREADABLE else "damage"


def _lines(findings: Sequence[RepositoryFinding], summary: VerifySnapshotsSummaryLine) -> Iterator[VerifySnapshotsLine]:
    for finding in findings:
        yield {
            "type": "finding",
            "code": finding.code,
            "level": _level(finding),
            "path": finding.path,
            "message": finding.message,
        }
    yield summary


def _show(findings: Sequence[RepositoryFinding], files: int, size: int, *, quiet: bool) -> None:
    from kstate_cli.cli.columns import Column, Fold
    from kstate_cli.cli.output import print_line, table
    from kstate_cli.texts import plural, size_text

    if findings:
        table(
            None,
            ("file", "code", Column("message", fold=Fold.WORDS)),
            [(finding.path, finding.code, finding.message) for finding in findings],
        )
    verdict = "no damage"
    if findings:
        verdict = f"{plural(len(findings), 'file')} with findings"
    if findings or not quiet:
        print_line(f"{plural(files, 'file')}, {size_text(size)}: {verdict}")


def _verdict(findings: Sequence[RepositoryFinding]) -> Exception:
    from kstate_cli.errors import ConditionNotMet, Refused
    from kstate_cli.snapshot.health import damaged
    from kstate_cli.texts import plural, some

    names = some([finding.path for finding in findings], 5)
    wrong = damaged(findings)
    if not wrong:
        return Refused(
            f"kstate cannot read {plural(len(findings), 'file')}: {names}",
            hint="give this user read permission for these files, or check the disk. Then run the command again",
        )
    return ConditionNotMet(
        f"kstate found {plural(len(wrong), 'damaged or missing file')}: {names}",
        hint=(
            "copy these files from another copy of the repository. If you have no such copy, move the damaged files "
            "elsewhere and take a new snapshot. The new snapshot contains the files again if the "
            "application still has them"
        ),
    )
