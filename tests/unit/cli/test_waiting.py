"""What takes long says so on a terminal, and leaves nothing behind; nowhere else is a line of it."""

from __future__ import annotations

import io
import os
import pty
import sys
import time

import pytest

from kstate_cli.cli.output import say, waiting
from kstate_cli.cli.standard import take_over
from tests.terminal import shown_on


class Terminal(io.StringIO):
    """Where messages go: a terminal, as far as a program asks."""

    def isatty(self) -> bool:
        return True


def test_terminal_shows_slow_work_and_clears_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    end = time.monotonic() + 300
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


def test_printed_text_replaces_the_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real terminal, whose streams are those of a command: a result never ends up behind a line of progress."""
    main, side = pty.openpty()
    streams, descriptors = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    monkeypatch.setenv("TERM", "xterm")
    try:
        os.dup2(side, 1)
        os.dup2(side, 2)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        take_over()
        with waiting("reading stores", seconds=0.01):
            for write, text in ((print, "a result"), (say, "a message")):
                _read_until(main, "reading stores")
                write(text)
                assert f"\r\x1b[K{text}\r\n" in _read_until(main, f"{text}\r\n")
            _read_until(main, "reading stores")
    finally:
        sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(side)
    assert shown_on(main).endswith(b"\r\x1b[K")


def _read_until(main: int, text: str) -> str:
    """What the terminal shows from now on, up to `text`."""
    screen_text = ""
    while text not in screen_text:
        screen_text += os.read(main, 1 << 16).decode()
    return screen_text
