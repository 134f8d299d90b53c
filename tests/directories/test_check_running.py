"""``kstate check`` beside a running application: nothing is foretold that closing it may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.check.codes import CODES
from kstate_cli.check.findings import Outcome, Prediction
from kstate_cli.check.predict import Report
from tests.command_result import CommandResult
from tests.golden import unpack

from .support import kstate_here
from .test_locks import locked

pytestmark = pytest.mark.rotating(4)


def check(app: Path, target: str, status: int | None) -> CommandResult:
    (app / ".lock").touch()
    with locked(app, "application"):
        result = kstate_here("check", app, "--for", target, "-o", "json", status=status)
    assert (result.summary["running"], result.summary["as_of"]) == (True, "last-flush")
    return result


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("4.3.1-kinds-eos-killed-open", "4.3"),  # every status is open, as it is while it runs
        ("4.2.1-kinds-eos-killed-first", "4.2"),  # exactly-once: no .checkpoint until it is closed
        ("4.2.1-kinds-eos-killed-second", "4.2"),
        ("4.3.1-kinds-eos", "4.3"),
    ],
)
def test_a_start_that_fails_is_not_foretold(tmp_path: Path, name: str, target: str) -> None:
    app = unpack(name, tmp_path)
    # 1 and not 0, which would let the gate of a start pass.
    result = check(app, target, 1)
    outcomes = {row["outcome"] for row in result.rows if row["type"] == "prediction"}
    assert outcomes <= {"opens", "unknown", "restores-all"}, outcomes
    assert {row["level"] for row in result.rows if row["type"] == "finding"} <= {"expected"}
    for row in [row for row in result.rows if row["type"] == "finding"]:
        # No command that changes the directory of a running application.
        assert not CODES[row["code"]].changes_at_close or "kstate" not in row["hint"], row


def test_last_line_states_that_an_outcome_is_unknown(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    (app / ".lock").touch()
    for words in ((), ("-q",)):
        with locked(app, "application"):
            last = kstate_here("check", app, "--for", "4.3", *words, status=1).out.splitlines()[-1]
        assert "the outcome of 2 stores is unknown. Stop the application, then run the check again" in last


@pytest.mark.parametrize("or_else", [None, *Outcome])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_that_is_not_certain_is_unknown(outcome: Outcome, or_else: Outcome | None) -> None:
    report = Report((Prediction("0_0", "a", Outcome.OPENS), Prediction("0_0", "b", outcome, or_else=or_else)), ())
    assert report.clean
    assert report.is_unknown is (outcome is Outcome.UNKNOWN or or_else is not None)


def test_closed_it_is_foretold(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos-killed-open", tmp_path)
    rows = kstate_here("check", app, "--for", "4.3", "-o", "json", status=3).rows
    assert "start-fails" in {row["outcome"] for row in rows if row["type"] == "prediction"}
    assert {"status-open", "global-status-open"} <= {row.get("code") for row in rows}


def test_fault_that_no_shutdown_fixes_is_a_finding(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    (app / "0_0" / "window-count" / "window-count.backup").mkdir()
    (app / "0_1" / "kv-plain.position").write_text("0\n1\nx 0\n")
    sst = next((app / "0_1" / "rocksdb" / "count").glob("*.sst"))
    sst.write_bytes(b"no table")
    result = check(app, "4.3", 3)
    assert {row["code"] for row in result.rows if row.get("level") == "error"} >= {
        "foreign-in-segments",
        "malformed-position",
        "does-not-open",
    }
    assert "start-fails" in {row["outcome"] for row in result.rows if row["type"] == "prediction"}
