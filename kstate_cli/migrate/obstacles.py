"""Obstacles to a migration, and warnings about the next start: rules over the snapshot that move no offset.

A store that the target cannot read, or would misread, stops the migration, and so do unclean tasks and lost rows. The
warnings name data that the next start restores, replays or loses, migrated or not.

Releases before 4.3 do not read stores with record headers (KIP-1271): :func:`conversions` plans their older layout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import Conversion, EditDatabase, Remark, Step, note
from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import KeySchema, stripped
from kstate_cli.formats.store_kinds import (
    JOIN_WINDOW,
    StoreKind,
    headers_families,
    kinds_of_family,
    store_kind,
)
from kstate_cli.migrate.snapshot import MigrateOptions, MigrationSnapshot
from kstate_cli.offsets.last_run import has_offset_if_logged
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import may_be_ahead
from kstate_cli.releases import OffsetsHome, Release, knows_headers, proven, readable_by
from kstate_cli.statedir.model import (
    Application,
    Database,
    Store,
    Task,
    has_rows_without_headers,
    may_be_misread_with_headers,
    misread_with_headers,
    without_headers,
)
from kstate_cli.statedir.problems import Problem
from kstate_cli.texts import command, first_lines, some, suggest


def _stores(snapshot: MigrationSnapshot) -> Iterator[tuple[Task, Store, str]]:
    """Yield each store of a task without unfinished databases, with its name for messages."""
    for task in snapshot.whole_tasks:
        for store in task.stores:
            yield task, store, f"{task.name}/{store.name}"


def refuse_unreadable(snapshot: MigrationSnapshot) -> None:
    """Raise Refused for stores that the target cannot read, or only after a conversion that is not allowed."""
    lines: list[str] = []
    headers: list[str] = []
    for task, store, name in _stores(snapshot):
        kind = store.kind.name
        if store.families & headers_families() and not snapshot.into_family:
            headers.append(f"{name} has record headers ({kind})")
            doubt = undecided(store)
            # If it is uncertain which layout the rows have, a conversion could silently cut bytes off the values.
            if doubt is not None:
                lines.append(f"{name}: {doubt}")
            # The conversion makes it a store of the older kind. So the target must support that kind.
            kind = without_headers(kind)
        if not readable_by(kind, snapshot.target):
            lines.append(f"{name}: {snapshot.target} does not support {kind} stores")
        reason = snapshot.subscriptions.get((task.name, store.name))
        if reason is not None:
            lines.append(f"{name}: {reason}")
    if lines:
        raise Refused(
            f"{snapshot.target} cannot read these stores",
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint=(
                "stay on a release that supports such stores. Or remove the stores from the topology, then wipe them"
            ),
        )
    if headers and not snapshot.options.drop_headers:
        # A restoration from a snapshot migrates too, and cannot drop headers.
        drop = snapshot.options.command(snapshot.app.path, snapshot.target.version, option.DROP_HEADERS)
        raise Refused(
            f"{snapshot.target} cannot read these stores",
            details=first_lines(headers),
            where=str(snapshot.app.path),
            hint=suggest(
                f"to convert the rows to the older layout without headers, pass {option.DROP_HEADERS}",
                option.DROP_HEADERS,
            )
            or f"first restore without {option.FOR}. Then run {drop}",
        )


def misread_sessions(snapshot: MigrationSnapshot) -> Iterator[Remark]:
    """Yield a note about stores of on-window-close sessions: 4.3.1 would misread them if they got headers.

    Raises Refused if a store has rows with and without headers already, or if the user is about to start with
    ``dsl.store.format=HEADERS``.
    """
    mixed: list[str] = []
    mixed_names: dict[str, None] = {}
    lines: list[str] = []
    names: dict[str, None] = {}
    at_risk: list[str] = []
    for _, store, place in _stores(snapshot):
        # For every target: 4.3.1 may have written some rows back already, and kstate cannot recognize these.
        if has_rows_without_headers(store):
            mixed.append(f"{place} has both rows with headers and rows without headers")
            mixed_names[store.name] = None
        elif not knows_headers(snapshot.target) or not may_be_misread_with_headers(store):
            continue
        # Some kinds have the same bytes. With HEADERS, a doubt is enough to refuse, else only a certain kind is named.
        elif snapshot.options.headers_format:
            lines.append(f"{place}: {store.kind.name}")
            names[store.name] = None
        elif misread_with_headers(store.kind.name) is not None:
            at_risk.append(place)
    if mixed:
        raise Refused(
            "4.3.1 misreads rows of these on-window-close sessions and may already have written wrong rows",
            details=first_lines(mixed),
            where=str(snapshot.app.path),
            hint="wipe the stores so that Streams restores them from their changelogs:",
            hint_details=[command("wipe", snapshot.app.path, option.STORE, name) for name in mixed_names],
        )
    if lines:
        raise Refused(
            "4.3.1 would misread these on-window-close sessions with dsl.store.format=HEADERS",
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint=(
                "if the store never had headers, keep dsl.store.format=DEFAULT. Otherwise, wipe the store so that "
                "Streams restores it from its changelog:"
            ),
            hint_details=[command("wipe", snapshot.app.path, option.STORE, name) for name in names],
        )
    if at_risk:
        yield note(
            f"{', '.join(at_risk)}: with dsl.store.format=HEADERS, 4.3.1 misreads on-window-close sessions, so keep "
            "DEFAULT"
        )


def refuse_rewrites_of_forgetful(snapshot: MigrationSnapshot, steps: Sequence[Step]) -> None:
    """Raise Refused if a step rewrites files of a FIFO store.

    FIFO compaction deletes whole files by age and size. In rewritten files the rows are distributed otherwise, so
    RocksDB would delete other rows.
    """
    lines = [
        (
            f"{step.path}: the column family {step.before.forgetful_family} has "
            f"compaction_style=kCompactionStyleFIFO, but kstate must rewrite its files for {snapshot.target}"
        )
        for step in steps
        # An edit that only writes offsets is safe, because it keeps the data files.
        if isinstance(step, EditDatabase) and (step.sst_format is not None or step.conversions)
        if step.before.forgetful_family is not None
    ]
    if lines:
        raise Refused(
            (
                "RocksDB deletes whole files of these stores by age and size. If a migration rewrote the "
                "files, RocksDB would delete different rows"
            ),
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint=(
                "set a different compaction style in rocksdb.config.setter. Start and stop the application once, then "
                "migrate"
            ),
        )


def undecided(store: Store) -> str | None:
    """Return why it is uncertain which layout without headers the rows of a store would have; None if it is certain."""
    families = sorted(headers_families() & store.families)
    for family in families:
        if not kinds_of_family(family, segmented=store.segmented):
            segmented = "segmented" if store.segmented else "non-segmented"
            return f"{segmented} stores do not have the column family {family}"
    if store.kind.certain or store.empty:
        return None
    # If the kinds that may use this column family have different older layouts, the rows do not show which one is
    # right.
    for family in families:
        if len({_older(kind, family, store.name) for kind in kinds_of_family(family, segmented=store.segmented)}) > 1:
            return "the rows do not show whether the sessions are time-ordered"
    return None


def conversions(store: Store, database: Database) -> tuple[Conversion, ...]:
    """Return the conversions of a database to the layout that a store of the same topology has without headers.

    Rows of key-value and window stores keep their timestamp; sessions never had one. The windows of stream-stream joins
    have no timestamp in the older layout (``StreamJoinedStoreFactory``). Only the names of such stores show what they
    are.
    """
    # The kind was inferred from samples. If it does not have this column family, any kind that has it gives the same
    # result (see undecided).
    kind = store_kind(store.kind.name)
    to_older = []
    for family in sorted(headers_families() & set(database.column_families)):
        of = kind if kind.layout_in(family) else kinds_of_family(family, segmented=store.segmented)[0]
        target, layout = _older(of, family, store.name)
        to_older.append(Conversion(family, target, layout))
    return tuple(to_older)


def _older(kind: StoreKind, family: str, store_name: str) -> tuple[str, str]:
    """Return the older family for rows of a family with headers, and how their values change (in ``layouts.STRIP``)."""
    number = next(number for number, other in enumerate(kind.families) if other.name == family)
    # The families of a kind are in order, newest first. So the next one is its older layout.
    newer, older = kind.families[number : number + 2]
    # Stores of joins have plain values, without the timestamp that other windows have. Their family is the oldest one.
    if kind.key is KeySchema.WINDOW and JOIN_WINDOW.fullmatch(store_name):
        older = kind.families[-1]
    return older.name, stripped(newer.layout, older.layout, kind.key)


_MOST_NAMES: Final = 5


def wiped_all_the_same(app: Application, resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Return a warning if the next start restores a whole task because stores in it have no offset; otherwise nothing.

    A release that keeps offsets in the database writes the offset of a logged store at the first commit, and those of
    all stores when it closes. Up to 4.2 ``.checkpoint`` has all offsets or does not exist
    (``ProcessorStateManager.initializeStoreOffsetsFromCheckpoint``).
    """
    # A running application writes its offsets when it closes. And no start wipes the directory of global stores.
    if app.running or resolved.task.is_global:
        return []
    never = _never_committed(resolved, target, transactional=transactional)
    if not never:
        return []
    text = (
        f"{resolved.task.name}: kstate found no offset for {some(never, _MOST_NAMES)}. Under exactly-once, {target} "
        "wipes and restores the whole task, as every release does. Under at-least-once, it restores only the listed "
        "stores that have a changelog"
    )
    return [text]


def _never_committed(resolved: TaskOffsets, target: Release, *, transactional: bool) -> list[str]:
    """Return the stores of a task that lack an offset which the target release needs."""
    without = [state.store for state in resolved.stores if state.store.databases and not state.offsets]
    names = [store.name for store in without if _lacks_offset(store, transactional=transactional)]
    if target.offsets_home is OffsetsHome.COLUMN_FAMILY:
        names += [state.store.name for state in resolved.stores if _lacks_file(state.store)]
    has_offsets = bool(resolved.absent) or any(state.offsets for state in resolved.stores)
    if names or has_offsets:
        return names
    # No store of the task has an offset, so the empty ones were opened and never committed. A store with rows and no
    # offset counts as one without a changelog.
    return [store.name for store in without if store.empty]


def _lacks_offset(store: Store, *, transactional: bool) -> bool:
    """Return True for a store that keeps offsets in its database, has none, and may have a changelog."""
    return store.has_offsets_family and not has_offset_if_logged(store, transactional=transactional)


def _lacks_file(store: Store) -> bool:
    """Return True for a grace buffer without ``.checkpoint_<store>``, from which 4.3 reads its offset."""
    return store.is_grace_buffer and store.has_offsets_family and store.store_file is None and not store.empty


def replayed(app: Application, resolved: TaskOffsets) -> list[str]:
    """Return a warning for each versioned store whose rows may be ahead of its offset: a start replays records then."""
    return [
        (
            f"{resolved.task.name}/{state.store.name}: the application was killed, so the store's rows may be ahead "
            "of its offset. When Streams starts, it replays records over these rows, which changes the store's "
            "versions. To let Streams restore the store instead, run: "
        )
        + command("wipe", app.path, option.TASK, resolved.task.name, option.STORE, state.store.name)
        for state in resolved.stores
        if may_be_ahead(state.store, resolved)
    ]


def lost_with_it(app: Application, resolved: TaskOffsets, logged: Collection[str]) -> list[str]:
    """Return a warning about stores of a removed task that may have no changelog, with a command to export their rows.

    ``logged`` are the stores that have an offset in any task, which proves a changelog.
    """
    stores = [state.store for state in resolved.stores]
    unknown = [store.name for store in stores if store.name not in logged and not store.empty]
    if not unknown:
        return []
    untold = _untold(resolved.task, unknown)
    keep = command("export", app.path, unknown[0], option.OUT, "DIR")
    return [f"{untold} their rows are lost with the task. To keep the rows, first run {keep}"]


def lost_unread(task: Task, unfinished: Collection[Problem], logged: Collection[str]) -> list[str]:
    """Return a warning about stores of a removed task with unfinished databases, whose rows no command can read.

    ``unfinished`` are the problems of these databases. ``logged`` are the stores that have an offset in any task.
    """
    names = {problem.place.store.name for problem in unfinished if problem.place.store is not None}
    unread = sorted(names - {*logged})
    if not unread:
        return []
    untold = _untold(task, unread, " (partially created databases)")
    return [f"{untold} the only copy of their rows is in the run's backup"]


def _untold(task: Task, stores: Sequence[str], which: str = "") -> str:
    """Return the beginning of a warning: no offset shows whether these stores have a changelog."""
    have = "have"
    if len(stores) == 1:
        have = "has"
    return (
        f"{task.name}: no offset shows whether {some(stores, _MOST_NAMES)}{which} {have} a changelog. Without a "
        "changelog,"
    )


def refuse_unclean(snapshot: MigrationSnapshot, reasons: Sequence[str]) -> None:
    """Raise Refused if tasks may have uncommitted rows: the user must decide whether Streams restores them."""
    if reasons:
        wipe = f". Otherwise, pass {option.WIPE_UNCLEAN} to remove these tasks so that Streams restores them"
        raise Refused(
            "some tasks had an unclean shutdown, so under exactly-once, their stores may contain uncommitted data",
            details=first_lines(reasons),
            where=str(snapshot.app.path),
            hint=f"{_transactional_hint(snapshot.offsets, snapshot.options)}if the application ran with "
            f"at-least-once, pass {option.GUARANTEE} at_least_once{suggest(wipe, option.WIPE_UNCLEAN)}",
        )


def _transactional_hint(tasks: Collection[TaskOffsets], options: MigrateOptions) -> str:
    """Return a part of a hint if only the user knows whether the databases were left by a transactional run.

    Else empty.
    """
    ambiguous = any(reason.no_status for state in tasks for reason in state.unclean)
    if options.transactional or not ambiguous:
        return ""
    return f"if the application used transactional stores (4.4), pass {option.TRANSACTIONAL_STORES}. "


def refuse_losses(snapshot: MigrationSnapshot, reasons: Sequence[str]) -> None:
    """Raise Refused if the next start would lose rows that no changelog can restore."""
    if reasons:
        raise Refused(
            "the application would lose rows when it starts",
            details=first_lines(reasons),
            where=str(snapshot.app.path),
            hint=(
                "start and stop the application once with the older release to recreate the wiped store. Then "
                "migrate. If the application runs with at-least-once, it does not wipe the task, so pass "
                f"{option.GUARANTEE} at_least_once"
            ),
        )


def unproven_pair(sources: Collection[Release], target: Release) -> tuple[str, ...]:
    """Return a note if these two releases were not run one after the other."""
    names = tuple(source.name for source in sources)
    if target.name in names or proven(names, target):
        return ()
    return (
        f"unproven: migrations from {'/'.join(names) or '?'} to {target} have not been tested with real applications",
    )
