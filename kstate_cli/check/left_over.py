"""Task directories of sub-topologies that the topology has not, which is asked about.

Up to 4.2 they lie there until the cleaner comes. From 4.3 on the start opens every task that is not empty
(``StateDirectory.initializeStartupStores``). For a number without a sub-topology it builds the whole topology
(``InternalTopologyBuilder.buildSubtopology`` finds no group of nodes), global stores included; for the number of a
global store that store alone. Either way the one instance of a global store is opened for a second task, which its
metrics do not allow (``RocksDBMetricsRecorder.init``): in the next such directory, or under its own.
"""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.check import streams_log
from kstate_cli.check.codes.surroundings import OLDER_THAN_MAX_AGE
from kstate_cli.check.codes.topology import LEFT_OVER_TASK, UNKNOWN_TOPOLOGY
from kstate_cli.check.files import checkpoint_obstacle
from kstate_cli.check.findings import Level
from kstate_cli.check.homes_told import left_behind
from kstate_cli.check.initial_offsets import read_offsets
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.rule import Obstacle, StoreCheckDraft, TaskCheckDraft, judged, opened
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.stores import STORE_RULES
from kstate_cli.check.topology import AskedTopology
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.model import Task
from kstate_cli.texts import some

_NAMED = 5


def judge_left_over(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """What becomes of such a directory, and of the start."""
    asked = snapshot.asked.topology
    assert asked is not None
    draft = TaskCheckDraft(task, read_offsets(snapshot, task))
    if snapshot.task_is_empty(task):
        return draft
    if _of_named(asked) != (task.topology is not None):
        text = "an application with named topologies looks at no others, and one without them at no named ones"
        return _ignored(snapshot, draft.told(snapshot.finding(LEFT_OVER_TASK, text, task, level=Level.EXPECTED)))
    if _deleted(snapshot, task):
        text = f"{task.name} is deleted before anything is opened"
        return _ignored(snapshot, draft.told(snapshot.finding(OLDER_THAN_MAX_AGE, text, task)))
    if snapshot.asked.into_family:
        return _opened(snapshot, asked, draft)
    text = "the topology has no such sub-topology: the cleaner deletes it"
    obstacle, findings = checkpoint_obstacle(snapshot, task)
    draft = draft.told(snapshot.finding(LEFT_OVER_TASK, text, task), *findings)
    if obstacle is not None and len(obstacle.messages) == 1:
        # Not an IOException: it escapes where the offsets of all tasks are summed up.
        return _failing(snapshot, draft, task.stores[0].name if task.stores else task.name, obstacle)
    return _ignored(snapshot, draft)


def _of_named(asked: AskedTopology) -> bool:
    return any(part.topology is not None for part in asked.new.text.subtopologies)


def _deleted(snapshot: Snapshot, task: Task) -> bool:
    asked = snapshot.asked
    if not asked.into_family or asked.max_age is None:
        return False
    return snapshot.now_seconds - task.mtime_ns / 1e9 > asked.max_age.total_seconds()


def _opened(snapshot: Snapshot, asked: AskedTopology, draft: TaskCheckDraft) -> TaskCheckDraft:
    """By 4.3 and later."""
    task, release = draft.task, snapshot.asked.release
    parts = [part for part in asked.new.text.subtopologies if part.topology == task.topology]
    if not parts:
        text = f"the topology has none of its name: {release} does not start"
        message = streams_log.UNKNOWN_TOPOLOGY.format(streams_log.NO_BUILDER, task.topology)
        return _failing(
            snapshot,
            draft.told(snapshot.finding(UNKNOWN_TOPOLOGY, text, task)),
            task.stores[0].name if task.stores else task.name,
            Obstacle(UNKNOWN_TOPOLOGY, text, task.name, (message,)),
        )
    global_here = [part for part in parts if part.is_global and part.stores[0] in _global_stores(snapshot)]
    own = [part for part in global_here if part.number == task.id.subtopology]
    if not own:
        draft = _opening(snapshot, asked, draft)
        if draft.fails:
            name = next(iter(draft.fails))
            return _failing(
                snapshot, draft.told(snapshot.finding(LEFT_OVER_TASK, _builds(snapshot), task)), name, draft.fails[name]
            )
    if not global_here:
        return _ignored(
            snapshot, draft.told(snapshot.finding(LEFT_OVER_TASK, f"{_builds(snapshot)}; then the cleaner", task))
        )
    first = min(part.number for part in own or global_here)
    doubt = None if own or not _corrupted_before(snapshot, asked, task, first) else Outcome.IGNORED
    names = [part.stores[0] for part in own or global_here]
    text = _builds(snapshot, task.id.subtopology if own else None)
    text += f", {'too, ' if own else f'global stores ({some(names, _NAMED)}) too, '}and does not start"
    if not any(name in _on_disk(snapshot) for name in names):
        text += ", unless those are in memory: they are not here"
        doubt = Outcome.IGNORED
    told = draft.told(snapshot.finding(LEFT_OVER_TASK, text, task, level=Level.ERROR))
    messages = (streams_log.ANOTHER_TASK.format(task.path.name),)
    return _failing(snapshot, told, names[0], Obstacle(LEFT_OVER_TASK, text, task.name, messages), doubt)


def _builds(snapshot: Snapshot, number: int | None = None) -> str:
    """``number``: the one of a global store."""
    if number is not None:
        return f"{number} is the number of a global store in the topology: {snapshot.asked.release} builds it here"
    return f"the topology has no such sub-topology: {snapshot.asked.release} builds all of it here"


def _global_stores(snapshot: Snapshot) -> tuple[str, ...]:
    """Those that are on disk, as far as anybody knows."""
    return snapshot.homes.global_on_disk if snapshot.homes is not None else ()


def _on_disk(snapshot: Snapshot) -> set[str]:
    return {store.name for task in snapshot.app.tasks if task.is_global for store in task.stores}


def _opening(snapshot: Snapshot, asked: AskedTopology, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Its stores that the topology has, opened as those of any task are; what is corrupted is passed over."""
    topology = draft.task.topology or ""
    for store in draft.task.stores:
        if StoreKey(topology, store.name) in asked.new.homes:
            begun = StoreCheckDraft(draft.task, store, draft.read.stores[store.name])
            draft = opened(draft, judged(STORE_RULES, snapshot, begun))
    obstacle, findings = checkpoint_obstacle(snapshot, draft.task)
    draft = draft.told(*findings)
    if obstacle is not None and not draft.fails:
        draft = replace(draft, fails={draft.task.name: obstacle})
    return draft


def _corrupted_before(snapshot: Snapshot, asked: AskedTopology, task: Task, first_global: int) -> bool:
    """Whether a store that was left open may end the opening before a global one is reached.

    Stores are opened in the order of their processors. The nodes of a global store follow each other, so that all of a
    sub-topology with a higher number come after them; one with a lower number may have its processors on either side.
    """
    homes = asked.new.homes
    topology = task.topology or ""
    return snapshot.asked.exactly_once and any(
        store.status == "open" and home is not None and home.number < first_global
        for store in task.stores
        for home in (homes.get(StoreKey(topology, store.name)),)
    )


def _ignored(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    predictions, findings = left_behind(snapshot, draft.task, wiped=False)
    return replace(draft.told(*findings), predictions=predictions)


def _failing(
    snapshot: Snapshot, draft: TaskCheckDraft, store: str, obstacle: Obstacle, or_else: Outcome | None = None
) -> TaskCheckDraft:
    """The start ends here; the other stores of the task are none of the topology's."""
    task = draft.task
    failing = Prediction(
        task.name, store, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages, or_else, by_chance=False
    )
    others = _ignored(snapshot, draft)
    return replace(others, predictions=(failing, *(one for one in others.predictions if one.store != store)))
