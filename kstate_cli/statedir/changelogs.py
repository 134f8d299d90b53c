"""Whose the topics of a task are: the rule of changelog names, held against the stores that a task has.

``.checkpoint`` names topics without stores. A changelog says in its name whose it is; a source topic that serves as one
(``topology.optimization``, read-only stores, global stores) does not, and may itself be called like a changelog, since
an application can read that of another. What tells, the most certain first:

1. ``<application.id>[-<topology>]-<store>-changelog`` of a store that the task has: the name is exact.
2. A store that names the topic itself, in its databases or in ``.checkpoint_<store>``.
3. A Position that names it: the topic is an input, and a changelog is none.
4. The same name as in 1 of a store without a directory: custom, in memory, or gone.
5. Another prefix, where no store has one with that of the application: one setting holds for all stores, so it is the
   prefix that most of them speak for. Only then another one that makes it the changelog of a store of the task.
6. Any store that has no topic yet, and of which nobody knows what it was built from.

``spec.topics`` asks where this is not certain; ``check.snapshot.Snapshot.changelog`` adds what logs tell.
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

_NOBODY = (0, 0)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """The stores that a topic can be the changelog of, though not by its name; in the order of the task."""

    told: tuple[str, ...] = ()
    """They name it themselves, or their Position does."""
    possible: tuple[str, ...] = ()
    """They have no topic, and what they were built from nobody knows: they have no Position, or an unreadable one."""


@dataclass(frozen=True, slots=True)
class TopicOwners:
    """Each topic is in one of the three."""

    changelogs: Mapping[str, str] = field(default_factory=dict)
    """Topic -> store of the task whose changelog it is by its name."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Topic -> store without a directory in the task."""
    sources: Mapping[str, SourceTopic] = field(default_factory=dict)


def prefix_of(app_id: str, task: Task) -> str:
    """What the changelogs of a task begin with, unless an internal setting has made it another prefix."""
    return changelog_prefix(app_id, task.topology)


def own_topics(task: Task, store: Store) -> frozenset[str]:
    """The topics that a store names itself: in the column family ``offsets`` and in ``.checkpoint_<store>``."""
    readings = [d.offsets.offsets for d in store.databases if d.offsets is not None]
    if store.store_file is not None:
        readings.append(store.store_file.entries)
    return frozenset(tp.topic for reading in readings for tp in reading if task.partition in (None, tp.partition))


def line_topics(task: Task) -> list[str]:
    """The topics that ``.checkpoint`` has for the partition of the task, sorted; ``global`` has all partitions."""
    lines = task.checkpoint.entries if task.checkpoint else {}
    return sorted({tp.topic for tp in lines if task.partition in (None, tp.partition)})


def usual_prefix(app_id: str, task: Task) -> str:
    """The prefix that the changelogs of a task have by its offsets; the usual one where they do not tell."""
    return _Matching(app_id, task, line_topics(task)).prefix


def topic_owners(app_id: str, task: Task) -> TopicOwners:
    """Whose each topic of ``.checkpoint`` is; of ``global`` all are source topics."""
    matching = _Matching(app_id, task, line_topics(task))
    return matching.sources_only() if task.is_global else matching.owners()


class _Matching:
    """The topics of one task, given to stores."""

    def __init__(self, app_id: str, task: Task, topics: Collection[str]) -> None:
        self._stores = task.stores
        self._topics = topics
        self._own = prefix_of(app_id, task)
        self._names = {store.name for store in task.stores}
        named = {topic: store_of_changelog(topic, self._own) for topic in topics}
        self._named = {topic: name for topic, name in named.items() if name is not None}
        """By the prefix that the application has by its id."""
        self._of_its_own = {store.name: own_topics(task, store) for store in task.stores}

    @property
    def prefix(self) -> str:
        """The one that changelogs here have."""
        return self._likeliest[0] if self._likeliest else self._own

    def sources_only(self) -> TopicOwners:
        """The topics of global stores, which are built from source topics, whatever those are called."""
        without = [store for store in self._stores if not self._of_its_own[store.name]]
        return TopicOwners(sources={topic: self._source(topic, without) for topic in self._topics})

    def owners(self) -> TopicOwners:
        """The topics of a task's stores."""
        changelogs = {topic: name for topic, name in self._named.items() if name in self._names}
        left = [topic for topic in self._topics if topic not in changelogs]
        changelogs |= self._by_another_prefix(left)
        without = [store for store in self._without if store.name not in changelogs.values()]
        absent: dict[str, str] = {}
        sources: dict[str, SourceTopic] = {}
        for topic in left:
            if topic in changelogs:
                continue
            source = self._source(topic, without)
            name = self._absent(topic)
            if name is not None and not source.told:
                absent[topic] = name
            else:
                sources[topic] = source
        return TopicOwners(changelogs, absent, sources)

    @cached_property
    def _proven(self) -> bool:
        """Whether a store of the task has a changelog with the prefix of the application: no other is in use then."""
        return any(name in self._names for name in self._named.values()) or any(
            prefix_of_changelog(topic, name) == self._own for name, own in self._of_its_own.items() for topic in own
        )

    @cached_property
    def _without(self) -> list[Store]:
        """The stores that neither name a topic themselves nor have a changelog with the application's prefix."""
        have = set(self._named.values())
        return [store for store in self._stores if store.name not in have and not self._of_its_own[store.name]]

    @cached_property
    def _votes(self) -> dict[str, tuple[int, int]]:
        """Other prefix -> how many stores of the task, and how many topics, it makes changelogs of.

        A topic that a Position names is an input: it says nothing.
        """
        without = {store.name for store in self._without}
        others = set(self._topics) - self._named.keys()
        read = [
            (topic, *reading) for topic in others for reading in readings_of_changelog(topic) if reading[1] in without
        ]
        read += [
            (topic, prefix, name)
            for name, topics in self._of_its_own.items()
            for topic in topics
            if (prefix := prefix_of_changelog(topic, name)) is not None
        ]
        if not read:
            return {}
        inputs = {topic for topics in self._inputs.values() for topic in topics}
        spoken: dict[str, set[str]] = {}
        for topic, prefix, name in read:
            if topic not in inputs and prefix != self._own:
                spoken.setdefault(prefix, set()).add(name)
        return {
            prefix: (len(names), sum(store_of_changelog(topic, prefix) is not None for topic in others - inputs))
            for prefix, names in spoken.items()
        }

    @cached_property
    def _inputs(self) -> dict[str, frozenset[str]]:
        """The topics that the Position of each store names."""
        return {store.name: frozenset(store.position.topics) for store in self._stores}

    @cached_property
    def _own_of(self) -> dict[str, tuple[str, ...]]:
        """Topic -> the stores that name it themselves."""
        namers: dict[str, tuple[str, ...]] = {}
        for name, topics in self._of_its_own.items():
            for topic in topics:
                namers[topic] = (*namers.get(topic, ()), name)
        return namers

    @cached_property
    def _likeliest(self) -> list[str]:
        """The other prefixes that most stores speak for; a shorter one leaves the longer name to the store."""
        if self._proven:
            return []
        most = max(self._votes.values(), default=_NOBODY)
        return sorted((one for one, votes in self._votes.items() if votes == most), key=lambda one: (len(one), one))

    def _by_another_prefix(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> store: of several topics that a store may have by its name those under the likeliest prefix."""
        without = {store.name for store in self._without}
        likely: dict[str, dict[str, tuple[int, int]]] = {}
        for topic in topics:
            prefix, name = self._reading(topic)
            told = self._source(topic, self._without).told
            # "app-a-b-changelog" is that of a store "a-b" of this application, not of its store "b".
            elsewhere = told or self._named.keys() & {topic}
            if name in without and (name in told or not elsewhere):
                likely.setdefault(name, {})[topic] = self._votes.get(prefix, _NOBODY)
        return {
            topic: name
            for name, votes in likely.items()
            for topic, of_prefix in votes.items()
            if of_prefix == max(votes.values())
        }

    def _reading(self, topic: str) -> tuple[str, str]:
        """The likeliest prefix, and the store whose changelog it makes a topic; empty where it is nobody's.

        ``x-a-b-changelog`` is that of the store "a-b" where there is one, not of "b".
        """
        for likely in self._likeliest:
            if (owner := store_of_changelog(topic, likely)) is not None:
                return likely, owner
        readings = [reading for reading in readings_of_changelog(topic) if reading[1] in self._names]
        return max(readings, key=lambda one: (self._votes.get(one[0], _NOBODY), len(one[1])), default=("", ""))

    def _absent(self, topic: str) -> str | None:
        """The store without a directory whose changelog a topic is by its name."""
        name = self._named.get(topic) or self._reading(topic)[1]
        return name if name and name not in self._names else None

    def _source(self, topic: str, without: Iterable[Store]) -> SourceTopic:
        """``without`` are the stores that have no topic yet."""
        if topic in self._own_of:
            return SourceTopic(self._own_of[topic])
        told = tuple(store.name for store in without if topic in self._inputs[store.name])
        unknown = (store.name for store in without if not self._inputs[store.name] or not store.position_known)
        return SourceTopic(told, tuple(name for name in unknown if name not in told))
