"""Makes the whole new application directory beside the old one, and applies the steps of the plan to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.build import BuildDatabase, build_database, make_parents
from kstate_cli.change.lockfile import LOCK_NAME
from kstate_cli.change.owner import own_like
from kstate_cli.change.plan import Conversion, CreateDatabase, EditDatabase, OmitTree, Plan, RemoveFile, WriteFile
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import OFFSETS_CF, encode_rows
from kstate_cli.formats.values import strip_headers_to_plain, strip_headers_to_timestamped, strip_session_headers
from kstate_cli.releases import RELEASES
from kstate_cli.rocks.create import StoreLayout, create_store
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import LINKED_SUFFIXES
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.database import is_database


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


_CARRIER = StoreLayout(("default", OFFSETS_CF), RELEASES[-1])
"""A segment that only carries an offset, as the newest release has its segments."""


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
            own_like(copy, entry.stat(follow_symlinks=False), follow_symlinks=False)
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
    edits = [step for step in plan.steps if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase))]
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
            make_parents((staged / step.path).parent, staged)
            _write_file(staged / step.path, step.data)
    for task in {_task_of(Path(step.path)) for step in plan.steps if not isinstance(step, OmitTree)}:
        if (staged / task).is_dir():
            os.utime(staged / task)  # Streams' cleaner goes by the directory's mtime
    return counts


def _task_of(path: Path) -> Path:
    """``0_1`` of ``0_1/rocksdb/s``; ``__t__/0_1`` under a named topology."""
    return Path(*path.parts[: 2 if path.parts[0].startswith("__") else 1])


def _edit(
    step: EditDatabase | CreateDatabase | BuildDatabase, staged: Path, counts: Counts, progress: Progress
) -> None:
    path = staged / step.path
    if isinstance(step, BuildDatabase):
        build_database(step, staged)
        progress(step.path, 0)
        return
    try:
        if isinstance(step, CreateDatabase):
            create_store(path, _CARRIER)
            with WritableStore(path) as store:
                store.set_offsets(encode_rows(step.offsets))
        else:
            _edit_existing(step, path, counts, progress)
    except (RocksError, MalformedBytesError) as error:
        raise RocksError(f"{step.path}: {error}") from None
    _own_new_files(path)


def _edit_existing(step: EditDatabase, path: Path, counts: Counts, progress: Progress) -> None:
    with WritableStore(path) as store:
        for conversion in step.conversions:
            if conversion.target not in store.column_families:
                store.create(conversion.target)
            counts.rows_converted += store.write_rows(conversion.target, _converted(store, conversion, counts))
            store.drop(conversion.source)
            progress(step.path, sum(file.size for file in step.before.live.get(conversion.source, ())))
        for name in step.drop:
            store.drop(name)
        if step.offsets is not None:
            store.set_offsets(encode_rows(step.offsets))
        if step.sst_format is not None:
            for name in store.rewrite(sorted(store.column_families), step.sst_format):
                progress(step.path, sum(file.size for file in step.before.live.get(name, ())))
    if step.sst_format is not None:
        _keep_times(step, path)


def _converted(store: WritableStore, conversion: Conversion, counts: Counts) -> Iterator[tuple[bytes, bytes]]:
    strip = STRIP[conversion.layout]
    for key, value in store.rows(conversion.source):
        older, lost = strip(value)
        counts.headers_dropped += lost
        yield key, older


def _keep_times(step: EditDatabase, path: Path) -> None:
    """Rewritten SSTs are as old as the data in them: an SST younger than ``.checkpoint`` would tell of a crash."""
    if step.before.newest_sst_ns:
        for name in os.listdir(path):
            if name.endswith(".sst") and (path / name).stat().st_nlink == 1:
                os.utime(path / name, ns=(step.before.newest_sst_ns, step.before.newest_sst_ns))


def _own_new_files(path: Path) -> None:
    """What RocksDB has made belongs to the owner of the store, whoever runs kstate."""
    parent = path.parent.stat()
    own_like(path, parent)
    for name in os.listdir(path):
        # What is linked is the original's file too.
        if (path / name).stat(follow_symlinks=False).st_nlink == 1:
            own_like(path / name, parent)


def _write_file(path: Path, data: bytes) -> None:
    stat = path.stat() if path.exists() else None
    path.unlink(missing_ok=True)
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    own_like(path, stat or path.parent.stat())
    os.chmod(path, stat.st_mode & 0o7777 if stat else 0o644)
