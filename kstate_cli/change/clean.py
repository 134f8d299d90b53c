"""Choose the runs that ``clean`` may delete, and delete them. It runs from cron: a doubtful run is retained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from kstate_cli import clock, option
from kstate_cli.change.engine import pinned_bytes
from kstate_cli.change.folder import forget, read_runs, require_understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.lost import lost_copies, only_copy
from kstate_cli.change.removal import refuse_foreign, refuse_unproved, remove_run, remove_staged
from kstate_cli.change.standby import STANDBY_EVENT
from kstate_cli.clock import duration_text
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, RunHalfway, UsageError, note
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion, moment

PRECIOUS_EVENT: Final = "precious"
"""Event of a run whose backup may be the only copy of records that a log has lost: deleted only by name."""

_INTERRUPTED: Final = "was interrupted"
_MAY_RUN: Final = "is in progress or was interrupted"
"""Without the lock kstate cannot distinguish an interrupted run from one that is in progress."""
_GO_ON: Final = "You can no longer undo this run. To continue the deletion"
"""The beginning of the hint for a run that is partially deleted. The command follows it."""


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """The runs to delete."""

    app: Path
    older_than: timedelta
    names: frozenset[str] = frozenset()
    """Only these runs, whatever their age and backup; if empty, every run that is old enough."""


@dataclass(frozen=True, slots=True)
class RetainedRun:
    """A run that is not deleted although it is old enough, and why."""

    run: str
    why: str

    @property
    def text(self) -> str:
        """Return a line for the user."""
        return f"kstate keeps run {self.run}: {self.why}"


@dataclass(slots=True)
class Choice:
    """The runs that may be deleted, oldest first, the retained ones, and those that are too young."""

    runs: list[Run] = field(default_factory=list)
    retained: list[RetainedRun] = field(default_factory=list)
    young: list[RetainedRun] = field(default_factory=list)
    """Runs that ended more recently than requested, or in the future by the clock of this host."""


def choose(request: CleanRequest, *, locked: bool = True) -> Choice:
    """Choose the runs that may be deleted.

    ``locked`` states whether this process holds the application lock. If it does not, an unfinished run may be in
    progress, and the reasons say so.

    Raise Refused for a run that kstate does not understand, and for one whose backup is the only copy of an application
    directory that was lost. Raise UsageError for an unknown name.
    """
    runs = require_understood(read_runs(request.app))
    unknown = request.names - {run.name for run in runs}
    if unknown:
        raise UsageError(
            f"run {', '.join(sorted(unknown))} does not exist",
            hint=hint_with_suggestion(
                did_you_mean(sorted(unknown), {run.name for run in runs}),
                f"to list the runs, run {command('status', request.app)}",
            ),
        )
    choice = _chosen_by_name(request, runs, locked=locked) if request.names else _chosen_by_age(request, runs, locked)
    # Checked for runs that the user names too: the user may not know that the application directory was
    # removed since.
    _refuse_only_copy(request, choice)
    return choice


def _chosen_by_name(request: CleanRequest, runs: Sequence[Run], *, locked: bool) -> Choice:
    """Return the requested runs. Raise Refused for one that may not be deleted.

    A user who names a run no longer needs its backup, so only an unfinished switch or undo prevents the deletion.
    """
    choice = Choice()
    for run in runs:
        if run.name not in request.names:
            continue
        why = _why_unsettled(request.app, run, locked=locked)
        if why is not None:
            raise Refused(f"kstate does not delete run {run.name}: {why}", where=str(run.path))
        choice.runs.append(run)
    return choice


def _chosen_by_age(request: CleanRequest, runs: Sequence[Run], locked: bool) -> Choice:
    """Return the runs that are old enough, and those of them that are retained."""
    # The limit is computed once: otherwise a run that was too young could become old enough during a long scan.
    limit = clock.now() - request.older_than
    choice = Choice()
    lost = {copy.run.name: copy.sentences for copy in lost_copies(request.app, runs)}
    for run in runs:
        # A partially deleted run is of no use, so its age does not matter. A run without events was killed at its
        # start.
        is_young = run.events and run.state is not RunState.CLEANING
        why = _why_unsettled(request.app, run, locked=locked)
        why = why or _why_precious(request.app, run, locked=locked) or lost.get(run.name)
        if is_young and datetime.fromisoformat(run.settled_at) > limit:
            # A run that its age alone does not delete has a reason of its own, which names what would be lost.
            choice.young.append(RetainedRun(run.name, why or _why_young(request, run)))
        elif why is None:
            choice.runs.append(run)
        else:
            choice.retained.append(RetainedRun(run.name, why))
    return choice


def _why_young(request: CleanRequest, run: Run) -> str:
    """Return why the age of a run prevents its deletion."""
    ended = datetime.fromisoformat(run.settled_at)
    text = f"it ended at {moment(round(ended.timestamp() * 1000))}"
    if ended <= clock.now():
        return f"{text}, less than {duration_text(request.older_than.total_seconds())} ago"
    # A clock that was set back: without this reason, nothing would explain why clean deletes no run.
    way = f"To delete it now: {_by_name(request.app, run)}"
    return f"{text}, which is in the future according to this host's clock. {way}"


def _why_unsettled(app: Path, run: Run, *, locked: bool) -> str | None:
    """Return why a run must not be deleted, even by its name: its switch or undo is unfinished. None if it may be."""
    interrupted = _INTERRUPTED if locked else _MAY_RUN
    if run.state is RunState.SWITCHING:
        return (
            f"the run {interrupted} while it was swapping the directories. The next command that changes the directory "
            f"completes or removes this run. To complete and undo it now, run {command('undo', app)}"
        )
    if run.state is RunState.UNDOING:
        return f"the run {interrupted} during its undo. To complete the undo, run {command('undo', app)}"
    return None


def _why_precious(app: Path, run: Run, *, locked: bool) -> str | None:
    """Return why only its name may delete a run; None if its age may too.

    The next command may still continue or remove the run, or its backup may be the only copy of records.
    """
    interrupted = _INTERRUPTED if locked else _MAY_RUN
    if run.state is RunState.STAGING:
        return (
            f"the run {interrupted}. The next command that changes the directory continues or removes it. To delete "
            f"it, run {_by_name(app, run)}"
        )
    if run.last(PRECIOUS_EVENT):
        return (
            f"{run.last(PRECIOUS_EVENT).get('why', 'the backup may be the only copy of a store')}. To delete the run: "
            f"{_by_name(app, run)}"
        )
    return None


def _by_name(app: Path, run: Run) -> str:
    return command("clean", app, option.RUN, run.name)


def _refuse_only_copy(request: CleanRequest, choice: Choice) -> None:
    """Raise Refused if APP is missing, and one of the chosen runs has the only copy of it."""
    copy = only_copy(request.app, choice.runs)
    if copy is not None:
        raise Refused(copy.text, hint="to restore the backup, run:", hint_details=[copy.back])


def clean_runs(
    request: CleanRequest, choice: Choice, elsewhere: Callable[[Run], bool] = lambda _: False
) -> Iterator[tuple[str, int]]:
    """Delete the runs, and yield each run's name and the bytes that it freed. The caller holds the application lock.

    ``elsewhere`` removes files of a run in other places, and returns whether there were any. If it raises KstateError,
    the run stays.

    An error of one run does not stop the others: it is raised at the end, with the full path. If a run was deleted
    before, the error becomes RunHalfway, because other errors promise that nothing has changed.
    """
    failed: list[tuple[Run, OSError]] = []
    partial: set[str] = set()
    refusals: list[KstateError] = []
    deleted: list[str] = []
    for run in choice.runs:
        freed = pinned_bytes(run)
        whole = run.state in (RunState.KEPT, RunState.UNDONE)
        # After an error the names that remain show whether anything was deleted: the message then differs.
        names = set(os.listdir(run.path))
        try:
            _refuse(request.app, run)
            # Files in other places are removed first: only the journal, which is deleted with the run, names these
            # places.
            whole = not elsewhere(run) and whole
            with note_half_deletion(request.app, run):
                _delete(request.app, run)
        except OSError as error:
            failed.append((run, error))
            if not whole or names - set(os.listdir(run.path)):
                partial.add(run.name)
        except KstateError as error:
            refusals.append(error)
        else:
            deleted.append(run.name)
            yield run.name, freed
    if failed:
        ended = _not_deleted(request.app, failed, partial)
        ended.add_details(error.headline for error in refusals)
        raise _halfway(ended, deleted) from failed[0][1]
    if refusals:
        refusals[0].add_details(error.headline for error in refusals[1:])
        raise _halfway(refusals[0], deleted)


def _not_deleted(app: Path, failed: list[tuple[Run, OSError]], partial: set[str]) -> KstateError:
    """Return the error for runs that could not be deleted; a part of those in ``partial`` was removed."""
    # The message names one run. A partially deleted one comes first, since kstate can no longer undo it.
    run, first = min(failed, key=lambda failure: failure[0].state is not RunState.CLEANING)
    others = [f"run {other.name}: {error.strerror} ({error.filename})" for other, error in failed if other is not run]
    if run.state is RunState.CLEANING:
        return RunHalfway(
            f"kstate could not completely delete run {run.name}: {first.strerror}",
            where=str(first.filename),
            details=others,
            hint=f"fix the cause. {_GO_ON}, run {_by_name(app, run)}",
        )
    rest = "the run is unchanged"
    if run.name in partial:
        rest = "part of this run may already have been deleted"
    return RunFailed(
        f"kstate could not delete run {run.name}: {first.strerror}",
        where=str(first.filename),
        details=others,
        hint=f"{rest}. Fix the cause, then run {_by_name(app, run)}",
    )


def _halfway(error: KstateError, deleted: list[str]) -> KstateError:
    """Return the error itself, or RunHalfway if other runs are deleted already."""
    if not deleted or isinstance(error, RunHalfway):
        return error
    halfway = RunHalfway(
        error.headline,
        where=error.where,
        details=(*error.details, f"kstate deleted these runs before it failed: {', '.join(deleted)}"),
        hint=error.hint,
        hint_details=error.hint_details,
    )
    halfway.__cause__ = error
    return halfway


@contextmanager
def note_half_deletion(app: Path, run: Run) -> Iterator[None]:
    """If a signal interrupts the block, add to its error that ``run`` is partially deleted, and how to continue."""
    try:
        yield
    except Interrupted as error:
        if run.state is RunState.CLEANING:
            note(error, f"run {run.name} is partially deleted. {_GO_ON}, run {_by_name(app, run)}")
        raise


def _refuse(app: Path, run: Run) -> None:
    """Raise Refused if a run may not be deleted. Called before any of its files is deleted, in any place."""
    refuse_foreign(run)
    if run.state is RunState.STAGING:
        refuse_unproved(app, run)


def _delete(app: Path, run: Run) -> None:
    """Delete the files and the journal of a run. The order depends on its state. Raise OSError and Refused."""
    if run.state is None:
        forget(app, run)
        return
    if run.state is RunState.STAGING:
        remove_staged(app, run)
    remove_run(run)


def drop_earlier_rounds(app: Path, newest: str) -> list[str]:
    """Delete the backups of earlier rounds of a standby. Return the texts of the failures.

    A round is a run that creates a standby or catches it up; ``newest`` is the name of the last one. The caller holds
    the application lock. Each backup is the standby before a round that has caught it up, so it is not the only copy. A
    run whose backup may have the only copy of records stays: it is deleted only by name.
    """
    failures = []
    for run in read_runs(app):
        # A damaged run may have any contents. An undone one has the directory that the user has put aside.
        earlier = run.name != newest and run.damage is None and run.state is RunState.KEPT
        if not earlier or not run.last(STANDBY_EVENT) or run.last(PRECIOUS_EVENT):
            continue
        try:
            remove_run(run)
        except (OSError, Refused) as error:
            failures.append(f"kstate could not delete run {run.name}: {error}")
    return failures
