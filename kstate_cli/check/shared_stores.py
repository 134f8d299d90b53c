"""Stores of which several sub-topologies have a copy, and the releases that group them otherwise (KAFKA-20464)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kstate_cli.check.codes.layout import SHARED_STORE_REGROUPED
from kstate_cli.check.codes.topology import STORE_ELSEWHERE
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.task_id import TaskId
from kstate_cli.patch_releases import SHARED_STORE_BUILDER, old_releases
from kstate_cli.specification.homes import StoreKey
from kstate_cli.texts import some

_LISTED: Final = 5
_KEEPS: Final = (Outcome.OPENS, Outcome.RESTORES)
"""The rows of the store stay."""


def have_copies(snapshot: Snapshot, numbers: Sequence[int], topology: str | None) -> bool:
    """Return whether each of these sub-topologies has a store with rows that none of the others has.

    A copy of a task directory has nothing of its own. A StoreBuilder of several suppliers leaves such directories, and
    so does a topology that was changed: nothing here tells the two apart.
    """
    stores: dict[int, set[str]] = {}
    for task in snapshot.app.tasks:
        if not task.is_global and task.id.topology == topology and task.id.subtopology in numbers:
            assert task.id.subtopology is not None
            stores.setdefault(task.id.subtopology, set()).update(store.name for store in task.stores if not store.empty)
    for number in numbers:
        others = set().union(*(stores.get(other, set()) for other in numbers if other != number))
        if not stores.get(number, set()) - others:
            return False
    return True


def suspected(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[int]) -> Finding:
    """Return the finding about stores of several sub-topologies, if the user names no topology."""
    release = snapshot.request.release
    where = f"{some(list(names), _LISTED)}: in the sub-topologies {' and '.join(map(str, numbers))} at once"
    writers = old_releases(SHARED_STORE_BUILDER)
    writer_clause = f"if a release {writers} left this directory, several suppliers return one StoreBuilder"
    does = {
        True: f"{release.version} puts them into one sub-topology: numbers change, and all that moves is restored",
        False: f"{release.version} does the same",
        None: f"which patch release of {release} is started decides whether it puts them into one sub-topology",
    }[release.is_new(SHARED_STORE_BUILDER)]
    other = "else the topology was changed, and one of the directories is left over"
    return snapshot.finding(SHARED_STORE_REGROUPED, f"{where}; {writer_clause}: {does}; {other}")


def doubted(snapshot: Snapshot, predictions: Sequence[Prediction], lowest: Mapping[str, int]) -> list[Prediction]:
    """Return the predictions with what else may come, for tasks from the first of the shared sub-topologies on.

    ``lowest``: by named topology, empty without one, the lowest number of a sub-topology that has a copy.
    """
    if snapshot.request.release.is_new(SHARED_STORE_BUILDER) is False:
        other = Outcome.IGNORED
    else:
        other = Outcome.WIPED if snapshot.request.exactly_once else Outcome.RESTORES_ALL
    changed = []
    for prediction in predictions:
        task = TaskId.parse(prediction.task)
        # Sub-topologies before the first shared one keep their numbers, so their tasks keep their stores.
        touched = (
            bool(lowest) and not task.is_global and (task.subtopology or 0) >= lowest.get(task.topology or "", MAX_I32)
        )
        alone = touched and prediction.or_else is None and prediction.outcome in (*_KEEPS, Outcome.RESTORES_ALL)
        differs = alone and prediction.outcome is not other
        changed.append(
            replace(prediction, or_else=other, by_chance=False, code=prediction.code or SHARED_STORE_REGROUPED)
            if differs
            else prediction
        )
    return changed


def regrouped(snapshot: Snapshot, predictions: Sequence[Prediction]) -> Iterator[Finding]:
    """Yield what the texts of both topologies show: copies that are not complete where they are to be opened."""
    topology = snapshot.request.topology
    if topology is None or topology.old is None:
        return
    keys = [key for key, homes in topology.old.copies.items() if homes != topology.new.places(key)]
    for key in keys:
        keeping = [prediction for prediction in predictions if _is_kept(key, prediction)]
        homes = ", ".join(map(str, topology.old.copies[key]))
        text = f"{key}: sub-topologies {homes} had a copy each, and each copy has its own records"
        text += f"; so do releases {old_releases(SHARED_STORE_BUILDER)} with one StoreBuilder of several suppliers"
        if keeping:
            tasks = some([prediction.task for prediction in keeping], _LISTED)
            text += f": {tasks} keeps the rows of one sub-topology, and Streams does not restore those of the others"
        finding = snapshot.finding(SHARED_STORE_REGROUPED, text, level=Level.ERROR if keeping else None)
        yield replace(finding, hint=snapshot.finding(STORE_ELSEWHERE, text).hint)


def _is_kept(key: StoreKey, prediction: Prediction) -> bool:
    task = TaskId.parse(prediction.task)
    return key == StoreKey(task.topology or "", prediction.store or "") and prediction.outcome in _KEEPS
