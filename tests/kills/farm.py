"""The JVMs of the generator: a harness whose server kills, starts and compares several applications at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.interop.harness import Harness
from tests.interop.jvm import Event, Jvm, Reply
from tests.interop.releases import InteropError, classes, compiled

JAVA = Path(__file__).resolve().parent / "java"
_MAIN = "interop.Kills"
_HEAP = "640m"
_SECONDS = 900


def _classes(version: str) -> Path:
    return compiled(version, sorted(JAVA.rglob("*.java")), [classes(version)])


class Farm(Harness):
    """A broker, a JVM for each release that starts and compares, and a JVM for each kill."""

    def __enter__(self) -> Farm:
        """Nothing to do."""
        return self

    def jvm(self, version: str) -> Jvm:
        """Return the long-lived JVM of this release."""
        jvm = self._jvms.get(version)
        if jvm is None or not jvm.alive:
            jvm = self._jvms[version] = self._new(version, "farm")
        return jvm

    def command(self, version: str, **members: Any) -> Reply:
        """Send any command that needs the broker, and wait long: a hanging start takes minutes."""
        return self.jvm(version).call({"bootstrap": self.bootstrap, **members}, timeout=_SECONDS)

    def kill(self, version: str, *, by_signal: bool, **members: Any) -> Reply:
        """Run applications in a JVM of their own until it halts, or until SIGKILL ends it ``by_signal``."""
        command = {"do": "kill", "bootstrap": self.bootstrap, "by-signal": by_signal, **members}
        events: list[Event] = []
        with self._new(version, "killed") as mortal:

            def messages(event: Event) -> None:
                events.append(event)
                if by_signal and event["event"] == "halt":
                    os.kill(mortal.pid, signal.SIGKILL)

            try:
                mortal.call(command, timeout=_SECONDS, messages=messages)
            except InteropError:
                if not any(event["event"] == "halt" for event in events):
                    raise
        return Reply(0, events)

    def good(self, version: str, **members: Any) -> Reply:
        """Send a command that must succeed."""
        reply = self.command(version, **members)
        if reply.rc:
            raise InteropError(reply.report())
        return reply

    def _new(self, version: str, name: str) -> Jvm:
        log = self.folder / "logs" / f"{version}-{name}.log"
        return Jvm(version, log, heap=_HEAP, main=_MAIN, more=[_classes(version)])
