"""Reads what ``kstate ls -o json`` said on one host, or on several, one after another.

A listing ends with its ``summary``, which says how many stores it has told of. Lines of two hosts that got mixed in one
stream make the first of their summaries wrong, and both hosts count as not known.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import UsageError
from kstate_cli.fleet.expected import MOST_PARTITIONS, sub_topology, task_name
from kstate_cli.fleet.model import Gap, HostReport, StoreCopy, ToldProblem
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition, parse_partition
from kstate_cli.regular_files import read_given
from kstate_cli.texts import command, first_lines, size_text

SCHEMA_VERSION: Final = 2
"""Of the lines that are understood: docs/json.md."""
STREAM: Final = "-"
"""Standard input: the listings of several hosts."""
_MOST: Final = 512 << 20
"""Bytes of one file; 100 hosts of 50 tasks and 4 stores have 15 MiB."""
_LONGEST: Final = 300
"""Characters of a name."""
_TELLS: Final = "ls -o json"
_ENDS_WITH_SUMMARY: Final = "condition-not-met"
"""The code of the one error that follows a summary: of a question that was answered with no."""


def read_listings(given: Iterable[str]) -> list[HostReport]:
    """What is said of each host in files (``FILE``, ``HOST=FILE``) and on standard input (``-``).

    A file is of the host that it is called after, unless a line ``{"host": "NAME"}`` in it, or ``HOST=``, says
    otherwise; on standard input the summary says it. What cannot be read is a host with a gap. Raises UsageError for
    two hosts of one name, and where no file can be opened at all.
    """
    reports: list[HostReport] = []
    closed: list[str] = []
    for one in given:
        name, source = _named(one)
        try:
            data = _stream() if source == STREAM else read_given(source, _MOST)
        except OSError as error:
            why = error.strerror or str(error)
            closed.append(f"{source}: {why}")
            reports.append(HostReport(name or _stem(source), source, 1, gaps=[Gap(None, why)]))
            continue
        reports += _hosts(name, source, data)
    if len(closed) == len(reports):
        raise UsageError(
            "no file of any host can be read",
            details=first_lines(closed),
            hint=f"make one on each host: {command('ls', 'APP', '-o', 'json')}",
        )
    seen: dict[str, HostReport] = {}
    for report in reports:
        other = seen.setdefault(report.name, report)
        if other is not report:
            raise UsageError(
                f"two hosts are called {report.name!r}: {_where(other)}, and {_where(report)}",
                hint='say which is which with HOST=FILE, or with a line {"host": "NAME"} before each in a stream',
            )
    return reports


def _where(report: HostReport) -> str:
    return f"{report.source}, line {report.line}"


def _named(given: str) -> tuple[str | None, str]:
    """``HOST=FILE`` and ``FILE``. A file whose own name has an equals sign is taken as it is."""
    name, equals, source = given.partition("=")
    if not equals or "/" in name or os.path.lexists(given):
        return None, given
    if not name or not source:
        raise UsageError(f"{given!r} is not HOST=FILE", hint="for example web-1=/tmp/web-1.json")
    return name, source


def _stem(source: str) -> str:
    return Path(source).name.removesuffix(".json") or source


def _hosts(name: str | None, source: str, data: bytes) -> list[HostReport]:
    reader = _ListingReader(source, name, None if source == STREAM else _stem(source))
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            reader.line(number, line)
    return reader.end()


def _stream() -> bytes:
    data = sys.stdin.buffer.read(_MOST + 1)
    if len(data) > _MOST:
        raise UsageError(f"standard input is larger than the {size_text(_MOST)} that kstate reads")
    return data


class _ListingReader:
    """Takes the lines of a file apart: listings, each of one host."""

    def __init__(self, source: str, name: str | None, stem: str | None) -> None:
        self._source, self._name, self._stem = source, name, stem
        self._reports: list[HostReport] = []
        self._now: HostReport | None = None
        self._labelled: str | None = None
        self._ended = False
        self._seen: set[tuple[str, str]] = set()
        self._sections = 0

    def line(self, number: int, data: bytes) -> None:
        """One line that is not empty."""
        try:
            said = parse_json(data)
        except MalformedBytesError as error:
            self._gap(number, f"not JSON: {error}")
            return
        if not isinstance(said, dict):
            self._gap(number, "not an object of JSON")
        elif "type" not in said and isinstance(said.get("host"), str):
            self._label(number, said["host"])
        elif said.get("schema_version") != SCHEMA_VERSION:
            self._gap(number, f"schema_version {str(said.get('schema_version'))[:20]} is not known here: "
                      f"{SCHEMA_VERSION} is")  # fmt: skip
        else:
            self._typed(number, said)

    def end(self) -> list[HostReport]:
        """The hosts, once all lines were told."""
        self._close()
        if not self._reports:
            self._section(1)
            self._gap(1, "there is nothing in it")
            self._close()
        return self._reports

    def _typed(self, number: int, said: dict[str, Any]) -> None:
        kind = said.get("type")
        if (self._ended and not (kind == "error" and said.get("code") == _ENDS_WITH_SUMMARY)) or self._only_noise():
            self._close()
        report = self._section(number)
        try:
            self._same_app(report, said.get("app"))
            if kind == "store":
                self._store(report, said)
            elif kind == "problem":
                report.problems.append(_problem(said))
            elif kind == "summary":
                self._summary(report, said)
            elif kind == "error":
                self._error(report, number, said)
            else:
                raise MalformedBytesError(f"not a line of {_TELLS}: its type is {str(kind)[:40]!r}")
        except MalformedBytesError as error:
            report.gaps.append(Gap(number, str(error)))

    def _only_noise(self) -> bool:
        """Whether a stream has said nothing yet of a host but what cannot be read: of whom that is nobody can tell."""
        now = self._now
        return self._stem is None and now is not None and not now.name and bool(now.gaps) and now.app is None

    def _label(self, number: int, host: str) -> None:
        self._close()
        if not 0 < len(host) <= _LONGEST:
            self._gap(number, "the name of its host is empty, or too long")
            return
        self._labelled = host
        self._section(number)

    def _section(self, number: int) -> HostReport:
        if self._now is None:
            self._sections += 1
            first = self._sections == 1
            name = self._labelled or (self._name or self._stem if first else None)
            self._now = HostReport(name or "", self._source, number)
            self._ended, self._seen = False, set()
        return self._now

    def _close(self) -> None:
        report = self._now
        if report is None:
            return
        if not self._ended and not report.gaps:
            report.gaps.append(Gap(None, "no summary: it was cut off, or the command was ended"))
        if not report.name:
            report.name = report.hostname or f"{self._source}:{report.line}"
        self._reports.append(report)
        self._now, self._labelled, self._ended = None, None, False

    def _gap(self, number: int, why: str) -> None:
        if self._ended:
            # Between two listings: it is of neither.
            self._close()
        self._section(number).gaps.append(Gap(number, why))

    def _same_app(self, report: HostReport, app: object) -> None:
        if isinstance(app, str) and app:
            if report.app is not None and report.app != app:
                raise MalformedBytesError(
                    f"lines of two directories, {report.app} and {app}, without a summary between"
                )
            report.app = app

    def _store(self, report: HostReport, said: Mapping[str, Any]) -> None:
        copy = _copy(said)
        if (copy.task, copy.store) in self._seen:
            raise MalformedBytesError(
                f"{copy.task}/{copy.store} is told twice: lines of two hosts without a summary between"
            )
        self._seen.add((copy.task, copy.store))
        report.copies.append(copy)

    def _summary(self, report: HostReport, said: Mapping[str, Any]) -> None:
        self._ended = True
        stores, size = _number(said, "stores"), _number(said, "bytes")
        report.running = _flag(said, "running")
        if "host" in said:
            report.hostname = _text(said, "host")
        report.tells_process_id = "process_id" in said
        report.process_id = None if said.get("process_id") is None else _text(said, "process_id")
        if not report.gaps and (stores, size) != (len(report.copies), report.size):
            raise MalformedBytesError(
                f"its summary tells of {stores} stores and {size_text(size)}, and the lines before it of "
                f"{len(report.copies)} and {size_text(report.size)}"
            )

    def _error(self, report: HostReport, number: int, said: Mapping[str, Any]) -> None:
        """The end of a listing that was not made, or the answer of one that was: that has its problems told already."""
        if said.get("code") != _ENDS_WITH_SUMMARY or not self._ended:
            report.gaps.append(Gap(number, f"the listing failed there: {_text(said, 'message')}"))
            self._ended = True
        elif not report.problems:
            report.problems.append(ToldProblem(_text(said, "code"), None, ".", _text(said, "message")))


def _copy(said: Mapping[str, Any]) -> StoreCopy:
    task = _text(said, "task")
    try:
        of = TaskId.parse(task)
    except ValueError as error:
        raise MalformedBytesError(str(error)) from None
    sub = sub_topology(of)
    if sub is not None and (
        of.partition is None or of.partition >= MOST_PARTITIONS or task_name(sub, of.partition) != task
    ):
        raise MalformedBytesError(f"{task[:40]!r} is not the name of a task as Streams writes it")
    changelog, position = said.get("changelog"), said.get("position")
    offsets = None if changelog is None else _offsets(changelog)
    inputs = {} if position is None or of.is_global else _offsets(position)
    unclean = said.get("unclean")
    running = _flag(said, "running")
    return StoreCopy(
        task=task,
        store=_text(said, "store"),
        kind=_text(said, "kind"),
        kind_certain=_flag(said, "kind_certain") is True,
        has_directory=bool(said.get("column_families")) or bool(_number(said, "bytes")),
        segmented=said.get("segments") is not None,
        size=_number(said, "bytes"),
        offsets=offsets,
        inputs=frozenset(inputs),
        opens_in=_texts(said, "opens_in"),
        offsets_in=_text(said, "offsets_in"),
        unclean=bool(unclean) and running is False,
    )


def _problem(said: Mapping[str, Any]) -> ToldProblem:
    task = said.get("task")
    return ToldProblem(
        _text(said, "code"), None if task is None else _text(said, "task"), _text(said, "path"), _text(said, "message")
    )


def _offsets(said: object) -> dict[TopicPartition, int]:
    if not isinstance(said, dict):
        raise MalformedBytesError("offsets are not by topic and partition")
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in said.items():
        if not isinstance(partitions, dict):
            raise MalformedBytesError("offsets are not by topic and partition")
        for partition, offset in partitions.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or abs(offset) > MAX_I64:
                raise MalformedBytesError(f"{str(offset)[:40]} is not an offset")
            offsets[TopicPartition(topic, parse_partition(partition))] = offset
    return offsets


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or (not value and name != "message") or (name != "message" and len(value) > 4096):
        raise MalformedBytesError(f"{name} is no text as {_TELLS} gives it")
    return value


def _texts(said: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = said.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedBytesError(f"{name} is no list as {_TELLS} gives it")
    return tuple(value)


def _number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_I64:
        raise MalformedBytesError(f"{name} is no number as {_TELLS} gives it")
    return value


def _flag(said: Mapping[str, Any], name: str) -> bool | None:
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedBytesError(f"{name} is neither true nor false")
    return value
