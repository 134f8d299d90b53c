"""Rules for stores and tasks that the requested topology has in another task than the directory, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kstate_cli import streams_log
from kstate_cli.check.codes.offsets import STORE_MISSING
from kstate_cli.check.codes.surroundings import OLDER_THAN_MAX_AGE
from kstate_cli.check.codes.topology import (
    COPY_DELETED,
    LEFT_OVER_TASK,
    MOVED_WITHOUT_CHANGELOG,
    NAME_OF_ANOTHER_OPERATOR,
    NEW_STORE,
    REHOME_REFUSED,
    REHOME_WARNS,
    STORE_ELSEWHERE,
    STORE_NOT_IN_TOPOLOGY,
    UNKNOWN_TOPOLOGY,
)
from kstate_cli.check.files import checkpoint_obstacle
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.ranges import read_offsets
from kstate_cli.check.rule import Obstacle, StoreCheckDraft, TaskCheckDraft, judged, with_store
from kstate_cli.check.snapshot import Homes, RequestedTopology, Snapshot
from kstate_cli.check.stores import STORE_RULES
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.specification.homes import StoreKey, of_another_operator
from kstate_cli.specification.topology import Subtopology
from kstate_cli.statedir.model import Task
from kstate_cli.texts import some

_LISTED_NAMES: Final = 5


def lacked(snapshot: Snapshot, task: Task, name: str) -> Finding:
    """Return the finding about a store that a task lacks."""
    missing = None
    if snapshot.homes is not None:
        missing = snapshot.homes.missing[task.name].get(name)
    if missing is None or not (missing.other_task or missing.new):
        text = "this task lacks the store, but other tasks of the sub-topology have it"
        return snapshot.finding(STORE_MISSING, text, task, name)
    if missing.other_task:
        text = f"the store is in {missing.other_task}, but the topology has it in {task.name}"
        return snapshot.finding(STORE_ELSEWHERE, text, task, name)
    costs = snapshot.request.exactly_once and not snapshot.task_is_empty(task)
    costs = costs and not has_line(snapshot, snapshot.resolved[task.name].absent.get(name, {}))
    text = "no task in this directory has the store, so it is new"
    if missing.on_disk is None:
        text += ", in memory, or on another host"
    if not costs:
        # Streams creates the store empty. Its changelog is new and empty too, so nothing is restored.
        return snapshot.finding(NEW_STORE, text, task, name, Level.EXPECTED)
    if missing.on_disk is None:
        text += ". If the store is in memory, its task is not affected"
    return snapshot.finding(NEW_STORE, text, task, name)


def has_line(snapshot: Snapshot, lines: Mapping[TopicPartition, int]) -> bool:
    """Return True if ``.checkpoint`` has an offset of a store without a directory: then it costs its task nothing.

    −4 is one up to 4.2; from 4.3 on it is not taken over.
    """
    return any(offset != OFFSET_UNKNOWN or not snapshot.request.into_family for offset in lines.values())


def left_behind(snapshot: Snapshot, task: Task, *, wiped: bool) -> tuple[tuple[Prediction, ...], tuple[Finding, ...]]:
    """Return the predictions and findings for stores of a task that the topology has elsewhere, or not at all.

    ``wiped``: the start deletes the directory of the task.
    """
    homes = snapshot.homes
    if homes is None:
        return (), ()
    predictions, findings = [], []
    for name, home in sorted(homes.elsewhere.get(task.name, {}).items()):
        lost = (task.name, name) in homes.unlogged
        # Without a changelog the rows exist only here. So nothing restores them in the task in which the topology has
        # the store.
        bad = Level.ERROR if lost else None
        code = STORE_ELSEWHERE
        if home is None or lost:
            code, text = MOVED_WITHOUT_CHANGELOG, f"the topology has the store in {home}"
            if home is None:
                code, text = STORE_NOT_IN_TOPOLOGY, "the topology does not contain this store"
            if lost:
                text += ", and no offset shows that the store has a changelog"
            findings.append(snapshot.finding(code, text, task, name, bad))
        elif name not in homes.missing.get(home, {}):
            findings.append(
                snapshot.finding(
                    code, f"the store is an unused copy, because Streams uses the one in {home}", task, name
                )
            )
        if wiped:
            code = COPY_DELETED
            text = (
                "Under exactly-once, Streams deletes this task together with this store. The topology has the store in "
                "a different task or no longer has it"
            )
            findings.append(snapshot.finding(code, text, task, name, bad))
        predictions.append(Prediction(task.name, name, Outcome.IGNORED, code=code))
    return tuple(predictions), tuple(findings)


def topology_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the findings about the requested topology as a whole; none if no topology was requested."""
    homes, topology = snapshot.homes, snapshot.request.topology
    if homes is None or topology is None:
        return
    for name in homes.global_unused:
        text = "the topology does not contain this global store, so the store remains unchanged"
        yield snapshot.finding(STORE_NOT_IN_TOPOLOGY, text, _global(snapshot), name, Level.EXPECTED)
    for name in homes.global_missing:
        text = "the directory does not have this global store, so Streams reads its whole topic"
        yield replace(snapshot.finding(NEW_STORE, text, level=Level.EXPECTED), task=GLOBAL, store=name)
    # No store of these sub-topologies is in the directory, so their partitions, and so their tasks, are unknown.
    for key in homes.unplaced:
        if topology.is_on_disk(key.store) is not False and not (topology.old is not None and key in topology.old.homes):
            text = f"the directory contains no store from the sub-topology of {key}"
            yield snapshot.finding(NEW_STORE, text, level=Level.EXPECTED)
    yield from _of_other_operators(snapshot, homes)
    preview = topology.rehome
    if preview.refusal is not None:
        finding = snapshot.finding(REHOME_REFUSED, preview.refusal)
        # rehome has examined this directory, so its hint is more exact than that of the code.
        yield replace(finding, hint=preview.hint or finding.hint)
    for warning in preview.warnings:
        yield snapshot.finding(REHOME_WARNS, warning)


def _global(snapshot: Snapshot) -> Task | None:
    return next((task for task in snapshot.app.tasks if task.name == GLOBAL), None)


def _of_other_operators(snapshot: Snapshot, homes: Homes) -> Iterator[Finding]:
    """Yield a finding about generated names of another operator: Streams takes their rows and changelog for its own."""
    topology = snapshot.request.topology
    if topology is None or topology.old is None:
        return
    new, old = topology.new, topology.old
    keys = sorted(new.homes.keys() & old.homes.keys())
    names = [str(key) for key in keys if key.store in homes.stores and of_another_operator(key, new, old)]
    if names:
        text = f"in the previous topology, another operator had created {some(names, _LISTED_NAMES)}"
        yield snapshot.finding(NAME_OF_ANOTHER_OPERATOR, text)


def judge_left_over_task(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """Judge a directory of a sub-topology that the topology does not have, and its effect on the start.

    Up to 4.2 it remains until the cleaner deletes it. From 4.3 on, a start opens every task that is not empty
    (``StateDirectory.initializeStartupStores``). For an unknown number it builds the whole topology, with the global
    stores (``InternalTopologyBuilder.buildSubtopology`` finds no group of nodes). For the number of a global store it
    builds only that store. In both cases it opens a global store for a second task, which its metrics do not allow
    (``RocksDBMetricsRecorder.init``). So the start fails.
    """
    topology = snapshot.request.topology
    assert topology is not None
    draft = TaskCheckDraft(task, read_offsets(snapshot, task))
    if snapshot.task_is_empty(task):
        return draft
    # An application with named topologies lists only the folders of their names (__name__/0_0), the others only their
    # own tasks.
    if _has_named_parts(topology) != (task.topology is not None):
        text = (
            "an application uses either named topologies or a topology without a name, and ignores tasks of the "
            "other kind"
        )
        return _ignored(
            snapshot, draft.with_findings(snapshot.finding(LEFT_OVER_TASK, text, task, level=Level.EXPECTED))
        )
    # Checked first, because StateDirectory.cleanOutdatedDirsOnStartup deletes old directories before any store is
    # opened.
    if _deleted(snapshot, task):
        text = f"Streams deletes {task.name} before it opens any store"
        return _ignored(snapshot, draft.with_findings(snapshot.finding(OLDER_THAN_MAX_AGE, text, task)))
    if snapshot.request.into_family:
        return _opened_at_start(snapshot, topology, draft)
    text = "the topology does not contain this sub-topology, so Streams' cleaner deletes the task"
    obstacle, findings = checkpoint_obstacle(snapshot, task)
    draft = draft.with_findings(snapshot.finding(LEFT_OVER_TASK, text, task), *findings)
    if obstacle is not None and len(obstacle.messages) == 1:
        # This exception is no IOException. So it already escapes when Streams adds up the offsets of all tasks.
        return _failing(snapshot, draft, _first_store(task), obstacle)
    return _ignored(snapshot, draft)


def _has_named_parts(topology: RequestedTopology) -> bool:
    return any(part.topology is not None for part in topology.new.text.subtopologies)


def _deleted(snapshot: Snapshot, task: Task) -> bool:
    request = snapshot.request
    if not request.into_family or request.max_age is None:
        return False
    return snapshot.now_seconds - task.mtime_ns / 1e9 > request.max_age.total_seconds()


def _opened_at_start(snapshot: Snapshot, topology: RequestedTopology, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge the directory of an unknown sub-topology for 4.3 and later, which opens it."""
    task = draft.task
    parts = [part for part in topology.new.text.subtopologies if part.topology == task.topology]
    # Streams (TopologyMetadata) looks up the named topology before it builds anything.
    if not parts:
        return _unknown_topology(snapshot, draft)
    global_parts = [part for part in parts if part.is_global and part.stores[0] in _global_stores(snapshot)]
    own = [part for part in global_parts if part.number == task.id.subtopology]
    # If a global store has this number, Streams builds only that store, and does not open the stores of the directory.
    if not own:
        draft = _with_opened_stores(snapshot, topology, draft)
        if draft.fails:
            name = next(iter(draft.fails))
            finding = snapshot.finding(LEFT_OVER_TASK, _builds(snapshot), task)
            return _failing(snapshot, draft.with_findings(finding), name, draft.fails[name])
    if not global_parts:
        text = f"{_builds(snapshot)}. Then the cleaner deletes the task"
        return _ignored(snapshot, draft.with_findings(snapshot.finding(LEFT_OVER_TASK, text, task)))
    return _second_opening(snapshot, topology, draft, own or global_parts, is_own=bool(own))


def _unknown_topology(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    task = draft.task
    text = f"the application does not have this named topology, so {snapshot.request.release} fails to start"
    message = streams_log.UNKNOWN_TOPOLOGY.format(streams_log.NO_BUILDER, task.topology)
    obstacle = Obstacle(UNKNOWN_TOPOLOGY, text, task.name, (message,))
    finding = snapshot.finding(UNKNOWN_TOPOLOGY, text, task)
    return _failing(snapshot, draft.with_findings(finding), _first_store(task), obstacle)


def _first_store(task: Task) -> str:
    if not task.stores:
        return task.name
    return task.stores[0].name


def _second_opening(
    snapshot: Snapshot,
    topology: RequestedTopology,
    draft: TaskCheckDraft,
    parts: Sequence[Subtopology],
    *,
    is_own: bool,
) -> TaskCheckDraft:
    """Judge a directory whose start opens global stores a second time, which fails.

    ``parts`` are the sub-topologies of these stores. ``is_own`` is True if the directory has the number of one of them.
    """
    task = draft.task
    names = [part.stores[0] for part in parts]
    or_else = None
    if is_own:
        text = f"{_builds(snapshot, task.id.subtopology)} a second time and fails to start"
    else:
        text = f"{_builds(snapshot)} with the global stores ({some(names, _LISTED_NAMES)}) and fails to start"
        if _corrupted_before(snapshot, topology, task, min(part.number for part in parts)):
            # A corrupted store may end the opening before a global store is reached. Then the start continues.
            or_else = Outcome.IGNORED
    if not any(name in _on_disk(snapshot) for name in names):
        text += ". These global stores are not in the directory. If they are in memory, startup does not fail"
        or_else = Outcome.IGNORED
    failing = draft.with_findings(snapshot.finding(LEFT_OVER_TASK, text, task, level=Level.ERROR))
    messages = (streams_log.ANOTHER_TASK.format(task.path.name),)
    return _failing(snapshot, failing, names[0], Obstacle(LEFT_OVER_TASK, text, task.name, messages), or_else)


def _builds(snapshot: Snapshot, number: int | None = None) -> str:
    """Return what the release builds in the directory; ``number`` is that of a global store."""
    if number is not None:
        return (
            f"in the topology, sub-topology {number} contains a global store, so {snapshot.request.release} builds "
            "this store"
        )
    return (
        f"the topology does not contain this sub-topology, so {snapshot.request.release} builds the whole "
        "topology for this task"
    )


def _global_stores(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the global stores that are on disk, or may be."""
    if snapshot.homes is not None:
        return snapshot.homes.global_on_disk
    return ()


def _on_disk(snapshot: Snapshot) -> set[str]:
    return {store.name for task in snapshot.app.tasks if task.is_global for store in task.stores}


def _with_opened_stores(snapshot: Snapshot, topology: RequestedTopology, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge the stores of the task that the topology has, as in any other task. Streams skips a corrupted one."""
    for store in draft.task.stores:
        # Streams does not open a folder whose store the topology does not have.
        if StoreKey(draft.task.topology or "", store.name) in topology.new.homes:
            store_draft = StoreCheckDraft(draft.task, store, draft.read.stores[store.name])
            draft = with_store(draft, judged(STORE_RULES, snapshot, store_draft))
    # Streams reads this file after it has opened all stores.
    obstacle, findings = checkpoint_obstacle(snapshot, draft.task)
    draft = draft.with_findings(*findings)
    if obstacle is not None and not draft.fails:
        draft = replace(draft, fails={draft.task.name: obstacle})
    return draft


def _corrupted_before(snapshot: Snapshot, topology: RequestedTopology, task: Task, first_global: int) -> bool:
    """Return True if a store with the status open may end the opening before a global store is reached.

    Streams opens stores in the order of their processors. The processors of a global store are numbered together. So
    those of a sub-topology with a higher number all come later. Those of a lower number may come before or after them.
    """
    homes = topology.new.homes
    return snapshot.request.exactly_once and any(
        store.status == "open" and home is not None and home.number < first_global
        for store in task.stores
        for home in (homes.get(StoreKey(task.topology or "", store.name)),)
    )


def _ignored(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    predictions, findings = left_behind(snapshot, draft.task, wiped=False)
    return replace(draft.with_findings(*findings), predictions=predictions)


def _failing(
    snapshot: Snapshot, draft: TaskCheckDraft, store: str, obstacle: Obstacle, or_else: Outcome | None = None
) -> TaskCheckDraft:
    """Return the draft of a task at which the start fails: at ``store``. The other stores are ignored."""
    task = draft.task
    failing = Prediction(
        task.name, store, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages, or_else, by_chance=False
    )
    others = _ignored(snapshot, draft)
    return replace(
        others, predictions=(failing, *(prediction for prediction in others.predictions if prediction.store != store))
    )
