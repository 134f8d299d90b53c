"""``kstate restore`` from the paths to the result: lock, take over, read, plan, make runs, take them in, switch.

The states of KIP-728 and KIP-696 go to the journal as events ``state``; the engine's own events say what became of the
directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli.change.attempts import STATE_EVENT, refuse_after_error
from kstate_cli.change.engine import Result, RunOptions, execute
from kstate_cli.change.journal import RUNS, Run
from kstate_cli.change.lockfile import LOCK_NAME, application_lock, in_use
from kstate_cli.change.owner import own_like
from kstate_cli.change.place import check_owner, check_place, check_room
from kstate_cli.change.plan import Step
from kstate_cli.change.recover import recover, unfinished_runs
from kstate_cli.dump.model import Dump, PartitionDump
from kstate_cli.dump.open import read_dump
from kstate_cli.dump.place import absolute
from kstate_cli.errors import Interrupted, KstateError, Refused, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.overview import SLICES_EVENT, slices_of_stores
from kstate_cli.restore.planner import plan_restore
from kstate_cli.restore.prepare import (
    Slots,
    StoreReport,
    make_jobs,
    refuse_distant_bases,
    slot_memory,
    to_steps,
)
from kstate_cli.restore.resume import TakenOver, identified, take_over
from kstate_cli.restore.spark import SparkSettings, run_jobs, slots_of, spark_session
from kstate_cli.restore.staging import DONE, Staging
from kstate_cli.restore.states import RestoreState, StateMachine
from kstate_cli.restore.work import RestoreOptions, RestorePlan
from kstate_cli.spec.combine import resolve_spec
from kstate_cli.spec.draft import SpecDraft
from kstate_cli.spec.model import Spec
from kstate_cli.spec.topology import TopologyText
from kstate_cli.statedir.find import find_application
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.scan import read_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    app: Path
    dump: str
    options: RestoreOptions
    run: RunOptions
    spark: SparkSettings
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
    wait: float = 0.0
    lock_is_shared: bool = False
    dry_run: bool = False
    after_error: bool = False
    """An earlier run ended in ERROR, and somebody has looked at it."""


@dataclass(slots=True)
class Outcome:
    """The plan, and what became of it."""

    plan: RestorePlan
    result: Result | None = None
    reports: list[StoreReport] = field(default_factory=list)
    recovered: tuple[str, ...] = ()


class Watcher:
    """What a run tells while it goes on; does nothing by itself."""

    def phase(self, name: str, path: str, size: int) -> None:
        """The engine's phases, and ``spark``."""

    def state(self, before: RestoreState, after: RestoreState) -> None:
        """A change of state."""

    def resumed(self, predecessor: str, slices: int, total: int) -> None:
        """So many of all slices were finished by an earlier run, and are taken over."""

    def slices(self, done: int, total: int, records: int, all_records: int, size: int) -> None:
        """Slices that are finished, and what is in them."""


def application_path(path: Path) -> Path:
    """As ``find_application``, but a directory that is lost may be named: it is made anew.

    Raises UsageError unless its parent is there.
    """
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        return find_application(path)
    absolute = Path(os.path.realpath(path.parent)) / path.name
    if not absolute.parent.is_dir():
        raise UsageError(f"{absolute.parent} does not exist", hint="give state.dir/application.id")
    return absolute


def restore(request: Request, *, on_plan: Callable[[RestorePlan], None], watcher: Watcher) -> Outcome:
    """Restores, or only plans. Raises InUse, Refused, RunFailed and RunHalfway."""
    dump = read_dump(request.dump, complete=request.complete, committed_only=request.committed_only)
    if request.dry_run:
        plan = _plan(request, dump, watcher)
        on_plan(plan)
        unfinished = [run.name for run in unfinished_runs(request.app)]
        return Outcome(plan, recovered=tuple(f"run {name} is unfinished" for name in unfinished))
    check_place(request.app, lock_is_shared=request.lock_is_shared)
    if not (request.app / LOCK_NAME).exists():
        # Taking the lock would create the file: what is refused, or done already, must not leave even that.
        plan = _plan(request, dump, watcher)
        if plan.change.empty:
            on_plan(plan)
            return Outcome(plan)
    made = None if request.app.exists() else _make_application(request.app)
    with application_lock(request.app, request.wait):
        try:
            recovered = tuple(recover(request.app))
            plan = _plan(request, dump, watcher)
            on_plan(plan)
            outcome = Outcome(plan, recovered=recovered)
            if not plan.change.empty:
                refuse_after_error(request.app, after_error=request.after_error)
                _Restoration(request, dump, plan, outcome, watcher).run()
            return outcome
        except BaseException:
            if made is not None:
                _unmake_application(request.app, made)
            raise


def _make_application(app: Path) -> int:
    """An empty application directory as ``StateDirectory`` makes it: rwxr-x---, of the state.dir's owner.

    Returns its inode: after a switch another directory has its name.
    """
    app.mkdir(mode=0o750)
    own_like(app, app.parent.stat())
    return app.stat().st_ino


def _unmake_application(app: Path, made: int) -> None:
    """Removes the directory that was made, if it is still that one and nobody has put anything into it."""
    with contextlib.suppress(OSError):
        if app.stat().st_ino == made and set(os.listdir(app)) <= {LOCK_NAME}:
            (app / LOCK_NAME).unlink(missing_ok=True)
            app.rmdir()


def _plan(request: Request, dump: Dump, watcher: Watcher) -> RestorePlan:
    found = _read(request, watcher)
    only = request.options.stores or None
    spec = resolve_spec(found, request.spec, request.topology, only=only, named=request.spec_name)
    if found is None or not found.tasks:
        _check_name(request.app, spec)
    plan = plan_restore(request.app, found, spec, dump, request.options)
    if not plan.change.empty and request.app.exists():
        check_place(request.app, lock_is_shared=request.lock_is_shared)
        if not request.run.copy_ssts:
            check_owner(request.app)
        check_room(plan.change, request.run.workers, copy_ssts=request.run.copy_ssts)
    return plan


def _check_name(app: Path, spec: Spec) -> None:
    """Of a directory that is made anew only the name says whose it is. Raises Refused."""
    if spec.application is not None and spec.application != app.name:
        raise Refused(
            f"{app} would be the directory of application {app.name}, and the spec is about {spec.application}",
            hint=f"give {app.parent / spec.application} or {app / spec.application}",
        )
    changelogs = [store.changelog for store in spec.stores if store.changelog and not store.source_topic]
    if spec.application is None and not any(topic.startswith(f"{app.name}-") for topic in changelogs):
        raise Refused(
            f"nothing says that {app.name} is the application.id: no changelog begins with it",
            hint="give state.dir/application.id, or add application = … to the spec",
        )


def _read(request: Request, watcher: Watcher) -> Application | None:
    if not request.app.exists():
        return None
    app = read_application(
        request.app, workers=request.run.workers, on_store=lambda name: watcher.phase("read", name, 0)
    )
    if app.running:
        raise in_use(app.path, app.pid)
    return app


class _Restoration:
    """One run, from CREATED to a terminal state."""

    def __init__(self, request: Request, dump: Dump, plan: RestorePlan, outcome: Outcome, watcher: Watcher) -> None:
        self._request, self._dump, self._plan, self._outcome, self._watcher = request, dump, plan, outcome, watcher
        self._machine = StateMachine()
        self._journal: Run | None = None
        self._staging: Staging | None = None
        self._ordered: dict[TopicPartition, Dump] = {}
        self._machine.listen(self._record)
        self._machine.listen(watcher.state)

    def run(self) -> None:
        """Carries the plan out. Whatever fails ends in ERROR, a signal in NOT_RUNNING; both are in the journal."""
        try:
            self._outcome.result = execute(
                self._plan.change, self._request.run, self._watcher.phase, prepare=self._prepare
            )
        except (Interrupted, KeyboardInterrupt):
            self._machine.close()
            raise
        except BaseException as error:
            self._fail()
            if isinstance(error, KstateError) and not isinstance(error, Refused):
                error.hint = f"{error.hint or 'mend the cause'} (with --after-error)"
            raise
        finally:
            if self._staging is not None:
                self._staging.remove()
        self._machine.to(RestoreState.RUNNING)
        self._machine.close()

    def _fail(self) -> None:
        if self._machine.state is not RestoreState.PENDING_ERROR:
            self._machine.to(RestoreState.PENDING_ERROR)
        self._machine.to(RestoreState.ERROR)

    def _record(self, before: RestoreState, after: RestoreState) -> None:
        # What became of the directory the engine has recorded; the state must not turn a good run into a failed one.
        with contextlib.suppress(OSError):
            if self._journal is not None and self._journal.path.is_dir():
                self._journal.write(STATE_EVENT, before=before.value, state=after.value)

    def _prepare(self, run: Run) -> tuple[Step, ...]:
        self._journal = run
        self._machine.to(RestoreState.REBALANCING)
        request, plan = self._request, self._plan
        folder = run.path / RUNS
        folder.mkdir()
        name = f"{request.app.name}-{run.name}"
        staging = Staging(f"{absolute(request.staging).rstrip('/')}/{name}" if request.staging else str(folder))
        self._staging = staging if request.staging else None
        try:
            self._watcher.phase("spark", request.spark.effective_master or "spark-submit", 0)
            with spark_session(request.spark) as session:
                slots = slots_of(session)
                refuse_distant_bases(plan.work, request.spark)
                jobs = make_jobs(
                    plan.work,
                    self._dump,
                    request.options.release,
                    staging.target,
                    Slots(slots, slot_memory(request.memory, slots)),
                    request.app,
                    lambda dump: self._in_order(session, dump, staging),
                )
                jobs = identified(jobs)
                run.write(SLICES_EVENT, stores=slices_of_stores(jobs), staging=staging.target)
                taken = take_over(request.app, run, folder, jobs) if self._staging is None else TakenOver(None)
                if taken.predecessor is not None:
                    self._watcher.resumed(taken.predecessor, len(taken.results), len(jobs))
                self._machine.to(RestoreState.RESTORING)
                finished = {(one.task, one.store, one.number) for one in taken.results}
                left = [job for job in jobs if (job.task, job.store, job.number) not in finished]
                results = run_jobs(session, left, lambda: self._tell(staging, jobs)) if left else []
                results += taken.results
            self._tell(staging, jobs)
            steps, self._outcome.reports = to_steps(
                plan.change.steps, plan.work, results, request.options.release, staging, folder, request.app
            )
        except BaseException as error:
            if isinstance(error, (Interrupted, KeyboardInterrupt)) and self._staging is None:
                staging.keep_finished()
                raise
            if not isinstance(error, (Interrupted, KeyboardInterrupt)):
                self._machine.to(RestoreState.PENDING_ERROR)
            staging.remove()
            raise
        return steps

    def _in_order(self, session: SparkSession, dump: PartitionDump, staging: Staging) -> tuple[PartitionDump, str]:
        from kstate_cli.dump.repartition import repartition

        if dump.key not in self._ordered:
            target = f"{staging.target}/sorted-{dump.topic}-{dump.partition}"
            self._watcher.phase("sort", str(dump.key), 0)
            self._ordered[dump.key] = repartition(session, self._dump, [dump.key], target)
        ordered = self._ordered[dump.key]
        return ordered.partitions[dump.key], ordered.uri

    def _tell(self, staging: Staging, jobs: Sequence[SliceJob]) -> None:
        done = {(note["task"], note["store"], note["number"]): note for note in staging.notes(DONE)}
        self._watcher.slices(
            len(done),
            len(jobs),
            sum(note["records"] for note in done.values()),
            sum(job.slice.rows for job in jobs),
            sum(note["data_bytes"] for note in done.values()),
        )
