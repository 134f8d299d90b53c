"""The ends of emitted windows follow their stores: without them Kafka Streams emits closed windows again."""

from __future__ import annotations

from pathlib import Path

from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.formats.partitions import PartitionMetadata
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.emitted_windows import emitted_queues, target_queue, with_renamed_stores
from kstate_cli.seed.model import SeedRequest

INPUT = TopicPartition("in", 0)
QUEUE = TopicPartition("orders-closed-repartition", 0)


def request(**renamed: str) -> SeedRequest:
    """A request that renames stores."""
    cluster = Connection("127.0.0.1:1", {})
    return SeedRequest("dump", "orders-v2", None, cluster, cluster, Path("journal"), renamed=renamed)


def place(offset: int, time: int, **processors: int) -> CommittedOffset:
    """A committed offset with metadata."""
    return CommittedOffset(offset, PartitionMetadata(time, processors).encode(), 3)


def test_an_entry_gets_the_new_name_of_its_store() -> None:
    renamed = with_renamed_stores(request(closed="final"), {INPUT: place(7, 5, closed=60, other=9)})
    assert renamed == {INPUT: place(7, 5, final=60, other=9)}


def test_metadata_without_the_store_keeps_its_bytes() -> None:
    # Not in the order in which kstate would write it, and text that Kafka Streams did not write.
    for metadata in (b"", b"any text", PartitionMetadata(5, {"b": 1, "a": 2}).encode()):
        places = {INPUT: CommittedOffset(7, metadata)}
        assert with_renamed_stores(request(closed="final"), places) == places


def test_only_a_queue_with_entries_of_its_own_is_kept() -> None:
    queues = {"orders-closed-repartition": None}
    assert not emitted_queues({INPUT: place(1, 5), QUEUE: place(9, 5)}, queues)
    # A task commits the same entries with all its partitions: those of its input topic are copied anyway.
    assert not emitted_queues({INPUT: place(1, 5, closed=60), QUEUE: place(9, 5, closed=60)}, queues)
    rows = emitted_queues({INPUT: place(1, 5, other=60), QUEUE: place(9, 5, closed=60)}, queues)
    assert {topic: queue.stores for topic, queue in rows.items()} == {"orders-closed-repartition": {"closed"}}


def test_the_new_queue_has_the_name_that_kafka_streams_derives() -> None:
    assert target_queue(request(), "orders", QUEUE.topic) == "orders-v2-closed-repartition"
    assert target_queue(request(closed="final"), "orders", QUEUE.topic) == "orders-v2-final-repartition"
    named = "orders-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
    assert target_queue(request(), "orders", named) == named.replace("orders", "orders-v2", 1)
