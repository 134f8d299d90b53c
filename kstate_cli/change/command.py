"""A change that is all in its plan, as ``migrate`` and ``wipe`` make: the course, the engine, and what is purged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kstate_cli.change.clean import half_deleted_is_said
from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.course import Course, Tell, Terms, follow
from kstate_cli.change.engine import Progress, RunResult, execute
from kstate_cli.change.folder import read_runs, remove_empty_folders
from kstate_cli.change.plan import Plan
from kstate_cli.change.removal import remove_run
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.parallel.workers import Workers
from kstate_cli.statedir.model import Application
from kstate_cli.texts import command


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What is to be done, and how."""

    terms: Terms
    planner: Callable[[Application], Plan]
    """Raises Refused and UsageError."""
    purge: bool = False
    """Delete what would be kept for undo."""
    last_word: Callable[[], None] | None = None
    """Called under the lock before anything is staged; raises Refused."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The plan, and what became of it (None for a dry run, or when there was nothing to do)."""

    plan: Plan
    result: RunResult | None


@dataclass(frozen=True, slots=True)
class _Planned:
    change: Plan


def change(request: ChangeRequest, *, on_plan: Callable[[Plan], None], progress: Progress, tell: Tell) -> ChangeOutcome:
    """Carries the plan out, or only plans: ``follow`` says in which order, and what ``on_plan`` and ``tell`` are told.

    Raises InUse, Refused, RunFailed and RunHalfway.
    """

    def plan(application: Application | None) -> _Planned:
        assert application is not None, "no terms let it be lost"
        return _Planned(request.planner(application))

    def carry_out(planned: _Planned) -> RunResult:
        if request.last_word is not None:
            request.last_word()
        result = execute(planned.change, request.terms.run, progress, workers=workers)
        if request.purge:
            _purge(planned.change, result)
        return result

    with Workers(request.terms.run.workers) as workers:
        course = Course(plan, lambda planned: on_plan(planned.change), carry_out, tell, progress, workers)
        planned, result = follow(course, request.terms)
    return ChangeOutcome(planned.change, result)


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
