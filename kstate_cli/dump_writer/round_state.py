"""The state of one round of ``kstate dump``, from the request to the broker to the manifest."""

from __future__ import annotations

import secrets
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kstate_cli import option
from kstate_cli.broker.client import admin_client, ask_broker, names_on
from kstate_cli.broker.facts import LogFacts
from kstate_cli.clock import now_ms
from kstate_cli.dump_reader.growing import newest_fulls
from kstate_cli.dump_reader.model import Forgotten, Full, Grown
from kstate_cli.dump_writer.identity import (
    TAIL,
    Comparison,
    Identity,
    LogChangedError,
    LogSample,
    compare_logs,
    sample_of_dump,
    sample_of_reading,
    settle,
    unexplained,
)
from kstate_cli.dump_writer.packing import FullReading, drop_old_fulls, join_small_files, next_full, old_files
from kstate_cli.dump_writer.plan import (
    DumpRequest,
    DumpWatcher,
    PartitionPlan,
    RoundClock,
    RoundOutcome,
    Topics,
    new_full,
    plan_round,
    ranges,
    select_topics,
    too_late,
    up_to,
)
from kstate_cli.dump_writer.stores import DumpStore
from kstate_cli.dump_writer.task import RangeJob, RangeResult, RangeRunner
from kstate_cli.errors import Interrupted, RunFailed, note
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog
from kstate_cli.signals import time_limit
from kstate_cli.texts import first_line, some, span_text

ISOLATION = "read_committed"
# Less than ``CLOSING_SECONDS`` of kstate_cli.signals, after which the deadline ends the process.
_KEEP_SECONDS = 6
"""The part of the time after a signal in which finished ranges may be committed."""
_ATTEMPTS = 3
"""Attempts for a partition in one round: while it is read, its first records may go, or its log may be replaced."""
_MOST_NAMES = 3


class DumpRound:
    """The state of one round."""

    def __init__(self, request: DumpRequest, watcher: DumpWatcher, store: DumpStore, grown: Grown | None) -> None:
        self._request, self._watcher, self._store, self._grown = request, watcher, store, grown
        # The run is in the name of every file of this round, so that a failed round removes its own files and no
        # others.
        self.run = secrets.token_hex(6)
        self.generation = 1
        if grown is not None:
            self.generation = grown.generation + 1
        self.plans: list[PartitionPlan] = []
        self.warnings: list[str] = []
        self._results: dict[TopicPartition, list[tuple[RangeJob, RangeResult]]] = {}
        """For each partition its ranges that were read, in the order of offsets."""
        self._comparisons: dict[TopicPartition, Comparison] = {}
        self._topics: tuple[str, ...] = ()
        self._clock = RoundClock(grown)
        self._keys: list[TopicPartition] = []
        """All partitions of the round, if ``plans`` has only some of them."""
        self._committing = False

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions of this round."""
        return self._keys or [plan.key for plan in self.plans]

    @property
    def _fulls(self) -> tuple[Full, ...]:
        """The full dumps of the manifest before this round."""
        return () if self._grown is None else self._grown.fulls

    def keep_finished(self, error: Interrupted) -> None:
        """Commit the ranges that were finished before a signal; the next call continues after them.

        The facts of the logs are read again first, as before any commit. An error in all this leaves the dump
        unchanged.
        """
        plans = [part for plan in self.plans if (part := self._finished_part(plan)) is not None]
        # If the signal interrupted a commit, its manifest may exist already, and a second one would lose the race
        # against it.
        if not plans or self._committing:
            return
        # All partitions are noted, not only those that are committed: the files of the others are removed after the
        # commit.
        self._keys = [plan.key for plan in self.plans]
        self.plans = plans
        try:
            with time_limit(_KEEP_SECONDS):
                replaced = {plan.key for plan in self._read_facts_again()}
                self.plans = [plan for plan in self.plans if plan.key not in replaced]
                if not self.plans:
                    return
                outcome = self.commit()
        # This includes the TimeoutError of the limit. Whatever the error is, the command ends because of the signal.
        except Exception as reason:
            note(error, f"kstate could not commit the records that it read: {first_line(reason)}")
            return
        note(
            error,
            (
                f"run the command again. The {outcome.records:,} records that were read are in the dump, and the "
                "next run continues from there"
            ),
        )

    def _finished_part(self, plan: PartitionPlan) -> PartitionPlan | None:
        """Return the plan for the ranges that are finished without a gap from its start; None if there is none."""
        end, finished = plan.start, []
        for job, result in self._results.get(plan.key, []):
            # Only what comes before the first gap counts: a later reading could not tell which offsets are missing.
            if job.start != end or result.another is not None or result.begins_later:
                break
            finished.append((job, result))
            end = job.end
        self._results[plan.key] = finished
        if plan.start < end < plan.end:
            return up_to(plan, end)
        return plan if end == plan.end and finished else None

    def prediction(self) -> RoundOutcome:
        """Predict the outcome of a dry run: one file for each range, and the bytes per record of the dump so far."""
        newest = newest_fulls(self._grown)
        sizes: dict[TopicPartition, tuple[int, int]] = {}
        for plan in self.plans:
            files = newest[plan.key].files if plan.key in newest else ()
            rows = sum(file.rows for file in files)
            if rows or not plan.records:
                row_bytes = sum(file.size for file in files) / max(1, rows)
                sizes[plan.key] = plan.records, round(plan.records * row_bytes)
        return RoundOutcome(
            tuple(self.plans),
            None,
            size=sum(size for _, size in sizes.values()) if len(sizes) == len(self.plans) else None,
            files=sum(1 for _, start, end in ranges(self.plans, self._request.workers) if start < end),
            warnings=tuple(self.warnings),
            notes=self._notes(),
            by_partition=sizes,
        )

    def plan(self) -> None:
        """Ask the broker for the facts of the logs, and plan what to read of each partition."""
        request = self._request
        # Topics and groups are listed together: a group that appears later may own one of the selected topics.
        with admin_client(request.bootstrap, request.settings) as admin:
            names, groups = names_on(admin)
        topics = select_topics(request.app, request.topics, names, groups)
        self._warn_of_foreign(topics)
        # The time is taken before the broker is asked: a record that comes after it may be missing in the reading.
        request_ms = self._clock.now_ms()
        facts = self._ask(topics.names)
        self.plans = plan_round(self._grown, facts, request_ms, full=request.full, unknown_time=self._clock.why_unknown)
        for plan in self.plans:
            if plan.why is not None and not request.full:
                self._warn(f"{plan.key}: {plan.why}. kstate starts a new full dump")
        newest = newest_fulls(self._grown)
        for key in sorted(newest.keys() - facts.keys()):
            if key.topic in topics.names or key.topic in request.topics:
                self._warn(f"{key}: the topic no longer has this partition, but its records remain in the dump")
        self._topics = topics.names
        self._compare_before()
        self._warn_of_transactions()
        self._watcher.planned(self.plans, self._grown)

    def _compare_before(self) -> None:
        """Compare the logs that are to be continued with the records of the dump.

        Plan a full dump if one is another log.
        """
        logs = {
            plan.key: (sample_of_dump(plan.continues, plan), plan.facts.start)
            for plan in self.plans
            if plan.continues is not None
        }
        self._comparisons = compare_logs(self._request.bootstrap, self._request.settings, logs)
        for number, plan in enumerate(self.plans):
            comparison = self._comparisons.get(plan.key)
            if comparison is None or comparison.identity is Identity.SAME:
                continue
            why = comparison.text
            self._warn(f"{plan.key}: {why}. kstate starts a new full dump")
            self.plans[number] = new_full(plan.key, plan.facts, why, plan.request_ms)
            # No key of the old full dump is awaited any more, since the new one continues nothing.
            del self._comparisons[plan.key]

    def _ask(self, topics: Sequence[str]) -> dict[TopicPartition, LogFacts]:
        request = self._request
        group = request.group or request.app
        facts = ask_broker(request.bootstrap, request.settings, group=group, topics=topics, stable=True)
        if not facts:
            raise RunFailed(
                f"{request.bootstrap} does not describe the topics",
                hint="grant this user Describe on these topics",
            )
        return facts

    def _warn_of_foreign(self, topics: Topics) -> None:
        for topic, other in topics.foreign:
            self._warn(
                f"kstate does not dump {topic}, because it seems to belong to the application {other}. To dump this "
                f"topic, pass {option.TOPIC}"
            )

    def _warn_of_transactions(self) -> None:
        """Report transactions that were open at the last call already: no record of their partitions can be read."""
        for plan in self.plans:
            before = plan.continues
            if before is not None and before.held_back and plan.held_back and plan.end == before.end:
                self._warn(
                    f"{plan.key}: the transaction at offset {plan.end} was already open during the previous run and "
                    f"is holding back {plan.held_back:,} offsets. To find its producer, run kafka-transactions "
                    "find-hanging"
                )

    def _notes(self) -> tuple[str, ...]:
        places = [f"{plan.key} at {plan.open_from}" for plan in self.plans if plan.open_from is not None]
        if not places:
            return ()
        offsets = sum(plan.held_back for plan in self.plans)
        place = some(places, _MOST_NAMES)
        return (f"a transaction is open, so the next run reads the records after it: {place} ({offsets:,} offsets)",)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._watcher.warning(text)

    def read(self, runner: Callable[[], RangeRunner]) -> None:
        """Read the planned ranges, and again those of logs that changed. ``runner`` is called only if there are ranges.

        Raises RunFailed if a log changes again and again, or is deleted.
        """
        waiting = self.plans
        # Each pass reads only the partitions whose log changed during the pass before.
        for _ in range(_ATTEMPTS):
            to_read = [plan for plan in waiting if plan.must_read]
            if to_read:
                self._read(to_read, runner())
            waiting = self._read_facts_again()
            if not waiting:
                return
        keys = ", ".join(str(plan.key) for plan in waiting[:_MOST_NAMES])
        raise RunFailed(
            f"the log of {keys} keeps changing while kstate reads it",
            hint=f"find out what deletes its records. To read faster, pass more {option.WORKERS}",
        )

    def _read(self, plans: Sequence[PartitionPlan], runner: RangeRunner) -> None:
        """Read the ranges of these plans, and keep each result by its partition."""
        self._watcher.began(sum(plan.records for plan in plans))
        parts = ranges(plans, runner.slots)
        jobs = [self._job(*part, min(runner.slots, len(parts))) for part in parts]
        for plan in plans:
            # Results of an earlier attempt are of a log that has changed since. Their files are removed after the
            # commit.
            self._results[plan.key] = []

        def on_result(job: RangeJob, result: RangeResult) -> None:
            # If the range was read on another host, whose clock cannot be compared with this one, it ended now at the
            # latest.
            ended = replace(result, ended_ms=self._clock.at(result.ended) or self._clock.now_ms())
            # Results come in any order, and are kept by offset, which the commit needs and what a signal interrupts
            # too.
            insort(self._results[job.key], (job, ended), key=lambda entry: entry[0].start)

        runner.run(jobs, self._watcher.at, on_result)

    def _job(self, plan: PartitionPlan, start: int, end: int, at_once: int) -> RangeJob:
        """Return the job that reads one range of a plan, while ``at_once`` readers share the limit of bytes."""
        request, comparison = self._request, self._comparisons.get(plan.key)
        awaited: frozenset[str] = frozenset()
        if comparison is not None:
            awaited = comparison.awaited
        limit = None
        if request.bytes_per_second is not None:
            # The limit is for all readers together, so each gets its part of it, but at least one byte.
            limit = max(1, request.bytes_per_second // max(1, at_once))
        return RangeJob(
            plan.key,
            start,
            end,
            request.out,
            self.generation,
            self.run,
            request.bootstrap,
            dict(request.settings),
            awaited,
            limit,
        )

    def _results_of(self, key: TopicPartition) -> list[RangeResult]:
        """Return the results of a partition, in the order of offsets."""
        return [result for _, result in self._results.get(key, [])]

    def _read_facts_again(self) -> list[PartitionPlan]:
        """Read every fact of the logs again that the round relies on; return new plans for the partitions that changed.

        Topic ids are read first, then the records: if a log is recreated in between, it has another record, or none.
        """
        request_ms = self._clock.now_ms()
        facts = self._ask(self._topics)
        reasons: dict[TopicPartition, str] = {}
        plans = []
        for plan in self.plans:
            again = facts.get(plan.key)
            if again is None:
                raise RunFailed(
                    f"{plan.key} no longer exists, because its topic was deleted while kstate was reading it",
                    hint="run the command again to read the topics that exist now",
                )
            try:
                plan = replace(plan, facts=settle(plan.facts, again, plan.end))
            except LogChangedError as error:
                reasons[plan.key] = f"the log changed while kstate was reading it ({error})"
            else:
                why = self._why_invalid(plan, request_ms)
                if why is not None:
                    reasons[plan.key] = why
            plans.append(plan)
        self.plans = plans
        # Records are compared only of logs whose facts are the same: the others are known to have changed.
        reasons |= self._compare_after({plan.key: facts[plan.key] for plan in plans if plan.key not in reasons})
        replaced = {}
        for key, why in reasons.items():
            # Results of a changed log are dropped: neither this round nor one that a signal ends may commit them.
            self._results.pop(key, None)
            self._comparisons.pop(key, None)
            self._warn(f"{key}: {why}. kstate starts a new full dump")
            replaced[key] = new_full(key, facts[key], why, request_ms)
        self.plans = [replaced.get(plan.key, plan) for plan in self.plans]
        if not replaced and not self._keys:
            self._warn_of_new_partitions(facts)
        return list(replaced.values())

    def _why_invalid(self, plan: PartitionPlan, request_ms: int) -> str | None:
        """Return why the records that were read of a partition do not count; None if they do."""
        results = self._results_of(plan.key)
        another = next((result.another for result in results if result.another is not None), None)
        if another is not None:
            return f"the log was replaced: {another}"
        if any(result.begins_later for result in results):
            return "its first records were deleted while kstate was reading the log"
        comparison = self._comparisons.get(plan.key)
        if comparison is not None:
            why = unexplained(comparison, (key for result in results for key in result.awaited_keys))
            if why is not None:
                return Comparison(Identity.NOT_COMPARABLE, why).text
        if plan.continues is None:
            return None
        return too_late(plan.continues, plan.facts, max((result.ended_ms for result in results), default=request_ms))

    def _compare_after(self, again: Mapping[TopicPartition, LogFacts]) -> dict[TopicPartition, str]:
        """Return, for each partition whose log is now another one than the one that was read, the reason.

        A log that cannot be compared only gets a warning: the next round compares it, with the records that follow.
        """
        logs = {
            plan.key: (sample, again[plan.key].start)
            for plan in self.plans
            if plan.key in again and plan.must_read
            if (sample := self._sample(plan, again[plan.key])) is not None
        }
        reasons = {}
        for key, comparison in compare_logs(self._request.bootstrap, self._request.settings, logs).items():
            if comparison.identity is Identity.ANOTHER:
                reasons[key] = f"the log changed while kstate was reading it ({comparison.why})"
            elif comparison.identity is Identity.NOT_COMPARABLE:
                self._warn(f"{key}: {comparison.text}")
        return reasons

    def _sample(self, plan: PartitionPlan, again: LogFacts) -> LogSample | None:
        """Return the last records that this round read of a log; None if it read none."""
        results = self._results_of(plan.key)
        tail = tuple(record for result in results for record in result.tail)[-TAIL:]
        if not tail:
            return None
        return sample_of_reading(plan, tail, again, complete=len(tail) == sum(result.records for result in results))

    def _warn_of_new_partitions(self, facts: Mapping[TopicPartition, LogFacts]) -> None:
        """Report partitions that were added while the others were read."""
        keys = sorted(map(str, facts.keys() - {plan.key for plan in self.plans}))
        if keys:
            self._warn(
                f"{some(keys, _MOST_NAMES)}: the partition was added while kstate was reading, so the next run reads it"
            )

    def commit(self) -> RoundOutcome:
        """Write the manifest. A manifest without a new record states that the dump is up to date."""
        # A signal from here on must not commit a second time, because the manifest may exist already.
        self._committing = True
        # A full dump is identified by partition and the generation in which it began. So an increment replaces the full
        # dump that it continues, and a new full dump is added to the old ones.
        fulls = {(full.key, full.began): full for full in self._fulls}
        for plan in self.plans:
            full = self._full(plan)
            fulls[plan.key, full.began] = full
        before = {} if self._grown is None else dict(self._grown.committed)
        grown = Grown(self.generation, ISOLATION, tuple(fulls.values()), before | self._committed())
        grown = replace(grown, clock=self._clock.mark())
        grown, joined, dropped = self._smaller(grown)
        # This is the only step that changes the dump. Before it, files were added that no manifest names.
        self._store.commit(grown, self.run, self.keys)
        manifest_files = [file.path for full in grown.fulls for file in full.files]
        # Now the files of this run that the manifest does not name are removed: those of attempts whose result was not
        # used, and those that were joined at once.
        self._store.remove_files_of(self.run, self.keys, manifest_files)
        by_partition = {key: _amounts(self._results_of(key)) for key in self._results}
        return RoundOutcome(
            tuple(self.plans),
            self.generation,
            sum(records for records, _ in by_partition.values()),
            sum(size for _, size in by_partition.values()),
            sum(result.file is not None for key in self._results for result in self._results_of(key)),
            joined=joined,
            dropped=dropped,
            warnings=tuple(self.warnings),
            notes=self._notes(),
            by_partition=by_partition,
        )

    def _committed(self) -> dict[TopicPartition, int]:
        """Return the group's offsets of source topics, none beyond the end of what was read."""
        return {
            plan.key: min(plan.facts.committed, plan.end)
            for plan in self.plans
            if plan.facts.committed is not None and not is_changelog(plan.key.topic)
        }

    def _smaller(self, grown: Grown) -> tuple[Grown, int, int]:
        """Join small files and drop old full dumps; return the new state of the dump and the number of each.

        A file that a manifest named is not removed now, because a reader may have that manifest open: the new one lists
        it as forgotten. A new file that was joined at once has never been named, and is removed with the others of this
        run.
        """
        dropped: tuple[Full, ...] = ()
        if self._request.keep is not None:
            grown, dropped = drop_old_fulls(grown, self._request.keep)
        # Readers and the sweep judge by the time of day how long a file has been forgotten, so this is not the time of
        # the dump.
        now = now_ms()
        old = old_files(grown if self._grown is None else self._grown, self._clock.now_ms())
        dropped_files = [file.path for full in dropped for file in full.files]
        fulls, joined_files = join_small_files(self._store, grown.fulls, self.generation, self.run, self._warn)
        manifest_paths = {file.path for full in self._fulls for file in full.files}
        earlier = () if self._grown is None else self._grown.forgotten
        # Forgotten files that a sweep has removed are listed no longer, so that the manifest does not grow for ever.
        existing = self._store.present(file.path for file in earlier)
        waiting = (file for file in earlier if file.path in existing)
        forgotten = (
            *waiting,
            *(Forgotten(path, now) for path in (*dropped_files, *joined_files) if path in manifest_paths & old),
        )
        return replace(grown, fulls=fulls, forgotten=forgotten), len(joined_files), len(dropped)

    def _full(self, plan: PartitionPlan) -> Full:
        """Return the full dump that the ranges of a plan begin or continue, and warn if they were read too slowly."""
        results = self._results_of(plan.key)
        ended_ms = max((result.ended_ms for result in results), default=self._clock.now_ms())
        previous = max((full for full in self._fulls if full.key == plan.key), key=_began, default=None)
        reading = FullReading(
            tuple(result.file for result in results if result.file is not None),
            tuple(record for result in results for record in result.tail),
            next((result.last for result in reversed(results) if result.last is not None), None),
            ended_ms,
        )
        full = next_full(plan, reading, self.generation, previous, unknown_time=self._clock.why_unknown is not None)
        slow = reading.too_slow(plan)
        if slow is not None:
            self._warn(
                f"{plan.key}: reading the log took {span_text(slow)}. Tombstones from that period may be missing, so "
                "kstate cannot rebuild a store from this full dump"
            )
        return full


def _began(full: Full) -> int:
    return full.began


def _amounts(results: Iterable[RangeResult]) -> tuple[int, int]:
    """Return the records and the bytes of the files of some ranges."""
    records = size = 0
    for result in results:
        records += result.records
        if result.file is not None:
            size += result.file.size
    return records, size
