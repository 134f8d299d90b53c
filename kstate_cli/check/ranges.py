"""Offsets against the log: does Streams find the next record, and how many follow (``StoreChangelogReader``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kstate_cli.check.codes.logs import LOG_MISSING, TOPIC_RECREATED
from kstate_cli.check.findings import Finding
from kstate_cli.check.outcome import Records
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log, Where
from kstate_cli.patch_releases import BACKWARD_PROBE, BOUNDED_RESTORE
from kstate_cli.statedir.model import Store, Task

_NEAR = 10
"""Per cent of the log that an offset may be from its start before it is worth a warning."""
_FAR_BEHIND: Final = 16_384
"""Offsets before the log end from which on a release may skip what has expired (``PROBE_MIN_OFFSET_GAP`` of 4.2.2)."""


@dataclass(frozen=True, slots=True)
class Range:
    """The next offset of a store in its log."""

    key: TopicPartition
    following: int
    where: Where
    log: Log | None = None
    records: Records | None = None

    @property
    def outside(self) -> bool:
        """True where the broker has no such offset.

        Above the end of a dump that is not sure: the application may have run on since it was taken
        (docs/internals/changelogs.md#dump-or-store).
        """
        return self.where is Where.BELOW or (self.where is Where.ABOVE and self.log is not None and self.log.live)

    @property
    def text(self) -> str:
        """For a finding."""
        if self.log is None:
            return f"{self.key}: next offset {self.following}"
        return f"{self.key}: next offset {self.following}, log {self.log.start} to {self.log.end}"


def locate(snapshot: Snapshot, key: TopicPartition, following: int) -> Range:
    """Where the next offset to read lies, and how many records follow where the log has it."""
    log = snapshot.log(key)
    if log is None or log.start is None or log.end is None:
        return Range(key, following, Where.UNKNOWN)
    where = log.where(following)
    return Range(key, following, where, log, snapshot.records(key, following) if where is Where.INSIDE else None)


def whole(snapshot: Snapshot, key: TopicPartition | None, *, expires: bool = False) -> Records | None:
    """Return how many records are restored from the beginning of a log; None if the log is not known.

    ``expires``: it is the log of a window or session store. Some releases skip what has expired there, so the number is
    an upper bound (:data:`kstate_cli.patch_releases.BOUNDED_RESTORE`).
    """
    log = snapshot.log(key) if key is not None else None
    if key is None or log is None:
        return None
    records = snapshot.records(key, log.start or 0)
    if records is None or not records.count or not expires:
        return records
    if snapshot.asked.release.is_new(BOUNDED_RESTORE) is False:
        return records
    return replace(records, exact=False)


def catching_up(snapshot: Snapshot, store: Store | None, range_: Range) -> Range:
    """Return the range of a store with an offset; its records are an upper bound where the release may skip some.

    Some releases skip what has expired in a window or session store that is far behind
    (:data:`kstate_cli.patch_releases.BACKWARD_PROBE`).
    """
    log, records = range_.log, range_.records
    if log is None or log.end is None or records is None or store is None or not _is_windowed(store):
        return range_
    if log.end - range_.following < _FAR_BEHIND or snapshot.asked.release.is_new(BACKWARD_PROBE) is False:
        return range_
    return replace(range_, records=replace(records, exact=False))


def may_expire(snapshot: Snapshot, name: str, store: Store | None) -> bool:
    """Return True for a window or session store, and for one of which no task shows the kind.

    ``store``: None if its task lacks it. Then the same store of other tasks counts.
    """
    namesakes = (one for task in snapshot.app.tasks for one in task.stores if one.name == name)
    shown = store or next(namesakes, None)
    return shown is None or _is_windowed(shown)


def _is_windowed(store: Store) -> bool:
    return store.segmented and not store.is_grace_buffer


def near_start(range_: Range) -> bool:
    """True where a log that loses its beginning will soon have lost what the store needs next."""
    log = range_.log
    if (
        range_.where is not Where.INSIDE
        or log is None
        or not log.start
        or log.end is None
        or range_.following >= log.end
    ):
        return False
    return (range_.following - log.start) * 100 <= (log.end - log.start) * _NEAR


def missing(snapshot: Snapshot, key: TopicPartition, task: Task, store: str) -> Finding:
    """The finding for a log that the broker does not have."""
    return snapshot.finding(LOG_MISSING, f"the broker has no {key}, which the store was made from", task, store)


def recreated(snapshot: Snapshot, key: TopicPartition, task: Task, store: str) -> tuple[Finding, ...]:
    """A finding where two sources name other ids of one topic, or a source and what kstate made the store from."""
    age = snapshot.ages.get((task.name, store))
    mark = age.logs.get(key) if age is not None else None
    own = mark.topic_id if mark is not None else None
    known = dict.fromkeys((*snapshot.logs.ids.get(key, ()), *(() if own is None else (own,))))
    if len(known) < 2:
        return ()
    return (snapshot.finding(TOPIC_RECREATED, f"{key.topic}: {' and '.join(known)}", task, store),)
