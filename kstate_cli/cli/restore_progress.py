"""Progress of a restoration: a bar on a terminal, JSON events or plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.meter import OFTEN_SECONDS, Meter, counted
from kstate_cli.pace import PaceMeter
from kstate_cli.restore.restoration import RestoreWatcher

if TYPE_CHECKING:
    from kstate_cli.restore.plan import RestorePlan
    from kstate_cli.restore.states import RestoreState

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
            self._meter.stop()
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
        self._resumed = True
        if not self._quiet:
            self._line(
                "resumed",
                {"predecessor": predecessor, "slices": slices, "of": total},
                f"resuming run {predecessor}: {100 * slices // max(1, total)} % of its records are sorted already",
            )

    def slices(self, done: int, total: int, records: int, all_records: int, size: int) -> None:
        """Slices that are finished."""
        if self._quiet or not self._began:
            return
        already = records if self._resumed else 0
        if self._lines is None:
            if not self._meter.has_begun:
                self._meter.begin(all_records, counted("records"), already=already, since=self._began)
            self._meter.at(records)
            return
        now = time.monotonic()
        if self._pace is None:
            self._pace = PaceMeter(all_records, self._began, already=already)
        pace = self._pace.at(records, now)
        if done == self._done or (now - self._said < OFTEN_SECONDS and done < total):
            return
        self._said, self._done = now, done
        self._lines.line(
            "progress",
            {
                "slices": done,
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
            self._meter.tell(f"kstate: {text}", always=True)
