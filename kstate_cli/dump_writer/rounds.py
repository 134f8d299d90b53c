"""The rounds of ``kstate dump``: ask the broker, plan, read, commit; and repeat that if the dump follows.

Spark or processes of this host read the ranges. Tasks and files are the same for both.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kstate_cli import temporary
from kstate_cli.deadline import leave
from kstate_cli.dump_writer.plan import DumpRequest, DumpWatcher, RoundOutcome
from kstate_cli.dump_writer.round_state import DumpRound
from kstate_cli.dump_writer.stores import DumpStore, store_of
from kstate_cli.dump_writer.task import OnProgress, OnResult, RangeJob, RangeQueue, RangeRunner, read_range
from kstate_cli.errors import Interrupted, RunFailed
from kstate_cli.host import FULL
from kstate_cli.parallel import Counters, Processes, Workers
from kstate_cli.signals import now_and_then
from kstate_cli.spark.context import SparkSettings, run_tasks, slots_of, spark_context
from kstate_cli.spark.engine import EngineChoice, check_java

if TYPE_CHECKING:
    from pyspark import SparkContext

# Printed by the deadline, which cannot find out whether the manifest was written.
_REMAINS = (
    "files from this run that no manifest lists. A run that starts a day later removes them. The dump is unchanged, "
    "or has one more generation"
)


def dump_round(
    request: DumpRequest, watcher: DumpWatcher, runner: RangeRunner | None = None, store: DumpStore | None = None
) -> RoundOutcome:
    """Run one round. Without a ``runner``, one is started if there are offsets to read; ``store`` is that of ``out``.

    Raises UsageError, Refused, InUse, RunFailed and RunHalfway; OSError if the folder cannot be written to.
    """
    began = time.monotonic()
    # Java is checked before the broker is asked: otherwise its absence would show only after the plan was printed.
    if request.engine.is_spark and runner is None:
        check_java()
    store = store or store_of(request.out)
    grown = store.read_newest()
    if grown is not None and not request.full:
        # The commit makes this check again. It is made here too, so that a missing file shows before hours of reading.
        store.check_named(grown)
    dump = DumpRound(request, watcher, store, grown)
    dump.plan()
    if request.dry_run:
        return dump.prediction()
    # Files are written from here on, so a message about an expired deadline must not say that nothing was.
    leave(_REMAINS)
    store.make(dump.run)
    try:
        with ExitStack() as stack:
            dump.read(
                lambda: runner or stack.enter_context(range_runner(request.engine, request.spark, request.workers))
            )
        outcome = dump.commit()
    except BaseException as error:
        # The finished ranges are committed first: the files of this run that are then in no manifest are removed.
        if isinstance(error, Interrupted):
            dump.keep_finished(error)
        _remove_uncommitted(dump, store)
        if isinstance(error, OSError) and error.errno in FULL:
            raise RunFailed(
                f"the disk is full: {error.strerror}. The dump is unchanged",
                where=request.out,
                hint="free disk space, then run the command again",
            ) from None
        raise
    removed = 0
    with suppress(RunFailed):  # the dump is committed; a later call removes the same files
        newest = store.read_newest()
        if newest is not None:
            removed = store.sweep(newest)
    return replace(outcome, removed=removed, seconds=time.monotonic() - began)


def _remove_uncommitted(dump: DumpRound, store: DumpStore) -> None:
    """Remove the files of a round that failed, after all its tasks have ended.

    If the error came after the manifest was written, the files that it names stay.
    """
    # The store did not answer whether the manifest was written. If it was, removing its files would destroy the dump.
    if store.unanswered:
        return
    with suppress(Exception):
        newest = store.read_newest()
        manifest_files: list[str] = []
        if newest is not None:
            manifest_files = [file.path for full in newest.fulls for file in full.files]
        store.remove_files_of(dump.run, dump.keys, manifest_files)


def follow(
    request: DumpRequest, watcher: DumpWatcher, seconds: float, on_round: Callable[[RoundOutcome], None]
) -> NoReturn:
    """Run a round every ``seconds``, until a round raises or a signal comes; committed rounds stay.

    Raises as :func:`dump_round`.
    """
    if request.engine.is_spark:
        check_java()
    store = store_of(request.out)
    store.read_newest()  # a refusal comes before Spark starts
    with range_runner(request.engine, request.spark, request.workers) as runner:
        while True:
            began = time.monotonic()
            on_round(dump_round(request, watcher, runner, store))
            request = replace(request, full=False)  # only the first round takes full dumps
            # The pause is measured from the begin of the round, so that rounds begin at equal distances, however long
            # they take.
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))


_LOOK_SECONDS = 0.5
APPLICATION = "kstate dump"
"""The name of the application in Spark's web pages."""


_WAVE = 2
"""Tasks per slot in one Spark job. Few, because Spark returns no result before the last of them ended."""


@dataclass(frozen=True, slots=True)
class RangesOnSpark:
    """One Spark task per range."""

    context: SparkContext
    slots: int
    here: bool
    """All tasks run on this host."""

    def run(self, jobs: Sequence[RangeJob], on_progress: OnProgress, on_result: OnResult) -> None:
        """Read all ranges. A refusal is raised at once; after any other failure Spark repeats the task."""
        with contextlib.ExitStack() as stack:
            counted_jobs = jobs
            if self.here:
                # The counters are files of this host. They are used only if all executors run here, and can see them.
                counted_jobs = stack.enter_context(_counting(jobs, on_progress))
            queue = RangeQueue(counted_jobs)
            while wave := _wave(queue, self.slots * _WAVE):
                # ``strict`` refuses a missing result: the following ones would be added to the wrong ranges.
                for job, result in zip(wave, run_tasks(self.context, read_range, wave, lambda: None), strict=True):
                    on_result(queue.ended(job, result), result)


@dataclass(frozen=True, slots=True)
class RangesInProcesses:
    """Processes of this host, which end with this process."""

    pool: Workers

    @property
    def slots(self) -> int:
        """As many as there are processes."""
        return self.pool.count

    def run(self, jobs: Sequence[RangeJob], on_progress: OnProgress, on_result: OnResult) -> None:
        """Read all ranges. A range that fails is not repeated, because it would fail again on the same host."""
        with _counting(jobs, on_progress) as counted_jobs:
            queue = RangeQueue(counted_jobs)
            try:
                self.pool.work_off(
                    read_range, queue.take, lambda job, result: on_result(queue.ended(job, result), result)
                )
            except BaseException:
                # The caller removes the files of the run next, and no process may still be writing one then.
                self.pool.stop()
                raise


@contextlib.contextmanager
def range_runner(choice: EngineChoice, spark: SparkSettings, workers: int) -> Iterator[RangeRunner]:
    """Yield a runner, and end it with everything that it started. Raises Refused and RunFailed."""
    if not choice.is_spark:
        with Processes(workers) as pool:
            yield RangesInProcesses(pool)
        return
    with spark_context(spark, name=APPLICATION) as context:
        yield RangesOnSpark(context, slots_of(context), spark.local)


def _wave(queue: RangeQueue, most: int) -> list[RangeJob]:
    """Return the next jobs, at most so many; none if none waits."""
    jobs: list[RangeJob] = []
    while len(jobs) < max(1, most) and (job := queue.take()) is not None:
        jobs.append(job)
    return jobs


@contextlib.contextmanager
def _counting(jobs: Sequence[RangeJob], on_progress: OnProgress) -> Iterator[list[RangeJob]]:
    """Yield the jobs, each with files in which it counts records and bytes; their sums are reported twice a second."""
    with temporary.private_folder("dump") as scratch:
        counters = [Counters(Path(scratch) / name, len(jobs)) for name in ("records", "bytes")]

        def look() -> None:
            # If a counter file cannot be read, reading continues and only the progress stops.
            with contextlib.suppress(OSError):
                on_progress(counters[0].total(), counters[1].total())

        with now_and_then(look, _LOOK_SECONDS):
            yield [
                replace(job, counters=(counters[0].counter(number), counters[1].counter(number)))
                for number, job in enumerate(jobs)
            ]
