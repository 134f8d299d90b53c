"""The course of every command that changes a directory by a plan: lock, recover, read, plan, check, carry out.

The order matters. The lock comes first, so that nothing that is read afterwards can change. Unfinished runs are settled
next (:func:`~kstate_cli.change.commit.recover`), since a plan must start from a whole directory. Then the directory is
read again, even if it was read without the lock before, and the file system is checked for this very plan. Only
``carry_out`` writes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kstate_cli import option
from kstate_cli.change import nofollow
from kstate_cli.change.access import own_like
from kstate_cli.change.clean import note_half_deletion
from kstate_cli.change.commit import notify_of_unfinished, recover, unfinished_runs
from kstate_cli.change.commits_made import note_commit
from kstate_cli.change.engine import Progress, RunOptions, RunResult, execute
from kstate_cli.change.folder import read_runs, remove_empty_folders
from kstate_cli.change.lockfile import application_lock, check_change, check_location, in_use
from kstate_cli.change.plan import Plan
from kstate_cli.change.removal import remove_run
from kstate_cli.errors import Refused, RunHalfway
from kstate_cli.parallel import Workers
from kstate_cli.statedir.entries import refuse_special
from kstate_cli.statedir.locks import read_lock_table
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command

Notify = Callable[[str], None]
"""Prints a line to the user, at once."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The directory that a command changes, and its conditions."""

    app: Path
    run: RunOptions
    wait: float = 0.0
    """Seconds to wait for the lock."""
    lock_is_shared: bool = False
    dry_run: bool = False
    may_be_lost: bool = False
    """APP may be missing: it is created, empty, before it is locked, and removed again if the command fails."""


class HasPlan(Protocol):
    """The plan of a command: that of the engine, and facts of the command."""

    @property
    def change(self) -> Plan:
        """Return the plan for the engine."""


Planned = TypeVar("Planned", bound=HasPlan)
Outcome = TypeVar("Outcome", covariant=True)


@dataclass(frozen=True, slots=True)
class Course(Generic[Planned, Outcome]):
    """The parts of the course that differ between commands."""

    plan: Callable[[Application | None], Planned]
    """Plans for APP; None if APP is missing. Called again once the lock is held. Raises Refused and UsageError."""
    on_plan: Callable[[Planned], None]
    """Receives the plan, even an empty one, before anything is staged."""
    carry_out: Callable[[Planned], Outcome]
    """Called under the lock with a plan that is not empty."""
    notify: Notify
    """Prints how unfinished runs were settled, before a later step can fail."""
    progress: Progress
    workers: Workers | int
    """Processes that read the databases."""


def follow(course: Course[Planned, Outcome], terms: Terms) -> tuple[Planned, Outcome | None]:
    """Plan and carry out. Return the plan and the outcome: None for a dry run, or if there was nothing to do.

    A dry run takes no lock. It works while the application is running, and sees the state as of its last flush.

    Raise InUse and Refused before anything is changed, and the errors of planning and carrying out.
    """
    # Checked first: a FIFO or a device among the files could block every later reader.
    refuse_special(terms.app)
    if terms.dry_run:
        # Without a lock, kstate could read a directory that another command is changing, and print a plan that never
        # runs.
        _refuse_half_changed(terms)
        planned = _plan(course, terms)
        course.on_plan(planned)
        if not read_lock_table().is_locked(terms.app / LOCK):
            notify_of_unfinished(terms.app, course.notify)
        return planned, None
    check_location(terms.app, lock_is_shared=terms.lock_is_shared)
    if not (terms.app / LOCK).exists():
        # Taking the lock would create the lock file. So an empty plan ends here, and a refused one raises here, without
        # it.
        planned = _plan(course, terms)
        if planned.change.empty:
            course.on_plan(planned)
            return planned, None
    new_inode: int | None = None
    if terms.may_be_lost:
        new_inode = make_where_lost(terms.app, terms.wait, course.notify)
    with ExitStack() as locks:
        try:
            locks.enter_context(application_lock(terms.app, terms.wait))
        except BaseException:
            if new_inode is not None:
                # This command did not get the lock, so another process may have begun to use the directory: it is
                # removed only if it is empty.
                remove_empty(terms.app, new_inode)
            raise
        try:
            recover(terms.app, course.notify)
            # Planned again under the lock: the directory may have changed since the first plan.
            planned = _plan(course, terms)
            course.on_plan(planned)
            if planned.change.empty:
                return planned, None
            return planned, course.carry_out(planned)
        except BaseException:
            if new_inode is not None:
                unmake(terms.app, new_inode)
            raise


def _refuse_half_changed(terms: Terms) -> None:
    """Raise InUse if another command is changing the directory: a dry run has no lock against it.

    A running application is no obstacle: it has no unfinished run.
    """
    table = read_lock_table()
    if table.is_locked(terms.app / LOCK) and unfinished_runs(terms.app):
        raise in_use(terms.app, table.holder(terms.app / LOCK))


def _plan(course: Course[Planned, Outcome], terms: Terms) -> Planned:
    """Read the directory and plan. Raise Refused if the plan needs something that the file system does not have."""
    application = _read(course, terms)
    planned = course.plan(application)
    # An empty plan writes nothing, so it needs neither free space nor rights: a read-only directory is no error then.
    if application is not None and not planned.change.empty:
        check_change(
            planned.change,
            workers=terms.run.workers,
            copy_ssts=terms.run.copy_ssts,
            lock_is_shared=terms.lock_is_shared,
        )
    return planned


def _read(course: Course[Planned, Outcome], terms: Terms) -> Application | None:
    """Read the application; None if APP is missing and may be. Raise InUse if Streams has a store open."""
    if terms.may_be_lost and not terms.app.exists():
        return None
    application = read_application(
        terms.app, workers=course.workers, on_store=lambda name: course.progress("read", name, 0)
    )
    # The application lock is held, but a program other than Streams (such as ldb) may hold the LOCK of a store.
    if application.running and not terms.dry_run:
        raise in_use(application.path, application.pid)
    return application


def make_where_lost(app: Path, wait: float, notify: Callable[[str], None]) -> int | None:
    """Create a missing application directory, empty, and return its inode; None if it exists.

    Unfinished runs are settled before that, and the lock of the missing application is held meanwhile. Otherwise the
    new directory would hide that a run has the only copy of the lost one, or get in the way of an undo.

    Raise InUse and Refused.
    """
    if os.path.lexists(app):
        return None
    if not read_runs(app):
        return _make(app)
    with application_lock(app, wait):
        recover(app, notify)
        # Recovery may have restored the directory. It is not a new one then, so the caller must never remove it.
        if os.path.lexists(app):
            return None
        return _make(app)


def remove_empty(app: Path, inode: int) -> None:
    """Remove the directory with that inode if it still has its name and is empty.

    A command calls this if it could not lock the directory.
    """
    with contextlib.suppress(OSError):
        if app.stat().st_ino == inode:
            nofollow.rmdir(app)


def unmake(app: Path, inode: int) -> None:
    """Remove the directory with that inode, if it still has its name and contains at most the lock file.

    The lock is held, so the lock file is not in use by another process.
    """
    with contextlib.suppress(OSError):
        if app.stat().st_ino == inode and set(os.listdir(app)) <= {LOCK}:
            nofollow.unlink(app / LOCK, missing_ok=True)
            remove_empty(app, inode)


def _make(app: Path) -> int:
    """Create an application directory as ``StateDirectory`` does: rwxr-x---, with the owner of the state.dir.

    Return its inode, which identifies it later: after a switch another directory has its name.
    """
    nofollow.mkdir(app, 0o750)
    own_like(app, nofollow.stat(app.parent))
    return nofollow.stat(app).st_ino


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A change whose plan is complete before its run, as that of ``migrate`` and ``wipe``."""

    terms: Terms
    planner: Callable[[Application], Plan]
    """Raises Refused and UsageError."""
    purge: bool = False
    """Delete the backup for undo at once."""
    last_word: Callable[[], None] | None = None
    """Called under the lock before anything is staged; raises Refused."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The plan and its result (None for a dry run, or if there was nothing to do)."""

    plan: Plan
    result: RunResult | None


@dataclass(frozen=True, slots=True)
class _Planned:
    change: Plan


def change(
    request: ChangeRequest, *, on_plan: Callable[[Plan], None], progress: Progress, notify: Notify
) -> ChangeOutcome:
    """Carry the plan out, or only plan, by the course of :func:`follow`.

    Raise InUse, Refused, RunFailed and RunHalfway.
    """

    def plan(application: Application | None) -> _Planned:
        assert application is not None, "no option permits losing it"
        return _Planned(request.planner(application))

    def carry_out(planned: _Planned) -> RunResult:
        if request.last_word is not None:
            request.last_word()
        result = execute(planned.change, request.terms.run, progress, workers=workers)
        if request.purge:
            # Reported as a phase of its own: a file system takes long to delete files of terabytes.
            progress("purge", str(request.terms.app), 0)
            _purge(planned.change, result)
        return result

    with Workers(request.terms.run.workers) as workers:
        course = Course(plan, lambda planned: on_plan(planned.change), carry_out, notify, progress, workers)
        planned, result = follow(course, request.terms)
    return ChangeOutcome(planned.change, result)


def _purge(plan: Plan, result: RunResult) -> None:
    """Delete the backup of the run. Raise RunHalfway: the change itself is done."""
    # Noted before the deletion begins: from here on no message may promise an undo.
    note_commit(result.run, plan.app, has_backup=False)
    run = next(run for run in read_runs(plan.app) if run.name == result.run)
    try:
        with note_half_deletion(plan.app, run):
            remove_run(run)
    except (OSError, Refused) as error:
        why, where = _headline(error)
        raise RunHalfway(
            f"{plan.command} is complete (run {result.run}), but kstate could not delete the removed files: {why}",
            where=str(where),
            hint=f"fix the cause. To continue the deletion, run {command('clean', plan.app, option.RUN, run.name)}",
        ) from error
    remove_empty_folders(plan.app)


def _headline(error: OSError | Refused) -> tuple[str | None, str | None]:
    """Return the text and the place of an error, for a message of kstate."""
    if isinstance(error, Refused):
        return error.headline, error.where
    return error.strerror, error.filename
