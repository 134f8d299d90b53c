"""
Two commands of kstate at once on one directory: one waits or is refused, and the directory is that of an order of the two.

What each order leaves is measured with the same commands, one after the other. A reader may meet any moment of a change.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import UNFINISHED
from tests.faults.cases import UP, fresh
from tests.faults.forked import Ended, Kstate
from tests.faults.trees import Meaning, meaning

from .record import Race, Row

_QUIET = ("--quiet", "--workers", "1")
CHANGING: dict[str, tuple[str, ...]] = {
    "migrate": ("migrate", "--to", "4.2", *_QUIET),
    "undo": ("undo",),
    "wipe": ("wipe", "--store", "kv-timestamped", *_QUIET),
    "wipe another": ("wipe", "--store", "window-count", *_QUIET),
    "clean": ("clean",),
    "snapshot": ("snapshot", "--quiet"),
}
"""Commands on a directory that was migrated from 4.2 to 4.3, and that has the backup of this run."""
READING: dict[str, tuple[str, ...]] = {
    "ls": ("ls",),
    "status": ("status",),
    "check": ("check", "--for", "4.3"),
    "verify": ("verify", "--workers", "1"),
    "inspect-position": ("inspect-position",),
    "dry run": ("migrate", "--to", "4.2", "--dry-run", *_QUIET),
}
WAITS = ("--wait", "60")
CAN_WAIT = frozenset(CHANGING)
ENDS = {0, 1, 3, 4, 5}
"""A change: done, done with warnings, findings, refused, in use."""
IN_USE = 5


def races(count: int) -> list[Race]:
    """The first races: each pair once, then with the next seed."""
    pairs = [*product(CHANGING, CHANGING), *product(CHANGING, READING)]
    return [Race("pair", *pairs[number % len(pairs)], number // len(pairs)) for number in range(count)]


@dataclass
class Course:
    """Runs pairs of commands in a folder."""

    folder: Path
    here: Kstate
    there: Kstate
    _outcomes: dict[tuple[str, ...], Meaning] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def run(self, race: Race) -> Row:
        """Run a race, and judge what it leaves."""
        began = time.monotonic()
        generator = race.draw()
        usual = [self._usual(name) for name in (race.first, race.second)]
        # Negative: the second one begins first.
        delay = generator.uniform(-usual[1], usual[0])
        waits = [name in CAN_WAIT and generator.random() < 0.5 for name in (race.first, race.second)]
        commands = [
            self._command(name, number) + (WAITS if waits[number] else ())
            for number, name in enumerate((race.first, race.second))
        ]
        app = self._fresh()
        ends = together(app, ((self.here, commands[0]), (self.there, commands[1])), delay)
        # A change that waits for a snapshot holds the lock of Java already: to the snapshot it looks like an application.
        must_wait = [
            waits[number] and race_name != "snapshot" for number, race_name in enumerate((race.first, race.second))
        ]
        wrong = [text for ended, waited in zip(ends, must_wait, strict=True) for text in _ending(ended, waited=waited)]
        directory, problems = self._judged(app, race, ends)
        return Row(
            race.kind, race.first, race.second, race.seed, round(delay * 1000), (ends[0].status, ends[1].status),
            directory, "; ".join(wrong + problems), round(time.monotonic() - began, 2),
        )  # fmt: skip

    def _judged(self, app: Path, race: Race, ends: Sequence[Ended]) -> tuple[str, list[str]]:
        """Return which commands have changed the directory, and what is wrong with what they left."""
        now = meaning(app)
        succeeded = [
            name for name, ended in zip((race.first, race.second), ends, strict=True) if ended.status in (0, 1)
        ]
        orders = [(race.first, race.second), (race.second, race.first), *((name,) for name in succeeded), ()]
        # Most changes first: the name of an order that equals a shorter one would say too much.
        fitting = next((order for order in reversed(orders) if self._outcome(order) == now), None)
        wrong = [] if fitting is not None else ["the directory is that of no order"]
        if self._outcome(()) != now and not any(name in CHANGING for name in succeeded):
            wrong.append("the directory has changed, and no command reported success")
        wrong += unfinished_runs(app)
        for command in (("check", "--for", "4.3"), ("undo",), ("clean",)):
            ended = self.here(app, command)
            allowed = {0, 1, 3, 4} if command[0] == "check" else {0}
            if ended.status not in allowed:
                wrong.append(f"{command[0]} afterwards: exit {ended.status}: {ended.output[-600:]}")
        return " then ".join(fitting or ()) or "unchanged", wrong

    def _outcome(self, order: tuple[str, ...]) -> Meaning:
        """What the commands leave one after the other."""
        if order not in self._outcomes:
            app = self._fresh()
            for name in order:
                began = time.monotonic()
                self.here(app, self._command(name, 0))
                if len(order) == 1:
                    self._seconds[name] = time.monotonic() - began
            self._outcomes[order] = meaning(app)
        return self._outcomes[order]

    def _usual(self, name: str) -> float:
        """The seconds of a command alone."""
        if name not in self._seconds:
            self._outcome((name,))
        return self._seconds[name]

    def _command(self, name: str, number: int) -> tuple[str, ...]:
        return with_repository(CHANGING.get(name) or READING[name], self._state)

    @property
    def _state(self) -> Path:
        return self.folder / "w" / "state"

    def _fresh(self) -> Path:
        """The migrated directory, with the backup of its run."""
        template = self.folder / "template"
        if not template.exists():
            app = fresh(UP, template)
            ended = self.here(app, UP.migrate)
            assert ended.status == 0, ended.output
        shutil.rmtree(self._state.parent, ignore_errors=True)
        self._state.parent.mkdir(parents=True)
        subprocess.run(["cp", "-a", str(template), str(self._state)], check=True)
        (app,) = (path for path in self._state.iterdir() if path.name != ".kstate")
        return app.resolve()


def with_repository(command: tuple[str, ...], state: Path) -> tuple[str, ...]:
    """Add the repository beside a state.dir to `snapshot`: two commands take snapshots into one."""
    return (*command, "--out", str(state.parent / "repository")) if command[0] == "snapshot" else command


def unfinished_runs(app: Path) -> list[str]:
    """Describe the runs that are damaged or have not ended."""
    runs = read_runs(app)
    return [f"{run.name}: {run.damage or run.state}" for run in runs if run.damage or run.state in UNFINISHED]


def together(app: Path, participants: Sequence[tuple[Kstate, tuple[str, ...]]], delay: float) -> list[Ended]:
    """Run two commands; the second begins `delay` seconds after the first, before it if negative."""
    ends: list[Ended | None] = [None, None]

    def run(number: int) -> None:
        time.sleep(max(0.0, delay if number else -delay))
        kstate, command = participants[number]
        ends[number] = kstate(app, command)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends[0] is not None and ends[1] is not None, "a participant has failed"
    return [ends[0], ends[1]]


def _ending(ended: Ended, *, waited: bool) -> list[str]:
    """What is wrong with how a command ended."""
    wrong = []
    if ended.status not in ENDS or "Traceback" in ended.output or "defect" in ended.output:
        wrong.append(f"exit {ended.status}: {ended.output[-1000:]}")
    if waited and ended.status == IN_USE:
        wrong.append(f"did not wait: {ended.output[-400:]}")
    return wrong
