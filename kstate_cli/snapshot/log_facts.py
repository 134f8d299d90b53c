"""The logs of a snapshot as the broker states them: which facts are recorded, and which offsets they prove wrong.

The broker is asked before the copy and after it. A topic that was recreated, or whose deletes are kept for another time
meanwhile, must not be recorded as if it had been so all the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kstate_cli import option
from kstate_cli.broker.facts import Facts, LogFacts
from kstate_cli.errors import RunFailed
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import RETENTION_MS
from kstate_cli.snapshot.model import StoredStore
from kstate_cli.snapshot.rules import NEVER_FLUSHED, NO_BOUND, UnflushedSegments
from kstate_cli.texts import first_lines

Ask = Callable[[Iterable[str]], Facts]
"""Returns the facts of all partitions of topics."""
ReadLog = Callable[[TopicPartition, int, int], Iterable[tuple[int, bytes | None]]]
"""Returns offset and key of each record from a first to a last offset. It raises RunFailed if it cannot read all."""
_LOG = logging.getLogger(__name__)


def recorded(facts: LogFacts) -> LogFacts:
    """Return the facts that a generation keeps: committed offsets and the like are of no use later."""
    return LogFacts(
        facts.start,
        facts.end,
        facts.topic_id,
        policy=facts.policy,
        delete_retention_ms=facts.delete_retention_ms,
        leader_epoch=facts.leader_epoch,
    )


def read_logs(ask: Ask | None, keys: Iterable[TopicPartition]) -> dict[TopicPartition, LogFacts]:
    """Return the facts of the logs that exist; nothing without a broker. Raise RunFailed if it does not answer."""
    requested = set(keys)
    if ask is None or not requested:
        return {}
    answers = ask({key.topic for key in requested})
    return {key: recorded(facts) for key, facts in answers.items() if key in requested}


def require_unchanged(
    before: Mapping[TopicPartition, LogFacts], after: Mapping[TopicPartition, LogFacts], message: str, hint: str
) -> None:
    """Raise RunFailed if a log is another one than before the copy, or keeps deletes for another time."""
    changed = [str(key) for key, facts in sorted(before.items()) if _identity(facts) != _identity(after.get(key))]
    if changed:
        raise RunFailed(
            message,
            details=first_lines(changed),
            hint=hint,
        )


def _identity(facts: LogFacts | None) -> tuple[object, ...] | None:
    if facts is None:
        return None
    return facts.topic_id, facts.policy, facts.delete_retention_ms


def why_another_log(
    offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogFacts], *, is_global: bool
) -> str | None:
    """Return why a store is not of the log that the broker has; None if nothing shows that.

    Task stores keep the offset of the last record, global ones that of the next.
    """
    for key, offset in offsets.items():
        facts = logs.get(key)
        if facts is not None and following(offset, is_global=is_global) > facts.end:
            return (
                f"its offset {offset} is above the end {facts.end} of {key}, which lost records or was recreated. To "
                f"capture the task anyway, omit {option.BOOTSTRAP_SERVER}"
            )
    return None


# --- at the restoration -----------------------------------------------------------------------------------------------


def why_not_continued(store: StoredStore, logs: Mapping[TopicPartition, LogFacts], *, is_global: bool) -> str | None:
    """Return why the log that the broker has now cannot continue a store of a snapshot; None if nothing shows that."""
    for key, offset in store.offsets.items():
        facts = logs.get(key)
        if facts is None:
            return f"the broker does not have {key}, so Kafka Streams would wipe the store the next time it starts"
        if is_of_another_topic(store, key, facts):
            return f"{key.topic} was deleted and recreated after the snapshot"
        if offset != OFFSET_UNKNOWN and following(offset, is_global=is_global) > facts.end:
            return f"its offset {offset} is above the end {facts.end} of {key}, which lost records or was recreated"
    return None


def is_of_another_topic(store: StoredStore, key: TopicPartition, facts: LogFacts) -> bool:
    """Return whether the snapshot states another topic id than the broker."""
    return facts.topic_id is not None and bool(topic_ids(store, key) - {facts.topic_id})


def topic_ids(store: StoredStore, key: TopicPartition) -> frozenset[str]:
    """Return the topic ids that a snapshot states for a log: that of a broker, and that of an earlier restoration."""
    ids = {store.topic_ids.get(key.topic)}
    if key in store.logs:
        ids.add(store.logs[key].topic_id)
    return frozenset(topic_id for topic_id in ids if topic_id is not None)


def most_cautious(store: StoredStore, logs: Mapping[TopicPartition, LogFacts]) -> StoredStore:
    """Return a store with the stored facts of its log and those of now: of each fact the one that permits less."""
    return replace(store, logs={key: _most_cautious(store.logs.get(key), logs[key]) for key in store.offsets})


def _most_cautious(stored: LogFacts | None, now: LogFacts) -> LogFacts:
    # Without stored facts the default may have held until a moment ago.
    before = RETENTION_MS
    start = now.start
    if stored is not None:
        start = max(stored.start, now.start)
        if stored.delete_retention_ms is not None:
            before = stored.delete_retention_ms
    after = now.delete_retention_ms
    if after is None:
        after = RETENTION_MS
    return replace(now, start=start, delete_retention_ms=min(before, after))


def following(offset: int, *, is_global: bool) -> int:
    """Return the next offset to read."""
    if is_global:
        return offset
    return offset + 1


@dataclass(frozen=True, slots=True)
class LogOffset:
    """The offset behind which every record of segments is that were never flushed; -4 if the log shows none."""

    offset: int
    why_unknown: str | None = None
    """None if the offset is known."""


def offset_in_log(
    key: TopicPartition, segments: UnflushedSegments, read_log: ReadLog | None, facts: LogFacts | None
) -> LogOffset:
    """Return the offset behind which every record of segments is that were never flushed, or why it is unknown."""
    if read_log is None:
        why = NO_BOUND
        if segments.last == MAX_I64:
            why = NEVER_FLUSHED
        return LogOffset(OFFSET_UNKNOWN, why)
    if facts is None:
        return LogOffset(OFFSET_UNKNOWN, f"a segment was never flushed, and {key.topic} does not exist")
    if segments.last == MAX_I64:
        # No segment was ever flushed. Records that come later are behind the end.
        segments = replace(segments, last=facts.end - 1)
    if not facts.start <= segments.last < facts.end:
        # Below the start of the log nothing shows what was in the segments; past its end it is another log.
        outside = f"its log ({facts.start} to {facts.end}) does not contain offset {segments.last}"
        return LogOffset(OFFSET_UNKNOWN, f"a segment was never flushed, and {outside}")
    try:
        offset = segments.offset_before(read_log(key, facts.start, segments.last), facts.start)
    except RunFailed as error:
        # The snapshot is complete without it: the first start then reads the whole log of the store.
        _LOG.warning("%s: where its segments begin is unknown: %s", key, error.message)
        return LogOffset(OFFSET_UNKNOWN, f"a segment was never flushed, and {error.message}")
    if offset == OFFSET_UNKNOWN:
        return LogOffset(OFFSET_UNKNOWN, "its log begins with a record of a segment that was never flushed")
    return LogOffset(offset)
