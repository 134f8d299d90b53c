"""What becomes of restorations that nothing disturbs: the same commands as after a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.change.folder import read_runs

from .case import Case
from .forked import Kstate
from .restorations import RESTORED_IN_PARTS


@pytest.mark.parametrize("case", RESTORED_IN_PARTS, ids=lambda case: case.name)
def test_what_undo_puts_aside_of_a_restoration_is_cleaned(kstate: Kstate, tmp_path: Path, case: Case) -> None:
    """Also where the directory is as empty again as it was found: nobody has lost that."""
    app = case.make(kstate, tmp_path / "state")
    for command in (case.command, ("undo",), ("clean",)):
        ended = kstate(app, command)
        assert ended.status == 0, ended.output
    assert read_runs(app) == [], ended.output
