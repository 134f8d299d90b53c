"""Decide to which task each store goes, by pure rules about the stores of the tasks and the texts of topologies.

The decision is the same for all partitions. The rules know neither files nor releases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.rehome.model import DirectoryTask, LeaveReason, MissingStore, Placement, Rehoming, WhyRefused
from kstate_cli.specification.homes import REMOVED, Described, Home, StoreKey, generated, of_another_operator
from kstate_cli.texts import first_lines, plural, quoted, some, suggest

_MOST: Final = 5
"""Names in one sentence."""
StorePartition = tuple[StoreKey, int]
"""One partition of a store, wherever it is."""


def by_numbers(tasks: Sequence[DirectoryTask], numbers: Mapping[int, int | None]) -> Rehoming:
    """Return where stores of whole sub-topologies go, by ``numbers``: old number -> new one, None for a removed one.

    Raises Refused if one would get the number of another sub-topology that stays.
    """
    homes = {task.home for task in tasks}
    _refuse_named_topologies(homes)
    # The user lists only changes: a number that is not in the list stays.
    targets = {home: numbers.get(home.number, home.number) for home in homes}
    _refuse_occupied_numbers(targets, numbers)
    _refuse_generated(sorted({task.key(store) for task in tasks for store in task.stores if generated(store)}), None)
    with_rows = {(task.key(store), task.partition) for task in tasks for store in task.stores}
    return Rehoming(
        tuple(placement for task in tasks for placement in _renumbered(task, targets[task.home], with_rows))
    )


def _refuse_named_topologies(homes: Iterable[Home]) -> None:
    if topologies := sorted(home.topology for home in homes if home.topology):
        raise Refused(
            (
                f"the directory has named topologies ({some(topologies, _MOST)}), so numbers alone do not identify "
                "sub-topologies"
            ),
            hint=f"pass both descriptions: {option.TOPOLOGY} NEW.txt {option.FROM} OLD.txt",
        )


def _refuse_occupied_numbers(targets: Mapping[Home, int | None], numbers: Mapping[int, int | None]) -> None:
    """Raise Refused if a sub-topology gets a number that another one in the directory keeps or gets."""
    for home in sorted(home for home in targets if home.number in numbers):
        new = targets[home]
        # Two sub-topologies with one number would share directories, and Streams would open the stores of both as one
        # task.
        occupants = [other for other, target in targets.items() if target == new and other != home]
        if new is not None and occupants:
            raise Refused(
                (
                    f"sub-topology {home} would get number {new}, which another sub-topology in the directory "
                    "already has"
                ),
                code=WhyRefused.NUMBER_TAKEN,
                hint=(
                    f"also map that sub-topology: pass {option.MAP} {quoted(f'{occupants[0]}={REMOVED}')}, or an "
                    f"unused number instead of {REMOVED}. If sub-topologies were merged, pass both descriptions with "
                    f"{option.TOPOLOGY} and {option.FROM}"
                ),
            )


def _renumbered(task: DirectoryTask, number: int | None, with_rows: Collection[StorePartition]) -> Iterator[Placement]:
    """Yield where the stores of one task go, if its sub-topology gets ``number``.

    ``with_rows`` are the stores and partitions of which any task has rows.
    """
    target: str | None = None
    reason: LeaveReason | None = LeaveReason.REMOVED
    if number is not None:
        target, reason = Home(task.home.topology, number).task(task.partition), None
    # If another sub-topology has a copy of the store with rows, the empty copy here is removed.
    doubled = {store for store in task.unwritten if (task.key(store), task.partition) in with_rows}
    for store in sorted((task.stores | task.offset_only | task.unwritten) - doubled):
        yield Placement(store, task.task.name, target, reason, store in task.offset_only)
    for store in sorted(task.strays | doubled):
        if target == task.task.name and store in task.strays:
            yield Placement(store, task.task.name, target, stray=True)
        else:
            yield Placement(store, task.task.name, None, LeaveReason.EMPTY, stray=True)


@dataclass(frozen=True, slots=True)
class Specified:
    """What a specification states about the stores of a topology."""

    in_memory: frozenset[str] = frozenset()
    """Stores that no directory has, so that no task lacks them."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Store -> the sub-topology that alone writes it."""


def by_texts(
    tasks: Sequence[DirectoryTask],
    global_here: Iterable[str],
    new: Described,
    old: Described | None,
    *,
    specified: Specified = Specified(),
    halves: bool = False,
) -> Rehoming:
    """Return where each store goes, by its name in the texts of the new and the old topology.

    A half task needs stores that are on another host. ``halves``: half tasks are returned (``Rehoming.halves``) and not
    refused. Raises Refused with the rule (:class:`WhyRefused`) and every store that violates it.
    """
    # The texts are checked first: with the text of another application, every later decision would be wrong.
    _refuse_others(tasks, frozenset(global_here), new, old)
    if old is not None:
        _refuse_old(tasks, new, old)
    # Decided for each store and partition separately, because a host has only some partitions.
    sources = _source_tasks(tasks, new, old)
    _refuse_unpinned(sources, new, old)
    copies = _copies(tasks, old, new, specified.writers)
    # If the user states which sub-topology writes a store, this overrides the decision by the texts.
    sources |= copies.complete
    placements = tuple(
        placement for task in tasks for placement in _placements(task, new, sources=sources, copies=copies)
    )
    partial = frozenset(
        (placement.source, placement.store) for placement in placements if _is_partial(placement, copies)
    )
    rehoming = Rehoming(placements, partial=partial)
    rehoming = replace(rehoming, missing=_missing_stores(rehoming, tasks, new, old, specified.in_memory))
    if rehoming.halves and not halves:
        raise half_a_task(rehoming)
    return rehoming


@dataclass(frozen=True, slots=True)
class _StoreCopies:
    """The stores of which several sub-topologies had a copy, and no longer all of them do."""

    partial: frozenset[StorePartition]
    """Every copy has the records of one sub-topology only."""
    complete: Mapping[StorePartition, str]
    """The task whose copy has all records."""

    def regrouped(self, key: StorePartition) -> bool:
        """Return True if the copies of a store come together, or some of them end."""
        return key in self.partial or key in self.complete


def _copies(
    tasks: Sequence[DirectoryTask], old: Described | None, new: Described, writers: Mapping[str, int]
) -> _StoreCopies:
    """Return which copies of stores are partial, and which are complete.

    If several sub-topologies have a copy of a store, each copy has the records of its own processors and those that
    were restored. Only the changelog has all of them. An empty copy proves nothing, because its task may have been
    wiped. So a copy is complete only if ``writers`` states that its sub-topology alone writes the store.
    """
    partial: set[StorePartition] = set()
    complete: dict[StorePartition, str] = {}
    for task in tasks:
        for store in task.stores:
            key = task.key(store)
            # If the same sub-topologies have copies in both topologies, each continues with its own copy.
            if old is None or task.home not in old.copies.get(key, ()) or old.copies[key] == new.places(key):
                continue
            # A copy counts as partial until it is proved complete: records of the other processors may be missing in
            # it.
            partial.add((key, task.partition))
            if writers.get(store) == task.home.number:
                complete[key, task.partition] = task.task.name
    return _StoreCopies(frozenset(partial - complete.keys()), complete)


def _placements(
    task: DirectoryTask, new: Described, *, sources: Mapping[StorePartition, str], copies: _StoreCopies
) -> Iterator[Placement]:
    """Yield where each store of one task goes: to a task of the new topology, or nowhere (target None) and why."""
    name = task.task.name
    for store in sorted(task.stores | task.offset_only | task.unwritten):
        key, offset_only = task.key(store), store in task.offset_only
        home, store_partition = new.homes.get(key), (key, task.partition)
        regrouped = copies.regrouped(store_partition)
        if task.home in new.copies.get(key, ()) and not regrouped:
            yield Placement(store, name, name, None, offset_only)
        elif home is not None and sources[store_partition] == name:
            yield Placement(store, name, home.task(task.partition), None, offset_only)
        else:
            reason = LeaveReason.COPY
            if not regrouped:
                reason = _leave_reason(task, store, home)
            yield Placement(store, name, None, reason, offset_only)
    for store in sorted(task.strays):
        key = task.key(store)
        stays = task.home in new.places(key) and ((key, task.partition) not in sources or key in new.copies)
        if stays:
            yield Placement(store, name, name, stray=True)
        else:
            yield Placement(store, name, None, LeaveReason.EMPTY, stray=True)


def _is_partial(placement: Placement, copies: _StoreCopies) -> bool:
    """Return True for a copy that stays in use, and has the records of one of several sub-topologies only."""
    if placement.target is None or placement.stray:
        return False
    task = TaskId.parse(placement.source)
    return (StoreKey(task.topology or "", placement.store), task.partition or 0) in copies.partial


def _leave_reason(task: DirectoryTask, store: str, home: Home | None) -> LeaveReason:
    if store in task.unwritten:
        return LeaveReason.EMPTY
    if home is None:
        return LeaveReason.NO_SUCH_STORE
    if store in task.lost:
        return LeaveReason.LOST
    return LeaveReason.STARTED


def _refuse_others(
    tasks: Sequence[DirectoryTask], global_here: frozenset[str], new: Described, old: Described | None
) -> None:
    """Raise Refused for the text of another application, and for stores that are global on one side only."""
    here = {task.key(store) for task in tasks for store in task.stores}
    _refuse_global(here, global_here, new)
    shared = here & new.homes.keys()
    # Stores that the new topology does not have are moved out. Without the old text kstate cannot distinguish a
    # topology that drops stores from that of another application. So the new one must have at least half of the stores
    # here.
    if not here or (shared and (old is not None or 2 * len(shared) >= len(here))):
        return
    missing = some([str(key) for key in sorted(here - shared)], _MOST)
    if shared:
        raise Refused(
            (
                f"the directory contains {plural(len(here), 'store')}, and the new topology has only {len(shared)} of "
                f"them. Missing: {missing}"
            ),
            code=WhyRefused.OTHER_APPLICATION,
            hint=(
                "check that this description belongs to this application. If it does, also pass the description of "
                f"the previous topology: {option.FROM} OLD.txt"
            ),
        )
    raise Refused(
        f"the new topology has none of the stores in the directory: {missing}",
        code=WhyRefused.OTHER_APPLICATION,
        hint=(
            "this description belongs to another application. Pass the output of build(props).describe() from this "
            "application"
        ),
    )


def _refuse_global(here: Collection[StoreKey], global_here: frozenset[str], new: Described) -> None:
    become_global = {key.store for key in here} & new.global_stores
    were_global = {key.store for key in new.homes} & global_here
    if stores := sorted(become_global | were_global):
        raise Refused(
            f"these stores are global in the directory but not in the topology, or vice versa: {some(stores, _MOST)}",
            code=WhyRefused.GLOBAL,
            hint=(
                "wipe these stores so that Kafka Streams recreates them. kstate cannot move them, because a global "
                "store has a different changelog and no partitions"
            ),
        )


def _refuse_old(tasks: Sequence[DirectoryTask], new: Described, old: Described) -> None:
    """Raise Refused unless every store is where the old text, or a start of the new topology, puts it."""
    wrong = [
        f"{task.task.name}/{store}: {_place_of(old.homes.get(task.key(store)))}"
        for task in tasks
        for store in sorted(task.stores)
        # A start of the new topology may have created the store in its new task, which does not contradict the old
        # text.
        if task.home not in (*old.places(task.key(store)), *new.places(task.key(store)))
    ]
    if wrong:
        raise Refused(
            "the old topology does not match this directory",
            details=first_lines(wrong),
            code=WhyRefused.OLD_DOES_NOT_FIT,
            hint=(
                f"pass {option.FROM} with the description of the topology that last ran here, as build(props) "
                "returned it. With topology.optimization, the numbers depend on the properties"
            ),
        )


def _place_of(home: Home | None) -> str:
    if home is None:
        return "the old topology does not have this store"
    return f"the old topology has this store in sub-topology {home}"


def _source_tasks(tasks: Sequence[DirectoryTask], new: Described, old: Described | None) -> dict[StorePartition, str]:
    """Return the task whose copy of a store is used, by store and partition.

    Raises Refused if two tasks have a copy with rows, and the texts do not show which one counts.
    """
    with_rows = _tasks_by_store(tasks, attrgetter("stores"))
    # Copies with rows come first, because only they cannot be created again without the changelog.
    candidates = dict(with_rows)
    # An empty store counts if no copy has rows. An offset without a database counts if there is no store either.
    for stores in (attrgetter("unwritten"), attrgetter("offset_only")):
        # In this union the right side wins, so a copy with rows is never replaced by an empty one.
        candidates = {**_tasks_by_store(tasks, stores), **candidates}
    ambiguous = [
        f"{key}: {', '.join(sorted(task.task.name for task in with_rows[key, partition]))}"
        for key, partition in with_rows
        if _is_ambiguous(key, with_rows[key, partition], new, old)
    ]
    if ambiguous:
        raise Refused(
            "two tasks have a copy of the same store, because you have already started the new topology here",
            details=first_lines(sorted(ambiguous)),
            code=WhyRefused.TWO_COPIES,
            hint=(
                f"pass the description of the previous topology: {option.FROM} OLD.txt. kstate then uses that "
                "topology's copies. If a patch release has built copies of one store in several sub-topologies, this "
                "description shows them"
            ),
        )
    return {
        (key, partition): _preferred(key, owners, new, old)[0].task.name
        for (key, partition), owners in candidates.items()
    }


def _tasks_by_store(
    tasks: Sequence[DirectoryTask], stores: attrgetter[frozenset[str]]
) -> dict[StorePartition, list[DirectoryTask]]:
    by_store: dict[StorePartition, list[DirectoryTask]] = {}
    for task in tasks:
        for store in stores(task):
            by_store.setdefault((task.key(store), task.partition), []).append(task)
    return by_store


def _with_offset(key: StoreKey, owners: list[DirectoryTask]) -> list[DirectoryTask]:
    """Return the copies with an offset: one that has lost it would be restored whole, or taint its task."""
    return [task for task in owners if key.store not in task.lost] or owners


def _preferred(
    key: StoreKey, owners: list[DirectoryTask], new: Described, old: Described | None
) -> list[DirectoryTask]:
    """Return the copies in the order of the old text, the new text, or any."""
    whole = _with_offset(key, owners)
    of_old = [task for task in whole if old is not None and task.home in old.places(key)]
    return of_old or [task for task in whole if task.home in new.places(key)] or whole


def _is_ambiguous(key: StoreKey, owners: list[DirectoryTask], new: Described, old: Described | None) -> bool:
    """Return True if two tasks have rows of a store, and neither text decides which copy is used."""
    # A store that the new topology lacks leaves anyway, and one with copies keeps each.
    if len(owners) < 2 or key not in new.homes or key in new.copies:
        return False
    whole = _with_offset(key, owners)
    return old is None or not any(task.home in (*old.places(key), *new.places(key)) for task in whole)


def _refuse_unpinned(sources: Iterable[StorePartition], new: Described, old: Described | None) -> None:
    """Raise Refused for generated names that the same sources and processors do not make in both topologies."""
    # Only names that both topologies have: a name that ends takes no other store's rows.
    names = sorted({key for key, _ in sources if generated(key.store) and key in new.homes})
    if old is None:
        _refuse_generated(names, None)
    else:
        _refuse_generated([key for key in names if of_another_operator(key, new, old)], old)


def _refuse_generated(names: Sequence[StoreKey], old: Described | None) -> None:
    """Raise Refused if stores have names that the DSL generated, and that may now belong to other operators."""
    if not names:
        return
    if old is None:
        raise _generated_names(
            names,
            "without the old topology, kstate does not know whether these names still belong to the same operators",
            hint=(
                f"also pass the description of the topology that last ran here: {option.TOPOLOGY} NEW.txt "
                f"{option.FROM} OLD.txt"
            ),
        )
    pins = some([f'Materialized.as("{key.store}") at its operator' for key in names], _MOST)
    raise _generated_names(
        names,
        "in the new topology, these names belong to other operators",
        hint=f"set the previous names in the code: {pins}. Or wipe these stores and delete their changelogs",
    )


def _generated_names(names: Sequence[StoreKey], why: str, *, hint: str) -> Refused:
    return Refused(
        f"the DSL generated these store names from operator numbers, and {why}",
        details=first_lines([str(key) for key in names]),
        code=WhyRefused.GENERATED,
        hint=hint,
    )


def _missing_stores(
    rehoming: Rehoming,
    tasks: Sequence[DirectoryTask],
    new: Described,
    old: Described | None,
    in_memory: frozenset[str],
) -> dict[str, tuple[MissingStore, ...]]:
    """Return, for each task that gets stores, the stores that it needs besides these and does not have.

    ``in_memory`` are stores that have no directory.
    """
    # A task without a directory here is on another host, or was never assigned.
    directories = frozenset(task.task.name for task in tasks)
    homes_here: dict[StoreKey, set[Home]] = {}
    for task in tasks:
        for store in task.stores:
            homes_here.setdefault(task.key(store), set()).add(task.home)
    missing = {
        name: tuple(
            _missing_store(rehoming, name, store, old, directories, homes_here)
            for store in _absent_stores(rehoming, name, new)
            if store not in in_memory
        )
        for name in rehoming.targets
        if any(not (placement.offset_only or placement.stray) for placement in rehoming.into(name))
    }
    return {name: stores for name, stores in missing.items() if stores}


def _absent_stores(rehoming: Rehoming, name: str, new: Described) -> list[str]:
    """Return the stores of a task in the new topology that no other task gives to it."""
    # A stray has nothing to give: the store still has to be restored.
    here = {placement.store for placement in rehoming.into(name) if not placement.stray}
    return [store for store in new.stores_of(Home.of(TaskId.parse(name))) if store not in here]


def _missing_store(
    rehoming: Rehoming,
    name: str,
    store: str,
    old: Described | None,
    directories: frozenset[str],
    homes_here: Mapping[StoreKey, Collection[Home]],
) -> MissingStore:
    """Return the facts about a store that the task ``name`` does not have.

    ``directories`` are the tasks that exist here. ``homes_here`` has the sub-topologies here that have each store.
    """
    task = TaskId.parse(name)
    home, partition = Home.of(task), task.partition or 0
    key = StoreKey(home.topology, store)
    if old is not None and key in old.homes:
        before: Collection[Home] = old.places(key)
    else:
        before = homes_here.get(key, ())
    elsewhere = sorted(other.task(partition) for other in set(before))
    strays = {placement.store for placement in rehoming.into(name) if placement.stray}
    half = bool(elsewhere) and not _was_rehomed(rehoming, name, home, old) and not directories & set(elsewhere)
    return MissingStore(store, bool(before), key in homes_here, store in strays, elsewhere[0] if half else None)


def _was_rehomed(rehoming: Rehoming, name: str, home: Home, old: Described | None) -> bool:
    """Return True if a task has stores that came from elsewhere: an earlier run already gave it what there was."""
    return old is not None and any(
        placement.source == name
        and not placement.stray
        and home not in (old.places(StoreKey(home.topology, placement.store)) or (home,))
        for placement in rehoming.into(name)
    )


def half_a_task(rehoming: Rehoming) -> Refused:
    """Return the refusal of half tasks: tasks for which other hosts have stores, if no dump completes them."""
    # check prints this refusal too.
    options = f": {option.FROM_CHANGELOG} DUMP {option.FOR} RELEASE {option.FROM} OLD.txt"
    return Refused(
        "this host has only a part of a task, because merged sub-topologies are on different hosts",
        details=first_lines(list(_half_lines(rehoming))),
        code=WhyRefused.HALF_A_TASK,
        hint=(
            f"restore the missing part of the task from a changelog dump{suggest(options, option.FROM_CHANGELOG)}. "
            "Or stop the application on both hosts and move all task directories of one partition to one host. Or "
            "wipe the part on this host. If a missing store is in memory, specify its kind in a kstate.toml "
            f"({option.SPEC}). If the topics have different numbers of partitions, pass {option.BOOTSTRAP_SERVER} so "
            "that kstate counts them"
        ),
    )


def _half_lines(rehoming: Rehoming) -> Iterator[str]:
    for name, stores in rehoming.missing.items():
        placements = [placement for placement in rehoming.into(name) if not (placement.offset_only or placement.stray)]
        sources = sorted({placement.source for placement in placements})
        for missing in stores:
            if missing.half_of:
                yield f"{name}: this host has {', '.join(sources)}, but not {missing.store} of {missing.half_of}"


def stranded(new: Described, old: Described) -> Iterator[str]:
    """Yield the topics between sub-topologies that only the old topology reads: their unread records are lost."""
    read = {topic for part in new.text.subtopologies for topic in part.topics}
    # Streams has written these topics itself, so no other application reads what is left in them.
    yield from sorted(old.text.inner_topics - read)
