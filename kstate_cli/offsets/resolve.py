"""The offsets of a task's stores, from all the places that they may be in, and whether the stores were left clean.

Places that disagree give the lowest offset: replaying records is harmless, skipping them is not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, Unclean
from kstate_cli.offsets.owners import give_lines
from kstate_cli.offsets.segments import all_silent, common_position, segments_disagree, silent_by_key
from kstate_cli.offsets.unclean import unclean_files, unclean_store
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, store_checkpoint

_GLOBAL_GAP_NS = 60 * 1_000_000_000
"""Global stores are opened one after another at a start; one opened this much earlier belongs to an earlier run."""


def resolve(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """Return the offsets of every task of an application. Raises OSError where a task directory cannot be listed.

    ``transactional``: the user says that the application runs with transactional stores (KIP-892); it decides about
    databases that state nothing. Segments of a running application that state nothing do not count: it writes an offset
    into each when it is closed.
    """
    entries = {task.name: os.listdir(task.path) for task in app.tasks if task.has_offsets_family}
    return resolve_with(app, entries, transactional=transactional)


def resolve_with(
    app: Application, entries: Mapping[str, Collection[str]], *, transactional: bool = False
) -> list[TaskOffsets]:
    """Return the same by the names in each task directory; only tasks with the family ``offsets`` are asked for."""
    return [
        _resolve_task(
            app, task, entries.get(task.name, ()), _Remarks(transactional=transactional, running=bool(app.running))
        )
        for task in app.tasks
    ]


@dataclass(slots=True)
class _Remarks:
    """What is found on the way, in its order; and what is said of the application."""

    transactional: bool = False
    running: bool = False
    unclean: list[Unclean] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _resolve_task(app: Application, task: Task, entries: Collection[str], said: _Remarks) -> TaskOffsets:
    owners = give_lines(app.app_id, task)
    said.notes += owners.notes
    absent = {name: dict(lines) for name, lines in owners.absent.items()}
    if task.has_offsets_family:
        # Beside the column family .checkpoint may come from upgrade.from, which lists in-memory stores too: only a
        # store that has something in the task is a custom one.
        entry_names = set(entries)
        for name in sorted(set(absent) - entry_names):
            said.notes.append(f"{task.name}: {name} has nothing here: its offset counts as that of an in-memory store")
        absent = {name: lines for name, lines in absent.items() if name in entry_names}
    names = {store.name for store in task.stores}
    for name, file in task.store_files.items():
        if name not in names:
            absent[name] = file.entries
    stores = [_resolve_store(said, task, store, owners.stores.get(store.name, {})) for store in task.stores]
    if task.is_global:
        stale = _stale(task.stores)
        stores = [replace(one, stale=one.store.name in stale) for one in stores]
    said.unclean += unclean_files(task)
    return TaskOffsets(
        task,
        tuple(stores),
        absent,
        dict(owners.unknown),
        tuple(said.unclean),
        tuple(said.warnings),
        tuple(said.notes),
    )


def _resolve_store(said: _Remarks, task: Task, store: Store, lines: dict[TopicPartition, int]) -> StoreOffsets:
    shown = f"{task.name}/{store.name}"
    places: dict[str, list[dict[TopicPartition, int]]] = {
        "checkpoint": [lines] if lines else [],
        "store-file": [store.offsets_file.entries] if store.offsets_file and store.offsets_file.entries else [],
        "column-family": [
            dict(d.offsets.offsets) for d in store.databases if d.offsets is not None and d.offsets.offsets
        ],
    }
    if store.store_file is not None and store.offsets_file is None:
        said.notes.append(f"{shown}: it keeps its offsets itself: {store_checkpoint(store.name)} is passed over")
    values: dict[TopicPartition, set[int]] = {}
    for readings in places.values():
        for reading in readings:
            for tp, offset in reading.items():
                if task.partition is None or tp.partition == task.partition:
                    values.setdefault(tp, set()).add(offset)
    for tp, offsets in values.items():
        if len(offsets) > 1:
            shown_offsets = ", ".join(str(o) for o in sorted(offsets))
            said.warnings.append(f"{shown}: its places disagree about {tp} ({shown_offsets}): the lowest is taken")
    lowest = {tp: min(offsets) for tp, offsets in values.items()}
    by_key = {} if said.running else silent_by_key(store)
    silent = all_silent(by_key)
    if silent:
        starts = ", ".join(str(segment.segment_start) for segment in silent)
        said.warnings.append(
            f"{shown}: segments without an offset ({starts}), while others have one: the offset of the store is "
            "unknown. A start takes the offset of one segment, and never restores the rows that another one lacks"
        )
        unknown = by_key.keys() & lowest.keys()
        # Of a global store -4 ends every start; without an offset it is read from the beginning.
        lowest = {tp: offset for tp, offset in lowest.items() if tp not in unknown}
        lowest |= {} if task.is_global else dict.fromkeys(sorted(unknown), OFFSET_UNKNOWN)
    uneven = not said.running and (bool(silent) or segments_disagree(store))
    said.unclean += unclean_store(
        task, store, lowest, beside=_differing_file(store, places), transactional=said.transactional
    )
    return StoreOffsets(
        store,
        lowest,
        common_position(store) if uneven else store.position,
        tuple(name for name, offsets in places.items() if offsets),
        silent=silent,
        uneven=uneven,
    )


def _differing_file(store: Store, places: Mapping[str, list[dict[TopicPartition, int]]]) -> str | None:
    """Return the name of a file next to a store that states another offset than the store, or one where it has none."""
    for place, name in (("checkpoint", CHECKPOINT), ("store-file", store_checkpoint(store.name))):
        for stated in places[place]:
            inside = places["column-family"]
            if not inside or any(stated.get(tp) != offset for kept in inside for tp, offset in kept.items()):
                return name
    return None


def _stale(stores: Iterable[Store]) -> set[str]:
    """A global store that the topology has lost stays on disk; releases up to 4.2 do not start with its topic."""
    opened = sorted(
        ((max(d.opened_ns for d in store.databases), store.name) for store in stores if store.databases),
        key=lambda opening: -opening[0],
    )
    for at, ((newer, _), (older, _)) in enumerate(pairwise(opened), 1):
        if newer - older > _GLOBAL_GAP_NS:
            return {name for _, name in opened[at:]}
    return set()
