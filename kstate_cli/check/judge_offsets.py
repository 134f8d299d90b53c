"""Rules about missing offsets, offsets that differ between places, and the effect of restoring on rows.

They follow ``ProcessorStateManager``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    UNKNOWN_OFFSET_BY_DROPPED,
    VERSIONED_REPLAYED,
)
from kstate_cli.check.findings import REBUILD_UNCLEAN, RESTORE, Finding, FindingCode, Level, Outcome
from kstate_cli.check.other_topology import has_line, lacked
from kstate_cli.check.ranges import TaskInitialOffsets, judge_age
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.offsets.resolve import may_be_ahead
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import position_file

_RESTORED = (Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED)


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """The stores of a task that lack an offset."""

    code: FindingCode | None = None
    """The finding because of which Streams wipes the task; None if it does not. The last one, if there are several."""
    in_doubt: bool = False
    """True if Streams wipes the task only if a new store is on disk, which nothing shows."""
    findings: tuple[Finding, ...] = ()


def missing_offsets(snapshot: Snapshot, draft: TaskCheckDraft) -> MissingOffsets:
    """Judge the rule of exactly-once: a logged store without an offset makes Streams wipe a task that is not empty."""
    task, read = draft.task, draft.read
    if not snapshot.request.exactly_once or snapshot.task_is_empty(task):
        return MissingOffsets()
    if snapshot.request.starts_transactional:
        return MissingOffsets()  # 4.4 (initializeStoreOffsets): a transactional store needs no offset
    # Every store without an offset gets a finding. The task has one code, that of the last finding.
    code, doubtful, findings = None, None, []
    for store in draft.stores.values():
        if read.stores[store.name].offsets or not is_logged(snapshot, task, store):
            continue
        if snapshot.misplaced_segments(task, store):
            code = SEGMENT_OFF_GRID  # a rule about the store has reported it
            continue
        if draft.empty.get(store.name) == OFFSETS_IN_COLUMN_FAMILY:
            # Its offset is in the column family, and the migration that this finding suggests moves it.
            code = OFFSETS_IN_COLUMN_FAMILY
            continue
        findings.append(_why(snapshot, task, store, read))
        code = findings[-1].code
    for name in draft.absent:
        wipes = not has_line(snapshot, read.absent.get(name, {})) and snapshot.wiped_for(task, name)
        # wiped_for returns None if the kind of the store decides, which nothing shows. Then the task may be wiped.
        if wipes is not False:
            findings.append(lacked(snapshot, task, name))
            if wipes:
                code = findings[-1].code
            else:
                doubtful = findings[-1].code
    return MissingOffsets(code or doubtful, code is None and doubtful is not None, tuple(findings))


def is_logged(snapshot: Snapshot, task: Task, store: Store) -> bool:
    """Return True if a store without an offset probably has a changelog, so that its offset is missing.

    See docs/internals/offsets.md#which-stores. The files of the store do not show it.
    """
    if snapshot.changelog(task, store.name) is not None:
        return True
    if snapshot.request.into_family and store.segmented and not store.databases:
        return True  # 4.3 stores offsets in segments, so without a segment the store has none
    if store.has_offsets_family:
        # A logged store commits before it closes. So if it was closed cleanly, it has an offset or -4.
        return not has_offset_if_logged(store, transactional=snapshot.request.transactional)
    # Up to 4.2 one file has the offsets of all logged stores. If it has others but not this one, the store is not
    # logged.
    return not _offsets_around(snapshot, task)


def is_lost(snapshot: Snapshot, task: Task, store: Store) -> bool:
    """Return True if no changelog restores the rows of a store after its task was wiped.

    No source names a changelog for it. Either other stores of the sub-topology have offsets, or the store was closed
    cleanly without one.
    """
    if store.empty or snapshot.changelog(task, store.name) is not None:
        return False
    # If no store of the sub-topology has an offset, the whole .checkpoint may be lost. Then this store may have a
    # changelog.
    return _offsets_around(snapshot, task) or not is_logged(snapshot, task, store)


def is_surely_lost(snapshot: Snapshot, store: Store) -> bool:
    """Return True if it is certain that no source can name a changelog of a store without an offset.

    That is so if the logs were read, or if the store was closed. A logged store writes its offset with the first
    commit, so one that was never closed may have none yet.
    """
    # The broker would have named the changelog, and the .checkpoint of a release up to 4.2 lists each logged store.
    if snapshot.logs.partitions or not store.has_offsets_family:
        return True
    return has_offset_if_logged(store, transactional=snapshot.request.transactional)


def _offsets_around(snapshot: Snapshot, task: Task) -> bool:
    around = [snapshot.resolved[state.name] for state in (task, *snapshot.siblings(task))]
    return any(state.offsets for resolved in around for state in resolved.stores)


def _why(snapshot: Snapshot, task: Task, store: Store, read: TaskInitialOffsets) -> Finding:
    """Return the finding that explains why a store without an offset has none."""
    offsets_read = read.stores[store.name]
    if offsets_read.dropped_unknown:
        text = f"the store's offset is -4, which {snapshot.request.release} does not support"
        return snapshot.finding(UNKNOWN_OFFSET_BY_DROPPED[True], text, task, store.name)
    if snapshot.request.into_family and store.segmented and not store.databases:
        if offsets_read.line_without_home:
            return snapshot.finding(
                NO_SEGMENTS, "the store has an offset, but no segment that could keep it", task, store.name
            )
        return snapshot.finding(NO_SEGMENTS_YET, "the store has no segment, so it has no offset", task, store.name)
    if not any(offsets.offsets for offsets in read.stores.values()):
        text = (
            "the task's stores are on disk, but none of them has an offset. The task was not closed cleanly, or "
            ".checkpoint was lost"
        )
        return snapshot.finding(NO_OFFSETS, text, task)
    text = "the store has no offset, but the task's other stores do"
    return snapshot.finding(OFFSET_MISSING, text, task, store.name)


def compared_places(snapshot: Snapshot, task: Task, read: TaskInitialOffsets) -> Iterator[Finding]:
    """Yield findings if ``.checkpoint`` or ``.position`` differ from the column family, or segments from each other.

    Only a release that keeps offsets in the column family reads both places.
    """
    if not snapshot.request.into_family:
        return
    for store in task.stores:
        for tp, (inside, line) in read.stores[store.name].overridden.items():
            text = f"for {tp}, the offset {line} in .checkpoint overrides the offset {inside} in the store"
            if line > inside:
                text += ". If the store lacks the rows in between, they are silently missing"
            # Streams restores records after the offset in the file. If the rows of the store end before it, the rows in
            # between are never restored.
            level = Level.ERROR if line > inside >= 0 else None
            yield snapshot.finding(STALE_CHECKPOINT, text, task, store.name, level)
        yield from _stale_position(snapshot, task, store)
        if store.segmented:
            yield from _segments(snapshot, task, store)


def _stale_position(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    """Yield a finding if ``<store>.position`` exists next to the Position in the store: 4.3 merges the two."""
    if store.position_file is None or store.position_file.content is None or not store.has_offsets_family:
        return
    reached: dict[tuple[str, int], int] = {}
    for database in store.databases:
        if database.offsets is not None and database.offsets.position is not None:
            for topic, parts in database.offsets.position.as_map().items():
                for partition, offset in parts.items():
                    # The Position of a segmented store is the highest of those of its segments.
                    reached[topic, partition] = max(offset, reached.get((topic, partition), -1))
    ahead = {
        tp: offset
        for tp, offset in store.position_file.entries.items()
        if offset > reached.get((tp.topic, tp.partition), -1) and reached
    }
    if ahead:
        text = (
            f"{position_file(store.name)} is ahead of the store ({offsets_text(ahead)}), so queries with a bound "
            "succeed too early"
        )
        yield snapshot.finding(STALE_POSITION, text, task, store.name)
    else:
        text = f"{position_file(store.name)} is older than the Position in the store"
        yield snapshot.finding(STALE_POSITION, text, task, store.name, Level.EXPECTED)


def _segments(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    values: dict[TopicPartition, set[int]] = {}
    for database in store.databases:
        if database.offsets is not None:
            for tp, offset in database.offsets.offsets.items():
                values.setdefault(tp, set()).add(offset)
    for tp, offsets in values.items():
        if len(offsets) > 1:
            text = f"the store's segments have different offsets for {tp} ({', '.join(map(str, sorted(offsets)))})"
            yield snapshot.finding(SEGMENTS_DISAGREE, text, task, store.name)


def keeps_versions(store: Store) -> bool:
    """Return True for a versioned store that has rows: records that are put over them may hide or change versions."""
    return not store.empty and has_key(store.kind.name, KeySchema.VERSIONED)


def _replayed(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    """Yield a finding if records are put over the rows of a versioned store: a start has forgotten its segments."""
    if not keeps_versions(store):
        return
    if may_be_ahead(store, snapshot.resolved[task.name]):
        text = (
            "the application was killed, so the store's rows may be ahead of its offset. Replayed records would "
            "then create wrong versions"
        )
        yield snapshot.finding(VERSIONED_REPLAYED, text, task, store.name, Level.ERROR)
    else:
        text = "a key's first out-of-order record hides its older versions"
        yield snapshot.finding(VERSIONED_REPLAYED, text, task, store.name)


def maybe_unclean(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Yield a finding if a crash may have left a ``.checkpoint`` that Streams up to 4.2 believes."""
    if not snapshot.request.exactly_once or task.is_global:
        return
    hint = None
    if snapshot.hints.unlogged:
        hint = REBUILD_UNCLEAN
    for reason in snapshot.resolved[task.name].unclean:
        if reason.younger:
            yield snapshot.finding(MAYBE_UNCLEAN, reason.text, task, reason.store, hint=hint)


def missing_status(snapshot: Snapshot, task: Task) -> Iterator[Finding]:
    """Yield a finding for each store that has rows but no ``status``: the next start treats its rows as committed."""
    texts: dict[str | None, str] = {}
    for reason in snapshot.resolved[task.name].unclean:
        if reason.no_status:
            texts.setdefault(reason.store, reason.text)
    hint = None
    if snapshot.request.transactional:
        # The user has already passed the option for transactional stores, so another offset contradicts it. Only a
        # restoration helps then.
        hint = RESTORE
    for store, text in texts.items():
        yield snapshot.finding(STATUS_MISSING, text, task, store, snapshot.request.level_of_unclean, hint)


def after_start(snapshot: Snapshot, draft: TaskCheckDraft) -> Iterator[Finding]:
    """Yield findings about rows that Streams damages when it restores a store, or that it writes wrongly."""
    task = draft.task
    stores = {store.name: store for store in task.stores}
    for prediction in draft.predictions:
        store = stores.get(prediction.store)
        if store is None or prediction.outcome not in _RESTORED:
            continue
        if store.is_grace_buffer:
            text = "Streams corrupts the store's keys when it restores the store"
            yield snapshot.finding(GRACE_BUFFER_RESTORED, text, task, store.name)
        # A wiped store is empty, so records are not applied over existing rows.
        if prediction.outcome is not Outcome.WIPED:
            yield from _replayed(snapshot, task, store)
        if prediction.outcome is not Outcome.WIPED and prediction.records is not None and prediction.records.count > 0:
            yield from judge_age(snapshot, task, store, snapshot.changelog(task, store.name))
