"""The steps of one task: its stores, and the files beside them that say where they are."""

from __future__ import annotations

from collections.abc import Iterator

from kstate_cli.change.build import BuildStore
from kstate_cli.change.plan import Step
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.keeping import Keeping, in_a_file
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.releases import unproven_too
from kstate_cli.restore.obstacles import foreign
from kstate_cli.restore.plan import RestoreDraft, StoreWork
from kstate_cli.texts import command


def task_steps(draft: RestoreDraft, task: str, work: list[StoreWork], resolved: TaskOffsets | None) -> None:
    """Adds the steps of one task to the plan."""
    for one in work:
        verb = "rebuild" if one.rebuild else "catch up"
        why = one.parts[0].verdict.why
        draft.steps.append(
            BuildStore(
                one.path,
                f"{verb} ({one.spec.kind}): up to {offsets_text(one.offsets)}; {why}",
                replaces=one.rebuild,
                size=one.bytes,
            )
        )
    names = {one.spec.name for one in work}
    others = [s for s in (resolved.stores if resolved else []) if s.store.name not in names]
    for other in others:
        # What vouches for them from now on is the directory of that release.
        in_the_way = foreign(draft, other.store) if other.store.databases else None
        if in_the_way is not None:
            draft.refused.append(f"{task}/{other.store.name}: {in_the_way}")
    if draft.into_family:
        _files_of_family(draft, task, work, resolved, others)
    else:
        draft.steps += _checkpoint(task, work, resolved, others)


def _files_of_family(
    draft: RestoreDraft, task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> None:
    keeping = Keeping(task)
    if resolved is not None and resolved.task.checkpoint is not None:
        # At its next start the release would put the lines of that file over the offsets in the stores.
        # A store that was wiped has a line there and no directory.
        rebuilt, release = {one.spec.name for one in work}, draft.options.release.name
        if any(one.offsets for one in others) or resolved.absent.keys() - rebuilt:
            draft.refused.append(
                f"{task}: it has a .checkpoint, as releases up to 4.2 leave it; migrate it first: "
                + command("migrate", draft.app, "--to", release, *unproven_too(release))
            )
        draft.steps.append(keeping.without_lines("its stores are restored: their offsets are in them"))
    for one in work:
        if in_a_file(one.spec.kind):
            draft.steps.append(keeping.lines_of(one.spec.name, one.offsets))
        draft.steps += _old_position(keeping, one, resolved)


def _checkpoint(
    task: str, work: list[StoreWork], resolved: TaskOffsets | None, others: list[StoreOffsets]
) -> Iterator[Step]:
    """``.checkpoint`` names every logged persistent store of the task, or Streams wipes it under exactly-once."""
    lines: dict[TopicPartition, int] = {}
    for other in others:
        lines |= other.offsets
    # The file of the global stores does not say whose a line is: those of a rebuilt store are its own.
    rebuilt = {one.spec.changelog for one in work if one.rebuild}
    lines = {tp: offset for tp, offset in lines.items() if tp.topic not in rebuilt}
    for absent in (resolved.absent if resolved else {}).values():
        lines |= absent
    for one in work:
        lines |= one.offsets
    keeping = Keeping(task)
    yield keeping.lines(lines)
    for one in work:
        yield from _old_position(keeping, one, resolved)


def _old_position(keeping: Keeping, work: StoreWork, resolved: TaskOffsets | None) -> Iterator[Step]:
    """The Position of rows that are replaced goes."""
    if resolved is not None and work.spec.name in resolved.task.position_files and work.rebuild:
        yield keeping.without_position(work.spec.name, "the store is rebuilt")
