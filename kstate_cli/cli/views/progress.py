"""Show the progress of long work on standard error: a bar on a terminal, a plain line now and then elsewhere.

Every change imports this module. Progress of a single command is in the view of that command, with what it imports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kstate_cli.cli.output import message_lines, progress_bar, say
from kstate_cli.clock import Pace, PaceMeter, pace_text
from kstate_cli.signals import start
from kstate_cli.texts import size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kstate_cli.change.plan import Plan


OFTEN_SECONDS: Final = 10.0
SELDOM_SECONDS: Final = 60.0
_OFTEN_UNTIL: Final = 120.0
"""Seconds between plain lines: first ``OFTEN_SECONDS``, and ``SELDOM_SECONDS`` after ``_OFTEN_UNTIL``."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work, and how people read its amounts."""

    amount: Callable[[int, int], str]
    """Text for an amount and the total."""
    rate: Callable[[float], str]
    """Text for an amount per second."""


def count_unit(noun: str, *, about: bool = False) -> Unit:
    """Return a unit of things: ``1,000 of about 2,000 rows``."""
    of = "of"
    if about:
        of = "of about"
    return Unit(
        lambda count, total: f"{count:,} {of} {total:,} {noun}",
        lambda rate: f"{rate:,.{0 if rate >= 10 else 1}f} {noun}",
    )


BYTES: Final = Unit(
    lambda count, total: f"{size_text(count)} of {size_text(total)}", lambda rate: size_text(max(1, round(rate)))
)


class NowAndThen:
    """The times at which a plain line is due, by a monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = self._said = began

    def is_due(self, now: float) -> bool:
        """Return whether a line is due now, and schedule the next one."""
        seconds = SELDOM_SECONDS
        if now - self._began < _OFTEN_UNTIL:
            # A person who has just started it still looks; a log of hours must stay readable.
            seconds = OFTEN_SECONDS
        due = now - self._said >= seconds
        if due:
            self._said = now
        return due


class Meter:
    """Show amount, rate and time left of long work. ``stop`` removes the bar."""

    def __init__(self, text: str, *, quiet: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._text, self._quiet, self._now = text, quiet, now
        self._unit = BYTES
        self._pace: PaceMeter | None = None
        self._lines = NowAndThen(0.0)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    @property
    def on_a_terminal(self) -> bool:
        """Return whether a bar shows it."""
        return not self._quiet and sys.stderr.isatty()

    @property
    def has_begun(self) -> bool:
        """Return whether ``begin`` was called."""
        return self._pace is not None

    def begin(self, total: int, unit: Unit, *, already: int = 0, since: float | None = None) -> None:
        """Start with ``total``, of which ``already`` was done before ``since``, by the same clock."""
        self._unit = unit
        began = since
        if began is None:
            began = self._now()
        self._lines = NowAndThen(began)
        self._pace = PaceMeter(total, began, already=already)
        if not self.on_a_terminal:
            return
        from rich.progress import TextColumn

        self._bar = progress_bar("{task.description}", TextColumn("{task.fields[shown]}"))
        start(self._bar)
        amount = unit.amount(already, total)
        self._task = self._bar.add_task(self._text, total=max(1, total), completed=already, shown=amount)

    def at(self, count: int) -> Pace | None:
        """Update the amount that is done; return None before ``begin``."""
        if self._pace is None:
            return None
        now = self._now()
        pace = self._pace.at(count, now)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=pace.done, shown=self._status_text(pace), description=self._text)
        elif not self._quiet and self._lines.is_due(now):
            say(f"kstate: {self._text}: {self._status_text(pace)}")
        return pace

    def call(self, text: str) -> None:
        """Rename the current work."""
        self._text = text
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a message, above the bar if there is one; with ``always`` even if quiet."""
        if self._bar is not None:
            # ``rich`` would fold a command in the middle: the lines are folded before it gets them.
            for line in message_lines(text):
                self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(text, quiet=self._quiet and not always)

    def stop(self) -> None:
        """Stop, and remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = self._pace = None

    def _status_text(self, pace: Pace) -> str:
        rate = None
        if pace.per_second is not None:
            rate = self._unit.rate(pace.per_second)
        return pace_text(pace, self._unit.amount(pace.done, pace.total), rate)


class RunProgress:
    """Progress of a run: phases, and the bytes that it rewrites, or its databases if it rewrites none."""

    _NAMES: ClassVar = {
        "read": "reading",
        "stage": "staging",
        "store": "rewriting",
        "verify": "verifying",
        "switch": "switching",
    }

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._done = self._bytes = self._databases = 0
        self._meter = Meter("staging", quiet=quiet)

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def expect(self, plan: Plan) -> None:
        """Take the plan of the run."""
        self._bytes, self._databases = plan.rewritten_bytes, plan.databases

    def __call__(self, phase: str, path: str, size: int) -> None:
        """Take the phase, its place, and the bytes since the last call, from the engine."""
        if phase == "sync":
            return  # part of what is said before it
        if phase != self._phase:
            self._phase = phase
            name = self._NAMES.get(phase, phase)
            self._meter.call(name)
            if not self._meter.on_a_terminal:
                say(f"kstate: {name}", quiet=self._quiet)
            if phase == "stage" and self._databases:
                if self._bytes:
                    self._meter.begin(self._bytes, BYTES)
                else:
                    self._meter.begin(self._databases, count_unit("databases"))
        if phase == "store":
            self._done += size if self._bytes else 1
            self._meter.at(self._done)
