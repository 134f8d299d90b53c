"""The owners of a task's topics: the rule of changelog names, applied to the stores of the task.

``.checkpoint`` has offsets of topics, but does not state to which store a topic belongs. The name of a changelog
contains its store. A source topic that serves as the changelog of a store (``topology.optimization``, read-only stores,
global stores) does not name the store. It may even look like a changelog, since an application can read the changelog
of another one. The evidence, the most certain first:

1. ``<application.id>[-<topology>]-<store>-changelog`` of a store that the task has: the name is exact.
2. A store that names the topic itself, in its databases or in ``.checkpoint_<store>``.
3. A Position that names it: the topic is an input, and a changelog is none.
4. The same name as in 1 of a store without a directory: custom, in memory, or removed.
5. Another prefix, if no store has a changelog with that of the application. One setting holds for all stores, so the
   prefix that fits most of them wins. Only then any prefix that makes the topic the changelog of a store of the task.
6. Any store that has no topic yet, and whose inputs are unknown.

``specification.topics`` reads the specification where this is not certain; ``check.snapshot.Snapshot.changelog`` adds
the evidence of logs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kstate_cli.formats.topic_partition import (
    changelog_prefix,
    prefix_of_changelog,
    readings_of_changelog,
    store_of_changelog,
)
from kstate_cli.statedir.model import Store, Task

_NO_VOTES = (0, 0)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """The stores whose changelog a topic may be although its name does not show it; in the order of the task."""

    owners: tuple[str, ...] = ()
    """Stores that name the topic in their offsets (:func:`own_topics`) or in their Position."""
    possible: tuple[str, ...] = ()
    """Stores that have no topic yet, and whose inputs are unknown: they have no Position, or an unreadable one."""


@dataclass(frozen=True, slots=True)
class TopicOwners:
    """The stores to which the topics of a task belong. Each topic is in one of the three mappings."""

    changelogs: Mapping[str, str] = field(default_factory=dict)
    """Topic -> the store of the task whose changelog it is by its name."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Topic -> the store whose changelog it is by its name; the task has no directory of that store."""
    sources: Mapping[str, SourceTopic] = field(default_factory=dict)


def prefix_of(app_id: str, task: Task) -> str:
    """Return the prefix that the changelogs of a task have, unless an internal setting of Streams changes it."""
    return changelog_prefix(app_id, task.topology)


def own_topics(task: Task, store: Store) -> frozenset[str]:
    """Return the topics that a store names itself: in the column family ``offsets`` and in ``.checkpoint_<store>``."""
    readings = [database.offsets.offsets for database in store.databases if database.offsets is not None]
    if store.store_file is not None:
        readings.append(store.store_file.entries)
    return frozenset(tp.topic for reading in readings for tp in reading if task.partition in (None, tp.partition))


def line_topics(task: Task) -> list[str]:
    """Return the topics of ``.checkpoint`` for the partition of the task, sorted; ``global`` has all partitions."""
    lines = task.checkpoint.entries if task.checkpoint else {}
    return sorted({tp.topic for tp in lines if task.partition in (None, tp.partition)})


def usual_prefix(app_id: str, task: Task) -> str:
    """Return the prefix of a task's changelogs as its offsets show it, otherwise that of :func:`prefix_of`."""
    return _Matching(app_id, task, line_topics(task)).prefix


def topic_owners(app_id: str, task: Task) -> TopicOwners:
    """Return the owner of each topic of ``.checkpoint``. In the task ``global`` all topics are source topics."""
    matching = _Matching(app_id, task, line_topics(task))
    # Global stores are built from source topics, whose names follow no rule.
    if task.is_global:
        return matching.sources_only()
    return matching.owners()


class _Matching:
    """The assignment of one task's topics to its stores.

    A *reading* of a topic is a pair (prefix, store) for which ``<prefix>-<store>-changelog`` is the topic. A topic may
    have several: ``x-a-b-changelog`` reads as (``x``, ``a-b``) and as (``x-a``, ``b``).
    """

    def __init__(self, app_id: str, task: Task, topics: Collection[str]) -> None:
        self._stores = task.stores
        self._topics = topics
        self._app_prefix = prefix_of(app_id, task)
        self._names = {store.name for store in task.stores}
        by_name = {topic: store_of_changelog(topic, self._app_prefix) for topic in topics}
        self._by_name = {topic: name for topic, name in by_name.items() if name is not None}
        """Topic -> store, for the prefix that the id of the application gives."""
        self._own_topics = {store.name: own_topics(task, store) for store in task.stores}

    @property
    def prefix(self) -> str:
        """The prefix of the changelogs of this task."""
        if not self._likeliest:
            return self._app_prefix
        return self._likeliest[0]

    def sources_only(self) -> TopicOwners:
        """Return the topics of global stores. They are source topics and may have any name."""
        without = [store for store in self._stores if not self._own_topics[store.name]]
        return TopicOwners(sources={topic: self._source(topic, without) for topic in self._topics})

    def owners(self) -> TopicOwners:
        """Return the owners of the topics of a task with partitions."""
        changelogs = {topic: name for topic, name in self._by_name.items() if name in self._names}
        remaining = [topic for topic in self._topics if topic not in changelogs]
        # The certain rule has decided first. So another prefix can only take topics that belong to no store by their
        # name.
        changelogs |= self._by_another_prefix(remaining)
        without = [store for store in self._without_topic if store.name not in changelogs.values()]
        absent: dict[str, str] = {}
        sources: dict[str, SourceTopic] = {}
        for topic in remaining:
            if topic in changelogs:
                continue
            source = self._source(topic, without)
            name = self._absent(topic)
            # The store with this name has no directory, so only the name speaks for it. A store that names the topic is
            # better evidence.
            if name is not None and not source.owners:
                absent[topic] = name
            else:
                sources[topic] = source
        return TopicOwners(changelogs, absent, sources)

    @cached_property
    def _proven(self) -> bool:
        """Whether a store has a changelog with the application's own prefix: then no store has another prefix."""
        return any(name in self._names for name in self._by_name.values()) or any(
            prefix_of_changelog(topic, name) == self._app_prefix
            for name, own in self._own_topics.items()
            for topic in own
        )

    @cached_property
    def _without_topic(self) -> list[Store]:
        """The stores that neither name a topic themselves nor have a changelog with the application's prefix."""
        by_name = set(self._by_name.values())
        return [store for store in self._stores if store.name not in by_name and not self._own_topics[store.name]]

    @cached_property
    def _votes(self) -> dict[str, tuple[int, int]]:
        """Prefix other than the application's -> how many stores vote for it, and how many topics it explains.

        A store of the task votes for a prefix if a topic is its changelog with that prefix. A topic that a Position
        names is an input of the store, and is no evidence for a prefix.
        """
        others = set(self._topics) - self._by_name.keys()
        # All stores of an application have the same prefix, so each store that fits a prefix is evidence for it.
        readings = self._other_readings(others)
        if not readings:
            return {}
        inputs = {topic for topics in self._inputs.values() for topic in topics}
        voters: dict[str, set[str]] = {}
        for topic, prefix, name in readings:
            if topic not in inputs and prefix != self._app_prefix:
                voters.setdefault(prefix, set()).add(name)
        return {
            # The pair is compared: first the number of stores, then the number of topics.
            prefix: (len(names), sum(store_of_changelog(topic, prefix) is not None for topic in others - inputs))
            for prefix, names in voters.items()
        }

    def _other_readings(self, topics: Iterable[str]) -> list[tuple[str, str, str]]:
        """Return (topic, prefix, store) for each reading of a topic that names a store of the task.

        The topics are ``topics``, and for each store those that it names itself.
        """
        without = {store.name for store in self._without_topic}
        by_line = [
            (topic, prefix, name)
            for topic in topics
            # All readings of the topic count, such as ("x", "a-b") and ("x-a", "b").
            for prefix, name in readings_of_changelog(topic)
            if name in without
        ]
        by_store = [
            (topic, prefix, name)
            for name, own in self._own_topics.items()
            for topic in own
            if (prefix := prefix_of_changelog(topic, name)) is not None
        ]
        return by_line + by_store

    @cached_property
    def _inputs(self) -> dict[str, frozenset[str]]:
        """The topics that the Position of each store names."""
        return {store.name: frozenset(store.position.topics) for store in self._stores}

    @cached_property
    def _namers(self) -> dict[str, tuple[str, ...]]:
        """Topic -> the stores that name it themselves."""
        namers: dict[str, tuple[str, ...]] = {}
        for name, topics in self._own_topics.items():
            for topic in topics:
                namers[topic] = (*namers.get(topic, ()), name)
        return namers

    @cached_property
    def _likeliest(self) -> list[str]:
        """The prefixes other than the application's that fit most stores, the shortest first.

        A shorter prefix leaves a longer store name. Empty if the prefix of the application is proved.
        """
        if self._proven:
            return []
        most = max(self._votes.values(), default=_NO_VOTES)
        return sorted((other for other, votes in self._votes.items() if votes == most), key=lambda p: (len(p), p))

    def _by_another_prefix(self, topics: Iterable[str]) -> dict[str, str]:
        """Return topic -> store, for stores whose changelogs have another prefix than the application's.

        If several topics fit a store, those with the most likely prefix are returned.
        """
        without = {store.name for store in self._without_topic}
        likely: dict[str, dict[str, tuple[int, int]]] = {}
        for topic in topics:
            prefix, name = self._reading(topic)
            owners = self._source(topic, self._without_topic).owners
            # ``elsewhere``: the topic belongs to a store that names it, or has the application's prefix.
            # "app-a-b-changelog" is the changelog of a store "a-b" of the application "app", not of its store "b" with
            # the prefix "app-a".
            elsewhere = owners or self._by_name.keys() & {topic}
            if name in without and (name in owners or not elsewhere):
                likely.setdefault(name, {})[topic] = self._votes.get(prefix, _NO_VOTES)
        return {
            topic: name
            for name, votes in likely.items()
            for topic, of_prefix in votes.items()
            if of_prefix == max(votes.values())
        }

    def _reading(self, topic: str) -> tuple[str, str]:
        """Return the most likely reading of a topic that names a store of the task; two empty texts if there is none.

        ``x-a-b-changelog`` is the changelog of the store "a-b" if the task has this store, otherwise of "b".
        """
        for likely in self._likeliest:
            if (owner := store_of_changelog(topic, likely)) is not None:
                return likely, owner
        readings = [reading for reading in readings_of_changelog(topic) if reading[1] in self._names]
        # If two prefixes have equally many votes, the longer store name wins, because it explains more of the topic.
        return max(readings, key=lambda pair: (self._votes.get(pair[0], _NO_VOTES), len(pair[1])), default=("", ""))

    def _absent(self, topic: str) -> str | None:
        """Return the store that a topic names and that has no directory in the task; None if there is none."""
        name = self._by_name.get(topic) or self._reading(topic)[1]
        # A store with a directory is not absent. By its name alone the topic may then belong to another store.
        if not name or name in self._names:
            return None
        return name

    def _source(self, topic: str, without: Iterable[Store]) -> SourceTopic:
        """Return the stores whose changelog ``topic`` may be; ``without`` are the stores that have no topic yet."""
        if topic in self._namers:
            return SourceTopic(self._namers[topic])
        owners = tuple(store.name for store in without if topic in self._inputs[store.name])
        # Without a Position, nothing shows which inputs the store has. So it may be built from this topic.
        unknown = (store.name for store in without if not self._inputs[store.name] or not store.position_is_readable)
        return SourceTopic(owners, tuple(name for name in unknown if name not in owners))
