"""One run of a restoration, through the states of KIP-728 and KIP-696.

The states go to the journal as events ``state``; the engine's own events state what became of the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from kstate_cli import option
from kstate_cli.broker.facts import Facts
from kstate_cli.change import nofollow
from kstate_cli.change.access import make_own_directory
from kstate_cli.change.clean import PRECIOUS_EVENT, drop_earlier_rounds
from kstate_cli.change.commits_made import unchanged
from kstate_cli.change.course import Terms
from kstate_cli.change.earlier_runs import RECORDS_EVENT, STATE_EVENT
from kstate_cli.change.engine import RunResult, execute
from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import SORTED_FILES, Run, RunState
from kstate_cli.change.plan import CreateDatabase, EditDatabase, OmitTree, PlaceDatabase, Step
from kstate_cli.change.standby import STANDBY_EVENT
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.dump_reader.sources import Digests, manifest_digests
from kstate_cli.errors import Interrupted, KstateError, Refused, RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.ages import Age, add_ages
from kstate_cli.restore.jobs import SliceJob, SliceResult, fitting
from kstate_cli.restore.planning.as_of import ages_of_files, bounds
from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan
from kstate_cli.restore.running.engines import Runner, started
from kstate_cli.restore.running.resume import Resumption, identified, kept_slices, take_over
from kstate_cli.restore.running.states import (
    CHECK,
    DIGESTS,
    SLICES,
    SPENT_EVENT,
    START,
    STOP,
    SYNC,
    TRANSITIONS,
    RestoreState,
    StateMachine,
    Stopwatch,
)
from kstate_cli.restore.running.steps import (
    RestoredStore,
    Slicing,
    make_jobs,
    to_steps,
)
from kstate_cli.restore.sorting.memory import Slots, slot_memory, slots_here
from kstate_cli.restore.staging import FINISHED, SLICES_EVENT, Staging, is_local, slices_of_stores
from kstate_cli.restore.staging_area import below, end_area, make_area, remove_from_area, settled
from kstate_cli.rocks.errors import RocksError
from kstate_cli.spark.context import SparkSettings
from kstate_cli.spark.engine import EngineChoice
from kstate_cli.specification.draft import SpecDraft
from kstate_cli.specification.topology import TopologyText
from kstate_cli.texts import command

LOGS_EVENT = "logs"
"""Topic id, leader epoch and last record of every log that the run has restored from."""


class Foundation(Protocol):
    """Stores of another source that a restoration adds its records to: those of a snapshot."""

    def prepare(self, run: Run) -> tuple[Step, ...]:
        """Copy the files into the folder of the run, and return the complete steps. Raise Refused."""

    @property
    def folders(self) -> Mapping[str, Path]:
        """Return the folder of each copied store, by the path of the store in APP."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The request of the user."""

    terms: Terms
    dump: str
    options: RestoreOptions
    spark: SparkSettings
    engine: EngineChoice
    spec: SpecDraft | None = None
    spec_name: str = "kstate.toml"
    topology: TopologyText | None = None
    memory: int | None = None
    """Bytes that everything together may use on this host; None for a usual amount."""
    staging: str | None = None
    complete: bool = False
    """Without a manifest: no file and no record is missing."""
    committed_only: bool = False
    """Without a manifest: it was read with read_committed."""
    ask: Callable[[Iterable[str]], Facts] | None = None
    """Asks a broker, or a file, for the logs of these topics. Raises RunFailed and UsageError."""
    digests: bool = True
    """Compare the files of the dump with the manifest's SHA-256."""
    verify_dump: bool | None = None
    """Read every file of the dump in full before the plan. None: a dry run reads what the restore would read."""
    after_error: bool = False
    """An earlier run ended in ERROR, and the user has examined it."""
    full_dump: int | None = None
    """Restore from the full dumps that were the newest in this generation; None for the newest of all."""
    foundation: Foundation | None = None
    """Stores of another source, to which the records are added."""


@dataclass(slots=True)
class RestoreOutcome:
    """The plan, and what became of it."""

    plan: RestorePlan
    engine: EngineChoice
    result: RunResult | None = None
    reports: list[RestoredStore] = field(default_factory=list)


class RestoreWatcher:
    """The reports of a run while it continues; the base class ignores them."""

    def phase(self, name: str, path: str, size: int) -> None:
        """Report a phase of the engine, or ``spark``."""

    def state(self, before: RestoreState, after: RestoreState) -> None:
        """Report a change of state."""

    def recovered(self, text: str) -> None:
        """Report what became of a run that another process left unfinished."""

    def warning(self, text: str) -> None:
        """Report something that does not change the outcome of the run."""

    def resumed(self, predecessor: str, slices: int, total: int) -> None:
        """Report how many of all slices an earlier run finished: they are not sorted again."""

    def slices(self, finished: int, total: int, records: int, all_records: int, size: int) -> None:
        """Report the finished slices, and what is in them."""


class Restoration:
    """One run, from CREATED to a terminal state."""

    def __init__(
        self,
        request: RestoreRequest,
        dump: Dump,
        outcome: RestoreOutcome,
        watcher: RestoreWatcher,
        state: StateMachine,
        watch: Stopwatch,
    ) -> None:
        self._request, self._dump, self._outcome, self._watcher = request, dump, outcome, watcher
        self._plan = outcome.plan
        self._machine = state
        self._watch = watch
        self._journal: Run | None = None
        self._staging: Staging | None = None
        self._ordered: dict[TopicPartition, Dump] = {}
        self._ages: list[Age] = []

    def run(self, *, close: bool = True) -> None:
        """Carry the plan out. A failure ends in ERROR, a signal in NOT_RUNNING; both states are in the journal.

        Without ``close`` the state stays RUNNING, since another round follows. Call it within ``first_signal_only``, so
        that closing is not interrupted.
        """
        # The state machine may belong to several rounds, but the journal only to this one. So states are recorded only
        # while this run lasts.
        self._machine.listen(self._record)
        try:
            self._run(close=close)
        finally:
            self._machine.forget(self._record)

    def _run(self, *, close: bool) -> None:
        """Carry the plan out, and bring the state machine to its last state, whatever happens."""
        try:
            self._outcome.result = execute(
                self._plan.change, self._request.terms.run, self._phase, prepare=self._prepare
            )
            # The new files are in place. Nothing that fails from here on may turn the good run into a failed one.
            self._report_spent()
            self._record_ages_of_files()
            self._machine.to(RestoreState.RUNNING)
            # A standby drops the backups of its earlier rounds: the round after each has caught its stores up, so none
            # is the only copy.
            if self._request.terms.run.standby:
                self._drop_earlier_rounds()
            if close:
                self._machine.close()
        except (Interrupted, KeyboardInterrupt) as error:
            if not self._machine.close():
                # In the states PENDING_ERROR and ERROR there is nothing left to close (KIP-696).
                self._watcher.warning(
                    f"the run has already failed (state {self._machine.state.value}), so the signal has no effect"
                )
                self._fail()
            # The journal proves more about the directory than the hint of the signal says.
            if isinstance(error, Interrupted):
                error.hint = self._ways_on()
            raise
        except BaseException as error:
            self._fail()
            if isinstance(error, KstateError) and not isinstance(error, Refused):
                error.hint = error.hint or "fix the cause"
                # The next restoration refuses after an ERROR, so the hint needs the option that permits it.
                if error.exit_code == RunFailed.exit_code:
                    error.hint_details = (*error.hint_details, f"then run the command again with {option.AFTER_ERROR}")
            raise
        finally:
            if self._staging is not None and self._journal is not None:
                end_area(self._journal, self._staging.target)

    def _phase(self, name: str, path: str, size: int) -> None:
        self._watch.engine(name)
        # The sync of a file system has no progress to show.
        if name != SYNC:
            self._watcher.phase(name, path, size)

    def _report_spent(self) -> None:
        with contextlib.suppress(OSError):
            if self._journal is not None:
                self._journal.write(SPENT_EVENT, seconds=self._watch.spent())

    def _drop_earlier_rounds(self) -> None:
        assert self._journal is not None
        for text in drop_earlier_rounds(self._request.terms.app, self._journal.name):
            self._watcher.warning(text)

    def _ways_on(self) -> str | None:
        """Return the hint after a signal: the state of the directory by the journal, and what the next run can use."""
        run = self._journal
        # From the state SWITCHING on, directories may have been exchanged, so "nothing was changed" would be a guess.
        if run is not None and run.state not in (None, RunState.STAGING, RunState.FAILED):
            if run.state is RunState.KEPT:
                return "the restoration is complete"
            return f"to see more, run {command('status', self._request.terms.app)}"
        try:
            finished, slices = kept_slices(self._request.terms.app)
        except (OSError, Refused):
            return interrupted_hint()
        if slices:
            return interrupted_hint(f"kstate keeps the sorted files ({100 * finished // slices} % of the records)")
        if finished:
            return interrupted_hint("kstate keeps the sorted files")
        return interrupted_hint()

    def _record_ages_of_files(self) -> None:
        """Record the ages of the new files: they are in place now, so the ages may name them and not only offsets."""
        terms = self._request.terms
        try:
            add_ages(terms.app, ages_of_files(terms.app, self._ages, workers=terms.run.workers))
        except (OSError, KstateError, RocksError) as error:
            self._watcher.warning(f"kstate could not record how old the restored data is: {error}")

    def _fail(self) -> None:
        # Twice is possible: a failure while everything is closed after another failure.
        if self._machine.state not in (RestoreState.PENDING_ERROR, RestoreState.ERROR):
            self._machine.to(RestoreState.PENDING_ERROR)
        if self._machine.state is RestoreState.PENDING_ERROR:
            self._machine.to(RestoreState.ERROR)

    def _record(self, before: RestoreState, after: RestoreState) -> None:
        # What became of the directory the engine has recorded; the state must not turn a good run into a failed one.
        with contextlib.suppress(OSError):
            if self._journal is not None and self._journal.path.is_dir():
                self._journal.write(STATE_EVENT, before=before.value, state=after.value)

    def _prepare(self, run: Run) -> tuple[Step, ...]:
        """Build the new stores in the folder of ``run``, and return the steps of the plan that put them in place."""
        self._journal = run
        self._machine.to(RestoreState.REBALANCING)
        request, plan = self._request, self._plan
        # This comes first: events that protect the old store from ``clean`` must be in the journal before anything is
        # built.
        self._write_down(run)
        # Sorted files are in the folder of the run, on the file system of the directory, so that RocksDB can rename
        # them into a database instead of copying them.
        folder = run.path / SORTED_FILES
        make_own_directory(folder, nofollow.stat(run.path), 0o750)
        self._end_earlier_areas(run)
        earlier_steps = plan.change.steps
        if request.foundation is not None:
            # The rows of stores that are copied come first: the records of a versioned store are put between them.
            earlier_steps = request.foundation.prepare(run)
        staging = Staging(str(folder))
        # If the user names another place, files are sorted there: executors on other hosts do not see a folder of this
        # one.
        if request.staging:
            staging = self._staging = Staging(make_area(settled(request.staging), request.terms.app.name, run))
        try:
            if request.engine.is_spark:
                self._watcher.phase("spark", request.spark.effective_master or "spark-submit", 0)
            self._watch.to(START)
            # The digests are awaited only after Spark has stopped, whose JVM and workers give their memory back.
            with Digests(self._dump) as digests:
                # Files are compared with their digests while Spark starts and slices are read. Results count only if
                # all are equal.
                digests.compare(self._dump_digests)
                with started(request.engine, request.spark, self._slots_here()) as runner:
                    self._watch.to(SLICES)
                    try:
                        jobs, results = self._restore_slices(runner, run, staging)
                    except BaseException as error:
                        # The state changes before the runner closes, so that the time of closing Spark belongs to the
                        # new state.
                        self._ending(error)
                        raise
                    self._watch.to(STOP)
                self._watch.to(DIGESTS)
                self._report_progress(staging, jobs)
                digests.wait()
            # Every sorted file is read once more before any is ingested: RocksDB checks a file only where it reads it
            # later.
            self._watch.to(CHECK)
            steps, self._outcome.reports = to_steps(
                plan.work, results, request.options.release, staging, folder, request.terms.app
            )
            # The ages are recorded before the switch: if a crash came in between, old data would look new.
            add_ages(request.terms.app, self._ages)
        except BaseException as error:
            self._ending(error)
            # A folder in an area elsewhere is removed by :func:`end_area`. Of one in this run, the next run can use the
            # slices that were finished before a signal. After a failure these may be its cause, so they are removed.
            if isinstance(error, (Interrupted, KeyboardInterrupt)) and self._staging is None:
                staging.keep_finished()
            elif self._staging is None:
                staging.remove()
            raise
        return (*_without_expired(earlier_steps, steps), *steps)

    def _write_down(self, run: Run) -> None:
        """Record, before anything is built, the logs, the ages, and what ``clean`` must not delete by its age."""
        request, plan = self._request, self._plan
        # By this event alone the next round of a standby may delete the backup of this run (``change.clean``).
        if request.terms.run.standby:
            run.write(STANDBY_EVENT)
        why = [line for store in plan.work for line in store.only_copy]
        if why:
            run.write(PRECIOUS_EVENT, why="; ".join(why))
        self._ages = bounds(plan.work, self._dump, request.options.facts, run.name)
        logs = {tp.kafka_name: mark.as_json() for age in self._ages for tp, mark in age.logs.items()}
        run.write(LOGS_EVENT, logs=logs)

    def _slots_here(self) -> int:
        request, plan = self._request, self._plan
        if request.engine.is_spark:
            return 0
        return slots_here(request.memory, request.terms.run.workers, size=plan.bytes)

    def _restore_slices(self, runner: Runner, run: Run, staging: Staging) -> tuple[list[SliceJob], list[SliceResult]]:
        """Run the slices that are not finished yet, and return all jobs and all results."""
        request, plan = self._request, self._plan
        slots, jvm = runner.slots, request.engine.is_spark
        jobs = make_jobs(
            plan.work,
            Slicing(
                request.terms.app,
                self._dump,
                request.options.release,
                staging.target,
                Slots(slots, _slot_memory(request.memory, slots, jvm=jvm)),
                lambda dump: self._in_order(runner, dump, staging),
                self._folders_elsewhere(),
            ),
        )
        jobs = identified(jobs)
        members: dict[str, Any] = {"stores": slices_of_stores(jobs)}
        if is_local(staging.target):
            # Other commands show the progress of a folder on this host only, so an area elsewhere need not be in the
            # journal.
            members["staging"] = staging.target
        run.write(SLICES_EVENT, **members)
        resumed = Resumption(None)
        # Only finished slices in the folder of an earlier run can be taken over: the files of an area are removed when
        # a run ends.
        if self._staging is None:
            resumed = take_over(request.terms.app, run, run.path / SORTED_FILES, jobs)
        if resumed.predecessor is not None:
            self._watcher.resumed(resumed.predecessor, len(resumed.results), len(jobs))
        self._machine.to(RestoreState.RESTORING)
        finished = {(result.task, result.store, result.number) for result in resumed.results}
        pending = [job for job in jobs if (job.task, job.store, job.number) not in finished]
        results: list[SliceResult] = []
        if pending:
            results = runner.run(pending, lambda: self._report_progress(staging, jobs))
        run.write(RECORDS_EVENT, records=sum(result.records for result in results))
        results += resumed.results
        return jobs, results

    def _folders_elsewhere(self) -> Mapping[str, Path]:
        if self._request.foundation is None:
            return {}
        return self._request.foundation.folders

    def _end_earlier_areas(self, run: Run) -> None:
        """Remove what killed runs of this application left in staging areas; ``kstate status`` shows what stays."""
        for other in read_runs(self._request.terms.app):
            if other.name != run.name:
                try:
                    remove_from_area(other)
                except (OSError, KstateError) as error:
                    self._watcher.warning(str(error))

    @cached_property
    def _dump_digests(self) -> dict[str, str]:
        if not self._request.digests:
            return {}
        return manifest_digests(self._dump, self._plan.dump_paths)

    def _ending(self, error: BaseException) -> None:
        """Enter the state in which everything is closed: after a signal, or after a failure."""
        after = RestoreState.PENDING_ERROR
        if isinstance(error, (Interrupted, KeyboardInterrupt)):
            after = RestoreState.PENDING_SHUTDOWN
        if after in TRANSITIONS[self._machine.state]:
            self._machine.to(after)

    def _in_order(self, runner: Runner, dump: PartitionDump, staging: Staging) -> tuple[PartitionDump, str]:
        # Each partition is sorted once, though several slices ask for it: a shuffle writes the whole partition.
        if dump.key not in self._ordered:
            target = below(staging.target, fitting(f"sorted-{dump.key.kafka_name}"))
            self._watcher.phase("sort", str(dump.key), 0)
            self._ordered[dump.key] = runner.in_order(self._dump, dump, target)
        ordered = self._ordered[dump.key]
        return ordered.partitions[dump.key], ordered.uri

    def _report_progress(self, staging: Staging, jobs: Sequence[SliceJob]) -> None:
        finished = {(note["task"], note["store"], note["number"]): note for note in staging.notes(FINISHED)}
        self._watcher.slices(
            len(finished),
            len(jobs),
            sum(note["records"] for note in finished.values()),
            sum(job.slice.rows for job in jobs),
            sum(note["data_bytes"] for note in finished.values()),
        )


def _without_expired(earlier: Sequence[Step], restored: Sequence[Step]) -> Iterator[Step]:
    """Yield the earlier steps without those about databases that the restored records make expire.

    A step that places or edits such a segment would create what another step leaves out.
    """
    expired = {step.path for step in restored if isinstance(step, OmitTree)}
    for step in earlier:
        if not (isinstance(step, (PlaceDatabase, EditDatabase, CreateDatabase)) and step.path in expired):
            yield step


def interrupted_hint(progress: str = "") -> str | None:
    """Return the hint after a signal; None if it came after the switch."""
    return unchanged(progress, "run the same command again")


def _slot_memory(memory: int | None, slots: int, *, jvm: bool) -> int:
    """Return ``slot_memory`` with its error as Refused: how many tasks a cluster runs is known only from Spark."""
    try:
        return slot_memory(memory, slots, jvm=jvm)
    except UsageError as error:
        raise Refused(error.message, hint=error.hint, hint_details=error.hint_details) from None
