"""What the table of kinds states, and names of changelogs and topics that several rules read."""

from __future__ import annotations

import pytest

from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import is_segmented, key_schema_of, kind_names, store_kinds
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, canonical_topic_id, readings_of_changelog

FACTS = {
    # Whether a value needs headers, whether it needs a timestamp, and whether there is a database for each segment.
    "key-value": (False, False, False),
    "timestamped-key-value": (False, True, False),
    "headers-key-value": (True, True, False),
    "versioned": (False, True, False),
    "list-value": (False, False, False),
    "foreign-key-subscription": (False, True, False),
    "window": (False, False, True),
    "timestamped-window": (False, True, True),
    "headers-window": (True, True, True),
    "session": (False, False, True),
    "headers-session": (True, False, True),
    "time-ordered-window": (False, True, True),
    "headers-time-ordered-window": (True, True, True),
    "time-ordered-session": (False, False, True),
    "headers-time-ordered-session": (False, False, True),
    "grace-buffer": (False, False, True),
    "windowed": (False, False, True),
}


def test_facts_of_each_kind() -> None:
    kinds = {kind.name: kind for kind in store_kinds()}
    assert {*FACTS} == {*kind_names()}
    for name, (headers, timestamp, segmented) in FACTS.items():
        assert is_segmented(name) is segmented, name
        if name in kinds:
            assert (kinds[name].needs_headers, kinds[name].needs_timestamp) == (headers, timestamp), name
    assert not is_segmented("strange")


def test_key_schemas_by_kind_and_name() -> None:
    for kind in store_kinds():
        schema = key_schema_of("s", kind.name)
        assert schema is (kind.key if kind.is_exact else None), kind.name
    for name in (None, "strange"):
        assert key_schema_of("s", name) is None
    # The DSL names stores of subscriptions, which a key-value store of the same column families may be.
    subscriptions = "x-subscription-store"
    assert key_schema_of(subscriptions, "timestamped-key-value") is KeySchema.COMBINED
    assert key_schema_of(subscriptions, "window") is KeySchema.WINDOW
    assert key_schema_of("x", "timestamped-key-value") is KeySchema.KEY


@pytest.mark.parametrize(
    ("topic", "readings"),
    [
        ("x-a-b-changelog", [("x", "a-b"), ("x-a", "b")]),
        ("a--b-changelog", [("a", "-b"), ("a-", "b")]),
        ("x-changelog", []),
        ("-x-changelog", []),
        ("x-a-repartition", []),
    ],
)
def test_stores_that_may_have_named_a_changelog(topic: str, readings: list[tuple[str, str]]) -> None:
    assert [*readings_of_changelog(topic)] == readings


def test_ids_of_topics_and_tasks() -> None:
    assert canonical_topic_id("ab+/c==") == "ab-_c"
    tasks = [TaskId.parse(name) for name in ("1_10", "0_1", "1_0", "0_0")]
    assert [task.name for task in sorted(tasks, key=lambda task: task.order)] == ["0_0", "0_1", "1_0", "1_10"]
    assert GLOBAL not in [task.name for task in tasks]
