"""What becomes of each fact of a log that was read before its records, once it is read again after them.

Every fact of :class:`LogFacts` has one rule here: a read that spans a change of the log is discarded, and of a setting
that changed the most cautious value counts. The inventory: docs/internals/changelogs.md#facts-that-are-read-again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Final

from kstate_cli.broker.facts import LogFacts


class LogChangedError(Exception):
    """The log is not the one that was read; says why."""


_Merge = Callable[[LogFacts, LogFacts, int], object]


def _start(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log start only grows; what was deleted meanwhile was read, or its reading has failed."""
    if again.start < first.start:
        raise LogChangedError(f"its log start went back from {first.start} to {again.start}")
    return first.start


def _end(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A log end only grows."""
    if again.end < first.end:
        raise LogChangedError(f"its end went back from {first.end} to {again.end}")
    return first.end


def _stable_end(first: LogFacts, again: LogFacts, end: int) -> object:
    """Transactions are decided in order: what was stable stays so."""
    if again.stable_end is not None and again.stable_end < end:
        raise LogChangedError(f"its last stable offset went back to {again.stable_end}, and it was read up to {end}")
    return first.stable_end


def _topic_id(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Another id is another topic; one that is no longer reported proves nothing."""
    if first.topic_id != again.topic_id:
        raise LogChangedError(f"the topic was recreated (id {first.topic_id}, now {again.topic_id})")
    return first.topic_id


def _leader_epoch(first: LogFacts, again: LogFacts, _end: int) -> object:
    """It never falls. Where it has grown, the last records are compared, and the end of the epoch before."""
    if None not in (first.leader_epoch, again.leader_epoch) and (again.leader_epoch or 0) < (first.leader_epoch or 0):
        raise LogChangedError(f"its leader epoch went back from {first.leader_epoch} to {again.leader_epoch}")
    return again.leader_epoch if again.leader_epoch is not None else first.leader_epoch


def _committed(first: LogFacts, again: LogFacts, _end: int) -> object:
    """A table may hold what the group had read at the lower of the two; a group that was deleted has none."""
    if first.committed is None or again.committed is None:
        return None
    return min(first.committed, again.committed)


def _policy(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Deletes may have been forgotten if it was compacted at either time, and unknown counts as compacted."""
    if first.policy is None or again.policy is None:
        return None
    return first.policy if first.compacted else again.policy


def _delete_retention(first: LogFacts, again: LogFacts, _end: int) -> object:
    """Tombstones lived for the shorter of the two."""
    known = [one for one in (first.delete_retention_ms, again.delete_retention_ms) if one is not None]
    return min(known, default=None)


def _latest(name: str) -> _Merge:
    return lambda _first, again, _end: getattr(again, name)


RULES: Final[Mapping[str, _Merge]] = {
    "start": _start,
    "end": _end,
    "topic_id": _topic_id,
    "committed": _committed,
    "policy": _policy,
    "delete_retention_ms": _delete_retention,
    "leader_epoch": _leader_epoch,
    "stable_end": _stable_end,
    # Nothing that is read depends on these two: they are recorded for specifications.
    "retention_ms": _latest("retention_ms"),
    "min_compaction_lag_ms": _latest("min_compaction_lag_ms"),
}
"""Field of :class:`LogFacts` -> what is recorded, of both values and the end of what was read."""


def settled(first: LogFacts, again: LogFacts, end: int) -> LogFacts:
    """Return what a manifest records of a log that was read up to ``end``. Raises LogChangedError."""
    return replace(first, **{one.name: RULES[one.name](first, again, end) for one in fields(LogFacts)})  # type: ignore[arg-type]
