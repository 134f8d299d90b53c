"""What a start does with the stores of one task (``StateManagerUtil.registerStateStores``, ``StoreChangelogReader``).

In the order of Streams: every store is opened, ``.checkpoint`` is read, each logged store must have an offset, and the
next record must be in the log. The first of these that goes wrong decides for the whole task.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kstate_cli import clock
from kstate_cli.check.context import Context
from kstate_cli.check.files import (
    checkpoint_obstacle,
    foreign_entries,
    has_global,
    segment_obstacle,
    store_file_obstacle,
)
from kstate_cli.check.findings import Level
from kstate_cli.check.judge_offsets import after_start, compare_places, is_lost, missing_offset, note_unclean
from kstate_cli.check.opening import Obstacle, judge_opening, note_doubts
from kstate_cli.check.outcome import Outcome, Prediction, Records
from kstate_cli.check.ranges import Range, locate, near_start, note_missing, recreated, whole
from kstate_cli.check.reading import TaskRead, read_offsets
from kstate_cli.check.sessions import note_sessions
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.releases import readable_by
from kstate_cli.statedir.headers import without_headers
from kstate_cli.statedir.model import Store, Task

_HARMLESS_NEGATIVE = frozenset({-1, OFFSET_UNKNOWN, -5})
_SENTINEL = (
    "Error updating state directory offsets when creating the state manager",
    "Expected not to get a sentinel offset",
)


@dataclass(slots=True)
class _Draft:
    """What is known of a task's stores so far."""

    task: Task
    read: TaskRead
    stores: dict[str, Store]
    """Those that the release opens."""
    fails: dict[str, Obstacle] = field(default_factory=dict)
    empty: dict[str, str] = field(default_factory=dict)
    """Stores that open without rows although their offset says otherwise, with the finding's code."""
    ignored: list[str] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    """Stores with a segment that did not open: the first write to it is fatal."""
    gone: list[str] = field(default_factory=list)
    """Stores that other tasks of the subtopology have, and this one has not."""


def predict_task(ctx: Context, task: Task) -> list[Prediction]:
    """A prediction for each store that the task has, or should have."""
    foreign_entries(ctx, task)
    draft = _Draft(task, read_offsets(ctx, task), {})
    if _too_old(ctx, task):
        ctx.found("older-than-max-age", f"{task.name} is deleted before anything is opened", task)
        return [_all(ctx, draft, store.name, "older-than-max-age", Outcome.WIPED) for store in task.stores]
    _open_stores(ctx, draft)
    _find_gone(ctx, draft)
    unreadable = checkpoint_obstacle(ctx, task)
    compare_places(ctx, task, draft.read)
    if draft.fails:
        return _not_reached(draft)
    code = _corrupted_at_open(ctx, draft)
    if code is None and unreadable is not None:
        for name in (*draft.stores, *draft.gone):
            draft.fails.setdefault(name, unreadable)
    elif code is None:
        _sentinels(ctx, draft)
        code = missing_offset(ctx, task, draft.read, list(draft.stores.values()), draft.gone)
    found = _predictions(ctx, draft, code, checked=unreadable is None)
    after_start(ctx, task, found)
    if code is None and not draft.fails:
        note_unclean(ctx, task)
    return found


def predict_copy(ctx: Context, task: Task) -> list[Prediction]:
    """A directory named like a task of a subtopology that the application has not.

    Up to 4.2 it lies there until the cleaner comes. 4.3 builds the whole topology in it, global stores included, whose
    second opening, under their own task, is one too many (``RocksDBMetricsRecorder.init``).
    """
    code = "store-in-two-subtopologies"
    if not ctx.asked.into_family or not has_global(ctx):
        return [Prediction(task.name, store.name, Outcome.IGNORED, code=code) for store in task.stores]
    message = f"Metrics recorder is re-initialised with different task: previous task is {task.path.name}"
    return [
        Prediction(task.name, store.name, Outcome.FAILS, None, code, task.name, (message,)) for store in task.stores
    ]


def _not_reached(draft: _Draft) -> list[Prediction]:
    """All stores of a task are opened before anything else is looked at."""
    found = [_failed(draft, name) for name in draft.fails]
    others = sorted({*draft.stores, *draft.gone} - draft.fails.keys())
    return found + [Prediction(draft.task.name, name, Outcome.NOT_REACHED) for name in others]


def _failed(draft: _Draft, name: str) -> Prediction:
    one = draft.fails[name]
    return Prediction(draft.task.name, name, Outcome.FAILS, None, one.code, one.file, one.messages)


def _too_old(ctx: Context, task: Task) -> bool:
    age = clock.now_seconds() - task.mtime_ns / 1e9
    return ctx.asked.into_family and ctx.asked.max_age is not None and age > ctx.asked.max_age.total_seconds()


def _open_stores(ctx: Context, draft: _Draft) -> None:
    for store in draft.task.stores:
        if not readable_by(without_headers(store.kind.name), ctx.asked.release):
            text = f"{ctx.asked.release} has no {store.kind.name} stores"
            ctx.found("unknown-kind", text, draft.task, store.name)
            draft.ignored.append(store.name)
            continue
        draft.stores[store.name] = store
        fatal = store_file_obstacle(ctx, draft.task, store)
        foreign = segment_obstacle(ctx, draft.task, store)
        opening = judge_opening(ctx, draft.task, store)
        note_sessions(ctx, draft.task, store)
        note_doubts(ctx, draft.task, store)
        if foreign is not None and ctx.asked.into_family:
            fatal = fatal or foreign
        elif foreign is not None and not store.empty:
            draft.empty[store.name] = foreign.code
        if opening.obstacle is not None and not opening.swallowed:
            fatal = fatal or opening.obstacle
        elif opening.obstacle is not None:
            draft.empty.setdefault(store.name, opening.obstacle.code)
            draft.closed.add(store.name)
        if not store.databases and _has_offset(draft, store.name):
            text = "it has an offset and no database: its rows are gone"
            draft.empty.setdefault(store.name, ctx.found("offset-without-store", text, draft.task, store.name))
        if skipped := ctx.off_grid(draft.task, store):
            starts = ", ".join(str(d.segment_start) for d in skipped)
            text = f"{starts}: multiples of no segment interval; Streams opens others instead, without these rows"
            code = ctx.found("segment-off-grid", text, draft.task, store.name)
            draft.empty.setdefault(store.name, code)
        if opening.recreated:
            text = "CURRENT is missing: RocksDB makes a new, empty database"
            draft.empty.setdefault(store.name, ctx.found("does-not-open", text, draft.task, store.name))
        if fatal is not None:
            draft.fails[store.name] = fatal


def _has_offset(draft: _Draft, name: str) -> bool:
    return any(offset >= 0 for offset in draft.read.stores[name].offsets.values())


def _find_gone(ctx: Context, draft: _Draft) -> None:
    """Stores that only offsets or other tasks know of."""
    task = draft.task
    elsewhere = {store.name for other in ctx.siblings(task) for store in other.stores}
    draft.gone = sorted(elsewhere - {store.name for store in task.stores})
    here = set(os.listdir(task.path))
    for name, lines in sorted(draft.read.absent.items()):
        offset = max(lines.values())
        if name in here or offset == OFFSET_UNKNOWN:
            continue
        if task.has_offsets_family and name not in draft.gone:
            text = "has an offset and no directory: in memory, as upgrade.from lists such stores too"
            ctx.found("offset-without-store", text, task, name, Level.EXPECTED)
            continue
        ctx.found("offset-without-store", f"its directory is gone, its offset {offset} is not", task, name)
        draft.empty[name] = "offset-without-store"
        if name not in draft.gone:
            draft.gone.append(name)


def _corrupted_at_open(ctx: Context, draft: _Draft) -> str | None:
    """4.3 under exactly-once: a store that was not closed cleanly (``AbstractColumnFamilyAccessor.open``)."""
    if not ctx.asked.into_family:
        return None
    code = None
    for store in draft.stores.values():
        if store.status == "open":
            level = None if ctx.asked.exactly_once else Level.EXPECTED
            found = ctx.found("status-open", "its status is open", draft.task, store.name, level)
            code = found if ctx.asked.exactly_once else None
    return code


def _sentinels(ctx: Context, draft: _Draft) -> None:
    if not ctx.asked.into_family:
        return
    for name in draft.stores:
        for tp, offset in draft.read.stores[name].offsets.items():
            if offset < 0 and offset not in _HARMLESS_NEGATIVE:
                ctx.found("sentinel-offset", f"{tp}: offset {offset}", draft.task, name)
                text, file = f"offset {offset} of {tp}", f"{draft.task.name}/{name}"
                draft.fails[name] = Obstacle("sentinel-offset", text, file, _SENTINEL)


def _predictions(ctx: Context, draft: _Draft, code: str | None, *, checked: bool) -> list[Prediction]:
    names = sorted({*draft.stores, *draft.gone})
    ranges = {name: _range(ctx, draft, name) for name in names} if checked else {}
    outside = [one for one in ranges.values() if one is not None and one.outside]
    beyond = None
    for name, one in ranges.items():
        if one is None:
            continue
        if one.outside:
            beyond = "below-log-start" if one.where is Where.BELOW else "beyond-log-end"
            ctx.found(beyond, one.text, draft.task, name)
        elif one.where is Where.ABOVE:
            ctx.found("past-the-dump", one.text, draft.task, name)
        elif near_start(one):
            ctx.found("near-log-start", one.text, draft.task, name)
    found = []
    for name in names:
        if name in draft.fails:
            found.append(_failed(draft, name))
        elif code is not None:
            found.append(_all(ctx, draft, name, code, Outcome.WIPED))
        elif beyond is not None:
            # Every changelog of the task is marked corrupted, the valid ones too (DefaultStateUpdater).
            outcome = Outcome.WIPED if ctx.asked.exactly_once else Outcome.RESTORES_ALL
            race = all(one.where is Where.ABOVE for one in outside)
            found.append(_all(ctx, draft, name, beyond, outcome, Outcome.OPENS if race else None))
        else:
            found.append(_by_offset(ctx, draft, name, ranges.get(name)))
    found += [Prediction(draft.task.name, name, Outcome.IGNORED, code="unknown-kind") for name in draft.ignored]
    return found


def _range(ctx: Context, draft: _Draft, name: str) -> Range | None:
    """The store's next offset in its log; None without a valid offset."""
    offsets = draft.read.stores[name].offsets if name in draft.read.stores else draft.read.absent.get(name, {})
    key = _changelog(ctx, draft, name, offsets)
    if key is None or key not in offsets:
        return None
    if ctx.lacks(key):
        note_missing(ctx, key, draft.task, name)
    if offsets[key] in (OFFSET_UNKNOWN, -5):
        return None
    if ids := recreated(ctx, key, draft.task, name):
        ctx.found("topic-recreated", f"{key.topic}: {ids}", draft.task, name)
    return locate(ctx, key, offsets[key] + 1)


def _changelog(ctx: Context, draft: _Draft, name: str, offsets: dict[TopicPartition, int]) -> TopicPartition | None:
    """The partition that the store is restored from: its own changelog before any source topic."""
    if len(offsets) == 1:
        return next(iter(offsets))
    return ctx.changelog(draft.task, name)


def _by_offset(ctx: Context, draft: _Draft, name: str, where: Range | None) -> Prediction:
    """A store of a task that nothing is wrong with."""
    task, store = draft.task.name, draft.stores.get(name)
    if where is None:
        return _without_offset(ctx, draft, name, store)
    if name in draft.empty:
        if name in draft.closed and where.records is not None and where.records.count:
            message = (f"Store {name}.", "is currently closed")
            return Prediction(task, name, Outcome.FAILS, None, draft.empty[name], f"{task}/{name}", message)
        return Prediction(task, name, Outcome.OPENS_EMPTY, where.records, draft.empty[name])
    if where.records is not None and where.records.count:
        ctx.found("catches-up", where.text, draft.task, name)
        return Prediction(task, name, Outcome.RESTORES, where.records, "catches-up")
    if where.where is Where.UNKNOWN and ctx.lacks(where.key):
        return Prediction(task, name, Outcome.UNKNOWN, None, "log-missing")
    return Prediction(task, name, Outcome.OPENS, where.records)


def _without_offset(ctx: Context, draft: _Draft, name: str, store: Store | None) -> Prediction:
    task = draft.task
    read = draft.read.stores.get(name)
    offsets = read.offsets if read else draft.read.absent.get(name, {})
    key = _changelog(ctx, draft, name, offsets)
    if key is None and store is not None and store.databases:
        ctx.found("without-changelog", "no offset anywhere: it counts as a store without a changelog", task, name)
        return Prediction(task.name, name, Outcome.OPENS, Records(0, exact=True), "without-changelog")
    if store is not None and key is None:
        key = ctx.own_changelog(task, name)
    records = whole(ctx, key)
    empty = store is None or store.empty
    if empty and records is not None and not records.count and records.exact:
        ctx.found("never-written", "it has no rows, and its changelog none", task, name)
        return Prediction(task.name, name, Outcome.OPENS, records, "never-written")
    if store is None:
        code = ctx.found("store-missing", "it is not here, and other tasks of the subtopology have it", task, name)
    elif OFFSET_UNKNOWN in offsets.values() or (read is not None and read.dropped_unknown):
        level = Level.EXPECTED if empty and records is None else None
        code = ctx.found("unknown-offset", "its offset is -4", task, name, level)
    elif store.segmented and not store.databases:
        code = ctx.found("no-segments-yet", "it has no segment", task, name)
    else:
        code = ctx.found("offset-missing", "it has no offset", task, name)
    return Prediction(task.name, name, Outcome.RESTORES_ALL, records, code)


def _all(
    ctx: Context, draft: _Draft, name: str, code: str, outcome: Outcome, or_else: Outcome | None = None
) -> Prediction:
    """A store of a task that something is wrong with: ``outcome``, unless it has no changelog."""
    store = draft.stores.get(name) or next((s for s in draft.task.stores if s.name == name), None)
    if store is not None and is_lost(ctx, draft.task, store, draft.read):
        if outcome is not Outcome.WIPED:
            # At least once the directory stays: only what has a changelog is restored.
            return _without_offset(ctx, draft, name, store)
        text = f"no offset anywhere: it counts as a store without a changelog, and its task is wiped ({code})"
        lost = ctx.found("lost-with-its-task", text, draft.task, name)
        return Prediction(draft.task.name, name, Outcome.LOST, None, lost, or_else=or_else)
    key = ctx.changelog(draft.task, name)
    if key is None and store is not None and store.segmented and not store.databases:
        key = ctx.own_changelog(draft.task, name)
    return Prediction(draft.task.name, name, outcome, whole(ctx, key), code, or_else=or_else)
