"""Read listings: the output of ``kstate ls -o json`` on one host, or on several, one after another.

A listing ends with its ``summary``, which contains the number of its stores. If lines of two hosts are mixed in one
stream, the first of their summaries is wrong, and both hosts count as incomplete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import ConditionNotMet, UsageError
from kstate_cli.fleet.model import Gap, HostReport, ListedProblem, StoreCopy, sub_topology, task_name
from kstate_cli.formats.binary import MAX_I64, MalformedBytesError, parse_json
from kstate_cli.formats.topic_partition import MOST_PARTITIONS, TaskId, TopicPartition, parse_partition
from kstate_cli.regular_files import read_at_most, read_given
from kstate_cli.texts import command, first_lines, plural, size_text

SCHEMA_VERSION: Final = 2
"""The version of the lines that this module reads: docs/json.md."""
STREAM: Final = "-"
"""Stands for standard input, with the listings of several hosts."""
MOST_BYTES: Final = 512 << 20
"""Bytes of one file; 100 hosts of 50 tasks and 4 stores have 15 MiB."""
_LONGEST: Final = 300
"""Characters of a name."""
_SOURCE: Final = "ls -o json"
_ENDS_WITH_SUMMARY: Final = ConditionNotMet.code
"""The code of the only error that follows a summary."""


def read_listings(arguments: Iterable[str]) -> list[HostReport]:
    """Return the report of each host in files (``FILE``, ``HOST=FILE``) and on standard input (``-``).

    The name of a host is ``HOST``, or that in a line ``{"host": "NAME"}``, or the name of the file. On standard input
    the summary of a listing has the host. A line that cannot be read is a gap in the report of its host. Raises
    UsageError for two hosts with the same name, and if no file can be opened.
    """
    reports: list[HostReport] = []
    closed: list[str] = []
    for argument in arguments:
        name, source = _host_and_file(argument)
        try:
            # The file is read as a whole: a FIFO, such as <(ssh host kstate ls …), can be read only once.
            data = _stream() if source == STREAM else read_given(source, MOST_BYTES)
        except OSError as error:
            why = error.strerror or str(error)
            closed.append(_closed_text(source, error))
            reports.append(HostReport(name or _stem(source), source, 1, gaps=[Gap(None, why)]))
            continue
        reports += _hosts(name, source, data)
    # A host that cannot be read is a gap. But if all of them are unreadable, there is nothing to judge.
    if len(closed) == len(reports):
        raise UsageError(
            "kstate cannot read any of the listings",
            details=first_lines(closed),
            hint="pass each host's listing or a snapshot repository. To create a listing:",
            hint_details=[command("ls", "APP", "-o", "json")],
        )
    # Findings identify a host by its name. Two reports with the same name would count as one host.
    by_name: dict[str, HostReport] = {}
    for report in reports:
        other = by_name.setdefault(report.name, report)
        if other is not report:
            raise UsageError(
                f"two hosts have the name {report.name!r}: {_where(other)} and {_where(report)}",
                hint='pass HOST=FILE. In a stream, print a line {"host": "NAME"} before each listing',
            )
    return reports


def _closed_text(source: str, error: OSError) -> str:
    """Return the reason why a listing cannot be opened, with its path."""
    if isinstance(error, FileNotFoundError):
        return f"{source} does not exist"
    if isinstance(error, IsADirectoryError):
        return f"{source} is a folder, but not a snapshot repository"
    return f"{source}: {error.strerror or error}"


def _where(report: HostReport) -> str:
    return f"{report.source}, line {report.line}"


def _host_and_file(argument: str) -> tuple[str | None, str]:
    """Return the host and the file of ``HOST=FILE``; no host for ``FILE``, whose name may have an equals sign."""
    name, equals, source = argument.partition("=")
    # A slash before the equals sign is part of a path, and no host has one in its name.
    if not equals or "/" in name or os.path.lexists(argument):
        return None, argument
    if not name or not source:
        raise UsageError(
            f"{argument!r} is not HOST=FILE", hint=("pass a host and its file, such as web-1=/tmp/web-1.json")
        )
    return name, source


def _stem(source: str) -> str:
    return Path(source).name.removesuffix(".json") or source


def _hosts(name: str | None, source: str, data: bytes) -> list[HostReport]:
    stem = None
    if source != STREAM:
        stem = _stem(source)
    reader = _ListingReader(source, name, stem)
    # Only a line feed ends a line of JSON. splitlines of bytes also cuts at a carriage return.
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            reader.line(number, line)
    return reader.end()


def _stream() -> bytes:
    data = read_at_most(sys.stdin.buffer, MOST_BYTES)
    # One byte more was requested, which shows that there is more than the limit.
    if len(data) > MOST_BYTES:
        raise UsageError(f"standard input is larger than {size_text(MOST_BYTES)}, the limit for listings")
    return data


class _ListingReader:
    """Splits the lines of a file into listings, each of one host."""

    def __init__(self, source: str, name: str | None, stem: str | None) -> None:
        self._source, self._name, self._stem = source, name, stem
        self._reports: list[HostReport] = []
        self._now: HostReport | None = None
        self._labelled: str | None = None
        self._ended = False
        self._stores_of_section: set[tuple[str, str]] = set()
        self._sections = 0

    def line(self, number: int, data: bytes) -> None:
        """Add one line of a listing, which is not empty, to the report of its host."""
        try:
            row = parse_json(data)
        except MalformedBytesError as error:
            self._gap(number, f"the line is not JSON: {error}")
            return
        if not isinstance(row, dict):
            self._gap(number, "the line is not a JSON object")
        elif "type" not in row and isinstance(row.get("host"), str):
            self._label(number, row["host"])
        # In another version the same members may have another meaning, so nothing of this line is used.
        elif row.get("schema_version") != SCHEMA_VERSION:
            self._gap(number, f"the line has schema_version {str(row.get('schema_version'))[:20]}, but this version of "
                              f"kstate reads only {SCHEMA_VERSION}")  # fmt: skip
        else:
            self._typed(number, row)

    def end(self) -> list[HostReport]:
        """Return the hosts, after the last line."""
        self._close()
        if not self._reports:
            self._section(1)
            self._gap(1, "the listing is empty")
            self._close()
        return self._reports

    def _typed(self, number: int, row: dict[str, Any]) -> None:
        """Add a line of ``ls -o json`` to the report of its host; a malformed line becomes a gap."""
        kind = row.get("type")
        # A line after a summary belongs to the next host, except for the error with which ``ls -o json`` may end.
        if (self._ended and not (kind == "error" and row.get("code") == _ENDS_WITH_SUMMARY)) or self._only_noise():
            self._close()
        report = self._section(number)
        try:
            # Checked before the line is used: if the lines of two hosts are mixed, no store must be assigned to the
            # wrong host.
            self._same_app(report, row.get("app"))
            if kind == "store":
                self._store(report, row)
            elif kind == "problem":
                report.problems.append(_problem(row))
            elif kind == "summary":
                self._summary(report, row)
            elif kind == "error":
                self._error(report, number, row)
            else:
                raise MalformedBytesError(f"the line has type {str(kind)[:40]!r}, which {_SOURCE} does not print")
        except MalformedBytesError as error:
            report.gaps.append(Gap(number, str(error)))

    def _only_noise(self) -> bool:
        """Return True if a stream contains nothing but unreadable lines so far: their host is unknown."""
        now = self._now
        return self._stem is None and now is not None and not now.name and bool(now.gaps) and now.app is None

    def _label(self, number: int, host: str) -> None:
        self._close()
        if not 0 < len(host) <= _LONGEST:
            self._gap(number, f"the host name in the line is empty or longer than {_LONGEST} characters")
            return
        self._labelled = host
        self._section(number)

    def _section(self, number: int) -> HostReport:
        if self._now is None:
            self._sections += 1
            name = self._labelled
            if name is None and self._sections == 1:
                # HOST=FILE and the name of the file hold for the first listing in it only.
                name = self._name or self._stem
            self._now = HostReport(name or "", self._source, number)
            self._ended, self._stores_of_section = False, set()
        return self._now

    def _close(self) -> None:
        report = self._now
        if report is None:
            return
        # A gap explains the missing summary better.
        if not self._ended and not report.gaps:
            report.gaps.append(
                Gap(None, f"the listing has no summary line, so it was truncated, or {_SOURCE} exited early")
            )
        if not report.name:
            report.name = report.hostname or f"{self._source}:{report.line}"
        self._reports.append(report)
        self._now, self._labelled, self._ended = None, None, False

    def _gap(self, number: int, why: str) -> None:
        if self._ended:
            # Between two listings: the line belongs to neither.
            self._close()
        self._section(number).gaps.append(Gap(number, why))

    def _same_app(self, report: HostReport, app: object) -> None:
        if isinstance(app, str) and app:
            if report.app is not None and report.app != app:
                raise MalformedBytesError(
                    f"the listing contains lines of two directories ({report.app} and {app}) without a summary line "
                    "between them"
                )
            report.app = app

    def _store(self, report: HostReport, row: Mapping[str, Any]) -> None:
        copy = _copy(row)
        # Each listing has a store once, so the second one is of another host.
        if (copy.task, copy.store) in self._stores_of_section:
            raise MalformedBytesError(
                f"{copy.task}/{copy.store} occurs twice, so the listing contains lines of two hosts without a summary "
                "line between them"
            )
        self._stores_of_section.add((copy.task, copy.store))
        report.copies.append(copy)

    def _summary(self, report: HostReport, row: Mapping[str, Any]) -> None:
        """Take over the last line of a host's listing, and compare its totals with the lines before it."""
        self._ended = True
        stores, size = _number(row, "stores"), _number(row, "bytes")
        report.running = _flag(row, "running")
        if "host" in row:
            report.hostname = _text(row, "host")
        # Releases of kstate before this member omit it; null means that the host has no process id.
        report.tells_process_id = "process_id" in row
        report.process_id = None
        if row.get("process_id") is not None:
            report.process_id = _text(row, "process_id")
        # If a line could not be read (a gap), the totals differ anyway, and the gap is the better message.
        if not report.gaps and (stores, size) != (len(report.copies), report.size):
            raise MalformedBytesError(
                f"the summary counts {plural(stores, 'store')} and {size_text(size)}, but the lines before it contain "
                f"{plural(len(report.copies), 'store')} and {size_text(report.size)}"
            )

    def _error(self, report: HostReport, number: int, row: Mapping[str, Any]) -> None:
        """Read an error: the end of a failed listing, or the answer of a complete one, which lists its problems."""
        # Any other error comes in place of the summary: what follows in the stream is another host.
        if row.get("code") != _ENDS_WITH_SUMMARY or not self._ended:
            report.gaps.append(Gap(number, f"{_SOURCE} failed on this host: {_text(row, 'message')}"))
            self._ended = True
        elif not report.problems:
            report.problems.append(ListedProblem(_text(row, "code"), None, ".", _text(row, "message")))


def _copy(row: Mapping[str, Any]) -> StoreCopy:
    """Return the copy of a store that a line describes. Raise MalformedBytesError."""
    task = _text(row, "task")
    try:
        of = TaskId.parse(task)
    except ValueError as error:
        raise MalformedBytesError(str(error)) from None
    sub = sub_topology(of)
    if sub is not None and (
        # The name is formatted again and compared: for Streams, 00_1 and 0_1 are the same task, but here they would be
        # two.
        of.partition is None or of.partition >= MOST_PARTITIONS or task_name(sub, of.partition) != task
    ):
        raise MalformedBytesError(f"{task[:40]!r} is not the name of a Kafka Streams task, such as 0_1")
    offsets = None
    if row.get("changelog") is not None:
        offsets = _offsets(row["changelog"])
    inputs: dict[TopicPartition, int] = {}
    # The Position of a global store names its topic, which is not assigned to a member of the group.
    if row.get("position") is not None and not of.is_global:
        inputs = _offsets(row["position"])
    unclean = row.get("unclean")
    running = _flag(row, "running")
    return StoreCopy(
        task=task,
        store=_text(row, "store"),
        kind=_text(row, "kind"),
        kind_certain=_flag(row, "kind_certain") is True,
        # A store with a database has column families. A store that kstate cannot read has at least bytes.
        has_directory=bool(row.get("column_families")) or bool(_number(row, "bytes")),
        segmented=row.get("segments") is not None,
        size=_number(row, "bytes"),
        offsets=offsets,
        inputs=frozenset(inputs),
        opens_in=_texts(row, "opens_in"),
        offsets_in=_text(row, "offsets_in"),
        # While the application is running, every store is open and so not clean. If it is unknown whether it is
        # running, nothing is reported.
        unclean=bool(unclean) and running is False,
    )


def _problem(row: Mapping[str, Any]) -> ListedProblem:
    code, task = _text(row, "code"), None
    if row.get("task") is not None:
        task = _text(row, "task")
    return ListedProblem(code, task, _text(row, "path"), _text(row, "message"))


def _offsets(row: object) -> dict[TopicPartition, int]:
    """Return the offsets in a member ``{topic: {partition: offset}}``. Raise MalformedBytesError."""
    if not isinstance(row, dict):
        raise MalformedBytesError("the offsets in the line are not grouped by topic and partition")
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in row.items():
        if not isinstance(partitions, dict):
            raise MalformedBytesError("the offsets in the line are not grouped by topic and partition")
        for partition, offset in partitions.items():
            # In Python a bool is an int, and JSON may have numbers of any size.
            if isinstance(offset, bool) or not isinstance(offset, int) or abs(offset) > MAX_I64:
                raise MalformedBytesError(f"{str(offset)[:40]} is not an offset")
            offsets[TopicPartition(topic, parse_partition(partition))] = offset
    return offsets


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or (not value and name != "message") or (name != "message" and len(value) > 4096):
        raise MalformedBytesError(f"{_SOURCE} prints {name} as a string, but this line does not contain one")
    return value


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = row.get(name)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MalformedBytesError(f"{_SOURCE} prints {name} as a list of strings, but this line does not contain one")
    return tuple(value)


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_I64:
        raise MalformedBytesError(f"{_SOURCE} prints {name} as a number, but this line does not contain one")
    return value


def _flag(row: Mapping[str, Any], name: str) -> bool | None:
    value = row.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedBytesError(
            f"{_SOURCE} prints {name} as true, false or null, but this line has a different value"
        )
    return value
