"""Write one HTML page for ``kstate fleet --html``: no script, no network, no fonts.

Names come from other hosts. So each is escaped twice: invisible characters (:func:`printable`), and markup.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from kstate_cli.cli.views.fleet import number, state_of, totals
from kstate_cli.errors import UsageError
from kstate_cli.explain.catalogue import find
from kstate_cli.fleet.findings import FleetCode, FleetFinding
from kstate_cli.fleet.model import Fleet, RepositoryReport, StoreCopy
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.regular_files import kind_of, replace_text
from kstate_cli.texts import plural, printable, quoted, size_text

_MOST_COLUMNS: Final = 40
"""Most tasks with a column each. With more, each host has a row of its own tasks."""
_NEAR, _FAR = 1_000, 100_000
"""Offsets up to which a copy counts as near, and as far."""
_STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--card:#f6f8fa;
--ok:#1a7f37;--near:#7a6100;--far:#bc4c00;--worse:#a40e26;--what:#57606a;--bad:#a40e26}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--line:#30363d;--card:#161b22;
--ok:#2ea043;--near:#9a7b00;--far:#d4631a;--worse:#da3633;--what:#6e7681;--bad:#f85149}}
*{box-sizing:border-box}body{margin:0 auto;max-width:90rem;padding:1rem;background:var(--bg);color:var(--fg);
font:15px/1.45 system-ui,sans-serif}h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
p{margin:.3rem 0;overflow-wrap:anywhere}.dim{color:var(--dim)}.wide{overflow-x:auto;border:1px solid var(--line);
border-radius:6px}table{border-collapse:collapse;width:100%}th,td{padding:.25rem .5rem;text-align:left;
border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}td.flow{white-space:normal}
th:first-child{position:sticky;left:0;background:var(--bg);max-width:16rem;overflow:hidden;text-overflow:ellipsis}
.n{text-align:right;font-variant-numeric:tabular-nums}.t{display:inline-block;min-width:2.6rem;
margin:1px;padding:0 .35rem;
border-radius:4px;color:#fff;text-align:center;font:12px/1.5 ui-monospace,monospace}.ok{background:var(--ok)}
.near{background:var(--near)}.far{background:var(--far)}.worse{background:var(--worse)}.what{background:var(--what)}
.bad{outline:2px dashed var(--bad);outline-offset:1px}
.none{background:none;color:var(--bad);border:1px dashed var(--bad)}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0;background:var(--card)}summary{cursor:pointer;
padding:.4rem .6rem;font-weight:600;overflow-wrap:anywhere}details>div{padding:0 .9rem .6rem}.error{color:var(--worse)}
.warning{color:var(--near)}.unknown{color:var(--dim)}@media (prefers-color-scheme:dark){.error{color:#f85149}
.warning{color:#d29922}}ul{margin:.3rem 0;padding-left:1.2rem}li{overflow-wrap:anywhere}
code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
@media print{details{break-inside:avoid}}
"""


def write_page(path: Path, fleet: Fleet, findings: Sequence[FleetFinding]) -> None:
    """Write the page, whole or not at all. Raise UsageError if it cannot be written."""
    # Only a regular file is replaced: a link, a pipe or a device would be lost.
    if path.is_dir() or (os.path.lexists(path) and not path.is_file()):
        kind = kind_of(os.lstat(path).st_mode)
        raise UsageError(
            f"--html {quoted(path)} is {kind}", hint="pass a regular file, or a path that does not exist yet"
        )
    # The page is made as a whole before the file is written: an error must not leave half a page.
    text = "".join(_page(fleet, findings))
    try:
        replace_text(path, text, mode=0o666)
    except OSError as error:
        raise UsageError(
            f"kstate cannot write --html {quoted(path)}: {error.strerror}",
            hint="pass a file in a folder that you may write to",
        ) from None


def _e(text: object) -> str:
    # Names come from disks of other hosts: they must become neither markup nor control characters.
    return escape(printable(text), quote=True)


def _page(fleet: Fleet, findings: Sequence[FleetFinding]) -> Iterator[str]:
    names = sorted({report.app_id for report in fleet.reports if report.app_id is not None})
    title = f"Hosts and tasks of {', '.join(names) or 'no application'}"
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        # Nothing is loaded from elsewhere and there is no script: the page may be opened on a host without a network.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(title)}</title><style>{_STYLE}</style></head><body>\n<h1>{_e(title)}</h1>\n<p>{_e(totals(fleet))}</p>\n"
    )
    yield from _findings(findings)
    yield from _hosts_and_tasks(fleet, findings)
    yield from _hosts(fleet)
    yield from _members(fleet)
    yield "</body></html>\n"


def _findings(findings: Sequence[FleetFinding]) -> Iterator[str]:
    yield f"<h2>Findings</h2>\n{'' if findings else '<p>none</p>'}"
    groups: dict[FleetCode, list[FleetFinding]] = defaultdict(list)
    for finding in findings:
        groups[finding.code].append(finding)
    for code, alike in groups.items():
        # The text is that of kstate explain, so that the page does not say it in other words.
        (explanation,) = find(f"fleet:{code.name}")
        name, level = _e(code.name), code.level.value
        yield (
            f'<details id="{name}"><summary><span class="{level}">{level}</span> {name}'
            f" ({len(alike):,}): {_e(explanation.brief)}</summary><div><p>{_e(explanation.meaning)}</p>"
            f"<p>Rule: {_e(explanation.rule or '-')}</p>"
        )
        yield f"<p>What to do:</p><ul>{''.join(f'<li><code>{_e(step)}</code></li>' for step in explanation.do)}</ul>"
        yield f"<p>Where:</p><ul>{''.join(f'<li>{_e(finding.text)}</li>' for finding in alike)}</ul></div></details>\n"


def _hosts_and_tasks(fleet: Fleet, findings: Sequence[FleetFinding]) -> Iterator[str]:
    """Yield the table of hosts and tasks, with a sign for the health of each copy."""
    absent = _absent_tasks(fleet, findings)
    wrong = {(host, finding.task) for finding in findings for host in finding.hosts if finding.task is not None}
    tasks = list(fleet.tasks)
    yield _legend(fleet)
    stored = {copy.task for repository in fleet.repositories for copy in repository.stores}
    # Each task has a column, so that its copies are below each other. If there are too many, all tasks share one cell.
    names = {*tasks, *absent, *stored}
    columns = len(names) <= _MOST_COLUMNS
    heads = ["tasks"]
    if columns:
        # Sorted by number: as a text, 0_10 would come before 0_2.
        heads = sorted(names, key=lambda name: TaskId.parse(name).order)
    yield "".join(f"<th>{_e(head)}</th>" for head in heads) + "</tr></thead><tbody>\n"
    for report in fleet.reports:
        mine = _by_task(report.copies)
        cells = {task: _task(fleet, report.name, mine[task], bad=(report.name, task) in wrong) for task in report.tasks}
        yield _row_of_tasks(report.name, _cells(cells, heads, columns=columns))
    # A repository is no host: a finding names only hosts.
    for repository in fleet.repositories:
        copies = _by_task(repository.stores).items()
        cells = {task: _task(fleet, repository.name, of_task, bad=False) for task, of_task in copies}
        yield _row_of_tasks(f"{repository.name} (snapshots)", _cells(cells, heads, columns=columns))
    # Tasks that should exist but are on no host get a row of their own, since that is the worst finding.
    if absent:
        chips = {task: f'<span class="t none">{_e(task)}</span>' for task in absent}
        head = "no host with a readable listing" if fleet.unread else "no host"
        yield f'<tr><th class="error">{head}</th>{_cells(chips, heads, columns=columns)}</tr>\n'
    yield "</tbody></table></div>\n"


def _absent_tasks(fleet: Fleet, findings: Sequence[FleetFinding]) -> list[str]:
    return list(dict.fromkeys(finding.task for finding in findings if finding.task and finding.task not in fleet.tasks))


def _by_task(copies: Iterable[StoreCopy]) -> dict[str, list[StoreCopy]]:
    by_task: dict[str, list[StoreCopy]] = defaultdict(list)
    for copy in copies:
        by_task[copy.task].append(copy)
    return by_task


def _row_of_tasks(name: str, cells: str) -> str:
    return f'<tr><th title="{_e(name)}">{_e(name)}</th>{cells}</tr>\n'


def _legend(fleet: Fleet) -> str:
    unknown, measure = "unknown", "lag behind the logs"
    if fleet.facts is None:
        unknown, measure = "unknown, or the only copy", "offsets behind the most recent copy"
    return (
        f'<h2>Tasks by host</h2>\n<p class="dim">Colors show the {measure}: {_key("ok", "none")} '
        f"{_key('near', f'up to {_NEAR:,}')} "
        f"{_key('far', f'up to {_FAR:,}')} {_key('worse', 'more')} {_key('what', unknown)} "
        f"{_key('what bad', 'with a finding')} {_key('none', 'on no host')}; * is active in the group. "
        'To see the stores of a task, point at it.</p>\n<div class="wide"><table><thead><tr><th>host</th>'
    )


def _cells(chips: dict[str, str], heads: Sequence[str], *, columns: bool) -> str:
    """Return the tasks of a row: one cell for each of ``heads``, or all of them in one."""
    if columns:
        return "".join(f"<td>{chips.get(task, '')}</td>" for task in heads)
    return f'<td class="flow">{"".join(chips.values())}</td>'


def _health(records: int | None) -> str:
    """Return the CSS class for a distance; None where it is not known."""
    if records is None:
        return "what"
    if records == 0:
        return "ok"
    if records <= _NEAR:
        return "near"
    if records <= _FAR:
        return "far"
    return "worse"


def _key(names: str, meaning: str) -> str:
    return f'<span class="t {names}">{_e(meaning)}</span>'


def _task(fleet: Fleet, place: str, copies: Sequence[StoreCopy], *, bad: bool) -> str:
    """Return the mark of a task in a place: its health, * if it is active there, and its stores as a title.

    ``place``: the name of a host, or of a repository.
    """
    task = copies[0].task
    # The distance to the best copy says nothing if there is only one.
    alone = len(fleet.tasks.get(task, ())) + len({stored.repository for stored in fleet.snapshots.get(task, ())}) == 1
    far = None
    # With the ends of the logs the lag is used, which is the better measure: all copies of a task may be far behind.
    if fleet.facts is not None:
        far = fleet.task_lag(copies)
    elif not alone:
        far = fleet.task_behind(copies)
    health = _health(far)
    star = "*" if fleet.active.get(task) == place else ""
    title = "\n".join(_e(line) for line in _stores(fleet, place, task, copies))
    return f'<span class="t {health}{" bad" if bad else ""}" title="{title}">{_e(task)}{star}</span>'


def _stores(fleet: Fleet, place: str, task: str, copies: Iterable[StoreCopy]) -> Iterator[str]:
    yield f"{place} {task}"
    for copy in copies:
        standing = fleet.standing(copy)
        offsets = ", ".join(f"{key}={offset}" for key, offset in (copy.offsets or {}).items()) or "no offset"
        yield (
            f"{copy.store}: {copy.kind}, {size_text(copy.size)}, {offsets}, lag {number(standing.lag)}, "
            f"behind {number(standing.behind)}"
        )


def _hosts(fleet: Fleet) -> Iterator[str]:
    yield (
        '<h2>Hosts</h2>\n<div class="wide"><table><thead><tr><th>host</th><th>state</th><th class="n">tasks</th>'
        '<th class="n">stores</th><th class="n">size</th><th class="n">lag</th><th class="n">behind</th>'
        "<th>process id</th><th>directory</th><th>read from</th></tr></thead><tbody>\n"
    )
    for report in fleet.reports:
        cells = (len(report.tasks), len(report.copies), size_text(report.size), number(fleet.task_lag(report.copies)))
        yield (
            f"<tr><th>{_e(report.name)}</th><td>{_e(state_of(report))}</td>"
            + "".join(f'<td class="n">{_e(cell)}</td>' for cell in (*cells, number(fleet.task_behind(report.copies))))
            + f"<td>{_e(report.process_id or '?')}</td><td>{_e(report.app or '?')}</td>"
            + f"<td>{_e(report.source)}</td></tr>\n"
        )
    for repository in fleet.repositories:
        yield _repository(fleet, repository)
    yield "</tbody></table></div>\n"


def _repository(fleet: Fleet, repository: RepositoryReport) -> str:
    """Return the row of a repository in the table of hosts, with the numbers that ``--by host`` prints."""
    stores = repository.stores
    cells = (
        len({copy.task for copy in stores}),
        len(stores),
        size_text(sum(copy.size for copy in stores)),
        number(fleet.task_lag(stores)),
        number(fleet.task_behind(stores)),
    )
    return (
        f"<tr><th>{_e(repository.name)}</th><td>{plural(len(repository.snapshots), 'snapshot')}</td>"
        + "".join(f'<td class="n">{_e(cell)}</td>' for cell in cells)
        + f"<td>-</td><td>-</td><td>{_e(repository.place)}</td></tr>\n"
    )


def _members(fleet: Fleet) -> Iterator[str]:
    if fleet.group is None:
        return
    why = f": unknown: {fleet.group.why}" if fleet.group.why is not None else ""
    summary = f"{plural(len(fleet.group.members), 'member')}, {fleet.group.state}, {fleet.group.protocol}{why}"
    yield f"<h2>Members of the group</h2>\n<p>{_e(summary)}</p>\n<ul>"
    for member in fleet.group.members:
        assigned = ", ".join(map(str, sorted(member.assigned))) or "nothing"
        host = fleet.host_of(member) or "host unknown"
        yield f"<li>{_e(member.client)} at {_e(member.host)} ({_e(host)}): {_e(assigned)}</li>"
    yield "</ul>\n"
