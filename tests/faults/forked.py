"""Running kstate: in a child of the zygote, a process that has imported it already, with strace attached where it is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command ended; `status` is negative for a signal that killed it."""

    status: int
    output: str


def environment(state: Path) -> dict[str, str]:
    """Temporary files lie beside the state directory, where the test's folder takes them along."""
    scratch = state.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return {"TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}


class Kstate:
    """Starts commands of kstate, one after the other."""

    def __init__(self) -> None:
        """The zygote starts at once; it takes half a second."""
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Kstate:
        """Nothing to do: it runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the zygote; it leaves at the end of its input."""
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(10)

    def __call__(
        self,
        app: Path,
        command: tuple[str, ...],
        *,
        strace: tuple[str, ...] = (),
        meanwhile: Callable[[int], None] | None = None,
    ) -> Ended:
        """
        Run one command (its name, then its options) on an application directory.

        `strace` are the options of an strace that is attached before the command first changes the state directory;
        `meanwhile` is called with the process id once that is done.
        """
        state = app.parent
        output = state.parent / "output"
        gate = state.parent / "gate"
        if strace and not gate.exists():
            os.mkfifo(gate)
        request = {
            "argv": [command[0], str(app), *command[1:]],
            "env": environment(state),
            "output": str(output),
            "gate": str(gate) if strace else "",
            "below": str(state),
        }
        pid = self._ask(request)["pid"]
        tracer = _attach(pid, gate, strace) if strace else None
        if meanwhile is not None:
            meanwhile(pid)
        status = self._answer()["status"]
        if tracer is not None:
            tracer.wait(30)
            assert tracer.stderr is not None
            tracer.stderr.close()
        return Ended(status, output.read_text(errors="replace"))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._zygote.stdout is not None
        line = self._zygote.stdout.readline()
        assert line, "the zygote has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


def _attach(pid: int, gate: Path, options: tuple[str, ...]) -> subprocess.Popen[str] | None:
    """Attach strace when the command is about to change something; None when it ends without."""
    descriptor = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while not select.select([descriptor], [], [], 0.02)[0] or not os.read(descriptor, 1):
            if _is_dead(pid):
                return None
            time.sleep(0.001)
    finally:
        os.close(descriptor)
    tracer = subprocess.Popen(["strace", "-f", "-p", str(pid), *options], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"strace cannot attach: {line}")
    os.kill(pid, signal.SIGUSR1)
    return tracer


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
