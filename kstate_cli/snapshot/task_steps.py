"""The steps that restore chosen stores of one task: the stores, and the files beside them that state their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kstate_cli.change.plan import BuildStore, Change, warning
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition, numbers_text, offsets_text
from kstate_cli.offsets.keeping import Keeping
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.releases import OffsetsHome
from kstate_cli.snapshot.model import StoredStore, StoredTask
from kstate_cli.statedir.problems import store_place
from kstate_cli.texts import plural

_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ChosenStore:
    """A store that is restored, and the generation that it comes from."""

    task: str
    store: StoredStore
    generation: str
    replaces: bool

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.store.name}"

    @property
    def path(self) -> str:
        """The store's folder, relative to the application directory."""
        return store_place(self.task, self.store.name, segmented=self.store.segmented).text


def task_steps(task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]) -> Iterator[Change]:
    """Yield the steps of one task: its stores, and the files beside them that state their offsets."""
    for store in chosen:
        offsets = offsets_text(store.store.offsets) or "no changelog"
        files = plural(len(list(store.store.files)), "file")
        text = f"{store.store.kind}, {offsets}; {files} of {store.generation}"
        # A terminal shows the second in which the snapshot was taken: its whole name is half a line.
        short = f"{files} of {store.generation.partition('.')[0]}, {numbers_text(store.store.offsets)}"
        yield BuildStore(store.path, text, replaces=store.replaces, size=store.store.size, short_text=short)
        if not store.store.offsets and store.store.has_rows:
            yield warning(
                f"{store.title}: it has no changelog, so the rows that the application added after snapshot "
                f"{store.generation} are lost"
            )
    keeping = Keeping(task.name)
    if task.home is OffsetsHome.FILES:
        yield from _offset_files(keeping, task, resolved, chosen)
        return
    for store in chosen:
        if store.store.in_file:
            yield keeping.lines_of(store.store.name, store.store.offsets)
    if _is_replaced(resolved, chosen):
        for name, keys in sorted(task.absent.items()):
            # A custom store has no data in a restored task: -4 has it read from the beginning of its changelog.
            yield keeping.lines_of(name, dict.fromkeys(keys, OFFSET_UNKNOWN))


def _is_replaced(resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]) -> bool:
    """Return whether no store of an existing task stays: it is then restored as a missing one."""
    if resolved is None:
        return True
    names = {store.store.name for store in chosen}
    return all(store.store.name in names for store in resolved.stores)


def _offset_files(
    keeping: Keeping, task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore]
) -> Iterator[Change]:
    """Yield ``.checkpoint`` and the Positions of a release that keeps them in files."""
    lines: dict[TopicPartition, int] = {}
    if task.name != GLOBAL and _is_replaced(resolved, chosen):
        # Under exactly-once a logged store without a line wipes the whole task (docs/internals/start.md#wiped-tasks).
        lines |= {key: OFFSET_UNKNOWN for keys in task.absent.values() for key in keys}
    if resolved is not None and resolved.task.checkpoint is not None:
        lines |= resolved.task.checkpoint.entries
    for store in chosen:
        lines |= store.store.offsets
    if lines:
        yield keeping.lines(lines)
    for store in chosen:
        if store.store.position is not None and not store.store.position.is_empty:
            yield keeping.position(store.store.name, store.store.position, "Position of the snapshot")
        elif resolved is not None and store.store.name in resolved.task.position_files:
            yield keeping.without_position(store.store.name, "the store is replaced")


def mtime_of_task(task: StoredTask, chosen: Sequence[ChosenStore]) -> int:
    """Return the mtime of a restored task directory, in ns: not younger than its oldest data.

    4.3 deletes task directories by their mtime at a start (``state.cleanup.dir.max.age.ms``).
    """
    times = [store.store.as_of_ms * _NS for store in chosen if store.store.as_of_ms and store.store.has_rows]
    return min([task.mtime_ns, *times])
