"""Find a store in all tasks that have it, and open it for reading.

All tasks of the store are found, or none: if a task or a part of the store may be hidden, kstate refuses to read it.

A command that reads a whole store (``open_whole``) also needs to know whether it changes meanwhile (:class:`Steady`),
and how many rows it has (:func:`count_rows`). Rows are counted if that is quick. Otherwise their number is an estimate,
and is marked as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.errors import InUse, Refused
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.store_kinds import expires, is_segmented, store_kind
from kstate_cli.rocks.files import CURRENT
from kstate_cli.rocks.health import current as read_current
from kstate_cli.rows.errors import StoreUnreadable, UnknownStateStoreError, look_closer
from kstate_cli.rows.records import Layout, layout_of
from kstate_cli.rows.segment import Databases, ReadAs, Segment, StoreReader
from kstate_cli.rows.values import FOREVER
from kstate_cli.specification.draft import IN_MEMORY, table_lines
from kstate_cli.statedir.find import store_folders
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.problems import Place, Problem, ProblemCode, both_places
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion, suggest


def open_store(task: Task, store: Store, others: Sequence[Store], databases: Databases, read_as: ReadAs) -> StoreReader:
    """Return the reader of a store; ``others`` are the stores of its name in all tasks.

    Raises StoreUnreadable if it or a part of it is damaged, or if its layout is uncertain.
    """
    problems = (other for database in store.databases for other in database.problems if other.fatal)
    problem = first_problem(task, store) or next(problems, None)
    if problem is not None:
        # Without the damaged part, rows would be missing silently.
        by_host = problem.code is ProblemCode.UNREADABLE
        raise StoreUnreadable(problem.text, hint=look_closer(task.app, by_host=by_host), by_host=by_host)
    layout = _layout(task, store, others, read_as.kind)
    # A store of unknown kind has no rows, so none of its databases is opened.
    with_rows = store.databases if layout.families else ()
    databases_in_order = sorted(with_rows, key=lambda database: database.segment_start or 0)
    # Whatever the segment interval is, a segment ends where the next one begins. The last one has no end.
    ends = [*(database.segment_start or 0 for database in databases_in_order[1:]), FOREVER + 1]
    segments = tuple(
        Segment(
            database.path,
            task.app,
            database.segment_start,
            layout,
            databases,
            end=end,
        )
        for database, end in zip(databases_in_order, ends, strict=False)
    )
    return StoreReader(
        task,
        store,
        layout,
        segments,
        read_as,
        misplaced_segments=_misplaced_segments(layout.kind, segments, databases_in_order),
    )


def _misplaced_segments(
    kind: str, segments: Sequence[Segment], databases: Sequence[Database]
) -> StoreUnreadable | None:
    """Return an error if a sampled row does not belong to the segment that contains it; None if all of them do.

    A segment has the rows from the start in the name of its folder to the start of the next segment. A row outside of
    this range shows that a folder was renamed, or that the retention was changed. A query by time would then skip rows
    silently.
    """
    if not expires(kind):
        return None
    time_of = store_kind(kind).key.segment_time
    try:
        for segment, database in zip(segments, databases, strict=True):
            # Samples were read together with the directory, so no database is opened for this check.
            for key, _ in chain.from_iterable(database.samples.values()):
                segment.own(time_of(key))
    except StoreUnreadable as error:
        return error
    except MalformedBytesError:
        return None  # a malformed row is reported when it is read
    return None


def _layout(task: Task, store: Store, others: Sequence[Store], kind: str | None) -> Layout:
    """Return how to read the rows of a store. Raise StoreUnreadable if that is uncertain.

    ``others`` are the stores of the same name in all tasks. ``kind`` is the kind that the user specifies; None without
    one.
    """
    name = store.kind.name
    if not store.kind.certain:
        # A store without rows may look like several kinds. The same store in another task may have rows that show its
        # kind.
        certain = {other.kind.name for other in others if other.kind.certain}
        if kind not in (None, IN_MEMORY):
            # The user has specified the kind. IN_MEMORY is excluded above, because such a store has no layout on disk.
            name = str(kind)
        # Rows in another task prove the kind, because a store has the same kind in all tasks.
        elif len(certain) == 1:
            name = certain.pop()
        elif not store.empty:
            raise StoreUnreadable(
                f"{task.name}/{store.name} may be of several kinds ({store.kind.inferred_from})",
                hint=f"specify the store's kind in a kstate.toml and pass this file with {option.SPEC}",
                hint_details=[f"to create this file, run {command('ls', task.app, option.SPEC)}"],
                is_damage=False,
            )
    # The newest of the existing column families decides how values are read.
    layout = layout_of(name, store.families)
    if store.segmented != is_segmented(name):
        if store.empty:
            return Layout(name, ())
        message = f"{task.name}/{store.name} is not segmented, so it is not a {name} store"
        if store.segmented:
            message = f"{task.name}/{store.name} is segmented, so it is not a {name} store"
        # The kind in the specification is wrong, not the directory.
        if kind == name:
            raise StoreUnreadable(message, hint="correct its kind in the specification", is_damage=False)
        raise StoreUnreadable(
            message,
            hint=(
                "this database does not belong to the store. Replace it with the right one. Or move it out with a "
                "command that you can undo:"
            ),
            hint_details=[command("wipe", task.app, option.TASK, task.name, option.STORE, store.name)],
            is_damage=False,
        )
    if layout is None:
        # layout_of returned None, so several kinds are possible. Only an empty store comes here, and it has no rows to
        # read.
        return Layout(name, ())
    return layout


def stores_of(
    app: Application, name: str, *, topology: str | None = None, subtopology: int | None = None
) -> list[tuple[Task, Store]]:
    """Return the tasks that have the store, each partition once.

    ``topology`` and ``subtopology`` restrict them. Raises UnknownStateStoreError. Raises Refused if it is uncertain
    which tasks belong to the store: several topologies or sub-topologies have the name (one may be a rest of an older
    topology), or a part of the store may be hidden.
    """
    tasks = [
        task for task in app.tasks if topology in (None, task.topology) and subtopology in (None, _subtopology(task))
    ]
    _refuse_hidden(app, tasks, name)
    matching = [(task, store) for task in tasks for store in task.stores if store.name == name]
    if not matching:
        place = ""
        if topology:
            place = f" in topology {topology}"
        raise UnknownStateStoreError(
            f"no task in {app.path} has a store {name}{place}",
            hint=hint_with_suggestion(
                _suggestion(app, name, topology), f"to list the stores, run {command('ls', app.path)}"
            ),
        )
    # Only the tasks that have the store are compared: other sub-topologies do not matter.
    refuse_several_places([task for task, _ in matching], name)
    return matching


def _refuse_hidden(app: Application, tasks: Sequence[Task], name: str) -> None:
    """Raise Refused for a problem that may hide a task, or the store in a task."""
    hidden_stores = (problem for task in tasks for problem in _hidden_stores(task, name))
    for problem in chain(_hidden_tasks(app), hidden_stores):
        raise Refused(
            f"{problem.place.text}: {problem.description}, so kstate may not see all of store {name}",
            hint=f"{problem.rule}: restore the original entry",
        )


def refuse_several_places(tasks: Sequence[Task], name: str) -> None:
    """Raise Refused if the tasks of a store are of several named topologies or several sub-topologies."""
    topologies = sorted({task.topology or "" for task in tasks})
    if len(topologies) > 1:
        raise Refused(
            f"store {name} is in several topologies: {', '.join(topologies)}",
            hint=f"pass one of them: {option.TOPOLOGY}",
        )
    numbers = {_subtopology(task) for task in tasks}
    if len(numbers) > 1:
        raise Refused(
            f"store {name} is in tasks of several sub-topologies: {', '.join(task.name for task in tasks)}",
            hint=(
                f"only one of these sub-topologies is current. Specify it in kstate.toml ({option.SPEC}), for example:"
            ),
            hint_details=table_lines(name, f"subtopology = {max(number for number in numbers if number is not None)}"),
        )


def _suggestion(app: Application, name: str, topology: str | None) -> str:
    stores = set(store_folders(app.path))  # the model has only the stores that were requested
    topologies = {task.topology for task in app.tasks if task.topology}
    return did_you_mean([name], stores) or did_you_mean(filter(None, [topology]), topologies)


def first_problem(task: Task, store: Store) -> Problem | None:
    """Return the first problem in the folder of a store beside its databases: a foreign entry or a link; else None."""
    return next(_within(task, Place.of(task.app, store.path)), None)


def _subtopology(task: Task) -> int | None:
    """Return the number of a task's sub-topology; None for ``global``."""
    if task.is_global:
        return None
    return task.id.subtopology or 0


def _hidden_tasks(app: Application) -> Iterator[Problem]:
    """Yield the problems of task directories that were not read."""
    yield from (problem for problem in app.problems if problem.fatal and problem.place.hides_tasks)


def _hidden_stores(task: Task, name: str) -> Iterator[Problem]:
    """Yield the problems at the place of a store in a task that seems to have none."""
    if any(store.name == name for store in task.stores):
        return
    yield from (problem for problem in task.problems if problem.fatal and problem.place.is_rocksdb_folder)
    for folder in both_places(task.name, name):
        yield from _within(task, folder)


def _within(task: Task, folder: Place) -> Iterator[Problem]:
    yield from (problem for problem in task.problems if problem.fatal and problem.place.within(folder))


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
        holder = "another process"
        if app.pid:
            holder = f"process {app.pid}"
        raise InUse(
            f"{app.path} is open in {holder}, so its newest rows are not on disk",
            hint=(
                "stop the "
                f"application{suggest(f' or pass {option.LAST_FLUSH} to read the last flush', option.LAST_FLUSH)}"
            ),
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """The state of databases when they were opened, to prove later that no process has written to them."""

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
                    f"{path.relative_to(self.app)} changed while kstate read it",
                    hint="stop the application, then run the command again",
                )


def _state(path: Path) -> tuple[object, ...]:
    """Return facts that each change of the database changes: about CURRENT, which an open replaces, and the MANIFEST.

    The result is empty if there is no database.
    """
    try:
        # An open for writing replaces CURRENT. Its time and inode change even if nothing else is written.
        current = (path / CURRENT).stat()
        if (name := read_current(path).stated_name) is None:
            # An empty state equals only another empty one. So a database that appears or vanishes has changed.
            return ()
        manifest = (path / name).stat()
    except (OSError, ValueError):
        return ()
    return current.st_mtime_ns, current.st_ino, manifest.st_mtime_ns, manifest.st_size


MOST_BYTES: Final = 64 << 20
"""The most bytes that are read to count the rows of one application: about a second."""
_DATABASES: Final = 400
"""The most databases that are opened for that."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The number of rows of a store: an estimate unless ``exact``; ``number`` is None if the store cannot be read."""

    number: int | None
    exact: bool
    unread: bool = False
    """True if only the disk or missing rights prevent the reading, so that the store itself may be undamaged."""


def count_rows(app: Application) -> dict[tuple[str, str], Rows]:
    """Return the number of rows of each store, by task and name, without the index rows of time-ordered stores.

    Stores are counted until ``MOST_BYTES`` or ``_DATABASES`` is reached; the others get an estimate. If the rows were
    counted when the directory was read, that number is used.
    """
    stores = [(task, store) for task in app.tasks for store in task.stores]
    counts: dict[tuple[str, str], Rows] = {}
    size = databases = 0
    # The smallest first, so that as many stores as possible have an exact number.
    for task, store in sorted(stores, key=lambda pair: sum(database.size for database in pair[1].databases)):
        if (number := _count_of_scan(app, task, store)) is not None:
            counts[task.name, store.name] = Rows(number, exact=True)
            continue
        size += sum(database.size for database in store.databases)
        databases += sum(not database.empty for database in store.databases)
        if size <= MOST_BYTES and databases <= _DATABASES:
            counts[task.name, store.name] = _count(app, task, store)
        else:
            counts[task.name, store.name] = _estimate(store)
    return counts


def _count_of_scan(app: Application, task: Task, store: Store) -> int | None:
    """Return the number of rows that the reading of the directory has counted.

    Return None if it has not counted all of them, or if the sum of the families' rows is not the number of records.
    """
    families = [dict(database.row_counts) for database in store.databases if database.row_counts is not None]
    # If two families of a database have rows, a key may be in both, and must count once.
    if len(families) < len(store.databases) or any(sum(map(bool, counts.values())) > 1 for counts in families):
        return None
    with closing(Databases()) as databases:
        try:
            layout = open_whole(task, store, others_of(app, task, store), databases).layout
        except (StoreUnreadable, MalformedBytesError):
            return None
    if layout.key.time_ordered:
        # A time-ordered store has index rows in the same family, which do not count.
        return None
    return sum(sum(counts.values()) for counts in families)


def _count(app: Application, task: Task, store: Store) -> Rows:
    """Return the number of rows of a store: counted, or estimated where that is not possible."""
    with closing(Databases()) as databases:
        try:
            reader = open_whole(task, store, others_of(app, task, store), databases)
        except (StoreUnreadable, MalformedBytesError):
            return _estimate(store)  # its kind is uncertain
        bounds = reader.layout.key.base_rows
        try:
            return Rows(sum(_length(segment.scan(*bounds)) for segment in filled(reader, store)), exact=True)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            # A running application may have removed a file since the directory was read.
            if app.running:
                return _estimate(store)
            return Rows(None, exact=False, unread=isinstance(error, StoreUnreadable) and error.by_host)


def _length(rows: Iterator[object]) -> int:
    return sum(1 for _ in rows)


def _estimate(store: Store) -> Rows:
    """Return an estimate of the number of rows; no number if the store has a fatal problem."""
    if any(problem.fatal for database in store.databases for problem in database.problems):
        return Rows(None, exact=False)
    # RocksDB's estimate may be 0 if rows are only in a write-ahead log. So it is at least the number of sampled rows.
    sampled = sum(len(rows) for database in store.databases for rows in database.samples.values())
    estimate = max(sampled, sum(database.rows for database in store.databases))
    return Rows(estimate, exact=False)
