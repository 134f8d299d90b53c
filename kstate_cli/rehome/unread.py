"""Which topics between sub-topologies the new topology does not read any more, by the names that the broker has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kstate_cli.formats.topic_partition import changelog_prefix
from kstate_cli.specification.homes import Described
from kstate_cli.specification.topology import INNER, Subtopology


def on_broker(app_id: str, part: Subtopology, topic: str, known: Collection[str]) -> str:
    """What a topic of a text is called on the broker: those that Streams makes have the application's prefix there.

    ``InternalTopologyBuilder.decorateTopic``; the text has them without.
    """
    decorated = f"{changelog_prefix(app_id, part.topology)}-{topic}"
    return decorated if decorated in known else topic


def between(
    app_id: str, new: Described | None, old: Described | None, known: Collection[str], groups: Collection[str]
) -> list[str]:
    """The topics of the broker that were read between sub-topologies, and that the new topology does not read.

    By the old text; without one those that Streams has made for the application, by their names. ``known`` are all
    topics, ``groups`` all groups: ``app-2-x-repartition`` is a topic of ``app-2`` where that is one.
    """
    read = set() if new is None else {name for part, topic in _read(new) for name in _names(app_id, part, topic)}
    if old is None:
        return sorted(topic for topic in known if topic not in read and _is_inner(app_id, topic, groups))
    inner = {on_broker(app_id, part, topic, known) for part, topic in _read(old) if topic in old.text.inner_topics}
    return sorted(inner & set(known) - read)


def _read(described: Described) -> Iterator[tuple[Subtopology, str]]:
    for part in described.text.subtopologies:
        if not part.is_global:
            yield from ((part, topic) for topic in part.topics)


def _names(app_id: str, part: Subtopology, topic: str) -> tuple[str, str]:
    return topic, f"{changelog_prefix(app_id, part.topology)}-{topic}"


def _is_inner(app_id: str, topic: str, groups: Collection[str]) -> bool:
    if not topic.startswith(f"{app_id}-") or not topic.endswith(INNER):
        return False
    return not any(
        len(one) > len(app_id) and one.startswith(f"{app_id}-") and topic.startswith(f"{one}-") for one in groups
    )
