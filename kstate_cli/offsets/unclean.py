"""Signs that a task was not closed cleanly, so that uncommitted data may be in its stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import Ending, ending, left_committed
from kstate_cli.offsets.model import TaskOffsets, Unclean
from kstate_cli.offsets.segments import segments_disagree
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.statedir.names import store_checkpoint


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
        yield Unclean(label, "its segments disagree about its offset", store.name)
    if not store.empty and OFFSET_UNKNOWN in offsets.values():
        yield Unclean(label, "its offset is unknown (-4) although it has rows", store.name)
    if store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty:
        yield Unclean(label, f"it has rows but no {store_checkpoint(store.name)}", store.name)


def _unclean_databases(task: Task, store: Store, *, beside: str | None, transactional: bool) -> Iterator[Unclean]:
    for database in store.databases:
        end = ending(database, transactional=transactional)
        place = database_shown(task, store, database)
        if end is Ending.OPEN:
            yield Unclean(place, "its status is open", store.name)
        elif end is Ending.SILENT and not database.empty:
            yield Unclean(place, "it has rows but no status", store.name, no_status=True)
        elif end is Ending.COMMITTED and not database.empty and beside:
            text = f"it has rows but no status, and its offset in {beside} was not committed with them"
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
    old = [store for store in task.stores if store.databases and not store.has_offsets_family and not store.empty]
    if not old or task.is_global:
        return
    if task.checkpoint is None:
        if not task.has_offsets_family:
            yield Unclean(task.name, "it has rows but no .checkpoint")
        return
    for store in old:
        if max(database.newest_sst_ns for database in store.databases) > task.checkpoint.mtime_ns:
            text = "an SST is younger than .checkpoint (a crash, a late compaction, or a copy that did not keep times)"
            yield Unclean(f"{task.name}/{store.name}", text, store.name, younger=True)
