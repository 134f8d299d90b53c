"""What ``kstate snapshot`` prints about stores whose offset is unknown."""

from __future__ import annotations

import pytest

from kstate_cli.cli.output import Format, Output, output_of
from kstate_cli.cli.views.snapshot import show_capture
from kstate_cli.snapshot.capture import CapturedStore, CaptureReport
from kstate_cli.snapshot.expiry import Expiry


@pytest.mark.parametrize(
    ("is_running", "needs_log", "remedy"),
    [
        (True, False, "To prevent this, stop the application, then"),
        (False, False, "To prevent this, start the application and stop it cleanly, then"),
        (True, True, "To prevent this, pass --bootstrap-server"),
        (False, True, "To prevent this, pass --bootstrap-server"),
    ],
)
def test_the_remedy_depends_on_the_application(
    is_running: bool, needs_log: bool, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users cannot stop an application that does not run."""
    store = CapturedStore("0_0", "count", "key-value", {}, 1, 1, 1, "a segment was never flushed", needs_log)
    results: Output[object] = output_of(Format.table, None)
    show_capture(CaptureReport("g", (store,), {}, None, is_running), results, "repo", "host", Expiry())
    assert remedy in " ".join(capsys.readouterr().err.split())
