"""What ``kstate fleet`` prints: tables of hosts, tasks and stores for people, lines of JSON for programs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import print_line, print_prose, safe, table
from kstate_cli.fleet.findings import FleetCode, FleetFinding, FleetLevel
from kstate_cli.fleet.model import CountSource, Fleet, HostReport, StoreCopy, task_name
from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from kstate_cli.texts import first_lines, plural, size_text, some

if TYPE_CHECKING:
    from kstate_cli.broker.client import GroupMember
    from kstate_cli.cli.lines.outlook import (
        FleetCopyLine,
        FleetLine,
        FleetSnapshotLine,
        FleetSummaryLine,
        FleetTaskLine,
    )

_MAX_LISTED: Final = 5
_INDENT: Final = "  "
_STYLES: Final = {FleetLevel.ERROR: "bold red", FleetLevel.WARNING: "yellow", FleetLevel.UNKNOWN: "magenta"}
UNKNOWN: Final = "?"


def show_hosts(fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """Print a row for each host."""
    # A finding counts once for a host, even if it names the host for several tasks.
    wrong = Counter(host for finding in findings for host in set(finding.hosts))
    table(
        None,
        (
            Column("host"),
            Column("tasks", right=True),
            Column("stores", right=True),
            Column("size", right=True, spare=2),
            Column("lag", right=True),
            Column("behind", right=True, spare=1),
            Column("findings", right=True),
            Column("state"),
        ),
        [
            (
                report.name,
                len(report.tasks),
                len(report.copies),
                size_text(report.size),
                number(host_lag(fleet, report)),
                number(host_behind(fleet, report)),
                wrong[report.name] or "-",
                state_of(report),
            )
            for report in fleet.reports
        ]
        + [
            (
                repository.name,
                len({stored.copy.task for stored in repository.copies}),
                len(repository.copies),
                size_text(sum(copy.size for copy in repository.stores)),
                number(fleet.task_lag(repository.stores)),
                number(fleet.task_behind(repository.stores)),
                "-",
                "snapshots",
            )
            for repository in fleet.repositories
        ],
    )


def show_tasks(fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """Print a row for each task, including tasks without a host."""
    # Tasks that should exist but are on no host get rows too.
    absent = [finding.task for finding in findings if finding.task is not None and finding.task not in fleet.tasks]
    rows: list[tuple[object, ...]] = [_task_row(fleet, task) for task in fleet.tasks]
    rows += [(task, 0, UNKNOWN, UNKNOWN, "-", _stored_in(fleet, task) or "-") for task in dict.fromkeys(absent)]
    table(
        None,
        (
            Column("task"),
            Column("hosts", right=True),
            Column("lag", right=True),
            Column("behind", right=True, spare=1),
            Column("size", right=True, spare=2),
            Column("which", fold=Fold.WORDS),
        ),
        rows,
    )


def _stored_in(fleet: Fleet, task: str) -> str:
    """Return the repositories that have a task, in brackets: they are no hosts."""
    places = {stored.repository for stored in fleet.snapshots.get(task, ())}
    return ", ".join(f"({repository.name})" for repository in fleet.repositories if repository.place in places)


def _task_row(fleet: Fleet, task: str) -> tuple[object, ...]:
    """Return the cells of a task: the lag of its best copy, the distance of its worst, the hosts (* is active)."""
    hosts = fleet.tasks[task]
    # The lag is that of the best copy, which decides how long a failover takes. The distance is that of the worst one.
    lags = [lag for copies in hosts.values() if (lag := fleet.task_lag(copies)) is not None]
    behind = [records for copies in hosts.values() if (records := fleet.task_behind(copies)) is not None]
    # Only a broker knows which copy is active: on disk an active task and a standby look alike.
    active = fleet.active.get(task)
    names = [f"{name}*" if name == active else name for name in hosts]
    names += filter(None, [_stored_in(fleet, task)])
    size = sum(copy.size for copies in hosts.values() for copy in copies)
    return (
        task,
        len(hosts),
        number(min(lags, default=None)),
        number(max(behind, default=None)),
        size_text(size),
        ", ".join(names),
    )


def show_stores(fleet: Fleet, _: Sequence[FleetFinding]) -> None:
    """Print a row for each store of a task on a host."""
    rows = [
        _store_row(fleet, copy, host)
        for hosts in fleet.tasks.values()
        for host, copies in hosts.items()
        for copy in copies
    ]
    rows += [
        _store_row(fleet, copy, repository.name) for repository in fleet.repositories for copy in repository.stores
    ]
    table(
        None,
        (
            Column("task"),
            Column("store"),
            Column("host"),
            Column("offset", right=True),
            Column("lag", right=True),
            Column("behind", right=True, spare=1),
            Column("size", right=True, spare=2),
        ),
        rows,
    )


def _store_row(fleet: Fleet, copy: StoreCopy, place: str) -> tuple[object, ...]:
    standing = fleet.standing(copy)
    offsets = UNKNOWN
    if copy.offsets is not None:
        offsets = some(list(map(str, copy.offsets.values())), 3) or "-"
    return (
        copy.task,
        copy.store,
        place,
        offsets,
        number(standing.lag),
        number(standing.behind),
        size_text(copy.size),
    )


def totals(fleet: Fleet) -> str:
    """Return the totals, and the source of the number of tasks."""
    # Every host has the global stores: they are no task that could be missing.
    tasks = [task for task in fleet.tasks if task != GLOBAL]
    sources = {expectation.source for expectation in fleet.expected.values()}
    # How many there are: from the logs, the specification, or the highest task that a host has.
    should = sum(expectation.count for expectation in fleet.expected.values())
    limit = "; tasks with higher numbers may exist" if CountSource.TASKS in sources else ""
    size = size_text(sum(report.size for report in fleet.reports))
    ends = "" if fleet.facts is not None else "; log ends unknown"
    stores = " and global stores" if GLOBAL in fleet.tasks else ""
    return (
        f"{plural(len(fleet.reports), 'host')}, {len(tasks)} of {plural(should, 'task')}{stores}, {size}{limit}{ends}"
    )


def show_totals(fleet: Fleet, verdict: str) -> None:
    """Print the totals and the verdict."""
    print_prose(totals(fleet), hanging=_INDENT)
    print_prose(verdict)


def name_findings(findings: Sequence[FleetFinding]) -> None:
    """Print a line for each finding: with ``--quiet``."""
    for finding in findings:
        code = finding.code
        print_prose(f"{code.level.value}: {code.name}: {finding.text}", _STYLES[code.level])


def show_findings(findings: Sequence[FleetFinding]) -> None:
    """Print the findings, each code once."""
    # Grouped by code, so that rule and hint are printed once.
    groups: dict[FleetCode, list[FleetFinding]] = defaultdict(list)
    for finding in findings:
        groups[finding.code].append(finding)
    for code, alike in groups.items():
        count = ""
        if len(alike) > 1:
            count = f" ({len(alike)})"
        print_line("")
        print_prose(f"{code.level.value}: {code.name}{count}", _STYLES[code.level])
        for text in first_lines([finding.text for finding in alike], _MAX_LISTED):
            print_prose(text, indent=_INDENT)
        print_prose(f"rule: {code.rule}", indent=_INDENT)
        print_prose(f"what to do: {code.hint}{':' if code.command else ''}", indent=_INDENT)
        if code.command:
            # The command has its own line and is never folded, so that it can be pasted.
            print_line(safe(f"{_INDENT}{_INDENT}{code.command}"), "bold")


def number(value: int | None) -> str:
    """Return the number for people; a question mark for None."""
    if value is None:
        return UNKNOWN
    return f"{value:,}"


def host_lag(fleet: Fleet, report: HostReport) -> int | None:
    """Return the lag of all stores of a host behind the logs."""
    return fleet.task_lag(report.copies)


def host_behind(fleet: Fleet, report: HostReport) -> int | None:
    """Return the distance of all stores of a host to the leading copies."""
    return fleet.task_behind(report.copies)


def state_of(report: HostReport) -> str:
    """Return the state of a host in a word or two."""
    # A listing that was cut, as of a host that lost its connection.
    if not report.whole:
        return "incomplete" if report.copies else "unknown"
    return {True: "running", False: "stopped", None: "may be running"}[report.running]


def fleet_lines(fleet: Fleet, findings: Sequence[FleetFinding]) -> Iterator[FleetLine]:
    """Yield hosts, tasks, copies of stores, group members, findings and the summary."""
    for report in fleet.reports:
        yield {
            "type": "host",
            "host": report.name,
            "source": report.source,
            "application": report.app_id,
            "directory": report.app,
            "hostname": report.hostname,
            "process_id": report.process_id,
            "running": report.running,
            "tasks": len(report.tasks),
            "stores": len(report.copies),
            "bytes": report.size,
            "lag": fleet.task_lag(report.copies),
            "behind_front": fleet.task_behind(report.copies),
            "complete": report.whole,
            "messages": [gap.why if gap.line is None else f"line {gap.line}: {gap.why}" for gap in report.gaps],
        }
    for repository in fleet.repositories:
        yield {
            "type": "repository",
            "path": repository.place,
            "snapshots": list(repository.snapshots),
            "tasks": len({stored.copy.task for stored in repository.copies}),
            "stores": len(repository.copies),
            "bytes": sum(copy.size for copy in repository.stores),
            "messages": list(repository.messages),
        }
    yield from _task_lines(fleet)
    yield from _snapshot_lines(fleet)
    members: Iterable[GroupMember] = ()
    if fleet.group is not None:
        members = fleet.group.members
    for member in members:
        yield {
            "type": "member",
            "member": member.id,
            "client": member.client,
            "address": member.host,
            "instance": member.instance,
            "host": fleet.host_of(member),
            "assigned": _by_topic(member.assigned),
        }
    for finding in findings:
        yield {
            "type": "finding",
            "task": finding.task,
            "store": finding.store,
            "hosts": list(finding.hosts),
            "code": finding.code.name,
            "level": finding.level.value,
            "message": finding.text,
            "rule": finding.code.rule,
            "hint": finding.code.instruction,
        }
    yield _summary_line(fleet, findings)


def _summary_line(fleet: Fleet, findings: Sequence[FleetFinding]) -> FleetSummaryLine:
    levels = [finding.level.value for finding in findings]
    return {
        "type": "summary",
        "applications": sorted({report.app_id for report in fleet.reports if report.app_id is not None}),
        "hosts": [report.name for report in fleet.reports],
        "tasks": len(fleet.tasks),
        "stores": sum(len(report.copies) for report in fleet.reports),
        "bytes": sum(report.size for report in fleet.reports),
        "complete": not fleet.unread,
        "logs_known": fleet.facts is not None,
        "standby_replicas": fleet.standby_replicas,
        "group_state": getattr(fleet.group, "state", None),
        "group_protocol": getattr(fleet.group, "protocol", None),
        "group_why": getattr(fleet.group, "why", None),
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
        "not_known": levels.count("unknown"),
    }


def _task_lines(fleet: Fleet) -> Iterator[FleetTaskLine | FleetCopyLine]:
    """Yield a line for each task, followed by its copies."""
    sources = {
        task_name(sub, n): expectation.source.value
        for sub, expectation in fleet.expected.items()
        for n in range(expectation.count)
    }
    for task, hosts in fleet.tasks.items():
        yield {
            "type": "task",
            "task": task,
            "hosts": list(hosts),
            "active": fleet.active.get(task),
            "known_from": sources.get(task),
            "best_copy": fleet.best_copy(task),
        }
        for host, copies in hosts.items():
            for copy in copies:
                standing = fleet.standing(copy)
                yield {
                    "type": "copy",
                    "task": task,
                    "store": copy.store,
                    "host": host,
                    "kind": copy.kind,
                    "bytes": copy.size,
                    "changelog": None if copy.offsets is None else _offsets(copy.offsets.items()),
                    "lag": standing.lag,
                    "behind_front": standing.behind,
                    "opens_in": list(copy.opens_in),
                }
    # Tasks that should exist but are on no host come last, since no line of a copy follows them.
    for task in sorted(sources.keys() - fleet.tasks.keys()):
        yield {
            "type": "task",
            "task": task,
            "hosts": [],
            "active": None,
            "known_from": sources[task],
            "best_copy": fleet.best_copy(task),
        }


def _snapshot_lines(fleet: Fleet) -> Iterator[FleetSnapshotLine]:
    for repository in fleet.repositories:
        for stored in repository.copies:
            standing = fleet.standing(stored.copy)
            yield {
                "type": "snapshot",
                "task": stored.copy.task,
                "store": stored.copy.store,
                "path": stored.repository,
                "snapshot": stored.snapshot,
                "kind": stored.copy.kind,
                "bytes": stored.copy.size,
                "changelog": _offsets((stored.copy.offsets or {}).items()),
                "lag": standing.lag,
                "behind_front": standing.behind,
                "usable": stored.why_not is None and not stored.is_too_old,
                "message": stored.why_not,
            }


def _offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> dict[str, dict[int, int]]:
    offsets_by_topic: dict[str, dict[int, int]] = {}
    for key, offset in offsets:
        offsets_by_topic.setdefault(key.topic, {})[key.partition] = offset
    return offsets_by_topic


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    offsets_by_topic: dict[str, list[int]] = {}
    for key in sorted(partitions):
        offsets_by_topic.setdefault(key.topic, []).append(key.partition)
    return offsets_by_topic
