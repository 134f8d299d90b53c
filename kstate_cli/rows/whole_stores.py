"""Stores that are read whole: every row, whether they change meanwhile, and how many rows they have.

A number of rows is counted where that is quick, else estimated, and never one mistaken for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli.errors import InUse
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.rocks.files import CURRENT
from kstate_cli.rocks.health import current as read_current
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.open import open_store
from kstate_cli.rows.segment import Databases, Segment
from kstate_cli.rows.store import ReadAs, StoreReader
from kstate_cli.statedir.model import Application, Store, Task


def open_whole(
    task: Task, store: Store, others: Sequence[Store], databases: Databases, *, kind: str | None = None
) -> StoreReader:
    """Return the reader of a store to read whole, as bytes; arguments and errors as for ``open_store``."""
    return open_store(task, store, others, databases, ReadAs(kind))


def others_of(app: Application, task: Task, store: Store) -> list[Store]:
    """Return the stores of that name in all tasks of the topology: their rows may prove the kind of the store."""
    tasks = [other for other in app.tasks if other.topology == task.topology]
    return [same for other in tasks for same in other.stores if same.name == store.name]


def filled(reader: StoreReader, store: Store) -> list[Segment]:
    """Return the databases of a store that have rows."""
    with_rows = {database.path for database in store.databases if not database.empty}
    return [segment for segment in reader.segments if segment.path in with_rows]


def refuse_running(app: Application, *, last_flush: bool) -> None:
    """Raise InUse while the application is running, unless the caller wants the last flush."""
    if app.running and not last_flush:
        holder = f"process {app.pid}" if app.pid else "another process"
        raise InUse(
            f"{app.path} is open in {holder}: its newest rows are not on disk",
            hint="stop the application, or take what was flushed last (--last-flush)",
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """The state of databases, to prove later that no process has written to them."""

    app: Path
    states: tuple[tuple[Path, tuple[object, ...]], ...]

    @classmethod
    def of(cls, app: Application, stores: Iterable[Store]) -> Steady:
        """Return their state of now."""
        return cls(
            app.path, tuple((database.path, _state(database.path)) for store in stores for database in store.databases)
        )

    def check(self) -> None:
        """Raise InUse if one of them was opened or written to since: the rows may be of different times."""
        for path, before in self.states:
            if _state(path) != before:
                raise InUse(
                    f"{path.relative_to(self.app)} has changed while it was read",
                    hint="stop the application, and run the command again",
                )


def _state(path: Path) -> tuple[object, ...]:
    """RocksDB replaces CURRENT when it opens a database for writing, and writes the MANIFEST when files change."""
    try:
        current = (path / CURRENT).stat()
        if (name := read_current(path).stated_name) is None:
            return ()
        manifest = (path / name).stat()
    except (OSError, ValueError):
        return ()
    return current.st_mtime_ns, current.st_ino, manifest.st_mtime_ns, manifest.st_size


MOST_BYTES: Final = 64 << 20
_DATABASES: Final = 400
"""The most that is read to count the rows of one application, and again while it is read: about a second."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``number`` is None if the store cannot be read, and an estimate unless ``exact``."""

    number: int | None
    exact: bool
    unread: bool = False
    """Whether a disk or missing rights are the only cause, so that the store itself may be whole."""


def count_rows(app: Application) -> dict[tuple[str, str], Rows]:
    """Return the rows of each store, by task and name, without the index rows of time-ordered stores.

    The smallest stores are counted first, until ``MOST_BYTES`` or ``_DATABASES`` are reached. If the reading of the
    directory has counted the rows, that count is used.
    """
    stores = [(task, store) for task in app.tasks for store in task.stores]
    counts: dict[tuple[str, str], Rows] = {}
    size = databases = 0
    for task, store in sorted(stores, key=lambda pair: sum(database.size for database in pair[1].databases)):
        if (number := _count_of_scan(app, task, store)) is not None:
            counts[task.name, store.name] = Rows(number, exact=True)
            continue
        size += sum(database.size for database in store.databases)
        databases += sum(not database.empty for database in store.databases)
        is_small = size <= MOST_BYTES and databases <= _DATABASES
        counts[task.name, store.name] = _count(app, task, store) if is_small else _estimate(store)
    return counts


def _count_of_scan(app: Application, task: Task, store: Store) -> int | None:
    """Return the sum of its families' rows; None if some were not counted, or a key may be in two families."""
    families = [dict(database.row_counts) for database in store.databases if database.row_counts is not None]
    if len(families) < len(store.databases) or any(sum(map(bool, counts.values())) > 1 for counts in families):
        return None
    with closing(Databases()) as databases:
        try:
            layout = open_whole(task, store, others_of(app, task, store), databases).layout
        except (StoreUnreadable, MalformedBytesError):
            return None
    return None if layout.key.time_ordered else sum(sum(counts.values()) for counts in families)


def _count(app: Application, task: Task, store: Store) -> Rows:
    with closing(Databases()) as databases:
        try:
            reader = open_whole(task, store, others_of(app, task, store), databases)
        except (StoreUnreadable, MalformedBytesError):
            return _estimate(store)  # its kind is uncertain
        bounds = reader.layout.key.base_rows
        try:
            return Rows(sum(_length(segment.scan(*bounds)) for segment in filled(reader, store)), exact=True)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            # A running application may have removed a file meanwhile.
            if app.running:
                return _estimate(store)
            return Rows(None, exact=False, unread=isinstance(error, StoreUnreadable) and error.by_host)


def _length(rows: Iterator[object]) -> int:
    return sum(1 for _ in rows)


def _estimate(store: Store) -> Rows:
    if any(problem.fatal for database in store.databases for problem in database.problems):
        return Rows(None, exact=False)
    sampled = sum(len(rows) for database in store.databases for rows in database.samples.values())
    estimate = max(sampled, sum(database.rows for database in store.databases))
    return Rows(estimate, exact=False)
