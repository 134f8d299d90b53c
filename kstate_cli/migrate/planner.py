"""The plan of a migration: what is refused, and the steps between two releases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstate_cli.carried import TRANSACTIONAL_STORES, UNPROVEN
from kstate_cli.change.plan import (
    EditDatabase,
    OmitTree,
    Plan,
    RemoveFile,
    Step,
)
from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.families import DEFAULT_CF, OFFSETS_CF
from kstate_cli.formats.layouts import Inner
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import headers_families, store_kind
from kstate_cli.formats.topic_partition import TopicPartition, legal_store_name, typed_offsets
from kstate_cli.formats.values import subscription_version
from kstate_cli.host import STORES_STAY
from kstate_cli.migrate.headers import conversions, undecided
from kstate_cli.migrate.next_start import lost_unread, lost_with_it, replayed, wiped_all_the_same
from kstate_cli.offsets.keeping import Keeping, Offsets, closed
from kstate_cli.offsets.last_run import left_committed
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.offsets.while_running import as_of_note, resolve_to_plan
from kstate_cli.releases import (
    OLD_SST_FORMAT,
    SUBSCRIPTION_VERSION_SINCE,
    OffsetsHome,
    Release,
    knows_headers,
    proven,
    readable_by,
    release,
    representative,
    run_ones,
    unproven_release,
    written_by,
)
from kstate_cli.rocks.errors import RocksError, cannot_be_read
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.headers import (
    may_be_misread_with_headers,
    misread_with_headers,
    rows_of_before,
    without_headers,
)
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, position_file, store_checkpoint
from kstate_cli.statedir.problems import Problem, ProblemCode
from kstate_cli.texts import command, first_lines, quoted


@dataclass(frozen=True, slots=True)
class MigrateOptions:
    """What the user says about the directory and allows."""

    at_least_once: bool = False
    """Uncommitted data cannot be in the stores: the application never ran with exactly-once."""
    wipe_unclean: bool = False
    """Tasks that may hold uncommitted data are left out, so that Streams restores them."""
    drop_headers: bool = False
    """Headers stores are converted to the older layout; their headers are lost."""
    headers_format: bool = False
    """The application is to be started with ``dsl.store.format=HEADERS``."""
    transactional: bool = False
    """The application runs with transactional stores (KIP-892)."""
    unproven: bool = False
    """To a release that nobody has run, too."""

    def command(self, app: Path, target: str, *more: str) -> str:
        """The command line that says the same, and ``more``."""
        said = (
            (self.at_least_once, ("--guarantee", "at_least_once")),
            (self.wipe_unclean, ("--wipe-unclean",)),
            (self.drop_headers, ("--drop-headers",)),
            (self.headers_format, ("--dsl-store-format", "HEADERS")),
            (self.transactional, (TRANSACTIONAL_STORES,)),
            (self.unproven, (UNPROVEN,)),
        )
        return command(
            "migrate", app, "--to", target, *(word for given, words in said if given for word in words), *more
        )


@dataclass(slots=True)
class _MigrationDraft:
    app: Application
    target: Release
    options: MigrateOptions
    whole: tuple[Task, ...]
    """The tasks in which no database is half made."""
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def into_family(self) -> bool:
        return self.target.offsets_home is OffsetsHome.COLUMN_FAMILY


def plan_migration(app: Application, target: Release, options: MigrateOptions) -> Plan:
    """The plan that brings ``app`` to ``target``; empty when it is there already.

    Raises Refused, naming everything that stands in the way and the rule it breaks.
    """
    half_made = _half_made(app)
    fatal = [p for p in app.all_problems() if p.fatal and not (options.wipe_unclean and p.place.task in half_made)]
    if fatal:
        if all(p.code is ProblemCode.UNREADABLE for p in fatal):
            raise _not_all_read(app.path, [p.text for p in fatal])
        lines = [p.reasoned for p in fatal]
        raise Refused(
            "the directory cannot be migrated as it is",
            details=first_lines(lines),
            where=str(app.path),
            hint=_about_fatal(app, target, options, alone={p.place.task for p in fatal} <= half_made.keys()),
        )
    whole = tuple(task for task in app.tasks if task.name not in half_made)
    sources = _sources(whole or app.tasks, transactional=options.transactional)
    draft = _MigrationDraft(app, target, options, whole)
    for problem in app.all_problems():
        (draft.notes if problem.passing else draft.warnings).append(problem.reasoned)
    draft.notes += as_of_note(app)
    _refuse_unreadable(draft)
    _refuse_sessions_of_before(draft)
    unclean: list[str] = []
    all_resolved = resolve_to_plan(app, transactional=options.transactional)
    logged = {one.store.name for resolved in all_resolved for one in resolved.stores if one.offsets}
    for resolved in all_resolved:
        if resolved.task.name in half_made:
            problems = half_made[resolved.task.name]
            _leave_out(draft, resolved, problems[0].text, logged)
            draft.warnings += lost_unread(resolved.task, problems, logged)
        elif (moves := _moves_offsets(draft, resolved.task)) or (draft.into_family and resolved.uneven_stores):
            if resolved.unclean and not options.at_least_once:
                if options.wipe_unclean:
                    _leave_out(draft, resolved, str(resolved.unclean[0]), logged)
                else:
                    unclean += map(str, resolved.unclean)
                continue
            draft.warnings += resolved.warnings
            draft.notes += resolved.notes
            draft.warnings += replayed(draft.app, resolved)
            draft.warnings += wiped_all_the_same(draft.app, resolved, draft.target, transactional=options.transactional)
            if not moves:
                _even_out(draft, resolved)
            else:
                (_into_family if draft.into_family else _out_of_family)(draft, resolved)
        else:
            _rewrite_only(draft, resolved.task)
    _refuse_rewrites_of_forgetful(draft)
    if unclean:
        raise Refused(
            "not left clean: under exactly-once uncommitted data may be in the stores",
            details=first_lines(unclean),
            where=str(app.path),
            hint=f"{_transactional_hint(all_resolved, options)}if the application ran with at-least-once: --guarantee "
            "at_least_once; else --wipe-unclean leaves these tasks out, so that Streams restores them",
        )
    if draft.refused:
        raise Refused(
            "the next start would lose rows",
            details=first_lines(draft.refused),
            where=str(app.path),
            hint="let the older release make the wiped store anew: start it, stop it, then migrate; an application "
            "that runs with at-least-once wipes nothing: --guarantee at_least_once",
        )
    steps = tuple(draft.steps)
    if steps and target.unproven and not options.unproven:
        raise unproven_release(target, app.path, options.command(app.path, target.version, UNPROVEN))
    names = tuple(one.name for one in sources)
    if steps and target.name not in names and not proven(names, target):
        draft.notes.append(f"unproven: {'/'.join(names) or '?'} to {target} has not been run against the real releases")
    source = representative(sources).name if sources else target.name
    return Plan(
        app=app.path,
        command=f"migrate --to {quoted(target.version)}",
        source=source,
        target=target.name,
        steps=steps,
        warnings=tuple(draft.warnings),
        notes=tuple(draft.notes),
    )


def _transactional_hint(all_resolved: Collection[TaskOffsets], options: MigrateOptions) -> str:
    """Return the first part of a hint for databases of which only the user knows how they were left."""
    ambiguous = any(reason.no_status for resolved in all_resolved for reason in resolved.unclean)
    if options.transactional or not ambiguous:
        return ""
    return f"if the application ran with transactional stores (4.4): {TRANSACTIONAL_STORES}; "


def _sources(tasks: Collection[Task], *, transactional: bool) -> tuple[Release, ...]:
    """The releases that may have written these tasks, oldest first: what its databases agree on.

    Of those that nothing on disk tells apart one that has transactional stores, where the application is said to run
    with them; else one that was run.
    """
    releases: set[Release] | None = None
    for task in tasks:
        for store in task.stores:
            for database in store.databases:
                version = database.options.rocksdb_version if database.options else None
                names = set(written_by(version, frozenset(database.column_families)))
                if names:
                    releases = names if releases is None else (releases & names or releases | names)
    known = sorted(releases or (), key=lambda one: one.number)
    told = [one for one in known if one.transactional] if transactional else []
    return tuple(told or run_ones(known))


def _moves_offsets(draft: _MigrationDraft, task: Task) -> bool:
    """True when the offsets of a task are not, or not only, where the target keeps them."""
    if draft.into_family:
        databases = [d for store in task.stores for d in store.databases]
        if not task.stores:
            return False
        return task.checkpoint is not None or any(d.offsets is None for d in databases)
    return task.has_offsets_family or bool(task.store_files)


def _refuse_unreadable(draft: _MigrationDraft) -> None:
    """Stores that the target cannot read at all."""
    target, lines, headers = draft.target, [], []
    for task in draft.whole:
        for store in task.stores:
            shown = f"{task.name}/{store.name}"
            if store.families & headers_families() and not draft.into_family:
                headers.append(f"{shown}: a store with record headers ({store.kind.name})")
                kind = without_headers(store.kind.name)
                if (why := undecided(store)) is not None:
                    lines.append(f"{shown}: {why}")
            else:
                kind = store.kind.name
            if not readable_by(kind, target):
                lines.append(f"{shown}: {kind} stores are unknown to {target}")
            if store_kind(store.kind.name).inner is Inner.SUBSCRIPTION:
                lines += _unreadable_subscriptions(shown, store, target)
    if lines:
        raise Refused(
            f"{target} cannot read these stores",
            details=first_lines(lines),
            where=str(draft.app.path),
            hint="stay with a release that has such stores, or take them out of the topology and wipe them first",
        )
    if headers and not draft.options.drop_headers:
        raise Refused(
            f"{target} cannot read these stores",
            details=first_lines(headers),
            where=str(draft.app.path),
            hint="--drop-headers converts their rows to the older layout; the headers are lost",
        )


def _refuse_sessions_of_before(draft: _MigrationDraft) -> None:
    """On-window-close sessions that 4.3.1 reads wrong as soon as their store is one with headers."""
    lines: list[str] = []
    names: dict[str, None] = {}
    at_risk: list[str] = []
    for task in draft.whole:
        for store in task.stores:
            shown = f"{task.name}/{store.name}"
            as_headers = misread_with_headers(store.kind.name)
            if rows_of_before(store):
                lines.append(f"{shown}: rows without headers beside rows of the layout with them")
                names[store.name] = None
            elif not knows_headers(draft.target) or not may_be_misread_with_headers(store):
                continue
            elif draft.options.headers_format:
                lines.append(f"{shown}: {store.kind.name}")
                names[store.name] = None
            elif as_headers is not None:
                at_risk.append(shown)
    if lines:
        raise Refused(
            "4.3.1 reads these on-window-close sessions wrong under dsl.store.format=HEADERS",
            details=first_lines(lines),
            where=str(draft.app.path),
            hint="leave dsl.store.format at DEFAULT where the store has never been one with headers; else wipe it, and "
            "it is restored from its changelog:",
            hint_details=[command("wipe", draft.app.path, "--store", name) for name in names],
        )
    if at_risk:
        draft.notes.append(
            f"{', '.join(at_risk)}: on-window-close sessions, which 4.3.1 reads wrong under dsl.store.format=HEADERS: "
            "leave it at DEFAULT"
        )


def _unreadable_subscriptions(shown: str, store: Store, target: Release) -> list[str]:
    since = {v: name for v, name in SUBSCRIPTION_VERSION_SINCE.items() if target.number < release(name).number}
    if not since:
        return []
    try:
        for database in store.databases:
            with Shadow(database.path) as shadow:
                for family in database.data_families:
                    for _, value in shadow.rows(family):
                        version = subscription_version(value)
                        if version in since:
                            return [f"{shown}: foreign-key subscriptions of version {version} need {since[version]}"]
    except (RocksError, MalformedBytesError, OSError) as error:
        if cannot_be_read(error):
            raise _not_all_read(store.path, [f"{shown}: {error}"]) from None
        if isinstance(error, OSError):
            raise
        return [f"{shown}: its rows cannot be read: {error}"]
    return []


def _not_all_read(where: Path, lines: list[str]) -> Refused:
    """What cannot be read now may be whole: nothing is planned about it, and nothing advised that would end it."""
    return Refused(
        "what cannot be read cannot be migrated: not all of it can be",
        details=first_lines(lines),
        where=str(where),
        hint=STORES_STAY,
    )


def _half_made(app: Application) -> dict[str, list[Problem]]:
    """The tasks in which nothing stands in the way but what a kill leaves of a database that is being made or dropped.

    For each what there is of it. A copy that was cut off, or a disk, may leave the same: nothing tells. What has become
    of the task before is no sign either, as a task that is being restored still has its ``.checkpoint``.
    """
    by_task: dict[str, list[Problem]] = {}
    for problem in app.all_problems():
        if problem.fatal and problem.place.task is not None:
            by_task.setdefault(problem.place.task, []).append(problem)
    return {task: problems for task, problems in by_task.items() if all(one.half_made for one in problems)}


def _about_fatal(app: Application, target: Release, options: MigrateOptions, *, alone: bool) -> str:
    """``alone``: a kill may have left all of it."""
    each = f"what to do about each: {command('check', app.path, '--for', target.version)}"
    if not alone:
        return each
    wipe = options.command(app.path, target.version, "--wipe-unclean")
    return (
        f"where the application was killed, this leaves these tasks out, so that Streams restores them: {wipe}; {each}"
    )


def _leave_out(draft: _MigrationDraft, resolved: TaskOffsets, what: str, logged: Collection[str]) -> None:
    why = f"left out, so that Streams restores it: {what}"
    draft.steps.append(OmitTree(_relative(draft, resolved.task.path), why))
    draft.warnings.append(f"{resolved.task.name}: {why}")
    draft.warnings += lost_with_it(draft.app, resolved, logged)


def _relative(draft: _MigrationDraft, path: Path) -> str:
    return str(path.relative_to(draft.app.path))


def _refuse_rewrites_of_forgetful(draft: _MigrationDraft) -> None:
    """Refuse to rewrite files that RocksDB drops by age and size (FIFO): other rows would go with the new ones."""
    refused = [
        f"{step.path}: column family {step.before.forgetful_family} has compaction_style=kCompactionStyleFIFO, and its "
        f"files have to be rewritten for {draft.target}"
        for step in draft.steps
        if isinstance(step, EditDatabase) and (step.sst_format is not None or step.conversions)
        if step.before.forgetful_family is not None
    ]
    if refused:
        raise Refused(
            "RocksDB drops whole files of these stores by age and size, and would drop other rows of rewritten files",
            details=first_lines(refused),
            where=str(draft.app.path),
            hint="set another compaction style in rocksdb.config.setter, start and stop the application once, then "
            "migrate",
        )


def _rewrite_only(draft: _MigrationDraft, task: Task) -> None:
    """Offsets stay where they are; SSTs may still be too new."""
    before = len(draft.steps)
    for store in task.stores:
        for database in store.databases:
            if max(database.sst_formats, default=0) > draft.target.reads_sst_format:
                draft.steps.append(EditDatabase(_relative(draft, database.path), database, sst_format=OLD_SST_FORMAT))
    if len(draft.steps) > before and task.checkpoint is None and not task.is_global:
        draft.notes.append(f"{task.name}: it has no .checkpoint: Streams restores it, migrated or not")


def _even_out(draft: _MigrationDraft, resolved: TaskOffsets) -> None:
    """Give all segments of a store the offset that its rows justify.

    A start takes the offset of one segment, and never restores the rows that another one lacks below it.
    """
    for uneven in resolved.uneven_stores:
        if uneven.silent:
            _leave_out_store(draft, uneven)
            continue
        record = closed(uneven.offsets, uneven.position)
        if left_committed(uneven.store, transactional=draft.options.transactional):
            # A status would hide the proof that nothing in it is uncommitted; none counts as closed.
            record = replace(record, status=None)
        for database in uneven.store.databases:
            draft.steps.append(EditDatabase(_relative(draft, database.path), database, offsets=record))


def _leave_out_store(draft: _MigrationDraft, silent: StoreOffsets) -> None:
    """Leave out a store with silent segments, and have the next start restore it.

    Streams would restore it over the rows that are there, and a delete that the log has forgotten would bring them
    back. ``kstate undo`` has them.
    """
    store = silent.store
    why = "left out, so that Streams restores it: segments without an offset"
    draft.steps.append(OmitTree(_relative(draft, store.path), why))
    if draft.into_family and silent.offsets:
        keeping = Keeping(_relative(draft, store.path.parent))
        draft.steps.append(keeping.carrier(store.name, closed(silent.offsets), segmented=True))


def _into_family(draft: _MigrationDraft, resolved: TaskOffsets) -> None:
    """To offsets in the store: they, ``-4`` and Positions go into each database, and the files leave."""
    task, keeping = resolved.task, _keeping(draft, resolved.task)
    for known in resolved.stores:
        store = known.store
        if known.silent:
            _leave_out_store(draft, known)
            if store.position_file is not None:
                draft.steps.append(keeping.without_position(store.name, "its store is left out"))
            continue
        record = closed(known.offsets, known.position)
        for database in store.databases:
            draft.steps.append(EditDatabase(_relative(draft, database.path), database, offsets=record))
        if store.segmented and not store.databases and known.offsets:
            draft.steps.append(keeping.carrier(store.name, record, segmented=True))
        if store.is_grace_buffer and known.offsets:
            _write_offsets(draft, task, known.offsets, store.name)
        _name_unlogged(draft, known)
        if store.position_file is not None and (store.databases or known.offsets):
            draft.steps.append(keeping.without_position(store.name, "its Position is in the store now"))
    for name, offsets in sorted(resolved.absent.items()):
        if not task.is_global and legal_store_name(name) and name not in task.store_files:
            _of_absent(draft, resolved, name, offsets)
    draft.warnings += [
        f"{task.name}: nothing here keeps the offset {o} of {tp}: it is dropped" for tp, o in resolved.unknown.items()
    ]
    if task.checkpoint is not None:
        draft.steps.append(keeping.without_lines("its offsets are in the stores now"))
    _remove_leftovers(draft, task)
    kept = sorted(set(task.position_files) - {s.name for s in task.stores})
    draft.notes += [f"{task.name}/{position_file(name)}: no store of that name here; it stays" for name in kept]


def _of_absent(draft: _MigrationDraft, resolved: TaskOffsets, name: str, offsets: Offsets) -> None:
    """A line of ``.checkpoint`` whose store is not here: wiped (``-4``), or a custom one that keeps its rows elsewhere.

    4.3 reads ``.checkpoint_<store>`` of custom stores only. Its own keep ``-4`` inside: where, the same store of other
    tasks tells.
    """
    task = resolved.task
    unknown = set(offsets.values()) == {OFFSET_UNKNOWN}
    same = [s for t in draft.app.tasks for s in t.stores if s.name == name and s.databases and not s.is_grace_buffer]
    if unknown and same:
        keeping = _keeping(draft, task)
        draft.steps.append(keeping.carrier(name, closed(offsets), segmented=same[0].segmented))
        return
    _write_offsets(draft, task, offsets, name)
    draft.notes.append(f"{task.name}: {name} has no RocksDB here; its offset goes to {store_checkpoint(name)}")
    buffers = any(s.is_grace_buffer for t in draft.app.tasks for s in t.stores if s.name == name)
    if not unknown or buffers:
        return
    wiped = (
        f"{task.name}: {name} was wiped in every task, so that nothing tells how 4.3 keeps it: if it is a RocksDB "
        "store, under exactly-once the next start wipes its whole task"
    )
    lost = [s.store.name for s in resolved.stores if not s.offsets and s.store.databases and not s.store.empty]
    if lost and not draft.options.at_least_once:
        # StateManagerUtil wipes the directory of a corrupted task as a whole, and what has no changelog is gone then.
        draft.refused.append(f"{wiped}. {', '.join(lost)} in it has no offset: without a changelog its rows are lost")
    else:
        draft.warnings.append(f"{wiped} and restores it. Restore {name} first, or start the older release")


def _out_of_family(draft: _MigrationDraft, resolved: TaskOffsets) -> None:
    """To offsets in files: the column family goes, and the files that the older releases read are written."""
    task, keeping = resolved.task, _keeping(draft, resolved.task)
    lines: dict[TopicPartition, int] = {}
    for known in resolved.stores:
        store = known.store
        if known.silent:
            _leave_out_store(draft, known)
        else:
            _edit_out(draft, store)
        if known.stale:
            draft.warnings.append(
                f"{task.name}/{store.name}: the last run did not open it: its topics stay out of .checkpoint, "
                "where a release up to 4.2 does not start with an unknown one"
            )
            continue
        offsets = known.offsets
        if not offsets and not store.databases and store.segmented and not task.is_global:
            # No segment, so no row: "from the beginning" is true, and no line at all wipes the task under EOS.
            offsets = {usual_changelog(draft.app.app_id, task, store.name): OFFSET_UNKNOWN}
        for tp, offset in offsets.items():
            if tp in lines and lines[tp] != offset:
                draft.warnings.append(f"{task.name}: stores disagree about {tp}: the lowest offset is taken")
            lines[tp] = min(offset, lines.get(tp, offset))
        _name_unlogged(draft, known)
        _position_file(draft, task, known)
    for tp in {tp for known in resolved.stores if known.stale for tp in known.offsets}:
        # Who owns a topic the directory does not say. Without its line a store is rebuilt, which is slow but right.
        if lines.pop(tp, None) is not None:
            draft.warnings.append(
                f"global: {tp} stays out of .checkpoint: a store that the last run did not open names it"
            )
    if not task.is_global:
        for absent in resolved.absent.values():
            lines.update(absent)
    lines = _without_unreadable(draft, task, lines)
    if lines:
        _write_offsets(draft, task, lines)
    elif task.checkpoint is not None:
        draft.steps.append(keeping.without_lines("no store here has an offset"))
    draft.steps += [keeping.without_lines_of(name, "its offset is in .checkpoint now") for name in task.store_files]
    _remove_leftovers(draft, task)


def _edit_out(draft: _MigrationDraft, store: Store) -> None:
    for database in store.databases:
        if _is_carrier(store, database.segment_start, empty=database.empty, families=database.column_families):
            draft.steps.append(OmitTree(_relative(draft, database.path), "a segment that only carried an offset"))
            continue
        drop = (OFFSETS_CF,) if OFFSETS_CF in database.column_families else ()
        changed = conversions(store, database) if draft.options.drop_headers else ()
        too_new = max(database.sst_formats, default=0) > draft.target.reads_sst_format or (
            bool(changed) and draft.target.reads_sst_format <= OLD_SST_FORMAT
        )
        if drop or changed or too_new:
            draft.steps.append(
                EditDatabase(
                    _relative(draft, database.path),
                    database,
                    drop=drop,
                    conversions=changed,
                    sst_format=OLD_SST_FORMAT if too_new else None,
                )
            )


def _is_carrier(store: Store, start: int | None, *, empty: bool, families: tuple[str, ...]) -> bool:
    return start == 0 and empty and not store.is_grace_buffer and set(families) == {DEFAULT_CF, OFFSETS_CF}


def _without_unreadable(
    draft: _MigrationDraft, task: Task, lines: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Offsets below 0 other than -4 cannot be written: Streams refuses them everywhere."""
    bad = {tp: offset for tp, offset in lines.items() if offset < 0 and offset != OFFSET_UNKNOWN}
    if bad:
        named = [f"{task.name}: offset {offset} of {tp}" for tp, offset in bad.items()]
        what = "these offsets are none that Streams writes"
        out = command("wipe", draft.app.path, "--task", task.name)
        hint = f"take the task out, and it is restored from its changelogs: {out}"
        raise Refused(what, details=first_lines(named), where=str(draft.app.path), hint=hint)
    return lines


def _position_file(draft: _MigrationDraft, task: Task, known: StoreOffsets) -> None:
    if task.is_global or known.position.is_empty:
        return
    name = known.store.name
    try:
        draft.steps.append(_keeping(draft, task).position(name, known.position, _position_text(known.position)))
    except ValueError as error:
        raise _unwritable(draft, f"the Position of {task.name}/{name}", error) from None


def _unwritable(draft: _MigrationDraft, what: str, error: ValueError) -> Refused:
    return Refused(
        f"{what} cannot be written to a file: {error}",
        where=str(draft.app.path),
        hint="no older release could read it back: wipe that store, and it is restored from its changelog",
    )


def _position_text(position: Position) -> str:
    return f"position: {', '.join(typed_offsets(position.as_map()))}"


def _keeping(draft: _MigrationDraft, task: Task) -> Keeping:
    return Keeping(_relative(draft, task.path))


def _write_offsets(draft: _MigrationDraft, task: Task, offsets: Offsets, store: str | None = None) -> None:
    """The lines of the task, or of one store alone."""
    keeping = _keeping(draft, task)
    try:
        draft.steps.append(keeping.lines(offsets) if store is None else keeping.lines_of(store, offsets))
    except ValueError as error:
        name = CHECKPOINT if store is None else store_checkpoint(store)
        raise _unwritable(draft, f"{task.name}/{name}", error) from None


def _name_unlogged(draft: _MigrationDraft, known: StoreOffsets) -> None:
    """A clean store without an offset anywhere has no changelog, or Streams restores it from the beginning."""
    if draft.app.running:
        return  # up to 4.2 .checkpoint is not there while an exactly-once application runs
    if not known.offsets and known.store.databases and not known.store.empty:
        draft.warnings.append(
            f"{_relative(draft, known.store.path)}: no offset anywhere: it counts as a store without a changelog"
        )


def _remove_leftovers(draft: _MigrationDraft, task: Task) -> None:
    for name in task.leftovers:
        if name.endswith(".tmp"):
            draft.steps.append(RemoveFile(_relative(draft, task.path / name), "a temporary file that a crash has left"))
