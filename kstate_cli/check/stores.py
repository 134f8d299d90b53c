"""What a start finds in one store when it opens it, before any offset counts."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.check import streams_log
from kstate_cli.check.codes.layout import DOES_NOT_OPEN, SEGMENT_OFF_GRID, UNKNOWN_KIND
from kstate_cli.check.codes.offsets import GLOBAL_STATUS_OPEN, OFFSET_WITHOUT_STORE
from kstate_cli.check.files import ObstacleAndFindings, segment_obstacle, store_file_obstacle
from kstate_cli.check.opening import doubts, judge_opening
from kstate_cli.check.rule import Obstacle, Rule, StoreCheckDraft
from kstate_cli.check.sessions import misread_sessions
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.releases import readable_by
from kstate_cli.statedir.model import without_headers
from kstate_cli.statedir.names import store_folder


def _kind(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    kind = draft.store.kind.name
    if readable_by(without_headers(kind), snapshot.asked.release):
        return draft
    text = f"{snapshot.asked.release} has no {kind} stores"
    return replace(draft.told(snapshot.finding(UNKNOWN_KIND, text, draft.task, draft.store.name)), ended=True)


def _files(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return _failing(draft, store_file_obstacle(snapshot, draft.task, draft.store))


def _failing(draft: StoreCheckDraft, failure: ObstacleAndFindings) -> StoreCheckDraft:
    return draft.told(*failure[1]).failing(failure[0])


def _segments(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    foreign, findings = segment_obstacle(snapshot, draft.task, draft.store)
    draft = draft.told(*findings)
    if foreign is None or snapshot.asked.into_family:
        return draft.failing(foreign)
    return draft if draft.store.empty else draft.without_rows(foreign.code)


def _databases(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    opening = judge_opening(snapshot, draft.task, draft.store)
    draft = replace(draft.told(*opening.findings), recreated=opening.recreated)
    if opening.obstacle is None or not opening.swallowed:
        return draft.failing(opening.obstacle)
    return replace(draft.without_rows(opening.obstacle.code), closed=True)


def _global_databases(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    """Nobody passes over what does not open there."""
    opening = judge_opening(snapshot, draft.task, draft.store)
    return draft.told(*opening.findings).failing(opening.obstacle)


def _sessions(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return draft.told(*misread_sessions(snapshot, draft.task, draft.store))


def _doubts(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return draft.told(*doubts(snapshot, draft.task, draft.store))


def _no_database(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    if draft.store.databases or not any(offset >= 0 for offset in draft.read.offsets.values()):
        return draft
    text = "it has an offset and no database: its rows are gone"
    finding = snapshot.finding(OFFSET_WITHOUT_STORE, text, draft.task, draft.store.name)
    return draft.told(finding).without_rows(finding.code)


def _misplaced_segments(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    skipped = snapshot.misplaced_segments(draft.task, draft.store)
    if not skipped:
        return draft
    starts = ", ".join(str(d.segment_start) for d in skipped)
    text = f"{starts}: multiples of no segment interval; Streams opens others instead, without these rows"
    finding = snapshot.finding(SEGMENT_OFF_GRID, text, draft.task, draft.store.name)
    return draft.told(finding).without_rows(finding.code)


def _recreated(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    if not draft.recreated:
        return draft
    text = "CURRENT is missing: RocksDB makes a new, empty database"
    finding = snapshot.finding(DOES_NOT_OPEN, text, draft.task, draft.store.name)
    return draft.told(finding).without_rows(finding.code)


def _global_status(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    task, store = draft.task, draft.store
    asked = snapshot.asked
    if draft.fatal is not None or not (asked.into_family and asked.exactly_once and store.status == "open"):
        return draft
    text = f"its status is open: no start of {asked.release} gets past it"
    not_valid, because = streams_log.INVALID_STATE
    messages = (not_valid.format(store.name), because)
    file = f"{task.name}/{store_folder(store.name, segmented=False)}"
    finding = snapshot.finding(GLOBAL_STATUS_OPEN, text, task, store.name)
    return draft.told(finding).failing(Obstacle(finding.code, text, file, messages))


STORE_RULES: tuple[Rule[StoreCheckDraft], ...] = (
    Rule("releases.py: the kind of store came with a later release", _kind),
    Rule("StoreQueryUtils.readPositionFromCheckpoint, LegacyCheckpointingStateStore.init", _files),
    Rule("AbstractSegments.segmentIdFromSegmentName", _segments),
    Rule("RocksDBStore.openRocksDB, AbstractSegments.openExisting", _databases),
    Rule("RocksDBTimeOrderedSessionStoreWithHeaders (KIP-1285)", _sessions),
    Rule("VersionSet::Recover (RocksDB)", _doubts),
    Rule("OffsetCheckpoint: an offset outlives the directory of its store", _no_database),
    Rule("AbstractSegments.segmentName", _misplaced_segments),
    Rule("DBImpl::Recover (RocksDB): create_if_missing", _recreated),
)
"""Of the stores of a task, in the order of Streams."""
GLOBAL_STORE_RULES: tuple[Rule[StoreCheckDraft], ...] = (
    Rule("StoreQueryUtils.readPositionFromCheckpoint, LegacyCheckpointingStateStore.init", _files),
    Rule("RocksDBStore.openRocksDB", _global_databases),
    Rule("VersionSet::Recover (RocksDB)", _doubts),
    Rule("GlobalStateManagerImpl.initialize, AbstractColumnFamilyAccessor.open", _global_status),
)
"""Of global stores."""
