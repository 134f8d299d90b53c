"""Plan a restoration from snapshots: which stores it writes, and which stores stay.

From which generation each store comes is :mod:`kstate_cli.snapshot.choice`. Without a broker every judgement is the
cautious one. A store that exists, and has an offset, stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.plan import Change, Plan, RemarkKind, steps_of, texts_of, warning
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition, offsets_text
from kstate_cli.logs import RETENTION_MS
from kstate_cli.offsets.keeping import keeps_offsets_inside
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import resolve_to_plan
from kstate_cli.releases import OffsetsHome
from kstate_cli.snapshot.choice import (
    GenerationCopies,
    NamedTask,
    choose_copy,
    may_lack_deletes,
    newest_home,
    read_layout,
    release_of,
)
from kstate_cli.snapshot.log_facts import (
    most_cautious,
    why_not_continued,
)
from kstate_cli.snapshot.model import NamedGeneration, StoredStore, StoredTask
from kstate_cli.snapshot.task_steps import ChosenStore, mtime_of_task, task_steps
from kstate_cli.statedir.model import Application
from kstate_cli.texts import did_you_mean, first_lines, hint_with_suggestion, moment, plural, quoted, some, span_text

_MOST_REFUSALS: Final = 20
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Which stores to restore, and what the user permits."""

    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    share: tuple[int, int] | None = None
    """(i, n), 1-based: every n-th of all tasks in order, beginning with the i-th."""
    elsewhere: frozenset[str] = frozenset()
    """Tasks of other hosts: they are not restored here."""
    only: frozenset[str] | None = None
    """The tasks of this host, if known: only these are restored, and global stores."""
    rebuild: bool = False
    """Existing stores are replaced, whatever their offsets."""
    accept_resurrected: bool = False
    """Rows whose deletes the log may have forgotten may come back."""
    continued: frozenset[TopicPartition] = frozenset()
    """The changelog partitions of a dump that continues the stores in the same run: its rules judge their age."""
    logs: Mapping[TopicPartition, LogFacts] | None = None
    """The logs as a broker states them now; None without a broker."""

    @property
    def command(self) -> str:
        """Return the command as the journal records it."""
        words = [
            f"restore {option.FROM_SNAPSHOT}",
            *(f"{option.TASK} {quoted(name)}" for name in sorted(self.tasks)),
            *(f"{option.STORE} {quoted(name)}" for name in sorted(self.stores)),
        ]
        if self.rebuild:
            words.append(option.REBUILD)
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The plan of the change engine, and the stores whose files it needs."""

    change: Plan
    stores: tuple[ChosenStore, ...]
    unchanged: Mapping[str, str]
    """``TASK/STORE`` -> why it stays."""
    logs: Mapping[TopicPartition, LogFacts] | None = None
    """The logs that the plan is based on; None without a broker."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all files to copy."""
        return sum(chosen.store.size for chosen in self.stores)


@dataclass(slots=True)
class _Outcomes:
    """What the rules yield."""

    changes: list[Change] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    too_old: dict[str, int | None] = field(default_factory=dict)
    """``TASK/STORE`` whose deletes the log may have forgotten -> as of when its data is, in ms; None: unknown."""
    retention_ms: int = RETENTION_MS
    """The least time for which the logs of these stores keep deletes, as the snapshots state it."""
    stores: list[ChosenStore] = field(default_factory=list)
    unchanged: dict[str, str] = field(default_factory=dict)
    task_times: dict[str, int] = field(default_factory=dict)


def plan_restore(
    app: Path,
    existing: Application | None,
    generations: Sequence[NamedGeneration],
    options: SnapshotOptions,
    *,
    now_ms: int,
    damaged: Sequence[str] = (),
) -> SnapshotPlan:
    """Return the plan. ``generations`` are those of the application, newest first; ``damaged`` are not readable.

    Raise Refused, naming everything that stands in the way, and UsageError for an unknown task or store.
    """
    outcomes = _Outcomes()
    # An older generation takes the place of a damaged one. Without a warning only the age of the data would show it.
    outcomes.changes += [warning(f"{text}. kstate restores from older snapshots instead") for text in damaged]
    tasks, copies = read_layout(generations), GenerationCopies(generations)
    outcomes.changes += map(warning, tasks.warnings)
    layout = tasks.tasks
    _refuse_unknown(layout, options)
    resolved = {}
    if existing is not None:
        resolved = {task.task.name: task for task in resolve_to_plan(existing)}
        _judge_directory(existing, outcomes)
    owners = {key: task.task.name for task in resolved.values() for store in task.stores for key in store.offsets}
    # Without a warning, a directory with a part of the tasks would look complete.
    outcomes.changes += [
        warning(text) for name, text in tasks.skipped.items() if name not in resolved and _is_wanted(name, options)
    ]
    home = newest_home(generations)
    selected = _selected(layout, options)
    for name in selected:
        if layout[name].task.home is not home:
            outcomes.refusals.append(
                f"{name}: the release that wrote snapshot {layout[name].generation} keeps offsets in a different "
                "place than the release that wrote the newest snapshot. Select one snapshot with "
                f"{option.GENERATION}, or only tasks of the same release with {option.TASK}"
            )
            continue
        moved = _moved(layout[name].task, owners)
        if moved is not None:
            outcomes.refusals.append(moved)
            continue
        _plan_task(layout[name], resolved.get(name), copies, options, outcomes, now_ms)
    if outcomes.stores and existing is not None and _other_home(existing, home):
        place = _place_of_offsets(home)
        outcomes.refusals.append(
            f"the snapshot keeps offsets {place}, but {app} does not. First migrate the directory, or move it away"
        )
    if outcomes.refusals:
        raise Refused(
            f"kstate cannot restore {app} from the snapshot",
            details=first_lines(outcomes.refusals, _MOST_REFUSALS),
            hint="fix each of these problems, then run the command again. kstate has not changed anything",
        )
    if outcomes.too_old:
        raise _too_old(app, outcomes, now_ms)
    release = release_of(home)
    change = Plan(
        app,
        options.command,
        release.name,
        release.name,
        steps_of(outcomes.changes),
        texts_of(outcomes.changes, RemarkKind.WARNING),
        texts_of(outcomes.changes, RemarkKind.NOTE),
        outcomes.task_times,
    )
    return SnapshotPlan(change, tuple(outcomes.stores), outcomes.unchanged, options.logs)


def _too_old(app: Path, outcomes: _Outcomes, now_ms: int) -> Refused:
    """Return the refusal for data that the log may not be able to continue."""
    stores = outcomes.too_old
    names = some(list(stores), _MOST_NAMES)
    times = [as_of for as_of in stores.values() if as_of is not None]
    details = []
    if times:
        oldest = min(times)
        details.append(f"the oldest data is from {moment(oldest)}, {span_text(max(0, now_ms - oldest))} ago")
    if len(times) < len(stores):
        details.append("kstate does not know how old the data of some stores is")
    unless = ""
    if outcomes.retention_ms == RETENTION_MS:
        unless = ", unless their delete.retention.ms is longer"
    return Refused(
        f"deleted keys would reappear in {plural(len(stores), 'store')} of {app}: {names}",
        details=[*details, f"the changelogs keep tombstones for {span_text(outcomes.retention_ms)}{unless}"],
        hint=(
            f"to add the records written since then from a dump of the changelogs, pass {option.FROM_CHANGELOG} DUMP "
            f"{option.SPEC} FILE. If the application writes no tombstones or you accept that deleted keys reappear, "
            f"pass {option.ACCEPT_RESURRECTED}. Otherwise, start the application without a directory"
        ),
    )


def _refuse_unknown(layout: Mapping[str, NamedTask], options: SnapshotOptions) -> None:
    stores = {store.name for named in layout.values() for store in named.task.stores}
    for requested, names, noun in ((options.tasks, layout.keys(), "task"), (options.stores, stores, "store")):
        unknown = sorted(requested - names)
        if unknown:
            raise UsageError(
                f"the snapshot does not contain {noun} {', '.join(unknown)}",
                hint=hint_with_suggestion(
                    did_you_mean(unknown, set(names)), f"the snapshot contains the {noun}s {', '.join(sorted(names))}"
                ),
            )


def _selected(layout: Mapping[str, NamedTask], options: SnapshotOptions) -> list[str]:
    """Return the tasks of this host, in order."""
    ordered = sorted(layout, key=lambda name: TaskId.parse(name).order)
    tasks = [name for name in ordered if name != GLOBAL]
    if options.share is not None:
        number, parts = options.share
        # Those that other hosts have do not count, as in a restoration from a dump.
        tasks = [name for name in tasks if name not in options.elsewhere][number - 1 :: parts]
    return [name for name in ordered if name in {*tasks, GLOBAL} and _is_wanted(name, options)]


def _is_wanted(name: str, options: SnapshotOptions) -> bool:
    """Return whether the options let this host have a task, whatever its share is. Global stores are on every host."""
    if name != GLOBAL and (name in options.elsewhere or (options.only is not None and name not in options.only)):
        return False
    return not options.tasks or name in options.tasks


def _judge_directory(existing: Application, outcomes: _Outcomes) -> None:
    """Refuse a directory with anything that kstate does not understand: a copy of it would hide that."""
    for problem in existing.all_problems():
        if problem.fatal:
            outcomes.refusals.append(problem.reasoned)


def _moved(task: StoredTask, owners: Mapping[TopicPartition, str]) -> str | None:
    """Return why a task is not restored beside the existing ones: its number is that of another topology."""
    for store in task.stores:
        for key in store.offsets:
            if owners.get(key, task.name) != task.name:
                return (
                    f"{task.name}/{store.name}: in the directory, {key} belongs to task {owners[key]}, so the "
                    "topology has changed since the snapshot"
                )
    return None


def _place_of_offsets(home: OffsetsHome) -> str:
    if home is OffsetsHome.COLUMN_FAMILY:
        return "in its stores"
    return "in files"


def _other_home(existing: Application, home: OffsetsHome) -> bool:
    has_stores = any(store.databases for task in existing.tasks for store in task.stores)
    return has_stores and keeps_offsets_inside(existing) is not (home is OffsetsHome.COLUMN_FAMILY)


def _plan_task(
    named: NamedTask,
    resolved: TaskOffsets | None,
    copies: GenerationCopies,
    options: SnapshotOptions,
    outcomes: _Outcomes,
    now_ms: int,
) -> None:
    task = named.task
    present: dict[str, StoreOffsets] = {}
    if resolved is not None:
        present = {store.store.name: store for store in resolved.stores}
    chosen: list[ChosenStore] = []
    for store in task.stores:
        if options.stores and store.name not in options.stores:
            continue
        why = _why_stays(present.get(store.name), resolved, options)
        if why is not None:
            outcomes.unchanged[f"{task.name}/{store.name}"] = why
            continue
        choice = choose_copy(named, store, copies, options.logs)
        candidate = choice.candidate
        outcomes.changes += map(warning, choice.warnings)
        if choice.refusal is not None:
            outcomes.refusals.append(choice.refusal)
        if _stands_in_the_way(present.get(store.name), options):
            outcomes.refusals.append(
                f"{task.name}/{store.name} exists, but Kafka Streams may not accept its rows at startup. To replace "
                f"the store with the one from the snapshot, pass {option.REBUILD}"
            )
            continue
        why = _why_not_of_log(task, candidate.store, options)
        if why is not None:
            # The store counts as chosen all the same: that the task lacks it is no second reason.
            outcomes.refusals.append(
                f"{task.name}/{store.name}: {why}. Restore the store from a dump, or start the application without a "
                "directory"
            )
            chosen.append(ChosenStore(task.name, candidate.store, candidate.generation, store.name in present))
            continue
        judged = _with_logs(candidate.store, options)
        if _is_judged_here(judged, options) and may_lack_deletes(judged, now_ms, task.name):
            first = not outcomes.too_old
            outcomes.too_old[f"{task.name}/{store.name}"] = judged.as_of_ms
            retention_ms = judged.delete_retention_ms
            outcomes.retention_ms = retention_ms if first else min(retention_ms, outcomes.retention_ms)
        chosen.append(ChosenStore(task.name, candidate.store, candidate.generation, store.name in present))
    if not chosen:
        return
    _refuse_part(task, present, chosen, outcomes)
    _judge_rest(task, resolved, chosen, outcomes)
    outcomes.stores += chosen
    outcomes.changes += task_steps(task, resolved, chosen)
    if resolved is None:
        outcomes.task_times[task.name] = mtime_of_task(task, chosen)


def _why_not_of_log(task: StoredTask, store: StoredStore, options: SnapshotOptions) -> str | None:
    """Return why the log of the broker cannot continue a store; None without a broker, or if a dump continues it."""
    if options.logs is None or _is_continued(store, options):
        return None
    return why_not_continued(store, options.logs, is_global=task.name == GLOBAL)


def _with_logs(store: StoredStore, options: SnapshotOptions) -> StoredStore:
    """Return a store with what the broker states of its log; unchanged without a broker, or if a dump continues it."""
    if options.logs is None or _is_continued(store, options):
        return store
    return most_cautious(store, options.logs)


def _refuse_part(
    task: StoredTask, present: Mapping[str, StoreOffsets], chosen: Sequence[ChosenStore], outcomes: _Outcomes
) -> None:
    """Refuse some stores of a task whose other logged stores would be missing.

    Under exactly-once the next start wipes a task with rows in which a logged store has no offset
    (docs/internals/start.md#wiped-tasks), and with it what was restored.
    """
    names = {store.store.name for store in chosen}
    exist = {name for name, store in present.items() if store.store.databases or store.has_offset}
    missing = sorted(store.name for store in task.stores if store.offsets and store.name not in names | exist)
    if missing:
        outcomes.refusals.append(
            f"{task.name}: without {some(missing, _MOST_NAMES)}, Kafka Streams may wipe the task at startup. "
            f"Restore the whole task, without {option.STORE}"
        )


def _why_stays(present: StoreOffsets | None, resolved: TaskOffsets | None, options: SnapshotOptions) -> str | None:
    """Return why an existing store stays; None if it is restored, or if it stands in the way.

    A snapshot is older than a healthy store. A lower offset is no reason to replace it: without the log nothing shows
    that both have the same one.
    """
    if present is None or resolved is None or options.rebuild or not present.store.databases:
        return None
    if present.has_offset and not resolved.unclean:
        return f"it already exists with offset {offsets_text(present.offsets)}. To replace it, pass {option.REBUILD}"
    if not present.offsets and not present.store.empty and not resolved.unclean:
        return f"it already exists and has no changelog. To replace it, pass {option.REBUILD}"
    return None


def _stands_in_the_way(present: StoreOffsets | None, options: SnapshotOptions) -> bool:
    """Return whether a store exists that neither stays nor may be replaced: the options do not rebuild it."""
    return present is not None and bool(present.store.databases) and not options.rebuild


def _is_judged_here(store: StoredStore, options: SnapshotOptions) -> bool:
    """Return whether the age of a store counts: a dump has the deletes, and the user may accept that some lack."""
    return not options.accept_resurrected and not _is_continued(store, options)


def _is_continued(store: StoredStore, options: SnapshotOptions) -> bool:
    """Return whether a dump adds the later records of a store in the same run."""
    return bool(store.offsets) and options.continued.issuperset(store.offsets)


def _judge_rest(
    task: StoredTask, resolved: TaskOffsets | None, chosen: Sequence[ChosenStore], outcomes: _Outcomes
) -> None:
    """Refuse a task whose other stores would make the next start wipe, or misread, what is restored beside them."""
    if resolved is None:
        return
    names = {store.store.name for store in chosen}
    staying = [store.store.name for store in resolved.stores if store.store.name not in names]
    if resolved.unclean and staying:
        outcomes.refusals.append(
            f"{task.name}: it was not closed cleanly ({resolved.unclean[0]}), and kstate would not replace "
            f"{', '.join(staying)}. Under exactly-once, Kafka Streams would wipe the whole task at startup. First "
            "wipe the task, then restore it completely"
        )
    if task.home is OffsetsHome.COLUMN_FAMILY and resolved.task.checkpoint is not None:
        outcomes.refusals.append(
            f"{task.name}: it has a .checkpoint file. At startup, Kafka Streams would replace the offsets in the "
            "stores with the offsets in this file. First migrate the directory"
        )
