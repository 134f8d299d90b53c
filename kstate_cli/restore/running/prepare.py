"""From the plan to the databases: slices, the memory of a slot, sorted files, and the steps that take those in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstate_cli.change.plan import BuildDatabase, OmitTree, Step
from kstate_cli.dump_reader.model import Dump, PartitionDump, Slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import expires, has_key, store_kind
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.host import cores_here
from kstate_cli.offsets.keeping import FIRST_SEGMENT, Keeping, closed, in_a_file
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.restore.jobs import SliceJob, SliceResult, SortedFile
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.plan import RestoredPartition, StoreWork
from kstate_cli.restore.sorting.memory import (
    ARRAY_BYTES,
    DIRECT_BYTES,
    HISTORY_COPIES,
    HISTORY_RECORD_BYTES,
    LEAST_DIRECT_BYTES,
    MOST_SLICE_RECORDS,
    RECORD_BYTES,
    RECORD_KEY_COPIES,
    Slots,
)
from kstate_cli.restore.staging import Staging
from kstate_cli.rocks.settings import TARGET_FILE_BYTES
from kstate_cli.signals import mapped
from kstate_cli.spark.context import SparkSettings
from kstate_cli.specification.model import StoreSpec
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.names import segment_folder

_WHOLE = 1 << 62


@dataclass(slots=True)
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
    def shown(self) -> str:
        """How messages call it."""
        return f"{self.task}/{self.store}"


def refuse_distant_bases(work: Sequence[StoreWork], spark: SparkSettings) -> None:
    """A versioned store is caught up from its rows, which lie on this host: a path elsewhere is another store's.

    Raises Refused.
    """
    far = (
        []
        if spark.local
        else [one.shown for one in work if has_key(one.spec.kind, KeySchema.VERSIONED) and not one.rebuild]
    )
    if far:
        raise Refused(
            f"versioned stores are caught up on this host only: {', '.join(far)}",
            hint="leave out --master, or replace them whole with --rebuild",
        )


@dataclass(frozen=True, slots=True)
class Slicing:
    """What the slices of a restoration are made of, and for what."""

    app: Path
    dump: Dump
    release: Release
    staging: str
    """A folder, or a URI."""
    slots: Slots
    repartitioned: Callable[[PartitionDump], tuple[PartitionDump, str]]
    """Puts a dump in order that is too shuffled; the URI is that of what it wrote."""
    direct: bool = False
    """The dump is read around the page cache of this host."""


def make_jobs(work: Sequence[StoreWork], slicing: Slicing) -> list[SliceJob]:
    """The slices of every store, largest first."""
    # The more partitions there are at once, the fewer slices each needs to keep every task busy.
    partitions = sum(len(one.parts) for one in work)
    tasks = slicing.slots.tasks
    pieces = 1 if partitions >= 3 * tasks or partitions % tasks == 0 else -(-2 * tasks // partitions)
    jobs: list[SliceJob] = []
    for one in work:
        mine: list[SliceJob] = []
        for part in one.parts:
            if part.verdict.action is Action.LEAVE and not one.rebuild:
                continue
            for piece, uri in _slices(one, part, slicing, pieces):
                made = _jobs_of(one, piece, uri, slicing, len(mine))
                mine += [replace(job, number=len(mine) + at) for at, job in enumerate(made)]
        jobs += mine
    return sorted(jobs, key=lambda job: -job.slice.bytes)


def with_digests(jobs: Sequence[SliceJob], known: Mapping[str, str]) -> tuple[list[SliceJob], dict[str, str]]:
    """The jobs, with the digest of each file at the first one that reads it; and those of files that none reads."""
    left = dict(known)
    dealt = []
    for job in jobs:
        paths = sorted({piece.path for piece in job.slice.pieces if piece.path in left}) if job.direct else []
        dealt.append(replace(job, digests=tuple((path, left.pop(path)) for path in paths)))
    return dealt, left


def _slices(work: StoreWork, part: RestoredPartition, slicing: Slicing, pieces: int) -> list[tuple[Slice, str]]:
    """The slices of one partition, at least ``pieces`` where it is not too small, each with the URI of its dump.

    Raises Refused for rows that cannot be put in order.
    """
    rows, uri, memory = part.dump, slicing.dump.uri, slicing.slots.memory
    if not rows.rows:
        return []
    after, until = work.bounds(part)
    total = sum(piece.share for piece in rows.pieces)
    each = max(total // rows.rows, 1)
    whole = has_key(work.spec.kind, KeySchema.VERSIONED)
    wide = _WHOLE if whole else min(-(-total // pieces), MOST_SLICE_RECORDS * each)
    # What is out of order is sorted as a whole.
    fitting = min(memory // _held_of_each(rows) * each, ARRAY_BYTES)
    for limit in (wide, min(wide, fitting)):
        cut, shuffled = slices(rows, after=after, until=until, max_bytes=limit)
        if not shuffled and all(one.ordered or one.bytes <= min(fitting, memory) // 2 for one in cut):
            return [(one, uri) for one in cut]
    rows, uri = slicing.repartitioned(rows)
    cut, shuffled = slices(rows, after=after, until=until, max_bytes=wide)
    if shuffled:
        raise Refused(f"{rows.key}: its rows cannot be put in order", hint="write the dump anew, sorted by offset")
    return [(one, uri) for one in cut]


def _held_of_each(dump: PartitionDump) -> int:
    """Bytes that a task holds for each record, whatever its value."""
    keys = sum(piece.key_bytes for piece in dump.pieces) // max(sum(piece.rows for piece in dump.pieces), 1)
    return RECORD_BYTES + RECORD_KEY_COPIES * keys


def _jobs_of(work: StoreWork, piece: Slice, uri: str, slicing: Slicing, number: int) -> list[SliceJob]:
    spec, memory = work.spec, slicing.slots.memory
    kind = store_kind(spec.kind)
    direct = slicing.direct and uri == slicing.dump.uri and memory >= LEAST_DIRECT_BYTES
    memory -= DIRECT_BYTES if direct else 0
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
        interval_ms=(spec.segment_interval_ms or 0) if kind.has_retention else 0,
        retention_ms=spec.retention_ms or 0,
        indexed=spec.indexed,
        tombstones=not work.rebuild or number > 0,
        positions=_tells_positions(slicing.dump, spec),
        direct=direct,
        file_bytes=TARGET_FILE_BYTES,
        existing=tuple(_before(work)),
    )
    if kind.key is not KeySchema.VERSIONED:
        return [job]
    held = piece.rows * HISTORY_RECORD_BYTES + piece.bytes * HISTORY_COPIES
    buckets = max(1, -(-held // memory))
    base = str(slicing.app / work.path) if not work.rebuild else ""
    return [replace(job, bucket=(bucket, buckets), base=base) for bucket in range(buckets)]


def _before(work: StoreWork) -> dict[int | None, Database]:
    """The databases that are caught up, by the start of their segment; None of a store without segments."""
    if work.rebuild or work.existing is None:
        return {}
    return {database.segment_start: database for database in work.existing.store.databases}


def _tells_positions(dump: Dump, spec: StoreSpec) -> bool:
    """Where records' headers are Streams' own: headers stores and source topics have those of users."""
    kind = store_kind(spec.kind)
    own = not kind.needs_headers and not spec.source_topic and not spec.is_global
    return dump.headers_of(spec.changelog) and own and kind.key is not KeySchema.VERSIONED


def to_steps(
    work: Sequence[StoreWork],
    results: Sequence[SliceResult],
    release: Release,
    staging: Staging,
    folder: Path,
    app: Path,
) -> tuple[tuple[Step, ...], list[RestoredStore]]:
    """The databases that make the announced steps true, and what is to be told of each store."""
    done: list[Step] = []
    reports = []
    by_store: dict[tuple[str, str], list[SliceResult]] = {}
    for result in results:
        by_store.setdefault((result.task, result.store), []).append(result)
    of_each = [sorted(by_store.get((one.key, one.spec.name), []), key=lambda r: r.number) for one in work]
    oldest = [_oldest_live(one, mine) for one, mine in zip(work, of_each, strict=True)]
    live = [file for mine, limit in zip(of_each, oldest, strict=True) for file in _live(mine, limit)]
    paths = _fetched(live, staging, folder)
    for one, mine, limit in zip(work, of_each, oldest, strict=True):
        report = RestoredStore(one.task, one.spec.name, offsets=one.offsets)
        done += _databases(one, mine, limit, release, paths, app, report)
        reports.append(report)
    return tuple(done), reports


@dataclass(slots=True)
class _MadeOf:
    """What a database is made of."""

    layers: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    """Sorted files by slice and layer, oldest layer first."""
    rows: int = 0
    """Deletes too."""
    deletes: int = 0

    def add(self, number: int, file: SortedFile, path: str) -> None:
        """The next file of a slice, which lies at ``path`` on this host."""
        self.layers.setdefault((number, file.layer), []).append(path)
        self.rows += file.rows + file.deletes
        self.deletes += file.deletes


def _databases(
    work: StoreWork,
    results: list[SliceResult],
    oldest: int | None,
    release: Release,
    paths: Mapping[str, Path],
    app: Path,
    report: RestoredStore,
) -> list[Step]:
    spec, kind = work.spec, store_kind(work.spec.kind)
    by_segment: dict[int | None, _MadeOf] = {}
    for result in results:
        report.records += result.records
        report.null_keys += result.null_keys
        report.expired += result.expired
        report.seconds += result.seconds
        for file in result.files:
            if _is_expired(file, oldest):
                report.expired += file.rows
                continue
            report.rows += file.rows
            report.deleted += file.deletes
            by_segment.setdefault(file.segment, _MadeOf()).add(result.number, file, str(paths[file.path]))
    position = _position(work, results, oldest)
    report.has_position = not position.is_empty
    record = None
    if release.offsets_home is OffsetsHome.COLUMN_FAMILY:
        record = closed(work.offsets, position)
    steps: list[Step] = []
    before = _before(work)
    for start, database in before.items():
        if start is not None and oldest is not None and start < oldest:
            steps.append(_expired(app, database.path))
    targets: set[int | None] = set(by_segment) | {s for s in before if s is None or oldest is None or s >= oldest}
    if not targets and (not kind.key.segmented or (record is not None and not in_a_file(spec.kind))):
        targets = {FIRST_SEGMENT if kind.key.segmented else None}
    for segment in sorted(targets, key=lambda s: -1 if s is None else s):
        made_of = by_segment.get(segment, _MadeOf())
        if not made_of.layers and record is None and segment in before:
            continue
        steps.append(
            BuildDatabase(
                path=work.path if segment is None else f"{work.path}/{segment_folder(spec.name, segment)}",
                kind=spec.kind,
                release=release,
                family=kind.family.name,
                layers=tuple(map(tuple, made_of.layers.values())),
                rows=made_of.rows,
                deletes=made_of.deletes,
                offsets=record,
                exists=segment in before,
            )
        )
    if release.offsets_home is OffsetsHome.FILES and not position.is_empty and not spec.is_global:
        try:
            what = "Position, from the changelog's headers"
            steps.append(Keeping(work.task).position(spec.name, position, what))
        except ValueError as error:
            raise Refused(
                f"{work.shown}: the Position in its changelog's headers cannot be written: {error}",
                hint="restore for 4.3 or later, which keeps it in the store",
            ) from None
    return steps


def _is_expired(file: SortedFile, oldest: int | None) -> bool:
    return file.segment is not None and oldest is not None and file.segment < oldest


def _live(results: Sequence[SliceResult], oldest: int | None) -> list[SortedFile]:
    """The files that become part of a database."""
    return [file for result in results for file in result.files if not _is_expired(file, oldest)]


def _fetched(files: Sequence[SortedFile], staging: Staging, folder: Path) -> dict[str, Path]:
    """The sorted files as local ones, every byte of them compared; by the paths that their tasks gave."""
    ended = threading.Event()
    # Digests are taken, and files copied, without holding the interpreter's lock.
    with ThreadPoolExecutor(cores_here()) as pool:
        try:
            paths = mapped(pool, lambda file: staging.fetch(file, folder, ended.is_set), files)
        finally:
            ended.set()
    return {file.path: path for file, path in zip(files, paths, strict=True)}


def _oldest_live(work: StoreWork, results: Sequence[SliceResult]) -> int | None:
    """Start (ms) of the oldest live segment by all that was seen (``AbstractSegments.cleanupExpiredSegments``)."""
    spec = work.spec
    if not expires(spec.kind) or not spec.segment_interval_ms or spec.retention_ms is None:
        return None
    times = [result.max_time for result in results if result.max_time is not None]
    if not times:
        return None
    interval = spec.segment_interval_ms
    if not work.rebuild and work.existing is not None:
        # The newest segment on disk has rows that are at least as young as its start.
        times += [d.segment_start for d in work.existing.store.databases if d.segment_start is not None]
    return (max(times) - spec.retention_ms) // interval * interval


def _position(work: StoreWork, results: Sequence[SliceResult], oldest: int | None) -> Position:
    merged = Position.empty() if work.rebuild or work.existing is None else work.existing.position
    for result in results:
        for segment, position in result.positions:
            if segment is None or oldest is None or segment >= oldest:
                merged = merged.merge(position)
    return merged


def _expired(app: Path, path: Path) -> OmitTree:
    return OmitTree(str(path.relative_to(app)), "older than the retention, by the records that were restored")
