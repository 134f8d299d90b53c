"""Which runs ``clean`` may delete, and deleting them. It runs from cron: what is in doubt is left alone and said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from kstate_cli import clock
from kstate_cli.change.engine import pinned_bytes
from kstate_cli.change.folder import forget, read_runs, understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.lost import lost_copies, only_copy
from kstate_cli.change.removal import refuse_foreign, refuse_unproved, remove_run, remove_staged
from kstate_cli.change.standby import STANDBY_EVENT
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, RunHalfway, UsageError, note
from kstate_cli.texts import command, did_you_mean

PRECIOUS_EVENT: Final = "precious"
"""What the run has kept may be the only copy of records that a log has lost: deleted only when it is named."""

_GO_ON: Final = "there is no undo to it any more; to go on"


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """What is to be deleted."""

    app: Path
    older_than: timedelta
    names: frozenset[str] = frozenset()
    """Only these runs, however old and whatever they keep; all that are old enough when empty."""


@dataclass(frozen=True, slots=True)
class Left:
    """A run that is left although it is old enough, and why."""

    run: str
    why: str

    @property
    def text(self) -> str:
        """One line for the user."""
        return f"run {self.run} is left: {self.why}"


@dataclass(slots=True)
class Choice:
    """Runs that may be deleted, oldest first, and those that are left."""

    runs: list[Run] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def choose(request: CleanRequest, *, locked: bool = True) -> Choice:
    """What may be deleted. Without the lock a run that has not ended may be going on.

    Raises Refused for runs that are not understood whole and the only copy of a lost APP, UsageError for no run.
    """
    runs = understood(read_runs(request.app))
    unknown = request.names - {run.name for run in runs}
    if unknown:
        raise UsageError(
            f"there is no run {', '.join(sorted(unknown))}",
            hint=f"{did_you_mean(sorted(unknown), {run.name for run in runs})}"
            f"they are listed by {command('status', request.app)}",
        )
    limit = clock.now() - request.older_than
    choice = Choice()
    # Who names a run knows what it keeps.
    looked_at = () if request.names else runs
    lost = {one.run.name: one.sentences for one in lost_copies(request.app, looked_at)}
    for run in runs:
        named = run.name in request.names
        if request.names and not named:
            continue
        # What is half deleted already is of no use to anybody.
        if (
            not named
            and run.events
            and run.state is not RunState.CLEANING
            and datetime.fromisoformat(run.settled_at) > limit
        ):
            continue
        why = _why_left(request.app, run, named=named, locked=locked)
        if why is None:
            why = lost.get(run.name)
        if why is None:
            choice.runs.append(run)
        elif named:
            raise Refused(f"run {run.name} is not deleted: {why}", where=str(run.path))
        else:
            choice.left.append(Left(run.name, why))
    _refuse_only_copy(request, choice)
    return choice


def _why_left(app: Path, run: Run, *, named: bool, locked: bool) -> str | None:
    interrupted = "was interrupted" if locked else "is under way, or was interrupted"
    if run.state is RunState.SWITCHING:
        return (
            f"it {interrupted} at its switch, which the next command that changes the directory settles; to settle it "
            f"and take the run back: {command('undo', app)}"
        )
    if run.state is RunState.UNDOING:
        return f"it {interrupted} at its undo, which is finished by: {command('undo', app)}"
    if run.state is RunState.STAGING and not named:
        return f"it {interrupted}; the command that is run next takes it over. To delete it: {_by_name(app, run)}"
    if run.last(PRECIOUS_EVENT) and not named:
        return f"{run.last(PRECIOUS_EVENT).get('why', 'it is precious')}. To delete it: {_by_name(app, run)}"
    return None


def _by_name(app: Path, run: Run) -> str:
    return command("clean", app, "--run", run.name)


def _refuse_only_copy(request: CleanRequest, choice: Choice) -> None:
    copy = only_copy(request.app, choice.runs)
    if copy is not None:
        raise Refused(copy.text, hint="to put it back:", hint_details=[copy.back])


def clean_runs(
    request: CleanRequest, choice: Choice, elsewhere: Callable[[Run], bool] = lambda _: False
) -> Iterator[tuple[str, int]]:
    """Deletes; yields each run's name and the bytes that it freed. The lock is held.

    ``elsewhere`` removes what a run has left in other places, before the journal goes that alone knows of it, and
    returns whether there was anything; what it raises, KstateError, keeps the run.

    A run that cannot be deleted whole does not keep the others: its error is raised at the end, with the full path.
    Once any run is deleted, that is RunHalfway: no other class may be raised where something has changed.
    """
    failed: list[tuple[Run, OSError]] = []
    begun: set[str] = set()
    kept: list[KstateError] = []
    deleted: list[str] = []
    for run in choice.runs:
        freed = pinned_bytes(run)
        whole = run.state in (RunState.KEPT, RunState.UNDONE)
        names = set(os.listdir(run.path))
        try:
            _refuse(request.app, run)
            whole = not elsewhere(run) and whole
            with half_deleted_is_said(request.app, run):
                _delete(request.app, run)
        except OSError as error:
            failed.append((run, error))
            if not whole or names - set(os.listdir(run.path)):
                begun.add(run.name)
        except KstateError as error:
            kept.append(error)
        else:
            deleted.append(run.name)
            yield run.name, freed
    if failed:
        ended = _not_deleted(request.app, failed, begun)
        ended.add_details(error.headline for error in kept)
        raise _halfway(ended, deleted) from failed[0][1]
    if kept:
        kept[0].add_details(error.headline for error in kept[1:])
        raise _halfway(kept[0], deleted)


def _not_deleted(app: Path, failed: list[tuple[Run, OSError]], begun: set[str]) -> KstateError:
    """What is told of runs that the disk has kept; ``begun`` are those of which something is gone."""
    # One that is half deleted goes before one that is whole.
    run, first = min(failed, key=lambda one: one[0].state is not RunState.CLEANING)
    others = [f"run {one.name}: {error.strerror} ({error.filename})" for one, error in failed if one is not run]
    if run.state is RunState.CLEANING:
        return RunHalfway(
            f"run {run.name} could not be deleted whole: {first.strerror}",
            where=str(first.filename),
            details=others,
            hint=f"fix the cause; {_GO_ON}: {_by_name(app, run)}",
        )
    return RunFailed(
        f"run {run.name} could not be deleted: {first.strerror}",
        where=str(first.filename),
        details=others,
        hint=("part of it may be gone; " if run.name in begun else "it is as it was; ")
        + f"fix the cause, then: {_by_name(app, run)}",
    )


def _halfway(error: KstateError, deleted: list[str]) -> KstateError:
    """The error itself, or what it is once other runs are deleted."""
    if not deleted or isinstance(error, RunHalfway):
        return error
    halfway = RunHalfway(
        error.headline,
        where=error.where,
        details=(*error.details, f"deleted before it was met: {', '.join(deleted)}"),
        hint=error.hint,
        hint_details=error.hint_details,
    )
    halfway.__cause__ = error
    return halfway


@contextmanager
def half_deleted_is_said(app: Path, run: Run) -> Iterator[None]:
    """Says of a run that a signal has left half deleted what that means, and how its deletion goes on."""
    try:
        yield
    except Interrupted as error:
        if run.state is RunState.CLEANING:
            note(error, f"run {run.name} is half deleted: {_GO_ON}: {_by_name(app, run)}")
        raise


def _refuse(app: Path, run: Run) -> None:
    """Everything that keeps a run from being deleted, before anything of it is, here or elsewhere. Raises Refused."""
    refuse_foreign(run)
    if run.state is RunState.STAGING:
        refuse_unproved(app, run)


def _delete(app: Path, run: Run) -> None:
    if run.state is None:
        forget(app, run)
        return
    if run.state is RunState.STAGING:
        remove_staged(app, run)
    remove_run(run)


def drop_earlier_rounds(app: Path, newest: str) -> list[str]:
    """Deletes what rounds before the run ``newest`` have kept; the lock is held. Returns what could not be deleted.

    The directory that each of them kept was a standby that the next round has caught up: nobody's only copy. A run that
    keeps records which their log may have lost stays until somebody cleans it by its name.
    """
    left = []
    for run in read_runs(app):
        earlier = run.name != newest and run.damage is None and run.state is RunState.KEPT
        if not earlier or not run.last(STANDBY_EVENT) or run.last(PRECIOUS_EVENT):
            continue
        try:
            remove_run(run)
        except (OSError, Refused) as error:
            left.append(f"run {run.name} could not be deleted: {error}")
    return left
