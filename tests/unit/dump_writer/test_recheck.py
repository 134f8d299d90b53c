"""Every fact of a log that is read before its records is read again after them, and a rule decides what counts."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_writer.identity import RULES, LogChangedError, settle

FIRST = LogFacts(5, 90, "id", 40, "compact", 1000, 3, 80, 500, 7)
END = 80

CASES: list[tuple[str, Any, Any]] = [
    ("start", 9, 5),
    ("start", 4, LogChangedError),
    ("end", 99, 90),
    ("end", 89, LogChangedError),
    ("topic_id", "other", LogChangedError),
    ("topic_id", None, LogChangedError),
    ("committed", 50, 40),
    ("committed", 30, 30),
    ("committed", None, None),
    ("policy", "delete", "compact"),
    ("policy", None, None),
    ("delete_retention_ms", 2000, 1000),
    ("delete_retention_ms", 10, 10),
    ("delete_retention_ms", None, 1000),
    ("leader_epoch", 4, 4),
    ("leader_epoch", 2, LogChangedError),
    ("leader_epoch", None, 3),
    ("stable_end", 85, 80),
    ("stable_end", 79, LogChangedError),
    ("retention_ms", 600, 600),
    ("min_compaction_lag_ms", None, None),
]


@pytest.mark.parametrize(("name", "value", "recorded"), CASES)
def test_of_a_fact_that_changed_the_most_cautious_value_counts(name: str, value: Any, recorded: Any) -> None:
    again = replace(FIRST, **{name: value})
    if recorded is LogChangedError:
        with pytest.raises(LogChangedError):
            settle(FIRST, again, END)
        return
    assert settle(FIRST, again, END) == replace(FIRST, **{name: recorded})


def test_once_compacted_is_compacted() -> None:
    assert settle(replace(FIRST, policy="delete"), replace(FIRST, policy="compact,delete"), END).compacted


def test_every_fact_has_a_rule_and_a_case() -> None:
    """A new fact of a log needs both: what is read once decides nothing."""
    names = {field.name for field in fields(LogFacts)}
    assert RULES.keys() == names == {name for name, _, _ in CASES}
    assert settle(FIRST, FIRST, END) == FIRST


def test_every_fact_is_in_the_inventory() -> None:
    page = Path(__file__).parents[3] / "docs" / "internals" / "changelogs.md"
    section = page.read_text(encoding="utf-8").split("## Facts that are read again", 1)[1].split("\n## ", 1)[0]
    missing = [field.name for field in fields(LogFacts) if f"`{field.name}`" not in section]
    assert not missing
