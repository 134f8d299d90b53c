"""A restoration whose process is gone has a state that says so, whatever it had written last."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.change.earlier_runs import INTERRUPTED, STATE_EVENT, state_of
from kstate_cli.change.folder import create_run
from kstate_cli.change.journal import UNFINISHED
from kstate_cli.restore.running.states import RestoreState

LEADS_TO = {
    "failed": [("failed", {"why": "it was killed"})],
    "kept": [("switching", {"kept": "0", "made": "0"}), ("switched", {})],
    "undone": [("switching", {"kept": "0", "made": "0"}), ("switched", {}), ("undoing", {}), ("undone", {})],
    "cleaning": [("switching", {"kept": "0", "made": "0"}), ("switched", {}), ("cleaning", {})],
}


@pytest.mark.parametrize("state", list(RestoreState), ids=lambda state: state.value)
@pytest.mark.parametrize("settled", LEADS_TO)
def test_a_settled_run_has_ended(tmp_path: Path, state: RestoreState, settled: str) -> None:
    app = tmp_path / "app"
    app.mkdir()
    run = create_run(app, "restore --for 4.3")
    run.write(STATE_EVENT, state=state.value)
    for event, members in LEADS_TO[settled]:
        run.write(event, **members)
    assert run.state not in UNFINISHED
    ended = (RestoreState.ERROR.value, RestoreState.NOT_RUNNING.value)
    if state.value in ended:
        assert state_of(run) == state.value
    else:
        assert state_of(run) == (INTERRUPTED if settled == "failed" else "NOT_RUNNING")
