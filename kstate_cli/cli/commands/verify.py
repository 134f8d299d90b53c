"""``kstate verify``: read every block, and report damage."""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.columns import Column
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    App,
    MetricsFile,
    OutputFormat,
    Quiet,
    Stores,
    Tasks,
    at_once,
    part_of,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of, print_line, print_prose, say, table
from kstate_cli.errors import ConditionNotMet, InUse, Refused
from kstate_cli.texts import command, first_lines, plural, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.stores import VerifyLine, VerifyStoreLine, VerifySummaryLine
    from kstate_cli.cli.output import Output
    from kstate_cli.verify.application import AppReport, StoreReport
    from kstate_cli.verify.findings import VerifyCode

HELP_EXAMPLES: Final = {
    "verify": (
        Example("Read all stores once", "verify /data/app"),
        Example(
            "Read a seventh of the data each night, from cron", 'verify /data/app --subset "$(date +\\%u)/7" --quiet'
        ),
    ),
}


def verify(
    app: App,
    task: Tasks = None,
    store: Stores = None,
    subset: Annotated[
        str,
        typer.Option(
            option.SUBSET,
            metavar="I/N",
            help="Read only part I of N. For example, pass 1/7 on Monday and 2/7 on Tuesday.",
        ),
    ] = "1/1",
    each_sst: Annotated[
        bool,
        typer.Option(
            option.EACH_SST,
            help=("Also read each SST separately, and compare its entries with the counts in its properties."),
        ),
    ] = False,
    workers: Annotated[int, workers_option("Read N databases")] = 0,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Read every data block, verify checksums and rows, and print a digest of each store.

    This command changes nothing. kstate also checks the order, number and encoding of the rows. If the application is
    running, kstate reads the state as of the last flush. Stores with the same contents have the same digest on every
    host and in every release.

    The exit code is 3 if kstate finds damage, 4 if it cannot read or does not support a store, and 5 if the application
    changes the directory faster than kstate can read it.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.stores import backups_of_missing, say_backups
    from kstate_cli.cli.views.verify import VerifyProgress
    from kstate_cli.statedir.find import find_application
    from kstate_cli.verify.application import VerifyRequest, verify_application

    request = VerifyRequest(
        app=find_application(app),
        tasks=frozenset(task or ()),
        stores=frozenset(store or ()),
        subset=part_of(option.SUBSET, subset, "for example 1/7"),
        workers=at_once(workers),
        each_sst=each_sst,
    )
    results: Output[VerifyLine] = output_of(output, request.app, quiet=quiet)
    began = time.monotonic()
    with Metrics(metrics_file, "verify", request.app) as metrics:
        with VerifyProgress(quiet=quiet) as progress:
            report = verify_application(request, progress)
        # The findings are counted before they are printed: the metrics have them even if standard output is lost.
        codes = Counter(finding.code for finding in report.findings)
        metrics.records = sum(store.rows for store in report.stores)
        metrics.findings = {(code.name, code.level.value): count for code, count in codes.items()}
        seconds = time.monotonic() - began
        results.show(_lines(report, subset, seconds), partial(_show, report, quiet=quiet))
        sys.stdout.flush()
        _remarks(report, subset, quiet=quiet)
        emptied = backups_of_missing(request.app, quiet=quiet)
        # The report has only stores that are here. Those that only a backup of kstate has are named beside it.
        say_backups(emptied, quiet=False)
        # The verdict comes last, because a terminal scrolls a long table away.
        results.text(partial(_sum_up, report, quiet=quiet))
        sys.stdout.flush()
        _raise_verdict(codes, report)
        return metrics.finish(warnings_code(report.doubtful or emptied))


def _remarks(report: AppReport, subset: str, *, quiet: bool) -> None:
    """Print on standard error what the findings do not say: remarks on stores, and what was not read."""
    from kstate_cli.verify.application import NOT_COVERED_IN_SHORT

    for store in report.stores:
        for remark in store.remarks:
            # A doubt is a problem, which --quiet does not hide.
            say(remark, quiet=quiet and not store.doubt)
    if report.running:
        say(
            f"the application is running (pid {report.pid}), so kstate verified the state as of its last flush",
            quiet=quiet,
        )
    if report.left_out:
        say(
            (f"kstate verified only part {subset}. The other parts contain {plural(report.left_out, 'store')}"),
            quiet=quiet,
        )
    say(f"kstate does not check {NOT_COVERED_IN_SHORT}", quiet=quiet)


def _raise_verdict(codes: Counter[VerifyCode], report: AppReport) -> None:
    """Raise the error of the most severe finding."""
    from kstate_cli.verify.findings import IN_USE, VERIFY_CODES, VerifyLevel

    if not codes:
        return
    counts = ", ".join(f"{count} {code}" for code, count in sorted((code.name, n) for code, n in codes.items()))
    # Damage first: what could not be judged may be intact.
    if any(code.level is VerifyLevel.DAMAGE for code in codes):
        raise ConditionNotMet(
            f"kstate found damage: {counts}",
            hint=(
                "move the damaged stores to a backup (when the application starts, it restores the stores that "
                "have a changelog):"
            ),
            hint_details=[
                *first_lines(_ways_out(report)),
                f"or, to rebuild those stores from a dump now, run {_rebuild(report)}",
            ],
        )
    # The only problem is that files were in use. A second call may read them, and nothing is wrong with them.
    if codes.keys() == {IN_USE}:
        raise InUse(
            "kstate could not read some stores, because the application changed them too quickly",
            hint="run the command again, or stop the application first",
        )
    # The codes keep the order of their table, in which the most severe come first.
    unjudged = [code for code in VERIFY_CODES.values() if code in codes]
    raise Refused(
        f"kstate could not verify all stores: {counts}",
        hint="; ".join(code.advice for code in unjudged) + ":",
        hint_details=[command("explain", code.name) for code in unjudged],
    )


def _damaged(report: AppReport) -> list[tuple[str, str | None]]:
    """Return the damaged stores, each as its task and name; None as name if a file of the task itself is damaged."""
    from kstate_cli.verify.findings import VerifyLevel

    damaged = [
        part
        for part in (*report.tasks, *report.stores)
        if any(finding.code.level is VerifyLevel.DAMAGE for finding in part.findings)
    ]
    # Of these the file of the task is damaged, so that the whole task has to go.
    whole = {part.task for part in damaged if part.store is None}
    # A dict for its order: each store once, in the order of the report.
    return list(dict.fromkeys((part.task, None if part.task in whole else part.store) for part in damaged))


def _ways_out(report: AppReport) -> list[str]:
    """Return the commands that move damaged stores out, or the whole task for a damaged file of it."""
    return [
        command("wipe", report.app, option.TASK, task, *([] if store is None else [option.STORE, store]))
        for task, store in _damaged(report)
    ]


def _rebuild(report: AppReport) -> str:
    """Return the command that rebuilds the damaged stores, or their whole tasks, from a dump."""
    damaged = _damaged(report)
    words: list[str] = []
    for task in dict.fromkeys(task for task, _ in damaged):
        words += [option.TASK, task]
    if all(store is not None for _, store in damaged):
        for store in dict.fromkeys(store for _, store in damaged if store is not None):
            words += [option.STORE, store]
    source = (option.FROM_CHANGELOG, "DUMP", option.FOR, "RELEASE", option.SPEC, "FILE")
    return command("restore", report.app, *source, *words, option.REBUILD)


def _show(report: AppReport, *, quiet: bool) -> None:
    """Print the stores, then the findings; with ``quiet`` only the findings."""
    if not quiet:
        _print_table(report)
    for finding in report.findings:
        # Prose, not a table: a path that is folded cannot be searched for.
        print_prose(f"{finding.code.name}: {finding.file}: {finding.text}", hanging="  ")


def _print_table(report: AppReport) -> None:
    from kstate_cli.cli.views.stores import short_kind

    table(
        None,
        (
            "task",
            "store",
            Column("kind", spare=2),
            Column("rows", right=True),
            Column("bytes", right=True, spare=3),
            Column("digest", spare=1),
            "verdict",
        ),
        [
            (
                store.task,
                store.store,
                short_kind(store.kind or "-", certain=store.kind_certain),
                f"{store.rows:,}",
                size_text(store.content_bytes),
                store.digest or "-",
                _verdict_of(store),
            )
            for store in report.stores
        ],
    )


def _verdict_of(store: StoreReport) -> str:
    if store.findings:
        return ", ".join(sorted({finding.code.name for finding in store.findings}))
    return "doubtful" if store.doubt else "ok"


def _sum_up(report: AppReport, *, quiet: bool) -> None:
    """Print one line: the bytes that were read, and the verdict; with ``quiet`` only that on a problem."""
    rows = sum(store.rows for store in report.stores)
    size = size_text(sum(store.content_bytes for store in report.stores))
    read = f"{plural(len(report.stores), 'store')}, {plural(rows, 'row')}, {size}"
    if report.findings:
        print_line(f"{read}: {plural(len(report.findings), 'finding')}", "bold red")
    elif report.doubtful:
        print_line(f"{read}: no damage, but rows may be missing", "bold yellow")
    elif not quiet:
        print_line(f"{read}: no damage", "bold green")


def _lines(report: AppReport, subset: str, seconds: float) -> Iterator[VerifyLine]:
    """Yield a line for each store, and for each task with findings, each followed by its findings."""
    from kstate_cli.verify.application import OUTSIDE_TASKS

    for part in (*report.stores, *report.tasks):
        # Files beside the tasks are in no task.
        task = None if part.task == OUTSIDE_TASKS else part.task
        # Of the files of a task itself, a report has neither a store nor a kind.
        if part.store is None or part.kind is None:
            yield {"type": "task", "task": task, "ok": not part.findings and not part.doubt}
        else:
            yield _store_line(part, (part.store, part.kind), report)
        for finding in part.findings:
            yield {
                "type": "finding",
                "task": task,
                "store": part.store,
                "code": finding.code.name,
                "level": finding.code.level.value,
                "path": finding.file,
                "message": finding.text,
            }
    yield _summary_line(report, subset, seconds)


def _store_line(store: StoreReport, identity: tuple[str, str], report: AppReport) -> VerifyStoreLine:
    name, kind = identity
    return {
        "type": "store",
        "task": store.task,
        "store": name,
        "kind": kind,
        "kind_certain": store.kind_certain,
        "databases": store.databases,
        "rows": store.rows,
        "content_bytes": store.content_bytes,
        "digest": store.digest,
        "running": report.running,
        "as_of": report.as_of,
        "remarks": list(store.remarks),
        "seconds": store.seconds,
        "ok": not store.findings and not store.doubt,
    }


def _summary_line(report: AppReport, subset: str, seconds: float) -> VerifySummaryLine:
    from kstate_cli.verify.application import NOT_COVERED

    codes = Counter(finding.code.name for finding in report.findings)
    return {
        "type": "summary",
        "ok": not codes and not report.doubtful,
        "doubtful": list(report.doubtful),
        "stores": len(report.stores),
        "databases": sum(store.databases for store in report.stores),
        "rows": sum(store.rows for store in report.stores),
        "content_bytes": sum(store.content_bytes for store in report.stores),
        "findings": dict(sorted(codes.items())),
        "subset": subset,
        "left_out": report.left_out,
        "running": report.running,
        "as_of": report.as_of,
        "not_covered": list(NOT_COVERED),
        "seconds": round(seconds, 3),
    }
