"""The plan of a change of homes: where every store goes, and the files that tell its offsets with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kstate_cli.change.ages import Age, read_ages
from kstate_cli.change.plan import MoveStore, OmitTree, Plan
from kstate_cli.errors import Refused
from kstate_cli.formats.task_id import GLOBAL, TaskId
from kstate_cli.offsets.keeping import Keeping
from kstate_cli.offsets.left_behind import Guesses, release_of
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.owners import give_lines
from kstate_cli.offsets.while_running import as_of_note, resolve_to_plan
from kstate_cli.rehome.halves import settle
from kstate_cli.rehome.live import judge_live, refuse_partitions
from kstate_cli.rehome.mapping import Specified, by_numbers, by_texts, half_a_task, stranded
from kstate_cli.rehome.model import Because, Held, Placed, WhyRefused
from kstate_cli.rehome.options import RehomeOptions
from kstate_cli.rehome.snapshot import RehomeDraft, is_stray, is_virgin
from kstate_cli.rehome.task_files import refuse_unknown_kinds, write_files
from kstate_cli.specification.combine import refuse_other_kinds
from kstate_cli.specification.completion import table_of
from kstate_cli.specification.homes import Home, StoreKey
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import store_folder
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command, first_lines, some

_NAMED = 5


def plan_rehome(app: Application, options: RehomeOptions) -> Plan:
    """The plan; empty where every store is at home. Raises Refused, naming what stands in the way and the rule."""
    options = options.of_application(app.app_id)
    fatal = [problem.reasoned for problem in app.all_problems() if problem.fatal]
    if fatal:
        raise Refused(
            "the directory cannot be rehomed as it is",
            details=first_lines(fatal),
            where=str(app.path),
            hint=f"what to do about each: {command('check', app.path, '--for', release_of(app).name)}",
        )
    if options.spec is not None:
        refuse_other_kinds(app, options.spec, named=options.spec_named)
    draft = _drafted(app, options)
    draft.warnings += [p.reasoned for p in app.all_problems() if not p.passing]
    draft.notes += [p.reasoned for p in app.all_problems() if p.passing]
    draft.notes += as_of_note(app)
    if draft.rehoming.halves and options.cluster is not None:
        refuse_partitions(draft, options.cluster)  # a task that the other topic has no partition for is no half
    if draft.rehoming.halves and options.completer is None:
        raise half_a_task(draft.rehoming)
    refuse_unknown_kinds(draft)
    settle(draft)
    changed = _changed(draft)
    _leave_unclean(draft, changed)
    _leave_partial(draft)
    _leave_lost(draft, changed)
    refuse_foreign(draft, {*_ending(draft), *(one.source for one in draft.rehoming.placed if one.moves)})
    for name in changed & draft.tasks.keys():
        draft.warnings += draft.tasks[name].warnings
        draft.notes += draft.tasks[name].notes
    _move(draft)
    for target in draft.rehoming.targets:
        write_files(draft, target)
    draft.steps += draft.completion.steps
    _tell_global_stores(draft)
    _leave_gone_topics(draft)
    if draft.steps and options.cluster is not None:
        judge_live(draft, options.cluster)
    elif draft.steps:
        _tell_repartition_topics(draft)
        _tell_partitions(draft)
    completes = options.completer is not None and draft.completion.steps
    release = options.completer.release if options.completer is not None and completes else release_of(app)
    return Plan(
        app.path,
        options.command,
        release.name,
        release.name,
        tuple(draft.steps),
        tuple(dict.fromkeys(draft.warnings)),
        tuple(dict.fromkeys(draft.notes)),
        _times(draft),
    )


def ages_of_moved(app: Application, plan: Plan) -> list[Age]:
    """What is known of the ages of stores that move, under their new names: to be written down before the switch."""
    names = {
        f"{_task(step.source)}/{Path(step.path).name}": f"{_task(step.path)}/{Path(step.path).name}"
        for step in plan.steps
        if isinstance(step, MoveStore)
    }
    known = read_ages(app.path) if names else ()
    return [replace(age, store=names[age.store]) for age in known if age.store in names]


def _drafted(app: Application, options: RehomeOptions) -> RehomeDraft:
    resolved = resolve_to_plan(app)
    tasks = {one.task.name: one for one in resolved if not one.task.is_global}
    held = [_held(app.app_id, one, options) for one in tasks.values()]
    if options.new is None:
        rehoming = by_numbers(held, options.numbers)
    else:
        of_global = [store.name for task in app.tasks if task.is_global for store in task.stores]
        rehoming = by_texts(
            held,
            of_global,
            options.new,
            options.old,
            specified=Specified(options.in_memory, options.writers or {}),
            halves=True,
        )
    warnings: list[str] = []
    return RehomeDraft(app, tasks, options, rehoming, Guesses(app, resolved, warnings), warnings=warnings)


def _held(app_id: str, resolved: TaskOffsets, options: RehomeOptions) -> Held:
    task = resolved.task
    strays = frozenset(one.store.name for one in resolved.stores if is_stray(one))
    virgins = frozenset(one.store.name for one in resolved.stores if is_virgin(one))
    lost = frozenset(one.store.name for one in resolved.stores if not one.offsets) - strays
    stores = {store.name for store in task.stores} - strays - virgins | custom_stores(resolved, options).keys()
    traces = {*resolved.absent, *give_lines(app_id, task).absent, *task.store_files} - stores - strays - virgins
    return Held(task.id, frozenset(stores), frozenset(traces), lost, virgins, strays)


def _changed(draft: RehomeDraft) -> set[str]:
    """The tasks, old and new, that are not what they were."""
    moved = [one for one in draft.rehoming.placed if one.target != one.source]
    names = {name for one in moved for name in (one.source, one.target) if name is not None}
    lacking = draft.rehoming.lacking.items()
    return names | {name for name, those in lacking if any(one.seen or one.half or not one.told for one in those)}


def _ending(draft: RehomeDraft) -> list[str]:
    """The tasks of the directory that nothing is left of, or is left for."""
    ending = []
    for name, resolved in draft.tasks.items():
        if any(one.source == name for one in draft.rehoming.placed):
            if not draft.rehoming.into(name):
                ending.append(name)
        elif not draft.rehoming.into(name) and _is_gone(draft, resolved.task.id):
            ending.append(name)
    return sorted(ending)


def _is_gone(draft: RehomeDraft, task: TaskId) -> bool:
    """Whether the sub-topology of a task without a store is not there any more."""
    home = Home.of(task)
    if draft.options.new is not None:
        return draft.options.new.part(home) is None
    return draft.options.numbers.get(home.number, home.number) != home.number


def _leave_unclean(draft: RehomeDraft, changed: Iterable[str]) -> None:
    """Stores that were not left clean do not go on, or are vouched for. Raises Refused where nobody has said which."""
    if draft.options.at_least_once:
        return
    refused: list[str] = []
    for name in sorted(set(changed) & draft.tasks.keys()):
        resolved = draft.tasks[name]
        stays = [one for one in draft.rehoming.of(name) if one.target is not None and not one.trace]
        for unclean in resolved.unclean:
            stores = [one.store for one in stays if unclean.store in (None, one.store)]
            with_rows = [s for s in stores if (known := draft.store_in(name, s)) is not None and not known.store.empty]
            if not with_rows:
                continue
            refused.append(str(unclean))
            draft.left_out |= dict.fromkeys(((name, store) for store in with_rows), "it was not left clean")
    if refused and not draft.options.wipe_unclean:
        raise Refused(
            "not left clean: under exactly-once uncommitted data may be in the stores",
            details=first_lines(refused),
            where=str(draft.app.path),
            code=WhyRefused.UNCLEAN,
            hint="if the application ran with at-least-once: --guarantee at_least_once; else --wipe-unclean leaves "
            "these stores out, so that Streams restores them, and them alone",
        )


def _leave_partial(draft: RehomeDraft) -> None:
    """Leave out the copies of a store that several sub-topologies wrote: the changelog has what each copy lacks."""
    for one in draft.rehoming.placed:
        known = draft.store(one)
        if (one.source, one.store) not in draft.rehoming.partial or known is None:
            continue
        if not known.offsets:
            what = f"{one.source}/{one.store}: several sub-topologies had a copy of it, and no changelog"
            draft.warnings.append(f"{what}: {one.target} gets this copy alone")
            continue
        draft.left_out.setdefault((one.source, one.store), str(Because.COPY))
        draft.notes.append(
            f"if one sub-topology alone writes {one.store}, its copy is complete: say so in a kstate.toml (--spec), "
            f"{table_of(one.store)} subtopology = N, and nothing is restored"
        )


def _leave_lost(draft: RehomeDraft, changed: Iterable[str]) -> None:
    """A store that has rows and has lost its offset, as other partitions tell, would be restored over what is there."""
    for name in sorted(set(changed) & draft.tasks.keys()):
        for one in draft.rehoming.of(name):
            known = draft.store(one)
            if one.target is None or known is None:
                continue
            if known.uneven and one.moves:
                draft.left_out.setdefault((name, one.store), "its segments are not at one offset")
            if known.offsets or known.store.empty:
                continue
            if any(other.offsets for other in draft.elsewhere(name, one.store)):
                draft.left_out.setdefault((name, one.store), "it has rows and no offset any more")
            elif one.moves:
                draft.warnings.append(
                    f"{name}/{one.store}: no offset anywhere: it counts as a store without a changelog"
                )


def _move(draft: RehomeDraft) -> None:
    """The steps about directories: what leaves first, then what moves, then the tasks that are empty then."""
    moves = []
    for one in draft.rehoming.placed:
        known = draft.store(one)
        if one.trace:
            _tell_trace(draft, one)
            continue
        path = draft.tasks[one.source].task.path / (
            one.store if known is None else store_folder(one.store, segmented=known.store.segmented)
        )
        relative = str(path.relative_to(draft.app.path))
        if one.target is None:
            why = str(one.because)
            draft.steps.append(OmitTree(relative, why))
            _tell_lost(draft, one)
        elif (one.source, one.store) in draft.left_out:
            why = draft.left_out[one.source, one.store]
            draft.steps.append(OmitTree(relative, f"{why}: {one.target} restores it"))
            draft.warnings.append(f"{one.source}/{one.store}: {why}: left out, so that Streams restores it")
            _tell_lost(draft, one)
        elif one.moves:
            target = f"{one.target}/{path.relative_to(draft.tasks[one.source].task.path)}"
            databases = () if known is None else known.store.databases
            moves.append(MoveStore(target, relative, databases, f"from {relative}"))
    draft.steps += moves
    for name in _ending(draft):
        draft.steps.append(OmitTree(name, "nothing is left of it"))


def _tell_trace(draft: RehomeDraft, one: Placed) -> None:
    if one.target is None and one.because is not Because.STARTED:
        draft.notes.append(f"{one.source}: {one.store} has only an offset here: {one.because}")


def _tell_lost(draft: RehomeDraft, one: Placed) -> None:
    """A store with rows that leaves, and that no changelog may bring back."""
    known = draft.store(one)
    if one.because is Because.STARTED or known is None or known.offsets or known.store.empty:
        return
    if not any(other.offsets for other in draft.elsewhere(one.source, one.store)):
        draft.warnings.append(
            f"{one.source}/{one.store} has rows and no offset: without a changelog they leave for good; to keep them, "
            f"first: {command('export', draft.app.path, one.store, '--out', 'DIR')}"
        )


def _tell_global_stores(draft: RehomeDraft) -> None:
    new = draft.options.new
    here = {store.name for task in draft.app.tasks if task.is_global for store in task.stores}
    if new is not None and (gone := sorted(here - new.global_stores)):
        draft.notes.append(
            f"{GLOBAL}: the new topology has not {some(gone, _NAMED)}: global stores stay where they are"
        )


def _leave_gone_topics(draft: RehomeDraft) -> None:
    """Up to 4.2 the topic of a global store that is gone ends the start (``GlobalStateManagerImpl.initialize``).

    Without any global store nobody reads the file, and the way back still finds it as it was.
    """
    new, held = draft.options.new, next((task for task in draft.app.tasks if task.is_global), None)
    if new is None or held is None or held.checkpoint is None or draft.inside or not new.global_stores:
        return
    topics = frozenset(new.text.global_stores.values())
    lines = {tp: offset for tp, offset in held.checkpoint.entries.items() if tp.topic in topics}
    if lines and lines.keys() != held.checkpoint.entries.keys():
        draft.steps.append(Keeping(GLOBAL).lines(lines))


def _tell_repartition_topics(draft: RehomeDraft) -> None:
    """What was written between two sub-topologies and not read yet stays unread under another name."""
    new, old = draft.options.new, draft.options.old
    if new is None or old is None:
        draft.warnings.append(
            "records that were not read yet from repartition topics which the new topology does not read are never "
            "read: the texts of both name those topics (--topology, --from)"
        )
    elif topics := list(stranded(new, old)):
        draft.warnings.append(
            "the new topology does not read these repartition topics: what is in them and was not read yet is never "
            f"read: {some(topics, _NAMED)}"
        )


def _tell_partitions(draft: RehomeDraft) -> None:
    """Streams does not start where the topics of what comes together differ in size, which only the broker knows."""
    for home, _ in draft.homes():
        tasks = [name for name in draft.rehoming.targets if _home(name) == home]
        sources = {_home(one.source) for name in tasks for one in draft.rehoming.into(name) if not one.stray}
        lacking = [one for name in tasks for one in draft.rehoming.lacking.get(name, ())]
        sources |= {_home(one.half) for one in lacking if one.half is not None}
        if len(sources) > 1:
            draft.notes.append(
                f"sub-topology {home}: stores of {some(sorted(map(str, sources)), _NAMED)} come together: Streams does "
                "not start unless their source topics have as many partitions, which --bootstrap-server looks at"
            )


def _home(task: str) -> Home:
    return Home.of(TaskId.parse(task))


def _times(draft: RehomeDraft) -> dict[str, int]:
    """A task is as old as the oldest of those that its stores come from: the cleaner must not find old state young."""
    times: dict[str, int] = {}
    for one in draft.rehoming.placed:
        if one.target is not None and any(other.moves for other in draft.rehoming.into(one.target)):
            mtime = draft.tasks[one.source].task.mtime_ns
            times[one.target] = min(mtime, times.get(one.target, mtime))
    for name, restored in draft.completion.times.items():
        times[name] = min(restored, times.get(name, restored))
    return times


def _task(path: str) -> str:
    name = Place(tuple(path.split("/"))).task
    assert name is not None
    return name


def custom_stores(resolved: TaskOffsets, options: RehomeOptions) -> dict[str, Path]:
    """The directories of a task that a text, or an offset, calls a store: they are moved as they are."""
    task = resolved.task
    named = {*resolved.absent, *task.store_files}
    for described in (options.new, options.old):
        if described is not None:
            named |= {key.store for key in described.homes if key == StoreKey(task.topology or "", key.store)}
    return {name: path for name, path in _foreign(resolved).items() if name in named and path.is_dir()}


def refuse_foreign(draft: RehomeDraft, tasks: Iterable[str]) -> None:
    """Raises Refused for what nobody knows in tasks that stores go from: nor knows anybody where it belongs."""
    unknown = []
    for name in sorted(tasks):
        resolved = draft.tasks[name]
        custom = custom_stores(resolved, draft.options)
        unknown += [f"{name}/{entry}" for entry in _foreign(resolved) if entry not in custom]
    if unknown:
        raise Refused(
            "not understood, and in a task that stores go from",
            details=first_lines(unknown),
            where=str(draft.app.path),
            code=WhyRefused.FOREIGN,
            hint="move it out of the application directory, if the application does not need it",
        )


def _foreign(resolved: TaskOffsets) -> dict[str, Path]:
    """What is in a task, by the path below it, and nothing of Streams."""
    task, length = resolved.task, len(resolved.task.place.names)
    return {
        "/".join(problem.place.names[length:]): task.path.joinpath(*problem.place.names[length:])
        for problem in task.problems
        if problem.code is ProblemCode.FOREIGN
    }
