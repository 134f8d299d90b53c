"""``undo``: the same exchange, the other way, once what is put back is proved to be what was kept."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from kstate_cli.change.committed import note_commit
from kstate_cli.change.fingerprint import (
    KEPT_LIST,
    MADE_LIST,
    Listing,
    differences,
    differences_from,
    every_file,
    started_files,
)
from kstate_cli.change.folder import read_runs, understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, put_mark, remove_mark, remove_marks, token_of
from kstate_cli.change.system import exchange, sync_directory
from kstate_cli.change.who import who
from kstate_cli.errors import Refused, RunFailed, RunHalfway
from kstate_cli.signals import signals_held
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command, some

_NAMED = 3


def undo(app: Path, *, discard_newer: bool, reason: str | None = None) -> tuple[Run | None, str]:
    """Takes back the newest run that is kept. Returns the run and a message.

    Raises Refused where the kept directory is not what it was at the switch; and, unless ``discard_newer``, once
    Streams (or anybody) has changed APP since.
    """
    kept = [run for run in understood(read_runs(app)) if run.state is RunState.KEPT]
    if not kept:
        return None, "nothing to undo"
    run = kept[-1]
    _prove_kept(app, run)
    name = run.events[0]["command"]
    lost = not os.path.lexists(app)
    if not lost and not discard_newer:
        _refuse_newer(app, run)
    details: dict[str, Any] = {**who(), "reason": reason}
    with signals_held():
        (_put_back if lost else _switch_back)(app, run, details)
    if lost:
        return run, f"run {run.name} ({name}) is undone: {app} was lost, and is there again"
    return run, f"run {run.name} ({name}) is undone"


def _prove_kept(app: Path, run: Run) -> None:
    """Raises Refused unless the kept tree is, file by file, the directory that the run found."""
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise Refused(
            f"run {run.name} has not kept the directory that it found: {run.tree} is no directory",
            hint=f"something else has removed or replaced it; look at {run.path}",
            hint_details=[f"to give the run up: {command('clean', app, '--run', run.name)}"],
        )
    if token_of(run.tree, STAGED) is not None:
        raise Refused(
            f"{run.tree} is marked as staged: it never was {app}", hint=f"look at {run.path}; move it elsewhere"
        )
    wanted = run.last("switching").get("kept")
    if not isinstance(wanted, str):
        _prove_readable(app, run)
        return
    try:
        changed = differences_from(run.path / KEPT_LIST, wanted, every_file(run.tree))
    except OSError as error:
        raise Refused(
            f"{error.filename or run.tree} cannot be read: {error.strerror}", hint="run as the application's user"
        ) from None
    if changed:
        raise Refused(
            f"what run {run.name} has kept is not what it was: {some(changed, _NAMED)}",
            where=str(run.tree),
            hint=f"{app} stays as it is: undo would put a damaged directory in its place",
            hint_details=[
                f"put back what is missing in {run.tree}",
                f"or give it up: {command('clean', app, '--run', run.name)}",
            ],
        )


def _prove_readable(app: Path, run: Run) -> None:
    """An older kstate kept no list of files: at least everything in the tree must be understood. Raises Refused."""
    wrong = [one for one in read_application(run.tree).all_problems() if one.fatal]
    if wrong:
        raise Refused(
            f"what run {run.name} has kept cannot be put back: {wrong[0].where}: {wrong[0].what}",
            where=str(run.tree),
            hint=f"{app} stays as it is; look at {run.tree}",
            hint_details=[f"or give it up: {command('clean', app, '--run', run.name)}"],
        )


def _refuse_newer(app: Path, run: Run) -> None:
    details = run.last("switching")
    now = started_files(app)
    if isinstance(details.get("made"), str):
        changed = differences_from(run.path / MADE_LIST, details["made"], now)
    else:
        before: Listing = {path: facts[1:] for path, facts in details["fingerprint"].items()}
        changed = differences(before, now)
    if changed:
        raise Refused(
            f"{app} has changed since run {run.name}: {some(changed, _NAMED)}",
            hint="choose:",
            hint_details=_ways_on(app, run),
        )


def _ways_on(app: Path, run: Run) -> list[str]:
    aside = f"to put it aside: {command('undo', app, '--discard-newer')}"
    created = run.events[0]
    if created.get("source") == created.get("target"):
        return [aside]
    back = command("migrate", app, "--to", str(created.get("source", "RELEASE")))
    return [f"to keep what was done since: {back}", aside]


def _announce(app: Path, run: Run, details: dict[str, Any]) -> None:
    """Marks what goes back, then says so. What is put aside must not look as if it had only been staged."""
    if os.path.lexists(app):
        remove_marks(app)
        share_lock(app, run.tree)
    # One that an interrupted undo has left, or somebody: it says nothing of this one.
    if not (run.tree / UNDOING).is_dir() or (run.tree / UNDOING).is_symlink():
        remove_mark(run.tree, UNDOING)
    token = run.token
    if token is not None:
        put_mark(run.tree, UNDOING, token)
    run.write("undoing", **details)


def _switch_back(app: Path, run: Run, details: dict[str, Any]) -> None:
    try:
        _announce(app, run, details)
        exchange(app, run.tree)
        note_commit(run.name, app, undone=True)
    except OSError as error:
        raise _cancelled(app, run, error) from error
    _record(app, run)


def _put_back(app: Path, run: Run, details: dict[str, Any]) -> None:
    """Where the application directory is lost, what was kept only has to be renamed."""
    try:
        _announce(app, run, details)
        os.rename(run.tree, app)
        note_commit(run.name, app, undone=True)
    except OSError as error:
        raise _cancelled(app, run, error) from error
    _record(app, run)


def _cancelled(app: Path, run: Run, error: OSError) -> RunFailed:
    """Takes the announcement back; where that fails too, the next command does it."""
    with contextlib.suppress(OSError):
        if run.state is RunState.UNDOING:
            run.write("undo-cancelled")
        remove_mark(run.tree, UNDOING)
    where = f" ({error.filename})" if error.filename else ""
    return RunFailed(
        f"undo failed: {error.strerror}{where}",
        where=str(app),
        hint=f"{app} is as it was; fix the cause, then: {command('undo', app)}",
    )


def _record(app: Path, run: Run) -> None:
    try:
        sync_directory(app.parent)
        sync_directory(run.path)
        run.write("undone")
    except OSError as error:
        raise RunHalfway(
            f"{app} is the old directory again, but that could not be recorded: {error}",
            hint=f"fix the disk; to finish the undo: {command('undo', app)}",
        ) from error
    with contextlib.suppress(OSError):
        remove_mark(app, UNDOING)
