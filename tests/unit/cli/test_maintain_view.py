"""The last line of ``kstate maintain``."""

from __future__ import annotations

from typing import Any, cast

from kstate_cli.cli.commands.maintain import _all_done
from kstate_cli.maintain.rounds import NOT_DUE, NOT_THERE, SUCCEEDED, StepEnd


def test_steps_are_counted_by_outcome() -> None:
    """A step whose directory does not exist yet may be due."""
    task = cast("Any", None)
    complete = StepEnd(task, SUCCEEDED, 0, 1.0)
    not_due, absent = StepEnd(task, NOT_DUE, message="later"), StepEnd(task, NOT_THERE, message="no standby yet")
    assert _all_done([complete]) == "1 step done"
    assert _all_done([complete, not_due, complete]) == "2 steps done, 1 not due"
    assert _all_done([complete, absent]) == "1 step done, 1 skipped"
    assert _all_done([complete, absent, not_due]) == "1 step done, 1 not due, 1 skipped"
