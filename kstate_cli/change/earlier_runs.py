"""What earlier runs ended in: after a failure a cron job must not wipe or restore in a loop.

Restorations write their state (KIP-696, KIP-728) to the journal; wipes and migrations have none. A restoration that
ended in ERROR, or three in a row whose process died, stand in the way of the next restoration or wipe until somebody
says ``--after-error``, or a restoration ends well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.folder import read_runs, understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.plan import BuildStore, EditDatabase, Plan
from kstate_cli.errors import Refused
from kstate_cli.texts import command

STATE_EVENT = "state"
INTERRUPTED: Final = "INTERRUPTED"
"""Of a restoration whose process died: no state that it writes itself."""
_ERROR = "ERROR"
_NOT_RUNNING = "NOT_RUNNING"
_ENDED = frozenset({_ERROR, _NOT_RUNNING})
_SWITCHED = frozenset({RunState.KEPT, RunState.UNDOING, RunState.UNDONE, RunState.CLEANING})
_INTERRUPTED_AT_MOST = 3


def state_of(run: Run) -> str | None:
    """The state that a restoration wrote last; None for other runs.

    Where its process died before its switch: ``INTERRUPTED``. After it nothing was left to restore: ``NOT_RUNNING``,
    whatever it had still written.
    """
    state = run.last(STATE_EVENT).get("state")
    if state is None:
        return None
    # Who lives to see a run fail writes its last state; a run that was swept by another command has none.
    if state not in _ENDED and run.state is RunState.FAILED:
        return INTERRUPTED
    if state not in _ENDED and run.state in _SWITCHED:
        return _NOT_RUNNING
    return str(state)


def refuse_after_error(app: Path, *, after_error: bool) -> None:
    """Refuses where the last restoration ended in ERROR, or three in a row were interrupted. Raises Refused."""
    if after_error:
        return
    runs = [run for run in understood(read_runs(app)) if state_of(run) is not None]
    if not runs:
        return
    last = runs[-1]
    hint = "fix the cause, then run the command again with --after-error"
    more = [f"what the runs did: {command('status', app)}"]
    if state_of(last) == _ERROR:
        raise Refused(
            f"run {last.name} ended in ERROR: {last.last('failed').get('why', 'no reason recorded')}",
            hint=hint,
            hint_details=more,
        )
    if _interrupted(runs) >= _INTERRUPTED_AT_MOST:
        raise Refused(
            f"the last {_INTERRUPTED_AT_MOST} runs were interrupted, {last.name} the last of them",
            hint=hint,
            hint_details=more,
        )


def _interrupted(runs: Sequence[Run]) -> int:
    count = 0
    for run in reversed(runs):
        if state_of(run) != INTERRUPTED:
            break
        count += 1
    return count


ROUGH_EVENT_MEMBER: Final = "rough_seconds"
"""Of the line ``created``."""
RECORDS_EVENT: Final = "sorted"
"""A note of a restoration: how many ``records`` it has made sorted files of, without those of a run before it."""
_MIB: Final = 1024 * 1024
_RUN: Final = 1.0
_DATABASE: Final = 0.08
"""Seconds for opening, editing and verifying one database: 200 in 7.6 s with two at once."""
_REWRITTEN: Final = 90 * _MIB
"""Bytes a second and worker: 2 GiB in 10.9 s with two at once."""
_RESTORED: Final = 50 * _MIB
"""Bytes of records a second and worker, of key-value stores: 20 M records of 100 bytes in 20 s with two at once."""
_SMALLER: Final = 10
"""A run that was expected to take so many times less tells nothing: what it took was its beginning and its end."""
_KINDS: Final = frozenset({RunState.KEPT, RunState.UNDONE})
_SHORT: Final = 10


@dataclass(frozen=True, slots=True)
class Expected:
    """A rough time."""

    seconds: float
    like: str | None
    """The run that it is reckoned by; None where only figures from elsewhere are known."""

    @property
    def rounded(self) -> int:
        """In seconds, upwards, and to two digits: it is no better known than that. At least ten."""
        whole = max(_SHORT, math.ceil(self.seconds))
        unit: int = 10 ** (len(str(whole)) - 2)
        return math.ceil(whole / unit) * unit

    @property
    def is_short(self) -> bool:
        """Not worth a number."""
        return self.seconds < _SHORT


@dataclass(frozen=True, slots=True)
class Rate:
    """How quick a restoration was."""

    per_second: float
    """Records, of the whole run: until its switch."""
    run: str


def measured_rate(runs: Iterable[Run], records: int) -> Rate | None:
    """The rate of the newest restoration that can tell how long ``records`` take; None where there is none.

    It is that of kstate, on this machine: a start of Streams, which writes record by record, is slower.
    """
    for run in reversed(list(runs)):
        done = run.last(RECORDS_EVENT).get("records")
        if run.damage is not None or run.state not in _KINDS or not run.seconds:
            continue
        if type(done) is int and done > 0 and done * _SMALLER >= records:
            return Rate(done / run.seconds, run.name)
    return None


def rough_seconds(plan: Plan, workers: int) -> float:
    """By the figures alone (docs/performance.md), with so many databases at once."""
    restored = sum(step.size for step in plan.steps if isinstance(step, BuildStore))
    rewritten = sum(step.rewritten_bytes for step in plan.steps if isinstance(step, EditDatabase))
    databases = plan.databases + sum(1 for step in plan.steps if isinstance(step, BuildStore))
    work = databases * _DATABASE + rewritten / _REWRITTEN + restored / _RESTORED
    return _RUN + work / max(1, min(workers, databases))


def expected(plan: Plan, workers: int, runs: Iterable[Run]) -> Expected:
    """How long ``plan`` will take, by the newest of the former ``runs`` of its command that can tell."""
    rough = rough_seconds(plan, workers)
    verb = plan.command.split(maxsplit=1)[0]
    for run in reversed(list(runs)):
        told = _told(run, verb)
        if told is not None and told[0] * _SMALLER >= rough:
            return Expected(rough * told[1] / told[0], run.name)
    return Expected(rough, None)


def _told(run: Run, verb: str) -> tuple[float, float] | None:
    """What a run was to take by the figures, and what it took; None where it ended otherwise, or does not say."""
    if run.damage is not None or run.state not in _KINDS or run.seconds is None:
        return None
    first: dict[str, Any] = run.events[0]
    rough = first.get(ROUGH_EVENT_MEMBER)
    if isinstance(rough, bool) or not isinstance(rough, (int, float)) or not 0 < rough < math.inf:
        return None
    if first["command"].split(maxsplit=1)[:1] != [verb]:
        return None
    return float(rough), run.seconds
