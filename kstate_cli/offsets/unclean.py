"""Whether a task was left clean: what tells that uncommitted data may be in its stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import Unclean
from kstate_cli.releases import written_by
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.statedir.names import store_checkpoint


def database_shown(task: Task, store: Store, database: Database) -> str:
    """How messages call one database of a store."""
    shown = f"{task.name}/{store.name}"
    return shown if database.segment_start is None else f"{shown} (segment {database.segment_start})"


def without_status(store: Store) -> tuple[Database, ...]:
    """The databases that have rows, the column family ``offsets``, and no ``status`` in it."""
    return tuple(
        database
        for database in store.databases
        if database.offsets is not None and database.offsets.status is None and not database.empty
    )


def never_writes_status(database: Database) -> bool:
    """Whether a release may have left the database which has transactional stores (KIP-892)."""
    version = database.options.rocksdb_version if database.options else None
    return any(one.transactional for one in written_by(version, frozenset(database.column_families)))


def has_offset_if_logged(store: Store, *, transactional: bool) -> bool:
    """Whether a store that has a changelog would have an offset in its databases.

    It was closed, for which it is committed (``StreamTask.closeClean``); or its rows came with their offset in one
    batch, where somebody says that the application runs with transactional stores.
    """
    if store.status is not None or not transactional:
        return store.status == "closed"
    left = without_status(store)
    return bool(left) and all(map(never_writes_status, left))


def unclean_store(
    task: Task,
    store: Store,
    offsets: Mapping[TopicPartition, int],
    *,
    beside: str | None = None,
    transactional: bool = False,
) -> Iterator[Unclean]:
    """What releases go by that keep offsets in the store: the status in each database, and whether the offset is known.

    ``transactional``: somebody says that the application runs with stores that never write a status. It counts for what
    a release that has them may have left, and only with an offset that was committed with the rows: not where the file
    ``beside`` the store has one, nor over a status that is there.
    """
    shown = f"{task.name}/{store.name}"
    left = without_status(store)
    for database in store.databases:
        if database.offsets is None:
            continue
        place = database_shown(task, store, database)
        if database.offsets.status not in (None, 0):
            yield Unclean(place, "its status is open", store.name)
        elif database in left and not (transactional and never_writes_status(database)):
            yield Unclean(place, "it has rows but no status", store.name, no_status=True)
        elif database in left and beside:
            what = f"it has rows but no status, and its offset in {beside} was not committed with them"
            yield Unclean(place, what, store.name, no_status=True)
    if not store.empty and OFFSET_UNKNOWN in offsets.values():
        yield Unclean(shown, "its offset is unknown (-4) although it has rows", store.name)
    if store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty:
        yield Unclean(shown, f"it has rows but no {store_checkpoint(store.name)}", store.name)


def unclean_files(task: Task) -> Iterator[Unclean]:
    """Releases up to 4.2 tell a crash only by ``.checkpoint``: missing, or older than the data."""
    old = [store for store in task.stores if store.databases and not store.has_offsets_family and not store.empty]
    if not old or task.is_global:
        return
    if task.checkpoint is None:
        if not task.has_offsets_family:
            yield Unclean(task.name, "it has rows but no .checkpoint")
        return
    for store in old:
        if max(database.newest_sst_ns for database in store.databases) > task.checkpoint.mtime_ns:
            what = "an SST is younger than .checkpoint (a crash, a late compaction, or a copy that did not keep times)"
            yield Unclean(f"{task.name}/{store.name}", what, store.name, younger=True)
