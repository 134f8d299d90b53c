"""Run ``kstate restore`` from its paths to its result, once or in rounds (``--follow``).

A restoration follows the course of every change (``change.course``). One signal ends it, and kstate closes completely
whatever it has begun to close.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, Protocol

from kstate_cli.change.course import Course, follow
from kstate_cli.change.earlier_runs import refuse_after_error
from kstate_cli.change.engine import execute
from kstate_cli.change.standby import refuse_no_standby
from kstate_cli.dump_reader.growing import render
from kstate_cli.dump_reader.growing_source import newest_manifest
from kstate_cli.dump_reader.location import open_location, uri_text
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.verification import refuse_damaged
from kstate_cli.errors import Interrupted, KstateError, Refused, warn_before
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.restore.planning.plan import RestorePlan
from kstate_cli.restore.planning.planner import plan_restore
from kstate_cli.restore.running.dry_run import check_rows
from kstate_cli.restore.running.restoration import (
    Foundation,
    Restoration,
    RestoreOutcome,
    RestoreRequest,
    RestoreWatcher,
    interrupted_hint,
)
from kstate_cli.restore.running.states import StateMachine, Stopwatch
from kstate_cli.restore.running.steps import refuse_distant_bases
from kstate_cli.restore.sorting.memory import SMALL_BYTES, slot_memory
from kstate_cli.restore.staging_area import check_area
from kstate_cli.signals import ENDING
from kstate_cli.spark.engine import Engine, EngineChoice, check_java
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.draft import Spec
from kstate_cli.statedir.entries import refuse_special
from kstate_cli.statedir.model import Application
from kstate_cli.texts import command

_ROWS_NOT_READ: Final = (
    "kstate has not read the rows of the dump (--no-verify-dump), so the plan does not consider damage within "
    "its files, or rows that do not match their stores"
)


class Larger(Protocol):
    """A change of another command, of which a restoration is a part: one plan, one run, one exchange."""

    def plan(self, request: RestoreRequest, dump: Dump, application: Application | None) -> RestorePlan:
        """Plan the whole change; without work if nothing is to be restored. Raises Refused and UsageError."""

    def last_word(self) -> None:
        """Do what must be done under the lock before anything is staged."""

    def foundation(self) -> Foundation | None:
        """Return the stores of another source that the last plan restores; None if there are none."""


def restore(
    request: RestoreRequest,
    *,
    on_plan: Callable[[RestorePlan], None],
    watcher: RestoreWatcher,
    state: StateMachine | None = None,
    larger: Larger | None = None,
) -> RestoreOutcome:
    """Restore, or only plan. Raises InUse, Refused, RunFailed and RunHalfway; Interrupted after a signal.

    ``state`` belongs to several rounds, and its owner listens to it: it stays RUNNING, or unchanged if there is nothing
    to do. ``larger``: the change that the restoration is a part of.
    """
    with first_signal_only():
        try:
            return _restore(request, on_plan, watcher, state, larger)
        except Interrupted as error:
            error.hint = error.hint or interrupted_hint()
            raise


def _restore(
    request: RestoreRequest,
    on_plan: Callable[[RestorePlan], None],
    watcher: RestoreWatcher,
    state: StateMachine | None,
    larger: Larger | None,
) -> RestoreOutcome:
    app = request.terms.app
    # Before the dump is read: that may take minutes.
    refuse_special(app)
    watch = Stopwatch()
    dump = read_dump(
        request.dump,
        complete=request.complete,
        committed_only=request.committed_only,
        full_dump=request.full_dump,
        in_part=request.options.selects and not request.verify_dump,
    )
    if request.verify_dump:
        refuse_damaged(dump)
    # Once, before the plan: what the broker states is part of the snapshot, so that the plan printed is the plan that
    # runs.
    if request.ask is not None:
        facts = request.ask({key.topic for key in dump.partitions})
        request = replace(request, options=replace(request.options, facts=facts))

    def carry_out(plan: RestorePlan) -> RestoreOutcome:
        # Under the lock: another restoration may have ended in ERROR since this command began.
        refuse_after_error(app, after_error=request.after_error)
        outcome = RestoreOutcome(plan, engine_for(request, plan))
        # The larger change has a last word under the lock, too, before anything is staged.
        foundation = None
        if larger is not None:
            larger.last_word()
            foundation = larger.foundation()
        if not plan.work:
            prepare = None
            if foundation is not None:
                prepare = foundation.prepare
            outcome.result = execute(plan.change, request.terms.run, watcher.phase, prepare=prepare)
            return outcome
        by_size = replace(request, engine=outcome.engine, foundation=foundation)
        of_rounds, own = state, StateMachine()
        # Rounds have one machine, whose owner listens; a single restoration has one of its own.
        own.listen(watcher.state)
        Restoration(by_size, dump, outcome, watcher, of_rounds or own, watch).run(close=of_rounds is None)
        return outcome

    is_shown = False

    def show(plan: RestorePlan) -> None:
        nonlocal is_shown
        # Before the plan is printed: a dry run refuses for what it reads, and notes what it did not read.
        plan = _with_what_was_read(request, plan, dump, watcher)
        is_shown = True
        on_plan(plan)

    course = Course(
        plan=lambda application: _plan(request, dump, application, larger),
        on_plan=show,
        carry_out=carry_out,
        tell=watcher.recovered,
        progress=watcher.phase,
        workers=request.terms.run.workers,
    )
    with _skipped_files_first(dump, lambda: is_shown):
        plan, outcome = follow(course, request.terms)
    return outcome or RestoreOutcome(plan, engine_for(request, plan))


@contextmanager
def _skipped_files_first(dump: Dump, is_shown: Callable[[], bool]) -> Iterator[None]:
    """Print the warnings of the dump before a refusal that comes before the plan, which has them too."""
    try:
        yield
    except KstateError as error:
        if not is_shown():
            for text in (*dump.warnings, *dump.hidden):
                warn_before(error, text)
        raise


def _plan(request: RestoreRequest, dump: Dump, application: Application | None, larger: Larger | None) -> RestorePlan:
    if larger is not None:
        plan = larger.plan(request, dump, application)
        if plan.work:
            _check_means(request, plan)
        return plan
    if request.terms.run.standby:
        refuse_no_standby(request.terms.app)
    only = _specified_stores(request, application)
    spec = resolve_spec(application, request.spec, request.topology, only=only, file_name=request.spec_name)
    # Without a task nothing in the directory shows which application it is of: its name must fit the specification.
    if application is None or not application.tasks:
        _check_name(request.terms.app, spec)
    plan = plan_restore(request.terms.app, application, spec, dump, request.options)
    # Java and memory matter only if something is to be done.
    if not plan.change.empty:
        _check_means(request, plan)
    return plan


def _with_what_was_read(request: RestoreRequest, plan: RestorePlan, dump: Dump, watcher: RestoreWatcher) -> RestorePlan:
    """Return the plan of a dry run once its rows were read, or with a note that they were not."""
    if not request.terms.dry_run or plan.change.empty:
        return plan
    # A dry run has no lock and no run: it refuses what the run would refuse.
    refuse_after_error(request.terms.app, after_error=request.after_error)
    if not plan.work:
        return plan
    notes: tuple[str, ...] = (_ROWS_NOT_READ,)
    if request.verify_dump is not False:
        notes = check_rows(replace(request, engine=engine_for(request, plan)), plan, dump, watcher)
    return replace(plan, change=replace(plan.change, notes=(*plan.change.notes, *notes)))


def _specified_stores(request: RestoreRequest, application: Application | None) -> frozenset[str] | None:
    """Return the stores that the specification must describe; None for all.

    If the user names tasks, these are the stores of their sub-topologies.
    """
    options = request.options
    if options.stores or not options.tasks or application is None:
        return options.stores or None
    try:
        places = {_place(name) for name in options.tasks}
    except ValueError:
        return None  # no name of a task: the planner reports it
    here: set[str] = set()
    elsewhere: set[str] = set()
    for task in application.tasks:
        names = {store.name for store in task.stores}
        if _place(task.name) in places:
            here |= names
        else:
            elsewhere |= names
    # Stores that no task has here may belong to the named tasks too: only those that others have are certainly not.
    described: set[str] = set()
    if request.spec is not None:
        described |= {store.name for store in request.spec.stores}
    if request.topology is not None:
        described |= set(request.topology.stores)
    return frozenset((here | described) - (elsewhere - here))


def _place(task: str) -> tuple[str | None, int | None]:
    """Return the sub-topology of a task: all its tasks have the same stores. Raises ValueError."""
    parsed = TaskId.parse(task)
    return parsed.topology, parsed.subtopology


def _check_means(request: RestoreRequest, plan: RestorePlan) -> None:
    """Raise Refused or UsageError before there is a run, if Java, memory or the staging area do not suffice."""
    if not engine_for(request, plan).is_spark:
        slot_memory(request.memory, 1, jvm=False)
    else:
        # Before there is a run: a refusal here leaves no run in ERROR behind.
        check_java()
        refuse_distant_bases(plan.work, request.spark)
        slot_memory(request.memory, request.spark.slots or 1)
    if request.staging:
        check_area(request.staging)


def engine_for(request: RestoreRequest, plan: RestorePlan) -> EngineChoice:
    """Return the engine of a plan. A small round of a standby takes local processes: Spark's start would be most of it.

    Not where a master, or a staging area, says that Spark is elsewhere.
    """
    # A configured cluster has the executors and the memory; a staging area says that they are on other hosts.
    placed = request.spark.master is not None or request.spark.effective_master is None or request.staging is not None
    small = plan.bytes <= SMALL_BYTES
    if request.engine.is_spark and request.terms.run.standby and small and not placed:
        return EngineChoice(Engine.local, "the round of a standby is small")
    return request.engine


def _check_name(app: Path, spec: Spec) -> None:
    """Raise Refused unless the name of a directory that is created again fits the specification."""
    if spec.application is not None and spec.application != app.name:
        raise Refused(
            f"{app} would be the directory of application {app.name}, but the specification describes "
            f"{spec.application}",
            hint=f"pass {app.parent / spec.application} or {app / spec.application}",
        )
    if not spec.stores:
        raise Refused(
            f"{app} does not exist, and without a specification kstate does not know its stores",
            hint=(
                "pass --spec kstate.toml. To create it, run this command for a directory of the application "
                f"on another host: {command('ls', 'APP', '--spec')}"
            ),
        )
    # Changelogs are ``<application.id>-<store>-changelog``; a wrong name would make a directory that no application
    # ever opens.
    changelogs = [store.changelog for store in spec.stores if store.changelog and not store.source_topic]
    if spec.application is None and not any(topic.startswith(f"{app.name}-") for topic in changelogs):
        raise Refused(
            (
                f"kstate cannot confirm that {app.name} is the application.id, because none of the changelogs "
                "begins with it"
            ),
            hint="pass state.dir/application.id, or add application = … to the specification",
        )


@contextlib.contextmanager
def first_signal_only() -> Iterator[None]:
    """Let the first signal raise Interrupted, and ignore those that come while everything is being closed.

    Such signals do come: from a supervisor that signals a group and then the process, or a key that is pressed again.
    Raised while kstate closes, a second one would leave a run without its last state, or Spark running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread
        return
    came: list[int] = []

    def once(number: int, _frame: FrameType | None) -> None:
        # The handler is called between any two instructions, also while the first exception passes.
        if not came:
            came.append(number)
            raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        for number in ENDING:
            signal.signal(number, once)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def follow_dump(
    request: RestoreRequest,
    seconds: float,
    *,
    on_plan: Callable[[RestorePlan], None],
    watcher: RestoreWatcher,
    on_round: Callable[[RestoreOutcome], None],
) -> NoReturn:
    """Look for a new manifest every so many seconds, and restore what it adds; end with what a round raises.

    The lock is free between rounds, and each round checks whether the directory was used since the one before. A round
    that fails keeps what the last one made. Raises as ``restore``; Interrupted after a signal.
    """
    # One machine for all rounds: to a listener, following is one long RUNNING.
    state, restored = StateMachine(), None
    state.listen(watcher.state)
    try:
        while True:
            began = time.monotonic()
            # A manifest that is committed while this round reads causes one more round, which may have nothing to do.
            manifest = newest_manifest_of(request.dump)
            if manifest != restored:
                on_round(restore(request, on_plan=on_plan, watcher=watcher, state=state))
                restored = manifest
            # From the beginning of one round to that of the next, so that long rounds do not add up.
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    finally:
        state.close()


def newest_manifest_of(uri: str) -> tuple[int, str]:
    """Return generation and SHA-256 of the newest manifest of a dump that grows.

    Another dump in the same place may have come to the same generation. Raises Refused for a dump that does not grow,
    DumpError and UsageError.
    """
    filesystem, root = open_location(uri)
    grown = newest_manifest(filesystem, root, uri_text(uri))
    if grown is None:
        raise Refused(
            "the dump is not updated, so --follow would never read new records",
            where=uri_text(uri),
            hint="omit --follow, or follow a dump that you update with this command:",
            hint_details=[command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "DUMP")],
        )
    return grown.generation, hashlib.sha256(render(grown)).hexdigest()
