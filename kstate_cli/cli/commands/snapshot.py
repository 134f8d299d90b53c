"""``kstate snapshot``: copy the files of stores to a repository, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import clock, option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    App,
    BootstrapServer,
    Guarantee,
    KafkaSettings,
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
from kstate_cli.cli.options.snapshots import ExpiryGrace, KeepFor, KeepNewest, retention_of
from kstate_cli.cli.output import Format, output_of
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, Refused, RunFailed, RunHalfway

if TYPE_CHECKING:
    from kstate_cli.cli.lines.snapshots import SnapshotLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "snapshot": (
        Example("Copy all cleanly closed tasks to a folder", "snapshot /data/app --out /backup/snapshots"),
        Example("Print how many bytes kstate would copy", "snapshot /data/app --out /backup/snapshots --dry-run"),
    ),
}


def snapshot(
    app: App,
    out: Annotated[
        str,
        typer.Option(
            option.OUT,
            metavar="REPO",
            help=(
                "Write to this repository (a folder or s3://BUCKET/PREFIX). If it does not exist, kstate creates it."
            ),
        ),
    ],
    task: Tasks = None,
    store: Stores = None,
    host: Annotated[
        str | None,
        typer.Option(
            option.HOST,
            metavar="NAME",
            help="Name of this host in the snapshot. The default is the system's host name.",
        ),
    ] = None,
    keep: KeepNewest = None,
    keep_for: KeepFor = None,
    grace: ExpiryGrace = "1d",
    workers: Annotated[int, workers_option("Copy N files")] = 0,
    dry_run: Annotated[
        bool, typer.Option(option.DRY_RUN, help="Show how many files and bytes kstate would copy, but write nothing.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    metrics_file: MetricsFile = None,
    guarantee: Annotated[
        Guarantee,
        typer.Option(
            option.GUARANTEE,
            metavar="GUARANTEE",
            help=(
                "Assume this processing.guarantee. Under at_least_once, kstate captures even tasks that were "
                "not closed."
            ),
        ),
    ] = Guarantee.exactly_once,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Copy store files to a snapshot repository.

    Stop the application first, or pass a standby that kstate keeps up to date. If the application is running, pass its
    --guarantee. Under at_least_once, kstate captures the rows that RocksDB has flushed. Under exactly-once, it captures
    only tasks without uncommitted rows.

    kstate changes nothing in APP and copies only SSTs that are not yet in the repository. Several hosts can write to
    the same repository. To restore a snapshot, run `kstate restore-snapshot`. The exit code is 1 if kstate skips a
    task, and 4 if kstate skips all tasks. kstate prints the reasons.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.options.logs import facts_source, log_reader
    from kstate_cli.cli.views.plan import ByteProgress
    from kstate_cli.cli.views.snapshot import show_capture
    from kstate_cli.maintain.measures import of_snapshots
    from kstate_cli.snapshot.capture import capture, this_host
    from kstate_cli.snapshot.capture_plan import CaptureRequest
    from kstate_cli.snapshot.expiry import Expiry, expire
    from kstate_cli.snapshot.places import refuse_inside, repository_of
    from kstate_cli.statedir.find import find_application

    retention = retention_of(keep, keep_for, grace)
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
        at_least_once=guarantee is Guarantee.at_least_once,
        ask=facts_source(None, bootstrap_server, kafka_settings, group=None),
        read_log=log_reader(bootstrap_server, kafka_settings),
    )
    with Metrics(metrics_file, "snapshot", path) as metrics:
        # Called when the file is written, also after a failure: the age of the last snapshot counts then.
        metrics.more = lambda: of_snapshots(out, path.name, request.host)
        with ByteProgress("copying", quiet=quiet) as progress:
            report = capture(request, repository, dry_run=dry_run, progress=progress.add, begin=progress.begin)
        expiry = Expiry()
        if retention.has_rule and not dry_run:
            try:
                expiry = expire(repository, retention, now_ms=clock.now_ms())
            except (Refused, RunFailed) as error:
                # The snapshot exists: neither "refused" nor "nothing changed" would be true.
                raise RunHalfway(
                    (
                        f"kstate wrote snapshot {report.generation}, but could not delete expired snapshots: "
                        f"{error.message}"
                    ),
                    where=repository.where,
                    hint=error.hint,
                ) from None
        metrics.warnings = len(report.skipped)
        show_capture(report, results, repository.where, request.host, expiry)
        code = EXIT_OK
        if report.skipped and not warnings_ok:
            code = EXIT_WARNINGS
        return metrics.finish(code)
