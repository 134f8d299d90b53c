"""``kstate fleet``: compare hosts by their output of ``kstate ls -o json``."""

from __future__ import annotations

import sys
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.ending import report_no
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import choices_text
from kstate_cli.cli.options.shared import (
    BootstrapServer,
    KafkaSettings,
    LogOffsets,
    MetricsFile,
    OutputFormat,
    Quiet,
    draft_of,
)
from kstate_cli.cli.output import Format, output_of, print_line, safe, say, waiting
from kstate_cli.errors import EXIT_OK, ConditionNotMet, UsageError
from kstate_cli.texts import command, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kstate_cli.broker.client import StreamsGroup
    from kstate_cli.broker.facts import Facts
    from kstate_cli.cli.fleet_repositories import FleetRepository
    from kstate_cli.cli.lines.outlook import FleetLine
    from kstate_cli.cli.output import Output
    from kstate_cli.fleet.findings import FleetFinding
    from kstate_cli.fleet.model import Fleet, HostReport

HELP_EXAMPLES: Final = {
    "fleet": (
        Example("Compare the listings of three hosts", "fleet web-1.json web-2.json web-3.json"),
        Example(
            "Include log offsets and group members, and write an HTML page",
            "fleet web-1.json --bootstrap-server broker:9092 --html fleet.html",
        ),
    ),
}

_MAX_LISTED: Final = 5
_PLURALS: Final = {"error": "s", "warning": "s", "unknown": ""}


class FleetRows(str, Enum):
    """One table row per host, task or store."""

    host = "host"
    task = "task"
    store = "store"
    """A row per store of a task on a host."""


def fleet(
    listing: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST=FILE",
            help=(
                "Output of `kstate ls -o json`, one file per host. To name the host, pass HOST=FILE. To read "
                "standard input, pass -. You can also pass a snapshot repository (a folder or "
                "s3://BUCKET/PREFIX)."
            ),
        ),
    ],
    by: Annotated[
        FleetRows,
        typer.Option(option.BY, metavar=choices_text(FleetRows), help="Print one row per host, task or store."),
    ] = FleetRows.host,
    standby_replicas: Annotated[
        int, typer.Option(option.STANDBY_REPLICAS, metavar="N", min=0, help="Assume this num.standby.replicas.")
    ] = 0,
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help="Read each sub-topology's partition count from this kstate.toml.",
            readable=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(option.HTML, metavar="FILE", help="Also write a self-contained HTML page.", readable=False),
    ] = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Compare an application's hosts by tasks and lag, and find missing tasks.

    First save the output of `kstate ls -o json` on each host. Then pass the files to this command. With
    --bootstrap-server, kstate also reads log offsets and the members of the consumer group. kstate does not join the
    group and changes nothing.

    The exit code is 3 if a task is missing, unknown, or on several hosts. To find missing tasks whose numbers are
    higher than any listed number, kstate needs --bootstrap-server, --offsets or --spec.
    """
    from kstate_cli.cli.fleet_repositories import split_listings
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.fleet import fleet_lines
    from kstate_cli.fleet.judge import judge
    from kstate_cli.fleet.listing import STREAM, read_listings
    from kstate_cli.fleet.model import Fleet

    # A second reading of standard input would find nothing, and report a host without tasks.
    if listing.count(STREAM) > 1:
        raise UsageError("you passed - twice, but kstate can read standard input only once", hint="pass - once")
    with waiting("reading listings", quiet=quiet or _is_typed(listing, STREAM)):
        listings, repositories = split_listings(listing)
        reports = read_listings(listings) if listings else []
        names = _applications(reports, repositories)
        if repositories and len(names) != 1:
            raise UsageError(
                "kstate compares the hosts of one application, but these snapshots and listings belong to "
                f"{some(names, _MAX_LISTED) or 'none'}",
                hint="pass listings from only one application",
            )
        for repository in repositories:
            repository.read(names[0])
    application = ""
    if len(names) == 1:
        # With several applications there is no single group to ask about, and no name for the metrics.
        application = names[0]
    with Metrics(metrics_file, "fleet", None, application=application) as metrics:
        draft = draft_of(spec)
        with waiting("reading logs and group members", quiet=quiet) as activity:
            topics = {topic for repository in repositories for topic in repository.topics}
            facts, group = _read_logs(reports, topics, application, offsets, bootstrap_server, kafka_settings)
            activity.call("comparing hosts")
            # A file states only ends of logs: that it lacks a topic does not show that the topic does not exist.
            logs = facts if bootstrap_server is not None else None
            stored = [repository.report(logs) for repository in repositories]
            all_of_it = Fleet(reports, facts, group, draft, standby_replicas, stored)
            # Everything has been read now, so that all findings are about the same state.
            findings = judge(all_of_it)
            if html is not None:
                from kstate_cli.cli.views.fleet_page import write_page

                # The page is written before the results are printed: if it cannot be written, the command ends.
                write_page(html, all_of_it, findings)
        results: Output[FleetLine] = output_of(output, None, quiet=quiet)
        results.show(fleet_lines(all_of_it, findings), lambda: _show(all_of_it, findings, by, quiet=quiet))
        metrics.findings = Counter((finding.code.name, finding.level.value) for finding in findings)
        if not findings:
            return metrics.finish(EXIT_OK)
        return metrics.finish(report_no(ConditionNotMet(_verdict(findings))))


def _applications(reports: Iterable[HostReport], repositories: Iterable[FleetRepository]) -> list[str]:
    names = list(dict.fromkeys(report.app_id for report in reports if report.app_id is not None))
    if names:
        return names
    # All hosts may be lost: then only the repositories name the application.
    return sorted({name for repository in repositories for name in repository.applications})


def _is_typed(listing: Sequence[str], stream: str) -> bool:
    """Return whether a listing comes from the keyboard: a line of progress would be drawn into the typed text."""
    return stream in listing and sys.stdin is not None and sys.stdin.isatty()


def _read_logs(
    reports: Sequence[HostReport],
    topics: set[str],
    application: str,
    offsets: Path | None,
    bootstrap: str | None,
    settings: Path | None,
) -> tuple[Facts | None, StreamsGroup | None]:
    """Return the logs, and the group if there is a broker and exactly one application."""
    from kstate_cli.cli.options.logs import facts_source

    ask = facts_source(offsets, bootstrap, settings, group=application or None)
    # Without logs the lag is unknown, and so is whether there are tasks above the highest one listed.
    if ask is None:
        return None, None
    copies = [copy for report in reports for copy in report.copies]
    # Only topics in which some store has an offset are asked about: others say nothing about these hosts.
    facts = ask(topics | {key.topic for copy in copies for key in copy.offsets or ()})
    # The group has the name of the application, so with several applications there is none to ask about.
    if bootstrap is None or not application:
        return facts, None
    from kstate_cli.broker.client import ask_group
    from kstate_cli.broker.settings import client_settings

    return facts, ask_group(bootstrap, client_settings(settings), application)


def _verdict(findings: Sequence[FleetFinding]) -> str:
    levels = [finding.level.value for finding in findings]
    counts = [f"{levels.count(name)} {name}{end}" for name, end in _PLURALS.items() if name in levels]
    return f"kstate found problems: {', '.join(counts)}"


def _show(fleet: Fleet, findings: Sequence[FleetFinding], by: FleetRows, *, quiet: bool) -> None:
    """Print the table, the notes, the findings and the totals; with ``quiet`` only findings, briefly, and totals."""
    from kstate_cli.cli.views.fleet import (
        name_findings,
        show_findings,
        show_hosts,
        show_stores,
        show_tasks,
        show_totals,
    )

    if quiet:
        name_findings(findings)
    else:
        {FleetRows.host: show_hosts, FleetRows.task: show_tasks, FleetRows.store: show_stores}[by](fleet, findings)
        sys.stdout.flush()
        for note in _notes(fleet):
            say(note)
        show_findings(findings)
        if findings:
            print_line("")
            print_line("to see what the finding means:")
            print_line(safe(f"    {command('explain', f'fleet:{findings[0].code.name}')}"), "bold")
            print_line("")
    # The totals and the verdict come last, because a terminal scrolls a long table away.
    verdict = "no findings"
    if findings:
        verdict = _verdict(findings)
    show_totals(fleet, verdict)


def _notes(fleet: Fleet) -> list[str]:
    """Return what was not examined, and why, as sentences."""
    # Without these sentences a result without findings would look as if everything was examined.
    notes = []
    notes += [message for repository in fleet.repositories for message in repository.messages]
    old_reports = _reports_without_process(fleet)
    if old_reports:
        names = some(old_reports, _MAX_LISTED)
        notes.append(
            f"an older version of kstate listed {names} without recording process ids, so kstate cannot detect "
            "cloned volumes"
        )
    if fleet.group is not None and fleet.group.why is not None:
        notes.append(f"kstate does not know the group's members: {fleet.group.why}")
    if topics := _topics_without_end(fleet):
        notes.append(
            "kstate does not know where these logs end, and some of the logs may not exist: "
            f"{some(topics, _MAX_LISTED)}"
        )
    if len({report.app_id for report in fleet.reports} - {None}) > 1:
        notes.append("kstate has not checked the group, because the listings belong to several applications")
    running = [report.name for report in fleet.reports if report.running is not False and report.whole]
    if running:
        notes.append(
            f"the application is running or may be running on {some(running, _MAX_LISTED)}, so kstate compares the "
            "state as of the last flush on these hosts"
        )
    return notes


def _reports_without_process(fleet: Fleet) -> list[str]:
    return [report.name for report in fleet.reports if not report.tells_process_id and report.whole]


def _topics_without_end(fleet: Fleet) -> list[str]:
    """Return the changelogs that stores have an offset in, and of which the broker, or the file, gave no end."""
    # The user named no broker and no file, so no end is missing.
    if fleet.facts is None:
        return []
    keys = {key for report in fleet.reports for copy in report.copies for key in copy.offsets or ()}
    return sorted({key.topic for key in keys if key not in fleet.facts})
