"""The tasks that a host without its directory restores: those that no host has, by ``kstate fleet -o json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import Refused, UsageError
from kstate_cli.fleet.listing import SCHEMA_VERSION
from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.task_id import TaskId
from kstate_cli.regular_files import read_given
from kstate_cli.texts import command, did_you_mean, some

_MOST: Final = 512 << 20
_LISTED: Final = 5
_MAKE: Final = f"make it with {command('fleet', 'HOST.json', '-o', 'json')}"


@dataclass(frozen=True, slots=True)
class FleetListing:
    """The output of ``kstate fleet -o json``, as far as it decides which host has which task."""

    source: Path
    applications: frozenset[str]
    hosts: Mapping[str, bool]
    """Host -> True if its listing was complete."""
    tasks: Mapping[str, frozenset[str]]
    """Task -> the hosts that have it; none for a missing task."""


def read_fleet(path: Path) -> FleetListing:
    """Reads the lines. Raises UsageError for a file that cannot be read, Refused for one that is not whole."""
    try:
        data = read_given(path, _MOST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=_MAKE) from None
    hosts: dict[str, bool] = {}
    tasks: dict[str, frozenset[str]] = {}
    summary: Mapping[str, Any] | None = None
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = _row(line)
            if row["type"] == "host":
                hosts[_text(row["host"])] = row["complete"] is True
            elif row["type"] == "task":
                task = _text(row["task"])
                TaskId.parse(task)
                tasks[task] = frozenset(map(_text, row["hosts"]))
            elif row["type"] == "summary":
                summary = row
                applications = frozenset(map(_text, row["applications"]))
        except (ValueError, KeyError, TypeError, MalformedBytesError):
            raise Refused(
                f"{path}, line {number}: not what fleet -o json prints", where=str(path), hint=_MAKE
            ) from None
    if summary is None:
        raise Refused(f"{path} is cut off: it has no summary", where=str(path), hint=_MAKE)
    return FleetListing(path, applications, hosts, tasks)


def held_elsewhere(fleet: FleetListing, application: str, host: str | None) -> frozenset[str]:
    """The tasks that any other host has. Raises Refused where it is not known of every one of them what it has."""
    _of(fleet, application)
    unread = sorted(name for name, whole in fleet.hosts.items() if not whole and name != host)
    if unread:
        raise Refused(
            f"what {some(unread, _LISTED)} has is not known, so nobody knows what is missing",
            where=str(fleet.source),
            hint="list it again; a host whose directory is lost is left out there",
        )
    return frozenset(task for task, hosts in fleet.tasks.items() if hosts - {host})


def had_before(fleet: FleetListing, application: str, host: str) -> frozenset[str]:
    """The tasks that a host had. Raises UsageError for a host that is not in it, Refused where they are not known."""
    _of(fleet, application)
    if host not in fleet.hosts:
        suggestion = did_you_mean([host], fleet.hosts)
        raise UsageError(
            f"{fleet.source} tells of no host {host}",
            hint=f"{suggestion}hosts: {some(sorted(fleet.hosts), _LISTED)}",
        )
    if not fleet.hosts[host]:
        raise Refused(
            f"what {host} had is not known: its listing was not whole",
            where=str(fleet.source),
            hint="give an older one, or --share of what is missing",
        )
    return frozenset(task for task, hosts in fleet.tasks.items() if host in hosts)


def _of(fleet: FleetListing, application: str) -> None:
    if fleet.applications != {application}:
        names = some(sorted(fleet.applications), _LISTED) or "no application"
        raise Refused(f"it tells of {names}, and not of {application} alone", where=str(fleet.source), hint=_MAKE)


def _row(line: bytes) -> Mapping[str, Any]:
    row = parse_json(line)
    if not isinstance(row, dict) or row["schema_version"] != SCHEMA_VERSION:
        raise ValueError("no line of this format")
    return row


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
