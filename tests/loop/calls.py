"""Calls of kstate: forked from the zygote, or processes of their own; left alone, or sent a signal at some moment."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import json_lines

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 600
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGSEGV)
"""Or dead by a fault of librdkafka 2.16, whose main thread rarely follows a null pointer: once in 1,500 calls."""


@dataclass(frozen=True)
class Clock:
    """How the host of a call sees the time; see :mod:`tests.loop.zygote`."""

    boot: str = "host"
    ahead_ms: int = 0
    error_ms: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a call ended."""

    argv: tuple[str, ...]
    status: int
    lines: tuple[dict[str, Any], ...]
    """Its standard output, JSON Lines."""
    err: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended it that no process survives."""
        return self.status in _KILLED

    @property
    def warnings(self) -> list[str]:
        """Return the messages of its warnings."""
        return [str(line["message"]) for line in self.lines if line["type"] == "warning"]

    @property
    def error(self) -> str:
        """Return the message of its error; empty without one."""
        return next((str(line["message"]) for line in self.lines if line["type"] == "error"), "")


class Call:
    """A call that runs."""

    def __init__(self, argv: Sequence[str], pid: int, output: Path, ended: queue.Queue[int]) -> None:
        self.argv, self.pid = tuple(argv), pid
        self._output, self._ended = output, ended
        self._status: int | None = None
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):
            # Not by its number: the process may have ended by then, and the number may be another one's.
            self._descriptor = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the call has ended."""
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def ends_within(self, seconds: float) -> bool:
        """Return whether the call has ended by then."""
        if self._status is None:
            with contextlib.suppress(queue.Empty):
                self._status = self._ended.get(timeout=max(0.0, seconds))
        return self._status is not None

    def outcome(self) -> Outcome:
        """Wait for the end; what the call has printed fits its schemas."""
        assert self.ends_within(_SECONDS), f"still running: {self.argv}"
        assert self._status is not None
        if self._descriptor is not None:
            os.close(self._descriptor)
        out, err = (
            self._output.with_suffix(suffix).read_text(encoding="utf-8", errors="replace")
            for suffix in (".out", ".err")
        )
        assert "Traceback" not in err, err
        if self._status not in _KILLED:
            json_lines.check(self.argv, self._status, out, err)
        else:
            out = out[: out.rfind("\n") + 1]
        return Outcome(self.argv, self._status, tuple(json_lines.parse_lines(out)), err)


class Calls:
    """Starts calls. Everything ends with it."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for what calls print, and for their temporary files."""
        self._folder = folder
        (folder / "scratch").mkdir(parents=True, exist_ok=True)
        self._environment = {
            "TMPDIR": str(folder / "scratch"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
        }
        self._count = 0
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._pids: queue.Queue[int] = queue.Queue()
        self._ended: dict[int, queue.Queue[int]] = {}
        with (folder / "zygote.err").open("wb") as errors:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.loop.zygote"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        assert json.loads(self._zygote.stdout.readline())["ready"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(300)
        self._reader.join(300)
        self._zygote.stdout.close()

    def start(self, argv: Sequence[str], clock: Clock) -> Call:
        """Start a call as a fork of the zygote."""
        output = self._output()
        for suffix in (".out", ".err"):
            output.with_suffix(suffix).touch()  # a child may be killed before it opens them
        request = {
            "argv": list(argv),
            "env": self._environment,
            "out": str(output.with_suffix(".out")),
            "err": str(output.with_suffix(".err")),
            "clock": vars(clock),
        }
        assert self._zygote.stdin is not None
        with self._starting:
            self._zygote.stdin.write(json.dumps(request).encode() + b"\n")
            pid = self._pids.get(timeout=_SECONDS)
        return Call(argv, pid, output, self._ended_queue(pid))

    def start_process(self, argv: Sequence[str]) -> Call:
        """Start a call as a user does; its clock is that of this host."""
        output = self._output()
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "kstate_cli", *argv],
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        ended: queue.Queue[int] = queue.Queue()
        threading.Thread(target=lambda: ended.put(process.wait()), daemon=True).start()
        return Call(argv, process.pid, output, ended)

    def _output(self) -> Path:
        with self._lock:
            self._count += 1
            return self._folder / f"call-{self._count}.out"

    def _ended_queue(self, pid: int) -> queue.Queue[int]:
        with self._lock:
            return self._ended.setdefault(pid, queue.Queue())

    def _read(self) -> None:
        assert self._zygote.stdout is not None
        for line in self._zygote.stdout:
            answer = json.loads(line)
            if "pid" in answer:
                with self._lock:
                    self._ended.pop(answer["pid"], None)
                self._pids.put(answer["pid"])
            else:
                self._ended_queue(answer["ended"]).put(answer["status"])


def temporary_folder(where: str | None) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for a broker and directories; one on a tmpfs is quick."""
    return tempfile.TemporaryDirectory(prefix="loop-", dir=where)
