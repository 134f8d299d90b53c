"""The output of ``kstate fleet -o json``, read again: which host has which task, for a restoration of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli import option
from kstate_cli.errors import Refused, UsageError
from kstate_cli.fleet.listing import MOST_BYTES, SCHEMA_VERSION
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.regular_files import read_given
from kstate_cli.texts import command, did_you_mean, hint_with_suggestion, some

_MOST_NAMES: Final = 5
_MAKE: Final = f"create it with {command('fleet', 'HOST.json', '-o', 'json')}"


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
    """Read a file with the output of ``fleet -o json``, for a restoration of what no host has.

    Raises UsageError if it is unreadable, Refused for a line of another form and for a file that is truncated. A host
    whose listing is incomplete is kept: ``held_elsewhere`` and ``had_before`` decide about it.
    """
    try:
        data = read_given(path, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"kstate cannot read {path}: {error.strerror or error}", hint=_MAKE) from None
    hosts: dict[str, bool] = {}
    tasks: dict[str, frozenset[str]] = {}
    summary: Mapping[str, Any] | None = None
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = _row(line)
            # Lines after a summary are those of a second output, whose own end may be missing.
            if summary is not None and row["type"] in ("host", "task", "summary"):
                raise ValueError("a line after the summary")
            if row["type"] == "host":
                hosts[_string(row["host"])] = row["complete"] is True
            elif row["type"] == "task":
                task = _string(row["task"])
                TaskId.parse(task)
                tasks[task] = frozenset(map(_string, row["hosts"]))
            elif row["type"] == "summary":
                summary = row
                applications = frozenset(map(_string, row["applications"]))
        except (ValueError, KeyError, TypeError, MalformedBytesError):
            raise Refused(
                f"line {number} of {path} is not a line from `kstate fleet -o json`", where=str(path), hint=_MAKE
            ) from None
    # The summary follows all tasks. Without it, any number of them may be missing. Then a host would restore tasks that
    # another host has.
    if summary is None:
        raise Refused(f"{path} has no summary line, so it was truncated", where=str(path), hint=_MAKE)
    return FleetListing(path, applications, hosts, tasks)


def held_elsewhere(fleet: FleetListing, application: str, host: str | None) -> frozenset[str]:
    """Return the tasks that hosts other than ``host`` have.

    Raises Refused if the listing of one of these is incomplete.
    """
    _of(fleet, application)
    # ``host`` has lost its directory, so its old listing does not matter.
    unread = sorted(name for name, whole in fleet.hosts.items() if not whole and name != host)
    if unread:
        raise Refused(
            (
                f"the listing of {some(unread, _MOST_NAMES)} is incomplete, so kstate does not know which tasks are "
                "missing"
            ),
            where=str(fleet.source),
            hint="list the directory again on this host. If the directory is lost, omit this host",
        )
    return frozenset(task for task, hosts in fleet.tasks.items() if hosts - {host})


def had_before(fleet: FleetListing, application: str, host: str) -> frozenset[str]:
    """Return the tasks that a host had.

    Raises UsageError for an unknown host, Refused if its listing was incomplete.
    """
    _of(fleet, application)
    if host not in fleet.hosts:
        suggestion = did_you_mean([host], fleet.hosts)
        raise UsageError(
            f"{fleet.source} does not contain host {host}",
            hint=hint_with_suggestion(
                suggestion, f"the file contains the hosts {some(sorted(fleet.hosts), _MOST_NAMES)}"
            ),
        )
    if not fleet.hosts[host]:
        raise Refused(
            f"kstate does not know which tasks {host} had, because its listing was incomplete",
            where=str(fleet.source),
            hint=f"pass an older listing. Or pass {option.SHARE} to restore a share of the missing tasks",
        )
    return frozenset(task for task, hosts in fleet.tasks.items() if host in hosts)


def _of(fleet: FleetListing, application: str) -> None:
    if fleet.applications != {application}:
        names = some(sorted(fleet.applications), _MOST_NAMES) or "no application"
        raise Refused(
            f"{fleet.source} must contain only {application}, but contains {names}", where=str(fleet.source), hint=_MAKE
        )


def _row(line: bytes) -> Mapping[str, Any]:
    row = parse_json(line)
    if not isinstance(row, dict) or row["schema_version"] != SCHEMA_VERSION:
        raise ValueError("not a line of this format")
    return row


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
