"""Places below an application directory: the task, the store, the file. Only this module makes their texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from kstate_cli.formats.task_id import is_task, is_task_or_global, is_topology
from kstate_cli.statedir.names import ROCKSDB, is_offsets_file, store_folder


class Spelling(Enum):
    """The form of the text of a place."""

    PLAIN = auto()
    LAST_QUOTED = auto()
    """The last name as Python writes it, because Streams gives no such name."""
    QUOTED = auto()
    """All of it, for the same reason."""
    AND_BELOW = auto()
    """Anything below it."""


@dataclass(frozen=True, slots=True)
class StoreRef:
    """The folder of a store in the directory of its task: ``rocksdb/<name>``, or ``<name>`` of a segmented one."""

    name: str
    segmented: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The names on the path from an application directory to an entry; empty for the directory itself.

    Code reads ``task``, ``store`` and ``name``, never the text.
    """

    names: tuple[str, ...] = ()
    spelling: Spelling = Spelling.PLAIN

    @classmethod
    def of(cls, app: Path, path: Path) -> Place:
        """Return the place of ``path``. Raise ValueError if it is not in ``app``."""
        return cls(path.relative_to(app).parts)

    def __truediv__(self, name: str) -> Place:
        """Return the place of the entry with that name in it."""
        return Place((*self.names, name))

    def spelled(self, spelling: Spelling) -> Place:
        """Return the same place with another form of text."""
        return replace(self, spelling=spelling)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """For people: ``0_0/rocksdb/count/CURRENT``."""
        plain = "/".join(self.names) or "."
        if self.spelling is Spelling.QUOTED:
            return repr(plain)
        if self.spelling is Spelling.LAST_QUOTED:
            return "/".join((*self.names[:-1], repr(self.names[-1])))
        return f"{plain}/…" if self.spelling is Spelling.AND_BELOW else plain

    @property
    def task(self) -> str | None:
        """The name of the task that it is or is in; None for an entry beside the tasks."""
        length = self._task_length
        return "/".join(self.names[:length]) if length else None

    @property
    def in_task(self) -> tuple[str, ...]:
        """The names below its task; empty for a task itself, and for a place in no task."""
        length = self._task_length
        return self.names[length:] if length else ()

    @property
    def store(self) -> StoreRef | None:
        """The store whose folder, by its name, this is or is in. Such a store need not exist."""
        names = self.in_task
        if not names or is_offsets_file(names[0]):
            return None
        if names[0] != ROCKSDB:
            return StoreRef(names[0], segmented=True)
        return StoreRef(names[1], segmented=False) if len(names) > 1 else None

    @property
    def name(self) -> str:
        """The last of the names; empty for the application directory."""
        return self.names[-1] if self.names else ""

    @property
    def hides_tasks(self) -> bool:
        """Whether it has the name of a task, or is the folder of a named topology or in it."""
        return bool(self.names) and (is_task_or_global(self.name) or is_topology(self.names[0]))

    @property
    def is_rocksdb_folder(self) -> bool:
        """Whether it is the folder ``rocksdb`` of a task, whose stores have one database each."""
        return self.in_task == (ROCKSDB,)

    def within(self, folder: Place) -> bool:
        """Return whether it is ``folder`` or in it."""
        return self.names[: len(folder.names)] == folder.names

    @property
    def _task_length(self) -> int:
        names = self.names
        if names and is_task_or_global(names[0]):
            return 1
        return 2 if len(names) > 1 and is_topology(names[0]) and is_task(names[1]) else 0


def task_place(task: str) -> Place:
    """Return the directory of a task: ``0_1``, ``__topology__/0_1``, ``global``."""
    return Place(tuple(task.split("/")))


def store_place(task: str, store: str, *, segmented: bool) -> Place:
    """Return the folder of a store."""
    return Place((*task.split("/"), *store_folder(store, segmented=segmented).split("/")))


def both_places(task: str, store: str) -> tuple[Place, Place]:
    """Return the two possible folders of a store: as a segmented store, and as one database."""
    return store_place(task, store, segmented=True), store_place(task, store, segmented=False)
