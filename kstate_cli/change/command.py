"""The course of every command that changes a directory by a plan: lock, take over, read, plan, check, carry out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.committed import note_commit
from kstate_cli.change.engine import Progress, Result, RunOptions, execute
from kstate_cli.change.folder import read_runs, remove_empty_folders
from kstate_cli.change.lockfile import application_lock, in_use
from kstate_cli.change.place import check_change, check_place
from kstate_cli.change.plan import Plan
from kstate_cli.change.recover import recover, unfinished_runs
from kstate_cli.change.removal import remove_run
from kstate_cli.errors import RunHalfway
from kstate_cli.rocks.workers import Workers
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.scan import read_application
from kstate_cli.statedir.special import refuse_special
from kstate_cli.texts import command


@dataclass(frozen=True, slots=True)
class Request:
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
class Outcome:
    """The plan, and what became of it (None for a dry run, or when there was nothing to do)."""

    plan: Plan
    result: Result | None
    recovered: tuple[str, ...] = ()


def change(request: Request, *, on_plan: Callable[[Plan], None], progress: Progress) -> Outcome:
    """Carries the plan out, or only plans. ``on_plan`` sees the plan before anything is staged.

    Raises InUse, Refused, RunFailed and RunHalfway.
    """
    with Workers(request.run.workers) as workers:
        return _change(request, workers, on_plan, progress)


def _change(request: Request, workers: Workers, on_plan: Callable[[Plan], None], progress: Progress) -> Outcome:
    refuse_special(request.app)
    if request.dry_run:
        plan = _plan(request, workers, progress)
        on_plan(plan)
        unfinished = [run.name for run in unfinished_runs(request.app)]
        notes = tuple(
            f"run {name} is unfinished: the next command that changes something takes it over" for name in unfinished
        )
        return Outcome(plan, None, notes)
    check_place(request.app, lock_is_shared=request.lock_is_shared)
    if not (request.app / LOCK).exists():
        # Taking the lock would create the file: what is refused, or done already, must not leave even that.
        plan = _plan(request, workers, progress)
        if plan.empty:
            on_plan(plan)
            return Outcome(plan, None)
    with application_lock(request.app, request.wait):
        recovered = tuple(one.text for one in recover(request.app))
        plan = _plan(request, workers, progress)
        on_plan(plan)
        if plan.empty:
            return Outcome(plan, None, recovered)
        if request.last_word is not None:
            request.last_word()
        result = execute(plan, request.run, progress, workers=workers)
        if request.purge:
            _purge(plan, result)
        return Outcome(plan, result, recovered)


def _purge(plan: Plan, result: Result) -> None:
    """Deletes what the run has kept. Raises RunHalfway: the change itself is done."""
    note_commit(result.run, plan.app, kept=False)
    try:
        remove_run(next(run for run in read_runs(plan.app) if run.name == result.run))
    except OSError as error:
        raise RunHalfway(
            f"{plan.command} is done (run {result.run}), but what it took out could not be deleted: {error.strerror}",
            where=str(error.filename),
            hint=f"fix the cause, then go on with it: {command('clean', plan.app, '--run', result.run)}",
        ) from error
    remove_empty_folders(plan.app)


def _plan(request: Request, workers: Workers, progress: Progress) -> Plan:
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
