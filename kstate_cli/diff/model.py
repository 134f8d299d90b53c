"""The result of a comparison, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kstate_cli.diff.rows import comparable
from kstate_cli.errors import InUse
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.rows.errors import Advice, StoreUnreadable, own_advice
from kstate_cli.rows.layout import Layout


class In(Enum):
    """Which of the two directories has something."""

    BOTH = "both"
    A = "a"
    B = "b"

    @property
    def side(self) -> str:
        """``A`` or ``B``, as messages call them."""
        return self.value.upper()


class RowIn(Enum):
    """What is different about a row."""

    ONLY_A = "only-in-a"
    ONLY_B = "only-in-b"
    BOTH = "different"


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read."""

    text: str
    by_host: bool
    """A disk that does not answer, or rights: that says nothing of the store."""
    advice: Advice | None = None
    """That of an error which no damage has caused."""

    @classmethod
    def of(cls, error: StoreUnreadable | MalformedBytesError | InUse) -> Unread:
        """What an error says."""
        by_host = isinstance(error, StoreUnreadable) and error.by_host
        return cls(str(error), by_host=by_host, advice=own_advice(error))


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same in both; None for a value that is not there."""

    key: bytes
    kind: str
    a: tuple[Layout, bytes] | None
    b: tuple[Layout, bytes] | None

    @property
    def rows(self) -> RowIn:
        """Where there is such a row."""
        if self.a is None:
            return RowIn.ONLY_B
        return RowIn.ONLY_A if self.b is None else RowIn.BOTH


@dataclass(slots=True)
class StoreDiff:
    """One store of one task. ``where`` is ``A`` or ``B`` where the other directory has no such store."""

    task: str
    store: str
    where: In = In.BOTH
    kinds: tuple[str, str] = ("", "")
    rows_a: int = 0
    rows_b: int = 0
    only_a: int = 0
    only_b: int = 0
    different: int = 0
    left_out: tuple[str, ...] = ()
    """Fields that were not compared."""
    unreadable: Unread | None = None
    offsets: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """``changelog`` and ``position`` in A and in B, where they are not the same."""

    @property
    def comparable(self) -> bool:
        """Return True if rows of these two kinds can be compared."""
        return self.where is not In.BOTH or not self.kinds[0] or comparable(*self.kinds)

    @property
    def equal(self) -> bool:
        """Return True if all rows are equal; False if any could not be read. Offsets do not count."""
        if self.unreadable is not None or self.where is not In.BOTH or not self.comparable:
            return False
        return not (self.only_a or self.only_b or self.different)


@dataclass(slots=True)
class Diff:
    """Everything that was compared. ``tasks`` are those that only one directory has: (name, which)."""

    stores: list[StoreDiff]
    tasks: list[tuple[str, In]]
    unreadable: list[Unread]
    """Problems of a directory outside the stores that were compared."""
    positions: bool
    as_of: tuple[str, str]
    remarks: tuple[str, ...] = ()
    """Facts that do not stop the comparison, and may be the reason of a difference."""

    @property
    def only_the_hosts(self) -> bool:
        """Return True if only this host cannot read some of it, which proves nothing about the stores."""
        return all(unread.by_host for unread in self.everything_unread)

    @property
    def everything_unread(self) -> list[Unread]:
        """Of the directories, and of stores."""
        return [*self.unreadable, *(store.unreadable for store in self.stores if store.unreadable is not None)]

    @property
    def unread(self) -> int:
        """Return how many parts could not be read: with any, the directories are not equal."""
        return len(self.unreadable) + sum(store.unreadable is not None for store in self.stores)

    @property
    def doubtful(self) -> int:
        """Return how many remarks leave a doubt: rows may be missing in both. None count while an application runs."""
        return len(self.remarks) if set(self.as_of) == {"closed"} else 0

    @property
    def equal(self) -> bool:
        """Return True if all of both was read, and is the same."""
        return not (self.unread or self.differing or self.doubtful)

    @property
    def differing(self) -> int:
        """Return how many stores and tasks differ."""
        return len(self.tasks) + sum(self.differs(store) for store in self.stores)

    def differs(self, store: StoreDiff) -> bool:
        """Return True if a store counts as different."""
        return store.unreadable is None and (not store.equal or (self.positions and bool(store.offsets)))


class DiffWatcher:
    """Progress that a caller may print."""

    def difference(self, of: StoreDiff, difference: Difference) -> None:
        """A row that differs, as soon as it is known."""

    def store(self, compared: StoreDiff) -> None:
        """A store is done."""

    def at(self, of: StoreDiff, rows: int) -> None:
        """So many rows of a store were compared."""
