"""Rules for the stores of a task, and for global stores, at a start (``StateManagerUtil.registerStateStores``).

The order is that of Streams: it opens every store, reads ``.checkpoint``, requires an offset of each logged store, and
looks for the next record in the log. The first step that fails decides for the whole task. Global stores belong to no
task, and their offset is the next one to read (``GlobalStateManagerImpl``).
"""

from __future__ import annotations

from dataclasses import replace

from kstate_cli import streams_log
from kstate_cli.check.codes.layout import STORE_IN_TWO_SUBTOPOLOGIES
from kstate_cli.check.codes.logs import BEYOND_LOG_END, CATCHES_UP, GLOBAL_OUT_OF_RANGE, NEAR_LOG_START, PAST_THE_DUMP
from kstate_cli.check.codes.offsets import (
    GLOBAL_UNKNOWN_OFFSET,
    GLOBAL_UNKNOWN_TOPIC,
    OFFSET_MISSING,
    OFFSET_WITHOUT_STORE,
    SENTINEL_OFFSET,
    START_HANGS,
    STATUS_OPEN,
)
from kstate_cli.check.codes.surroundings import OLDER_THAN_MAX_AGE
from kstate_cli.check.codes.topology import NEW_STORE
from kstate_cli.check.files import checkpoint_obstacle, foreign_entries
from kstate_cli.check.findings import Level, Outcome, Prediction, Records
from kstate_cli.check.judge_offsets import after_start, compared_places, maybe_unclean, missing_offsets, missing_status
from kstate_cli.check.other_topology import left_behind
from kstate_cli.check.predictions import Verdict, because_of, failed, predicted
from kstate_cli.check.ranges import (
    InitialOffsets,
    Range,
    judge_age,
    locate,
    missing,
    near_start,
    read_offsets,
    recreated,
    whole,
)
from kstate_cli.check.rule import Obstacle, Rule, StoreCheckDraft, TaskCheckDraft, judged, with_store
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.stores import GLOBAL_STORE_RULES, STORE_RULES
from kstate_cli.formats import offsets as family
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.logs import Where
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT, store_folder
from kstate_cli.texts import plural

_WIPED = (Outcome.WIPED, Outcome.LOST, Outcome.MAY_BE_LOST)
# StateDirectory.updateTaskOffsets accepts these negative numbers, and throws at any other one.
_HARMLESS_NEGATIVE = frozenset({-1, OFFSET_UNKNOWN, -5})


def judge_task(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """Return the draft of a task, with a prediction for each store that it has, or should have."""
    return judged(TASK_RULES, snapshot, TaskCheckDraft(task, read_offsets(snapshot, task)))


def judge_copy(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """Judge a directory with the name of a task whose sub-topology the application does not have.

    Up to 4.2 it remains until the cleaner deletes it. 4.3 builds the whole topology for it, with the global stores.
    These are then opened a second time, besides their own task, which fails (``RocksDBMetricsRecorder.init``).
    """
    code = STORE_IN_TWO_SUBTOPOLOGIES
    if not snapshot.request.into_family or not snapshot.has_global:
        ignored = [Prediction(task.name, store.name, Outcome.IGNORED, code=code) for store in task.stores]
    else:
        message = streams_log.ANOTHER_TASK.format(task.path.name)
        ignored = [
            Prediction(task.name, store.name, Outcome.FAILS, None, code, task.name, (message,)) for store in task.stores
        ]
    return TaskCheckDraft(task, read_offsets(snapshot, task), predictions=tuple(ignored))


def _foreign(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    return draft.with_findings(*foreign_entries(snapshot, draft.task))


def _too_old(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge a task older than ``state.cleanup.dir.max.age.ms``: the start deletes it before it opens any store."""
    task, request = draft.task, snapshot.request
    age = snapshot.now_seconds - task.mtime_ns / 1e9
    if not request.into_family or request.max_age is None or age <= request.max_age.total_seconds():
        return draft
    old = snapshot.finding(OLDER_THAN_MAX_AGE, f"Streams deletes {task.name} before it opens any store", task)
    # The start deletes the whole folder without reading it. So no other rule matters.
    verdicts = [because_of(snapshot, draft, store.name, old.code, Outcome.WIPED) for store in task.stores]
    draft = draft.with_findings(old, *(finding for _, findings in verdicts for finding in findings))
    return replace(draft, predictions=tuple(prediction for prediction, _ in verdicts), ended=True)


def _stores(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    for store in draft.task.stores:
        store_draft = StoreCheckDraft(draft.task, store, draft.read.stores[store.name])
        draft = with_store(draft, judged(STORE_RULES, snapshot, store_draft))
    return draft


def _absent_stores(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge stores without a directory in the task, which are known from offsets or from other tasks."""
    task = draft.task
    # Sorted, because no directory shows the order of the topology, and the output must always be the same.
    absent = sorted(snapshot.should_have(task) - {store.name for store in task.stores})
    empty = dict(draft.empty)
    findings = []
    for name, lines in sorted(draft.read.absent.items()):
        offset = max(lines.values())
        # Nothing is wrong if a folder has that name, which is that of a custom store, nor with -4: then no rows are
        # missing.
        if name in snapshot.entries[task.name] or offset == OFFSET_UNKNOWN:
            continue
        if task.has_offsets_family and name not in absent:
            text = (
                "the store has an offset but no directory, because it is in memory. With upgrade.from, .checkpoint "
                "also lists in-memory stores"
            )
            findings.append(snapshot.finding(OFFSET_WITHOUT_STORE, text, task, name, Level.EXPECTED))
            continue
        text = f"the store's directory is missing, but its offset {offset} still exists"
        findings.append(snapshot.finding(OFFSET_WITHOUT_STORE, text, task, name))
        empty[name] = findings[-1].code
        if name not in absent:
            absent.append(name)
    return replace(draft.with_findings(*findings), absent=tuple(absent), empty=empty)


def read_checkpoint(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge whether ``.checkpoint`` can be read."""
    obstacle, findings = checkpoint_obstacle(snapshot, draft.task)
    return replace(draft.with_findings(*findings), unreadable=obstacle)


def compare(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge whether the places of an offset agree."""
    return draft.with_findings(*compared_places(snapshot, draft.task, draft.read))


def _not_reached(_: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """End the rules if a store fails: Streams opens all stores of a task before it does anything else."""
    if not draft.fails:
        return draft
    others = sorted({*draft.stores, *draft.absent} - draft.fails.keys())
    failing = (failed(draft, name) for name in draft.fails)
    not_reached = (Prediction(draft.task.name, name, Outcome.NOT_REACHED) for name in others)
    return replace(draft, predictions=(*failing, *not_reached), ended=True)


def _status(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge stores that were not closed cleanly, which exactly-once does not accept. No ``status`` counts as closed."""
    if not snapshot.request.into_family:
        return draft
    findings = [
        snapshot.finding(STATUS_OPEN, _status_text(store), draft.task, store.name, snapshot.request.level_of_unclean)
        for store in draft.stores.values()
        if store.status == "open"
    ]
    draft = draft.with_findings(*findings, *missing_status(snapshot, draft.task))
    if not findings or not snapshot.request.exactly_once:
        return replace(draft, code=None, keeps_open=None)
    # The failure of the first such store ends the opening, so its segments stay open.
    leaking = (name for name, store in draft.stores.items() if _keeps_segments_open(store))
    draft = replace(draft, code=findings[-1].code, keeps_open=next(leaking, None))
    if snapshot.request.starts_transactional:
        return _hanging(snapshot, draft)
    return draft


def _status_text(store: Store) -> str:
    text = "the store's status is open"
    if _keeps_segments_open(store):
        text += f", but an earlier segment's status is not, so the first start ends in ERROR ({streams_log.LOCK_HELD})"
    return text


def _keeps_segments_open(store: Store) -> bool:
    """Return True if a segment with status 1 follows one without.

    The scan at the start opens them in order, throws at the one with status 1, and does not close those before it
    (``StateDirectory.initializeStartupStores``). The stream thread cannot open these. The next start wipes the task.
    """
    if not store.segmented:
        return False
    segments = sorted(store.databases, key=lambda segment: segment.segment_start or 0)
    left_open = [segment.offsets is not None and segment.offsets.status == family.STATUS_OPEN for segment in segments]
    return any(left_open) and not left_open[0]


def _hanging(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge a task with transactional stores in which a store has status 1.

    If it is the first store that the task opens, the client never leaves REBALANCING: Streams wipes only the stores
    that it has opened before, and tries again (``TaskManager.closeDirtyAndRevive``). The order of the stores is that of
    the topology, which no directory shows. If all of them have status 1, so has the first.
    """
    stores = [store for store in draft.stores.values() if store.databases]
    hangs, text = None, "if the first store that Streams opens in the task has the status open"
    if all(store.status == "open" for store in stores):
        hangs, text = True, "because all stores in the task have the status open"
    finding = snapshot.finding(START_HANGS, f"{text}, the client stays in REBALANCING", draft.task)
    return replace(draft.with_findings(finding), code=finding.code, hangs=hangs)


def _unreadable(_: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    if draft.code is not None or draft.unreadable is None:
        return draft
    # The file belongs to the whole task, so all stores of the task fail.
    return replace(draft, fails=dict.fromkeys((*draft.stores, *draft.absent), draft.unreadable))


def _sentinels(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Judge negative offsets that 4.3 does not know: it throws when it adds up the offsets of its tasks."""
    if draft.code is not None or draft.unreadable is not None or not snapshot.request.into_family:
        return draft
    fails = dict(draft.fails)
    for name in draft.stores:
        for tp, offset in draft.read.stores[name].offsets.items():
            if offset < 0 and offset not in _HARMLESS_NEGATIVE:
                draft = draft.with_findings(
                    snapshot.finding(SENTINEL_OFFSET, f"the offset for {tp} is {offset}", draft.task, name)
                )
                text, file = f"offset {offset} of {tp}", f"{draft.task.name}/{name}"
                fails[name] = Obstacle(SENTINEL_OFFSET, text, file, streams_log.SENTINEL)
    return replace(draft, fails=fails)


def _missing(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    if draft.code is not None or draft.unreadable is not None:
        return draft
    missing = missing_offsets(snapshot, draft)
    return replace(draft.with_findings(*missing.findings), code=missing.code, in_doubt=missing.in_doubt)


def _after(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    return draft.with_findings(*after_start(snapshot, draft))


def _elsewhere(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    wiped = any(prediction.outcome in _WIPED and prediction.or_else is None for prediction in draft.predictions)
    predictions, findings = left_behind(snapshot, draft.task, wiped=wiped)
    return replace(draft.with_findings(*findings), predictions=(*draft.predictions, *predictions))


def _unclean(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    # If the task is wiped or fails anyway, a warning about uncommitted rows is not needed.
    if draft.code is not None or draft.fails:
        return draft
    return draft.with_findings(*maybe_unclean(snapshot, draft.task))


TASK_RULES: tuple[Rule[TaskCheckDraft], ...] = (
    Rule("StateDirectory.taskDirIsEmpty (docs/internals/layout.md#foreign-entries)", _foreign),
    Rule("StateDirectory.cleanOutdatedDirsOnStartup", _too_old),
    Rule("StateManagerUtil.registerStateStores", _stores),
    Rule("OffsetCheckpoint keeps the offset of a store whose directory was removed", _absent_stores),
    Rule("OffsetCheckpoint.read", read_checkpoint),
    Rule("LegacyCheckpointingStateStore.migrateLegacyOffsets, StoreQueryUtils, AbstractSegments", compare),
    Rule("StateManagerUtil.registerStateStores opens no more stores after one has failed", _not_reached),
    Rule("AbstractColumnFamilyAccessor.open", _status),
    Rule(
        "ProcessorStateManager.initializeStoreOffsets fails if OffsetCheckpoint.read throws an exception", _unreadable
    ),
    Rule("StateDirectory.updateTaskOffsets", _sentinels),
    Rule("ProcessorStateManager.initializeStoreOffsets throws a TaskCorruptedException", _missing),
    Rule("StoreChangelogReader, DefaultStateUpdater (KIP-406)", predicted),
    Rule("RocksDBTimeOrderedKeyValueBytesStore; delete.retention.ms", _after),
    Rule("ProcessorStateManager.checkpoint", _unclean),
    Rule("TopologyMetadata.buildSubtopology gives each task its sub-topology's stores", _elsewhere),
)
"""The rules for a task, in the order of Streams."""


_HANGS_UP_TO = (3, 9)
"""In releases up to this one, ``GlobalStreamThread#start`` may never return, so the start hangs.

A second close ends the global thread before that method learns of the first failure.
"""


def judge_global(snapshot: Snapshot, task: Task) -> TaskCheckDraft:
    """Return the draft of the global stores, with a prediction for each."""
    if snapshot.homes is not None and not task.stores:
        # An application without global stores has no thread for them, so Streams does not read this directory.
        return TaskCheckDraft(task, read_offsets(snapshot, task))
    return judged(GLOBAL_RULES, snapshot, TaskCheckDraft(task, read_offsets(snapshot, task)))


def judge_missing_global_stores(snapshot: Snapshot) -> tuple[Prediction, ...]:
    """Return the predictions for global stores that the directory lacks: they are read from their topics."""
    if snapshot.homes is None:
        return ()  # without a topology nothing states which global stores there should be
    names = snapshot.homes.global_missing
    return tuple(Prediction(GLOBAL, name, Outcome.RESTORES_ALL, None, NEW_STORE) for name in names)


def _without_status(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    if snapshot.request.into_family:
        return draft.with_findings(*missing_status(snapshot, draft.task))
    return draft


def _global_stores(snapshot: Snapshot, draft: TaskCheckDraft) -> TaskCheckDraft:
    """Return the draft with a prediction for each global store: whether it opens, then by its offsets."""
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
    """Judge a global store that opens, by its offsets, which are the next ones to read."""
    if OFFSET_UNKNOWN in read.offsets.values():
        text = "the store's offset is -4, and Streams seeks to this offset"
        finding = snapshot.finding(GLOBAL_UNKNOWN_OFFSET, text, task, store.name)
        obstacle = Obstacle(finding.code, text, f"{task.name}/{CHECKPOINT}", (streams_log.SEEK_NEGATIVE,))
        return _fails(task, store, obstacle), (finding,)
    ranges = [locate(snapshot, key, offset) for key, offset in sorted(read.offsets.items())]
    missing_logs = [missing(snapshot, range_.key, task, store.name) for range_ in ranges if snapshot.lacks(range_.key)]
    findings = list(missing_logs)
    for range_ in ranges:
        findings += recreated(snapshot, range_.key, task, store.name)
        if range_.outside:
            code, text = GLOBAL_OUT_OF_RANGE, range_.text
            if range_.where is Where.ABOVE:
                code = BEYOND_LOG_END
            elif snapshot.request.release.number <= _HANGS_UP_TO:
                text += ". KafkaStreams#start never returns"
            findings.append(snapshot.finding(code, text, task, store.name))
            file = f"{task.name}/{store_folder(store.name, segmented=False)}"
            return Prediction(
                task.name, store.name, Outcome.FAILS, None, code, file, (streams_log.GLOBAL_FAILED,)
            ), tuple(findings)
        if range_.where is Where.ABOVE:
            findings.append(snapshot.finding(PAST_THE_DUMP, range_.text, task, store.name))
        elif near_start(range_):
            findings.append(snapshot.finding(NEAR_LOG_START, range_.text, task, store.name))
    if not ranges:
        # Every global store begins without an offset. If it has rows, its records are read a second time.
        level = Level.EXPECTED if store.empty else None
        text = "the store has no offset, so Streams reads its topic from the beginning"
        finding = snapshot.finding(OFFSET_MISSING, text, task, store.name, level)
        return Prediction(task.name, store.name, Outcome.RESTORES_ALL, None, finding.code), (finding,)
    if missing_logs:
        return Prediction(task.name, store.name, Outcome.UNKNOWN, None, missing_logs[0].code), tuple(findings)
    prediction, more_findings = _caught_up(snapshot, task, store, read, ranges)
    return prediction, (*findings, *more_findings)


def _caught_up(snapshot: Snapshot, task: Task, store: Store, read: InitialOffsets, ranges: list[Range]) -> Verdict:
    """Judge a global store whose offsets are inside of their logs, as far as the logs are known."""
    # The topic may have new partitions. A partition without an offset is read from its beginning.
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
    """Judge the topics in ``.checkpoint``: up to 4.2 each must belong to a global store, and a store has one topic."""
    task = draft.task
    if draft.unreadable is not None or snapshot.request.into_family or task.checkpoint is None:
        return draft
    topics = sorted({tp.topic for tp in task.checkpoint.entries})
    if len(topics) <= len(task.stores):
        return draft
    text = (
        f".checkpoint contains {plural(len(topics), 'topic')} ({', '.join(topics)}), but the directory has "
        f"{plural(len(task.stores), 'store')}"
    )
    finding = snapshot.finding(GLOBAL_UNKNOWN_TOPIC, text, task)
    file = f"{task.name}/{CHECKPOINT}"
    failing = []
    for prediction in draft.predictions:
        # A store that fails itself fails earlier, so Streams prints its message.
        if prediction.outcome is not Outcome.FAILS:
            prediction = Prediction(
                prediction.task,
                prediction.store,
                Outcome.FAILS,
                None,
                finding.code,
                file,
                (streams_log.UNKNOWN_TOPIC,),
                prediction.or_else,
            )
        failing.append(prediction)
    return replace(draft.with_findings(finding), predictions=tuple(failing))


GLOBAL_RULES: tuple[Rule[TaskCheckDraft], ...] = (
    Rule("OffsetCheckpoint.read", read_checkpoint),
    Rule("LegacyCheckpointingStateStore.migrateLegacyOffsets, StoreQueryUtils, AbstractSegments", compare),
    Rule("AbstractColumnFamilyAccessor.open", _without_status),
    Rule("GlobalStateManagerImpl.registerStore, restoreState", _global_stores),
    Rule(
        "GlobalStateManagerImpl.initialize fails if there are more topics than persistent global stores", _unknown_topic
    ),
)
"""The rules for the folder ``global``, in the order of Streams."""
