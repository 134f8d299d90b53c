"""What ``kstate dump`` says meanwhile, where nobody looks at a bar."""

from __future__ import annotations

import pytest

from kstate_cli.cli.views.dump import DumpProgress


def test_records_bytes_rate_lag_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for quiet in (False, True):
        with DumpProgress(quiet=quiet) as progress:
            progress.began(100_000)
            now[0] += 1
            progress.at(1_000, 5)
            now[0] += 19
            progress.at(40_000, 4 << 20)
            now[0] += 1
            progress.at(50_000, 5 << 20)
            progress.warning("it is not as it was")
    assert capsys.readouterr().err.splitlines() == [
        "kstate: 40,000 records, 4.0 MiB, 2,000 records/s, 60,000 behind, 30 s left",
        "warning: it is not as it was",
        "warning: it is not as it was",
    ]


def test_warns_of_a_broker_without_records(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, soon, and how long it is waited for; again where it stops again; not once all is there."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for quiet in (False, True):
        with DumpProgress(quiet=quiet) as progress:
            progress.began(100)
            for records in [*[0] * 30, 60, *[60] * 30, 100, *[100] * 30]:
                now[0] += 0.5
                progress.at(records, records)
    text = "kstate: no record has arrived for 10 s. After 45 s without data from the broker, the command fails"
    assert [line for line in capsys.readouterr().err.splitlines() if "behind" not in line] == [text, text]
