"""``kstate diff``: two application directories, store by store and row by row."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from kstate_cli.diff.model import (
    Compared,
    Diff,
    Difference,
    DiffWatcher,
    In,
    StoreDiff,
    Unread,
    comparable,
    fields_to_compare,
    is_value,
    pairs,
    rows_of,
    same_values,
)
from kstate_cli.errors import InUse, UsageError
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.offsets.last_run import reader_remarks
from kstate_cli.offsets.resolve import resolve
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.open import Steady, filled, open_whole, others_of, refuse_running
from kstate_cli.rows.records import Layout
from kstate_cli.rows.segment import Databases, Segment, StoreReader
from kstate_cli.specification.combine import refuse_other_kinds
from kstate_cli.specification.draft import SpecDraft
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, POSITION
from kstate_cli.statedir.problems import Place, ProblemCode
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion

_STEP = 65_536
"""Rows between two calls of ``DiffWatcher.at``."""
_OFFSET_FILES = (CHECKPOINT, POSITION)


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The selection; empty ``tasks`` or ``stores`` stand for all of them."""

    a: Path
    b: Path
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    spec: SpecDraft = field(default_factory=lambda: SpecDraft(None, ()))
    """The specification, of which only the kinds count here."""
    spec_named: str = "kstate.toml"
    ignore_timestamps: bool = False
    ignore_headers: bool = False
    positions: bool = False
    """Offsets and Positions count."""
    last_flush: bool = False
    workers: int = 1


def diff_applications(request: DiffRequest, watcher: DiffWatcher) -> Diff:
    """Compare two application directories, and report each difference to ``watcher``.

    Only the two compared rows and a few open databases are in memory. Raises UsageError, InUse, and Refused if the
    specification contradicts a directory.
    """
    a = read_application(request.a, workers=request.workers)
    b = read_application(request.b, workers=request.workers)
    for app in (a, b):
        # A running application has rows in memory. Compared with a closed one, these would count as differences.
        refuse_running(app, last_flush=request.last_flush)
        # Checked before any row is read: with another kind, the same bytes would have other values.
        refuse_other_kinds(app, request.spec, file_name=request.spec_named)
    stores_a, stores_b = _stores(a, request), _stores(b, request)
    _refuse_unknown(request, a, b, {*stores_a, *stores_b})
    stopped = [
        Steady.of(app, [store for _, store in stores.values()])
        for app, stores in ((a, stores_a), (b, stores_b))
        if not app.running
    ]
    # The offsets are determined as a start does, because two directories may have the same offset in different places.
    offsets = _offsets(a), _offsets(b)
    diffs: list[StoreDiff] = []
    for place in sorted(stores_a.keys() | stores_b.keys()):
        diff = StoreDiff(*place)
        store_a, store_b = stores_a.get(place), stores_b.get(place)
        if store_a is None or store_b is None:
            _alone(diff, request, (a, store_a), (b, store_b), watcher)
        else:
            _compare(diff, request, (a, store_a), (b, store_b), watcher)
            diff.offsets = _unlike(offsets[0].get(place), offsets[1].get(place))
        diffs.append(diff)
        watcher.store(diff)
    # If an application was started meanwhile, it has changed files that were read. The result would belong to no single
    # moment.
    for steady in stopped:
        steady.check()
    return Diff(
        diffs,
        _lone_tasks(a, b, request),
        [*_problems("A", a, request), *_problems("B", b, request)],
        request.positions,
        (a.as_of, b.as_of),
        tuple(
            f"{side}: {remark}"
            # Remarks are doubts about completeness: the same rows may be missing on both sides.
            for side, app, stores in (("A", a, stores_a), ("B", b, stores_b))
            for _, store in stores.values()
            for remark in reader_remarks(store, running=bool(app.running))
        ),
    )


_TaskStores = dict[tuple[str, str], tuple[Task, Store]]


def _stores(app: Application, request: DiffRequest) -> _TaskStores:
    return {
        (task.name, store.name): (task, store)
        for task in app.tasks
        for store in task.stores
        if _selects(request.tasks, task.name) and _selects(request.stores, store.name)
    }


def _refuse_unknown(
    request: DiffRequest, a: Application, b: Application, compared: Collection[tuple[str, str]]
) -> None:
    """Raise UsageError for a task or store that neither directory has. Otherwise it would count as equal."""
    tasks = [task for app in (a, b) for task in app.tasks]
    # A task or store may be so damaged that kstate does not recognize it. It is then reported as a problem.
    broken = {
        name
        for problems in (a.problems, b.problems, *(task.problems for task in tasks))
        for problem in problems
        for name in (problem.place.task, *problem.place.names)
    }
    for noun, requested, existing in (
        ("task", request.tasks, {task.name for task in tasks}),
        ("store", request.stores, {store.name for task in tasks for store in task.stores}),
    ):
        if missing := sorted(requested - existing - broken):
            raise UsageError(
                f"neither directory contains the {noun} {', '.join(missing)}",
                hint=hint_with_suggestion(
                    did_you_mean(missing, existing), f"to list the stores, run {command('ls', a.path)}"
                ),
            )
    if not compared and request.stores:
        raise UsageError(
            ("neither directory contains a selected store in a selected task"),
            hint=f"to list the stores, run {command('ls', a.path)}",
        )


def _selects(names: Collection[str], name: str) -> bool:
    return not names or name in names


def _lone_tasks(a: Application, b: Application, request: DiffRequest) -> list[tuple[str, In]]:
    if request.stores:
        return []  # the user named stores: tasks that lack all of them do not count
    in_a, in_b = ({task.name for task in app.tasks if _selects(request.tasks, task.name)} for app in (a, b))
    lone = [(name, In.A) for name in in_a - in_b] + [(name, In.B) for name in in_b - in_a]
    return sorted(lone, key=itemgetter(0))


def _compare(
    diff: StoreDiff,
    request: DiffRequest,
    in_a: tuple[Application, tuple[Task, Store]],
    in_b: tuple[Application, tuple[Task, Store]],
    watcher: DiffWatcher,
) -> None:
    """Open both copies of a store, and add their differences to ``diff``.

    A store that cannot be read is a result of the comparison: the other stores are still compared.
    """
    with closing(Databases()) as databases:
        try:
            a, segments_a = _open(in_a, request, databases, "A")
            b, segments_b = _open(in_b, request, databases, "B")
            diff.kinds = _kinds(a, b, segments_a, segments_b)
            # Rows of two kinds with different keys have no counterparts, so none are compared.
            if not diff.comparable:
                diff.left_out = (f"the rows, because {diff.kinds[0]} and {diff.kinds[1]} stores have different keys",)
                return
            fields = fields_to_compare(
                a.layout,
                b.layout,
                ignore_timestamps=request.ignore_timestamps,
                ignore_headers=request.ignore_headers,
            )
            _rows(diff, (a, segments_a), (b, segments_b), fields, watcher)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            diff.unreadable = Unread.of(error)


def _alone(
    diff: StoreDiff,
    request: DiffRequest,
    in_a: tuple[Application, tuple[Task, Store] | None],
    in_b: tuple[Application, tuple[Task, Store] | None],
    watcher: DiffWatcher,
) -> None:
    """Add a store that only one directory has to ``diff``: each of its rows exists on that side only."""
    (app, place), diff.where = in_a, In.A
    if place is None:
        (app, place), diff.where = in_b, In.B
    assert place is not None
    side = diff.where.side
    rows = 0
    with closing(Databases()) as databases:
        try:
            reader, with_rows = _open((app, place), request, databases, side)
            diff.kinds = reader.kind, reader.kind
            # The rows are counted, because a store with rows is a more important difference than an empty one.
            for rows, _ in enumerate(rows_of(side, reader, with_rows), 1):
                if rows % _STEP == 0:
                    watcher.at(diff, rows)
        except (StoreUnreadable, MalformedBytesError, InUse) as error:
            diff.unreadable = Unread.of(error)
    if diff.where is In.A:
        diff.rows_a = diff.only_a = rows
    else:
        diff.rows_b = diff.only_b = rows


def _open(
    place: tuple[Application, tuple[Task, Store]], request: DiffRequest, databases: Databases, side: str
) -> tuple[StoreReader, list[Segment]]:
    """Open a store of one side; return its reader and its segments with rows. Raise StoreUnreadable with the side."""
    app, (task, store) = place
    draft, kind = request.spec.store(store.name), None
    if draft is not None:
        kind = draft.kind
    try:
        reader = open_whole(task, store, others_of(app, task, store), databases, kind=kind)
    except StoreUnreadable as error:
        raise error.on(side) from None
    return reader, filled(reader, store)


def _kinds(a: StoreReader, b: StoreReader, segments_a: list[Segment], segments_b: list[Segment]) -> tuple[str, str]:
    """Return the kinds of both stores; an empty one, which may look like another kind, gets that of the other."""
    if not comparable(a.kind, b.kind):
        # Two empty stores are equal whatever their kinds are.
        if not segments_a and not segments_b:
            return a.kind, a.kind
        if not segments_a:
            return b.kind, b.kind
        if not segments_b:
            return a.kind, a.kind
    return a.kind, b.kind


def _rows(
    diff: StoreDiff,
    in_a: tuple[StoreReader, list[Segment]],
    in_b: tuple[StoreReader, list[Segment]],
    fields: Compared,
    watcher: DiffWatcher,
) -> None:
    """Compare the rows of a store that both directories have, and report each difference.

    Raise StoreUnreadable if a value cannot be decoded.
    """
    (a, segments_a), (b, segments_b) = in_a, in_b
    diff.left_out = fields.left_out
    same = same_values(a.layout, b.layout, fields)
    for number, (key, left, right) in enumerate(pairs(a, b, segments_a, segments_b), 1):
        # The progress is reported every _STEP rows: a call for each row would take longer than the comparison.
        if number % _STEP == 0:
            watcher.at(diff, number)
        diff.rows_a += left is not None
        diff.rows_b += right is not None
        if left is not None and right is not None:
            try:
                if same(left, right):
                    continue
            except MalformedBytesError as error:
                # The error does not show which of the two values is malformed, so the left one is decoded again.
                side = "A"
                if is_value(a.layout, left):
                    side = "B"
                raise StoreUnreadable(f"{side}: {diff.task}/{diff.store}, row {key.hex()}: {error}") from None
            diff.different += 1
        elif left is not None:
            diff.only_a += 1
        else:
            diff.only_b += 1
        # Reported at once, so that differences need no memory, however many there are.
        watcher.difference(diff, Difference(key, diff.kinds[0], _with_layout(a, left), _with_layout(b, right)))


def _with_layout(store: StoreReader, value: bytes | None) -> tuple[Layout, bytes] | None:
    return None if value is None else (store.layout, value)


def _offsets(app: Application) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (task.task.name, store.store.name): {
            "changelog": task.offsets_shown(store),
            "position": store.position_shown,
        }
        for task in resolve(app)
        for store in task.stores
    }


def _unlike(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    # A task that one directory lacks has no offsets there: all of the other side's differ.
    in_a, in_b = a or {}, b or {}
    # The keys of both sides: an offset that one side lacks differs from any value.
    return {name: (in_a.get(name), in_b.get(name)) for name in {**in_a, **in_b} if in_a.get(name) != in_b.get(name)}


def _problems(side: str, app: Application, request: DiffRequest) -> list[Unread]:
    """Return the problems because of which kstate cannot read all of a directory, so that rows may be missing silently.

    The problems of compared stores are a part of their results. A problem of an offset file counts only if offsets are
    compared.
    """
    compared_stores = [Place.of(app.path, store.path) for task in app.tasks for store in task.stores]
    problems = [*app.problems, *(problem for task in app.tasks for problem in task.problems)]
    return [
        Unread(f"{side}: {problem.text}", by_host=problem.code is ProblemCode.UNREADABLE)
        for problem in problems
        if problem.fatal
        and not any(map(problem.place.within, compared_stores))
        and _is_in_selection(problem.place, request)
    ]


def _is_in_selection(place: Place, request: DiffRequest) -> bool:
    if not request.positions and any(mark in place.name for mark in _OFFSET_FILES):
        return False
    if request.stores and not request.stores.intersection(place.names):
        return False
    return not request.tasks or len(place.names) <= 1 or place.task in request.tasks
