"""The journals of earlier runs: how restorations ended, and how long runs took.

After a failure a cron job must not wipe or restore in a loop. A restoration writes its state (as in KIP-696 and
KIP-728) to the journal; wipes and migrations have none. If the last restoration ended in ERROR, or the last three were
interrupted, kstate refuses the next restoration or wipe. It accepts them again once the user
confirms that the cause is fixed.

The expected duration of a run is based on figures that were measured on other machines. The journal of each run records
the duration that the figures predicted (``rough_seconds``). The ratio to the real duration shows how this machine, its
disk and these stores differ from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli import option
from kstate_cli.change.folder import read_runs, require_understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.plan import BuildStore, EditDatabase, Plan
from kstate_cli.errors import Refused
from kstate_cli.texts import command

STATE_EVENT = "state"
INTERRUPTED: Final = "INTERRUPTED"
"""The state of a restoration whose process died: it cannot write that one itself."""
_ERROR = "ERROR"
_NOT_RUNNING = "NOT_RUNNING"
_ENDED = frozenset({_ERROR, _NOT_RUNNING})
_SWITCHED = frozenset({RunState.KEPT, RunState.UNDOING, RunState.UNDONE, RunState.CLEANING})
_INTERRUPTED_AT_MOST = 3


def state_of(run: Run) -> str | None:
    """Return the last state of a restoration; None for other runs.

    If the process died before the switch, the state is ``INTERRUPTED``. After the switch nothing remained to restore,
    so the state is ``NOT_RUNNING``, even if the last state in the journal is another one.
    """
    state = run.last(STATE_EVENT).get("state")
    if state is None:
        return None
    # A process writes the last state even if its run fails. A failed run without it was settled by another command.
    if state not in _ENDED and run.state is RunState.FAILED:
        return INTERRUPTED
    if state not in _ENDED and run.state in _SWITCHED:
        return _NOT_RUNNING
    return str(state)


def refuse_after_error(app: Path, *, after_error: bool) -> None:
    """Raise Refused if the last restoration ended in ERROR, or the last three were interrupted."""
    if after_error:
        return
    # A damaged run may be the one that ended in ERROR. So it is refused, and not skipped.
    runs = [run for run in require_understood(read_runs(app)) if state_of(run) is not None]
    if not runs:
        return
    last = runs[-1]
    hint = f"fix the cause, then run the command again with {option.AFTER_ERROR}"
    more = [f"to see what the runs did, run {command('status', app)}"]
    if state_of(last) == _ERROR:
        raise Refused(
            f"run {last.name} ended in ERROR: {last.last('failed').get('why', 'kstate has recorded no reason')}",
            hint=hint,
            hint_details=more,
        )
    if _interrupted(runs) >= _INTERRUPTED_AT_MOST:
        raise Refused(
            f"the last {_INTERRUPTED_AT_MOST} runs were interrupted, most recently {last.name}",
            hint=hint,
            hint_details=more,
        )


def _interrupted(runs: Sequence[Run]) -> int:
    """Return how many runs at the end of ``runs`` were interrupted, without another one between them."""
    count = 0
    for run in reversed(runs):
        if state_of(run) != INTERRUPTED:
            break
        count += 1
    return count


ROUGH_EVENT_MEMBER: Final = "rough_seconds"
"""Member of the line ``created``."""
RECORDS_EVENT: Final = "sorted"
"""A note of a restoration: how many ``records`` it has sorted itself, without those of the run that it resumes."""
_MIB: Final = 1024 * 1024
_RUN: Final = 1.0
"""Seconds of any run: lock, lists, switch."""
_DATABASE: Final = 0.08
"""Seconds for opening, editing and verifying one database: 200 in 7.6 s with two at once."""
_REWRITTEN: Final = 90 * _MIB
"""Bytes a second and worker: 2 GiB in 10.9 s with two at once."""
_RESTORED: Final = 50 * _MIB
"""Bytes of records a second and worker, of key-value stores: 20 M records of 100 bytes in 20 s with two at once."""
_SMALLER: Final = 10
"""A run that was so many times smaller proves nothing: most of its time was its beginning and its end."""
_KINDS: Final = frozenset({RunState.KEPT, RunState.UNDONE})
_SHORT: Final = 10


@dataclass(frozen=True, slots=True)
class Expected:
    """An estimated duration."""

    seconds: float
    like: str | None
    """The earlier run that the estimate is based on; None if it is based on the figures alone."""

    @property
    def rounded(self) -> int:
        """Return the seconds, rounded up to two digits, since the estimate is no better than that; at least ten."""
        whole = max(_SHORT, math.ceil(self.seconds))
        unit: int = 10 ** (len(str(whole)) - 2)
        return math.ceil(whole / unit) * unit

    @property
    def is_short(self) -> bool:
        """Return whether the duration is not worth a number."""
        return self.seconds < _SHORT


@dataclass(frozen=True, slots=True)
class Rate:
    """The speed of a restoration."""

    per_second: float
    """Records a second, of the whole run until its switch."""
    run: str


def measured_rate(runs: Iterable[Run], records: int) -> Rate | None:
    """Return the rate of the newest restoration that is large enough to estimate ``records``; None if none is.

    It is the rate of kstate on this machine: a start of Streams, which writes record by record, is slower.
    """
    for run in reversed(list(runs)):
        records_sorted = run.last(RECORDS_EVENT).get("records")
        if run.damage is not None or run.state not in _KINDS or not run.seconds:
            continue
        # A much smaller run is mostly start-up, and would predict a rate far too low.
        if type(records_sorted) is int and records_sorted > 0 and records_sorted * _SMALLER >= records:
            return Rate(records_sorted / run.seconds, run.name)
    return None


def rough_seconds(plan: Plan, workers: int) -> float:
    """Return the seconds by the figures alone (docs/performance.md), with ``workers`` databases at once."""
    restored = sum(step.size for step in plan.steps if isinstance(step, BuildStore))
    rewritten = sum(step.rewritten_bytes for step in plan.steps if isinstance(step, EditDatabase))
    databases = plan.databases + sum(1 for step in plan.steps if isinstance(step, BuildStore))
    # A fixed time for each database, and the bytes by the measured rates.
    work = databases * _DATABASE + rewritten / _REWRITTEN + restored / _RESTORED
    return _RUN + work / max(1, min(workers, databases))


def expected(plan: Plan, workers: int, runs: Iterable[Run]) -> Expected:
    """Return how long ``plan`` will take, by the newest comparable one of the earlier ``runs`` of its command."""
    rough = rough_seconds(plan, workers)
    verb = plan.command.split(maxsplit=1)[0]
    for run in reversed(list(runs)):
        times = _predicted_and_actual(run, verb)
        if times is not None and times[0] * _SMALLER >= rough:
            return Expected(rough * times[1] / times[0], run.name)
    return Expected(rough, None)


def _predicted_and_actual(run: Run, verb: str) -> tuple[float, float] | None:
    """Return the seconds of a run by the figures, and its real ones; None if it did not end well or lacks them."""
    if run.damage is not None or run.state not in _KINDS or run.seconds is None:
        return None
    first: dict[str, Any] = run.events[0]
    rough = first.get(ROUGH_EVENT_MEMBER)
    if isinstance(rough, bool) or not isinstance(rough, (int, float)) or not 0 < rough < math.inf:
        return None
    # A wipe and a restoration of the same size take times that have nothing in common.
    if first["command"].split(maxsplit=1)[:1] != [verb]:
        return None
    return float(rough), run.seconds
