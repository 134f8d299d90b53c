"""The plan of a migration: the directory is read once (:mod:`snapshot`), then rules turn it into steps and remarks.

Each rule is a pure function of the snapshot: it yields its steps in the order in which a plan prints them, and reads
nothing from disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from kstate_cli import option
from kstate_cli.change.plan import (
    Change,
    Conversion,
    EditDatabase,
    OmitTree,
    Plan,
    Remark,
    RemarkKind,
    RemoveFile,
    WriteFile,
    note,
    steps_of,
    texts_of,
    warning,
)
from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition, legal_store_name, typed_offsets
from kstate_cli.migrate.obstacles import (
    conversions,
    lost_unread,
    lost_with_it,
    misread_sessions,
    refuse_losses,
    refuse_rewrites_of_forgetful,
    refuse_unclean,
    refuse_unreadable,
    replayed,
    unproven_pair,
    wiped_all_the_same,
)
from kstate_cli.migrate.result import releases_after, stores_of_removed_tasks
from kstate_cli.migrate.snapshot import MigrateOptions, MigrationSnapshot, read_snapshot, sources_of
from kstate_cli.offsets.keeping import Keeping, Offsets, closed
from kstate_cli.offsets.last_run import left_committed
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import as_of_note, usual_changelog
from kstate_cli.releases import (
    OLD_SST_FORMAT,
    Release,
    representative,
    unproven_release,
)
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, position_file, store_checkpoint
from kstate_cli.texts import command, first_lines, quoted

_LOG = logging.getLogger(__name__)


def plan_migration(app: Application, target: Release, options: MigrateOptions) -> Plan:
    """Return the plan that brings ``app`` to ``target``; empty if the target can start from it already.

    Raises Refused with everything that prevents the migration, and the rules.
    """
    return plan_of(read_snapshot(app, target, options))


def plan_of(snapshot: MigrationSnapshot) -> Plan:
    """Return the plan that follows from a snapshot; nothing is read from disk. Raises Refused."""
    refuse_unreadable(snapshot)
    # All rules run before anything is planned: if a rule refuses in the last task, there is no partial plan.
    changes = [*_application_changes(snapshot), *_changes_of_tasks(snapshot)]
    for change in changes:
        if isinstance(change, Remark):
            _LOG.debug("%s: %s", change.kind.value, change.text)
        else:
            _LOG.debug("step %s %s: %s", change.action, change.path, change.describe())
    steps = steps_of(changes)
    # These refusals come after all rules, so that one message names every task that prevents the migration.
    refuse_rewrites_of_forgetful(snapshot, steps)
    refuse_unclean(snapshot, texts_of(changes, RemarkKind.UNCLEAN))
    refuse_losses(snapshot, texts_of(changes, RemarkKind.LOSS))
    target, options = snapshot.target, snapshot.options
    # A plan without steps writes nothing, so an unproven target does no harm then.
    if steps and target.unproven and not options.unproven:
        path = snapshot.app.path
        raise unproven_release(target, path, options.command(path, target.version, option.UNPROVEN))
    # A partially created database may lack column families, so it does not show which release wrote it. It only counts
    # if there are no other tasks.
    sources = sources_of(snapshot.whole_tasks or snapshot.app.tasks, transactional=options.transactional)
    source = target
    if sources:
        source = representative(sources)
    notes = texts_of(changes, RemarkKind.NOTE)
    if steps:
        notes = (*notes, *unproven_pair(sources, target))
    return Plan(
        app=snapshot.app.path,
        command=f"migrate {option.TO} {quoted(target.version)}",
        source=source.name,
        target=target.name,
        steps=steps,
        warnings=texts_of(changes, RemarkKind.WARNING),
        notes=notes,
        opens_in=releases_after(snapshot, steps),
        stores_of_removed_tasks=stores_of_removed_tasks(snapshot, steps),
    )


def _application_changes(snapshot: MigrationSnapshot) -> Iterator[Change]:
    """Yield the remarks about the directory as a whole."""
    for problem in snapshot.app.all_problems():
        remark = warning(problem.reasoned)
        # A passing problem only exists while the application is running, and nothing is wrong. A warning would set exit
        # code 1 and so stop a script without need.
        if problem.passing:
            remark = note(problem.reasoned)
        yield remark
    yield from map(note, as_of_note(snapshot.app))
    yield from misread_sessions(snapshot)


def _changes_of_tasks(snapshot: MigrationSnapshot) -> Iterator[Change]:
    for state in snapshot.offsets:
        yield from task_changes(snapshot, state)


def task_changes(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield all steps and remarks for one task. Raises Refused for offsets that no older release can read."""
    task = state.task
    problems = snapshot.unfinished.get(task.name)
    if problems is not None:
        # The application was killed while it created a database. No step can edit it, so the task is removed, and
        # Streams restores it.
        yield from _leave_out(snapshot, state, problems[0].text)
        yield from map(warning, lost_unread(task, problems, snapshot.logged))
        return
    moves = _moves_offsets(snapshot, task)
    # The offsets are where the target reads them. An unclean task is not touched: the target judges it at its start.
    if not moves and not (snapshot.into_family and state.uneven_stores):
        yield from _changes_in_place(snapshot, state)
        return
    options = snapshot.options
    # The rules below move offsets. In an unclean task that would hide the signs of the kill from the next start.
    if state.unclean and not options.at_least_once:
        if options.wipe_unclean:
            yield from _leave_out(snapshot, state, str(state.unclean[0]))
        else:
            yield from (Remark(RemarkKind.UNCLEAN, str(reason)) for reason in state.unclean)
        return
    yield from map(warning, state.warnings)
    yield from map(note, state.notes)
    yield from map(warning, replayed(snapshot.app, state))
    yield from _wiped(snapshot, state)
    if not moves:
        yield from _even_out(snapshot, state)
    elif snapshot.into_family:
        yield from _into_family(snapshot, state)
    else:
        yield from _out_of_family(snapshot, state)


def _changes_in_place(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield the changes of a task whose offsets are where the target reads them."""
    rewrites = list(_rewrite_only(snapshot, state.task))
    yield from rewrites
    # Only 4.3 wipes an unclean task, under exactly-once. Other releases replay records over a versioned store. If there
    # is no step, the target is often the killed release itself: an init container runs before each start, and a warning
    # would stop it.
    if not snapshot.into_family or snapshot.options.at_least_once:
        yield from map(warning if rewrites else note, replayed(snapshot.app, state))
    if snapshot.into_family and snapshot.left_transactional:
        yield from _wiped(snapshot, state)


def _wiped(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield warnings about a task that the next start wipes anyway, and about rows that no changelog can restore."""
    transactional = snapshot.options.transactional
    if transactional and snapshot.target.transactional:
        return  # 4.4 (initializeStoreOffsets) does not treat a transactional store without an offset as corrupted
    texts = wiped_all_the_same(snapshot.app, state, snapshot.target, transactional=transactional)
    yield from map(warning, texts)
    if texts and not snapshot.options.at_least_once:
        yield from map(warning, lost_with_it(snapshot.app, state, snapshot.logged))


def _moves_offsets(snapshot: MigrationSnapshot, task: Task) -> bool:
    """Return True if the target does not find the offsets of a task, or also finds old ones in another place."""
    if not snapshot.into_family:
        # Up to 4.2 Streams cannot open a database with the column family, and never reads ``.checkpoint_<store>``.
        return task.has_offsets_family or bool(task.store_files)
    databases = [database for store in task.stores for database in store.databases]
    # 4.3 reads ``.checkpoint`` even if databases have the family, and prefers it. So an old file must be removed.
    without_family = any(database.offsets is None for database in databases)
    return bool(task.stores) and (task.checkpoint is not None or without_family)


def _leave_out(snapshot: MigrationSnapshot, state: TaskOffsets, reason: str) -> Iterator[Change]:
    """Yield the removal of a whole task, after which Streams restores it, with warnings.

    ``reason`` follows in the plan.
    """
    why = f"removed so that Streams restores it ({reason})"
    # Only the new directory lacks the task. The backup has it until ``kstate clean``.
    yield OmitTree(snapshot.relative(state.task.path), why)
    yield warning(f"kstate removes {state.task.name} so that Streams restores it ({reason})")
    yield from map(warning, lost_with_it(snapshot.app, state, snapshot.logged))


def _rewrite_only(snapshot: MigrationSnapshot, task: Task) -> Iterator[Change]:
    """Rewrite SSTs that are too new for the target; offsets stay where they are."""
    rewrites = [
        EditDatabase(snapshot.relative(database.path), database, sst_format=OLD_SST_FORMAT)
        for store in task.stores
        for database in store.databases
        if _too_new(snapshot, database)
    ]
    yield from rewrites
    # Without the file the offsets of the task are missing, which rewritten SSTs do not change.
    if rewrites and task.checkpoint is None and not task.is_global:
        yield note(f"{task.name}: the task has no .checkpoint, so Streams restores it with or without a migration")


def _too_new(snapshot: MigrationSnapshot, database: Database) -> bool:
    return max(database.sst_formats, default=0) > snapshot.target.reads_sst_format


def _even_out(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield steps that give all segments of a store the same offset, one that the rows of each segment justify.

    A start uses the offset of one segment. It never restores rows below it that another segment lacks.
    """
    for uneven in state.uneven_stores:
        # The rows of a silent segment are only in the changelog, so no offset is right for the existing rows.
        if uneven.silent:
            yield from _leave_out_store(snapshot, uneven)
            continue
        record = closed(uneven.offsets, uneven.position)
        if left_committed(uneven.store, transactional=snapshot.options.transactional):
            # In a store of a transactional run a missing status proves that nothing is uncommitted. Writing one would
            # hide that, and Streams treats a missing status as closed.
            record = replace(record, status=None)
        for database in uneven.store.databases:
            yield EditDatabase(snapshot.relative(database.path), database, offsets=record)


def _leave_out_store(snapshot: MigrationSnapshot, silent: StoreOffsets) -> Iterator[Change]:
    """Yield the removal of a store with silent segments (those without an offset), so that the next start restores it.

    Streams would restore it over the existing rows. If the log has lost a delete by compaction, the deleted row would
    come back. The rows stay in the backup, for ``kstate undo``.
    """
    store = silent.store
    yield OmitTree(
        snapshot.relative(store.path), ("removed so that Streams restores it (some segments have no offset)")
    )
    if snapshot.into_family and silent.offsets:
        keeping = Keeping(snapshot.relative(store.path.parent))
        yield keeping.carrier(store.name, closed(silent.offsets), segmented=True)


def _into_family(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield steps that move the offsets of a task into its stores.

    Offsets, ``-4`` and Positions go into each database, and the files for them are removed.
    """
    task, keeping = state.task, _keeping(snapshot, state.task)
    for store_offsets in state.stores:
        yield from _store_into_family(snapshot, task, store_offsets)
    for name, offsets in sorted(state.absent.items()):
        if not task.is_global and legal_store_name(name) and name not in task.store_files:
            yield from _absent_into_family(snapshot, state, name, offsets)
    for key, offset in state.unknown.items():
        yield warning(
            f"{task.name}: kstate drops the offset {offset} of {key}, because no store of the task has this changelog"
        )
    if task.checkpoint is not None:
        yield keeping.without_lines("the offsets are now in the stores")
    yield from _remove_leftovers(snapshot, task)
    for name in sorted(set(task.position_files) - {store.name for store in task.stores}):
        yield note(f"{task.name}/{position_file(name)}: the task does not have this store, so the file stays")


def _store_into_family(snapshot: MigrationSnapshot, task: Task, state: StoreOffsets) -> Iterator[Change]:
    """Yield steps and remarks that move the offsets and the Position of one store into its databases."""
    store, keeping = state.store, _keeping(snapshot, task)
    # Some of its segments do not state an offset, so the store is removed, and the next start restores it.
    if state.silent:
        yield from _leave_out_store(snapshot, state)
        if store.position_file is not None:
            yield keeping.without_position(store.name, "the store is removed")
        return
    record = closed(state.offsets, state.position)
    for database in store.databases:
        yield EditDatabase(snapshot.relative(database.path), database, offsets=record)
    # Without a segment there is no database for the offset: one without rows is created.
    if store.segmented and not store.databases and state.offsets:
        yield keeping.carrier(store.name, record, segmented=True)
    # Streams keeps the offset of a grace buffer in a file of the store.
    if store.is_grace_buffer and state.offsets:
        yield _offsets_file(snapshot, task, state.offsets, store.name)
    yield from _name_unlogged(snapshot, state)
    if store.position_file is not None and (store.databases or state.offsets):
        yield keeping.without_position(store.name, "the Position is now in the store")


def _absent_into_family(
    snapshot: MigrationSnapshot, state: TaskOffsets, name: str, offsets: Offsets
) -> Iterator[Change]:
    """Yield steps for a line of ``.checkpoint`` whose store has no directory in the task.

    Such a store was wiped (then the offset is ``-4``), or it is a custom one with its rows elsewhere. 4.3 reads
    ``.checkpoint_<store>`` of custom stores only. A store of Streams needs ``-4`` in an empty database; the same store
    in other tasks shows its layout.
    """
    task = state.task
    unknown = set(offsets.values()) == {OFFSET_UNKNOWN}
    same = [store for other in snapshot.app.tasks for store in other.stores if store.name == name]
    buffers = any(store.is_grace_buffer for store in same)
    kept_inside = [store for store in same if store.databases and not store.is_grace_buffer]
    if unknown and kept_inside:
        yield _keeping(snapshot, task).carrier(name, closed(offsets), segmented=kept_inside[0].segmented)
        return
    yield _offsets_file(snapshot, task, offsets, name)
    yield note(
        f"{task.name}: the store {name} has no database in this task, so kstate writes its offset to "
        f"{store_checkpoint(name)}"
    )
    if unknown and not buffers:
        yield _wiped_everywhere(snapshot, state, name)


def _wiped_everywhere(snapshot: MigrationSnapshot, state: TaskOffsets, name: str) -> Remark:
    """Return the remark for a store that was wiped in all tasks, so that its layout in 4.3 is unknown.

    It is a loss if Streams would then wipe rows of the same task that no changelog can restore.
    """
    wiped = (
        f"{state.task.name}: {name} was wiped in every task, so kstate does not know where 4.3 keeps the store's "
        f"offset. If "
        "this is a RocksDB store, Streams wipes its whole task under exactly-once"
    )
    without = [other.store for other in state.stores if not other.offsets]
    lost = [store.name for store in without if store.databases and not store.empty]
    if not lost or snapshot.options.at_least_once:
        return warning(f"{wiped} and restores it. First restore {name}, or start the older release")
    # Streams (StateManagerUtil) wipes the whole directory of a corrupted task, with its stores without a changelog.
    rows = f"These stores of the task have no offset: {', '.join(lost)}. Without a changelog, their rows are lost"
    return Remark(RemarkKind.LOSS, f"{wiped}. {rows}")


def _out_of_family(snapshot: MigrationSnapshot, state: TaskOffsets) -> Iterator[Change]:
    """Yield steps that move the offsets of a task to files: drop the column family, and write ``.checkpoint``."""
    task, keeping = state.task, _keeping(snapshot, state.task)
    lines: dict[TopicPartition, int] = {}
    for store_offsets in state.stores:
        yield from _store_out_of_family(snapshot, task, store_offsets, lines)
    for key in {key for store_offsets in state.stores if store_offsets.stale for key in store_offsets.offsets}:
        # The directory does not show which store a global topic belongs to. A store whose line is missing is rebuilt:
        # this takes time, but the result is right.
        if lines.pop(key, None) is not None:
            yield warning(
                f"global: kstate does not write {key} to .checkpoint, because the application's last run did not "
                "open the store of this topic"
            )
    if not task.is_global:
        for absent in state.absent.values():
            # These are lines of custom stores, and -4 of wiped ones. If such a line were missing, Streams would wipe
            # the task.
            lines.update(absent)
    _refuse_below_zero(snapshot, task, lines)
    if lines:
        yield _offsets_file(snapshot, task, lines)
    elif task.checkpoint is not None:
        yield keeping.without_lines("no store in the task has an offset")
    # The older release would never remove this file. ``.checkpoint``, which the step before writes, has its offset now.
    for name in task.store_files:
        yield keeping.without_lines_of(name, "the offset is now in .checkpoint")
    yield from _remove_leftovers(snapshot, task)


def _store_out_of_family(
    snapshot: MigrationSnapshot, task: Task, state: StoreOffsets, lines: dict[TopicPartition, int]
) -> Iterator[Change]:
    """Yield steps that move the offsets and the Position of one store out of its databases.

    Add its offsets to ``lines``, the lines of the task's ``.checkpoint`` so far.
    """
    store = state.store
    if state.silent:
        yield from _leave_out_store(snapshot, state)
    else:
        # Every database loses the column family, also those of global stores that the last run did not open: 4.2 opens
        # no database that has it.
        yield from _edit_out(snapshot, store)
    if state.stale:
        yield warning(
            f"{task.name}/{store.name}: the application's last run did not open this store. kstate does not write "
            "its topics to .checkpoint, because releases up to 4.2 fail to start if this file contains an unknown "
            "topic"
        )
        return
    for key, offset in _line_offsets(snapshot, task, state).items():
        # A source topic may be the changelog of several stores, but has one line. So the lowest offset is written.
        if key in lines and lines[key] != offset:
            yield warning(f"{task.name}: the stores have different offsets for {key}, and kstate uses the lowest")
        lines[key] = min(offset, lines.get(key, offset))
    yield from _name_unlogged(snapshot, state)
    yield from _position_file(snapshot, task, state)


def _line_offsets(snapshot: MigrationSnapshot, task: Task, state: StoreOffsets) -> Offsets:
    """Return the offsets that ``.checkpoint`` must have for a store."""
    store = state.store
    if state.offsets or store.databases or not store.segmented or task.is_global:
        return state.offsets
    # The store has no segment, so no row, and "read from the beginning" (-4) is right. Without a line exactly-once
    # would wipe the task.
    return {usual_changelog(snapshot.app.app_id, task, store.name): OFFSET_UNKNOWN}


def _edit_out(snapshot: MigrationSnapshot, store: Store) -> Iterator[Change]:
    """Yield the steps that remove the family ``offsets``, headers and new SST formats from a store's databases."""
    for database in store.databases:
        # A segment that kstate created only to record an offset is not needed: up to 4.2 the line in ``.checkpoint`` is
        # enough.
        if _is_carrier(store, database):
            yield OmitTree(snapshot.relative(database.path), "the segment contained only an offset")
            continue
        # 4.2 does not open a database with a column family that is not among its options.
        drop = (OFFSETS_CF,) if OFFSETS_CF in database.column_families else ()
        changed: tuple[Conversion, ...] = ()
        if snapshot.options.drop_headers:
            changed = conversions(store, database)
        # RocksDB writes converted rows in its newest SST format, which releases up to 3.9 cannot read. So those are
        # rewritten too.
        rewrite = _too_new(snapshot, database) or (bool(changed) and snapshot.target.reads_sst_format <= OLD_SST_FORMAT)
        if drop or changed or rewrite:
            yield EditDatabase(
                snapshot.relative(database.path),
                database,
                drop=drop,
                conversions=changed,
                sst_format=OLD_SST_FORMAT if rewrite else None,
            )


def _is_carrier(store: Store, database: Database) -> bool:
    """Return True for a segment that kstate created to record an offset, and that Streams has not used since."""
    if store.is_grace_buffer or database.segment_start != 0 or not database.empty:
        return False
    return set(database.column_families) == {DEFAULT_CF, OFFSETS_CF}


def _refuse_below_zero(snapshot: MigrationSnapshot, task: Task, lines: Offsets) -> None:
    """Raise Refused for offsets below 0 other than -4: no release accepts them."""
    bad = {key: offset for key, offset in lines.items() if offset < 0 and offset != OFFSET_UNKNOWN}
    if bad:
        out = command("wipe", snapshot.app.path, option.TASK, task.name)
        raise Refused(
            "the directory contains negative offsets that Streams does not write",
            details=first_lines([f"{task.name}: the offset of {key} is {offset}" for key, offset in bad.items()]),
            where=str(snapshot.app.path),
            hint=f"remove the task so that Streams restores it from its changelogs: {out}",
        )


def _position_file(snapshot: MigrationSnapshot, task: Task, state: StoreOffsets) -> Iterator[Change]:
    # Streams writes no Position file for global stores (GlobalStateManagerImpl.registerStore).
    if task.is_global or state.position.is_empty:
        return
    name = state.store.name
    try:
        yield _keeping(snapshot, task).position(name, state.position, _position_text(state.position))
    except ValueError as error:
        raise _unwritable(snapshot, f"the Position of {task.name}/{name}", error) from None


def _position_text(position: Position) -> str:
    return f"position: {', '.join(typed_offsets(position.as_map()))}"


def _offsets_file(snapshot: MigrationSnapshot, task: Task, offsets: Offsets, store: str | None = None) -> WriteFile:
    """Return the step that writes the offsets to ``.checkpoint``; with ``store`` to ``.checkpoint_<store>``."""
    keeping, name = _keeping(snapshot, task), CHECKPOINT
    try:
        if store is None:
            return keeping.lines(offsets)
        name = store_checkpoint(store)
        return keeping.lines_of(store, offsets)
    except ValueError as error:
        raise _unwritable(snapshot, f"{task.name}/{name}", error) from None


def _unwritable(snapshot: MigrationSnapshot, place: str, error: ValueError) -> Refused:
    return Refused(
        f"kstate cannot write {place}: {error}",
        where=str(snapshot.app.path),
        hint=(
            "wipe the store so that Streams restores it from its changelog. An older release could not read this file"
        ),
    )


def _name_unlogged(snapshot: MigrationSnapshot, state: StoreOffsets) -> Iterator[Change]:
    """Yield a warning about a store with rows and without an offset: it has no changelog, or is restored as a whole."""
    if snapshot.app.running:
        return  # up to 4.2 there is no .checkpoint while an exactly-once application is running
    store = state.store
    if not state.offsets and store.databases and not store.empty:
        yield warning(
            f"{snapshot.relative(store.path)}: the store has no offset, so kstate assumes that it has no changelog"
        )


def _remove_leftovers(snapshot: MigrationSnapshot, task: Task) -> Iterator[Change]:
    for name in task.leftovers:
        if name.endswith(".tmp"):
            yield RemoveFile(snapshot.relative(task.path / name), "a crash left this temporary file")


def _keeping(snapshot: MigrationSnapshot, task: Task) -> Keeping:
    return Keeping(snapshot.relative(task.path))
