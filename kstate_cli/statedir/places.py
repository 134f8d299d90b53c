"""Where something lies below an application directory: the task, the store, the file. Its text is made here only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from kstate_cli.formats.task_id import is_task, is_task_or_global, is_topology
from kstate_cli.statedir.names import ROCKSDB, is_offsets_file, store_folder


class Spelling(Enum):
    """How the text of a place is written."""

    PLAIN = auto()
    LAST_QUOTED = auto()
    """The last name as Python writes it: it is no name that Streams gives."""
    QUOTED = auto()
    """All of it, for the same reason."""
    AND_BELOW = auto()
    """Something somewhere below it."""


@dataclass(frozen=True, slots=True)
class StoreRef:
    """The folder of a store in the directory of its task: ``rocksdb/<name>``, or ``<name>`` of a segmented one."""

    name: str
    segmented: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The names that lead from an application directory to something in it; none of the directory itself.

    Who asks what it is asks ``task``, ``store`` and ``name``, never the text.
    """

    names: tuple[str, ...] = ()
    spelling: Spelling = Spelling.PLAIN

    @classmethod
    def of(cls, app: Path, path: Path) -> Place:
        """The place of ``path``, which lies in ``app``. ValueError where it does not."""
        return cls(path.relative_to(app).parts)

    def __truediv__(self, name: str) -> Place:
        """What has that name in it."""
        return Place((*self.names, name))

    def spelled(self, spelling: Spelling) -> Place:
        """The same place with another text."""
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
        """The task that it is, or lies in, as ``Task.name`` has it; None for what lies beside the tasks."""
        length = self._task_length
        return "/".join(self.names[:length]) if length else None

    @property
    def in_task(self) -> tuple[str, ...]:
        """The names below its task; none of a task itself, and of what lies in no task."""
        length = self._task_length
        return self.names[length:] if length else ()

    @property
    def store(self) -> StoreRef | None:
        """The store whose folder, by its name, this is or lies in. Whether such a store is there is another matter."""
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
        """Whether it has the name of a task, or is or lies in the folder of a named topology."""
        return bool(self.names) and (is_task_or_global(self.name) or is_topology(self.names[0]))

    @property
    def is_rocksdb_folder(self) -> bool:
        """Whether it is the folder of a task's stores of one database each."""
        return self.in_task == (ROCKSDB,)

    def within(self, folder: Place) -> bool:
        """Whether it is ``folder`` or lies in it."""
        return self.names[: len(folder.names)] == folder.names

    @property
    def _task_length(self) -> int:
        names = self.names
        if names and is_task_or_global(names[0]):
            return 1
        return 2 if len(names) > 1 and is_topology(names[0]) and is_task(names[1]) else 0


def task_place(task: str) -> Place:
    """The directory of a task: ``0_1``, ``__topology__/0_1``, ``global``."""
    return Place(tuple(task.split("/")))


def store_place(task: str, store: str, *, segmented: bool) -> Place:
    """The folder of a store."""
    return Place((*task.split("/"), *store_folder(store, segmented=segmented).split("/")))


def both_places(task: str, store: str) -> tuple[Place, Place]:
    """Where a store may lie: as a segmented one, and as one database."""
    return store_place(task, store, segmented=True), store_place(task, store, segmented=False)
