"""Decides whether a log is the one that a full was read from: the same, another one, or not comparable.

A broker's disk that was restored from an older copy has the same topic id, and may have the same leader epoch. Only the
records differ, from some offset on. The rules: docs/internals/changelogs.md#same-log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.spans import LogSpan, SpanEnd, SpanRecords, read_spans
from kstate_cli.dump_reader.growing import Full, TailRecord
from kstate_cli.dump_reader.reader import key_digest, record_digest
from kstate_cli.dump_writer.plan import PartitionPlan
from kstate_cli.formats.topic_partition import TopicPartition

TAIL: Final = 16
"""So many of its last records identify a log."""
DIGITS: Final = 16
"""Of each SHA-256, in hex."""


class Identity(Enum):
    """Whether a log is the one that was read before."""

    SAME = "same"
    ANOTHER = "another"
    NOT_COMPARABLE = "not-comparable"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The identity of one log, and the reason if it is not the same."""

    identity: Identity
    why: str | None = None
    awaited: frozenset[str] = frozenset()
    """Digests of keys. It is the same log only if each of them has a record at or above the end of the full."""


@dataclass(frozen=True, slots=True)
class KnownLog:
    """What is known of a log by its last records."""

    tail: tuple[TailRecord, ...]
    complete: bool
    """The tail has all records that were read from ``start`` on."""
    start: int
    end: int
    """The end of what was read."""
    compacted: bool
    epoch: int | None = None
    """Leader epoch of the end of the log, if it has changed since: the broker reports where that epoch ended."""


def tail_record(message: Any) -> TailRecord:
    """Return what identifies a record, of a message of the Kafka client."""
    kind, at = message.timestamp()
    key, value = message.key(), message.value()
    return TailRecord(
        message.offset(),
        record_digest(key, value, at if kind else -1)[:DIGITS],
        key_digest(key)[:DIGITS],
        message.leader_epoch(),
        value is None,
    )


def known_log(full: Full, plan: PartitionPlan) -> KnownLog:
    """Return what the dump knows of the log that a plan continues."""
    tail = full.tail
    if not tail and full.last is not None:
        # Of a manifest that has no tail: its key is not known, so that nothing explains it if it is missing.
        tail = (TailRecord(full.last.offset, full.last.sha256[:DIGITS], ""),)
    changed = full.leader_epoch is not None and full.leader_epoch != plan.facts.leader_epoch
    return KnownLog(
        tail,
        len(tail) == full.rows,
        full.start,
        full.end,
        full.compacted or plan.facts.compacted is not False,
        full.leader_epoch if changed else None,
    )


def compare_logs(
    bootstrap: str,
    settings: Mapping[str, str],
    logs: Mapping[TopicPartition, tuple[KnownLog, int]],
) -> dict[TopicPartition, Comparison]:
    """Read the last known records of each log again and compare them. ``logs``: what is known, and the log start.

    Raises RunFailed if the broker does not answer.
    """
    ends = [
        LogSpan(key, known.end, known.end, known.epoch) for key, (known, _) in logs.items() if known.epoch is not None
    ]
    spans = []
    for key, (known, log_start) in logs.items():
        first = max(_first(known), log_start)
        if first < known.end:
            spans.append(LogSpan(key, first, known.end))
    after_epoch = read_spans(bootstrap, settings, ends)
    read = read_spans(bootstrap, settings, spans)
    return {
        key: _compared(known, log_start, after_epoch.get(key), read.get(key))
        for key, (known, log_start) in logs.items()
    }


def _compared(known: KnownLog, log_start: int, end: SpanRecords | None, read: SpanRecords | None) -> Comparison:
    if end is not None and end.ended is SpanEnd.TRUNCATED:
        return Comparison(
            Identity.ANOTHER, f"leader epoch {known.epoch} ends below offset {known.end}, up to which it was read"
        )
    if read is None:
        return compare(known, (), log_start)
    if read.ended is SpanEnd.BELOW_START:
        return Comparison(Identity.NOT_COMPARABLE, "its first records were deleted while it was compared")
    return compare(known, [tail_record(message) for message in read.records], log_start)


def _first(known: KnownLog) -> int:
    return known.start if known.complete else known.tail[0].offset if known.tail else known.end


def compare(known: KnownLog, present: Sequence[TailRecord], log_start: int) -> Comparison:
    """Compare the last records that were read with all those that the log has now at these offsets.

    Compaction only removes records, and only those whose key has a later one. So a record that the dump has not means
    another log; the last record that both have proves everything below it; and each one above that must have its key
    again, above the end. A tombstone whose time is over may be missing without that, in this log and in another one.
    """
    expected = {record.offset: record for record in known.tail if record.offset >= log_start}
    for record in present:
        before = expected.get(record.offset)
        if before is None:
            return Comparison(
                Identity.ANOTHER, f"it has a record at offset {record.offset}, where none was when it was read"
            )
        if before.sha256 != record.sha256:
            return Comparison(Identity.ANOTHER, f"the record at offset {record.offset} is another one")
        if None not in (before.epoch, record.epoch) and before.epoch != record.epoch:
            return Comparison(
                Identity.ANOTHER,
                f"the record at offset {record.offset} is of leader epoch {record.epoch}, and was of {before.epoch}",
            )
    offsets = {record.offset for record in present}
    missing = [record for record in expected.values() if record.offset not in offsets]
    if missing and not known.compacted:
        return Comparison(
            Identity.ANOTHER,
            f"the record at offset {missing[0].offset} no longer exists, and the topic is not compacted",
        )
    proven = max(offsets, default=None)
    if proven is None and known.tail and not (known.complete and known.start >= log_start):
        return Comparison(
            Identity.NOT_COMPARABLE, f"none of the last {len(known.tail)} records that were read exists any more"
        )
    unproven = [record for record in missing if proven is None or record.offset > proven]
    return Comparison(Identity.SAME, awaited=frozenset(record.key for record in unproven))


def not_explained(comparison: Comparison, seen: Iterable[str]) -> str | None:
    """Return why a log is not comparable although it seemed the same; None if every awaited key was read again."""
    absent = comparison.awaited - frozenset(seen)
    if not absent:
        return None
    return f"{len(absent)} of the last records that were read no longer exist, and no later record has their key"


class LogChangedError(Exception):
    """The log is not the one that was read; says why."""


_Merge = Callable[[LogFacts, LogFacts, int], object]


def _start(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log start only grows; what was deleted meanwhile was read, or its reading has failed."""
    if again.start < first.start:
        raise LogChangedError(f"its log start went back from {first.start} to {again.start}")
    return first.start


def _end(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log end only grows."""
    if again.end < first.end:
        raise LogChangedError(f"its end went back from {first.end} to {again.end}")
    return first.end


def _stable_end(first: LogFacts, again: LogFacts, end: int) -> object:
    """Transactions are decided in order: what was stable stays so."""
    if again.stable_end is not None and again.stable_end < end:
        raise LogChangedError(f"its last stable offset went back to {again.stable_end}, and it was read up to {end}")
    return first.stable_end


def _topic_id(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Another id is another topic; one that is no longer reported proves nothing."""
    if first.topic_id != again.topic_id:
        raise LogChangedError(f"the topic was recreated (id {first.topic_id}, now {again.topic_id})")
    return first.topic_id


def _leader_epoch(first: LogFacts, again: LogFacts, _end: int) -> object:
    """It never falls. Where it has grown, the last records are compared, and the end of the epoch before."""
    if None not in (first.leader_epoch, again.leader_epoch) and (again.leader_epoch or 0) < (first.leader_epoch or 0):
        raise LogChangedError(f"its leader epoch went back from {first.leader_epoch} to {again.leader_epoch}")
    return again.leader_epoch if again.leader_epoch is not None else first.leader_epoch


def _committed(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A table may hold what the group had read at the lower of the two; a group that was deleted has none."""
    if first.committed is None or again.committed is None:
        return None
    return min(first.committed, again.committed)


def _policy(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Deletes may have been forgotten if it was compacted at either time, and unknown counts as compacted."""
    if first.policy is None or again.policy is None:
        return None
    return first.policy if first.compacted else again.policy


def _delete_retention(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Tombstones lived for the shorter of the two."""
    known = [one for one in (first.delete_retention_ms, again.delete_retention_ms) if one is not None]
    return min(known, default=None)


def _latest(name: str) -> _Merge:
    return lambda _first, again, _end: getattr(again, name)


RULES: Final[Mapping[str, _Merge]] = {
    "start": _start,
    "end": _end,
    "topic_id": _topic_id,
    "committed": _committed,
    "policy": _policy,
    "delete_retention_ms": _delete_retention,
    "leader_epoch": _leader_epoch,
    "stable_end": _stable_end,
    # Nothing that is read depends on these two: they are recorded for specifications.
    "retention_ms": _latest("retention_ms"),
    "min_compaction_lag_ms": _latest("min_compaction_lag_ms"),
}
"""Field of :class:`LogFacts` -> what is recorded, of both values and the end of what was read."""


def settled(first: LogFacts, again: LogFacts, end: int) -> LogFacts:
    """Return what a manifest records of a log that was read up to ``end``. Raises LogChangedError."""
    return replace(first, **{one.name: RULES[one.name](first, again, end) for one in fields(LogFacts)})  # type: ignore[arg-type]
