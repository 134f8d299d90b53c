"""What is asked: a store, a query, partitions, a bound (``StateQueryRequest``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kstate_cli.formats.position import PositionBound
from kstate_cli.query.queries import Query

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class InStore:
    """A store's name; :meth:`with_query` makes a request of it."""

    store: str

    def with_query(self, query: Query[R]) -> StateQueryRequest[R]:
        """A request without a bound, for all partitions that are here."""
        return StateQueryRequest(self.store, query)


@dataclass(frozen=True, slots=True)
class StateQueryRequest(Generic[R]):
    """An immutable request; each method returns another one.

    ``partitions`` is None for all that are in the directory.
    """

    store: str
    query: Query[R]
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = PositionBound.unbounded()  # noqa: RUF009 - it is immutable
    is_require_active: bool = False
    execution_info_enabled: bool = False

    @staticmethod
    def in_store(name: str) -> InStore:
        """Begins a request."""
        return InStore(name)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest[R]:
        """Only these partitions; those that are not here answer NOT_PRESENT."""
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest[R]:
        """All partitions that are here."""
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest[R]:
        """Only from a store that has come at least so far."""
        return replace(self, position_bound=bound)

    def require_active(self) -> StateQueryRequest[R]:
        """Only from a running active task; a bound does not matter then."""
        return replace(self, is_require_active=True)

    def enable_execution_info(self) -> StateQueryRequest[R]:
        """Tell how it was executed."""
        return replace(self, execution_info_enabled=True)


in_store = StateQueryRequest.in_store
