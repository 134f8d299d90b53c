"""As of when the data of stores is, before a restoration and after it, and what is written down of it.

Why: docs/internals/changelogs.md#forgotten-deletes and docs/internals/changelogs.md#another-log. What a run writes into
``ages.json`` before its switch can only make stores older; what it adds after the switch speaks of the very files that
it has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kstate_cli.broker.facts import Facts, LogFacts
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import ClockMark, Dump, PartitionDump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log
from kstate_cli.offsets.ages import Age, LogMark, age_of, sst_age
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.plan import RestoredPartition, StoreWork
from kstate_cli.statedir.scan import read_application

_NS = 1_000_000


def as_of_after(parts: Sequence[RestoredPartition], *, rebuild: bool, before: Age | None) -> int | None:
    """As of when a store is once its parts are restored; None where one of them does not say it.

    A dump has every record that was in the log when its reading began. Partitions of a global store that are left as
    they are stay as old as they are.
    """
    times: list[int | None] = []
    for part in parts:
        if part.verdict.action is Action.LEAVE and not rebuild:
            times.append(before.as_of_ms if before is not None else None)
        else:
            times.append(part.dump.reading.started_ms if part.dump.reading is not None else None)
    known = [one for one in times if one is not None]
    return min(known, default=None) if len(known) == len(times) else None


def another_log(dump: Dump, one: PartitionDump, facts: LogFacts | None, before: Age) -> str | None:
    """Why the dump, or the broker, has another log than the one that a store was made from; None where nothing says so.

    By topic id, by the leader epoch, which never falls, and by the very last record that is in the store. Raises
    DumpError.
    """
    mark = before.logs.get(one.key)
    if mark is None:
        return None
    epoch = one.reading.leader_epoch if one.reading is not None else None
    told = [("the dump", one.topic_id, epoch)]
    if facts is not None:
        told.append(("the broker", facts.topic_id, facts.leader_epoch))
    for who, topic_id, epoch in told:
        if None not in (topic_id, mark.topic_id) and topic_id != mark.topic_id:
            return f"{who} has topic id {topic_id}, the store was made from {mark.topic_id}"
        if epoch is not None and mark.leader_epoch is not None and epoch < mark.leader_epoch:
            return f"{who} has leader epoch {epoch}, below the {mark.leader_epoch} of the log that the store is from"
    if mark.last is None or mark.digest is None:
        return None
    digest = digest_at(open_location(dump.uri)[0], one, mark.last)
    if digest is not None and digest != mark.digest:
        return f"its record at offset {mark.last} is not the one that the store was made from"
    return None


def log_since(log: Log, dump: Dump, before: Age) -> Log:
    """Return what is known of a log since a store was made from it, and not only since the dump of it began.

    Tombstones lived for the shorter time of then and of now. The times of a store and of a dump can be compared if they
    are of one clock.
    """
    mark = before.logs.get(log.key)
    retention_ms = None if mark is None else mark.delete_retention_ms
    if retention_ms is not None:
        log = replace(log, retention_ms=min(retention_ms, log.retention_ms), forgets=True)
    return log if comparable(before.clock, dump.clock) else replace(log, unknown_before_ms=MAX_I64)


def comparable(store: ClockMark | None, dump: ClockMark | None) -> bool:
    """Return whether a time of a store and the times of a dump are of one clock.

    A dump that was put back from a backup goes on from there, and its time may differ from what it was before. On the
    same start of a host this shows: the time of a dump never runs slower than the clock of that host.
    """
    if store is None or dump is None:
        return True
    if not store.scale or store.scale != dump.scale:
        return False
    passed_ms = dump.boot_ms - store.boot_ms
    return store.boot != dump.boot or passed_ms < 0 or dump.time_ms - store.time_ms >= passed_ms


def marks(work: StoreWork, dump: Dump, facts: Facts) -> dict[TopicPartition, LogMark]:
    """What tells the logs that a store is made from. Raises DumpError where the dump cannot be read."""
    filesystem = open_location(dump.uri)[0]
    log_marks = {}
    for part in work.parts:
        one, told = part.dump, facts.get(part.dump.key)
        epochs = [one.reading.leader_epoch if one.reading else None, told.leader_epoch if told else None]
        last = part.log.last
        log_marks[one.key] = LogMark(
            one.topic_id or (told.topic_id if told else None),
            # Of the end of the log: it says nothing of a store that ends before. The dump may be older than what the
            # broker says now: the lower of the two is surely of its log.
            min((epoch for epoch in epochs if epoch is not None and part.log.until is None), default=None),
            last,
            None if last is None else digest_at(filesystem, one, last),
            part.log.retention_ms if part.log.forgets else None,
        )
    return log_marks


def bounds(work: Iterable[StoreWork], dump: Dump, facts: Facts, run: str) -> list[Age]:
    """What is written down before the switch: stores at these offsets are no younger."""
    return [
        Age(one.shown, one.offsets, one.as_of_ms, marks(one, dump, facts), run=run, clock=dump.clock) for one in work
    ]


def made(app: Path, before: Iterable[Age], *, workers: int) -> list[Age]:
    """The same of the very files that lie there now, after the switch."""
    stores = {
        f"{task.name}/{store.name}": store
        for task in read_application(app, workers=workers).tasks
        for store in task.stores
    }
    return [replace(age, identity=sst_age(stores[age.store]).identity) for age in before if age.store in stores]


def task_times(work: Iterable[StoreWork], tasks: Mapping[str, TaskOffsets], ages: Iterable[Age]) -> dict[str, int]:
    """The mtime, in ns, that each task directory with a restored store is to have; without those where nobody knows it.

    4.3 deletes task directories by it at a start (``state.cleanup.dir.max.age.ms``), so it must say how old the oldest
    data of the task is, not when kstate made the directory.
    """
    known, restored = tuple(ages), list(work)
    times_of_tasks: dict[str, int] = {}
    for task in {one.task for one in restored}:
        as_of = {one.spec.name: one.as_of_ms for one in restored if one.task == task}
        resolved = tasks.get(task)
        for other in resolved.stores if resolved is not None else ():
            if other.store.name not in as_of and other.offsets and not other.store.empty:
                as_of[other.store.name] = age_of(known, task, other).as_of_ms
        times = [one for one in as_of.values() if one is not None]
        if len(times) == len(as_of):
            times_of_tasks[task] = min(times) * _NS
    return times_of_tasks
