"""The report and the progress of ``kstate restore``: a bar, plain lines, or events in JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.output import Format
from kstate_cli.cli.views.progress import OFTEN_SECONDS, Meter, count_unit
from kstate_cli.clock import PaceMeter
from kstate_cli.restore.running.restoration import RestoreWatcher
from kstate_cli.texts import command

if TYPE_CHECKING:
    from kstate_cli.barrier import Waiting
    from kstate_cli.restore.planning.plan import RestorePlan
    from kstate_cli.restore.running.restoration import RestoreOutcome
    from kstate_cli.restore.running.states import RestoreState


def finish(
    outcome: RestoreOutcome,
    output: Format,
    *,
    quiet: bool,
    warnings_ok: bool,
    waiting: Waiting | None = None,
    standby: bool = False,
) -> int:
    """Print the result of a restoration as a table or JSON lines, and return the exit code.

    ``waiting``: the result of the barrier, if there was one.
    """
    from kstate_cli.cli.views.barrier import barrier_members
    from kstate_cli.cli.views.plan import engine_members, show_end

    change = outcome.plan.change
    show_restored(outcome, output, quiet=quiet)
    show_end(
        change,
        outcome.result,
        output,
        members={
            "release": change.target,
            "stores": len(outcome.plan.work),
            "left": len(outcome.plan.unchanged),
            "records": sum(report.records for report in outcome.reports),
            "barrier": barrier_members(waiting),
            **engine_members(outcome.engine),
        },
        nothing=f"no store of {change.app} needs anything from the dump",
        lines_of=lambda result: (
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
    from kstate_cli.cli.views.plan import exit_code

    warned = any(report.null_keys for report in outcome.reports)
    return exit_code(outcome.plan.change, warnings_ok=warnings_ok, warned=warned)


def show_restored(outcome: RestoreOutcome, output: Format, *, quiet: bool) -> None:
    """Print the restored stores as a table or JSON lines."""
    if output is Format.json:
        _print_stores(outcome, JsonLines(outcome.plan.change.app))
    else:
        _show_stores(outcome, quiet=quiet)


def show_round(outcome: RestoreOutcome, output: Format, *, quiet: bool) -> None:
    """Print a round of many; for people nothing if the round had nothing to do."""
    from kstate_cli.cli.output import say

    change, records = outcome.plan.change, sum(report.records for report in outcome.reports)
    run = None if outcome.result is None else outcome.result.run
    if output is Format.json:
        lines = JsonLines(change.app)
        _print_stores(outcome, lines)
        members = {"release": change.target, "stores": len(outcome.plan.work), "left": len(outcome.plan.unchanged)}
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
                    report.title,
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
            say(f"warning: {report.title}: {report.null_keys:,} records without a key, which Streams skips too")
    without = sum(not report.has_position for report in outcome.reports)
    if without:
        whose = "1 store: its Position" if without == 1 else f"{without} stores: their Positions"
        more = "is" if without == 1 else "are"
        say(f"note: no changelog record told a Position of {whose} {more} empty until new input comes", quiet=quiet)


_NAMES = {
    "read": "reading the directory",
    "spark": "starting Spark",
    "sort": "putting the dump in order",
    "check": "reading what would be restored",
    "stage": "staging",
    "store": "taking stores in",
    "verify": "verifying",
    "switch": "switching",
}


class RestoreProgress(RestoreWatcher):
    """Progress of a restoration: slices, records, bytes, rate and time left, as JSON ``lines`` or for people."""

    def __init__(
        self, lines: JsonLines | None, *, quiet: bool, on_state: Callable[[str, str], None] | None = None
    ) -> None:
        self._quiet, self._lines = quiet, lines
        self._on_state = on_state
        self._phase = ""
        self._began = self._said = 0.0
        self._done = -1
        self._resumed = False
        self._meter = Meter("restoring", quiet=quiet or lines is not None)
        self._pace: PaceMeter | None = None

    def __enter__(self) -> RestoreProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def expect(self, plan: RestorePlan) -> None:
        """Take the plan; the run follows."""
        if not self._quiet and plan.work:
            records = sum(work.records for work in plan.work)
            self._line(
                "plan",
                {"stores": len(plan.work), "records": records},
                f"{len(plan.work)} stores, up to {records:,} records",
            )

    def phase(self, name: str, path: str, size: int) -> None:
        """Start a phase."""
        if self._quiet or name == self._phase:
            return
        self._phase = name
        if name == "check":
            self._began = self._said = time.monotonic()
        if name == "stage":
            self._meter.stop()
        self._line("phase", {"phase": name}, _NAMES.get(name, name))

    def state(self, before: RestoreState, after: RestoreState) -> None:
        """Report a change of state, with the names of KIP-728 and KIP-696."""
        if not self._quiet:
            self._line(
                "state",
                {"before": before.value, "restoration": after.value},
                f"{before.value} -> {after.value}",
            )
        if self._on_state is not None:
            self._on_state(before.value, after.value)
        if after.value == "RESTORING":
            self._began = self._said = time.monotonic()

    def recovered(self, text: str) -> None:
        """Report the recovery of a run of another process."""
        if not self._quiet:
            self._line("recovered", {"message": text}, text)

    def warning(self, text: str) -> None:
        """Print a warning, even if quiet."""
        self._line("warning", {"message": text}, f"warning: {text}")

    def resumed(self, predecessor: str, slices: int, total: int) -> None:
        """Report that an interrupted run is resumed."""
        self._resumed = True
        if not self._quiet:
            self._line(
                "resumed",
                {"predecessor": predecessor, "slices": slices, "total_slices": total, "of": total},
                f"resuming run {predecessor}: {100 * slices // max(1, total)} % of its records are sorted already",
            )

    def slices(self, count: int, total: int, records: int, all_records: int, size: int) -> None:
        """Update the finished slices."""
        if self._quiet or not self._began:
            return
        already = records if self._resumed else 0
        if self._lines is None:
            if not self._meter.has_begun:
                self._meter.begin(all_records, count_unit("records"), already=already, since=self._began)
            self._meter.at(records)
            return
        now = time.monotonic()
        if self._pace is None:
            self._pace = PaceMeter(all_records, self._began, already=already)
        pace = self._pace.at(records, now)
        if count == self._done or (now - self._said < OFTEN_SECONDS and count < total):
            return
        self._said, self._done = now, count
        self._lines.line(
            "progress",
            {
                "slices": count,
                "total_slices": total,
                "of": total,
                "records": records,
                "bytes": size,
                "records_per_second": round(pace.per_second or 0.0),
                "seconds_left": round(pace.seconds_left or 0.0, 1),
            },
        )

    def _line(self, kind: str, members: dict[str, Any], text: str) -> None:
        if self._lines is not None:
            self._lines.line(kind, members)
        elif kind == "warning" or not self._meter.on_a_terminal or not self._meter.has_begun:
            self._meter.say(f"kstate: {text}", always=True)
