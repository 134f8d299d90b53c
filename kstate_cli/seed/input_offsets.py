"""Translate committed offsets of input topics to another cluster, whose topics have the records at other offsets.

A mirrored topic lacks transaction markers, and may lack what compaction or retention has removed, so no difference of
offsets is constant. An offset is translated only if the records on both sides of it are identified in the topic of the
target: the last consumed and the first unconsumed one, each by key, value, timestamp and headers, each exactly once,
and with no record between them. Everything else is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection, TopicFacts, read_topics
from kstate_cli.seed.emitted_windows import with_renamed_stores
from kstate_cli.seed.model import SeedFacts, SeedRequest
from kstate_cli.seed.table_contents import tables_of
from kstate_cli.seed.writing import GROUP, message_batches
from kstate_cli.specification.draft import Spec
from kstate_cli.texts import first_lines, plural, size_text

_SECONDS: Final = 30.0
_NEAR: Final = 1_000
"""Offsets to read before a committed one at first; each further step reads eight times as many."""


class InputRecord(NamedTuple):
    """What identifies a record: its contents, without its offset."""

    key: bytes | None
    """None and an empty key are different."""
    value: bytes | None
    timestamp: int
    """In ms since 1970; -1 without one."""
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The records on both sides of a committed offset; None if the log has none there."""

    consumed: InputRecord | None
    """The last record before the offset."""
    unconsumed: InputRecord | None
    """The first record from the offset on."""


@dataclass(slots=True)
class _Search:
    """Where the neighbours are in the log of the target."""

    consumed: list[int]
    unconsumed: list[int]
    before_unconsumed: int | None = None
    """Offset of the record before the first match of ``unconsumed``; None without one."""
    first: int | None = None
    last: int | None = None
    """Offsets of the first and of the last record that were read."""


def table_topics(spec: Spec | None, changelogs: Collection[str]) -> list[str]:
    """Return the topics that are no changelogs, and from which stores of the specification are restored.

    Those of global stores, and the source topics of tables that are their own changelogs (``reuse.source.topic``).
    """
    if spec is None:
        return []
    topics = {store.changelog for store in spec.stores if store.changelog is not None}
    return sorted(topics - set(changelogs))


def refuse_tables(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield which of these stores the target cannot restore: kstate writes nothing to their topics."""
    for store in tables_of(facts, request):
        topic = str(store.changelog)
        ours, theirs = facts.source_tables.get(topic), facts.target_tables.get(topic)
        problem = None
        if theirs is None:
            problem = f"the target does not have {topic}"
        elif ours is not None and ours.partitions != theirs.partitions:
            problem = f"{topic} has {ours.partitions} partitions on the source and {theirs.partitions} on the target"
        if problem is not None:
            yield Refused(
                f"Kafka Streams restores the store {store.name} from its input topic, and {problem}",
                hint="create the topic with the same number of partitions and mirror its records",
            )


def target_offsets(
    request: SeedRequest, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that the new group gets for these offsets of the source. Raises as translate_offsets."""
    offsets = committed
    if not request.same_cluster:
        offsets = translate_offsets(request.source, request.target, committed)
    return with_renamed_stores(request, offsets)


def translate_offsets(
    source: Connection, target: Connection, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets for the same input topics of the target, with the same metadata.

    Raises Refused, naming each partition whose offset is not certain, UsageError and RunFailed.
    """
    topics = sorted({key.topic for key in committed})
    if not topics:
        return {}
    ours = ask_broker(source.bootstrap, source.settings, group=None, topics=topics, stable=True)
    facts = {True: read_topics(source, topics), False: read_topics(target, topics)}
    theirs: Mapping[TopicPartition, LogFacts] = {}
    if facts[False]:
        theirs = ask_broker(target.bootstrap, target.settings, group=None, topics=sorted(facts[False]), stable=True)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    problems: list[str] = []
    for key, place in sorted(committed.items()):
        problem = _unusable(key, facts[True], facts[False]) or _unreadable(place, ours.get(key), theirs.get(key))
        if problem is None:
            neighbours = _neighbours(source, key, ours[key], place.offset)
            result = _place(target, key, theirs[key], neighbours)
            if isinstance(result, int):
                # A leader epoch belongs to the log of its own cluster.
                offsets[key] = CommittedOffset(result, place.metadata)
                continue
            problem = result
        problems.append(f"{key}: {problem}")
    if problems:
        raise Refused(
            f"kstate cannot determine the committed offsets for {plural(len(problems), 'partition')} on the target",
            details=first_lines(problems),
            hint=(
                f"pass {option.START_OFFSETS} FILE with these topics' offsets on the target, or {option.NO_OFFSETS} "
                "to write only the changelogs"
            ),
        )
    return offsets


def _unusable(
    key: TopicPartition, source_topics: Mapping[str, TopicFacts], target_topics: Mapping[str, TopicFacts]
) -> str | None:
    """Return why the topic of the target cannot replace that of the source; None if it can."""
    if key.topic not in source_topics:
        return "the topic no longer exists on the source"
    if key.topic not in target_topics:
        return "the topic does not exist on the target"
    ours, theirs = source_topics[key.topic].partitions, target_topics[key.topic].partitions
    if ours != theirs:
        return f"the topic has {ours} partitions on the source and {theirs} on the target"
    return None


def _unreadable(place: CommittedOffset, ours: LogFacts | None, theirs: LogFacts | None) -> str | None:
    """Return why the logs cannot be compared now; None if they can."""
    if ours is None or theirs is None:
        return "the broker does not report the start and end of the log"
    if place.offset < ours.start:
        return f"the committed offset {place.offset} is below the log start {ours.start} of the source"
    if place.offset > ours.end:
        return f"the committed offset {place.offset} is above the log end {ours.end} of the source"
    # A record of an open transaction may be on either side of the offset, and cannot be read yet.
    if ours.stable_end != ours.end:
        return "a transaction is open in the source topic"
    if theirs.stable_end != theirs.end:
        return "a transaction is open in the target topic"
    return None


def _neighbours(source: Connection, key: TopicPartition, log: LogFacts, offset: int) -> Neighbours:
    """Return the records around an offset of the source.

    Markers, aborted and compacted records leave gaps, so the record before may be anywhere before: the search widens.
    """
    span = _NEAR
    while True:
        begin = max(log.start, offset - span)
        consumed: InputRecord | None = None
        unconsumed: InputRecord | None = None
        with closing(_records(source, key, log, begin)) as records:
            for position, record in records:
                if position >= offset:
                    unconsumed = record
                    break
                consumed = record
        if consumed is not None or begin == log.start:
            return Neighbours(consumed, unconsumed)
        span *= 8


def _records(
    connection: Connection, key: TopicPartition, log: LogFacts, begin: int
) -> Generator[tuple[int, InputRecord], None, None]:
    """Yield committed records with their offsets. Close it: it has a consumer until then."""
    if begin >= log.end:
        return
    with closing(message_batches(connection, [ReadFrom(key, begin)])) as batches:
        for batch in batches:
            for message in batch:
                _, timestamp = message.timestamp()
                headers = message.headers() or []
                yield message.offset(), InputRecord(message.key(), message.value(), timestamp, headers)


def _place(target: Connection, key: TopicPartition, log: LogFacts, neighbours: Neighbours) -> int | str:
    """Return the offset on the target, or why there is none that is certain."""
    search = _search(target, key, log, neighbours)
    consumed, unconsumed = neighbours.consumed, neighbours.unconsumed
    for record, places, name in (
        (consumed, search.consumed, "the last consumed record"),
        (unconsumed, search.unconsumed, "the first unconsumed record"),
    ):
        if record is not None and not places:
            return f"the target does not have {name} ({_described(record)})"
        if len(places) > 1:
            # Which of the equal records the application has consumed cannot be known.
            return f"the target has {name} {len(places)} times ({_described(record)})"
    if consumed is None and unconsumed is None:
        if search.first is not None:
            return "the source has no records, but the target has some"
        return log.start
    if unconsumed is None:
        if search.last != search.consumed[0]:
            return "after the last consumed record, the target has records that the source does not have"
        return search.consumed[0] + 1
    if consumed is None:
        # Nothing of what the application had consumed is left, so nothing may come before on the target either.
        if search.first != search.unconsumed[0]:
            return "before the first unconsumed record, the target has records that the source no longer has"
        return search.unconsumed[0]
    if search.before_unconsumed != search.consumed[0]:
        return "on the target, the first unconsumed record does not follow the last consumed one"
    return search.unconsumed[0]


def _search(target: Connection, key: TopicPartition, log: LogFacts, neighbours: Neighbours) -> _Search:
    """Read the log of the target from the first place where a neighbour can be, to its end: a duplicate may be last."""
    search = _Search([], [])
    previous: int | None = None
    for offset, record in _records(target, key, log, _begin(target, key, log, neighbours)):
        if search.first is None:
            search.first = offset
        if record == neighbours.consumed:
            search.consumed.append(offset)
        if record == neighbours.unconsumed:
            if not search.unconsumed:
                search.before_unconsumed = previous
            search.unconsumed.append(offset)
        previous = search.last = offset
    return search


def _begin(target: Connection, key: TopicPartition, log: LogFacts, neighbours: Neighbours) -> int:
    """Return the offset before which no neighbour can be: the first record that is as late as the earlier one."""
    records = [record for record in (neighbours.consumed, neighbours.unconsumed) if record is not None]
    # Without a consumed record the first one of the log counts. Records without a timestamp have no place in the index.
    if neighbours.consumed is None or any(record.timestamp < 0 for record in records):
        return log.start
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Key

    earliest = min(record.timestamp for record in records)
    place = ReadFrom(key, log.start)
    with assigned_consumer(target.bootstrap, target.settings, GROUP, [place], committed=True) as consumer:
        try:
            (lookup,) = consumer.offsets_for_times([Key(key.topic, key.partition, earliest)], timeout=_SECONDS)
        except KafkaException as error:
            raise RunFailed(
                f"kstate cannot find the offset of a timestamp in {key}: {error.args[0].str()}",
                hint=(
                    "check that the broker is up and that this user has Describe on the topic. Then run the command "
                    "again"
                ),
            ) from None
    if lookup.error is not None:
        # Without the index the log is read from its beginning: slower, and never wrong.
        return log.start
    if lookup.offset < 0:
        # Every record is earlier.
        return log.end
    return max(log.start, int(lookup.offset))


def _described(record: InputRecord | None) -> str:
    """Return what identifies a record, without its contents: these may be personal data."""
    if record is None:
        return ""
    size = "no value"
    if record.value is not None:
        size = size_text(len(record.value))
    return f"timestamp {record.timestamp}, {size}"
