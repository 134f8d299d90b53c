"""``kstate verify``: select databases, read them in worker processes, and give a verdict on each store and task."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli import temporary
from kstate_cli.parallel import Processes, progress_counters
from kstate_cli.rocks.files import is_log, is_manifest, is_sst
from kstate_cli.statedir.find import unknown_selection
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import position_file, store_checkpoint
from kstate_cli.statedir.problems import Place, ProblemCode, both_places
from kstate_cli.statedir.scan import read_application
from kstate_cli.verify.database import DatabaseJob, DatabaseReport, verify_in_worker
from kstate_cli.verify.files import store_digest
from kstate_cli.verify.findings import MISSING, NOT_UNDERSTOOD, UNDECODABLE, UNREADABLE, VerifyFinding

NOT_COVERED = (
    "filter blocks and other meta blocks of SSTs, which RocksDB does not need to read rows",
    "write-ahead logs, which Streams does not write",
    "SSTs that no MANIFEST lists",
    "whether the rows match the changelog (to check this, compare the digest with another copy)",
)
"""Parts of a database that a good verdict does not cover."""
NOT_COVERED_IN_SHORT = "filter blocks, write-ahead logs, unlisted SSTs, or whether the rows match the changelog"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The selection, and how to read it."""

    app: Path
    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    subset: tuple[int, int] = (1, 1)
    workers: int = 1
    each_sst: bool = False

    def selects(self, task: str, store: str) -> bool:
        """Return True if a store is in the selection; empty sets select all."""
        return (not self.tasks or task in self.tasks) and (not self.stores or store in self.stores)


class VerifyWatcher:
    """Progress that a caller may print."""

    def begin(self, total: int) -> None:
        """Called once, with the number of bytes to read."""

    def at(self, bytes_read: int) -> None:
        """Called now and then, from another thread."""

    def on_finding(self, finding: VerifyFinding) -> None:
        """Called for each finding of a database, as soon as it was read."""


def verify_application(request: VerifyRequest, watcher: VerifyWatcher) -> AppReport:
    """Read every database of the selection, and return the result. Raises UsageError for an unknown task or store."""
    app = read_application(request.app, workers=request.workers)
    selected = [(task, store) for task in app.tasks for store in task.stores if request.selects(task.name, store.name)]
    # An empty application is no error. But a misspelt name would otherwise give a good result for nothing.
    if not selected and (request.tasks or request.stores):
        raise unknown_selection(app, request.tasks, request.stores)
    # Stores are assigned to subsets by a hash of their names. So each is read once in t runs, even if stores come and
    # go.
    part = [(task, store) for task, store in selected if in_subset(task.name, store.name, request.subset)]
    gathered = [Gathered(task, store) for task, store in part]
    reports = _store_reports(app, gathered, request, watcher)
    return AppReport(
        app=app.path,
        stores=reports,
        tasks=() if request.stores else task_reports(app, of_tasks=request.tasks, stores=reports),
        running=app.running,
        pid=app.pid,
        as_of=app.as_of,
        left_out=len(selected) - len(part),
    )


def _store_reports(
    app: Application, gathered: Sequence[Gathered], request: VerifyRequest, watcher: VerifyWatcher
) -> tuple[StoreReport, ...]:
    """Read the databases of these stores in worker processes, and return the result of each store."""
    jobs = [(store, _job(app, store, database)) for store in gathered for database in store.store.databases]
    # The largest database comes first, because the one that ends last determines the total time.
    jobs.sort(key=lambda job: -job[1].size)
    # Closed even after an error, because the generator has worker processes and a temporary folder.
    with closing(_run(request, [job for _, job in jobs], watcher)) as answers:
        for (store, job), (report, seconds) in zip(jobs, answers, strict=True):
            # Results come in the order of the sizes, so they are assigned to their stores by path.
            store.reports[job.path] = report
            store.seconds += seconds
            for finding in report.findings:
                watcher.on_finding(finding)
    return tuple(store_report(store, running=bool(app.running)) for store in gathered)


def _job(app: Application, store: Gathered, database: Database) -> DatabaseJob:
    return DatabaseJob(
        database.path,
        Place.of(app.path, database.path),
        store.store.kind,
        database.segment_start,
        _bytes(database.path),
        running=bool(app.running),
    )


def in_subset(task: str, store: str, subset: tuple[int, int]) -> bool:
    """Return True if a store is in part n of t. The part of a store does not depend on other stores."""
    number, of = subset
    share = int.from_bytes(hashlib.sha256(f"{task}/{store}".encode()).digest()[:8], "big")
    return share % of == number - 1


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
    """Yield the report on each database, and the seconds that it took, in the order of ``jobs``."""
    if not jobs:
        return
    # A shadow (private copy) contains only small files. In memory, they do not slow down the disk that is being read.
    parent = temporary.in_memory(sum(_small_bytes(job.path) for job in jobs))
    with temporary.private_folder("verify", parent) as scratch:
        watcher.begin(sum(job.size for job in jobs))
        # There are no more processes than jobs, because each one takes time to import RocksDB.
        processes = max(1, min(request.workers, len(jobs)))
        # The counters of the progress are in a file, because workers share no memory with this process.
        with progress_counters(scratch, len(jobs), watcher.at) as counters, Processes(processes) as workers:
            arguments = [
                (replace(job, each_sst=request.each_sst, counter=counters.counter(number)), scratch)
                for number, job in enumerate(jobs)
            ]
            yield from workers.map(verify_in_worker, arguments)


def _small_bytes(path: Path) -> int:
    """Return an estimate of the bytes that the shadow of a database copies."""
    size = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if is_log(entry.name) or is_manifest(entry.name):
                size += entry.stat(follow_symlinks=False).st_size
    return size


OUTSIDE_TASKS: Final = "-"
"""Stands for a task where what is found lies in none."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The verdict on one store of one task; ``store`` is None for the files of the task itself."""

    task: str
    store: str | None
    kind: str | None
    findings: tuple[VerifyFinding, ...]
    remarks: tuple[str, ...] = ()
    kind_certain: bool = False
    databases: int = 0
    rows: int = 0
    content_bytes: int = 0
    """Bytes of keys and values."""
    digest: str | None = None
    seconds: float = 0.0
    doubt: bool = False
    """The files do not show whether rows are missing silently."""


@dataclass(frozen=True, slots=True)
class AppReport:
    """The verdict on an application."""

    app: Path
    stores: tuple[StoreReport, ...]
    tasks: tuple[StoreReport, ...]
    """Of tasks with findings of their own."""
    running: bool | None
    pid: int | None
    as_of: str
    left_out: int
    """Stores that are not in this subset."""

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Stores of which rows may be missing: ``task/store``."""
        return tuple(f"{store.task}/{store.store}" for store in self.stores if store.doubt)

    @property
    def findings(self) -> tuple[VerifyFinding, ...]:
        """All of them."""
        return tuple(finding for part in (*self.tasks, *self.stores) for finding in part.findings)


@dataclass(slots=True)
class Gathered:
    """A store whose databases come in one by one."""

    task: Task
    store: Store
    reports: dict[Path, DatabaseReport] = field(default_factory=dict)
    seconds: float = 0.0


def store_report(gathered: Gathered, *, running: bool) -> StoreReport:
    """Return the result of a store whose databases have all been read.

    ``running``: a running application creates SSTs before the MANIFEST names them, so an SST without a name is no
    doubt.
    """
    task, store = gathered.task, gathered.store
    reports = [gathered.reports[database.path] for database in store.databases]
    findings = [finding for report in reports for finding in report.findings]
    # With a malformed offset file, a store is as unusable as with a damaged block.
    findings += [finding for finding in _of_task(task) if _belongs(finding, task, store)]
    digest = None
    # Only a store without findings gets a digest: two stores that have lost the same block would have equal ones.
    if not findings:
        digest = store_digest((d.segment_start, r.digest) for d, r in zip(store.databases, reports, strict=True))
    return StoreReport(
        task=task.name,
        store=store.name,
        kind=store.kind.name,
        kind_certain=store.kind.certain,
        findings=tuple(findings),
        remarks=tuple(remark for report in reports for remark in report.remarks),
        databases=sum(not report.dropped for report in reports),
        rows=sum(report.rows for report in reports),
        content_bytes=sum(report.content_bytes for report in reports),
        digest=digest,
        seconds=round(gathered.seconds, 3),
        doubt=store.in_doubt and not running,
    )


def task_reports(
    app: Application, *, of_tasks: frozenset[str], stores: Sequence[StoreReport]
) -> tuple[StoreReport, ...]:
    """Return the findings that do not belong to a reported store, by task. An empty ``of_tasks`` means all tasks."""
    reported = {finding for store in stores for finding in store.findings}
    by_task = {task.name: _findings_of_no_store(task, reported) for task in app.tasks}
    reports = [
        StoreReport(name, None, None, findings)
        for name, findings in by_task.items()
        if findings and (not of_tasks or name in of_tasks)
    ]
    if app.problems and not of_tasks:
        foreign = tuple(VerifyFinding(NOT_UNDERSTOOD, problem.place, problem.description) for problem in app.problems)
        reports.append(StoreReport(OUTSIDE_TASKS, None, None, foreign))
    return tuple(reports)


def _findings_of_no_store(task: Task, reported: set[VerifyFinding]) -> tuple[VerifyFinding, ...]:
    return tuple(
        finding
        for finding in _of_task(task)
        if finding not in reported and not any(_belongs(finding, task, store) for store in task.stores)
    )


def _of_task(task: Task) -> list[VerifyFinding]:
    """Return the findings about files of a task outside of its databases, such as offset files."""
    offset_files = [task.checkpoint, *task.store_files.values(), *task.position_files.values()]
    malformed = {task.place / file.path.name for file in offset_files if file is not None and file.content is None}
    findings = []
    for problem in task.problems:
        if not problem.fatal:
            continue
        # Checked first: if the disk does not answer, nothing is known about the bytes, so they are not reported as
        # damaged.
        if problem.code is ProblemCode.UNREADABLE:
            code = UNREADABLE
        elif problem.place in malformed:
            code = UNDECODABLE
        elif problem.code is ProblemCode.NO_DATABASE:
            code = MISSING
        else:
            code = NOT_UNDERSTOOD
        findings.append(VerifyFinding(code, problem.place, problem.description))
    return findings


def _belongs(finding: VerifyFinding, task: Task, store: Store) -> bool:
    """Return True if a finding is about a store, or about its own offset file."""
    own = {task.place / position_file(store.name), task.place / store_checkpoint(store.name)}
    return finding.place in own or any(map(finding.place.within, both_places(task.name, store.name)))
