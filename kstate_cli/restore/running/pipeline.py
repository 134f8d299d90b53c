"""Run ``kstate restore`` from its paths to its result, once or in rounds.

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

from kstate_cli import option
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
    f"kstate has not read the rows of the dump ({option.NO_VERIFY_DUMP}). The plan does not account for damage in "
    "the dump's files or for rows that do not match their stores"
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

    ``state`` is the state machine of several rounds, which its owner listens to: it stays RUNNING after this round, or
    unchanged if there is nothing to do. ``larger`` is the change that the restoration is a part of, such as a rehome.
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
    """Do as :func:`restore`: read the dump, ask the broker, then plan and carry out in the course of every change."""
    app = request.terms.app
    # Refused before the dump is read, which may take minutes.
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
    # The broker is asked once, before the plan: its answer is part of the snapshot, so the plan that is printed is the
    # one that runs.
    if request.ask is not None:
        facts = request.ask({key.topic for key in dump.partitions})
        request = replace(request, options=replace(request.options, facts=facts))

    def carry_out(plan: RestorePlan) -> RestoreOutcome:
        # Tested again under the lock: another restoration may have ended in ERROR since this command began.
        refuse_after_error(app, after_error=request.after_error)
        outcome = RestoreOutcome(plan, engine_for(request, plan))
        # The larger change may still refuse here, under the lock, before any file is staged.
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
        # All rounds share one state machine, to which its owner listens. A single restoration has one of its own.
        own.listen(watcher.state)
        Restoration(by_size, dump, outcome, watcher, of_rounds or own, watch).run(close=of_rounds is None)
        return outcome

    is_shown = False

    def show(plan: RestorePlan) -> None:
        nonlocal is_shown
        # The dump is read before the plan is printed: a dry run may refuse what it reads, and notes what it did not
        # read.
        plan = _with_what_was_read(request, plan, dump, watcher)
        is_shown = True
        on_plan(plan)

    course = Course(
        plan=lambda application: _plan(request, dump, application, larger),
        on_plan=show,
        carry_out=carry_out,
        notify=watcher.recovered,
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
    """Return the plan of the restoration, or of the larger change that it is a part of.

    Raises Refused and UsageError.
    """
    if larger is not None:
        plan = larger.plan(request, dump, application)
        if plan.work:
            _check_means(request, plan)
        return plan
    if request.terms.run.standby:
        refuse_no_standby(request.terms.app)
    only = _specified_stores(request, application)
    spec = resolve_spec(
        application,
        request.spec,
        request.topology,
        only=only,
        file_name=request.spec_name,
        topics={key.topic for key in dump.partitions},
    )
    # A directory without a task does not show which application it is of, so its name must fit the specification.
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
    # A dry run neither locks nor runs, so it makes here the refusals that the run would make.
    refuse_after_error(request.terms.app, after_error=request.after_error)
    if not plan.work:
        return plan
    notes: tuple[str, ...] = (_ROWS_NOT_READ,)
    if request.verify_dump is not False:
        notes = check_rows(replace(request, engine=engine_for(request, plan)), plan, dump, watcher)
    return replace(plan, change=replace(plan.change, notes=(*plan.change.notes, *notes)))


def _specified_stores(request: RestoreRequest, application: Application | None) -> frozenset[str] | None:
    """Return the stores that the specification must describe; None for all.

    They are the stores that the user names, or, if the user names tasks, those of the tasks' sub-topologies.
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
    # A store of the specification without a directory here may belong to the named tasks too. Only stores that are in
    # other tasks alone are certainly not needed.
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
        return EngineChoice(Engine.local, "this round of the standby restores only a little data")
    return request.engine


def _check_name(app: Path, spec: Spec) -> None:
    """Raise Refused unless the name of a directory without tasks fits the specification."""
    if spec.application is not None and spec.application != app.name:
        raise Refused(
            f"{app} would belong to application {app.name}, but the specification describes {spec.application}",
            hint=f"pass {app.parent / spec.application} or {app / spec.application}",
        )
    if not spec.stores:
        raise Refused(
            f"{app} does not exist, so kstate needs a specification to know its stores",
            hint=(
                f"pass {option.SPEC} kstate.toml. To create this file, run this command on another host of the "
                f"application: {command('ls', 'APP', option.SPEC)}"
            ),
        )
    # Changelogs are ``<application.id>-<store>-changelog``. If none begins with the name of the directory, no
    # application may ever open that directory.
    changelogs = [store.changelog for store in spec.stores if store.changelog and not store.source_topic]
    if spec.application is None and not any(topic.startswith(f"{app.name}-") for topic in changelogs):
        raise Refused(
            f"kstate cannot confirm that {app.name} is the application.id, because no changelog begins with this name",
            hint="pass state.dir/application.id or add application = … to the specification",
        )


@contextlib.contextmanager
def first_signal_only() -> Iterator[None]:
    """Let the first signal raise Interrupted, and ignore those that come while kstate is closing.

    A supervisor may signal a process group and then the process, and a user may press a key again. If the second signal
    were raised while kstate closes, a run would be left without its last state, or Spark running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread
        return
    came: list[int] = []

    def once(number: int, _frame: FrameType | None) -> None:
        # The handler may be called between any two instructions, also while the first exception is on its way.
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
    """Look for a new manifest every ``seconds``, and restore what it adds, until a round raises.

    The lock is free between rounds, and each round checks whether the directory was used since the one before. If a
    round fails, the directory stays as the last round made it. Raises as :func:`restore`; Interrupted after a signal.
    """
    # All rounds have one state machine: a listener sees one long RUNNING.
    state, restored = StateMachine(), None
    state.listen(watcher.state)
    try:
        while True:
            began = time.monotonic()
            # The manifest is looked up before the round. One that is committed while the round reads causes one more,
            # which may have nothing to do.
            manifest = newest_manifest_of(request.dump)
            if manifest != restored:
                on_round(restore(request, on_plan=on_plan, watcher=watcher, state=state))
                restored = manifest
            # The pause is measured from the beginning of the round, so that the duration of long rounds does not add
            # up.
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    finally:
        state.close()


def newest_manifest_of(uri: str) -> tuple[int, str]:
    """Return generation and SHA-256 of the newest manifest of a dump that grows.

    The digest tells this dump from another one in the same place that has come to the same generation. Raises Refused
    for a dump that does not grow, DumpError and UsageError.
    """
    filesystem, root = open_location(uri)
    grown = newest_manifest(filesystem, root, uri_text(uri))
    if grown is None:
        raise Refused(
            f"kstate does not add records to this dump, so {option.FOLLOW} would never read new ones",
            where=uri_text(uri),
            hint=f"omit {option.FOLLOW}, or follow a dump that you update with this command:",
            hint_details=[command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.APP, "ID", option.OUT, "DUMP")],
        )
    return grown.generation, hashlib.sha256(render(grown)).hexdigest()
