"""Which topic restores a store, as far as the offsets in the directory tell.

A database with the column family ``offsets`` and a ``.checkpoint_<store>`` name the topics of their own store. A
``.checkpoint`` names topics without stores: a changelog says in its name whose it is, a source topic
(``topology.optimization``, read-only stores, global stores) does not; then the store's Position tells what it was built
from, or there is only one store that it can belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kstate_cli.formats.topic_partition import changelog_topic, legal_topic
from kstate_cli.spec.draft import Question
from kstate_cli.spec.model import SOURCE_TOPIC
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT

_SUFFIX = "-changelog"


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


def prefix_of(app_id: str, task: Task) -> str:
    """What the changelogs of a task begin with (``ProcessorContextUtils.topicNamePrefix``)."""
    return f"{app_id}-{task.topology}" if task.topology else app_id


def topic_of(app_id: str, name: str, places: Sequence[tuple[Task, Store]]) -> Topic:
    """The topic of the store ``name``, which lies in ``places``: all tasks that have it."""
    exact = _legal(topic for task, store in places for topic in _own_topics(task, store))
    is_global = places[0][0].is_global
    if exact:
        return _one(app_id, name, places, exact, "the offsets in the store")
    lines = _legal(topic for task, store in places for topic in _line_topics(app_id, task, store))
    if lines:
        return _one(app_id, name, places, lines, CHECKPOINT)
    claimed = _legal(topic for task, store in places for topic in _source_topics(app_id, task, store))
    if claimed:
        why = "the topics in .checkpoint and the store's Position"
        sole = all(_sole_claimant(app_id, task, store, claimed) for task, store in places)
        if len(claimed) == 1 and sole:
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
    if topic.endswith(f"-{name}{_SUFFIX}") and not built_from:
        # Another prefix (an internal setting), or a source topic that is itself somebody's changelog.
        said = f'{where}: a changelog with another prefix; add source = "topic" if it is a source topic'
        return Topic(question=Question(said, (topic,)))
    return Topic(topic, where, SOURCE_TOPIC)


def absent_stores(app_id: str, task: Task) -> dict[str, str]:
    """Store -> changelog of the offsets in a task that belong to no directory: in memory, custom, or gone."""
    present = {store.name for store in task.stores}
    lines = task.checkpoint.entries if task.checkpoint else {}
    topics = {}
    for tp in lines:
        name = _owner(tp.topic, prefix_of(app_id, task))
        if tp.partition == task.partition and name is not None and name not in present and legal_topic(name):
            topics[name] = tp.topic
    return topics


def _own_topics(task: Task, store: Store) -> Iterable[str]:
    readings = [d.offsets.offsets for d in store.databases if d.offsets is not None]
    if store.store_file is not None:
        readings.append(store.store_file.entries)
    return (tp.topic for reading in readings for tp in reading if task.partition in (None, tp.partition))


def _line_topics(app_id: str, task: Task, store: Store) -> Iterable[str]:
    """Topics in ``.checkpoint`` that have the store's name: its changelog, if need be one with another prefix."""
    topics = [] if task.is_global else _topics(task)
    own = changelog_topic(prefix_of(app_id, task), store.name)
    if own in topics:
        return [own]
    named = [topic for topic in topics if topic.endswith(f"-{store.name}{_SUFFIX}")]
    # "…-a-b-changelog" is that of the store "a-b" where there is one, not of "b".
    longer = [other.name for other in task.stores if other.name.endswith(f"-{store.name}")]
    return [topic for topic in named if not any(topic.endswith(f"-{other}{_SUFFIX}") for other in longer)]


def _source_topics(app_id: str, task: Task, store: Store) -> list[str]:
    """Topics in ``.checkpoint`` that belong to no store by name, and that this one may be built from."""
    taken = {topic for other in task.stores for topic in _line_topics(app_id, task, other)}
    sources = [
        topic
        for topic in _topics(task)
        if topic not in taken and (task.is_global or _owner(topic, prefix_of(app_id, task)) is None)
    ]
    by_position = [topic for topic in sources if topic in store.position.topics]
    if by_position or store.position.topics:
        return by_position
    return sources


def _sole_claimant(app_id: str, task: Task, store: Store, topics: frozenset[str]) -> bool:
    """True when no other store of the task may own one of the topics."""
    return not any(
        topics & set(_source_topics(app_id, task, other))
        for other in task.stores
        if other.name != store.name and not set(_own_topics(task, other)) and not set(_line_topics(app_id, task, other))
    )


def _topics(task: Task) -> list[str]:
    lines = task.checkpoint.entries if task.checkpoint else {}
    return sorted({tp.topic for tp in lines if task.partition in (None, tp.partition)})


def _owner(topic: str, prefix: str) -> str | None:
    """The store that a changelog under this prefix belongs to."""
    if topic.startswith(f"{prefix}-") and topic.endswith(_SUFFIX):
        return topic[len(prefix) + 1 : -len(_SUFFIX)] or None
    return None


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
