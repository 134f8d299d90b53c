"""The offsets of a task's stores, from every place that states one, and whether the stores were closed cleanly.

Places that disagree give the lowest offset: replaying records is harmless, skipping them is not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import TopicPartition, changelog_topic
from kstate_cli.offsets.last_run import (
    Ending,
    all_silent,
    common_position,
    ending,
    left_committed,
    segments_disagree,
    silent_by_key,
)
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, Unclean
from kstate_cli.statedir.changelogs import topic_owners, usual_prefix
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, store_checkpoint

_GLOBAL_GAP_NS: Final = 60 * 1_000_000_000
"""A start opens its global stores one after another. A store opened so much earlier belongs to an earlier run."""

_Offsets = Mapping[TopicPartition, int]
_Places = Mapping[str, Sequence[_Offsets]]
"""``checkpoint``, ``store-file`` or ``column-family`` -> the offsets that each file or database there states."""


def resolve(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """Return the offsets of every task of an application. Raises OSError where a task directory cannot be listed.

    ``transactional``: the user says that the application runs with transactional stores (KIP-892); it decides about
    databases that state nothing. Segments of a running application that state nothing do not count: it writes an offset
    into each when it is closed.
    """
    # The names say which stores have anything in the task: only beside the column family that matters.
    entries = {task.name: _entries(task) for task in app.tasks if task.has_offsets_family}
    return resolve_with(app, entries, transactional=transactional)


def _entries(task: Task) -> list[str]:
    try:
        return os.listdir(task.path)
    except FileNotFoundError:
        # A task that exists as data only, as that of a snapshot before it is copied: all of it is in the model.
        return [store.name for store in task.stores]


def resolve_with(
    app: Application, entries: Mapping[str, Collection[str]], *, transactional: bool = False
) -> list[TaskOffsets]:
    """Return the same by the names in each task directory, which only tasks with the family ``offsets`` need."""
    run = _LastRun(transactional=transactional, running=bool(app.running))
    return [_resolve_task(app.app_id, task, entries.get(task.name, ()), run) for task in app.tasks]


def resolve_to_plan(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """Return what a plan goes by: as :func:`resolve`, but no task of a running application counts as unclean.

    Closing writes every status, every offset and, up to 4.2, ``.checkpoint``. That they are missing now says nothing
    about the directory that a run will meet. Only ``--dry-run`` plans while the application is running: a run waits for
    the lock and plans again under it.
    """
    tasks = resolve(app, transactional=transactional)
    # A dry run: the lock is not held, and the signs of a kill are what every open database shows.
    if app.running:
        return [replace(task, unclean=()) for task in tasks]
    return tasks


def as_of_note(app: Application) -> tuple[str, ...]:
    """Return the note of a plan that was made while the application is running, and nothing for any other plan."""
    if not app.running:
        return ()
    process = f"process {app.pid}" if app.pid else "another process"
    text = (
        f"{process} uses {app.path}. This prediction is based on the last flush, and assumes that the "
        "application closes cleanly now"
    )
    return (f"{text}. Before you run it, stop the application. kstate then plans again",)


# --- one task ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LastRun:
    """Facts about the last run of the application that no database states."""

    transactional: bool = False
    running: bool = False


@dataclass(frozen=True, slots=True)
class _StoreResult:
    offsets: StoreOffsets
    unclean: tuple[Unclean, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def _resolve_task(app_id: str, task: Task, entries: Collection[str], run: _LastRun) -> TaskOffsets:
    owners = give_lines(app_id, task)
    absent, absent_notes = _absent_stores(task, owners, frozenset(entries))
    results = [_resolve_store(run, task, store, owners.stores.get(store.name, {})) for store in task.stores]
    stores = [result.offsets for result in results]
    if task.is_global:
        # A start of up to 4.2 ends with an exception at a line of a topic that no global store has.
        stale = _stale(task.stores)
        stores = [replace(store, stale=store.store.name in stale) for store in stores]
    return TaskOffsets(
        task,
        tuple(stores),
        absent,
        dict(owners.unknown),
        (*(reason for result in results for reason in result.unclean), *unclean_files(task)),
        tuple(warning for result in results for warning in result.warnings),
        (*owners.notes, *absent_notes, *(note for result in results for note in result.notes)),
    )


def _absent_stores(task: Task, owners: Owners, entries: frozenset[str]) -> tuple[dict[str, _Offsets], list[str]]:
    """Return the offsets of stores without a directory, and notes about offsets that count as those of no store."""
    absent: dict[str, _Offsets] = {name: dict(lines) for name, lines in owners.absent.items()}
    notes: list[str] = []
    if task.has_offsets_family:
        # Next to the column family, .checkpoint may come from upgrade.from, which lists in-memory stores too: only a
        # store that has an entry in the task is a custom one.
        for name in sorted(absent.keys() - entries):
            notes.append(
                f"{task.name}: {name} has no files here, so kstate treats its offset as that of an in-memory store"
            )
            del absent[name]
    directories = {store.name for store in task.stores}
    absent |= {name: file.entries for name, file in task.store_files.items() if name not in directories}
    return absent, notes


def _stale(stores: Iterable[Store]) -> set[str]:
    """Return the global stores that the topology has lost: releases up to 4.2 do not start with their topics."""
    openings = sorted(
        # mtime of CURRENT: RocksDB replaces that file at each open for writing.
        ((max(database.opened_ns for database in store.databases), store.name) for store in stores if store.databases),
        key=lambda opening: -opening[0],
    )
    for at, ((newer, _), (older, _)) in enumerate(pairwise(openings), 1):
        # Everything behind the first wide gap was opened by an earlier run only.
        if newer - older > _GLOBAL_GAP_NS:
            return {name for _, name in openings[at:]}
    return set()


# --- one store --------------------------------------------------------------------------------------------------------


def _resolve_store(run: _LastRun, task: Task, store: Store, lines: _Offsets) -> _StoreResult:
    """Apply the rules in their order: all places, the lowest of each partition, then the segments without an offset."""
    label = f"{task.name}/{store.name}"
    places = _places(store, lines)
    by_partition = _stated_offsets(task, places)
    lowest: _Offsets = {partition: min(offsets) for partition, offsets in by_partition.items()}
    silent_keys: Mapping[TopicPartition, tuple[Database, ...]] = {}
    # A running application writes an offset into each segment when it is closed: silence proves nothing before.
    if not run.running:
        silent_keys = silent_by_key(store)
    silent = all_silent(silent_keys)
    if silent:
        # Silence lowers only partitions that some place states: an unknown one needs no -4.
        lowest = _without_silent(lowest, silent_keys.keys() & lowest.keys(), is_global=task.is_global)
    uneven = not run.running and (bool(silent) or segments_disagree(store))
    unclean = unclean_store(task, store, lowest, beside=_differing_file(store, places), transactional=run.transactional)
    offsets = StoreOffsets(
        store,
        lowest,
        # Merged Positions of uneven segments would be ahead of the rows of the segment that lags.
        common_position(store) if uneven else store.position,
        tuple(place for place, readings in places.items() if readings),
        silent=silent,
        uneven=uneven,
    )
    warnings = (*_disagreements(label, by_partition), *_silent_segments(label, offsets))
    return _StoreResult(offsets, tuple(unclean), warnings, _skipped_file(label, store))


def _places(store: Store, lines: _Offsets) -> _Places:
    file = store.offsets_file
    places: dict[str, list[_Offsets]] = {
        "checkpoint": [lines],
        "store-file": [],
        # Each segment is a database of its own and states its own offset.
        "column-family": [database.offsets.offsets for database in store.databases if database.offsets is not None],
    }
    # 4.3 reads .checkpoint_<store> of grace buffers and custom stores only; beside others an old one is skipped.
    if file is not None:
        places["store-file"].append(file.entries)
    # An empty reading is no statement: a new column family has no offset before the first commit.
    return {place: [offsets for offsets in readings if offsets] for place, readings in places.items()}


def _stated_offsets(task: Task, places: _Places) -> dict[TopicPartition, set[int]]:
    """Return every offset that any place states, by partition; those of other partitions belong to other tasks."""
    by_partition: dict[TopicPartition, set[int]] = {}
    for offsets in (offsets for readings in places.values() for offsets in readings):
        for partition, offset in offsets.items():
            # A directory that was copied under another task name still has the offsets of the old one.
            if task.partition is None or partition.partition == task.partition:
                by_partition.setdefault(partition, set()).add(offset)
    return by_partition


def _without_silent(lowest: _Offsets, unknown: Collection[TopicPartition], *, is_global: bool) -> _Offsets:
    """Return the offsets with −4 for those that a silent segment makes unknown.

    A global store gets none instead: −4 would end every start, and without an offset it is read from the beginning.
    """
    certain = {partition: offset for partition, offset in lowest.items() if partition not in unknown}
    if is_global:
        return certain
    return certain | dict.fromkeys(sorted(unknown), OFFSET_UNKNOWN)


def _disagreements(label: str, by_partition: Mapping[TopicPartition, set[int]]) -> Iterator[str]:
    for partition, offsets in by_partition.items():
        if len(offsets) > 1:
            text = ", ".join(map(str, sorted(offsets)))
            yield f"{label}: the offsets of {partition} differ ({text}), and kstate uses the lowest"


def _silent_segments(label: str, offsets: StoreOffsets) -> Iterator[str]:
    if offsets.silent:
        starts = ", ".join(str(segment.segment_start) for segment in offsets.silent)
        yield (
            f"{label}: segments without an offset ({starts}), while others have one: the offset of the store "
            "is unknown. A start uses the offset of one segment, and never restores rows that are missing in "
            "another"
        )


def _skipped_file(label: str, store: Store) -> tuple[str, ...]:
    """Return the note about a ``.checkpoint_<store>`` that Streams never reads: the store keeps its offsets inside."""
    if store.store_file is None or store.offsets_file is not None:
        return ()
    return (f"{label}: the store has its own offsets, so kstate ignores {store_checkpoint(store.name)}",)


def _differing_file(store: Store, places: _Places) -> str | None:
    """Return the name of a file next to a store that states another offset than the store, or one where it has none."""
    inside = places["column-family"]
    for place, name in (("checkpoint", CHECKPOINT), ("store-file", store_checkpoint(store.name))):
        for offsets in places[place]:
            # Nothing inside, or another offset: then the file was not committed with the rows (KIP-892).
            if not inside or any(offsets.get(key) != offset for record in inside for key, offset in record.items()):
                return name
    return None


# --- lines of .checkpoint and the stores that they belong to ----------------------------------------------------------


@dataclass(slots=True)
class Owners:
    """The lines of one ``.checkpoint``, given to stores."""

    stores: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Lines of stores that have a directory in the task."""
    absent: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Lines whose changelog names a store without a directory: custom, in memory, or removed."""
    unknown: dict[TopicPartition, int] = field(default_factory=dict)
    """Lines that can belong to no store of the task."""
    notes: list[str] = field(default_factory=list)


def give_lines(app_id: str, task: Task) -> Owners:
    """Give each line of ``.checkpoint`` to the store whose changelog it is (:func:`topic_owners`).

    A source topic that more than one store may be built from goes to each of them, since Streams asks a store for its
    own topic only. A store whose source is unknown gets the topic only if no store names it.
    """
    lines = task.checkpoint.entries if task.checkpoint else {}
    if task.is_global:
        return _give_global(task, lines)
    owners, of_topics = Owners(), topic_owners(app_id, task)
    sources: dict[TopicPartition, int] = {}
    for partition, offset in lines.items():
        # Streams ignores a line of another partition: it belongs to no store of this task.
        if partition.partition != task.partition:
            owners.unknown[partition] = offset
        elif (name := of_topics.changelogs.get(partition.topic)) is not None:
            owners.stores.setdefault(name, {})[partition] = offset
        elif (name := of_topics.absent.get(partition.topic)) is not None:
            owners.absent.setdefault(name, {})[partition] = offset
        else:
            sources[partition] = offset
    for partition, offset in sources.items():
        source = of_topics.sources[partition.topic]
        # A store that names the topic itself, or in its Position, goes before those that might be built
        # from it.
        candidates = source.owners or source.possible
        if not candidates:
            owners.unknown[partition] = offset
        for name in candidates:
            # The same line for several stores is safe: each takes only what its own changelog is.
            owners.stores.setdefault(name, {})[partition] = offset
        if len(candidates) > 1:
            owners.notes.append(
                f"{task.name}: kstate assigns the offset of {partition} to {', '.join(candidates)}, because "
                "each of them may be restored from that topic"
            )
    return owners


def _give_global(task: Task, lines: _Offsets) -> Owners:
    """Give every line to every global store: source topics do not carry the name of a store."""
    owners = Owners()
    if not task.stores:
        owners.unknown.update(lines)
    for store in task.stores:
        if lines:
            owners.stores[store.name] = dict(lines)
    if len(task.stores) > 1 and lines:
        owners.notes.append(
            "global: kstate assigns the offsets of all topics to each store, because Streams uses only those "
            "of the store's topic"
        )
    return owners


def usual_changelog(app_id: str, task: Task, store: str) -> TopicPartition:
    """Return the changelog partition of a store under the usual name. Whether the store has one is not known."""
    return TopicPartition(changelog_topic(usual_prefix(app_id, task), store), task.partition or 0)


def database_shown(task: Task, store: Store, database: Database) -> str:
    """Return the name of one database of a store in messages."""
    label = f"{task.name}/{store.name}"
    if database.segment_start is None:
        return label
    return f"{label} (segment {database.segment_start})"


def unclean_store(
    task: Task,
    store: Store,
    offsets: Mapping[TopicPartition, int],
    *,
    beside: str | None = None,
    transactional: bool = False,
) -> Iterator[Unclean]:
    """Yield why uncommitted rows are possible in a store, by the rules of releases that keep offsets in the store.

    ``offsets`` are those of the store, ``beside`` the file next to it whose offset differs from the store's own.
    ``transactional``: the user says that the application ran with transactional stores, which decides about databases
    that state nothing (:func:`kstate_cli.offsets.last_run.ending`).
    """
    label = f"{task.name}/{store.name}"
    yield from _unclean_databases(task, store, beside=beside, transactional=transactional)
    # The batches of a transactional run have rows, offset and Position together, whatever its segments state.
    if left_committed(store, transactional=transactional):
        return
    if segments_disagree(store):
        yield Unclean(label, "its segments have different offsets", store.name)
    if not store.empty and OFFSET_UNKNOWN in offsets.values():
        yield Unclean(label, "its offset is unknown (-4), although it has rows", store.name)
    if store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty:
        yield Unclean(label, f"it has rows, but no {store_checkpoint(store.name)}", store.name)


def _unclean_databases(task: Task, store: Store, *, beside: str | None, transactional: bool) -> Iterator[Unclean]:
    for database in store.databases:
        end = ending(database, transactional=transactional)
        place = database_shown(task, store, database)
        if end is Ending.OPEN:
            yield Unclean(place, "its status is open", store.name)
        elif end is Ending.SILENT and not database.empty:
            yield Unclean(place, "it has rows, but no status", store.name, no_status=True)
        elif end is Ending.COMMITTED and not database.empty and beside:
            text = f"it has rows, but no status, and its offset in {beside} was not committed with them"
            yield Unclean(place, text, store.name, no_status=True)


def may_be_ahead(store: Store, resolved: TaskOffsets) -> bool:
    """Return True if replaying records over the rows of a store may give other rows than the changelog does.

    That is a versioned store that was not closed: at-least-once flushes rows that are ahead of the offset, and
    ``RocksDBVersionedStore.put`` of an older version over newer ones is not the same as in order. A transactional run
    commits both in one batch.
    """
    if store.empty or not has_key(store.kind.name, KeySchema.VERSIONED):
        return False
    return any(reason.store in (None, store.name) for reason in resolved.unclean)


def unclean_files(task: Task) -> Iterator[Unclean]:
    """Yield the signs of a crash of releases up to 4.2: ``.checkpoint`` is missing, or older than the data."""
    # Empty stores prove nothing: they have no rows that an aborted transaction could have left.
    old = [store for store in task.stores if store.databases and not store.has_offsets_family and not store.empty]
    if not old or task.is_global:
        return
    if task.checkpoint is None:
        # Tasks with the family keep offsets inside, and 4.3 deletes the file after its first start.
        if not task.has_offsets_family:
            yield Unclean(task.name, "it has rows, but no .checkpoint")
        return
    for store in old:
        # Streams flushes every store before it writes .checkpoint: a clean shutdown leaves no younger
        # SST.
        if max(database.newest_sst_ns for database in store.databases) > task.checkpoint.mtime_ns:
            text = (
                "an SST is newer than .checkpoint (after a crash, a late compaction, or a copy that did not "
                "preserve times)"
            )
            yield Unclean(f"{task.name}/{store.name}", text, store.name, younger=True)
