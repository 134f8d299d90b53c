"""The offsets of a task's stores, from all the places that they may be in, and whether the stores were left clean.

Places that disagree give the lowest offset: replaying records is harmless, skipping them is not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.position import Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.migrate.owners import give_lines
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import store_checkpoint

_GLOBAL_GAP_NS = 60 * 1_000_000_000
"""Global stores are opened one after another at a start; one opened this much earlier belongs to an earlier run."""


@dataclass(frozen=True, slots=True)
class Unclean:
    """Why uncommitted data may be in a task; ``str()`` is the sentence for people."""

    place: str
    what: str
    store: str | None = None
    """None where it is the task as a whole."""
    younger: bool = False
    """All that is known is that an SST is younger than ``.checkpoint``: there are harmless reasons for that."""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(slots=True)
class StoreOffsets:
    """What is known about one store."""

    store: Store
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    position: Position = field(default_factory=Position.empty)
    places: tuple[str, ...] = ()
    """Where an offset was found: ``column-family``, ``checkpoint``, ``store-file``."""
    stale: bool = False
    """A global store that the last run did not open."""

    @property
    def offsets_in(self) -> str:
        """The place that Streams reads first (``.checkpoint`` overrides the column family), or ``none``."""
        for place in (
            ("store-file", "checkpoint", "column-family")
            if self.store.is_grace_buffer
            else (
                "checkpoint",
                "column-family",
                "store-file",
            )
        ):
            if place in self.places:
                return place
        return "none"


@dataclass(slots=True)
class TaskOffsets:
    """What is known about one task."""

    task: Task
    stores: list[StoreOffsets] = field(default_factory=list)
    absent: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Offsets of stores without a directory, from ``.checkpoint`` or ``.checkpoint_<store>``."""
    unknown: dict[TopicPartition, int] = field(default_factory=dict)
    unclean: list[Unclean] = field(default_factory=list)
    """Why uncommitted data may be in the task, if the application ran with exactly-once."""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def resolve(app: Application) -> list[TaskOffsets]:
    """The offsets of every task of an application. Raises OSError where a task directory cannot be listed."""
    return resolve_with(app, {task.name: os.listdir(task.path) for task in app.tasks if task.has_offsets_family})


def resolve_with(app: Application, entries: Mapping[str, Collection[str]]) -> list[TaskOffsets]:
    """The same by the names in each task directory; only those with the column family ``offsets`` are asked for."""
    return [_resolve_task(app, task, entries.get(task.name, ())) for task in app.tasks]


def _resolve_task(app: Application, task: Task, entries: Collection[str]) -> TaskOffsets:
    found = TaskOffsets(task)
    owners = give_lines(app.app_id, task, task.checkpoint.entries if task.checkpoint else {})
    found.unknown, found.notes = dict(owners.unknown), list(owners.notes)
    found.absent = {name: dict(lines) for name, lines in owners.absent.items()}
    if task.has_offsets_family:
        # Beside the column family .checkpoint may come from upgrade.from, which lists in-memory stores too: only a
        # store that has something in the task is a custom one.
        here = set(entries)
        for name in sorted(set(found.absent) - here):
            found.notes.append(f"{task.name}: {name} has nothing here: its offset counts as that of an in-memory store")
        found.absent = {name: lines for name, lines in found.absent.items() if name in here}
    names = {store.name for store in task.stores}
    for name, file in task.store_files.items():
        if name not in names:
            found.absent[name] = file.entries
    for store in task.stores:
        found.stores.append(_resolve_store(found, store, owners.stores.get(store.name, {})))
    if task.is_global:
        _mark_stale(found)
    _judge_files(found)
    return found


def _resolve_store(found: TaskOffsets, store: Store, lines: dict[TopicPartition, int]) -> StoreOffsets:
    task = found.task
    shown = f"{task.name}/{store.name}"
    result = StoreOffsets(store, position=store.position)
    places: dict[str, list[dict[TopicPartition, int]]] = {
        "checkpoint": [lines] if lines else [],
        "store-file": [store.store_file.entries] if store.store_file and store.store_file.entries else [],
        "column-family": [
            dict(d.offsets.offsets) for d in store.databases if d.offsets is not None and d.offsets.offsets
        ],
    }
    result.places = tuple(name for name, values in places.items() if values)
    values: dict[TopicPartition, set[int]] = {}
    for readings in places.values():
        for reading in readings:
            for tp, offset in reading.items():
                if task.partition is None or tp.partition == task.partition:
                    values.setdefault(tp, set()).add(offset)
    for tp, offsets in values.items():
        result.offsets[tp] = min(offsets)
        if len(offsets) > 1:
            shown_offsets = ", ".join(str(o) for o in sorted(offsets))
            found.warnings.append(f"{shown}: its places disagree about {tp} ({shown_offsets}): the lowest is taken")
            if len({frozenset(r.items()) for r in places["column-family"]}) > 1:
                found.unclean.append(Unclean(shown, f"its segments disagree about {tp}", store.name))
    _judge_store(found, store, result, has_lines=bool(lines))
    return result


def _judge_store(found: TaskOffsets, store: Store, result: StoreOffsets, *, has_lines: bool) -> None:
    shown = f"{found.task.name}/{store.name}"
    for database in store.databases:
        place = shown if database.segment_start is None else f"{shown} (segment {database.segment_start})"
        if database.offsets is None:
            continue
        if database.offsets.status not in (None, 0):
            found.unclean.append(Unclean(place, "its status is open", store.name))
        elif database.offsets.status is None and not database.empty:
            found.unclean.append(Unclean(place, "it has rows but no status", store.name))
        if not database.empty and not database.offsets.offsets and result.offsets and not has_lines and store.segmented:
            found.warnings.append(f"{place}: it has rows but no offset: the store's offset counts as unknown")
            result.offsets = dict.fromkeys(result.offsets, OFFSET_UNKNOWN)
    if not store.empty and OFFSET_UNKNOWN in result.offsets.values():
        found.unclean.append(Unclean(shown, "its offset is unknown (-4) although it has rows", store.name))
    if store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty:
        found.unclean.append(Unclean(shown, f"it has rows but no {store_checkpoint(store.name)}", store.name))


def _judge_files(found: TaskOffsets) -> None:
    """Releases up to 4.2 tell a crash only by ``.checkpoint``: missing, or older than the data."""
    task = found.task
    old = [store for store in task.stores if store.databases and not store.has_offsets_family and not store.empty]
    if not old or task.is_global:
        return
    if task.checkpoint is None:
        if not task.has_offsets_family:
            found.unclean.append(Unclean(task.name, "it has rows but no .checkpoint"))
        return
    for store in old:
        database = max(store.databases, key=_newest)
        if _newest(database) > task.checkpoint.mtime_ns:
            what = "an SST is younger than .checkpoint (a crash, a late compaction, or a copy that did not keep times)"
            found.unclean.append(Unclean(f"{task.name}/{store.name}", what, store.name, younger=True))


def _newest(database: Database) -> int:
    return database.newest_sst_ns


def _mark_stale(found: TaskOffsets) -> None:
    """A global store that the topology has lost stays on disk; releases up to 4.2 do not start with its topic."""
    opened = sorted(
        ((max(d.opened_ns for d in s.store.databases), s) for s in found.stores if s.store.databases),
        key=lambda item: -item[0],
    )
    for (newer, _), (older, offsets) in pairwise(opened):
        if offsets.stale or newer - older > _GLOBAL_GAP_NS:
            for _, stale in opened[[o for _, o in opened].index(offsets) :]:
                stale.stale = True
