"""Where the seconds of a restoration go."""

from __future__ import annotations

import time
from typing import Final

SPENT_EVENT: Final = "spent"
"""Of a run that is done: its seconds by phase (:data:`PHASES`)."""
PLAN, START, SLICES, STOP, DIGESTS, CHECK, INGEST, VERIFY, SYNC, SWITCH = PHASES = (
    "plan",
    "start",
    "slices",
    "stop",
    "digests",
    "check",
    "ingest",
    "verify",
    "sync",
    "switch",
)
"""In this order: footers, directory and plan; Spark, or the processes; sorted files; the end of Spark; what is left of
the digests of the dump; every sorted file read; databases made of them; those looked at; the file system synced; the
exchange."""
_OF_THE_ENGINE: Final = {"stage": INGEST, "verify": VERIFY, "sync": SYNC, "switch": SWITCH}


class Stopwatch:
    """Runs from its creation on, in the phase ``plan``."""

    def __init__(self) -> None:
        self._phase, self._since = PLAN, time.monotonic()
        self._spent = dict.fromkeys(PHASES, 0.0)

    def to(self, phase: str) -> None:
        """From now on it is another phase."""
        now = time.monotonic()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def engine(self, phase: str) -> None:
        """As ``to``, with the engine's name of it; what it has no name for belongs to the phase before."""
        self.to(_OF_THE_ENGINE.get(phase, self._phase))

    def spent(self) -> dict[str, float]:
        """Seconds up to now, by phase."""
        self.to(self._phase)
        return {phase: round(seconds, 3) for phase, seconds in self._spent.items()}
