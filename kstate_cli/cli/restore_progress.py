"""Progress of a restoration: a bar on a terminal, JSON events or plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.output import safe
from kstate_cli.cli.terminal import progress_bar
from kstate_cli.restore.restoration import RestoreWatcher
from kstate_cli.signals import start
from kstate_cli.texts import size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kstate_cli.restore.plan import RestorePlan
    from kstate_cli.restore.states import RestoreState

_SECONDS = 10.0
_NAMES = {
    "read": "reading the directory",
    "spark": "starting Spark",
    "sort": "putting the dump in order",
    "stage": "staging",
    "store": "taking stores in",
    "verify": "verifying",
    "switch": "switching",
}


class RestoreProgress(RestoreWatcher):
    """Slices, records, bytes, rate and time left, on standard error: as ``lines``, or for people without them."""

    def __init__(
        self, lines: JsonLines | None, *, quiet: bool, on_state: Callable[[str, str], None] | None = None
    ) -> None:
        self._quiet, self._lines = quiet, lines
        self._on_state = on_state
        self._phase = ""
        self._began = 0.0
        self._said = 0.0
        self._done = -1
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> RestoreProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def expect(self, plan: RestorePlan) -> None:
        """The plan is known: what follows is the run."""
        if not self._quiet and plan.work:
            records = sum(one.records for one in plan.work)
            self._line(
                "plan",
                {"stores": len(plan.work), "records": records},
                f"{len(plan.work)} stores, up to {records:,} records",
            )

    def phase(self, name: str, path: str, size: int) -> None:
        """A phase begins."""
        if self._quiet or name == self._phase:
            return
        self._phase = name
        if name == "stage":
            self._stop()
        self._line("phase", {"phase": name}, _NAMES.get(name, name))

    def state(self, before: RestoreState, after: RestoreState) -> None:
        """A change of state, as KIP-728 and KIP-696 name them."""
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
        """What has become of a run of another process."""
        if not self._quiet:
            self._line("recovered", {"message": text}, text)

    def warning(self, text: str) -> None:
        """Shown even when quiet."""
        self._line("warning", {"message": text}, f"warning: {text}")

    def resumed(self, predecessor: str, slices: int, total: int) -> None:
        """An interrupted run has left something."""
        if not self._quiet:
            self._line(
                "resumed",
                {"predecessor": predecessor, "slices": slices, "of": total},
                f"resuming run {predecessor}: {slices} of {total} slices are there",
            )

    def slices(self, done: int, total: int, records: int, all_records: int, size: int) -> None:
        """Slices that are finished."""
        if self._quiet or not self._began:
            return
        if sys.stderr.isatty() and self._lines is None:
            self._show(done, total, records, all_records)
            return
        now = time.monotonic()
        if done == self._done or (now - self._said < _SECONDS and done < total):
            return
        self._said, self._done = now, done
        rate = records / max(now - self._began, 1e-9)
        left = (all_records - records) / rate if rate else 0.0
        self._line(
            "progress",
            {
                "slices": done,
                "of": total,
                "records": records,
                "bytes": size,
                "records_per_second": round(rate),
                "seconds_left": round(left, 1),
            },
            f"{done} of {total} slices, {records:,} records, {size_text(size)}, {rate:,.0f} records/s, "
            f"{left:,.0f} s left",
        )

    def _show(self, done: int, total: int, records: int, all_records: int) -> None:
        from rich.progress import TextColumn

        if self._bar is None:
            amount = TextColumn("{task.fields[slices]} slices, {task.completed:,} of {task.total:,} records")
            self._bar = progress_bar("restoring", amount)
            start(self._bar)
            self._task = self._bar.add_task("restoring", total=all_records, slices="0")
        assert self._task is not None
        self._bar.update(self._task, completed=records, slices=f"{done}/{total}")

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, kind: str, members: dict[str, Any], text: str) -> None:
        if self._lines is not None:
            self._lines.line(kind, members)
        elif self._bar is None:
            sys.stderr.write(f"kstate: {safe(text)}\n")
