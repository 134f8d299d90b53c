"""``kstate restore-snapshot``: copy stores back from snapshots.

With a dump, the records since the snapshot are added in the same run. With a release, the stores are migrated too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import EXECUTION, LOGS, choices_text
from kstate_cli.cli.options.restore import (
    AcceptResurrected,
    FleetOptions,
    Memory,
    OnInvalid,
    RestoredGuarantee,
    bytes_of,
)
from kstate_cli.cli.options.shared import (
    AUTO,
    AfterError,
    BootstrapServer,
    CopySsts,
    DryRun,
    Engine,
    Guarantee,
    KafkaSettings,
    LockIsShared,
    LogOffsets,
    MetricsFile,
    OutputFormat,
    Quiet,
    Reason,
    Stores,
    Tasks,
    TransactionalStores,
    Unproven,
    Verbose,
    Verify,
    Wait,
    WarningsOk,
    at_once,
    declared,
    draft_of,
    engine_of,
    spark_settings,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import UsageError
from kstate_cli.texts import command, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kstate_cli.barrier import Waiting
    from kstate_cli.change.course import Terms
    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan
    from kstate_cli.cli.lines.changes import PlanEnd, RestoreProgressLine
    from kstate_cli.cli.lines.snapshots import RestoreSnapshotLine, RestoreSnapshotSummaryLine
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.restore_combined import Migration
    from kstate_cli.cli.views.plan import PlanView
    from kstate_cli.releases import Release
    from kstate_cli.restore.planning.plan import RestorePlan
    from kstate_cli.restore.running.restoration import RestoreOutcome, RestoreRequest
    from kstate_cli.snapshot.planner import SnapshotPlan
    from kstate_cli.snapshot.restoring import SnapshotRequest
    from kstate_cli.snapshot.task_steps import ChosenStore

HELP_EXAMPLES: Final = {
    "restore-snapshot": (
        Example(
            "Print the plan for restoring a lost directory",
            "restore-snapshot /data/app --from-snapshot /backup/app --dry-run",
        ),
        Example(
            "Restore half of the tasks on the first of two empty hosts",
            "restore-snapshot /data/app --from-snapshot /backup/app --share 1/2",
        ),
        Example(
            "Also add later records from a dump", "restore-snapshot /data/app --from-snapshot /r --from-changelog /dump"
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSource:
    """The snapshot, the records since then, the release, and the stores to restore."""

    HELP_PANEL: ClassVar[str] = "Source and target"

    from_snapshot: Annotated[
        str,
        typer.Option(
            option.FROM_SNAPSHOT,
            metavar="REPO",
            help="Restore from this repository (a folder or s3://BUCKET/PREFIX).",
        ),
    ]
    generation: Annotated[
        str | None,
        typer.Option(
            option.GENERATION,
            metavar="NAME",
            help=(
                "Restore all stores from this snapshot. By default, kstate restores each store from the newest "
                "snapshot that contains the store."
            ),
        ),
    ] = None
    from_changelog: Annotated[
        str | None,
        typer.Option(option.FROM_CHANGELOG, metavar="DUMP", help="Also add later records from this changelog dump."),
    ] = None
    release_name: Annotated[
        str | None,
        typer.Option(
            option.FOR,
            metavar="RELEASE",
            help="Also migrate the stores to this release.",
            autocompletion=releases,
        ),
    ] = None
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help=("Read store kinds and retentions from this kstate.toml. Requires --from-changelog."),
            readable=False,
        ),
    ] = None
    task: Tasks = None
    store: Stores = None
    dry_run: DryRun = False
    fleet: FleetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLogs:
    """The logs as a broker states them now, or as a file does for a dump."""

    HELP_PANEL: ClassVar[str] = LOGS

    offsets: LogOffsets = None
    bootstrap_server: BootstrapServer = None
    kafka_settings: KafkaSettings = None
    guarantee: RestoredGuarantee = Guarantee.exactly_once


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCases:
    """Permissions for special cases."""

    HELP_PANEL: ClassVar[str] = "Special cases"

    rebuild: Annotated[bool, typer.Option(option.REBUILD, help="Also replace existing stores.")] = False
    accept_resurrected: AcceptResurrected = False
    on_invalid_offset: Annotated[
        OnInvalid,
        typer.Option(
            option.ON_INVALID_OFFSET,
            metavar="ACTION",
            help="If an offset is out of range, rebuild the store (default) or fail.",
            show_default=False,
        ),
    ] = OnInvalid.rebuild
    transactional_stores: TransactionalStores = False
    unproven: Unproven = False
    after_error: AfterError = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotWork:
    """Parallelism, verification and locks."""

    HELP_PANEL: ClassVar[str] = EXECUTION

    engine: Engine = AUTO
    memory: Memory = None
    verify: Annotated[
        Verify,
        typer.Option(
            option.VERIFY,
            metavar=choices_text(Verify),
            help="Select how to check the restored stores. With full, kstate reads all rows back.",
        ),
    ] = Verify.quick
    workers: Annotated[int, workers_option("Copy N files")] = 0
    copy: CopySsts = False
    wait: Wait = 0.0
    lock_is_shared: LockIsShared = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """Output, metrics, reason and exit code."""

    output: OutputFormat = Format.table
    verbose: Verbose = False
    quiet: Quiet = False
    warnings_ok: WarningsOk = False
    metrics_file: MetricsFile = None
    reason: Reason = None


@declared
def restore_snapshot(
    app: Annotated[
        Path,
        typer.Argument(
            metavar="APP",
            help="Path to the application directory (state.dir/application.id). kstate can create it in the state.dir.",
            readable=False,
        ),
    ],
    source: SnapshotSource,
    logs: SnapshotLogs,
    cases: SnapshotCases,
    work: SnapshotWork,
    report: SnapshotReport,
) -> int:
    """Restore stores from snapshots as fast as the disk allows. To undo the restoration, run `kstate undo`.

    Stop the application first. kstate keeps existing stores and restores each missing store from the newest snapshot
    that contains the store. kstate verifies the SHA-256 of every file. With --from-changelog, kstate adds later records
    from a dump. With --for, it migrates the stores. Without --for, run the application with a release that uses the
    same layout as the release that wrote the snapshot. All releases up to 4.2 share one layout, and all releases from
    4.3 on share another.
    """
    from kstate_cli.cli.commands.restore import barrier_of, wait_at_barrier
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.options.logs import facts_source
    from kstate_cli.cli.views.plan import PlanView, exit_code
    from kstate_cli.snapshot.places import refuse_inside
    from kstate_cli.statedir.find import find_application_to_create

    _refuse_without_dump(source, logs)
    path = find_application_to_create(app)
    results: Output[RestoreSnapshotLine] = output_of(report.output, path, quiet=report.quiet)
    # Checked now, since the user would learn of a wrong place only after the restoration.
    barrier = barrier_of(source.fleet, is_started=True)
    request = _request(path, source, cases, work, report)
    request = replace(request, ask=facts_source(None, logs.bootstrap_server, logs.kafka_settings, group=None))
    refuse_inside(request.repository, path)
    migration = _migration(source, logs, cases, is_silent=results.is_silent)
    view = PlanView(
        results, verbose=report.verbose, dry_run=source.dry_run, workers=request.terms.run.workers, copied=work.copy
    )
    with Metrics(report.metrics_file, "restore", path) as metrics:
        progress: Output[RestoreProgressLine] = output_of(
            report.output, path, quiet=report.quiet, on_standard_error=True
        )
        screen = _RestoreView(results, progress, view, metrics)
        if source.from_changelog is None:
            end = _restore(request, migration, screen)
        else:
            details = _RecordsRequest(request.terms, source, logs, cases, work)
            end = _restore_with_records(request, details, migration, screen)
        is_warned = any(stored.null_keys for stored in end.records.reports) if end.records is not None else False
        code = exit_code(end.plan, warnings_ok=report.warnings_ok, warned=is_warned)

        def finish(waiting: Waiting | None) -> int:
            _finish(end, results, waiting, is_selection=bool(source.task or source.store))
            return code

        if barrier is None or source.dry_run:
            return metrics.finish(finish(None))
        # Before the wait, which may take an hour: the state of this host is known now.
        results.remark(f"{path} is ready")
        wait = partial(barrier.wait, results)
        return metrics.finish(wait_at_barrier(wait, finish, warnings_ok=report.warnings_ok))


def _refuse_without_dump(source: SnapshotSource, logs: SnapshotLogs) -> None:
    """Raise UsageError for options that only a dump gives a meaning: they would silently do nothing."""
    if source.from_changelog is not None:
        return
    values = ((option.OFFSETS, logs.offsets), (option.SPEC, source.spec))
    for option_name, value in values:
        if value is not None:
            raise UsageError(
                f"{option_name} needs --from-changelog", hint=f"pass --from-changelog DUMP or omit {option_name}"
            )


def _request(
    path: Path, source: SnapshotSource, cases: SnapshotCases, work: SnapshotWork, report: SnapshotReport
) -> SnapshotRequest:
    from kstate_cli.change.course import Terms
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.commands.restore import share_of, tasks_of
    from kstate_cli.snapshot.places import repository_of
    from kstate_cli.snapshot.planner import SnapshotOptions
    from kstate_cli.snapshot.restoring import SnapshotRequest

    run = RunOptions(
        workers=at_once(work.workers),
        verify_full=work.verify is Verify.full,
        copy_ssts=work.copy,
        reason=report.reason,
    )
    elsewhere, only = tasks_of(source.fleet, path.name)
    return SnapshotRequest(
        Terms(
            path,
            run,
            wait=work.wait,
            lock_is_shared=work.lock_is_shared,
            dry_run=source.dry_run,
            may_be_lost=True,
        ),
        repository_of(source.from_snapshot),
        SnapshotOptions(
            frozenset(source.task or ()),
            frozenset(source.store or ()),
            share=share_of(source.fleet),
            elsewhere=elsewhere,
            only=only,
            rebuild=cases.rebuild,
            accept_resurrected=cases.accept_resurrected,
        ),
        source.generation,
        cases.after_error,
    )


def _migration(
    source: SnapshotSource, logs: SnapshotLogs, cases: SnapshotCases, *, is_silent: bool
) -> Migration | None:
    if source.release_name is None:
        return None
    from kstate_cli.cli.options.application import chosen_release
    from kstate_cli.cli.restore_combined import Migration
    from kstate_cli.migrate.snapshot import MigrateOptions

    return Migration(
        chosen_release(option.FOR, source.release_name, None, quiet=is_silent),
        MigrateOptions(
            at_least_once=logs.guarantee is Guarantee.at_least_once,
            transactional=cases.transactional_stores,
            unproven=cases.unproven,
        ),
    )


@dataclass(frozen=True, slots=True)
class _RestoreView:
    """Where a restoration prints its plan, its progress and its results, and the metrics."""

    results: Output[RestoreSnapshotLine]
    progress: Output[RestoreProgressLine]
    view: PlanView
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class _End:
    """The result of a restoration, whichever parts it had."""

    plan: Plan
    result: RunResult | None
    stores: tuple[ChosenStore, ...]
    unchanged: int
    records: RestoreOutcome | None = None


def _restore(request: SnapshotRequest, migration: Migration | None, screen: _RestoreView) -> _End:
    """Restore from the snapshot alone, and migrate."""
    from kstate_cli.cli.views.plan import RunProgress, show_plan
    from kstate_cli.snapshot.restoring import restore_snapshot as run_restore

    results = screen.results
    if migration is not None:
        from kstate_cli.cli.restore_combined import further_of

        request = replace(request, further=further_of(migration))
    with RunProgress(quiet=results.quiet) as progress:

        def on_plan(plan: SnapshotPlan) -> None:
            progress.expect(plan.change)
            screen.metrics.warnings = len(plan.change.warnings)
            show_plan(plan.change, screen.view)
            _show_unchanged(plan.unchanged, results)

        outcome = run_restore(request, on_plan=on_plan, progress=progress, notify=results.say)
    return _End(outcome.plan.change, outcome.result, outcome.plan.stores, len(outcome.plan.unchanged))


@dataclass(frozen=True, slots=True)
class _RecordsRequest:
    """The options about the records of the dump."""

    terms: Terms
    source: SnapshotSource
    logs: SnapshotLogs
    cases: SnapshotCases
    work: SnapshotWork

    def request(self, release: Release, request: SnapshotRequest) -> RestoreRequest:
        """Return the request for the dump: it restores the same tasks and stores for the release."""
        from kstate_cli.cli.options.logs import facts_source
        from kstate_cli.restore.planning.judge import Permissions
        from kstate_cli.restore.planning.plan import RestoreOptions
        from kstate_cli.restore.running.restoration import RestoreRequest

        source, logs, work = self.source, self.logs, self.work
        memory = None
        if work.memory:
            memory = bytes_of(work.memory)
        spark = spark_settings(None, None)
        same = request.options
        return RestoreRequest(
            self.terms,
            dump=str(source.from_changelog),
            options=RestoreOptions(
                release,
                tasks=same.tasks,
                stores=same.stores,
                share=same.share,
                elsewhere=same.elsewhere,
                only=same.only,
                at_least_once=logs.guarantee is Guarantee.at_least_once,
                transactional=self.cases.transactional_stores,
                unproven=self.cases.unproven,
                from_broker=logs.bootstrap_server is not None,
                permissions=Permissions(
                    wipe_invalid=self.cases.on_invalid_offset is OnInvalid.rebuild,
                    accept_resurrected=self.cases.accept_resurrected,
                ),
            ),
            engine=engine_of(work.engine, spark),
            spark=spark,
            spec=draft_of(source.spec),
            spec_name=str(source.spec or "kstate.toml"),
            memory=memory,
            ask=facts_source(logs.offsets, logs.bootstrap_server, logs.kafka_settings, group=self.terms.app.name),
            after_error=self.cases.after_error,
        )


def _restore_with_records(
    request: SnapshotRequest, details: _RecordsRequest, migration: Migration | None, screen: _RestoreView
) -> _End:
    """Restore from the snapshot, migrate, and add the records of the dump: in one run."""
    from kstate_cli.cli.restore_combined import WithRecords
    from kstate_cli.cli.views.plan import show_plan
    from kstate_cli.cli.views.restore import RestoreProgress, show_restored
    from kstate_cli.restore.running.pipeline import engine_for
    from kstate_cli.restore.running.pipeline import restore as run_restore
    from kstate_cli.snapshot.choice import newest_home, release_of
    from kstate_cli.snapshot.restoring import read_generations

    results = screen.results
    app = request.terms.app
    generations, damaged = read_generations(request.repository, app.name, request.generation)
    release = release_of(newest_home(generations))
    if migration is not None:
        release = migration.target
    records_request = details.request(release, request)
    with RestoreProgress(screen.progress) as progress:
        larger = WithRecords(request, generations, damaged, migration, progress.phase)

        def on_plan(plan: RestorePlan) -> None:
            progress.expect(plan)
            screen.metrics.warnings = len(plan.change.warnings)
            view = screen.view
            if plan.work:
                view = replace(screen.view, engine=engine_for(records_request, plan))
            show_plan(plan.change, view)
            titles = {store.title for store in plan.unchanged}
            unchanged = {store.title: store.why for store in plan.unchanged}
            _show_unchanged({k: v for k, v in larger.unchanged.items() if k not in titles} | unchanged, results)

        outcome = run_restore(records_request, on_plan=on_plan, watcher=progress, larger=larger)
    screen.metrics.records = sum(stored.records for stored in outcome.reports)
    show_restored(outcome, results)
    left = len({*larger.unchanged, *(store.title for store in outcome.plan.unchanged)})
    return _End(outcome.plan.change, outcome.result, larger.stores, left, outcome)


def _show_unchanged(unchanged: Mapping[str, str], results: Output[RestoreSnapshotLine]) -> None:
    def lines() -> Iterator[RestoreSnapshotLine]:
        for title, why in unchanged.items():
            task, _, store = title.rpartition("/")
            yield {"type": "left", "task": task, "store": store, "message": why}

    def texts() -> None:
        for title, why in unchanged.items():
            results.say(f"kstate does not change {title}: {why}")

    results.show(lines(), texts)


def _finish(end: _End, results: Output[RestoreSnapshotLine], waiting: Waiting | None, *, is_selection: bool) -> None:
    from kstate_cli.cli.views.barrier import barrier_result
    from kstate_cli.cli.views.plan import show_end
    from kstate_cli.cli.views.restore import SELECTED_ONLY

    barrier = None
    if waiting is not None:
        barrier = barrier_result(waiting)
    records = 0
    if end.records is not None:
        records = sum(stored.records for stored in end.records.reports)

    def sentences(result: RunResult) -> Iterable[str]:
        later = ""
        if end.records is not None:
            later = f" and {plural(records, 'later record')} from the dump"
        stores = "the selected stores" if is_selection else "the stores"
        yield f"kstate restored {stores} from the snapshot{later} (run {result.run})"
        if is_selection:
            yield from SELECTED_ONLY
        yield f"next: start the application. To undo: {command('undo', end.plan.app)}"

    def summary(plan_end: PlanEnd) -> RestoreSnapshotSummaryLine:
        return {
            "type": "summary",
            "release": end.plan.target,
            "snapshots": sorted({chosen.generation for chosen in end.stores}),
            "stores": len(end.stores),
            "left": end.unchanged,
            "bytes": sum(chosen.store.size for chosen in end.stores),
            "records": records,
            "barrier": barrier,
            **plan_end,
        }

    nothing = f"{end.plan.app} already contains every store of the snapshot"
    show_end(end.plan, end.result, results, summary=summary, nothing=nothing, sentences=sentences)
