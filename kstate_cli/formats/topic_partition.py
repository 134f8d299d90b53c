"""Names of Kafka and Kafka Streams: topic-partitions, topics and stores, changelog topics, and tasks.

A task is ``<subtopology>_<partition>``, in a folder ``__<topology>__`` if its topology has a name. ``global`` is the
folder of the global stores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kstate_cli.formats.binary import MAX_I32, MalformedBytesError

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Written by Integer.toString: no sign, no leading zero.
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
MOST_PARTITIONS: Final = 100_000
"""No topic has so many. A larger number comes from a damaged file or a typing error, and makes no list of them."""
_CHANGELOG_SUFFIX: Final = "-changelog"
_INTERNAL: Final = re.compile(
    r"(?:.*-)?(?:.+-repartition|.+-subscription-(?:registration|response)-topic"
    # A foreign-key join without a name (``TableJoined.as``) has numbered topics in capitals.
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d{10}-topic)"
)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic; ``str()`` is ``<topic>:<partition>``, as people type it and every message shows it.

    Like its namesake it checks nothing: a ``.checkpoint`` may hold a partition that no broker would accept.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def kafka_name(self) -> str:
        """``<topic>-<partition>``, as Kafka writes it into files (``TopicPartition.toString``); for them alone."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Split ``<topic>-<partition>`` at the last ``-``: a topic may contain ``-``, and a partition has no sign.

        Only the spelling that ``kafka_name`` gives is accepted, so that parsing and printing never change a key.
        Anything else raises :class:`MalformedBytesError`.
        """
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic:
            raise MalformedBytesError(f"{text!r} is not <topic>-<partition>")
        try:
            return cls(topic, parse_partition(partition))
        except MalformedBytesError:
            raise MalformedBytesError(f"{text!r} does not end in a partition number") from None


def typed_offsets(offsets: Mapping[str, Mapping[int, int]]) -> list[str]:
    """Return offsets by topic and partition, each as options take it: ``topic:partition=offset``."""
    return [f"{topic}:{p}={o}" for topic, of_topic in offsets.items() for p, o in of_topic.items()]


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as messages print them, ``topic:partition=offset``, in order; empty for none."""
    return ", ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items()))


def numbers_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets for a line that names their store already: ``offset 35``, or ``offset 0=30 1=50``."""
    if not offsets:
        return "no changelog"
    if len(offsets) == 1:
        return f"offset {next(iter(offsets.values()))}"
    return f"offset {' '.join(f'{key.partition}={offset}' for key, offset in sorted(offsets.items()))}"


def parse_partition(text: str) -> int:
    """Return the number of a partition that ``Integer.toString`` spelled so; MalformedBytesError for another spelling.

    ``int()`` takes ``1_0`` for 10, and digits of other scripts.
    """
    if _PARTITION.fullmatch(text) is None or int(text) > MAX_I32:
        raise MalformedBytesError(f"{text[:100]!r} is not a partition")
    return int(text)


def legal_topic(name: str) -> bool:
    """Return whether a broker takes ``name``: 1 to 249 of ``[a-zA-Z0-9._-]``, no dots alone (``Topic.validate``)."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def legal_store_name(name: str) -> bool:
    """Return whether Streams accepts ``name`` for a store; the rule of :func:`legal_topic` (``Named.validate``)."""
    return legal_topic(name)


def changelog_prefix(app_id: str, topology: str | None) -> str:
    """Return the prefix of changelogs: ``<application id>``, or ``<application id>-<topology>`` for a named topology.

    ``ProcessorContextUtils.topicNamePrefix``; the internal ``__internal.override.topic.prefix__`` makes it another.
    """
    if not topology:
        return app_id
    return f"{app_id}-{topology}"


def changelog_topic(prefix: str, store: str) -> str:
    """Return ``<prefix>-<store>-changelog`` (``ProcessorStateManager.storeChangelogTopic``)."""
    return f"{prefix}-{store}{_CHANGELOG_SUFFIX}"


def is_changelog(topic: str) -> bool:
    """Return whether a topic has the name of a changelog: of any store, of any application."""
    return topic.endswith(_CHANGELOG_SUFFIX)


def is_internal(topic: str) -> bool:
    """Return whether a topic has a name of those through which an application sends records to itself.

    Repartition topics, and registrations and responses of foreign-key joins (``RepartitionTopicConfig``,
    ``KTableImpl.doJoinOnForeignKey``), with or without the application's id in front.
    """
    return _INTERNAL.fullmatch(topic) is not None


def prefix_of_changelog(topic: str, store: str) -> str | None:
    """Return the prefix under which ``topic`` is the changelog of ``store``, or ``None``."""
    suffix = changelog_topic("", store)
    if not topic.endswith(suffix):
        return None
    return topic.removesuffix(suffix) or None


def store_of_changelog(topic: str, prefix: str) -> str | None:
    """Return the store whose changelog ``topic`` is under ``prefix``; None for a source topic, or a foreign one."""
    start = f"{prefix}-"
    if not topic.startswith(start) or not is_changelog(topic):
        return None
    # An overlap of prefix and suffix leaves a negative length, which the slice turns into "".
    store = topic[len(start) : len(topic) - len(_CHANGELOG_SUFFIX)]
    if not legal_store_name(store):
        return None
    return store


def store_in_topologies(topic: str, app_id: str, topologies: Iterable[str | None]) -> tuple[str, str | None] | None:
    """Return the store whose changelog ``topic`` is, and its named topology, of those that the application has.

    ``x-t-a-changelog`` is that of "a" in the topology "t" of the application "x" where that has one, else of "t-a".
    """
    # The longest name first: "x-t" explains the topic "x-t-a-changelog" better than "x" does.
    for topology in sorted({None, *topologies}, key=lambda topology: -len(topology or "")):
        store = store_of_changelog(topic, changelog_prefix(app_id, topology))
        if store is not None:
            return store, topology
    return None


def readings_of_changelog(topic: str) -> Iterator[tuple[str, str]]:
    """Yield every (prefix, store) that may have given a changelog its name, the longest store first.

    ``x-a-b-changelog`` is that of the store "a-b" with the prefix "x", or that of "b" with the prefix "x-a".
    """
    if not is_changelog(topic):
        return
    stem = topic.removesuffix(_CHANGELOG_SUFFIX)
    at = stem.find("-", 1)
    while at >= 0:
        if legal_store_name(stem[at + 1 :]):
            yield stem[:at], stem[at + 1 :]
        at = stem.find("-", at + 1)


def own_changelogs(
    app: str, on_broker: Iterable[str], groups: Collection[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the changelogs that belong to an application by their names, and those of others as (topic, application).

    ``my-app-2-count-changelog`` may be that of "my-app" or "my-app-2". It is the latter's if ``groups``, the consumer
    groups of the broker, has such a group: see :func:`kstate_cli.dump_writer.plan.select_topics`.
    """
    own: list[str] = []
    foreign: list[tuple[str, str]] = []
    for topic in sorted(on_broker):
        if topic.startswith(f"{app}-") and is_changelog(topic):
            others = [
                prefix
                for prefix, _ in readings_of_changelog(topic)
                if len(prefix) > len(app) and prefix.startswith(f"{app}-") and prefix in groups
            ]
            if others:
                # Several groups may fit. The longest name wins, since the shorter ones are only the beginning of it.
                foreign.append((topic, max(others, key=len)))
            else:
                own.append(topic)
    return own, foreign


def canonical_topic_id(text: str) -> str:
    """Return a topic id as Kafka's own tools print it (``Uuid.toString``, KIP-516): base64 with ``-`` and ``_``.

    librdkafka prints the same bytes with ``+`` and ``/``: every other id would look like that of another topic.
    """
    return text.replace("+", "-").replace("/", "_").rstrip("=")


GLOBAL: Final = "global"
"""The directory of the global stores, which is no task of Streams but holds stores as one does."""
# Digits of ASCII alone, as in Java: another script has digits too, and Streams would not look into such a folder.
_TASK: Final = re.compile(r"([0-9]+)_([0-9]+)")
_TOPOLOGY: Final = re.compile(r"__(.+)__")


@dataclass(frozen=True, slots=True)
class TaskId:
    """What the name of a task says (``TaskId``, ``StateDirectory``); of ``global`` it says nothing."""

    topology: str | None = None
    """The name of the topology, which may itself begin or end with underscores; None where it has no name."""
    subtopology: int | None = None
    partition: int | None = None

    @classmethod
    def parse(cls, name: str) -> TaskId:
        """Take ``0_1``, ``__name__/0_1`` or ``global`` apart. ValueError for anything else."""
        return _parsed(name)

    @property
    def name(self) -> str:
        """What :meth:`parse` takes apart; a subtopology without a partition is no task and has none."""
        if self.partition is None:
            return GLOBAL
        task = f"{self.subtopology}_{self.partition}"
        if self.topology is None:
            return task
        return f"__{self.topology}__/{task}"

    @property
    def is_global(self) -> bool:
        """The directory of the global stores."""
        return self.partition is None

    @property
    def order(self) -> tuple[bool, str, int, int]:
        """What tasks are sorted by: ``0_0`` …, then named topologies, ``global`` last."""
        return self.is_global, self.topology or "", self.subtopology or 0, self.partition or 0


@lru_cache(maxsize=10_000)
def _parsed(name: str) -> TaskId:
    """Return the task with this name.

    Results are cached, since callers that compare all tasks parse names very often.
    """
    folder, slash, task = name.rpartition("/")
    if name == GLOBAL:
        return TaskId()
    topology, numbers = _TOPOLOGY.fullmatch(folder), _TASK.fullmatch(task)
    # Illegal too: a slash without the folder of a named topology before it, or the reverse.
    if numbers is None or bool(slash) != bool(topology):
        raise ValueError(f"{name[:100]!r} is not the name of a task")
    name_of_topology = None
    if topology:
        name_of_topology = topology[1]
    return TaskId(name_of_topology, int(numbers[1]), int(numbers[2]))


def is_task(name: str) -> bool:
    """Return whether a directory entry has the name of a task without a topology."""
    return _TASK.fullmatch(name) is not None


def is_topology(name: str) -> bool:
    """Return whether a directory entry has the name of a named topology's folder."""
    return _TOPOLOGY.fullmatch(name) is not None


def is_task_or_global(name: str) -> bool:
    """Return whether a directory entry has the name of what holds stores."""
    return name == GLOBAL or is_task(name)
