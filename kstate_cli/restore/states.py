"""The states of a restoration and their legal transitions, merged from KIP-728 (RESTORING) and KIP-696 (PENDING_ERROR).

CREATED and PENDING_SHUTDOWN may also fail here: closing Spark or a database is an act that can go wrong, where Kafka
Streams has no such transition. An illegal transition is a bug of kstate and raises :class:`IllegalTransition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class RestoreState(Enum):
    """Where a restoration is."""

    CREATED = "CREATED"
    """There is a run; nothing is assigned yet."""
    REBALANCING = "REBALANCING"
    """Tasks and slices are being assigned."""
    RESTORING = "RESTORING"
    """At least one store of the run, global or not, is not complete."""
    RUNNING = "RUNNING"
    """Every store is complete and in its place."""
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    """It is done, or was asked to end: Spark, databases and locks are being closed."""
    NOT_RUNNING = "NOT_RUNNING"
    """Over, without a failure."""
    PENDING_ERROR = "PENDING_ERROR"
    """Something failed: Spark, databases and locks are being closed."""
    ERROR = "ERROR"
    """Over, with a failure: the next restoration wants ``--after-error``."""

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
        super().__init__(f"a restoration cannot go from {before.value} to {after.value}")


Listener = Callable[[RestoreState, RestoreState], None]
"""Called with the old and the new state, after the change."""


class StateMachine:
    """The state of one run, or of all rounds that follow a dump. Listeners see each change, in their order."""

    def __init__(self) -> None:
        self.state = RestoreState.CREATED
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Removes a listener."""
        self._listeners.remove(listener)

    def to(self, after: RestoreState) -> None:
        """Changes the state. Raises IllegalTransition."""
        before = self.state
        if after not in TRANSITIONS[before]:
            raise IllegalTransition(before, after)
        self.state = after
        for listener in self._listeners:
            listener(before, after)

    def close(self) -> bool:
        """PENDING_SHUTDOWN, then NOT_RUNNING. False, and nothing, in PENDING_ERROR, ERROR and NOT_RUNNING."""
        if self.state in (RestoreState.PENDING_ERROR, RestoreState.ERROR, RestoreState.NOT_RUNNING):
            return False
        if self.state is not RestoreState.PENDING_SHUTDOWN:
            self.to(RestoreState.PENDING_SHUTDOWN)
        self.to(RestoreState.NOT_RUNNING)
        return True
