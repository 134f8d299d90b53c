"""Carry out a plan: stage, verify, switch, keep. One ``renameat2(RENAME_EXCHANGE)`` is the commit.

Before the exchange the application directory is unchanged; after it the new one is in place, whole. The caller holds
the application lock throughout.

The order of syncs: the journal's ``created`` and the folder of the run are durable before the tree is created. The mark
of staging is durable before any other file of the tree, so that a tree without a mark was never staged. The file system
is synced once all databases are built and verified. Then the lists of both trees are written, and :mod:`commit` takes
over. Nothing of APP is touched before that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from kstate_cli.change.access import own_like
from kstate_cli.change.commit import list_trees, switch
from kstate_cli.change.earlier_runs import ROUGH_EVENT_MEMBER, rough_seconds
from kstate_cli.change.folder import create_run, forget
from kstate_cli.change.journal import SORTED_FILES, Run, cut_short
from kstate_cli.change.marks import STAGED, put_mark
from kstate_cli.change.plan import Plan, Step
from kstate_cli.change.removal import remove_sorted_files, sweep
from kstate_cli.change.stage import StagingCounts, stage
from kstate_cli.change.standby import announce_standby
from kstate_cli.change.system_calls import sync_directory, sync_file_system
from kstate_cli.change.verify import verify_staged
from kstate_cli.deadline import leave
from kstate_cli.diagnosis import timed
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, file_of, name_of_signal
from kstate_cli.parallel.workers import Workers
from kstate_cli.rocks.errors import RocksError
from kstate_cli.signals import signals_held

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to carry out a plan."""

    workers: int
    verify_full: bool = False
    copy_ssts: bool = False
    reason: str | None = None
    """The user's reason, which the journal records."""
    standby: bool = False
    """The new directory is a standby: its proof is written, so that a used standby is never caught up."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, for the report."""

    run: str
    headers_dropped: int
    rows_converted: int


Progress = Callable[[str, str, int], None]
"""Is called with a phase, a path and the bytes of SSTs written there."""
Prepare = Callable[[Run], tuple[Step, ...]]
"""Creates the files of announced steps in the folder of a run, and returns the complete steps."""


def execute(
    plan: Plan,
    options: RunOptions,
    progress: Progress,
    *,
    prepare: Prepare | None = None,
    workers: Workers | None = None,
) -> RunResult:
    """Carry out ``plan``, with own workers if none are given.

    Raise Refused, RunFailed and, after a signal, Interrupted or KeyboardInterrupt if APP is unchanged; RunHalfway if
    the switch has happened but could not be recorded.
    """
    run: Run | None = None
    try:
        run = create_run(
            plan.app,
            plan.command,
            reason=options.reason,
            source=plan.source,
            target=plan.target,
            steps=len(plan.steps),
            **{ROUGH_EVENT_MEMBER: round(rough_seconds(plan, options.workers), 3)},
        )
        _LOG.debug("run %s of %s: %d steps in %s", run.name, plan.command, len(plan.steps), run.path)
        leave(f"the unfinished run {run.name} in {run.path.parent}: the next change sweeps it, or continues it")
        if prepare is not None:
            with timed(_LOG, "prepared"):
                plan = replace(plan, steps=prepare(run))
        with contextlib.nullcontext(workers) if workers else Workers(options.workers) as pool:
            try:
                counts = _stage(plan, run, options, pool, progress)
            except BaseException:
                # The staged tree is swept next, while other jobs may still be writing to it.
                pool.stop()
                raise
        progress("switch", str(plan.app), 0)
        lists = list_trees(plan.app, run)
        if options.standby:
            announce_standby(plan.app, run, before=lists["kept"], after=lists["staged"])
    except (OSError, RocksError, KstateError, Interrupted, KeyboardInterrupt) as error:
        raise _failed(plan, run, error) from error
    # A signal between the exchange and its record would report a changed directory as unchanged.
    with signals_held():
        try:
            with timed(_LOG, f"switched {plan.app}"):
                switch(plan, run, lists)
        except (OSError, Refused) as error:
            raise _failed(plan, run, error) from error
    return RunResult(run.name, counts.headers_dropped, counts.rows_converted)


def _stage(plan: Plan, run: Run, options: RunOptions, workers: Workers, progress: Progress) -> StagingCounts:
    """Create the tree with its mark, stage, verify, and sync."""
    progress("stage", str(plan.app), 0)
    os.mkdir(run.tree)
    own_like(run.tree, plan.app.stat())
    assert run.token is not None
    put_mark(run.tree, STAGED, run.token)
    sync_directory(run.path)
    with timed(_LOG, f"staged in {run.tree}"):
        counts = stage(
            plan, run.tree, workers, lambda path, size: progress("store", path, size), copy_ssts=options.copy_ssts
        )
    remove_sorted_files(run)
    progress("verify", str(plan.app), 0)
    with timed(_LOG, "verified"):
        verify_staged(plan, run.tree, workers, full=options.verify_full, linked=not options.copy_ssts)
    progress("sync", str(plan.app), 0)
    with timed(_LOG, "written to disk"):
        sync_file_system(run.path)
    return counts


def _failed(plan: Plan, run: Run | None, error: BaseException) -> BaseException:
    """Sweep the staged tree, and return the error to report. If the sweep fails too, the next command does it."""
    remains = "" if run is None else _swept(plan, run, error)
    if isinstance(error, (Refused, Interrupted, KeyboardInterrupt)):
        return error
    hint = f"the application directory is unchanged{remains}; fix the cause and run the command again"
    if isinstance(error, KstateError):
        return RunFailed(
            f"{plan.command} failed: {error.headline}",
            where=error.where or str(plan.app),
            hint=hint,
            details=error.details,
            hint_details=[*filter(None, [error.hint]), *error.hint_details],
        )
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    # A staging area, or a folder for temporary files, may be on another file system.
    file = file_of(error) if isinstance(error, OSError) else None
    return RunFailed(f"{plan.command} failed: {text}", where=file or str(plan.app), hint=hint)


def _swept(plan: Plan, run: Run, error: BaseException) -> str:
    """Sweep the staged tree of a failed run. Return a text about what remains; empty if nothing does."""
    try:
        # A run that a signal ended may be resumed: its sorted files stay.
        by_signal = isinstance(error, (Interrupted, KeyboardInterrupt))
        ended = cut_short(_signal_of(error)) if by_signal else None
        sweep(plan.app, run, str(error), keep_sorted_files=by_signal, ended=ended)
    except (OSError, Refused) as failure:
        return f"; what it had staged is still in {run.path} ({failure}): the next command removes it"
    if isinstance(error, Refused):
        forget(plan.app, run)
    return ""


def _signal_of(error: BaseException) -> str:
    return name_of_signal(error.signal_number if isinstance(error, Interrupted) else signal.SIGINT)


def pinned_bytes(run: Run) -> int:
    """Return the bytes on disk that deleting a run would free: those of files without another hard link."""
    total = 0
    for top in (run.tree, run.path / SORTED_FILES):
        if top.is_symlink():
            continue
        for folder, _, files in os.walk(top):
            for name in files:
                # While the run is active, files may vanish.
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(os.path.join(folder, name), follow_symlinks=False)
                    if stat.st_nlink == 1:
                        total += stat.st_blocks * 512
    return total
