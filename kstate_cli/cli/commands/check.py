"""``kstate check``: predict what the next start of a release does with a directory, and why."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.ending import report_no, warnings_code
from kstate_cli.cli.environment import typed
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import OUTPUT_PANEL
from kstate_cli.cli.options.application import (
    ForJar,
    NewKinds,
    NewTopology,
    OldTopology,
    chosen_release,
    read_topologies,
    refuse_without_topology,
)
from kstate_cli.cli.options.seed import SeedCheckOptions
from kstate_cli.cli.options.shared import (
    App,
    BootstrapServer,
    DslStoreFormat,
    Guarantee,
    KafkaSettings,
    LogOffsets,
    MetricsFile,
    OutputFormat,
    Quiet,
    StoreFormat,
    TransactionalStores,
    age,
    declared,
)
from kstate_cli.cli.output import Format, output_of, say, waiting
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import ConditionNotMet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from kstate_cli.check.findings import Prediction, Records
    from kstate_cli.check.predict import Report
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.lines.outlook import CheckDumpPartLine, CheckLine, CheckPredictionLine, CheckSummaryLine
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.views.check import Start
    from kstate_cli.statedir.model import Application

HELP_EXAMPLES: Final = {
    "check": (
        Example("Predict whether 4.2 will start with this directory", "check /data/app --for 4.2"),
        Example(
            "Also predict how many records it will restore",
            "check /data/app --for 4.3 --bootstrap-server broker:9092",
        ),
        Example(
            "Predict what a changed topology will do",
            "check /data/app --for 4.3 --topology new.txt --from old.txt",
        ),
        Example(
            "Check the conditions before or after a seed of v2",
            "check /data/app --seed-to v2 --dump D --bootstrap-server broker:9092",
        ),
    ),
}

_OF_SEED: Final = (
    "seed_from",
    "source_bootstrap_server",
    "source_kafka_settings",
    "source_stopped",
    "accept",
    "journal",
)
"""Options that only ``--seed-to`` needs."""
_OF_START: Final = (
    "release", "for_jar", "guarantee", "dsl_store_format", "transactional_stores", "offsets", "max_age",
    "delete_retention", "topology", "old", "every_store",
)  # fmt: skip
"""Options of the prediction, which ``--seed-to`` replaces."""


@declared
def check(
    context: typer.Context,
    app: App,
    seeding: SeedCheckOptions,
    release: Annotated[
        str | None,
        typer.Option(
            option.FOR,
            metavar="RELEASE",
            help=(
                "Predict the next start with this release, such as 4.3. Required unless you pass --for-jar or "
                "--seed-to."
            ),
            autocompletion=releases,
        ),
    ] = None,
    for_jar: ForJar = None,
    guarantee: Annotated[
        Guarantee,
        typer.Option(
            option.GUARANTEE,
            metavar="GUARANTEE",
            help="Assume this processing.guarantee: exactly_once_v2 or at_least_once.",
        ),
    ] = Guarantee.exactly_once,
    dsl_store_format: DslStoreFormat = StoreFormat.DEFAULT,
    transactional_stores: TransactionalStores = False,
    dump: Annotated[
        str | None,
        typer.Option(option.DUMP, metavar="DUMP", help="Read log offsets and record counts from this changelog dump."),
    ] = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            option.MAX_AGE,
            metavar="AGE",
            help=(
                "Assume this state.cleanup.dir.max.age.ms, such as 7d. Pass this option if your application sets "
                "the property."
            ),
        ),
    ] = None,
    delete_retention: Annotated[
        str | None,
        typer.Option(
            option.DELETE_RETENTION,
            metavar="AGE",
            help=(
                "Assume this delete.retention.ms for the changelogs. By default, kstate uses the "
                "value from the broker or the dump. Without either, kstate assumes 1d."
            ),
        ),
    ] = None,
    topology: NewTopology = None,
    old: OldTopology = None,
    spec: NewKinds = None,
    every_store: Annotated[
        bool,
        typer.Option(
            option.ALL,
            help="List every store instead of grouping stores by cause.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Predict what Kafka Streams will do to each task and store when the application next starts, and why.

    This command changes nothing. With --dump, --offsets or --bootstrap-server, kstate also predicts how many records
    Kafka Streams will restore, and whether each store's offset still exists in the log. With --topology, kstate
    predicts the effect of a changed topology and prints the `kstate rehome` command that preserves the stores. The exit
    code is 3 if there are errors or warnings. If there are none, but the outcome of a store is unknown, it is 1. For
    example, it may depend on how you stop a running application.

    With --seed-to, kstate checks the conditions of `kstate seed` instead. Before the seed, it checks whether the source
    is stopped, drained and complete, and whether the target is empty and compatible. After the seed, it checks whether
    the topics and offsets are unchanged. The exit code is 3 if a condition is not met, and 1 if a condition is unknown.
    """
    from kstate_cli.check.predict import check as predict
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.cli.seed_check import SeedPlaces, check_seed, refuse_with_seed, refuse_without_seed
    from kstate_cli.cli.views.check import (
        counts_of,
        damage_in,
        parts_of,
        say_parts,
        show_end,
        show_problems,
        show_report,
        start_of,
    )
    from kstate_cli.specification.homes import StoreKey
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application

    refuse_without_seed(typed(context, *_OF_SEED), seeding.seed_to)
    if seeding.seed_to is not None:
        refuse_with_seed(typed(context, *_OF_START))
        places = SeedPlaces(app, dump, bootstrap_server, kafka_settings, spec)
        return check_seed(seeding, places, metrics_file, output, quiet=quiet)
    # Only a --spec that was typed counts here: a kstate.toml may name one for all commands.
    refuse_without_topology(topology, typed(context, "old", "spec"))
    path = find_application(app)
    results: Output[CheckLine] = output_of(output, path, quiet=quiet)
    logs = LogSources(offsets, bootstrap_server, kafka_settings, dump)
    # Options are checked before the directory is read, which may take minutes.
    logs.validate()
    to = chosen_release(option.FOR, release, for_jar, quiet=results.is_silent)
    cleaned_after = _age(option.MAX_AGE, max_age)
    retained = _age(option.DELETE_RETENTION, delete_retention)
    with Metrics(metrics_file, "check", path) as metrics:
        # The directory is read once, so that all rules judge the same state even if the application runs.
        with waiting("reading stores", quiet=quiet):
            application = read_application(path)
        at_least_once = guarantee is Guarantee.at_least_once
        changed, homes = None, tuple[StoreKey, ...]()
        if topology is not None:
            # The texts are compared with the directory: only its stores show whether they belong to this application.
            changed = read_topologies(application, topology, old, spec, at_least_once=at_least_once)
            # The logs of stores that only the new topology has are read too: they decide whether these stores restore
            # anything.
            homes = tuple(changed.new.homes)
        with waiting("reading logs", quiet=quiet):
            sources = logs.sources(application, homes)
        # The request has all that the prediction depends on, so that equal requests give equal predictions.
        request = CheckRequest(
            to,
            exactly_once=not at_least_once,
            logs=sources,
            headers_format=dsl_store_format is StoreFormat.HEADERS,
            transactional=transactional_stores,
            max_age=cleaned_after,
            delete_retention=retained,
            topology=changed,
        )
        # The rules only judge what was read: nothing is read again, and nothing is written.
        with waiting("predicting the start", quiet=quiet):
            report = predict(application, request)
            start = start_of(application, report, request, logs)
        parts: list[CheckDumpPartLine] = []
        if dump is not None:
            parts = parts_of(dump)

        def show() -> None:
            if quiet:
                show_problems(to.version, report, start, running=application.running)
                return
            show_report(to.version, report, every_store=every_store)
            # Messages come before the last lines, which say what to do.
            sys.stdout.flush()
            _say_running(application, quiet=quiet)
            if dump is not None:
                say_parts(dump, parts, quiet=quiet)
            show_end(to.version, report, start, running=application.running)

        results.show(_lines(application, request, report, start, parts), show)
        metrics.findings = Counter((finding.code.name, finding.level.value) for finding in report.findings)
        if not report.clean:
            # The error is reported and not raised: the result has been shown, and the metrics still have to be written.
            error = ConditionNotMet(counts_of(request.release.version, report), where=str(path))
            return metrics.finish(report_no(error))
        if dump is not None and (damaged := damage_in(dump, parts)) is not None:
            # Raised last, since the directory itself is fine, but the dump that would restore it is not.
            raise damaged
        # The gate of a start must not pass for an outcome that kstate does not know, although no finding is unexpected.
        return metrics.finish(warnings_code(report.is_unknown))


def _age(option_name: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    return age(option_name, text)


def _lines(
    app: Application, request: CheckRequest, report: Report, start: Start, parts: list[CheckDumpPartLine]
) -> Iterator[CheckLine]:
    """Yield the lines of JSON: predictions, findings, parts of the dump, and the summary."""
    yield from (_prediction_line(prediction, start) for prediction in report.predictions)
    for finding in report.findings:
        yield {
            "type": "finding",
            "task": finding.task,
            "store": finding.store,
            "code": finding.code.name,
            "level": finding.level.value,
            "message": finding.text,
            "rule": finding.code.rule,
            "hint": finding.hint,
        }
    yield from parts
    yield _summary_line(app, request, report, start)


def _prediction_line(prediction: Prediction, start: Start) -> CheckPredictionLine:
    from kstate_cli.cli.views.stores import lag_members

    records, is_exact = _count_of(prediction.records)
    return {
        "type": "prediction",
        "task": prediction.task,
        "store": prediction.store,
        "outcome": prediction.outcome.value,
        "or_else": getattr(prediction.or_else, "value", None),
        "records": records,
        "records_exact": is_exact,
        "code": getattr(prediction.code, "name", None),
        "path": prediction.file,
        "messages": list(prediction.messages),
        **lag_members(start.lags.get((prediction.task, prediction.store or ""))),
    }


def _summary_line(app: Application, request: CheckRequest, report: Report, start: Start) -> CheckSummaryLine:
    levels = [finding.level.value for finding in report.findings]
    records, is_exact = _count_of(start.records)
    guarantee = Guarantee.at_least_once
    if request.exactly_once:
        guarantee = Guarantee.exactly_once
    rate, run = None, None
    if start.rate is not None:
        rate, run = round(start.rate.per_second, 1), start.rate.run
    return {
        "type": "summary",
        "release": request.release.version,
        "guarantee": guarantee.value,
        "start_fails": report.fails,
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
        "expected": levels.count("expected"),
        "restores": records,
        "restores_exact": is_exact,
        "seconds_to_running": start.seconds,
        "rate": rate,
        "rate_from": run,
        "running": app.running,
        "as_of": app.as_of,
    }


def _count_of(records: Records | None) -> tuple[int | None, bool | None]:
    """Return the number of records, and whether it is exact; None for both if it is not known."""
    if records is None:
        return None, None
    return records.count, records.exact


def _say_running(app: Application, *, quiet: bool) -> None:

    if app.running is not False:
        state = "may be running"
        if app.running:
            state = "is running"
        say(f"the application {state}, so kstate checks the state as of its last flush ({app.as_of})", quiet=quiet)
