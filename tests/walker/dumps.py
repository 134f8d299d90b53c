"""Dumps of the logs, and what a restoration from one of them should make of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kstate_cli.formats.topic_partition import TopicPartition
from tests.interop.to_parquet import SCHEMA, Layout, write_dump
from tests.interop.to_parquet import Log as Bounds

from .content import UNKNOWN, Content, Partition, Store, Task
from .databases import OFFSETS
from .logs import Log, Record
from .model import Effect, Expected, Version, nothing
from .streams import (
    KEY_VALUE,
    RELEASES,
    SEGMENT_MS,
    TABLE,
    TOPOLOGY,
    WINDOW,
    Release,
    apply_changes,
    flat,
    split_into_segments,
    stored_value,
)

_SPEC = """format = 1
application = "{app}"
[stores.{kv}]
kind = "timestamped-key-value"
subtopology = 0
partitions = 2
[stores.{window}]
kind = "timestamped-window"
subtopology = 0
partitions = 2
retention_ms = {retention}
segment_interval_ms = {interval}
[stores.{table}]
kind = "timestamped-key-value"
global = true
source = "processor"
changelog = "{app}-in-global"
"""
_RETENTION_MS = 100 * SEGMENT_MS
STORES = (KEY_VALUE, WINDOW)


@dataclass(frozen=True)
class Dump:
    """The logs as they were when they were dumped."""

    folder: Path
    logs: dict[Partition, Log]

    @property
    def options(self) -> tuple[str, ...]:
        """Of `kstate restore`."""
        return ("--from-changelog", str(self.folder / "dump"), "--spec", str(self.folder / "kstate.toml"))


def make(folder: Path, app: str, logs: dict[Partition, Log]) -> Dump:
    """Write the logs of the task stores, whole."""
    choice: dict[Partition, Log] = {}
    for task, stores in TOPOLOGY.items():
        for store in stores:
            if store in STORES:
                tp = (f"{app}-{store}-changelog", int(task[2:]))
                log = logs.get(tp, Log())
                choice[tp] = Log(list(log.records), log.start, log.end)
    rows = [_row(tp, record) for tp, log in sorted(choice.items()) for record in log.records]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    bounds = {TopicPartition(*tp): Bounds(log.start, log.end) for tp, log in choice.items()}
    write_dump(folder / "dump", table, bounds, {}, Layout())
    spec = _SPEC.format(app=app, kv=KEY_VALUE, window=WINDOW, table=TABLE, retention=_RETENTION_MS, interval=SEGMENT_MS)
    (folder / "kstate.toml").write_text(spec, encoding="utf-8")
    return Dump(folder, choice)


def _row(tp: Partition, record: Record) -> dict[str, object]:
    return {"key": record.key, "value": record.value, "topic": tp[0], "partition": tp[1], "offset": record.offset,
            "timestamp": record.timestamp * 1000, "timestampType": 0, "headers": None}  # fmt: skip


def _opens(task: Task | None, store: str, release: Release) -> bool:
    """Whether a release opens the databases of a store as they are."""
    places = [place for place in task.storage.families if place.startswith(f"{store}/")] if task else []
    return all(
        max(task.storage.formats[place], default=0) <= release.sst_format
        and (release.inside or OFFSETS not in task.storage.families[place])
        for place in places
        if task is not None
    )


def restoring(version: Version | None, app: str, dump: Dump, release: str, *, rebuild: bool) -> Expected:
    """`kstate restore` of all task stores: what is left, caught up, rebuilt; refused as a whole where one store is."""
    content = version.content if version is not None else Content()
    target = RELEASES[release]
    meaning = dict(content.meaning)
    changed = warned = refusal = precious = False
    for task in ("0_0", "0_1"):
        get = content.tasks.get(task)
        if version is not None and task in version.unclean and get is not None and get.folders:
            refusal = True
            continue
        for name in STORES:
            tp = (f"{app}-{name}-changelog", int(task[2:]))
            log = dump.logs[tp]
            old = get.stores.get(name) if get is not None and name in get.folders else None
            offset = old.offsets.get(tp) if old is not None else None
            last = max((record.offset for record in log.records), default=None)
            empty = old is None or old.empty
            if offset == UNKNOWN and empty and last is None and not rebuild:
                refusal |= not _opens(get, name, target)
                continue
            if not rebuild and offset is not None and offset != UNKNOWN and offset + 1 >= log.start:
                if last is None or offset + 1 > last:
                    warned |= offset + 1 > log.end
                    refusal |= not _opens(get, name, target)
                    continue
                if get is None or get.storage.inside != target.inside or not _opens(get, name, target):
                    refusal = True
                    continue
                warned = True  # nobody has said when the dump was read: deletes may be forgotten
                rows = apply_changes(
                    flat(old), {record.key: stored_value(record) for record in log.records if record.offset > offset}
                )
                position = dict(old.position) if old is not None else {}
            else:
                if last is None and not empty:
                    refusal = True
                    continue
                warned |= not rebuild and offset is not None and offset != UNKNOWN
                precious |= offset is not None and offset + 1 > log.end
                rows, position = apply_changes({}, {record.key: stored_value(record) for record in log.records}), {}
            changed = True
            meaning[task, name] = Store(
                split_into_segments(name, rows), {tp: UNKNOWN if last is None else last}, position
            )
    if refusal:
        return nothing(4, takes_over=version is not None)
    statuses = frozenset({0, 1} if warned else {0})
    if not changed:
        return nothing(*statuses, takes_over=version is not None)
    # Stores that are left may be kept for another release: only the next start, or `check`, tells.
    unclean = version.unclean if version else frozenset()
    return Expected(statuses, Effect.CHANGE, meaning, unclean, precious=precious, takes_over=True)
