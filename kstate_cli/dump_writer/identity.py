"""Decide whether a log is the one that a full dump was read from: the same, another one, or not comparable.

A broker's disk that was restored from an older copy has the same topic id, and may have the same leader epoch. Only the
records differ, from some offset on. The rules: docs/internals/changelogs.md#same-log.

Every fact of :class:`LogFacts` that was read before the records is read again after them, and has one rule here. A
reading that spans a change of the log is discarded. If a setting changed, the most cautious value counts. The list of
facts: docs/internals/changelogs.md#facts-that-are-read-again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.spans import LogSpan, SpanEnd, SpanRecords, read_spans
from kstate_cli.dump_reader.model import Full, TailRecord
from kstate_cli.dump_reader.reader import key_digest, record_digest
from kstate_cli.dump_writer.plan import PartitionPlan
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import plural

# Compaction may have removed most of them by the next call: the more there are, the likelier one is left.
TAIL: Final = 16
"""The number of last records that identify a log."""
# 64 bits: enough against chance, and a manifest has 16 such records for each partition.
DIGITS: Final = 16
"""The number of hex digits of each SHA-256."""


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
    """Digests of keys. It is the same log only if each key has a record at or above the end of the full dump."""

    @property
    def text(self) -> str:
        """Return the reason in a sentence; for a log that is not the same."""
        if self.identity is Identity.ANOTHER:
            return f"the log was replaced: {self.why}"
        return f"kstate cannot check whether this is the log that it read before, because {self.why}"


@dataclass(frozen=True, slots=True)
class LogSample:
    """The last records that were read of a log, by which it is recognized."""

    tail: tuple[TailRecord, ...]
    complete: bool
    """Whether the tail has all records that were read from ``start`` on."""
    start: int
    end: int
    """Exclusive end of the reading."""
    compacted: bool
    epoch: int | None = None
    """Leader epoch of the end of the log, if it has changed since: the broker reports where that epoch ended."""

    def from_offset(self, log_start: int) -> dict[int, TailRecord]:
        """Return the records from the log start on, by offset."""
        return {record.offset: record for record in self.tail if record.offset >= log_start}

    def is_whole_log(self, log_start: int) -> bool:
        """Return whether the log may be empty: the sample has every record read, and the log begins no later."""
        return not self.tail or (self.complete and self.start >= log_start)


def timestamp_of(kind: int, at: int) -> int:
    """Return the timestamp of a message in ms; -1 for one without (type 0 of librdkafka)."""
    return at if kind else -1


def tail_record(message: Any) -> TailRecord:
    """Return the tail record of a message of the Kafka client."""
    kind, at = message.timestamp()
    key, value = message.key(), message.value()
    return TailRecord(
        message.offset(),
        record_digest(key, value, timestamp_of(kind, at))[:DIGITS],
        key_digest(key)[:DIGITS],
        message.leader_epoch(),
        value is None,
    )


def sample_of_dump(full: Full, plan: PartitionPlan) -> LogSample:
    """Return the last records that the dump has of a log, to compare them with the log that a plan continues."""
    tail = full.tail
    if not tail and full.last is not None:
        # An older manifest has only the last record, without its key: if it is missing, no later record can explain
        # that.
        tail = (TailRecord(full.last.offset, full.last.sha256[:DIGITS], ""),)
    # Only the end of an earlier leader epoch can prove another log: within one epoch a log has one leader, and only
    # grows.
    changed = full.leader_epoch is not None and full.leader_epoch != plan.facts.leader_epoch
    return LogSample(
        tail,
        len(tail) == full.rows,
        full.start,
        full.end,
        # If the topic was compacted then or is now, compaction may have removed records.
        full.compacted or plan.facts.compacted is not False,
        full.leader_epoch if changed else None,
    )


def sample_of_reading(
    plan: PartitionPlan, tail: tuple[TailRecord, ...], again: LogFacts, *, complete: bool
) -> LogSample:
    """Return the last records that a round read of a log; ``again`` are the facts of the log after the reading."""
    # Only an epoch that has ended can be compared: the broker reports where, and records above that were truncated.
    before = plan.facts.leader_epoch
    ended = before is not None and again.leader_epoch is not None and before != again.leader_epoch
    compacted = plan.facts.compacted is not False
    return LogSample(tail, complete, plan.start, plan.end, compacted, before if ended else None)


def compare_logs(
    bootstrap: str,
    settings: Mapping[str, str],
    logs: Mapping[TopicPartition, tuple[LogSample, int]],
) -> dict[TopicPartition, Comparison]:
    """Compare the last records of each log with a sample that was read before.

    ``logs`` has, for each partition, the sample and the offset at which the log begins now. Raises RunFailed if the
    broker does not answer.
    """
    ends = [
        LogSpan(key, sample.end, sample.end, sample.epoch)
        for key, (sample, _) in logs.items()
        if sample.epoch is not None
    ]
    spans = []
    for key, (sample, log_start) in logs.items():
        first = max(_first(sample), log_start)
        if first < sample.end:
            spans.append(LogSpan(key, first, sample.end))
    # The ends of leader epochs are read before the records: if a log is replaced in between, the records show it.
    after_epoch = read_spans(bootstrap, settings, ends)
    read = read_spans(bootstrap, settings, spans)
    return {
        key: _compare_spans(sample, log_start, after_epoch.get(key), read.get(key))
        for key, (sample, log_start) in logs.items()
    }


def _compare_spans(sample: LogSample, log_start: int, end: SpanRecords | None, read: SpanRecords | None) -> Comparison:
    if end is not None and end.ended is SpanEnd.TRUNCATED:
        return Comparison(
            Identity.ANOTHER,
            f"leader epoch {sample.epoch} ends below offset {sample.end}, but kstate has read past that point",
        )
    if read is None:
        return compare(sample, (), log_start)
    if read.ended is SpanEnd.BELOW_START:
        return Comparison(
            Identity.NOT_COMPARABLE, "the first records of the log were deleted while kstate was comparing the log"
        )
    return compare(sample, [tail_record(message) for message in read.records], log_start)


def _first(sample: LogSample) -> int:
    if sample.complete:
        return sample.start
    if sample.tail:
        return sample.tail[0].offset
    # Nothing to compare: an empty span.
    return sample.end


def compare(sample: LogSample, present: Sequence[TailRecord], log_start: int) -> Comparison:
    """Compare the last records that were read before with all records that the log now has at these offsets.

    A record in the log that was not read before, or another one at the same offset, means another log. A missing record
    does not: compaction removes records whose key has a later one. The last record that both have proves everything
    below it. For each missing record after that, its key must occur again above the end of the sample, and the result
    names these keys (``awaited``). Tombstones that have expired may be missing without a later record, in this log and
    in another one.
    """
    expected = sample.from_offset(log_start)
    differences = (_difference(expected.get(record.offset), record) for record in present)
    # Records in the log are judged first: a single foreign one decides, whatever else is missing.
    difference = next(filter(None, differences), None)
    if difference is not None:
        return Comparison(Identity.ANOTHER, difference)
    offsets = {record.offset for record in present}
    missing = [record for record in expected.values() if record.offset not in offsets]
    # Only compaction removes single records: retention and DeleteRecords merely raise the log start.
    if missing and not sample.compacted:
        return Comparison(
            Identity.ANOTHER,
            f"the record at offset {missing[0].offset} no longer exists, although the topic is not compacted",
        )
    # A record that both have proves all offsets below it: logs that differ at some offset never agree above it.
    proven = max(offsets, default=None)
    if proven is None and not sample.is_whole_log(log_start):
        return Comparison(
            Identity.NOT_COMPARABLE,
            f"the log no longer has the last {plural(len(sample.tail), 'record')} that kstate read",
        )
    unproven = [record for record in missing if proven is None or record.offset > proven]
    return Comparison(Identity.SAME, awaited=frozenset(record.key for record in unproven))


def _difference(before: TailRecord | None, record: TailRecord) -> str | None:
    """Return how a record of the log differs from the one that was read at its offset; None if it is the same."""
    if before is None:
        return f"offset {record.offset} now has a record, but had none when kstate read the log"
    if before.sha256 != record.sha256:
        return f"the record at offset {record.offset} has changed"
    if None not in (before.epoch, record.epoch) and before.epoch != record.epoch:
        return (
            f"the record at offset {record.offset} now belongs to leader epoch {record.epoch} instead of {before.epoch}"
        )
    return None


def unexplained(comparison: Comparison, keys: Iterable[str]) -> str | None:
    """Return why a log is not comparable although it seemed the same; None if every awaited key was read again."""
    absent = comparison.awaited - frozenset(keys)
    if not absent:
        return None
    return (
        f"the log no longer has {len(absent)} of the last records that kstate read, although no later record has "
        "replaced them"
    )


class LogChangedError(Exception):
    """The log is not the one that was read; the text is the reason."""


_Merge = Callable[[LogFacts, LogFacts, int], object]


def _start(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log start only grows. Records that were deleted meanwhile were read before, or their reading failed."""
    if again.start < first.start:
        raise LogChangedError(f"its log start moved back from {first.start} to {again.start}")
    # The earlier fact: the reading began there, and the dump has the records from it on.
    return first.start


def _end(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log end only grows."""
    if again.end < first.end:
        raise LogChangedError(f"its end moved back from {first.end} to {again.end}")
    return first.end


def _stable_end(first: LogFacts, again: LogFacts, end: int) -> object:
    """Transactions are decided in order: a stable offset stays stable."""
    if again.stable_end is not None and again.stable_end < end:
        raise LogChangedError(
            f"its last stable offset moved back to {again.stable_end}, but kstate had already read up to {end}"
        )
    return first.stable_end


def _topic_id(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Another id is another topic; one that is no longer reported proves nothing."""
    if first.topic_id != again.topic_id:
        raise LogChangedError(f"the topic was recreated (id {first.topic_id}, now {again.topic_id})")
    return first.topic_id


def _leader_epoch(first: LogFacts, again: LogFacts, _end: int) -> object:
    """It never falls. If it has grown, the last records are compared, and the end of the epoch before."""
    if again.leader_epoch is None:
        return first.leader_epoch
    if first.leader_epoch is not None and again.leader_epoch < first.leader_epoch:
        raise LogChangedError(f"its leader epoch moved back from {first.leader_epoch} to {again.leader_epoch}")
    return again.leader_epoch


def _committed(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A table may hold what the group had read at the lower of the two; a group that was deleted has none."""
    if first.committed is None or again.committed is None:
        return None
    return min(first.committed, again.committed)


def _policy(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Deletes may have been forgotten if it was compacted at either time, and unknown counts as compacted."""
    if first.policy is None or again.policy is None:
        return None
    if first.compacted:
        return first.policy
    return again.policy


def _delete_retention(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Tombstones lived for the shorter of the two."""
    retentions = [
        retention for retention in (first.delete_retention_ms, again.delete_retention_ms) if retention is not None
    ]
    return min(retentions, default=None)


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
"""Field of :class:`LogFacts` -> the rule for its recorded value, from both values and the end of the reading."""


def settle(first: LogFacts, again: LogFacts, end: int) -> LogFacts:
    """Return the facts that a manifest records of a log that was read up to ``end``. Raises LogChangedError."""
    # By name, so that a new fact without a rule is a KeyError in every test, and not a silent old value.
    return replace(first, **{field.name: RULES[field.name](first, again, end) for field in fields(LogFacts)})  # type: ignore[arg-type]
