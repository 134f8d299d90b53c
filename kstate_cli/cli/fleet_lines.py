"""What ``kstate fleet`` prints for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kstate_cli.fleet.expected import task_name
from kstate_cli.fleet.findings import FLEET_CODES, FleetFinding
from kstate_cli.fleet.overview import Fleet
from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kstate_cli.cli.json_lines import JsonLines


def print_fleet(lines: JsonLines, fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """Hosts, tasks, copies of stores, members of the group, findings, and the summary."""
    for report in fleet.reports:
        lines.line(
            "host",
            {
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
            },
        )
    _print_tasks(lines, fleet)
    for member in fleet.group.members if fleet.group is not None else ():
        lines.line(
            "member",
            {
                "member": member.id,
                "client": member.client,
                "address": member.host,
                "instance": member.instance,
                "host": fleet.host_of(member),
                "assigned": _by_topic(member.assigned),
            },
        )
    for one in findings:
        of = FLEET_CODES[one.code]
        lines.line(
            "finding",
            {
                "task": one.task,
                "store": one.store,
                "hosts": list(one.hosts),
                "code": one.code,
                "level": of.level.value,
                "message": one.what,
                "rule": of.rule,
                "hint": of.hint,
            },
        )
    levels = [one.level.value for one in findings]
    lines.summary(
        {
            "applications": sorted({one.app_id for one in fleet.reports if one.app_id is not None}),
            "hosts": [one.name for one in fleet.reports],
            "tasks": len(fleet.tasks),
            "stores": sum(len(one.copies) for one in fleet.reports),
            "bytes": sum(one.size for one in fleet.reports),
            "complete": not fleet.unread,
            "logs_known": fleet.facts is not None,
            "standby_replicas": fleet.standby_replicas,
            "group_state": None if fleet.group is None else fleet.group.state,
            "group_protocol": None if fleet.group is None else fleet.group.protocol,
            "group_why": None if fleet.group is None else fleet.group.why,
            "errors": levels.count("error"),
            "warnings": levels.count("warning"),
            "not_known": levels.count("unknown"),
        }
    )


def _print_tasks(lines: JsonLines, fleet: Fleet) -> None:
    known = {task_name(sub, n): one.known_from.value for sub, one in fleet.expected.items() for n in range(one.count)}
    for task, hosts in fleet.tasks.items():
        lines.line(
            "task",
            {
                "task": task,
                "hosts": list(hosts),
                "active": fleet.active.get(task),
                "known_from": known.get(task),
            },
        )
        for host, copies in hosts.items():
            for copy in copies:
                standing = fleet.standing(copy)
                members: dict[str, Any] = {
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
                lines.line("copy", members)
    for task in sorted(known.keys() - fleet.tasks.keys()):
        lines.line("task", {"task": task, "hosts": [], "active": None, "known_from": known[task]})


def _offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> dict[str, dict[str, int]]:
    said: dict[str, dict[str, int]] = {}
    for key, offset in offsets:
        said.setdefault(key.topic, {})[str(key.partition)] = offset
    return said


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    said: dict[str, list[int]] = {}
    for key in sorted(partitions):
        said.setdefault(key.topic, []).append(key.partition)
    return said
