"""From databases that come in one by one to a verdict on each store and each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.names import position_file, store_checkpoint
from kstate_cli.statedir.places import both_places
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.verify.database import DatabaseReport
from kstate_cli.verify.digest import store_digest
from kstate_cli.verify.findings import MISSING, NOT_UNDERSTOOD, UNDECODABLE, UNREADABLE, VerifyFinding

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
    """Rows may be missing without a word, as far as the files tell: whether they are nobody can."""


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
        return tuple(f"{one.task}/{one.store}" for one in self.stores if one.doubt)

    @property
    def findings(self) -> tuple[VerifyFinding, ...]:
        """All of them."""
        return tuple(finding for one in (*self.tasks, *self.stores) for finding in one.findings)


@dataclass(slots=True)
class Gathered:
    """A store whose databases come in one by one."""

    task: Task
    store: Store
    reports: dict[Path, DatabaseReport] = field(default_factory=dict)
    seconds: float = 0.0


def store_report(one: Gathered, *, running: bool) -> StoreReport:
    """The verdict on a store whose databases have all come in.

    Beside a ``running`` application SSTs come before the MANIFEST names them, and go after.
    """
    task, store = one.task, one.store
    findings = [finding for d in store.databases for finding in one.reports[d.path].findings]
    findings += [finding for finding in _of_task(task) if _belongs(finding, task, store)]
    return StoreReport(
        task=task.name,
        store=store.name,
        kind=store.kind.name,
        kind_certain=store.kind.certain,
        findings=tuple(findings),
        remarks=tuple(remark for d in store.databases for remark in one.reports[d.path].remarks),
        databases=sum(not report.gone for report in one.reports.values()),
        rows=sum(report.rows for report in one.reports.values()),
        content_bytes=sum(report.content_bytes for report in one.reports.values()),
        digest=None
        if findings
        else store_digest((d.segment_start, one.reports[d.path].digest) for d in store.databases),
        seconds=round(one.seconds, 3),
        doubt=one.store.in_doubt and not running,
    )


def task_reports(
    app: Application, *, of_tasks: frozenset[str], stores: Sequence[StoreReport]
) -> tuple[StoreReport, ...]:
    """Findings that belong to no store that is reported."""
    reported = {finding for one in stores for finding in one.findings}
    reports = []
    for task in app.tasks:
        if not of_tasks or task.name in of_tasks:
            own = tuple(
                finding
                for finding in _of_task(task)
                if finding not in reported and not any(_belongs(finding, task, store) for store in task.stores)
            )
            if own:
                reports.append(StoreReport(task.name, None, None, own))
    if app.problems and not of_tasks:
        foreign = tuple(VerifyFinding(NOT_UNDERSTOOD, one.place, one.description) for one in app.problems)
        reports.append(StoreReport(OUTSIDE_TASKS, None, None, foreign))
    return tuple(reports)


def _of_task(task: Task) -> list[VerifyFinding]:
    """What is wrong in a task beside its databases: offset files above all."""
    offset_files = [task.checkpoint, *task.store_files.values(), *task.position_files.values()]
    malformed = {task.place / file.path.name for file in offset_files if file is not None and file.content is None}
    findings = []
    for problem in task.problems:
        if not problem.fatal:
            continue
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
    """Whether something in a task is part of a store, or its own offset file."""
    own = {task.place / position_file(store.name), task.place / store_checkpoint(store.name)}
    return finding.place in own or any(map(finding.place.within, both_places(task.name, store.name)))
