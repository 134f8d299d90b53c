"""What lies in a task directory: files that cannot be read, foreign entries, what a crash has left."""

from __future__ import annotations

import os
from pathlib import Path

from kstate_cli.check.context import Context, subtopology
from kstate_cli.check.findings import Level
from kstate_cli.check.opening import Obstacle, java_text
from kstate_cli.errors import Refused
from kstate_cli.formats import checkpoint
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.regular import MOST_OFFSETS_BYTES, NotReadableError, read_small
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT, LOCK, ROCKSDB, is_offsets_file, position_file, store_checkpoint
from kstate_cli.statedir.segments import segment_start

_RAW = frozenset({"NumberFormatException", "IllegalArgumentException"})
"""Not IOExceptions: these also escape where the offsets of tasks are summed up for a rebalance."""


def unreadable(path: Path) -> MalformedBytesError | None:
    """Why ``OffsetCheckpoint.read`` cannot read a file; None where it can.

    Raises Refused where kstate does not read what Streams may read.
    """
    try:
        checkpoint.parse(read_small(path, MOST_OFFSETS_BYTES))
    except MalformedBytesError as error:
        if error.streams_exception is None:
            raise Refused(
                f"{path}: {error.reason}: what a start makes of it cannot be foretold",
                hint="put back what belongs there, or move it out of the application directory",
            ) from None
        return error
    except NotReadableError as error:
        raise Refused(
            f"{path} {error.why}: what a start makes of it cannot be foretold",
            hint="put back what belongs there, or move it out of the application directory",
        ) from None
    return None


def checkpoint_obstacle(ctx: Context, task: Task) -> Obstacle | None:
    """The task's, or the global stores', ``.checkpoint``, where it cannot be read."""
    if task.checkpoint is None:
        return None
    error = unreadable(task.checkpoint.path)
    if error is None:
        for line in task.checkpoint.content.dropped if task.checkpoint.content else ():
            ctx.found("dropped-line", f"{task.name}/{CHECKPOINT}: {line!r}", task)
        return None
    text = f"{task.name}/{CHECKPOINT}: {error.reason}"
    ctx.found("malformed-checkpoint", text, task)
    java = java_text(error)
    if ctx.asked.into_family:
        where = "null" if task.is_global else task.path.name
        messages: tuple[str, ...] = (f"Error migrating checkpoint file for task '{where}'", java)
    elif error.streams_exception in _RAW:
        messages = (java,)
    elif task.is_global:
        messages = ("Failed to read checkpoints for global state globalStores", java)
    else:
        messages = ("Error loading and deleting checkpoint file when creating the state manager", java)
    return Obstacle("malformed-checkpoint", text, f"{task.name}/{CHECKPOINT}", messages)


def store_file_obstacle(ctx: Context, task: Task, store: Store) -> Obstacle | None:
    """``<store>.position``, and ``.checkpoint_<store>`` of a store that does not keep its own offsets."""
    if store.position_file is not None and (error := unreadable(store.position_file.path)) is not None:
        text = f"{task.name}/{position_file(store.name)}: {error.reason}"
        ctx.found("malformed-position", text, task, store.name)
        java = java_text(error)
        wrapped = () if error.streams_exception in _RAW else ("Error reading checkpoint file",)
        return Obstacle("malformed-position", text, f"{task.name}/{position_file(store.name)}", (*wrapped, java))
    kept = store.store_file
    if not ctx.asked.into_family or not store.is_grace_buffer or kept is None:
        return None
    if (error := unreadable(kept.path)) is not None:
        file = f"{task.name}/{store_checkpoint(store.name)}"
        text = f"{file}: {error.reason}"
        ctx.found("malformed-store-checkpoint", text, task, store.name)
        message = f"Error loading checkpoint file when creating StateStore '{store.name}'"
        return Obstacle("malformed-store-checkpoint", text, file, (message, java_text(error)))
    return None


def segment_obstacle(ctx: Context, task: Task, store: Store) -> Obstacle | None:
    """An entry of a segmented store's folder whose name is no segment's."""
    if not store.segmented:
        return None
    for name in sorted(os.listdir(store.path)):
        shown = f"{task.name}/{store.name}/{name}"
        if segment_start(store.name, name) is None:
            if name[len(store.name) : len(store.name) + 1] == "-":
                continue  # a date that does not parse: skipped with a warning
            ctx.found("foreign-in-segments", f"{shown} is no segment", task, store.name)
            # The name is cut at the length of the store's, whatever it begins with.
            short = len(name) <= len(store.name)
            message = "ndex out of range: " if short else f"Unable to parse segment id as long from segmentName: {name}"
            return Obstacle("foreign-in-segments", f"{shown} is no segment", shown, (message,))
        if name[len(store.name)] != ".":
            ctx.found("old-segment-name", f"{shown} is renamed", task, store.name)
    return None


def foreign_entries(ctx: Context, task: Task) -> None:
    """Entries of a task that Streams ignores, deletes, or left behind in a crash."""
    names = {store.name for store in task.stores} | {ROCKSDB} | set(ctx.resolved[task.name].absent)
    for name in sorted(os.listdir(task.path)):
        shown = f"{task.name}/{name}"
        if name.endswith(LOCK):
            ctx.found("lock-file-in-task", f"{shown} will be deleted", task)
        elif name in task.leftovers:
            ctx.found("leftover-file", f"{shown} is what a crash has left", task)
        elif name not in names and not is_offsets_file(name):
            ctx.found("foreign-in-task", f"{shown} is not a file of Streams", task)


def copied_tasks(ctx: Context) -> frozenset[str]:
    """Stores that are in two subtopologies: one of the directories is no task of this application.

    Returns the names of the tasks that it is more likely to be: those of the higher number.
    """
    owners: dict[tuple[str | None, str], set[int]] = {}
    for task in ctx.app.tasks:
        topology, number = subtopology(task)
        if number is not None:
            for store in task.stores:
                owners.setdefault((topology, store.name), set()).add(number)
    twice = {key: numbers for key, numbers in owners.items() if len(numbers) > 1}
    for numbers in sorted({tuple(sorted(numbers)) for numbers in twice.values()}):
        names = sorted(name for (_, name), found in twice.items() if tuple(sorted(found)) == numbers)
        text = f"{', '.join(names)}: in the subtopologies {' and '.join(map(str, numbers))} at once"
        fatal = ctx.asked.into_family and has_global(ctx)
        more = ": 4.3 opens the global stores in the wrong one too, and does not start" if fatal else ""
        ctx.found("store-in-two-subtopologies", text + more, level=Level.ERROR if fatal else None)
    higher = {(topology, sorted(numbers)[-1]) for (topology, _), numbers in twice.items()}
    return frozenset(task.name for task in ctx.app.tasks if not task.is_global and subtopology(task) in higher)


def has_global(ctx: Context) -> bool:
    """True where the application has, or had, global stores on disk."""
    return any(task.is_global and task.stores for task in ctx.app.tasks)
