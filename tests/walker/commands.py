"""Commands of kstate as the walker runs them: undisturbed, killed, or with calls that fail."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import json_lines
from tests.faults.forked import Ended, Kstate

ZYGOTE = "tests.walker.zygote"
CALLS = ("renameat2", "fsync", "syncfs", "linkat,link", "unlink,unlinkat", "fchmod", "renameat", "mkdirat")
"""Where strace can kill a process."""


@dataclass(frozen=True)
class Trouble:
    """What happens to a command. `at` is a step of its own (see zygote.py), a call in one thread, or milliseconds."""

    kind: str
    """`kill`, `fail` (EIO, `count` times), `strace` or `later`."""
    at: int
    call: str = ""
    count: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.call}@{self.at}" + (f"x{self.count}" if self.kind == "fail" else "")


@dataclass
class Commands:
    """Runs commands; `steps` says how many steps each kind of command last had."""

    steps: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._kstate = Kstate(zygote=ZYGOTE)

    def __enter__(self) -> Commands:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kstate.__exit__(None, None, None)

    def __call__(self, app: Path, argv: tuple[str, ...], trouble: Trouble | None = None) -> Ended:
        """Run a command on an application directory."""
        if trouble is None or trouble.kind in ("kill", "fail"):
            return self._counted_run(app, argv, trouble)
        if trouble.kind == "later":
            return self._later(app, argv, trouble.at)
        return self._strace(app, argv, trouble)

    def json(self, app: Path, argv: tuple[str, ...]) -> list[dict[str, Any]]:
        """What a command finds, as it prints it with `-o json`; messages between are left out."""
        ended = self(app, (*argv, "-o", "json"))
        return json_lines.results("\n".join(line for line in ended.output.splitlines() if line.startswith("{")))

    def _counted_run(self, app: Path, argv: tuple[str, ...], trouble: Trouble | None) -> Ended:
        parent = app.parent.parent / "steps"
        env = {"WALKER_STATE": str(app.parent), "WALKER_STEPS": str(parent)}
        if trouble is not None:
            env[f"WALKER_{trouble.kind.upper()}"] = str(trouble.at)
            env["WALKER_FAILURES"] = str(trouble.count)
        parent.unlink(missing_ok=True)
        ended = self._kstate(app, argv, env=env)
        if trouble is None and parent.exists():
            self.steps[argv[0]] = max(int(parent.read_text() or 0), 1)
        return ended

    def _later(self, app: Path, argv: tuple[str, ...], milliseconds: int) -> Ended:
        timers: list[threading.Timer] = []

        def started(pid: int) -> None:
            # Not by its number: it may have ended by then, and the number may be another process's.
            timer = threading.Timer(milliseconds / 1000, _end, (os.pidfd_open(pid),))
            timers.append(timer)
            timer.start()

        ended = self._kstate(app, argv, on_start=started)
        for timer in timers:
            timer.join()
        return ended

    def _strace(self, app: Path, argv: tuple[str, ...], trouble: Trouble) -> Ended:
        inject = [f"inject={name}:signal=SIGKILL:when={trouble.at}" for name in trouble.call.split(",")]
        options = [option for entry in inject for option in ("-e", entry)]
        with self._kstate.under("-e", f"trace={trouble.call}", *options):
            return self._kstate(app, argv)


def _end(descriptor: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)
