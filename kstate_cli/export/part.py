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
from kstate_cli.parallel.workers import Counter, Progress, leave_everything_in
from kstate_cli.rocks.scanning import FlatPiece
from kstate_cli.rows.errors import SerdeError
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.records import shape_of
from kstate_cli.rows.segment import UNREADABLE, Databases, Segment
from kstate_cli.rows.serdes import serde
from kstate_cli.spark.choice import EngineChoice

if TYPE_CHECKING:
    import pyarrow as pa
from collections.abc import Sequence
from dataclasses import replace

from kstate_cli import temporary
from kstate_cli.parallel.workers import Processes, progress_counters

_GROUP_BYTES: Final = 32 << 20
_GROUP_ROWS: Final = 1 << 20
"""A row group is written when so much has come together: what a part holds in memory at most, but for its encoding."""
_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class PartJob:
    """What is to be written; plain data."""

    name: str
    """Of the file in the end."""
    folder: Path
    """Where it is written under another name."""
    partition: int | None
    layout: Layout
    key_serde: str
    value_serde: str
    path: Path | None = None
    """The database; None for a part without rows."""
    app: Path | None = None
    """The application directory that it lies in."""
    start: int | None = None
    lower: bytes | None = None
    below: bytes | None = None
    """Row keys of this part: ``lower <= key < below``."""
    rows: int = 0
    """Estimated."""
    counter: Counter | None = None
    scratch: Path | None = None
    """Where a worker process makes shadows: the parent removes it, however the worker ends."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """A part that is complete and on disk, under a name of its attempt."""

    name: str
    written: str
    rows: int
    size: int


def write_in_worker(job: PartJob) -> PartResult:
    """As :func:`write_part`, in a process that may be killed at any time."""
    if job.scratch is not None:
        leave_everything_in(job.scratch)
    return write_part(job)


def write_part(job: PartJob) -> PartResult:
    """Writes the file and flushes it to disk. Raises StoreUnreadable, SerdeError, OSError; leaves no file then."""
    progress = Progress(job.counter, job.rows)
    written = f"{job.folder}/{job.name}.{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(written, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        rows = _write(job, written, progress)
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    except BaseException:
        os.unlink(written)
        raise
    finally:
        os.close(descriptor)
    progress.finished()
    return PartResult(job.name, os.path.basename(written), rows, size)


def _write(job: PartJob, written: str, progress: Progress) -> int:
    require_headroom(WRITING_THREADS)
    import pyarrow as pa
    from pyarrow import parquet

    shape = shape_of(job.layout.kind)
    key, value = serde(job.key_serde), serde(job.value_serde)
    schema = schema_of(shape, key, value)
    rows = 0
    # Closed in any case, a signal too: it holds a database open.
    with (
        closing(_batches(job)) as batches,
        parquet.ParquetWriter(written, schema, compression=_COMPRESSION) as writer,
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


def chosen(choice: EngineChoice, size: int, parts: int, workers: int) -> str:
    """``spark``, ``processes`` or ``one process`` for so many bytes of SSTs in so many parts."""
    if choice.is_spark:
        return "spark"
    return "processes" if min(parts, workers) > 1 and size >= PROCESSES_BYTES else "one process"


def write_parts(
    jobs: Sequence[PartJob], rows: int, engine: str, workers: int, watcher: ExportWatcher
) -> tuple[PartResult, ...]:
    """Writes all parts; ``engine`` is what :func:`chosen` gave. Raises what ``write_part`` raises, and RunFailed."""
    with temporary.private_folder("export") as scratch:
        watcher.begin(rows, len(jobs), engine)
        with progress_counters(scratch, len(jobs), watcher.at) as counters:
            told = [replace(job, counter=counters.counter(number), scratch=scratch) for number, job in enumerate(jobs)]
            if engine == "spark":
                return _on_spark(told, workers)
            if engine == "processes":
                return _in_processes(told, workers)
            return tuple(map(write_part, told))


def _in_processes(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    with Processes(min(workers, len(jobs))) as pool:
        return tuple(pool.map(write_in_worker, jobs))


def _on_spark(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    from kstate_cli.spark.context import SparkSettings, run_tasks, spark_context

    # The databases are on this host, so the tasks are.
    with spark_context(SparkSettings(master=f"local[{workers},4]"), name="kstate export") as context:
        return tuple(run_tasks(context, write_in_worker, jobs, lambda: None))
