"""What is wrong in a directory and follows from no rule of Streams that is known: told, never passed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kstate_cli.check.codes.layout import DOES_NOT_OPEN, NOT_UNDERSTOOD, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.statedir.model import Task
from kstate_cli.statedir.names import is_offsets_file
from kstate_cli.statedir.places import StoreRef
from kstate_cli.statedir.problems import Problem

_OPENING: Final = frozenset({DOES_NOT_OPEN, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY})
"""Findings of rules that look at the problems of databases."""


def not_understood(snapshot: Snapshot, told: Sequence[Finding]) -> Iterator[Finding]:
    """A finding for each problem that no rule has looked at; ``told`` is what all of them have found."""
    yield from _of(snapshot, snapshot.app.problems)
    for task in snapshot.app.tasks:
        known = any(one.level is not Level.EXPECTED and one.task == task.name for one in told)
        yield from _of(snapshot, (one for one in task.problems if not (known and _has_rule(task, one))), task)
        for store in task.stores:
            codes = {one.code for one in told if (one.task, one.store) == (task.name, store.name)}
            if not codes & _OPENING:
                problems = (one for database in store.databases for one in database.problems)
                yield from _of(snapshot, problems, task, store.name)


def _of(
    snapshot: Snapshot, problems: Iterable[Problem], task: Task | None = None, store: str | None = None
) -> Iterator[Finding]:
    for problem in problems:
        if problem.fatal:
            yield snapshot.finding(NOT_UNDERSTOOD, problem.text, task, store)


def _has_rule(task: Task, problem: Problem) -> bool:
    """Offset files, and what lies among segments: ``check.files`` looks at them."""
    place = problem.place
    segmented = {StoreRef(store.name, segmented=True) for store in task.stores if store.segmented}
    return is_offsets_file(place.name) or (place.store in segmented and len(place.in_task) > 1)
