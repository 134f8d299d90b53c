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
    """The reader of a store of which every row is wanted, as bytes; raises and takes what ``open_store`` does."""
    return open_store(task, store, others, databases, ReadAs(kind))


def others_of(app: Application, task: Task, store: Store) -> list[Store]:
    """The stores of that name in all tasks of the topology: what its own rows do not tell of its kind, theirs may."""
    return [one for of in app.tasks if of.topology == task.topology for one in of.stores if one.name == store.name]


def filled(reader: StoreReader, store: Store) -> list[Segment]:
    """The databases of a store that have rows."""
    with_rows = {database.path for database in store.databases if not database.empty}
    return [segment for segment in reader.segments if segment.path in with_rows]


def refuse_running(app: Application, *, last_flush: bool) -> None:
    """Raises InUse beside a running application, unless what was flushed last is asked for."""
    if app.running and not last_flush:
        holder = f"process {app.pid}" if app.pid else "another process"
        raise InUse(
            f"{app.path} is open in {holder}: its newest rows are not on disk",
            hint="stop the application, or take what was flushed last (--last-flush)",
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """What databases look like that nobody writes to."""

    app: Path
    seen: tuple[tuple[Path, tuple[object, ...]], ...]

    @classmethod
    def of(cls, app: Application, stores: Iterable[Store]) -> Steady:
        """As they are now."""
        return cls(app.path, tuple((one.path, _look(one.path)) for store in stores for one in store.databases))

    def check(self) -> None:
        """Raises InUse where one of them has been opened or written to since: its parts may not fit together."""
        for path, before in self.seen:
            if _look(path) != before:
                raise InUse(
                    f"{path.relative_to(self.app)} has changed while it was read",
                    hint="stop the application, and run the command again",
                )


def _look(path: Path) -> tuple[object, ...]:
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
"""What is read at most to count the rows of one application, and as much again while it is read: about a second."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``number`` is None where the store cannot be read; an estimate unless ``exact``."""

    number: int | None
    exact: bool
    unread: bool = False
    """Only because of a disk that does not answer, or rights: that says nothing of the store."""


def count_rows(app: Application) -> dict[tuple[str, str], Rows]:
    """The rows of each store, by task and name, without the index rows of time-ordered stores.

    Where they were not counted as the directory was read they are in the smallest stores first, until so many bytes or
    databases were read.
    """
    stores = [(task, store) for task in app.tasks for store in task.stores]
    counts: dict[tuple[str, str], Rows] = {}
    size = databases = 0
    for task, store in sorted(stores, key=lambda one: sum(database.size for database in one[1].databases)):
        if (known := _known(app, task, store)) is not None:
            counts[task.name, store.name] = Rows(known, exact=True)
            continue
        size += sum(database.size for database in store.databases)
        databases += sum(not database.empty for database in store.databases)
        counted = size <= MOST_BYTES and databases <= _DATABASES
        counts[task.name, store.name] = _counted(app, task, store) if counted else _estimated(store)
    return counts


def _known(app: Application, task: Task, store: Store) -> int | None:
    """What the rows of its column families add up to; None where some were not counted, or a key may count twice."""
    families = [dict(database.row_counts) for database in store.databases if database.row_counts is not None]
    if len(families) < len(store.databases) or any(sum(map(bool, one.values())) > 1 for one in families):
        return None
    with closing(Databases()) as databases:
        try:
            layout = open_whole(task, store, others_of(app, task, store), databases).layout
        except (StoreUnreadable, MalformedBytesError):
            return None
    return None if layout.key.time_ordered else sum(sum(one.values()) for one in families)


def _counted(app: Application, task: Task, store: Store) -> Rows:
    with closing(Databases()) as databases:
        try:
            reader = open_whole(task, store, others_of(app, task, store), databases)
        except (StoreUnreadable, MalformedBytesError):
            return _estimated(store)  # of no certain kind
        bounds = reader.layout.key.base_rows
        try:
            return Rows(sum(_length(segment.scan(*bounds)) for segment in filled(reader, store)), exact=True)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            # Beside a running application a file may have gone meanwhile.
            unread = isinstance(error, StoreUnreadable) and error.by_host
            return _estimated(store) if app.running else Rows(None, exact=False, unread=unread)


def _length(rows: Iterator[object]) -> int:
    return sum(1 for _ in rows)


def _estimated(store: Store) -> Rows:
    if any(problem.fatal for database in store.databases for problem in database.problems):
        return Rows(None, exact=False)
    sampled = sum(len(rows) for database in store.databases for rows in database.samples.values())
    estimate = max(sampled, sum(database.rows for database in store.databases))
    return Rows(estimate, exact=False)
