"""``kstate ls --topology``: beside the task that has a store, the one that has it in another topology."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kstate_cli.check.topology import AskedTopology, Homes
    from kstate_cli.statedir.model import Application

_NAMED: Final = 5


class Move(str, Enum):
    """What the topology makes of where a store lies."""

    stays = "stays"
    moves = "moves"
    """It is in another task there."""
    copy = "copy"
    """It is in another task there, which has one already."""
    gone = "gone"
    """It is in none."""


def tell_homes(
    app: Application, rows: Sequence[dict[str, Any]], new: Path, old: Path | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Gives each row ``new_task`` and ``home``; returns what tasks of the topology lack, and a doubt about the text.

    Raises UsageError for texts that cannot be read.
    """
    from kstate_cli.check.snapshot_reader import read_homes
    from kstate_cli.check.topology import AskedTopology
    from kstate_cli.specification.homes import Described
    from kstate_cli.specification.topology import read_topology

    asked = AskedTopology(
        Described.by(read_topology(new)), Described.by(read_topology(old)) if old is not None else None
    )
    homes = read_homes(app, asked)
    for row in rows:
        row["new_task"], row["home"] = _home(asked, homes, row)
    lacked = [
        {"new_task": task, "store": store}
        for task, those in sorted(homes.lacked.items())
        for store, one in sorted(those.items())
        if not one.lies_in
    ]
    known = {store.name for task in app.tasks for store in task.stores}
    has = {key.store for key in asked.new.homes} | asked.new.global_stores
    return lacked, _doubt(known, has)


def _home(asked: AskedTopology, homes: Homes, row: dict[str, Any]) -> tuple[str | None, str]:
    from kstate_cli.check.topology import home_of_store
    from kstate_cli.formats.task_id import GLOBAL, TaskId

    task, store = row["task"], row["store"]
    if task == GLOBAL:
        stays = store in asked.new.global_stores
        return (GLOBAL, Move.stays.value) if stays else (None, Move.gone.value)
    new = home_of_store(asked, TaskId.parse(task), store)
    if new is None:
        return None, Move.gone.value
    if new == task:
        return new, Move.stays.value
    return new, (Move.moves if store in homes.lacked.get(new, {}) else Move.copy).value


def _doubt(known: set[str], has: set[str]) -> str | None:
    from kstate_cli.texts import some

    if not known or known & has:
        return None
    return f"the topology has none of the stores here ({some(sorted(known), _NAMED)}): is it that of this application?"


def shown(row: dict[str, Any]) -> str:
    """The cell of the table: a store that stays has none, as most do."""
    return "" if row["home"] == Move.stays.value else f"{row['new_task'] or '-'} ({row['home']})"


def say_lacked(lacked: Sequence[dict[str, Any]], *, quiet: bool) -> None:
    """Stores that no task here has."""
    from kstate_cli.cli.output import say
    from kstate_cli.texts import some

    tasks: dict[str, list[str]] = {}
    for one in lacked:
        tasks.setdefault(one["store"], []).append(one["new_task"])
    for store, those in sorted(tasks.items()):
        say(f"not here: {store}, which the topology has in {some(those, _NAMED)}: new, or in memory", quiet=quiet)
