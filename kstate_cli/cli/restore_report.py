"""What `kstate restore` says at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.output import Format
from kstate_cli.texts import command

if TYPE_CHECKING:
    from kstate_cli.barrier.wait import Waiting
    from kstate_cli.restore.restoration import RestoreOutcome


def finish(
    outcome: RestoreOutcome,
    output: Format,
    *,
    quiet: bool,
    warnings_ok: bool,
    waiting: Waiting | None = None,
    standby: bool = False,
) -> int:
    """Shows what became of a restoration, as a table or JSON lines; returns the exit code.

    ``waiting``: who came to the barrier, where there was one.
    """
    from kstate_cli.cli.barrier_view import came_of
    from kstate_cli.cli.plan_view import show_end

    change = outcome.plan.change
    show_restored(outcome, output, quiet=quiet)
    show_end(
        change,
        outcome.result,
        output,
        members={
            "release": change.target,
            "stores": len(outcome.plan.work),
            "left": len(outcome.plan.left),
            "records": sum(report.records for report in outcome.reports),
            "barrier": came_of(waiting),
        },
        nothing=f"no store of {change.app} needs anything from the dump",
        done=lambda result: (
            f"restored for {change.target} (run {result.run})",
            "next: run the same command again after the next dump; nothing may use the directory until then"
            if standby
            else f"next: start the application with {change.target}; back: {command('undo', change.app)}",
        ),
        quiet=quiet,
    )
    return code_of(outcome, warnings_ok=warnings_ok)


def code_of(outcome: RestoreOutcome, *, warnings_ok: bool) -> int:
    """Return the exit code of a restoration, or of one round of a standby that is followed."""
    from kstate_cli.cli.plan_view import exit_code

    warned = any(report.null_keys for report in outcome.reports)
    return exit_code(outcome.plan.change, warnings_ok=warnings_ok, warned=warned)


def show_restored(outcome: RestoreOutcome, output: Format, *, quiet: bool) -> None:
    """The stores that were restored, as a table or JSON lines."""
    if output is Format.json:
        _print_stores(outcome, JsonLines(outcome.plan.change.app))
    else:
        _show_stores(outcome, quiet=quiet)


def tell_round(outcome: RestoreOutcome, output: Format, *, quiet: bool) -> None:
    """Tells of one round of many; people hear nothing of one that had nothing to do."""
    from kstate_cli.cli.output import say

    change, records = outcome.plan.change, sum(report.records for report in outcome.reports)
    run = None if outcome.result is None else outcome.result.run
    if output is Format.json:
        lines = JsonLines(change.app)
        _print_stores(outcome, lines)
        members = {"release": change.target, "stores": len(outcome.plan.work), "left": len(outcome.plan.left)}
        lines.line("round", {**members, "records": records, "executed": run is not None, "run": run})
    elif run is not None:
        stores = len(outcome.reports)
        say(f"{records:,} records into {stores} {'store' if stores == 1 else 'stores'} (run {run})", quiet=quiet)
    sys.stdout.flush()


def _print_stores(outcome: RestoreOutcome, lines: JsonLines) -> None:
    from kstate_cli.offsets.model import by_topic

    for report in outcome.reports:
        lines.line(
            "store",
            {
                "task": report.task,
                "store": report.store,
                "records": report.records,
                "rows": report.rows,
                "deleted": report.deleted,
                "expired": report.expired,
                "null_keys": report.null_keys,
                "has_position": report.has_position,
                "changelog": by_topic(report.offsets),
                "seconds": round(report.seconds, 3),
            },
        )


def _show_stores(outcome: RestoreOutcome, *, quiet: bool) -> None:
    from kstate_cli.cli.output import say, table
    from kstate_cli.formats.topic_partition import typed_offsets
    from kstate_cli.offsets.model import by_topic

    if outcome.reports:
        table(
            "restored",
            ("store", "records", "rows", "deleted", "expired", "seconds", "offset"),
            [
                (
                    report.shown,
                    f"{report.records:,}",
                    f"{report.rows:,}",
                    f"{report.deleted:,}",
                    f"{report.expired:,}",
                    f"{report.seconds:.1f}",
                    typed_offsets(by_topic(report.offsets)),
                )
                for report in outcome.reports
            ],
            right=frozenset({"records", "rows", "deleted", "expired", "seconds"}),
        )
    for report in outcome.reports:
        if report.null_keys:
            say(f"warning: {report.shown}: {report.null_keys:,} records without a key, which Streams skips too")
    without = sum(not report.has_position for report in outcome.reports)
    if without:
        whose = "1 store: its Position" if without == 1 else f"{without} stores: their Positions"
        more = "is" if without == 1 else "are"
        say(f"note: no changelog record told a Position of {whose} {more} empty until new input comes", quiet=quiet)
