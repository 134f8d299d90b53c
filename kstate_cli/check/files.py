"""The entries of task directories: unreadable files, foreign entries, leftovers, stores in two sub-topologies.

If several suppliers return one StoreBuilder, some releases give each supplier a copy of the store, others one store for
all (KAFKA-20464). Such copies look like a copied task directory.
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
from kstate_cli.check.snapshot import Snapshot
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
"""Java exceptions that are no IOException.

They also escape when Streams adds up the offsets of tasks for a rebalance.
"""
ObstacleAndFindings = tuple[Obstacle | None, tuple[Finding, ...]]
"""The obstacle to a start (None if there is none), and the findings."""
_NOTHING: ObstacleAndFindings = (None, ())


def unreadable(file: CheckpointFile | None) -> MalformedBytesError | None:
    """Return the error that ``OffsetCheckpoint.read`` has for a file; None if it can read the file."""
    if file is None:
        return None
    error = file.error
    # A file that kstate cannot read, but Streams can, is refused before any rule runs, except for a negative partition.
    if isinstance(error, MalformedBytesError) and error.streams_exception is not None:
        return error
    return None


def checkpoint_obstacle(snapshot: Snapshot, task: Task) -> ObstacleAndFindings:
    """Judge the ``.checkpoint`` of a task or of the global stores: unreadable, or with lines that Streams drops."""
    if task.checkpoint is None:
        return _NOTHING
    error = unreadable(task.checkpoint)
    if error is None:
        # OffsetCheckpoint.read logs a warning for a negative offset, skips its line, and reads the others.
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
            label = "null"  # a global store has no TaskId, so Java prints null
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
    """Judge the files of one store: ``<store>.position``, and ``.checkpoint_<store>`` if the release reads it."""
    if (error := unreadable(store.position_file)) is not None:
        file = f"{task.name}/{position_file(store.name)}"
        text = f"{file}: {error.reason}"
        messages: tuple[str, ...] = (streams_log.POSITION_NOT_READ, java_text(error))
        if error.streams_exception in _RAW:
            # Streams (StoreQueryUtils) wraps only IOExceptions in its own message. Other exceptions are printed alone.
            messages = messages[1:]
        obstacle = Obstacle(MALFORMED_POSITION, text, file, messages)
        return obstacle, (snapshot.finding(MALFORMED_POSITION, text, task, store.name),)
    # Only 4.3 reads that file (LegacyCheckpointingStateStore), and only for stores that have no offsets in their
    # database.
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
                continue  # Streams cannot parse the date, logs a warning, and skips the folder
            text = f"{label} is not a segment"
            message = streams_log.NO_SEGMENT_ID.format(name)
            # Streams cuts off as many characters as the name of the store has, without comparing them. A shorter name
            # fails there.
            if len(name) <= len(store.name):
                message = streams_log.SEGMENT_NAME_TOO_SHORT
            obstacle = Obstacle(FOREIGN_IN_SEGMENTS, text, label, (message,))
            return obstacle, (*findings, snapshot.finding(FOREIGN_IN_SEGMENTS, text, task, store.name))
        # The name has an older separator, or a date instead of a number. A start renames the folder.
        if name[len(store.name)] != ".":
            findings.append(snapshot.finding(OLD_SEGMENT_NAME, f"Streams renames {label}", task, store.name))
    return None, tuple(findings)


def foreign_entries(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Yield findings about entries in a task that Streams ignores or deletes, or that a crash has left."""
    names = {store.name for store in task.stores} | {ROCKSDB} | set(snapshot.resolved[task.name].absent)
    # A store that kstate cannot read is not foreign, because Streams may be able to read it.
    names |= {problem.place.in_task[0] for problem in task.problems if problem.unknown and problem.place.in_task}
    if snapshot.homes is not None:
        # Stores that the topology has in another task are excluded, because another rule reports them.
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
    """The consequences of stores that are in two sub-topologies."""

    copies: frozenset[str] = frozenset()
    """Names of task directories that are copies of others."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Named topology ("" for none) -> the lowest sub-topology of those that may each have a copy of one store."""
    findings: tuple[Finding, ...] = ()


def stores_in_two(snapshot: Snapshot) -> Doubles:
    """Return the findings and consequences of stores that are in two sub-topologies.

    If each of the sub-topologies also has a store that the others lack, they may have one StoreBuilder. Otherwise one
    of the directories is probably a copy, and the one with the highest number is assumed to be it.
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
            # Nothing on disk shows which directory is the copy, so the one with the highest number is assumed to be it.
            higher.add((topology, numbers[-1]))
    copies = (task.name for task in snapshot.app.tasks if not task.is_global and task.sub_topology in higher)
    return Doubles(frozenset(copies), shared, tuple(findings))


def _names_by_numbers(snapshot: Snapshot) -> dict[tuple[str | None, tuple[int, ...]], list[str]]:
    """Return the stores that several sub-topologies have, as (named topology, their numbers) -> names of stores."""
    owners: dict[tuple[str | None, str], set[int]] = {}
    for task in snapshot.app.tasks:
        topology, number = task.sub_topology
        if number is not None:
            for store in task.stores:
                owners.setdefault((topology, store.name), set()).add(number)
    together: dict[tuple[str | None, tuple[int, ...]], list[str]] = {}
    # Sorted, so that the order of the findings does not depend on the order of the directory.
    for (topology, name), numbers in sorted(owners.items(), key=lambda entry: (entry[0][0] or "", entry[0][1])):
        if len(numbers) > 1:
            together.setdefault((topology, tuple(sorted(numbers))), []).append(name)
    return dict(sorted(together.items(), key=lambda entry: entry[0][1]))


def _copied_directory(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[int]) -> Finding:
    text = f"several sub-topologies ({' and '.join(map(str, numbers))}) contain {', '.join(names)}"
    if not (snapshot.request.into_family and snapshot.has_global):
        return snapshot.finding(STORE_IN_TWO_SUBTOPOLOGIES, text)
    text += f". {snapshot.request.release} also opens the global stores in the wrong sub-topology, so it fails to start"
    return snapshot.finding(STORE_IN_TWO_SUBTOPOLOGIES, text, level=Level.ERROR)


_MOST_NAMES: Final = 5
_KEEPS: Final = (Outcome.OPENS, Outcome.RESTORES)
"""Outcomes in which the existing rows of the store stay."""


def have_copies(snapshot: Snapshot, numbers: Sequence[int], topology: str | None) -> bool:
    """Return whether each of these sub-topologies has a store with rows that none of the others has.

    A copied task directory has no such store. If it returns True, the directories come from a StoreBuilder of several
    suppliers, or from a topology that was changed since. Nothing on disk distinguishes these two.
    """
    stores: dict[int, set[str]] = {}
    for task in snapshot.app.tasks:
        if not task.is_global and task.id.topology == topology and task.id.subtopology in numbers:
            assert task.id.subtopology is not None
            # Stores without rows do not count, because a failed start leaves their folders.
            stores.setdefault(task.id.subtopology, set()).update(store.name for store in task.stores if not store.empty)
    for number in numbers:
        others = set().union(*(stores.get(other, set()) for other in numbers if other != number))
        if not stores.get(number, set()) - others:
            return False
    return True


def suspected(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[int]) -> Finding:
    """Return the finding about stores in several sub-topologies if the user has not specified the topology."""
    release = snapshot.request.release
    where = f"the sub-topologies {' and '.join(map(str, numbers))} each contain {some(list(names), _MOST_NAMES)}"
    writers = old_releases(SHARED_STORE_BUILDER)
    writer_clause = (
        f"If a release {writers} wrote this directory, the suppliers of several processors return the same StoreBuilder"
    )
    does = {
        True: (
            f"{release.version} puts these processors into one sub-topology, so the task numbers change, and Streams "
            "restores all stores that move"
        ),
        False: f"{release.version} also keeps these processors in separate sub-topologies",
        None: f"Whether these processors are in one sub-topology depends on the patch release of {release}",
    }[release.is_new(SHARED_STORE_BUILDER)]
    other = "Otherwise, the topology was changed, and one of the directories is obsolete"
    return snapshot.finding(SHARED_STORE_REGROUPED, f"{where}. {writer_clause}. {does}. {other}")


def doubted(snapshot: Snapshot, predictions: Sequence[Prediction], lowest: Mapping[str, int]) -> list[Prediction]:
    """Return the predictions, with another possible outcome for tasks whose stores the release may group otherwise.

    ``lowest`` has, by named topology ("" for none), the lowest sub-topology that may have a copy of a shared store.
    """
    # If the release groups the stores otherwise, it looks for them in other tasks, where their offsets are missing.
    # ``other`` is the outcome then.
    other = snapshot.request.outcome_of_corruption
    if snapshot.request.release.is_new(SHARED_STORE_BUILDER) is False:
        other = Outcome.IGNORED
    changed = []
    for prediction in predictions:
        task = TaskId.parse(prediction.task)
        # Sub-topologies with lower numbers keep their numbers, so the stores stay in their tasks.
        touched = (
            bool(lowest) and not task.is_global and (task.subtopology or 0) >= lowest.get(task.topology or "", MAX_I32)
        )
        alone = touched and prediction.or_else is None and prediction.outcome in (*_KEEPS, Outcome.RESTORES_ALL)
        if alone and prediction.outcome is not other:
            # by_chance is False, because the code of the user decides this, which kstate does not see.
            code = prediction.code or SHARED_STORE_REGROUPED
            prediction = replace(prediction, or_else=other, by_chance=False, code=code)
        changed.append(prediction)
    return changed


def regrouped(snapshot: Snapshot, predictions: Sequence[Prediction]) -> Iterator[Finding]:
    """Yield findings about shared stores whose copies are incomplete where the new topology opens them.

    Only the texts of both topologies show that, so there are none without the text of the old one.
    """
    topology = snapshot.request.topology
    if topology is None or topology.old is None:
        return
    keys = [key for key, homes in topology.old.copies.items() if homes != topology.new.places(key)]
    for key in keys:
        keeping = [prediction for prediction in predictions if _is_kept(key, prediction)]
        homes = ", ".join(map(str, topology.old.copies[key]))
        text = f"the sub-topologies {homes} each had a copy of {key} with different records"
        text += (
            f". Releases {old_releases(SHARED_STORE_BUILDER)} create such copies if the suppliers of several "
            "processors return the same StoreBuilder"
        )
        level = None
        if keeping:
            # The kept copy has the offset of the log that all copies wrote to. So the rows of the others are silently
            # missing.
            level = Level.ERROR
            tasks = some([prediction.task for prediction in keeping], _MOST_NAMES)
            text += (
                f". In {tasks}, Streams keeps only one sub-topology's rows and does not restore the rows of the others"
            )
        finding = snapshot.finding(SHARED_STORE_REGROUPED, text, level=level)
        yield replace(finding, hint=snapshot.finding(STORE_ELSEWHERE, text).hint)


def _is_kept(key: StoreKey, prediction: Prediction) -> bool:
    task = TaskId.parse(prediction.task)
    return key == StoreKey(task.topology or "", prediction.store or "") and prediction.outcome in _KEEPS
