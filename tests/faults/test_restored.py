"""What becomes of restorations: of some that nothing disturbs, the same commands as after a fault; of others at one fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.change.folder import read_runs

from .case import Case
from .forked import Kstate
from .injection import EIO, KILL, Fault
from .restorations import RESTORED_IN_PARTS

pytestmark = pytest.mark.rotating(3)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", RESTORED_IN_PARTS, ids=lambda case: case.name)
def test_clean_removes_an_undone_restoration(kstate: Kstate, tmp_path: Path, case: Case) -> None:
    """Also where the directory is as empty again as it was found: nobody has lost that."""
    app = case.make(kstate, tmp_path / "state")
    for command in (case.command, ("undo",), ("clean",)):
        ended = kstate(app, command)
        assert ended.status == 0, ended.output
    assert read_runs(app) == [], ended.output


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", ["fchmod .kstate", "fsync .", "mkdirat orders", "fchmod .kstate/orders"])
def test_a_folder_for_runs_that_cannot_be_made_is_not_left(kstate: Kstate, tmp_path: Path, step: str) -> None:
    case = RESTORED_IN_PARTS[0]
    app = case.make(kstate, tmp_path / "state")
    call, _, path = step.partition(" ")
    # A name below a descriptor is an argument of its own.
    argument = path if call == "mkdirat" else app.parent / path
    ended, happened = Fault(call, 1, EIO).strike(kstate, app, case.command, argument)
    assert (happened, ended.status) == (True, 6), ended.output
    assert list(app.parent.iterdir()) == []


def test_an_application_that_is_made_anew_and_cannot_be_locked_is_not_left(kstate: Kstate, tmp_path: Path) -> None:
    case = RESTORED_IN_PARTS[0]
    app = case.make(kstate, tmp_path / "state")
    ended, happened = Fault("openat", 1, EIO).strike(kstate, app, case.command, ".lock")
    assert (happened, ended.status) == (True, 4), ended.output
    assert list(app.parent.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "renameat"])
def test_clean_removes_the_temporary_file_of_a_killed_record_of_ages(kstate: Kstate, tmp_path: Path, call: str) -> None:
    """The second record, after the switch: no later command would make another one."""
    case = RESTORED_IN_PARTS[0]
    app = case.make(kstate, tmp_path / "state")
    own = app.parent / ".kstate" / app.name
    draft = "ages.json.tmp"
    argument = draft if call == "renameat" else own / draft
    _, killed = Fault(call, 2, KILL).strike(kstate, app, case.command, argument)
    assert killed
    assert (own / "ages.json.tmp").exists()
    for command in (case.command, ("clean",)):
        ended = kstate(app, command)
        assert ended.status == 0, ended.output
    assert [path.name for path in own.iterdir()] == ["ages.json"]
