"""The outcome for each store of a task, from the draft of the earlier rules (:mod:`kstate_cli.check.rule`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kstate_cli import option, streams_log
from kstate_cli.check.codes.layout import OFFSETS_IN_COLUMN_FAMILY, UNKNOWN_KIND
from kstate_cli.check.codes.logs import (
    BELOW_LOG_START,
    BEYOND_LOG_END,
    CATCHES_UP,
    LOG_MISSING,
    NEAR_LOG_START,
    PAST_THE_DUMP,
)
from kstate_cli.check.codes.offsets import (
    LOST_WITH_ITS_TASK,
    NEVER_WRITTEN,
    NO_SEGMENTS_YET,
    OFFSET_MISSING,
    UNKNOWN_OFFSET_BY_DROPPED,
    VERSIONED_REPLAYED,
    WITHOUT_CHANGELOG,
)
from kstate_cli.check.codes.topology import MOVED_WITHOUT_CHANGELOG
from kstate_cli.check.findings import RESTORE_STORE, Finding, FindingCode, Level, Outcome, Prediction, Records
from kstate_cli.check.judge_offsets import (
    is_lost,
    is_surely_lost,
    keeps_versions,
)
from kstate_cli.check.other_topology import lacked
from kstate_cli.check.ranges import (
    Range,
    catching_up,
    locate,
    may_expire,
    missing,
    near_start,
    recreated,
    rows_below,
    whole,
)
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Where
from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.statedir.model import Store, Task

Verdict = tuple[Prediction, tuple[Finding, ...]]
"""The prediction for a store, and the findings that belong to it."""


def predicted(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Return the draft of a task with a prediction for each of its stores."""
    # Sorted by name, because no directory shows the order of the stores in the topology.
    names = sorted({*draft.stores, *draft.absent})
    ranges: dict[str, Range | None] = {}
    # If .checkpoint cannot be read, there are no offsets to compare with the logs.
    if draft.unreadable is None:
        for name in names:
            ranges[name], findings = _range(snapshot, draft, name)
            draft = draft.with_findings(*findings)
    draft = draft.with_findings(*_range_findings(snapshot, draft, ranges))
    corruption = _corruption(snapshot, ranges)
    predictions = []
    for name in names:
        prediction, findings = _verdict(snapshot, draft, name, ranges.get(name), corruption)
        predictions.append(prediction)
        draft = draft.with_findings(*findings)
    ignored = (Prediction(draft.task.name, name, Outcome.IGNORED, code=UNKNOWN_KIND) for name in draft.ignored)
    return replace(draft, predictions=(*predictions, *ignored))


@dataclass(frozen=True, slots=True)
class _Corruption:
    """The consequence of an offset outside its log: DefaultStateUpdater gives up all changelogs of the task."""

    code: FindingCode
    outcome: Outcome
    or_else: Outcome | None
    """The other outcome, if the offset is beyond the end of the log: new records may come before Streams checks it."""


def _corruption(snapshot: Snapshot, ranges: Mapping[str, Range | None]) -> _Corruption | None:
    """Return the consequence for a task if an offset of it is outside its log; None if none is."""
    outside = [range_ for range_ in ranges.values() if range_ is not None and range_.outside]
    if not outside or (code := _range_code(outside[-1])) is None:
        return None
    or_else = None
    # An offset below a log start is certain. If all are beyond an end, new records may still make them valid.
    if all(range_.where is Where.ABOVE for range_ in outside):
        or_else = Outcome.OPENS
    return _Corruption(code, snapshot.request.outcome_of_corruption, or_else)


def _verdict(
    snapshot: Snapshot, draft: TaskCheckDraft, name: str, range_: Range | None, corruption: _Corruption | None
) -> Verdict:
    """Judge one store. What makes the start fail comes before what wipes the task, and that before the offset."""
    if name in draft.fails:
        return failed(draft, name), ()
    if draft.code is not None:
        return _verdict_of_wiped(snapshot, draft, name, range_, draft.code)
    if corruption is not None:
        return because_of(snapshot, draft, name, corruption.code, corruption.outcome, corruption.or_else)
    return _by_offset(snapshot, draft, name, range_)


def _verdict_of_wiped(
    snapshot: Snapshot, draft: TaskCheckDraft, name: str, range_: Range | None, code: FindingCode
) -> Verdict:
    """Judge a store of a task that Streams wipes because of ``code``, with the other outcome if that is not certain."""
    if draft.hangs:
        return Prediction(draft.task.name, name, Outcome.HANGS, None, code), ()
    prediction, findings = because_of(snapshot, draft, name, code, Outcome.WIPED)
    # The order of the stores in the topology decides whether the start hangs, and no directory shows that order.
    if draft.hangs is None:
        prediction = replace(prediction, or_else=Outcome.HANGS, by_chance=False)
    elif draft.keeps_open is not None:
        prediction = replace(
            prediction,
            or_else=Outcome.FAILS,
            by_chance=False,
            file=f"{draft.task.name}/{draft.keeps_open}",
            messages=(streams_log.LOCK_HELD,),
        )
    if draft.in_doubt:
        otherwise, more = _by_offset(snapshot, draft, name, range_)
        prediction = replace(prediction, or_else=otherwise.outcome, by_chance=False)
        findings = (*findings, *more)
    return prediction, findings


def failed(draft: TaskCheckDraft, name: str) -> Prediction:
    """Return the prediction for a store that makes the start fail."""
    obstacle = draft.fails[name]
    return Prediction(draft.task.name, name, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages)


def because_of(
    snapshot: Snapshot,
    draft: TaskCheckDraft,
    name: str,
    code: FindingCode,
    outcome: Outcome,
    or_else: Outcome | None = None,
) -> Verdict:
    """Judge a store of a task with the finding ``code``: it has ``outcome``, unless it has no changelog."""
    task = draft.task
    if snapshot.begins_empty(task, name):
        return Prediction(task.name, name, Outcome.OPENS_EMPTY, code=MOVED_WITHOUT_CHANGELOG), ()
    # If a task is deleted before any store is opened, the draft has no stores. Then those on disk count.
    store = draft.stores.get(name) or next((store for store in task.stores if store.name == name), None)
    if store is not None and is_lost(snapshot, task, store):
        if outcome is not Outcome.WIPED:
            # With at-least-once the directory stays, and only stores with a changelog are restored.
            return _without_offset(snapshot, draft, name, store)
        return _lost(snapshot, task, store, code, or_else)
    key = snapshot.changelog(task, name)
    # A segmented store without a segment has no place for an offset. So it may have a changelog, under the usual name.
    if key is None and store is not None and store.segmented and not store.databases:
        key = snapshot.own_changelog(task, name)
    records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
    return Prediction(task.name, name, outcome, records, code, or_else=or_else), ()


def _lost(snapshot: Snapshot, task: Task, store: Store, code: FindingCode, or_else: Outcome | None) -> Verdict:
    """Judge a store without a changelog in a task that is wiped."""
    outcome = Outcome.MAY_BE_LOST
    why = (
        f"it may have no changelog, and its rows would then be lost. To find out, pass {option.BOOTSTRAP_SERVER}, "
        f"{option.DUMP} or {option.OFFSETS}"
    )
    if is_surely_lost(snapshot, store):
        outcome, why = Outcome.LOST, "Streams treats it as a store without a changelog, and its rows are lost"
    text = f"Streams wipes the store's task ({code}). The store has no offset, so {why}"
    finding = snapshot.finding(LOST_WITH_ITS_TASK, text, task, store.name)
    return Prediction(task.name, store.name, outcome, None, finding.code, or_else=or_else), (finding,)


# --- the offset in its log --------------------------------------------------------------------------------------------


def _range(snapshot: Snapshot, draft: TaskCheckDraft, name: str) -> tuple[Range | None, tuple[Finding, ...]]:
    """Return the place of a store's next offset in its log (None without an offset), and findings about the log."""
    offsets = _offsets(draft, name)
    key = _changelog(snapshot, draft, name)
    if key is None or key not in offsets:
        return None, ()
    findings: tuple[Finding, ...] = ()
    if snapshot.lacks(key):
        findings = (missing(snapshot, key, draft.task, name),)
    # -4 and -5 are not the offset of a record, so there is no next record to look for.
    if offsets[key] in (OFFSET_UNKNOWN, -5):
        return None, findings
    findings += recreated(snapshot, key, draft.task, name)
    located = locate(snapshot, key, offsets[key] + 1)
    return catching_up(snapshot, draft.stores.get(name), located), findings


def _range_findings(snapshot: Snapshot, draft: TaskCheckDraft, ranges: Mapping[str, Range | None]) -> Iterator[Finding]:
    """Yield a finding for each next offset that is outside its log, or near its start."""
    for name, range_ in ranges.items():
        if range_ is not None and (code := _range_code(range_)) is not None:
            yield snapshot.finding(code, range_.text, draft.task, name)


def _range_code(range_: Range) -> FindingCode | None:
    if range_.outside:
        if range_.where is Where.BELOW:
            return BELOW_LOG_START
        return BEYOND_LOG_END
    if range_.where is Where.ABOVE:
        # The offset is beyond the end of a dump only. The broker may have more records by now.
        return PAST_THE_DUMP
    if near_start(range_):
        return NEAR_LOG_START
    return None


def _offsets(draft: TaskCheckDraft, name: str) -> dict[TopicPartition, int]:
    read = draft.read
    if name in read.stores:
        return dict(read.stores[name].offsets)
    return dict(read.absent.get(name, {}))


def _changelog(snapshot: Snapshot, draft: TaskCheckDraft, name: str) -> TopicPartition | None:
    """Return the partition that a store is restored from: its changelog if it has one, otherwise a source topic."""
    offsets = _offsets(draft, name)
    # If the store has just one offset, it names the topic, which may be a source topic.
    if len(offsets) == 1:
        return next(iter(offsets))
    return snapshot.changelog(draft.task, name)


def _by_offset(snapshot: Snapshot, draft: TaskCheckDraft, name: str, where: Range | None) -> Verdict:
    """Judge a store of a task that no finding wipes, by the place of its offset in the log."""
    task, store = draft.task.name, draft.stores.get(name)
    if where is None:
        return _without_offset(snapshot, draft, name, store)
    if store is not None:
        # Silently missing rows come first, because they matter more than records that are restored.
        below = rows_below(snapshot, draft.task, store, where.key, _offsets(draft, name))
        if below is not None:
            return Prediction(task, name, Outcome.OPENS_EMPTY, where.records, below.code), (below,)
    if name in draft.empty:
        # Only restored records write to the segment that did not open, before the state RUNNING. Without them the start
        # succeeds.
        if name in draft.closed and where.records is not None and where.records.count:
            store_of_it, closed = streams_log.SEGMENT_CLOSED
            message = (store_of_it.format(name), closed)
            return Prediction(task, name, Outcome.FAILS, None, draft.empty[name], f"{task}/{name}", message), ()
        return Prediction(task, name, Outcome.OPENS_EMPTY, where.records, draft.empty[name]), ()
    if where.records is not None and where.records.count:
        finding = snapshot.finding(CATCHES_UP, where.text, draft.task, name)
        code = finding.code
        if store is not None and keeps_versions(store):
            # Replayed records may destroy versions, which matters more than their number.
            code = VERSIONED_REPLAYED
        return Prediction(task, name, Outcome.RESTORES, where.records, code), (finding,)
    if where.where is Where.UNKNOWN and snapshot.lacks(where.key):
        return Prediction(task, name, Outcome.UNKNOWN, None, LOG_MISSING), ()
    return Prediction(task, name, Outcome.OPENS, where.records), ()


def _may_have_changelog(snapshot: Snapshot, store: Store) -> bool:
    """Return True if a store without an offset was left before its first commit: logged or not, it would have none."""
    return store.has_offsets_family and not has_offset_if_logged(store, transactional=snapshot.request.transactional)


def _without_offset(snapshot: Snapshot, draft: TaskCheckDraft, name: str, store: Store | None) -> Verdict:
    """Judge a store without a valid offset, in a task that no finding wipes."""
    key = _changelog(snapshot, draft, name)
    if store is not None and draft.empty.get(name) == OFFSETS_IN_COLUMN_FAMILY:
        # The release does not find its offset, which is in the column family. The finding suggests the migration that
        # moves it.
        records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
        return Prediction(draft.task.name, name, Outcome.RESTORES_ALL, records, OFFSETS_IN_COLUMN_FAMILY), ()
    if store is not None and key is None:
        unlogged = _without_changelog(snapshot, draft.task, store)
        if unlogged is not None:
            return unlogged
        key = snapshot.own_changelog(draft.task, name)
    if store is None and snapshot.begins_empty(draft.task, name):
        return Prediction(draft.task.name, name, Outcome.OPENS_EMPTY, code=MOVED_WITHOUT_CHANGELOG), ()
    records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
    return _from_the_beginning(snapshot, draft, name, store, records)


def _without_changelog(snapshot: Snapshot, task: Task, store: Store) -> Verdict | None:
    """Judge a store for which no source names a changelog; None if it has no database, so nothing can be lost."""
    if _may_have_changelog(snapshot, store):
        text = "the store was not closed and has no offset, and kstate does not know whether it has a changelog"
        finding = snapshot.finding(OFFSET_MISSING, text, task, store.name)
        # The outcome that takes more time comes first, because users must plan for it.
        outcome, otherwise = Outcome.RESTORES_ALL, Outcome.OPENS
        return Prediction(task.name, store.name, outcome, None, finding.code, or_else=otherwise, by_chance=False), (
            finding,
        )
    if store.databases:
        text = "the store has no offset, so Streams treats it as a store without a changelog"
        finding = snapshot.finding(WITHOUT_CHANGELOG, text, task, store.name)
        return Prediction(task.name, store.name, Outcome.OPENS, Records(0, exact=True), finding.code), (finding,)
    return None


def _from_the_beginning(
    snapshot: Snapshot, draft: TaskCheckDraft, name: str, store: Store | None, records: Records | None
) -> Verdict:
    """Judge a store that is restored from the beginning of its changelog; ``records`` is the number of its records."""
    task = draft.task
    is_empty = store is None or store.empty
    if is_empty and records is not None and not records.count and records.exact:
        finding = snapshot.finding(NEVER_WRITTEN, "both the store and its changelog are empty", task, name)
        return Prediction(task.name, name, Outcome.OPENS, records, finding.code), (finding,)
    if store is None:
        finding = lacked(snapshot, task, name)
    elif _offset_is_unknown(draft, name):
        # The store is empty, and its log was not read. Probably it never had a record: Streams wrote -4 when it closed.
        level = Level.EXPECTED if is_empty and records is None else None
        finding = snapshot.finding(
            UNKNOWN_OFFSET_BY_DROPPED[_is_dropped(draft, name)],
            "the store's offset is -4",
            task,
            name,
            level,
            hint=_hint_about_unknown_offset(draft, name),
        )
    elif store.segmented and not store.databases:
        finding = snapshot.finding(NO_SEGMENTS_YET, "the store has no segment", task, name)
    else:
        finding = snapshot.finding(OFFSET_MISSING, "the store has no offset", task, name)
    return Prediction(task.name, name, Outcome.RESTORES_ALL, records, finding.code), (finding,)


def _hint_about_unknown_offset(draft: TaskCheckDraft, name: str) -> str | None:
    """Return the hint for a store whose offset is -4; None for that of the code."""
    if _is_dropped(draft, name):
        # A migration writes -4 into the store, where the new release accepts it.
        return None
    # The release reads -4 where it is, so a migration has nothing to do.
    return RESTORE_STORE


def _offset_is_unknown(draft: TaskCheckDraft, name: str) -> bool:
    return OFFSET_UNKNOWN in _offsets(draft, name).values() or _is_dropped(draft, name)


def _is_dropped(draft: TaskCheckDraft, name: str) -> bool:
    """Return True if the release drops the offset -4 of a store, which is in ``.checkpoint``."""
    initial = draft.read.stores.get(name)
    return initial is not None and initial.dropped_unknown
