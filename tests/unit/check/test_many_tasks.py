"""A check of many tasks takes as long as each of them takes, not that times their number."""

from __future__ import annotations

import sys
from typing import Any

from kstate_cli.check.predict import judge
from kstate_cli.formats.topic_partition import TaskId
from tests.unit.model import changelog, database, record, store, task

from .builders import snapshot


def _calls(tasks: int) -> int:
    """How many functions of kstate are called."""
    # Hardware and other processes have no part in that number, as they have in seconds.
    drafts = []
    for number in range(tasks):
        name = f"0_{number}"
        entry = database(offsets=record(50), families=("default", "keyValueWithTimestamp"))
        lines = {changelog("count", number): 50}
        drafts.append(
            task(store("count", entry, task=name), store("other", database("other"), task=name), name=name, lines=lines)
        )
    view = snapshot(*drafts)
    count = 0

    def called(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and "kstate_cli" in frame.f_code.co_filename

    sys.setprofile(called)
    try:
        report = judge(view)
    finally:
        sys.setprofile(None)
    assert len(report.predictions) == 2 * tasks
    return count


def test_calls_grow_as_tasks_do() -> None:
    few, many = _calls(20), _calls(80)
    assert many < 6 * few, (few, many)


def test_names_are_taken_apart_once() -> None:
    assert TaskId.parse("17_4") is TaskId.parse("17_4")
