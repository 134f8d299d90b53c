"""How many rows a store has: counted where that is quick, else estimated, and never one for the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from kstate_cli.errors import InUse
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.rows.databases import Databases
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.whole_stores import filled, open_whole, others_of
from kstate_cli.statedir.model import Application, Store, Task

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
