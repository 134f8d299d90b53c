"""What takes long says so on a terminal, and leaves nothing behind; nowhere else is a line of it."""

from __future__ import annotations

import io
import sys
import time

import pytest

from kstate_cli.cli.output import waiting


class Terminal(io.StringIO):
    """Where messages go: a terminal, as far as a program asks."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_takes_long_and_then_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    end = time.monotonic() + 60
    with waiting("reading stores", seconds=0.001):
        while "reading stores" not in screen.getvalue() and time.monotonic() < end:
            time.sleep(0.001)
    assert screen.getvalue().startswith("\rkstate: reading stores: ")
    assert screen.getvalue().endswith("\r\x1b[K") and "\n" not in screen.getvalue()


@pytest.mark.parametrize("case", ["quick", "quiet", "dumb", "file"])
def test_elsewhere_is_no_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO() if case == "file" else Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "dumb" if case == "dumb" else "xterm")
    seconds = 3600.0 if case == "quick" else 0.001
    with waiting("reading stores", quiet=case == "quiet", seconds=seconds):
        time.sleep(0.02)
    assert not screen.getvalue()
