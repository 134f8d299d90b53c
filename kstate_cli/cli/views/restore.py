"""The report and the progress of ``kstate restore``: a bar, plain lines, or events in JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kstate_cli.cli.columns import Column
from kstate_cli.cli.output import say, table
from kstate_cli.cli.views.plan import OFTEN_SECONDS, Meter, count_unit
from kstate_cli.clock import PaceMeter
from kstate_cli.formats.topic_partition import typed_offsets
from kstate_cli.offsets.model import by_topic
from kstate_cli.restore.running.restoration import RestoreWatcher
from kstate_cli.texts import command, plural

if TYPE_CHECKING:
    from kstate_cli.barrier import Waiting
    from kstate_cli.change.engine import RunResult
    from kstate_cli.cli.lines.changes import (
        PlanEnd,
        RestoreLine,
        RestoreProgressLine,
        RestoreProgressProgressLine,
        RestoreProgressStateLine,
        RestoreSummaryLine,
    )
    from kstate_cli.cli.lines.shared import RestoredStoreLine
    from kstate_cli.cli.output import Output
    from kstate_cli.restore.planning.plan import RestorePlan
    from kstate_cli.restore.running.restoration import RestoreOutcome
    from kstate_cli.restore.running.states import RestoreState


SELECTED_ONLY = ("Kafka Streams will restore any other store that the directory lacks from the broker",)
"""Printed after a restoration of selected stores."""


def finish(
    outcome: RestoreOutcome,
    results: Output[RestoreLine],
    *,
    warnings_ok: bool,
    waiting: Waiting | None = None,
    standby: bool = False,
    is_selection: bool = False,
) -> int:
    """Print the result of a restoration, and return the exit code.

    ``waiting``: the result of the barrier, if there was one. ``is_selection``: the user selected tasks, stores or
    partitions, so that the directory may lack others.
    """
    from kstate_cli.cli.views.barrier import barrier_result
    from kstate_cli.cli.views.plan import engine_members, show_end

    change = outcome.plan.change
    barrier = None
    if waiting is not None:
        barrier = barrier_result(waiting)
    show_restored(outcome, results)

    def summary(end: PlanEnd) -> RestoreSummaryLine:
        return {
            "type": "summary",
            "release": change.target,
            "stores": len(outcome.plan.work),
            "left": len(outcome.plan.unchanged),
            "records": sum(report.records for report in outcome.reports),
            "barrier": barrier,
            **engine_members(outcome.engine),
            **end,
        }

    def sentences(result: RunResult) -> Iterator[str]:
        if is_selection:
            yield f"kstate restored the selected stores for {change.target} (run {result.run})"
            yield from SELECTED_ONLY
        else:
            yield f"kstate restored the directory for {change.target} (run {result.run})"
        if standby:
            yield (
                "next: run the same command again after the next dump. Until then, make sure that no other program "
                "uses the directory"
            )
        else:
            yield f"next: start the application with {change.target}. To undo: {command('undo', change.app)}"

    nothing = f"the stores in {change.app} need no records from the dump"
    show_end(change, outcome.result, results, summary=summary, nothing=nothing, sentences=sentences)
    return code_of(outcome, warnings_ok=warnings_ok)


def code_of(outcome: RestoreOutcome, *, warnings_ok: bool) -> int:
    """Return the exit code of a restoration, or of one round of a standby that is followed."""
    from kstate_cli.cli.views.plan import exit_code

    warned = any(report.null_keys for report in outcome.reports)
    return exit_code(outcome.plan.change, warnings_ok=warnings_ok, warned=warned)


def show_restored(outcome: RestoreOutcome, results: Output[RestoredStoreLine]) -> None:
    """Print the restored stores."""
    results.show(_store_lines(outcome), lambda: _show_stores(outcome, quiet=results.quiet))


def show_round(outcome: RestoreOutcome, results: Output[RestoreLine]) -> None:
    """Print one of many rounds; if it had nothing to do, people see nothing."""
    change, records = outcome.plan.change, sum(report.records for report in outcome.reports)
    run = None
    if outcome.result is not None:
        run = outcome.result.run
    results.lines(_store_lines(outcome))
    results.lines(
        [
            {
                "type": "round",
                "release": change.target,
                "stores": len(outcome.plan.work),
                "left": len(outcome.plan.unchanged),
                "records": records,
                "executed": run is not None,
                "run": run,
            }
        ]
    )
    if run is not None:
        results.remark(f"restored {plural(records, 'record')} into {plural(len(outcome.reports), 'store')} (run {run})")
    sys.stdout.flush()


def _store_lines(outcome: RestoreOutcome) -> Iterator[RestoredStoreLine]:

    for report in outcome.reports:
        yield {
            "type": "store",
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
        }


def _show_stores(outcome: RestoreOutcome, *, quiet: bool) -> None:

    # With --quiet only the warnings count: the table reports what has succeeded.
    if outcome.reports and not quiet:
        table(
            "restored",
            (
                "store",
                Column("records", right=True),
                Column("rows", right=True),
                Column("deleted", right=True, spare=1),
                Column("expired", right=True, spare=2),
                Column("seconds", right=True, spare=3),
                "offset",
            ),
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
        )
    for report in outcome.reports:
        if report.null_keys:
            say(
                f"warning: like Streams, kstate skipped {plural(report.null_keys, 'record')} without a key in "
                f"the changelog of {report.title}"
            )
    # A bounded interactive query waits for a Position, so the user learns which stores have none.
    without = sum(not report.has_position for report in outcome.reports)
    if without:
        subject, positions = f"{without} stores", "their Positions are"
        if without == 1:
            subject, positions = "1 store", "its Position is"
        # Streams writes the header with the Position only with __iq.consistency.offset.vector.enabled__.
        say(
            f"note: the changelog records of {subject} contain no Position, so {positions} empty until the application "
            "processes new input",
            quiet=quiet,
        )


_NAMES = {
    "read": "reading the directory",
    "spark": "starting Spark",
    "sort": "sorting the dump",
    "check": "reading the rows to restore",
    "stage": "staging",
    "store": "moving stores into place",
    "verify": "verifying",
    "switch": "switching",
}


class RestoreProgress(RestoreWatcher):
    """Progress of a restoration: slices, records, bytes, rate and time left, on standard error."""

    def __init__(
        self,
        results: Output[RestoreProgressLine],
        *,
        on_state: Callable[[str, str], None] | None = None,
        verbose: bool = False,
    ) -> None:
        self._results, self._quiet, self._verbose = results, results.quiet, verbose
        self._on_state = on_state
        self._phase = ""
        self._began = self._last_printed = 0.0
        self._count = -1
        self._resumed = False
        self._meter = Meter("restoring", quiet=results.is_silent)
        self._pace: PaceMeter | None = None

    def __enter__(self) -> RestoreProgress:
        self._meter.prepare("preparing")
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def rest(self) -> None:
        """Show nothing until the next phase: with ``--follow`` the command waits for its next round."""
        self._meter.phase("")

    def expect(self, plan: RestorePlan) -> None:
        """Take the plan; the run follows."""
        # A dry run has read the rows by now. A bar that is still drawn would share its line with the plan.
        self._meter.stop()
        # If there is no work, no progress follows.
        if not self._quiet and plan.work:
            records = sum(work.records for work in plan.work)
            self._line(
                {"type": "plan", "stores": len(plan.work), "records": records},
                # A dry run prints it too, so it must not state that the restoration runs.
                f"at most {plural(records, 'record')} to restore into {plural(len(plan.work), 'store')}",
            )

    def phase(self, name: str, path: str, size: int) -> None:
        """Start a phase."""
        # Called before the comparison: a round of --follow may begin with the phase in which the last one ended.
        self._meter.phase(_NAMES.get(name, name))
        if self._quiet or name == self._phase:
            return
        # The engine reports a phase once for every store, but it is printed once.
        self._phase = name
        # A dry run reports this phase: it only reads, at the pace of the run.
        if name == "check":
            self._began = self._last_printed = time.monotonic()
        # The bar counts records, but from this phase on files are written.
        if name == "stage":
            self._meter.stop()
        self._line({"type": "phase", "phase": name}, _NAMES.get(name, name))

    def state(self, before: RestoreState, after: RestoreState) -> None:
        """Report a change of state, with the names of KIP-728 and KIP-696."""
        if not self._quiet:
            line: RestoreProgressStateLine = {"type": "state", "before": before.value, "restoration": after.value}
            if self._verbose:
                self._line(line, f"the restoration changes from {before.value} to {after.value}")
            else:
                # The phases say the same in words, and these are also the names of states of the application.
                self._results.lines([line])
        # Called even with --quiet: it is the user's own command, and no message.
        if self._on_state is not None:
            self._on_state(before.value, after.value)
        # The rate is counted from here, because planning and the start of Spark read no record.
        if after.value == "RESTORING":
            self._began = self._last_printed = time.monotonic()

    def recovered(self, text: str) -> None:
        """Report the recovery of a run of another process."""
        if not self._quiet:
            self._line({"type": "recovered", "message": text}, text)

    def warning(self, text: str) -> None:
        """Print a warning, even if quiet."""
        self._line({"type": "warning", "message": text}, f"warning: {text}")

    def resumed(self, predecessor: str, slices: int, total: int) -> None:
        """Report that an interrupted run is resumed."""
        # The records of the finished slices were read by another process, and do not count for the rate of this one.
        self._resumed = True
        if not self._quiet:
            self._line(
                {
                    "type": "resumed",
                    "predecessor": predecessor,
                    "slices": slices,
                    "total_slices": total,
                    "of": total,
                },
                f"resuming run {predecessor}, which has sorted {100 * slices // max(1, total)} % of its records",
            )

    def slices(self, count: int, total: int, records: int, all_records: int, size: int) -> None:
        """Update the finished slices."""
        if self._quiet or not self._began:
            return
        already = 0
        if self._resumed:
            already = records
        self._results.show(
            self._progress_lines(count, total, (records, all_records), size, already),
            partial(self._move_bar, records, all_records, already),
        )

    def _move_bar(self, records: int, all_records: int, already: int) -> None:
        if not self._meter.has_begun:
            self._meter.begin(all_records, count_unit("records"), already=already, began=self._began)
        self._meter.at(records)

    def _progress_lines(
        self, count: int, total: int, records: tuple[int, int], size: int, already: int
    ) -> Iterator[RestoreProgressProgressLine]:
        """Yield a line now and then, and at the end. ``records``: those that were read, and all."""
        now = time.monotonic()
        read_records, all_records = records
        if self._pace is None:
            self._pace = PaceMeter(all_records, self._began, already=already)
        pace = self._pace.at(read_records, now)
        # The last slice is always reported, even right after another, because a program may wait for it.
        if count == self._count or (now - self._last_printed < OFTEN_SECONDS and count < total):
            return
        # The count is stored too: while a slice takes long, the same line must not be printed again.
        self._last_printed, self._count = now, count
        yield {
            "type": "progress",
            "slices": count,
            "total_slices": total,
            "of": total,
            "records": read_records,
            "bytes": size,
            "records_per_second": round(pace.per_second or 0.0),
            "seconds_left": round(pace.seconds_left or 0.0, 1),
        }

    def _line(self, line: RestoreProgressLine, text: str) -> None:
        self._results.show([line], partial(self._say, text, always=line["type"] == "warning"))

    def _say(self, text: str, *, always: bool) -> None:
        # A line in front of a bar would push it down the screen at every phase: only warnings are worth that.
        if always or not self._meter.on_a_terminal or not self._meter.has_begun:
            self._meter.say(f"kstate: {text}", always=True)
