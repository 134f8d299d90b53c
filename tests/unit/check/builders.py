"""Snapshots of directories that were never there: rules look at nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kstate_cli.check.findings import Records
from kstate_cli.check.ranges import read_offsets
from kstate_cli.check.rule import StoreCheckDraft, TaskCheckDraft
from kstate_cli.check.snapshot import CheckRequest, LogSnapshot, Snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.resolve import resolve_with
from kstate_cli.releases import release
from kstate_cli.statedir.model import Application, Store, Task
from tests.unit.model import application

NOW_MS = 1_700_000_000_000
OLD, NEW = "4.2", "4.3"


def log(key: TopicPartition, start: int, end: int, **more: Any) -> Log:
    """A partition as a broker has it now."""
    return Log(key, start, end, None, None, live=True, **more)


def snapshot(
    *tasks: Task,
    to: str = NEW,
    exactly_once: bool = True,
    logs: Iterable[Log] = (),
    counts: Mapping[tuple[TopicPartition, int], int] | None = None,
    missing: Iterable[TopicPartition] = (),
    files: Mapping[str, Iterable[str]] | None = None,
    app: Application | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Snapshot:
    """`files` are names in tasks beside those of their stores; `counts` are how many records follow, exactly."""
    results = app or application(*tasks)
    entries = {task.name: frozenset({*_names(task), *(files or {}).get(task.name, ())}) for task in results.tasks}
    facts = {log.key: log for log in logs}
    request = CheckRequest(release(to), exactly_once=exactly_once, **(options or {}))
    return Snapshot(
        results,
        request,
        {entry.task.name: entry for entry in resolve_with(results, entries, transactional=request.transactional)},
        NOW_MS,
        entries=entries,
        logs=LogSnapshot(
            facts,
            frozenset(facts),
            frozenset(missing),
            more.pop("ids", {}),
            {key: Records(count, exact=True) for key, count in (counts or {}).items()},
        ),
        **more,
    )


def _names(task: Task) -> set[str]:
    stores = {store.name if store.segmented else "rocksdb" for store in task.stores}
    return stores | ({".checkpoint"} if task.checkpoint is not None else set())


def of_task(view: Snapshot, number: int = 0, **facts: Any) -> TaskCheckDraft:
    """What is known of a task before the first rule, and what is given."""
    task = view.app.tasks[number]
    return TaskCheckDraft(task, read_offsets(view, task), **facts)


def of_store(view: Snapshot, number: int = 0, **facts: Any) -> StoreCheckDraft:
    """What is known of a store before the first rule, and what is given."""
    task = view.app.tasks[0]
    store: Store = task.stores[number]
    return StoreCheckDraft(task, store, read_offsets(view, task).stores[store.name], **facts)
