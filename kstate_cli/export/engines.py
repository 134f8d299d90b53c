"""Who writes the parts: this process, worker processes, or Spark on this host. All of them write the same files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from kstate_cli import temporary
from kstate_cli.export.part import PartJob, PartResult, write_in_worker, write_part
from kstate_cli.parallel.workers import Processes, counted

PROCESSES_BYTES: Final = 32 << 20
"""From so many bytes of SSTs on, processes gain more than their start costs."""
SPARK_BYTES: Final = 8 << 30
"""From so many on, ``auto`` starts Spark, where there is a Java."""


class ExportEngine(str, Enum):
    """``--engine``."""

    auto = "auto"
    local = "local"
    spark = "spark"


class ExportWatcher:
    """What a caller may show meanwhile."""

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """So many rows are expected, by an estimate."""

    def at(self, rows: int) -> None:
        """So many are written. Called now and then, from another thread."""


def chosen(engine: ExportEngine, size: int, parts: int, workers: int) -> str:
    """``spark``, ``processes`` or ``one process`` for so many bytes of SSTs in so many parts."""
    if engine is ExportEngine.spark or (engine is ExportEngine.auto and size >= SPARK_BYTES and _java()):
        return "spark"
    return "processes" if min(parts, workers) > 1 and size >= PROCESSES_BYTES else "one process"


def write_parts(
    jobs: Sequence[PartJob], rows: int, engine: str, workers: int, watcher: ExportWatcher
) -> tuple[PartResult, ...]:
    """Writes all parts; ``engine`` is what :func:`chosen` gave. Raises what ``write_part`` raises, and RunFailed."""
    with temporary.private_folder("export") as scratch:
        watcher.begin(rows, len(jobs), engine)
        with counted(scratch, len(jobs), watcher.at) as counters:
            told = [replace(job, counter=counters.counter(number), scratch=scratch) for number, job in enumerate(jobs)]
            if engine == "spark":
                return _on_spark(told, workers)
            if engine == "processes":
                return _in_processes(told, workers)
            return tuple(map(write_part, told))


def _in_processes(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    with Processes(min(workers, len(jobs))) as pool:
        return tuple(pool.map(write_in_worker, jobs))


def _on_spark(jobs: Sequence[PartJob], workers: int) -> tuple[PartResult, ...]:
    from kstate_cli.spark.context import SparkSettings, run_tasks, spark_context

    # The databases are on this host, so the tasks are.
    with spark_context(SparkSettings(master=f"local[{workers},4]"), name="kstate export") as context:
        return tuple(run_tasks(context, write_in_worker, jobs, lambda: None))


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which("java") or (home and os.access(f"{home}/bin/java", os.X_OK)))
