"""The files of one task as its new stores need them: lines of ``.checkpoint``, files of one store, Positions."""

from __future__ import annotations

from kstate_cli.change.plan import OmitTree
from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import is_segmented
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition, typed_offsets
from kstate_cli.offsets.keeping import Keeping, closed, in_a_file
from kstate_cli.offsets.left_behind import left_behind
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.rehome.model import Because, Lacking, Placed, WhyRefused
from kstate_cli.rehome.snapshot import RehomeDraft
from kstate_cli.specification.completion import table_of
from kstate_cli.specification.draft import StoreDraft
from kstate_cli.specification.homes import Home
from kstate_cli.specification.model import IN_MEMORY
from kstate_cli.statedir.names import CHECKPOINT
from kstate_cli.texts import first_lines, some


def write_files(draft: RehomeDraft, target: str) -> None:
    """The steps for one task. Raises Refused for offsets that Streams does not write."""
    try:
        _write_files(draft, target)
    except ValueError as error:
        raise Refused(
            f"{target}: its offsets cannot be written to a file: {error}",
            where=str(draft.app.path),
            hint="no release could read them: wipe the store, and it is restored from its changelog",
        ) from None


def _write_files(draft: RehomeDraft, target: str) -> None:
    keeping, here = Keeping(target), draft.tasks.get(target)
    placed = draft.rehoming.into(target)
    _files_that_leave(draft, target, {one.store for one in placed})
    lines: dict[TopicPartition, int] = {}
    for one in placed:
        of_one = dict(draft.lines_of(one))
        if (one.source, one.store) in draft.left_out:
            of_one = _left_out(draft, keeping, one, of_one)
        elif one.moves:
            _files_that_come(draft, keeping, one)
        for tp, offset in of_one.items():
            lines[tp] = min(offset, lines.get(tp, offset))
    lines |= {tp: offset for tp, offset in _of_nobody(draft, target, placed).items() if tp not in lines}
    lacking = lines_of_lacking(draft, target, sorted({one.source for one in placed}))
    lines |= {tp: offset for tp, offset in lacking.items() if tp not in lines}
    before = here.task.checkpoint.entries if here is not None and here.task.checkpoint is not None else None
    if before is not None and not lines and before:
        draft.steps.append(keeping.without_lines("no offset of what is in it now"))
    elif lines and lines != before:
        draft.steps.append(keeping.lines(lines))


def _left_out(
    draft: RehomeDraft, keeping: Keeping, one: Placed, lines: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """-4 of a store that was not left clean, where it is to be: it taints no other store then."""
    resolved, known = draft.tasks[one.source], draft.store(one)
    assert known is not None
    offsets = known.offsets
    if not offsets and not draft.inside and resolved.task.checkpoint is None:
        # Killed under exactly-once: whether it had a line nobody knows.
        topic = usual_changelog(draft.app.app_id, resolved.task, one.store)
        offsets = {topic: OFFSET_UNKNOWN}
    offsets = offsets or draft.guesses.offsets(resolved, known)
    unknown = dict.fromkeys(offsets, OFFSET_UNKNOWN)
    draft.steps += left_behind(keeping, known.store, unknown, inside=draft.inside)
    if known.store.position_file is not None and not one.moves:
        draft.steps.append(keeping.without_position(one.store, "its store is left out"))
    return unknown if lines or not draft.inside else {}


def _files_that_come(draft: RehomeDraft, keeping: Keeping, one: Placed) -> None:
    task = draft.tasks[one.source].task
    if (file := task.store_files.get(one.store)) is not None:
        draft.steps.append(keeping.lines_of(one.store, file.entries))
    position = task.position_files.get(one.store)
    if position is not None and position.content is not None:
        known = Position.from_checkpoint(position.content)
        text = f"position: {', '.join(typed_offsets(known.as_map()))}"
        draft.steps.append(keeping.position(one.store, known, text))


def _files_that_leave(draft: RehomeDraft, task: str, stay: set[str]) -> None:
    """Files of one store that has gone; where one of the same name comes, its files are written over them."""
    if task not in draft.tasks:
        return
    keeping, held = Keeping(task), draft.tasks[task].task
    coming = {one.store: one for one in draft.rehoming.into(task) if one.moves}
    known = {one.store for one in draft.rehoming.of(task)}
    for name in sorted({*held.store_files, *held.position_files} & known):
        if name in stay and name not in coming:
            continue
        come = coming.get(name)
        files = draft.tasks[come.source].task if come is not None else None
        if name in held.store_files and (files is None or name not in files.store_files):
            draft.steps.append(keeping.without_lines_of(name, "its store is elsewhere"))
        if name in held.position_files and (files is None or name not in files.position_files):
            draft.steps.append(keeping.without_position(name, "its store is elsewhere"))


def _of_nobody(draft: RehomeDraft, target: str, placed: list[Placed]) -> dict[TopicPartition, int]:
    """Lines that no store here has: they stay where they are, or go to the sub-topology that reads their topic."""
    task, new = TaskId.parse(target), draft.options.new
    part = new.part(Home.of(task)) if new is not None else None
    lines: dict[TopicPartition, int] = {}
    for source in sorted({one.source for one in placed} | ({target} & draft.tasks.keys())):
        whole = {one.target for one in draft.rehoming.of(source) if one.target is not None} <= {target}
        for tp, offset in draft.owners(source).unknown.items():
            if source == target and whole:
                lines[tp] = offset
            elif tp.partition == task.partition and (whole or (part is not None and tp.topic in part.topics)):
                lines[tp] = min(offset, lines.get(tp, offset))
            else:
                draft.notes.append(
                    f"{source}/{CHECKPOINT}: nothing here keeps the offset {offset} of {tp}: it stays out"
                )
    return lines


_NAMED = 5


def lines_of_lacking(draft: RehomeDraft, target: str, sources: list[str]) -> dict[TopicPartition, int]:
    """The lines of a task for what it lacks; of a release that keeps offsets in its stores the steps are added."""
    lines: dict[TopicPartition, int] = {}
    for one in draft.rehoming.lacking.get(target, ()):
        if (target, one.store) in draft.completion.offsets:
            # From 4.3 on they are written into the database that is made.
            lines |= {} if draft.inside else draft.completion.offsets[target, one.store]
            continue
        _tell(draft, target, one)
        unknown = _unknown(draft, target, one, sources)
        if not unknown:
            continue
        if not draft.inside:
            lines |= unknown
            draft.notes.append(f"{target}: {one.store} is not here: -4, so that it alone is restored")
            continue
        _leave_carrier(draft, target, one, unknown)
    return lines


def refuse_unknown_kinds(draft: RehomeDraft) -> None:
    """Raises Refused for new stores of which nobody says whether they are in memory, or have segments.

    Only a release that keeps offsets in its stores must know; at-least-once wipes nothing. Of stores that half a task
    lacks every host must know it: what is in memory is no half, and what is restored has a kind.
    """
    _refuse_unknown_halves(draft)
    if not draft.inside or draft.options.at_least_once:
        return
    unknown = sorted(
        {
            one.store
            for lacking in draft.rehoming.lacking.values()
            for one in lacking
            if not one.told and _said(draft, one.store) is None
        }
    )
    if unknown:
        raise Refused(
            "nothing tells the kinds of these new stores: under exactly-once the next start would wipe their tasks",
            details=first_lines(unknown),
            where=str(draft.app.path),
            code=WhyRefused.KIND_UNKNOWN,
            hint="say them in a kstate.toml, and name it with --spec; a store that ran here before, in memory, is in "
            "the text of then: --from OLD.txt; an application that runs with at-least-once wipes nothing: "
            "--guarantee at_least_once",
            hint_details=_tables(unknown),
        )


def _refuse_unknown_halves(draft: RehomeDraft) -> None:
    unknown = sorted(
        {
            one.store
            for lacking in draft.rehoming.lacking.values()
            for one in lacking
            if one.half is not None and not one.seen and _said(draft, one.store) is None
        }
    )
    if unknown:
        raise Refused(
            "nothing tells the kinds of these stores, which other hosts have",
            details=first_lines(unknown),
            where=str(draft.app.path),
            code=WhyRefused.KIND_UNKNOWN,
            hint="say them in a kstate.toml, and name it with --spec: where they are, `ls` with --spec prints it",
            hint_details=_tables(unknown),
        )


def _tables(stores: list[str]) -> list[str]:
    """How a kstate.toml says their kinds."""
    return [f'{table_of(name)} kind = "timestamped-key-value", or as it is' for name in stores[:_NAMED]]


def _said(draft: RehomeDraft, store: str) -> StoreDraft | None:
    said = draft.options.spec.store(store) if draft.options.spec is not None else None
    return said if said is not None and said.kind is not None else None


def _tell(draft: RehomeDraft, target: str, one: Lacking) -> None:
    if not one.told and draft.options.old is None:
        draft.warnings.append(
            f"{target}: {one.store} is in no task here, and taken to be new: if it is on another host, bring its task "
            "here first"
        )


def _unknown(draft: RehomeDraft, target: str, one: Lacking, sources: list[str]) -> dict[TopicPartition, int]:
    """Its changelog's partition with -4; nothing where it has none, or is in memory."""
    partition = TaskId.parse(target).partition or 0
    same = draft.elsewhere(target, one.store)
    if same:
        return {TopicPartition(tp.topic, partition): OFFSET_UNKNOWN for other in same for tp in other.offsets}
    said = _said(draft, one.store)
    if said is not None and (said.kind == IN_MEMORY or said.logged is False):
        return {}
    if said is not None and said.changelog is not None:
        return {TopicPartition(said.changelog, partition): OFFSET_UNKNOWN}
    if one.told or (draft.inside and said is None):
        return {}  # it ran without a directory and an offset: in memory. Or at-least-once, which needs none.
    # A table is no windowed store, whatever stands right behind its topic.
    topic = (
        None
        if said is not None and said.kind is not None and is_segmented(said.kind)
        else _source_topic(draft, target, one)
    )
    if topic is None:
        topic = usual_changelog(draft.app.app_id, draft.tasks[sources[0]].task, one.store).topic
    return {TopicPartition(topic, partition): OFFSET_UNKNOWN}


def _source_topic(draft: RehomeDraft, target: str, one: Lacking) -> str | None:
    """The topic itself of a table right behind its topic, where that is the changelog (``topology.optimization``).

    No text tells; other tables of the application do.
    """
    new = draft.options.new
    part = new.part(Home.of(TaskId.parse(target))) if new is not None else None
    topics = part.read_directly(one.store) if part is not None else ()
    if not topics:
        return None
    told = {
        bool({tp.topic for tp in other.offsets} & set(its))
        for resolved in draft.tasks.values()
        for other in resolved.stores
        if other.offsets and (its := _read_directly(draft, resolved.task.id, other.store.name))
    }
    if told == {True} and len(topics) == 1:
        return topics[0]
    if told != {False} and not draft.options.at_least_once:
        draft.warnings.append(
            f"{target}: {one.store} is taken to have a changelog of its own: if it is restored from "
            f"{some(topics, _NAMED)} (topology.optimization), say so in a kstate.toml (--spec), or exactly-once "
            "Streams wipes the task"
        )
    return None


def _read_directly(draft: RehomeDraft, task: TaskId, store: str) -> tuple[str, ...]:
    described = draft.options.new
    part = described.text.of(store) if described is not None else None
    return part.read_directly(store) if part is not None and part.topology == task.topology else ()


def _leave_carrier(draft: RehomeDraft, target: str, one: Lacking, unknown: dict[TopicPartition, int]) -> None:
    keeping, same, said = Keeping(target), draft.elsewhere(target, one.store), _said(draft, one.store)
    draft.notes.append(f"{target}: {one.store} is not here: -4, so that it alone is restored")
    here = draft.store_in(target, one.store) if one.stray else None
    if here is not None:
        path = str(here.store.path.relative_to(draft.app.path))
        draft.steps.append(OmitTree(path, f"{Because.EMPTY}, from the beginning"))
    kind = said.kind if said is not None else None
    if (same and same[0].store.is_grace_buffer) or (kind is not None and in_a_file(kind)):
        draft.steps.append(keeping.lines_of(one.store, unknown))
        return
    like = same[0].store if same else here.store if here is not None else None
    segmented = like.segmented if like is not None else is_segmented(kind)
    draft.steps.append(keeping.carrier(one.store, closed(unknown), segmented=segmented))
