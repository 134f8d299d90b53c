"""Takes over runs whose process died: before the switch they are swept away, after it they are finished."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kstate_cli.change.journal import RUNS, Run, RunState, read_runs, remove_empty_folders
from kstate_cli.change.system import sync_directory
from kstate_cli.errors import Refused

UNFINISHED = (None, RunState.STAGING, RunState.SWITCHING, RunState.UNDOING, RunState.CLEANING)


def unfinished_runs(app: Path) -> list[Run]:
    """Runs that ended in the middle (the caller knows that nobody holds the lock)."""
    return [run for run in read_runs(app) if run.state in UNFINISHED]


def recover(app: Path) -> list[str]:
    """Brings every unfinished run to an end; the lock is held. Returns what was done, for messages.

    Raises OSError where the disk still fails, Refused where neither of the run's two directories is in place.
    """
    done = []
    for run in unfinished_runs(app):
        if run.state is None:
            shutil.rmtree(run.path)
            sync_directory(run.path.parent)
            remove_empty_folders(app)
            continue
        if run.state is RunState.CLEANING:
            remove_run(run)
            done.append(f"run {run.name} was being cleaned: finished")
        elif run.state is RunState.STAGING:
            sweep(app, run, "interrupted before the switch", keep_runs=True)
            done.append(f"run {run.name} was interrupted before its switch: swept away, nothing had changed")
        else:
            done.append(_settle(app, run))
    return done


def _settle(app: Path, run: Run) -> str:
    """An announced exchange: the inode of APP tells whether it happened."""
    details = run.last("switching")
    here = inode(app)
    if here is None and run.state is RunState.UNDOING:
        run.write("undo-cancelled")
        return f"the undo of run {run.name} was interrupted before its switch: nothing had changed"
    if here not in (details["old_inode"], details["new_inode"]):
        raise Refused(
            f"{app} is neither the directory that run {run.name} found nor the one it made",
            hint=f"it was replaced from elsewhere; look at {run.path}, then remove that folder",
        )
    sync_directory(app.parent)
    sync_directory(run.path)
    switched = here == details["new_inode"]
    if run.state is RunState.SWITCHING:
        if switched:
            run.write("switched", recovered=True)
            return f"run {run.name} was interrupted after its switch: finished"
        sweep(app, run, "interrupted before the switch")
        return f"run {run.name} was interrupted before its switch: swept away, nothing had changed"
    if switched:
        run.write("undo-cancelled")
        return f"the undo of run {run.name} was interrupted before its switch: nothing had changed"
    run.write("undone", recovered=True)
    return f"the undo of run {run.name} was interrupted after its switch: finished"


def inode(app: Path) -> int | None:
    """Which directory has the application's name; None where it is lost."""
    try:
        return app.stat().st_ino
    except FileNotFoundError:
        return None


def sweep(app: Path, run: Run, why: str, *, keep_runs: bool = False) -> None:
    """Removes what a run has staged (never switched in) and says so in its journal.

    With ``keep_runs`` the sorted runs stay for the one that resumes it.

    Whatever led here: once APP is the directory that the run has made, ``tree`` is the only copy of the old one.
    """
    made = run.last("switching").get("new_inode")
    if made is not None and inode(app) == made:
        return
    for staged in (run.tree, run.path / RUNS):
        if staged.exists() and not (keep_runs and staged.name == RUNS):
            shutil.rmtree(staged)
    run.write("failed", why=why)


def remove_run(run: Run) -> None:
    """Deletes a run with what it kept. The journal says so first: half a directory must never be undone to."""
    if run.state is not RunState.CLEANING:
        run.write("cleaning")
    for kept in (run.tree, run.path / RUNS):
        if kept.exists():
            shutil.rmtree(kept)
    for name in os.listdir(run.path):
        os.unlink(run.path / name)
    run.path.rmdir()
    sync_directory(run.path.parent)
