"""``kstate rehome``: move every store to the task that has it in a changed topology.

Where a task lacks stores after the move, ``restore`` plans them into the same change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.environment import typed
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import EXECUTION
from kstate_cli.cli.options.rehome import BrokerOptions, CompletionOptions
from kstate_cli.cli.options.shared import (
    KILLED,
    AfterError,
    App,
    CopySsts,
    DryRun,
    Guarantee,
    LeftGuarantee,
    LockIsShared,
    MetricsFile,
    OutputFormat,
    Quiet,
    Reason,
    SpecFile,
    Verbose,
    WarningsOk,
    at_once,
    declared,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of
from kstate_cli.texts import command, plural, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan
    from kstate_cli.cli.lines.changes import PlanEnd, RehomeLine, RehomeSummaryLine, RestoreProgressLine
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.views.plan import PlanView
    from kstate_cli.dump_reader.model import Dump
    from kstate_cli.offsets.ages import Age
    from kstate_cli.rehome.model import Completion, RehomeOptions, StoresByTask
    from kstate_cli.releases import Release
    from kstate_cli.restore.planning.plan import RestorePlan, StoreWork
    from kstate_cli.restore.running.restoration import RestoreOutcome, RestoreRequest
    from kstate_cli.restore.running.steps import RestoredStore
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.statedir.model import Application

HELP_EXAMPLES: Final = {
    "rehome": (
        Example(
            "Move every store to its task in the new topology", "rehome /data/app --topology new.txt --from old.txt"
        ),
        Example(
            "Also check the group, repartition topics and partition counts",
            "rehome /data/app --topology new.txt --bootstrap-server broker:9092",
        ),
        Example(
            "Use a dump to complete tasks that were split across two hosts",
            "rehome /app --topology b --from a --from-changelog /dump --for 4.3",
        ),
        Example(
            "Map sub-topology 6 to 4, and mark the old 4 and 5 as gone",
            "rehome /data/app --map 6=4 --map 4=gone --map 5=gone",
        ),
    ),
}


@declared
def rehome(
    context: typer.Context,
    app: App,
    source: BrokerOptions,
    completion: CompletionOptions,
    topology: Annotated[
        Path | None,
        typer.Option(
            option.TOPOLOGY,
            metavar="FILE",
            help=("Read the new topology from FILE, the output of Topology#describe after build(props)."),
            readable=False,
        ),
    ] = None,
    old: Annotated[
        Path | None,
        typer.Option(
            option.FROM,
            metavar="FILE",
            help="Read the previous topology from FILE.",
            readable=False,
        ),
    ] = None,
    numbers: Annotated[
        list[str] | None,
        typer.Option(
            option.MAP,
            metavar="OLD=NEW",
            help=(
                "Map sub-topology OLD to NEW, or to gone if OLD no longer exists. Use this option instead of "
                "topology files. Can be repeated."
            ),
        ),
    ] = None,
    spec: SpecFile = None,
    guarantee: LeftGuarantee = Guarantee.exactly_once,
    wipe_unclean: Annotated[
        bool,
        typer.Option(
            option.WIPE_UNCLEAN,
            help="Skip unclean stores. Kafka Streams restores them at its next start.",
            rich_help_panel=KILLED,
        ),
    ] = False,
    workers: Annotated[int, workers_option("Move N stores")] = 0,
    copy: CopySsts = False,
    dry_run: DryRun = False,
    after_error: AfterError = False,
    reason: Reason = None,
    metrics_file: MetricsFile = None,
    wait: Annotated[
        float,
        typer.Option(
            option.WAIT,
            metavar="SECONDS",
            help="Wait up to SECONDS for the lock and for all group members to leave.",
            min=0,
            rich_help_panel=EXECUTION,
        ),
    ] = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Move every store to its task in a changed topology so that Kafka Streams has nothing to restore.

    Use this command after sub-topologies were renumbered, split or merged. Stop all instances of the application first.
    If a task is incomplete on this host, kstate adds the missing stores from a dump or refuses to run. Until you run
    `kstate clean`, you can undo the change with `kstate undo`.
    """
    from kstate_cli.change.course import ChangeRequest, Terms, change
    from kstate_cli.change.earlier_runs import refuse_after_error
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.plan import PlanView, RunProgress, show_plan
    from kstate_cli.offsets.ages import add_ages
    from kstate_cli.rehome.live import await_end
    from kstate_cli.rehome.model import options_of
    from kstate_cli.rehome.planner import ages_of_moved, plan_rehome
    from kstate_cli.statedir.find import find_application

    # Before anything is read: an option without its dump would be ignored silently.
    if not typed(context, "from_changelog") and None in (topology, old, completion.release_name):
        # A kstate.toml may name the dump for all commands: only with both texts and the release can it complete tasks.
        completion = replace(completion, from_changelog=None)
    completion.refuse_contradictions(dry_run=dry_run)
    options = options_of(
        topology,
        old,
        numbers or (),
        spec,
        at_least_once=guarantee is Guarantee.at_least_once,
        wipe_unclean=wipe_unclean,
    )
    options = replace(options, cluster=source.cluster(dry_run=dry_run), complete=frozenset(completion.complete or ()))
    path = find_application(app)
    results: Output[RehomeLine] = output_of(output, path, quiet=quiet)
    ages: list[Age] = []

    def planned(application: Application, plan: Plan) -> None:
        # The ages are those of the last plan, since a recovery makes a second one.
        ages[:] = ages_of_moved(application, plan)

    def planner(application: Application) -> Plan:
        plan = plan_rehome(application, options)
        planned(application, plan)
        return plan

    def last_word() -> None:
        # Tested under the lock, where no other run can end any more.
        refuse_after_error(path, after_error=after_error)
        if ages:
            add_ages(path, ages)

    # Resolved once, so that the plan shows the number with which it runs.
    stores_at_once = at_once(workers)
    terms = Terms(
        path,
        RunOptions(workers=stores_at_once, copy_ssts=copy, reason=reason),
        wait=wait,
        lock_is_shared=lock_is_shared,
        dry_run=dry_run,
    )
    view = PlanView(results, verbose=verbose, dry_run=dry_run, workers=stores_at_once, copied=copy)
    larger, restore_request = None, None
    if completion.from_changelog is not None:
        restore_request = completion.request(options, terms, source, after_error=after_error)
        options = replace(options, command=f"{options.command} --from-changelog {quoted(restore_request.dump)}")
        # Moves and restorations become one change, so that no task is ever visible with only some of its stores.
        larger = CompletedRehoming(options, planned, last_word)
    if options.cluster is not None and wait and not dry_run:
        # While a member of the group runs, it may write to tasks by their old numbers.
        await_end(options.cluster, path.name, wait, lambda line: results.say(f"kstate: {line}"))
    with Metrics(metrics_file, "rehome", path) as metrics:
        if restore_request is not None and larger is not None:
            progress_lines: Output[RestoreProgressLine] = output_of(output, path, quiet=quiet, on_standard_error=True)
            completed = _complete(restore_request, larger, view, progress_lines)
            plan, result = completed.plan.change, completed.result
            metrics.records = sum(report.records for report in completed.reports)
            metrics.warnings = len(plan.warnings)
            return metrics.finish(_finish(plan, result, results, warnings_ok=warnings_ok, outcome=completed))
        request = ChangeRequest(terms, planner=planner, last_word=last_word)
        with RunProgress(quiet=quiet) as progress:

            def on_plan(plan: Plan) -> None:
                progress.expect(plan)
                metrics.warnings = len(plan.warnings)
                show_plan(plan, view)

            outcome = change(request, on_plan=on_plan, progress=progress, notify=results.say)
        return metrics.finish(_finish(outcome.plan, outcome.result, results, warnings_ok=warnings_ok))


def _complete(
    request: RestoreRequest, larger: CompletedRehoming, view: PlanView, progress_lines: Output[RestoreProgressLine]
) -> RestoreOutcome:
    """Move the stores and complete tasks from the dump, in one run of ``restore``."""
    from kstate_cli.cli.views.plan import show_plan
    from kstate_cli.cli.views.restore import RestoreProgress
    from kstate_cli.restore.running.pipeline import engine_for, restore

    with RestoreProgress(progress_lines) as progress:

        def on_plan(plan: RestorePlan) -> None:
            progress.expect(plan)
            plan_view = view
            if plan.work:
                plan_view = replace(view, engine=engine_for(request, plan))
            show_plan(plan.change, plan_view)

        return restore(request, on_plan=on_plan, watcher=progress, larger=larger)


def _finish(
    plan: Plan,
    result: RunResult | None,
    results: Output[RehomeLine],
    *,
    warnings_ok: bool,
    outcome: RestoreOutcome | None = None,
) -> int:
    """Print the end of the moves, and of the restoration that completed tasks; return the exit code."""
    from kstate_cli.change.plan import MoveStore
    from kstate_cli.cli.views.plan import engine_members, exit_code, show_end
    from kstate_cli.cli.views.restore import show_restored

    if outcome is not None:
        show_restored(outcome, results)
    work: Sequence[StoreWork] = ()
    reports: Sequence[RestoredStore] = ()
    if outcome is not None:
        work, reports = outcome.plan.work, outcome.reports
    # Steps are counted, not databases: a store may have several of these and still moves once.
    move_count = sum(1 for step in plan.steps if isinstance(step, MoveStore))

    def sentences(result: RunResult) -> Iterator[str]:
        restored = ""
        if reports:
            restored = f", and restored {plural(len(reports), 'store')} from the dump"
        to = "its new task" if move_count == 1 else "their new tasks"
        yield f"kstate moved {plural(move_count, 'store')} to {to}{restored} (run {result.run})"
        yield f"next: start the application with the new topology. To undo: {command('undo', plan.app)}"

    def summary(end: PlanEnd) -> RehomeSummaryLine:
        engine, reason = None, None
        if outcome is not None and work:
            members = engine_members(outcome.engine)
            engine, reason = members["engine"], members["engine_reason"]
        return {
            "type": "summary",
            "moved": move_count,
            "stores": len(work),
            "records": sum(report.records for report in reports),
            "engine": engine,
            "engine_reason": reason,
            **end,
        }

    nothing = f"every store in {plan.app} is already in the correct task directory"
    show_end(plan, result, results, summary=summary, nothing=nothing, sentences=sentences)
    return exit_code(plan, warnings_ok=warnings_ok, warned=any(report.null_keys for report in reports))


@dataclass(slots=True)
class FromDump:
    """Plans the stores that incomplete tasks lack; ``work`` is the restoration of these stores."""

    request: RestoreRequest
    dump: Dump
    work: tuple[StoreWork, ...] = field(default=(), init=False)

    @property
    def release(self) -> Release:
        """Return the release that the stores are created for."""
        return self.request.options.release

    def complete(self, app: Application, missing: StoresByTask) -> Completion:
        """Plan these stores from the earliest offset: the directory has nothing of them. Raise Refused."""
        from kstate_cli.formats.topic_partition import TaskId
        from kstate_cli.rehome.model import Completion
        from kstate_cli.restore.planning.planner import plan_restore
        from kstate_cli.specification.combine import resolve_spec
        from kstate_cli.specification.draft import Spec
        from kstate_cli.statedir.names import CHECKPOINT

        # The names of tasks and changelogs contain that of their topology.
        topologies = {store: TaskId.parse(task).topology for task, stores in missing.items() for store in stores}
        draft = _without_places(self.request.spec, app.app_id, topologies)
        spec = resolve_spec(app, draft, only=topologies.keys(), file_name=self.request.spec_name)
        # The specification is reduced to the missing stores, since the others are here.
        only = Spec(spec.application, tuple(store for store in spec.stores if store.name in topologies))
        options = replace(self.request.options, stores=frozenset(topologies))
        # The existing directory is passed as None: these stores must be built as if nothing were here.
        plan = plan_restore(app.path, None, only, self.dump, options, stores_by_task=missing)
        # The work is kept: the steps go into the plan of rehome, but what builds the stores goes to the engine of
        # restore.
        self.work = plan.work
        # The steps for these files are left out: rehome writes them for the whole task, with the lines of the moved
        # stores.
        files = {f"{task}/{CHECKPOINT}" for task in missing}
        return Completion(
            {(work.task, work.spec.name): work.offsets for work in plan.work},
            tuple(step for step in plan.change.steps if step.path not in files),
            plan.change.task_times,
            plan.change.warnings,
            plan.change.notes,
        )


def _without_places(app_draft: SpecDraft | None, app_id: str, topologies: dict[str, str | None]) -> SpecDraft:
    """Return the specification of these stores without their tasks, which come from the topologies."""
    from kstate_cli.specification.draft import SpecDraft, StoreDraft

    stores = []
    for name, topology in topologies.items():
        draft = None
        if app_draft is not None:
            draft = app_draft.store(name)
        if draft is None:
            draft = StoreDraft(name=name)
        stores.append(replace(draft, subtopology=None, partitions=None, topology=topology))
    application = app_id
    if app_draft is not None and app_draft.application:
        application = app_draft.application
    return SpecDraft(application, tuple(stores))


@dataclass(slots=True)
class CompletedRehoming:
    """The whole change, as a planner for ``restore``."""

    options: RehomeOptions
    planned: Callable[[Application, Plan], None]
    """Takes each plan."""
    before: Callable[[], None]
    """Called before anything is staged."""

    def plan(self, request: RestoreRequest, dump: Dump, application: Application | None) -> RestorePlan:
        """Return the plan of all moves and restorations. Raise Refused and UsageError."""
        assert application is not None, "no option permits losing it"
        from kstate_cli.rehome.planner import plan_rehome
        from kstate_cli.restore.planning.plan import RestorePlan

        # A new one for each plan: a recovery plans again.
        completer = FromDump(request, dump)
        plan = plan_rehome(application, replace(self.options, completer=completer))
        self.planned(application, plan)
        return RestorePlan(plan, completer.work, ())

    def last_word(self) -> None:
        """Call the function of the caller before anything is staged."""
        self.before()

    def foundation(self) -> None:
        """Return None: the stores are those of the directory."""
