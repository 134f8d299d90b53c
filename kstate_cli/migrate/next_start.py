"""What a migration cannot keep from being restored, or lost, at the next start: nobody is to take it for kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.unclean import may_be_ahead
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.problems import Problem
from kstate_cli.texts import command, some

_NAMED: Final = 5


def wiped_all_the_same(app: Application, resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Warns of a task that the next start restores whole, migrated or not, because stores have no offset.

    A release that keeps offsets inside writes the first offset of a logged store when it commits first, and that of
    each when it closes. Up to 4.2 ``.checkpoint`` has all of them or is not there
    (``ProcessorStateManager.initializeStoreOffsetsFromCheckpoint``).
    """
    if app.running or resolved.task.is_global:
        return []
    never = _never_committed(resolved, target, transactional=transactional)
    if not never:
        return []
    text = (
        f"{resolved.task.name}: no offset of {some(never, _NAMED)}: under exactly-once {target} wipes the task and "
        "restores all of it, as any release would; else it restores those of them that have a changelog"
    )
    return [text]


def _never_committed(resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Return the stores of a task that lack an offset which the release asks for."""
    without = [state.store for state in resolved.stores if state.store.databases and not state.offsets]
    never = [
        store.name
        for store in without
        if store.has_offsets_family and not has_offset_if_logged(store, transactional=transactional)
    ]
    if target.offsets_home is OffsetsHome.COLUMN_FAMILY:
        never += [state.store.name for state in resolved.stores if _lacks_file(state.store)]
    if never or resolved.absent or any(state.offsets for state in resolved.stores):
        return never
    return [store.name for store in without if store.empty]


def _lacks_file(store: Store) -> bool:
    """Return True for a grace buffer whose offset is in the column family only: 4.3 reads ``.checkpoint_<store>``."""
    return store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty


def replayed(app: Application, resolved: TaskOffsets) -> list[str]:
    """Return a warning for each versioned store whose rows may be ahead of its offset: the next start replays them."""
    return [
        f"{resolved.task.name}/{one.store.name}: it was killed, and its rows may be ahead of its offset. The next "
        "start replays records over them, which gives a versioned store other versions. To have it restored instead: "
        + command("wipe", app.path, "--task", resolved.task.name, "--store", one.store.name)
        for one in resolved.stores
        if may_be_ahead(one.store, resolved)
    ]


def lost_with_it(app: Application, resolved: TaskOffsets, logged: Collection[str]) -> list[str]:
    """Warns of rows in a task that is left out which no changelog may bring back, with the command that keeps them.

    ``logged`` are the stores that have an offset in any task.
    """
    unknown = [one.store.name for one in resolved.stores if one.store.name not in logged and not one.store.empty]
    if not unknown:
        return []
    untold = _untold(resolved.task, unknown)
    keep = command("export", app.path, unknown[0], "--out", "DIR")
    return [f"{untold} rows are lost with the task. To keep them, first: {keep}"]


def lost_unread(task: Task, half_made: Collection[Problem], logged: Collection[str]) -> list[str]:
    """Warns of stores in a task that is left out whose databases are half made: nobody can read whether they have rows.

    ``logged`` are the stores that have an offset in any task.
    """
    names = {problem.place.store.name for problem in half_made if problem.place.store is not None}
    unread = sorted(names - {*logged})
    if not unread:
        return []
    untold = _untold(task, unread, " of half-made databases")
    return [f"{untold}, what kstate keeps of the directory as it was has the only copy of them"]


def _untold(task: Task, stores: Sequence[str], which: str = "") -> str:
    have = "has" if len(stores) == 1 else "have"
    return f"{task.name}: no offset tells whether {some(stores, _NAMED)}{which} {have} a changelog: without one"
