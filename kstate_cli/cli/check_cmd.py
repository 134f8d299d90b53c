"""``kstate check``: what the next start of a release does with a directory, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.options import (
    App,
    BootstrapServer,
    DslStoreFormat,
    Guarantee,
    KafkaSettings,
    LogOffsets,
    MetricsFile,
    Output,
    Quiet,
    StoreFormat,
    age,
)
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kstate_cli.broker.facts import Facts
    from kstate_cli.check.findings import Finding
    from kstate_cli.check.logs import LogSource
    from kstate_cli.check.outcome import Prediction, Records
    from kstate_cli.check.predict import Report
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.statedir.model import Application

_SHOWN = 5


def check(
    app: App,
    release: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="RELEASE",
            help="The Kafka Streams release to be started, such as 4.3.",
            autocompletion=releases,
        ),
    ],
    guarantee: Annotated[
        Guarantee,
        typer.Option("--guarantee", metavar="GUARANTEE", help="processing.guarantee; the other is at_least_once."),
    ] = Guarantee.exactly_once,
    dsl_store_format: DslStoreFormat = StoreFormat.DEFAULT,
    dump: Annotated[
        str | None,
        typer.Option("--dump", metavar="DUMP", help="Changelog dump: log starts and ends from its manifest, counts."),
    ] = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="AGE", help="state.cleanup.dir.max.age.ms, where it is set: 7d, 12h."),
    ] = None,
    delete_retention: Annotated[
        str | None,
        typer.Option(
            "--delete-retention",
            metavar="AGE",
            help="delete.retention.ms of the changelogs; by default what the broker or the dump says, or 1d.",
        ),
    ] = None,
    metrics_file: MetricsFile = None,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Say what the next start of a release does to each task and store, and why. Changes nothing.

    Exit 0 when all is as expected, 3 when something is found. Without --dump, --offsets or
    --bootstrap-server nothing is said of how many records are restored, nor of offsets that the log no longer has.
    """
    from collections import Counter

    from kstate_cli.check.predict import check as predict
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.facts_source import facts_source
    from kstate_cli.cli.json_lines import lines_about, tell_failure
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.errors import ConditionNotMet
    from kstate_cli.releases import release as known_release
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application

    path = find_application(app)
    lines = lines_about(path)
    ask = facts_source(offsets, bootstrap_server, kafka_settings, group=path.name)
    to = known_release(release)
    cleaned_after = None if max_age is None else age("--max-age", max_age)
    retained = None if delete_retention is None else age("--delete-retention", delete_retention)
    with Metrics(metrics_file, "check", path) as metrics:
        application = read_application(path)
        asked = CheckRequest(
            to,
            exactly_once=guarantee is Guarantee.exactly_once,
            logs=_sources(ask, application, dump, live=bootstrap_server is not None),
            headers_format=dsl_store_format is StoreFormat.HEADERS,
            max_age=cleaned_after,
            delete_retention=retained,
        )
        report = predict(application, asked)
        if output is Format.json:
            _print_json(lines, application, asked.release.name, guarantee, report)
        else:
            _print_tables(application, asked.release.name, report, quiet=quiet)
        metrics.findings = Counter((one.code, one.level.value) for one in report.findings)
        if report.clean:
            return metrics.done(EXIT_OK)
        # People have read it in the table.
        tell_failure(ConditionNotMet(_verdict(report, asked.release.name)), ConditionNotMet.exit_code)
        return metrics.done(ConditionNotMet.exit_code)


def _sources(
    ask: Callable[[Iterable[str]], Facts] | None, app: Application, dump: str | None, *, live: bool
) -> tuple[LogSource, ...]:
    """The broker (``live``), or what was written down of it, before the dump: that is older."""
    from kstate_cli.check.logs import DumpLogs, FactLogs
    from kstate_cli.check.predict import topics_of
    from kstate_cli.errors import Refused

    sources: list[LogSource] = []
    if ask is not None:
        topics = topics_of(app)
        sources.append(FactLogs(ask(topics), frozenset(topics) if live else frozenset()))
    if dump is not None:
        from kstate_cli.dump.open import read_dump

        known = read_dump(dump, complete=False, committed_only=False)
        if known.manifest is None:
            raise Refused(
                f"{dump} has no manifest: it does not say where the logs begin and end",
                hint="leave it out, and say --offsets FILE or --bootstrap-server HOST:PORT",
            )
        sources.append(DumpLogs(known))
    return tuple(sources)


def _verdict(report: Report, release: str) -> str:
    levels = [finding.level.value for finding in report.findings]
    counted = ", ".join(f"{levels.count(one)} {one}s" for one in ("error", "warning") if one in levels)
    fails = f"the next start of {release} fails" if report.fails else ""
    return ": ".join(filter(None, (fails, counted))) or "not all is as expected"


def _print_json(lines: JsonLines, app: Application, release: str, guarantee: Guarantee, report: Report) -> None:
    for one in report.predictions:
        lines.line(
            "prediction",
            {
                "task": one.task,
                "store": one.store,
                "outcome": one.outcome.value,
                "or_else": one.or_else.value if one.or_else else None,
                "records": one.records.count if one.records else None,
                "records_exact": one.records.exact if one.records else None,
                "code": one.code,
                "path": one.file,
                "messages": list(one.messages),
            },
        )
    for finding in report.findings:
        lines.line(
            "finding",
            {
                "task": finding.task,
                "store": finding.store,
                "code": finding.code,
                "level": finding.level.value,
                "message": finding.text,
                "rule": finding.rule,
                "hint": finding.hint,
            },
        )
    levels = [finding.level.value for finding in report.findings]
    lines.summary(
        {
            "release": release,
            "guarantee": guarantee.value,
            "start_fails": report.fails,
            "errors": levels.count("error"),
            "warnings": levels.count("warning"),
            "expected": levels.count("expected"),
            "running": app.running,
            "as_of": app.as_of,
        }
    )


def _print_tables(app: Application, release: str, report: Report, *, quiet: bool) -> None:
    from kstate_cli.check.findings import Level
    from kstate_cli.cli.output import safe, say, table
    from kstate_cli.texts import command

    table(
        None,
        ("task", "store", f"the next start of {release}", "finding"),
        [(one.task, one.store, _told(one), one.code or "-") for one in report.predictions],
    )
    if report.findings:
        groups = _grouped(report)
        table(None, ("finding", "level", "where", "what", "rule"), [row for row, _ in groups])
        # Lines of their own: a command that a table has folded cannot be pasted.
        for (code, *_), hints in groups:
            for hint in hints:
                sys.stdout.write(safe(f"{code}: {hint}") + "\n")
        levels = list(Level)
        worst = max(report.findings, key=lambda one: levels.index(one.level))
        say(f"what that means: {command('explain', worst.code)}", quiet=quiet)
    if app.running is not False:
        what = "is running" if app.running else "may be running"
        say(f"the application {what}: as of its last flush ({app.as_of})", quiet=quiet)
    if report.fails:
        say(f"the next start of {release} fails", quiet=quiet)


def _grouped(report: Report) -> list[tuple[tuple[str, str, list[str], list[str], str], list[str]]]:
    """One row for each kind of finding, and what to do: hundreds of stores often have the same."""
    from kstate_cli.texts import first_lines

    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((finding.code, finding.level.value), []).append(finding)
    rows = []
    for (code, level), alike in groups.items():
        places = list(dict.fromkeys(_where(one.task, one.store) for one in alike))
        texts = list(dict.fromkeys(one.text for one in alike))[:_SHOWN]
        hints = first_lines(list(dict.fromkeys(one.hint for one in alike)), _SHOWN)
        rows.append(((code, level, first_lines(places, _SHOWN), texts, alike[0].rule), hints))
    return rows


def _told(one: Prediction) -> str:
    """The outcome in words."""
    words = {
        "opens": "opens as it is",
        "opens-without-rows": "opens silently without its rows",
        "restores": f"restores {_count(one.records)}",
        "restores-all": f"restores everything{_all(one.records)}",
        "task-wiped": f"task wiped, restores everything{_all(one.records)}",
        "lost": "task wiped, its rows are lost: it has no changelog",
        "start-fails": f"start fails at {one.file}: {' <- '.join(one.messages)}",
        "not-reached": "not reached",
        "unknown": "not known while the application runs",
        "ignored": "ignored",
    }
    text = words[one.outcome.value]
    return f"{text}, or {words[one.or_else.value]} (chance decides)" if one.or_else else text


def _count(records: Records | None) -> str:
    if records is None:
        return "what follows its offset"
    return f"{'' if records.exact else 'at most '}{records.count:,} records"


def _all(records: Records | None) -> str:
    return f": {_count(records)}" if records is not None else ""


def _where(task: str | None, store: str | None) -> str:
    return "/".join(part for part in (task, store) if part) or "-"
