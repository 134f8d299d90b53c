"""Offsets against the log: does Streams find the next record, and how many follow (``StoreChangelogReader``)."""

from __future__ import annotations

from dataclasses import dataclass

from kstate_cli.check.context import Context
from kstate_cli.check.outcome import Records
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log, Where
from kstate_cli.offsets.ages import age_of
from kstate_cli.statedir.model import Task

_NEAR = 10
"""Per cent of the log that an offset may be from its start before it is worth a warning."""


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


def locate(ctx: Context, key: TopicPartition, following: int) -> Range:
    """Where the next offset to read lies, and how many records follow where the log has it."""
    log = ctx.log(key)
    if log is None or log.start is None or log.end is None:
        return Range(key, following, Where.UNKNOWN)
    where = log.where(following)
    return Range(key, following, where, log, ctx.records(key, following) if where is Where.INSIDE else None)


def whole(ctx: Context, key: TopicPartition | None) -> Records | None:
    """All records of a log."""
    log = ctx.log(key) if key is not None else None
    if key is None or log is None:
        return None
    return ctx.records(key, log.start or 0)


def near_start(found: Range) -> bool:
    """True where a log that loses its beginning will soon have lost what the store needs next."""
    log = found.log
    if found.where is not Where.INSIDE or log is None or not log.start or log.end is None or found.following >= log.end:
        return False
    return (found.following - log.start) * 100 <= (log.end - log.start) * _NEAR


def note_missing(ctx: Context, key: TopicPartition, task: Task, store: str) -> str:
    """The finding for a log that the broker does not have; its code."""
    return ctx.found("log-missing", f"the broker has no {key}, which the store was made from", task, store)


def recreated(ctx: Context, key: TopicPartition, task: Task, store: str) -> str | None:
    """The ids of one topic, where two sources differ, or a source and what kstate made the store from; else None."""
    ids = [source.topic_id(key) for source in ctx.asked.logs]
    resolved = ctx.resolved[task.name].stores
    existing = next((one for one in resolved if one.store.name == store), None)
    mark = age_of(ctx.ages, task.name, existing).logs.get(key) if existing is not None and ctx.ages else None
    known = dict.fromkeys(one for one in (*ids, mark.topic_id if mark is not None else None) if one is not None)
    return None if len(known) < 2 else " and ".join(known)
