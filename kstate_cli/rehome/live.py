"""What only the broker knows of a change of homes: who still runs, what nobody would read, whether Streams would start.

Only asks: no group is joined, nothing is committed.
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
from kstate_cli.rehome.partitions import other_counts, source_counts
from kstate_cli.rehome.unread import between
from kstate_cli.texts import first_lines, plural, some

if TYPE_CHECKING:
    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.rehome.draft import RehomeDraft
    from kstate_cli.specification.homes import Described
    from kstate_cli.specification.topology import Subtopology

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
    """What :mod:`kstate_cli.rehome.partitions` finds: refused; where topics alone differ it is told."""
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
