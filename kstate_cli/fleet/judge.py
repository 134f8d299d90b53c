"""The rules of a fleet: tasks and stores that are missing, doubled, or that differ between hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kstate_cli.fleet import findings as of
from kstate_cli.fleet.findings import FLEET_CODES, FleetCode, FleetFinding
from kstate_cli.fleet.model import CountSource, Fleet, SnapshotCopy, SubTopology, sub_topology, task_name
from kstate_cli.formats.topic_partition import GLOBAL, TaskId
from kstate_cli.texts import plural, some

_MOST_NAMES: Final = 5
# Only these two tell releases apart: other words of ``ls`` stand for places that every release has.
_OFFSET_PLACES: Final = {"column-family": "in the store", "checkpoint": "in .checkpoint"}
"""Up to 4.2 in the one, from 4.3 on in the other. A custom store has a file of its own, a new one none."""
_COUNT_SOURCES: Final = {
    CountSource.LOGS: "its changelogs have this partition",
    CountSource.SPEC: "the specification contains it",
    CountSource.TASKS: "a host has a task with a higher number",
}


def judge(fleet: Fleet) -> list[FleetFinding]:
    """Return all findings, in the order of their codes."""
    rules = (
        _unread,
        _problems,
        _identities,
        _tasks,
        _missing,
        _stores,
        _globals,
        _alike,
        _copies,
        _members,
        _snapshots,
    )
    # The catalogue goes from unread hosts over errors to warnings: the order in which a user looks at them.
    order = list(FLEET_CODES.values())
    findings = (finding for rule in rules for finding in rule(fleet))
    return sorted(findings, key=lambda finding: order.index(finding.code))


def _unread(fleet: Fleet) -> Iterator[FleetFinding]:
    for report in fleet.reports:
        gaps = report.gaps
        for gap in gaps[:_MOST_NAMES]:
            where = report.source
            if gap.line is not None:
                where = f"{report.source}, line {gap.line}"
            yield FleetFinding(of.HOST_UNREAD, f"{report.name} ({where}): {gap.why}", hosts=(report.name,))
        if len(gaps) > _MOST_NAMES:
            more = f"{report.name} ({report.source}): kstate cannot use {plural(len(gaps) - _MOST_NAMES, 'more line')}"
            yield FleetFinding(of.HOST_UNREAD, more, hosts=(report.name,))


def _problems(fleet: Fleet) -> Iterator[FleetFinding]:
    for report in fleet.reports:
        for problem in report.problems:
            where = report.name if problem.path == "." else f"{report.name}, {problem.path}"
            text = f"{where}: {problem.message} ({problem.code})"
            yield FleetFinding(of.HOST_PROBLEM, text, task=problem.task, hosts=(report.name,))


def _identities(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield findings if hosts have the same process id, or listings are of different applications."""
    ids, apps = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for report in fleet.reports:
        if report.process_id is not None:
            ids[report.process_id].append(report.name)
        if report.app_id is not None:
            apps[report.app_id].append(report.name)
    for name, hosts in ids.items():
        # Each host on which Streams runs has its own process id. Only a copy of a directory has that of another host.
        if len(hosts) > 1:
            text = f"{some(hosts, _MOST_NAMES)} have the process id {name}, so one volume is a copy of the other"
            yield FleetFinding(of.PROCESS_ID_DOUBLED, text, hosts=tuple(hosts))
    if len(apps) > 1:
        names = " and ".join(f"{name} ({some(hosts, _MOST_NAMES)})" for name, hosts in apps.items())
        text = f"the listings belong to the applications {names}"
        yield FleetFinding(of.APPLICATIONS_DIFFER, text, hosts=tuple(name for hosts in apps.values() for name in hosts))


def _tasks(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield findings for tasks that more or fewer hosts have than standby replicas require."""
    copies = 1 + fleet.standby_replicas
    for task, hosts in fleet.tasks.items():
        if task == GLOBAL:
            continue
        if len(hosts) > copies:
            text = f"{len(hosts)} hosts have {task}, but only {copies} should have it: {_host_texts(fleet, task)}"
            yield FleetFinding(of.TASK_DOUBLED, text, task=task, hosts=tuple(hosts))
        # A host without a complete listing may have the missing copy. So nothing proves that there are too few.
        elif len(hosts) < copies and not fleet.unread:
            text = f"{task} is only on {some(list(hosts), _MOST_NAMES)}, but {copies} hosts should have it"
            yield FleetFinding(of.TASK_TOO_FEW, text, task=task, hosts=tuple(hosts))


def _host_texts(fleet: Fleet, task: str) -> str:
    holders = []
    for host, copies in fleet.tasks[task].items():
        # Which copy to keep depends on both: the group uses the active one, and Streams prefers the one in front.
        role = "active, " if fleet.active.get(task) == host else ""
        holders.append(f"{host} ({role}{_distance(fleet.task_behind(copies))})")
    return some(holders, _MOST_NAMES)


def _distance(behind: int | None) -> str:
    if behind is None:
        return "offset unknown"
    if behind == 0:
        return "most recent"
    return f"{behind:,} offsets behind"


def _missing(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield findings for tasks that no host has although they should exist, and for tasks that should not exist."""
    for sub, partitions in fleet.expected.items():
        # expected_partitions limits the count, so a damaged number cannot cause an endless list.
        for number in range(partitions.count):
            task = task_name(sub, number)
            if task in fleet.tasks:
                continue
            # If another host has the task, restoring it would create a second copy, which Streams later wipes. So this
            # is not certain.
            if fleet.unread:
                names = some([report.name for report in fleet.unread], _MOST_NAMES)
                text = f"no host with a complete listing has {task}, but {names} may have it"
                yield FleetFinding(of.TASK_NOT_KNOWN, text, task=task)
            elif copies := fleet.snapshots.get(task):
                text = f"no host has {task}, but {_holders(copies)} contains it{_limit(fleet, copies)}"
                yield FleetFinding(of.TASK_ONLY_IN_SNAPSHOT, text, task=task)
            else:
                text = f"no host has {task}, although {_COUNT_SOURCES[partitions.source]}"
                yield FleetFinding(of.TASK_MISSING, text, task=task)
    for task, hosts in fleet.tasks.items():
        name = TaskId.parse(task)
        sub_of = sub_topology(name)
        if sub_of is not None and name.partition is not None:
            count = fleet.expected[sub_of].count
            if name.partition >= count:
                text = (
                    f"{task} is on {some(list(hosts), _MOST_NAMES)}, but its sub-topology has only "
                    f"{plural(count, 'task')}"
                )
                yield FleetFinding(of.TASK_UNEXPECTED, text, task=task, hosts=tuple(hosts))


def _holders(copies: list[SnapshotCopy]) -> str:
    """Return the snapshots that have a task."""
    return some([f"snapshot {name} in {place}" for name, place in _places(copies)], _MOST_NAMES)


def _limit(fleet: Fleet, copies: list[SnapshotCopy]) -> str:
    """Return the end of a sentence about snapshots of a task: why a restoration cannot use them alone, or their lag."""
    refusal = next((copy.why_not for copy in copies if copy.why_not is not None), None)
    if refusal is not None:
        return f". kstate cannot restore it: {refusal}"
    if any(copy.is_too_old for copy in copies):
        return ". It is too old for the log. To restore it, you also need a dump"
    lags = [fleet.standing(copy.copy).lag for copy in copies]
    lag = sum(number for number in lags if number is not None)
    return f". It is {lag:,} offsets behind the log" if fleet.facts is not None and None not in lags else ""


def _places(copies: list[SnapshotCopy]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((copy.snapshot, copy.repository) for copy in copies))


def _snapshots(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield findings for tasks that only snapshots have, and for snapshots that are ahead of all hosts."""
    expected = {task_name(sub, number) for sub, tasks in fleet.expected.items() for number in range(tasks.count)}
    for task, copies in fleet.snapshots.items():
        if task == GLOBAL:
            continue
        if task not in fleet.tasks and task not in expected and (fleet.facts is None or fleet.unread):
            text = f"only {_holders(copies)} contains {task}{_limit(fleet, copies)}"
            yield FleetFinding(of.SNAPSHOT_NOT_KNOWN, text, task=task)
        for stored in copies:
            lead = fleet.lead(stored)
            if lead is not None and lead > 0:
                hosts = tuple(fleet.tasks[task])
                text = (
                    f"{task}/{stored.copy.store}: snapshot {stored.snapshot} in {stored.repository} is {lead:,} "
                    "offsets "
                    f"ahead of {some(list(hosts), _MOST_NAMES)}"
                )
                yield FleetFinding(of.SNAPSHOT_AHEAD, text, task, stored.copy.store, hosts)


def _stores(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield a finding for each store that is missing in a task although another task of its sub-topology has it."""
    unread = {report.name for report in fleet.unread}
    usual = _usual_stores(fleet)
    for task, hosts in fleet.tasks.items():
        for host, copies in hosts.items():
            # The listing of this host is incomplete, so the store may just be missing in the listing.
            if host in unread:
                continue
            here = {copy.store for copy in copies if copy.has_directory}
            # All tasks of a sub-topology have the same processors, and so the same stores.
            for store, (other, where) in usual[sub_topology(copies[0].id)].items():
                if store not in here:
                    text = f"{task} on {host} does not have {store}, but {other} on {where} has it"
                    yield FleetFinding(of.STORE_MISSING, text, task=task, store=store, hosts=(host,))


def _usual_stores(fleet: Fleet) -> dict[SubTopology | None, dict[str, tuple[str, str]]]:
    """Return, by sub-topology, the stores that have a directory in any task, with that task and its host.

    Segmented stores are not included, because they may have no directory before their first segment. Other stores have
    one from their first start on.
    """
    stores: dict[SubTopology | None, dict[str, tuple[str, str]]] = defaultdict(dict)
    for task, hosts in fleet.tasks.items():
        for host, copies in hosts.items():
            for copy in copies:
                if copy.has_directory and not copy.segmented:
                    stores[sub_topology(copy.id)].setdefault(copy.store, (task, host))
    return stores


def _globals(fleet: Fleet) -> Iterator[FleetFinding]:
    having = fleet.tasks.get(GLOBAL, {})
    for report in fleet.reports:
        # Without any host that has them, the application has no global stores, as far as listings show.
        if having and report.name not in having and report.whole:
            text = f"{report.name} has no global stores, but other hosts have them: {some(list(having), _MOST_NAMES)}"
            yield FleetFinding(of.GLOBAL_MISSING, text, task=GLOBAL, hosts=(report.name,))


def _alike(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield a finding for each store that has different kinds, changelogs or releases on different hosts."""
    kinds, topics, releases = _Agreement(), _Agreement(), _Agreement()
    for report in fleet.reports:
        for copy in report.copies:
            place = (report.name, copy.task)
            name = copy.store
            if copy.id.topology:
                # Stores with the same name in two named topologies are different stores.
                name = f"{copy.id.topology}/{copy.store}"
            if copy.kind_certain and copy.has_directory:
                kinds.add(name, copy.kind, place)
            # A global store has no changelog: its offsets are those of the topic that it reads.
            if copy.offsets and not copy.id.is_global:
                topics.add(name, some(sorted({key.topic for key in copy.offsets}), _MOST_NAMES), place)
            # An offset without a directory may be of an older release. So only offsets of existing stores show the last
            # release.
            if copy.has_directory and copy.offsets_in in _OFFSET_PLACES:
                releases.add(name, _OFFSET_PLACES[copy.offsets_in], place)
    yield from kinds.findings(of.KINDS_DIFFER, "has different kinds")
    yield from topics.findings(of.CHANGELOGS_DIFFER, "has different changelogs")
    yield from releases.findings(
        of.RELEASES_DIFFER, "has its offsets in different places, so different releases wrote it"
    )
    yield from _no_common_release(fleet)


def _no_common_release(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield a finding if no release opens all stores.

    A store with SSTs of an older release opens in more releases until they are compacted. So stores may differ, and
    only the lack of a common release counts.
    """
    opens: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for report in fleet.reports:
        for copy in report.copies:
            if copy.has_directory and copy.opens_in and report.name not in opens[copy.opens_in]:
                opens[copy.opens_in].append(report.name)
    # Each copy lists the releases that open it. A release must be in all of these lists.
    if opens and not set.intersection(*map(set, opens)):
        parts = [f"{some(releases, 20)} ({some(hosts, 3)})" for releases, hosts in opens.items()]
        hosts = tuple(dict.fromkeys(host for names in opens.values() for host in names))
        text = f"no release can open all stores. Some stores need {'; others need '.join(parts)}"
        yield FleetFinding(of.RELEASES_DIFFER, text, hosts=hosts)


class _Agreement:
    """The values that hosts list for each store, with their places."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(dict)

    def add(self, store: str, value: str, place: tuple[str, str]) -> None:
        """Add the value of one more copy."""
        self._values[store].setdefault(value, []).append(place)

    def findings(self, code: FleetCode, differs: str) -> Iterator[FleetFinding]:
        """Yield a finding for each store with different values."""
        for store, values in self._values.items():
            if len(values) > 1:
                parts = [
                    f"{value} ({some([f'{task} on {host}' for host, task in places], 3)})"
                    for value, places in values.items()
                ]
                hosts = tuple(dict.fromkeys(host for places in values.values() for host, _ in places))
                yield FleetFinding(code, f"{store} {differs}: {'; '.join(parts)}", store=store, hosts=hosts)


def _copies(fleet: Fleet) -> Iterator[FleetFinding]:
    """Yield findings for copies that were not closed cleanly, or whose offset is outside of its log."""
    for report in fleet.reports:
        for copy in report.copies:
            where = f"{report.name}: {copy.task}/{copy.store}"
            if copy.unclean:
                text = f"{where} was not closed cleanly"
                yield FleetFinding(of.COPY_UNCLEAN, text, copy.task, copy.store, (report.name,))
            for key in fleet.standing(copy).outside:
                # ``outside`` has only partitions of which both the log and an offset of the copy are known.
                fact = (fleet.facts or {})[key]
                offset = (copy.offsets or {})[key]
                text = (
                    f"{where}: its offset in {key} is {offset}, but the log contains offsets from {fact.start} to "
                    f"{fact.end}"
                )
                yield FleetFinding(of.OFFSET_OUTSIDE_LOG, text, copy.task, copy.store, (report.name,))


def _members(fleet: Fleet) -> Iterator[FleetFinding]:
    if fleet.group is None or not any(report.process_id for report in fleet.reports):
        return
    hosts = {fleet.host_of(member) for member in fleet.group.members}
    if hosts == {None}:
        # Clients have a custom client.id: none of them names the process id of a directory.
        return
    for member in fleet.group.members:
        if fleet.host_of(member) is None:
            text = f"{member.client} at {member.host} uses a directory that is not in the listings"
            yield FleetFinding(of.MEMBER_WITHOUT_HOST, text)
