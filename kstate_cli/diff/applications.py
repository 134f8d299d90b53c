"""``kstate diff``: two application directories, store by store and row by row."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstate_cli.diff.merge import pairs, rows_of
from kstate_cli.diff.model import Diff, Difference, DiffWatcher, In, StoreDiff, Unread
from kstate_cli.diff.rows import Compared, comparable, compared, is_value, same_values
from kstate_cli.errors import InUse, UsageError
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.offsets.resolve import resolve
from kstate_cli.offsets.segments import reader_remarks
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.segment import Databases, Segment
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.whole_stores import Steady, filled, open_whole, others_of, refuse_running
from kstate_cli.specification.combine import refuse_other_kinds
from kstate_cli.specification.draft import SpecDraft
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, POSITION
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command, did_you_mean

_STEP = 65_536
"""Rows between two calls of ``DiffWatcher.at``."""
_OFFSET_FILES = (CHECKPOINT, POSITION)


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """What to compare; no ``tasks`` or ``stores``: all of them."""

    a: Path
    b: Path
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    spec: SpecDraft = field(default_factory=lambda: SpecDraft(None, ()))
    """What the specification says of kinds; nothing else of it counts here."""
    spec_named: str = "kstate.toml"
    ignore_timestamps: bool = False
    ignore_headers: bool = False
    positions: bool = False
    """Offsets and Positions count."""
    last_flush: bool = False
    workers: int = 1


def diff_applications(request: DiffRequest, watcher: DiffWatcher) -> Diff:
    """Compares; the rows at hand and a few open databases are all that it keeps.

    Raises UsageError, InUse, and Refused where the specification contradicts a directory.
    """
    a = read_application(request.a, workers=request.workers)
    b = read_application(request.b, workers=request.workers)
    for app in (a, b):
        refuse_running(app, last_flush=request.last_flush)
        refuse_other_kinds(app, request.spec, file_name=request.spec_named)
    here, there = _stores(a, request), _stores(b, request)
    _refuse_unknown(request, a, b, {*here, *there})
    steady = [
        Steady.of(app, [store for _, store in chosen.values()])
        for app, chosen in ((a, here), (b, there))
        if not app.running
    ]
    offsets = _offsets(a), _offsets(b)
    names = dict.fromkeys([*here, *there])
    stores: list[StoreDiff] = []
    for task, name in sorted(names):
        one = StoreDiff(task, name)
        both = here.get((task, name)), there.get((task, name))
        if both[0] is None or both[1] is None:
            _alone(one, request, (a, both[0]), (b, both[1]), watcher)
        else:
            _compare(one, request, (a, both[0]), (b, both[1]), watcher)
            one.offsets = _unlike(offsets[0].get((task, name)), offsets[1].get((task, name)))
        stores.append(one)
        watcher.store(one)
    for one_app in steady:
        one_app.check()
    return Diff(
        stores,
        _lone_tasks(a, b, request),
        [*_problems("A", a, request), *_problems("B", b, request)],
        request.positions,
        (a.as_of, b.as_of),
        tuple(
            f"{side}: {remark}"
            for side, app, stores_here in (("A", a, here), ("B", b, there))
            for _, store in stores_here.values()
            for remark in reader_remarks(store, running=bool(app.running))
        ),
    )


_TaskStores = dict[tuple[str, str], tuple[Task, Store]]


def _stores(app: Application, request: DiffRequest) -> _TaskStores:
    return {
        (task.name, store.name): (task, store)
        for task in app.tasks
        for store in task.stores
        if _named(task.name, request.tasks) and _named(store.name, request.stores)
    }


def _refuse_unknown(
    request: DiffRequest, a: Application, b: Application, compared: Collection[tuple[str, str]]
) -> None:
    """A name that is nowhere would count as equal, beside one that is."""
    tasks = [task for app in (a, b) for task in app.tasks]
    # What is so broken that it is no task or store any more is told as that.
    broken = {
        name
        for problems in (a.problems, b.problems, *(task.problems for task in tasks))
        for problem in problems
        for name in (problem.place.task, *problem.place.names)
    }
    for what, wanted, known in (
        ("task", request.tasks, {task.name for task in tasks}),
        ("store", request.stores, {store.name for task in tasks for store in task.stores}),
    ):
        if missing := sorted(wanted - known - broken):
            raise UsageError(
                f"no {what} {', '.join(missing)} in either directory",
                hint=f"{did_you_mean(missing, known)}what there is: {command('ls', a.path)}",
            )
    if not compared and request.stores:
        raise UsageError("no such task or store in either directory", hint=f"what there is: {command('ls', a.path)}")


def _named(name: str, wanted: Collection[str]) -> bool:
    return not wanted or name in wanted


def _lone_tasks(a: Application, b: Application, request: DiffRequest) -> list[tuple[str, In]]:
    if request.stores:
        return []  # a task without the named stores is nobody's matter
    in_a, in_b = ({task.name for task in app.tasks if _named(task.name, request.tasks)} for app in (a, b))
    return [(name, In.A if name in in_a else In.B) for name in sorted(in_a ^ in_b)]


def _compare(
    one: StoreDiff,
    request: DiffRequest,
    in_a: tuple[Application, tuple[Task, Store]],
    in_b: tuple[Application, tuple[Task, Store]],
    watcher: DiffWatcher,
) -> None:
    with closing(Databases()) as databases:
        try:
            a, filled_a = _open(in_a, request, databases, "A")
            b, filled_b = _open(in_b, request, databases, "B")
            one.kinds = _kinds(a, b, filled_a, filled_b)
            if not one.comparable:
                one.left_out = (f"rows: a {one.kinds[0]} store has other keys than a {one.kinds[1]} one",)
                return
            what = compared(
                a.layout,
                b.layout,
                ignore_timestamps=request.ignore_timestamps,
                ignore_headers=request.ignore_headers,
            )
            _rows(one, (a, filled_a), (b, filled_b), what, watcher)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            one.unreadable = Unread.of(error)


def _alone(
    one: StoreDiff,
    request: DiffRequest,
    in_a: tuple[Application, tuple[Task, Store] | None],
    in_b: tuple[Application, tuple[Task, Store] | None],
    watcher: DiffWatcher,
) -> None:
    """A store that the other directory has not: each of its rows is there only."""
    (app, place), one.where = (in_b, In.B) if in_a[1] is None else (in_a, In.A)
    assert place is not None
    side = one.where.side
    rows = 0
    with closing(Databases()) as databases:
        try:
            reader, with_rows = _open((app, place), request, databases, side)
            one.kinds = reader.kind, reader.kind
            for rows, _ in enumerate(rows_of(side, reader, with_rows), 1):
                if rows % _STEP == 0:
                    watcher.at(one, rows)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            one.unreadable = Unread.of(error)
    if one.where is In.A:
        one.rows_a = one.only_a = rows
    else:
        one.rows_b = one.only_b = rows


def _open(
    place: tuple[Application, tuple[Task, Store]], request: DiffRequest, databases: Databases, side: str
) -> tuple[StoreReader, list[Segment]]:
    app, (task, store) = place
    stated = request.spec.store(store.name)
    try:
        reader = open_whole(task, store, others_of(app, task, store), databases, kind=stated.kind if stated else None)
    except StoreUnreadable as error:
        raise error.on(side) from None
    return reader, filled(reader, store)


def _kinds(a: StoreReader, b: StoreReader, filled_a: list[Segment], filled_b: list[Segment]) -> tuple[str, str]:
    """A store without rows may look like another kind: then it is what the other one is."""
    if not comparable(a.kind, b.kind):
        if not filled_a and not filled_b:
            return a.kind, a.kind
        if not filled_a:
            return b.kind, b.kind
        if not filled_b:
            return a.kind, a.kind
    return a.kind, b.kind


def _rows(
    one: StoreDiff,
    in_a: tuple[StoreReader, list[Segment]],
    in_b: tuple[StoreReader, list[Segment]],
    what: Compared,
    watcher: DiffWatcher,
) -> None:
    (a, filled_a), (b, filled_b) = in_a, in_b
    one.left_out = what.left_out
    same = same_values(a.layout, b.layout, what)
    done = 0
    for key, left, right in pairs(a, b, filled_a, filled_b):
        done += 1
        if done % _STEP == 0:
            watcher.at(one, done)
        one.rows_a += left is not None
        one.rows_b += right is not None
        if left is not None and right is not None:
            try:
                if same(left, right):
                    continue
            except MalformedBytesError as error:
                side = "B" if is_value(a.layout, left) else "A"
                raise StoreUnreadable(f"{side}: {one.task}/{one.store}, row {key.hex()}: {error}") from None
            one.different += 1
        elif left is not None:
            one.only_a += 1
        else:
            one.only_b += 1
        watcher.difference(
            one,
            Difference(
                key,
                one.kinds[0],
                None if left is None else (a.layout, left),
                None if right is None else (b.layout, right),
            ),
        )


def _offsets(app: Application) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (task.task.name, one.store.name): {"changelog": task.offsets_shown(one), "position": one.position_shown}
        for task in resolve(app)
        for one in task.stores
    }


def _unlike(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    one, other = a or {}, b or {}
    return {name: (one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)}


def _problems(side: str, app: Application, request: DiffRequest) -> list[Unread]:
    """What stops anybody from reading all of a directory: rows would be missing in silence.

    Those of stores that were compared are told there; files of offsets matter only where offsets count.
    """
    unread = []
    compared_here = [Place.of(app.path, store.path) for task in app.tasks for store in task.stores]
    for problem in (*app.problems, *(one for task in app.tasks for one in task.problems)):
        place = problem.place
        of_offsets = any(mark in place.name for mark in _OFFSET_FILES)
        if not problem.fatal or any(map(place.within, compared_here)) or (of_offsets and not request.positions):
            continue
        if request.stores and not request.stores.intersection(place.names):
            continue
        if request.tasks and len(place.names) > 1 and place.task not in request.tasks:
            continue
        unread.append(Unread(f"{side}: {problem.text}", by_host=problem.code is ProblemCode.UNREADABLE))
    return unread
