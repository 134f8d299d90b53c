"""How far a restoration is: of which task, too."""

from __future__ import annotations

import pytest

from kstate_cli.restore.jobs import task_key, task_of


@pytest.mark.parametrize("task", ["0_1", "global", "__orders__/0_1", "__a.b__/12_3"])
def test_a_task_is_read_from_its_file_name(task: str) -> None:
    assert "/" not in task_key(task)
    assert task_of(task_key(task)) == task
