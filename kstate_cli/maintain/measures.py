"""The metrics of ``kstate maintain``: of its steps, of stores, of the dump and of snapshots.

A gauge whose value is unknown is absent, because a zero would be wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kstate_cli import clock, option
from kstate_cli.formats.topic_partition import GLOBAL
from kstate_cli.maintain.steps import STANDBY

if TYPE_CHECKING:
    from kstate_cli.dump_reader.model import Grown
    from kstate_cli.maintain.memory import Memory, Result

Measure: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name of a gauge, the values of its labels after ``application``, and its value."""
_STEP: Final = ("application", "step", "directory", "of")
_STORE: Final = ("application", "directory", "of", "task", "store")
# "directory" replaced "of", and two gauges have new names. The old ones stay for one version (:func:`measures`).
_DIRECTORY: Final = "directory"
# Dashboards and alerts use the names, so each change keeps both for one version.
_OLD_NAMES: Final = {
    "kstate_verified_completely_timestamp_seconds": "kstate_verify_circle_timestamp_seconds",
    "kstate_backup_bytes": "kstate_kept_bytes",
}
_DUMP: Final = ("application",)
_SNAPSHOT: Final = ("application",)

MEASURES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kstate_step_last_run_timestamp_seconds": ("maintain: the time when the step last finished.", _STEP),
    "kstate_step_last_success_timestamp_seconds": (
        (
            "maintain: the time when the step last finished without an error. A warning counts as an error unless "
            f"{option.WARNINGS_OK} accepts it."
        ),
        _STEP,
    ),
    "kstate_step_duration_seconds": ("maintain: how long the step took the last time it ran.", _STEP),
    "kstate_step_exit_code": (
        "maintain: the last exit code of the step. It is 6 if the step exceeded its time limit.",
        _STEP,
    ),
    "kstate_step_findings": (
        "maintain: the number of findings that the step reported, by code and level.",
        (*_STEP, "code", "level"),
    ),
    "kstate_verified_completely_timestamp_seconds": (
        (
            "maintain: the time when verify last completed all parts of the stores. If the directory label "
            "is empty, this is the time when verify-dump last completed all parts of the dump."
        ),
        ("application", "directory", "of"),
    ),
    "kstate_verify_circle_timestamp_seconds": (
        "maintain: the old name of kstate_verified_completely_timestamp_seconds.",
        ("application", "directory", "of"),
    ),
    "kstate_backup_bytes": (
        "maintain: the size of the backups that kstate keeps for undo, in bytes.",
        ("application", "directory", "of"),
    ),
    "kstate_kept_bytes": ("maintain: the old name of kstate_backup_bytes.", ("application", "directory", "of")),
    "kstate_lag_records": (
        "maintain: the number of records in the broker's log that the store has not read yet.",
        _STORE,
    ),
    "kstate_lag_seconds": ("maintain: the age of the first record that the store has not read yet.", _STORE),
    "kstate_dump_lag_offsets": (
        (
            "maintain: the number of offsets, including transaction markers, by which the store is behind the end "
            "of the dump. The value is 0 if the application is ahead of the dump. The gauge is absent if a standby "
            "is ahead, because the standby then belongs to a different log."
        ),
        _STORE,
    ),
    "kstate_dump_bytes": ("maintain: the size of the dump, in bytes.", _DUMP),
    "kstate_dump_read_timestamp_seconds": (
        (
            "maintain: the time when kstate last read from the broker. If the times differ between partitions, "
            "this is the earliest one."
        ),
        _DUMP,
    ),
    "kstate_dump_held_back_offsets": (
        (
            "maintain: the number of offsets that kstate could not read at the log ends, because transactions were "
            "open when it last read from the broker."
        ),
        _DUMP,
    ),
    "kstate_dump_headroom_seconds": (
        (
            "maintain: the remaining time in which kstate can extend the dump. This time ends when "
            "delete.retention.ms, minus a margin, has passed since kstate last read the compacted topics. If the value "
            "is negative, the next run writes a full dump."
        ),
        _DUMP,
    ),
    "kstate_dump_continued_until_timestamp_seconds": (
        (
            "maintain: the time until which kstate can extend the dump. The value stays correct even if no "
            "run updates the file."
        ),
        _DUMP,
    ),
    "kstate_snapshot_timestamp_seconds": (
        "maintain, snapshot: the time when this host's newest snapshot started.",
        _SNAPSHOT,
    ),
    "kstate_snapshot_bytes": (
        (
            "maintain, snapshot: the size of the newest snapshot in bytes, including files that it shares "
            "with earlier snapshots."
        ),
        _SNAPSHOT,
    ),
    "kstate_snapshot_new_bytes": (
        "maintain, snapshot: the total size of the SSTs and blob files that the newest snapshot added, in bytes.",
        _SNAPSHOT,
    ),
    "kstate_snapshot_skipped_tasks": (
        "maintain, snapshot: the number of this host's tasks that are missing from the newest snapshot.",
        _SNAPSHOT,
    ),
    "kstate_snapshot_generations": ("maintain, snapshot: the number of readable snapshots from this host.", _SNAPSHOT),
}
"""Gauges beside those of every command: their help text and labels."""


def measures(
    memory: Memory, directories: Mapping[str, Path], dump: str | None, snapshots: Iterable[Measure] = ()
) -> Iterator[Measure]:
    """Yield all known values of metrics, with the old names of some. ``snapshots``: see :func:`of_snapshots`.

    Raises KstateError and OSError if the dump, or the journal of a run, cannot be read.
    """
    yield from snapshots
    for name, labels, value in _measures(memory, directories, dump):
        names = MEASURES[name][1][1:]
        if _DIRECTORY in names:
            end = names.index(_DIRECTORY) + 1
            # The old label ``of`` has the value of ``directory``, and follows it.
            labels = (*labels[:end], labels[end - 1], *labels[end:])
        yield name, labels, value
        if name in _OLD_NAMES:
            yield _OLD_NAMES[name], labels, value


def _measures(memory: Memory, directories: Mapping[str, Path], dump: str | None) -> Iterator[Measure]:
    """Yield all known values with their labels, without the old label ``of``."""
    for result in memory.results.values():
        yield from _of_step(result)
    for directory, cycle in memory.parts.items():
        if cycle.last_complete_ms is not None:
            yield "kstate_verified_completely_timestamp_seconds", (directory,), cycle.last_complete_ms / 1000
    for directory, path in directories.items():
        yield "kstate_backup_bytes", (directory,), _backup_bytes(path)
    grown = None
    if dump is not None:
        grown = newest(dump)
    ends = _ends(grown)
    for result in memory.results.values():
        # A failed step has listed only some of the stores, or none.
        if result.step == "lag" and result.of in directories and result.good:
            yield from _of_stores(result, ends)
    if grown is not None:
        yield from _of_dump(grown, clock.now_ms())


def _of_step(result: Result) -> Iterator[Measure]:
    labels = (result.step, result.of or "")
    yield "kstate_step_last_run_timestamp_seconds", labels, result.ended_ms / 1000
    if result.success_ms is not None:
        yield "kstate_step_last_success_timestamp_seconds", labels, result.success_ms / 1000
    yield "kstate_step_duration_seconds", labels, (result.ended_ms - result.began_ms) / 1000
    yield "kstate_step_exit_code", labels, result.exit
    for finding, count in result.findings.items():
        # As the memory has them: neither has white space.
        level, code = finding.split()
        yield "kstate_step_findings", (*labels, code, level), count


def _backup_bytes(path: Path) -> int:
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.change.folder import read_runs

    return sum(pinned_bytes(run) for run in read_runs(path))


def newest(dump: str) -> Grown | None:
    """Return the manifest of a dump that grows; None without one. Raises DumpError if it cannot be read."""
    from kstate_cli.dump_reader.growing_source import newest_manifest
    from kstate_cli.dump_reader.location import open_location, uri_text

    # A dump that does not exist yet is no error: its step has not run.
    if "://" not in dump and not os.path.isdir(dump):
        return None
    filesystem, root = open_location(dump)
    return newest_manifest(filesystem, root, uri_text(dump))


def _ends(grown: Grown | None) -> dict[tuple[str, int], int]:
    if grown is None:
        return {}
    return {(key.topic, key.partition): full.end for key, full in grown.newest().items()}


def _of_stores(result: Result, ends: Mapping[tuple[str, int], int]) -> Iterator[Measure]:
    for lag in result.lags:
        labels = (result.of or "", lag["task"], lag["store"])
        if lag["lag"] is not None:
            yield "kstate_lag_records", labels, lag["lag"]
        if lag["lag_seconds"] is not None:
            yield "kstate_lag_seconds", labels, lag["lag_seconds"]
        behind = list(_behind(lag, ends, is_standby=result.of == STANDBY))
        if behind and None not in behind:
            yield "kstate_dump_lag_offsets", labels, sum(number for number in behind if number is not None)


def _behind(
    lag: Mapping[str, object], ends: Mapping[tuple[str, int], int], *, is_standby: bool
) -> Iterator[int | None]:
    """Yield, for each partition, how many offsets a store is behind the end of the dump; None if that is unknown.

    A standby is built from the dump. If it is beyond the end of the dump, it is from another log, so it has no lag.
    """
    is_global = lag["task"] == GLOBAL
    offsets = lag["reached"]
    if not isinstance(offsets, dict):
        return
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            end = ends.get((topic, int(partition)))
            if end is None or offset < 0:
                yield None
                continue
            number = end - offset
            if not is_global:
                # A store of a task records the offset of its last record, a global store that of the next record.
                number -= 1
            yield None if number < 0 and is_standby else max(0, number)


def _of_dump(grown: Grown, now_ms: int) -> Iterator[Measure]:
    """Yield the values of a growing dump: its size, its age, and how long its increments can continue."""
    from kstate_cli.dump_writer.plan import continued_until

    yield "kstate_dump_bytes", (), sum(file.size for full in grown.fulls for file in full.files)
    newest_fulls = grown.newest().values()
    if newest_fulls:
        yield "kstate_dump_held_back_offsets", (), sum(full.held_back for full in newest_fulls)
        yield "kstate_dump_read_timestamp_seconds", (), min(full.as_of_ms for full in newest_fulls) / 1000
    # An increment needs all partitions. So the full dump that can be continued for the shortest time counts.
    untils: Iterable[int] = [until for full in newest_fulls if (until := continued_until(full)) is not None]
    if untils:
        yield "kstate_dump_headroom_seconds", (), (min(untils) - now_ms) / 1000
        yield "kstate_dump_continued_until_timestamp_seconds", (), min(untils) / 1000


def of_snapshots(place: str, application: str, host: str | None = None) -> Iterator[Measure]:
    """Yield the values of a host's snapshots in a repository; none before the first snapshot.

    ``host`` is the name in the snapshots; None means this host. Raise KstateError and OSError.
    """
    from kstate_cli.snapshot.capture import this_host
    from kstate_cli.snapshot.capture_plan import newest_generations
    from kstate_cli.snapshot.places import repository_of

    repository = repository_of(place)
    if not repository.exists():
        return
    host = host or this_host()
    every = newest_generations(repository, application, len(repository.generation_names()))
    own = [generation.content for generation in every if generation.content.host == host]
    yield "kstate_snapshot_generations", (), len(own)
    if not own:
        return
    latest, before = own[0], {}
    for generation in own[1:2]:
        before = generation.objects
    yield "kstate_snapshot_timestamp_seconds", (), latest.created_ms / 1000
    yield "kstate_snapshot_bytes", (), latest.size
    new = {name: size for name, size in latest.objects.items() if name not in before}
    yield "kstate_snapshot_new_bytes", (), sum(new.values())
    yield "kstate_snapshot_skipped_tasks", (), len(latest.skipped)
