"""A changelog of real Streams with as many records as are asked for, and real Streams that restores it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.harness import App, Batch, Harness, Run
from tests.interop.jvm import Event, Jvm

from .cpu import cpu_seconds

RELEASE = "4.3.1"
FIRST_RECORDS = 100
"""Of the first run, which makes the changelog topic."""


@dataclass(frozen=True)
class Bulk:
    """The changelog ``topic`` on the broker ``bootstrap``, and the JVM of its application."""

    bootstrap: str
    topic: str
    records: int
    harness: Harness
    jvm: Jvm
    app: App
    state: Path

    def call(self, command: dict[str, Any]) -> Any:
        """A command of the JVM; fails where it does."""
        reply = self.jvm.call({"bootstrap": self.bootstrap, **command}, timeout=3600)
        assert reply.rc == 0, reply.report()
        return reply

    def restored(self, threads: int) -> tuple[float, float]:
        """Seconds from RESTORING to RUNNING without any state, and of the processor for the whole start."""
        before = cpu_seconds(self.jvm.pid)
        summary = self.call(self._restoring(threads)).of("summary")[-1]
        self._judge(summary)
        return float(summary["restoreSeconds"]), cpu_seconds(self.jvm.pid) - before

    def started(self, threads: int) -> float:
        """Seconds from the start of a JVM of its own to RUNNING without any state, as whoever has lost it waits."""
        command = {"bootstrap": self.bootstrap, **self._restoring(threads)}
        runs: list[float] = []

        def hear(event: Event) -> None:
            if event["event"] == "state" and event["to"] == "RUNNING":
                runs.append(time.monotonic())

        start = time.monotonic()
        with Jvm(RELEASE, self.state.parent / "harness" / "started.log", heap="2g", quick=False) as jvm:
            reply = jvm.call(command, timeout=3600, messages=hear)
        assert reply.rc == 0, reply.report()
        self._judge(reply.of("summary")[-1])
        return runs[0] - start

    def _restoring(self, threads: int) -> Event:
        shutil.rmtree(self.state, ignore_errors=True)
        conf = {"num.stream.threads": str(threads)}
        return {**self.harness.run_command(self.app, self.state, Run(read=False, conf=conf)), "timeout": 1800}

    def _judge(self, summary: Event) -> None:
        total = sum(int(entry.rpartition("=")[2]) for entry in summary["restored"])
        assert total >= self.records, summary


@contextmanager
def bulk(folder: Path, name: str, batch: Batch, topology: str = "bulk", store: str = "bulk") -> Iterator[Bulk]:
    """The application ``name``, whose changelog of ``store`` holds ``batch`` besides those of its first run."""
    app, state = App(name, topology, "alos"), folder / "streams"
    # With the second compiler, as users run it.
    with (
        Harness(folder / "harness") as harness,
        Jvm(RELEASE, folder / "harness" / "streams.log", heap="2g", quick=False) as jvm,
    ):
        load = Bulk(harness.bootstrap, f"{name}-{store}-changelog", batch.records, harness, jvm, app, state)
        # A first run makes the changelog topic; its bulk is then produced straight into it.
        load.call(
            Batch(records=FIRST_RECORDS, keys=FIRST_RECORDS, value_bytes=batch.value_bytes).command(
                app.topology, app.input
            )
        )
        load.call(harness.run_command(app, state, Run(read=False)))
        load.call({**batch.command(app.topology, app.input), "into": load.topic})
        yield load
        shutil.rmtree(state, ignore_errors=True)
