"""What the texts of options mean, and that nothing else is taken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kstate_cli.cli.options.shared import age, bound_of, part_of
from kstate_cli.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_ages(text: str, seconds: int) -> None:
    assert age("--older-than", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 d", "7D", "1.5h", "7dd", "1234567d", "7d\n"])
def test_refuses_a_malformed_age(text: str) -> None:
    with pytest.raises(UsageError, match="--older-than") as refusal:
        age("--older-than", text)
    assert "7d" in str(refusal.value.hint)


def test_parts() -> None:
    assert part_of("--subset", "1/1", "hint") == (1, 1)
    assert part_of("--subset", "7/12", "hint") == (7, 12)


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b", " 1/3", "1/3\n"])
def test_refuses_a_malformed_part(text: str) -> None:
    with pytest.raises(UsageError, match="--subset") as refusal:
        part_of("--subset", text, "for example 1/7")
    assert refusal.value.hint == "for example 1/7"


def test_bounds() -> None:
    bound = bound_of(["a:b:0=5", "a:b:1=7", "events:0=0", "events:0=9"])
    assert bound.position.as_map() == {"a:b": {0: 5, 1: 7}, "events": {0: 9}}
    assert bound_of([]).is_unbounded or not bound_of([]).position.as_map()


@pytest.mark.parametrize(
    "text", ["", "events", "events:0", "events=5", ":0=5", "events:x=5", "events:0=-1", "events:0=5 ", "events:٣=1"]
)
def test_refuses_a_malformed_bound(text: str) -> None:
    with pytest.raises(UsageError, match="--at"):
        bound_of([text])
