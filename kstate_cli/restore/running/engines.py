"""Who carries the slices out: Spark, processes of this host, or this process itself.

The tasks are the same, and so are the files they make.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kstate_cli import option
from kstate_cli.change.commits_made import unchanged
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.errors import KstateError, Refused, RunFailed
from kstate_cli.parallel import Processes, Workers
from kstate_cli.restore.jobs import SliceJob, SliceResult
from kstate_cli.rocks.errors import RocksError
from kstate_cli.spark.context import SparkSettings, ask, run_tasks, slots_of, spark_context
from kstate_cli.spark.engine import EngineChoice, check_java
from kstate_cli.texts import first_line

if TYPE_CHECKING:
    from pyspark import SparkContext


OF_SLICES: Final = (
    "kstate_cli.restore.sorting.sorted_files",
    "numpy.ma",
    "pyarrow.compute",
    "pyarrow.fs",
    "pyarrow.parquet",
    "rocksdict",
)
"""What most slices need: imported while Spark starts, here and by the parent of its workers, which are forks of it.
Numpy and Arrow are made for a fork after they were imported; no database is opened before."""


class Runner(Protocol):
    """What carries out the slices of one restoration, as long as it is open."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""

    def run(self, jobs: Sequence[SliceJob], on_poll: Callable[[], None]) -> list[SliceResult]:
        """Return the results in the order of the jobs; ``on_poll`` is called now and then, in this thread.

        Raises Refused for what a slice refuses; RunFailed, OSError or RocksError for a slice that fails.
        """

    def in_order(self, dump: Dump, partition: PartitionDump, target: str) -> Dump:
        """Write a dump to ``target`` with one partition sorted; return it. Raises Refused, RunFailed and DumpError."""


@dataclass(frozen=True, slots=True)
class OnSpark:
    """One Spark task per slice."""

    context: SparkContext
    slots: int

    def run(self, jobs: Sequence[SliceJob], on_poll: Callable[[], None]) -> list[SliceResult]:
        """Run the jobs as Spark tasks: a refusal of a slice is raised at once, Spark retries any other failure."""
        # Imported here: numpy, Arrow and rocksdict are slow to import, and a plan without work sorts nothing.
        from kstate_cli.restore.sorting.sorted_files import build_sorted_files

        return run_tasks(self.context, build_sorted_files, jobs, on_poll, refusals=Refused)

    def in_order(self, dump: Dump, partition: PartitionDump, target: str) -> Dump:
        """Sort the partition in one shuffle."""
        from kstate_cli.dump_reader.slices import repartition

        return ask(lambda: repartition(self.context, dump, [partition.key], target))


@dataclass(frozen=True, slots=True)
class OnThisHost:
    """Without Java, and without the seconds that Spark takes to start: in this process, one slice after the other.

    A slice that fails is not tried again: what fails on this host fails again.
    """

    slots: int = 1
    writes: bool = True
    """False for a dry run: slices are read, and no file is made of them."""
    sorter: SparkSettings | None = field(default=None, kw_only=True)
    """Starts Spark for the one thing that only Spark does here; None where the user wants none."""

    def run(self, jobs: Sequence[SliceJob], on_poll: Callable[[], None]) -> list[SliceResult]:
        """Run the jobs one after another; ``on_poll`` is called after each."""
        results = []
        for job in jobs:
            results.append(self._make(job))
            on_poll()
        return results

    @property
    def _make(self) -> Callable[[SliceJob], SliceResult]:
        # Functions of this module, not methods: a job goes to another process by the name of its function.
        if self.writes:
            return _sorted_slice
        return _read

    def in_order(self, dump: Dump, partition: PartitionDump, target: str) -> Dump:
        """Sort by a shuffle, which only Spark has: a Spark is started for this alone, and ends with it."""
        if self.sorter is None:
            raise Refused(
                (
                    f"the rows of {partition.key} are not sorted across the files of {dump.uri}, and only Spark can "
                    "sort them"
                ),
                hint=f"omit {option.ENGINE} local or pass a larger {option.MEMORY}",
            )
        # Java is checked before Spark is started, whose own error for a missing Java names no remedy.
        check_java()
        with spark_context(self.sorter, modules=OF_SLICES) as context:
            return OnSpark(context, slots_of(context)).in_order(dump, partition, target)


@dataclass(frozen=True, slots=True)
class InProcesses(OnThisHost):
    """In as many processes of this host as there are slots, which end with this one, however it ends."""

    pool: Workers = field(kw_only=True)

    def run(self, jobs: Sequence[SliceJob], on_poll: Callable[[], None]) -> list[SliceResult]:
        """Run the jobs in the processes; ``on_poll`` is called as results complete. HostError if a process died."""
        results = []
        try:
            for result in self.pool.map(self._make, jobs):
                results.append(result)
                on_poll()
        # BaseException, since a signal must end the processes as well.
        except BaseException:
            # Then no process writes any more, and the caller may remove the files.
            self.pool.stop()
            raise
        return results


def _sorted_slice(job: SliceJob) -> SliceResult:
    from kstate_cli.restore.sorting.sorted_files import build_sorted_files

    return _result_of(build_sorted_files, job)


def _read(job: SliceJob) -> SliceResult:
    from kstate_cli.restore.sorting.sorted_files import read_slice_only

    return _result_of(read_slice_only, job)


def _result_of(function: Callable[[SliceJob], SliceResult], job: SliceJob) -> SliceResult:
    """Return the result of a job. Any error becomes one with a message and an exit code that names the store."""
    try:
        return function(job)
    except (KstateError, OSError, RocksError):
        # These errors have a message and an exit code of their own.
        raise
    except Exception as error:
        # Any other error, such as one of Arrow, would end in a traceback that names no store.
        raise RunFailed(
            f"kstate cannot write the sorted files of {job.title}: {type(error).__name__}: {first_line(error)}",
            hint=unchanged("fix the cause, then run the command again"),
        ) from error


@contextlib.contextmanager
def started(choice: EngineChoice, spark: SparkSettings, slots: int, *, writes: bool = True) -> Iterator[Runner]:
    """Yield a runner; the runner and all that it started have ended afterwards. Raises RunFailed.

    ``slots`` is the number of slices at once, for engines that do not decide that themselves. Without ``writes`` this
    host runs the slices, and only reads them.
    """
    if choice.is_spark:
        # The context is left when all slices are done. That stops the JVM and all workers, whose memory is free then.
        with spark_context(spark, modules=OF_SLICES) as context:
            yield OnSpark(context, slots_of(context))
        return
    sorter = None
    if choice.is_automatic:
        # A user who chose local processes forbids Spark even for a sort.
        sorter = spark
    if slots == 1:
        yield OnThisHost(writes=writes, sorter=sorter)
        return
    with Processes(slots) as pool:
        yield InProcesses(slots, writes, pool=pool, sorter=sorter)
