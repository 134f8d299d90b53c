"""The progress of ``kstate dump``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kstate_cli.cli.output import progress_bar, safe, say, waiting
from kstate_cli.dump_writer.plan import DumpWatcher
from kstate_cli.dump_writer.task import SILENT_SECONDS
from kstate_cli.signals import start
from kstate_cli.texts import plural, size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kstate_cli.dump_reader.model import Grown
    from kstate_cli.dump_writer.plan import PartitionPlan

_SECONDS = 10.0
_STILL_SECONDS = 10.0
"""Seconds without a record after which the progress says that it waits for the broker."""


class DumpProgress(DumpWatcher):
    """Progress of ``kstate dump``: records, bytes, rate and time left. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._total = 0
        self._began = self._last_printed = self._moved = time.monotonic()
        self._records = 0
        """Time of the last new record."""
        self._waits = False
        """Whether the wait was reported."""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._planning = ExitStack()

    def __enter__(self) -> DumpProgress:
        # Ends with the plan of the first round. Later rounds of --follow begin after a wait, which is no work.
        self._planning.enter_context(
            waiting("reading the dump and querying the broker for its logs", quiet=self._quiet)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._planning.close()

    def planned(self, plans: Sequence[PartitionPlan], grown: Grown | None) -> None:
        """Take the plan of a round."""
        self._planning.close()
        records = sum(plan.records for plan in plans)
        after = "for a new dump"
        if grown is not None:
            after = f"after generation {grown.generation}"
        partitions = plural(len(plans), "partition")
        say(f"kstate: reading at most {plural(records, 'record')} of {partitions} {after}", quiet=self._quiet)

    def began(self, records: int) -> None:
        """Start the progress of a reading with ``records``, the most that there are to read."""
        self._stop()
        self._total, self._records, self._waits = records, 0, False
        self._began = self._last_printed = self._moved = time.monotonic()
        if self._quiet or not sys.stderr.isatty() or not records:
            return
        from rich.progress import TextColumn

        self._bar = progress_bar(
            "dumping", TextColumn("{task.completed:,} of {task.total:,} records, {task.fields[size]}")
        )
        start(self._bar)
        self._task = self._bar.add_task("dumping", total=records, size="0 B")

    def at(self, records: int, size: int) -> None:
        """Update the records and bytes that were read."""
        # A monotonic clock: with that of the day, setting it during a dump would make rates negative.
        now = time.monotonic()
        self._look_whether_it_stands_still(records, now)
        # The rate is the average of the whole round, because a broker answers in bursts.
        rate = records / max(now - self._began, 1e-9)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=records, size=f"{size_text(size)}, {rate:,.0f} records/s")
        elif not self._quiet and records and now - self._last_printed > _SECONDS:
            self._last_printed = now
            # Compaction and transaction markers make the total an upper bound, and it may grow while the broker
            # appends.
            lag = max(self._total - records, 0)
            say(
                f"kstate: {plural(records, 'record')}, {size_text(size)}, {rate:,.0f} records/s, {lag:,} behind, "
                f"{lag / max(rate, 1e-9):,.0f} s left"
            )

    def _look_whether_it_stands_still(self, records: int, now: float) -> None:
        if records != self._records:
            self._records, self._moved, self._waits = records, now, False
        elif now - self._moved >= _STILL_SECONDS and records < self._total and not self._waits and not self._quiet:
            # Reported once for each stop: the log of a service must not fill with it.
            self._waits = True
            self._print(
                f"kstate: no record has arrived for {_STILL_SECONDS:.0f} s. After {SILENT_SECONDS:.0f} s without "
                "data from the broker, the command fails"
            )

    def _print(self, text: str) -> None:
        """Print a message, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(safe(text), markup=False, highlight=False)
        else:
            say(text)

    def warning(self, text: str) -> None:
        """Print a warning, even if quiet."""
        say(f"warning: {text}")

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
