"""What is wrong in a directory and follows from no rule of Streams that is known: told, never passed over."""

from __future__ import annotations

from typing import Final

from kstate_cli.check.context import Context
from kstate_cli.check.findings import Level
from kstate_cli.statedir.model import Task
from kstate_cli.statedir.names import is_offsets_file
from kstate_cli.statedir.places import StoreRef
from kstate_cli.statedir.problems import Problem

_OPENING: Final = frozenset({"does-not-open", "segment-does-not-open", "unknown-column-family"})
"""Findings of rules that look at the problems of databases."""


def note_problems(ctx: Context) -> None:
    """A finding for each problem that no rule has looked at. Must come last."""
    for problem in ctx.app.problems:
        _note(ctx, problem)
    for task in ctx.app.tasks:
        told = any(one.level is not Level.EXPECTED and one.task == task.name for one in ctx.findings)
        for problem in task.problems:
            if not (told and _has_rule(task, problem)):
                _note(ctx, problem, task)
        for store in task.stores:
            here = {one.code for one in ctx.findings if (one.task, one.store) == (task.name, store.name)}
            if here & _OPENING:
                continue
            for problem in (one for database in store.databases for one in database.problems):
                _note(ctx, problem, task, store.name)


def _note(ctx: Context, problem: Problem, task: Task | None = None, store: str | None = None) -> None:
    if problem.fatal:
        ctx.found("not-understood", problem.text, task, store)


def _has_rule(task: Task, problem: Problem) -> bool:
    """Offset files, and what lies among segments: ``check.files`` looks at them."""
    place = problem.place
    segmented = {StoreRef(store.name, segmented=True) for store in task.stores if store.segmented}
    return is_offsets_file(place.name) or (place.store in segmented and len(place.in_task) > 1)
