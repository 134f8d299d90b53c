"""The states of a restoration, their legal transitions, and the seconds spent in each phase.

The states are those of KIP-728 (RESTORING) and KIP-696 (PENDING_ERROR). CREATED and PENDING_SHUTDOWN may fail here too,
unlike in Kafka Streams: closing Spark or a database can go wrong. An illegal transition is a bug of kstate and raises
:class:`IllegalTransition`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class RestoreState(Enum):
    """Where a restoration is."""

    CREATED = "CREATED"
    """The run exists, but kstate has not assigned tasks and slices yet."""
    REBALANCING = "REBALANCING"
    """kstate is assigning tasks and slices."""
    RESTORING = "RESTORING"
    """At least one store of the run is incomplete."""
    RUNNING = "RUNNING"
    """Every store is complete and in its place."""
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    """The run is complete or was stopped, and kstate is closing Spark, databases and locks."""
    NOT_RUNNING = "NOT_RUNNING"
    """The run has ended without a failure."""
    PENDING_ERROR = "PENDING_ERROR"
    """A step failed, and kstate is closing Spark, databases and locks."""
    ERROR = "ERROR"
    """The run has failed. The next restoration requires ``option.AFTER_ERROR``."""

    @property
    def terminal(self) -> bool:
        """Nothing follows."""
        return not TRANSITIONS[self]


_S = RestoreState
TRANSITIONS: Final[Mapping[RestoreState, frozenset[RestoreState]]] = MappingProxyType(
    {
        _S.CREATED: frozenset({_S.REBALANCING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
        _S.REBALANCING: frozenset({_S.RESTORING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
        _S.RESTORING: frozenset({_S.REBALANCING, _S.RUNNING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
        _S.RUNNING: frozenset({_S.REBALANCING, _S.RESTORING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR}),
        _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING, _S.PENDING_ERROR}),
        _S.PENDING_ERROR: frozenset({_S.ERROR}),
        _S.NOT_RUNNING: frozenset(),
        _S.ERROR: frozenset(),
    }
)
"""From each state, the states that may follow."""


class IllegalTransition(Exception):
    """A transition that the table does not have."""

    def __init__(self, before: RestoreState, after: RestoreState) -> None:
        super().__init__(f"a restoration cannot change from {before.value} to {after.value}")


Listener = Callable[[RestoreState, RestoreState], None]
"""Called with the old and the new state, after the change."""


class StateMachine:
    """The state of one run, or of all rounds that follow a dump. Listeners see each change, in their order."""

    def __init__(self) -> None:
        self.state = RestoreState.CREATED
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Add a listener."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Remove a listener."""
        self._listeners.remove(listener)

    def to(self, after: RestoreState) -> None:
        """Change the state. Raises IllegalTransition."""
        before = self.state
        if after not in TRANSITIONS[before]:
            raise IllegalTransition(before, after)
        self.state = after
        for listener in self._listeners:
            listener(before, after)

    def close(self) -> bool:
        """Enter PENDING_SHUTDOWN, then NOT_RUNNING; return False in PENDING_ERROR, ERROR and NOT_RUNNING."""
        if self.state in (RestoreState.PENDING_ERROR, RestoreState.ERROR, RestoreState.NOT_RUNNING):
            return False
        if self.state is not RestoreState.PENDING_SHUTDOWN:
            self.to(RestoreState.PENDING_SHUTDOWN)
        self.to(RestoreState.NOT_RUNNING)
        return True


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
"""In this order: footers, directory and plan; Spark, or the processes; sorted files; the end of Spark; the
remaining digests of the dump; the check of every sorted file; ingestion; verification; sync of the file system; the
exchange."""
_OF_THE_ENGINE: Final = {"stage": INGEST, "verify": VERIFY, "sync": SYNC, "switch": SWITCH}


class Stopwatch:
    """Runs from its creation on, in the phase ``plan``."""

    def __init__(self) -> None:
        self._phase, self._phase_start = PLAN, time.monotonic()
        self._spent = dict.fromkeys(PHASES, 0.0)

    def to(self, phase: str) -> None:
        """Enter another phase."""
        now = time.monotonic()
        self._spent[self._phase] += now - self._phase_start
        self._phase, self._phase_start = phase, now

    def engine(self, phase: str) -> None:
        """Enter the phase by the engine's name of it; a name that is not in the table stays in the phase before."""
        self.to(_OF_THE_ENGINE.get(phase, self._phase))

    def spent(self) -> dict[str, float]:
        """Return the seconds so far, by phase."""
        self.to(self._phase)
        return {phase: round(seconds, 3) for phase, seconds in self._spent.items()}
