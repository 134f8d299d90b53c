"""The one course of every command that changes a directory by a plan: lock, take over, read, plan, check, carry out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kstate_cli.change.access import own_like
from kstate_cli.change.clean import half_deleted_is_said
from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.engine import Progress, RunOptions, RunResult, execute
from kstate_cli.change.folder import read_runs, remove_empty_folders
from kstate_cli.change.location_checks import check_change, check_location
from kstate_cli.change.lockfile import application_lock, in_use
from kstate_cli.change.plan import Plan
from kstate_cli.change.recover import recover, tell_unfinished, unfinished_runs
from kstate_cli.change.removal import remove_run
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.parallel.workers import Workers
from kstate_cli.statedir.entries import refuse_special
from kstate_cli.statedir.locks import read_lock_table
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command

Tell = Callable[[str], None]
"""Says one line to the user, at once."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Which directory a command changes, and on which terms."""

    app: Path
    run: RunOptions
    wait: float = 0.0
    """Seconds to wait for the lock."""
    lock_is_shared: bool = False
    dry_run: bool = False
    may_be_lost: bool = False
    """APP may not be there: it is made anew, empty, before it is locked; gone again where what follows fails."""


class HasPlan(Protocol):
    """What a command plans: the plan of the engine, and what only the command knows."""

    @property
    def change(self) -> Plan:
        """What the engine carries out."""


Planned = TypeVar("Planned", bound=HasPlan)
Done = TypeVar("Done", covariant=True)


@dataclass(frozen=True, slots=True)
class Course(Generic[Planned, Done]):
    """What differs between one command and another on the way."""

    plan: Callable[[Application | None], Planned]
    """Of APP as it is; None where it is not there. Called a second time once the lock is held. Raises Refused and
    UsageError."""
    on_plan: Callable[[Planned], None]
    """Sees the plan, an empty one too, before anything is staged."""
    carry_out: Callable[[Planned], Done]
    """Called under the lock with a plan that is not empty."""
    tell: Tell
    """Hears what has become of runs that others had left unfinished: before what comes next can fail."""
    progress: Progress
    workers: Workers | int
    """They read the databases."""


def follow(course: Course[Planned, Done], terms: Terms) -> tuple[Planned, Done | None]:
    """The plan, and what came of it: None for a dry run, or when there was nothing to do.

    A dry run takes no lock and goes on beside a running application, as of its last flush.

    Raises InUse and Refused before anything is changed, and whatever planning and carrying out raise.
    """
    refuse_special(terms.app)
    if terms.dry_run:
        _refuse_half_changed(terms)
        planned = _plan(course, terms)
        course.on_plan(planned)
        if not read_lock_table().is_locked(terms.app / LOCK):
            tell_unfinished(terms.app, course.tell)
        return planned, None
    check_location(terms.app, lock_is_shared=terms.lock_is_shared)
    if not (terms.app / LOCK).exists():
        # Taking the lock would create the file: what is refused, or done already, must not leave even that.
        planned = _plan(course, terms)
        if planned.change.empty:
            course.on_plan(planned)
            return planned, None
    made = make_where_lost(terms.app, terms.wait, course.tell) if terms.may_be_lost else None
    with ExitStack() as held:
        try:
            held.enter_context(application_lock(terms.app, terms.wait))
        except BaseException:
            if made is not None:
                remove_empty(terms.app, made)
            raise
        try:
            recover(terms.app, course.tell)
            planned = _plan(course, terms)
            course.on_plan(planned)
            return planned, None if planned.change.empty else course.carry_out(planned)
        except BaseException:
            if made is not None:
                unmake(terms.app, made)
            raise


def _refuse_half_changed(terms: Terms) -> None:
    """Beside a running application a plan can be made, beside a command that is changing the directory it cannot.

    Raises InUse.
    """
    table = read_lock_table()
    if table.is_locked(terms.app / LOCK) and unfinished_runs(terms.app):
        raise in_use(terms.app, table.holder(terms.app / LOCK))


def _plan(course: Course[Planned, Done], terms: Terms) -> Planned:
    application = _read(course, terms)
    planned = course.plan(application)
    if application is not None and not planned.change.empty:
        check_change(
            planned.change,
            workers=terms.run.workers,
            copy_ssts=terms.run.copy_ssts,
            lock_is_shared=terms.lock_is_shared,
        )
    return planned


def _read(course: Course[Planned, Done], terms: Terms) -> Application | None:
    if terms.may_be_lost and not terms.app.exists():
        return None
    application = read_application(
        terms.app, workers=course.workers, on_store=lambda name: course.progress("read", name, 0)
    )
    if application.running and not terms.dry_run:
        raise in_use(application.path, application.pid)
    return application


def make_where_lost(app: Path, wait: float, tell: Callable[[str], None]) -> int | None:
    """The inode of the directory that is made where it is lost; None where it is there.

    Unfinished runs are taken over first, and it is made under the lock of the lost: an empty directory would make what
    a run has of the application look like something beside it, and an undo may be about to put it back.

    Raises InUse and Refused.
    """
    if os.path.lexists(app):
        return None
    if not read_runs(app):
        return _make(app)
    with application_lock(app, wait):
        recover(app, tell)
        return None if os.path.lexists(app) else _make(app)


def remove_empty(app: Path, made: int) -> None:
    """Removes the directory of that inode, if it is still that one and empty. For who could not lock it."""
    with contextlib.suppress(OSError):
        if app.stat().st_ino == made:
            app.rmdir()


def unmake(app: Path, made: int) -> None:
    """Removes the directory of that inode, if it is still that one and nobody has put anything into it.

    The lock is held: nobody else's lock file goes with it.
    """
    with contextlib.suppress(OSError):
        if app.stat().st_ino == made and set(os.listdir(app)) <= {LOCK}:
            (app / LOCK).unlink(missing_ok=True)
            remove_empty(app, made)


def _make(app: Path) -> int:
    """An empty application directory as ``StateDirectory`` makes it: rwxr-x---, of the state.dir's owner.

    Returns its inode: after a switch another directory has its name.
    """
    app.mkdir(mode=0o750)
    own_like(app, app.parent.stat())
    return app.stat().st_ino


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
