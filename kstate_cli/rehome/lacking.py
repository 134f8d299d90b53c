"""What a task is to have and the directory lacks: under exactly-once Streams wipes a task for one such store.

So it gets -4, "read from the beginning": up to 4.2 as a line of ``.checkpoint``, from 4.3 on in an empty database,
for which one must know whether the store has segments.
"""

from __future__ import annotations

from kstate_cli.change.plan import OmitTree
from kstate_cli.errors import Refused
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import is_segmented
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.keeping import Keeping, closed, in_a_file
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.rehome.draft import RehomeDraft
from kstate_cli.rehome.model import Because, Lacking, WhyRefused
from kstate_cli.specification.completion import table_of
from kstate_cli.specification.draft import StoreDraft
from kstate_cli.specification.homes import Home
from kstate_cli.specification.model import IN_MEMORY
from kstate_cli.texts import first_lines, some

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
