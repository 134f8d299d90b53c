"""Name the stores and partitions that the specification promises and the dump lacks.

Kafka Streams gives each task of a sub-topology all of its stores (``ProcessorTopology``), with the task's partition of
their changelogs. If the specification states no number of partitions, kstate takes the promised tasks from three facts:

- the partitions in the dump, of any changelog of the sub-topology;
- the tasks in the directory;
- the partitions of a topic have consecutive numbers.

Source topics of one sub-topology may differ in their numbers of partitions, so only its own topic and its directories
count for a store whose changelog is a source topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kstate_cli.change.plan import warning
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.restore.planning.plan import Outcome, Refusal, RestoreOptions, RestoreSnapshot, UnchangedStore
from kstate_cli.restore.planning.store_work import has_stated_partitions, without_topic
from kstate_cli.specification.draft import StoreSpec
from kstate_cli.texts import some

_MOST_TASKS: Final = 5
"""Tasks in one sentence."""
_MOST_PARTITIONS: Final = 100_000
"""Partitions that are searched for gaps. A dump may state any partition up to 2^31 - 1."""

_Place = tuple[str | None, int | None]
"""A named topology and a sub-topology."""


class PromisedTasks:
    """The tasks that have the stores of a specification, by the dump and the directory."""

    def __init__(self, snapshot: RestoreSnapshot) -> None:
        self._snapshot = snapshot
        dumped: dict[str, set[int]] = defaultdict(set)
        # A damaged partition is refused later if it is needed, so it is not missing.
        for key in (*snapshot.dump.partitions, *snapshot.dump.damaged):
            dumped[key.topic].add(key.partition)
        self._dumped = {
            spec.name: frozenset(dumped.get(spec.changelog or "", ()))
            for spec in snapshot.spec.stores
            if spec.logged and not spec.is_global
        }
        self._dumped_of_place: dict[_Place, set[int]] = defaultdict(set)
        # Stores in memory have changelogs too.
        for spec in snapshot.spec.stores:
            self._dumped_of_place[_place(spec)] |= self._dumped.get(spec.name, frozenset())
        self._states: dict[_Place, dict[int, Mapping[str, StoreOffsets]]] = defaultdict(dict)
        for name, task in snapshot.tasks.items():
            parts = TaskId.parse(name)
            if parts.partition is not None:
                states = {state.store.name: state for state in task.stores}
                self._states[parts.topology, parts.subtopology][parts.partition] = states

    def partitions(self, spec: StoreSpec) -> list[int]:
        """Return the partitions of a task store that the dump shows, of its own changelog or of another one."""
        numbers = self._dumped_of_place[_place(spec)]
        if spec.source_topic is not None:
            numbers = numbers & self._with_directory(spec)
        return sorted(self._dumped[spec.name] | numbers)

    def missing(self, specs: Iterable[StoreSpec], by_task: Mapping[str, Sequence[StoreSpec]]) -> Iterator[Outcome]:
        """Yield what becomes of the promised stores in tasks of which the dump has nothing.

        ``specs`` are the selected stores, and ``by_task`` has the tasks in which each of them is judged.
        """
        judged: dict[str, set[int]] = defaultdict(set)
        for task, stores in by_task.items():
            for spec in stores:
                judged[spec.name].add(TaskId.parse(task).partition or 0)
        for spec in specs:
            if _is_promised(spec):
                yield from self._missing(spec, judged[spec.name])

    def _missing(self, spec: StoreSpec, judged: set[int]) -> Iterator[Outcome]:
        options = self._snapshot.options
        unchanged: set[int] = set()
        for number, states in sorted(self._states[_place(spec)].items()):
            task, state = _task(spec, number), states.get(spec.name)
            if number not in judged and state is not None and state.has_offset:
                unchanged.add(number)
                if _is_selected(options, task):
                    lacks = f"the dump does not contain {TopicPartition(spec.changelog or '', number)}"
                    yield UnchangedStore(task, spec.name, lacks)
        if not judged and not unchanged:
            if _may_be_selected(options, spec):
                yield self._without_topic(spec)
            return
        missing = [task for task in self._gaps(spec, judged | unchanged) if _is_selected(options, task)]
        if missing:
            partitions = "these partitions"
            if len(missing) == 1:
                partitions = f"partition {TaskId.parse(missing[0]).partition}"
            yield warning(
                f"kstate does not restore {spec.name} of {some(missing, _MOST_TASKS)}, because the dump does not "
                f"contain {partitions} of {spec.changelog}"
            )

    def _without_topic(self, spec: StoreSpec) -> Outcome:
        """Return what becomes of a store of which neither the dump nor the directory has anything."""
        # A writer without a manifest leaves no file for a topic without records.
        if self._snapshot.dump.manifest is None and spec.name not in self._snapshot.options.stores:
            return warning(f"kstate does not restore {spec.name}, because the dump does not contain {spec.changelog}")
        text = f"{spec.name}: the dump does not contain {spec.changelog}{without_topic(self._snapshot, spec)}"
        return Refusal(text, not_in_dump=True)

    def _gaps(self, spec: StoreSpec, present: set[int]) -> list[str]:
        """Return the tasks that must exist, because a higher one exists, and that nothing has."""
        numbers = self._with_directory(spec)
        if spec.source_topic is None:
            numbers = set(self._states[_place(spec)])
        end = min(max(present | numbers) + 1, _MOST_PARTITIONS)
        return [_task(spec, number) for number in range(end) if number not in present]

    def _with_directory(self, spec: StoreSpec) -> set[int]:
        """Return the partitions of the tasks in which the store has a directory."""
        return {number for number, states in self._states[_place(spec)].items() if spec.name in states}


def _place(spec: StoreSpec) -> _Place:
    return spec.topology, spec.subtopology


def _task(spec: StoreSpec, partition: int) -> str:
    return TaskId(spec.topology, spec.subtopology, partition).name


def _is_promised(spec: StoreSpec) -> bool:
    """Return whether the tasks of a store are derived here: the planner judges or refuses all others by name."""
    on_disk = spec.logged and not spec.in_memory and not spec.is_global
    return on_disk and spec.subtopology is not None and not has_stated_partitions(spec)


def _is_selected(options: RestoreOptions, task: str) -> bool:
    """Return whether the options select a task. A share (i, n) divides only the tasks of the dump."""
    if task in options.elsewhere or (options.only is not None and task not in options.only):
        return False
    if options.tasks and task not in options.tasks:
        return False
    return not options.partitions or TaskId.parse(task).partition in options.partitions


def _may_be_selected(options: RestoreOptions, spec: StoreSpec) -> bool:
    """Return whether the options may select a task of the store, if no task of its sub-topology exists."""
    names = options.tasks or options.only
    if not names:
        return not options.partitions or spec.name in options.stores
    # The names are not parsed, since the user may have mistyped them.
    place = _task(spec, 0).removesuffix("0")
    return any(name.startswith(place) for name in names)
