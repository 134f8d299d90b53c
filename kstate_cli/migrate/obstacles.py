"""Obstacles to a migration: stores that the target cannot read or would misread, and the conversion of headers.

Releases before 4.3 do not read stores with record headers (KIP-1271): :func:`conversions` plans their older layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from kstate_cli.migrate.snapshot import MigrationSnapshot
from kstate_cli.releases import knows_headers, readable_by
from kstate_cli.statedir.model import (
    Database,
    Store,
    Task,
    has_rows_without_headers,
    may_be_misread_with_headers,
    misread_with_headers,
    without_headers,
)
from kstate_cli.texts import command, first_lines


def _stores(snapshot: MigrationSnapshot) -> Iterator[tuple[Task, Store, str]]:
    """Yield each store of a whole task, with its name for messages."""
    for task in snapshot.whole_tasks:
        for store in task.stores:
            yield task, store, f"{task.name}/{store.name}"


def refuse_unreadable(snapshot: MigrationSnapshot) -> None:
    """Raise Refused for stores that the target cannot read at all."""
    lines: list[str] = []
    headers: list[str] = []
    for task, store, name in _stores(snapshot):
        kind = store.kind.name
        if store.families & headers_families() and not snapshot.into_family:
            headers.append(f"{name}: a store with record headers ({kind})")
            lines += [f"{name}: {reason}" for reason in [undecided(store)] if reason is not None]
            kind = without_headers(kind)
        if not readable_by(kind, snapshot.target):
            lines.append(f"{name}: {kind} stores are unknown to {snapshot.target}")
        reason = snapshot.subscriptions.get((task.name, store.name))
        if reason is not None:
            lines.append(f"{name}: {reason}")
    if lines:
        raise Refused(
            f"{snapshot.target} cannot read these stores",
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint="stay with a release that has such stores, or take them out of the topology and wipe them first",
        )
    if headers and not snapshot.options.drop_headers:
        raise Refused(
            f"{snapshot.target} cannot read these stores",
            details=first_lines(headers),
            where=str(snapshot.app.path),
            hint="--drop-headers converts their rows to the older layout; the headers are lost",
        )


def misread_sessions(snapshot: MigrationSnapshot) -> Iterator[Remark]:
    """Yield a note about on-window-close sessions that 4.3.1 misreads once their store has headers.

    Raises Refused if the store has both layouts already, or the user is about to switch.
    """
    lines: list[str] = []
    names: dict[str, None] = {}
    at_risk: list[str] = []
    for _, store, place in _stores(snapshot):
        if has_rows_without_headers(store):
            lines.append(f"{place}: rows without headers beside rows of the layout with them")
            names[store.name] = None
        elif not knows_headers(snapshot.target) or not may_be_misread_with_headers(store):
            continue
        elif snapshot.options.headers_format:
            lines.append(f"{place}: {store.kind.name}")
            names[store.name] = None
        elif misread_with_headers(store.kind.name) is not None:
            at_risk.append(place)
    if lines:
        raise Refused(
            "4.3.1 reads these on-window-close sessions wrong under dsl.store.format=HEADERS",
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint="leave dsl.store.format at DEFAULT where the store has never been one with headers; else wipe it, and "
            "it is restored from its changelog:",
            hint_details=[command("wipe", snapshot.app.path, "--store", name) for name in names],
        )
    if at_risk:
        yield note(
            f"{', '.join(at_risk)}: on-window-close sessions, which 4.3.1 reads wrong under dsl.store.format=HEADERS: "
            "leave it at DEFAULT"
        )


def refuse_rewrites_of_forgetful(snapshot: MigrationSnapshot, steps: Sequence[Step]) -> None:
    """Raise Refused if files of a FIFO store have to be rewritten: RocksDB would drop other rows of the new files."""
    lines = [
        f"{step.path}: column family {step.before.forgetful_family} has compaction_style=kCompactionStyleFIFO, and its "
        f"files have to be rewritten for {snapshot.target}"
        for step in steps
        if isinstance(step, EditDatabase) and (step.sst_format is not None or step.conversions)
        if step.before.forgetful_family is not None
    ]
    if lines:
        raise Refused(
            "RocksDB drops whole files of these stores by age and size, and would drop other rows of rewritten files",
            details=first_lines(lines),
            where=str(snapshot.app.path),
            hint="set another compaction style in rocksdb.config.setter, start and stop the application once, then "
            "migrate",
        )


def undecided(store: Store) -> str | None:
    """Return why the layout without headers of a store's rows is uncertain; None if it is certain."""
    families = sorted(headers_families() & store.families)
    for family in families:
        if not kinds_of_family(family, segmented=store.segmented):
            segmented = "segmented" if store.segmented else "not segmented"
            return f"column family {family} is none of a store that is {segmented}"
    if store.kind.certain or store.empty:
        return None
    # Session stores come with and without a header prefix.
    for family in families:
        if len({_older(kind, family, store.name) for kind in kinds_of_family(family, segmented=store.segmented)}) > 1:
            return "its rows do not tell whether sessions are time-ordered"
    return None


def conversions(store: Store, database: Database) -> tuple[Conversion, ...]:
    """Return the conversions of a database to the layout that the same topology has without headers.

    Key-value and window rows keep their timestamp, sessions never had one. The windows of stream-stream joins are
    plain there (``StreamJoinedStoreFactory``); only their names tell them apart.
    """
    kind = store_kind(store.kind.name)
    to_older = []
    for family in sorted(headers_families() & set(database.column_families)):
        of = kind if kind.layout_in(family) else kinds_of_family(family, segmented=store.segmented)[0]
        target, layout = _older(of, family, store.name)
        to_older.append(Conversion(family, target, layout))
    return tuple(to_older)


def _older(kind: StoreKind, family: str, store_name: str) -> tuple[str, str]:
    """Return the older family for rows of a family with headers, and how their values change (``layouts.STRIP``)."""
    number = next(number for number, other in enumerate(kind.families) if other.name == family)
    newer, older = kind.families[number : number + 2]
    if kind.key is KeySchema.WINDOW and JOIN_WINDOW.fullmatch(store_name):
        older = kind.families[-1]
    return older.name, stripped(newer.layout, older.layout, kind.key)
