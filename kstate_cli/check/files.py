"""The entries of task directories: unreadable files, foreign entries, leftovers, stores in two sub-topologies.

Some releases give each supplier of a StoreBuilder a copy of the store, others one store for all (KAFKA-20464). Such
copies and the copy of a task directory look alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kstate_cli import streams_log
from kstate_cli.check.codes.layout import (
    DROPPED_LINE,
    FOREIGN_IN_SEGMENTS,
    FOREIGN_IN_TASK,
    LEFTOVER_FILE,
    LOCK_FILE_IN_TASK,
    MALFORMED_CHECKPOINT,
    MALFORMED_POSITION,
    MALFORMED_STORE_CHECKPOINT,
    OLD_SEGMENT_NAME,
    SHARED_STORE_REGROUPED,
    STORE_IN_TWO_SUBTOPOLOGIES,
)
from kstate_cli.check.codes.topology import STORE_ELSEWHERE
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.rule import Obstacle, java_text
from kstate_cli.check.snapshot import Snapshot, subtopology
from kstate_cli.formats.binary import MAX_I32, MalformedBytesError
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.patch_releases import SHARED_STORE_BUILDER, old_releases
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.model import CheckpointFile, Store, Task
from kstate_cli.statedir.names import (
    CHECKPOINT,
    LOCK,
    ROCKSDB,
    is_offsets_file,
    position_file,
    segment_start,
    store_checkpoint,
)
from kstate_cli.texts import some

_RAW = frozenset({"NumberFormatException", "IllegalArgumentException"})
"""Not IOExceptions: these also escape where the offsets of tasks are summed up for a rebalance."""
ObstacleAndFindings = tuple[Obstacle | None, tuple[Finding, ...]]
"""The obstacle, if there is one, and the findings."""
_NOTHING: ObstacleAndFindings = (None, ())


def unreadable(file: CheckpointFile | None) -> MalformedBytesError | None:
    """Return the error of ``OffsetCheckpoint.read`` for a file; None if it can read it."""
    if file is None:
        return None
    error = file.error
    # A file that only kstate cannot read is refused before any rule runs, but for a negative partition.
    if isinstance(error, MalformedBytesError) and error.streams_exception is not None:
        return error
    return None


def checkpoint_obstacle(snapshot: Snapshot, task: Task) -> ObstacleAndFindings:
    """Judge the ``.checkpoint`` of a task or of the global stores: unreadable, or with lines that Streams drops."""
    if task.checkpoint is None:
        return _NOTHING
    error = unreadable(task.checkpoint)
    if error is None:
        # OffsetCheckpoint.read skips a negative offset with a warning, and takes the other lines.
        dropped: Sequence[str] = ()
        if task.checkpoint.content:
            dropped = task.checkpoint.content.dropped
        texts = (f"{task.name}/{CHECKPOINT}: {line!r}" for line in dropped)
        return None, tuple(snapshot.finding(DROPPED_LINE, text, task) for text in texts)
    text = f"{task.name}/{CHECKPOINT}: {error.reason}"
    java = java_text(error)
    if snapshot.request.into_family:
        label = task.path.name
        if task.is_global:
            label = "null"  # Java prints the missing TaskId of a global store so
        messages: tuple[str, ...] = (streams_log.CHECKPOINT_NOT_MIGRATED.format(label), java)
    elif error.streams_exception in _RAW:
        messages = (java,)
    elif task.is_global:
        messages = (streams_log.GLOBAL_CHECKPOINT_NOT_READ, java)
    else:
        messages = (streams_log.CHECKPOINT_NOT_LOADED, java)
    obstacle = Obstacle(MALFORMED_CHECKPOINT, text, f"{task.name}/{CHECKPOINT}", messages)
    return obstacle, (snapshot.finding(MALFORMED_CHECKPOINT, text, task),)


def store_file_obstacle(snapshot: Snapshot, task: Task, store: Store) -> ObstacleAndFindings:
    """Judge ``<store>.position``, and ``.checkpoint_<store>`` of a store that does not keep its own offsets."""
    if (error := unreadable(store.position_file)) is not None:
        file = f"{task.name}/{position_file(store.name)}"
        text = f"{file}: {error.reason}"
        messages: tuple[str, ...] = (streams_log.POSITION_NOT_READ, java_text(error))
        if error.streams_exception in _RAW:
            # StoreQueryUtils only wraps IOExceptions.
            messages = messages[1:]
        obstacle = Obstacle(MALFORMED_POSITION, text, file, messages)
        return obstacle, (snapshot.finding(MALFORMED_POSITION, text, task, store.name),)
    # Only LegacyCheckpointingStateStore of 4.3 reads that file, and only for stores that manage no offsets themselves.
    if not snapshot.request.into_family or not store.is_grace_buffer:
        return _NOTHING
    if (error := unreadable(store.store_file)) is not None:
        file = f"{task.name}/{store_checkpoint(store.name)}"
        text = f"{file}: {error.reason}"
        message = streams_log.STORE_CHECKPOINT_NOT_LOADED.format(store.name)
        obstacle = Obstacle(MALFORMED_STORE_CHECKPOINT, text, file, (message, java_text(error)))
        return obstacle, (snapshot.finding(MALFORMED_STORE_CHECKPOINT, text, task, store.name),)
    return _NOTHING


def segment_obstacle(snapshot: Snapshot, task: Task, store: Store) -> ObstacleAndFindings:
    """Judge the entries in the folder of a segmented store: each must have the name of a segment."""
    findings: list[Finding] = []
    for name in snapshot.segments.get(store.path, ()):
        label = f"{task.name}/{store.name}/{name}"
        if segment_start(store.name, name) is None:
            if name[len(store.name) : len(store.name) + 1] == "-":
                continue  # a date that does not parse: skipped with a warning
            text = f"{label} is not a segment"
            message = streams_log.NO_SEGMENT_ID.format(name)
            # The name is cut at the length of the store's, whatever it begins with.
            if len(name) <= len(store.name):
                message = streams_log.SEGMENT_NAME_TOO_SHORT
            obstacle = Obstacle(FOREIGN_IN_SEGMENTS, text, label, (message,))
            return obstacle, (*findings, snapshot.finding(FOREIGN_IN_SEGMENTS, text, task, store.name))
        # An older separator, or a date in place of the number: the start renames the folder.
        if name[len(store.name)] != ".":
            findings.append(snapshot.finding(OLD_SEGMENT_NAME, f"Streams renames {label}", task, store.name))
    return None, tuple(findings)


def foreign_entries(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Yield findings about entries that Streams ignores or deletes, or that a crash left."""
    names = {store.name for store in task.stores} | {ROCKSDB} | set(snapshot.resolved[task.name].absent)
    # A store that only kstate cannot read is no foreign entry.
    names |= {problem.place.in_task[0] for problem in task.problems if problem.unknown and problem.place.in_task}
    if snapshot.homes is not None:
        # Its own rule reports a store that the topology has in another task.
        names |= snapshot.homes.elsewhere.get(task.name, {}).keys()
    for name in sorted(snapshot.entries[task.name]):
        label = f"{task.name}/{name}"
        if name.endswith(LOCK):
            yield snapshot.finding(LOCK_FILE_IN_TASK, f"Streams will delete {label}", task)
        elif name in task.leftovers:
            yield snapshot.finding(LEFTOVER_FILE, f"a crash left {label}", task)
        elif name not in names and not is_offsets_file(name):
            yield snapshot.finding(FOREIGN_IN_TASK, f"Streams did not create {label}", task)


@dataclass(frozen=True, slots=True)
class Doubles:
    """Stores that are in two sub-topologies, and the tasks that follow from them."""

    copies: frozenset[str] = frozenset()
    """Directories that are copies of tasks."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """By named topology, empty without one, the lowest of the sub-topologies that may have a copy of a store each."""
    findings: tuple[Finding, ...] = ()


def stores_in_two(snapshot: Snapshot) -> Doubles:
    """Return what follows from stores that are in two sub-topologies.

    If each has stores of its own, they may have one StoreBuilder. Otherwise one directory is a copy of another, more
    likely that of the higher number.
    """
    findings: list[Finding] = []
    shared: dict[str, int] = {}
    higher: set[tuple[str | None, int]] = set()
    for (topology, numbers), names in _names_by_numbers(snapshot).items():
        if have_copies(snapshot, numbers, topology):
            findings.append(suspected(snapshot, names, numbers))
            shared[topology or ""] = min(numbers[0], shared.get(topology or "", numbers[0]))
        else:
            findings.append(_copied_directory(snapshot, names, numbers))
            # Which one is the copy nothing states: see the docstring.
            higher.add((topology, numbers[-1]))
    copies = (task.name for task in snapshot.app.tasks if not task.is_global and subtopology(task) in higher)
    return Doubles(frozenset(copies), shared, tuple(findings))


def _names_by_numbers(snapshot: Snapshot) -> dict[tuple[str | None, tuple[int, ...]], list[str]]:
    """Return the stores that several sub-topologies have: named topology and their numbers -> names, in this order."""
    owners: dict[tuple[str | None, str], set[int]] = {}
    for task in snapshot.app.tasks:
        topology, number = subtopology(task)
        if number is not None:
            for store in task.stores:
                owners.setdefault((topology, store.name), set()).add(number)
    together: dict[tuple[str | None, tuple[int, ...]], list[str]] = {}
    # Sorted, so that findings have one order whatever the order of the directory is.
    for (topology, name), numbers in sorted(owners.items(), key=lambda entry: (entry[0][0] or "", entry[0][1])):
        if len(numbers) > 1:
            together.setdefault((topology, tuple(sorted(numbers))), []).append(name)
    return dict(sorted(together.items(), key=lambda entry: entry[0][1]))


def _copied_directory(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[int]) -> Finding:
    text = f"{', '.join(names)}: in several sub-topologies, {' and '.join(map(str, numbers))}"
    if not (snapshot.request.into_family and snapshot.has_global):
        return snapshot.finding(STORE_IN_TWO_SUBTOPOLOGIES, text)
    text += f": {snapshot.request.release} also opens the global stores in the wrong one, and fails to start"
    return snapshot.finding(STORE_IN_TWO_SUBTOPOLOGIES, text, level=Level.ERROR)


_MOST_NAMES: Final = 5
_KEEPS: Final = (Outcome.OPENS, Outcome.RESTORES)
"""The rows of the store stay."""


def have_copies(snapshot: Snapshot, numbers: Sequence[int], topology: str | None) -> bool:
    """Return whether each of these sub-topologies has a store with rows that none of the others has.

    A copy of a task directory has nothing of its own. A StoreBuilder of several suppliers leaves such directories, and
    so does a topology that was changed: nothing here distinguishes the two.
    """
    stores: dict[int, set[str]] = {}
    for task in snapshot.app.tasks:
        if not task.is_global and task.id.topology == topology and task.id.subtopology in numbers:
            assert task.id.subtopology is not None
            # Empty stores count as none: a failed start leaves their folders.
            stores.setdefault(task.id.subtopology, set()).update(store.name for store in task.stores if not store.empty)
    for number in numbers:
        others = set().union(*(stores.get(other, set()) for other in numbers if other != number))
        if not stores.get(number, set()) - others:
            return False
    return True


def suspected(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[int]) -> Finding:
    """Return the finding about stores of several sub-topologies, if the user names no topology."""
    release = snapshot.request.release
    where = f"{some(list(names), _MOST_NAMES)}: in the sub-topologies {' and '.join(map(str, numbers))} at once"
    writers = old_releases(SHARED_STORE_BUILDER)
    writer_clause = f"if a release {writers} wrote this directory, several suppliers return one StoreBuilder"
    does = {
        True: f"{release.version} puts them into one sub-topology: numbers change, and Streams restores all "
        "stores that move",
        False: f"{release.version} does the same",
        None: f"the patch release of {release} that is started decides whether it puts them into one sub-topology",
    }[release.is_new(SHARED_STORE_BUILDER)]
    other = "otherwise the topology was changed, and one of the directories is obsolete"
    return snapshot.finding(SHARED_STORE_REGROUPED, f"{where}; {writer_clause}: {does}; {other}")


def doubted(snapshot: Snapshot, predictions: Sequence[Prediction], lowest: Mapping[str, int]) -> list[Prediction]:
    """Return the predictions with what else may come, for tasks from the first of the shared sub-topologies on.

    ``lowest``: by named topology, empty without one, the lowest number of a sub-topology that has a copy.
    """
    # A release that groups them otherwise looks for stores in other tasks, which then lack their offsets.
    other = snapshot.request.outcome_of_corruption
    if snapshot.request.release.is_new(SHARED_STORE_BUILDER) is False:
        other = Outcome.IGNORED
    changed = []
    for prediction in predictions:
        task = TaskId.parse(prediction.task)
        # Sub-topologies before the first shared one keep their numbers, so their tasks keep their stores.
        touched = (
            bool(lowest) and not task.is_global and (task.subtopology or 0) >= lowest.get(task.topology or "", MAX_I32)
        )
        alone = touched and prediction.or_else is None and prediction.outcome in (*_KEEPS, Outcome.RESTORES_ALL)
        if alone and prediction.outcome is not other:
            # No chance: the user's code decides, which kstate does not see.
            code = prediction.code or SHARED_STORE_REGROUPED
            prediction = replace(prediction, or_else=other, by_chance=False, code=code)
        changed.append(prediction)
    return changed


def regrouped(snapshot: Snapshot, predictions: Sequence[Prediction]) -> Iterator[Finding]:
    """Yield what the texts of both topologies show: copies that are not complete where they are to be opened."""
    topology = snapshot.request.topology
    if topology is None or topology.old is None:
        return
    keys = [key for key, homes in topology.old.copies.items() if homes != topology.new.places(key)]
    for key in keys:
        keeping = [prediction for prediction in predictions if _is_kept(key, prediction)]
        homes = ", ".join(map(str, topology.old.copies[key]))
        text = f"{key}: sub-topologies {homes} had a copy each, and each copy has its own records"
        text += (
            f". Releases {old_releases(SHARED_STORE_BUILDER)} do the same with one StoreBuilder of several suppliers"
        )
        level = None
        if keeping:
            # Rows of the other copies are missing silently, because the offset of the kept copy is that of one log.
            level = Level.ERROR
            tasks = some([prediction.task for prediction in keeping], _MOST_NAMES)
            text += f": {tasks} keeps the rows of one sub-topology, and Streams does not restore those of the others"
        finding = snapshot.finding(SHARED_STORE_REGROUPED, text, level=level)
        yield replace(finding, hint=snapshot.finding(STORE_ELSEWHERE, text).hint)


def _is_kept(key: StoreKey, prediction: Prediction) -> bool:
    task = TaskId.parse(prediction.task)
    return key == StoreKey(task.topology or "", prediction.store or "") and prediction.outcome in _KEEPS
