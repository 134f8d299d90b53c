"""The metadata of committed offsets, above all the ends of windows that were emitted, for the new application.

An aggregation with ``EmitStrategy.onWindowClose`` emits each window once. Kafka Streams keeps the end of the windows
that a task has emitted in ``ProcessorMetadata``, by the name of the store, in the metadata of every offset that it
commits. Without it the next instance emits all windows of the store again. So the entry follows a store that gets
another name, and an entry that only offsets of a repartition topic have needs that topic in the new application.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.partitions import PartitionMetadata
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import some

if TYPE_CHECKING:
    from kstate_cli.seed.model import PlannedTopic, SeedFacts, SeedRequest
    from kstate_cli.seed.records import RecordBatch

REPARTITION: Final = "-repartition"
"""Suffix of the topic through which an operation sends records to itself under another key."""
_MOST: Final = 5


def decoded_metadata(key: TopicPartition, metadata: bytes) -> PartitionMetadata:
    """Return the metadata of a committed offset. Raise Refused if Kafka Streams did not write it."""
    try:
        return PartitionMetadata.decode(metadata)
    except MalformedBytesError as error:
        raise Refused(
            f"the committed offset of {key} has metadata that Kafka Streams did not write: {error}",
            hint=f"pass {option.NO_OFFSETS} and set the new group's offsets yourself",
        ) from None


def emitted_ends(metadata: Mapping[TopicPartition, PartitionMetadata]) -> dict[str, int]:
    """Return for each store that emits on window close the end that every old task has reached; none if one has none.

    Windows of several old tasks are in one new store. Above the lowest end a window may not have been emitted yet, so
    a higher one would lose its result; with the lowest one Kafka Streams may emit a result again.
    """
    names = {name for partition in metadata.values() for name in partition.processors}
    ends: dict[str, int] = {}
    for name in names:
        topics = {key.topic for key, partition in metadata.items() if name in partition.processors}
        tasks: dict[int, list[int]] = {}
        for key, partition in metadata.items():
            if key.topic in topics:
                own = tasks.setdefault(key.partition, [])
                if name in partition.processors:
                    own.append(partition.processors[name])
        if all(tasks.values()):
            # A task takes the highest value of all its partitions (``ProcessorMetadata.update``).
            ends[name] = min(max(values) for values in tasks.values())
    return ends


def with_renamed_stores(
    request: SeedRequest, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets with the new names of stores in their metadata; without such a store the bytes stay equal."""
    if not request.renamed:
        return dict(offsets)
    return {key: replace(place, metadata=_renamed(request, place.metadata)) for key, place in offsets.items()}


def _renamed(request: SeedRequest, metadata: bytes) -> bytes:
    try:
        content = PartitionMetadata.decode(metadata)
    except MalformedBytesError:
        # Kafka Streams ignores metadata that it cannot decode (``TopicPartitionMetadata.decode``): no entry is lost.
        return metadata
    processors = {request.renamed_store(name): end for name, end in content.processors.items()}
    if processors == content.processors:
        return metadata
    return PartitionMetadata(content.time, processors).encode()


@dataclass(frozen=True, slots=True)
class NoRecords:
    """A partition of a new topic that stays empty."""

    partition: int
    records: int = 0
    without_timestamp: int = 0
    without_key: int = 0

    @property
    def identity(self) -> list[object]:
        """The number of the partition."""
        return [self.partition]

    def batches(self) -> Iterator[RecordBatch]:
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True, slots=True)
class EmittedQueue:
    """A repartition topic of the source whose offsets alone have the ends of some emitted windows."""

    topic: str
    metadata: Mapping[TopicPartition, PartitionMetadata]
    bytes_of: Mapping[TopicPartition, bytes]

    @property
    def stores(self) -> frozenset[str]:
        """The stores whose windows were emitted."""
        return frozenset(name for partition in self.metadata.values() for name in partition.processors)


def emitted_queues(
    committed: Mapping[TopicPartition, CommittedOffset], queues: Mapping[str, object]
) -> dict[str, EmittedQueue]:
    """Return, by topic, the internal topics whose offsets have entries that no offset of an input topic has.

    ``queues``: the internal topics of the application. Entries of a task are in the offsets of all its partitions, and
    those of its input topics are copied anyway.
    """
    metadata: dict[TopicPartition, PartitionMetadata] = {}
    for key, place in committed.items():
        try:
            metadata[key] = PartitionMetadata.decode(place.metadata)
        except MalformedBytesError:
            # Kafka Streams ignores it too.
            continue
    inputs = {name for key, own in metadata.items() if key.topic not in queues for name in own.processors}
    result: dict[str, EmittedQueue] = {}
    for topic in sorted(queues):
        own = {key: partition for key, partition in metadata.items() if key.topic == topic}
        queue = EmittedQueue(topic, own, {key: committed[key].metadata for key in own})
        if queue.stores - inputs:
            result[topic] = queue
    return result


def target_queue(request: SeedRequest, source_app: str, topic: str) -> str:
    """Return the topic of the new application for an internal one of the source.

    Without ``Grouped.as`` the repartition topic of an aggregation has the name of its store
    (``GroupedStreamAggregateBuilder``).
    """
    name = topic.removeprefix(f"{source_app}-")
    store = name.removesuffix(REPARTITION)
    if store != name:
        return f"{request.app}-{request.renamed_store(store)}{REPARTITION}"
    return f"{request.app}-{name}"


def plan_queues(
    request: SeedRequest, facts: SeedFacts, changelogs: Sequence[PlannedTopic]
) -> tuple[list[PlannedTopic], dict[TopicPartition, CommittedOffset]]:
    """Return the empty internal topics that kstate creates for the ends of emitted windows, and their offsets."""
    from kstate_cli.seed.model import PlannedTopic

    topics: list[PlannedTopic] = []
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic, queue in emitted_queues(facts.committed, facts.source_queues).items():
        on_broker = facts.source_queues[topic]
        target = target_queue(request, facts.source_app, topic)
        count = _count(queue, on_broker.partitions, changelogs)
        replicas = -1
        if request.same_cluster:
            replicas = on_broker.replicas
        partitions = tuple(NoRecords(number) for number in range(count))
        name = topic.removeprefix(f"{facts.source_app}-")
        topics.append(PlannedTopic(topic, target, name, True, partitions, replicas, on_broker.settings))
        # The source has read every record of its own topic, and the new one is empty: the first offset is 0.
        own = {TopicPartition(target, key.partition): CommittedOffset(0, data) for key, data in queue.bytes_of.items()}
        if count != on_broker.partitions:
            time = max(partition.time for partition in queue.metadata.values())
            data = PartitionMetadata(time, emitted_ends(queue.metadata)).encode()
            own = {TopicPartition(target, number): CommittedOffset(0, data) for number in range(count)}
        offsets |= own
    return topics, with_renamed_stores(request, offsets)


def _count(queue: EmittedQueue, count: int, changelogs: Sequence[PlannedTopic]) -> int:
    """Return the partitions of the new topic: the entries name stores of the sub-topology that reads it."""
    for changelog in changelogs:
        if changelog.store in queue.stores and changelog.proven is not None:
            partitioning = changelog.proven.partitioning
            # The topic of another number is not the one that decides how many tasks there are.
            if partitioning.source_count == count:
                return partitioning.target_count
    return count


def queue_notes(topics: Sequence[PlannedTopic]) -> Iterator[str]:
    """Yield why kstate creates internal topics, which Kafka Streams would create itself."""
    if topics:
        yield (
            f"kstate creates {some([topic.target for topic in topics], _MOST)} and commits its offsets, which record "
            "the emitted windows. Without these offsets, Kafka Streams would emit the windows again"
        )
