"""Who reads the ranges: Spark, or processes of this host. The tasks are the same, and so are the files they write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstate_cli import temporary
from kstate_cli.dump_writer.task import RangeJob, RangeQueue, RangeResult, capture_range
from kstate_cli.parallel.workers import Counters, Processes, Workers
from kstate_cli.signals import now_and_then
from kstate_cli.spark.context import SparkSettings, run_tasks, slots_of, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_SECONDS = 0.5
APPLICATION = "kstate dump"
"""What Spark's web pages call the job."""


class CaptureEngine(str, Enum):
    """``--engine``."""

    spark = "spark"
    local = "local"


Counted = Callable[[int, int], None]
"""Gets the records and bytes that were read so far, from another thread."""
Finished = Callable[[RangeJob, RangeResult], None]
"""Gets each range that was read whole, as soon as it is, before :meth:`RangeRunner.run` returns or raises."""
_WAVE = 2
"""So many tasks per slot go to Spark at once: it gives no result before the last of them has ended."""


class RangeRunner(Protocol):
    """What reads ranges, as long as it is open."""

    @property
    def slots(self) -> int:
        """How many at once."""

    def run(self, jobs: Sequence[RangeJob], counted: Counted, finished: Finished) -> None:
        """Read all ranges. What was finished before an error, or a signal, stays so. Raises KstateError and OSError."""


@dataclass(frozen=True, slots=True)
class RangesOnSpark:
    """One Spark task per range."""

    context: SparkContext
    slots: int
    here: bool
    """All tasks run on this host."""

    def run(self, jobs: Sequence[RangeJob], counted: Counted, finished: Finished) -> None:
        """What a range refuses is raised at once, anything else Spark tries again."""
        with contextlib.ExitStack() as stack:
            told = stack.enter_context(_counting(jobs, counted)) if self.here else jobs
            queue = RangeQueue(told)
            while wave := _wave(queue, self.slots * _WAVE):
                for job, result in zip(wave, run_tasks(self.context, capture_range, wave, lambda: None), strict=True):
                    finished(queue.ended(job, result), result)


@dataclass(frozen=True, slots=True)
class RangesInProcesses:
    """Processes of this host, which end with this one."""

    pool: Workers

    @property
    def slots(self) -> int:
        """As many as there are processes."""
        return self.pool.count

    def run(self, jobs: Sequence[RangeJob], counted: Counted, finished: Finished) -> None:
        """A range that fails is not tried again: what fails on this host fails again."""
        with _counting(jobs, counted) as told:
            queue = RangeQueue(told)
            try:
                self.pool.work_off(
                    capture_range, queue.take, lambda job, result: finished(queue.ended(job, result), result)
                )
            except BaseException:
                # Nobody writes any more once this has returned.
                self.pool.stop()
                raise


@contextlib.contextmanager
def started(engine: CaptureEngine, spark: SparkSettings, workers: int) -> Iterator[RangeRunner]:
    """A runner that has ended, with everything that it started, when this is left. Raises Refused and RunFailed."""
    if engine is CaptureEngine.local:
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
def _counting(jobs: Sequence[RangeJob], counted: Counted) -> Iterator[list[RangeJob]]:
    """The jobs with counters of records and bytes, which are looked at now and then."""
    with temporary.private_folder("dump") as scratch:
        both = [Counters(Path(scratch) / name, len(jobs)) for name in ("records", "bytes")]

        def look() -> None:
            with contextlib.suppress(OSError):
                counted(both[0].done(), both[1].done())

        with now_and_then(look, _LOOK_SECONDS):
            yield [
                replace(job, counters=(both[0].counter(number), both[1].counter(number)))
                for number, job in enumerate(jobs)
            ]
