"""Changelogs, places and kinds of small made-up applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.specification.draft import StoreDraft
from kstate_cli.specification.infer import Inference, infer
from kstate_cli.specification.toml_file import to_toml
from kstate_cli.statedir.model import Application

from .small import application, database, store, task

ROW = [(b"k", b"v")]


def draft(inference: Inference, name: str) -> StoreDraft:
    store = inference.draft.store(name)
    assert store is not None
    return store


def questions_of(inference: Inference, name: str) -> set[str]:
    return {entry.field for entry in draft(inference, name).filled("app").missing()}


def test_changelog_by_its_name_in_checkpoint() -> None:
    inference = infer(application(task("3_4", store("s"), lines={"app-s-changelog-4": 7})))
    entry = draft(inference, "s")
    assert (entry.changelog, entry.source, entry.subtopology, entry.partitions) == ("app-s-changelog", None, 3, 5)


def test_another_partitions_line_is_nobodys() -> None:
    inference = infer(application(task("0_0", store("s"), lines={"app-s-changelog-4": 7})))
    assert draft(inference, "s").logged is False


def test_source_topics_go_by_position() -> None:
    lines = {"users-0": 1, "orders-0": 2, "app-c-changelog-0": 3}
    stores = [store("a", built_from="users"), store("b", built_from="orders"), store("c", built_from="orders")]
    inference = infer(application(task("0_0", *stores, lines=lines)))
    assert (draft(inference, "a").changelog, draft(inference, "a").source) == ("users", "topic")
    assert (draft(inference, "b").changelog, draft(inference, "b").source) == ("orders", "topic")
    assert (draft(inference, "c").changelog, draft(inference, "c").source) == ("app-c-changelog", None)


def test_source_topic_of_two_candidates_is_an_open_question() -> None:
    stores = [store("table", built_from="users"), store("nolog", built_from="users")]
    inference = infer(application(task("0_0", *stores, lines={"users-0": 1})))
    assert questions_of(inference, "table") == questions_of(inference, "nolog") == {"changelog"}
    # "logged = false" for one of them is an answer.
    assert not StoreDraft(name="nolog", logged=False).over(draft(inference, "nolog")).filled("app").missing()


def test_changelog_with_another_prefix_is_an_open_question() -> None:
    inference = infer(application(task("0_0", store("s"), lines={"other-s-changelog-0": 1})))
    assert questions_of(inference, "s") == {"changelog"}
    assert draft(inference, "s").questions["changelog"].answers == ("other-s-changelog",)
    built = infer(
        application(task("0_0", store("s", built_from="other-s-changelog"), lines={"other-s-changelog-0": 1}))
    )
    assert draft(built, "s").source == "topic"


def test_a_longer_name_owns_its_changelog() -> None:
    inference = infer(application(task("0_0", store("b"), store("a-b"), lines={"x-a-b-changelog-0": 1})))
    assert draft(inference, "b").logged is False
    assert draft(inference, "a-b").questions["changelog"].answers == ("x-a-b-changelog",)


def test_offsets_in_the_store_are_its_own() -> None:
    of_store = store("s", database(ROW, offsets={"users-0": 4}, status=0))
    inference = infer(application(task("0_0", of_store, lines={"app-s-changelog-0": 1})))
    assert (draft(inference, "s").changelog, draft(inference, "s").source) == ("users", "topic")


def test_offsets_of_two_topics_are_an_open_question() -> None:
    of_store = store("s", database(ROW, offsets={"users-0": 4, "app-s-changelog-0": 1}, status=0))
    inference = infer(application(task("0_0", of_store)))
    assert draft(inference, "s").questions["changelog"].answers == ("app-s-changelog", "users")


def test_illegal_topics_are_not_taken() -> None:
    of_store = store("s", database(ROW, offsets={"a/b-0": 4}, status=1))
    assert questions_of(infer(application(task("0_0", of_store))), "s") == {"logged"}


@pytest.mark.parametrize(("status", "logged"), [(0, False), (1, None), (None, None)])
def test_unlogged_only_when_cleanly_closed(status: int | None, logged: bool | None) -> None:
    inference = infer(application(task("0_0", store("s", database(ROW, offsets={}, status=status)))))
    assert draft(inference, "s").logged is logged
    assert bool(inference.notes) == (logged is False)


@pytest.mark.parametrize(("mtime", "logged"), [(5, False), (4, None)])
def test_checkpoint_older_than_the_store_says_nothing(mtime: int, logged: bool | None) -> None:
    inference = infer(application(task("0_0", store("s", database(ROW, opened_ns=5)), lines={}, mtime_ns=mtime)))
    assert draft(inference, "s").logged is logged


def test_without_checkpoint_nothing_is_concluded() -> None:
    assert questions_of(infer(application(task("0_0", store("s")))), "s") == {"logged"}


def test_global_stores() -> None:
    inference = infer(application(task("global", store("g"), lines={"t-0": 1, "t-4": 1})))
    assert (draft(inference, "g").changelog, draft(inference, "g").partitions, draft(inference, "g").source) == (
        "t",
        5,
        None,
    )
    assert questions_of(inference, "g") == {"source"}
    stores = [store("g", built_from="t"), store("h", built_from="u")]
    two = infer(application(task("global", *stores, lines={"t-0": 1, "u-0": 1})))
    assert (draft(two, "g").changelog, draft(two, "h").changelog) == ("t", "u")
    unclear = infer(application(task("global", store("g"), store("h"), lines={"t-0": 1})))
    assert questions_of(unclear, "g") == {"source", "changelog"}


def test_a_store_in_two_subtopologies() -> None:
    lines = {"app-s-changelog-0": 1}
    inference = infer(application(task("0_0", store("s"), lines=lines), task("2_0", store("s"), lines=lines)))
    assert draft(inference, "s").questions["subtopology"].answers == (0, 2)
    topologies = infer(application(task("__a__/0_0", store("s")), task("__b__/0_0", store("s"))))
    assert "topology" in questions_of(topologies, "s")


def test_kinds_of_tasks_that_differ() -> None:
    both = [task("0_0", store("s", kind="key-value")), task("0_1", store("s", kind="versioned"))]
    assert draft(infer(application(*both)), "s").questions["kind"].answers == ("key-value", "versioned")
    unsure = [task("0_0", store("s", kind="key-value", certain=False)), task("0_1", store("s", kind="versioned"))]
    assert draft(infer(application(*unsure)), "s").kind == "versioned"


def test_only_an_offset() -> None:
    lines = {"app-s-changelog-0": 1, "app-gone-changelog-0": 3, "users-0": 3}
    inference = infer(application(task("0_0", store("s"), lines=lines)))
    assert [s.name for s in inference.draft.stores] == ["s", "gone"]
    assert questions_of(inference, "gone") == {"kind"} and draft(inference, "gone").changelog == "app-gone-changelog"


def test_a_directory_with_a_strange_name_names_no_application() -> None:
    strange = Application(
        Path("/state/a b\udcff"), (task("0_0", store("s", database(ROW, offsets={}, status=1))),), False, None
    )
    inference = infer(strange)
    assert inference.draft.application is None
    assert to_toml(inference.draft, notes=inference.notes).isascii()
