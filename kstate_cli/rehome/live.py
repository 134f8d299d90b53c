"""Ask the live cluster before a rehoming: its identity, group members, unread records and partition counts.

Streams creates a task for each partition of the largest source topic (``PartitionGrouper``). A start fails if an
existing changelog has another number of partitions (``InternalTopicManager``). But Streams does not compare the number
if a table is restored from its source topic: tasks beyond its partitions are then never restored, and the application
never reaches RUNNING (``tests/interop/test_rehome_broker.py::test_topics_with_two_partition_counts``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli import option
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
from kstate_cli.change.plan import Change, note, warning
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import changelog_prefix, is_internal
from kstate_cli.offsets.resolve import usual_changelog
from kstate_cli.rehome.model import Cluster, WhyRefused
from kstate_cli.rehome.snapshot import RehomeLayout, RehomeSnapshot
from kstate_cli.specification.homes import Described, Home
from kstate_cli.specification.topology import Subtopology
from kstate_cli.texts import first_lines, plural, some

if TYPE_CHECKING:
    from kstate_cli.formats.topic_partition import TopicPartition

_MOST: Final = 5
"""Names in one sentence."""
_POLL_SECONDS: Final = 1.0


def await_end(cluster: Cluster, app_id: str, seconds: float, notify: Callable[[str], None]) -> None:
    """Wait until the group has no member, but at most ``seconds``. Raises UsageError and RunFailed."""
    deadline, reported = time.monotonic() + seconds, False
    # Asked at least once, even without a wait. An instance that was killed stays a member until its session ends.
    while (members := ask_group(cluster.bootstrap, cluster.settings, app_id).members) and time.monotonic() < deadline:
        if not reported:
            notify(f"waiting until the group {app_id} has no members ({len(members)} now)")
            reported = True
        # Not beyond the deadline; at least 0, because the request to the broker may have taken longer than the
        # remaining time.
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the broker states about the application."""

    group: StreamsGroup
    groups: Collection[str]
    """The names of all groups."""


def judge_live(layout: RehomeLayout, cluster: Cluster) -> list[Change]:
    """Return remarks about the live application.

    Raises Refused if an instance is running, records would be lost, or Streams would not start. Raises RunFailed if the
    broker does not answer, UsageError for settings that the client rejects.
    """
    app_id, options = layout.snapshot.app.app_id, layout.snapshot.options
    counts = ask_partition_counts(cluster)
    changes = judge_partitions(layout, counts)
    facts = _ask_group(cluster, app_id)
    # Members come first: if an instance is still reading, an answer about unread records is soon outdated.
    if facts.group.members:
        return [*changes, _refuse_members(layout.snapshot, facts.group, only_looks=cluster.only_looks)]
    if facts.group.why is not None:
        changes.append(
            warning(
                f"kstate cannot list the members of the group {app_id} ({facts.group.why}), so an instance may still "
                "be running. Make sure that all instances are stopped"
            )
        )
    # Repartition topics have records between sub-topologies. Only this application reads them.
    topics = between(app_id, options.new, options.old, counts, facts.groups)
    if unread := list(_unread_records(cluster, app_id, topics)):
        raise _records_lost(layout.snapshot, unread)
    return changes


def _ask_group(cluster: Cluster, app_id: str) -> ClusterFacts:
    with admin_client(cluster.bootstrap, cluster.settings) as admin:
        groups = groups_on(admin)
    return ClusterFacts(ask_group(cluster.bootstrap, cluster.settings, app_id), groups)


def ask_partition_counts(cluster: Cluster) -> dict[str, int]:
    """Return the topics of the broker and their partition counts. Raises RunFailed and UsageError."""
    with admin_client(cluster.bootstrap, cluster.settings) as admin:
        return partition_counts(admin)


def judge_partitions(layout: RehomeLayout, counts: Mapping[str, int]) -> list[Change]:
    """Return notes and warnings about numbers of partitions.

    Raise Refused if the broker belongs to another cluster, and if Kafka Streams would not reach RUNNING. A start throws
    if a changelog has the wrong number of partitions, and waits forever if this changelog is a source topic.
    """
    snapshot = layout.snapshot
    changelogs = _changelogs(snapshot)
    # One changelog in common is enough, because others may not exist before their first record.
    if changelogs and not changelogs & counts.keys():
        raise Refused(
            f"the broker has none of this directory's changelogs: {some(sorted(changelogs), _MOST)}",
            where=str(snapshot.app.path),
            code=WhyRefused.OTHER_CLUSTER,
            hint=("check that this is the application's cluster and that this user is allowed to describe its topics"),
        )
    changes, wrong = _compare_counts(layout, counts)
    if wrong:
        raise Refused(
            (
                "Kafka Streams would not reach RUNNING, because the numbers of partitions in these changelogs do not "
                "match the numbers of tasks in their sub-topologies"
            ),
            details=first_lines(wrong),
            where=str(snapshot.app.path),
            code=WhyRefused.PARTITIONS,
            hint="keep these sub-topologies separate, or repartition an input topic so that the numbers match",
        )
    return changes


def _changelogs(snapshot: RehomeSnapshot) -> set[str]:
    """Return the changelogs that Streams has created for the stores here.

    If there are none, the topics used as changelogs.

    The latter are input topics, which may have the same names in another cluster. So they count only without a
    changelog.
    """
    topics = {
        (tp.topic, usual_changelog(snapshot.app.app_id, resolved.task, state.store.name).topic)
        for resolved in snapshot.tasks.values()
        for state in resolved.stores
        for tp in state.offsets
    }
    return {topic for topic, usual in topics if topic == usual} or {topic for topic, _ in topics}


def _refuse_members(snapshot: RehomeSnapshot, group: StreamsGroup, *, only_looks: bool) -> Change:
    """Raise Refused because instances are still running. With ``only_looks`` (a dry run), return a warning instead."""
    lines = [_member_text(member) for member in group.members]
    count = plural(len(lines), "member")
    if only_looks:
        return warning(
            f"the group {snapshot.app.app_id} has {count} ({some(lines, _MOST)}). kstate moves stores "
            "only while all instances are stopped"
        )
    raise Refused(
        f"the group {snapshot.app.app_id} still has {count}",
        details=first_lines(lines),
        where=str(snapshot.app.path),
        code=WhyRefused.MEMBERS,
        hint=(
            f"stop all instances, then pass {option.WAIT} 60. A stopped instance stays a group member until its "
            "session times out (session.timeout.ms, 45 s by default)"
        ),
    )


def _member_text(member: GroupMember) -> str:
    static = ""
    # A static member stays in the group when it is stopped (KIP-345): its name says which one.
    if member.instance is not None:
        static = f", group.instance.id {member.instance}"
    return f"{member.client or member.id} at {member.host.removeprefix('/')}{static}"


def _unread_records(cluster: Cluster, app_id: str, topics: list[str]) -> Iterator[str]:
    """Yield a text for each partition with records that the group has not read. Transaction markers do not count."""
    if not topics:
        return
    facts = ask_broker(cluster.bootstrap, cluster.settings, group=app_id, topics=topics)
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for key, log in sorted(facts.items()):
        # Without a committed offset all records are unread. Records below the log start no longer exist.
        first = max(log.start, log.committed or 0)
        if log.end > first:
            spans[key] = first, log.end
    if not spans:
        return
    offsets = {key: ({first}, end) for key, (first, end) in spans.items()}
    tails = read_tails(cluster.bootstrap, cluster.settings, offsets, committed=True)
    for key, (first, end) in spans.items():
        # The offsets include transaction markers. So the difference is only an upper bound.
        records = None
        if key in tails:
            records = tails[key].records(first, end)
        if records is None:
            yield f"{key} has up to {end - first:,} unread records, starting at offset {first}"
        elif records:
            yield f"{key} has {plural(records, 'unread record')}, starting at offset {first}"


def _records_lost(snapshot: RehomeSnapshot, unread: list[str]) -> Refused:
    """Return the refusal for records that no sub-topology of the new topology would read."""
    source = f"according to {option.MAP}, "
    if snapshot.options.new is not None:
        source = ""
    return Refused(
        f"the application would never process some unread records, because {source}the new topology does not read "
        "their topics",
        details=first_lines(unread),
        where=str(snapshot.app.path),
        code=WhyRefused.UNREAD,
        hint=(
            "start the application with the old topology, let it process all its input, and stop it. If you do not "
            f"need these records, omit {option.BOOTSTRAP_SERVER}"
        ),
    )


def _compare_counts(layout: RehomeLayout, counts: Mapping[str, int]) -> tuple[list[Change], list[str]]:
    """Return remarks about source topics, and texts about changelogs with which Streams would not reach RUNNING."""
    app_id, options = layout.snapshot.app.app_id, layout.snapshot.options
    changes: list[Change] = []
    wrong: list[str] = []
    for home, part in layout.homes():
        sources = source_counts(app_id, options.new, part, counts)
        absent = sorted(topic for topic, count in sources.items() if count is None)
        # If the number of tasks is unknown, kstate neither refuses nor promises that the start succeeds.
        if part.pattern or absent:
            why = "this sub-topology reads topics by a pattern"
            if absent:
                why = f"the broker does not have {some(absent, _MOST)}"
            changes.append(note(f"kstate does not know how many tasks sub-topology {home} will have, because {why}"))
            continue
        lines = list(other_counts(home, sources, layout.changelogs_into(home), counts))
        wrong += lines
        if not lines:
            changes += _uneven_sources(home, part, sources, options.old)
    return changes, wrong


def _uneven_sources(
    home: Home, part: Subtopology, sources: Mapping[str, int | None], old: Described | None
) -> Iterator[Change]:
    """Yield a warning if the source topics of a sub-topology have different sizes, and it did not read them before."""
    # Streams creates as many tasks for a sub-topology as its largest topic has partitions (PartitionGrouper).
    sizes = sorted({count for count in sources.values() if count is not None})
    if len(sizes) > 1 and not _together_before(old, part):
        yield warning(
            f"sub-topology {home}: its source topics have {' and '.join(map(str, sizes))} partitions. Kafka Streams "
            "creates one task for each partition of the largest topic. If the topology joins these topics, records "
            "with the same key may be in two tasks"
        )


def _together_before(old: Described | None, part: Subtopology) -> bool:
    """Return True if one sub-topology of the old text reads all these topics."""
    return old is not None and any(set(part.topics) <= set(other.topics) for other in old.text.subtopologies)


def on_broker(app_id: str, part: Subtopology, topic: str, topics: Collection[str]) -> str:
    """Return the broker's name of a topic in a text; ``topics`` are those of the broker.

    Streams puts the application's prefix before the topics that it creates
    (``InternalTopologyBuilder.decorateTopic``); the text has them without.
    """
    decorated = f"{changelog_prefix(app_id, part.topology)}-{topic}"
    if decorated in topics:
        return decorated
    return topic


def between(
    app_id: str, new: Described | None, old: Described | None, topics: Collection[str], groups: Collection[str]
) -> list[str]:
    """Return the topics between two sub-topologies of the old topology that the new topology does not read.

    The text of the old topology shows these topics. Without it, they are recognized by the names that Streams gives
    them. ``topics`` are all topics of the broker, ``groups`` all its groups: ``app-2-x-repartition`` belongs to
    ``app-2`` if there is such a group.
    """
    read: set[str] = set()
    if new is not None:
        # Each topic has two names: the text has it without the id of the application, the broker with it.
        read = {name for part, topic in _read_topics(new) for name in _names(app_id, part, topic)}
    if old is None:
        return sorted(topic for topic in topics if topic not in read and _is_inner(app_id, topic, groups))
    inner = {
        on_broker(app_id, part, topic, topics) for part, topic in _read_topics(old) if topic in old.text.inner_topics
    }
    return sorted(inner & set(topics) - read)


def _read_topics(described: Described) -> Iterator[tuple[Subtopology, str]]:
    for part in described.text.subtopologies:
        if not part.is_global:
            yield from ((part, topic) for topic in part.topics)


def _names(app_id: str, part: Subtopology, topic: str) -> tuple[str, str]:
    return topic, f"{changelog_prefix(app_id, part.topology)}-{topic}"


def _is_inner(app_id: str, topic: str, groups: Collection[str]) -> bool:
    """Return True for a repartition topic of this application, and of no other group with a longer name."""
    if not topic.startswith(f"{app_id}-") or not is_internal(topic):
        return False
    return not any(
        len(group) > len(app_id) and group.startswith(f"{app_id}-") and topic.startswith(f"{group}-")
        for group in groups
    )


def source_counts(
    app_id: str, new: Described | None, part: Subtopology, counts: Mapping[str, int]
) -> dict[str, int | None]:
    """Return the source topics of a sub-topology, by their names on the broker, with their numbers of partitions.

    A repartition topic that does not exist yet will get the number of the largest source topic of its writers. The
    number is None if the broker has no such topic either, or if no sub-topology writes to the topic.
    """
    return {
        on_broker(app_id, part, topic, counts): _count(app_id, new, part, topic, counts, frozenset())
        for topic in part.topics
    }


def _count(
    app_id: str,
    new: Described | None,
    part: Subtopology,
    topic: str,
    counts: Mapping[str, int],
    visited: frozenset[str],
) -> int | None:
    """Return the number of partitions of a topic; None if unknown. ``visited`` ends cycles of topics."""
    count = counts.get(on_broker(app_id, part, topic, counts))
    if count is not None or new is None or topic in visited:
        return count
    writers = [
        other
        for other in new.text.subtopologies
        if other.topology == part.topology and any(node.writes == topic for node in other.nodes)
    ]
    sizes = [
        _count(app_id, new, other, source, counts, visited | {topic}) for other in writers for source in other.topics
    ]
    return max((size for size in sizes if size is not None), default=None)


def other_counts(
    home: Home, sources: Mapping[str, int | None], changelogs: Collection[str], counts: Mapping[str, int]
) -> Iterator[str]:
    """Yield a text for each changelog whose number of partitions does not fit the tasks of its sub-topology."""
    tasks, largest = max(((count, name) for name, count in sources.items() if count is not None), default=(0, ""))
    for topic in sorted(changelogs):
        count = counts.get(topic)
        if count is None:
            continue
        # A changelog needs one partition for each task. If it is a source topic, it may have more partitions than that.
        fits = count == tasks
        if topic in sources:
            fits = count >= tasks
        if not fits:
            yield (
                f"{topic} has {count} partitions, but sub-topology {home} has {tasks} tasks, because {largest} has "
                f"{tasks} partitions"
            )
