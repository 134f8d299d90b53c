"""
Running kstate in children of the zygote, a process that has imported it already; under strace where that is asked for.

strace is attached to the zygote while it waits, and sees the children that are forked meanwhile. Starting the zygote under it
would cost its imports each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests import named_options

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command ended; `status` is negative for a signal that killed it. `traced` is what strace said meanwhile."""

    status: int
    output: str
    traced: str = ""


@dataclass(frozen=True)
class Moment:
    """When a thread of the command begins its nth call of this kind, of those that strace shows; and what is done then."""

    call: str
    nth: int
    do: Callable[[int], None]
    """Gets the process id."""

    def has_come(self, traced: str) -> bool:
        """Whether strace has shown that call."""
        return self.came(traced) is not None

    def came(self, traced: str) -> float | None:
        """When that call began, in seconds since the epoch; 0 without strace's option ``-ttt``."""
        count: Counter[str] = Counter()
        for thread, seconds in re.findall(rf"^(\d+)\s+(?:(\d+\.\d+)\s+)?{self.call}\(", traced, re.MULTILINE):
            count[thread] += 1
            if count[thread] == self.nth:
                return float(seconds or 0)
        return None


def environment(state: Path) -> dict[str, str]:
    """Temporary files lie beside the state directory, where the test's folder takes them along."""
    scratch = state.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return {"TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}


class Kstate:
    """Starts commands of kstate, one after the other."""

    def __init__(self, zygote: str = "tests.faults.zygote") -> None:
        """The zygote, a module that is run, starts at once; it takes half a second."""
        self._folder = tempfile.TemporaryDirectory(prefix="kstate-forked-")
        self._trace: int | None = None
        self._traced = bytearray()
        self._ready = False
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("wb") as errors:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", zygote],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )

    @contextlib.contextmanager
    def under(self, *options: str) -> Iterator[Kstate]:
        """This kstate, while strace with these options is attached. What it says is in `Ended.traced`."""
        self._wait_until_ready()
        with self._attached(self._zygote.pid, "-f", *options):
            yield self

    @contextlib.contextmanager
    def _attached(self, pid: int, *options: str) -> Iterator[None]:
        fifo = Path(self._folder.name) / "strace"
        os.mkfifo(fifo)
        self._trace = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        command = ["strace", "-o", str(fifo), *options, "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            try:
                while _prints(pid, "TracerPid") != str(tracer.pid):
                    assert tracer.poll() is None and tracer.stderr is not None, f"{command}: {tracer.communicate()[1]}"
                    time.sleep(0.002)
                yield
            finally:
                tracer.terminate()  # it lets the process go
                while tracer.poll() is None:
                    self._read_trace(0.01)
                os.close(self._trace)
                self._trace = None
                fifo.unlink()

    def _wait_until_ready(self) -> None:
        if not self._ready:
            self._answer(None, 0)
            self._ready = True

    def __enter__(self) -> Kstate:
        """Nothing to do: it runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the zygote; it leaves at the end of its input."""
        _pipe(self._zygote.stdin).close()
        self._zygote.wait(300)
        _pipe(self._zygote.stdout).close()
        self._folder.cleanup()

    def __call__(
        self,
        app: Path,
        command: tuple[str, ...],
        moment: Moment | None = None,
        *,
        env: Mapping[str, str] | None = None,
        on_start: Callable[[int], None] | None = None,
        alone: tuple[str, ...] = (),
    ) -> Ended:
        """
        Run one command (its name, that of a query, then its options) on an application directory.

        `on_start` gets its process id. `alone` are options of a strace for its main thread; what it starts is not slowed down.
        """
        output = Path(self._folder.name) / "output"
        names = 2 if command[0] == "query" else 1
        # maintain reads the directory from its file, and dump reads none.
        argv = [*command] if command[0] in ("maintain", "dump") else [*command[:names], str(app), *command[names:]]
        self._wait_until_ready()
        env = {**environment(app.parent), **(env or {})}
        request = {"argv": argv, "env": env, "output": str(output), "waits": bool(alone)}
        self._read_trace(0)
        self._traced.clear()
        _pipe(self._zygote.stdin).write(json.dumps(request).encode() + b"\n")
        pid = self._answer(None, 0)["pid"]
        if on_start is not None:
            on_start(pid)
        with contextlib.ExitStack() as stack:
            if alone:
                while not _prints(pid, "State").startswith("T"):
                    time.sleep(0.002)
                stack.enter_context(self._attached(pid, *alone))
                os.kill(pid, signal.SIGCONT)
            status = self._answer(moment, pid)["status"]
            self._read_trace(0)
        text = output.read_text(errors="replace")
        # Tables are part of the output too, so only the message that ends a command is read.
        _, begin, message = f"\n{text}".partition("\nkstate: ")
        named_options.check(argv, "", begin + message)
        return Ended(status, text, self._traced.decode(errors="replace"))

    def _answer(self, moment: Moment | None, pid: int) -> dict[str, Any]:
        """The zygote's next line. What strace writes meanwhile is read too: it would wait for that."""
        stdout = _pipe(self._zygote.stdout)
        while self._trace is not None and not select.select([stdout], [], [], 0)[0]:
            self._read_trace(0.05)
            if moment is not None and moment.has_come(self._traced.decode(errors="replace")):
                moment.do(pid)
                moment = None
        line = stdout.readline()
        assert line, f"the zygote has ended: {self._errors.read_text(errors='replace')}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read_trace(self, seconds: float) -> None:
        """Add what strace has written; wait so long for something, or for the zygote's next line."""
        if self._trace is None:
            return
        select.select([self._trace, _pipe(self._zygote.stdout).fileno()], [], [], seconds)
        while select.select([self._trace], [], [], 0)[0]:
            part = os.read(self._trace, 1 << 16)
            if not part:
                time.sleep(seconds)  # the other end is not open, any more or yet
                return
            self._traced += part


def _prints(pid: int, name: str) -> str:
    """A line of what the system says of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"^{name}:\s+(.*)$", status, re.MULTILINE)
    assert match is not None, status
    return match[1]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
