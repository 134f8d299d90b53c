"""The tasks that have a store: all of them, or none. What may be out of sight is refused, never passed over."""

from __future__ import annotations

from collections.abc import Iterator

from kstate_cli.errors import Refused
from kstate_cli.rows.errors import UnknownStateStoreError
from kstate_cli.statedir.find import store_folders
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.places import Place, both_places
from kstate_cli.statedir.problems import Problem
from kstate_cli.texts import command, did_you_mean


def stores_of(
    app: Application, name: str, *, topology: str | None = None, subtopology: int | None = None
) -> list[tuple[Task, Store]]:
    """The tasks that have the store, each partition once; of one named topology or subtopology where they are given.

    Raises UnknownStateStoreError, and Refused where it is not certain which tasks those are: several topologies or
    subtopologies have the name (one is left over from an older topology), or a part of it cannot be seen.
    """
    tasks = [
        task
        for task in app.tasks
        if topology in (None, task.topology) and subtopology in (None, None if task.is_global else _number(task))
    ]
    matching = [(task, store) for task in tasks for store in task.stores if store.name == name]
    for problem in (*_hidden_tasks(app), *(one for task in tasks for one in _hidden_stores(task, name))):
        raise Refused(
            f"{problem.place.text} {problem.description}: a part of store {name} may be out of sight",
            hint=f"{problem.rule}: put back what belongs there",
        )
    if not matching:
        raise UnknownStateStoreError(
            f"no task of {app.path} has a store {name}{f' in topology {topology}' if topology else ''}",
            hint=f"{_meant(app, name, topology)}the stores that there are: {command('ls', app.path)}",
        )
    topologies = sorted({task.topology or "" for task, _ in matching})
    if len(topologies) > 1:
        raise Refused(
            f"store {name} is in several topologies: {', '.join(topologies)}", hint="name one of them: --topology"
        )
    if len({None if task.is_global else _number(task) for task, _ in matching}) > 1:
        raise Refused(
            f"store {name} is in tasks of several subtopologies: {', '.join(task.name for task, _ in matching)}",
            hint=f"all but one are left over; say which one counts in kstate.toml (--spec): "
            f"[stores.{name}] subtopology = …",
        )
    return matching


def _meant(app: Application, name: str, topology: str | None) -> str:
    stores = set(store_folders(app.path))  # of the application only the stores that are asked for were read
    topologies = {task.topology for task in app.tasks if task.topology}
    return did_you_mean([name], stores) or did_you_mean([topology] if topology else [], topologies)


def first_problem(task: Task, store: Store) -> Problem | None:
    """What is wrong with the folder of a store beyond its databases: a segment that is none any more, or a link."""
    return next(_within(task, Place.of(task.app, store.path)), None)


def _number(task: Task) -> int:
    return task.id.subtopology or 0


def _hidden_tasks(app: Application) -> Iterator[Problem]:
    """Task directories that were not read."""
    yield from (one for one in app.problems if one.fatal and one.place.hides_tasks)


def _hidden_stores(task: Task, name: str) -> Iterator[Problem]:
    """What is in the place of a store in a task that seems to have none."""
    if any(store.name == name for store in task.stores):
        return
    yield from (one for one in task.problems if one.fatal and one.place.is_rocksdb_folder)
    for folder in both_places(task.name, name):
        yield from _within(task, folder)


def _within(task: Task, folder: Place) -> Iterator[Problem]:
    yield from (one for one in task.problems if one.fatal and one.place.within(folder))
