"""A real application that runs while a test does something else, under a load that goes on, and that can be stopped short."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from .harness import App, Batch, Harness, Run
from .jvm import Event, Jvm, Reply
from .releases import InteropError

_START_SECONDS = 600
_STOP_SECONDS = 600
_LOADED_SECONDS = 1800
"""A batch of load waits until the one before is consumed: as long as the application stands still."""
LONG_SESSIONS = {"session.timeout.ms": "600000", "max.poll.interval.ms": "600000", "producer.transaction.timeout.ms": "600000"}  # fmt: skip
"""Settings of an application that is going to be stopped short: nobody takes it for dead meanwhile."""


class Background:
    """
    An application in a JVM of its own: `with Background(...) as app:` is entered once it is RUNNING.

    `run.conf` should have LONG_SESSIONS if `paused` is used.
    """

    def __init__(
        self, harness: Harness, version: str, app: App, state_dir: Path, run: Run, *, instance: str = ""
    ) -> None:
        """Nothing starts before the with statement. `beside`: the name of one of several instances of the application."""
        self.events: list[tuple[float, Event]] = []
        """What it has said, and when, by the monotonic clock."""
        if instance:
            run.options["beside"] = True
        self._until = harness.folder / f"{app.name}{instance}.until"
        self._until.unlink(missing_ok=True)
        run.options["until"] = str(self._until)
        self._command = harness.run_command(app, state_dir, run)
        self._jvm = Jvm(version, harness.folder / "logs" / f"{version}-background{instance}.log")
        self._running = threading.Event()
        self._reply: Reply | None = None
        self._thread = threading.Thread(target=self._call, daemon=True)

    def __enter__(self) -> Background:
        """Start it and wait until it is RUNNING."""
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._running.wait(0.05):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._jvm.close()
                raise InteropError(f"the application does not start: {self._reply.report() if self._reply else ''}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the JVM, also in the middle of its run."""
        if self._jvm.alive:
            os.kill(self._jvm.pid, signal.SIGCONT)
        self._until.touch()
        self._thread.join(_START_SECONDS if kind is None else 0)
        self._jvm.close()

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        return self._jvm.pid

    @property
    def alive(self) -> bool:
        """Whether the run goes on."""
        return self._thread.is_alive()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No thread of the JVM runs meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + _STOP_SECONDS
            while not _all_stopped(self.pid):
                if time.monotonic() > deadline:
                    raise InteropError(f"the JVM {self.pid} does not stop")
                time.sleep(0.002)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def finish(self) -> Reply:
        """Let it consume the rest of its input and close; what it said."""
        self._until.touch()
        self._thread.join()
        if self._reply is None:
            raise InteropError("the JVM ended in the middle of the run")
        return self._reply

    def _call(self) -> None:
        # A JVM that ends too early leaves no reply: `finish` says so.
        with contextlib.suppress(InteropError):
            self._reply = self._jvm.call(self._command, timeout=3600, messages=self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append((time.monotonic(), event))
        if event["event"] == "state" and event["to"] == "RUNNING":
            self._running.set()


def _all_stopped(pid: int) -> bool:
    """Whether the kernel has stopped every thread of a process: the signal alone does not say so."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            states.append((thread / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0])
    return set(states) <= {"T", "t"}


@contextlib.contextmanager
def load(harness: Harness, version: str, app: App, batch: Batch) -> Iterator[None]:
    """
    Batch after batch, each as soon as the application has almost consumed the one before.

    They go through the JVM of this release, which nobody else may use meanwhile.
    """
    enough = threading.Event()
    failures: list[BaseException] = []

    def produce() -> None:
        following = batch
        try:
            while not enough.is_set():
                command = {"bootstrap": harness.bootstrap, **following.command(app.topology, app.input)}
                reply = harness.jvm(version).call({**command, "behind": app.name}, _LOADED_SECONDS)
                if reply.rc:
                    raise InteropError(reply.report())
                following = following.next()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        # What it waits for may not be consumed any more; the JVM ends with the harness.
        enough.set()
        raise
    enough.set()
    thread.join()
    if failures:
        raise failures[0]
