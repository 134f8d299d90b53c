"""The full dumps of the next manifest: what a reading adds to them, and how they stay small and few.

A dump of a round each minute has many small files and many small ranges. Here they become few larger ones. No row is
changed or dropped, and joined files stay until no reader can have them open any more.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.errors import DumpError, printable
from kstate_cli.dump_reader.model import Full, Grown, GrownFile, LastRecord, Round, TailRecord
from kstate_cli.dump_reader.sources import other_file
from kstate_cli.dump_writer.identity import TAIL
from kstate_cli.dump_writer.plan import PartitionPlan, readable_end, unknown_before
from kstate_cli.dump_writer.stores import DumpStore
from kstate_cli.dump_writer.writing import YOUNG_SECONDS, RangeFile, path_of, schema
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import RETENTION_MS, DeleteCoverage, delete_coverage

TOGETHER: Final = 16
"""The number of small files at the end of a partition that are joined."""
# Sixteen files of one class make a file of the next; the last cap is about a row group.
_CAPS: Final = (1 << 20, 16 << 20, 128 << 20)
"""Sizes in bytes below which a file is small: a record is rewritten at most once for each of them."""
_BATCH_ROWS: Final = 20_000
"""Rows in memory while files are joined."""
# So a merged range overstates the time of a reading by a sixteenth of the retention at most.
_SPANS: Final = 16
"""Ranges are joined while all of them together took less than this part of ``delete.retention.ms``."""
_MOST_RANGES: Final = 256
"""A partition has at most so many ranges: those of the last sixteen times of ``delete.retention.ms``, or more."""


@dataclass(frozen=True, slots=True)
class FullReading:
    """What a round read of one partition."""

    files: tuple[GrownFile, ...]
    tail: tuple[TailRecord, ...]
    """Its last records, in order."""
    last: LastRecord | None
    ended_ms: int
    """After its last record was read, in the time of the dump."""

    def too_slow(self, plan: PartitionPlan) -> int | None:
        """Return the duration, in ms, of the first reading of a full dump if deletes may be forgotten meanwhile.

        None if it was quick enough, or if it continues a full dump: :func:`too_late` judges that.
        """
        retention = plan.facts.delete_retention_ms
        if plan.continues is not None or plan.facts.compacted is False or retention is None:
            return None
        covered = delete_coverage(plan.request_ms, self.ended_ms, retention)
        if covered is not DeleteCoverage.NO:
            return None
        return self.ended_ms - plan.request_ms


def next_full(
    plan: PartitionPlan, reading: FullReading, generation: int, previous: Full | None, *, unknown_time: bool
) -> Full:
    """Return the full dump that a reading begins or continues.

    ``previous``: the newest full dump of the partition. ``unknown_time``: how much time passed since then is unknown.
    """
    before, facts = plan.continues, plan.facts
    # An increment has to hear every delete since the reading before it, a first reading those since its own request.
    since_ms = plan.request_ms
    if before is not None:
        since_ms = before.as_of_ms
    new = Round(plan.start, plan.end, since_ms, reading.ended_ms)
    common = Full(
        plan.key,
        generation,
        facts.start,
        max(plan.end, readable_end(facts)),
        plan.request_ms,
        merge_ranges((new,), facts.delete_retention_ms),
        reading.files,
        facts.topic_id,
        facts.policy,
        facts.delete_retention_ms,
        facts.leader_epoch,
        reading.last,
        facts.retention_ms,
        facts.min_compaction_lag_ms,
        reading.tail[-TAIL:],
        None,
        plan.held_back,
    )
    if before is None:
        unknown_ms = unknown_before(previous, facts, plan.request_ms, unknown_time=unknown_time)
        return replace(common, unknown_before_ms=unknown_ms)
    retention = _least_retention(before, facts)
    ranges = before.ranges
    if plan.records:
        # Without offsets there is no range: the new time of the request says that the dump is up to date.
        ranges = (*ranges, new)
    return replace(
        common,
        began=before.began,
        ranges=merge_ranges(ranges, retention),
        files=(*before.files, *reading.files),
        cleanup_policy=_cautious_policy(before, facts),
        delete_retention_ms=retention,
        leader_epoch=_latest_epoch(before, facts),
        last=reading.last or before.last,
        tail=(*before.tail, *reading.tail)[-TAIL:],
        unknown_before_ms=before.unknown_before_ms,
    )


def _cautious_policy(before: Full, facts: LogFacts) -> str | None:
    """Return the policy to record. Once a topic was compacted, deletes may be forgotten, whatever it is now."""
    if before.compacted and facts.compacted is False:
        return before.cleanup_policy
    return facts.policy


def _latest_epoch(before: Full, facts: LogFacts) -> int | None:
    """Return the epoch to record: a broker that reports none does not make the recorded one wrong."""
    return before.leader_epoch if facts.leader_epoch is None else facts.leader_epoch


def _least_retention(before: Full, facts: LogFacts) -> int | None:
    retentions = (facts.delete_retention_ms, before.delete_retention_ms)
    return min((retention for retention in retentions if retention is not None), default=None)


def old_files(grown: Grown, now_ms: int) -> set[str]:
    """Return the files that may be old, by the earliest time at which their records can have been read."""
    since = now_ms - YOUNG_SECONDS * 1000
    return {
        file.path
        for full in grown.fulls
        for file in full.files
        if next(reading.continues_ms for reading in full.ranges if file.groups[-1].last < reading.end) <= since
    }


def merge_ranges(
    ranges: Sequence[Round], retention_ms: int | None, most_ranges: int = _MOST_RANGES
) -> tuple[Round, ...]:
    """Return fewer ranges for the same offsets. A merged range never claims an earlier or shorter reading.

    The first range stays unchanged, because it states how long a full dump took. If more than ``most_ranges`` remain,
    the oldest become one.
    """
    # Without a known setting the default of Kafka holds: a longer one would only merge fewer ranges than possible.
    most = (RETENTION_MS if retention_ms is None else retention_ms) // _SPANS
    merged = [*ranges[:1]]
    for reading in ranges[1:]:
        before = merged[-1]
        # A clock may have been set back between the two: the merged times hold for each of them.
        since, until = min(before.continues_ms, reading.continues_ms), max(before.ended_ms, reading.ended_ms)
        # Never into the first range: it states how long the reading of the whole log took.
        if len(merged) > 1 and until - since <= most:
            merged[-1] = Round(before.start, reading.end, since, until)
        else:
            merged.append(reading)
    if len(merged) > most_ranges:
        # The newest ranges stay exact: stores that a restore continues are usually young.
        first, *others = merged
        oldest = others[: len(merged) - most_ranges + 1]
        merged = [first, _single_range(oldest), *others[len(oldest) :]]
    return tuple(merged)


def _single_range(ranges: Sequence[Round]) -> Round:
    """Return several readings as one that ends with the last, and is as long as the longest of them."""
    ended = max(reading.ended_ms for reading in ranges)
    return Round(
        ranges[0].start,
        ranges[-1].end,
        ended - max(reading.ended_ms - reading.continues_ms for reading in ranges),
        ended,
    )


def pack(store: DumpStore, full: Full, generation: int, run: str) -> tuple[Full, tuple[str, ...]]:
    """Join the last small files of a full dump; return the full dump, and the paths of the joined files.

    Raises DumpError if a file differs from the manifest, OSError if one cannot be read or written.
    """
    first = _first_to_join(full.files)
    if first is None:
        return full, ()
    parts = full.files[first:]
    # The old files stay: the manifest lists them as forgotten until no reader can have them open.
    new = _join_files(store, full.key, parts, generation, run)
    return replace(full, files=(*full.files[:first], new)), tuple(file.path for file in parts)


def join_small_files(
    store: DumpStore, fulls: Iterable[Full], generation: int, run: str, warn: Callable[[str], None]
) -> tuple[tuple[Full, ...], list[str]]:
    """Return the full dumps with joined files, and the paths of the files that were joined.

    A file that differs from the manifest is left as it is, with a warning. Raises OSError as :func:`pack`.
    """
    packed: list[Full] = []
    joined: list[str] = []
    for full in fulls:
        try:
            smaller, paths = pack(store, full, generation, run)
        except DumpError as error:
            # Joining would copy the damage into a new file, with a digest that calls it sound.
            warn(f"{full.key}: {error}. kstate does not join its small files. To replace them, dump with --full")
            smaller, paths = full, ()
        packed.append(smaller)
        joined += paths
    return tuple(packed), joined


def _first_to_join(files: Sequence[GrownFile]) -> int | None:
    for cap in _CAPS:
        first = len(files)
        # Only files at the end are joined: their offsets follow each other, and so do those of the new file.
        while first and files[first - 1].size < cap:
            first -= 1
        if len(files) - first >= TOGETHER:
            return first
    return None


def _join_files(
    store: DumpStore, key: TopicPartition, parts: Sequence[GrownFile], generation: int, run: str
) -> GrownFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns_schema = schema()
    start, end = parts[0].groups[0].first, parts[-1].groups[-1].last + 1
    relative = path_of(key, start, end, generation, run, secrets.token_hex(4))
    with RangeFile(relative, columns_schema, new_file=store.new_file) as file:
        for part in parts:
            try:
                # From memory: the digest is that of the very bytes that are decoded, and a small file fits.
                with pq.ParquetFile(io.BytesIO(_content(store, part))) as parquet:
                    for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                        # The schema of the new file: writers before may have had another metadata, but the same
                        # columns.
                        file.add(pa.RecordBatch.from_arrays(batch.columns, schema=columns_schema))
            except pa.ArrowException as error:
                raise DumpError(
                    f"kstate cannot read the file as Parquet: {error}", where=printable(part.path)
                ) from None
        new = file.finish(relative)
    # A row more or less would only show at a restore, when the old files are gone.
    if new is None or new.rows != sum(part.rows for part in parts):
        raise DumpError("its files do not have the rows that the manifest records", where=str(key))
    return new


def _content(store: DumpStore, part: GrownFile) -> bytes:
    content = store.content(part.path)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise other_file(part.path)
    return content


def drop_old_fulls(grown: Grown, fulls: int) -> tuple[Grown, tuple[Full, ...]]:
    """Keep the newest ``fulls`` full dumps of each partition, with their increments; return those that are dropped too.

    If all of these are empty, the last full dump with a record stays, too: nothing else may have its rows.
    """
    by_partition: dict[TopicPartition, list[Full]] = {}
    for full in sorted(grown.fulls, key=lambda full: -full.began):
        by_partition.setdefault(full.key, []).append(full)
    staying = {
        (full.key, full.began) for fulls_of_partition in by_partition.values() for full in fulls_of_partition[:fulls]
    }
    for key, fulls_of_partition in by_partition.items():
        filled = grown.last_with_rows(key)
        # A recreated topic begins empty: its older full dumps are all that is left of the records before.
        if filled is not None and not any(full.rows for full in fulls_of_partition[:fulls]):
            staying.add((key, filled.began))
    dropped = tuple(full for full in grown.fulls if (full.key, full.began) not in staying)
    return replace(grown, fulls=tuple(full for full in grown.fulls if (full.key, full.began) in staying)), dropped
