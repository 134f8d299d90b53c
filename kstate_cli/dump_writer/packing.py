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

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.errors import DumpError, printable
from kstate_cli.dump_reader.footers import row_batches
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
        """Return how long, in ms, the first reading of a full dump took, if deletes may be missing for that reason.

        None if it was quick enough, or if it continues a full dump: :func:`too_late` judges that case.
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
    """Return the full dump that a reading begins or continues, as the next manifest has it.

    ``previous`` is the newest full dump of the partition before. ``unknown_time`` says that the time since then is
    unknown.
    """
    before, facts = plan.continues, plan.facts
    # Since when the reading must have seen every delete: an increment since the reading before it, a first reading
    # since its own request.
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
        # A reading without offsets adds no range. That the dump is up to date shows in the new time of its request.
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
    oldest_ms = now_ms - YOUNG_SECONDS * 1000
    return {
        file.path
        for full in grown.fulls
        for file in full.files
        if next(reading.continues_ms for reading in full.ranges if file.groups[-1].last < reading.end) <= oldest_ms
    }


def merge_ranges(
    ranges: Sequence[Round], retention_ms: int | None, most_ranges: int = _MOST_RANGES
) -> tuple[Round, ...]:
    """Return fewer ranges for the same offsets. The times of a merged range cover those of all its readings.

    The first range stays unchanged, because it states how long a full dump took. If more than ``most_ranges`` remain,
    the oldest ones become one.
    """
    # If the setting is unknown, Kafka's default is used: were the real one longer, more ranges could be merged, which
    # is no harm.
    most = (RETENTION_MS if retention_ms is None else retention_ms) // _SPANS
    merged = [*ranges[:1]]
    for reading in ranges[1:]:
        before = merged[-1]
        # A clock may have been set back between the two readings, so the earliest begin and the latest end are taken.
        start_ms, end_ms = min(before.continues_ms, reading.continues_ms), max(before.ended_ms, reading.ended_ms)
        # Nothing is merged into the first range, which states how long the reading of the whole log took.
        if len(merged) > 1 and end_ms - start_ms <= most:
            merged[-1] = Round(before.start, reading.end, start_ms, end_ms)
        else:
            merged.append(reading)
    if len(merged) > most_ranges:
        # The newest ranges stay exact, because the stores that a restore continues are usually young.
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
    """Join the last small files of a full dump; return the full dump, and the paths of the files that were joined.

    Raises DumpError if a file differs from the manifest, OSError if one cannot be read or written.
    """
    first = _first_to_join(full.files)
    if first is None:
        return full, ()
    parts = full.files[first:]
    # The joined files are not removed here: the manifest lists them as forgotten until no reader can have them open.
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
            # Joined, the damaged rows would get a new file whose digest calls them sound. So the file stays as it is.
            warn(f"{full.key}: {error}. kstate does not merge its small files. To replace them, pass {option.FULL}")
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
    """Write one file with the rows of ``parts``, in their order. Raises DumpError for damage, OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns_schema = schema()
    start, end = parts[0].groups[0].first, parts[-1].groups[-1].last + 1
    relative = path_of(key, start, end, generation, run, secrets.token_hex(4))
    with RangeFile(relative, columns_schema, new_file=store.new_file) as file:
        for part in parts:
            try:
                # The file is read into memory, which a small file fits, so that the digest is that of the very bytes
                # that are decoded.
                with pq.ParquetFile(io.BytesIO(_content(store, part))) as parquet:
                    names, groups = parquet.schema_arrow.names, range(parquet.num_row_groups)
                    for table in row_batches(parquet, part.path, _BATCH_ROWS, groups, names):
                        for batch in table.to_batches():
                            # Batches get the schema of the new file: earlier versions wrote the same columns, but maybe
                            # other metadata.
                            file.add(pa.RecordBatch.from_arrays(batch.columns, schema=columns_schema))
            except pa.ArrowException as error:
                raise DumpError(
                    f"kstate cannot read the file as Parquet: {error}", where=printable(part.path)
                ) from None
        new = file.finish(relative)
    # The number of rows is compared now: a difference would otherwise show only at a restore, when the old files are
    # gone.
    if new is None or new.rows != sum(part.rows for part in parts):
        raise DumpError("its files do not contain the rows that the manifest records", where=str(key))
    return new


def _content(store: DumpStore, part: GrownFile) -> bytes:
    content = store.content(part.path)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise other_file(part.path)
    return content


def drop_old_fulls(grown: Grown, fulls: int) -> tuple[Grown, tuple[Full, ...]]:
    """Keep the newest ``fulls`` full dumps of each partition, with their increments; return the dropped ones too.

    If all full dumps that stay have no record, the last one with a record stays too: nothing else may have its rows.
    """
    by_partition: dict[TopicPartition, list[Full]] = {}
    for full in sorted(grown.fulls, key=lambda full: -full.began):
        by_partition.setdefault(full.key, []).append(full)
    staying = {
        (full.key, full.began) for fulls_of_partition in by_partition.values() for full in fulls_of_partition[:fulls]
    }
    for key, fulls_of_partition in by_partition.items():
        filled = grown.last_with_rows(key)
        # A recreated topic begins empty, and then its older full dumps are all that is left of the records before.
        if filled is not None and not any(full.rows for full in fulls_of_partition[:fulls]):
            staying.add((key, filled.began))
    dropped = tuple(full for full in grown.fulls if (full.key, full.began) not in staying)
    return replace(grown, fulls=tuple(full for full in grown.fulls if (full.key, full.began) in staying)), dropped
