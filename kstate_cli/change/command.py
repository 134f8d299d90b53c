"""The course of every command that changes a directory by a plan: lock, take over, read, plan, check, carry out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.clean import half_deleted_is_said
from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.engine import Progress, RunOptions, RunResult, execute
from kstate_cli.change.folder import read_runs, remove_empty_folders
from kstate_cli.change.location_checks import check_change, check_location
from kstate_cli.change.lockfile import application_lock, in_use
from kstate_cli.change.plan import Plan
from kstate_cli.change.recover import recover, tell_unfinished
from kstate_cli.change.removal import remove_run
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.parallel.workers import Workers
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.scan import read_application
from kstate_cli.statedir.special import refuse_special
from kstate_cli.texts import command


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What is to be done, and how."""

    app: Path
    planner: Callable[[Application], Plan]
    """Raises Refused and UsageError."""
    run: RunOptions
    wait: float = 0.0
    lock_is_shared: bool = False
    dry_run: bool = False
    purge: bool = False
    """Delete what would be kept for undo."""
    last_word: Callable[[], None] | None = None
    """Called under the lock before anything is staged; raises Refused."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The plan, and what became of it (None for a dry run, or when there was nothing to do)."""

    plan: Plan
    result: RunResult | None


Tell = Callable[[str], None]
"""Says one line to the user, at once."""


def change(request: ChangeRequest, *, on_plan: Callable[[Plan], None], progress: Progress, tell: Tell) -> ChangeOutcome:
    """Carries the plan out, or only plans. ``on_plan`` sees the plan before anything is staged.

    ``tell`` hears what has become of runs that others had left unfinished: before what comes next can fail.

    Raises InUse, Refused, RunFailed and RunHalfway.
    """
    with Workers(request.run.workers) as workers:
        return _change(request, workers, on_plan, progress, tell)


def _change(
    request: ChangeRequest, workers: Workers, on_plan: Callable[[Plan], None], progress: Progress, tell: Tell
) -> ChangeOutcome:
    refuse_special(request.app)
    if request.dry_run:
        plan = _plan(request, workers, progress)
        on_plan(plan)
        tell_unfinished(request.app, tell)
        return ChangeOutcome(plan, None)
    check_location(request.app, lock_is_shared=request.lock_is_shared)
    if not (request.app / LOCK).exists():
        # Taking the lock would create the file: what is refused, or done already, must not leave even that.
        plan = _plan(request, workers, progress)
        if plan.empty:
            on_plan(plan)
            return ChangeOutcome(plan, None)
    with application_lock(request.app, request.wait):
        recover(request.app, tell)
        plan = _plan(request, workers, progress)
        on_plan(plan)
        if plan.empty:
            return ChangeOutcome(plan, None)
        if request.last_word is not None:
            request.last_word()
        result = execute(plan, request.run, progress, workers=workers)
        if request.purge:
            _purge(plan, result)
        return ChangeOutcome(plan, result)


def _purge(plan: Plan, result: RunResult) -> None:
    """Deletes what the run has kept. Raises RunHalfway: the change itself is done."""
    note_commit(result.run, plan.app, kept=False)
    run = next(run for run in read_runs(plan.app) if run.name == result.run)
    try:
        with half_deleted_is_said(plan.app, run):
            remove_run(run)
    except (OSError, Refused) as error:
        why, where = (error.headline, error.where) if isinstance(error, Refused) else (error.strerror, error.filename)
        raise RunHalfway(
            f"{plan.command} is done (run {result.run}), but what it took out could not be deleted: {why}",
            where=str(where),
            hint=f"fix the cause, then go on with it: {command('clean', plan.app, '--run', run.name)}",
        ) from error
    remove_empty_folders(plan.app)


def _plan(request: ChangeRequest, workers: Workers, progress: Progress) -> Plan:
    app = read_application(request.app, workers=workers, on_store=lambda name: progress("read", name, 0))
    if app.running:
        raise in_use(app.path, app.pid)
    plan = request.planner(app)
    if not plan.empty:
        check_change(
            plan,
            workers=request.run.workers,
            copy_ssts=request.run.copy_ssts,
            lock_is_shared=request.lock_is_shared,
        )
    return plan
