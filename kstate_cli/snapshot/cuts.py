"""Consistent cuts of databases that a process may be writing: files are held open, and read through a private copy.

RocksDB never changes an SST or a blob file. It deletes one at any time, but an open descriptor keeps its bytes. So a
cut opens every such file first, and copies CURRENT, OPTIONS and the MANIFEST up to its last whole record afterwards.
The MANIFEST decides which files count: if one of them is not held, the cut is taken again.

A private folder has the small files, and links to the descriptors of the large ones (``/proc/self/fd``). RocksDB opens
that folder read-only, which proves that the cut is a database: column families, live files with their sizes, offsets.
Nothing is written to the directory of the application, and its locks stay free.

The cut is what a kill of the process would have left at that moment, and no more is known of it. Whether it may be
captured is decided by :mod:`kstate_cli.snapshot.rules`.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final

from kstate_cli import temporary
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.metadata_files import families_with_tables, live_tables, whole_records
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition, changelog_topic
from kstate_cli.host import most_descriptors
from kstate_cli.limits import MOST_MANIFEST_BYTES, MOST_NAME_BYTES
from kstate_cli.offsets.last_run import silent_by_key
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.regular_files import open_regular, read_small, too_large
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import CURRENT, is_log, is_never_changed, newest_options
from kstate_cli.snapshot.model import Generation, StoredStore
from kstate_cli.snapshot.rules import (
    NEVER_FLUSHED,
    NOT_WRITTEN_YET,
    CutFacts,
    UnflushedSegments,
    earlier_stores,
    never_flushed,
    nothing_uncommitted,
    offset_of,
    why_not,
)
from kstate_cli.statedir.changelogs import usual_prefix
from kstate_cli.statedir.database import read_copy
from kstate_cli.statedir.model import Application, Database, Task
from kstate_cli.statedir.names import segment_start
from kstate_cli.statedir.problems import Place
from kstate_cli.statedir.scan import read_task

_ATTEMPTS: Final = 12
"""A flush or a compaction takes longer than a cut: twelve failures in a row are a sign of something else."""
_TASK_ATTEMPTS: Final = 8
"""Of a whole task: a new segment, or a dropped one, is much rarer than a flush."""
_PAUSE_SECONDS: Final = 0.005
"""The pause before the second attempt; each further pause is longer by it."""
_DESCRIPTORS: Final = "/proc/self/fd"
CHANGING: Final = "its files changed while kstate was reading them"


class _MovedError(Exception):
    """The database changed during the cut."""


class _LogError(Exception):
    """A write-ahead log holds rows. The text names it."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of a cut: the descriptor of an SST or blob file, None for a small file that was copied."""

    descriptor: int | None
    inode: int
    size: int
    mtime_ns: int


class Cuts:
    """Takes cuts, and holds their files until it is left. A context manager, for one thread."""

    def __init__(self, app: Path) -> None:
        self.app = app
        # In memory if there is space: only small files, and they need not outlive the process.
        self._folder = temporary.new_path("shadow", temporary.in_memory(MOST_MANIFEST_BYTES))
        self._files: dict[Path, dict[str, HeldFile]] = {}
        self._filled: dict[Path, frozenset[str]] = {}
        self.failures: dict[Place, str] = {}
        """Databases of which no cut could be taken, and why. Of a running application the next attempt may succeed."""
        self.uncommitted: set[str] = set()
        """Tasks that may not be captured because their rows may be uncommitted under exactly-once."""

    def __enter__(self) -> Cuts:
        # One descriptor for each SST, until the last file is copied.
        most_descriptors()
        self._folder.mkdir(mode=0o700)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in list(self._files):
            self._release(path)
        shutil.rmtree(self._folder, ignore_errors=True)

    def files(self, database: Database) -> Mapping[str, HeldFile]:
        """Return the files of a cut by name: those that its MANIFEST names, and the small ones."""
        return self._files[database.path]

    def filled_families(self, database: Database) -> frozenset[str]:
        """Return the column families of data that have, or had, an SST since the database was opened."""
        return self._filled[database.path]

    def forget(self, place: Place) -> None:
        """Release the cuts of one task, before they are taken again."""
        folder = self._folder.joinpath(*place.names)
        for path in [path for path in self._files if path.is_relative_to(folder)]:
            self._release(path)
        for failed in [failed for failed in self.failures if failed.names[: len(place.names)] == place.names]:
            del self.failures[failed]
        shutil.rmtree(folder, ignore_errors=True)

    def read(self, path: Path, start: int | None, place: Place) -> Database | None:
        """Return a database as of one moment; None if it was removed, or if it is one of ``failures`` now.

        The path of the result is that of the private folder. ``start`` is the start of a segment in ms.
        """
        why = CHANGING
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt * _PAUSE_SECONDS)
            try:
                return self._cut(path, start, place)
            except (FileNotFoundError, _MovedError):
                why = CHANGING
            except _LogError as error:
                # No later attempt differs: Streams turns the write-ahead log off.
                why = str(error)
                break
            except (RocksError, MalformedBytesError) as error:
                # A record that another process is writing may look damaged, once.
                why = f"kstate cannot read the database: {error}"
            except OSError as error:
                why = f"{error.filename}: {error.strerror}"
            # An expired segment is closed, and its folder deleted: then nothing is missing.
            if not path.exists():
                return None
        self.failures[place] = why
        return None

    def _cut(self, path: Path, start: int | None, place: Place) -> Database:
        copy = self._folder / path.relative_to(self.app)
        copy.mkdir(parents=True)
        self._files[copy] = {}
        try:
            opened_ns = self._copy_small_files(path, copy)
            database = read_copy(copy, start, place, opened_ns)
            self._keep_live(copy, database)
        except BaseException:
            self._release(copy)
            shutil.rmtree(copy, ignore_errors=True)
            raise
        return database

    def _copy_small_files(self, path: Path, copy: Path) -> int:
        """Hold the large files, copy the small ones, and return the mtime of CURRENT in ns."""
        current = read_small(path / CURRENT, MOST_NAME_BYTES)
        names = os.listdir(path)
        # Before the MANIFEST is read: from here on no file that it names can lose its bytes.
        for name in filter(is_never_changed, names):
            self._hold(path, copy, name)
        manifest = os.path.basename(current.decode("ascii", "replace").strip())
        data, status = _read_manifest(path / manifest)
        tables = [f"{number:06}.sst" for ssts in live_tables(data).values() for number in ssts]
        for name in tables:
            if name not in self._files[copy]:
                # Written since the listing. A compaction may have removed it already: then FileNotFoundError.
                self._hold(path, copy, name, must_exist=True)
        self._filled[copy] = frozenset(families_with_tables(data).values()) - {OFFSETS_CF}
        self._write(copy, manifest, data, status)
        small = ["IDENTITY"]
        options = newest_options(path)
        if options is None:
            # The last file of an open: the database is being created.
            raise _MovedError
        small.append(options.name)
        for name in small:
            self._write(copy, name, read_small(path / name, MOST_MANIFEST_BYTES), os.stat(path / name))
        for name in filter(is_log, names):
            log = os.stat(path / name)
            if log.st_size:
                # Rows of a custom configuration, in no SST yet.
                raise _LogError(f"{name} contains rows that RocksDB has never flushed")
            self._write(copy, name, b"", log)
        status = os.stat(path / CURRENT)
        # Last: an open replaces CURRENT, and begins another MANIFEST.
        if read_small(path / CURRENT, MOST_NAME_BYTES) != current:
            raise _MovedError
        self._write(copy, CURRENT, current, status)
        return status.st_mtime_ns

    def _hold(self, path: Path, copy: Path, name: str, *, must_exist: bool = False) -> None:
        try:
            descriptor = open_regular(path / name)
        except FileNotFoundError:
            if must_exist:
                raise
            return  # removed since the listing; the MANIFEST decides whether it counts
        status = os.fstat(descriptor)
        self._files[copy][name] = HeldFile(descriptor, status.st_ino, status.st_size, status.st_mtime_ns)
        os.symlink(f"{_DESCRIPTORS}/{descriptor}", copy / name)

    def _write(self, copy: Path, name: str, data: bytes, status: os.stat_result) -> None:
        target = copy / name
        target.write_bytes(data)
        # A restored file has the time of the original.
        os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
        written = os.stat(target)
        self._files[copy][name] = HeldFile(None, written.st_ino, written.st_size, written.st_mtime_ns)

    def _keep_live(self, copy: Path, database: Database) -> None:
        """Close the files that the MANIFEST does not name: results of a flush or compaction that is not finished."""
        live = {file.name for files in database.live.values() for file in files}
        files = self._files[copy]
        for name in [name for name, file in files.items() if file.descriptor is not None and name not in live]:
            # The held size is read again: RocksDB ends an SST before the MANIFEST names it.
            _close(files.pop(name))
            (copy / name).unlink()
        for name in live:
            status = os.stat(copy / name)
            files[name] = HeldFile(files[name].descriptor, status.st_ino, status.st_size, status.st_mtime_ns)

    def _release(self, copy: Path) -> None:
        for file in self._files.pop(copy, {}).values():
            _close(file)
        self._filled.pop(copy, None)


def _close(file: HeldFile) -> None:
    if file.descriptor is not None:
        os.close(file.descriptor)


def _read_manifest(path: Path) -> tuple[bytes, os.stat_result]:
    """Return the whole records of a MANIFEST, up to the size that it has now."""
    with os.fdopen(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_MANIFEST_BYTES:
            raise too_large(path, status.st_size, MOST_MANIFEST_BYTES)
        return whole_records(file.read(status.st_size)), status


def open_held(file: HeldFile) -> int:
    """Open a held SST or blob file again, with a position of its own; the caller closes it. Raise OSError."""
    return os.open(f"{_DESCRIPTORS}/{file.descriptor}", os.O_RDONLY | os.O_CLOEXEC)


# --- one task ---------------------------------------------------------------------------------------------------------

EarlierStores = Callable[[], Sequence[tuple[str, Generation]]]
"""Returns name and content of earlier generations, which only a segment without an offset needs."""


@dataclass(frozen=True, slots=True)
class CutStore:
    """A store of a cut that may be captured, with its offsets: -4 if a segment has none and nothing bounds it."""

    offsets: StoreOffsets
    unflushed: Mapping[TopicPartition, UnflushedSegments] = field(default_factory=dict)
    """The segments that no earlier generation bounds: the log shows where they begin."""
    why_unknown: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Why an offset is -4, as far as the cut shows it."""


@dataclass(frozen=True, slots=True)
class CutTask:
    """A task of which every requested store may be captured from its cut."""

    resolved: TaskOffsets
    stores: tuple[CutStore, ...]


def cut_task(
    cuts: Cuts, name: str, path: Path, stores: Collection[str], earlier: EarlierStores, *, at_least_once: bool
) -> CutTask | str | None:
    """Return a task that may be captured, or why not; None if it was removed. ``stores``: empty for all.

    A process that flushes, compacts, drops segments or closes meanwhile makes it try again, a bounded number of times.
    """
    why = CHANGING
    for attempt in range(_TASK_ATTEMPTS):
        cuts.forget(Place(tuple(name.split("/"))))
        time.sleep(attempt * _PAUSE_SECONDS)
        try:
            # Held open, so that no other directory gets its inode.
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            task = read_task(name, path, cuts.read)
            if task is None:
                return None
            reason = _moved(cuts, task) or _replaced(path, folder)
        finally:
            os.close(folder)
        if reason is None:
            return _judged(cuts, task, stores, earlier, at_least_once=at_least_once)
        why = reason
    return why


def _replaced(path: Path, descriptor: int) -> str | None:
    """Return why a task directory is not the one that was opened before; None if it is.

    The cleaner deletes a task that moved away, and an assignment creates it again: the offsets of the old
    ``.checkpoint`` would be past the rows of the new databases.
    """
    try:
        now = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return CHANGING
    before = os.fstat(descriptor)
    if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
        return CHANGING
    return None


def _moved(cuts: Cuts, task: Task) -> str | None:
    """Return why the cuts of a task do not belong together; None if they do. Another attempt may succeed."""
    for place, why in cuts.failures.items():
        return f"{place.text}: {why}"
    for store in task.stores:
        if not store.segmented:
            continue
        folders = {database.path.name for database in store.databases}
        try:
            names = os.listdir(store.path)
        except FileNotFoundError:
            return f"{store.name}: {CHANGING}"
        # A segment that was created since the listing: offsets of segments that were cut later may be past its rows.
        new = [name for name in names if segment_start(store.name, name) is not None and name not in folders]
        if new:
            return f"{store.name}: {CHANGING}"
    problem = next((problem for problem in task.problems if problem.fatal or problem.doubt), None)
    if problem is not None:
        return problem.reasoned
    return None


def _judged(
    cuts: Cuts, task: Task, stores: Collection[str], earlier: EarlierStores, *, at_least_once: bool
) -> CutTask | str:
    """Apply the rules to the cuts of a task."""
    databases = [database for store in task.stores for database in store.databases]
    for database in databases:
        for problem in database.problems:
            if problem.fatal or problem.doubt:
                return problem.reasoned
    facts = CutFacts(
        task, {database.path: cuts.filled_families(database) for database in databases}, at_least_once=at_least_once
    )
    # As of a running application: a segment that states nothing is bounded below, and does not make the offset unknown.
    application = Application(cuts.app, (task,), running=True, pid=None)
    (resolved,) = resolve(application)
    planned = []
    for offsets in resolved.stores:
        store = offsets.store
        if stores and store.name not in stores:
            continue
        reason = why_not(facts, store)
        if offsets.stale:
            # Up to 4.2 a topic that the topology no longer has is fatal in global/.checkpoint.
            reason = "the application's last run did not open this global store"
        if reason is not None:
            if nothing_uncommitted(facts, store) is not None:
                cuts.uncommitted.add(task.name)
            return f"{store.name}: {reason}"
        planned.append(_cut_store(cuts.app, task, offsets, earlier))
    return CutTask(resolved, tuple(planned))


def _cut_store(app: Path, task: Task, offsets: StoreOffsets, earlier: EarlierStores) -> CutStore:
    store = offsets.store
    if not store.has_offsets_family:
        unknown = [key for key, offset in offsets.offsets.items() if offset == OFFSET_UNKNOWN]
        return CutStore(offsets, why_unknown=dict.fromkeys(unknown, NOT_WRITTEN_YET))
    before: Sequence[tuple[str, StoredStore]] = ()
    if store.segmented and silent_by_key(store):
        before = tuple(earlier_stores(earlier(), task.name, store))
    segments = never_flushed(store)
    if segments is not None and task.partition is not None:
        # Nothing on disk names its changelog. A topic of that name decides nothing else: the store has no row.
        topic = changelog_topic(usual_prefix(app.name, task), store.name)
        key = TopicPartition(topic, task.partition)
        return CutStore(offsets, {key: segments}, {key: NEVER_FLUSHED})
    # Of the column family alone: the file of a grace buffer is written on its own, and may be ahead of the rows.
    offset = offset_of(store, task.partition, before)
    return CutStore(replace(offsets, offsets=offset.offsets), offset.unflushed, offset.why_unknown)
