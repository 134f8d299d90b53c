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
"""A start opens its global stores one after another. One that was opened so much earlier belongs to an earlier run."""

_Offsets = Mapping[TopicPartition, int]
_Places = Mapping[str, Sequence[_Offsets]]
"""``checkpoint``, ``store-file`` or ``column-family`` -> the offsets that each file or database there states."""


def resolve(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """Return the offsets of every task of an application. Raises OSError if a task directory cannot be listed.

    ``transactional``: the user states that the application runs with transactional stores (KIP-892). This decides about
    databases that state nothing. While the application is running, segments that state nothing do not count: the
    application writes an offset into each segment when it closes.
    """
    # The names show which stores have files in the task. Only tasks with the column family need them (_absent_stores).
    entries = {task.name: _entries(task) for task in app.tasks if task.has_offsets_family}
    return resolve_with(app, entries, transactional=transactional)


def _entries(task: Task) -> list[str]:
    try:
        return os.listdir(task.path)
    except FileNotFoundError:
        # The task has no directory, such as that of a snapshot before it is copied. Then the model has all of its
        # stores.
        return [store.name for store in task.stores]


def resolve_with(
    app: Application, entries: Mapping[str, Collection[str]], *, transactional: bool = False
) -> list[TaskOffsets]:
    """Return the offsets as :func:`resolve`, without reading the disk.

    ``entries`` has the names in the directory of each task that has the column family ``offsets``.
    """
    run = _LastRun(transactional=transactional, running=bool(app.running))
    return [_resolve_task(app.app_id, task, entries.get(task.name, ()), run) for task in app.tasks]


def resolve_to_plan(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """Return the offsets for a plan: as :func:`resolve`, but no task of a running application is unclean.

    When the application closes, it writes every status, every offset and, up to 4.2, ``.checkpoint``. So what is
    missing now will not be missing when the plan is carried out. Only a dry run plans while the application is
    running: a run waits for the lock and plans again under it.
    """
    tasks = resolve(app, transactional=transactional)
    # This is a dry run, since the lock is not held. An open database looks like one that was killed.
    if app.running:
        return [replace(task, unclean=()) for task in tasks]
    return tasks


def as_of_note(app: Application) -> tuple[str, ...]:
    """Return the note for a plan that was made while the application is running; nothing for other plans."""
    if not app.running:
        return ()
    process = f"process {app.pid}" if app.pid else "another process"
    text = (
        f"{process} uses {app.path}. This prediction is based on the last flush and assumes that the application "
        "will close cleanly"
    )
    return (f"{text}. Stop the application before you run the command. kstate then makes a new plan",)


# --- one task ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LastRun:
    """Facts about the last run that no database shows: whether it was transactional, and whether it still runs."""

    transactional: bool = False
    running: bool = False


@dataclass(frozen=True, slots=True)
class _StoreResult:
    offsets: StoreOffsets
    unclean: tuple[Unclean, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def _resolve_task(app_id: str, task: Task, entries: Collection[str], run: _LastRun) -> TaskOffsets:
    """Return the offsets of one task; ``entries`` are the names in its directory, if it has the family ``offsets``."""
    owners = give_lines(app_id, task)
    absent, absent_notes = _absent_stores(task, owners, frozenset(entries))
    results = [_resolve_store(run, task, store, owners.stores.get(store.name, {})) for store in task.stores]
    stores = [result.offsets for result in results]
    if task.is_global:
        # Up to 4.2 a start fails if ``.checkpoint`` has a line for a topic that no global store has.
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
    """Return the offsets of stores without a directory, and notes about offsets that are ignored.

    ``entries`` are the names in the directory of the task.
    """
    absent: dict[str, _Offsets] = {name: dict(lines) for name, lines in owners.absent.items()}
    notes: list[str] = []
    if task.has_offsets_family:
        # The task is of 4.3 or later, so .checkpoint may come from upgrade.from, which also lists in-memory stores. A
        # custom store has an entry of its name in the task; the offset of any other one is ignored.
        for name in sorted(absent.keys() - entries):
            notes.append(
                f"{task.name}: the store {name} has no files in this task, so kstate treats it as an in-memory store"
            )
            del absent[name]
    directories = {store.name for store in task.stores}
    absent |= {name: file.entries for name, file in task.store_files.items() if name not in directories}
    return absent, notes


def _stale(stores: Iterable[Store]) -> set[str]:
    """Return the names of global stores that the last run did not open, so the topology has probably lost them.

    Releases up to 4.2 do not start if ``.checkpoint`` has their topics.
    """
    openings = sorted(
        # ``opened_ns`` is the mtime of CURRENT, which RocksDB replaces at each open for writing. The latest opening
        # comes first.
        ((max(database.opened_ns for database in store.databases), store.name) for store in stores if store.databases),
        key=lambda opening: -opening[0],
    )
    for at, ((newer, _), (older, _)) in enumerate(pairwise(openings), 1):
        # All stores after the first wide gap were opened by an earlier run only.
        if newer - older > _GLOBAL_GAP_NS:
            return {name for _, name in openings[at:]}
    return set()


# --- one store --------------------------------------------------------------------------------------------------------


def _resolve_store(run: _LastRun, task: Task, store: Store, lines: _Offsets) -> _StoreResult:
    """Return the lowest offset that any place states for each partition of a store, or -4 if a segment has none.

    ``lines`` are the lines of ``.checkpoint`` that belong to the store.
    """
    label = f"{task.name}/{store.name}"
    places = _places(store, lines)
    by_partition = _stated_offsets(task, places)
    lowest: _Offsets = {partition: min(offsets) for partition, offsets in by_partition.items()}
    silent_keys: Mapping[TopicPartition, tuple[Database, ...]] = {}
    # A running application writes an offset into each segment when it closes. Until then a missing one proves nothing.
    if not run.running:
        silent_keys = silent_by_key(store)
    silent = all_silent(silent_keys)
    if silent:
        # Only partitions that some place states get -4: for others there is no offset that could be wrong.
        lowest = _without_silent(lowest, silent_keys.keys() & lowest.keys(), is_global=task.is_global)
    uneven = not run.running and (bool(silent) or segments_disagree(store))
    unclean = unclean_store(task, store, lowest, beside=_differing_file(store, places), transactional=run.transactional)
    offsets = StoreOffsets(
        store,
        lowest,
        # If segments differ, their merged Positions would be ahead of the rows of the segment that is behind.
        common_position(store) if uneven else store.position,
        tuple(place for place, readings in places.items() if readings),
        silent=silent,
        uneven=uneven,
    )
    warnings = (*_disagreements(label, by_partition), *_silent_segments(label, offsets))
    return _StoreResult(offsets, tuple(unclean), warnings, _skipped_file(label, store))


def _places(store: Store, lines: _Offsets) -> _Places:
    """Return the offsets that each place states for a store, without the empty ones."""
    file = store.offsets_file
    places: dict[str, list[_Offsets]] = {
        "checkpoint": [lines],
        "store-file": [],
        # Each segment is a database of its own and states its own offset.
        "column-family": [database.offsets.offsets for database in store.databases if database.offsets is not None],
    }
    # 4.3 reads .checkpoint_<store> only for grace buffers and custom stores. For other stores it ignores an old file.
    if file is not None:
        places["store-file"].append(file.entries)
    # An empty mapping states nothing: a new column family has no offset before the first commit.
    return {place: [offsets for offsets in readings if offsets] for place, readings in places.items()}


def _stated_offsets(task: Task, places: _Places) -> dict[TopicPartition, set[int]]:
    """Return partition -> every offset that a place states for it, without partitions that belong to other tasks."""
    by_partition: dict[TopicPartition, set[int]] = {}
    for offsets in (offsets for readings in places.values() for offsets in readings):
        for partition, offset in offsets.items():
            # If a task directory was copied under the name of another task, its files still have the old partitions.
            if task.partition is None or partition.partition == task.partition:
                by_partition.setdefault(partition, set()).add(offset)
    return by_partition


def _without_silent(lowest: _Offsets, unknown: Collection[TopicPartition], *, is_global: bool) -> _Offsets:
    """Return the offsets with −4 for the partitions ``unknown``, whose offset a silent segment makes unknown.

    A global store gets no offset for them instead: −4 would make every start fail, and without an offset Streams reads
    it from the beginning.
    """
    certain = {partition: offset for partition, offset in lowest.items() if partition not in unknown}
    if is_global:
        return certain
    return certain | dict.fromkeys(sorted(unknown), OFFSET_UNKNOWN)


def _disagreements(label: str, by_partition: Mapping[TopicPartition, set[int]]) -> Iterator[str]:
    for partition, offsets in by_partition.items():
        if len(offsets) > 1:
            text = ", ".join(map(str, sorted(offsets)))
            yield f"{label}: the offsets for {partition} differ ({text}), so kstate uses the lowest"


def _silent_segments(label: str, offsets: StoreOffsets) -> Iterator[str]:
    if offsets.silent:
        starts = ", ".join(str(segment.segment_start) for segment in offsets.silent)
        yield (
            f"{label}: some segments have no offset ({starts}), but others do, so the store's offset is unknown. At "
            "startup, Streams uses one segment's offset and never restores rows that another segment lacks"
        )


def _skipped_file(label: str, store: Store) -> tuple[str, ...]:
    """Return a note if Streams ignores ``.checkpoint_<store>``, because the store has its offsets in its databases."""
    if store.store_file is None or store.offsets_file is not None:
        return ()
    return ((f"{label}: the store's database contains its offsets, so kstate ignores {store_checkpoint(store.name)}"),)


def _differing_file(store: Store, places: _Places) -> str | None:
    """Return the name of an offset file that contradicts the databases of the store; None if there is none.

    It states another offset than they do, or they state none.
    """
    inside = places["column-family"]
    for place, name in (("checkpoint", CHECKPOINT), ("store-file", store_checkpoint(store.name))):
        for offsets in places[place]:
            # The databases state no offset, or another one. So the offset in the file was not committed with the rows
            # (KIP-892).
            if not inside or any(offsets.get(key) != offset for record in inside for key, offset in record.items()):
                return name
    return None


# --- lines of .checkpoint and the stores that they belong to ----------------------------------------------------------


@dataclass(slots=True)
class Owners:
    """The lines of one ``.checkpoint``, assigned to stores: store name -> topic partition -> offset."""

    stores: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """The lines of stores that have a directory in the task."""
    absent: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """The lines of stores without a directory (custom, in memory, or removed), by the name of the changelog."""
    unknown: dict[TopicPartition, int] = field(default_factory=dict)
    """The lines that belong to no store of the task."""
    notes: list[str] = field(default_factory=list)


def give_lines(app_id: str, task: Task) -> Owners:
    """Assign each line of ``.checkpoint`` to the store whose changelog it is (:func:`topic_owners`).

    If several stores may be built from a source topic, each of them gets the line: Streams asks a store only for its
    own topic. A store with unknown inputs gets the line only if no store names the topic.
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
        # Stores that name the topic, in their offsets or in their Position, come before stores that might be built from
        # it.
        candidates = source.owners or source.possible
        if not candidates:
            owners.unknown[partition] = offset
        for name in candidates:
            # It is safe to give several stores the same line, because each uses only the offset of its own changelog.
            owners.stores.setdefault(name, {})[partition] = offset
        if len(candidates) > 1:
            owners.notes.append(
                f"{task.name}: kstate assigns the offset for {partition} to {', '.join(candidates)}, because each of "
                "these stores may be restored from that topic"
            )
    return owners


def _give_global(task: Task, lines: _Offsets) -> Owners:
    """Assign every line to every global store: the name of a source topic does not contain the name of a store."""
    owners = Owners()
    if not task.stores:
        owners.unknown.update(lines)
    for store in task.stores:
        if lines:
            owners.stores[store.name] = dict(lines)
    if len(task.stores) > 1 and lines:
        owners.notes.append(
            "global: kstate assigns all topics' offsets to each store, because Streams uses only the offsets of the "
            "store's own topic"
        )
    return owners


def usual_changelog(app_id: str, task: Task, store: str) -> TopicPartition:
    """Return the changelog partition that a store has under its usual name, if it has a changelog at all."""
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
    """Yield why uncommitted rows are possible in a store, by the rules of releases that keep offsets in the database.

    ``offsets`` are those of the store. ``beside`` is the name of an offset file that states another offset than its
    databases; None without one. ``transactional``: the user states that the application ran with transactional stores,
    which decides about databases that state nothing (:func:`kstate_cli.offsets.last_run.ending`).
    """
    label = f"{task.name}/{store.name}"
    yield from _unclean_databases(task, store, beside=beside, transactional=transactional)
    # A transactional run commits rows, offset and Position in one batch. So its segments may differ without being
    # unclean.
    if left_committed(store, transactional=transactional):
        return
    if segments_disagree(store):
        yield Unclean(label, "the store's segments have different offsets", store.name)
    if not store.empty and OFFSET_UNKNOWN in offsets.values():
        yield Unclean(label, "the store has rows, but its offset is unknown (-4)", store.name)
    if store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty:
        yield Unclean(label, f"the store has rows but no {store_checkpoint(store.name)}", store.name)


def _unclean_databases(task: Task, store: Store, *, beside: str | None, transactional: bool) -> Iterator[Unclean]:
    for database in store.databases:
        end = ending(database, transactional=transactional)
        place = database_shown(task, store, database)
        if end is Ending.OPEN:
            yield Unclean(place, "the store's status is open", store.name)
        elif end is Ending.SILENT and not database.empty:
            yield Unclean(place, "the store has rows but no status", store.name, no_status=True)
        elif end is Ending.COMMITTED and not database.empty and beside:
            text = (
                f"the store has rows but no status, and its offset in {beside} was not committed together with the rows"
            )
            yield Unclean(place, text, store.name, no_status=True)


def may_be_ahead(store: Store, resolved: TaskOffsets) -> bool:
    """Return True if replaying records over the rows of a store may give other rows than the changelog.

    That is so for a versioned store that was not closed. At-least-once may have flushed rows that are ahead of the
    offset, and ``RocksDBVersionedStore.put`` of an older version after newer ones has another result than in order. A
    transactional run commits rows and offset in one batch.
    """
    if store.empty or not has_key(store.kind.name, KeySchema.VERSIONED):
        return False
    return any(reason.store in (None, store.name) for reason in resolved.unclean)


def unclean_files(task: Task) -> Iterator[Unclean]:
    """Yield the signs of a crash of releases up to 4.2: ``.checkpoint`` is missing, or older than the data."""
    # Stores without rows do not count, because they cannot have rows of an aborted transaction.
    old = [store for store in task.stores if store.databases and not store.has_offsets_family and not store.empty]
    if not old or task.is_global:
        return
    if task.checkpoint is None:
        # If another store of the task has the column family, 4.3 has run: it keeps offsets there, and deletes the file
        # after its first start.
        if not task.has_offsets_family:
            yield Unclean(task.name, "the task has rows but no .checkpoint")
        return
    for store in old:
        # Streams flushes every store before it writes .checkpoint. So after a clean shutdown no SST is younger than
        # that file.
        if max(database.newest_sst_ns for database in store.databases) > task.checkpoint.mtime_ns:
            text = (
                "an SST is newer than .checkpoint, because of a crash, a late compaction, or a copy that lost the "
                "file times"
            )
            yield Unclean(f"{task.name}/{store.name}", text, store.name, younger=True)
