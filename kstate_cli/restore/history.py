"""Sorted files of a versioned store: each key's history is replayed, since a row depends on all records of its key."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstate_cli.errors import Refused
from kstate_cli.formats.families import DEFAULT_CF
from kstate_cli.formats.keys import VersionedKey
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.versioned import read_versions
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kstate_cli.restore.versioned import VersionedReplay
    from kstate_cli.rocks.sorted_file import SortedFileWriter

_WRITE_ROWS = 16_384
_PREFIX = 8


class CountSink(Protocol):
    """Where counts go."""

    records: int
    null_keys: int
    data_bytes: int


class RowSink(Protocol):
    """Where rows go."""

    def open(self, segment: int | None) -> SortedFileWriter:
        """A new sorted file."""

    def close(self, writer: SortedFileWriter, segment: int | None) -> None:
        """Completes it."""


Batches = Callable[[tuple[str, ...]], "Iterator[pa.Table]"]


def build_history(job: SliceJob, batches: Batches, writers: RowSink, counts: CountSink) -> int | None:
    """Replays the slice, which is the whole of what is restored of a partition; returns its stream time (ms).

    Of the slice only keys of the job's bucket are kept in memory; which records the grace period drops depends on all
    of them, so times are read first.
    """
    import numpy as np

    from kstate_cli.restore.versioned import NO_TIMESTAMP, VersionedReplay, accepted_mask

    parts = []
    for table in batches(("key", "timestamp")):
        valid = table.column("key").is_valid().to_numpy()
        if job.bucket[0] == 0:  # every bucket reads all of them
            counts.records += len(table)
            counts.null_keys += len(table) - int(valid.sum())
        counts.data_bytes += table.nbytes
        parts.append(table.column("timestamp").to_numpy().astype(np.int64)[valid])
    times = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    try:
        before = _newest(job.base) if job.base else NO_TIMESTAMP
    except MalformedBytesError as error:
        # A store that Streams has reopened may file a late record in front of older ones.
        raise Refused(
            f"{job.shown}: the store has a row whose versions are out of order: {error}",
            hint=f"rebuild it from the whole changelog: --rebuild --store {quoted(job.store)}",
        ) from None
    accepted, stream_time = accepted_mask(times, job.retention_ms, before)
    replay = VersionedReplay(job.retention_ms, job.interval_ms, stream_time)
    if job.base:
        _load(job, replay, _keys(job, batches))
    at = 0
    for table in batches(("key", "value", "timestamp")):
        counts.data_bytes += table.nbytes
        for key, value, time in zip(
            table.column("key").to_pylist(),
            table.column("value").to_pylist(),
            table.column("timestamp").to_pylist(),
            strict=True,
        ):
            if key is None:
                continue
            if accepted[at] and _mine(job, key):
                replay.put(key, value, time)
            at += 1
    _write(replay, writers)
    return stream_time if len(times) else None


def _mine(job: SliceJob, key: bytes) -> bool:
    number, buckets = job.bucket
    return buckets == 1 or zlib.crc32(key) % buckets == number


def _keys(job: SliceJob, batches: Batches) -> set[bytes]:
    return {
        key
        for table in batches(("key",))
        for key in table.column("key").unique().to_pylist()
        if key is not None and _mine(job, key)
    }


def _newest(base: str) -> int:
    """The stream time that the rows of a store show: the time at which its newest version began."""
    newest = -1
    with Shadow(Path(base)) as shadow:
        for key, value in shadow.rows(DEFAULT_CF):
            at = VersionedKey.from_bytes(key)
            newest = max(newest, read_versions(at, value).newest_time)
    return newest


def _load(job: SliceJob, replay: VersionedReplay, wanted: set[bytes]) -> None:
    """Gives the replay what the store has of the keys that the slice changes."""
    by_key: dict[bytes, list[tuple[bytes, bytes]]] = {}
    with Shadow(Path(job.base)) as shadow:
        for key, value in shadow.rows(DEFAULT_CF):
            if key[_PREFIX:] in wanted:
                by_key.setdefault(key[_PREFIX:], []).append((key, value))
    for key, rows in by_key.items():
        replay.load(key, rows)


def _write(replay: VersionedReplay, writers: RowSink) -> None:
    rows: list[tuple[bytes, bytes | None]] = list(replay.rows())
    gone = list(replay.deleted())
    rows += [(key, None) for key in gone]
    rows.sort(key=lambda row: row[0])
    writer = writers.open(None)
    for first in range(0, len(rows), _WRITE_ROWS):
        part = rows[first : first + _WRITE_ROWS]
        writer.put([key for key, _ in part], [value for _, value in part], deletes=True)
    writers.close(writer, None)
