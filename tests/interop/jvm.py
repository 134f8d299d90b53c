"""One long-lived JVM per Kafka Streams release, which answers commands: JSON lines in, JSON lines out."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .releases import SILENT, InteropError, archive_of, classes, streams_jars

Event = dict[str, Any]
_LOG_LINE = re.compile(r"\] (WARN|ERROR) (\S+) - (.*)")
_PATTERN = re.compile(r"State store (\S+) initialized from checkpoint with offset (-?\d+) at changelog (\S+)-(\d+)")


@dataclass(frozen=True)
class Reply:
    """What the harness said to one command: its exit code, its events, and the warnings in its log."""

    rc: int
    events: list[Event]

    def of(self, kind: str) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in self.events if event["event"] == kind]

    def report(self) -> str:
        """Everything but the restores, as text: for the message of a failed assertion."""
        silent = {"config", "checkpoint", "restore-start", "restore-end", "store", "state"}
        return "\n".join(
            json.dumps(event) for event in self.events if event["event"] not in silent or event.get("note")
        )


@dataclass
class _Archiving:
    """
    How a JVM shares the classes of a release with later ones, which then map them instead of loading and verifying them.

    The first JVM of a class path that has run an application writes the archive when it ends; the others of that time do without.
    """

    options: list[str]
    partial: Path | None = None
    target: Path | None = None
    lock: IO[bytes] | None = None
    used: bool = False
    """It has run an application."""

    @classmethod
    def of(cls, name: str, class_path: str, *, writes: bool) -> _Archiving:
        """Return the options for this class path. `writes`: write the archive if it does not exist."""
        target = archive_of(name, class_path)
        if target.exists():
            return cls([f"-XX:SharedArchiveFile={target}", *SILENT])
        if not writes:
            return cls([])
        lock = target.with_suffix(".lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return cls([])
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        return cls([f"-XX:ArchiveClassesAtExit={partial}", *SILENT], partial, target, lock)

    @property
    def seconds(self) -> int:
        """How long the JVM may take to end."""
        return 300 if self.lock else 5

    def end(self) -> None:
        """Keep the archive, if it has the classes of an application."""
        if self.lock is None or self.partial is None or self.target is None:
            return
        if self.used and self.partial.exists():
            self.partial.rename(self.target)
        self.lock.close()
        self.lock = None


class Jvm:
    """The harness in a JVM of one release. Not for several threads at once."""

    def __init__(
        self,
        version: str,
        log: Path,
        *,
        heap: str = "768m",
        quick: bool = True,
        jars: Sequence[Path] = (),
        main: str = "interop.Main",
        more: Sequence[Path] = (),
        archives: bool = False,
    ) -> None:
        """
        Start it. `quick` leaves out the second compiler, which only a long run pays back.

        `jars`: folders of more jars for the class path. `more`: jars of more classes. `main`: the server.
        `archives`: write the archive of classes if it does not exist. This delays the end of the JVM, also that of a halt.
        """
        self.version = version
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        tiered = ["-XX:TieredStopAtLevel=1"] if quick else []
        path = [str(classes(version)), *(f"{folder}/*" for folder in (streams_jars(version), *jars)), *map(str, more)]
        self._archiving = _Archiving.of(f"streams-{version}", ":".join(path[:2]), writes=archives and len(path) == 2)
        simple = "-Dorg.slf4j.simpleLogger."
        command = ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", *tiered, *self._archiving.options, f"{simple}defaultLogLevel=warn",
                   f"{simple}log.org.apache.kafka.streams=info", f"{simple}showDateTime=true",
                   f"{simple}dateTimeFormat=HH:mm:ss.SSS", "-cp", ":".join(path), main]  # fmt: skip
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                             start_new_session=True)  # fmt: skip

    def __enter__(self) -> Jvm:
        """Nothing to do: it runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    @property
    def alive(self) -> bool:
        """False once it has halted, as a killed run does."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def call(self, command: Event, timeout: float = 3000, messages: Callable[[Event], None] | None = None) -> Reply:
        """
        Send one command and wait for its end; a JVM that halts meanwhile (a killed run) has rc 0.

        `heard` gets each event as soon as it is there.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise InteropError("no pipes")
        self._archiving.used |= command["do"] == "run"
        begin = self._log.stat().st_size
        stdin.write(json.dumps(command).encode() + b"\n")
        stdin.flush()
        events: list[Event] = []
        watchdog = threading.Timer(timeout, self._process.kill)
        watchdog.start()
        try:
            for line in stdout:
                events.append(json.loads(line))
                if messages:
                    messages(events[-1])
                if events[-1]["event"] == "end":
                    return Reply(int(events[-1]["rc"]), events + self._warnings(begin))
        finally:
            watchdog.cancel()
        events += self._warnings(begin)
        if events and any(event["event"] == "halt" for event in events):
            return Reply(self._process.wait(), events)
        raise InteropError(f"the JVM of {self.version} ended: see {self._log}")

    def close(self) -> None:
        """End the JVM; it leaves at the end of its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(self._archiving.seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._archiving.end()

    def _warnings(self, begin: int) -> list[Event]:
        """
        What the log says since then: the WARN and ERROR lines, those that differ only in their numbers as one, and as events
        "checkpoint" the changelog offsets that Streams found when it opened the stores.
        """
        events: dict[tuple[str, str], Event] = {}
        offsets: dict[str, Event] = {}
        with self._log.open(errors="replace") as lines:
            lines.seek(begin)
            for line in lines:
                offset = _PATTERN.search(line)
                if offset:
                    store, value, topic, partition = offset.groups()
                    offsets.setdefault(f"{topic}-{partition}", {"event": "checkpoint", "store": store, "topic": topic,
                                                                "partition": int(partition), "offset": int(value)})  # fmt: skip
                match = _LOG_LINE.search(line)
                if match:
                    level, logger, text = match.groups()
                    row = {
                        "event": "log",
                        "level": level,
                        "logger": logger.rsplit(".", 1)[-1],
                        "times": 0,
                        "text": text[:800],
                    }
                    events.setdefault((logger, re.sub(r"\d+", "#", text)), row)["times"] += 1
        return [*offsets.values(), *sorted(events.values(), key=lambda row: str(row["level"]))[:20]]
