"""Makes the whole new application directory beside the old one, and applies the steps of the plan to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.lockfile import LOCK_NAME
from kstate_cli.change.plan import CreateDatabase, EditDatabase, OmitTree, Plan, RemoveFile, WriteFile
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import OFFSETS_CF, encode_rows
from kstate_cli.formats.values import strip_headers_to_plain, strip_headers_to_timestamped, strip_session_headers
from kstate_cli.rocks.shadow import LINKED_SUFFIXES, RocksError
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.database import is_database, newest_options


def _strict_timestamped(value: bytes) -> tuple[bytes, int]:
    """Key-value and window rows always have a timestamp; only index rows of time-ordered stores are empty."""
    if value in (b"", b"\x00"):
        raise MalformedBytesError("a headers value without a timestamp")
    return strip_headers_to_timestamped(value)


STRIP: dict[str, Callable[[bytes], tuple[bytes, int]]] = {
    "timestamped": _strict_timestamped,
    "time-ordered": strip_headers_to_timestamped,
    "plain": strip_headers_to_plain,
    "session": strip_session_headers,
    "bare": lambda value: (value, 0),
}
"""What is left of a headers value in each older layout, and how many headers it loses."""


@dataclass(slots=True)
class Counts:
    """What staging did, for the report."""

    headers_dropped: int = 0
    rows_converted: int = 0


Progress = Callable[[str, int], None]
"""Called with a step's path and the bytes of SSTs that it wrote."""


def copy_tree(source: Path, target: Path, omit: frozenset[Path], *, copy_ssts: bool) -> None:
    """Clones a directory: SSTs of databases and the lock file as hard links, every other file as a copy.

    Owner, mode, times and extended attributes are carried over. ``copy_ssts`` copies the SSTs as well, for file
    systems without hard links and users who cannot keep the owner.
    """
    target.mkdir()
    database = (source / "CURRENT").exists() and is_database(source)
    for entry in sorted(os.scandir(source), key=lambda e: e.name):
        path, copy = Path(entry.path), target / entry.name
        if path in omit or entry.name == "lost+found":
            continue
        if entry.is_symlink():
            copy.symlink_to(os.readlink(path))
            stat = entry.stat(follow_symlinks=False)
            if os.geteuid() == 0:
                os.chown(copy, stat.st_uid, stat.st_gid, follow_symlinks=False)
        elif entry.is_dir(follow_symlinks=False):
            copy_tree(path, copy, omit, copy_ssts=copy_ssts)
        elif entry.name == LOCK_NAME or (database and entry.name.endswith(LINKED_SUFFIXES) and not copy_ssts):
            # The lock guards both directories only if it is one inode.
            os.link(path, copy)
        else:
            shutil.copyfile(path, copy)
            _keep(entry.stat(follow_symlinks=False), path, copy, required=not copy_ssts)
    _keep(source.stat(), source, target, required=not copy_ssts)


def _keep(stat: os.stat_result, source: Path, target: Path, *, required: bool) -> None:
    try:
        if (stat.st_uid, stat.st_gid) != (target.stat().st_uid, target.stat().st_gid):
            os.chown(target, stat.st_uid, stat.st_gid)
    except PermissionError:
        if required:
            raise
    shutil.copystat(source, target)


def apply_steps(plan: Plan, staged: Path, workers: int, progress: Progress) -> Counts:
    """Carries out the steps in the staged directory, as many databases at once as ``workers``.

    Raises RocksError and OSError.
    """
    counts = Counts()
    edits = [step for step in plan.steps if isinstance(step, (EditDatabase, CreateDatabase))]
    # The largest first: the last one to finish is then a small one.
    edits.sort(key=lambda s: -s.rewritten_bytes if isinstance(s, EditDatabase) else 0)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(_edit, step, staged, counts, progress) for step in edits]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
    for future in done:
        future.result()
    # Files last: a .checkpoint is never older than the data that it speaks of.
    for step in plan.steps:
        if isinstance(step, RemoveFile):
            (staged / step.path).unlink(missing_ok=True)
        elif isinstance(step, WriteFile):
            _write_file(staged / step.path, step.data)
    for task in {_task_of(Path(step.path)) for step in plan.steps if not isinstance(step, OmitTree)}:
        if (staged / task).is_dir():
            os.utime(staged / task)  # Streams' cleaner goes by the directory's mtime
    return counts


def _task_of(path: Path) -> Path:
    """``0_1`` of ``0_1/rocksdb/s``; ``__t__/0_1`` under a named topology."""
    return Path(*path.parts[: 2 if path.parts[0].startswith("__") else 1])


def _edit(step: EditDatabase | CreateDatabase, staged: Path, counts: Counts, progress: Progress) -> None:
    path = staged / step.path
    try:
        if isinstance(step, CreateDatabase):
            path.mkdir()
            with WritableStore(path, options_file=None) as store:
                store.set_offsets(OFFSETS_CF, encode_rows(step.offsets), exists=False)
        else:
            _edit_existing(step, path, counts, progress)
    except (RocksError, MalformedBytesError) as error:
        raise RocksError(f"{step.path}: {error}") from None
    _own_new_files(path)


def _edit_existing(step: EditDatabase, path: Path, counts: Counts, progress: Progress) -> None:
    with WritableStore(path, options_file=newest_options(path)) as store:
        families = set(step.before.column_families)
        for conversion in step.conversions:
            if conversion.target not in families:
                store.create_like(conversion.target)
                families.add(conversion.target)
            strip = STRIP[conversion.layout]

            def converted(
                source: str = conversion.source, strip: Callable[[bytes], tuple[bytes, int]] = strip
            ) -> object:
                for key, value in store.rows(source):
                    older, lost = strip(value)
                    counts.headers_dropped += lost
                    yield key, older

            counts.rows_converted += store.put_rows(conversion.target, converted())  # type: ignore[arg-type]
            store.drop(conversion.source)
            families.discard(conversion.source)
            progress(step.path, sum(file.size for file in step.before.live.get(conversion.source, ())))
        for name in step.drop:
            store.drop(name)
            families.discard(name)
        if step.offsets is not None:
            store.set_offsets(OFFSETS_CF, encode_rows(step.offsets), exists=OFFSETS_CF in families)
        if step.sst_format is not None:
            for name in store.rewrite(sorted(families), step.sst_format):
                progress(step.path, sum(file.size for file in step.before.live.get(name, ())))
    if step.sst_format is not None:
        _keep_times(step, path)


def _keep_times(step: EditDatabase, path: Path) -> None:
    """Rewritten SSTs are as old as the data in them: an SST younger than ``.checkpoint`` would tell of a crash."""
    if step.before.newest_sst_ns:
        for name in os.listdir(path):
            if name.endswith(".sst") and (path / name).stat().st_nlink == 1:
                os.utime(path / name, ns=(step.before.newest_sst_ns, step.before.newest_sst_ns))


def _own_new_files(path: Path) -> None:
    """What RocksDB has made belongs to the owner of the store, whoever runs kstate."""
    parent = path.parent.stat()
    for target in (path, *(path / name for name in os.listdir(path))):
        stat = target.stat(follow_symlinks=False)
        foreign = (stat.st_uid, stat.st_gid) != (parent.st_uid, parent.st_gid)
        if foreign and os.geteuid() == 0 and (stat.st_nlink == 1 or target == path):
            os.chown(target, parent.st_uid, parent.st_gid)


def _write_file(path: Path, data: bytes) -> None:
    stat = path.stat() if path.exists() else None
    path.unlink(missing_ok=True)
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    owner = stat or path.parent.stat()
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
    os.chmod(path, stat.st_mode & 0o7777 if stat else 0o644)
