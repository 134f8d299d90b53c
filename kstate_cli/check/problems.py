"""What is wrong in a directory and follows from no rule of Streams that is known: told, never passed over."""

from __future__ import annotations

from collections.abc import Iterable

from kstate_cli.check.context import Context
from kstate_cli.check.findings import Level
from kstate_cli.statedir.model import Problem, Task


def note_problems(ctx: Context) -> None:
    """A finding for each task or store with a problem that nothing else was found about. Must come last."""
    _note(ctx, ctx.app.problems)
    for task in ctx.app.tasks:
        _note(ctx, task.problems, task)
        for store in task.stores:
            _note(ctx, [one for database in store.databases for one in database.problems], task, store.name)


def _note(ctx: Context, problems: Iterable[Problem], task: Task | None = None, store: str | None = None) -> None:
    name = task.name if task is not None else None
    told = any(
        one.level is not Level.EXPECTED and one.task == name and (store is None or one.store in (store, None))
        for one in ctx.findings
        if name is not None
    )
    for problem in problems:
        if problem.fatal and not told:
            ctx.found("not-understood", f"{problem.where}: {problem.what}", task, store)
