"""Makes the whole new application directory beside the old one, and applies the steps of the plan to it.

Not where sorted files wait to be ingested: that is ``restore.staging``, below ``restore.staging_area``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
"""What a file is called behind its name until it is whole."""


@dataclass(slots=True)
class StagingCounts:
    """What staging did, for the report."""

    headers_dropped: int = 0
    rows_converted: int = 0


Progress = Callable[[str, int], None]
"""Called with a step's path and the bytes of SSTs that it wrote."""


def stage(plan: Plan, staged: Path, workers: Workers, progress: Progress, *, copy_ssts: bool) -> StagingCounts:
    """Clones the application directory and carries out the steps in the clone. Raises RocksError and OSError."""
    omit = frozenset(
        plan.app / step.path
        for step in plan.steps
        if isinstance(step, OmitTree) or (isinstance(step, BuildStore) and step.replaces)
    )
    moved = [step for step in plan.steps if isinstance(step, MoveStore)]
    omit |= {plan.app / path for step in moved for path in (step.source, step.path)}
    target = release(plan.target)
    edited = frozenset(plan.app / step.path for step in plan.steps if isinstance(step, EditDatabase))
    copy_tree(plan.app, staged, omit, edited, copy_ssts=copy_ssts)
    for move in moved:
        _move(move, plan.app, staged, copy_ssts=copy_ssts)
    jobs = [
        EditJob(step, plan.app, staged, copy_ssts, target)
        for step in plan.steps
        if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase))
    ]
    # The largest first: the last one to finish is then a small one.
    jobs.sort(key=lambda job: -job.step.rewritten_bytes if isinstance(job.step, EditDatabase) else 0)
    counts = StagingCounts()
    for done in workers.map(edit, jobs):
        counts.headers_dropped += done.headers_dropped
        counts.rows_converted += done.rows_converted
        progress(done.path, done.rewritten_bytes)
    # Files last: a .checkpoint is never older than the data that it speaks of.
    for step in plan.steps:
        if isinstance(step, RemoveFile):
            (staged / step.path).unlink(missing_ok=True)
        elif isinstance(step, WriteFile):
            make_parents((staged / step.path).parent, staged)
            _write_file(staged / step.path, step.data, keep_time=step.keep_time)
    _keep_times(plan, staged)
    return counts


def _move(step: MoveStore, app: Path, staged: Path, *, copy_ssts: bool) -> None:
    """A clone of the store where it is to be; the folders above it are like those that it comes from."""
    like, folder = Path(step.source).parent, Path(step.path).parent
    if len(like.parts) == len(folder.parts):
        for source, target in zip(reversed(like.parents), reversed(folder.parents), strict=True):
            make_folder(app / source, staged / target, required=not copy_ssts)
        make_folder(app / like, staged / folder, required=not copy_ssts)
    else:
        make_parents(staged / folder, staged)
    copy_tree(app / step.source, staged / step.path, copy_ssts=copy_ssts)


def _keep_times(plan: Plan, staged: Path) -> None:
    """A task directory is as old as it was, or as its data: 4.3 must not find old state young.

    ``state.cleanup.dir.max.age.ms`` (``StateDirectory.cleanOutdatedDirsOnStartup``) goes by the mtime of the directory.
    """
    for task in {_task_of(Path(step.path)) for step in plan.steps}:
        if (plan.app / task).is_dir() and (staged / task).is_dir():
            original = os.stat(plan.app / task)
            os.utime(staged / task, ns=(original.st_atime_ns, original.st_mtime_ns))
    for name, mtime in plan.task_times.items():
        if (staged / name).is_dir():
            os.utime(staged / name, ns=(mtime, mtime))


def _task_of(path: Path) -> Path:
    """``0_1`` of ``0_1/rocksdb/s``; ``__t__/0_1`` under a named topology."""
    return Path(*path.parts[: 2 if is_topology(path.parts[0]) else 1])


def _write_file(path: Path, data: bytes, *, keep_time: bool) -> None:
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
            os.chmod(new, 0o644)  # whatever the umask of who runs kstate; an ACL of the directory has its own say
    os.replace(new, path)
