"""Warnings of a migration about the next start: data that it restores, replays or loses, migrated or not."""

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

_MOST_NAMES: Final = 5


def wiped_all_the_same(app: Application, resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Return a warning for a task that the next start restores whole, because stores have no offset.

    A release that keeps offsets in the store writes the offset of a logged store at the first commit, and of every one
    when it closes. Up to 4.2 ``.checkpoint`` has all of them or does not exist
    (``ProcessorStateManager.initializeStoreOffsetsFromCheckpoint``).
    """
    if app.running or resolved.task.is_global:
        return []
    never = _never_committed(resolved, target, transactional=transactional)
    if not never:
        return []
    text = (
        f"{resolved.task.name}: no offset of {some(never, _MOST_NAMES)}: under exactly-once {target} wipes the task "
        "and restores all of it, as any release would; else it restores those of them that have a changelog"
    )
    return [text]


def _never_committed(resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Return the stores of a task that lack an offset which the release asks for."""
    without = [state.store for state in resolved.stores if state.store.databases and not state.offsets]
    names = [store.name for store in without if _lacks_offset(store, transactional=transactional)]
    if target.offsets_home is OffsetsHome.COLUMN_FAMILY:
        names += [state.store.name for state in resolved.stores if _lacks_file(state.store)]
    has_offsets = bool(resolved.absent) or any(state.offsets for state in resolved.stores)
    if names or has_offsets:
        return names
    # No store of the task has an offset: the empty ones were opened and never committed.
    return [store.name for store in without if store.empty]


def _lacks_offset(store: Store, *, transactional: bool) -> bool:
    """Return True for a store without an offset that keeps offsets itself, and may be logged."""
    return store.has_offsets_family and not has_offset_if_logged(store, transactional=transactional)


def _lacks_file(store: Store) -> bool:
    """Return True for a grace buffer whose offset is in the column family only: 4.3 reads ``.checkpoint_<store>``."""
    return store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty


def replayed(app: Application, resolved: TaskOffsets) -> list[str]:
    """Return a warning for each versioned store whose rows may be ahead of its offset: the next start replays them."""
    return [
        f"{resolved.task.name}/{state.store.name}: it was killed, and its rows may be ahead of its offset. The next "
        "start replays records over them, which gives a versioned store other versions. To have it restored instead: "
        + command("wipe", app.path, "--task", resolved.task.name, "--store", state.store.name)
        for state in resolved.stores
        if may_be_ahead(state.store, resolved)
    ]


def lost_with_it(app: Application, resolved: TaskOffsets, logged: Collection[str]) -> list[str]:
    """Return a warning about rows of a skipped task that no changelog may restore, with the command that exports them.

    ``logged`` are the stores that have an offset in any task.
    """
    stores = [state.store for state in resolved.stores]
    unknown = [store.name for store in stores if store.name not in logged and not store.empty]
    if not unknown:
        return []
    untold = _untold(resolved.task, unknown)
    keep = command("export", app.path, unknown[0], "--out", "DIR")
    return [f"{untold} rows are lost with the task. To keep them, first: {keep}"]


def lost_unread(task: Task, unfinished: Collection[Problem], logged: Collection[str]) -> list[str]:
    """Return a warning about stores of a skipped task with unfinished databases: their rows cannot be read.

    ``logged`` are the stores that have an offset in any task.
    """
    names = {problem.place.store.name for problem in unfinished if problem.place.store is not None}
    unread = sorted(names - {*logged})
    if not unread:
        return []
    untold = _untold(task, unread, " of half-made databases")
    return [f"{untold}, what kstate keeps of the directory as it was has the only copy of them"]


def _untold(task: Task, stores: Sequence[str], which: str = "") -> str:
    have = "has" if len(stores) == 1 else "have"
    return f"{task.name}: no offset tells whether {some(stores, _MOST_NAMES)}{which} {have} a changelog: without one"
