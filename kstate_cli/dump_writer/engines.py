"""The engines that read ranges: Spark, or processes of this host. Tasks and files are the same for both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstate_cli import temporary
from kstate_cli.dump_writer.task import RangeJob, RangeQueue, RangeResult, read_range
from kstate_cli.parallel.workers import Counters, Processes, Workers
from kstate_cli.signals import now_and_then
from kstate_cli.spark.choice import EngineChoice
from kstate_cli.spark.context import SparkSettings, run_tasks, slots_of, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_SECONDS = 0.5
APPLICATION = "kstate dump"
"""The name of the application in Spark's web pages."""


OnProgress = Callable[[int, int], None]
"""Called with the records and bytes read so far, from another thread."""
OnResult = Callable[[RangeJob, RangeResult], None]
"""Called with each finished range, before :meth:`RangeRunner.run` returns or raises."""
_WAVE = 2
"""Tasks per slot in one Spark job. Few, because Spark returns no result before the last of them ended."""


class RangeRunner(Protocol):
    """An engine that reads ranges while it is open."""

    @property
    def slots(self) -> int:
        """The number of ranges that it reads at once."""

    def run(self, jobs: Sequence[RangeJob], on_progress: OnProgress, on_result: OnResult) -> None:
        """Read all ranges; those finished before an error or a signal count. Raises KstateError and OSError."""


@dataclass(frozen=True, slots=True)
class RangesOnSpark:
    """One Spark task per range."""

    context: SparkContext
    slots: int
    here: bool
    """All tasks run on this host."""

    def run(self, jobs: Sequence[RangeJob], on_progress: OnProgress, on_result: OnResult) -> None:
        """Read all ranges. A refusal is raised at once; Spark repeats tasks that fail otherwise."""
        with contextlib.ExitStack() as stack:
            counted_jobs = stack.enter_context(_counting(jobs, on_progress)) if self.here else jobs
            queue = RangeQueue(counted_jobs)
            while wave := _wave(queue, self.slots * _WAVE):
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
                # The files of the run are removed next: no worker may still write then.
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
    """Yield the jobs with counters of records and bytes, which are read twice a second."""
    with temporary.private_folder("dump") as scratch:
        counters = [Counters(Path(scratch) / name, len(jobs)) for name in ("records", "bytes")]

        def look() -> None:
            with contextlib.suppress(OSError):
                on_progress(counters[0].total(), counters[1].total())

        with now_and_then(look, _LOOK_SECONDS):
            yield [
                replace(job, counters=(counters[0].counter(number), counters[1].counter(number)))
                for number, job in enumerate(jobs)
            ]
