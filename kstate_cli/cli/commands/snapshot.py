"""``kstate snapshot``: copy the files of closed stores to a repository, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.options.shared import (
    App,
    LockIsShared,
    MetricsFile,
    OutputFormat,
    Quiet,
    Stores,
    Tasks,
    Wait,
    WarningsOk,
    at_once,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS

if TYPE_CHECKING:
    from kstate_cli.cli.lines.snapshots import SnapshotLine
    from kstate_cli.cli.output import Output


def snapshot(
    app: App,
    out: Annotated[
        str, typer.Option("--out", metavar="REPO", help="Folder of snapshots: new, or one with earlier snapshots.")
    ],
    task: Tasks = None,
    store: Stores = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Name of this host in the snapshot; default: its own.")
    ] = None,
    workers: Annotated[int, workers_option("Files")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report files and new bytes, and write nothing.")] = False,
    metrics_file: MetricsFile = None,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Copy the files of cleanly closed stores to a repository of snapshots.

    Stop the application first, or name a standby that kstate keeps up to date. Changes nothing in APP. SSTs that the
    repository has are not copied again. Several hosts may write to one repository. Restore with `kstate restore APP
    --from-snapshot REPO`. Exit 1 if a task is skipped because it was not closed cleanly, 4 if all are.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.snapshot import CaptureProgress, show_capture
    from kstate_cli.snapshot.capture import CaptureRequest, capture, this_host
    from kstate_cli.snapshot.repository import refuse_inside, repository_of
    from kstate_cli.statedir.find import find_application

    path = find_application(app)
    results: Output[SnapshotLine] = output_of(output, path, quiet=quiet)
    repository = repository_of(out)
    refuse_inside(repository, path)
    request = CaptureRequest(
        path,
        frozenset(task or ()),
        frozenset(store or ()),
        host=host or this_host(),
        workers=at_once(workers),
        wait=wait,
        lock_is_shared=lock_is_shared,
    )
    with Metrics(metrics_file, "snapshot", path) as metrics:
        with CaptureProgress(quiet=quiet) as progress:
            report = capture(request, repository, dry_run=dry_run, progress=progress.add, begin=progress.begin)
        metrics.warnings = len(report.skipped)
        show_capture(report, results, repository.where, request.host)
        code = EXIT_OK
        if report.skipped and not warnings_ok:
            code = EXIT_WARNINGS
        return metrics.finish(code)
