"""Rows that a start never restores, because Streams takes one segment's offset for all segments of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kstate_cli.check.codes.offsets import SEGMENT_BEHIND
from kstate_cli.check.findings import Finding
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import moment
from kstate_cli.offsets.segments import silent_by_key, stated_offset
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.texts import some

_SHOWN = 3


def rows_below(
    snapshot: Snapshot, task: Task, store: Store, key: TopicPartition, taken: Mapping[TopicPartition, int]
) -> Finding | None:
    """Return the error for segments that are behind the offset that the start takes; None if all are as far.

    ``taken`` are the offsets by changelog partition, of the last applied record each (``AbstractSegments``).
    """
    behind = _behind(store, key, taken[key])
    if not behind:
        return None
    stated = [stated_offset(segment, key) for segment in behind]
    spans = [
        f"{span} ({'no offset' if offset is None else offset})"
        for span, offset in zip(_spans(store, behind), stated, strict=True)
    ]
    text = (
        f"the start takes offset {taken[key]} of {key}, and these segments are behind it: {some(spans, _SHOWN)}; their "
        f"rows up to offset {taken[key]} are silently missing from then on"
    )
    return snapshot.finding(SEGMENT_BEHIND, text, task, store.name)


def _behind(store: Store, key: TopicPartition, taken: int) -> list[Database]:
    """Return the segments that lack rows up to an offset, by their start."""
    silent = silent_by_key(store).get(key, ())
    stated = [(segment, stated_offset(segment, key)) for segment in store.databases]
    lower = [segment for segment, offset in stated if offset is not None and offset < taken]
    return sorted((*silent, *lower), key=lambda segment: segment.segment_start or 0) if store.segmented else []


def _spans(store: Store, segments: Sequence[Database]) -> list[str]:
    """Return the time range of the rows in each segment; its end is a guess from the distance between segments."""
    starts = sorted(database.segment_start or 0 for database in store.databases)
    interval = min((after - before for before, after in pairwise(starts)), default=0)
    spans = []
    for segment in segments:
        start = segment.segment_start or 0
        spans.append(f"{moment(start)} to {moment(start + interval)}" if interval else f"from {moment(start)} on")
    return spans
