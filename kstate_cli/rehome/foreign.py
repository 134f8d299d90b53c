"""What lies in a task directory and is no store of RocksDB: a custom store of the application, or nobody knows what."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kstate_cli.errors import Refused
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.rehome.draft import RehomeDraft
from kstate_cli.rehome.model import WhyRefused
from kstate_cli.rehome.options import RehomeOptions
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import first_lines


def custom_stores(resolved: TaskOffsets, options: RehomeOptions) -> dict[str, Path]:
    """The directories of a task that a text, or an offset, calls a store: they are moved as they are."""
    task = resolved.task
    named = {*resolved.absent, *task.store_files}
    for described in (options.new, options.old):
        if described is not None:
            named |= {key.store for key in described.homes if key == StoreKey(task.topology or "", key.store)}
    return {name: path for name, path in _foreign(resolved).items() if name in named and path.is_dir()}


def refuse_foreign(draft: RehomeDraft, tasks: Iterable[str]) -> None:
    """Raises Refused for what nobody knows in tasks that stores go from: nor knows anybody where it belongs."""
    unknown = []
    for name in sorted(tasks):
        resolved = draft.tasks[name]
        custom = custom_stores(resolved, draft.options)
        unknown += [f"{name}/{entry}" for entry in _foreign(resolved) if entry not in custom]
    if unknown:
        raise Refused(
            "not understood, and in a task that stores go from",
            details=first_lines(unknown),
            where=str(draft.app.path),
            code=WhyRefused.FOREIGN,
            hint="move it out of the application directory, if the application does not need it",
        )


def _foreign(resolved: TaskOffsets) -> dict[str, Path]:
    """What is in a task, by the path below it, and nothing of Streams."""
    task, length = resolved.task, len(resolved.task.place.names)
    return {
        "/".join(problem.place.names[length:]): task.path.joinpath(*problem.place.names[length:])
        for problem in task.problems
        if problem.code is ProblemCode.FOREIGN
    }
