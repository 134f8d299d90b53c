"""Bounds from a dump for segments that were never flushed: the rule of the log, applied when the dump is the tail.

A snapshot without a broker may not know the offset of a store of several segments. A restoration that adds the records
of a dump reads them in any case, and the first record of such a segment in the dump bounds its store. So the files of
the store are copied, and the dump continues them, instead of building the store from the first record on.

This is not done when the snapshot is taken: a directory has no topic id, so nothing would prove then that the dump is
of its log. During a restoration, the rules for dumps judge the offset as any other (:mod:`kstate_cli.restore`), and the
dump that shows the bound is the one whose records follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Dump, Slice
from kstate_cli.dump_reader.reader import iter_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log, log_of
from kstate_cli.snapshot.log_facts import topic_ids
from kstate_cli.snapshot.model import Generation, NamedGeneration, StoredStore
from kstate_cli.snapshot.overlay import store_as_captured
from kstate_cli.snapshot.rules import UnflushedSegments, offset_of
from kstate_cli.snapshot.task_steps import ChosenStore

_SLICE_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 16_384
_BATCH_BYTES: Final = 16 << 20
_Place = tuple[str, str, str]
"""Generation, task and store."""


@dataclass(slots=True)
class DumpBounds:
    """The offsets that dumps show for stores of snapshots. Each store is searched once, whatever plans are made."""

    # A generation is named by its digest, and an opened dump lists its files: both are the same the second time. A
    # growing dump that has grown since is another object.
    _bounds: dict[tuple[_Place, int], Mapping[TopicPartition, int]] = field(default_factory=dict)
    _dumps: list[Dump] = field(default_factory=list)

    def applied_to(
        self, app: Path, generations: Sequence[NamedGeneration], chosen: Sequence[ChosenStore], dump: Dump
    ) -> list[NamedGeneration]:
        """Return the generations with the offsets of chosen stores that the dump bounds. Raise DumpError."""
        all_bounds: dict[_Place, Mapping[TopicPartition, int]] = {}
        for store in chosen:
            place = (store.generation, store.task, store.store.name)
            bounds = self._bounds_of(app, place, store, dump)
            if bounds:
                all_bounds[place] = bounds
        return [NamedGeneration(named.name, _bounded(named, all_bounds)) for named in generations]

    def _bounds_of(self, app: Path, place: _Place, chosen: ChosenStore, dump: Dump) -> Mapping[TopicPartition, int]:
        # The list keeps each dump, so that no later object gets its id.
        if not any(dump is other for other in self._dumps):
            self._dumps.append(dump)
        cached = place, id(dump)
        if cached not in self._bounds:
            self._bounds[cached] = dict(_bounds(app, chosen, dump))
        return self._bounds[cached]


def _bounds(app: Path, chosen: ChosenStore, dump: Dump) -> Iterator[tuple[TopicPartition, int]]:
    """Yield each changelog partition whose offset is unknown, and the offset that the dump shows."""
    stored = chosen.store
    if not stored.is_cut or not stored.segmented or OFFSET_UNKNOWN not in stored.offsets.values():
        return
    segments = offset_of(store_as_captured(app, chosen), None, ()).unflushed
    for key, offset in stored.offsets.items():
        if offset == OFFSET_UNKNOWN and key in segments:
            bound = offset_in_dump(key, segments[key], dump, stored)
            if bound != OFFSET_UNKNOWN:
                yield key, bound


def offset_in_dump(key: TopicPartition, segments: UnflushedSegments, dump: Dump, stored: StoredStore) -> int:
    """Return the offset behind which every record of segments is that were never flushed; -4 if the dump shows none.

    Raise DumpError if a file of the dump cannot be read.
    """
    partition = dump.partitions.get(key)
    if partition is None or key in dump.damaged:
        return OFFSET_UNKNOWN
    if topic_ids(stored, key) - {partition.topic_id}:
        # Another topic of that name, or a dump without an id: the rules for dumps decide, with an unknown offset.
        return OFFSET_UNKNOWN
    log = log_of(partition, None)
    if not _has_all_up_to(log, segments.last):
        return OFFSET_UNKNOWN
    parts, is_unordered = slices(partition, after=None, until=segments.last, max_bytes=_SLICE_BYTES)
    if is_unordered:
        # Only Spark could sort its rows. The store is built from the dump, as without a bound.
        return OFFSET_UNKNOWN
    return segments.offset_before(_keys(dump, parts), log.start or 0)


def _has_all_up_to(log: Log, last: int) -> bool:
    """Return whether a dump has every record of its log, from the log start up to an offset.

    What the first record shows counts only if the reading began at the log start: records before it were skipped else.
    """
    if log.start is None or log.begin is None or log.read_end is None:
        return False
    return log.begin <= log.start <= last < log.read_end


def _keys(dump: Dump, parts: Sequence[Slice]) -> Iterator[tuple[int, bytes | None]]:
    """Yield offset and key of every record of slices, by offset."""
    filesystem, _ = open_location(dump.uri)
    for part in parts:
        passage = Passage(ordered=part.ordered)
        for rows in iter_slice(part, ["key", "offset"], filesystem, _BATCH_ROWS, _BATCH_BYTES, passage):
            yield from zip(rows.column("offset").to_pylist(), rows.column("key").to_pylist(), strict=True)


def _bounded(named: NamedGeneration, bounds: Mapping[_Place, Mapping[TopicPartition, int]]) -> Generation:
    tasks = []
    for task in named.content.tasks:
        stores = (_with_bounds(store, bounds.get((named.name, task.name, store.name), {})) for store in task.stores)
        tasks.append(replace(task, stores=tuple(stores)))
    return replace(named.content, tasks=tuple(tasks))


def _with_bounds(store: StoredStore, bounds: Mapping[TopicPartition, int]) -> StoredStore:
    if not bounds:
        return store
    return replace(store, offsets={**store.offsets, **bounds})
