"""As of when the data of stores is, before and after a restoration, and the record of it in ``ages.json``.

Why it matters: docs/internals/changelogs.md#forgotten-deletes and docs/internals/changelogs.md#another-log. What a run
records before its switch can only make stores older. What it adds after the switch belongs to the very files that it
has built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kstate_cli.broker.facts import Facts, LogFacts
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.manifest import Reading
from kstate_cli.dump_reader.model import ClockMark, Dump, PartitionDump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age, LogMark, age_of, sst_age
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.restore.planning.judge import Action
from kstate_cli.restore.planning.plan import RecordDigest, RestoredPartition, StoreWork
from kstate_cli.statedir.scan import read_application

_NS = 1_000_000


def as_of_after(parts: Sequence[RestoredPartition], *, rebuild: bool, before: Age | None) -> int | None:
    """Return as of when (ms since 1970) the data of a store is once its parts are restored.

    None if a part does not state it.

    A dump has every record that was in the log when its reading began, so the data is as of that moment. Partitions of
    a global store that stay unchanged keep the age that the store had ``before``.
    """
    times: list[int] = []
    for part in parts:
        time = None
        if part.verdict.action is Action.LEAVE and not rebuild:
            if before is not None:
                time = before.as_of_ms
        elif part.dump.reading is not None:
            time = part.dump.reading.started_ms
        if time is None:
            # If one part is unknown, the store is: that part may be the oldest, and the times of others must not stand
            # for it.
            return None
        times.append(time)
    # The oldest part decides which deletes may be missing.
    return min(times, default=None)


def another_log(
    record_digest: RecordDigest, partition: PartitionDump, facts: LogFacts | None, before: Age
) -> str | None:
    """Return why the dump or the broker has another log than the one a store was built from; None if nothing shows it.

    Topic id, leader epoch, which never falls, and the last record of the store are compared with those that a run
    recorded when it built the store (``before``). Raises DumpError.
    """
    mark = before.logs.get(partition.key)
    if mark is None:
        return None
    sources = [("the dump", partition.topic_id, leader_epoch_of(partition.reading))]
    if facts is not None:
        sources.append(("the broker", facts.topic_id, facts.leader_epoch))
    # Id and epoch are compared first, since that needs no record of the dump to be read.
    for source, topic_id, leader_epoch in sources:
        difference = _difference(mark, source, topic_id, leader_epoch)
        if difference is not None:
            return difference
    # There is no record to compare: the store was built from a dump without records, or by a kstate that kept no
    # digest.
    if mark.last is None or mark.digest is None:
        return None
    digest = record_digest(partition, mark.last)
    # No digest proves nothing: compaction has removed that record, or the dump lacks it, or has it in too many places
    # to search.
    if digest is not None and digest != mark.digest:
        return f"at offset {mark.last}, the dump's record differs from the one that the store was restored from"
    return None


def leader_epoch_of(reading: Reading | None) -> int | None:
    """Return the leader epoch that a reading of a log recorded; None without a reading, or if it recorded none."""
    if reading is None:
        return None
    return reading.leader_epoch


def _difference(mark: LogMark, source: str, topic_id: str | None, epoch: int | None) -> str | None:
    """Return how the identity of a log differs from that of the store's log; None if it does not, or is unknown."""
    # A missing id is unknown, not another one: brokers before 2.8 have none (KIP-516).
    if None not in (topic_id, mark.topic_id) and topic_id != mark.topic_id:
        return f"{source} has topic id {topic_id}, but the store was restored from topic id {mark.topic_id}"
    if epoch is not None and mark.leader_epoch is not None and epoch < mark.leader_epoch:
        return (
            f"{source} has leader epoch {epoch}, below leader epoch {mark.leader_epoch} of the log that the "
            "store was restored from"
        )
    return None


def log_since(log: Log, dump: Dump, before: Age) -> Log:
    """Return a log with what must hold since a store was built from it, not only since its dump began.

    How long tombstones are certain to live is the shorter of the retentions then and now. The times of a store and of a
    dump can be compared only if one clock gave them.
    """
    mark = before.logs.get(log.key)
    if mark is not None and mark.delete_retention_ms is not None:
        log = replace(log, retention_ms=min(mark.delete_retention_ms, log.retention_ms), forgets=True)
    if comparable(before.clock, dump.clock):
        return log
    # With two clocks no time of the store counts as late enough, so any delete before the dump may be missing.
    return replace(log, unknown_before_ms=MAX_I64)


def comparable(store: ClockMark | None, dump: ClockMark | None) -> bool:
    """Return whether a time of a store and the times of a dump are of one clock.

    If a dump was restored from a backup, its times continue from there, and may be behind those that a store has.
    Within one boot of a host this shows: the time of a dump never runs slower than the clock of that host.
    """
    # Older versions of kstate recorded no clock: their times count as comparable.
    if store is None or dump is None:
        return True
    if not store.scale or store.scale != dump.scale:
        return False
    # Nothing sets the monotonic clock of a host back within one boot, so it can judge the times of the dump.
    passed_ms = dump.boot_ms - store.boot_ms
    return store.boot != dump.boot or passed_ms < 0 or dump.time_ms - store.time_ms >= passed_ms


def marks(work: StoreWork, dump: Dump, facts: Facts) -> dict[TopicPartition, LogMark]:
    """Return what identifies the logs that a store is built from. Raises DumpError if the dump cannot be read."""
    filesystem = open_location(dump.uri)[0]
    return {
        part.dump.key: _log_mark(part, facts.get(part.dump.key), lambda *record: digest_at(filesystem, *record))
        for part in work.parts
    }


def _log_mark(part: RestoredPartition, log: LogFacts | None, record_digest: RecordDigest) -> LogMark:
    """Return what a run records of a log, by which :func:`another_log` recognizes it later."""
    partition, last = part.dump, part.log.last
    # A manifest with an empty topic id does not know it.
    topic_id, epochs = partition.topic_id or None, [leader_epoch_of(partition.reading)]
    if log is not None:
        topic_id = topic_id or log.topic_id
        epochs.append(log.leader_epoch)
    if part.log.until is not None:
        # The store ends before the log does (``until``), and the epochs are those of the log's end, so none is
        # recorded.
        epochs = []
    digest = retention_ms = None
    if last is not None:
        digest = record_digest(partition, last)
    if part.log.forgets:
        retention_ms = part.log.retention_ms
    # Dump and broker state the epoch at different times: the lower of the two certainly belongs to the log of the dump.
    epoch = min((epoch for epoch in epochs if epoch is not None), default=None)
    return LogMark(topic_id, epoch, last, digest, retention_ms)


def bounds(work: Iterable[StoreWork], dump: Dump, facts: Facts, run: str) -> list[Age]:
    """Return the ages to record before the switch: stores at these offsets are no younger."""
    return [
        Age(store.title, store.offsets, store.as_of_ms, marks(store, dump, facts), run=run, clock=dump.clock)
        for store in work
    ]


def ages_of_files(app: Path, before: Iterable[Age], *, workers: int) -> list[Age]:
    """Return the same ages with the identity of the files that exist now, after the switch."""
    stores = {
        f"{task.name}/{store.name}": store
        for task in read_application(app, workers=workers).tasks
        for store in task.stores
    }
    return [replace(age, identity=sst_age(stores[age.store]).identity) for age in before if age.store in stores]


def task_times(work: Iterable[StoreWork], tasks: Mapping[str, TaskOffsets], ages: Iterable[Age]) -> dict[str, int]:
    """Return the mtime, in ns, for each task directory with a restored store; a task of unknown age is left out.

    Release 4.3 deletes task directories by their mtime at a start (``state.cleanup.dir.max.age.ms``). So the mtime must
    state how old the oldest data of the task is, not when kstate created the directory.
    """
    recorded, stores = tuple(ages), list(work)
    times_of_tasks: dict[str, int] = {}
    for task in {store.task for store in stores}:
        as_of = {store.spec.name: store.as_of_ms for store in stores if store.task == task}
        as_of |= _as_of_others(task, tasks.get(task), as_of.keys(), recorded)
        # One store of unknown age makes the age of the task unknown.
        times = [time for time in as_of.values() if time is not None]
        if len(times) == len(as_of):
            times_of_tasks[task] = min(times) * _NS
    return times_of_tasks


def _as_of_others(
    task: str, resolved: TaskOffsets | None, restored: Collection[str], ages: tuple[Age, ...]
) -> dict[str, int | None]:
    """Return as of when (ms) the other stores of a task are, which are not restored.

    A value is None if it is unknown.
    """
    if resolved is None:
        return {}
    return {
        state.store.name: age_of(ages, task, state).as_of_ms
        for state in resolved.stores
        # Stores without an offset, or without rows, are left out: they have no data that could be too old.
        if state.store.name not in restored and state.offsets and not state.store.empty
    }
