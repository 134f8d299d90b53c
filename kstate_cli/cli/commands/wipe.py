"""``kstate wipe``: move stores out, so that Streams rebuilds them from the earliest offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    AfterError,
    App,
    DryRun,
    LockIsShared,
    MetricsFile,
    OutputFormat,
    Quiet,
    Reason,
    Stores,
    Tasks,
    Verbose,
    Wait,
    WarningsOk,
    at_once,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of, say
from kstate_cli.errors import UsageError
from kstate_cli.texts import command, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.change.course import ChangeOutcome
    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan
    from kstate_cli.cli.lines.changes import PlanEnd, WipeLine, WipeSummaryLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "wipe": (
        Example("Rebuild one store of one task", "wipe /data/app --task 0_1 --store count"),
        Example("DELETES all stores immediately, without a backup", "wipe /data/app --all --purge --yes"),
    ),
}


def wipe(
    app: App,
    task: Tasks = None,
    store: Stores = None,
    global_stores: Annotated[bool, typer.Option(option.GLOBAL, help="Select the global stores.")] = False,
    every_task: Annotated[bool, typer.Option(option.ALL, help="Select all tasks and the global stores.")] = False,
    everything: Annotated[
        bool,
        typer.Option(
            option.EVERYTHING, help="With --all, also remove kafka-streams-process-metadata. Only .lock remains."
        ),
    ] = False,
    for_reset: Annotated[
        bool,
        typer.Option(
            option.FOR_RESET, help="With --all --everything, print the command that resets the application's topics."
        ),
    ] = False,
    purge: Annotated[
        bool, typer.Option(option.PURGE, help="DELETES the stores immediately. You cannot undo this.")
    ] = False,
    yes: Annotated[bool, typer.Option(option.YES, help="Confirm that --purge deletes the stores.")] = False,
    workers: Annotated[int, workers_option("Move N stores")] = 0,
    dry_run: DryRun = False,
    after_error: AfterError = False,
    reason: Reason = None,
    metrics_file: MetricsFile = None,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Move stores aside so that Kafka Streams rebuilds them from the earliest offset in their changelogs.

    Stop the application first. kstate also moves the offsets and Positions of these stores. It leaves a task's other
    stores in place, and Kafka Streams does not restore those, even under exactly-once. Until you run `kstate clean`,
    you can undo the wipe with `kstate undo`.
    """
    from kstate_cli.change.course import ChangeRequest, Terms, change
    from kstate_cli.change.earlier_runs import refuse_after_error
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.plan import PlanView, RunProgress, show_plan
    from kstate_cli.statedir.find import find_application
    from kstate_cli.wipe import WipeOptions, plan_wipe

    # The reset tool makes all offsets of the directory wrong, so that no store may stay.
    if for_reset and not (every_task and everything):
        raise UsageError("--for-reset works only with --all and --everything")
    # The only way to delete stores without a backup: one word more than a slip of the hand.
    if purge and not (yes or dry_run):
        raise UsageError(
            ("--purge deletes the stores, and you cannot undo this"), hint="to confirm the deletion, also pass --yes"
        )
    options = WipeOptions(frozenset(task or ()), frozenset(store or ()), global_stores, every_task, everything)
    path = find_application(app)
    results: Output[WipeLine] = output_of(output, path, quiet=quiet)
    stores_at_once = at_once(workers)
    consequence = "when the application starts, Streams restores the removed stores that have a changelog"
    if for_reset:
        # The reset tool lets the application begin again, so nothing is restored.
        consequence = ""
    view = PlanView(
        results,
        verbose=verbose,
        dry_run=dry_run,
        workers=stores_at_once,
        is_undoable=not purge,
        consequence=consequence,
    )
    request = ChangeRequest(
        Terms(
            path,
            RunOptions(workers=stores_at_once, reason=reason),
            wait=wait,
            lock_is_shared=lock_is_shared,
            dry_run=dry_run,
        ),
        planner=lambda application: plan_wipe(application, options),
        purge=purge,
        # Tested under the lock: the last run may have ended after this one was planned.
        last_word=lambda: refuse_after_error(path, after_error=after_error),
    )
    with Metrics(metrics_file, "wipe", path) as metrics:
        with RunProgress(quiet=quiet) as progress:

            def on_plan(plan: Plan) -> None:
                progress.expect(plan)
                metrics.warnings = len(plan.warnings)
                show_plan(plan, view)

            outcome = change(
                request,
                on_plan=on_plan,
                progress=progress,
                notify=results.say,
            )
        code = _finish(outcome, results, purge=purge, for_reset=for_reset, warnings_ok=warnings_ok)
        return metrics.finish(code)


def _finish(
    outcome: ChangeOutcome, results: Output[WipeLine], *, purge: bool, for_reset: bool, warnings_ok: bool
) -> int:
    """Print the end of the wipe, and how to undo or restore; return the exit code."""
    from kstate_cli.cli.views.plan import exit_code, show_end

    plan, result = outcome.plan, outcome.result

    def sentences(result: RunResult) -> Iterator[str]:
        way_back = f"To undo: {command('undo', plan.app)}"
        if purge:
            way_back = "You cannot undo this, because kstate kept no backup"
        yield f"kstate wiped the stores (run {result.run}). {way_back}"
        restore = command("restore", plan.app, option.FROM_CHANGELOG, "DUMP", option.FOR, "RELEASE")
        yield (
            "next: start the application. It restores the stores from the brokers. To restore the stores from a dump "
            f"first, run {restore}"
        )
        if for_reset:
            yield (
                "or reset the application: kafka-streams-application-reset --application-id "
                f"{quoted(plan.app.name)} --bootstrap-server HOST:PORT --input-topics TOPICS"
            )

    def summary(end: PlanEnd) -> WipeSummaryLine:
        return {"type": "summary", "undoable": result is not None and not purge, **end}

    nothing = f"{plan.app} does not contain these stores"
    show_end(plan, result, results, summary=summary, nothing=nothing, sentences=sentences)
    if for_reset and result is not None:
        results.text(_warn_of_reset)
    return exit_code(plan, warnings_ok=warnings_ok)


def _warn_of_reset() -> None:

    # Printed even with --quiet: the reset tool deletes the topics without asking, and then no rows can be rebuilt.
    say(
        "note: the reset deletes the changelog topics, and without them, the stores cannot be restored. The "
        "application then reprocesses all records that its input topics still contain"
    )
