"""The result of a migration, which a plan states before anything is changed: releases and numbers of stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kstate_cli.change.plan import CreateDatabase, EditDatabase, OmitTree, Step
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF, kind_names, store_kind
from kstate_cli.migrate.snapshot import MigrationSnapshot
from kstate_cli.releases import NEWEST_SST_FORMAT, RELEASES, opens_in
from kstate_cli.statedir.model import Database, Store


def releases_after(snapshot: MigrationSnapshot, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the releases that open every store after ``steps``, by column families, SST formats and kinds."""
    by_path = {step.path: step for step in steps}
    opening = [frozenset(names) for names in _of_stores(snapshot, by_path)]
    opening += [
        frozenset(opens_in(kinds=frozenset(), families=frozenset({DEFAULT_CF, OFFSETS_CF}), sst_formats=frozenset()))
        for step in steps
        if isinstance(step, CreateDatabase)
    ]
    if not opening:
        return ()
    common = frozenset.intersection(*opening)
    return tuple(row.name for row in RELEASES if row.name in common)


def stores_of_removed_tasks(snapshot: MigrationSnapshot, steps: Sequence[Step]) -> int:
    """Return how many stores the tasks have that ``steps`` remove as a whole."""
    removed = {step.path for step in steps if isinstance(step, OmitTree)}
    return sum(len(task.stores) for task in snapshot.app.tasks if snapshot.relative(task.path) in removed)


def _of_stores(snapshot: MigrationSnapshot, by_path: Mapping[str, Step]) -> Iterator[tuple[str, ...]]:
    removed = {path for path, step in by_path.items() if isinstance(step, OmitTree)}
    for task in snapshot.app.tasks:
        for store in task.stores:
            paths = {snapshot.relative(path) for path in (task.path, store.path)}
            if not removed & paths:
                yield from _of_databases(snapshot, store, by_path)


def _of_databases(snapshot: MigrationSnapshot, store: Store, by_path: Mapping[str, Step]) -> Iterator[tuple[str, ...]]:
    for database in store.databases:
        step = by_path.get(snapshot.relative(database.path))
        if isinstance(step, OmitTree):
            continue
        edit = step if isinstance(step, EditDatabase) else None
        kinds = frozenset({store.kind.name} & kind_names())
        if edit is not None and edit.conversions:
            kinds = frozenset(store_kind(name).headers_of or name for name in kinds)
        families = edit.families_after if edit is not None else frozenset(database.column_families)
        yield opens_in(kinds=kinds, families=families, sst_formats=_formats_after(database, edit))


def _formats_after(database: Database, edit: EditDatabase | None) -> frozenset[int]:
    if edit is not None and edit.sst_format is not None:
        return frozenset({edit.sst_format})
    formats = frozenset(database.sst_formats)
    if edit is not None and edit.conversions:
        # RocksDB writes converted rows in its newest format.
        formats |= {NEWEST_SST_FORMAT}
    return formats
