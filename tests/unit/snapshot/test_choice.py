"""From which generation a store comes: the same copy as a search through all of them, which would take the square."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.broker.facts import LogFacts
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import OffsetsHome
from kstate_cli.snapshot import choice
from kstate_cli.snapshot.choice import GenerationCopies, NamedTask, choose_copy, read_layout, sources
from kstate_cli.snapshot.model import Generation, NamedGeneration, StoredStore, StoredTask

NOW_MS = 1_700_000_000_000


def key_of(store: str, task: str = "0_0") -> TopicPartition:
    return TopicPartition(f"app-{store}-changelog", int(task.split("_")[1]))


def stored(
    name: str, offset: int | None, *, task: str = "0_0", topic_id: str | None = "id", kind: str = "key-value"
) -> StoredStore:
    key = key_of(name, task)
    ids = {} if topic_id is None else {key.topic: topic_id}
    offsets = {} if offset is None else {key: offset}
    return StoredStore(name, False, kind, offsets, False, None, NOW_MS, ids, ())


def generation(number: int, *stores: StoredStore, task: str = "0_0", is_whole: bool = True) -> NamedGeneration:
    tasks = (StoredTask(task, 0, OffsetsHome.COLUMN_FAMILY, is_whole, stores),)
    return NamedGeneration(f"g{number}", Generation("app", "host", "1", number, tasks))


def chosen(
    generations: list[NamedGeneration], store: str = "count", logs: Mapping[TopicPartition, LogFacts] | None = None
) -> choice.CopyChoice:
    named = read_layout(generations).tasks["0_0"]
    (target,) = (each for each in named.task.stores if each.name == store)
    return choose_copy(named, target, GenerationCopies(generations), logs)


def test_the_highest_offset_of_the_same_log() -> None:
    """The newest directory was left over by another host: an older snapshot is ahead of it."""
    result = chosen(
        [generation(3, stored("count", 5)), generation(2, stored("count", 9)), generation(1, stored("count", 7))]
    )
    assert (result.candidate.generation, result.warnings, result.refusal) == ("g2", (), None)


def test_a_recreated_topic_is_warned_of() -> None:
    result = chosen([generation(2, stored("count", 5)), generation(1, stored("count", 9, topic_id="old"))], logs=None)
    assert result.candidate.generation == "g2" and "cannot confirm" in (result.refusal or "")
    facts = {key_of("count"): LogFacts(0, 10, topic_id="id")}
    result = chosen([generation(2, stored("count", 5)), generation(1, stored("count", 9, topic_id="old"))], logs=facts)
    assert (result.candidate.generation, result.refusal) == ("g2", None)


def test_only_the_user_chooses_between_logs_without_ids() -> None:
    generations = [generation(2, stored("count", 5, topic_id=None)), generation(1, stored("count", 9, topic_id=None))]
    assert "--generation" in (chosen(generations).refusal or "")


def test_a_store_without_a_changelog_comes_from_the_newest_generation() -> None:
    result = chosen([generation(2, stored("count", None)), generation(1, stored("count", None))])
    assert (result.candidate.generation, result.refusal) == ("g2", None)


def test_another_layout_is_another_store() -> None:
    result = chosen(
        [generation(2, stored("count", 5)), generation(1, stored("count", 9, kind="timestamped-key-value"))]
    )
    assert result.candidate.generation == "g2"


OFFSETS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), min_size=1), min_size=1, max_size=6)


@given(OFFSETS)
def test_it_is_the_copy_that_a_search_of_all_generations_finds(rounds: list[dict[str, int]]) -> None:
    generations = [
        generation(-number, *(stored(name, offset) for name, offset in sorted(offsets.items())))
        for number, offsets in enumerate(rounds)
    ]
    for name in read_layout(generations).tasks["0_0"].task.stores:
        expected = max(offsets.get(name.name, -1) for offsets in rounds)
        newest = next(number for number, offsets in enumerate(rounds) if offsets.get(name.name) == expected)
        result = chosen(generations, name.name)
        assert (result.candidate.generation, result.warnings, result.refusal) == (f"g{-newest}", (), None)
        assert result.candidate.store.offsets == {key_of(name.name): expected}


@pytest.mark.parametrize("size", [5, 20])
def test_each_copy_is_read_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many generations as tasks: a search of all of them for each store would read the copies ``size`` times."""
    identities = []

    def count(task: StoredTask, store: StoredStore) -> object:
        identities.append(store)
        return identity(task, store)

    identity = choice._identity
    monkeypatch.setattr(choice, "_identity", count)
    tasks = tuple(
        StoredTask(f"0_{number}", 0, OffsetsHome.COLUMN_FAMILY, True, (stored("count", 5, task=f"0_{number}"),))
        for number in range(size)
    )
    generations = [NamedGeneration(f"g{at}", Generation("app", "host", "1", at, tasks)) for at in range(size)]
    assert [source.generation for source in sources(generations, None, now_ms=NOW_MS)] == ["g0"] * size
    assert len(identities) == size * size + size


def test_a_named_task_is_that_of_its_generation() -> None:
    layout = read_layout([generation(2, stored("a", 1), is_whole=False), generation(1, stored("a", 1), stored("b", 1))])
    assert layout.tasks["0_0"] == NamedTask("g1", layout.tasks["0_0"].task) and not layout.warnings


def with_skipped(number: int, host: str, skipped: dict[str, str]) -> NamedGeneration:
    content = replace(generation(number, stored("a", 1)).content, host=host, skipped=skipped)
    return NamedGeneration(f"g{number}", content)


def test_a_task_that_only_a_newest_snapshot_skipped_is_named() -> None:
    skipped = {"0_0": "locked", "0_1": "dirty"}
    assert dict(read_layout([with_skipped(2, "a", skipped)]).skipped) == {
        "0_1": "kstate cannot copy task 0_1, because snapshot g2 does not contain it: dirty"
    }
    # Another host has it, or the host has it no longer.
    other = generation(1, stored("b", 1, task="0_1"), task="0_1")
    assert not read_layout([with_skipped(2, "a", skipped), other]).skipped
    assert not read_layout([with_skipped(2, "a", {}), with_skipped(1, "a", skipped)]).skipped
    assert set(read_layout([with_skipped(2, "a", {}), with_skipped(1, "b", skipped)]).skipped) == {"0_1"}
