"""A restoration from snapshots with what follows it in the same run: a migration, and the records of a dump.

One plan, one run and one exchange of directories do all of it, so one ``kstate undo`` rolls all of it back. The order
is that of the commands for each: place the stores, move their offsets to where the target keeps them, add the records.
Each planner gets the directory as the plan before it leaves it (:mod:`kstate_cli.snapshot.overlay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kstate_cli import clock, option
from kstate_cli.change.plan import (
    BuildStore,
    CreateDatabase,
    EditDatabase,
    Plan,
    RemoveFile,
    Step,
    WriteFile,
)
from kstate_cli.errors import Refused
from kstate_cli.migrate.planner import plan_migration
from kstate_cli.migrate.snapshot import MigrateOptions
from kstate_cli.releases import OLD_SST_FORMAT, Release
from kstate_cli.snapshot.dump_bounds import DumpBounds
from kstate_cli.snapshot.overlay import after, for_specification, overlay
from kstate_cli.snapshot.planner import SnapshotPlan, plan_restore
from kstate_cli.snapshot.restoring import (
    SnapshotFiles,
    SnapshotRequest,
    age_of_chosen,
    remove_earlier_files,
)
from kstate_cli.snapshot.task_steps import ChosenStore
from kstate_cli.texts import command, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstate_cli.dump_reader.model import Dump
    from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan
    from kstate_cli.restore.running.restoration import RestoreRequest
    from kstate_cli.snapshot.model import NamedGeneration
    from kstate_cli.statedir.model import Application


@dataclass(frozen=True, slots=True)
class Migration:
    """The release that will start, and the settings of its application."""

    target: Release
    options: MigrateOptions

    def add(self, plan: SnapshotPlan, application: Application) -> tuple[SnapshotPlan, Application]:
        """Return the plan with the migration, and the directory after both. Raise Refused."""
        if self.target.reads_sst_format <= OLD_SST_FORMAT and plan.stores:
            app = plan.change.app
            raise Refused(
                (
                    f"{self.target} may not be able to read the snapshot's SSTs, and kstate cannot rewrite SSTs "
                    "before it has restored them"
                ),
                where=str(app),
                hint=(
                    "first restore the snapshot without --for. Then run "
                    f"{command('migrate', app, option.TO, self.target.version)}"
                ),
            )
        migration = plan_migration(application, self.target, self.options)
        change = replace(
            plan.change,
            command=f"{plan.change.command} --for {quoted(self.target.version)}",
            target=self.target.name,
            steps=tuple(last_of_each_file((*plan.change.steps, *migration.steps))),
            warnings=_joined(plan.change.warnings, migration.warnings),
            notes=_joined(plan.change.notes, migration.notes),
        )
        return replace(plan, change=change), after(application, migration.steps)


def further_of(migration: Migration) -> Callable[[SnapshotPlan, Application | None], SnapshotPlan]:
    """Return the function that adds a migration to a restoration without a dump."""

    def further(plan: SnapshotPlan, existing: Application | None) -> SnapshotPlan:
        return migration.add(plan, overlay(plan.change.app, existing, plan))[0]

    return further


@dataclass(slots=True)
class WithRecords:
    """The whole change, as a planner for ``restore``: the dump adds records to the stores of the snapshot."""

    request: SnapshotRequest
    generations: Sequence[NamedGeneration]
    damaged: Sequence[str]
    migration: Migration | None
    progress: Callable[[str, str, int], None]
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """``TASK/STORE`` that exists -> why the snapshot does not replace it."""
    bounds: DumpBounds = field(default_factory=DumpBounds)
    """The offsets that the dump shows for segments that were never flushed."""
    placed: SnapshotPlan | None = None
    """The last plan, with the stores whose files it needs."""

    def plan(self, request: RestoreRequest, dump: Dump, application: Application | None) -> RestorePlan:
        """Return the plan of all parts. Raise Refused and UsageError."""
        from kstate_cli.restore.planning.plan import read_snapshot
        from kstate_cli.restore.planning.planner import plan_of
        from kstate_cli.specification.combine import resolve_spec

        app = request.terms.app
        options = replace(self.request.options_now(self.generations), continued=frozenset(dump.partitions))
        now_ms, damaged = clock.now_ms(), tuple(self.damaged)
        base = plan_restore(app, application, self.generations, options, now_ms=now_ms, damaged=damaged)
        bounded = self.bounds.applied_to(app, self.generations, base.stores, dump)
        if bounded != self.generations:
            # The offsets decide about the choice of a store, its files and its steps: the plan is made again.
            base = plan_restore(app, application, bounded, options, now_ms=now_ms, damaged=damaged)
        directory = overlay(app, application, base)
        if self.migration is not None:
            base, directory = self.migration.add(base, directory)
        spec = resolve_spec(
            for_specification(directory, base),
            request.spec,
            request.topology,
            only=request.options.stores or None,
            file_name=request.spec_name,
            topics={key.topic for key in dump.partitions},
        )
        ages = [age_of_chosen(chosen) for chosen in base.stores]
        records = plan_of(read_snapshot(app, directory, spec, dump, _options(request, application, base), ages))
        rebuilt = frozenset(work.path for work in records.work if work.rebuild)
        # Stores that the dump rebuilds are not copied from the snapshot.
        stores = tuple(chosen for chosen in base.stores if chosen.path not in rebuilt)
        names = frozenset(chosen.store.name for chosen in base.stores)
        change = _merged(base.change, _without_records(records.change, names), rebuilt)
        self.placed = replace(base, change=change, stores=stores)
        self.unchanged = base.unchanged
        restored = {chosen.title for chosen in base.stores}
        left = tuple(store for store in records.unchanged if store.title not in restored)
        return replace(records, change=change, unchanged=left)

    def last_word(self) -> None:
        """Remove the copies of earlier runs: they would take the free space that this one needs."""
        remove_earlier_files(self.request.terms.app)

    def foundation(self) -> SnapshotFiles | None:
        """Return the files to copy; None if the snapshot gives no store."""
        if self.placed is None or not self.placed.stores:
            return None
        request = self.request
        return SnapshotFiles(request.repository, self.placed, request.terms.run.workers, self.progress, request.ask)

    @property
    def stores(self) -> tuple[ChosenStore, ...]:
        """Return the stores that come from the snapshot."""
        if self.placed is None:
            return ()
        return self.placed.stores


def _options(request: RestoreRequest, existing: Application | None, base: SnapshotPlan) -> RestoreOptions:
    """Return the options for the dump. A store that was captured while it was running may have no offset.

    The rules of a cut have proved that it has no uncommitted row, so the dump builds that store alone. A task that
    exists has other stores, of which nothing proves that.
    """
    exist: set[str] = set()
    if existing is not None:
        exist = {task.name for task in existing.tasks}
    cuts = frozenset(chosen.task for chosen in base.stores if chosen.store.is_cut)
    return replace(request.options, committed_tasks=cuts - exist)


def _merged(base: Plan, records: Plan, rebuilt: frozenset[str]) -> Plan:
    """Return both plans as one. ``rebuilt`` has the paths of the stores that the dump builds new."""
    remaining = [step for step in base.steps if not _is_about(step, rebuilt)]
    return replace(
        base,
        command=f"{base.command} --from-changelog",
        target=records.target,
        steps=tuple(last_of_each_file((*remaining, *records.steps))),
        warnings=_joined(base.warnings, records.warnings),
        notes=_joined(base.notes, records.notes),
        task_times={**base.task_times, **records.task_times},
    )


def _without_records(plan: Plan, from_snapshot: frozenset[str]) -> Plan:
    """Return the plan of the records without the warnings about stores that the snapshot restores without records."""
    from kstate_cli.restore.planning.obstacles import no_changelog

    # The planner of the snapshot warns about them: the rows that came after the snapshot are lost.
    superfluous = {no_changelog(name) for name in from_snapshot}
    return replace(plan, warnings=tuple(text for text in plan.warnings if text not in superfluous))


def _is_about(step: Step, stores: frozenset[str]) -> bool:
    """Return whether a step copies or changes the database of one of the stores."""
    if not isinstance(step, (BuildStore, EditDatabase, CreateDatabase)):
        return False
    path = PurePosixPath(step.path)
    return any(str(place) in stores for place in (path, *path.parents))


def last_of_each_file(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps; of several about one small file only the last, which counts."""
    last = {step.path: number for number, step in enumerate(steps) if isinstance(step, (WriteFile, RemoveFile))}
    for number, step in enumerate(steps):
        if not isinstance(step, (WriteFile, RemoveFile)) or last[step.path] == number:
            yield step


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of both without repetitions: both planners report the same problems of the directory."""
    return tuple(dict.fromkeys((*first, *second)))
