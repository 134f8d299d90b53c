"""Which offset a release takes for each store (``ProcessorStateManager.initializeStoreOffsets``).

Not the lowest of all places, which is what a migration carries over, but what Streams reads: up to 4.2 the line of
``.checkpoint``; from 4.3 on that line, which overrides the column family, then the newest segment's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.owners import give_lines
from kstate_cli.patch_releases import NEWEST_SEGMENT
from kstate_cli.statedir.model import Database, Store, Task


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """What a start takes for one store."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    dropped_unknown: bool = False
    """A line says -4, which 4.3 does not take over."""
    line_without_home: bool = False
    """A line has an offset, and no segment is there to keep it."""
    overridden: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Where ``.checkpoint`` overrides the column family: what that had, and what the line says."""


@dataclass(frozen=True, slots=True)
class TaskInitialOffsets:
    """What a start takes for the stores of a task."""

    stores: Mapping[str, InitialOffsets] = field(default_factory=dict)
    absent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Lines whose store has no directory here."""


def read_offsets(snapshot: Snapshot, task: Task) -> TaskInitialOffsets:
    """The offsets that the release takes; an unreadable ``.checkpoint`` counts as none here."""
    owners = give_lines(snapshot.app.app_id, task)
    stores = {}
    for store in task.stores:
        own = owners.stores.get(store.name, {})
        skipped = snapshot.misplaced_segments(task, store)
        opened = [d for d in store.databases if d not in skipped]
        into_family = snapshot.asked.into_family
        if not into_family:
            stores[store.name] = InitialOffsets(dict(own))
            continue
        oldest_first = snapshot.asked.release.is_new(NEWEST_SEGMENT) is False
        stores[store.name] = _from_family(store, opened, task, own, oldest_first=oldest_first)
    return TaskInitialOffsets(stores, dict(owners.absent))


def _from_family(
    store: Store, opened: list[Database], task: Task, lines: dict[TopicPartition, int], *, oldest_first: bool
) -> InitialOffsets:
    dropped = OFFSET_UNKNOWN in lines.values()
    valid = {tp: offset for tp, offset in lines.items() if offset != OFFSET_UNKNOWN}
    if store.is_grace_buffer:
        # RocksDBTimeOrderedKeyValueBuffer manages no offsets itself: LegacyCheckpointingStateStore wraps it.
        kept = dict(store.store_file.entries) if store.store_file else {}
        return InitialOffsets({**kept, **valid}, dropped)
    if store.segmented and not opened:
        return InitialOffsets({}, dropped, line_without_home=bool(valid))
    kept = {}
    # By start: what comes last wins. 4.3.0 takes the oldest segment that has an offset, later releases the newest.
    for database in reversed(opened) if oldest_first else opened:
        if database.offsets is not None:
            kept |= database.offsets.offsets
    if task.partition is not None:
        kept = {tp: offset for tp, offset in kept.items() if tp.partition == task.partition}
    overridden = {tp: (kept[tp], line) for tp, line in valid.items() if tp in kept and kept[tp] != line}
    return InitialOffsets({**kept, **valid}, dropped, overridden=overridden)
