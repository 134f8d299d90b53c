"""Cut the work of a plan into jobs: one slice of a changelog partition each, sized for the memory of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kstate_cli.dump_reader.model import Dump, PartitionDump, Slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key, store_kind
from kstate_cli.releases import Release
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.plan import RestoredPartition, StoreWork
from kstate_cli.restore.running.steps import databases_before
from kstate_cli.restore.sorting.memory import (
    ARRAY_BYTES,
    HISTORY_COPIES,
    HISTORY_RECORD_BYTES,
    MOST_SLICE_RECORDS,
    RECORD_BYTES,
    RECORD_KEY_COPIES,
    Slots,
)
from kstate_cli.rocks.settings import TARGET_FILE_BYTES
from kstate_cli.spark.context import SparkSettings
from kstate_cli.specification.draft import StoreSpec

_UNBOUNDED: Final = 1 << 62


def refuse_distant_bases(work: Sequence[StoreWork], spark: SparkSettings) -> None:
    """Raise Refused if tasks on other hosts would catch up versioned stores.

    A versioned store is caught up from its rows, which are on this host. The same path elsewhere is another store.
    """
    if spark.local:
        return
    distant = [store.title for store in work if has_key(store.spec.kind, KeySchema.VERSIONED) and not store.rebuild]
    if distant:
        raise Refused(
            f"versioned stores are caught up on this host only: {', '.join(distant)}",
            hint="leave out --master, or replace them whole with --rebuild",
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


def make_jobs(work: Sequence[StoreWork], slicing: Slicing) -> list[SliceJob]:
    """Return the jobs of every store, largest first: the last job to end is then a small one."""
    pieces = _pieces_per_partition(sum(len(store.parts) for store in work), slicing.slots.tasks)
    jobs = [job for store in work for job in _jobs_of_store(store, slicing, pieces)]
    return sorted(jobs, key=lambda job: -job.slice.bytes)


def _pieces_per_partition(partitions: int, tasks: int) -> int:
    """Return the slices that keep every task busy: the more partitions there are, the fewer each needs."""
    if partitions >= 3 * tasks or partitions % tasks == 0:
        return 1
    return -(-2 * tasks // partitions)


def _jobs_of_store(work: StoreWork, slicing: Slicing, pieces: int) -> list[SliceJob]:
    """Return the jobs of one store, numbered in the order in which their files win."""
    jobs: list[SliceJob] = []
    for part in work.parts:
        if part.verdict.action is Action.LEAVE and not work.rebuild:
            continue
        for piece, uri in _slices(work, part, slicing, pieces):
            first = len(jobs)
            new_jobs = _jobs_of_slice(work, piece, uri, slicing, first)
            jobs += [replace(job, number=number) for number, job in enumerate(new_jobs, start=first)]
    return jobs


def _slices(work: StoreWork, part: RestoredPartition, slicing: Slicing, pieces: int) -> list[tuple[Slice, str]]:
    """Return the slices of one partition, each with the URI of its dump: ``pieces`` or more, unless it is small.

    Raises Refused for rows that cannot be sorted.
    """
    rows, memory = part.dump, slicing.slots.memory
    if not rows.rows:
        return []
    after, until = work.bounds(part)
    total = sum(piece.share for piece in rows.pieces)
    record_bytes = max(total // rows.rows, 1)
    most = min(-(-total // pieces), MOST_SLICE_RECORDS * record_bytes)
    if has_key(work.spec.kind, KeySchema.VERSIONED):
        # The history of a key must not be cut: a version ends where the next record of its key begins.
        most = _UNBOUNDED
    # Rows out of order are sorted as a whole, so a slice of them must fit.
    fitting = min(memory // _bytes_per_record(rows) * record_bytes, ARRAY_BYTES)
    for limit in (most, min(most, fitting)):
        cut, shuffled = slices(rows, after=after, until=until, max_bytes=limit)
        if not shuffled and all(piece.ordered or piece.bytes <= min(fitting, memory) // 2 for piece in cut):
            return [(piece, slicing.dump.uri) for piece in cut]
    rows, uri = slicing.repartitioned(rows)
    cut, shuffled = slices(rows, after=after, until=until, max_bytes=most)
    if shuffled:
        raise Refused(f"{rows.key}: its rows cannot be put in order", hint="write the dump again, sorted by offset")
    return [(piece, uri) for piece in cut]


def _bytes_per_record(dump: PartitionDump) -> int:
    """Return the memory that a task needs for each record, whatever its value."""
    key_bytes = sum(piece.key_bytes for piece in dump.pieces) // max(sum(piece.rows for piece in dump.pieces), 1)
    return RECORD_BYTES + RECORD_KEY_COPIES * key_bytes


def _jobs_of_slice(work: StoreWork, piece: Slice, uri: str, slicing: Slicing, number: int) -> Iterator[SliceJob]:
    """Yield the job of one slice; of a versioned store one for each bucket of keys that fits the memory."""
    spec, memory = work.spec, slicing.slots.memory
    kind = store_kind(spec.kind)
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
        positions=_has_positions(slicing.dump, spec),
        file_bytes=TARGET_FILE_BYTES,
        existing=tuple(databases_before(work)),
    )
    if kind.key is not KeySchema.VERSIONED:
        yield job
        return
    needed_bytes = piece.rows * HISTORY_RECORD_BYTES + piece.bytes * HISTORY_COPIES
    buckets = max(1, -(-needed_bytes // memory))
    base = "" if work.rebuild else str(slicing.app / work.path)
    yield from (replace(job, bucket=(bucket, buckets), base=base) for bucket in range(buckets))


def _has_positions(dump: Dump, spec: StoreSpec) -> bool:
    """Return True if the headers of records are those of Streams: headers stores and source topics have the user's."""
    kind = store_kind(spec.kind)
    own = not kind.needs_headers and not spec.source_topic and not spec.is_global
    return dump.headers_of(spec.changelog) and own and kind.key is not KeySchema.VERSIONED
