"""``kstate restore-snapshot``, or ``kstate restore APP --from-snapshot REPO``: copy stores back from snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.help_panels import HOW, choices_text
from kstate_cli.cli.options.restore import AcceptResurrected
from kstate_cli.cli.options.shared import (
    AfterError,
    CopySsts,
    DryRun,
    LockIsShared,
    MetricsFile,
    OutputFormat,
    Quiet,
    Reason,
    Stores,
    Tasks,
    Verbose,
    Verify,
    Wait,
    WarningsOk,
    at_once,
    part_of,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of
from kstate_cli.texts import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.change.engine import RunResult
    from kstate_cli.cli.lines.changes import PlanEnd, RestoreLeftLine
    from kstate_cli.cli.lines.snapshots import RestoreSnapshotLine, RestoreSnapshotSummaryLine
    from kstate_cli.cli.output import Output
    from kstate_cli.snapshot.planner import SnapshotPlan
    from kstate_cli.snapshot.restoring import SnapshotOutcome


def restore_snapshot(
    app: Annotated[
        Path,
        typer.Argument(
            metavar="APP", help="state.dir/application.id. If it is lost, kstate creates it.", readable=False
        ),
    ],
    from_snapshot: Annotated[
        str, typer.Option("--from-snapshot", metavar="REPO", help="Folder or s3://BUCKET/PREFIX with snapshots.")
    ],
    generation: Annotated[
        str | None,
        typer.Option("--generation", metavar="NAME", help="Take all stores from this snapshot; default: the newest."),
    ] = None,
    task: Tasks = None,
    store: Stores = None,
    share: Annotated[
        str | None, typer.Option("--share", metavar="I/N", help="Only this share of the tasks: 1/3, 2/3, 3/3.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Replace existing stores too.")] = False,
    accept_resurrected: AcceptResurrected = False,
    dry_run: DryRun = False,
    after_error: AfterError = False,
    verify: Annotated[
        Verify,
        typer.Option(
            "--verify", metavar=choices_text(Verify), help="full reads all rows back first.", rich_help_panel=HOW
        ),
    ] = Verify.quick,
    workers: Annotated[int, workers_option("Files")] = 0,
    copy: CopySsts = False,
    reason: Reason = None,
    metrics_file: MetricsFile = None,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Copy stores back from snapshots, at the speed of the disk. Undo it with `kstate undo`.

    Stop the application first. Existing stores stay. Each store comes from the newest snapshot that has it. Every byte
    is compared with its SHA-256. Start the application with a release that keeps offsets as the snapshot does.
    """
    from kstate_cli.change.course import Terms
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.plan import PlanView, RunProgress, exit_code, show_plan
    from kstate_cli.snapshot.places import refuse_inside, repository_of
    from kstate_cli.snapshot.planner import SnapshotOptions
    from kstate_cli.snapshot.restoring import SnapshotRequest
    from kstate_cli.snapshot.restoring import restore_snapshot as run_restore
    from kstate_cli.statedir.find import find_application_to_create

    part = None
    if share is not None:
        part = part_of("--share", share, "pass, for example, for the second of three hosts: --share 2/3")
    path = find_application_to_create(app)
    results: Output[RestoreSnapshotLine] = output_of(output, path, quiet=quiet)
    repository = repository_of(from_snapshot)
    refuse_inside(repository, path)
    run = RunOptions(workers=at_once(workers), verify_full=verify is Verify.full, copy_ssts=copy, reason=reason)
    request = SnapshotRequest(
        Terms(path, run, wait=wait, lock_is_shared=lock_is_shared, dry_run=dry_run, may_be_lost=True),
        repository,
        SnapshotOptions(
            frozenset(task or ()),
            frozenset(store or ()),
            share=part,
            rebuild=rebuild,
            accept_resurrected=accept_resurrected,
        ),
        generation,
        after_error,
    )
    view = PlanView(results, verbose=verbose, dry_run=dry_run, workers=run.workers, copied=copy)
    with Metrics(metrics_file, "restore", path) as metrics:
        with RunProgress(quiet=quiet) as progress:

            def on_plan(plan: SnapshotPlan) -> None:
                progress.expect(plan.change)
                metrics.warnings = len(plan.change.warnings)
                show_plan(plan.change, view)
                results.show(_left_lines(plan), lambda: _show_unchanged(plan, results))

            outcome = run_restore(request, on_plan=on_plan, progress=progress, tell=results.say)
        _finish(outcome, results)
        return metrics.finish(exit_code(outcome.plan.change, warnings_ok=warnings_ok))


def _left_lines(plan: SnapshotPlan) -> Iterator[RestoreLeftLine]:
    for title, why in plan.unchanged.items():
        task, _, store = title.rpartition("/")
        yield {"type": "left", "task": task, "store": store, "message": why}


def _show_unchanged(plan: SnapshotPlan, results: Output[RestoreSnapshotLine]) -> None:
    for title, why in plan.unchanged.items():
        results.say(f"{title}: unchanged: {why}")


def _finish(outcome: SnapshotOutcome, results: Output[RestoreSnapshotLine]) -> None:
    from kstate_cli.cli.views.plan import show_end

    plan = outcome.plan

    def sentences(result: RunResult) -> Iterator[str]:
        yield f"restored from the snapshot (run {result.run})"
        yield f"next: start the application; back: {command('undo', plan.change.app)}"

    def summary(end: PlanEnd) -> RestoreSnapshotSummaryLine:
        return {
            "type": "summary",
            "snapshots": sorted({chosen.generation for chosen in plan.stores}),
            "stores": len(plan.stores),
            "left": len(plan.unchanged),
            "bytes": plan.bytes,
            **end,
        }

    nothing = f"every store of the snapshot exists in {plan.change.app}"
    show_end(plan.change, outcome.result, results, summary=summary, nothing=nothing, sentences=sentences)
