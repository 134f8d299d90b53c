"""What a start does with the global stores (``GlobalStateManagerImpl``): no task, next-offset meaning."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.check import streams_log
from kstate_cli.check.ages import judge_age
from kstate_cli.check.codes.logs import BEYOND_LOG_END, CATCHES_UP, GLOBAL_OUT_OF_RANGE, NEAR_LOG_START, PAST_THE_DUMP
from kstate_cli.check.codes.offsets import GLOBAL_UNKNOWN_OFFSET, GLOBAL_UNKNOWN_TOPIC, OFFSET_MISSING
from kstate_cli.check.codes.topology import NEW_STORE
from kstate_cli.check.findings import Level
from kstate_cli.check.initial_offsets import InitialOffsets, read_offsets
from kstate_cli.check.judge_offsets import missing_status
from kstate_cli.check.outcome import Outcome, Prediction, Records
from kstate_cli.check.predictions import Told
from kstate_cli.check.ranges import Range, locate, missing, near_start, recreated, whole
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
"""There the global thread dies of a second close, before ``GlobalStreamThread#start`` hears of the first failure."""


def judge_global(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """What is found of the global stores, with a prediction for each."""
    if snapshot.homes is not None and not task.stores:
        # A topology without global stores has no thread for them, and nobody looks here.
        return TaskCheckDraft(task, read_offsets(snapshot, task))
    return judged(GLOBAL_RULES, snapshot, TaskCheckDraft(task, read_offsets(snapshot, task)))


def judge_global_lacked(snapshot: Snapshot) -> tuple[Prediction, ...]:
    """Global stores that the topology has, and the directory has not: read from their topics, as a new one is."""
    names = snapshot.homes.global_lacked if snapshot.homes is not None else ()
    return tuple(Prediction(GLOBAL, name, Outcome.RESTORES_ALL, None, NEW_STORE) for name in names)


def _without_status(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    return draft.told(*missing_status(snapshot, draft.task)) if snapshot.asked.into_family else draft


def _global_stores(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    for store in draft.task.stores:
        read = draft.read.stores[store.name]
        one = judged(GLOBAL_STORE_RULES, snapshot, StoreCheckDraft(draft.task, store, read))
        draft = draft.told(*one.findings)
        obstacle = one.fatal or draft.unreadable
        if obstacle is not None:
            prediction = _fails(draft.task, store, obstacle)
        else:
            prediction, findings = _by_offsets(snapshot, draft.task, store, read)
            draft = draft.told(*findings)
        draft = replace(draft, predictions=(*draft.predictions, prediction))
    return draft


def _fails(task: Task, store: Store, obstacle: Obstacle) -> Prediction:
    return Prediction(task.name, store.name, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages)


def _by_offsets(snapshot: Snapshot, task: Task, store: Store, read: InitialOffsets) -> Told:
    if OFFSET_UNKNOWN in read.offsets.values():
        text = "its offset is -4, and Streams seeks to it"
        finding = snapshot.finding(GLOBAL_UNKNOWN_OFFSET, text, task, store.name)
        obstacle = Obstacle(finding.code, text, f"{task.name}/{CHECKPOINT}", (streams_log.SEEK_NEGATIVE,))
        return _fails(task, store, obstacle), (finding,)
    ranges = [locate(snapshot, key, offset) for key, offset in sorted(read.offsets.items())]
    gone = [missing(snapshot, one.key, task, store.name) for one in ranges if snapshot.lacks(one.key)]
    findings = list(gone)
    for one in ranges:
        findings += recreated(snapshot, one.key, task, store.name)
        if one.outside:
            code = BEYOND_LOG_END if one.where is Where.ABOVE else GLOBAL_OUT_OF_RANGE
            hangs = one.where is Where.BELOW and snapshot.asked.release.number <= _HANGS_UP_TO
            more = "; KafkaStreams#start never returns" if hangs else ""
            findings.append(snapshot.finding(code, one.text + more, task, store.name))
            file = f"{task.name}/{store_folder(store.name, segmented=False)}"
            return Prediction(
                task.name, store.name, Outcome.FAILS, None, code, file, (streams_log.GLOBAL_FAILED,)
            ), tuple(findings)
        if one.where is Where.ABOVE:
            findings.append(snapshot.finding(PAST_THE_DUMP, one.text, task, store.name))
        elif near_start(one):
            findings.append(snapshot.finding(NEAR_LOG_START, one.text, task, store.name))
    if not ranges:
        level = Level.EXPECTED if store.empty else None
        text = "it has no offset: read from the beginning"
        finding = snapshot.finding(OFFSET_MISSING, text, task, store.name, level)
        return Prediction(task.name, store.name, Outcome.RESTORES_ALL, None, finding.code), (finding,)
    if gone:
        return Prediction(task.name, store.name, Outcome.UNKNOWN, None, gone[0].code), tuple(findings)
    prediction, more_findings = _caught_up(snapshot, task, store, read, ranges)
    return prediction, (*findings, *more_findings)


def _caught_up(snapshot: Snapshot, task: Task, store: Store, read: InitialOffsets, ranges: list[Range]) -> Told:
    """A store whose offsets are in their logs, as far as these are known."""
    counts = [one.records for one in ranges] + [whole(snapshot, key) for key in _other_partitions(snapshot, read)]
    if any(one is None for one in counts):
        return Prediction(task.name, store.name, Outcome.OPENS), ()
    records = _sum([one for one in counts if one is not None])
    if not records.count:
        return Prediction(task.name, store.name, Outcome.OPENS, records), ()
    finding = snapshot.finding(CATCHES_UP, "; ".join(one.text for one in ranges), task, store.name)
    old = judge_age(snapshot, task, store, ranges[0].key)
    return Prediction(task.name, store.name, Outcome.RESTORES, records, finding.code), (finding, *old)


def _other_partitions(snapshot: Snapshot, read: InitialOffsets) -> list[TopicPartition]:
    """Partitions of the same topics without an offset: they are read from their beginnings."""
    topics = {key.topic for key in read.offsets}
    return sorted(key for key in snapshot.logs.known if key.topic in topics and key not in read.offsets)


def _sum(parts: list[Records]) -> Records:
    return Records(sum(one.count for one in parts), all(one.exact for one in parts))


def _unknown_topic(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Up to 4.2 every topic of ``.checkpoint`` must be that of a global store, and each store has one topic."""
    task = draft.task
    if draft.unreadable is not None or snapshot.asked.into_family or task.checkpoint is None:
        return draft
    topics = sorted({tp.topic for tp in task.checkpoint.entries})
    if len(topics) <= len(task.stores):
        return draft
    text = f".checkpoint names {len(topics)} topics ({', '.join(topics)}), and {len(task.stores)} stores are here"
    finding = snapshot.finding(GLOBAL_UNKNOWN_TOPIC, text, task)
    file = f"{task.name}/{CHECKPOINT}"
    failing = (
        Prediction(
            one.task, one.store, Outcome.FAILS, None, finding.code, file, (streams_log.UNKNOWN_TOPIC,), one.or_else
        )
        if one.outcome is not Outcome.FAILS
        else one
        for one in draft.predictions
    )
    return replace(draft.told(finding), predictions=tuple(failing))


GLOBAL_RULES: tuple[Rule[TaskCheckDraft], ...] = (
    Rule("OffsetCheckpoint.read", read_checkpoint),
    Rule("LegacyCheckpointingStateStore.migrateLegacyOffsets, StoreQueryUtils, AbstractSegments", compare),
    Rule("AbstractColumnFamilyAccessor.open", _without_status),
    Rule("GlobalStateManagerImpl.registerStore, restoreState", _global_stores),
    Rule("GlobalStateManagerImpl.initialize: more topics than persistent global stores", _unknown_topic),
)
"""Of the folder ``global``, in the order of Streams."""
