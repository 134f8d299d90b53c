"""Offsets that are missing, places that disagree, what restoring does to the rows (``ProcessorStateManager``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kstate_cli.check.ages import judge_age
from kstate_cli.check.codes.layout import OFFSETS_IN_COLUMN_FAMILY, SEGMENT_OFF_GRID
from kstate_cli.check.codes.logs import GRACE_BUFFER_RESTORED
from kstate_cli.check.codes.offsets import (
    MAYBE_UNCLEAN,
    NO_OFFSETS,
    NO_SEGMENTS,
    NO_SEGMENTS_YET,
    OFFSET_MISSING,
    SEGMENTS_DISAGREE,
    STALE_CHECKPOINT,
    STALE_POSITION,
    STATUS_MISSING,
    UNKNOWN_OFFSET,
    VERSIONED_REPLAYED,
)
from kstate_cli.check.findings import RESTORE, Finding, FindingCode, Level
from kstate_cli.check.homes_told import has_line, lacked
from kstate_cli.check.initial_offsets import TaskInitialOffsets
from kstate_cli.check.outcome import Outcome
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import offsets_text
from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.offsets.unclean import may_be_ahead
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import position_file

_RESTORED = (Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED)


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """What lacks an offset in a task."""

    code: FindingCode | None = None
    """The finding that wipes the task; of several the last one."""
    in_doubt: bool = False
    """It does so only where a new store is on disk, and nobody says whether it is."""
    findings: tuple[Finding, ...] = ()


def missing_offsets(snapshot: Snapshot, draft: TaskCheckDraft) -> MissingOffsets:
    """What wipes the task: exactly-once, a task that is not empty, a logged store without an offset."""
    task, read = draft.task, draft.read
    if not snapshot.asked.exactly_once or snapshot.task_is_empty(task):
        return MissingOffsets()
    if snapshot.asked.starts_transactional:
        return MissingOffsets()  # initializeStoreOffsets: a transactional store without an offset is not corrupted
    code, doubtful, findings = None, None, []
    for store in draft.stores.values():
        if read.stores[store.name].offsets or not is_logged(snapshot, task, store):
            continue
        if snapshot.misplaced_segments(task, store):
            code = SEGMENT_OFF_GRID  # that has been told
            continue
        if draft.empty.get(store.name) == OFFSETS_IN_COLUMN_FAMILY:
            # Its offset is there, and the migration that this finding names takes it along.
            code = OFFSETS_IN_COLUMN_FAMILY
            continue
        findings.append(_why(snapshot, task, store, read))
        code = findings[-1].code
    for name in draft.gone:
        wipes = not has_line(snapshot, read.absent.get(name, {})) and snapshot.wiped_for(task, name)
        if wipes is not False:
            findings.append(lacked(snapshot, task, name))
            if wipes:
                code = findings[-1].code
            else:
                doubtful = findings[-1].code
    return MissingOffsets(code or doubtful, code is None and doubtful is not None, tuple(findings))


def is_logged(snapshot: Snapshot, task: Task, store: Store) -> bool:
    """Whether a store without an offset is one that should have one; the bytes do not say it.

    docs/internals/offsets.md#which-stores
    """
    if snapshot.changelog(task, store.name) is not None:
        return True
    if snapshot.asked.into_family and store.segmented and not store.databases:
        return True  # without a segment there is no place to keep an offset
    if store.has_offsets_family:
        # A logged store that was closed cleanly has an offset, or -4: it is committed before it is closed.
        return not has_offset_if_logged(store, transactional=snapshot.asked.transactional)
    return not _offsets_around(snapshot, task)


def is_lost(snapshot: Snapshot, task: Task, store: Store) -> bool:
    """Whether nothing brings the rows of a store back once its task is wiped.

    Nothing names a changelog of it, although other stores of the subtopology have theirs, or it was closed cleanly.
    """
    if store.empty or snapshot.changelog(task, store.name) is not None:
        return False
    return _offsets_around(snapshot, task) or not is_logged(snapshot, task, store)


def is_surely_lost(snapshot: Snapshot, store: Store) -> bool:
    """Whether nothing can tell of a changelog any more: topics were asked for, or the store was closed.

    The offset of a logged store is written with the first commit: one that was never closed may have none yet.
    """
    if snapshot.logs.known or not store.has_offsets_family:
        return True
    return has_offset_if_logged(store, transactional=snapshot.asked.transactional)


def _offsets_around(snapshot: Snapshot, task: Task) -> bool:
    around = [snapshot.resolved[one.name] for one in (task, *snapshot.siblings(task))]
    return any(one.offsets for resolved in around for one in resolved.stores)


def _why(snapshot: Snapshot, task: Task, store: Store, read: TaskInitialOffsets) -> Finding:
    offsets_read = read.stores[store.name]
    if offsets_read.dropped_unknown:
        text = f"its offset is -4, which {snapshot.asked.release} does not take over"
        return snapshot.finding(UNKNOWN_OFFSET, text, task, store.name)
    if snapshot.asked.into_family and store.segmented and not store.databases:
        if offsets_read.line_without_home:
            return snapshot.finding(NO_SEGMENTS, "it has an offset and no segment to keep it", task, store.name)
        return snapshot.finding(NO_SEGMENTS_YET, "it has no segment, so no offset", task, store.name)
    if not any(one.offsets for one in read.stores.values()):
        text = "not empty, and no store has an offset: it was not closed cleanly, or .checkpoint was lost"
        return snapshot.finding(NO_OFFSETS, text, task)
    text = "it has no offset, and other stores of the task have one"
    return snapshot.finding(OFFSET_MISSING, text, task, store.name)


def compared_places(snapshot: Snapshot, task: Task, read: TaskInitialOffsets) -> Iterator[Finding]:
    """``.checkpoint`` and ``.position`` beside the column family, and segments among themselves."""
    if not snapshot.asked.into_family:
        return
    for store in task.stores:
        for tp, (kept, line) in read.stores[store.name].overridden.items():
            text = f"{tp}: .checkpoint says {line}, and overrides {kept} in the store"
            if line > kept:
                text += ": if the rows between are not in the store, they are lost without a word"
            level = Level.ERROR if line > kept >= 0 else None
            yield snapshot.finding(STALE_CHECKPOINT, text, task, store.name, level)
        yield from _stale_position(snapshot, task, store)
        if store.segmented:
            yield from _segments(snapshot, task, store)


def _stale_position(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    if store.position_file is None or store.position_file.content is None or not store.has_offsets_family:
        return
    kept: dict[tuple[str, int], int] = {}
    for database in store.databases:
        if database.offsets is not None and database.offsets.position is not None:
            for topic, parts in database.offsets.position.as_map().items():
                for partition, offset in parts.items():
                    kept[topic, partition] = max(offset, kept.get((topic, partition), -1))
    ahead = {
        tp: offset
        for tp, offset in store.position_file.entries.items()
        if offset > kept.get((tp.topic, tp.partition), -1) and kept
    }
    if ahead:
        text = (
            f"{position_file(store.name)} is ahead of the store ({offsets_text(ahead)}): bounded queries pass too early"
        )
        yield snapshot.finding(STALE_POSITION, text, task, store.name)
    else:
        text = f"{position_file(store.name)} is older than the store's own Position"
        yield snapshot.finding(STALE_POSITION, text, task, store.name, Level.EXPECTED)


def _segments(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    values = {
        tp: {d.offsets.offsets[tp] for d in store.databases if d.offsets is not None and tp in d.offsets.offsets}
        for d in store.databases
        for tp in (d.offsets.offsets if d.offsets is not None else ())
    }
    for tp, offsets in values.items():
        if len(offsets) > 1:
            text = f"{tp}: its segments say {', '.join(map(str, sorted(offsets)))}"
            yield snapshot.finding(SEGMENTS_DISAGREE, text, task, store.name)


def keeps_versions(store: Store) -> bool:
    """Return True for a versioned store that has rows: records that are put over them may hide or change versions."""
    return not store.empty and has_key(store.kind.name, KeySchema.VERSIONED)


def _replayed(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    """Records put over the rows of a versioned store, by a start that has forgotten which segments it has."""
    if not keeps_versions(store):
        return
    if may_be_ahead(store, snapshot.resolved[task.name]):
        text = "it was killed, and its rows may be ahead of its offset: replaying records gives other versions"
        yield snapshot.finding(VERSIONED_REPLAYED, text, task, store.name, Level.ERROR)
    else:
        text = "the first record of a key that is out of order hides the older versions of that key"
        yield snapshot.finding(VERSIONED_REPLAYED, text, task, store.name)


def maybe_unclean(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Up to 4.2 a crash may leave a ``.checkpoint`` that Streams takes for good."""
    if not snapshot.asked.exactly_once or task.is_global:
        return
    for reason in snapshot.resolved[task.name].unclean:
        if reason.younger:
            yield snapshot.finding(MAYBE_UNCLEAN, reason.what, task, reason.store)


def missing_status(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Rows that no ``status`` speaks for, which the next start takes for committed; one finding for each store."""
    told: dict[str | None, str] = {}
    for reason in snapshot.resolved[task.name].unclean:
        if reason.no_status:
            told.setdefault(reason.store, reason.what)
    level = None if snapshot.asked.exactly_once else Level.EXPECTED
    for store, what in told.items():
        # With the option given already, only another place that contradicts it is left: a restoration helps.
        hint = RESTORE if snapshot.asked.transactional else None
        yield snapshot.finding(STATUS_MISSING, what, task, store, level, hint)


def after_start(snapshot: Snapshot, draft: TaskCheckDraft) -> Iterator[Finding]:
    """What restoring does to the rows that are there, or to those that are written."""
    task = draft.task
    stores = {store.name: store for store in task.stores}
    for one in draft.predictions:
        store = stores.get(one.store)
        if store is None or one.outcome not in _RESTORED:
            continue
        if store.is_grace_buffer:
            text = "Streams garbles its keys when it restores it"
            yield snapshot.finding(GRACE_BUFFER_RESTORED, text, task, store.name)
        if one.outcome is not Outcome.WIPED:
            yield from _replayed(snapshot, task, store)
        if one.outcome is not Outcome.WIPED and one.records is not None and one.records.count > 0:
            yield from judge_age(snapshot, task, store, snapshot.changelog(task, store.name))
