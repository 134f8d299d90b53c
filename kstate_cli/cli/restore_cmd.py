"""``kstate restore``: builds stores from a changelog dump, on Spark or in this process (``--engine``)."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.declared import declared
from kstate_cli.cli.options import Guarantee, Verify, at_once
from kstate_cli.cli.output import Format
from kstate_cli.cli.release_options import chosen_release
from kstate_cli.cli.restore_options import (
    CaseOptions,
    LogOptions,
    OnInvalid,
    ReportOptions,
    RestoredOptions,
    WorkOptions,
    bytes_of,
    committed_of,
    engine_of,
    pair_of,
)

if TYPE_CHECKING:
    from kstate_cli.barrier.wait import Waiting
    from kstate_cli.cli.plan_view import PlanShown
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.restore.plan import RestorePlan
    from kstate_cli.restore.restoration import RestoreOutcome


@declared
def restore(
    app: Annotated[
        Path,
        typer.Argument(metavar="APP", help="state.dir/application.id; one that is lost is made anew.", readable=False),
    ],
    wanted: RestoredOptions,
    known: LogOptions,
    cases: CaseOptions,
    work: WorkOptions,
    told: ReportOptions,
) -> int:
    """Restore stores in bulk from a changelog dump. Undoable with `kstate undo`.

    The application must be stopped. Stores with a valid offset are caught up, others are rebuilt; healthy ones past the
    dump, or not named, stay.
    """
    from kstate_cli.change.course import Terms
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.facts_source import facts_source
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.output import say
    from kstate_cli.cli.plan_view import PlanShown
    from kstate_cli.cli.restore_fleet import barrier_of, share_of, tasks_of, waited
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.cli.restore_report import code_of, finish, tell_round
    from kstate_cli.cli.state_command import StateCommand
    from kstate_cli.cli.subject import found_app
    from kstate_cli.restore.engines import RestoreEngine
    from kstate_cli.restore.following import follow_dump
    from kstate_cli.restore.judge import Allowed
    from kstate_cli.restore.pipeline import application_path
    from kstate_cli.restore.pipeline import restore as run_restore
    from kstate_cli.restore.plan import RestoreOptions
    from kstate_cli.restore.restoration import RestoreRequest
    from kstate_cli.spark.context import SparkSettings
    from kstate_cli.specification.toml_file import read_draft
    from kstate_cli.specification.topology import read_topology

    if cases.follow is not None:
        _refuse_beside_follow(wanted, cases)
    path = application_path(app)
    found_app(path)
    elsewhere, only = tasks_of(wanted.fleet, path.name)
    barrier = barrier_of(wanted.fleet, is_started=not cases.standby and cases.follow is None)
    options = RestoreOptions(
        release=chosen_release(
            "--for", wanted.release_name, wanted.for_jar, quiet=told.quiet or told.output is Format.json
        ),
        tasks=frozenset(wanted.task or ()),
        stores=frozenset(wanted.store or ()),
        share=share_of(wanted.fleet),
        elsewhere=elsewhere,
        only=only,
        at_least_once=known.guarantee is Guarantee.at_least_once,
        transactional=cases.transactional_stores,
        unproven=cases.unproven,
        wipe_unclean=cases.wipe_unclean,
        committed=committed_of(known.committed_offsets),
        ignored=tuple(wanted.ignore or ()),
        broker_asked=known.bootstrap_server is not None,
        allowed=Allowed(
            "asked for" if cases.rebuild else None,
            cases.allow_empty,
            known.dump_is_complete,
            wipe_invalid=cases.on_invalid_offset is OnInvalid.rebuild,
            asked=cases.rebuild,
            resurrected=cases.accept_resurrected,
        ),
    )
    request = RestoreRequest(
        Terms(
            path,
            RunOptions(
                workers=at_once(work.workers),
                verify_full=work.verify is Verify.full,
                copy_ssts=work.copy,
                reason=told.reason,
                standby=cases.standby or cases.follow is not None,
            ),
            wait=work.wait,
            lock_is_shared=work.lock_is_shared,
            dry_run=wanted.dry_run,
            may_be_lost=True,
        ),
        dump=wanted.from_changelog,
        options=options,
        engine=engine_of(work.engine, master=work.master, conf=work.conf),
        spark=SparkSettings(work.master, dict(pair_of(one) for one in work.conf or ())),
        spec=read_draft(wanted.spec) if wanted.spec else None,
        spec_name=str(wanted.spec) if wanted.spec else "kstate.toml",
        topology=read_topology(wanted.topology) if wanted.topology else None,
        memory=bytes_of(work.memory) if work.memory else None,
        staging=work.staging,
        complete=known.dump_is_complete,
        committed_only=known.dump_is_committed,
        ask=facts_source(known.offsets, known.bootstrap_server, known.kafka_settings, group=path.name),
        digests=not known.skip_digests,
        verify_dump=known.verify_dump,
        after_error=cases.after_error,
        full_dump=known.full_dump,
    )
    heard = StateCommand(told.on_state_change, path) if told.on_state_change is not None else None
    output, quiet = told.output, told.quiet
    shown = PlanShown(
        output,
        quiet=quiet,
        dry_run=wanted.dry_run,
        workers=request.terms.run.workers,
        copied=work.copy,
        spark=request.engine is RestoreEngine.spark,
    )
    with Metrics(told.metrics_file, "restore", path) as metrics:
        lines = JsonLines(path, sys.stderr) if output is Format.json else None
        with RestoreProgress(lines, quiet=quiet, on_state=heard) as progress:

            def plan_shown(plan: RestorePlan) -> None:
                _show_plan(plan, shown, progress)

            def round_done(outcome: RestoreOutcome) -> None:
                tell_round(outcome, output, quiet=quiet)
                metrics.records = sum(report.records for report in outcome.reports)
                metrics.warnings = len(outcome.plan.change.warnings)
                metrics.round_done(code_of(outcome, warnings_ok=told.warnings_ok))

            if cases.follow is not None:
                follow_dump(request, cases.follow, on_plan=plan_shown, watcher=progress, on_round=round_done)
            outcome = run_restore(request, on_plan=plan_shown, watcher=progress)
        metrics.records = sum(report.records for report in outcome.reports)
        metrics.warnings = len(outcome.plan.change.warnings)

        def ended(waiting: Waiting | None) -> int:
            return finish(
                outcome, output, quiet=quiet, warnings_ok=told.warnings_ok, waiting=waiting, standby=cases.standby
            )

        if barrier is None or wanted.dry_run:
            return metrics.done(ended(None))
        if output is Format.table:
            say(f"{path} is ready", quiet=quiet)
        wait = partial(barrier.wait, JsonLines(path) if output is Format.json else None, quiet=quiet)
        return metrics.done(waited(wait, ended, warnings_ok=told.warnings_ok))


def _refuse_beside_follow(wanted: RestoredOptions, cases: CaseOptions) -> None:
    """Raises UsageError for what is asked for once, and would be done in each round."""
    from kstate_cli.errors import UsageError

    once = (("--dry-run", wanted.dry_run), ("--rebuild", cases.rebuild), ("--after-error", cases.after_error))
    given = next((name for name, is_given in once if is_given), None)
    if given is not None:
        raise UsageError(
            f"{given} is asked for once, and --follow goes on", hint=f"{given} with --standby, then --follow"
        )


def _show_plan(plan: RestorePlan, how: PlanShown, progress: RestoreProgress) -> None:
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.cli.output import say
    from kstate_cli.cli.plan_view import show_plan

    progress.expect(plan)
    show_plan(plan.change, how)
    lines = JsonLines(plan.change.app)
    for one in plan.left:
        if how.output is Format.json:
            lines.line("left", {"task": one.task, "store": one.store, "message": one.why})
        else:
            say(f"{one.shown}: left as it is: {one.why}", quiet=how.quiet)
