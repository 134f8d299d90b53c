"""Half a task: sub-topologies are merged whose tasks of one partition lie on different hosts.

One host completes it, from a dump, and on the others their half leaves. No host asks another: all of them are told the
same two texts, and each finds by them which one it is. It is the one that has the task of the lowest number before,
among the sub-topologies whose stores come together; or the user says it (``--complete``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.texts import command, did_you_mean, first_lines, quoted, some

if TYPE_CHECKING:
    from kstate_cli.change.plan import Step
    from kstate_cli.rehome.snapshot import RehomeDraft
    from kstate_cli.statedir.model import Application

_NAMED = 5
NONE: Final = "none"
"""What is named where another host completes all of them."""
Wanted = Mapping[str, tuple[str, ...]]
"""Task -> the stores that it is to get."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What is made of a dump for the stores that the tasks of a host lack."""

    offsets: Mapping[tuple[str, str], Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Task and store -> its offsets, once it is restored."""
    steps: tuple[Step, ...] = ()
    """Those that announce the stores, and files of their own. What is in ``.checkpoint`` is the task's."""
    times: Mapping[str, int] = field(default_factory=dict)
    """As of when the restored stores of a task are, in ns, where that is known: all its tasks that are not here have
    data of nobody knows when."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Completer(Protocol):
    """Who restores stores, which is none of this package's business."""

    @property
    def release(self) -> Release:
        """The release that they are made for."""

    def complete(self, app: Application, wanted: Wanted) -> Completion:
        """Plans it. Raises Refused, naming what the dump lacks, or what is not known of a store."""


def settle(draft: RehomeDraft) -> None:
    """Which half tasks are completed here; the others leave. Raises UsageError for one that is none of this host's."""
    options, completer = draft.options, draft.options.completer
    halves = _restorable(draft)
    if NONE in options.complete and len(options.complete) > 1:
        raise UsageError(f"--complete {quoted(NONE)} leaves nothing to name besides", hint="leave one of them out")
    missing = sorted(options.complete - {*draft.rehoming.targets, NONE})
    if missing:
        raise UsageError(
            f"--complete: nothing goes to {some(missing, _NAMED)} here",
            hint=f"{did_you_mean(missing, halves)}half tasks here: {some(sorted(halves), _NAMED) or 'none'}",
        )
    if not halves or completer is None:
        return
    here = halves.keys() & options.complete if options.complete else {name for name in halves if _is_ours(draft, name)}
    leaving = halves.keys() - here
    for name in sorted(leaving):
        sources = sorted({one.source for one in draft.rehoming.into(name)})
        draft.warnings.append(
            f"{name}: only {some(sources, _NAMED)} is here, and it leaves: {_who(draft, name)} completes {name}; where "
            f"no host does, name it on one: --complete {quoted(name)}"
        )
    draft.rehoming = draft.rehoming.without(leaving)
    if here:
        _refuse_other_release(draft, completer.release)
        draft.completion = completer.complete(draft.app, {name: halves[name] for name in sorted(here)})
        draft.warnings += draft.completion.warnings
        draft.notes += draft.completion.notes


def _restorable(draft: RehomeDraft) -> dict[str, tuple[str, ...]]:
    """The half tasks, and what they lack that a changelog has."""
    restorable: dict[str, tuple[str, ...]] = {}
    for name, stores in draft.rehoming.halves.items():
        logged = tuple(store for store in stores if store not in draft.options.unlogged)
        if without := sorted(set(stores) - set(logged)):
            draft.warnings.append(
                f"{name}: no changelog has {some(without, _NAMED)}: what other hosts have of it stays there"
            )
        if logged:
            restorable[name] = logged
    return restorable


def _is_ours(draft: RehomeDraft, task: str) -> bool:
    return _first_of(draft, task) in draft.tasks


def _who(draft: RehomeDraft, task: str) -> str:
    return "another host" if draft.options.complete else f"the host that has {_first_of(draft, task)}"


def _first_of(draft: RehomeDraft, task: str) -> str:
    """The task of before with the lowest number, of those whose stores come together in a new one."""
    new, old = draft.options.new, draft.options.old
    assert new is not None
    assert old is not None
    known = TaskId.parse(task)
    home, nowhere = Home.of(known), draft.options.in_memory | draft.options.unlogged
    keys = [StoreKey(home.topology, store) for store in new.stores_of(home) if store not in nowhere]
    return min(old.homes[key] for key in keys if key in old.homes).task(known.partition or 0)


def _refuse_other_release(draft: RehomeDraft, release: Release) -> None:
    """Raises Refused where the release cannot open what is here: its stores would not go with these."""
    inside = release.offsets_home is OffsetsHome.COLUMN_FAMILY
    wrong = sorted(_unreadable(draft, release)) if inside == draft.inside else ["it keeps offsets elsewhere"]
    if wrong:
        raise Refused(
            f"{release} cannot open the directory as it is",
            details=first_lines(wrong),
            where=str(draft.app.path),
            hint="name the release that runs here, --for; or migrate the directory first: "
            + command("migrate", draft.app.path, "--to", release.name),
        )


def _unreadable(draft: RehomeDraft, release: Release) -> Iterable[str]:
    for task in draft.app.tasks:
        yield from (f"{task.name}/{one.name}" for one in task.stores if one.databases and not one.opens_in(release))
