"""``kstate restore``: build stores from a changelog dump, on Spark or in local processes.

On one of several hosts, ``--hosts`` and ``--missing`` select this host's tasks, and ``--barrier`` makes it wait for the
others. ``--on-state-change`` runs a command at every change of state.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.application import chosen_release
from kstate_cli.cli.options.restore import (
    CaseOptions,
    LogOptions,
    OnInvalid,
    ReportOptions,
    SelectionOptions,
    WorkOptions,
    bytes_of,
    committed_of,
)
from kstate_cli.cli.options.shared import (
    Guarantee,
    Verify,
    at_once,
    declared,
    draft_of,
    engine_of,
    part_of,
    spark_settings,
)
from kstate_cli.cli.output import output_of, say
from kstate_cli.errors import EXIT_WARNINGS, KstateError, UsageError
from kstate_cli.host import umask_before
from kstate_cli.texts import command, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstate_cli.barrier import Waiting
    from kstate_cli.cli.lines.changes import RestoreLine, RestoreProgressLine
    from kstate_cli.cli.options.restore import FleetOptions
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.views.barrier import BarrierView
    from kstate_cli.cli.views.plan import PlanView
    from kstate_cli.cli.views.restore import RestoreProgress
    from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan
    from kstate_cli.restore.running.restoration import RestoreOutcome, RestoreRequest

HELP_EXAMPLES: Final = {
    "restore": (
        Example("Print the plan", "restore /data/app --from-changelog /dump/app --for 4.3 --dry-run"),
        Example("Restore on a Spark cluster", "restore app --from-changelog dump --for 4.3 --master spark://m:7077"),
    ),
}


@declared
def restore(
    app: Annotated[
        Path,
        typer.Argument(
            metavar="APP",
            help="Path to the application directory (state.dir/application.id). kstate can create it in the state.dir.",
            readable=False,
        ),
    ],
    selection: SelectionOptions,
    logs: LogOptions,
    cases: CaseOptions,
    work: WorkOptions,
    report: ReportOptions,
) -> int:
    """Restore stores in bulk from a changelog dump. To undo the restoration, run `kstate undo`."""
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.plan import PlanView
    from kstate_cli.cli.views.restore import RestoreProgress, code_of, finish, show_round
    from kstate_cli.restore.running.pipeline import engine_for, follow_dump
    from kstate_cli.restore.running.pipeline import restore as run_restore
    from kstate_cli.statedir.find import find_application_to_create

    # Only a dry run may skip the check of the dump: a restoration reads the rows anyway, and must check what it can.
    if logs.verify_dump is False and not selection.dry_run:
        raise UsageError(
            "--no-verify-dump works only with --dry-run, because a restoration must read all rows",
            hint="also pass --dry-run",
        )
    if cases.follow is not None:
        # Contradicting options are refused before anything is read.
        _refuse_beside_follow(selection, cases)
    # The directory need not exist: a lost one is created again.
    path = find_application_to_create(app)
    results: Output[RestoreLine] = output_of(report.output, path, quiet=report.quiet)
    progress_lines: Output[RestoreProgressLine] = output_of(
        report.output, path, quiet=report.quiet, on_standard_error=True
    )
    # The barrier is checked now: a user would otherwise learn hours later that its place is wrong.
    barrier = barrier_of(selection.fleet, is_started=not cases.standby and cases.follow is None)
    request = _request(path, selection, logs, cases, work, report, is_silent=results.is_silent)
    listener = None
    if report.on_state_change is not None:
        listener = StateCommand(report.on_state_change, path)
    view = PlanView(
        results,
        dry_run=selection.dry_run,
        workers=request.terms.run.workers,
        verbose=report.verbose,
        copied=work.copy,
    )
    with Metrics(report.metrics_file, "restore", path) as metrics:
        with RestoreProgress(progress_lines, on_state=listener, verbose=report.verbose) as progress:

            def show_plan_of(plan: RestorePlan) -> None:
                _show_plan(plan, replace(view, engine=engine_for(request, plan)), progress, results)

            def count(outcome: RestoreOutcome) -> None:
                metrics.records = sum(report.records for report in outcome.reports)
                # Only the warnings of the plan are counted, since those of the run have lines of their own.
                metrics.warnings = len(outcome.plan.change.warnings)

            def round_done(outcome: RestoreOutcome) -> None:
                show_round(outcome, results)
                count(outcome)
                metrics.round_done(code_of(outcome, warnings_ok=report.warnings_ok))
                progress.rest()

            if cases.follow is not None:
                # This call ends only with an exception, such as that of a signal.
                follow_dump(request, cases.follow, on_plan=show_plan_of, watcher=progress, on_round=round_done)
            # With --follow this line is never reached.
            outcome = run_restore(request, on_plan=show_plan_of, watcher=progress)
        count(outcome)

        def ended(waiting: Waiting | None) -> int:
            return finish(
                outcome,
                results,
                warnings_ok=report.warnings_ok,
                waiting=waiting,
                standby=cases.standby,
                is_selection=bool(selection.task or selection.store or selection.partition),
            )

        if barrier is None or selection.dry_run:
            return metrics.finish(ended(None))
        # Printed before the wait, which may take an hour: the state of this host is known now.
        results.remark(f"{path} is ready")
        wait = partial(barrier.wait, results)
        return metrics.finish(wait_at_barrier(wait, ended, warnings_ok=report.warnings_ok))


def _request(
    path: Path,
    selection: SelectionOptions,
    logs: LogOptions,
    cases: CaseOptions,
    work: WorkOptions,
    report: ReportOptions,
    *,
    is_silent: bool,
) -> RestoreRequest:
    """Return the request that the options make. Raises UsageError and Refused, and what reading their files raises."""
    from kstate_cli.change.course import Terms
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.options.logs import facts_source
    from kstate_cli.restore.running.restoration import RestoreRequest
    from kstate_cli.specification.topology import read_topology

    spec = selection.spec
    described, memory = None, None
    if selection.topology is not None:
        described = read_topology(selection.topology)
    if work.memory:
        memory = bytes_of(work.memory)
    spark = spark_settings(work.master, work.conf)
    return RestoreRequest(
        Terms(
            path,
            RunOptions(
                workers=at_once(work.workers),
                verify_full=work.verify is Verify.full,
                copy_ssts=work.copy,
                reason=report.reason,
                standby=cases.standby or cases.follow is not None,
            ),
            wait=work.wait,
            lock_is_shared=work.lock_is_shared,
            dry_run=selection.dry_run,
            # Only restore works without a directory.
            may_be_lost=True,
        ),
        dump=selection.from_changelog,
        options=_options(path, selection, logs, cases, is_silent=is_silent),
        engine=engine_of(work.engine, spark),
        spark=spark,
        spec=draft_of(spec),
        spec_name=str(spec or "kstate.toml"),
        topology=described,
        memory=memory,
        staging=work.staging,
        complete=logs.dump_is_complete,
        committed_only=logs.dump_is_committed,
        ask=facts_source(logs.offsets, logs.bootstrap_server, logs.kafka_settings, group=path.name),
        # Digests are checked by default: otherwise a damaged file shows only when its page is decoded, or never.
        digests=not logs.skip_digests,
        verify_dump=logs.verify_dump,
        after_error=cases.after_error,
        full_dump=logs.full_dump,
    )


def _options(
    path: Path, selection: SelectionOptions, logs: LogOptions, cases: CaseOptions, *, is_silent: bool
) -> RestoreOptions:
    """Return what the planner is asked: which stores, by which release, and what is allowed."""
    from kstate_cli.restore.planning.judge import Permissions
    from kstate_cli.restore.planning.plan import RestoreOptions

    # Tasks that other hosts have are skipped: on a second host they would be unplanned standbys.
    elsewhere, only = tasks_of(selection.fleet, path.name)
    return RestoreOptions(
        release=chosen_release(option.FOR, selection.release_name, selection.for_jar, quiet=is_silent),
        tasks=frozenset(selection.task or ()),
        stores=frozenset(selection.store or ()),
        partitions=frozenset(selection.partition or ()),
        share=share_of(selection.fleet),
        elsewhere=elsewhere,
        only=only,
        at_least_once=logs.guarantee is Guarantee.at_least_once,
        transactional=cases.transactional_stores,
        unproven=cases.unproven,
        wipe_unclean=cases.wipe_unclean,
        committed=committed_of(logs.committed_offsets),
        ignored=tuple(selection.ignore or ()),
        from_broker=logs.bootstrap_server is not None,
        permissions=Permissions(
            f"you passed {option.REBUILD}" if cases.rebuild else None,
            cases.allow_empty,
            logs.dump_is_complete,
            wipe_invalid=cases.on_invalid_offset is OnInvalid.rebuild,
            by_user=cases.rebuild,
            accept_resurrected=cases.accept_resurrected,
        ),
    )


def _refuse_beside_follow(selection: SelectionOptions, cases: CaseOptions) -> None:
    """Raise UsageError for options of a single run: each round would repeat them."""
    once = (
        (option.DRY_RUN, selection.dry_run),
        (option.REBUILD, cases.rebuild),
        (option.AFTER_ERROR, cases.after_error),
    )
    option_name = next((name for name, is_given in once if is_given), None)
    if option_name is not None:
        raise UsageError(
            f"--follow does not accept {option_name}, because that option applies to a single run",
            hint=f"run the command once with {option_name} --standby, and then with --follow",
        )


def _show_plan(plan: RestorePlan, view: PlanView, progress: RestoreProgress, results: Output[RestoreLine]) -> None:
    from kstate_cli.cli.views.plan import show_plan

    progress.expect(plan)
    show_plan(plan.change, view)
    for store in plan.unchanged:
        results.lines([{"type": "left", "task": store.task, "store": store.store, "message": store.why}])
        results.remark(f"kstate does not change {store.title}: {store.why}")


_MAKE = command("fleet", "HOST.json", "-o", "json")
_PART_HINT = "for example, on the second of three hosts, pass --share 2/3"


def share_of(fleet: FleetOptions) -> tuple[int, int] | None:
    """Return the share of ``--share``. Raise UsageError."""
    if fleet.share is None:
        return None
    return part_of(option.SHARE, fleet.share, _PART_HINT)


def tasks_of(fleet: FleetOptions, application: str) -> tuple[frozenset[str], frozenset[str] | None]:
    """Return the tasks of other hosts, and with ``--before`` those of this host. Raise UsageError and Refused."""
    from kstate_cli.fleet.fleet_output import had_before, held_elsewhere, read_fleet

    # Without --missing this host restores all tasks that the other options select.
    if fleet.missing is None:
        if fleet.before is not None:
            raise UsageError(
                "--before needs --missing",
                hint=(
                    "pass --missing FILE with the current state, --before FILE with the state before the loss, and "
                    f"--host NAME. To create each file, run {_MAKE}"
                ),
            )
        return frozenset(), None
    # Either --before or --share must say what this host had: with neither, two empty hosts would restore the same
    # tasks.
    if (fleet.before is None) == (fleet.share is None):
        raise UsageError(
            "the --missing file lists tasks without a host, but does not show which of these tasks belong to this host",
            hint=(
                "pass --share 1/2 and --share 2/2 on two empty hosts, or --share 1/1 on a single one. Or pass "
                f"--host NAME and --before FILE. FILE must contain what this command printed before the loss: {_MAKE}"
            ),
        )
    if fleet.before is not None and fleet.host is None:
        raise UsageError("--before needs --host", hint="pass --host NAME with this host's name in the file")
    # The hosts in the file still have their tasks, so no host restores these again.
    elsewhere = held_elsewhere(read_fleet(fleet.missing), application, fleet.host)
    if fleet.before is None or fleet.host is None:
        return elsewhere, None
    return elsewhere, had_before(read_fleet(fleet.before), application, fleet.host)


def barrier_of(fleet: FleetOptions, *, is_started: bool) -> BarrierView | None:
    """Return the barrier; None without one. Raise UsageError and Refused."""
    from kstate_cli.cli.views.barrier import BarrierView

    if fleet.barrier is None:
        if fleet.hosts is not None:
            raise UsageError(
                "--hosts needs --barrier",
                hint="also pass --barrier PLACE, a folder or URI that all hosts can reach",
            )
        return None
    # The application is not started here, so other hosts would wait at the barrier for nothing.
    if not is_started:
        raise UsageError(
            ("--barrier and --standby cannot be used together, because no application is started on a standby"),
            hint="omit --barrier",
        )
    share = share_of(fleet)
    if share is not None and fleet.hosts not in (None, share[1]):
        raise UsageError("--share and --hosts specify different numbers of hosts", hint="omit --hosts")
    hosts = fleet.hosts
    if share is not None:
        hosts = share[1]
    if hosts is None:
        raise UsageError(
            "--barrier needs --hosts or --share", hint=("also pass --hosts N, the number of hosts including this one")
        )
    names: tuple[str, ...] = ()
    host = fleet.host
    if share is not None and host is None and fleet.missing is None:
        # All names are known in advance, so that a message can name the hosts that have not come.
        names = tuple(f"{number}-of-{hosts}" for number in range(1, hosts + 1))
        host = names[share[0] - 1]
    return BarrierView(fleet.barrier, host=host, hosts=hosts, timeout=fleet.barrier_timeout, names=names)


def wait_at_barrier(wait: Callable[[], Waiting], finish: Callable[[Waiting | None], int], *, warnings_ok: bool) -> int:
    """Wait, then print the restored stores, even if the wait fails."""
    try:
        waiting = wait()
    except KstateError:
        finish(None)
        raise
    code = finish(waiting)
    if waiting.all_here or warnings_ok:
        return code
    # The stores are restored and can be used, so a host that did not come is only a warning.
    return max(code, EXIT_WARNINGS)


_SECONDS = 60
_SECONDS_AT_THE_END = 3
"""Seconds for the command when the run ends: a service manager kills a process that takes longer."""
_ENDING = ("PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR")


class StateCommand:
    """Run ``CMD BEFORE AFTER`` with KSTATE_APP in its environment. Its failure is only a warning."""

    def __init__(self, text: str, app: Path) -> None:
        try:
            # Split as a shell would, but run without one: a path may have any character.
            self._command = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"kstate cannot parse --on-state-change {text!r}: {error}") from None
        if not self._command:
            raise UsageError("--on-state-change needs a command, but is empty")
        self._app = app
        self._hangs = False

    def __call__(self, before: str, after: str) -> None:
        """Run the command and wait for it. Its output goes to standard error: standard output is for results."""
        try:
            process = subprocess.Popen(
                [*self._command, before, after],
                env={**os.environ, "KSTATE_APP": str(self._app)},
                stdin=subprocess.DEVNULL,
                stdout=2,
                # The command belongs to the user, and so does the mode of its files.
                umask=umask_before(),
                # A terminal sends Ctrl-C to all processes of its foreground group. In a session of its own, the command
                # stays alive and can be told how the restoration ended.
                start_new_session=True,
            )
        except OSError as error:
            self._warn(before, after, str(error))
            return
        seconds = _SECONDS
        if after in _ENDING or self._hangs:
            seconds = _SECONDS_AT_THE_END
        try:
            status = process.wait(seconds)
        except BaseException as error:
            # All processes of the session are killed: a shell script leaves its children behind, and they would hold
            # standard error open. They may have ended meanwhile.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            # Waited for, since it would otherwise stay as a zombie until kstate ends.
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            # Later calls get only a few seconds: a restoration must not wait a minute at every state.
            self._hangs = True
            self._warn(before, after, f"kstate killed the command after {error.timeout:g} s")
            return
        if status:
            self._warn(before, after, f"the command exited with status {status}")

    def _warn(self, before: str, after: str, wrong: str) -> None:
        say(f"warning: --on-state-change {quoted(self._command[0])} ({before} -> {after}): {wrong}")
