"""The global stores at a start (``GlobalStateManagerImpl``): they have no task, and state the next offset to read."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli import streams_log
from kstate_cli.check.codes.logs import BEYOND_LOG_END, CATCHES_UP, GLOBAL_OUT_OF_RANGE, NEAR_LOG_START, PAST_THE_DUMP
from kstate_cli.check.codes.offsets import GLOBAL_UNKNOWN_OFFSET, GLOBAL_UNKNOWN_TOPIC, OFFSET_MISSING
from kstate_cli.check.codes.topology import NEW_STORE
from kstate_cli.check.findings import Level, Outcome, Prediction, Records
from kstate_cli.check.initial_offsets import InitialOffsets, read_offsets
from kstate_cli.check.judge_offsets import missing_status
from kstate_cli.check.predictions import Verdict
from kstate_cli.check.ranges import Range, judge_age, locate, missing, near_start, recreated, whole
from kstate_cli.check.rule import Obstacle, Rule, StoreCheckDraft, TaskCheckDraft, judged
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.stores import GLOBAL_STORE_RULES
from kstate_cli.check.tasks import compare, read_checkpoint
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.task_id import GLOBAL
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT, store_folder

_HANGS_UP_TO = (3, 9)
"""Up to it, a second close kills the global thread before ``GlobalStreamThread#start`` learns of the first failure."""


def judge_global(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """Return the draft of the global stores, with a prediction for each."""
    if snapshot.homes is not None and not task.stores:
        # A topology without global stores has no thread for them, so Streams does not read this directory.
        return TaskCheckDraft(task, read_offsets(snapshot, task))
    return judged(GLOBAL_RULES, snapshot, TaskCheckDraft(task, read_offsets(snapshot, task)))


def judge_missing_global_stores(snapshot: Snapshot) -> tuple[Prediction, ...]:
    """Return the predictions for global stores that the directory lacks: they are read from their topics."""
    names = snapshot.homes.global_missing if snapshot.homes is not None else ()
    return tuple(Prediction(GLOBAL, name, Outcome.RESTORES_ALL, None, NEW_STORE) for name in names)


def _without_status(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    if snapshot.request.into_family:
        return draft.with_findings(*missing_status(snapshot, draft.task))
    return draft


def _global_stores(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    for store in draft.task.stores:
        read = draft.read.stores[store.name]
        result = judged(GLOBAL_STORE_RULES, snapshot, StoreCheckDraft(draft.task, store, read))
        draft = draft.with_findings(*result.findings)
        obstacle = result.fatal or draft.unreadable
        if obstacle is not None:
            prediction = _fails(draft.task, store, obstacle)
        else:
            prediction, findings = _by_offsets(snapshot, draft.task, store, read)
            draft = draft.with_findings(*findings)
        draft = replace(draft, predictions=(*draft.predictions, prediction))
    return draft


def _fails(task: Task, store: Store, obstacle: Obstacle) -> Prediction:
    return Prediction(task.name, store.name, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages)


def _by_offsets(snapshot: Snapshot, task: Task, store: Store, read: InitialOffsets) -> Verdict:
    if OFFSET_UNKNOWN in read.offsets.values():
        text = "its offset is -4, and Streams seeks to it"
        finding = snapshot.finding(GLOBAL_UNKNOWN_OFFSET, text, task, store.name)
        obstacle = Obstacle(finding.code, text, f"{task.name}/{CHECKPOINT}", (streams_log.SEEK_NEGATIVE,))
        return _fails(task, store, obstacle), (finding,)
    ranges = [locate(snapshot, key, offset) for key, offset in sorted(read.offsets.items())]
    missing_logs = [missing(snapshot, range_.key, task, store.name) for range_ in ranges if snapshot.lacks(range_.key)]
    findings = list(missing_logs)
    for range_ in ranges:
        findings += recreated(snapshot, range_.key, task, store.name)
        if range_.outside:
            code = BEYOND_LOG_END if range_.where is Where.ABOVE else GLOBAL_OUT_OF_RANGE
            hangs = range_.where is Where.BELOW and snapshot.request.release.number <= _HANGS_UP_TO
            more = "; KafkaStreams#start never returns" if hangs else ""
            findings.append(snapshot.finding(code, range_.text + more, task, store.name))
            file = f"{task.name}/{store_folder(store.name, segmented=False)}"
            return Prediction(
                task.name, store.name, Outcome.FAILS, None, code, file, (streams_log.GLOBAL_FAILED,)
            ), tuple(findings)
        if range_.where is Where.ABOVE:
            findings.append(snapshot.finding(PAST_THE_DUMP, range_.text, task, store.name))
        elif near_start(range_):
            findings.append(snapshot.finding(NEAR_LOG_START, range_.text, task, store.name))
    if not ranges:
        level = Level.EXPECTED if store.empty else None
        text = "it has no offset: read from the beginning"
        finding = snapshot.finding(OFFSET_MISSING, text, task, store.name, level)
        return Prediction(task.name, store.name, Outcome.RESTORES_ALL, None, finding.code), (finding,)
    if missing_logs:
        return Prediction(task.name, store.name, Outcome.UNKNOWN, None, missing_logs[0].code), tuple(findings)
    prediction, more_findings = _caught_up(snapshot, task, store, read, ranges)
    return prediction, (*findings, *more_findings)


def _caught_up(snapshot: Snapshot, task: Task, store: Store, read: InitialOffsets, ranges: list[Range]) -> Verdict:
    """Judge a store whose offsets are in their logs, as far as these are known."""
    counts = [part.records for part in ranges] + [whole(snapshot, key) for key in _other_partitions(snapshot, read)]
    if any(part is None for part in counts):
        return Prediction(task.name, store.name, Outcome.OPENS), ()
    records = _sum([part for part in counts if part is not None])
    if not records.count:
        return Prediction(task.name, store.name, Outcome.OPENS, records), ()
    finding = snapshot.finding(CATCHES_UP, "; ".join(part.text for part in ranges), task, store.name)
    old = judge_age(snapshot, task, store, ranges[0].key)
    return Prediction(task.name, store.name, Outcome.RESTORES, records, finding.code), (finding, *old)


def _other_partitions(snapshot: Snapshot, read: InitialOffsets) -> list[TopicPartition]:
    """Return the partitions of the same topics without an offset: they are read from their beginnings."""
    topics = {key.topic for key in read.offsets}
    return sorted(key for key in snapshot.logs.partitions if key.topic in topics and key not in read.offsets)


def _sum(parts: list[Records]) -> Records:
    return Records(sum(part.count for part in parts), all(part.exact for part in parts))


def _unknown_topic(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge the topics of ``.checkpoint``: up to 4.2 each must belong to a global store, which has one topic."""
    task = draft.task
    if draft.unreadable is not None or snapshot.request.into_family or task.checkpoint is None:
        return draft
    topics = sorted({tp.topic for tp in task.checkpoint.entries})
    if len(topics) <= len(task.stores):
        return draft
    text = f".checkpoint names {len(topics)} topics ({', '.join(topics)}), and {len(task.stores)} stores are here"
    finding = snapshot.finding(GLOBAL_UNKNOWN_TOPIC, text, task)
    file = f"{task.name}/{CHECKPOINT}"
    failing = (
        Prediction(
            prediction.task,
            prediction.store,
            Outcome.FAILS,
            None,
            finding.code,
            file,
            (streams_log.UNKNOWN_TOPIC,),
            prediction.or_else,
        )
        if prediction.outcome is not Outcome.FAILS
        else prediction
        for prediction in draft.predictions
    )
    return replace(draft.with_findings(finding), predictions=tuple(failing))


GLOBAL_RULES: tuple[Rule[TaskCheckDraft], ...] = (
    Rule("OffsetCheckpoint.read", read_checkpoint),
    Rule("LegacyCheckpointingStateStore.migrateLegacyOffsets, StoreQueryUtils, AbstractSegments", compare),
    Rule("AbstractColumnFamilyAccessor.open", _without_status),
    Rule("GlobalStateManagerImpl.registerStore, restoreState", _global_stores),
    Rule("GlobalStateManagerImpl.initialize: more topics than persistent global stores", _unknown_topic),
)
"""Of the folder ``global``, in the order of Streams."""
