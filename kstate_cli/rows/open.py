"""From a store as it lies on disk to one that can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.store_kinds import expires, is_segmented, store_kind
from kstate_cli.rows.databases import Databases
from kstate_cli.rows.errors import StoreUnreadable, look_closer
from kstate_cli.rows.find import first_problem
from kstate_cli.rows.layout import Layout, layout_of
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import ReadAs, StoreReader
from kstate_cli.rows.times import FOREVER
from kstate_cli.specification.model import IN_MEMORY
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command


def open_store(task: Task, store: Store, others: Sequence[Store], databases: Databases, read_as: ReadAs) -> StoreReader:
    """The reader of a store; ``others`` are those of its name in all tasks.

    Raises StoreUnreadable where it or a part of it is damaged, or where it is not certain how its rows are to be read.
    """
    problems = (one for database in store.databases for one in database.problems if one.fatal)
    problem = first_problem(task, store) or next(problems, None)
    if problem is not None:
        # Rows would be missing in silence.
        by_host = problem.code is ProblemCode.UNREADABLE
        raise StoreUnreadable(problem.text, hint=look_closer(task.app, by_host=by_host), by_host=by_host)
    layout = _layout(task, store, others, read_as.kind)
    # A store whose kind is not known has no rows, so that nothing of it need be read.
    databases_in_order = sorted(store.databases if layout.families else (), key=lambda one: one.segment_start or 0)
    ends = [*(one.segment_start or 0 for one in databases_in_order[1:]), FOREVER + 1]
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
    """What is wrong where a sampled row does not lie in its segment: the one interval that there must be is none."""
    if not expires(kind):
        return None
    time_of = store_kind(kind).key.segment_time
    try:
        for segment, database in zip(segments, databases, strict=True):
            for key, _ in chain.from_iterable(database.samples.values()):
                segment.own(time_of(key))
    except StoreUnreadable as error:
        return error
    except MalformedBytesError:
        return None  # whoever reads the row says so
    return None


def _layout(task: Task, store: Store, others: Sequence[Store], kind: str | None) -> Layout:
    name = store.kind.name
    if not store.kind.certain:
        # A store without rows looks like several kinds; with rows in another task it does not.
        known = {other.kind.name for other in others if other.kind.certain}
        if kind not in (None, IN_MEMORY):
            name = str(kind)
        elif len(known) == 1:
            name = known.pop()
        elif not store.empty:
            raise StoreUnreadable(
                f"{task.name}/{store.name} could be of several kinds ({store.kind.inferred_from})",
                hint="say its kind in a specification, and name that with --spec",
                hint_details=[f"to have one written: {command('ls', task.app, '--spec')}"],
            )
    layout = layout_of(name, store.families)
    if store.segmented != is_segmented(name):
        segmented = "segmented" if store.segmented else "not segmented"
        raise StoreUnreadable(
            f"{task.name}/{store.name} is {segmented}: it is no {name} store",
            hint="correct its kind in the specification (--spec)",
        )
    if layout is None:
        # Only an empty store comes here: whatever it is asked, it has no rows.
        return Layout(name, ())
    return layout
