"""How many tasks the directories of ``kstate seed`` must have, if the new application has other partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.errors import Refused
from kstate_cli.seed.cluster import TopicFacts
from kstate_cli.seed.completeness import input_topics, with_partitions
from kstate_cli.seed.directories import read_directories
from kstate_cli.seed.partitioning import PartitionRequest
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from tests.golden import unpack


def test_only_a_sub_topology_with_another_number_may_have_had_fewer_partitions(tmp_path: Path) -> None:
    """A task of the others is missing, and no statement about another sub-topology explains that."""
    stores = (
        StoreDraft(name="grace-table", retention_ms=2_880_000),
        StoreDraft(name="versioned", retention_ms=2_880_000),
        StoreDraft(name="join-left-shared-join-store", kind="list-value"),
    )
    application = unpack("4.2.1-kinds-eos", tmp_path)
    draft = SpecDraft(application=application.name, stores=stores)
    directories = read_directories([application], draft, "kstate.toml", frozenset())
    topics = input_topics(directories)
    place = min(topics, key=str)
    others = {str(number) for _, number in topics} - {str(place[1])}
    more = {topic: TopicFacts("id", 5, 1, {}) for names in topics.values() for topic in names}
    for scope, explains in ((str(place[1]), True), (None, True), (min(others), False)):
        with pytest.raises(Refused, match="the directories lack these tasks") as caught:
            with_partitions(directories, more, (), PartitionRequest({scope: 5}))
        assert ("now have more partitions" in str(caught.value.hint)) is explains, scope
