"""Progress as people see it: how much of how much, how fast, and how long still; never slices."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kstate_cli.change.plan import EditDatabase, Plan, WriteFile
from kstate_cli.cli.output import TableOutput
from kstate_cli.cli.views.export import ExportProgress
from kstate_cli.cli.views.plan import (
    BYTES,
    OFTEN_SECONDS,
    SELDOM_SECONDS,
    Meter,
    RunProgress,
    count_unit,
)
from kstate_cli.cli.views.restore import RestoreProgress
from kstate_cli.cli.views.verify import VerifyProgress
from kstate_cli.restore.planning.plan import RestorePlan
from kstate_cli.restore.running.states import RestoreState
from kstate_cli.spark.engine import REQUESTED, Engine, EngineChoice
from tests.unit.model import database


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[io.StringIO, Terminal], ids=["pipe", "terminal"])
def stderr(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream: io.StringIO = request.param()
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return stream


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, which the test lets pass."""
    seconds = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    defaults = Meter.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "now", lambda: seconds[0])
    return seconds


def lines_of(stream: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


def test_verify_and_export(stderr: io.StringIO, clock: list[float]) -> None:
    with redirect_stderr(stderr):
        with VerifyProgress(quiet=False) as verifying:
            verifying.begin(100 << 20)
            clock[0] += OFTEN_SECONDS
            verifying.at(25 << 20)
        assert "verifying" in lines_of(stderr)
        assert "25.0 MiB of 100.0 MiB (25 %), 2.5 MiB/s, 30 s left" in lines_of(stderr)
        with ExportProgress(EngineChoice(Engine.local, REQUESTED), quiet=False) as exporting:
            exporting.begin(40_000, 3, "local")
            clock[0] += OFTEN_SECONDS
            exporting.at(10_000)
        assert "10,000 of about 40,000 rows (25 %), 1,000 rows/s, 30 s left" in lines_of(stderr)


@pytest.mark.parametrize(("resumed", "rate", "remaining"), [(False, "3,000", "10 s"), (True, "1,000", "30 s")])
def test_restore(stderr: io.StringIO, clock: list[float], *, resumed: bool, rate: str, remaining: str) -> None:
    """What an interrupted run has left was not done in these seconds."""
    with redirect_stderr(stderr):
        with RestoreProgress(TableOutput(None)) as progress:
            if resumed:
                progress.resumed("0001-restore", 2, 6)
            progress.state(RestoreState.REBALANCING, RestoreState.RESTORING)
            progress.slices(2, 6, 20_000 if resumed else 0, 60_000, 1 << 20)
            clock[0] += OFTEN_SECONDS
            progress.slices(3, 6, 30_000, 60_000, 2 << 20)
        assert f"30,000 of 60,000 records (50 %), {rate} records/s, {remaining} left" in lines_of(stderr)
        assert "slice" not in lines_of(stderr)
        if resumed:
            assert "resuming run 0001-restore, which has sorted 33 % of its records" in lines_of(stderr)


def test_a_bar_has_ended_before_the_plan_is_printed(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """A dry run reads rows before it prints its plan: the plan would begin on the line of a live bar."""
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()), RestoreProgress(TableOutput(None)) as progress:
        progress.phase("check", "dump", 0)
        progress.slices(1, 2, 10, 20, 0)
        assert progress._meter.has_begun
        progress.expect(cast("RestorePlan", SimpleNamespace(work=())))
        assert not progress._meter.has_begun


def test_warning_is_printed_even_when_quiet(stderr: io.StringIO, clock: list[float]) -> None:
    with redirect_stderr(stderr):
        for quiet in (False, True):
            with RestoreProgress(TableOutput(None, quiet=quiet)) as progress:
                progress.state(RestoreState.REBALANCING, RestoreState.RESTORING)
                progress.slices(0, 6, 0, 60_000, 0)
                progress.warning("a \x1b[31mrow")
        assert lines_of(stderr).count(r"warning: a \x1b[31mrow") == 2


@pytest.mark.parametrize(
    ("sst_format", "size", "text"),
    [
        (5, 1000, "1000 B of 3.9 KiB (25 %), 100 B/s, 30 s left"),
        (None, 0, "1 of 4 databases (25 %), 0.1 databases/s, 30 s left"),
    ],
)
def test_migrate(stderr: io.StringIO, clock: list[float], sst_format: int | None, size: int, text: str) -> None:
    """Where no byte of a store is written anew, its databases are count_unit: 200 of them take their time."""
    with redirect_stderr(stderr):
        steps = tuple(EditDatabase(f"0_{n}/rocksdb/count", database(), sst_format=sst_format) for n in range(4))
        with RunProgress(quiet=False) as progress:
            progress("read", "/app", 0)
            progress.expect(
                Plan(Path("/app"), "migrate", "4.3", "4.2", (*steps, WriteFile("0_0/.checkpoint", b"", "offsets")))
            )
            progress("stage", "/app", 0)
            clock[0] += OFTEN_SECONDS
            progress("store", "0_0/rocksdb/count", size)
            progress("verify", "/app", 0)
        assert text in lines_of(stderr) and "verifying" in lines_of(stderr)


def test_slow_work_prints_few_lines(clock: list[float]) -> None:
    stream = io.StringIO()
    with redirect_stderr(stream):
        meter = Meter("verifying", quiet=False, now=lambda: clock[0])
        meter.begin(36_000, count_unit("rows"))
        for second in range(3600):
            clock[0] += 1
            meter.at(10 * (second + 1))
    lines = stream.getvalue().splitlines()
    assert 120 / OFTEN_SECONDS <= len(lines) <= 120 / OFTEN_SECONDS + 3480 / SELDOM_SECONDS + 1
    assert lines[-1].endswith("left") and "10 rows/s" in lines[0]


@pytest.mark.parametrize("total", [0, 1])
def test_nothing_to_do_is_no_division(stderr: io.StringIO, clock: list[float], total: int) -> None:
    with redirect_stderr(stderr):
        meter = Meter("verifying", quiet=False, now=lambda: clock[0])
        meter.begin(total, BYTES)
        clock[0] += OFTEN_SECONDS
        assert meter.at(total) is not None
        meter.stop()
        assert "(100 %)" in lines_of(stderr)


def test_quiet_is_quiet(stderr: io.StringIO, clock: list[float]) -> None:
    with redirect_stderr(stderr):
        meter = Meter("verifying", quiet=True, now=lambda: clock[0])
        meter.begin(10, BYTES)
        clock[0] += OFTEN_SECONDS
        pace = meter.at(5)
        assert pace is not None and pace.seconds_left == 10
        assert stderr.getvalue() == ""
