"""The two ends of the engines: the work of a plan becomes jobs, and their sorted files become steps.

A job is one slice of a changelog partition, sized for the memory of a task. The steps build databases of the sorted
files of accepted attempts, oldest file first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import BuildDatabase, OmitTree, Step, WriteFile
from kstate_cli.dump_reader.model import Dump, PartitionDump, Slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.store_kinds import StoreKind, expires, has_key, store_kind
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.host import cores_here
from kstate_cli.offsets.keeping import FIRST_SEGMENT, Keeping, closed, in_a_file
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.restore.jobs import SliceJob, SliceResult, SortedFile
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.plan import RestoredPartition, StoreWork
from kstate_cli.restore.sorting.memory import (
    ARRAY_BYTES,
    HISTORY_COPIES,
    HISTORY_RECORD_BYTES,
    MOST_SLICE_RECORDS,
    RECORD_BYTES,
    RECORD_KEY_COPIES,
    Slots,
)
from kstate_cli.restore.staging import Staging
from kstate_cli.rocks.settings import TARGET_FILE_BYTES
from kstate_cli.signals import mapped
from kstate_cli.spark.context import SparkSettings
from kstate_cli.specification.draft import StoreSpec
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.names import segment_folder
from kstate_cli.texts import suggest


@dataclass(frozen=True, slots=True)
class RestoredStore:
    """One line of the table at the end."""

    task: str
    store: str
    records: int = 0
    rows: int = 0
    deleted: int = 0
    expired: int = 0
    null_keys: int = 0
    has_position: bool = False
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.store}"


@dataclass(frozen=True, slots=True)
class _StoreResults:
    """The results of all slices of one store, by slice number."""

    work: StoreWork
    results: tuple[SliceResult, ...]
    oldest: int | None
    """The start (ms) of its oldest live segment; None if its segments do not expire."""

    @property
    def position(self) -> Position:
        """The Position of its live rows."""
        work, merged = self.work, Position.empty()
        if work.existing is not None and not work.rebuild:
            merged = work.existing.position
        for result in self.results:
            for segment, position in result.positions:
                if self.is_live(segment):
                    merged = merged.merge(position)
        return merged

    def is_live(self, segment: int | None) -> bool:
        """Return True unless a segment is older than the retention."""
        return segment is None or self.oldest is None or segment >= self.oldest

    @property
    def live_files(self) -> Iterator[tuple[SliceResult, SortedFile]]:
        """The files that become part of a database, with the result that has them."""
        return ((result, file) for result in self.results for file in result.files if self.is_live(file.segment))

    @property
    def report(self) -> RestoredStore:
        """The report on the restored store that the user sees."""
        files = [file for _, file in self.live_files]
        expired_files = [file for result in self.results for file in result.files if not self.is_live(file.segment)]
        return RestoredStore(
            self.work.task,
            self.work.spec.name,
            records=sum(result.records for result in self.results),
            rows=sum(file.rows for file in files),
            deleted=sum(file.deletes for file in files),
            expired=sum(result.expired for result in self.results) + sum(file.rows for file in expired_files),
            null_keys=sum(result.null_keys for result in self.results),
            has_position=not self.position.is_empty,
            offsets=self.work.offsets,
            seconds=sum((result.seconds for result in self.results), 0.0),
        )


def to_steps(
    work: Sequence[StoreWork],
    results: Sequence[SliceResult],
    release: Release,
    staging: Staging,
    folder: Path,
    app: Path,
) -> tuple[tuple[Step, ...], list[RestoredStore]]:
    """Return the steps that build the announced stores, and a report on each store.

    Raises Refused for a Position that cannot be written, RunFailed for a file that is not what its task wrote.
    """
    by_store: dict[tuple[str, str], list[SliceResult]] = {}
    for result in results:
        by_store.setdefault((result.task, result.store), []).append(result)
    stores = [_store_results(store, by_store.get((store.key, store.spec.name), [])) for store in work]
    # Only files that become part of a database are fetched and checked; those of expired segments are not needed.
    paths = _fetched([file for store in stores for _, file in store.live_files], staging, folder)
    steps = [step for store in stores for step in _steps_of(store, release, paths, app)]
    return tuple(steps), [store.report for store in stores]


def _store_results(work: StoreWork, results: Iterable[SliceResult]) -> _StoreResults:
    # Results arrive as their tasks end. A file with a higher number must be ingested later, because then it wins.
    in_order = tuple(sorted(results, key=lambda result: result.number))
    return _StoreResults(work, in_order, _oldest_live(work, in_order))


def _oldest_live(work: StoreWork, results: Sequence[SliceResult]) -> int | None:
    """Return the start (ms) of the oldest segment that has not expired, by all times of the store; None without expiry.

    The rule is that of ``AbstractSegments.cleanupExpiredSegments``.
    """
    spec = work.spec
    # Nothing expires by time in other stores, nor in a grace buffer, although that has segments too.
    if not expires(spec.kind) or not spec.segment_interval_ms or spec.retention_ms is None:
        return None
    times = [result.max_time for result in results if result.max_time is not None]
    if not times:
        return None
    # Segments on disk count too: the rows of one are at least as young as its start.
    times += [start for start in databases_before(work) if start is not None]
    return (max(times) - spec.retention_ms) // spec.segment_interval_ms * spec.segment_interval_ms


def databases_before(work: StoreWork) -> dict[int | None, Database]:
    """Return the databases that are caught up, by the start of their segment; None for a store without segments."""
    if work.rebuild or work.existing is None:
        return {}
    return {database.segment_start: database for database in work.existing.store.databases}


@dataclass(slots=True)
class _Ingredients:
    """The sorted files of one database."""

    layers: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    """Paths by slice and layer, oldest layer first."""
    rows: int = 0
    """Rows and deletes."""
    deletes: int = 0

    def add(self, number: int, file: SortedFile, path: str) -> None:
        """Add the next file of slice ``number``, which is at ``path`` on this host."""
        self.layers.setdefault((number, file.layer), []).append(path)
        self.rows += file.rows + file.deletes
        self.deletes += file.deletes


def _steps_of(store: _StoreResults, release: Release, paths: Mapping[str, Path], app: Path) -> Iterator[Step]:
    """Yield the steps of one store: expired segments go, databases are built, and the Position is written."""
    before = databases_before(store.work)
    for start, database in before.items():
        # Streams would delete this segment at the next write to the store. A copy of it would only take disk space.
        if not store.is_live(start):
            why = "its rows are older than the retention, according to the times of the restored records"
            yield OmitTree(str(database.path.relative_to(app)), why)
    position = store.position
    record = None
    if release.offsets_home is OffsetsHome.COLUMN_FAMILY:
        record = closed(store.work.offsets, position)
    yield from _build_steps(store, release, record, paths)
    # Streams has no Position file for a global store.
    if release.offsets_home is OffsetsHome.FILES and not position.is_empty and not store.work.spec.is_global:
        yield _position_step(store.work, position)


def _build_steps(
    store: _StoreResults, release: Release, record: OffsetsRecord | None, paths: Mapping[str, Path]
) -> Iterator[BuildDatabase]:
    """Yield a step for each database that gets rows, or an offset (``record``)."""
    work, kind = store.work, store_kind(store.work.spec.kind)
    before = databases_before(work)
    by_segment = _by_segment(store, paths)
    targets = set(by_segment) | {start for start in before if store.is_live(start)}
    if not targets and _needs_empty_database(work, kind, record):
        targets.add(FIRST_SEGMENT if kind.key.segmented else None)
    # A store has either segments or one database, so None is never compared with a start.
    for segment in sorted(targets, key=lambda start: start or 0):
        ingredients = by_segment.get(segment, _Ingredients())
        if not ingredients.layers and record is None and segment in before:
            # The database gets no rows, and the release keeps offsets in files, so it stays as it is.
            continue
        path = work.path
        if segment is not None:
            path = f"{work.path}/{segment_folder(work.spec.name, segment)}"
        yield BuildDatabase(
            path=path,
            kind=work.spec.kind,
            release=release,
            family=kind.family.name,
            layers=tuple(map(tuple, ingredients.layers.values())),
            rows=ingredients.rows,
            deletes=ingredients.deletes,
            offsets=record,
            exists=segment in before,
        )


def _by_segment(store: _StoreResults, paths: Mapping[str, Path]) -> dict[int | None, _Ingredients]:
    by_segment: dict[int | None, _Ingredients] = {}
    for result, file in store.live_files:
        by_segment.setdefault(file.segment, _Ingredients()).add(result.number, file, str(paths[file.path]))
    return by_segment


def _needs_empty_database(work: StoreWork, kind: StoreKind, record: OffsetsRecord | None) -> bool:
    """Return True if a store without rows must exist: it has no segments, or its offset needs a database."""
    return not kind.key.segmented or (record is not None and not in_a_file(work.spec.kind))


def _position_step(work: StoreWork, position: Position) -> WriteFile:
    """Return the step that writes the Position file of releases up to 4.2."""
    try:
        return Keeping(work.task).position(work.spec.name, position, "Position, from the changelog's headers")
    except ValueError as error:
        raise Refused(
            f"{work.title}: kstate cannot write the Position from the headers of its changelog: {error}",
            hint="restore for release 4.3 or later, which keeps the Position in the store",
        ) from None


def _fetched(files: Sequence[SortedFile], staging: Staging, folder: Path) -> dict[str, Path]:
    """Return the sorted files as local ones, by the paths that their tasks gave; every byte of them is compared."""
    # A signal must not wait for the digests of files that are no longer wanted.
    ended = threading.Event()
    # Digests are taken, and files copied, without holding the interpreter's lock.
    with ThreadPoolExecutor(cores_here()) as pool:
        try:
            paths = mapped(pool, lambda file: staging.fetch(file, folder, ended.is_set), files)
        finally:
            ended.set()
    return {file.path: path for file, path in zip(files, paths, strict=True)}


_UNBOUNDED: Final = 1 << 62


def refuse_distant_bases(work: Sequence[StoreWork], spark: SparkSettings) -> None:
    """Raise Refused if tasks on other hosts would catch up versioned stores.

    Catching up a versioned store reads its rows, which are on this host. On another host the same path is another
    store.
    """
    # With a local Spark the executors run on this host and see the directory.
    if spark.local:
        return
    distant = [store.title for store in work if has_key(store.spec.kind, KeySchema.VERSIONED) and not store.rebuild]
    if distant:
        raise Refused(
            "a Spark cluster cannot update versioned stores, because their rows are on this host: "
            f"{', '.join(distant)}",
            hint=f"omit {option.MASTER}"
            f"{suggest(f', or rebuild them completely with {option.REBUILD}', option.REBUILD)}",
        )


@dataclass(frozen=True, slots=True)
class Slicing:
    """What the slices of a restoration are cut from, and for what."""

    app: Path
    dump: Dump
    release: Release
    staging: str
    """A folder, or a URI."""
    slots: Slots
    repartitioned: Callable[[PartitionDump], tuple[PartitionDump, str]]
    """Sorts a partition whose rows are too far out of order; returns it with the URI of the sorted dump."""
    elsewhere: Mapping[str, Path] = field(default_factory=dict)
    """The path of a store in APP -> the folder with its rows, if APP does not have them."""


def make_jobs(work: Sequence[StoreWork], slicing: Slicing) -> list[SliceJob]:
    """Return the jobs of every store, largest first: the last job to end is then a small one."""
    pieces = _pieces_per_partition(sum(len(store.parts) for store in work), slicing.slots.tasks)
    jobs = [job for store in work for job in _jobs_of_store(store, slicing, pieces)]
    return sorted(jobs, key=lambda job: -job.slice.bytes)


def _pieces_per_partition(partitions: int, tasks: int) -> int:
    """Return the slices that keep every task busy: the more partitions there are, the fewer each needs."""
    # With so many partitions, or an even division, all tasks end at about the same time: more slices would only write
    # keys several times.
    if partitions >= 3 * tasks or partitions % tasks == 0:
        return 1
    # Two slices for each task, rounded up: with one each, the largest partition would decide.
    return -(-2 * tasks // partitions)


def _jobs_of_store(work: StoreWork, slicing: Slicing, pieces: int) -> list[SliceJob]:
    """Return the jobs of one store, numbered so that of two files with the same key the one of the later job counts."""
    jobs: list[SliceJob] = []
    for part in work.parts:
        # Some partitions of a global store may stay, unless it is rebuilt: all partitions share one database.
        if part.verdict.action is Action.LEAVE and not work.rebuild:
            continue
        # The numbers continue over all partitions and slices of the store, since they decide which of its files counts.
        for piece, uri in _slices(work, part, slicing, pieces):
            first = len(jobs)
            new_jobs = _jobs_of_slice(work, piece, uri, slicing, first)
            jobs += [replace(job, number=number) for number, job in enumerate(new_jobs, start=first)]
    return jobs


def _slices(work: StoreWork, part: RestoredPartition, slicing: Slicing, pieces: int) -> list[tuple[Slice, str]]:
    """Return the slices of one partition, each with the URI of its dump: ``pieces`` of them or more, or fewer if small.

    Raises Refused for rows that cannot be sorted.
    """
    rows, memory = part.dump, slicing.slots.memory
    if not rows.rows:
        return []
    after, until = work.bounds(part)
    total = sum(piece.share for piece in rows.pieces)
    # The footers of Parquet files state the bytes of columns, not of rows, so an average per record is used.
    record_bytes = max(total // rows.rows, 1)
    most = min(-(-total // pieces), MOST_SLICE_RECORDS * record_bytes)
    if has_key(work.spec.kind, KeySchema.VERSIONED):
        # All records of a key must be in one slice: a version ends where the next record of its key begins.
        most = _UNBOUNDED
    # If rows are out of order, a task sorts its slice as a whole, so the slice must fit the memory.
    fitting = min(memory // _bytes_per_record(rows) * record_bytes, ARRAY_BYTES)
    # The first limit gives as few slices as possible. If one of them is out of order, the second gives slices that fit.
    for limit in (most, min(most, fitting)):
        cut, shuffled = slices(rows, after=after, until=until, max_bytes=limit)
        if not shuffled and all(piece.ordered or piece.bytes <= min(fitting, memory) // 2 for piece in cut):
            return [(piece, slicing.dump.uri) for piece in cut]
    # The files overlap so much that no slice is small enough. Spark sorts the whole partition by offset (a shuffle),
    # and the result is divided.
    rows, uri = slicing.repartitioned(rows)
    cut, shuffled = slices(rows, after=after, until=until, max_bytes=most)
    # Spark has sorted by offset, so rows are still out of order only if the offsets of this dump contradict themselves.
    if shuffled:
        raise Refused(
            f"kstate cannot sort the rows of {rows.key}, because the dump's files contradict each other",
            hint="write the dump again, sorted by offset",
        )
    return [(piece, uri) for piece in cut]


def _bytes_per_record(dump: PartitionDump) -> int:
    """Return the memory that a task needs for each record, whatever its value."""
    key_bytes = sum(piece.key_bytes for piece in dump.pieces) // max(sum(piece.rows for piece in dump.pieces), 1)
    return RECORD_BYTES + RECORD_KEY_COPIES * key_bytes


def _jobs_of_slice(work: StoreWork, piece: Slice, uri: str, slicing: Slicing, number: int) -> Iterator[SliceJob]:
    """Yield the job of one slice; for a versioned store several, as memory requires, each for some of the keys."""
    spec, memory = work.spec, slicing.slots.memory
    kind = store_kind(spec.kind)
    interval_ms = 0
    if kind.has_retention:
        interval_ms = spec.segment_interval_ms or 0
    job = SliceJob(
        number=number,
        task=work.key,
        store=spec.name,
        kind=spec.kind,
        release=slicing.release.name,
        slice=piece,
        dump_uri=uri,
        staging=slicing.staging,
        memory=memory,
        interval_ms=interval_ms,
        retention_ms=spec.retention_ms or 0,
        indexed=spec.indexed,
        tombstones=not work.rebuild or number > 0,
        positions=_has_positions(slicing.dump, spec),
        file_bytes=TARGET_FILE_BYTES,
        existing=tuple(databases_before(work)),
    )
    # In other kinds of store a row follows from the last record of its key alone, so one job is enough.
    if kind.key is not KeySchema.VERSIONED:
        yield job
        return
    needed_bytes = piece.rows * HISTORY_RECORD_BYTES + piece.bytes * HISTORY_COPIES
    # Each job reads all records of the partition and keeps those of its keys (a bucket). That is slower, but nothing
    # else bounds the memory.
    buckets = max(1, -(-needed_bytes // memory))
    base = ""
    if not work.rebuild:
        base = str(slicing.elsewhere.get(work.path, slicing.app / work.path))
    yield from (replace(job, bucket=(bucket, buckets), base=base) for bucket in range(buckets))


def _has_positions(dump: Dump, spec: StoreSpec) -> bool:
    """Return True if the headers of records are those of Streams: headers stores and source topics have the user's."""
    kind = store_kind(spec.kind)
    own = not kind.needs_headers and not spec.source_topic and not spec.is_global
    return dump.headers_of(spec.changelog) and own and kind.key is not KeySchema.VERSIONED
