"""The files of an export: its parts, the engines that write them, and the folder that they are in.

A part is a range of one database in one Parquet file. An export writes its files in the sub-folder ``_incomplete``,
which Spark and pyarrow skip. When all of them are on disk it renames them, ``_manifest.json`` last: an export with that
file is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option, temporary
from kstate_cli.errors import InUse, Refused, UsageError
from kstate_cli.formats.binary import parse_json
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.limits import MOST_GIVEN_BYTES
from kstate_cli.parallel import Counter, Processes, Progress, leave_everything_in, progress_counters
from kstate_cli.regular_files import read_small, sync_names
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.records import Layout, shape_of
from kstate_cli.rows.segment import UNREADABLE, Databases, Segment
from kstate_cli.rows.serdes import serde
from kstate_cli.spark.engine import EngineChoice
from kstate_cli.statedir.names import OWN_FOLDER
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    import pyarrow as pa


_GROUP_BYTES: Final = 32 << 20
_GROUP_ROWS: Final = 1 << 20
"""A row group of this size is written: it bounds the memory of a part, without its encoding."""
_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class PartJob:
    """The work of one part; plain data, which any process can take."""

    name: str
    """The final name of the file."""
    folder: Path
    """The folder in which it is written under the name of its attempt."""
    partition: int | None
    layout: Layout
    key_serde: str
    value_serde: str
    path: Path | None = None
    """The database; None for a part without rows."""
    app: Path | None = None
    """The application directory of the database."""
    start: int | None = None
    lower: bytes | None = None
    below: bytes | None = None
    """Row keys of this part: ``lower <= key < below``."""
    rows: int = 0
    """Estimated."""
    counter: Counter | None = None
    scratch: Path | None = None
    """The folder for shadows of a worker process: the parent removes it, even if the worker is killed."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """A part that is complete and on disk, under the name of its attempt."""

    name: str
    attempt: str
    rows: int
    size: int


def write_in_worker(job: PartJob) -> PartResult:
    """Run :func:`write_part` in a process that may be killed at any time."""
    if job.scratch is not None:
        leave_everything_in(job.scratch)
    return write_part(job)


def write_part(job: PartJob) -> PartResult:
    """Write the Parquet file of one part, and flush it to disk. Raise StoreUnreadable, SerdeError and OSError.

    After an error, no file is left.
    """
    progress = Progress(job.counter, job.rows)
    path = f"{job.folder}/{job.name}.{os.getpid()}-{secrets.token_hex(4)}"
    # Each attempt has its own file name: Spark may run a task twice, and a worker that is killed leaves a partial file.
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        rows = _write(job, path, progress)
        # Synced before the file gets its final name: after a crash, a final name must not refer to an empty file.
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
    progress.finished()
    return PartResult(job.name, os.path.basename(path), rows, size)


def _write(job: PartJob, path: str, progress: Progress) -> int:
    """Write the rows of a part to a Parquet file; return their number."""
    require_headroom(WRITING_THREADS)
    # Imported here, after the check: numpy and Arrow end the process if they get no threads or memory. The import also
    # takes a quarter of a second, which a refused command need not spend.
    import pyarrow as pa
    from pyarrow import parquet

    from kstate_cli.export.columns import schema_of

    shape = shape_of(job.layout.kind)
    key, value = serde(job.key_serde), serde(job.value_serde)
    schema = schema_of(shape, key, value)
    rows = 0
    # Closed in any case, also after a signal, because the generator has a database open.
    with (
        closing(_batches(job)) as batches,
        parquet.ParquetWriter(path, schema, compression=_COMPRESSION) as writer,
    ):
        for group in _groups(batches, progress):
            writer.write_table(pa.Table.from_batches(group, schema))
            rows += sum(batch.num_rows for batch in group)
    return rows


def _groups(batches: Iterator[pa.RecordBatch], progress: Progress) -> Iterator[list[pa.RecordBatch]]:
    """Join record batches to groups of about ``_GROUP_BYTES`` or ``_GROUP_ROWS``, one for each row group."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        # Batches are small. In larger row groups, data is compressed better and there is less metadata.
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        progress.add(batch.num_rows)
        if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _batches(job: PartJob) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a part as record batches. Raise SerdeError and StoreUnreadable."""
    from kstate_cli.export.columns import PIECES, batches

    if job.path is None or job.app is None:
        return
    databases = Databases()
    segment = Segment(job.path, job.app, job.start, job.layout, databases)
    shape = shape_of(job.layout.kind)
    key, value = serde(job.key_serde), serde(job.value_serde)
    try:
        pieces = segment.pieces(*_bounds(job), PIECES)
        yield from batches(pieces, job.layout, shape, job.partition, key, value)
    except SerdeError as error:
        raise SerdeError(
            f"{segment.relative_path}: {error.message}", hint=error.hint, hint_details=error.hint_details
        ) from None
    except UNREADABLE as error:
        raise segment.blame(error) from None
    finally:
        # Closed too if the caller drops the generator, because Python then runs this block.
        databases.close()


def _bounds(job: PartJob) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of the rows of a part, without the index rows of a time-ordered store."""
    first, end = job.layout.key.base_rows
    return max(filter(None, (first, job.lower)), default=None), min(filter(None, (end, job.below)), default=None)


PROCESSES_BYTES: Final = 32 << 20
"""From so many bytes of SSTs on, processes gain more than their start costs."""


class ExportWatcher:
    """What a caller may show meanwhile."""

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """Report that so many rows are expected, by an estimate."""

    def at(self, rows: int) -> None:
        """Report that so many are written. Called now and then, from another thread."""


def choose_engine(choice: EngineChoice, size: int, parts: int, workers: int) -> str:
    """Return ``spark``, ``processes`` or ``one process`` for ``size`` bytes of SSTs in ``parts`` parts."""
    if choice.is_spark:
        return "spark"
    if min(parts, workers) > 1 and size >= PROCESSES_BYTES:
        return "processes"
    return "one process"


def write_parts(
    jobs: Sequence[PartJob], rows: int, engine: str, workers: int, watcher: ExportWatcher
) -> tuple[PartResult, ...]:
    """Write all parts with ``engine``, a result of :func:`choose_engine`.

    Raise as :func:`write_part`, and RunFailed.
    """
    with temporary.private_folder("export") as scratch:
        watcher.begin(rows, len(jobs), engine)
        with progress_counters(scratch, len(jobs), watcher.at) as counters:
            # The counters of the progress are in a file, because workers are processes, and may be killed at any time.
            counted_jobs = [
                replace(job, counter=counters.counter(number), scratch=scratch) for number, job in enumerate(jobs)
            ]
            if engine == "spark":
                return _on_spark(counted_jobs, workers)
            if engine == "processes":
                return _in_processes(counted_jobs, workers)
            return tuple(map(write_part, counted_jobs))


def _in_processes(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    with Processes(min(workers, len(jobs))) as pool:
        return tuple(pool.map(write_in_worker, jobs))


def _on_spark(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    from kstate_cli.spark.context import SparkSettings, run_tasks, spark_context

    # The databases are on this host, so Spark runs locally.
    with spark_context(SparkSettings(master=f"local[{workers},4]"), name="kstate export") as context:
        return tuple(run_tasks(context, write_in_worker, jobs, lambda: None))


MANIFEST: Final = "_manifest.json"
INCOMPLETE: Final = "_incomplete"
_OWNER: Final = "export.json"
_NAMES: Final = "renaming.json"
_PART: Final = re.compile(r"part-.+-\d{5,}\.parquet")


def check_out(out: Path, app: Path) -> Path:
    """Return the absolute path of ``out``.

    Raise UsageError if it is in the application directory or kstate's own folder.
    """
    # Links are resolved, because a link may lead into the application directory.
    absolute = Path(os.path.realpath(out))
    for forbidden in (app, app.parent / OWN_FOLDER):
        if absolute == forbidden or forbidden in absolute.parents:
            raise UsageError(f"{option.OUT} {quoted(out)} is inside {forbidden}", hint="pass a folder elsewhere")
    if absolute.exists() and not absolute.is_dir():
        raise UsageError(
            f"{option.OUT} {quoted(out)} is not a directory", hint="pass a folder or a path that does not exist yet"
        )
    return absolute


class OutFolder:
    """``out`` during an export. A context manager: without :meth:`publish` nothing of the export remains.

    ``owner`` distinguishes an interrupted export of the same store from another one. Raises Refused if ``out`` has
    other files, InUse if another export writes to it.
    """

    def __init__(self, out: Path, owner: Mapping[str, Any], *, overwrite: bool) -> None:
        self.out = out
        self.folder = out / INCOMPLETE
        self._owner = dict(owner)
        self._overwrite = overwrite
        self._lock: int | None = None
        self._created: list[Path] = []

    def __enter__(self) -> OutFolder:
        """Create the folder and lock it, and remove the files of an interrupted export. Raise InUse and Refused."""
        self._make(self.out)
        try:
            # The folder itself is locked: the system releases the lock however this process ends.
            self._lock = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUse(
                    f"another export is writing to {self.out}",
                    hint=f"wait until it ends, or pass a different folder with {option.OUT}",
                ) from None
            # Checked under the lock, so that no other export changes the names meanwhile.
            self._refuse_others()
            self._drop_interrupted()
            self.folder.mkdir()
            # A note with the store of this export is durable before its first file. It allows the next export to remove
            # the files after a crash. A folder without the note has no files yet.
            _write_json(self.folder / _OWNER, self._owner)
            sync_names(self.folder)
            sync_names(self.out)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._leave()

    def publish(self, names: Mapping[str, str], manifest: Mapping[str, Any]) -> None:
        """Rename each complete file to its final name, and write the manifest.

        ``names`` has final name -> name in ``folder``. The order makes an interruption recognizable: an export with a
        manifest is complete.
        """
        _write_json(self.folder / MANIFEST, manifest)
        # A note with the final names: after a crash, the next export knows which files belong to this one.
        _write_json(self.folder / _NAMES, sorted(names))
        # Both notes are durable before the first rename.
        sync_names(self.folder)
        before: list[str] = []
        if self._overwrite:
            before = sorted(name for name in os.listdir(self.out) if _PART.fullmatch(name))
        renamed: list[str] = []
        try:
            # The old manifest is removed first. Without it the old export counts as incomplete, so no reader uses a mix
            # of both.
            for name in [MANIFEST] * (MANIFEST in os.listdir(self.out)) + before:
                os.unlink(self.out / name)
                if name == MANIFEST:
                    # Otherwise a power failure may lose the removal, but keep later changes of the files.
                    sync_names(self.out)
            for name, attempt in names.items():
                renamed.append(name)
                os.rename(self.folder / attempt, self.out / name)
            # The names must be durable before the manifest that lists them, here and where they were before.
            sync_names(self.out)
            sync_names(self.folder)
            os.rename(self.folder / MANIFEST, self.out / MANIFEST)
        except BaseException:
            for name in renamed:
                (self.out / name).unlink(missing_ok=True)
            raise
        # Makes the name of the manifest durable too, and those of new folders: only now the export survives a crash of
        # the host.
        for folder in (self.out, self.folder):
            sync_names(folder)
        for created in self._created:
            sync_names(created.parent)
        # Created folders are not removed any more, because they have files now.
        self._created.clear()

    def _make(self, out: Path) -> None:
        for parent in reversed([out, *out.parents]):
            if not parent.exists():
                parent.mkdir()
                self._created.append(parent)

    def _leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        # rmdir removes empty folders alone: one with files of anyone else stays.
        for folder in reversed(self._created):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _refuse_others(self) -> None:
        """Raise Refused if the folder has files of another kind, or of an export that must not be overwritten."""
        names = set(os.listdir(self.out))
        own = {name for name in names if name in (INCOMPLETE, MANIFEST) or _PART.fullmatch(name)}
        if foreign := sorted(names - own):
            raise Refused((f"{self.out} is not empty. It contains {foreign[0]}"), hint="pass a new or empty folder")
        if not names or self._overwrite:
            return
        # An interrupted export lists the parts that it has renamed. All other parts belong to a complete export,
        # which may be the only copy of the rows, so the user must confirm the loss.
        if INCOMPLETE not in names or MANIFEST in names or own - {INCOMPLETE} - self._renamed():
            raise Refused(f"{self.out} already contains an export", hint=f"pass a new folder or {option.OVERWRITE}")
        # The file is the first that an export writes. Without it the interrupted export has no rows to lose.
        if self._read(_OWNER) not in (None, self._owner):
            raise Refused(
                (f"{self.out} contains an interrupted export of a different store"),
                hint=f"pass a new folder or {option.OVERWRITE}",
            )

    def _drop_interrupted(self) -> None:
        if self.folder.exists():
            # With a manifest the renaming was complete, and only the folder was left behind.
            if MANIFEST not in os.listdir(self.out):
                for name in self._renamed():
                    (self.out / name).unlink(missing_ok=True)
            shutil.rmtree(self.folder)

    def _renamed(self) -> set[str]:
        """Return the names that an interrupted export may have given to files already."""
        names = self._read(_NAMES)
        return {str(name) for name in names if _PART.fullmatch(str(name))} if isinstance(names, list) else set()

    def _read(self, name: str) -> Any:
        try:
            return parse_json(read_small(self.folder / name, MOST_GIVEN_BYTES))
        except (OSError, ValueError):
            return None


@contextlib.contextmanager
def _descriptor_of(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_json(path: Path, content: Mapping[str, Any] | Sequence[str]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with _descriptor_of(path) as descriptor:
        os.fsync(descriptor)
