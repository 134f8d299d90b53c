"""What the sources of logs say of every partition that a rule may ask for: records of a dump are counted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kstate_cli.check.initial_offsets import read_offsets
from kstate_cli.check.logs import LogSource
from kstate_cli.check.outcome import Records
from kstate_cli.check.snapshot import KnownLogs, Snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log, Where
from kstate_cli.statedir.model import Task


def known_logs(bare: Snapshot) -> KnownLogs:
    """The logs for a snapshot that has none yet. Raises DumpError where a dump cannot be read."""
    sources = bare.asked.logs
    if not sources:
        return KnownLogs()
    known = frozenset(key for source in sources for key in source.partitions())
    # Which topic a store's changelog is depends on what is known.
    firsts = _asked_for(replace(bare, logs=KnownLogs(known=known)))
    keys = [*firsts, *(known - firsts.keys())]
    logs = {key: log for key in keys if (log := _first(sources, key)) is not None}
    # What is stored may be no offset at all, -4, or one that the log does not have: nothing is read from there.
    wanted = {
        key: {logs[key].start or 0, *(one for one in offsets if logs[key].where(one) is Where.INSIDE)}
        for key, offsets in firsts.items()
        if key in logs
    }
    for source in sources:
        source.prepare(wanted, transactional=bare.asked.exactly_once)
    counts = {
        (key, first): counted(sources, key, first, transactional=bare.asked.exactly_once)
        for key, inside in wanted.items()
        for first in inside
    }
    return KnownLogs(
        logs,
        known,
        frozenset(key for key in keys if any(source.lacks(key) for source in sources)),
        {key: tuple(one for source in sources if (one := source.topic_id(key)) is not None) for key in keys},
        counts,
    )


def _asked_for(snapshot: Snapshot) -> dict[TopicPartition, set[int]]:
    """The partitions that stores may be restored from, each with the offsets from which it may be read on."""
    first_offsets: dict[TopicPartition, set[int]] = {}
    for task in snapshot.app.tasks:
        read = read_offsets(snapshot, task)
        for offsets in (*(one.offsets for one in read.stores.values()), *read.absent.values()):
            for key, offset in offsets.items():
                first_offsets.setdefault(key, set()).add(offset if task.is_global else offset + 1)
        for name in _names(snapshot, task) | read.absent.keys():
            for changelog in (snapshot.own_changelog(task, name), snapshot.changelog(task, name)):
                if changelog is not None:
                    first_offsets.setdefault(changelog, set())
        if task.is_global:
            topics = {key.topic for one in read.stores.values() for key in one.offsets}
            for key in snapshot.logs.known:
                if key.topic in topics:
                    first_offsets.setdefault(key, set())
    return first_offsets


def _names(snapshot: Snapshot, task: Task) -> set[str]:
    """The stores that a task has, or should have."""
    return {store.name for store in task.stores} | snapshot.should_have(task)


def _first(sources: Sequence[LogSource], key: TopicPartition) -> Log | None:
    return next((log for log in (source.log(key) for source in sources) if log is not None), None)


def counted(sources: Sequence[LogSource], key: TopicPartition, first: int, *, transactional: bool) -> Records | None:
    """How many records lie from ``first`` to the end.

    A dump counts them, where it was taken of the very log that the first source knows.
    """
    known = [source for source in sources if source.log(key) is not None]
    best: Records | None = None
    for source in known:
        if _same_log(source, known[0], key):
            count = source.records(key, first, transactional=transactional)
            best = count if best is None or (count is not None and count.exact) else best
    return best


def _same_log(one: LogSource, other: LogSource, key: TopicPartition) -> bool:
    a, b = one.log(key), other.log(key)
    ids = {one.topic_id(key), other.topic_id(key)} - {None}
    return a is not None and b is not None and (a.start, a.end) == (b.start, b.end) and len(ids) < 2
