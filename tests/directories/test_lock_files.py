"""Lock files where Streams up to 2.7 left them: one in each task directory, which no later release removes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kstate_cli.statedir.names import LOCK, PROCESS_FILE
from tests.golden import unpack

from .support import kstate_here

pytestmark = pytest.mark.rotating(4)

OWN = (LOCK, PROCESS_FILE)


def _stores(run: object) -> int:
    return sum(row["type"] == "store" for row in kstate_here("ls", run, "-o", "json", status=None).rows)


@pytest.mark.sample(3)
@pytest.mark.parametrize("removed", [(), OWN], ids=["with-its-files", "without"])
@pytest.mark.parametrize("locked", [["0_0"], ["0_0", "0_1"], ["0_0", "0_1", "global"]], ids="+".join)
def test_a_task_with_a_lock_file_is_no_application(locked: list[str], removed: tuple[str, ...], tmp_path: Path) -> None:
    """Named by the application, by `state.dir` or by the task: never an application without stores."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    before = _stores(app)
    for name in OWN:
        if name in removed:
            (app / name).unlink(missing_ok=True)
    for name in locked:
        (app / name / LOCK).touch()
    assert _stores(app) == _stores(app.parent) == before > 0
    result = kstate_here("ls", app / "0_0", status=2)
    assert "is only a part of an application directory" in result.err
    rows = kstate_here("verify", app, "-o", "json").rows
    assert sum(row["type"] == "store" for row in rows) == before


@pytest.mark.parametrize("name", ["0_0", "global"])
def test_an_application_with_the_name_of_a_task(name: str, tmp_path: Path) -> None:
    """Its tasks tell, and its process file."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    before = _stores(app)
    names = app.with_name(name)
    shutil.move(app, names)
    assert _stores(names) == _stores(names.parent) == before
