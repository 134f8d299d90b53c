"""The rough time of a run: from figures, put right by what former runs took."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.change.earlier_runs import Expected, Rate, expected, measured_rate, rough_seconds
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.plan import BuildStore, EditDatabase, Plan, Step
from tests.unit.model import database

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def plan(*steps: Step, command: str = "migrate --to 3.9") -> Plan:
    return Plan(Path("/state/app"), command, "4.3", "3.9", steps)


def edits(count: int) -> tuple[EditDatabase, ...]:
    return tuple(EditDatabase(f"0_{number}/rocksdb/count", database(), drop=("offsets",)) for number in range(count))


def run(
    number: int,
    took: float,
    rough: object,
    *,
    command: str = "migrate --to 4.2",
    state: RunState = RunState.KEPT,
    damage: str | None = None,
) -> Run:
    """As a journal has it that was read."""
    events: list[dict[str, Any]] = [
        {"event": "created", "at": BEGAN.isoformat(), "command": command, "rough_seconds": rough},
        {"event": "switched", "at": (BEGAN + timedelta(seconds=took)).isoformat()},
        {"event": "note", "at": (BEGAN + timedelta(days=3)).isoformat()},
    ]
    return Run(Path(f"/state/.kstate/app/{number:04d}-migrate"), events, state, damage)


@given(st.integers(0, 2**50), st.integers(1, 64), st.integers(0, 300))
def test_more_is_never_quicker(size: int, workers: int, databases: int) -> None:
    """More bytes and more databases take longer, more workers do not; and it is a number, whatever comes."""
    steps: tuple[Step, ...] = (*edits(databases), BuildStore("0_0/x", "", replaces=False, size=size))
    seconds = rough_seconds(plan(*steps), workers)
    assert seconds > 0
    assert rough_seconds(plan(*steps, *edits(1)), 1) >= rough_seconds(plan(*steps), 1)
    assert (
        rough_seconds(plan(*edits(databases), BuildStore("0_0/x", "", replaces=False, size=size + 1000)), workers)
        >= seconds
    )
    assert rough_seconds(plan(*steps), workers + 1) <= seconds


@given(st.floats(0.5, 1e5), st.floats(0.1, 1e6))
def test_a_former_run_puts_the_figures_right(rough: float, took: float) -> None:
    steps = plan(*edits(100))
    by_figures = rough_seconds(steps, 2)
    estimate = expected(steps, 2, [run(1, took, rough)])
    if rough * 10 < by_figures:
        assert estimate == Expected(by_figures, None)
    else:
        assert estimate.like == "0001-migrate"
        assert estimate.seconds == pytest.approx(by_figures * took / rough, rel=1e-3, abs=1e-3)


def test_the_newest_that_can_tell() -> None:
    steps = plan(*edits(100))
    rough = rough_seconds(steps, 2)
    silent = [
        run(3, 5, None),
        run(4, 5, "12"),
        run(5, 5, True),
        run(6, 5, -1.0),
        run(7, 5, float("nan")),
        run(8, 5, rough, command="wipe --all"),
        run(9, 5, rough, state=RunState.FAILED),
        run(10, 5, rough, damage="its journal is empty"),
        run(11, 5, rough / 100),
    ]
    assert expected(steps, 2, silent).like is None
    estimate = expected(steps, 2, [run(1, 99, rough), run(2, rough * 3, rough), *silent])
    assert estimate.like == "0002-migrate" and estimate.seconds == pytest.approx(rough * 3, rel=1e-3)


@given(st.floats(0, 1e8))
def test_estimate_has_at_most_two_digits(seconds: float) -> None:
    rounded = Expected(seconds, None).rounded
    assert rounded >= seconds and rounded >= 10
    assert rounded <= max(10, seconds * 1.1 + 1)
    assert len(str(rounded).rstrip("0")) <= 2 or rounded < 100


def restoration(number: int, took: float, records: object, *, state: RunState = RunState.KEPT) -> Run:
    attempt = run(number, took, 1.0, command="restore --for 4.3", state=state)
    attempt.events.insert(1, {"event": "sorted", "at": BEGAN.isoformat(), "records": records})
    return attempt


def test_a_rate_is_that_of_the_newest_restoration_that_can_tell() -> None:
    """Not of one that was cut short, moved next to nothing, or does not say how much."""
    silent = [
        restoration(3, 5, None),
        restoration(4, 5, True),
        restoration(5, 5, -3),
        restoration(6, 5, "9000"),
        restoration(7, 0, 9000),
        restoration(8, 5, 9000, state=RunState.FAILED),
        restoration(9, 5, 10),
        run(10, 5, 1.0),
    ]
    assert measured_rate(silent, 9000) is None
    attempts = [restoration(1, 10, 9000), restoration(2, 3, 9000), *silent]
    assert measured_rate(attempts, 9000) == Rate(3000.0, "0002-migrate")
    # Of ten records it says how long ten take, and a hundred; no more.
    assert measured_rate(attempts, 100) == Rate(2.0, "0009-migrate")
