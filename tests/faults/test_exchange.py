"""A file system that cannot exchange two directories: a lower layer of an overlay, for one. Both ways say why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kstate_cli.change.folder import read_runs

from .cases import DOWN, fresh, migrate_directory
from .forked import Kstate
from .injection import Fault
from .trees import meaning


@pytest.mark.sample(4)
@pytest.mark.parametrize("error", ["EXDEV", "EINVAL", "EBUSY"])
@pytest.mark.parametrize("command", ["migrate", "undo", "undo of what is lost"])
def test_refuses_a_failed_exchange_with_its_reason(kstate: Kstate, tmp_path: Path, command: str, error: str) -> None:
    app = (
        fresh(DOWN, tmp_path / "state") if command == "migrate" else migrate_directory(DOWN, kstate, tmp_path / "state")
    )
    if command == "undo of what is lost":
        shutil.rmtree(app)
    before = meaning(app) if app.exists() else None
    call, name = ("renameat2", app.name)
    if before is None:
        call, name = ("renameat", read_runs(app)[0].tree.name)
    line = DOWN.migrate if command == "migrate" else ("undo",)
    refusal, happened = Fault(call, 1, f"error={error}").strike(kstate, app, line, name)
    assert happened
    assert refusal.status == 4, refusal.output
    assert "cannot swap two directories in one step" in refusal.output
    assert (meaning(app) if app.exists() else None) == before
    assert [run.state.value for run in read_runs(app) if run.state] == ([] if command == "migrate" else ["kept"])
    again = kstate(app, line)
    assert again.status == 0, again.output
