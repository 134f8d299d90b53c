"""Offsets that are missing, places that disagree, what restoring does to the rows (``ProcessorStateManager``)."""

from __future__ import annotations

from kstate_cli.check.ages import judge_age
from kstate_cli.check.context import Context
from kstate_cli.check.findings import Level
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.reading import TaskRead
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import position_file

_RESTORED = (Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED)


def missing_offset(ctx: Context, task: Task, read: TaskRead, stores: list[Store], gone: list[str]) -> str | None:
    """The finding that wipes the task: exactly-once, a task that is not empty, a logged store without an offset."""
    if not ctx.asked.exactly_once or ctx.task_is_empty(task):
        return None
    code = None
    for store in stores:
        if read.stores[store.name].offsets or not is_logged(ctx, task, store, read):
            continue
        code = _why(ctx, task, store, read)
    for name in gone:
        if not read.absent.get(name) and ctx.changelog(task, name) is not None:
            text = "it is not here, and other tasks of the subtopology have it"
            code = ctx.found("store-missing", text, task, name)
    return code


def is_logged(ctx: Context, task: Task, store: Store, read: TaskRead) -> bool:
    """Whether a store without an offset is one that should have one; the bytes do not say it.

    docs/internals/offsets.md#which-stores
    """
    if ctx.changelog(task, store.name) is not None:
        return True
    if ctx.asked.into_family and store.segmented and not store.databases:
        return True  # without a segment 4.3 keeps no offset
    if store.has_offsets_family:
        # A logged store that was closed cleanly has an offset, or -4: 4.3 commits before it closes.
        return store.status != "closed"
    return not _offsets_around(ctx, task)


def is_lost(ctx: Context, task: Task, store: Store, read: TaskRead) -> bool:
    """Whether nothing brings the rows of a store back once its task is wiped.

    Nothing names a changelog of it, although other stores of the subtopology have theirs, or it was closed cleanly.
    """
    if store.empty or ctx.changelog(task, store.name) is not None:
        return False
    return _offsets_around(ctx, task) or not is_logged(ctx, task, store, read)


def _offsets_around(ctx: Context, task: Task) -> bool:
    around = [ctx.resolved[one.name] for one in (task, *ctx.siblings(task))]
    return any(one.offsets for resolved in around for one in resolved.stores)


def _why(ctx: Context, task: Task, store: Store, read: TaskRead) -> str:
    found = read.stores[store.name]
    if ctx.off_grid(task, store):
        return "segment-off-grid"
    if found.dropped_unknown:
        return ctx.found("unknown-offset", "its offset is -4, which 4.3 does not take over", task, store.name)
    if ctx.asked.into_family and store.segmented and not store.databases:
        if found.line_without_home:
            return ctx.found("no-segments", "it has an offset and no segment to keep it", task, store.name)
        return ctx.found("no-segments-yet", "it has no segment, so no offset", task, store.name)
    if not any(one.offsets for one in read.stores.values()):
        what = "not empty, and no store has an offset: it was not closed cleanly, or .checkpoint was lost"
        return ctx.found("no-offsets", what, task)
    return ctx.found("offset-missing", "it has no offset, and other stores of the task have one", task, store.name)


def compare_places(ctx: Context, task: Task, read: TaskRead) -> None:
    """``.checkpoint`` and ``.position`` beside the column family, and segments among themselves."""
    if not ctx.asked.into_family:
        return
    for store in task.stores:
        for tp, (kept, line) in read.stores[store.name].overridden.items():
            text = f"{tp}: .checkpoint says {line}, and overrides {kept} in the store"
            if line > kept:
                text += ": if the rows between are not in the store, they are lost without a word"
            ctx.found("stale-checkpoint", text, task, store.name, Level.ERROR if line > kept >= 0 else None)
        _stale_position(ctx, task, store)
        if store.segmented:
            _segments(ctx, task, store)


def _stale_position(ctx: Context, task: Task, store: Store) -> None:
    if store.position_file is None or store.position_file.content is None or not store.has_offsets_family:
        return
    kept: dict[tuple[str, int], int] = {}
    for database in store.databases:
        if database.offsets is not None and database.offsets.position is not None:
            for topic, parts in database.offsets.position.as_map().items():
                for partition, offset in parts.items():
                    kept[topic, partition] = max(offset, kept.get((topic, partition), -1))
    ahead = [
        f"{tp}={offset}"
        for tp, offset in store.position_file.entries.items()
        if offset > kept.get((tp.topic, tp.partition), -1) and kept
    ]
    if ahead:
        text = f"{position_file(store.name)} is ahead of the store ({', '.join(ahead)}): bounded queries pass too early"
        ctx.found("stale-position", text, task, store.name)
    else:
        text = f"{position_file(store.name)} is older than the store's own Position"
        ctx.found("stale-position", text, task, store.name, Level.EXPECTED)


def _segments(ctx: Context, task: Task, store: Store) -> None:
    values = {
        tp: {d.offsets.offsets[tp] for d in store.databases if d.offsets is not None and tp in d.offsets.offsets}
        for d in store.databases
        for tp in (d.offsets.offsets if d.offsets is not None else ())
    }
    for tp, offsets in values.items():
        if len(offsets) > 1:
            text = f"{tp}: its segments say {', '.join(map(str, sorted(offsets)))}"
            ctx.found("segments-disagree", text, task, store.name)


def note_unclean(ctx: Context, task: Task) -> None:
    """Up to 4.2 a crash may leave a ``.checkpoint`` that Streams takes for good."""
    if not ctx.asked.exactly_once or task.is_global:
        return
    for reason in ctx.resolved[task.name].unclean:
        if reason.younger:
            ctx.found("maybe-unclean", reason.what, task, reason.store)


def after_start(ctx: Context, task: Task, predictions: list[Prediction]) -> None:
    """What restoring does to the rows that are there, or to those that are written."""
    stores = {store.name: store for store in task.stores}
    for one in predictions:
        store = stores.get(one.store)
        if store is None or one.outcome not in _RESTORED:
            continue
        if store.is_grace_buffer:
            ctx.found("grace-buffer-restored", "Streams garbles its keys when it restores it", task, store.name)
        if one.outcome is not Outcome.WIPED and one.records is not None and one.records.count > 0:
            judge_age(ctx, task, store, ctx.changelog(task, store.name))
