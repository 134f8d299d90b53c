"""Stage: clone the whole application directory beside the old one, and apply the steps of the plan to the clone.

The order within a clone: directories and links, moved stores, databases, then small files. A file about offsets is
written after the rows, so it is never older than the data that it describes. Such a file is synced before it is renamed
into place; everything else is synced with the file system at the end. Times of task directories are set last, since
each write before changes them.

Sorted files of a restoration wait elsewhere: ``restore.staging``, below ``restore.staging_area``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli.change.access import ACL, attributes, keep_access, own_like
from kstate_cli.change.edit import EditJob, edit, make_parents
from kstate_cli.change.plan import (
    BuildDatabase,
    BuildStore,
    CreateDatabase,
    EditDatabase,
    MoveStore,
    OmitTree,
    Plan,
    RemoveFile,
    WriteFile,
)
from kstate_cli.change.tree import copy_tree, make_folder
from kstate_cli.errors import naming
from kstate_cli.formats.task_id import is_topology
from kstate_cli.parallel.workers import Workers
from kstate_cli.releases import release

_UNFINISHED: Final = ".ks-new"
"""The suffix of a file that is not complete yet."""


@dataclass(slots=True)
class StagingCounts:
    """The figures of staging, for the report."""

    headers_dropped: int = 0
    rows_converted: int = 0


Progress = Callable[[str, int], None]
"""Is called with a step's path and the bytes of SSTs that it wrote."""


def stage(plan: Plan, staged: Path, workers: Workers, progress: Progress, *, copy_ssts: bool) -> StagingCounts:
    """Clone the application directory and carry out the steps in the clone. Raise RocksError and OSError."""
    moves = [step for step in plan.steps if isinstance(step, MoveStore)]
    # Edited databases are cloned by the worker that edits them, in parallel.
    later = frozenset(plan.app / step.path for step in plan.steps if isinstance(step, EditDatabase))
    copy_tree(plan.app, staged, _omitted(plan, moves), later, copy_ssts=copy_ssts)
    for move in moves:
        _move(move, plan.app, staged, copy_ssts=copy_ssts)
    counts = StagingCounts()
    for result in workers.map(edit, _jobs(plan, staged, copy_ssts=copy_ssts)):
        counts.headers_dropped += result.headers_dropped
        counts.rows_converted += result.rows_converted
        progress(result.path, result.rewritten_bytes)
    for step in plan.steps:
        if isinstance(step, RemoveFile):
            (staged / step.path).unlink(missing_ok=True)
        elif isinstance(step, WriteFile):
            make_parents((staged / step.path).parent, staged)
            _write_file(staged / step.path, step.data, keep_time=step.keep_time)
    _keep_times(plan, staged)
    return counts


def _omitted(plan: Plan, moves: Sequence[MoveStore]) -> frozenset[Path]:
    """Return the paths that the clone leaves out: omitted, rebuilt and moved stores, and the places that they take."""
    omitted = {
        plan.app / step.path
        for step in plan.steps
        if isinstance(step, OmitTree) or (isinstance(step, BuildStore) and step.replaces)
    }
    return frozenset(omitted | {plan.app / path for move in moves for path in (move.source, move.path)})


def _jobs(plan: Plan, staged: Path, *, copy_ssts: bool) -> list[EditJob]:
    """Return the jobs about databases, the largest rewrite first: then the last job to finish is a small one."""
    target = release(plan.target)
    jobs = [
        EditJob(step, plan.app, staged, copy_ssts, target)
        for step in plan.steps
        if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase))
    ]
    jobs.sort(key=lambda job: -job.step.rewritten_bytes if isinstance(job.step, EditDatabase) else 0)
    return jobs


def _move(step: MoveStore, app: Path, staged: Path, *, copy_ssts: bool) -> None:
    """Clone a store to its new place; the folders above it get the access of those above its old place."""
    like, folder = Path(step.source).parent, Path(step.path).parent
    if len(like.parts) == len(folder.parts):
        for source, target in zip(reversed(like.parents), reversed(folder.parents), strict=True):
            make_folder(app / source, staged / target, required=not copy_ssts)
        make_folder(app / like, staged / folder, required=not copy_ssts)
    else:
        make_parents(staged / folder, staged)
    copy_tree(app / step.source, staged / step.path, copy_ssts=copy_ssts)


def _keep_times(plan: Plan, staged: Path) -> None:
    """Keep the mtime of each task directory, or set it to the age of its data: 4.3 must not find old state young.

    ``state.cleanup.dir.max.age.ms`` compares the directory's mtime (``StateDirectory.cleanOutdatedDirsOnStartup``).
    """
    for task in {_task_of(Path(step.path)) for step in plan.steps}:
        if (plan.app / task).is_dir() and (staged / task).is_dir():
            original = os.stat(plan.app / task)
            os.utime(staged / task, ns=(original.st_atime_ns, original.st_mtime_ns))
    for name, mtime in plan.task_times.items():
        if (staged / name).is_dir():
            os.utime(staged / name, ns=(mtime, mtime))


def _task_of(path: Path) -> Path:
    """Return ``0_1`` of ``0_1/rocksdb/s``; ``__t__/0_1`` under a named topology."""
    return Path(*path.parts[: 2 if is_topology(path.parts[0]) else 1])


def _write_file(path: Path, data: bytes, *, keep_time: bool) -> None:
    """Write a file under a draft name, sync it, give it its access, and rename it into place."""
    new = path.with_name(f"{path.name}{_UNFINISHED}")
    with naming(path), open(new, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        before = path.stat()
        own_like(new, before)
        keep_access(path, new)
        if keep_time:
            os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        own_like(new, path.parent.stat())
        if not set(ACL) & set(attributes(new)):
            os.chmod(new, 0o644)  # whatever the umask; an inherited ACL decides by itself
    os.replace(new, path)
