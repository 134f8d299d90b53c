"""How fast counted work goes and how long the rest of it takes: the one owner of that arithmetic.

Bytes, records, rows: a pace does not ask what is counted. Seconds are those of one clock that never goes back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 30.0
"""The rate is that of the last so many seconds: work that gets slower is seen to, and one slow moment is not."""
_STILL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Pace:
    """How far it is."""

    done: int
    """Never less than at an earlier look, and never more than ``total``."""
    total: int
    per_second: float | None
    """None where nothing can be said yet."""
    seconds_left: float | None
    """0 once all is done; None where nothing can be said yet."""

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0


class PaceMeter:
    """Looks at work now and then."""

    def __init__(self, total: int, now: float, *, already: int = 0) -> None:
        """So much is to be done; ``already`` was done before, and tells nothing of the rate."""
        self._total = max(0, total)
        self._done = self._bounded(already)
        self._looks: deque[tuple[float, int]] = deque([(now, self._done)])

    def at(self, done: int, now: float) -> Pace:
        """So much is done now, ``already`` included. A count that went back counts as no progress."""
        self._done = max(self._done, self._bounded(done))
        now = max(now, self._looks[-1][0])
        self._looks.append((now, self._done))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_SECONDS:
            self._looks.popleft()
        began, at_first = self._looks[0]
        elapsed, more = now - began, self._done - at_first
        per_second = more / elapsed if more and elapsed > _STILL else None
        rest = self._total - self._done
        seconds_left = 0.0 if not rest else None
        if rest and per_second:
            seconds_left = rest / per_second
        return Pace(self._done, self._total, per_second, seconds_left)

    def _bounded(self, count: int) -> int:
        return min(max(0, count), self._total)


def duration_text(seconds: float) -> str:
    """A duration as people read it, rounded up: ``8 s``, ``2 min 10 s``, ``3 h 05 min``, ``2 d 4 h``."""
    whole = max(0, math.ceil(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = math.ceil(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = math.ceil(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def pace_text(pace: Pace, amount: str, per_second: str | None) -> str:
    """``1.0 GiB of 2.0 GiB (50 %), 200.0 MiB/s, 6 s left``, of texts for the amount and for what a second does."""
    parts = [f"{amount} ({math.floor(pace.share * 100)} %)"]
    if per_second is not None:
        parts.append(f"{per_second}/s")
    if pace.seconds_left is not None:
        parts.append(f"{duration_text(pace.seconds_left)} left")
    return ", ".join(parts)
