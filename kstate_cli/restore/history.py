"""Sorted files of a versioned store: a row depends on all records of its key.

Keys whose records came in order are written as columns; the histories of the others, and of those that the store has
already, are replayed record by record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstate_cli.errors import Refused
from kstate_cli.formats.families import DEFAULT_CF
from kstate_cli.formats.keys import VersionedKey
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.versioned import read_versions
from kstate_cli.restore import convert
from kstate_cli.restore.batches import CountSink
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from kstate_cli.restore.convert import Ints
    from kstate_cli.restore.layers import Layer
    from kstate_cli.restore.ordered_versions import HistoryRows
    from kstate_cli.restore.versioned import VersionedReplay

REPLAYED_BYTES = 1_000
"""What a version takes while its key is replayed."""
_WRITE_ROWS = 16_384
_PREFIX = 8


class RowSink(Protocol):
    """Where rows go."""

    def open(self, segment: int | None) -> Layer:
        """The next layer."""


Batches = Callable[[tuple[str, ...]], "Generator[pa.Table, None, None]"]


@dataclass(frozen=True, slots=True)
class _Histories:
    """The accepted records of a job, sorted by key and, within a key, by offset."""

    names: pa.BinaryArray
    """The keys, sorted; a record's key is a number of them."""
    keys: Ints
    times: Ints
    values: pa.LargeBinaryArray


def build_history(job: SliceJob, batches: Batches, layers: RowSink, counts: CountSink) -> int | None:
    """Writes what the slice makes, which is the whole of what is restored of a partition; returns its stream time (ms).

    Of the slice only keys of the job's bucket are kept in memory; which records the grace period drops depends on all
    of them, so times are read first.
    """
    accepted, stream_time = _accepted(job, batches, counts)
    histories = _read(job, batches, counts, accepted)
    _write(histories, _in_base(job, histories, stream_time) if job.base else _rows(job, histories, stream_time), layers)
    return stream_time if len(accepted) else None


def _accepted(job: SliceJob, batches: Batches, counts: CountSink) -> tuple[NDArray[np.bool_], int]:
    """Of every record that has a key whether a restore takes it; and the stream time after them."""
    import numpy as np

    from kstate_cli.restore.versioned import NO_TIMESTAMP, accepted_mask

    parts = []
    with closing(batches(("key", "timestamp"))) as tables:
        for table in tables:
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
    return accepted_mask(times, job.retention_ms, before)


def _rows(job: SliceJob, histories: _Histories, stream_time: int) -> HistoryRows:
    """Of a store that is built from nothing."""
    import numpy as np
    import pyarrow as pa

    from kstate_cli.restore.ordered_versions import HistoryRows, out_of_order, rows_in_order
    from kstate_cli.restore.versioned import segment_id

    odd = out_of_order(histories.keys, histories.times, ~histories.values.is_valid().to_numpy(zero_copy_only=False))
    plain = ~np.isin(histories.keys, odd)
    values = histories.values.filter(pa.array(plain))
    first_live = segment_id(stream_time - job.retention_ms, job.interval_ms)
    parts = [rows_in_order(histories.keys[plain], histories.times[plain], values, job.interval_ms, first_live)]
    del values
    parts += [_replayed(job, histories, some, stream_time) for some in _by_memory(odd, histories.keys, job.memory)]
    return HistoryRows(
        np.concatenate([one.segments for one in parts]),
        np.concatenate([one.keys for one in parts]),
        pa.concat_arrays([one.values for one in parts]),
    )


def _in_base(job: SliceJob, histories: _Histories, stream_time: int) -> HistoryRows:
    """What changes in a store that is there."""
    import numpy as np

    return _replayed(job, histories, np.arange(len(histories.names)), stream_time)


def _replayed(job: SliceJob, histories: _Histories, some: Ints, stream_time: int) -> HistoryRows:
    """The rows of some keys, record by record."""
    import numpy as np
    import pyarrow as pa

    from kstate_cli.restore.versioned import VersionedReplay

    replay = VersionedReplay(job.retention_ms, job.interval_ms, stream_time)
    if job.base:
        _load(job, replay, {*histories.names.take(pa.array(some)).to_pylist()})
    chosen = np.isin(histories.keys, some)
    numbers = histories.keys[chosen]
    keys = histories.names.take(pa.array(numbers)).to_pylist()
    values = histories.values.filter(pa.array(chosen)).to_pylist()
    for key, time, value in zip(keys, histories.times[chosen].tolist(), values, strict=True):
        replay.put(key, value, time)
    return _rows_of(replay, histories)


def _read(job: SliceJob, batches: Batches, counts: CountSink, accepted: NDArray[np.bool_]) -> _Histories:
    """``accepted``: of every record that has a key."""
    import numpy as np
    import pyarrow as pa

    keys, values, times, at = [], [], [], 0
    # Offsets once more: a file that has become another one since it was read first is told by them.
    with closing(batches(("key", "value", "timestamp", "offset"))) as tables:
        for table in tables:
            counts.data_bytes += table.nbytes
            valid = table.column("key").is_valid().to_numpy()
            chosen = valid.copy()
            upto = at + int(valid.sum())
            chosen[valid] = accepted[at:upto]
            at = upto
            number, buckets = job.bucket
            if buckets > 1:
                chosen[chosen] = [
                    zlib.crc32(key) % buckets == number for key in table.column("key").filter(chosen).to_pylist()
                ]
            taken = table.filter(pa.array(chosen)).combine_chunks()
            keys += taken.column("key").chunks
            values += taken.column("value").cast(pa.large_binary()).chunks
            times.append(taken.column("timestamp").to_numpy().astype(np.int64))
    coded = pa.chunked_array(keys, pa.binary()).combine_chunks().dictionary_encode()
    sorted_keys = convert.sort_order(coded.dictionary)
    rank = np.empty(len(sorted_keys), dtype=np.int64)
    rank[sorted_keys] = np.arange(len(sorted_keys))
    of_record = rank[coded.indices.to_numpy(zero_copy_only=False)]
    by_key = np.argsort(of_record, kind="stable")
    return _Histories(
        names=coded.dictionary.take(pa.array(sorted_keys)),
        keys=of_record[by_key],
        times=np.concatenate(times)[by_key] if times else np.empty(0, dtype=np.int64),
        values=pa.chunked_array(values, pa.large_binary()).combine_chunks().take(pa.array(by_key)),
    )


def _by_memory(some: Ints, keys: Ints, memory: int) -> Iterator[Ints]:
    """Parts of some keys whose records can be replayed together."""
    import numpy as np

    if not len(some):
        return
    records = np.searchsorted(keys, some, "right") - np.searchsorted(keys, some, "left")
    part = np.cumsum(records) // max(memory // REPLAYED_BYTES, 1)
    yield from np.split(some, np.flatnonzero(np.diff(part)) + 1)


def _rows_of(replay: VersionedReplay, histories: _Histories) -> HistoryRows:
    """What was replayed, as columns; rows that are gone have no value."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from kstate_cli.restore.ordered_versions import HistoryRows

    rows: list[tuple[bytes, bytes | None]] = [*replay.rows(), *((key, None) for key in replay.deleted())]
    prefixes = b"".join(key[:_PREFIX] for key, _ in rows)
    keys = pc.index_in(pa.array([key[_PREFIX:] for key, _ in rows], pa.binary()), histories.names)
    return HistoryRows(
        np.frombuffer(prefixes, dtype=">i8").astype(np.int64),
        keys.to_numpy(zero_copy_only=False).astype(np.int64),
        pa.array([value for _, value in rows], pa.large_binary()),
    )


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


def _write(histories: _Histories, rows: HistoryRows, layers: RowSink) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # Keys are compared as bytes: the segment of the latest versions, -1, comes last.
    order = np.lexsort((rows.keys, rows.segments.view(np.uint64)))
    nothing = pa.scalar(b"")
    layer = layers.open(None)
    for first in range(0, len(order), _WRITE_ROWS):
        part = order[first : first + _WRITE_ROWS]
        segments = np.ascontiguousarray(rows.segments[part].astype(">i8"))
        prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_PREFIX), len(part), [None, pa.py_buffer(segments)])
        keys = pc.binary_join_element_wise(
            prefixes.cast(pa.binary()), histories.names.take(pa.array(rows.keys[part])), nothing
        )
        layer.put(keys, rows.values.take(pa.array(part)), deletes=True)
    layer.close()
