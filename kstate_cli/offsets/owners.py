"""Which store a line of ``.checkpoint`` belongs to: the file names changelog topics, not stores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kstate_cli.formats.topic_partition import TopicPartition, changelog_topic, legal_store_name
from kstate_cli.statedir.model import Task

_SUFFIX = "-changelog"


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


def give_lines(app_id: str, task: Task, lines: dict[TopicPartition, int]) -> Owners:
    """Gives each line to the store whose changelog it is.

    A changelog is ``<prefix>-<store>-changelog``; the prefix is the application.id (with ``-<topology>`` for a named
    one), or another that the lines of the file agree on. Any other topic is a source topic that serves as a changelog:
    it goes to the stores without a changelog of their own whose Position names the topic; where that does not tell,
    to all of them, since Streams asks a store for its own topic only.
    """
    if task.is_global:
        return _give_global(task, lines)
    owners = Owners()
    names = {store.name for store in task.stores}
    prefixes = _prefixes(app_id, task, lines, names)
    sources: dict[TopicPartition, int] = {}
    for tp, offset in lines.items():
        if tp.partition != task.partition:
            owners.unknown[tp] = offset
            continue
        name = _store_of(tp.topic, prefixes)
        if name is None:
            sources[tp] = offset
        elif name in names:
            owners.stores.setdefault(name, {})[tp] = offset
        else:
            owners.absent.setdefault(name, {})[tp] = offset
    without = [store for store in task.stores if store.name not in owners.stores]
    for tp, offset in sources.items():
        candidates = [store for store in without if tp.topic in store.position.topics] or without
        if not candidates:
            owners.unknown[tp] = offset
        for store in candidates:
            owners.stores.setdefault(store.name, {})[tp] = offset
        if len(candidates) > 1:
            named = ", ".join(store.name for store in candidates)
            owners.notes.append(
                f"{task.name}: the offset of {tp} goes to {named}: any of them may be built from that topic"
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


def _prefixes(app_id: str, task: Task, lines: Iterable[TopicPartition], names: set[str]) -> tuple[str, ...]:
    own = f"{app_id}-{task.topology}" if task.topology else app_id
    others: dict[str, int] = {}
    for tp in lines:
        for name in names:
            if tp.topic.endswith(f"-{name}{_SUFFIX}"):
                prefix = tp.topic.removesuffix(f"-{name}{_SUFFIX}")
                others[prefix] = others.get(prefix, 0) + 1
    ranked = sorted((prefix for prefix in others if prefix != own), key=lambda prefix: (-others[prefix], len(prefix)))
    return (own, *ranked)


def _store_of(topic: str, prefixes: tuple[str, ...]) -> str | None:
    for prefix in prefixes:
        if topic.startswith(f"{prefix}-") and topic.endswith(_SUFFIX):
            name = topic[len(prefix) + 1 : -len(_SUFFIX)]
            if legal_store_name(name):
                return name
    return None


def usual_changelog(app_id: str, task: Task, store: str) -> TopicPartition:
    """The partition that a store is restored from where it has a changelog, and that has its usual name."""
    return TopicPartition(changelog_topic(_changelog_prefix(app_id, task), store), task.partition or 0)


def _changelog_prefix(app_id: str, task: Task) -> str:
    """The prefix that the changelogs of a task's stores have, by their offsets; the usual one without any."""
    for store in task.stores:
        for database in store.databases:
            for tp in database.offsets.offsets if database.offsets else ():
                if tp.topic.endswith(f"-{store.name}{_SUFFIX}"):
                    return tp.topic.removesuffix(f"-{store.name}{_SUFFIX}")
    return f"{app_id}-{task.topology}" if task.topology else app_id
