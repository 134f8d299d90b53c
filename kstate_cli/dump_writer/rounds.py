"""One round of ``kstate dump``: ask the broker, plan, read, commit. And round after round, where that is wanted."""

from __future__ import annotations

import secrets
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from kstate_cli.broker.client import admin_client, ask_broker, names_on
from kstate_cli.broker.facts import LogFacts
from kstate_cli.clock import now_ms
from kstate_cli.deadline import leave
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.growing import Forgotten, Full, Grown, LastRecord, TailRecord
from kstate_cli.dump_reader.model import Round
from kstate_cli.dump_writer.engines import CaptureEngine, RangeRunner, started
from kstate_cli.dump_writer.identity import (
    TAIL,
    Comparison,
    Identity,
    KnownLog,
    LogChangedError,
    compare_logs,
    known_log,
    not_explained,
    settled,
)
from kstate_cli.dump_writer.keeping import YOUNG_SECONDS
from kstate_cli.dump_writer.packing import kept, merged, packed
from kstate_cli.dump_writer.plan import (
    PartitionPlan,
    RoundClock,
    Topics,
    anew,
    chosen,
    plan_round,
    ranges,
    too_late,
    unknown_before,
    up_to,
)
from kstate_cli.dump_writer.stores import DumpStore, store_of
from kstate_cli.dump_writer.task import RangeJob, RangeResult
from kstate_cli.errors import Interrupted, RunFailed, note
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog
from kstate_cli.host import FULL
from kstate_cli.logs.log import DeleteCoverage, delete_coverage, span_text
from kstate_cli.signals import time_limit
from kstate_cli.spark.context import SparkSettings
from kstate_cli.spark.jvm import check_java
from kstate_cli.texts import first_line, some

ISOLATION = "read_committed"
_KEEP_SECONDS = 6
"""Of the time that a command may take after a signal."""
_REMAINS = (
    "files of this call that no manifest names, which a call a day later removes; "
    "the dump is unchanged, or has one generation more"
)
_ATTEMPTS = 3
"""Of a partition in one round: its log may begin later, or turn out to be another one, while it is read."""


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What is dumped, from where and to where."""

    bootstrap: str
    settings: Mapping[str, str] = field(repr=False)
    out: str
    """As :func:`kstate_cli.dump_writer.stores.destination` gives it."""
    app: str | None
    """The application whose changelogs are found by their names."""
    topics: Mapping[str, str]
    """Topics besides -> where they are named."""
    engine: CaptureEngine
    spark: SparkSettings
    workers: int
    bytes_per_second: int | None = None
    full: bool = False
    keep: int | None = None
    """So many fulls of each partition stay; None: all."""
    dry_run: bool = False
    group: str | None = None
    """The application.id whose committed offsets are written down; None: that of ``app``."""


class DumpWatcher:
    """What a caller may show meanwhile."""

    def planned(self, plans: Sequence[PartitionPlan], grown: Grown | None) -> None:
        """What this round reads."""

    def began(self, records: int) -> None:
        """At most so many records are read now."""

    def at(self, records: int, size: int) -> None:
        """So many records and bytes were read. Called from another thread."""

    def warning(self, text: str) -> None:
        """Something is not as it was."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What became of a round."""

    plans: tuple[PartitionPlan, ...]
    """One for each partition; of those that turned out to be another log, the last one."""
    generation: int | None
    """None where nothing was written: there was nothing new, or it was only planned."""
    records: int = 0
    size: int | None = 0
    """Bytes of the new files. Of a plan about so many, by what the dump has of the partitions; None: not known yet."""
    files: int = 0
    seconds: float = 0.0
    joined: int = 0
    """Small files that are now parts of larger ones."""
    dropped: int = 0
    """Fulls that are no longer part of the dump."""
    removed: int = 0
    """Files of dead runs, and such as were joined or dropped long ago, that were removed."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is as it should be, and worth knowing. A round reports nothing but these two, in every kind of output."""
    by_partition: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Records and bytes of files, of partitions that have any; of a plan of those whose bytes are known, about."""


def dump_round(
    request: DumpRequest, watcher: DumpWatcher, runner: RangeRunner | None = None, store: DumpStore | None = None
) -> RoundOutcome:
    """One round. Without a ``runner`` one is started where there is something to read; ``store`` is that of ``out``.

    Raises UsageError, Refused, InUse, RunFailed and RunHalfway; OSError where the folder cannot be written to.
    """
    began = time.monotonic()
    if request.engine is CaptureEngine.spark and runner is None:
        check_java()
    store = store or store_of(request.out)
    grown = store.read_newest()
    if grown is not None and not request.full:
        store.check_named(grown)  # and not only after hours of reading
    one = _OneRound(request, watcher, store, grown)
    one.look()
    if request.dry_run:
        return one.foretold()
    leave(_REMAINS)
    store.make(one.run)
    try:
        with ExitStack() as own:
            one.read(lambda: runner or own.enter_context(started(request.engine, request.spark, request.workers)))
        outcome = one.commit()
    except BaseException as error:
        if isinstance(error, Interrupted):
            one.keep_finished(error)
        # All tasks have ended by then. What failed may have been the very last step, after the manifest was there.
        if not store.unanswered:
            with suppress(Exception):
                newest = store.read_newest()
                named = () if newest is None else [file.path for full in newest.fulls for file in full.files]
                store.remove_files_of(one.run, one.keys, named)
        if isinstance(error, OSError) and error.errno in FULL:
            raise RunFailed(
                f"no room is left: {error.strerror}; the dump is as it was",
                where=request.out,
                hint="make room there, and run the command again",
            ) from None
        raise
    removed = 0
    with suppress(RunFailed):  # it is committed; what is left over, a later call finds as well
        newest = store.read_newest()
        removed = 0 if newest is None else store.sweep(newest)
    return replace(outcome, removed=removed, seconds=time.monotonic() - began)


def follow(
    request: DumpRequest, watcher: DumpWatcher, seconds: float, on_round: Callable[[RoundOutcome], None]
) -> NoReturn:
    """Round after round, each begun so long after the one before; ends with what a round raises, or a signal does.

    What was committed by then stays. Raises as :func:`dump_round`.
    """
    if request.engine is CaptureEngine.spark:
        check_java()
    store = store_of(request.out)
    store.read_newest()  # refused before Spark starts
    with started(request.engine, request.spark, request.workers) as runner:
        while True:
            began = time.monotonic()
            on_round(dump_round(request, watcher, runner, store))
            request = replace(request, full=False)  # that is asked for once
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))


class _OneRound:
    """The state of one round."""

    def __init__(self, request: DumpRequest, watcher: DumpWatcher, store: DumpStore, grown: Grown | None) -> None:
        self._request, self._watcher, self._store, self._grown = request, watcher, store, grown
        self.run = secrets.token_hex(6)
        self.generation = 1 if grown is None else grown.generation + 1
        self.plans: list[PartitionPlan] = []
        self.warnings: list[str] = []
        self._results: dict[TopicPartition, list[tuple[RangeJob, RangeResult]]] = {}
        self._comparisons: dict[TopicPartition, Comparison] = {}
        self._topics: tuple[str, ...] = ()
        self._clock = RoundClock(grown)
        self._keys: list[TopicPartition] = []
        """All partitions, where ``plans`` are only some of them."""
        self._committing = False

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions of this round."""
        return self._keys or [plan.key for plan in self.plans]

    def keep_finished(self, error: Interrupted) -> None:
        """Commit the ranges that were read whole before a signal; the next call continues behind them.

        Whatever keeps it from that leaves the dump unchanged: the facts of the logs are read again first, as always.
        """
        plans = [cut for plan in self.plans if (cut := self._finished_part(plan)) is not None]
        if not plans or self._committing:
            return
        self._keys = [plan.key for plan in self.plans]
        self.plans = plans
        try:
            with time_limit(_KEEP_SECONDS):
                replaced = {plan.key for plan in self._again()}
                self.plans = [plan for plan in self.plans if plan.key not in replaced]
                if not self.plans:
                    return
                outcome = self.commit()
        except Exception as reason:
            note(error, f"what was read by then could not be kept: {first_line(reason)}")
            return
        note(error, f"the dump has the {outcome.records:,} records that were read by then: the next call continues")

    def _finished_part(self, plan: PartitionPlan) -> PartitionPlan | None:
        """Return the plan up to where its ranges are finished without a gap; None if that is nothing."""
        end, whole = plan.start, []
        for job, result in self._results.get(plan.key, []):
            if job.start != end or result.another is not None or result.gone:
                break
            whole.append((job, result))
            end = job.end
        self._results[plan.key] = whole
        return up_to(plan, end) if plan.start < end < plan.end else plan if end == plan.end and whole else None

    def foretold(self) -> RoundOutcome:
        """What it would be: a file for each range, and as many bytes a record as the dump has of the partition."""
        known = {} if self._grown is None else self._grown.newest()
        sizes: dict[TopicPartition, tuple[int, int]] = {}
        for plan in self.plans:
            files = known[plan.key].files if plan.key in known else ()
            rows = sum(file.rows for file in files)
            if rows or not plan.records:
                each = sum(file.size for file in files) / max(1, rows)
                sizes[plan.key] = plan.records, round(plan.records * each)
        return RoundOutcome(
            tuple(self.plans),
            None,
            size=sum(size for _, size in sizes.values()) if len(sizes) == len(self.plans) else None,
            files=sum(1 for _, start, end in ranges(self.plans, self._request.workers) if start < end),
            warnings=tuple(self.warnings),
            notes=self._notes(),
            by_partition=sizes,
        )

    def look(self) -> None:
        """Asks the broker, and plans."""
        request = self._request
        with admin_client(request.bootstrap, request.settings) as admin:
            names, groups = names_on(admin)
        topics = chosen(request.app, request.topics, names, groups)
        self._tell_foreign(topics)
        asked_ms = self._clock.now_ms()
        facts = self._ask(topics.wanted)
        self.plans = plan_round(self._grown, facts, asked_ms, full=request.full, unknown_time=self._clock.why_unknown)
        for plan in self.plans:
            if plan.why is not None and not request.full:
                self._warn(f"{plan.key}: {plan.why}: a new full begins")
        known = {} if self._grown is None else self._grown.newest()
        for key in sorted(known.keys() - facts.keys()):
            if key.topic in topics.wanted or key.topic in request.topics:
                self._warn(f"{key}: the topic no longer has this partition: what the dump has of it stays")
        self._topics = topics.wanted
        self._compare_before()
        self._warn_of_transactions()
        self._watcher.planned(self.plans, self._grown)

    def _compare_before(self) -> None:
        """Compare the logs that are continued with what the dump has of them; of another one a full begins."""
        logs = {
            plan.key: (known_log(plan.continues, plan), plan.facts.start)
            for plan in self.plans
            if plan.continues is not None
        }
        self._comparisons = compare_logs(self._request.bootstrap, self._request.settings, logs)
        for number, plan in enumerate(self.plans):
            comparison = self._comparisons.get(plan.key)
            if comparison is None or comparison.identity is Identity.SAME:
                continue
            why = _not_the_same(comparison)
            self._warn(f"{plan.key}: {why}: a new full begins")
            self.plans[number] = anew(plan.key, plan.facts, why, plan.asked_ms)
            del self._comparisons[plan.key]

    def _ask(self, topics: Sequence[str]) -> dict[TopicPartition, LogFacts]:
        request = self._request
        group = request.group or request.app
        facts = ask_broker(request.bootstrap, request.settings, group=group, topics=topics, stable=True)
        if not facts:
            raise RunFailed(
                f"{request.bootstrap} says nothing of the topics", hint="see whether this user may describe them"
            )
        return facts

    def _tell_foreign(self, topics: Topics) -> None:
        for topic, other in topics.foreign:
            self._warn(
                f"{topic} is not dumped: it seems to be of the application {other} (--topic names it all the same)"
            )

    def _warn_of_transactions(self) -> None:
        """Report transactions that were open at the last call already: nothing of their partitions can be read."""
        for plan in self.plans:
            before = plan.continues
            if before is not None and before.held_back and plan.held_back and plan.end == before.end:
                self._warn(
                    f"{plan.key}: the transaction that is open at offset {plan.end} was open at the last call: it "
                    f"holds back {plan.held_back:,} offsets; kafka-transactions find-hanging shows whose it is"
                )

    def _notes(self) -> tuple[str, ...]:
        held = [f"{plan.key} at {plan.open_from}" for plan in self.plans if plan.open_from is not None]
        if not held:
            return ()
        offsets = sum(plan.held_back for plan in self.plans)
        return (f"a transaction is open, what follows is left to the next call: {some(held, 3)} ({offsets:,} offsets)",)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._watcher.warning(text)

    def read(self, runner: Callable[[], RangeRunner]) -> None:
        """Read what is planned; read again whatever changed by the time it was read. ``runner`` is asked for if needed.

        Raises RunFailed if a log changes again and again, or is deleted.
        """
        waiting = self.plans
        for _ in range(_ATTEMPTS):
            to_read = [plan for plan in waiting if plan.must_read]
            if to_read:
                self._read(to_read, runner())
            waiting = self._again()
            if not waiting:
                return
        keys = ", ".join(str(plan.key) for plan in waiting[:3])
        raise RunFailed(
            f"{keys}: the log changes while it is read, again and again",
            hint="see what deletes its records; with more --workers it is read sooner",
        )

    def _read(self, plans: Sequence[PartitionPlan], runner: RangeRunner) -> None:
        self._watcher.began(sum(plan.records for plan in plans))
        parts = ranges(plans, runner.slots)
        jobs = [self._job(*part, min(runner.slots, len(parts))) for part in parts]
        for plan in plans:
            self._results[plan.key] = []

        def finished(job: RangeJob, result: RangeResult) -> None:
            # Of what another host has read, whose clock nobody can compare, it is now.
            ended = replace(result, ended_ms=self._clock.at(result.ended) or self._clock.now_ms())
            insort(self._results[job.key], (job, ended), key=lambda one: one[0].start)

        runner.run(jobs, self._watcher.at, finished)

    def _job(self, plan: PartitionPlan, start: int, end: int, at_once: int) -> RangeJob:
        request, comparison = self._request, self._comparisons.get(plan.key)
        most = request.bytes_per_second
        return RangeJob(
            plan.key,
            start,
            end,
            request.out,
            self.generation,
            self.run,
            request.bootstrap,
            dict(request.settings),
            frozenset() if comparison is None else comparison.awaited,
            None if most is None else max(1, most // max(1, at_once)),
        )

    def _again(self) -> list[PartitionPlan]:
        """Read every fact again that the round relies on; return the new plans of partitions that have changed.

        The topic ids come first, the records after them: what is recreated in between has another record, or none.
        """
        asked_ms = self._clock.now_ms()
        facts = self._ask(self._topics)
        wrong: dict[TopicPartition, str] = {}
        plans = []
        for plan in self.plans:
            again = facts.get(plan.key)
            if again is None:
                raise RunFailed(
                    f"{plan.key} no longer exists: its topic was deleted while it was read",
                    hint="run the command again: it reads the topics that exist then",
                )
            try:
                plan = replace(plan, facts=settled(plan.facts, again, plan.end))
            except LogChangedError as error:
                wrong[plan.key] = f"it changed while it was read: {error}"
            else:
                why = self._changed(plan, asked_ms)
                if why is not None:
                    wrong[plan.key] = why
            plans.append(plan)
        self.plans = plans
        wrong |= self._compare_after({plan.key: facts[plan.key] for plan in plans if plan.key not in wrong})
        replaced = {}
        for key, why in wrong.items():
            self._results.pop(key, None)
            self._comparisons.pop(key, None)
            self._warn(f"{key}: {why}: a new full begins")
            replaced[key] = anew(key, facts[key], why, asked_ms)
        self.plans = [replaced.get(plan.key, plan) for plan in self.plans]
        if not replaced and not self._keys:
            self._warn_of_others(facts)
        return list(replaced.values())

    def _changed(self, plan: PartitionPlan, asked_ms: int) -> str | None:
        """Return why what was read of a partition does not count; None if it does."""
        results = [result for _, result in self._results.get(plan.key, [])]
        another = next((one.another for one in results if one.another is not None), None)
        if another is not None:
            return f"it is another log: {another}"
        if any(one.gone for one in results):
            return "its first records were deleted while it was read"
        comparison = self._comparisons.get(plan.key)
        if comparison is not None:
            why = not_explained(comparison, (key for one in results for key in one.seen))
            if why is not None:
                return _not_the_same(Comparison(Identity.NOT_COMPARABLE, why))
        if plan.continues is None:
            return None
        return too_late(plan.continues, plan.facts, max((one.ended_ms for one in results), default=asked_ms))

    def _compare_after(self, again: Mapping[TopicPartition, LogFacts]) -> dict[TopicPartition, str]:
        """Return the partitions whose log is another one by now than the one whose records were read, and why.

        A log that cannot be compared is reported; the next round compares it with what follows, and decides.
        """
        logs = {
            plan.key: (known, again[plan.key].start)
            for plan in self.plans
            if plan.key in again and plan.must_read
            if (known := self._read_log(plan, again[plan.key])) is not None
        }
        wrong = {}
        for key, comparison in compare_logs(self._request.bootstrap, self._request.settings, logs).items():
            if comparison.identity is Identity.ANOTHER:
                wrong[key] = f"it changed while it was read: {comparison.why}"
            elif comparison.identity is Identity.NOT_COMPARABLE:
                self._warn(f"{key}: whether it is still the log that was read cannot be compared: {comparison.why}")
        return wrong

    def _read_log(self, plan: PartitionPlan, again: LogFacts) -> KnownLog | None:
        """Return what this round has read of a log; None if that were no records."""
        results = [result for _, result in self._results.get(plan.key, [])]
        tail = tuple(record for result in results for record in result.tail)[-TAIL:]
        if not tail:
            return None
        changed = None not in (plan.facts.leader_epoch, again.leader_epoch) and (
            plan.facts.leader_epoch != again.leader_epoch
        )
        return KnownLog(
            tail,
            len(tail) == sum(result.records for result in results),
            plan.start,
            plan.end,
            plan.facts.compacted is not False,
            plan.facts.leader_epoch if changed else None,
        )

    def _warn_of_others(self, facts: Mapping[TopicPartition, LogFacts]) -> None:
        """Report partitions that were added while the others were read."""
        added = sorted(map(str, facts.keys() - {plan.key for plan in self.plans}))
        if added:
            self._warn(f"{some(added, 3)}: the partition was added while the topic was read: the next call reads it")

    def commit(self) -> RoundOutcome:
        """Writes the manifest. One that adds no record says how old the dump is not."""
        self._committing = True
        fulls = {(one.key, one.began): one for one in (self._grown.fulls if self._grown is not None else ())}
        for plan in self.plans:
            full = self._full(plan)
            fulls[plan.key, full.began] = full
        before = {} if self._grown is None else dict(self._grown.committed)
        grown = Grown(self.generation, ISOLATION, tuple(fulls.values()), before | self._committed())
        grown = replace(grown, clock=self._clock.mark())
        grown, joined, dropped = self._smaller(grown)
        self._store.commit(grown, self.run, self.keys)
        results = [result for of_one in self._results.values() for _, result in of_one]
        named = [file.path for full in grown.fulls for file in full.files]
        self._store.remove_files_of(self.run, self.keys, named)
        return RoundOutcome(
            tuple(self.plans),
            self.generation,
            sum(one.records for one in results),
            sum(one.file.size for one in results if one.file is not None),
            sum(1 for one in results if one.file is not None),
            joined=joined,
            dropped=dropped,
            warnings=tuple(self.warnings),
            notes=self._notes(),
            by_partition={
                key: (
                    sum(result.records for _, result in of_one),
                    sum(result.file.size for _, result in of_one if result.file is not None),
                )
                for key, of_one in self._results.items()
            },
        )

    def _committed(self) -> dict[TopicPartition, int]:
        """Return the group's offsets of source topics, none beyond what was read of a partition."""
        return {
            plan.key: min(plan.facts.committed, plan.end)
            for plan in self.plans
            if plan.facts.committed is not None and not is_changelog(plan.key.topic)
        }

    def _smaller(self, grown: Grown) -> tuple[Grown, int, int]:
        """With small files joined, and without the fulls that are not kept; how many of each."""
        gone: tuple[Full, ...] = ()
        if self._request.keep is not None:
            grown, gone = kept(grown, self._request.keep)
        now = now_ms()
        old = _old_files(grown if self._grown is None else self._grown, self._clock.now_ms())
        forgotten = [file.path for full in gone for file in full.files]
        dropped, fulls = len(forgotten), []
        for full in grown.fulls:
            try:
                smaller, paths = packed(self._store, full, self.generation, self.run)
            except DumpError as error:
                self._warn(f"{full.key}: {error}: its small files are not joined; dump it anew with --full")
                smaller, paths = full, ()
            fulls.append(smaller)
            forgotten += paths
        earlier = Grown(0, ISOLATION, ()) if self._grown is None else self._grown
        # What is new and already joined was never named: it goes with the run.
        named = {file.path for full in earlier.fulls for file in full.files}
        there = self._store.present(one.path for one in earlier.forgotten)
        waiting = (one for one in earlier.forgotten if one.path in there)
        forgetting = (*waiting, *(Forgotten(path, now) for path in forgotten if path in named & old))
        return replace(grown, fulls=tuple(fulls), forgotten=forgetting), len(forgotten) - dropped, len(gone)

    def _full(self, plan: PartitionPlan) -> Full:
        before, facts = plan.continues, plan.facts
        results = [result for _, result in self._results.get(plan.key, [])]
        files = tuple(result.file for result in results if result.file is not None)
        ended = max((result.ended_ms for result in results), default=self._clock.now_ms())
        last: LastRecord | None = next((one.last for one in reversed(results) if one.last is not None), None)
        new = Round(plan.start, plan.end, plan.asked_ms if before is None else before.as_of_ms, ended)
        if before is None and self._is_slow(plan, new):
            self._warn(
                f"{plan.key}: reading it took {span_text(new.ended_ms - new.continues_ms)}: it is no base for a "
                "rebuild, since deletes may be forgotten meanwhile"
            )
        earlier = () if before is None else before.ranges
        return Full(
            plan.key,
            self.generation if before is None else before.began,
            facts.start,
            max(plan.end, facts.end if facts.stable_end is None else facts.stable_end),
            plan.asked_ms,
            merged((*earlier, new) if before is None or plan.records else earlier, _less(before, facts)),
            (*(() if before is None else before.files), *files),
            facts.topic_id,
            _worse(before, facts),
            _less(before, facts),
            facts.leader_epoch if facts.leader_epoch is not None else None if before is None else before.leader_epoch,
            last or (None if before is None else before.last),
            facts.retention_ms,
            facts.min_compaction_lag_ms,
            _tail(before, results),
            self._unknown_before(plan) if before is None else before.unknown_before_ms,
            plan.held_back,
        )

    def _unknown_before(self, plan: PartitionPlan) -> int | None:
        fulls = () if self._grown is None else self._grown.fulls
        previous = max((one for one in fulls if one.key == plan.key), key=lambda one: one.began, default=None)
        return unknown_before(previous, plan.facts, plan.asked_ms, unknown_time=self._clock.why_unknown is not None)

    @staticmethod
    def _is_slow(plan: PartitionPlan, new: Round) -> bool:
        retention = plan.facts.delete_retention_ms
        forgets = plan.facts.compacted is not False
        return (
            forgets
            and retention is not None
            and delete_coverage(new.continues_ms, new.ended_ms, retention) is DeleteCoverage.NO
        )


def _not_the_same(comparison: Comparison) -> str:
    if comparison.identity is Identity.ANOTHER:
        return f"it is another log: {comparison.why}"
    return f"whether it is the log that was read before cannot be compared: {comparison.why}"


def _tail(before: Full | None, results: Sequence[RangeResult]) -> tuple[TailRecord, ...]:
    earlier = () if before is None else before.tail
    return (*earlier, *(record for result in results for record in result.tail))[-TAIL:]


def _old_files(grown: Grown, now_ms: int) -> set[str]:
    """Return the files that may have been written long ago: by the earliest time that their records can be of."""
    since = now_ms - YOUNG_SECONDS * 1000
    return {
        file.path
        for full in grown.fulls
        for file in full.files
        if next(one.continues_ms for one in full.ranges if file.groups[-1].last < one.end) <= since
    }


def _worse(before: Full | None, facts: LogFacts) -> str | None:
    """Once it was compacted, deletes may have been forgotten, whatever it is now."""
    if before is not None and before.compacted and facts.compacted is False:
        return before.cleanup_policy
    return facts.policy


def _less(before: Full | None, facts: LogFacts) -> int | None:
    told = [facts.delete_retention_ms, None if before is None else before.delete_retention_ms]
    return min((one for one in told if one is not None), default=None)
