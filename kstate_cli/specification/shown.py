"""What the bytes of a store, or that it has none, show: what the settings of its changelog are held against."""

from __future__ import annotations

from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from kstate_cli.specification.evidence import Shown
from kstate_cli.specification.infer import Evidence, Inference
from kstate_cli.specification.times import Interval, versioned_span
from kstate_cli.specification.topology import FROM
from kstate_cli.statedir.model import Application, Database, Task


def shown_of(app: Application, store: StoreDraft, described: SpecDraft, inferred: Inference) -> Shown:
    """What ``app`` shows of one store."""
    by_task = [own for task in app.tasks for one in task.stores if one.name == store.name and (own := one.databases)]
    starts = [[d.segment_start for d in own if d.segment_start is not None] for own in by_task]
    known: Evidence | None = inferred.evidence.get(store.name)
    return Shown(
        Interval() if known is None else known.interval,
        max((max(one) - min(one) for one in starts if one), default=0),
        max(map(_versioned, by_task), default=0) if has_key(store.kind, KeySchema.VERSIONED) else 0,
        _absent(app, store, described) if inferred.draft.store(store.name) is None else None,
        frozenset(task.partition for task in app.tasks if _is_of(task, store) and task.partition is not None),
    )


def _versioned(databases: tuple[Database, ...]) -> int:
    return versioned_span(databases)


def _absent(app: Application, store: StoreDraft, described: SpecDraft) -> str | None:
    """Streams opens all stores of a task together, so that each that lies on disk has a directory then."""
    if described.store(store.name) is None or store.is_global or store.subtopology is None:
        return None
    tasks = [task for task in app.tasks if _is_of(task, store)]
    others = {one.name for task in tasks for one in task.stores}
    whole = all({one.name for one in task.stores} == others for task in tasks)
    if not tasks or not others or not whole or any(task.problems for task in tasks):
        return None
    return f"{FROM} has it, and the tasks of subtopology {store.subtopology} here have their other stores on disk"


def _is_of(task: Task, store: StoreDraft) -> bool:
    return not task.is_global and (task.topology, task.id.subtopology or 0) == (store.topology, store.subtopology)
