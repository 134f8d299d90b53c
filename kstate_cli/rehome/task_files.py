"""The files of one task as its new stores need them: lines of ``.checkpoint``, files of one store, Positions."""

from __future__ import annotations

from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.position import Position
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition, typed_offsets
from kstate_cli.offsets.keeping import Keeping
from kstate_cli.offsets.left_behind import left_behind
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.rehome.draft import RehomeDraft
from kstate_cli.rehome.lacking import lines_of_lacking
from kstate_cli.rehome.model import Placed
from kstate_cli.specification.homes import Home
from kstate_cli.statedir.names import CHECKPOINT


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
