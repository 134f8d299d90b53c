"""One row per store: what ``kstate ls`` and ``kstate inspect-position`` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, by_topic
from kstate_cli.offsets.resolve import resolve
from kstate_cli.releases import opens_in
from kstate_cli.statedir.model import Application

Row = dict[str, Any]


def store_rows(app: Application, *, transactional: bool = False) -> list[Row]:
    """A row for each store with a directory, and for each store that only has an offset.

    ``transactional``: somebody says that the application runs with transactional stores.
    """
    rows: list[Row] = []
    for task in resolve(app, transactional=transactional):
        rows += [_store_row(app, task, offsets) for offsets in task.stores]
        rows += [_absent_row(app, task, name, offsets) for name, offsets in sorted(task.absent.items())]
    return rows


def _store_row(app: Application, task: TaskOffsets, offsets: StoreOffsets) -> Row:
    store = offsets.store
    problems = [p for d in store.databases for p in d.problems]
    row: Row = {
        "task": task.task.name,
        "store": store.name,
        "kind": store.kind.name,
        "kind_certain": store.kind.certain,
        "kind_from": store.kind.inferred_from,
        "offsets_in": offsets.offsets_in,
        "changelog": task.offsets_shown(offsets),
        "position": offsets.position_shown,
        "status": store.status,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": sorted(store.sst_formats),
        "opens_in": list(
            ()
            if any(p.fatal for p in problems)
            else opens_in(kinds=frozenset({store.kind.name}), families=store.families, sst_formats=store.sst_formats)
        ),
        "column_families": sorted(store.families),
        "segments": [d.segment_start for d in store.databases] if store.segmented else None,
        "segments_without_offset": [d.segment_start for d in offsets.silent],
        "rows": None if any(p.fatal for p in problems) else sum(d.rows for d in store.databases),
        "rows_exact": False,
        "bytes": sum(d.size for d in store.databases),
        "leftovers": list(task.task.leftovers),
        "unclean": [str(reason) for reason in task.unclean if reason.store == store.name],
    }
    return row


def _absent_row(app: Application, task: TaskOffsets, name: str, offsets: Mapping[TopicPartition, int]) -> Row:
    """A custom store, one in memory, or one that is gone: only its offset is here."""
    row: Row = {
        "task": task.task.name,
        "store": name,
        "kind": "no-directory",
        "kind_certain": False,
        "kind_from": "an offset without a RocksDB: a custom store, or one that is gone",
        "offsets_in": "store-file" if name in task.task.store_files else "checkpoint",
        "changelog": by_topic(offsets),
        "position": {},
        "status": None,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": [],
        "opens_in": [],
        "column_families": [],
        "segments": None,
        "segments_without_offset": [],
        "rows": None,
        "rows_exact": False,
        "bytes": 0,
        "leftovers": list(task.task.leftovers),
        "unclean": [],
    }
    return row
