"""Judge whether state directories have every task and every update.

The input topics show how many tasks there must be, and the committed offsets how far each must have read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.broker.tails import Tail, read_tails
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import position_reached
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.seed.cluster import Connection, TopicFacts
from kstate_cli.seed.directories import SeedDirectories, Subtopology
from kstate_cli.seed.erasure import KEYS_OF
from kstate_cli.seed.partitioning import PartitionRequest, value_in_scope
from kstate_cli.statedir.model import Task
from kstate_cli.texts import did_you_mean, first_lines, hint_with_suggestion, plural, quoted, some

_MOST: Final = 5


# --- how many tasks there must be -------------------------------------------------------------------------------------


def input_topics(directories: SeedDirectories) -> dict[Subtopology, frozenset[str]]:
    """Return the input topics of each sub-topology that a Position of its stores names."""
    topics: dict[Subtopology, frozenset[str]] = {}
    for task in directories.app.tasks:
        names = frozenset(topic for store in task.stores for topic in store.position.as_map())
        topics[task.sub_topology] = topics.get(task.sub_topology, frozenset()) | names
    return topics


def with_partitions(
    directories: SeedDirectories,
    on_broker: Mapping[str, TopicFacts],
    committed: Collection[TopicPartition],
    partitions: PartitionRequest | None,
) -> SeedDirectories:
    """Return the directories with the number of tasks of each sub-topology. Raise Refused if it is unknown.

    ``partitions``: the new application may have another number, which the input topics may already have. A task has a
    partition of each input topic, so the topic with most partitions decides (``StreamsPartitionAssignor``). The
    directories alone never show that the last task is missing.
    """
    counts: dict[Subtopology, int] = {}
    certain: set[Subtopology] = set()
    for place, topics in sorted(input_topics(directories).items(), key=str):
        by_broker = max((on_broker[topic].partitions for topic in topics if topic in on_broker), default=None)
        stated = _stated(directories, place)
        count = by_broker or stated
        certain_here = by_broker is not None
        if by_broker is not None and stated is not None and by_broker != stated:
            if not _changes(directories, place, partitions):
                raise Refused(
                    f"the input topics of sub-topology {place[1]} have {plural(by_broker, 'partition')}, but the "
                    f"specification states {stated}",
                    hint="correct the partitions setting in kstate.toml",
                )
            # With a wrong number the proof of the rule fails too: keys would be in other partitions.
            _refuse_read_beyond(topics, stated, committed)
            count, certain_here = stated, False
        if certain_here:
            certain.add(place)
        if count is None:
            names = sorted(store.name for task in _tasks_of(directories, place) for store in task.stores)
            raise Refused(
                f"kstate does not know how many tasks sub-topology {place[1]} has, because the Positions of its "
                "stores contain no input topic of this cluster",
                hint=f"set partitions for store {names[0]} in kstate.toml and pass this file with {option.SPEC}",
            )
        _refuse_gaps(directories, place, count, changes=_changes(directories, place, partitions))
        counts[place] = count
    return replace(directories, partitions=counts, by_broker=frozenset(certain))


def _changes(directories: SeedDirectories, place: Subtopology, partitions: PartitionRequest | None) -> bool:
    """Return whether the user states a number of partitions for a store of a sub-topology, or for all of them."""
    if partitions is None:
        return False
    names = [store.name for task in _tasks_of(directories, place) for store in task.stores]
    return value_in_scope(partitions.counts, (*names, str(place[1]), None)) is not None


def _refuse_read_beyond(topics: Collection[str], stated: int, committed: Collection[TopicPartition]) -> None:
    """Raise Refused if the group has read a partition for which there would be no task."""
    beyond = sorted(key for key in committed if key.topic in topics and key.partition >= stated)
    if beyond:
        raise Refused(
            f"the group has a committed offset for {beyond[0]}, so the application had more than "
            f"{plural(stated, 'task')} of this sub-topology",
            hint="correct the partitions setting in kstate.toml",
        )


def _tasks_of(directories: SeedDirectories, place: Subtopology) -> list[Task]:
    return [task for task in directories.app.tasks if task.sub_topology == place]


def _stated(directories: SeedDirectories, place: Subtopology) -> int | None:
    """Return the partitions that the file states; a number that kstate infers from the tasks is no statement."""
    names = {store.name for task in _tasks_of(directories, place) for store in task.stores}
    stated = {
        store.partitions
        for store in directories.spec.stores
        if store.name in names and store.partitions is not None and "partitions" not in store.inferred
    }
    # A file with two numbers for one sub-topology was refused when it was merged.
    return max(stated, default=None)


def _refuse_gaps(directories: SeedDirectories, place: Subtopology, count: int, *, changes: bool) -> None:
    """Raise Refused if a task is missing, is one too many, or lacks a store that others have."""
    tasks = _tasks_of(directories, place)
    present = {task.partition for task in tasks}
    prefix = ""
    if place[0]:
        prefix = f"__{place[0]}__/"
    missing = [f"{prefix}{place[1]}_{number}" for number in sorted({*range(count)} - present)]
    if missing:
        hint = f"pass the directories of all hosts, each with {option.FROM}"
        if changes:
            hint += ". If the input topics now have more partitions, set partitions for each store in kstate.toml to "
            hint += f"the old number and pass this file with {option.SPEC}"
        raise Refused(f"the directories lack these tasks: {some(missing, _MOST)}", hint=hint)
    beyond = sorted(task.name for task in tasks if (task.partition or 0) >= count)
    if beyond:
        raise Refused(
            f"the input topics have {plural(count, 'partition')}, so the application no longer has the tasks "
            f"{some(beyond, _MOST)}",
            hint=f"they are left over from an earlier topology. Exclude each of them with {option.SKIP_TASK}",
        )
    names = {store.name for task in tasks for store in task.stores}
    for task in tasks:
        lacking = sorted(names - {store.name for store in task.stores})
        if lacking:
            raise Refused(
                f"{task.path} lacks the store {lacking[0]}, which other tasks of sub-topology {place[1]} have",
                hint="pass the directory that contains this store. Another host may have a newer copy of this task",
            )


# --- whether every update is there ------------------------------------------------------------------------------------


def with_doubts(
    directories: SeedDirectories, connection: Connection, committed: Mapping[TopicPartition, CommittedOffset]
) -> SeedDirectories:
    """Return the directories with the reasons why stores may lack updates. Raises UsageError and RunFailed."""
    topics = input_topics(directories)
    resolved = resolve(directories.app)
    behind = _behind(resolved, topics, connection, committed)
    doubts: dict[str, list[str]] = {}
    for task in resolved:
        for offsets in task.stores:
            reasons = [str(reason) for reason in task.unclean if reason.store in (None, offsets.store.name)]
            if offsets.uneven:
                reasons.append(f"{task.task.name}/{offsets.store.name}: its segments were not flushed together")
            doubts.setdefault(offsets.store.name, []).extend([*reasons, *behind.get(task.task.name, ())])
    seeded = {store.name for store in directories.stores}
    return replace(directories, doubts={store: tuple(why) for store, why in doubts.items() if why and store in seeded})


def _first_offsets(
    task: TaskOffsets, topics: Collection[str], committed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset of each input of a task that its stores have not reached."""
    partition = task.task.partition or 0
    reached = _reached(task)
    firsts = {}
    for topic in sorted(topics):
        key = TopicPartition(topic, partition)
        first = reached.get(topic, {}).get(partition, -1) + 1
        # A topic with fewer partitions than there are tasks has none for this one.
        if key in committed or first:
            firsts[key] = first
    return firsts


def _behind(
    resolved: Sequence[TaskOffsets],
    topics: Mapping[Subtopology, Collection[str]],
    connection: Connection,
    committed: Mapping[TopicPartition, CommittedOffset],
) -> dict[str, list[str]]:
    """Return, by task, the inputs of which updates may be missing, with their offsets."""
    inputs = {task.task.name: _first_offsets(task, topics[task.task.sub_topology], committed) for task in resolved}
    firsts = _merged(inputs.values())
    # A transaction marker has an offset and is no record, so the log is read between Position and committed offset.
    ends = {key: committed[key].offset for key in firsts if key in committed}
    requests = {key: ({firsts[key]}, end) for key, end in ends.items() if firsts[key] < end}
    tails = read_tails(connection.bootstrap, connection.settings, requests, committed=True)
    # A consumer of committed records ends at an open transaction, without an error.
    logs = ask_broker(
        connection.bootstrap,
        connection.settings,
        group=None,
        topics=sorted({key.topic for key in requests}),
        stable=True,
    )
    unstable = {key for key in requests if key not in logs or (logs[key].stable_end or 0) < ends[key]}
    behind: dict[str, list[str]] = {}
    idle = _without_input([task for task in resolved if not inputs[task.task.name]], topics, connection)
    for name, keys in inputs.items():
        behind[name] = [
            f"{name}: {_difference(key, firsts[key], ends.get(key))}"
            for key in keys
            if key in unstable or not _is_read(firsts[key], ends.get(key), tails.get(key))
        ]
        if not keys and name not in idle:
            behind[name].append(
                f"{name}: the group has no committed offsets for its input topics, so kstate does not know whether "
                "the task is complete"
            )
    return behind


def _merged(inputs: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    return {key: first for of_task in inputs for key, first in of_task.items()}


def _is_read(first: int, end: int | None, tail: Tail | None) -> bool:
    """Return whether a task has read everything: nothing but markers is between its offset and the committed one."""
    return end is not None and (first == end or (tail is not None and tail.records(first, end) == 0))


def _without_input(
    resolved: Sequence[TaskOffsets], topics: Mapping[Subtopology, Collection[str]], connection: Connection
) -> set[str]:
    """Return the tasks whose input partitions never had a record: no update of them can be missing.

    A group commits no offset of such a partition. If records were deleted from the log, the task may have read them.
    """
    keys = {
        task.task.name: [TopicPartition(topic, task.task.partition or 0) for topic in topics[task.task.sub_topology]]
        for task in resolved
    }
    partitions = {key for inputs in keys.values() for key in inputs}
    logs = ask_broker(
        connection.bootstrap, connection.settings, group=None, topics=sorted({key.topic for key in partitions})
    )
    # Aborted records and markers have offsets too, so a log with an end is read.
    requests = {key: ({0}, log.end) for key, log in logs.items() if key in partitions and log.start == 0 and log.end}
    tails = read_tails(connection.bootstrap, connection.settings, requests, committed=True)

    def is_empty(key: TopicPartition) -> bool:
        log = logs.get(key)
        if log is None or log.start:
            return False
        return not log.end or (key in tails and tails[key].records(0, log.end) == 0)

    return {name for name, inputs in keys.items() if inputs and all(map(is_empty, inputs))}


def _difference(key: TopicPartition, first: int, end: int | None) -> str:
    """Return what differs between the Position of a task, which ends before ``first``, and the committed offset."""
    if end is None:
        return f"the group has no committed offset for {key}, but the task's Position is {first - 1}"
    if first > end:
        return (
            f"the Position for {key} is {first - 1}, but the group continues at offset {end}, so the application would "
            "process the records in between twice"
        )
    return f"updates from offsets {first} to {end - 1} of {key} may be missing"


def _reached(task: TaskOffsets) -> Mapping[str, Mapping[int, int]]:
    """Return how far the stores of a task have read its inputs: the one that has read furthest counts.

    All stores of a task are closed together. A store of which the last records changed nothing stays behind.
    """
    position = Position.empty()
    for offsets in task.stores:
        position = position.merge(position_reached(offsets.store))
    return position.as_map()


def refuse_doubts(directories: SeedDirectories, accepted: Collection[str]) -> Iterator[UsageError | Refused]:
    """Yield why the directories are refused: stores that may lack updates, and that the user has not accepted."""
    # Tables without a changelog of their own may differ on another cluster.
    tables = {store.name for store in directories.spec.stores if store.changelog is not None}
    seeded = {store.name for store in directories.stores}
    unknown = sorted({name.removesuffix(KEYS_OF) for name in accepted} - tables - seeded)
    if unknown:
        yield UsageError(
            f"{option.ACCEPT} {quoted(unknown[0])}: kstate writes no changelog for a store with this name",
            hint=hint_with_suggestion(
                did_you_mean(unknown, sorted(store.name for store in directories.stores)),
                "pass the name of a store with a changelog",
            ),
        )
    open_doubts = {store: why for store, why in directories.doubts.items() if store not in accepted}
    if open_doubts:
        lines = dict.fromkeys(reason for why in open_doubts.values() for reason in why)
        yield Refused(
            f"updates may be missing from {plural(len(open_doubts), 'store')}: {some(sorted(open_doubts), _MOST)}",
            details=first_lines(list(lines)),
            hint="pass the directory of the host that had the active task. If you are sure that these stores are "
            f"complete, or you accept the loss, pass {option.ACCEPT} STORE for each store",
        )
