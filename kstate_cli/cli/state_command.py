"""``--on-state-change CMD``: a command of the user's that hears of every change of state."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from pathlib import Path

from kstate_cli.cli.output import say
from kstate_cli.errors import UsageError
from kstate_cli.texts import quoted

_SECONDS = 60
_SECONDS_AT_THE_END = 3
"""A run that is being ended must not outlive the patience of who ends it."""
_ENDING = ("PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR")


class StateCommand:
    """Runs ``CMD BEFORE AFTER``, with KSTATE_APP in its environment. What becomes of it changes nothing of the run."""

    def __init__(self, text: str, app: Path) -> None:
        try:
            self._command = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--on-state-change {text!r} cannot be read: {error}") from None
        if not self._command:
            raise UsageError("--on-state-change is empty")
        self._app = app
        self._hangs = False

    def __call__(self, before: str, after: str) -> None:
        """Runs it and waits for it. Its output goes to standard error: standard output is for results."""
        try:
            process = subprocess.Popen(
                [*self._command, before, after],
                env={**os.environ, "KSTATE_APP": str(self._app)},
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
        except OSError as error:
            self._warn(before, after, str(error))
            return
        try:
            status = process.wait(_SECONDS_AT_THE_END if after in _ENDING or self._hangs else _SECONDS)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            self._hangs = True
            self._warn(before, after, f"not ended after {error.timeout:g} s: killed")
            return
        if status:
            self._warn(before, after, f"exit status {status}")

    def _warn(self, before: str, after: str, wrong: str) -> None:
        say(f"warning: --on-state-change {quoted(self._command[0])} ({before} -> {after}): {wrong}")
