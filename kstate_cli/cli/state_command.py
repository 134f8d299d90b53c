"""``--on-state-change CMD``: a command of the user's that hears of every change of state."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from kstate_cli.cli.output import say
from kstate_cli.errors import UsageError

_SECONDS = 60


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

    def __call__(self, before: str, after: str) -> None:
        """Runs it and waits for it. Its output goes to standard error: standard output is for results."""
        try:
            done = subprocess.run(
                [*self._command, before, after],
                env={**os.environ, "KSTATE_APP": str(self._app)},
                stdin=subprocess.DEVNULL,
                stdout=2,
                timeout=_SECONDS,
                check=False,
            )
            wrong = f"exit status {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.SubprocessError) as error:
            wrong = str(error)
        if wrong:
            say(f"warning: --on-state-change {self._command[0]} ({before} -> {after}): {wrong}")
