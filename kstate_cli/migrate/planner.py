"""The plan of a migration: the directory is read once (:mod:`snapshot`), then rules turn it into steps and remarks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from kstate_cli.change.plan import Change, Plan, Remark, RemarkKind, note, steps_of, texts_of, warning
from kstate_cli.errors import Refused
from kstate_cli.migrate.obstacles import misread_sessions, refuse_rewrites_of_forgetful, refuse_unreadable
from kstate_cli.migrate.snapshot import MigrateOptions, MigrationSnapshot, read_snapshot
from kstate_cli.migrate.task_changes import task_changes
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import as_of_note
from kstate_cli.releases import Release, prefer_proven, proven, representative, unproven_release, written_by
from kstate_cli.statedir.model import Application, Task
from kstate_cli.texts import TRANSACTIONAL_STORES, UNPROVEN, first_lines, quoted

_LOG = logging.getLogger(__name__)


def plan_migration(app: Application, target: Release, options: MigrateOptions) -> Plan:
    """Return the plan that brings ``app`` to ``target``; empty if it is there already.

    Raises Refused, naming everything that stands in the way and the rule it breaks.
    """
    return plan_of(read_snapshot(app, target, options))


def plan_of(snapshot: MigrationSnapshot) -> Plan:
    """Return the plan by what a snapshot says; nothing is read from disk. Raises Refused."""
    refuse_unreadable(snapshot)
    changes = [*_application_changes(snapshot), *_changes_of_tasks(snapshot)]
    for change in changes:
        if isinstance(change, Remark):
            _LOG.debug("%s: %s", change.kind.value, change.text)
        else:
            _LOG.debug("step %s %s: %s", change.action, change.path, change.describe())
    steps = steps_of(changes)
    refuse_rewrites_of_forgetful(snapshot, steps)
    _refuse_unclean(snapshot, texts_of(changes, RemarkKind.UNCLEAN))
    _refuse_losses(snapshot, texts_of(changes, RemarkKind.LOSS))
    target, options = snapshot.target, snapshot.options
    if steps and target.unproven and not options.unproven:
        path = snapshot.app.path
        raise unproven_release(target, path, options.command(path, target.version, UNPROVEN))
    sources = _sources(snapshot.whole_tasks or snapshot.app.tasks, transactional=options.transactional)
    return Plan(
        app=snapshot.app.path,
        command=f"migrate --to {quoted(target.version)}",
        source=representative(sources).name if sources else target.name,
        target=target.name,
        steps=steps,
        warnings=texts_of(changes, RemarkKind.WARNING),
        notes=(*texts_of(changes, RemarkKind.NOTE), *(_unproven_pair(sources, target) if steps else ())),
    )


def _application_changes(snapshot: MigrationSnapshot) -> Iterator[Change]:
    """Yield what concerns the directory as a whole."""
    for problem in snapshot.app.all_problems():
        yield note(problem.reasoned) if problem.passing else warning(problem.reasoned)
    yield from map(note, as_of_note(snapshot.app))
    yield from misread_sessions(snapshot)


def _changes_of_tasks(snapshot: MigrationSnapshot) -> Iterator[Change]:
    for state in snapshot.offsets:
        yield from task_changes(snapshot, state)


def _refuse_unclean(snapshot: MigrationSnapshot, reasons: Sequence[str]) -> None:
    if reasons:
        raise Refused(
            "not left clean: under exactly-once uncommitted data may be in the stores",
            details=first_lines(reasons),
            where=str(snapshot.app.path),
            hint=f"{_transactional_hint(snapshot.offsets, snapshot.options)}if the application ran with at-least-once: "
            "--guarantee at_least_once; else --wipe-unclean leaves these tasks out, so that Streams restores them",
        )


def _transactional_hint(tasks: Collection[TaskOffsets], options: MigrateOptions) -> str:
    """Return the first part of a hint for databases of which only the user knows how they were left."""
    ambiguous = any(reason.no_status for state in tasks for reason in state.unclean)
    if options.transactional or not ambiguous:
        return ""
    return f"if the application ran with transactional stores (4.4): {TRANSACTIONAL_STORES}; "


def _refuse_losses(snapshot: MigrationSnapshot, reasons: Sequence[str]) -> None:
    if reasons:
        raise Refused(
            "the next start would lose rows",
            details=first_lines(reasons),
            where=str(snapshot.app.path),
            hint="let the older release make the wiped store anew: start it, stop it, then migrate; an application "
            "that runs with at-least-once wipes nothing: --guarantee at_least_once",
        )


def _unproven_pair(sources: Collection[Release], target: Release) -> tuple[str, ...]:
    """Return a note if these two releases were not run one after the other."""
    names = tuple(source.name for source in sources)
    if target.name in names or proven(names, target):
        return ()
    return (f"unproven: {'/'.join(names) or '?'} to {target} has not been run against the real releases",)


def _sources(tasks: Collection[Task], *, transactional: bool) -> tuple[Release, ...]:
    """Return the releases that may have written these tasks, oldest first: what its databases agree on.

    Of those that nothing on disk tells apart, a release with transactional stores if the application ran with them,
    else one that kstate was run against.
    """
    releases: set[Release] | None = None
    for database in (database for task in tasks for store in task.stores for database in store.databases):
        version = database.options.rocksdb_version if database.options else None
        names = set(written_by(version, frozenset(database.column_families)))
        if names:
            # Databases that contradict each other leave the candidates of both.
            releases = names if releases is None else (releases & names or releases | names)
    in_order = sorted(releases or (), key=lambda candidate: candidate.number)
    with_transactions = [candidate for candidate in in_order if candidate.transactional]
    if transactional and with_transactions:
        return tuple(with_transactions)
    return tuple(prefer_proven(in_order))
