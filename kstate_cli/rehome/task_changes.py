"""The files of one task as its new stores need them: ``.checkpoint``, the files of single stores, Positions.

Under exactly-once Streams wipes a task in which one logged store has no offset. So each store of the task that is
missing in the directory gets the offset -4, "read from the beginning". Up to 4.2 this is a line of ``.checkpoint``.
From 4.3 on it is in an empty database, for which kstate must know whether the store has segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kstate_cli import option
from kstate_cli.change.plan import Change, OmitTree, note, warning
from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import is_segmented
from kstate_cli.formats.topic_partition import TaskId, TopicPartition, typed_offsets
from kstate_cli.offsets.keeping import Guesses, Keeping, Offsets, closed, in_a_file, left_behind
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.offsets.resolve import usual_changelog
from kstate_cli.rehome.model import LeaveReason, MissingStore, Placement, WhyRefused
from kstate_cli.rehome.snapshot import RehomeLayout
from kstate_cli.specification.draft import IN_MEMORY, table_lines
from kstate_cli.statedir.model import Task
from kstate_cli.statedir.names import CHECKPOINT
from kstate_cli.texts import first_lines, some

_MOST: Final = 5
"""Names in one sentence."""
_NOT_HERE: Final = (
    "is not on this host. kstate writes the offset -4 for this store so that Kafka Streams restores only this one"
)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of ``.checkpoint``, and the other changes that go with them."""

    offsets: Offsets
    changes: tuple[Change, ...] = ()


def task_changes(layout: RehomeLayout, guesses: Guesses, target: str) -> list[Change]:
    """Return the changes to the files of one task. Raises Refused for offsets that no release can read back.

    ``guesses`` has the changelogs that stores probably have.
    """
    try:
        return list(_task_changes(layout, guesses, target))
    except ValueError as error:
        raise Refused(
            f"{target}: kstate cannot write its offsets to a file: {error}",
            where=str(layout.snapshot.app.path),
            hint=(
                "wipe the store so that Kafka Streams restores it from its changelog. Kafka Streams could not read "
                "such offsets"
            ),
        ) from None


def _task_changes(layout: RehomeLayout, guesses: Guesses, target: str) -> Iterator[Change]:
    """Yield the changes of the files in the directory of the task ``target``, beside its stores."""
    # Files are removed before others are written, because a store of the same name may write its own files there.
    yield from _removed_files(layout, target)
    lines: dict[TopicPartition, int] = {}
    for placement in layout.rehoming.into(target):
        of_store = _lines_of_store(layout, guesses, Keeping(target), placement)
        yield from of_store.changes
        # Two stores may have the same topic. The lower offset is safe for both: it only restores more records.
        for tp, offset in of_store.offsets.items():
            lines[tp] = min(offset, lines.get(tp, offset))
    for others in (_unowned_lines(layout, target), _missing_lines(layout, target)):
        yield from others.changes
        lines |= {tp: offset for tp, offset in others.offsets.items() if tp not in lines}
    yield from _checkpoint(layout, target, lines)


def _checkpoint(layout: RehomeLayout, target: str, lines: Offsets) -> Iterator[Change]:
    """Write ``.checkpoint`` if its lines change; remove it if none is left."""
    keeping, here = Keeping(target), layout.snapshot.tasks.get(target)
    before: Offsets | None = None
    if here is not None and here.task.checkpoint is not None:
        before = here.task.checkpoint.entries
    if before and not lines:
        yield keeping.without_lines("it has no offset that matches its contents")
    elif lines and lines != before:
        yield keeping.lines(lines)


def _lines_of_store(layout: RehomeLayout, guesses: Guesses, keeping: Keeping, placement: Placement) -> _Lines:
    """Return the lines that a store brings into its task."""
    lines = layout.lines_of(placement)
    if (placement.source, placement.store) in layout.left_out:
        return _left_out_lines(layout, guesses, keeping, placement)
    if not placement.moves:
        return _Lines(lines)
    return _Lines(lines, tuple(_moved_files(layout, keeping, placement)))


def _left_out_lines(layout: RehomeLayout, guesses: Guesses, keeping: Keeping, placement: Placement) -> _Lines:
    """Return -4 as the offset of a store that is removed because it was not closed cleanly, and steps for its files."""
    snapshot = layout.snapshot
    resolved, state = snapshot.tasks[placement.source], layout.store(placement)
    assert state is not None
    offsets: Mapping[TopicPartition, int] = state.offsets
    if not offsets and not snapshot.inside and resolved.task.checkpoint is None:
        # If the application was killed under exactly-once, there is no .checkpoint. So it is unknown whether the store
        # had a line.
        topic = usual_changelog(snapshot.app.app_id, resolved.task, placement.store)
        offsets = {topic: OFFSET_UNKNOWN}
    # ``guesses`` collects warnings for the whole application. Only the new ones belong to this store.
    earlier = len(guesses.warnings)
    # The guess is reported, because with a wrong changelog exactly-once would wipe the task.
    offsets = offsets or guesses.offsets(resolved, state)
    changes: list[Change] = [warning(text) for text in guesses.warnings[earlier:]]
    unknown = dict.fromkeys(offsets, OFFSET_UNKNOWN)
    changes += left_behind(keeping, state.store, unknown, inside=snapshot.inside)
    if state.store.position_file is not None and not placement.moves:
        changes.append(keeping.without_position(placement.store, "its store is removed"))
    # 4.3 reads the offset from the store. A line in ``.checkpoint`` would override it.
    if snapshot.inside and not layout.lines_of(placement):
        unknown = {}
    return _Lines(unknown, tuple(changes))


def _moved_files(layout: RehomeLayout, keeping: Keeping, placement: Placement) -> Iterator[Change]:
    """Yield the steps that write the files of a single store into the task to which it moves."""
    task = layout.snapshot.tasks[placement.source].task
    if (file := task.store_files.get(placement.store)) is not None:
        yield keeping.lines_of(placement.store, file.entries)
    position_file = task.position_files.get(placement.store)
    # From 4.3 on the Position is in the database, which moves unchanged. Only the file of 4.2 is written.
    if position_file is not None and position_file.content is not None:
        position = Position.from_checkpoint(position_file.content)
        text = f"position: {', '.join(typed_offsets(position.as_map()))}"
        yield keeping.position(placement.store, position, text)


def _removed_files(layout: RehomeLayout, name: str) -> Iterator[Change]:
    """Yield the removal of the files of single stores that leave a task, unless another store overwrites them."""
    resolved = layout.snapshot.tasks.get(name)
    if resolved is None:
        return
    keeping, task = Keeping(name), resolved.task
    stores = {placement.store for placement in layout.rehoming.of(name)}
    for store in sorted({*task.store_files, *task.position_files} & stores):
        if _stays(layout, name, store):
            continue
        # A store of the same name writes its file over the old one. A removal afterwards would delete the new file.
        files = _files_of_successor(layout, name, store)
        if store in task.store_files and (files is None or store not in files.store_files):
            yield keeping.without_lines_of(store, "its store moves elsewhere")
        if store in task.position_files and (files is None or store not in files.position_files):
            yield keeping.without_position(store, "its store moves elsewhere")


def _stays(layout: RehomeLayout, task: str, store: str) -> bool:
    """Return True if a store stays in its task, and none of the same name moves there."""
    placements = [placement for placement in layout.rehoming.into(task) if placement.store == store]
    return bool(placements) and not any(placement.moves for placement in placements)


def _files_of_successor(layout: RehomeLayout, task: str, store: str) -> Task | None:
    """Return the task from which a store of the same name moves into ``task``; None if none does."""
    sources = [
        placement.source for placement in layout.rehoming.into(task) if placement.store == store and placement.moves
    ]
    if not sources:
        return None
    return layout.snapshot.tasks[sources[-1]].task


def _unowned_lines(layout: RehomeLayout, target: str) -> _Lines:
    """Return the lines of ``.checkpoint`` that belong to no store here.

    They stay in their task, or go to the sub-topology that reads their topic. Others are dropped, with a note.
    """
    task, snapshot = TaskId.parse(target), layout.snapshot
    part = snapshot.new_part(task)
    topics: tuple[str, ...] = ()
    if part is not None:
        topics = part.topics
    lines: dict[TopicPartition, int] = {}
    changes: list[Change] = []
    sources = {placement.source for placement in layout.rehoming.into(target)} | ({target} & snapshot.tasks.keys())
    for source in sorted(sources):
        whole = {move.target for move in layout.rehoming.of(source) if move.target is not None} <= {target}
        for tp, offset in snapshot.owners[source].unknown.items():
            # If all stores of the task stay together, a line of unknown owner stays with them.
            if source == target and whole:
                lines[tp] = offset
            elif tp.partition == task.partition and (whole or tp.topic in topics):
                lines[tp] = min(offset, lines.get(tp, offset))
            else:
                text = (
                    f"{source}/{CHECKPOINT}: kstate skips the offset {offset} for {tp}, because this host does not "
                    "have the store"
                )
                changes.append(note(text))
    return _Lines(lines, tuple(changes))


def _missing_lines(layout: RehomeLayout, target: str) -> _Lines:
    """Return the lines for stores that a task does not have.

    For a release with offsets in stores, return steps instead.
    """
    inside = layout.snapshot.inside
    lines: dict[TopicPartition, int] = {}
    changes: list[Change] = []
    for missing in layout.rehoming.missing.get(target, ()):
        restored = layout.completion.offsets.get((target, missing.store))
        if restored is not None:
            # From 4.3 on the offsets are written into the restored database.
            if not inside:
                lines |= restored
            continue
        changes += _assumed_new(layout, target, missing)
        unknown = _unknown_offsets(layout, target, missing)
        changes += unknown.changes
        if not unknown.offsets:
            continue
        changes.append(note(f"{target}: {missing.store} {_NOT_HERE}"))
        if inside:
            changes += _carrier(layout, target, missing, unknown.offsets)
        else:
            lines |= unknown.offsets
    return _Lines(lines, tuple(changes))


def refuse_unknown_kinds(layout: RehomeLayout) -> None:
    """Raise Refused for new stores about which no source states whether they are in memory or have segments.

    Only a release that keeps offsets in its databases needs that, and at-least-once wipes nothing. For stores of half
    tasks every host needs it: a store in memory makes no half task, and a restored store must have a kind.
    """
    options = layout.snapshot.options
    unspecified = [
        missing
        for stores in layout.rehoming.missing.values()
        for missing in stores
        if options.store_spec(missing.store) is None
    ]
    halves = sorted({missing.store for missing in unspecified if missing.half_of and not missing.has_database})
    if halves:
        raise _kind_unknown(
            layout,
            "kstate does not know the kinds of these stores, because they are on other hosts",
            halves,
            hint=(
                f"specify the kinds in a kstate.toml and pass this file with {option.SPEC}. To print it, run `ls` "
                f"with {option.SPEC} on the hosts that have these stores"
            ),
        )
    new = sorted({missing.store for missing in unspecified if not missing.existed})
    if new and layout.snapshot.inside and not options.at_least_once:
        raise _kind_unknown(
            layout,
            ("kstate does not know the kinds of these new stores. Under exactly-once, Streams would wipe their tasks"),
            new,
            hint=(
                f"specify the kinds in a kstate.toml and pass this file with {option.SPEC}. If a store was "
                f"previously in memory, pass the old topology: {option.FROM} OLD.txt. If the application runs with "
                f"at-least-once, pass {option.GUARANTEE} at_least_once, because Streams then wipes nothing"
            ),
        )


def _kind_unknown(layout: RehomeLayout, message: str, stores: list[str], *, hint: str) -> Refused:
    return Refused(
        message,
        details=first_lines(stores),
        where=str(layout.snapshot.app.path),
        code=WhyRefused.KIND_UNKNOWN,
        hint=f"{hint}. Correct the kinds in these lines, and remove each #:",
        hint_details=[
            *(["format = 1"] if layout.snapshot.options.spec is None else []),
            *(line for name in stores[:_MOST] for line in table_lines(name, '# kind = "timestamped-key-value"')),
        ],
    )


def _assumed_new(layout: RehomeLayout, target: str, missing: MissingStore) -> Iterator[Change]:
    if not missing.existed and layout.snapshot.options.old is None:
        yield warning(
            f"{target}: no task on this host has {missing.store}, so kstate treats it as a new store. If another "
            "host has it, first move its task here"
        )


def _unknown_offsets(layout: RehomeLayout, target: str, missing: MissingStore) -> _Lines:
    """Return -4 for the changelog of a store; nothing if the store has no changelog, or is in memory."""
    snapshot, store = layout.snapshot, missing.store
    partition = TaskId.parse(target).partition or 0
    same = snapshot.elsewhere(target, store)
    if same:
        return _unknown_of({tp.topic for state in same for tp in state.offsets}, partition)
    if _needs_no_offset(layout, missing):
        return _Lines({})
    spec = snapshot.options.store_spec(store)
    if spec is not None and spec.changelog is not None:
        return _unknown_of([spec.changelog], partition)
    if missing.existed:
        # The store existed without a directory and without an offset, so it is in memory.
        return _Lines({})
    return _unknown_of_new(layout, target, missing)


def _needs_no_offset(layout: RehomeLayout, missing: MissingStore) -> bool:
    """Return True for a store in memory or without a changelog, and if no kind is needed (at-least-once)."""
    spec = layout.snapshot.options.store_spec(missing.store)
    if spec is None:
        # A release that keeps offsets in stores refuses unknown kinds earlier, except with at-least-once.
        return layout.snapshot.inside
    return spec.kind == IN_MEMORY or spec.logged is False


def _unknown_of_new(layout: RehomeLayout, target: str, missing: MissingStore) -> _Lines:
    """Return -4 for the changelog of a new store: the source topic of a table, or the usual name."""
    snapshot, store = layout.snapshot, missing.store
    spec = snapshot.options.store_spec(store)
    # A table is no windowed store, even if it reads its topic directly.
    windowed = spec is not None and is_segmented(spec.kind)
    topic, changes = (None, ()) if windowed else _source_topic(layout, target, missing)
    if topic is None:
        source = min(placement.source for placement in layout.rehoming.into(target))
        topic = usual_changelog(snapshot.app.app_id, snapshot.tasks[source].task, store).topic
    return _Lines(_unknown_of([topic], TaskId.parse(target).partition or 0).offsets, changes)


def _unknown_of(topics: set[str] | list[str], partition: int) -> _Lines:
    return _Lines({TopicPartition(topic, partition): OFFSET_UNKNOWN for topic in topics})


def _source_topic(layout: RehomeLayout, target: str, missing: MissingStore) -> tuple[str | None, tuple[Change, ...]]:
    """Return the source topic of a table if it is its changelog (``topology.optimization``), and warnings.

    No text of a topology states that, but the other tables of the application show it.
    """
    tasks = layout.snapshot.tasks.values()
    part = layout.snapshot.new_part(TaskId.parse(target))
    topics = part.read_directly(missing.store) if part is not None else ()
    if not topics:
        return None, ()
    from_source = {
        bool({tp.topic for tp in state.offsets} & set(sources))
        for resolved in tasks
        for state in resolved.stores
        if state.offsets and (sources := _read_directly(layout, resolved.task.id, state.store.name))
    }
    if from_source == {True} and len(topics) == 1:
        return topics[0], ()
    if from_source == {False} or layout.snapshot.options.at_least_once:
        return None, ()
    doubt = (
        f"{target}: kstate assumes that {missing.store} has a separate changelog. If Streams restores it from "
        f"{some(topics, _MOST)} (topology.optimization), specify that in kstate.toml ({option.SPEC}). Otherwise "
        "Streams wipes the task under exactly-once"
    )
    return None, (warning(doubt),)


def _read_directly(layout: RehomeLayout, task: TaskId, store: str) -> tuple[str, ...]:
    new = layout.snapshot.options.new
    part = new.text.of(store) if new is not None else None
    return part.read_directly(store) if part is not None and part.topology == task.topology else ()


def _carrier(layout: RehomeLayout, target: str, missing: MissingStore, unknown: Offsets) -> Iterator[Change]:
    """Yield the step that records -4 for a store that a task does not have: an empty database, or a file."""
    snapshot, store, keeping = layout.snapshot, missing.store, Keeping(target)
    here = snapshot.store(target, store) if missing.stray else None
    if here is not None:
        yield OmitTree(snapshot.relative(here.store.path), f"{LeaveReason.EMPTY}, from the beginning")
    same = snapshot.elsewhere(target, store)
    spec = snapshot.options.store_spec(store)
    kind = spec.kind if spec is not None else None
    if (same and same[0].store.is_grace_buffer) or (kind is not None and in_a_file(kind)):
        yield keeping.lines_of(store, unknown)
        return
    yield keeping.carrier(store, closed(unknown), segmented=_has_segments(same, here, kind))


def _has_segments(same: list[StoreOffsets], here: StoreOffsets | None, kind: str | None) -> bool:
    """Return True if a store has segments: as in other tasks, as in the stray database here, or by its kind."""
    if same:
        return same[0].store.segmented
    return here.store.segmented if here is not None else is_segmented(kind)
