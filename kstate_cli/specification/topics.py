"""Which topic restores a store, as far as the offsets in the directory tell.

A database with the column family ``offsets`` and a ``.checkpoint_<store>`` name the topics of their own store; of those
in ``.checkpoint`` :mod:`kstate_cli.statedir.changelogs` says whose they are. What it does not say for certain is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kstate_cli.formats.topic_partition import changelog_topic, legal_topic, prefix_of_changelog
from kstate_cli.specification.draft import Question
from kstate_cli.specification.model import SOURCE_TOPIC
from kstate_cli.statedir.changelogs import TopicOwners, own_topics, prefix_of
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of a store: ``name``, or a question about ``field`` (``changelog`` or ``logged``)."""

    name: str | None = None
    why: str = ""
    source: str | None = None
    """``topic`` when it is a source topic."""
    unlogged: bool = False
    field: str = "changelog"
    question: Question | None = None


def topic_of(app_id: str, name: str, places: Sequence[tuple[Task, Store]], owners: Mapping[str, TopicOwners]) -> Topic:
    """The topic of the store ``name``, which lies in ``places``: all tasks that have it.

    ``owners`` says by the name of each task whose the topics of its ``.checkpoint`` are.
    """
    exact = _legal(topic for task, store in places for topic in own_topics(task, store))
    is_global = places[0][0].is_global
    if exact:
        return _one(app_id, name, places, exact, "the offsets in the store")
    in_tasks = [owners[task.name] for task, _ in places]
    lines = _legal(topic for one in in_tasks for topic, owner in one.changelogs.items() if owner == name)
    if lines:
        return _one(app_id, name, places, lines, CHECKPOINT)
    claimed = _legal(topic for one in in_tasks for topic in _claimed(one, name))
    if claimed:
        why = "the topics in .checkpoint and the store's Position"
        if len(claimed) == 1 and all(_sole_claimant(one, name, claimed) for one in in_tasks):
            return Topic(next(iter(claimed)), why, None if is_global else SOURCE_TOPIC)
        said = "several topics in .checkpoint may be its own, or it has none"
        return Topic(question=Question(said, tuple(sorted(claimed))))
    if is_global:
        return Topic(question=Question("no offset tells the topic that it is read from"))
    if all(_listed(task, store) for task, store in places):
        return Topic(unlogged=True, why="no line in the .checkpoint of its tasks, which has one for each logged store")
    if all(_closed(store) for _, store in places):
        return Topic(unlogged=True, why="no offset anywhere of a cleanly closed store")
    said = "no offset anywhere, and the store was not closed cleanly or is empty"
    return Topic(field="logged", question=Question(said, (True, False)))


def _one(app_id: str, name: str, places: Sequence[tuple[Task, Store]], topics: frozenset[str], where: str) -> Topic:
    if len(topics) > 1:
        return Topic(question=Question(f"{where} name several topics", tuple(sorted(topics))))
    topic = next(iter(topics))
    if places[0][0].is_global:
        return Topic(topic, where)
    if topic in {changelog_topic(prefix_of(app_id, task), name) for task, _ in places}:
        return Topic(topic, where)
    built_from = any(topic in store.position.topics for _, store in places)
    if prefix_of_changelog(topic, name) is not None and not built_from:
        # Another prefix (an internal setting), or a source topic that is itself somebody's changelog.
        said = f'{where}: a changelog with another prefix; add source = "topic" if it is a source topic'
        return Topic(question=Question(said, (topic,)))
    return Topic(topic, where, SOURCE_TOPIC)


def absent_stores(owners: TopicOwners) -> dict[str, str]:
    """Store -> changelog of the offsets in a task that belong to no directory: in memory, custom, or gone."""
    return {name: topic for topic, name in owners.absent.items()}


def _claimed(owners: TopicOwners, name: str) -> Iterable[str]:
    """Source topics that a store may be built from.

    Unlike an offset, which is better given to the store of which a Position tells, a specification asks for the others
    as well: a Position is empty again where only one store of a task was restored.
    """
    return (topic for topic, source in owners.sources.items() if name in (*source.owners, *source.possible))


def _sole_claimant(owners: TopicOwners, name: str, topics: frozenset[str]) -> bool:
    """True when no other store of the task may be built from one of the topics."""
    sources = (owners.sources[topic] for topic in topics & owners.sources.keys())
    return all({*source.owners, *source.possible} <= {name} for source in sources)


def _listed(task: Task, store: Store) -> bool:
    """True when a logged store would have a line in ``.checkpoint``: -4 where nothing else is known.

    ``ProcessorStateManager.checkpoint`` of releases up to 4.2 writes one for every logged, persistent store that is
    open; so it must have been written after the store was opened (RocksDB replaces CURRENT then).
    """
    if task.has_offsets_family or task.checkpoint is None or task.checkpoint.content is None:
        return False
    return task.checkpoint.mtime_ns >= max((d.opened_ns for d in store.databases), default=0)


def _closed(store: Store) -> bool:
    """True when a logged store would have an offset in its databases: 4.3 wrote it, and closed it."""
    return not store.empty and store.status == "closed"


def _legal(topics: Iterable[str]) -> frozenset[str]:
    return frozenset(topic for topic in topics if legal_topic(topic))
