"""From what is known of a task to what becomes of each of its stores."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.check import streams_log
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
    UNKNOWN_OFFSET,
    VERSIONED_REPLAYED,
    WITHOUT_CHANGELOG,
)
from kstate_cli.check.codes.topology import MOVED_WITHOUT_CHANGELOG
from kstate_cli.check.findings import Finding, FindingCode, Level
from kstate_cli.check.homes_told import lacked
from kstate_cli.check.judge_offsets import (
    is_lost,
    is_surely_lost,
    keeps_versions,
)
from kstate_cli.check.outcome import Outcome, Prediction, Records
from kstate_cli.check.ranges import Range, catching_up, locate, may_expire, missing, near_start, recreated, whole
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.segments import rows_below
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.statedir.model import Store

Told = tuple[Prediction, tuple[Finding, ...]]
"""What becomes of a store, and what is found meanwhile."""


def predicted(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """A task with a prediction for each of its stores."""
    names = sorted({*draft.stores, *draft.gone})
    ranges: dict[str, Range | None] = {}
    if draft.unreadable is None:
        for name in names:
            ranges[name], findings = _range(snapshot, draft, name)
            draft = draft.told(*findings)
    outside = [one for one in ranges.values() if one is not None and one.outside]
    beyond = None
    for name, one in ranges.items():
        finding = None if one is None else _of_range(snapshot, draft, name, one)
        if finding is not None and one is not None:
            draft = draft.told(finding)
            beyond = finding.code if one.outside else beyond
    # Every changelog of the task is marked corrupted, the valid ones too (DefaultStateUpdater).
    outcome = Outcome.WIPED if snapshot.asked.exactly_once else Outcome.RESTORES_ALL
    race = Outcome.OPENS if all(one.where is Where.ABOVE for one in outside) else None
    predictions = []
    for name in names:
        if name in draft.fails:
            predictions.append(failed(draft, name))
            continue
        if draft.code is not None and draft.hangs:
            prediction, findings = Prediction(draft.task.name, name, Outcome.HANGS, None, draft.code), ()
        elif draft.code is not None:
            prediction, findings = because_of(snapshot, draft, name, draft.code, Outcome.WIPED)
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
                otherwise, more = _by_offset(snapshot, draft, name, ranges.get(name))
                prediction, findings = (
                    replace(prediction, or_else=otherwise.outcome, by_chance=False),
                    (*findings, *more),
                )
        elif beyond is not None:
            prediction, findings = because_of(snapshot, draft, name, beyond, outcome, race)
        else:
            prediction, findings = _by_offset(snapshot, draft, name, ranges.get(name))
        predictions.append(prediction)
        draft = draft.told(*findings)
    ignored = (Prediction(draft.task.name, name, Outcome.IGNORED, code=UNKNOWN_KIND) for name in draft.ignored)
    return replace(draft, predictions=(*predictions, *ignored))


def failed(draft: TaskCheckDraft, name: str) -> Prediction:
    """A store that the start fails at."""
    one = draft.fails[name]
    return Prediction(draft.task.name, name, Outcome.FAILS, None, one.code, one.file, one.messages)


def because_of(
    snapshot: Snapshot,
    draft: TaskCheckDraft,
    name: str,
    code: FindingCode,
    outcome: Outcome,
    or_else: Outcome | None = None,
) -> Told:
    """A store of a task that something is wrong with: ``outcome``, unless it has no changelog."""
    task = draft.task
    if snapshot.begins_empty(task, name):
        return Prediction(task.name, name, Outcome.OPENS_EMPTY, code=MOVED_WITHOUT_CHANGELOG), ()
    store = draft.stores.get(name) or next((one for one in task.stores if one.name == name), None)
    if store is not None and is_lost(snapshot, task, store):
        if outcome is not Outcome.WIPED:
            # At least once the directory stays: only what has a changelog is restored.
            return _without_offset(snapshot, draft, name, store)
        sure = is_surely_lost(snapshot, store)
        says = (
            "it counts as a store without a changelog"
            if sure
            else "it may be a store without a changelog, which --bootstrap-server, --dump or --offsets would tell"
        )
        text = f"no offset anywhere: {says}; and its task is wiped ({code})"
        lost = snapshot.finding(LOST_WITH_ITS_TASK, text, task, name)
        loses = Outcome.LOST if sure else Outcome.MAY_BE_LOST
        return Prediction(task.name, name, loses, None, lost.code, or_else=or_else), (lost,)
    key = snapshot.changelog(task, name)
    if key is None and store is not None and store.segmented and not store.databases:
        key = snapshot.own_changelog(task, name)
    records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
    return Prediction(task.name, name, outcome, records, code, or_else=or_else), ()


def _range(snapshot: Snapshot, draft: TaskCheckDraft, name: str) -> tuple[Range | None, tuple[Finding, ...]]:
    """The store's next offset in its log; None without a valid offset."""
    offsets = _offsets(draft, name)
    key = _changelog(snapshot, draft, name)
    if key is None or key not in offsets:
        return None, ()
    findings: tuple[Finding, ...] = (missing(snapshot, key, draft.task, name),) if snapshot.lacks(key) else ()
    if offsets[key] in (OFFSET_UNKNOWN, -5):
        return None, findings
    findings += recreated(snapshot, key, draft.task, name)
    located = locate(snapshot, key, offsets[key] + 1)
    return catching_up(snapshot, draft.stores.get(name), located), findings


def _of_range(snapshot: Snapshot, draft: TaskCheckDraft, name: str, one: Range) -> Finding | None:
    """What is to be said of where the next offset lies."""
    code = None
    if one.outside:
        code = BELOW_LOG_START if one.where is Where.BELOW else BEYOND_LOG_END
    elif one.where is Where.ABOVE:
        code = PAST_THE_DUMP
    elif near_start(one):
        code = NEAR_LOG_START
    return None if code is None else snapshot.finding(code, one.text, draft.task, name)


def _offsets(draft: TaskCheckDraft, name: str) -> dict[TopicPartition, int]:
    read = draft.read
    return dict(read.stores[name].offsets if name in read.stores else read.absent.get(name, {}))


def _changelog(snapshot: Snapshot, draft: TaskCheckDraft, name: str) -> TopicPartition | None:
    """The partition that the store is restored from: its own changelog before any source topic."""
    offsets = _offsets(draft, name)
    if len(offsets) == 1:
        return next(iter(offsets))
    return snapshot.changelog(draft.task, name)


def _by_offset(snapshot: Snapshot, draft: TaskCheckDraft, name: str, where: Range | None) -> Told:
    """A store of a task that nothing is wrong with."""
    task, store = draft.task.name, draft.stores.get(name)
    if where is None:
        return _without_offset(snapshot, draft, name, store)
    below = None if store is None else rows_below(snapshot, draft.task, store, where.key, _offsets(draft, name))
    if below is not None:
        return Prediction(task, name, Outcome.OPENS_EMPTY, where.records, below.code), (below,)
    if name in draft.empty:
        if name in draft.closed and where.records is not None and where.records.count:
            store_of_it, closed = streams_log.SEGMENT_CLOSED
            message = (store_of_it.format(name), closed)
            return Prediction(task, name, Outcome.FAILS, None, draft.empty[name], f"{task}/{name}", message), ()
        return Prediction(task, name, Outcome.OPENS_EMPTY, where.records, draft.empty[name]), ()
    if where.records is not None and where.records.count:
        finding = snapshot.finding(CATCHES_UP, where.text, draft.task, name)
        # Records put over the rows of a versioned store may lose versions, which matters more than how many they are.
        code = VERSIONED_REPLAYED if store is not None and keeps_versions(store) else finding.code
        return Prediction(task, name, Outcome.RESTORES, where.records, code), (finding,)
    if where.where is Where.UNKNOWN and snapshot.lacks(where.key):
        return Prediction(task, name, Outcome.UNKNOWN, None, LOG_MISSING), ()
    return Prediction(task, name, Outcome.OPENS, where.records), ()


def _may_have_changelog(snapshot: Snapshot, store: Store) -> bool:
    """Return True if a store without an offset was left before its first commit: logged or not, it would have none."""
    return store.has_offsets_family and not has_offset_if_logged(store, transactional=snapshot.asked.transactional)


def _without_offset(snapshot: Snapshot, draft: TaskCheckDraft, name: str, store: Store | None) -> Told:
    task = draft.task
    read = draft.read.stores.get(name)
    offsets = _offsets(draft, name)
    key = _changelog(snapshot, draft, name)
    if store is not None and draft.empty.get(name) == OFFSETS_IN_COLUMN_FAMILY:
        # Its offset is where the release does not look, and the finding names the migration that moves it.
        records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
        return Prediction(task.name, name, Outcome.RESTORES_ALL, records, OFFSETS_IN_COLUMN_FAMILY), ()
    if key is None and store is not None and _may_have_changelog(snapshot, store):
        text = "it was not closed, has no offset, and nothing states whether it has a changelog"
        finding = snapshot.finding(OFFSET_MISSING, text, task, name)
        outcome, otherwise = Outcome.RESTORES_ALL, Outcome.OPENS
        return Prediction(task.name, name, outcome, None, finding.code, or_else=otherwise, by_chance=False), (finding,)
    if key is None and store is not None and store.databases:
        text = "no offset anywhere: it counts as a store without a changelog"
        finding = snapshot.finding(WITHOUT_CHANGELOG, text, task, name)
        return Prediction(task.name, name, Outcome.OPENS, Records(0, exact=True), finding.code), (finding,)
    if store is None and snapshot.begins_empty(task, name):
        return Prediction(task.name, name, Outcome.OPENS_EMPTY, code=MOVED_WITHOUT_CHANGELOG), ()
    if store is not None and key is None:
        key = snapshot.own_changelog(task, name)
    records = whole(snapshot, key, expires=may_expire(snapshot, name, store))
    empty = store is None or store.empty
    if empty and records is not None and not records.count and records.exact:
        finding = snapshot.finding(NEVER_WRITTEN, "it has no rows, and its changelog none", task, name)
        return Prediction(task.name, name, Outcome.OPENS, records, finding.code), (finding,)
    if store is None:
        finding = lacked(snapshot, task, name)
    elif OFFSET_UNKNOWN in offsets.values() or (read is not None and read.dropped_unknown):
        level = Level.EXPECTED if empty and records is None else None
        finding = snapshot.finding(UNKNOWN_OFFSET, "its offset is -4", task, name, level)
    elif store.segmented and not store.databases:
        finding = snapshot.finding(NO_SEGMENTS_YET, "it has no segment", task, name)
    else:
        finding = snapshot.finding(OFFSET_MISSING, "it has no offset", task, name)
    return Prediction(task.name, name, Outcome.RESTORES_ALL, records, finding.code), (finding,)
