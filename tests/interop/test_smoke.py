"""
Kafka's own smoke tests (StreamsSmokeTest, RelationalSmokeTest), across releases with kstate between them.

The applications and the verification of their output are Kafka's, from the jars of its tests. Input is generated all the time.
Meanwhile the application runs under 4.4.0 with transactional stores and is killed, kstate migrates its directory to 4.2, it runs
under 4.2.1 and is closed, kstate migrates back, and it ends under 4.4.0. Kafka's driver then verifies every result.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .harness import Guarantee, Harness
from .jvm import Event, Jvm, Reply
from .releases import InteropError, kafka_tests
from .support import ALL, migrate

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ALL, reason="KSTATE_INTEROP=all: minutes of generated input"),
]

TRANSACTIONAL = {"enable.transactional.statestores": "true"}
SMALL = {"rocksdb.config.setter": "interop.SmallBuffers"}
OLDER, NEWER = "4.2.1", "4.4.0"
CLASSES = {
    "smoke": {OLDER: OLDER, NEWER: NEWER},
    "relational": {OLDER: OLDER, NEWER: "4.3.1"},
}
"""Whose tests a release runs: the jar of 4.4.0 lacks the relational one."""
GUARANTEES = {"eos": "exactly_once_v2", "alos": "at_least_once"}
SIZES = {"smoke": (20, 400), "relational": (200, 2000)}
"""Keys and records of each, or articles and comments."""
SECONDS = 90
"""Input is generated over so many."""
RUN_SECONDS = 12
"""A run lasts so long from RUNNING on."""


@dataclass(frozen=True)
class Smoke:
    """One of the two tests: its broker, directory and application."""

    harness: Harness
    test: str
    guarantee: Guarantee
    folder: Path

    @property
    def app(self) -> str:
        """The application id."""
        return f"{self.test}-{self.guarantee}"

    @property
    def directory(self) -> Path:
        """The directory of the application."""
        return self.folder / "state" / self.app

    def command(self, **members: object) -> Event:
        """A command of the harness for this test."""
        return {"test": self.test, "bootstrap": self.harness.bootstrap, "app": self.app, "guarantee": self.guarantee,
                "state-dir": str(self.folder / "state"), **members}  # fmt: skip

    @contextmanager
    def jvm(self, release: str, name: str) -> Iterator[Jvm]:
        """A JVM of a release with the classes of Kafka's tests."""
        jars = [kafka_tests(CLASSES[self.test][release])]
        with Jvm(release, self.folder / "logs" / f"{name}.log", jars=jars) as started:
            yield started

    def migrate(self, release: str, *options: str) -> None:
        """Let kstate migrate the directory."""
        result = migrate(self.directory, release, "--warnings-ok", *options)
        assert result.status == 0, result.report

    def run(
        self, release: str, name: str, conf: dict[str, str], *, kill: bool = False, until: Path | None = None
    ) -> Reply | None:
        """Run the application for a while, or until a file exists; close it, or kill its process."""
        stop = until or self.folder / f"stop-{name}"
        running = threading.Event()

        def messages(event: Event) -> None:
            if event.get("to") == "RUNNING":
                running.set()

        command = self.command(
            do="smoke-client", until=str(stop), conf=[f"{key}={value}" for key, value in conf.items()]
        )
        with self.jvm(release, name) as jvm, ThreadPoolExecutor(1) as pool:
            reply: Future[Reply] = pool.submit(jvm.call, command, 600, messages)
            if until is None:
                while not running.wait(1):
                    assert not reply.done(), reply.result().report()
                time.sleep(RUN_SECONDS)
                if kill:
                    os.kill(jvm.pid, signal.SIGKILL)
                    with pytest.raises(InteropError):
                        reply.result()
                    return None
                stop.touch()
            return reply.result()


@pytest.mark.parametrize("guarantee", ["eos", "alos"])
@pytest.mark.parametrize("test", ["smoke", "relational"])
def test_kafkas_driver_verifies_every_result(tmp_path: Path, test: str, guarantee: Guarantee) -> None:
    generated, verified = tmp_path / "generated", tmp_path / "verified"
    with Harness() as harness, ThreadPoolExecutor(2) as pool:
        smoke = Smoke(harness, test, guarantee, tmp_path)
        keys, records = SIZES[test]
        with smoke.jvm(NEWER, "driver") as driver:
            assert driver.call(smoke.command(do="smoke-topics")).rc == 0
            command = smoke.command(do="smoke-drive", seconds=SECONDS, keys=keys, records=records, until=str(generated))
            verdict = pool.submit(driver.call, command, 900)
            smoke.run(NEWER, "first", {**TRANSACTIONAL, **SMALL}, kill=True)
            smoke.migrate(OLDER, "--transactional-stores", "--guarantee", GUARANTEES[guarantee])
            older = smoke.run(OLDER, "older", {})
            assert older is not None
            assert older.rc == 0, older.report()
            smoke.migrate(NEWER)
            generated.touch()
            last = pool.submit(smoke.run, NEWER, "last", TRANSACTIONAL, until=verified)
            try:
                reply = verdict.result()
            finally:
                verified.touch()
            closed = last.result()
        assert reply.rc == 0, reply.report()
        assert closed is not None
        assert closed.rc == 0, closed.report()
