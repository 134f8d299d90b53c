"""What ``kstate fleet`` prints for people: a table of hosts, tasks or stores, and what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from kstate_cli.cli.columns import Column, Fold, fold_words
from kstate_cli.cli.output import print_line, safe, table
from kstate_cli.cli.terminal import screen_width
from kstate_cli.fleet.expected import KnownFrom
from kstate_cli.fleet.findings import FLEET_CODES, FleetFinding, FleetLevel
from kstate_cli.fleet.model import HostReport
from kstate_cli.fleet.overview import Fleet
from kstate_cli.formats.task_id import GLOBAL
from kstate_cli.texts import first_lines, plural, size_text, some

_SHOWN: Final = 5
_INDENT: Final = "  "
_STYLES: Final = {FleetLevel.ERROR: "bold red", FleetLevel.WARNING: "yellow", FleetLevel.UNKNOWN: "magenta"}
NOT_KNOWN: Final = "?"


def show_hosts(fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """A row for each host."""
    wrong = Counter(host for one in findings for host in set(one.hosts))
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
                one.name,
                len(one.tasks),
                len(one.copies),
                size_text(one.size),
                number(host_lag(fleet, one)),
                number(host_behind(fleet, one)),
                wrong[one.name] or "-",
                state_of(one),
            )
            for one in fleet.reports
        ],
    )


def show_tasks(fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """A row for each task, those that nobody has too."""
    absent = [one.task for one in findings if one.task is not None and one.task not in fleet.tasks]
    rows: list[tuple[object, ...]] = []
    for task, hosts in fleet.tasks.items():
        behind = [fleet.task_behind(copies) for copies in hosts.values()]
        lags = [fleet.task_lag(copies) for copies in hosts.values()]
        known = [one for one in lags if one is not None]
        names = [f"{name}*" if fleet.active.get(task) == name else name for name in hosts]
        rows.append(
            (
                task,
                len(hosts),
                number(min(known) if known else None),
                number(max((one for one in behind if one is not None), default=None)),
                size_text(sum(copy.size for copies in hosts.values() for copy in copies)),
                ", ".join(names),
            )
        )
    rows += [(task, 0, NOT_KNOWN, NOT_KNOWN, "-", "-") for task in dict.fromkeys(absent)]
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


def show_stores(fleet: Fleet, _: Sequence[FleetFinding]) -> None:
    """A row for each store of a task on a host."""
    rows = []
    for task, hosts in fleet.tasks.items():
        for host, copies in hosts.items():
            for copy in copies:
                standing = fleet.standing(copy)
                offsets = NOT_KNOWN if copy.offsets is None else some(list(map(str, copy.offsets.values())), 3)
                shown = (task, copy.store, host, offsets or "-", number(standing.lag), number(standing.behind))
                rows.append((*shown, size_text(copy.size)))
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


def totals(fleet: Fleet) -> str:
    """How much it is, and where the number of tasks is known from."""
    tasks = [task for task in fleet.tasks if task != GLOBAL]
    sources = {one.known_from for one in fleet.expected.values()}
    should = sum(one.count for one in fleet.expected.values())
    seen = "; above the highest task that is seen nobody can tell" if KnownFrom.SEEN in sources else ""
    size = size_text(sum(one.size for one in fleet.reports))
    ends = "" if fleet.facts is not None else "; the ends of the logs are not known"
    return f"{plural(len(fleet.reports), 'host')}, {len(tasks)} of {plural(should, 'task')}, {size}{seen}{ends}"


def show_totals(fleet: Fleet) -> None:
    """The last line of the table."""
    _folded(totals(fleet), indent="")


def show_findings(findings: Sequence[FleetFinding]) -> None:
    """What is wrong, each code once."""
    groups: dict[str, list[FleetFinding]] = defaultdict(list)
    for one in findings:
        groups[one.code].append(one)
    for code, alike in groups.items():
        of = FLEET_CODES[code]
        count = f" ({len(alike)})" if len(alike) > 1 else ""
        print_line("")
        _folded(f"{of.level.value}: {code}{count}", _STYLES[of.level], "")
        for text in first_lines([one.what for one in alike], _SHOWN):
            _folded(text)
        _folded(f"rule: {of.rule}")
        _folded(f"what to do: {of.advice}{':' if of.to_paste else ''}")
        if of.to_paste:
            # On a line of its own, and never folded: it is to be pasted.
            print_line(safe(f"{_INDENT}{_INDENT}{of.to_paste}"), "bold")


def _folded(text: str, style: str = "", indent: str = _INDENT) -> None:
    width = screen_width()
    for line in [safe(text)] if width is None else fold_words(safe(text), width - len(indent)):
        print_line(f"{indent}{line}", style)


def number(value: int | None) -> str:
    """As people read it; a question mark where it is not known."""
    return NOT_KNOWN if value is None else f"{value:,}"


def host_lag(fleet: Fleet, report: HostReport) -> int | None:
    """How far its stores are behind the logs, altogether."""
    return fleet.task_lag(report.copies)


def host_behind(fleet: Fleet, report: HostReport) -> int | None:
    """How far they are behind the copies in front, altogether."""
    return fleet.task_behind(report.copies)


def state_of(report: HostReport) -> str:
    """What is known of the host, in a word or two."""
    if not report.whole:
        return "not all known" if report.copies else "not known"
    return {True: "running", False: "stopped", None: "may run"}[report.running]
