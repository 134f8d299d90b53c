"""Where every store of every task goes: a pure function of what lies where, and of what the texts say.

It is the same for all partitions. Nothing here knows of files or releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from kstate_cli.errors import Refused
from kstate_cli.formats.task_id import TaskId
from kstate_cli.rehome.model import Because, Held, Lacking, Placed, Rehoming, WhyRefused
from kstate_cli.specification.homes import GONE, Described, Home, StoreKey, generated, of_another_operator
from kstate_cli.texts import first_lines, quoted, some

_NAMED = 5


def by_numbers(held: Sequence[Held], numbers: Mapping[int, int | None]) -> Rehoming:
    """Sub-topologies as wholes. Raises Refused where one would take the place of another that stays."""
    homes = {one.home for one in held}
    if named := sorted(home.topology for home in homes if home.topology):
        raise Refused(
            f"the directory has named topologies ({some(named, _NAMED)}): numbers alone say nothing of them",
            hint="give texts: --topology NEW.txt --from OLD.txt",
        )
    result = Rehoming()
    targets = {home: numbers.get(home.number, home.number) for home in homes}
    for home in sorted(home for home in homes if home.number in numbers):
        new = targets[home]
        taken = [other for other, its in targets.items() if its == new and other != home]
        if new is not None and taken:
            raise Refused(
                f"sub-topology {home} is to be {new}, which is here too",
                code=WhyRefused.NUMBER_TAKEN,
                hint=f"say what becomes of that: --map {quoted(f'{taken[0]}={GONE}')}, or another number of its own; "
                "what is merged say two texts: --topology, --from",
            )
    _refuse_generated(sorted({one.key(s) for one in held for s in one.stores if generated(s)}), None)
    real = {(one.key(store), one.partition) for one in held for store in one.stores}
    for one in held:
        new = targets[one.home]
        target = None if new is None else Home(one.home.topology, new).task(one.partition)
        because = Because.GONE if new is None else None
        doubled = {store for store in one.virgins if (one.key(store), one.partition) in real}
        for store in sorted((one.stores | one.traces | one.virgins) - doubled):
            result.add(Placed(store, one.task.name, target, because, store in one.traces))
        for store in sorted(one.strays | doubled):
            stays = target == one.task.name and store in one.strays
            why = None if stays else Because.EMPTY
            result.add(Placed(store, one.task.name, target if stays else None, why, stray=True))
    return result


@dataclass(frozen=True, slots=True)
class Specified:
    """What a specification says of the stores of a topology."""

    in_memory: frozenset[str] = frozenset()
    """Stores that no directory has, so that none lacks them."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Store -> the sub-topology that alone writes it."""


def by_texts(
    held: Sequence[Held],
    global_here: Iterable[str],
    new: Described,
    old: Described | None,
    *,
    specified: Specified = Specified(),
    halves: bool = False,
) -> Rehoming:
    """Return where each store goes, by its name.

    ``halves``: half a task is not refused, but told (``Rehoming.halves``). Raises Refused, naming the rule
    (:class:`WhyRefused`) and every store that breaks it.
    """
    _refuse_others(held, frozenset(global_here), new, old)
    if old is not None:
        _refuse_old(held, new, old)
    chosen = _chosen(held, new, old)
    _refuse_unpinned(chosen, new, old)
    result = Rehoming()
    merged, complete = _copies(held, new, old, specified.writers)
    chosen |= complete
    for one in held:
        for store in sorted(one.stores | one.traces | one.virgins):
            key, trace = one.key(store), store in one.traces
            home, its = new.homes.get(key), (key, one.partition)
            regrouped = its in merged or its in complete
            if one.home in new.copies.get(key, ()) and not regrouped:
                result.add(Placed(store, one.task.name, one.task.name, None, trace))
            elif home is not None and chosen[its] == one.task.name:
                result.add(Placed(store, one.task.name, home.task(one.partition), None, trace))
                if its in merged:
                    result.partial.add((one.task.name, store))
            else:
                why = Because.COPY if regrouped else _because(one, store, home)
                result.add(Placed(store, one.task.name, None, why, trace))
        for store in sorted(one.strays):
            key = one.key(store)
            stays = one.home in new.places(key) and ((key, one.partition) not in chosen or key in new.copies)
            target, because = (one.task.name, None) if stays else (None, Because.EMPTY)
            result.add(Placed(store, one.task.name, target, because, stray=True))
    _add_lacking(result, held, new, old, specified.in_memory)
    if result.halves and not halves:
        raise half_a_task(result)
    return result


def _copies(
    held: Sequence[Held], new: Described, old: Described | None, writers: Mapping[str, int]
) -> tuple[set[tuple[StoreKey, int]], dict[tuple[StoreKey, int], str]]:
    """Return the stores and partitions whose copies are partial, and the tasks whose copy is complete.

    Where several sub-topologies had a copy of a store, each copy has what its processors wrote and what was restored;
    the changelog has everything. An empty copy proves nothing: its task may have been wiped. So only ``writers`` makes
    a copy complete.
    """
    partial: set[tuple[StoreKey, int]] = set()
    complete: dict[tuple[StoreKey, int], str] = {}
    for one in held:
        for store in one.stores:
            key = one.key(store)
            if old is None or one.home not in old.copies.get(key, ()) or old.copies[key] == new.places(key):
                continue
            partial.add((key, one.partition))
            if writers.get(store) == one.home.number:
                complete[key, one.partition] = one.task.name
    return partial - complete.keys(), complete


def _because(held: Held, store: str, home: Home | None) -> Because:
    if store in held.virgins:
        return Because.EMPTY
    if home is None:
        return Because.NO_SUCH_STORE
    return Because.LOST if store in held.lost else Because.STARTED


def _refuse_others(held: Sequence[Held], global_here: frozenset[str], new: Described, old: Described | None) -> None:
    """A text of another application, and stores that have become global ones, or were."""
    here = {one.key(store) for one in held for store in one.stores}
    moved = sorted({key.store for key in here} & new.global_stores | {k.store for k in new.homes} & global_here)
    if moved:
        raise Refused(
            f"global in one of directory and topology, and not in the other: {some(moved, _NAMED)}",
            code=WhyRefused.GLOBAL,
            hint="a global store has another changelog and no partitions: wipe it, and Streams makes it anew",
        )
    known = here & new.homes.keys()
    if not here or (known and (old is not None or 2 * len(known) >= len(here))):
        return
    missing = some([str(key) for key in sorted(here - known)], _NAMED)
    if known:
        raise Refused(
            f"the new topology has {len(known)} of the {len(here)} stores here, and not: {missing}",
            code=WhyRefused.OTHER_APPLICATION,
            hint="is it the text of this application? If it is, name the text of before too: --from OLD.txt",
        )
    raise Refused(
        f"the new topology has none of the stores here: {missing}",
        code=WhyRefused.OTHER_APPLICATION,
        hint="it is the text of another application: name that of build(props) of this one",
    )


def _refuse_old(held: Sequence[Held], new: Described, old: Described) -> None:
    """Every store lies where the old text has it, or where a start of the new topology has put it."""
    wrong = [
        f"{one.task.name}/{store}: {_where(old.homes.get(one.key(store)))}"
        for one in held
        for store in sorted(one.stores)
        if one.home not in (*old.places(one.key(store)), *new.places(one.key(store)))
    ]
    if wrong:
        raise Refused(
            "the old topology is not the one that this directory was written by",
            details=first_lines(wrong),
            code=WhyRefused.OLD_DOES_NOT_FIT,
            hint="--from is the text of the topology that ran here last, of build(props): with topology.optimization "
            "the numbers depend on the properties",
        )


def _where(home: Home | None) -> str:
    return "it has no such store" if home is None else f"it has it in sub-topology {home}"


def _chosen(held: Sequence[Held], new: Described, old: Described | None) -> dict[tuple[StoreKey, int], str]:
    """Store and partition -> the task whose copy counts."""
    copies: dict[tuple[StoreKey, int], list[Held]] = {}
    others: dict[tuple[StoreKey, int], list[Held]] = {}
    for one in held:
        for store in one.stores:
            copies.setdefault((one.key(store), one.partition), []).append(one)
    # What is empty counts where there is nothing else, and lines without a database where there is not even that.
    for stores in (attrgetter("virgins"), attrgetter("traces")):
        known = copies.keys() | others.keys()
        for one in held:
            for store in stores(one):
                if (one.key(store), one.partition) not in known:
                    others.setdefault((one.key(store), one.partition), []).append(one)
    chosen: dict[tuple[StoreKey, int], str] = {}
    wrong = []
    for (key, partition), tasks in {**copies, **others}.items():
        # A copy that has lost its offset would be restored whole, or taint its task.
        whole = [one for one in tasks if key.store not in one.lost] or tasks
        of_old = [one for one in whole if old is not None and one.home in old.places(key)]
        of_new = [one for one in whole if one.home in new.places(key)]
        several = len(tasks) > 1 and (key, partition) in copies and key in new.homes
        if several and (old is None or not of_old + of_new) and key not in new.copies:
            wrong.append(f"{key}: {', '.join(sorted(one.task.name for one in tasks))}")
        chosen[key, partition] = (of_old or of_new or whole)[0].task.name
    if wrong:
        raise Refused(
            "two copies of a store in two tasks: the new topology was started here once",
            details=first_lines(sorted(wrong)),
            code=WhyRefused.TWO_COPIES,
            hint="name the topology that ran before, whose copies are taken: --from OLD.txt; up to "
            "some patch releases several sub-topologies have a copy of one store, which that text shows",
        )
    return chosen


def _refuse_unpinned(chosen: Iterable[tuple[StoreKey, int]], new: Described, old: Described | None) -> None:
    """A generated name means the same store only where the same sources and processors make it."""
    names = sorted({key for key, _ in chosen if generated(key.store) and key in new.homes})
    if old is None:
        _refuse_generated(names, None)
    else:
        _refuse_generated([key for key in names if of_another_operator(key, new, old)], old)


def _refuse_generated(names: Sequence[StoreKey], old: Described | None) -> None:
    if not names:
        return
    why = "nothing says that they are still those of the same operators" if old is None else "another operator has them"
    raise Refused(
        f"names that the DSL has generated carry the operator's number: {why}",
        details=first_lines([str(key) for key in names]),
        code=WhyRefused.GENERATED,
        hint="give the text of the topology that ran here last: --topology NEW.txt --from OLD.txt"
        if old is None
        else "pin the names of before in the code: "
        + some([f'Materialized.as("{key.store}") where it was' for key in names], _NAMED)
        + "; or wipe these stores, and delete their changelogs",
    )


def _add_lacking(
    result: Rehoming, held: Sequence[Held], new: Described, old: Described | None, in_memory: frozenset[str]
) -> None:
    """What the tasks that get something are to have besides."""
    directories = {one.task.name for one in held}
    seen: dict[StoreKey, set[Home]] = {}
    for one in held:
        for store in one.stores:
            seen.setdefault(one.key(store), set()).add(one.home)
    for name in result.targets:
        task = TaskId.parse(name)
        home, partition = Home.of(task), task.partition or 0
        here = {one.store for one in result.into(name) if not one.stray}
        strays = {one.store for one in result.into(name) if one.stray}
        sources = {one.source for one in result.into(name) if not (one.trace or one.stray)}
        if not sources:
            continue
        # A task whose stores have come already got what there was.
        done = old is not None and any(
            one.source == name
            and not one.stray
            and home not in (old.places(StoreKey(home.topology, one.store)) or (home,))
            for one in result.into(name)
        )
        for store in new.stores_of(home):
            if store in here or store in in_memory:
                continue
            key = StoreKey(home.topology, store)
            before = set(old.places(key)) if old is not None and key in old.homes else seen.get(key, set())
            elsewhere = sorted(one.task(partition) for one in before)
            half = bool(elsewhere) and not done and not directories & set(elsewhere)
            lacking = Lacking(store, bool(before), key in seen, store in strays, elsewhere[0] if half else None)
            result.lacking.setdefault(name, []).append(lacking)


def half_a_task(result: Rehoming) -> Refused:
    """What is refused where nobody completes it."""
    lines = []
    for name, those in result.lacking.items():
        sources = sorted({one.source for one in result.into(name) if not (one.trace or one.stray)})
        lines += [
            f"{name}: {one.store} of {one.half} is not here, {', '.join(sources)} is" for one in those if one.half
        ]
    return Refused(
        "half a task: sub-topologies that are merged lie on different hosts",
        details=first_lines(lines),
        code=WhyRefused.HALF_A_TASK,
        hint="complete it from a dump of the changelogs: --from-changelog DUMP --for RELEASE --from OLD.txt; or bring "
        "the task directories of one partition together on one host first (with the application stopped on both, move "
        "the directory), or wipe the half that is here; a store that is in memory is nowhere: say so in a kstate.toml "
        "(--spec); where no host ever had it, their topics have partitions of two numbers, which --bootstrap-server "
        "counts",
    )


def stranded(new: Described, old: Described) -> Iterator[str]:
    """Topics between sub-topologies that the old topology reads and the new one does not: what is unread is lost."""
    read = {topic for part in new.text.subtopologies for topic in part.topics}
    yield from sorted(old.text.inner_topics - read)
