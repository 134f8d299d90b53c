"""The plan in the making: what is known of the directory, and the steps so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kstate_cli.change.plan import Step
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.left_behind import Guesses, keeps_offsets_inside
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.owners import Owners, give_lines
from kstate_cli.rehome.halves import Completion
from kstate_cli.rehome.model import Placed, Rehoming
from kstate_cli.rehome.options import RehomeOptions
from kstate_cli.specification.homes import Home
from kstate_cli.specification.topology import Subtopology
from kstate_cli.statedir.model import Application


def is_stray(one: StoreOffsets) -> bool:
    """Whether a store has neither a row nor an offset, so that nothing is lost with it."""
    return one.store.empty and not one.offsets


def is_virgin(one: StoreOffsets) -> bool:
    """Whether a store has no row, and says that it is to be read from the beginning."""
    return one.store.empty and bool(one.offsets) and set(one.offsets.values()) == {OFFSET_UNKNOWN}


@dataclass(slots=True)
class RehomeDraft:
    """Of one application."""

    app: Application
    tasks: dict[str, TaskOffsets]
    """Those of the directory, without ``global``."""
    options: RehomeOptions
    rehoming: Rehoming
    guesses: Guesses
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    completion: Completion = field(default_factory=Completion)
    """What the half tasks of this host get from a dump."""
    left_out: dict[tuple[str, str], str] = field(default_factory=dict)
    """Task and store whose rows may not be kept -> why."""
    _owners: dict[str, Owners] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether the application keeps offsets in its stores."""
        return keeps_offsets_inside(self.app)

    def owners(self, task: str) -> Owners:
        """The lines of a task's ``.checkpoint``."""
        if task not in self._owners:
            self._owners[task] = give_lines(self.app.app_id, self.tasks[task].task)
        return self._owners[task]

    def lines_of(self, placed: Placed) -> dict[TopicPartition, int]:
        """The lines that a store has in the ``.checkpoint`` of the task that has it."""
        owners = self.owners(placed.source)
        return owners.stores.get(placed.store) or owners.absent.get(placed.store) or {}

    def store(self, placed: Placed) -> StoreOffsets | None:
        """What is known of a store; None where no database of it is here."""
        return self.store_in(placed.source, placed.store)

    def store_in(self, task: str, name: str) -> StoreOffsets | None:
        """The same by names."""
        return next((one for one in self.tasks[task].stores if one.store.name == name), None)

    def homes(self) -> Iterator[tuple[Home, Subtopology]]:
        """The sub-topologies of the new text that have stores here."""
        for home in sorted({Home.of(TaskId.parse(name)) for name in self.rehoming.targets}):
            part = self.options.new.part(home) if self.options.new is not None else None
            if part is not None:
                yield home, part

    def changelogs_into(self, home: Home) -> set[str]:
        """The topics that the stores of a sub-topology are restored from."""
        tasks = [name for name in self.rehoming.targets if Home.of(TaskId.parse(name)) == home]
        placed = [one for name in tasks for one in self.rehoming.into(name)]
        topics = {tp.topic for one in placed if (known := self.store(one)) is not None for tp in known.offsets}
        restored = (offsets for (task, _), offsets in self.completion.offsets.items() if task in tasks)
        return topics | {tp.topic for offsets in restored for tp in offsets}

    def elsewhere(self, task: str, name: str) -> list[StoreOffsets]:
        """The same store in other tasks of the same named topology, where it has rows or an offset."""
        topology = TaskId.parse(task).topology
        return [
            one
            for other in self.tasks.values()
            for one in other.stores
            if one.store.name == name and other.task.topology == topology and not is_stray(one)
        ]
