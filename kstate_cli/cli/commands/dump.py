"""``kstate dump``: write changelogs from a broker to a dump, and extend it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kstate_cli import option
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.dump import DumpReportOptions, DumpSourceOptions, ReadingOptions
from kstate_cli.cli.options.shared import at_once, declared, engine_of, spark_settings
from kstate_cli.cli.output import output_of, print_line, say, table
from kstate_cli.errors import UsageError
from kstate_cli.texts import plural, quoted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.dumps import DumpLine, DumpMembers, DumpNoteLine, DumpRoundLine, DumpWarningLine
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.output import Output
    from kstate_cli.dump_writer.plan import DumpRequest, PartitionPlan, RoundOutcome

HELP_EXAMPLES: Final = {
    "dump": (
        Example(
            "Add new records to the dump, for example every night",
            "dump --bootstrap-server broker:9092 --app orders --out /dump/orders",
        ),
        Example(
            "Print how much kstate would read",
            "dump --bootstrap-server broker:9092 --app orders --out out --dry-run",
        ),
    ),
}


@declared
def dump(source: DumpSourceOptions, reading: ReadingOptions, report: DumpReportOptions) -> int:
    """Write changelog topics to Parquet files for `kstate restore`. Later runs add only new records.

    kstate does not write to the broker or join a consumer group. kstate replaces the manifest last, so you can restore
    from the dump at any time. kstate writes a full dump of a partition if the log has a gap, if the topic was
    recreated, or if the log may no longer contain all deletes.
    """
    from kstate_cli.cli.metrics import Metrics, folder_at
    from kstate_cli.cli.views.dump import DumpProgress
    from kstate_cli.dump_writer.rounds import dump_round, follow

    request = _request(source, reading)
    if source.follow is not None and source.dry_run:
        raise UsageError("--follow and --dry-run cannot be used together", hint="omit one of them")
    results: Output[DumpLine] = output_of(report.output, None, quiet=report.quiet)
    folder = folder_at(request.out)
    application = source.app or request.group or request.out.rpartition("/")[2]
    with Metrics(report.metrics_file, "dump", folder, application=application) as metrics:

        def round_done(outcome: RoundOutcome) -> None:
            _show_round(request, outcome, results)
            _measure(metrics, outcome)
            metrics.round_done(_code(outcome, report))

        with DumpProgress(quiet=report.quiet) as progress:
            if source.follow is not None:
                # This call ends only with an exception, such as that of a signal.
                follow(request, progress, source.follow, round_done)
            # This is a single round: with --follow this line is never reached.
            outcome = dump_round(request, progress)
        _measure(metrics, outcome)
        results.show(_lines(request, outcome), lambda: _show(request, outcome, quiet=report.quiet))
        return metrics.finish(_code(outcome, report))


def _code(outcome: RoundOutcome, report: DumpReportOptions) -> int:
    return warnings_code(outcome.warnings and not report.warnings_ok)


def _measure(metrics: Metrics, outcome: RoundOutcome) -> None:
    metrics.records = outcome.records
    metrics.warnings = len(outcome.warnings)
    metrics.held_back = sum(plan.held_back for plan in outcome.plans)


def _request(source: DumpSourceOptions, reading: ReadingOptions) -> DumpRequest:
    """Return the request that the options make. Raise UsageError."""
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.cli.options.restore import bytes_of
    from kstate_cli.dump_writer.plan import DumpRequest
    from kstate_cli.dump_writer.stores import destination

    # Without a selection all topics of the cluster would be dumped, which no user can want.
    if source.app is None and not source.topic and source.spec is None:
        raise UsageError("you did not select any topics to dump", hint="pass --app ID, --spec FILE, or --topic TOPIC")
    if source.app is not None and source.spec is not None:
        raise UsageError("--app and --spec cannot be used together", hint="omit one of them")
    spark = spark_settings(reading.master, reading.conf)
    rate = None
    if reading.max_rate:
        rate = bytes_of(reading.max_rate, option.MAX_RATE)
        if rate == 0:
            raise UsageError(
                ("with --max-rate 0, kstate would never read a record"), hint="omit this option to read without a limit"
            )
    # A specification has the changelogs of its stores, and the application.id, which is also the group to ask about.
    application, topics = _specified(source.spec)
    return DumpRequest(
        bootstrap=source.bootstrap_server,
        settings=client_settings(source.kafka_settings),
        out=destination(source.out),
        app=source.app,
        topics={**topics, **dict.fromkeys(source.topic or (), option.TOPIC)},
        engine=engine_of(reading.engine, spark),
        spark=spark,
        workers=at_once(reading.workers),
        bytes_per_second=rate,
        full=source.full,
        keep=source.keep,
        dry_run=source.dry_run,
        group=application,
    )


def _specified(file: Path | None) -> tuple[str | None, dict[str, str]]:
    """Return the application of a specification, and its topics. Raise UsageError and Refused."""
    from kstate_cli.dump_writer.plan import of_spec
    from kstate_cli.specification.toml_file import read_spec

    if file is None:
        return None, {}
    spec = read_spec(file)
    topics = of_spec(spec)
    if not topics:
        raise UsageError(f"{quoted(file)} contains no topics", hint="add changelog = … to its stores")
    return spec.application, dict.fromkeys(topics, f"{quoted(file)} names the topic")


def _range_text(plan: PartitionPlan) -> str:
    if plan.continues is not None:
        return "continued"
    return "full"


def _lines(request: DumpRequest, outcome: RoundOutcome) -> Iterator[DumpLine]:
    from kstate_cli.cli.views.plan import engine_members

    for plan in outcome.plans:
        records, size = _amount(outcome, plan)
        yield {
            "type": "partition",
            "topic": plan.key.topic,
            "partition": plan.key.partition,
            "dumped": _range_text(plan),
            "why": plan.why,
            "start": plan.start,
            "end": plan.end,
            "open_from": plan.open_from,
            "held_back": plan.held_back,
            "records": records,
            "bytes": size,
        }
    yield from _text_lines(outcome)
    yield {"type": "summary", **_members(request, outcome), **engine_members(request.engine)}


def _amount(outcome: RoundOutcome, plan: PartitionPlan) -> tuple[int, int | None]:
    """Return records and bytes of a partition: of a dry run the most records, and an estimate or None."""
    if outcome.generation is not None:
        # A partition without new records has no file, and so no entry.
        return outcome.by_partition.get(plan.key, (0, 0))
    return plan.records, outcome.by_partition.get(plan.key, (0, None))[1]


def _text_lines(outcome: RoundOutcome) -> Iterator[DumpWarningLine | DumpNoteLine]:
    for text in outcome.warnings:
        yield {"type": "warning", "message": text}
    for text in outcome.notes:
        yield {"type": "note", "message": text}


def _show_round(request: DumpRequest, outcome: RoundOutcome, results: Output[DumpLine]) -> None:

    results.lines(_text_lines(outcome))
    # A cast, because the size may only be unknown of a dry run, and a dry run has no rounds.
    line = cast("DumpRoundLine", {"type": "round", **_members(request, outcome)})
    results.show([line], lambda: None if results.quiet else print_line(_written_text(outcome)))
    for text in outcome.notes:
        results.remark(text)
    # A program that follows reads each round when it ends.
    sys.stdout.flush()


def _members(request: DumpRequest, outcome: RoundOutcome) -> DumpMembers:
    """Return the members of the summary in JSON. Of a dry run, the records are those that it would read."""
    records = outcome.records
    if outcome.generation is None:
        records = sum(plan.records for plan in outcome.plans)
    return {
        "out": request.out,
        "executed": outcome.generation is not None,
        "generation": outcome.generation,
        "partitions": len(outcome.plans),
        "held_back": sum(plan.held_back for plan in outcome.plans),
        "records": records,
        "bytes": outcome.size,
        "files": outcome.files,
        "joined": outcome.joined,
        "dropped": outcome.dropped,
        "removed": outcome.removed,
        "seconds": round(outcome.seconds, 3),
    }


def _show(request: DumpRequest, outcome: RoundOutcome, *, quiet: bool) -> None:
    from kstate_cli.cli.views.plan import engine_text

    # Records belong to the dump only once a manifest names them.
    is_written = outcome.generation is not None
    rows = []
    for plan in outcome.plans:
        records, size = _amount(outcome, plan)
        record_text, size_words = f"{records:,}", "unknown"
        if size is not None:
            size_words = size_text(size)
        if not is_written:
            # The number is the difference of two offsets, an upper bound: compaction removes records, but no offsets.
            record_text = f"at most {record_text}"
            if size:
                size_words = f"about {size_words}"
        place = (plan.key.topic, plan.key.partition)
        rows.append((*place, _range_text(plan), plan.start, plan.end, record_text, size_words))
    names = ("topic", "partition", "dumped", "from", "to", "records", "size")
    # Without --dry-run the table reports only what has succeeded.
    if request.dry_run or not quiet:
        table(None, names, rows, right=frozenset({"partition", "from", "to", "records", "size"}))
        sys.stdout.flush()
    for text in outcome.notes:
        say(text, quiet=quiet)
    say(f"engine: {engine_text(request.engine)}", quiet=quiet)
    if request.dry_run:
        say(_planned_text(outcome), quiet=quiet)
        say("dry run: kstate has written nothing", quiet=quiet)
    elif is_written:
        say(_written_text(outcome), quiet=quiet)


def _planned_text(outcome: RoundOutcome) -> str:
    """Return what a call would read and write: a bucket gets a request for each file, or part of a large one."""
    most = sum(plan.records for plan in outcome.plans)
    size = "size unknown for the first dump"
    if outcome.size is not None:
        size = f"about {size_text(outcome.size)}"
    return (
        f"kstate would write at most {plural(most, 'record')} ({size}) to about {plural(outcome.files, 'new file')} "
        "and a manifest"
    )


def _written_text(outcome: RoundOutcome) -> str:
    if not outcome.records and not outcome.files:
        return f"the logs contain no new records. kstate recorded this in generation {outcome.generation}"
    amount = f"{plural(outcome.records, 'record')} ({size_text(outcome.size or 0)})"
    return f"kstate wrote {amount} to {plural(outcome.files, 'new file')} in generation {outcome.generation}"
