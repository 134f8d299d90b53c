"""Verifies an application: which databases, in worker processes, and what it makes a report per store of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kstate_cli import temporary
from kstate_cli.parallel.workers import Processes, counted
from kstate_cli.rocks.files import is_log, is_manifest, is_sst
from kstate_cli.statedir.find import unknown_selection
from kstate_cli.statedir.model import Application, Database
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.scan import read_application
from kstate_cli.verify.database import DatabaseJob, DatabaseReport
from kstate_cli.verify.findings import VerifyFinding
from kstate_cli.verify.report import AppReport, Gathered, store_report, task_reports
from kstate_cli.verify.worker import verify_in_worker

NOT_COVERED = (
    "filter blocks, and other meta blocks of SSTs that reading rows does not need",
    "write-ahead logs (Streams does not write them)",
    "SSTs that no MANIFEST names",
    "whether the rows are those of the changelog at the stored offset (the digest of another copy tells)",
)
"""What a good verdict does not say."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify."""

    app: Path
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    subset: tuple[int, int] = (1, 1)
    workers: int = 1
    each_sst: bool = False


class VerifyWatcher:
    """What a caller may show meanwhile."""

    def begin(self, total: int) -> None:
        """So many bytes are to be read."""

    def at(self, done: int) -> None:
        """Called now and then, from another thread."""

    def found(self, finding: VerifyFinding) -> None:
        """A finding, as soon as it is known."""


def verify_application(request: VerifyRequest, watcher: VerifyWatcher) -> AppReport:
    """Reads every database that is asked for. Raises UsageError where no store is."""
    app = read_application(request.app, workers=request.workers)
    chosen = [(task, store) for task in app.tasks for store in task.stores if _named(request, task.name, store.name)]
    if not chosen and (request.tasks or request.stores):
        raise unknown_selection(app, request.tasks, request.stores)
    part = [(task, store) for task, store in chosen if in_subset(task.name, store.name, request.subset)]
    gathered = [Gathered(task, store) for task, store in part]
    jobs = [(one, _job(app, one, d)) for one in gathered for d in one.store.databases]
    # The largest first, so that none of them is left for the end.
    jobs.sort(key=lambda job: -job[1].size)
    # Closed in any case: what it holds are processes and a folder.
    with closing(_run(request, [job for _, job in jobs], watcher)) as answers:
        for (one, job), (report, seconds) in zip(jobs, answers, strict=True):
            one.reports[job.path] = report
            one.seconds += seconds
            for finding in report.findings:
                watcher.found(finding)
    stores = tuple(store_report(one, running=bool(app.running)) for one in gathered)
    return AppReport(
        app=app.path,
        stores=stores,
        tasks=() if request.stores else task_reports(app, of_tasks=request.tasks, stores=stores),
        running=app.running,
        pid=app.pid,
        as_of=app.as_of,
        left_out=len(chosen) - len(part),
    )


def _job(app: Application, one: Gathered, database: Database) -> DatabaseJob:
    path, start = database.path, database.segment_start
    return DatabaseJob(path, Place.of(app.path, path), one.store.kind, start, _bytes(path), running=bool(app.running))


def in_subset(task: str, store: str, subset: tuple[int, int]) -> bool:
    """Whether a store is in part n of t. It always is in the same part, whatever other stores there are."""
    number, of = subset
    share = int.from_bytes(hashlib.sha256(f"{task}/{store}".encode()).digest()[:8], "big")
    return share % of == number - 1


def _named(request: VerifyRequest, task: str, store: str) -> bool:
    return (not request.tasks or task in request.tasks) and (not request.stores or store in request.stores)


def _bytes(path: Path) -> int:
    size = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if is_sst(entry.name):
                size += entry.stat(follow_symlinks=False).st_size
    return size


# --- worker processes -------------------------------------------------------------------------------------------------


def _run(
    request: VerifyRequest, jobs: Sequence[DatabaseJob], watcher: VerifyWatcher
) -> Generator[tuple[DatabaseReport, float], None, None]:
    if not jobs:
        return
    parent = temporary.in_memory(sum(_small_bytes(job.path) for job in jobs))
    with temporary.private_folder("verify", parent) as scratch:
        watcher.begin(sum(job.size for job in jobs))
        processes = max(1, min(request.workers, len(jobs)))
        with counted(scratch, len(jobs), watcher.at) as counters, Processes(processes) as workers:
            told = [
                (replace(job, each_sst=request.each_sst, counter=counters.counter(number)), scratch)
                for number, job in enumerate(jobs)
            ]
            yield from workers.map(verify_in_worker, told)


def _small_bytes(path: Path) -> int:
    """What the shadow of a database copies, about."""
    size = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if is_log(entry.name) or is_manifest(entry.name):
                size += entry.stat(follow_symlinks=False).st_size
    return size
