"""The states of KIP-728 and KIP-696: every pair of them."""

from __future__ import annotations

import itertools

import pytest

from kstate_cli.restore.running.states import IllegalTransition, RestoreState, StateMachine

LEGAL = {
    ("CREATED", "REBALANCING"), ("CREATED", "PENDING_SHUTDOWN"), ("CREATED", "PENDING_ERROR"),
    ("REBALANCING", "RESTORING"), ("REBALANCING", "PENDING_SHUTDOWN"), ("REBALANCING", "PENDING_ERROR"),
    ("RESTORING", "REBALANCING"), ("RESTORING", "RUNNING"), ("RESTORING", "PENDING_SHUTDOWN"), ("RESTORING", "PENDING_ERROR"),
    ("RUNNING", "REBALANCING"), ("RUNNING", "RESTORING"), ("RUNNING", "PENDING_SHUTDOWN"), ("RUNNING", "PENDING_ERROR"),
    ("PENDING_SHUTDOWN", "NOT_RUNNING"), ("PENDING_SHUTDOWN", "PENDING_ERROR"),
    ("PENDING_ERROR", "ERROR"),
}  # fmt: skip
"""Written out once more, so that the table in the code is held against something else than itself."""
NAMES = [state.value for state in RestoreState]


def at(name: str) -> StateMachine:
    machine = StateMachine()
    machine.state = RestoreState(name)
    return machine


@pytest.mark.parametrize(("before", "after"), list(itertools.product(NAMES, NAMES)))
def test_every_pair_of_states(before: str, after: str) -> None:
    machine = at(before)
    transitions: list[tuple[str, str]] = []
    machine.listen(lambda old, other: transitions.append((old.value, other.value)))
    if (before, after) in LEGAL:
        machine.to(RestoreState(after))
        assert machine.state.value == after
        assert transitions == [(before, after)]
    else:
        with pytest.raises(IllegalTransition, match=f"from {before} to {after}"):
            machine.to(RestoreState(after))
        assert machine.state.value == before
        assert transitions == []


def test_there_are_eight_states() -> None:
    assert len(NAMES) == 8
    assert {name for name in NAMES if RestoreState(name).terminal} == {"NOT_RUNNING", "ERROR"}


@pytest.mark.parametrize("name", ["PENDING_ERROR", "ERROR", "NOT_RUNNING"])
def test_closing_again_is_nothing(name: str) -> None:
    machine = at(name)
    assert machine.close() is False
    assert machine.state.value == name


@pytest.mark.parametrize("name", ["CREATED", "REBALANCING", "RESTORING", "RUNNING", "PENDING_SHUTDOWN"])
def test_closing_ends_in_not_running(name: str) -> None:
    machine = at(name)
    assert machine.close() is True
    assert machine.state is RestoreState.NOT_RUNNING
