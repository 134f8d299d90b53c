"""The tasks that the directories of ``kstate seed`` must have, and what their rows cannot show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.errors import Refused
from kstate_cli.formats.keys import SessionKey, WindowKey
from kstate_cli.seed.cluster import TopicFacts
from kstate_cli.seed.completeness import input_topics, with_partitions
from kstate_cli.seed.directories import SeedDirectories, directory_notes, read_directories
from kstate_cli.seed.partitioning import PartitionRequest
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from tests.golden import unpack


def directories_of(folder: Path) -> SeedDirectories:
    """Return the directory of an application with all kinds of stores."""
    stores = (
        StoreDraft(name="grace-table", retention_ms=2_880_000),
        StoreDraft(name="versioned", retention_ms=2_880_000),
        StoreDraft(name="join-left-shared-join-store", kind="list-value"),
        StoreDraft(name="kv-nolog", logged=False),
    )
    application = unpack("4.2.1-kinds-eos", folder)
    draft = SpecDraft(application=application.name, stores=stores)
    return read_directories([application], draft, "kstate.toml", frozenset())


def test_only_a_sub_topology_with_another_number_may_have_had_fewer_partitions(tmp_path: Path) -> None:
    """A task of the others is missing, and no statement about another sub-topology explains that."""
    directories = directories_of(tmp_path)
    topics = input_topics(directories)
    place = min(topics, key=str)
    others = {str(number) for _, number in topics} - {str(place[1])}
    more = {topic: TopicFacts("id", 5, 1, {}) for names in topics.values() for topic in names}
    for scope, explains in ((str(place[1]), True), (None, True), (min(others), False)):
        with pytest.raises(Refused, match="the directories lack these tasks") as caught:
            with_partitions(directories, more, (), PartitionRequest({scope: 5}))
        assert ("now have more partitions" in str(caught.value.hint)) is explains, scope


def test_lost_rows_timestamps_and_headers_are_listed(tmp_path: Path) -> None:
    """Windows and sessions have a time in their keys, which becomes that of a record whose row has none."""
    directories = directories_of(tmp_path)
    places = {task.sub_topology for task in directories.app.tasks}
    directories = replace(directories, partitions=dict.fromkeys(places, 2))
    records = {changelog: directories.records_of(changelog) for changelog in directories.topics()}
    notes = [*directory_notes(directories, records, ())]
    for part in (
        "these stores start empty, because they have no changelog: kv-nolog",
        "in-memory stores and suppress buffers",
        "kv-plain: the rows have no timestamps, so kstate writes 8 records without a timestamp",
        "kstate writes record headers only for stores that keep them",
    ):
        assert [note for note in notes if part in note], part
    assert len([note for note in notes if "the rows have no timestamps" in note]) == 1
    times: dict[str, Callable[[bytes], int]] = {
        "window-plain": lambda key: WindowKey.from_bytes(key).start,
        "session-plain": lambda key: SessionKey.from_bytes(key).end,
    }
    for name, time_of in times.items():
        (parts,) = (parts for changelog, parts in records.items() if changelog.endswith(f"-{name}-changelog"))
        written = [record for part in parts for batch in part.batches() for record in batch]
        assert written and all(record.timestamp == time_of(record.key) > 0 for record in written)
