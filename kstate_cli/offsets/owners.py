"""The lines of ``.checkpoint``, given to the stores: the file names topics, and whose those are `changelogs` knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from kstate_cli.formats.topic_partition import TopicPartition, changelog_topic
from kstate_cli.statedir.changelogs import topic_owners, usual_prefix
from kstate_cli.statedir.model import Task


@dataclass(slots=True)
class Owners:
    """The lines of one file, given to stores."""

    stores: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Lines of stores that have a directory here."""
    absent: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """Lines whose changelog names a store without a directory: custom, in memory, or no longer there."""
    unknown: dict[TopicPartition, int] = field(default_factory=dict)
    """Lines that nothing here can belong to."""
    notes: list[str] = field(default_factory=list)


def give_lines(app_id: str, task: Task) -> Owners:
    """Gives each line of ``.checkpoint`` to the store whose changelog it is (:func:`topic_owners`).

    A source topic that more than one store may be built from goes to each of them, since Streams asks a store for its
    own topic only; to a store of which nobody knows what it was built from it goes where no other one is told.
    """
    lines = task.checkpoint.entries if task.checkpoint else {}
    if task.is_global:
        return _give_global(task, lines)
    owners, of_topics = Owners(), topic_owners(app_id, task)
    sources: dict[TopicPartition, int] = {}
    for tp, offset in lines.items():
        if tp.partition != task.partition:
            owners.unknown[tp] = offset
        elif (name := of_topics.changelogs.get(tp.topic)) is not None:
            owners.stores.setdefault(name, {})[tp] = offset
        elif (name := of_topics.absent.get(tp.topic)) is not None:
            owners.absent.setdefault(name, {})[tp] = offset
        else:
            sources[tp] = offset
    for tp, offset in sources.items():
        source = of_topics.sources[tp.topic]
        candidates = source.owners or source.possible
        if not candidates:
            owners.unknown[tp] = offset
        for name in candidates:
            owners.stores.setdefault(name, {})[tp] = offset
        if len(candidates) > 1:
            owners.notes.append(
                f"{task.name}: the offset of {tp} goes to {', '.join(candidates)}: any of them may be built from that "
                "topic"
            )
    return owners


def _give_global(task: Task, lines: dict[TopicPartition, int]) -> Owners:
    """Global stores are built from source topics, whose names say nothing: every store gets every line."""
    owners = Owners()
    if not task.stores:
        owners.unknown.update(lines)
    for store in task.stores:
        if lines:
            owners.stores[store.name] = dict(lines)
    if len(task.stores) > 1 and lines:
        owners.notes.append("global: each store gets the offsets of all topics: Streams asks each for its own only")
    return owners


def usual_changelog(app_id: str, task: Task, store: str) -> TopicPartition:
    """The partition that a store is restored from where it has a changelog, and that has its usual name."""
    return TopicPartition(changelog_topic(usual_prefix(app_id, task), store), task.partition or 0)
