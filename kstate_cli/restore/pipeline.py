"""``kstate restore`` from the paths to the result: lock, take over, read, plan, sort, take in, switch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kstate_cli.change.attempts import refuse_after_error
from kstate_cli.change.folder import read_runs
from kstate_cli.change.location_checks import check_change, check_location
from kstate_cli.change.lockfile import application_lock, in_use
from kstate_cli.change.owner import own_like
from kstate_cli.change.recover import recover, tell_unfinished
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
from kstate_cli.statedir.names import LOCK
from kstate_cli.statedir.scan import read_application
from kstate_cli.statedir.special import refuse_special


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
    refuse_special(request.app)
    dump = read_dump(request.dump, complete=request.complete, committed_only=request.committed_only)
    if request.ask is not None:
        facts = request.ask({key.topic for key in dump.partitions})
        request = replace(request, options=replace(request.options, facts=facts))
    if request.dry_run:
        plan = _plan(request, dump, watcher)
        on_plan(plan)
        tell_unfinished(request.app, watcher.recovered)
        return RestoreOutcome(plan)
    check_location(request.app, lock_is_shared=request.lock_is_shared)
    if not (request.app / LOCK).exists():
        # Taking the lock would create the file: what is refused, or done already, must not leave even that.
        plan = _plan(request, dump, watcher)
        if plan.change.empty:
            on_plan(plan)
            return RestoreOutcome(plan)
    made = _made_anew(request, watcher)
    with application_lock(request.app, request.wait):
        try:
            recover(request.app, watcher.recovered)
            plan = _plan(request, dump, watcher)
            on_plan(plan)
            outcome = RestoreOutcome(plan)
            if not plan.change.empty:
                refuse_after_error(request.app, after_error=request.after_error)
                Restoration(request, dump, plan, outcome, watcher).run()
            return outcome
        except BaseException:
            if made is not None:
                _unmake_application(request.app, made)
            raise


def _made_anew(request: RestoreRequest, watcher: RestoreWatcher) -> int | None:
    """The inode of the directory that is made where it is lost; None where it is there.

    Unfinished runs are taken over first, and it is made under the lock of the lost: an empty directory would make what
    a run has of the application look like something beside it, and an undo may be about to put it back.
    """
    if os.path.lexists(request.app):
        return None
    if not read_runs(request.app):
        return _make_application(request.app)
    with application_lock(request.app, request.wait):
        recover(request.app, watcher.recovered)
        return None if os.path.lexists(request.app) else _make_application(request.app)


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
        if app.stat().st_ino == made and set(os.listdir(app)) <= {LOCK}:
            (app / LOCK).unlink(missing_ok=True)
            app.rmdir()


def _plan(request: RestoreRequest, dump: Dump, watcher: RestoreWatcher) -> RestorePlan:
    existing = _read(request, watcher)
    only = request.options.stores or None
    spec = resolve_spec(existing, request.spec, request.topology, only=only, named=request.spec_name)
    if existing is None or not existing.tasks:
        _check_name(request.app, spec)
    plan = plan_restore(request.app, existing, spec, dump, request.options)
    if not plan.change.empty:
        _check_means(request, plan)
    if not plan.change.empty and request.app.exists():
        check_change(
            plan.change,
            workers=request.run.workers,
            copy_ssts=request.run.copy_ssts,
            lock_is_shared=request.lock_is_shared,
        )
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
    changelogs = [store.changelog for store in spec.stores if store.changelog and not store.source_topic]
    if spec.application is None and not any(topic.startswith(f"{app.name}-") for topic in changelogs):
        raise Refused(
            f"nothing says that {app.name} is the application.id: no changelog begins with it",
            hint="give state.dir/application.id, or add application = … to the spec",
        )


def _read(request: RestoreRequest, watcher: RestoreWatcher) -> Application | None:
    if not request.app.exists():
        return None
    app = read_application(
        request.app, workers=request.run.workers, on_store=lambda name: watcher.phase("read", name, 0)
    )
    if app.running:
        raise in_use(app.path, app.pid)
    return app
