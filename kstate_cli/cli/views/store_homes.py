"""The homes of stores in a new topology, as ``ls --topology`` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli.cli.output import say
from kstate_cli.statedir.model import Application
from kstate_cli.texts import some

if TYPE_CHECKING:
    from kstate_cli.check.snapshot import Homes, RequestedTopology
    from kstate_cli.cli.lines.stores import LsLackedLine, LsStoreLine

_MAX_NAMED: Final = 5


class Move(str, Enum):
    """Where the topology has a store that is in this task."""

    stays = "stays"
    moves = "moves"
    """The topology has it in another task."""
    copy = "copy"
    """The topology has it in another task, which already has one here."""
    removed = "gone"
    """The topology has it in no task."""


def add_homes(
    app: Application, rows: Sequence[LsStoreLine], new: Path, old: Path | None
) -> tuple[list[LsLackedLine], str | None]:
    """Add ``new_task`` and ``home`` to each row; return the stores that tasks lack, and a doubt about the text.

    Raise UsageError for texts that cannot be read.
    """
    from kstate_cli.check.snapshot import RequestedTopology
    from kstate_cli.check.snapshot_reader import read_homes
    from kstate_cli.specification.homes import Described
    from kstate_cli.specification.topology import read_topology

    before = None
    if old is not None:
        before = Described.by(read_topology(old))
    topologies = RequestedTopology(Described.by(read_topology(new)), before)
    # These are the rules of check --topology, so that both commands say the same.
    homes = read_homes(app, topologies)
    for row in rows:
        row["new_task"], row["home"] = _home(topologies, homes, row)
    lacked: list[LsLackedLine] = [
        {"type": "lacked", "new_task": task, "store": store}
        for task, stores in sorted(homes.missing.items())
        for store, home in sorted(stores.items())
        if not home.other_task
    ]
    stores = {store.name for task in app.tasks for store in task.stores}
    # If the directory has none of these stores, the text is probably that of another application.
    has = {key.store for key in topologies.new.homes} | topologies.new.global_stores
    return lacked, _doubt(stores, has)


def _home(topologies: RequestedTopology, homes: Homes, row: LsStoreLine) -> tuple[str | None, str]:
    """Return the task of the store in the new topology, and whether the store moves, stays, is removed or a copy."""
    from kstate_cli.check.snapshot import home_of_store
    from kstate_cli.formats.topic_partition import GLOBAL, TaskId

    task, store = row["task"], row["store"]
    if task == GLOBAL:
        if store in topologies.new.global_stores:
            return GLOBAL, Move.stays.value
        return None, Move.removed.value
    new = home_of_store(topologies, TaskId.parse(task), store)
    if new is None:
        return None, Move.removed.value
    if new == task:
        return new, Move.stays.value
    if store in homes.missing.get(new, {}):
        return new, Move.moves.value
    # The new task already has a store with that name: the topology was started here before its stores were moved.
    return new, Move.copy.value


def _doubt(stores: set[str], has: set[str]) -> str | None:

    if not stores or stores & has:
        return None
    names = some(sorted(stores), _MAX_NAMED)
    return (
        f"the topology contains none of the stores in this directory ({names}). Check that this topology belongs to "
        "the application"
    )


def home_text(row: LsStoreLine) -> str:
    """Return the cell of the table; empty for a store that stays, as most do."""
    if row["home"] == Move.stays.value:
        return ""
    return f"{row['new_task'] or '-'} ({row['home']})"


def say_missing_stores(lacked: Sequence[LsLackedLine], *, quiet: bool) -> None:
    """Print the stores that no task here has."""
    tasks: dict[str, list[str]] = {}
    for place in lacked:
        tasks.setdefault(place["store"], []).append(place["new_task"])
    for store, names in sorted(tasks.items()):
        say(
            f"the directory does not contain {store} of {some(names, _MAX_NAMED)}, so the store is new or in memory",
            quiet=quiet,
        )
