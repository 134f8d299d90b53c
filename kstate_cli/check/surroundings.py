"""Rules for the directory as a whole: ages, owners, file system, runs of kstate, and starts that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kstate_cli.check.codes.layout import FAILED_START_DELETES
from kstate_cli.check.codes.logs import CHANGELOG_WITHOUT_STORE
from kstate_cli.check.codes.surroundings import (
    CLEANER_MAY_DELETE,
    FOREIGN_OWNER,
    KEPT_TOO_LONG,
    LOCK_NOT_SHARED,
    ONLY_KEPT,
    UNFINISHED_RUN,
    VERSIONED_POSITION,
)
from kstate_cli.check.findings import Finding, Outcome, Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import GLOBAL, store_in_topologies
from kstate_cli.texts import plural, size_text, some

_CLEANUP_DELAY = 600
"""Seconds: the default of ``state.cleanup.delay.ms``."""
_LISTED_NAMES = 6


@dataclass(frozen=True, slots=True)
class SurroundingsRule:
    """A rule about the directory as a whole."""

    source: str
    """The class of Kafka Streams, or the rule of kstate, that it follows from."""
    judge: Callable[[Snapshot], Iterator[Finding]]


def _ages(snapshot: Snapshot) -> Iterator[Finding]:
    now = snapshot.now_seconds
    # No cleaner deletes the folder of the global stores, because every instance needs them.
    old = [t.name for t in snapshot.app.tasks if not t.is_global and now - t.mtime_ns / 1e9 > _CLEANUP_DELAY]
    if old:
        text = (
            f"{_some(old)}: older than ten minutes. Streams' cleaner deletes such tasks unless they are assigned to "
            "this instance"
        )
        yield snapshot.finding(CLEANER_MAY_DELETE, text)


def _versioned(snapshot: Snapshot) -> Iterator[Finding]:
    stores = [store for task in snapshot.app.tasks for store in task.stores]
    names = sorted({store.name for store in stores if has_key(store.kind.name, KeySchema.VERSIONED)})
    # Up to 4.2 the Position is kept in ``<store>.position``.
    if names and snapshot.request.into_family:
        text = f"the Position of {names[0]} is empty after each start"
        if len(names) > 1:
            text = f"the Positions of these stores are empty after each start: {_some(names)}"
        yield snapshot.finding(VERSIONED_POSITION, text)


def _owners(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding about files of another owner than that of the application directory."""
    around = snapshot.around
    if around.others:
        yield snapshot.finding(
            FOREIGN_OWNER,
            f"these entries do not belong to the application directory's owner (uid {around.owner}): "
            f"{_some(list(around.others))}",
        )


def _mount(snapshot: Snapshot) -> Iterator[Finding]:
    mount = snapshot.around.mount
    if mount is not None and mount.may_not_share_locks:
        yield snapshot.finding(LOCK_NOT_SHARED, f"the directory is on a {mount.kind} file system ({mount.point})")


def _runs(snapshot: Snapshot) -> Iterator[Finding]:
    for run in snapshot.around.runs:
        if run.damage is not None:
            yield snapshot.finding(UNFINISHED_RUN, f"kstate cannot read run {run.name}: {run.damage}")
        elif run.interrupted:
            yield snapshot.finding(UNFINISHED_RUN, f"run {run.name} was interrupted")
        elif run.lost is not None:
            yield snapshot.finding(ONLY_KEPT, f"run {run.name}: {run.lost}")
        elif run.kept_bytes:
            text = f"run {run.name} has kept a backup of {size_text(run.kept_bytes)} since {run.kept_since}"
            yield snapshot.finding(KEPT_TOO_LONG, text)


def _in_memory(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each changelog of the application whose store is in memory, because it has no files."""
    stores = {store.name for task in snapshot.app.tasks for store in task.stores}
    if snapshot.homes is not None:
        stores |= snapshot.homes.stores
    # A store with an offset but without a directory may be a custom one, so it need not be in memory.
    stores |= {name for resolved in snapshot.resolved.values() for name in resolved.absent}
    topics = {key.topic for key in snapshot.logs.partitions}
    topologies = {task.topology for task in snapshot.app.tasks}
    readings = [store_in_topologies(topic, snapshot.app.app_id, topologies) for topic in topics]
    names = {reading[0] for reading in readings if reading is not None} - stores
    if snapshot.request.topology is not None:
        # The broker keeps the changelogs of stores that the topology no longer has.
        names &= {key.store for key in snapshot.request.topology.new.homes}
    for name in sorted(names):
        text = (
            f"{name} has a changelog, but no directory, because the store is in memory. Streams restores the whole "
            "store every time it starts"
        )
        yield snapshot.finding(CHANGELOG_WITHOUT_STORE, text)


AROUND_RULES: tuple[SurroundingsRule, ...] = (
    SurroundingsRule("StateDirectory.cleanRemovedTasks", _ages),
    SurroundingsRule("RocksDBVersionedStore.writePosition", _versioned),
    SurroundingsRule(
        "StateDirectory reads and writes the files as the application's user (docs/internals/layout.md#owners)", _owners
    ),
    SurroundingsRule("StateDirectory.lockStateDirectory", _mount),
    SurroundingsRule("kstate keeps backups of its runs", _runs),
    SurroundingsRule("Streams restores an InMemoryKeyValueStore every time it starts", _in_memory),
)
"""The rules about the directory as a whole."""


def _some(names: list[str]) -> str:
    return some(names, _LISTED_NAMES)


_LISTED_TASKS: Final = 5


def deleted_by_failure(snapshot: Snapshot, predictions: Sequence[Prediction]) -> Iterator[Finding]:
    """Yield a warning if a start that fails may delete task directories.

    Under exactly-once ``StateManagerUtil.closeStateManager`` deletes the directory of a task that is not closed
    cleanly, unless its stores are transactional. If a global store fails, the start ends before there are tasks.
    """
    failing = {prediction.task for prediction in predictions if prediction.outcome is Outcome.FAILS}
    if not snapshot.request.exactly_once or snapshot.request.starts_transactional or not failing or GLOBAL in failing:
        return
    tasks = [task.name for task in snapshot.app.tasks if not task.is_global]
    text = (
        f"startup fails in {some(sorted(failing), _LISTED_TASKS)}, and Streams may delete the directories of "
        f"{plural(len(tasks), 'task')}"
    )
    # These stores may have no changelog. Then their rows are lost with the directory.
    without = _stores_without_offset(snapshot)
    if without:
        text += f". Without a changelog, the rows of {some(without, _LISTED_TASKS)} are then lost"
    yield snapshot.finding(FAILED_START_DELETES, text)


def _stores_without_offset(snapshot: Snapshot) -> list[str]:
    """Return the stores of tasks that have rows and no offset, each name once."""
    names = {
        state.store.name
        for resolved in snapshot.resolved.values()
        for state in resolved.stores
        if not resolved.task.is_global and not state.offsets and not state.store.empty
    }
    return sorted(names)
