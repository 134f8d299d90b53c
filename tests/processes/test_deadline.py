"""After a signal a command that has a deadline ends, whatever it waits for, and says what remains."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.restore.support import ROOT

_WAITS = """
import time
from kstate_cli.signals import deadline_after_signal
with deadline_after_signal(lambda number: print("last words", number, flush=True), {seconds}):
    print("begun", flush=True)
    while True:
        time.sleep(0.05)  # as code that asks a server once more to tidy up
"""


def _started(seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n" + _WAITS.format(seconds=seconds)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_whatever_waits_ends() -> None:
    process = _started(0.5)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert (process.returncode, told) == (128 + signal.SIGTERM, f"last words {signal.SIGTERM:d}\n")


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM])
def test_other_signals_have_no_deadline(number: signal.Signals) -> None:
    code = (
        f"import signal, os, time\nfrom kstate_cli.signals import deadline_after_signal\n"
        f"signal.signal({number:d}, lambda *_: None)\n"
        f"with deadline_after_signal(print, 0.1):\n    os.kill(os.getpid(), {number:d})\n    time.sleep(1)\nprint('left')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


def test_a_block_that_is_left_in_time_has_no_deadline() -> None:
    code = (
        "import signal, os, time\nfrom kstate_cli.signals import deadline_after_signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "with deadline_after_signal(print, 0.5):\n    os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(2)\nprint('left')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
