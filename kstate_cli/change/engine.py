"""Carries out a plan: stage, verify, switch, keep. One ``renameat2(RENAME_EXCHANGE)`` is the commit.

Everything before it leaves the application directory as it was; after it the new one is in place, whole. The caller
holds the application lock all the while.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kstate_cli.change.fingerprint import differences, fingerprint
from kstate_cli.change.journal import RUNS, Run, RunState, create_run, read_runs, remove_empty_folders
from kstate_cli.change.plan import Plan, Step
from kstate_cli.change.recover import inode, sweep
from kstate_cli.change.stage import Counts, stage
from kstate_cli.change.system import exchange, signals_held, sync_directory, sync_file_system
from kstate_cli.change.verify import verify_staged
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, RunHalfway
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.workers import Workers
from kstate_cli.texts import command, some

_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY)
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to carry out a plan."""

    workers: int
    verify_full: bool = False
    copy_ssts: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did."""

    run: str
    headers_dropped: int
    rows_converted: int


Progress = Callable[[str, str, int], None]
"""Called with a phase, a path and the bytes of SSTs written there."""
Prepare = Callable[[Run], tuple[Step, ...]]
"""Makes, in the folder of a run, what steps need that the plan could only announce; returns the steps in full."""


def execute(
    plan: Plan,
    options: RunOptions,
    progress: Progress,
    *,
    prepare: Prepare | None = None,
    workers: Workers | None = None,
) -> Result:
    """Carries out ``plan``, with ``workers`` of its own where none are given.

    Raises RunFailed when nothing has changed, RunHalfway when the switch has happened but could not be recorded.
    """
    run: Run | None = None
    try:
        run = create_run(plan.app, plan.command, source=plan.source, target=plan.target, steps=len(plan.steps))
        if prepare is not None:
            plan = replace(plan, steps=prepare(run))
        with contextlib.nullcontext(workers) if workers else Workers(options.workers) as pool:
            counts = _stage(plan, run, options, pool, progress)
        progress("switch", str(plan.app), 0)
        made = fingerprint(run.tree)
    except (OSError, RocksError, KstateError, KeyboardInterrupt) as error:
        raise _failed(plan, run, error) from error
    # A signal must not part the exchange from what is known of it: it is delivered once the run is recorded.
    with signals_held():
        _switch(plan, run, made)
    return Result(run.name, counts.headers_dropped, counts.rows_converted)


def _switch(plan: Plan, run: Run, made: dict[str, list[int]]) -> None:
    try:
        run.write("switching", old_inode=plan.app.stat().st_ino, new_inode=run.tree.stat().st_ino, fingerprint=made)
        _exchange(plan.app, run)
    except (OSError, KstateError) as error:
        raise _failed(plan, run, error) from error
    try:
        sync_directory(plan.app.parent)
        sync_directory(run.path)
        run.write("switched", warnings=list(plan.warnings))
    except OSError as error:
        raise RunHalfway(
            f"{plan.app} is the new directory, but that could not be recorded: {error}",
            hint="mend the disk; the next kstate command finishes the run, or kstate undo takes it back",
        ) from error


def _stage(plan: Plan, run: Run, options: RunOptions, workers: Workers, progress: Progress) -> Counts:
    progress("stage", str(plan.app), 0)
    counts = stage(
        plan, run.tree, workers, lambda path, size: progress("store", path, size), copy_ssts=options.copy_ssts
    )
    if (run.path / RUNS).exists():
        shutil.rmtree(run.path / RUNS)
    progress("verify", str(plan.app), 0)
    verify_staged(plan, run.tree, workers, full=options.verify_full, linked=not options.copy_ssts)
    sync_file_system(run.path)
    return counts


def _exchange(app: Path, run: Run) -> None:
    try:
        exchange(app, run.tree)
    except OSError as error:
        if error.errno in _CANNOT_EXCHANGE:
            raise Refused(
                f"the file system of {app} cannot exchange two directories: {error.strerror}",
                hint="move the state.dir to a local file system (ext4, xfs, btrfs)",
            ) from error
        raise


def _failed(plan: Plan, run: Run | None, error: BaseException) -> BaseException:
    """Sweeps what was staged (where that fails too, the next command does it); returns the error to show."""
    if run is not None:
        with contextlib.suppress(OSError):
            # What a signal has cut short may be resumed.
            sweep(plan.app, run, str(error), keep_runs=isinstance(error, (Interrupted, KeyboardInterrupt)))
        if isinstance(error, Refused):
            with contextlib.suppress(OSError):
                shutil.rmtree(run.path)
                remove_empty_folders(plan.app)
    if isinstance(error, (Refused, Interrupted, KeyboardInterrupt)):
        return error
    where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RunFailed(
        f"{plan.command} failed: {text}{where}",
        where=str(plan.app),
        hint="nothing has changed; mend the cause and run the command again",
    )


def undo(app: Path, *, discard_newer: bool) -> tuple[Run | None, str]:
    """Takes back the newest run that is kept: the same exchange, the other way. Returns the run and a message.

    Raises Refused once Streams (or anybody) has changed the directory since, unless ``discard_newer``.
    """
    kept = [run for run in read_runs(app) if run.state is RunState.KEPT]
    if not kept:
        return None, "nothing to undo"
    run = kept[-1]
    details = run.last("switching")
    if not run.tree.is_dir() or run.tree.stat().st_ino != details["old_inode"]:
        raise Refused(
            f"run {run.name} has not kept the directory that it found",
            hint=f"look at {run.path}: something else has removed or replaced it",
        )
    if inode(app) is None:
        with signals_held():
            _put_back(app, run)
        return run, f"run {run.name} ({run.events[0].get('command')}) is undone: {app} was lost, and is there again"
    if inode(app) != details["new_inode"] and not discard_newer:
        raise Refused(
            f"{app} is not the directory that run {run.name} made: it was replaced from elsewhere",
            hint="--discard-newer puts the kept directory in its place all the same",
        )
    changed = differences(details["fingerprint"], fingerprint(app))
    if changed and not discard_newer:
        raise Refused(
            f"{app} has changed since run {run.name}: {some(changed, _NAMED)}",
            hint="choose:",
            hint_details=_ways_on(app, run),
        )
    with signals_held():
        _switch_back(app, run)
    return run, f"run {run.name} ({run.events[0].get('command')}) is undone"


def _ways_on(app: Path, run: Run) -> list[str]:
    aside = f"to put it aside: {command('undo', app, '--discard-newer')}"
    created = run.events[0]
    if created.get("source") == created.get("target"):
        return [aside]
    back = command("migrate", app, "--to", str(created.get("source", "RELEASE")))
    return [f"to keep what was done since: {back}", aside]


def _switch_back(app: Path, run: Run) -> None:
    run.write("undoing")
    try:
        exchange(app, run.tree)
    except OSError as error:
        with contextlib.suppress(OSError):
            run.write("undo-cancelled")
        raise RunFailed(f"undo failed: {error.strerror}", where=str(app), hint="nothing has changed") from error
    try:
        sync_directory(app.parent)
        sync_directory(run.path)
        run.write("undone")
    except OSError as error:
        raise RunHalfway(f"{app} is the old directory again, but that could not be recorded: {error}") from error


def _put_back(app: Path, run: Run) -> None:
    """Where the application directory is lost, what was kept only has to be renamed."""
    run.write("undoing")
    try:
        os.rename(run.tree, app)
        sync_directory(app.parent)
        sync_directory(run.path)
        run.write("undone")
    except OSError as error:
        raise RunFailed(f"undo failed: {error.strerror}", where=str(app), hint="run kstate undo again") from error


def pinned_bytes(run: Run) -> int:
    """Bytes on disk that deleting what the run keeps would free: files without another hard link."""
    total = 0
    for top in (run.tree, run.path / RUNS):
        for folder, _, files in os.walk(top):
            for name in files:
                # Beside a run that goes on files may vanish.
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(os.path.join(folder, name), follow_symlinks=False)
                    if stat.st_nlink == 1:
                        total += stat.st_blocks * 512
    return total
