"""What is said where a topology is asked about that has stores elsewhere than they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kstate_cli.check.codes.offsets import STORE_MISSING
from kstate_cli.check.codes.topology import (
    COPY_DELETED,
    MOVED_WITHOUT_CHANGELOG,
    NAME_OF_ANOTHER_OPERATOR,
    NEW_STORE,
    REHOME_REFUSED,
    REHOME_WARNS,
    STORE_ELSEWHERE,
    STORE_NOT_IN_TOPOLOGY,
)
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.topology import Homes
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.task_id import GLOBAL
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.specification.homes import of_another_operator
from kstate_cli.statedir.model import Task
from kstate_cli.texts import some

_NAMED = 5


def lacked(snapshot: Snapshot, task: Task, name: str) -> Finding:
    """Why a task has no directory of a store that it is to have."""
    one = snapshot.homes.lacked[task.name].get(name) if snapshot.homes is not None else None
    if one is None or not (one.lies_in or one.new):
        text = "it is not here, and other tasks of the subtopology have it"
        return snapshot.finding(STORE_MISSING, text, task, name)
    if one.lies_in:
        text = f"it lies in {one.lies_in}, and the topology has it in {task.name} now"
        return snapshot.finding(STORE_ELSEWHERE, text, task, name)
    costs = snapshot.asked.exactly_once and not snapshot.task_is_empty(task)
    costs = costs and not has_line(snapshot, snapshot.resolved[task.name].absent.get(name, {}))
    text = "no task here has it: it is new"
    if one.on_disk is None:
        text += ", in memory, or on another host"
        text += "; in memory it costs its task nothing" if costs else ""
    return snapshot.finding(NEW_STORE, text, task, name, None if costs else Level.EXPECTED)


def has_line(snapshot: Snapshot, lines: Mapping[TopicPartition, int]) -> bool:
    """Whether ``.checkpoint`` has an offset of a store without a directory: then it costs its task nothing.

    −4 is one up to 4.2; from 4.3 on it is not taken over.
    """
    return any(offset != OFFSET_UNKNOWN or not snapshot.asked.into_family for offset in lines.values())


def left_behind(snapshot: Snapshot, task: Task, *, wiped: bool) -> tuple[tuple[Prediction, ...], tuple[Finding, ...]]:
    """What becomes of the stores that lie in a task where the topology does not look for them.

    ``wiped``: the start deletes the task's directory.
    """
    homes = snapshot.homes
    if homes is None:
        return (), ()
    predictions, findings = [], []
    for name, home in sorted(homes.elsewhere.get(task.name, {}).items()):
        lost = (task.name, name) in homes.unlogged
        bad = Level.ERROR if lost else None
        code = STORE_ELSEWHERE
        if home is None or lost:
            code = STORE_NOT_IN_TOPOLOGY if home is None else MOVED_WITHOUT_CHANGELOG
            says = "the topology has no such store" if home is None else f"the topology has it in {home} now"
            says += ", and no offset anywhere speaks of a changelog" if lost else ""
            findings.append(snapshot.finding(code, says, task, name, bad))
        elif name not in homes.lacked.get(home, {}):
            findings.append(snapshot.finding(code, f"a copy: the start takes the one in {home}", task, name))
        if wiped:
            code = COPY_DELETED
            text = "the start deletes it with the task, where it does not look for it"
            findings.append(snapshot.finding(code, text, task, name, bad))
        predictions.append(Prediction(task.name, name, Outcome.IGNORED, code=code))
    return tuple(predictions), tuple(findings)


def of_topology(snapshot: Snapshot) -> Iterator[Finding]:
    """What is true of the topology as a whole, beside what each task has of it."""
    homes, asked = snapshot.homes, snapshot.asked.topology
    if homes is None or asked is None:
        return
    for name in homes.global_gone:
        text = "the topology has no such global store: it stays as it is"
        yield snapshot.finding(STORE_NOT_IN_TOPOLOGY, text, _global(snapshot), name, Level.EXPECTED)
    for name in homes.global_lacked:
        text = "it is not here: read whole from its topic"
        yield replace(snapshot.finding(NEW_STORE, text, level=Level.EXPECTED), task=GLOBAL, store=name)
    for key in homes.unplaced:
        if asked.is_on_disk(key.store) is not False and not (asked.old is not None and key in asked.old.homes):
            text = f"{key}: nothing of its sub-topology is here"
            yield snapshot.finding(NEW_STORE, text, level=Level.EXPECTED)
    yield from _of_other_operators(snapshot, homes)
    mending = asked.mending
    if mending.refused is not None:
        finding = snapshot.finding(REHOME_REFUSED, mending.refused)
        yield replace(finding, hint=mending.hint or finding.hint)
    for warning in mending.warnings:
        yield snapshot.finding(REHOME_WARNS, warning)


def _global(snapshot: Snapshot) -> Task | None:
    return next((task for task in snapshot.app.tasks if task.name == GLOBAL), None)


def _of_other_operators(snapshot: Snapshot, homes: Homes) -> Iterator[Finding]:
    """A generated name that another operator has now: Streams takes its rows, and its changelog, for its own."""
    asked = snapshot.asked.topology
    if asked is None or asked.old is None:
        return
    both = sorted(asked.new.homes.keys() & asked.old.homes.keys())
    names = [str(k) for k in both if k.store in homes.stores and of_another_operator(k, asked.new, asked.old)]
    if names:
        yield snapshot.finding(NAME_OF_ANOTHER_OPERATOR, f"{some(names, _NAMED)}: made by another operator before")
