"""``kstate migrate``: rewrite a directory for another release, and move offsets to where that release keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import choices_text
from kstate_cli.cli.options.application import chosen_release, require_release
from kstate_cli.cli.options.shared import (
    KILLED,
    App,
    CopySsts,
    DryRun,
    DslStoreFormat,
    Guarantee,
    LeftGuarantee,
    LockIsShared,
    MetricsFile,
    OnUnclean,
    OutputFormat,
    Quiet,
    Reason,
    StoreFormat,
    TransactionalStores,
    Unproven,
    Verbose,
    Verify,
    Wait,
    WarningsOk,
    at_once,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of, say, waiting
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import UsageError
from kstate_cli.texts import command, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.change.course import ChangeOutcome
    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.lines.changes import MigrateLine, MigrateSummaryLine, PlanEnd
    from kstate_cli.cli.output import Output
    from kstate_cli.offsets.ages import Age
    from kstate_cli.statedir.model import Application

HELP_EXAMPLES: Final = {
    "migrate": (
        Example("Print the plan", "migrate /data/app --to 4.2 --dry-run"),
        Example("Downgrade to 4.2", "migrate /data/app --to 4.2"),
    ),
}


def migrate(
    app: App,
    to: Annotated[
        str | None,
        typer.Option(
            option.TO,
            metavar="RELEASE",
            help="Migrate to this release, such as 4.2 or cp-8.2. Required unless you pass --to-jar.",
            autocompletion=releases,
        ),
    ] = None,
    to_jar: Annotated[
        Path | None,
        typer.Option(
            option.TO_JAR,
            metavar="PATH",
            help="Read the release from this jar or folder of jars.",
            readable=False,
            callback=require_release,
        ),
    ] = None,
    dry_run: DryRun = False,
    guarantee: LeftGuarantee = Guarantee.exactly_once,
    wipe_unclean: Annotated[
        bool,
        typer.Option(
            option.WIPE_UNCLEAN,
            help=("Skip unclean tasks and partially created databases. Kafka Streams restores them at its next start."),
            rich_help_panel=KILLED,
        ),
    ] = False,
    unclean: Annotated[
        OnUnclean | None,
        typer.Option(
            option.UNCLEAN,
            metavar=choices_text(OnUnclean),
            help="Reject unclean tasks (default), or skip them as with --wipe-unclean.",
            rich_help_panel=KILLED,
        ),
    ] = None,
    drop_headers: Annotated[
        bool,
        typer.Option(
            option.DROP_HEADERS,
            help=("Convert stores with headers to the older layout. This discards the record headers."),
        ),
    ] = False,
    dsl_store_format: DslStoreFormat = StoreFormat.DEFAULT,
    transactional_stores: TransactionalStores = False,
    unproven: Unproven = False,
    verify: Annotated[
        Verify,
        typer.Option(
            option.VERIFY,
            metavar=choices_text(Verify),
            help="Select how to check rewritten stores before kstate uses them. With full, kstate compares every row.",
        ),
    ] = Verify.quick,
    copy: CopySsts = False,
    workers: Annotated[int, workers_option("Migrate N stores")] = 0,
    reason: Reason = None,
    metrics_file: MetricsFile = None,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Upgrade or downgrade an application directory in place so that Kafka Streams has nothing to restore.

    Stop the application first. kstate keeps the old directory as a backup until you run `kstate clean`. Until then, you
    can undo the migration with `kstate undo`.
    """
    from kstate_cli.change.course import ChangeRequest, Terms, change
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.plan import PlanView, RunProgress, show_plan
    from kstate_cli.migrate.planner import plan_migration
    from kstate_cli.migrate.snapshot import MigrateOptions
    from kstate_cli.offsets.ages import add_ages, ages_of_converted
    from kstate_cli.statedir.find import find_application

    results: Output[MigrateLine] = output_of(output, None, quiet=quiet)
    # The release is checked first, since a wrong one is the most common mistake.
    target = chosen_release(option.TO, to, to_jar, quiet=results.is_silent)
    # --wipe-unclean is a second way to say how to treat unclean tasks. If both are given and differ, neither is used.
    if wipe_unclean and unclean is OnUnclean.refuse:
        raise UsageError("--wipe-unclean and --unclean refuse contradict each other", hint="omit one of them")
    options = MigrateOptions(
        at_least_once=guarantee is Guarantee.at_least_once,
        wipe_unclean=wipe_unclean or unclean is OnUnclean.wipe,
        drop_headers=drop_headers,
        headers_format=dsl_store_format is StoreFormat.HEADERS,
        transactional=transactional_stores,
        unproven=unproven,
    )
    path = find_application(app)
    results = output_of(output, path, quiet=quiet)
    ages: list[Age] = []

    def planner(application: Application) -> Plan:
        plan = plan_migration(application, target, options)
        # After a recovery the planner runs again, and only the last plan counts.
        ages[:] = ages_of_converted(application, plan)
        return plan

    def last_word() -> None:
        # Ages are recorded under the lock, and not in a dry run, which must leave nothing.
        if ages:
            add_ages(path, ages)

    # Resolved once, so that the plan shows the number with which it runs.
    stores_at_once = at_once(workers)
    view = PlanView(results, verbose=verbose, dry_run=dry_run, workers=stores_at_once, copied=copy)
    request = ChangeRequest(
        Terms(
            path,
            RunOptions(workers=stores_at_once, verify_full=verify is Verify.full, copy_ssts=copy, reason=reason),
            wait=wait,
            lock_is_shared=lock_is_shared,
            dry_run=dry_run,
        ),
        planner=planner,
        last_word=last_word,
    )
    with Metrics(metrics_file, "migrate", path) as metrics:
        with RunProgress(quiet=quiet) as progress:

            def on_plan(plan: Plan) -> None:
                # Called before the plan is printed, so that the first phase knows how much there is to do.
                progress.expect(plan)
                metrics.warnings = len(plan.warnings)
                show_plan(plan, view)

            outcome = change(request, on_plan=on_plan, progress=progress, notify=results.say)
        # The prediction gets the settings of the plan, so that it is about the same start.
        check_request = CheckRequest(
            target,
            exactly_once=not options.at_least_once,
            headers_format=options.headers_format,
            transactional=options.transactional,
        )
        return metrics.finish(_finish(outcome, check_request, results, warnings_ok=warnings_ok))


def _finish(
    outcome: ChangeOutcome, check_request: CheckRequest, results: Output[MigrateLine], *, warnings_ok: bool
) -> int:
    """Print the end of the migration and a warning about the next start; return the exit code."""
    from kstate_cli.cli.views.check import warning_of_next_start
    from kstate_cli.cli.views.plan import exit_code, show_end

    plan, result = outcome.plan, outcome.result

    def sentences(result: RunResult) -> Iterator[str]:
        yield f"kstate migrated the directory to {plan.target} (run {result.run})"
        if result.rows_converted:
            yield (
                f"kstate converted {plural(result.rows_converted, 'row')} and dropped "
                f"{plural(result.headers_dropped, 'header')}"
            )
        # undo restores the old directory without a loss until the application writes to the new one.
        yield f"next: start the application with {plan.target}. To undo: {command('undo', plan.app)}"

    def summary(end: PlanEnd) -> MigrateSummaryLine:
        headers, rows = 0, 0
        if result is not None:
            headers, rows = result.headers_dropped, result.rows_converted
        return {
            "type": "summary",
            "release": plan.target,
            "stores": plan.stores,
            "headers_dropped": headers,
            "rows_converted": rows,
            **end,
        }

    warning = None
    if result is not None:
        # The new directory is read again: not what the plan predicted counts, but what is there.
        with waiting("predicting the start", quiet=results.quiet):
            warning = warning_of_next_start(plan.app, check_request)
    if warning is not None:
        results.show([{"type": "warning", "message": warning}], lambda: say(f"warning: {warning}"))
    nothing = f"{plan.app} is already in the format of {plan.target}"
    show_end(plan, result, results, summary=summary, nothing=nothing, sentences=sentences)
    return exit_code(plan, warnings_ok=warnings_ok, warned=warning is not None)
