"""``kstate restore`` from the paths to the result: the course of every change, over what a dump makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kstate_cli.change.attempts import refuse_after_error
from kstate_cli.change.course import Course, follow
from kstate_cli.change.reading import reading
from kstate_cli.dump.model import Dump
from kstate_cli.dump.open import read_dump
from kstate_cli.errors import Interrupted, Refused, UsageError
from kstate_cli.restore.engines import RestoreEngine
from kstate_cli.restore.plan import RestorePlan
from kstate_cli.restore.planner import plan_restore
from kstate_cli.restore.prepare import refuse_distant_bases, slot_memory
from kstate_cli.restore.restoration import Restoration, RestoreOutcome, RestoreRequest, RestoreWatcher, interrupted_hint
from kstate_cli.restore.signals import first_signal_only
from kstate_cli.restore.staging_area import check_area
from kstate_cli.spark.jvm import check_java
from kstate_cli.spec.combine import resolve_spec
from kstate_cli.spec.model import Spec
from kstate_cli.statedir.find import find_application
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.special import refuse_special
from kstate_cli.texts import command


def application_path(path: Path) -> Path:
    """As ``find_application``, but a directory that is lost may be named: it is made anew.

    Raises UsageError unless its parent is there, Refused for what may not be read.
    """
    with reading():
        is_there = path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir())))
    if is_there:
        return find_application(path)
    absolute = Path(os.path.realpath(path.parent)) / path.name
    if not absolute.parent.is_dir():
        raise UsageError(f"{absolute.parent} does not exist", hint="give state.dir/application.id")
    return absolute


def restore(
    request: RestoreRequest, *, on_plan: Callable[[RestorePlan], None], watcher: RestoreWatcher
) -> RestoreOutcome:
    """Restores, or only plans. Raises InUse, Refused, RunFailed and RunHalfway; Interrupted after a signal."""
    with first_signal_only():
        try:
            return _restore(request, on_plan, watcher)
        except Interrupted as error:
            error.hint = error.hint or interrupted_hint()
            raise


def _restore(
    request: RestoreRequest, on_plan: Callable[[RestorePlan], None], watcher: RestoreWatcher
) -> RestoreOutcome:
    app = request.terms.app
    refuse_special(app)
    dump = read_dump(request.dump, complete=request.complete, committed_only=request.committed_only)
    if request.ask is not None:
        facts = request.ask({key.topic for key in dump.partitions})
        request = replace(request, options=replace(request.options, facts=facts))

    def carry_out(plan: RestorePlan) -> RestoreOutcome:
        refuse_after_error(app, after_error=request.after_error)
        outcome = RestoreOutcome(plan)
        Restoration(request, dump, plan, outcome, watcher).run()
        return outcome

    course = Course(
        plan=lambda application: _plan(request, dump, application),
        on_plan=on_plan,
        carry_out=carry_out,
        tell=watcher.recovered,
        progress=watcher.phase,
        workers=request.terms.run.workers,
    )
    plan, outcome = follow(course, request.terms)
    return outcome or RestoreOutcome(plan)


def _plan(request: RestoreRequest, dump: Dump, application: Application | None) -> RestorePlan:
    only = request.options.stores or None
    spec = resolve_spec(application, request.spec, request.topology, only=only, named=request.spec_name)
    if application is None or not application.tasks:
        _check_name(request.terms.app, spec)
    plan = plan_restore(request.terms.app, application, spec, dump, request.options)
    if not plan.change.empty:
        _check_means(request, plan)
    return plan


def _check_means(request: RestoreRequest, plan: RestorePlan) -> None:
    """What the run needs beside the directory and the dump: refused here, before it is a run. Raises UsageError too."""
    if request.engine is RestoreEngine.local:
        slot_memory(request.memory, 1, jvm=False)
    else:
        check_java()
        refuse_distant_bases(plan.work, request.spark)
        slot_memory(request.memory, request.spark.slots or 1)
    if request.staging:
        check_area(request.staging)


def _check_name(app: Path, spec: Spec) -> None:
    """Of a directory that is made anew only the name says whose it is. Raises Refused."""
    if spec.application is not None and spec.application != app.name:
        raise Refused(
            f"{app} would be the directory of application {app.name}, and the spec is about {spec.application}",
            hint=f"give {app.parent / spec.application} or {app / spec.application}",
        )
    if not spec.stores:
        raise Refused(
            f"{app} is not there, and nothing else says which stores it had: a specification has to",
            hint="give --spec kstate.toml; where none was kept, a directory of the application on another host tells "
            f"most of it: {command('ls', 'APP', '--spec')}",
        )
    changelogs = [store.changelog for store in spec.stores if store.changelog and not store.source_topic]
    if spec.application is None and not any(topic.startswith(f"{app.name}-") for topic in changelogs):
        raise Refused(
            f"nothing says that {app.name} is the application.id: no changelog begins with it",
            hint="give state.dir/application.id, or add application = … to the spec",
        )
