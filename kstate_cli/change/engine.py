"""Carry out a plan: stage, verify, switch, keep. One ``renameat2(RENAME_EXCHANGE)`` is the commit.

Before the exchange the application directory is unchanged; after it the new one is in place, whole. The caller holds
the application lock throughout.

The order of syncs: the journal's ``created`` and the folder of the run are durable before the tree is created. The mark
of staging is durable before any other file of the tree, so that a tree without a mark was never staged. The file system
is synced once all databases are built and verified. Then the lists of both trees are written, and :mod:`commit` takes
over. Nothing of APP is touched before that.

Staging clones the whole application directory beside the old one, and applies the steps of the plan to the clone. The
order within it: directories and links, moved stores, databases, then small files. A file about offsets is written after
the rows, so it is never older than the data that it describes. Such a file is synced before it is renamed into place;
everything else is synced with the file system at the end. Times of task directories are set last, since each write
before changes them.

Sorted files of a restoration are elsewhere: ``restore.staging``, below ``restore.staging_area``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kstate_cli.change import nofollow
from kstate_cli.change.access import ACL, attributes, keep_access, make_own_directory, own_like
from kstate_cli.change.commit import list_trees, switch
from kstate_cli.change.earlier_runs import ROUGH_EVENT_MEMBER, rough_seconds
from kstate_cli.change.edit import DatabaseStep, EditJob, copy_tree, edit, make_folder, make_parents
from kstate_cli.change.folder import create_run, forget
from kstate_cli.change.journal import SORTED_FILES, Run, cut_short
from kstate_cli.change.marks import STAGED, put_mark
from kstate_cli.change.plan import (
    BuildDatabase,
    BuildStore,
    CreateDatabase,
    EditDatabase,
    MoveStore,
    OmitTree,
    PlaceDatabase,
    Plan,
    RemoveFile,
    Step,
    WriteFile,
)
from kstate_cli.change.removal import remove_sorted_files, sweep
from kstate_cli.change.standby import announce_standby
from kstate_cli.change.system_calls import sync_directory, sync_file_system
from kstate_cli.change.verify import verify_changed_later, verify_staged
from kstate_cli.deadline import leave
from kstate_cli.diagnosis import timed
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, file_of, name_of_signal, naming
from kstate_cli.formats.topic_partition import is_topology
from kstate_cli.parallel import Workers
from kstate_cli.releases import release
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
    """Carry out ``plan``: create a run, stage, verify and exchange. The caller holds the application lock.

    ``prepare`` creates the files of steps whose databases are not known yet, and returns the complete steps.
    ``workers`` are processes that the caller closes; None means that this function starts its own.

    Raise Refused, RunFailed and, after a signal, Interrupted or KeyboardInterrupt if APP is unchanged. Raise RunHalfway
    if the exchange has happened but could not be recorded.
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
        leave(
            f"the unfinished run {run.name} in {run.path.parent}. The next command that changes the directory "
            "continues or removes this run"
        )
        if prepare is not None:
            with timed(_LOG, "prepared"):
                plan = replace(plan, steps=prepare(run))
        # nullcontext does not close the caller's workers: the caller still needs them after the run.
        with contextlib.nullcontext(workers) if workers else Workers(options.workers) as pool:
            try:
                counts = _stage_and_verify(plan, run, options, pool, progress)
            except BaseException:
                # Other jobs may still be writing to the staged tree, which is removed next.
                pool.stop()
                raise
        progress("switch", str(plan.app), 0)
        # The lists are written after the sync of the file system, so that they describe files that are durable.
        lists = list_trees(plan.app, run)
        if options.standby:
            # The proof is written before the exchange, with the digests of both directories. So it covers the directory
            # that is in place after a kill at any point.
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


def _stage_and_verify(plan: Plan, run: Run, options: RunOptions, workers: Workers, progress: Progress) -> StagingCounts:
    """Create the staged tree with its mark, carry out the steps in it, verify its databases, sync the file system."""
    progress("stage", str(plan.app), 0)
    # No other user may use the tree before it gets the mode of APP. Its name is made durable after its mark.
    make_own_directory(run.tree, nofollow.stat(plan.app), 0o700, durable=False)
    assert run.token is not None
    # The mark is the first file, so a crash can leave a tree without a mark only while it is empty. Recovery refuses
    # any other tree without a mark, since it may be the only copy.
    put_mark(run.tree, STAGED, run.token)
    # put_mark has made the mark durable inside the tree. This call makes the name of the tree durable in the run's
    # folder.
    sync_directory(run.path)
    with timed(_LOG, f"staged in {run.tree}"):
        counts = stage(
            plan, run.tree, workers, lambda path, size: progress("store", path, size), copy_ssts=options.copy_ssts
        )
    # The rows of the sorted files are in the staged databases now, and verification reads only those.
    remove_sorted_files(run)
    progress("verify", str(plan.app), 0)
    with timed(_LOG, "verified"):
        # Verified before the sync: if it fails, the disk need not write the whole tree.
        verify_staged(plan, run.tree, workers, full=options.verify_full, linked=not options.copy_ssts)
    progress("sync", str(plan.app), 0)
    with timed(_LOG, "written to disk"):
        # One syncfs makes every file of the clone durable, because no copy or link was synced by itself.
        sync_file_system(run.path)
    return counts


def _failed(plan: Plan, run: Run | None, error: BaseException) -> BaseException:
    """Remove the staged tree of a failed run, and return the error to report.

    If the removal fails too, the error says so, and the next command removes the tree.
    """
    remains = ""
    # Without a run the failure came before its folder was created, so there are no files to remove.
    if run is not None:
        remains = _swept(plan, run, error)
    if isinstance(error, (Refused, Interrupted, KeyboardInterrupt)):
        return error
    hint = f"the application directory is unchanged{remains}. Fix the cause, then run the command again"
    if isinstance(error, KstateError):
        return RunFailed(
            f"{plan.command} failed: {error.headline}",
            where=error.where or str(plan.app),
            hint=hint,
            details=error.details,
            hint_details=[*filter(None, [error.hint]), *error.hint_details],
        )
    text, file = str(error), None
    if isinstance(error, OSError):
        text = error.strerror or text
        # The file of the error is named, because a staging area or a temporary folder may be on another file system
        # than APP.
        file = file_of(error)
    return RunFailed(f"{plan.command} failed: {text}", where=file or str(plan.app), hint=hint)


def _swept(plan: Plan, run: Run, error: BaseException) -> str:
    """Remove the staged tree of a failed run. Return a text about files that remain; empty if none do."""
    try:
        # A later run may resume a restoration that a signal has ended, so its sorted files stay.
        by_signal = isinstance(error, (Interrupted, KeyboardInterrupt))
        ended: dict[str, Any] | None = None
        if by_signal:
            ended = cut_short(_signal_of(error))
        sweep(plan.app, run, str(error), keep_sorted_files=by_signal, ended=ended)
    except (OSError, Refused) as failure:
        return f", but the run's staged files are still in {run.path} ({failure}). The next command removes them"
    # The message of a refusal says all that the user needs, so its run would only be noise in ``kstate status``.
    if isinstance(error, Refused):
        forget(plan.app, run)
    return ""


def _signal_of(error: BaseException) -> str:
    """Return the name of the signal of an error; SIGINT for KeyboardInterrupt."""
    number = signal.SIGINT.value
    if isinstance(error, Interrupted):
        number = error.signal_number
    return name_of_signal(number)


def pinned_bytes(run: Run) -> int:
    """Return the bytes on disk that deleting a run would free: those of files without another hard link."""
    total = 0
    for top in (run.tree, run.path / SORTED_FILES):
        if top.is_symlink():
            continue
        for folder, _, files in os.walk(top):
            for name in files:
                # Another process may remove files while this one counts them.
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(os.path.join(folder, name), follow_symlinks=False)
                    # Deleting one link of an SST frees nothing while APP has another. st_blocks counts units of 512
                    # bytes, whatever the block size is.
                    if stat.st_nlink == 1:
                        total += stat.st_blocks * 512
    return total


_UNFINISHED: Final = ".ks-new"
"""The suffix of the temporary name of a file that is not complete yet."""


@dataclass(slots=True)
class StagingCounts:
    """The figures of staging, for the report."""

    headers_dropped: int = 0
    rows_converted: int = 0


StoreProgress = Callable[[str, int], None]
"""Is called with a step's path and the bytes of SSTs that it wrote."""


def stage(plan: Plan, staged: Path, workers: Workers, progress: StoreProgress, *, copy_ssts: bool) -> StagingCounts:
    """Clone the application directory to ``staged``, and carry out the steps in the clone. Return the figures.

    The order of the parts is explained in the docstring of the module. Raise RocksError and OSError.
    """
    moves = [step for step in plan.steps if isinstance(step, MoveStore)]
    # The worker that edits a database clones it too, so that clones are made in parallel. A database that the plan
    # places from a snapshot has no original in APP.
    edited = {step.path for step in plan.steps if isinstance(step, EditDatabase)}
    later = frozenset(plan.app / path for path in edited - plan.placed)
    # The tree comes first, because moves and edits create their folders in it.
    copy_tree(plan.app, staged, _omitted(plan, moves), later, copy_ssts=copy_ssts)
    for move in moves:
        _move(move, plan.app, staged, copy_ssts=copy_ssts)
    counts = StagingCounts()
    # All databases come before any small file: an offsets file must not be older than the rows that it describes.
    for jobs in _jobs(plan, staged, copy_ssts=copy_ssts):
        for result in workers.map(edit, jobs):
            counts.headers_dropped += result.headers_dropped
            counts.rows_converted += result.rows_converted
            progress(result.path, result.rewritten_bytes)
        # A later step may change the same database again. Afterwards it no longer has exactly the files that this step
        # states, so it is verified now.
        verify_changed_later(plan, [job.step for job in jobs], staged, workers, linked=not copy_ssts)
    for step in plan.steps:
        if isinstance(step, RemoveFile):
            # Removed from the clone only. APP keeps the file, and becomes the backup.
            nofollow.unlink(staged / step.path, missing_ok=True)
        elif isinstance(step, WriteFile):
            make_parents((staged / step.path).parent, staged)
            _write_file(staged / step.path, step.data, keep_time=step.keep_time)
    # The times are set last, because each file written above has changed the mtime of its task directory.
    _keep_times(plan, staged)
    return counts


def _omitted(plan: Plan, moves: Sequence[MoveStore]) -> frozenset[Path]:
    """Return the paths of APP that are not cloned.

    These are omitted and rebuilt stores, and of each moved store both places: its old one is cloned under the new name.
    """
    omitted = {
        plan.app / step.path
        for step in plan.steps
        if isinstance(step, OmitTree) or (isinstance(step, BuildStore) and step.replaces)
    }
    return frozenset(omitted | {plan.app / path for move in moves for path in (move.source, move.path)})


def _jobs(plan: Plan, staged: Path, *, copy_ssts: bool) -> Iterator[list[EditJob]]:
    """Yield the jobs for databases in groups; jobs of one group run in parallel, after all jobs of the group before.

    A plan may place a database, then edit it, and then add rows to it, so these steps are in three groups. In each
    group the largest rewrite comes first: then the last job to finish is a small one.
    """
    target = release(plan.target)
    groups: tuple[tuple[type[DatabaseStep], ...], ...] = (
        (PlaceDatabase,),
        (EditDatabase, CreateDatabase),
        (BuildDatabase,),
    )
    if not plan.placed and not _edited_and_built(plan):
        # The usual plan has one step for each database. No job needs to wait for another, so one group is enough.
        groups = ((EditDatabase, CreateDatabase, BuildDatabase),)
    for kinds in groups:
        jobs = [
            EditJob(step, plan.app, staged, copy_ssts, target, is_placed=step.path in plan.placed)
            for step in plan.steps
            if isinstance(step, kinds)
        ]
        jobs.sort(key=_rewritten_bytes, reverse=True)
        if jobs:
            yield jobs


def _edited_and_built(plan: Plan) -> bool:
    """Return whether a database is edited or created by one step, and gets rows by another."""
    built = {step.path for step in plan.steps if isinstance(step, BuildDatabase)}
    return any(step.path in built for step in plan.steps if isinstance(step, (EditDatabase, CreateDatabase)))


def _rewritten_bytes(job: EditJob) -> int:
    return job.step.rewritten_bytes if isinstance(job.step, EditDatabase) else 0


def _move(step: MoveStore, app: Path, staged: Path, *, copy_ssts: bool) -> None:
    """Clone a store to its new place. Folders above it get the access (owner, mode, ACL) of those of the old place."""
    like, folder = Path(step.source).parent, Path(step.path).parent
    # From 0_1/rocksdb to 1_1/rocksdb: both paths have equally many folders, so each new one has a model.
    if len(like.parts) == len(folder.parts):
        for source, target in zip(reversed(like.parents), reversed(folder.parents), strict=True):
            make_folder(app / source, staged / target, required=not copy_ssts)
        make_folder(app / like, staged / folder, required=not copy_ssts)
    else:
        make_parents(staged / folder, staged)
    copy_tree(app / step.source, staged / step.path, copy_ssts=copy_ssts)


def _keep_times(plan: Plan, staged: Path) -> None:
    """Give each changed task directory the mtime of its original, or the one of ``plan.task_times``.

    Streams deletes a task directory whose mtime is older than ``state.cleanup.dir.max.age.ms``
    (``StateDirectory.cleanOutdatedDirsOnStartup``, since 4.3). So a task with old data must not look young.
    """
    for task in {_task_of(Path(step.path)) for step in plan.steps}:
        if (plan.app / task).is_dir() and (staged / task).is_dir():
            # Only the mtime counts for Streams. The ctime cannot be set.
            original = nofollow.stat(plan.app / task)
            nofollow.utime(staged / task, ns=(original.st_atime_ns, original.st_mtime_ns))
    for name, mtime in plan.task_times.items():
        if (staged / name).is_dir():
            nofollow.utime(staged / name, ns=(mtime, mtime))


def _task_of(path: Path) -> Path:
    """Return ``0_1`` of ``0_1/rocksdb/s``; ``__t__/0_1`` under a named topology."""
    if is_topology(path.parts[0]):
        return Path(*path.parts[:2])
    return Path(path.parts[0])


def _write_file(path: Path, data: bytes, *, keep_time: bool) -> None:
    """Write a file under a temporary name, sync it, give it its access, and rename it into place.

    The access is that of the file that it replaces. A new file gets the owner of its folder and the mode 0644.
    """
    new = path.with_name(f"{path.name}{_UNFINISHED}")
    # O_EXCL fails if the temporary name exists already: such a file is not of this run.
    descriptor = nofollow.open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with naming(path), open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        # Synced before the rename: otherwise the name could refer to an empty file after a power loss.
        os.fsync(descriptor)
        _take_access_of_replaced(descriptor, path, keep_time=keep_time)
    nofollow.rename(new, path)


def _take_access_of_replaced(new: int, path: Path, *, keep_time: bool) -> None:
    """Give an open file the access of the file ``path``, and its times too with ``keep_time``."""
    if not path.exists():
        own_like(new, nofollow.stat(path.parent))
        if not set(ACL) & set(attributes(new)):
            os.fchmod(new, 0o644)  # whatever the umask; an inherited ACL decides by itself
        return
    with nofollow.entry_descriptor(path) as replaced:
        before = os.fstat(replaced)
        own_like(new, before)
        keep_access(replaced, new)
        if keep_time:
            os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
