"""Half tasks: sub-topologies are merged whose tasks of one partition are on different hosts.

One host completes the task from a dump, and the half of every other host leaves. No host asks another: each gets the
same two texts, and decides by them. The host that completes is the one that had the task with the lowest number among
the sub-topologies whose stores come together, or the one where the user names the task (``--complete``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kstate_cli.change.plan import Change, note, warning
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.task_id import TaskId
from kstate_cli.rehome.model import StoresByTask
from kstate_cli.rehome.snapshot import RehomeLayout
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.texts import command, did_you_mean, first_lines, quoted, some

_MOST: Final = 5
"""Names in one sentence."""
NONE: Final = "none"
"""The value of ``--complete`` for a host that completes no task."""


@dataclass(frozen=True, slots=True)
class HalfTasks:
    """The half tasks of a directory, by what becomes of them here."""

    completed: StoresByTask
    """Task -> the stores that this host restores."""
    leaving: frozenset[str]
    """The tasks that another host completes."""


def complete_halves(layout: RehomeLayout) -> tuple[RehomeLayout, list[Change]]:
    """Return the layout with the half tasks completed or left, and remarks on them.

    Raises UsageError for a half task of another host, Refused for what the dump cannot complete.
    """
    halves = _restorable(layout)
    changes = list(_unrestorable_remarks(layout))
    _refuse_unknown_tasks(layout, halves)
    completer = layout.snapshot.options.completer
    if not halves or completer is None:
        return layout, changes
    decision = _decide(layout, halves)
    changes += _leaving_remarks(layout, decision)
    layout = replace(layout, rehoming=layout.rehoming.without(decision.leaving))
    if decision.completed:
        _refuse_other_release(layout, completer.release)
        completion = completer.complete(layout.snapshot.app, decision.completed)
        layout = replace(layout, completion=completion)
        changes += [warning(text) for text in completion.warnings]
        changes += [note(text) for text in completion.notes]
    return layout, changes


def _restorable(layout: RehomeLayout) -> dict[str, tuple[str, ...]]:
    """Return the half tasks, with the stores that they lack and that have a changelog."""
    unlogged = layout.snapshot.options.unlogged
    logged = {
        name: tuple(store for store in stores if store not in unlogged)
        for name, stores in layout.rehoming.halves.items()
    }
    return {name: stores for name, stores in logged.items() if stores}


def _unrestorable_remarks(layout: RehomeLayout) -> Iterator[Change]:
    unlogged = layout.snapshot.options.unlogged
    for name, stores in layout.rehoming.halves.items():
        if without := sorted(set(stores) & unlogged):
            yield warning(f"{name}: no changelog has {some(without, _MOST)}: what other hosts have of it stays there")


def _refuse_unknown_tasks(layout: RehomeLayout, halves: Mapping[str, tuple[str, ...]]) -> None:
    """Raise UsageError for values of ``--complete`` that name no half task of this host."""
    complete = layout.snapshot.options.complete
    if NONE in complete and len(complete) > 1:
        raise UsageError(f"--complete {quoted(NONE)} leaves nothing to name besides", hint="leave one of them out")
    if unknown := sorted(complete - {*layout.rehoming.targets, NONE}):
        raise UsageError(
            f"--complete: nothing goes to {some(unknown, _MOST)} here",
            hint=f"{did_you_mean(unknown, halves)}half tasks here: {some(sorted(halves), _MOST) or 'none'}",
        )


def _decide(layout: RehomeLayout, halves: Mapping[str, tuple[str, ...]]) -> HalfTasks:
    """Return which half tasks this host completes: those that the user names, else those whose first task it had."""
    complete = layout.snapshot.options.complete
    if complete:
        here = halves.keys() & complete
    else:
        here = {name for name in halves if _first_source(layout, name) in layout.snapshot.tasks}
    return HalfTasks({name: halves[name] for name in sorted(here)}, frozenset(halves.keys() - here))


def _leaving_remarks(layout: RehomeLayout, decision: HalfTasks) -> Iterator[Change]:
    for name in sorted(decision.leaving):
        sources = sorted({placement.source for placement in layout.rehoming.into(name)})
        yield warning(
            f"{name}: only {some(sources, _MOST)} is here, and it leaves: {_host(layout, name)} completes {name}; "
            f"where no host does, name it on one: --complete {quoted(name)}"
        )


def _host(layout: RehomeLayout, task: str) -> str:
    """Return how messages call the host that completes a task."""
    if layout.snapshot.options.complete:
        return "another host"
    return f"the host that has {_first_source(layout, task)}"


def _first_source(layout: RehomeLayout, task: str) -> str:
    """Return the lowest task before the change, of those whose stores come together in ``task``."""
    options = layout.snapshot.options
    new, old = options.new, options.old
    assert new is not None
    assert old is not None
    target = TaskId.parse(task)
    home, nowhere = Home.of(target), options.in_memory | options.unlogged
    keys = [StoreKey(home.topology, store) for store in new.stores_of(home) if store not in nowhere]
    return min(old.homes[key] for key in keys if key in old.homes).task(target.partition or 0)


def _refuse_other_release(layout: RehomeLayout, release: Release) -> None:
    """Raise Refused if the release cannot open what is here: the restored stores would not fit the others."""
    snapshot = layout.snapshot
    inside = release.offsets_home is OffsetsHome.COLUMN_FAMILY
    wrong = sorted(_unreadable(layout, release)) if inside == snapshot.inside else ["it keeps offsets elsewhere"]
    if wrong:
        raise Refused(
            f"{release} cannot open the directory as it is",
            details=first_lines(wrong),
            where=str(snapshot.app.path),
            hint="name the release that runs here, --for; or migrate the directory first: "
            + command("migrate", snapshot.app.path, "--to", release.name),
        )


def _unreadable(layout: RehomeLayout, release: Release) -> Iterator[str]:
    for task in layout.snapshot.app.tasks:
        for store in task.stores:
            if store.databases and not store.opens_in(release):
                yield f"{task.name}/{store.name}"
