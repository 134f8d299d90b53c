"""How many tasks a sub-topology has, and whether its changelogs have as many partitions.

Streams makes a task for each partition of the largest source topic (``PartitionGrouper``), and ends at the start where
a changelog that is there has another number of them (``InternalTopicManager``). Of a table that is restored from its
source topic nobody compares: tasks beyond its partitions are never restored, and the application never runs
(``tests/interop/test_rehome_broker.py::test_what_streams_makes_of_topics_of_two_sizes``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kstate_cli.rehome.unread import on_broker
from kstate_cli.specification.homes import Described, Home
from kstate_cli.specification.topology import Subtopology


def source_counts(
    app_id: str, new: Described | None, part: Subtopology, counts: Mapping[str, int]
) -> dict[str, int | None]:
    """The source topics of a sub-topology, by the broker's names, and how many partitions each has.

    A repartition topic that is not there yet gets as many as the largest source of what writes to it; None where the
    broker does not have that either, or nobody writes to it.
    """
    return {
        name: _count(app_id, new, part, topic, counts, frozenset())
        for topic in part.topics
        for name in (on_broker(app_id, part, topic, counts),)
    }


def _count(
    app_id: str,
    new: Described | None,
    part: Subtopology,
    topic: str,
    counts: Mapping[str, int],
    seen: frozenset[str],
) -> int | None:
    known = counts.get(on_broker(app_id, part, topic, counts))
    if known is not None or new is None or topic in seen:
        return known
    writers = [
        other
        for other in new.text.subtopologies
        if other.topology == part.topology and any(node.writes == topic for node in other.nodes)
    ]
    above = [_count(app_id, new, other, source, counts, seen | {topic}) for other in writers for source in other.topics]
    return max((one for one in above if one is not None), default=None)


def other_counts(
    home: Home, sources: Mapping[str, int | None], changelogs: Collection[str], counts: Mapping[str, int]
) -> Iterator[str]:
    """Changelogs whose number of partitions does not go with the sub-topology's tasks, as lines."""
    tasks, largest = max(((count, name) for name, count in sources.items() if count is not None), default=(0, ""))
    for topic in sorted(changelogs):
        count = counts.get(topic)
        if count is not None and (count != tasks if topic not in sources else count < tasks):
            yield (
                f"{topic} has {count} partitions, and sub-topology {home} {tasks} tasks, as many as {largest} has "
                "partitions"
            )
