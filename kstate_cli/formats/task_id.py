"""Names of tasks: ``<subtopology>_<partition>``, in a folder ``__<topology>__`` of a named topology; ``global``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

GLOBAL: Final = "global"
"""The directory of the global stores, which is no task of Streams but holds stores as one does."""
_TASK: Final = re.compile(r"(\d+)_(\d+)")
_TOPOLOGY: Final = re.compile(r"__(.+)__")


@dataclass(frozen=True, slots=True)
class TaskId:
    """What the name of a task says (``TaskId``, ``StateDirectory``); of ``global`` it says nothing."""

    topology: str | None = None
    """The name of the topology, which may itself begin or end with underscores; None where it has no name."""
    subtopology: int | None = None
    partition: int | None = None

    @classmethod
    def parse(cls, name: str) -> TaskId:
        """Take ``0_1``, ``__name__/0_1`` or ``global`` apart. ValueError for anything else."""
        return _parsed(name)

    @property
    def name(self) -> str:
        """What :meth:`parse` takes apart; a subtopology without a partition is no task and has none."""
        if self.partition is None:
            return GLOBAL
        task = f"{self.subtopology}_{self.partition}"
        return task if self.topology is None else f"__{self.topology}__/{task}"

    @property
    def is_global(self) -> bool:
        """The directory of the global stores."""
        return self.partition is None

    @property
    def order(self) -> tuple[bool, str, int, int]:
        """What tasks are sorted by: ``0_0`` …, then named topologies, ``global`` last."""
        return self.is_global, self.topology or "", self.subtopology or 0, self.partition or 0


@lru_cache(maxsize=10_000)
def _parsed(name: str) -> TaskId:
    """Once for each name: who goes over all tasks for each of them asks ten thousands of times."""
    folder, slash, task = name.rpartition("/")
    if name == GLOBAL:
        return TaskId()
    topology, numbers = _TOPOLOGY.fullmatch(folder), _TASK.fullmatch(task)
    if numbers is None or bool(slash) != bool(topology):
        raise ValueError(f"{name!r} is not the name of a task")
    return TaskId(topology[1] if topology else None, int(numbers[1]), int(numbers[2]))


def is_task(name: str) -> bool:
    """Whether a directory entry has the name of a task without a topology."""
    return _TASK.fullmatch(name) is not None


def is_topology(name: str) -> bool:
    """Whether a directory entry has the name of a named topology's folder."""
    return _TOPOLOGY.fullmatch(name) is not None


def is_task_or_global(name: str) -> bool:
    """Whether a directory entry has the name of what holds stores."""
    return name == GLOBAL or is_task(name)
