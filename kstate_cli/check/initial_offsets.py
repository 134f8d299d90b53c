"""Which offset a release takes for each store (``ProcessorStateManager.initializeStoreOffsets``).

Not the lowest of all places, which is what a migration carries over, but what Streams reads: up to 4.2 the line of
``.checkpoint``; from 4.3 on that line, which overrides the column family, then the newest segment's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.resolve import give_lines
from kstate_cli.patch_releases import NEWEST_SEGMENT
from kstate_cli.statedir.model import Database, Store, Task


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """The offsets that a start takes for one store."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    dropped_unknown: bool = False
    """A line states -4, which 4.3 does not take over."""
    line_without_home: bool = False
    """A line has an offset, and the store has no segment to keep it."""
    overridden: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The offsets of the column family that ``.checkpoint`` overrides, each with that of the line."""


@dataclass(frozen=True, slots=True)
class TaskInitialOffsets:
    """The offsets that a start takes for the stores of a task."""

    stores: Mapping[str, InitialOffsets] = field(default_factory=dict)
    absent: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Lines whose store has no directory in the task."""


def read_offsets(snapshot: Snapshot, task: Task) -> TaskInitialOffsets:
    """Return the offsets that the release takes; an unreadable ``.checkpoint`` counts as none here."""
    owners = give_lines(snapshot.app.app_id, task)
    if not snapshot.request.into_family:
        lines = {store.name: InitialOffsets(dict(owners.stores.get(store.name, {}))) for store in task.stores}
        return TaskInitialOffsets(lines, dict(owners.absent))
    oldest_first = snapshot.request.release.is_new(NEWEST_SEGMENT) is False
    stores = {}
    for store in task.stores:
        misplaced = snapshot.misplaced_segments(task, store)
        databases = [database for database in store.databases if database not in misplaced]
        # By start: the last one wins. 4.3.0 takes the oldest segment that has an offset, later releases the newest.
        in_order = databases[::-1] if oldest_first else databases
        stores[store.name] = _from_family(store, in_order, task, owners.stores.get(store.name, {}))
    return TaskInitialOffsets(stores, dict(owners.absent))


def _from_family(
    store: Store, databases: Sequence[Database], task: Task, lines: Mapping[TopicPartition, int]
) -> InitialOffsets:
    """Return the offsets that 4.3 and later take: those inside, and over them the lines of ``.checkpoint``."""
    dropped = OFFSET_UNKNOWN in lines.values()
    valid = {key: offset for key, offset in lines.items() if offset != OFFSET_UNKNOWN}
    if store.is_grace_buffer:
        # RocksDBTimeOrderedKeyValueBuffer manages no offsets itself: LegacyCheckpointingStateStore wraps it.
        own_file = store.store_file.entries if store.store_file else {}
        return InitialOffsets({**own_file, **valid}, dropped)
    if store.segmented and not databases:
        return InitialOffsets({}, dropped, line_without_home=bool(valid))
    inside = _offsets_inside(databases, task.partition)
    overridden = {key: (inside[key], line) for key, line in valid.items() if inside.get(key, line) != line}
    return InitialOffsets({**inside, **valid}, dropped, overridden=overridden)


def _offsets_inside(databases: Sequence[Database], partition: int | None) -> dict[TopicPartition, int]:
    """Return the offsets that databases state; a later one overrides an earlier one."""
    inside: dict[TopicPartition, int] = {}
    for database in databases:
        if database.offsets is not None:
            inside |= database.offsets.offsets
    return {key: offset for key, offset in inside.items() if partition is None or key.partition == partition}
