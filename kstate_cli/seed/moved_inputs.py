"""Plan the offsets of input topics for another number of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.broker.tails import ReadFrom
from kstate_cli.errors import Refused
from kstate_cli.formats.partitions import PartitionMetadata
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection, read_topics
from kstate_cli.seed.emitted_windows import decoded_metadata, emitted_ends
from kstate_cli.seed.partitioning import Partitioner, Partitioning, PartitionRequest, key_text, value_in_scope
from kstate_cli.seed.start_offsets import stated_offsets
from kstate_cli.seed.writing import message_batches
from kstate_cli.texts import plural, some

if TYPE_CHECKING:
    from kstate_cli.seed.model import SeedRequest

_MOST: Final = 5


@dataclass(frozen=True, slots=True)
class MovedInput:
    """An input topic that has the new number of partitions."""

    topic: str
    count: int
    partitioner: Partitioner


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The offsets of the new group, the topics that they move in, and what the user should know."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    copied: Mapping[TopicPartition, CommittedOffset]
    """The offsets of the source that they come from."""
    stated: Mapping[TopicPartition, CommittedOffset]
    """The offsets on the target that the user states."""
    moved: tuple[MovedInput, ...] = ()
    notes: tuple[str, ...] = ()


def plan_inputs(
    request: SeedRequest,
    committed: Mapping[TopicPartition, CommittedOffset],
    partitionings: Mapping[str, Partitioning],
) -> InputPlan:
    """Return the offsets of the input topics for the new number of partitions. Raises Refused and RunFailed.

    ``committed``: the offsets of the source application in its input topics. What it has not read yet must already be
    in the partition of the new rule: the task of another partition would not have the state of the key.
    """
    changed = [
        partitioning
        for partitioning in partitionings.values()
        if partitioning.source_count != partitioning.target_count
    ]
    statements = request.partitions
    topics = {key.topic for key in request.start_offsets}
    others = {key: place for key, place in committed.items() if key.topic not in topics}
    if statements is None or not changed:
        stated = stated_offsets(request.target, request.start_offsets, committed, ())
        return InputPlan(others, others, stated)
    inputs = _moved_inputs(request, statements, changed, {key.topic for key in others})
    stated = stated_offsets(request.target, request.start_offsets, committed, topics - _kept_topics(request))
    copied = {key: place for key, place in others.items() if key.topic not in inputs.replaced}
    offsets = _moved_offsets(request.source, copied, inputs.moved)
    moved = [*inputs.moved, *_stated_inputs(request, statements, changed)]
    refuse_misplaced(request.target, moved, {**offsets, **stated})
    return InputPlan(offsets, copied, stated, tuple(moved), tuple(_input_notes(request, inputs, others)))


def _input_notes(
    request: SeedRequest, inputs: _Inputs, committed: Mapping[TopicPartition, CommittedOffset]
) -> Iterator[str]:
    if inputs.unrelated:
        yield (
            f"kstate copies the offsets of {some(inputs.unrelated, _MOST)} unchanged, because these topics have "
            "neither the old nor the new number of partitions"
        )
    if inputs.replaced:
        yield (
            f"kstate does not copy the offsets of {some(inputs.replaced, _MOST)}, because the new application cannot "
            "read topics with this number of partitions"
        )
        logs = ask_broker(request.source.bootstrap, request.source.settings, group=None, topics=inputs.replaced)
        unread = sum(
            max(0, log.end - max(log.start, committed[key].offset if key in committed else 0))
            for key, log in logs.items()
        )
        if unread:
            yield (
                f"the last {plural(unread, 'offset')} of {some(inputs.replaced, _MOST)} will not be read, because "
                "the source has not read them yet and the new application cannot read these topics"
            )


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The input topics of the source, by what becomes of their offsets."""

    moved: list[MovedInput]
    """Those that have the new number of partitions."""
    unrelated: list[str]
    replaced: list[str]
    """Those instead of which the new application reads topics with offsets that the user states."""


def _moved_inputs(
    request: SeedRequest, statements: PartitionRequest, changed: Sequence[Partitioning], names: set[str]
) -> _Inputs:
    """Return the input topics whose offsets kstate copies or drops. Raise Refused."""
    kept_topics = _kept_topics(request)
    old = {partitioning.source_count for partitioning in changed}
    new = {partitioning.target_count for partitioning in changed}
    inputs = _Inputs([], [], [])
    on_target = read_topics(request.target, names - kept_topics)
    for topic, facts in sorted(read_topics(request.source, names - kept_topics).items()):
        theirs = on_target.get(topic)
        # A task needs a partition of each changelog, so no application with the new number reads a topic with more.
        if request.start_offsets and (theirs is None or theirs.partitions > max(new)):
            inputs.replaced.append(topic)
        # An old number comes first: whether the topic belongs to a sub-topology that keeps it is unknown.
        elif facts.partitions in old and request.same_cluster:
            raise _not_enlarged(topic, facts.partitions, new)
        elif not request.same_cluster and facts.partitions in old | new:
            raise Refused(
                f"kstate cannot convert the offsets of the input topic {topic} to a different number of partitions, "
                f"because the offsets are different on the target cluster",
                hint=(
                    f"pass {option.START_OFFSETS} FILE with each partition's offset on the target, or "
                    f"{option.NO_OFFSETS}"
                ),
            )
        elif facts.partitions in new:
            partitioner = value_in_scope(statements.partitioners, (topic, None)) or Partitioner()
            inputs.moved.append(MovedInput(topic, facts.partitions, partitioner))
        else:
            inputs.unrelated.append(topic)
    return inputs


def _stated_inputs(
    request: SeedRequest, statements: PartitionRequest, changed: Sequence[Partitioning]
) -> Iterator[MovedInput]:
    """Yield the input topics with stated offsets and the new number of partitions: their records must fit the rule."""
    new = {partitioning.target_count for partitioning in changed}
    names = {key.topic for key in request.start_offsets}
    for topic, facts in sorted(read_topics(request.target, names).items()):
        if facts.partitions > max(new):
            raise Refused(
                f"the input topic {topic} has {plural(facts.partitions, 'partition')}, but the new changelogs have "
                f"{max(new)}",
                hint=f"pass {option.START_OFFSETS} with topics that the new application can read",
            )
        if facts.partitions in new:
            partitioner = value_in_scope(statements.partitioners, (topic, None)) or Partitioner()
            yield MovedInput(topic, facts.partitions, partitioner)


def _kept_topics(request: SeedRequest) -> set[str]:
    """Return the input topics of tables that keep their number of partitions."""
    if request.spec is None:
        return set()
    return {store.source_topic for store in request.spec.stores if store.source_topic is not None}


def _not_enlarged(topic: str, count: int, new: set[int]) -> Refused:
    number = min(new)
    hint = (
        f"let the old application read all records of {topic}, stop it, then increase the number of partitions to "
        f"{number} with kafka-topics"
    )
    if count > number:
        hint = (
            f"pass {option.START_OFFSETS} FILE with each partition's offset in a smaller input topic, or "
            f"{option.NO_OFFSETS}. Kafka cannot remove partitions of {topic}"
        )
    return Refused(
        f"the input topic {topic} has {plural(count, 'partition')}, but the new application needs {number}", hint=hint
    )


def _moved_offsets(
    connection: Connection, committed: Mapping[TopicPartition, CommittedOffset], moved: Sequence[MovedInput]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets, and those of partitions from which the application has read nothing."""
    names = {topic.topic for topic in moved}
    metadata = {key: decoded_metadata(key, own.metadata) for key, own in committed.items() if key.topic in names}
    logs = ask_broker(connection.bootstrap, connection.settings, group=None, topics=sorted(names))
    ends = emitted_ends(metadata)
    offsets = dict(committed)
    for topic in moved:
        own = [metadata[key] for key in metadata if key.topic == topic.topic]
        # Keys of every old partition may be in the new one, so its time is the highest of them.
        time_ms = max(partition.time for partition in own)
        processors = {name: ends[name] for partition in own for name in partition.processors if name in ends}
        for number in range(topic.count):
            key = TopicPartition(topic.topic, number)
            if key not in committed:
                offsets[key] = CommittedOffset(logs[key].start, PartitionMetadata(time_ms, processors).encode())
                continue
            offsets[key] = _lowered(committed[key], metadata[key], ends)
    return offsets


def _lowered(committed: CommittedOffset, before: PartitionMetadata, ends: Mapping[str, int]) -> CommittedOffset:
    """Return the offset with the ends of processors as the new application may rely on them."""
    lowered = {name: ends[name] for name in before.processors if name in ends}
    # Equal facts keep the very bytes that Kafka Streams wrote.
    if lowered == before.processors:
        return committed
    return CommittedOffset(committed.offset, PartitionMetadata(before.time, lowered).encode(), committed.leader_epoch)


def refuse_misplaced(
    connection: Connection, moved: Sequence[MovedInput], offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Raise Refused if an unread record is not in the partition of its key. Raises RunFailed."""
    if not moved:
        return
    logs = ask_broker(connection.bootstrap, connection.settings, group=None, topics=[topic.topic for topic in moved])
    for topic in moved:
        for number in range(topic.count):
            key = TopicPartition(topic.topic, number)
            begin = max(offsets[key].offset, logs[key].start)
            if begin < logs[key].end:
                _refuse_misplaced_in(connection, topic, ReadFrom(key, begin))


def _refuse_misplaced_in(connection: Connection, topic: MovedInput, place: ReadFrom) -> None:
    # Which isolation the application has is unknown: without transactions it reads all of these. A consumer that the
    # traceback of an error keeps alive would call Python while it ends, so it is closed here.
    with closing(message_batches(connection, [place], committed=False)) as batches:
        for record_key in (message.key() for messages in batches for message in messages):
            # A record without a key may be in any partition.
            if record_key is None:
                continue
            expected = topic.partitioner.partition(record_key, topic.count)
            if expected != place.key.partition:
                raise Refused(
                    f"the application has not read a record of {place.key} yet. With {topic.count} partitions, this "
                    f"record's key {key_text(record_key)} belongs to partition {expected}",
                    hint=(
                        "stop the producers, and let the old application read all records before you add partitions "
                        "to the topic"
                    ),
                )
