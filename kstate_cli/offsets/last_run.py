"""How the last run that flushed left a database: closed, open, or with every commit complete (KIP-892).

This is about the run before. Whether the next start uses transactional stores is another question, which the user
answers (``--transactional-stores``); the bytes answer this one, except for a database that states nothing at all.
"""

from __future__ import annotations

from enum import Enum

from kstate_cli.formats.offsets import STATUS_CLOSED
from kstate_cli.releases import written_by
from kstate_cli.statedir.model import Database, Store


class Ending(Enum):
    """How a run left a database that has the column family ``offsets``."""

    CLOSED = "closed"
    """``status`` is 0: a run without transactional stores closed it, or a later one has not flushed since."""
    OPEN = "open"
    """``status`` is 1: killed after a flush, so uncommitted rows are possible under exactly-once."""
    COMMITTED = "committed"
    """No ``status``, and an offset or a Position: only transactional stores write these alone.

    Without the option ``AbstractColumnFamilyAccessor.open`` writes ``status`` before anything else, and RocksDB flushes
    all column families together. Rows, offset and Position of a commit are one ``WriteBatch``
    (``RocksDBTransactionBuffer``), so nothing uncommitted is on disk.
    """
    SILENT = "silent"
    """No row at all: never flushed, or the run ended before the first commit. The bytes prove nothing."""


def ending(database: Database, *, transactional: bool = False) -> Ending | None:
    """Return how a database was left, None if it has no column family ``offsets``.

    ``transactional``: the user says that the application ran with transactional stores. That decides about a database
    with rows that states nothing, if a release with such stores may have written it, and about no other.
    """
    record = database.offsets
    if record is None:
        return None
    if record.status is not None:
        return Ending.CLOSED if record.status == STATUS_CLOSED else Ending.OPEN
    if _transactional_release_possible(database):
        has_statement = bool(record.offsets) or record.position is not None
        if has_statement or (transactional and not database.empty):
            return Ending.COMMITTED
    return Ending.SILENT


def left_committed(store: Store, *, transactional: bool = False) -> bool:
    """Return True if no database of a store can hold uncommitted rows because its last run was transactional.

    Databases with ``status`` 0 count if another one of the store proves that run, or the user states it: such a run
    leaves the 0 of the run before in place.
    """
    endings = [ending(database, transactional=transactional) for database in store.databases]
    rows = [end for end, database in zip(endings, store.databases, strict=True) if not database.empty]
    if Ending.OPEN in endings or None in rows or Ending.SILENT in rows:
        return False
    return Ending.COMMITTED in endings or (transactional and Ending.CLOSED in endings)


def has_offset_if_logged(store: Store, *, transactional: bool = False) -> bool:
    """Return True if a store that has a changelog would have an offset in its databases.

    It was closed, for which it is committed (``StreamTask.closeClean``); or its rows came with their offset in one
    batch (KIP-892), so that a Position without an offset and a status proves that there is no changelog.
    """
    if store.status is not None:
        return store.status == "closed"
    return left_committed(store, transactional=transactional)


def _transactional_release_possible(database: Database) -> bool:
    """Return True if a release that has transactional stores may have opened the database last."""
    version = database.options.rocksdb_version if database.options else None
    return any(release.transactional for release in written_by(version, frozenset(database.column_families)))
