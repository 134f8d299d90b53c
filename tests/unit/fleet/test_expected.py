"""The number of tasks that a sub-topology should have, by its three sources."""

from __future__ import annotations

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.errors import Refused
from kstate_cli.fleet.model import CountSource, Partitions, StoreCopy, expected_partitions
from kstate_cli.formats.topic_partition import MOST_PARTITIONS, TopicPartition
from kstate_cli.specification.draft import IN_MEMORY, SpecDraft, StoreDraft

TOPIC = "orders-count-changelog"


def copy(task: str) -> StoreCopy:
    offsets = {TopicPartition(TOPIC, 0): 5}
    return StoreCopy(task, "count", "key-value", True, True, False, 10, offsets, frozenset(), ("4.3",), "none", False)


def facts(partitions: int) -> dict[TopicPartition, LogFacts]:
    return {TopicPartition(TOPIC, partition): LogFacts(0, 10) for partition in range(partitions)}


def spec(*stores: StoreDraft) -> SpecDraft:
    return SpecDraft("orders", stores)


DRAFT = StoreDraft(name="count", kind="key-value", subtopology=0, partitions=4)


def test_the_most_certain_source_counts() -> None:
    copies = [copy("0_0"), copy("0_2"), copy("global")]
    assert expected_partitions(copies, None, None) == {(None, 0): Partitions(3, CountSource.TASKS)}
    assert expected_partitions(copies, None, spec(DRAFT)) == {(None, 0): Partitions(4, CountSource.SPEC)}
    assert expected_partitions(copies, facts(6), spec(DRAFT)) == {(None, 0): Partitions(6, CountSource.LOGS)}


def test_a_generator_of_copies_is_read_once_for_every_source() -> None:
    expected = expected_partitions((entry for entry in [copy("0_0"), copy("0_2")]), facts(6), None)
    assert expected == {(None, 0): Partitions(6, CountSource.LOGS)}


def test_stores_in_memory_and_global_stores_name_no_tasks() -> None:
    stores = (StoreDraft(name="a", kind=IN_MEMORY, subtopology=0, partitions=9),)
    assert expected_partitions([], None, spec(*stores)) == {}


def test_a_damaged_number_is_refused() -> None:
    with pytest.raises(Refused, match="a topic cannot have that many"):
        expected_partitions([copy(f"0_{MOST_PARTITIONS}")], None, None)
