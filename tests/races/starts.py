"""
Real Kafka Streams starts at any moment of a command that changes its directory, or the command begins while Streams starts.

One side has the lock, and the other one fails or waits. Afterwards Kafka Streams starts once more: it must find a valid
directory, and restore nothing that the command did not remove.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.forked import Ended, Kstate
from tests.interop.harness import App, Batch, Harness, Run
from tests.interop.jvm import Reply
from tests.interop.support import restored_records

from .pairs import unfinished_runs, with_repository
from .record import Race, Row

RELEASE = "4.3.1"
STREAMS = "Kafka Streams"
BATCH = Batch(records=60, keys=10, partitions=1)
_QUIET = ("--quiet", "--workers", "1", "--warnings-ok")
WIPED = "latest-order"
COMMANDS: dict[str, tuple[str, ...]] = {
    "migrate": ("migrate", "--to", "4.2", *_QUIET),
    "undo": ("undo",),
    "wipe": ("wipe", "--store", WIPED, *_QUIET),
    "clean": ("clean",),
    "snapshot": ("snapshot", "--quiet"),
}
WAITS = ("--wait", "60")
CAN_WAIT = frozenset(COMMANDS)
ENDS = {0, 1, 4, 5}
IN_USE = 5
_ENDS_MS = 2500
"""About how long a run of Kafka Streams lasts, in ms: a command may also begin when it closes."""
_LOCKED = ("Unable to initialize state", "already locked", "lock")
_CLOSED_AT_ONCE = {"session.timeout.ms": "6000", "internal.leave.group.on.close": "true"}


def races(count: int) -> list[Race]:
    """The first races: commands take turns."""
    names = list(COMMANDS)
    return [Race("streams", names[number % len(names)], STREAMS, number // len(names)) for number in range(count)]


@dataclass
class Lab:
    """An application of real Streams, and copies of its directory that commands and starts meet on."""

    folder: Path
    kstate: Kstate
    harness: Harness
    app: App = field(default_factory=lambda: App("races", "demo", "eos"))
    _seconds: dict[str, float] = field(default_factory=dict)

    def run(self, race: Race) -> Row:
        """Run a race, and judge what it leaves."""
        began = time.monotonic()
        generator = race.draw()
        usual = self._usual(race.first)
        # Negative: the command begins after the start of Streams.
        delay = generator.uniform(-_ENDS_MS / 1000, usual)
        waits = race.first in CAN_WAIT and generator.random() < 0.5
        directory = self._fresh()
        command = self._command(race.first) + (WAITS if waits else ())
        ended, start = self._together(directory, command, delay)
        wrong = self._problems(directory, race.first, ended, start, waits=waits)
        outcome = f"{'Streams ran' if start.rc == 0 else 'Streams failed'}, exit {ended.status}"
        return Row(
            race.kind, race.first, race.second, race.seed, round(delay * 1000), (ended.status, start.rc), outcome,
            "; ".join(wrong), round(time.monotonic() - began, 2),
        )  # fmt: skip

    def _together(self, directory: Path, command: tuple[str, ...], delay: float) -> tuple[Ended, Reply]:
        """Run the command, and start and stop Streams `delay` seconds later (before it if negative)."""
        replies: list[Reply] = []

        def start() -> None:
            time.sleep(max(0.0, delay))
            replies.append(self._start(directory))

        thread = threading.Thread(target=start)
        thread.start()
        time.sleep(max(0.0, -delay))
        ended = self.kstate(directory, command)
        thread.join()
        assert replies, "the JVM has ended"
        return ended, replies[0]

    def _problems(self, directory: Path, name: str, ended: Ended, start: Reply, *, waits: bool) -> list[str]:
        wrong = []
        if ended.status not in ENDS or "Traceback" in ended.output or "defect" in ended.output:
            wrong.append(f"exit {ended.status}: {ended.output[-1000:]}")
        # A snapshot waits for commands of kstate only: Streams may run for days.
        if waits and ended.status == IN_USE and name != "snapshot":
            wrong.append(f"did not wait: {ended.output[-400:]}")
        if start.rc and not (start.rc == 3 and any(word in start.report() for word in _LOCKED)):
            wrong.append(f"Streams: {start.rc} {start.report()[-1500:]}")
        removed = {WIPED} if name == "wipe" and ended.status in (0, 1) else set()
        wrong += [f"restored {store} in the race" for store in _stores(start) - removed]
        wrong += unfinished_runs(directory)
        again = self._start(directory)
        if again.rc:
            wrong.append(f"Streams afterwards: {again.rc} {again.report()[-1500:]}")
        if any("orrupted" in str(event["text"]) for reply in (start, again) for event in reply.of("log")):
            wrong.append("a task was wiped")
        # What the start of the race has restored already is not restored again.
        wrong += [f"restored {store} afterwards" for store in _stores(again) - removed]
        cleaned = self.kstate(directory, ("clean",))
        if cleaned.status:
            wrong.append(f"clean afterwards: exit {cleaned.status}: {cleaned.output[-400:]}")
        return wrong

    def _start(self, directory: Path) -> Reply:
        run = Run(read=False, conf=dict(_CLOSED_AT_ONCE), options={"timeout": 60})
        return self.harness.run(RELEASE, self.app, directory.parent, run)

    def _command(self, name: str) -> tuple[str, ...]:
        return with_repository(COMMANDS[name], self._state)

    def _usual(self, name: str) -> float:
        """The seconds of a command alone."""
        if name not in self._seconds:
            directory = self._fresh()
            began = time.monotonic()
            ended = self.kstate(directory, self._command(name))
            assert ended.status in (0, 1), ended.output
            self._seconds[name] = time.monotonic() - began
        return self._seconds[name]

    @property
    def _state(self) -> Path:
        return self.folder / "w" / "state"

    def _fresh(self) -> Path:
        """The directory as Streams closed it, with the backup of a run that has changed nothing that Streams reads."""
        template = self.folder / "template"
        if not template.exists():
            self.harness.produce(RELEASE, self.app, BATCH)
            for _ in range(2):  # the second start finds what the first one closed
                reply = self._start(template / self.app.name)
                assert reply.rc == 0, reply.report()
            app = template / self.app.name
            for command in (COMMANDS["migrate"], ("migrate", "--to", "4.3", *_QUIET)):
                ended = self.kstate(app, command)
                assert ended.status == 0, ended.output
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._state.parent)
        self._state.parent.mkdir(parents=True)
        subprocess.run(["cp", "-a", str(template), str(self._state)], check=True)
        return (self._state / self.app.name).resolve()


def _stores(reply: Reply) -> set[str]:
    """The stores that a start has restored."""
    return set(restored_records(reply)) if reply.of("summary") else set()
