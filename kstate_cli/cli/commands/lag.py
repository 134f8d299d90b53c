"""``kstate lag``: print how far each store is behind its changelog, summed over its tasks."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import LOGS, OUTPUT_PANEL
from kstate_cli.cli.options.shared import (
    App,
    BootstrapServer,
    KafkaSettings,
    LogOffsets,
    MetricsFile,
    OutputFormat,
    Quiet,
    Stores,
    Tasks,
    WarningsOk,
)
from kstate_cli.cli.output import Format, output_of, say, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.cli.lines.outlook import LagLine
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.views.lag import StoreLag
    from kstate_cli.statedir.model import Application
    from kstate_cli.statedir.problems import Problem

HELP_EXAMPLES: Final = {
    "lag": (
        Example(
            "Show how far each store lags behind the broker's logs", "lag /data/app --bootstrap-server broker:9092"
        ),
        Example("Show how far each task lags behind the end of a dump", "lag /data/app --dump /dump -v"),
        Example(
            "Exit with code 3 if a store is more than 1000 records behind",
            "lag app --bootstrap-server broker:9092 --max-lag 1000",
        ),
    ),
}


def lag(
    app: App,
    task: Tasks = None,
    store: Stores = None,
    dump: Annotated[
        str | None,
        typer.Option(
            option.DUMP,
            metavar="DUMP",
            help="Compare with the end offsets in this changelog dump.",
            rich_help_panel=LOGS,
        ),
    ] = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            option.MAX_LAG, metavar="N", min=0, help="Exit with code 3 if a store is more than N records behind."
        ),
    ] = None,
    metrics_file: MetricsFile = None,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    verbose: Annotated[
        bool,
        typer.Option(option.VERBOSE, "-v", help="Also print each task and partition.", rich_help_panel=OUTPUT_PANEL),
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Show how many records each store lags behind its changelog, and how old its first unread record is.

    This command changes nothing. The output has one row per store, with totals over all its tasks. With a broker,
    kstate uses the current end offsets. With a dump, it uses the end offsets recorded in the dump.

    The exit code is 1 if a store's lag is unknown, and 3 if a store's lag exceeds --max-lag.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.cli.views.lag import above_limit, gauges, lag_lines, read_stores, show_lags, show_total
    from kstate_cli.cli.views.stores import fatal_problems, say_incomplete_stores, unreadable_error
    from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application

    logs = LogSources(offsets, bootstrap_server, kafka_settings, dump, times=True)
    logs.validate()
    _require_ends(dump, offsets, bootstrap_server)
    path = find_application(app)
    results: Output[LagLine] = output_of(output, path, quiet=quiet)
    with Metrics(metrics_file, "lag", path) as metrics:
        with waiting("reading offsets and logs", quiet=quiet):
            application = read_application(path)
            stores = read_stores(application, logs, task or (), store or ())
        places = {(name, standing.name) for standing in stores for name in standing.tasks}
        wrong = fatal_problems(application, places, everything=not task and not store)
        doubts = _doubts(application)
        metrics.records = _record_count(stores)
        metrics.more = lambda: gauges(stores)
        results.show(
            lag_lines(application, stores, [*wrong, *doubts]), partial(show_lags, stores, verbose=verbose, quiet=quiet)
        )
        for problem in (*wrong, *doubts):
            say(problem.reasoned)
        is_incomplete = say_incomplete_stores(application, places, quiet=quiet)
        if application.running:
            say(
                f"the application is running, so kstate shows the offsets as of its last flush ({application.as_of})",
                quiet=quiet,
            )
        # The total comes last, because a terminal scrolls a long table away.
        results.text(partial(show_total, stores, logs.end))
        sys.stdout.flush()
        if wrong:
            # An error, because the lag of the readable stores alone would look like that of the whole application.
            raise unreadable_error(application, wrong)
        above = above_limit(stores, max_lag)
        if above is not None:
            raise above
        has_warnings = bool(doubts or is_incomplete or any(standing.unknown for standing in stores))
        return metrics.finish(EXIT_WARNINGS if has_warnings and not warnings_ok else EXIT_OK)


def _record_count(stores: Sequence[StoreLag]) -> int:
    return sum(standing.part.records.count for standing in stores if standing.part is not None)


def _require_ends(*sources: object) -> None:
    from kstate_cli.errors import UsageError

    if all(source is None for source in sources):
        raise UsageError(
            "to compute the lag, kstate needs the log ends",
            hint="pass --bootstrap-server HOST:PORT, --dump DUMP or --offsets FILE",
        )


def _doubts(application: Application) -> list[Problem]:
    """Return what may make an offset wrong. A running application has files that look like it."""
    if application.running:
        return []
    return [problem for problem in application.all_problems() if problem.doubt]
