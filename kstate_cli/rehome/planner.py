"""The plan of a rehoming: the directory is read once (:mod:`snapshot`), then rules turn it into steps and remarks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import Change, MoveStore, OmitTree, Plan, RemarkKind, note, steps_of, texts_of, warning
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import GLOBAL, TaskId
from kstate_cli.offsets.ages import Age, read_ages
from kstate_cli.offsets.keeping import Guesses, Keeping, release_of
from kstate_cli.offsets.resolve import as_of_note
from kstate_cli.rehome.live import ask_partition_counts, judge_live, judge_partitions
from kstate_cli.rehome.mapping import Specified, by_numbers, by_texts, half_a_task, stranded
from kstate_cli.rehome.model import LeaveReason, Placement, RehomeOptions, Rehoming, TaskStore, WhyRefused
from kstate_cli.rehome.snapshot import RehomeLayout, RehomeSnapshot, complete_halves, read_snapshot
from kstate_cli.rehome.task_changes import refuse_unknown_kinds, task_changes
from kstate_cli.releases import Release
from kstate_cli.specification.draft import table_of
from kstate_cli.specification.homes import Home
from kstate_cli.statedir.model import Application, Database
from kstate_cli.statedir.names import store_folder
from kstate_cli.statedir.problems import Place
from kstate_cli.texts import command, first_lines, some, suggest

_MOST: Final = 5
"""Names in one sentence."""
_UNCLEAN: Final = "its task was not closed cleanly"


def plan_rehome(app: Application, options: RehomeOptions) -> Plan:
    """Return the plan of a rehoming; empty if every store is in its task already.

    Raises Refused, with all obstacles.
    """
    snapshot = read_snapshot(app, options.of_application(app.app_id))
    layout = RehomeLayout(snapshot, rehoming_of(snapshot))
    changes = [*_application_remarks(snapshot), *_judge_halves(layout)]
    # Refusals that need no dump come before the dump is read.
    refuse_unknown_kinds(layout)
    layout, halves_changes = complete_halves(layout)
    # Computed after half tasks were completed or left: a half that is left is not changed here.
    changed_tasks = _changed_tasks(layout)
    layout, omissions = leave_out(layout, changed_tasks)
    refuse_foreign(layout)
    changes += [*halves_changes, *omissions, *offset_remarks(snapshot, changed_tasks), *changes_of(layout)]
    # The broker is asked last, and only if there is something to do.
    if steps_of(changes):
        changes += _live_remarks(layout)
    release = _release_of(layout)
    return Plan(
        app.path,
        layout.snapshot.options.command,
        release.name,
        release.name,
        steps_of(changes),
        tuple(dict.fromkeys(texts_of(changes, RemarkKind.WARNING))),
        tuple(dict.fromkeys(texts_of(changes, RemarkKind.NOTE))),
        _task_times(layout),
    )


def ages_of_moved(app: Application, plan: Plan) -> list[Age]:
    """Return the ages of the stores that move, under their new names: they are recorded before the switch."""
    names = {
        f"{_task_name(step.source)}/{Path(step.path).name}": f"{_task_name(step.path)}/{Path(step.path).name}"
        for step in plan.steps
        if isinstance(step, MoveStore)
    }
    if not names:
        return []
    # Entries are copied under the new names and the old ones stay: an undo brings the old names back.
    return [replace(age, store=names[age.store]) for age in read_ages(app.path) if age.store in names]


def _task_name(path: str) -> str:
    name = Place(tuple(path.split("/"))).task
    assert name is not None
    return name


def rehoming_of(snapshot: RehomeSnapshot) -> Rehoming:
    """Return where each store goes, by the options. Raises Refused."""
    options, tasks = snapshot.options, snapshot.directory
    if options.new is None:
        return by_numbers(tasks, options.numbers)
    global_stores = [store.name for task in snapshot.app.tasks if task.is_global for store in task.stores]
    specified = Specified(options.in_memory, options.writers)
    return by_texts(tasks, global_stores, options.new, options.old, specified=specified, halves=True)


def _release_of(layout: RehomeLayout) -> Release:
    """Return the release that the plan writes for: that of the dump's stores, else one that fits the directory."""
    completer = layout.snapshot.options.completer
    if completer is not None and layout.completion.steps:
        return completer.release
    return release_of(layout.snapshot.app)


def _application_remarks(snapshot: RehomeSnapshot) -> Iterator[Change]:
    """Yield what concerns the directory as a whole."""
    for problem in snapshot.app.all_problems():
        remark = warning(problem.reasoned)
        # Only while the application is running, so nothing is wrong.
        if problem.passing:
            remark = note(problem.reasoned)
        yield remark
    yield from map(note, as_of_note(snapshot.app))


def _judge_halves(layout: RehomeLayout) -> list[Change]:
    """Raise Refused for half tasks that no dump completes; return remarks about their partitions.

    A half task needs stores that are on another host.
    """
    options = layout.snapshot.options
    if not layout.rehoming.halves:
        return []
    changes: list[Change] = []
    if options.cluster is not None:
        # If another topic has no partition for this task, it is not a half task. Then this check of the broker refuses
        # it with the better reason.
        changes = judge_partitions(layout, ask_partition_counts(options.cluster))
    if options.completer is None:
        raise half_a_task(layout.rehoming)
    return changes


def _changed_tasks(layout: RehomeLayout) -> set[str]:
    """Return the tasks, old and new, that do not stay what they are."""
    rehoming = layout.rehoming
    names = {placement.source for placement in rehoming.placements if placement.target != placement.source}
    names |= {placement.target for placement in rehoming.placements if placement.target and placement.moves}
    incomplete = (
        name
        for name, stores in rehoming.missing.items()
        if any(missing.has_database or missing.half_of or not missing.existed for missing in stores)
    )
    return names.union(incomplete)


def _ending_tasks(layout: RehomeLayout) -> list[str]:
    """Return the tasks of the directory that have no store any more, and get none."""
    rehoming = layout.rehoming
    return sorted(
        name
        for name, resolved in layout.snapshot.tasks.items()
        if not rehoming.into(name) and (rehoming.of(name) or _has_gone(layout, resolved.task.id))
    )


def _has_gone(layout: RehomeLayout, task: TaskId) -> bool:
    """Return True if the sub-topology of a task without a store no longer exists."""
    home, options = Home.of(task), layout.snapshot.options
    if options.new is not None:
        return options.new.part(home) is None
    return options.numbers.get(home.number, home.number) != home.number


def leave_out(layout: RehomeLayout, changed_tasks: Collection[str]) -> tuple[RehomeLayout, list[Change]]:
    """Return the layout without the stores that must be removed, and remarks about them.

    Raises Refused for stores that were not closed cleanly, unless the user allows kstate to remove them. If a store has
    several reasons, the first one counts.
    """
    tasks = sorted(layout.snapshot.tasks.keys() & changed_tasks)
    left_out: dict[TaskStore, str] = {}
    for store in _unclean_stores(layout, tasks):
        left_out[store] = _UNCLEAN
    changes: list[Change] = []
    for rule in (_partial_copies(layout), _uneven_stores(layout, tasks), _stores_without_offset(layout, tasks)):
        for outcome in rule:
            # A rule yields removals and remarks in the order of the tasks, and so does the plan.
            if isinstance(outcome, tuple):
                store, reason = outcome
                # setdefault keeps an earlier reason: uncommitted rows come first.
                left_out.setdefault(store, reason)
            else:
                changes.append(outcome)
    return replace(layout, left_out=left_out), changes


Omission = tuple[TaskStore, str]
"""A store that is left out, and why."""


def _unclean_stores(layout: RehomeLayout, tasks: Iterable[str]) -> list[TaskStore]:
    """Return the stores that were not closed cleanly. Raises Refused unless the user allows kstate to remove them."""
    options = layout.snapshot.options
    if options.at_least_once:
        return []
    stores: list[TaskStore] = []
    reasons: list[str] = []
    for name in tasks:
        for unclean in layout.snapshot.tasks[name].unclean:
            # If the reason is about the task as a whole, it affects each of its stores that has rows.
            with_rows = [store for store in _kept_with_rows(layout, name) if unclean.store in (None, store)]
            if with_rows:
                reasons.append(str(unclean))
                stores += [(name, store) for store in with_rows]
    if reasons and not options.wipe_unclean:
        # check prints this refusal too.
        skip = f". Otherwise, pass {option.WIPE_UNCLEAN} to skip only these stores so that Streams restores them"
        raise Refused(
            "because of an unclean shutdown, the stores may contain uncommitted data under exactly-once",
            details=first_lines(reasons),
            where=str(layout.snapshot.app.path),
            code=WhyRefused.UNCLEAN,
            hint=(
                f"if the application ran with at-least-once, pass {option.GUARANTEE} at_least_once"
                f"{suggest(skip, option.WIPE_UNCLEAN)}"
            ),
        )
    return stores


def _kept_with_rows(layout: RehomeLayout, task: str) -> list[str]:
    """Return the stores of a task that have rows and stay in the application."""
    placements = [place for place in layout.rehoming.of(task) if place.target is not None and not place.offset_only]
    states = [(place.store, layout.store(place)) for place in placements]
    return [name for name, state in states if state is not None and not state.store.empty]


def _partial_copies(layout: RehomeLayout) -> Iterator[Change | Omission]:
    """Yield the partial copies of stores that several sub-topologies wrote.

    They are removed, because the changelog has all records.
    """
    for placement in layout.rehoming.placements:
        state, key = layout.store(placement), (placement.source, placement.store)
        if key not in layout.rehoming.partial or state is None:
            continue
        # Without a changelog the rows exist only here, and a partial copy is better than none.
        if not state.offsets:
            yield warning(
                f"{placement.source}/{placement.store}: several sub-topologies had a copy of this store, but it has no "
                f"changelog, so only {placement.target} gets this copy"
            )
            continue
        yield key, str(LeaveReason.COPY)
        yield note(
            f"if only one sub-topology writes {placement.store}, its copy is complete. To keep this copy, set "
            f"subtopology = N in {table_of(placement.store)} in kstate.toml ({option.SPEC}). Kafka Streams then does "
            "not restore the store"
        )


def _uneven_stores(layout: RehomeLayout, tasks: Iterable[str]) -> Iterator[Change | Omission]:
    """Leave out a store that moves and whose segments state different offsets: no single offset is true for it."""
    for name in tasks:
        for placement in layout.rehoming.of(name):
            state = layout.store(placement)
            if placement.moves and state is not None and state.uneven:
                yield (name, placement.store), "its segments have different offsets"


def _stores_without_offset(layout: RehomeLayout, tasks: Iterable[str]) -> Iterator[Change | Omission]:
    """Yield logged stores that have rows but no offset. They are removed: Streams would restore over the rows."""
    for name in tasks:
        for placement in layout.rehoming.of(name):
            state = layout.store(placement)
            if placement.target is None or state is None or state.offsets or state.store.empty:
                continue
            # Another partition of the store has an offset, so the store has a changelog, and this one has lost its
            # offset.
            if any(other.offsets for other in layout.snapshot.elsewhere(name, placement.store)):
                yield (name, placement.store), "it contains rows, but its offset is lost"
            elif placement.moves:
                yield warning(
                    f"{name}/{placement.store}: the store has no offset, so kstate assumes that it has no changelog"
                )


def refuse_foreign(layout: RehomeLayout) -> None:
    """Raise Refused for unknown entries in tasks from which stores move, because it is unknown where they belong."""
    snapshot = layout.snapshot
    sources = {placement.source for placement in layout.rehoming.placements if placement.moves}
    unknown = [
        f"{name}/{entry}"
        for name in sorted({*_ending_tasks(layout), *sources})
        for entry in snapshot.foreign[name]
        if entry not in snapshot.custom[name]
    ]
    if unknown:
        raise Refused(
            "a task whose stores kstate moves contains an unknown file",
            details=first_lines(unknown),
            where=str(snapshot.app.path),
            code=WhyRefused.FOREIGN,
            hint="if the application does not need the file, move it out of the application directory",
        )


def offset_remarks(snapshot: RehomeSnapshot, changed_tasks: Collection[str]) -> Iterator[Change]:
    """Yield what the offsets of changed tasks give to say, in the order of the tasks."""
    for name in sorted(snapshot.tasks.keys() & changed_tasks):
        yield from map(warning, snapshot.tasks[name].warnings)
        yield from map(note, snapshot.tasks[name].notes)


def changes_of(layout: RehomeLayout) -> list[Change]:
    """Return the steps of a layout, with remarks on them."""
    guesses = Guesses(layout.snapshot.app, layout.snapshot.resolved, [])
    changes = [*_directory_changes(layout)]
    for target in layout.rehoming.targets:
        changes += task_changes(layout, guesses, target)
    changes += layout.completion.steps
    changes += [*_global_store_remarks(layout), *_global_checkpoint(layout)]
    return changes


def _directory_changes(layout: RehomeLayout) -> Iterator[Change]:
    """Yield the steps about directories: first removals, then moves, then the removal of tasks that are then empty."""
    moves: list[MoveStore] = []
    for placement in layout.rehoming.placements:
        # There is no directory to move. The offset is written into the files of the new task.
        if placement.offset_only:
            yield from _offset_only_remark(placement)
            continue
        reason = _omission_reason(layout, placement)
        if reason is not None:
            yield OmitTree(_store_path(layout, placement), reason)
            yield from _omission_remarks(layout, placement)
        elif placement.moves:
            moves.append(_move(layout, placement))
    # Moves come after all removals, because a store may move to the place of a removed one.
    yield from moves
    for name in _ending_tasks(layout):
        yield OmitTree(name, "it is empty")


def _omission_reason(layout: RehomeLayout, placement: Placement) -> str | None:
    """Return why the directory of a store leaves; None if it stays or moves."""
    if placement.target is None:
        return str(placement.reason)
    reason = layout.left_out.get((placement.source, placement.store))
    if reason is None:
        return None
    return f"{reason}, so Kafka Streams restores it in {placement.target}"


def _store_path(layout: RehomeLayout, placement: Placement) -> str:
    """Return the directory of a store, relative to the application."""
    state, task = layout.store(placement), layout.snapshot.tasks[placement.source].task
    folder = placement.store
    if state is not None:
        folder = store_folder(placement.store, segmented=state.store.segmented)
    return layout.snapshot.relative(task.path / folder)


def _move(layout: RehomeLayout, placement: Placement) -> MoveStore:
    state, source = layout.store(placement), _store_path(layout, placement)
    databases: tuple[Database, ...] = ()
    if state is not None:
        databases = state.store.databases
    below_task = Path(source).relative_to(placement.source)
    return MoveStore(f"{placement.target}/{below_task}", source, databases, f"from {source}")


def _offset_only_remark(placement: Placement) -> Iterator[Change]:
    if placement.target is None and placement.reason is not LeaveReason.STARTED:
        yield note(f"{placement.source}: the directory has only an offset for {placement.store}: {placement.reason}")


def _omission_remarks(layout: RehomeLayout, placement: Placement) -> Iterator[Change]:
    """Yield a warning about a removed store, and about rows that no changelog may restore."""
    reason = layout.left_out.get((placement.source, placement.store))
    if placement.target is not None:
        text = f"{placement.source}/{placement.store}: {reason}, so kstate removes it, and Kafka Streams restores it"
        yield warning(text)
    state = layout.store(placement)
    # A start of the new topology has created this copy. Its rows are in the changelog of the store that moves.
    if placement.reason is LeaveReason.STARTED or state is None or state.offsets or state.store.empty:
        return
    if not any(other.offsets for other in layout.snapshot.elsewhere(placement.source, placement.store)):
        yield warning(
            f"{placement.source}/{placement.store} has rows, but no offset. If the store has no changelog, these "
            "rows are lost forever. To keep them, first run "
            f"{command('export', layout.snapshot.app.path, placement.store, option.OUT, 'DIR')}"
        )


def _global_store_remarks(layout: RehomeLayout) -> Iterator[Change]:
    new = layout.snapshot.options.new
    # ``global`` has no sub-topology, so no number of it ever changes.
    here = {store.name for task in layout.snapshot.app.tasks if task.is_global for store in task.stores}
    if new is not None and (removed := sorted(here - new.global_stores)):
        yield note(
            f"{GLOBAL}: the new topology does not have {some(removed, _MOST)}, but kstate leaves global stores "
            "unchanged"
        )


def _global_checkpoint(layout: RehomeLayout) -> Iterator[Change]:
    """Yield the step that removes the topics of global stores that no longer exist from ``.checkpoint``.

    Up to 4.2 such a topic makes a start fail (``GlobalStateManagerImpl.initialize``). Without any global store Streams
    does not read the file, and a return to the old topology needs it unchanged.
    """
    snapshot, new = layout.snapshot, layout.snapshot.options.new
    task = next((task for task in snapshot.app.tasks if task.is_global), None)
    if new is None or task is None or task.checkpoint is None or snapshot.inside or not new.global_stores:
        return
    topics = frozenset(new.text.global_stores.values())
    lines = {tp: offset for tp, offset in task.checkpoint.entries.items() if tp.topic in topics}
    # If no line would remain, nothing is written, because a return to the old topology needs the file.
    if lines and lines.keys() != task.checkpoint.entries.keys():
        yield Keeping(GLOBAL).lines(lines)


def _live_remarks(layout: RehomeLayout) -> list[Change]:
    """Return what the broker shows; without a broker, what only it could show."""
    cluster = layout.snapshot.options.cluster
    if cluster is not None:
        return judge_live(layout, cluster)
    return [*_repartition_remarks(layout), *_partition_remarks(layout)]


def _repartition_remarks(layout: RehomeLayout) -> Iterator[Change]:
    """Yield a warning about repartition topics that the new topology does not read: unread records stay unread."""
    new, old = layout.snapshot.options.new, layout.snapshot.options.old
    if new is None or old is None:
        yield warning(
            "if the new topology does not read a repartition topic, this topic's unread records are never "
            f"processed. To see these topics, pass both topology descriptions ({option.TOPOLOGY}, {option.FROM})"
        )
    elif topics := list(stranded(new, old)):
        yield warning(
            "the new topology does not read these repartition topics, so their unread records are never "
            f"processed: {some(topics, _MOST)}"
        )


def _partition_remarks(layout: RehomeLayout) -> Iterator[Change]:
    """Yield a note if stores of several sub-topologies come together: Streams needs equal numbers of partitions."""
    for home, _ in layout.homes():
        tasks = layout.tasks_of(home)
        sources = {
            _home(placement.source) for name in tasks for placement in layout.rehoming.into(name) if not placement.stray
        }
        missing_stores = [missing for name in tasks for missing in layout.rehoming.missing.get(name, ())]
        sources |= {_home(missing.half_of) for missing in missing_stores if missing.half_of is not None}
        if len(sources) > 1:
            yield note(
                f"sub-topology {home}: it gets stores from {some(sorted(map(str, sources)), _MOST)}. Kafka Streams "
                "starts only if their source topics have the same number of partitions. To check that, pass "
                f"{option.BOOTSTRAP_SERVER}"
            )


def _home(task: str) -> Home:
    return Home.of(TaskId.parse(task))


def _task_times(layout: RehomeLayout) -> dict[str, int]:
    """Return the new mtime of each task that gets stores, in ns: the oldest of the tasks from which they come.

    Streams deletes old task directories by their mtime, so old state must not look young.
    """
    times: dict[str, int] = {}
    for placement in layout.rehoming.placements:
        target = placement.target
        if target is not None and any(other.moves for other in layout.rehoming.into(target)):
            mtime = layout.snapshot.tasks[placement.source].task.mtime_ns
            # The oldest store decides, because the cleaner compares the mtime of the directory, and never that of a
            # store.
            times[target] = min(mtime, times.get(target, mtime))
    for name, restored in layout.completion.times.items():
        times[name] = min(restored, times.get(name, restored))
    return times
