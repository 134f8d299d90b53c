"""How far long work is, on standard error: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.cli.output import safe, say
from kstate_cli.cli.terminal import progress_bar
from kstate_cli.pace import Pace, PaceMeter, pace_text
from kstate_cli.signals import start
from kstate_cli.texts import size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

OFTEN_SECONDS: Final = 10.0
SELDOM_SECONDS: Final = 60.0
_OFTEN_UNTIL: Final = 120.0
"""Plain lines come every ten seconds at first, and every minute once it is clear that it takes longer."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is counted, as people read it."""

    amount: Callable[[int, int], str]
    """So much of so much."""
    rate: Callable[[float], str]
    """What a second does."""


def counted(what: str, *, about: bool = False) -> Unit:
    """Things by number: ``1,000 of about 2,000 rows``."""
    of = "of about" if about else "of"
    return Unit(
        lambda done, total: f"{done:,} {of} {total:,} {what}", lambda rate: f"{rate:,.{0 if rate >= 10 else 1}f} {what}"
    )


BYTES: Final = Unit(
    lambda done, total: f"{size_text(done)} of {size_text(total)}", lambda rate: size_text(max(1, round(rate)))
)


class NowAndThen:
    """The moments at which a plain line is due, by a clock that never goes back."""

    def __init__(self, began: float) -> None:
        self._began = self._said = began

    def is_one(self, now: float) -> bool:
        """Whether a line is due now: then the next one is due some time after."""
        due = now - self._said >= (OFTEN_SECONDS if now - self._began < _OFTEN_UNTIL else SELDOM_SECONDS)
        if due:
            self._said = now
        return due


class Meter:
    """Shows how far counted work is, at which rate, and how long the rest takes. ``stop`` takes the bar away."""

    def __init__(self, text: str, *, quiet: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._text, self._quiet, self._now = text, quiet, now
        self._unit = BYTES
        self._pace: PaceMeter | None = None
        self._lines = NowAndThen(0.0)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    @property
    def on_a_terminal(self) -> bool:
        """Whether a bar is what shows it."""
        return not self._quiet and sys.stderr.isatty()

    @property
    def has_begun(self) -> bool:
        """Whether anything is counted."""
        return self._pace is not None

    def begin(self, total: int, unit: Unit, *, already: int = 0, since: float | None = None) -> None:
        """So much is to be done, of which ``already`` was there before; ``since`` when, by the same clock."""
        self._unit = unit
        began = self._now() if since is None else since
        self._lines = NowAndThen(began)
        self._pace = PaceMeter(total, began, already=already)
        if not self.on_a_terminal:
            return
        from rich.progress import TextColumn

        self._bar = progress_bar("{task.description}", TextColumn("{task.fields[shown]}"))
        start(self._bar)
        shown = unit.amount(already, total)
        self._task = self._bar.add_task(self._text, total=max(1, total), completed=already, shown=shown)

    def at(self, done: int) -> Pace | None:
        """So much of it is done; None before ``begin``."""
        if self._pace is None:
            return None
        now = self._now()
        pace = self._pace.at(done, now)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=pace.done, shown=self._shown(pace), description=self._text)
        elif not self._quiet and self._lines.is_one(now):
            say(f"kstate: {self._text}: {self._shown(pace)}")
        return pace

    def call(self, text: str) -> None:
        """What is done now has another name."""
        self._text = text
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)

    def tell(self, text: str, *, always: bool = False) -> None:
        """A message, above the bar where there is one; ``always``: quiet or not."""
        if self._bar is not None:
            self._bar.console.print(safe(text), markup=False, highlight=False)
        else:
            say(text, quiet=self._quiet and not always)

    def stop(self) -> None:
        """Nothing is counted any more."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = self._pace = None

    def _shown(self, pace: Pace) -> str:
        rate = None if pace.per_second is None else self._unit.rate(pace.per_second)
        return pace_text(pace, self._unit.amount(pace.done, pace.total), rate)
