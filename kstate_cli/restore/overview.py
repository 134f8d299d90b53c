"""How far a restoration is, store by store, for those who look at it from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kstate_cli.change.journal import Run
from kstate_cli.restore.file_names import task_of
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.staging import DONE, Staging

SLICES_EVENT = "slices"


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """Slices of one store."""

    task: str
    store: str
    done: int
    total: int
    records: int
    """Records in the slices that are done."""


def slices_of_stores(jobs: Sequence[SliceJob]) -> dict[str, int]:
    """What the journal keeps: ``task/store`` to its number of slices."""
    return dict(Counter(_shown(job.task, job.store) for job in jobs))


def store_progress(run: Run) -> list[StoreProgress]:
    """Of a run in RESTORING; empty where its staging cannot be seen from this host."""
    event = run.last(SLICES_EVENT)
    done: dict[str, dict[int, int]] = {}
    for note in Staging(str(event.get("staging", ""))).notes(DONE) if event else ():
        done.setdefault(_shown(note["task"], note["store"]), {})[note["number"]] = note["records"]
    return [
        StoreProgress(*_read(store), len(done.get(store, ())), total, sum(done.get(store, {}).values()))
        for store, total in event.get("stores", {}).items()
    ]


def _shown(task: str, store: str) -> str:
    return f"{task}/{store}"


def _read(shown: str) -> tuple[str, str]:
    """The task and the store, in whose name there is no slash."""
    key, _, store = shown.rpartition("/")
    return task_of(key), store
