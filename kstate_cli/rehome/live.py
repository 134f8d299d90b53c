"""Ask the live cluster before a rehoming: its identity, group members, unread records and partition counts.

Streams makes a task for each partition of the largest source topic (``PartitionGrouper``). It ends at the start if an
existing changelog has another number of partitions (``InternalTopicManager``). For a table that is restored from its
source topic Streams compares nothing: tasks beyond its partitions are never restored, and the application never runs
(``tests/interop/test_rehome_broker.py::test_what_streams_makes_of_topics_of_two_sizes``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.broker.client import (
    GroupMember,
    StreamsGroup,
    admin_client,
    ask_broker,
    ask_group,
    groups_on,
    partition_counts,
)
from kstate_cli.broker.tails import read_tails
from kstate_cli.errors import Refused
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.rehome.model import WhyRefused
from kstate_cli.texts import first_lines, plural, some

if TYPE_CHECKING:
    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.rehome.snapshot import RehomeDraft
    from kstate_cli.specification.homes import Described
    from kstate_cli.specification.topology import Subtopology
from collections.abc import Collection

from kstate_cli.formats.topic_partition import changelog_prefix
from kstate_cli.specification.homes import Described, Home
from kstate_cli.specification.topology import INNER, Subtopology

_NAMED: Final = 5
_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The broker of an application, and how it is spoken to."""

    bootstrap: str
    settings: Mapping[str, str]
    """In librdkafka's words."""
    only_looks: bool = False
    """A dry run: instances that still run are told, not refused."""


def await_end(cluster: Cluster, app_id: str, seconds: float, tell: Callable[[str], None]) -> None:
    """Waits until the group has no member any more, or ``seconds`` are over. Raises UsageError and RunFailed."""
    deadline, told = time.monotonic() + seconds, False
    while (members := ask_group(cluster.bootstrap, cluster.settings, app_id).members) and time.monotonic() < deadline:
        if not told:
            tell(f"waiting for the end of {plural(len(members), 'member')} of the group {app_id}")
            told = True
        time.sleep(min(_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))


def judge_live(draft: RehomeDraft, cluster: Cluster) -> None:
    """Adds what is to be told. Raises Refused where an instance runs, records would be lost, or Streams not start.

    Raises RunFailed where the broker does not answer, UsageError for settings that the client does not take.
    """
    app_id = draft.app.app_id
    counts = refuse_partitions(draft, cluster)
    with admin_client(cluster.bootstrap, cluster.settings) as admin:
        groups = groups_on(admin)
    group = ask_group(cluster.bootstrap, cluster.settings, app_id)
    if group.members:
        _refuse_members(draft, group, only_told=cluster.only_looks)
        return
    if group.why is not None:
        draft.warnings.append(
            f"whether an instance still runs is not known: the members of the group {app_id} cannot be told "
            f"({group.why}): see to it that all are stopped"
        )
    wanted = between(app_id, draft.options.new, draft.options.old, counts, groups)
    if unread := list(_unread(cluster, app_id, wanted)):
        raise Refused(
            "records that were not read yet would never be read: the new topology does not read "
            + ("these topics" if draft.options.new is not None else "these topics, for all that --map says"),
            details=first_lines(unread),
            where=str(draft.app.path),
            code=WhyRefused.UNREAD,
            hint="start the old topology, let it come to the end of its input, and stop it; where these records may be "
            "lost, leave out --bootstrap-server",
        )


def refuse_partitions(draft: RehomeDraft, cluster: Cluster) -> dict[str, int]:
    """The topics of the broker and their sizes. Raises Refused where Streams would not run with them, and RunFailed."""
    with admin_client(cluster.bootstrap, cluster.settings) as admin:
        counts = partition_counts(admin)
    changelogs = _changelogs(draft)
    if changelogs and not changelogs & counts.keys():
        raise Refused(
            f"the broker has none of the changelogs of this directory: {some(sorted(changelogs), _NAMED)}",
            where=str(draft.app.path),
            code=WhyRefused.OTHER_CLUSTER,
            hint="is it the cluster of this application? A topic that this user may not describe is not shown either",
        )
    _refuse_partitions(draft, counts)
    return counts


def _changelogs(draft: RehomeDraft) -> set[str]:
    """Those that Streams has made for the stores here; of an application without any, the topics in their place.

    Its input topics may have the same names in another cluster.
    """
    topics = {
        (tp.topic, usual_changelog(draft.app.app_id, task.task, one.store.name).topic)
        for task in draft.tasks.values()
        for one in task.stores
        for tp in one.offsets
    }
    return {topic for topic, usual in topics if topic == usual} or {topic for topic, _ in topics}


def _refuse_members(draft: RehomeDraft, group: StreamsGroup, *, only_told: bool) -> None:
    lines = [_member(one) for one in group.members]
    count = plural(len(lines), "member")
    if only_told:
        draft.warnings.append(
            f"the group {draft.app.app_id} has {count} ({some(lines, _NAMED)}): nothing is moved before all instances "
            "are stopped"
        )
        return
    raise Refused(
        f"the group {draft.app.app_id} has {count}: all instances must be stopped",
        details=first_lines(lines),
        where=str(draft.app.path),
        code=WhyRefused.MEMBERS,
        hint="stop them. One that was stopped or killed is a member until its session has timed out "
        "(session.timeout.ms, 45 s unless it is set), since Streams does not leave its group: --wait 60 waits for that",
    )


def _member(one: GroupMember) -> str:
    static = f", group.instance.id {one.instance}" if one.instance is not None else ""
    return f"{one.client or one.id} at {one.host.removeprefix('/')}{static}"


def _unread(cluster: Cluster, app_id: str, topics: list[str]) -> Iterator[str]:
    """What lies in topics behind what the group has committed, as records: transaction markers are none."""
    if not topics:
        return
    facts = ask_broker(cluster.bootstrap, cluster.settings, group=app_id, topics=topics)
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for key, known in sorted(facts.items()):
        first = known.start if known.committed is None else max(known.start, known.committed)
        if known.end > first:
            spans[key] = first, known.end
    wanted = {key: ({first}, end) for key, (first, end) in spans.items()}
    tails = read_tails(cluster.bootstrap, cluster.settings, wanted, committed=True) if wanted else {}
    for key, (first, end) in spans.items():
        records = tails[key].records(first, end) if key in tails else None
        if records is None:
            yield f"{key}: up to {end - first:,} records from offset {first} on"
        elif records:
            yield f"{key}: {plural(records, 'record')} from offset {first} on"


def _refuse_partitions(draft: RehomeDraft, counts: Mapping[str, int]) -> None:
    """What :mod:`kstate_cli.rehome.live` finds: refused; where topics alone differ it is told."""
    wrong = []
    for home, part in draft.homes():
        sources = source_counts(draft.app.app_id, draft.options.new, part, counts)
        unknown = sorted(topic for topic, count in sources.items() if count is None)
        if part.pattern or unknown:
            why = f"the broker has not {some(unknown, _NAMED)}" if unknown else "it reads topics by a pattern"
            draft.notes.append(f"sub-topology {home}: how many tasks it will have is not known: {why}")
            continue
        lines = list(other_counts(home, sources, draft.changelogs_into(home), counts))
        wrong += lines
        known = sorted({count for count in sources.values() if count is not None})
        if len(known) > 1 and not lines and not _together_before(draft.options.old, part):
            draft.warnings.append(
                f"sub-topology {home}: its source topics have {' and '.join(map(str, known))} partitions: Streams "
                "takes the most, and starts; but where the topology joins them, records of one key may lie in two tasks"
            )
    if wrong:
        raise Refused(
            "Streams would not run: of each changelog it wants as many partitions as the sub-topology has tasks",
            details=first_lines(wrong),
            where=str(draft.app.path),
            code=WhyRefused.PARTITIONS,
            hint="it ends at the start; where a source topic is the changelog, it never comes to run. Keep these "
            "sub-topologies apart, or repartition an input",
        )


def _together_before(old: Described | None, part: Subtopology) -> bool:
    """Whether one sub-topology has read all these topics already."""
    return old is not None and any(set(part.topics) <= set(one.topics) for one in old.text.subtopologies)


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
