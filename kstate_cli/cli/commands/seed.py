"""``kstate seed``: write the changelogs of another application from a dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli.cli.options.seed import SeedReportOptions, SeedSourceOptions, SeedTargetOptions
from kstate_cli.cli.options.shared import declared
from kstate_cli.cli.output import output_of, waiting
from kstate_cli.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kstate_cli.cli.lines.seeds import SeedLine
    from kstate_cli.cli.output import Output
    from kstate_cli.seed.model import SeedRequest


@declared
def seed(source: SeedSourceOptions, target: SeedTargetOptions, report: SeedReportOptions) -> int:
    """Write the changelogs of a new application.id from a dump, and copy its input offsets.

    Stop the source application, and write a dump of its changelogs. kstate creates the changelogs of the new one,
    writes all records in transactions, reads them again, and commits the input offsets last. It writes only to topics
    that it created, and changes nothing of the source. The same command continues a run that was killed.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.seed import SeedProgress, show_outcome, show_plan
    from kstate_cli.seed.journal import open_journal, read_journal
    from kstate_cli.seed.planner import plan_seed, read_facts
    from kstate_cli.seed.run import carry_out

    request = _request(source, target, report)
    results: Output[SeedLine] = output_of(report.output, None, quiet=report.quiet)
    with Metrics(report.metrics_file, "seed", None, application=target.app) as metrics:
        if report.dry_run:
            events = read_journal(request.journal)
            with waiting("reading the dump and the brokers", quiet=report.quiet):
                plan = plan_seed(request, read_facts(request), resumes=bool(events))
            show_plan(request, plan, results)
            return metrics.finish(EXIT_OK)
        with open_journal(request.journal) as journal:
            with waiting("reading the dump and the brokers", quiet=report.quiet):
                plan = plan_seed(request, read_facts(request), resumes=bool(journal.events))
            with SeedProgress(quiet=report.quiet) as progress:
                outcome = carry_out(request, plan, journal, progress)
        metrics.records = outcome.written
        show_outcome(request, plan, outcome, results)
        return metrics.finish(EXIT_OK)


def _request(source: SeedSourceOptions, target: SeedTargetOptions, report: SeedReportOptions) -> SeedRequest:
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.model import SeedRequest
    from kstate_cli.specification.toml_file import read_spec

    to = Connection(target.bootstrap_server, client_settings(target.kafka_settings))
    origin = to
    if source.source_bootstrap_server is not None:
        origin = Connection(source.source_bootstrap_server, client_settings(source.source_kafka_settings))
    elif source.source_kafka_settings is not None:
        raise UsageError(
            "--source-kafka-settings needs --source-bootstrap-server", hint="pass --source-bootstrap-server HOST:PORT"
        )
    spec = None
    if source.spec is not None:
        spec = read_spec(source.spec)
    return SeedRequest(
        dump=source.dump,
        app=target.app,
        source_app=source.source_app,
        target=to,
        source=origin,
        journal=report.journal or Path(f"kstate-seed-{target.app}.jsonl"),
        spec=spec,
        renamed=_renamed(target.rename_store or ()),
        copies_offsets=not target.no_offsets,
    )


def _renamed(pairs: Sequence[str]) -> Mapping[str, str]:
    """Return old and new names of stores. Raise UsageError."""
    renamed: dict[str, str] = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not equals or not old or not new or old in renamed:
            raise UsageError(f"--rename-store {pair!r} is not OLD=NEW, or OLD is given twice", hint="pass OLD=NEW once")
        renamed[old] = new
    return renamed
