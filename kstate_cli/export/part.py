"""One part of an export, a range of one database in one Parquet file, and the engines that write all parts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli.export.columns import PIECES, batches, schema_of
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.parallel import Counter, Progress, leave_everything_in
from kstate_cli.rocks.scanning import FlatPiece
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.records import Layout, shape_of
from kstate_cli.rows.segment import UNREADABLE, Databases, Segment
from kstate_cli.rows.serdes import serde
from kstate_cli.spark.choice import EngineChoice

if TYPE_CHECKING:
    import pyarrow as pa
from collections.abc import Sequence
from dataclasses import replace

from kstate_cli import temporary
from kstate_cli.parallel import Processes, progress_counters

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
    """Write the file and flush it to disk. Raise StoreUnreadable, SerdeError, OSError, and leave no file then."""
    progress = Progress(job.counter, job.rows)
    path = f"{job.folder}/{job.name}.{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        rows = _write(job, path, progress)
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
    require_headroom(WRITING_THREADS)
    import pyarrow as pa
    from pyarrow import parquet

    shape = shape_of(job.layout.kind)
    key, value = serde(job.key_serde), serde(job.value_serde)
    schema = schema_of(shape, key, value)
    rows = 0
    # Closed in any case, also after a signal: the generator has a database open.
    with (
        closing(_batches(job)) as batches,
        parquet.ParquetWriter(path, schema, compression=_COMPRESSION) as writer,
    ):
        for group in _groups(batches, progress):
            writer.write_table(pa.Table.from_batches(group, schema))
            rows += sum(batch.num_rows for batch in group)
    return rows


def _groups(batches: Iterator[pa.RecordBatch], progress: Progress) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
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
    if job.path is None or job.app is None:
        return
    databases = Databases()
    segment = Segment(job.path, job.app, job.start, job.layout, databases)
    shape = shape_of(job.layout.kind)
    key, value = serde(job.key_serde), serde(job.value_serde)
    try:
        yield from batches(_pieces(segment, job), job.layout, shape, job.partition, key, value)
    except SerdeError as error:
        raise SerdeError(
            f"{segment.relative_path}: {error.message}", hint=error.hint, hint_details=error.hint_details
        ) from None
    except UNREADABLE as error:
        raise segment.blame(error) from None
    finally:
        databases.close()


def _pieces(segment: Segment, job: PartJob) -> Iterator[FlatPiece]:
    first, end = job.layout.key.base_rows
    lower = max(filter(None, (first, job.lower)), default=None)
    below = min(filter(None, (end, job.below)), default=None)
    return segment.pieces(lower, below, PIECES)


PROCESSES_BYTES: Final = 32 << 20
"""From so many bytes of SSTs on, processes gain more than their start costs."""


class ExportWatcher:
    """What a caller may show meanwhile."""

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """So many rows are expected, by an estimate."""

    def at(self, rows: int) -> None:
        """So many are written. Called now and then, from another thread."""


def choose_engine(choice: EngineChoice, size: int, parts: int, workers: int) -> str:
    """Return ``spark``, ``processes`` or ``one process`` for ``size`` bytes of SSTs in ``parts`` parts."""
    if choice.is_spark:
        return "spark"
    return "processes" if min(parts, workers) > 1 and size >= PROCESSES_BYTES else "one process"


def write_parts(
    jobs: Sequence[PartJob], rows: int, engine: str, workers: int, watcher: ExportWatcher
) -> tuple[PartResult, ...]:
    """Write all parts; ``engine`` is the result of :func:`choose_engine`. Raise as ``write_part``, and RunFailed."""
    with temporary.private_folder("export") as scratch:
        watcher.begin(rows, len(jobs), engine)
        with progress_counters(scratch, len(jobs), watcher.at) as counters:
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
