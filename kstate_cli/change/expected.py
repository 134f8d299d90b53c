"""How long a run will roughly take: by figures that were measured elsewhere, put right by how former runs went here.

The journal of a run keeps what the figures alone said of it (``rough_seconds``). How long it took beside that is what
this machine, its disk and these stores make of the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.change.build import BuildStore
from kstate_cli.change.journal import Run, RunState
from kstate_cli.change.plan import EditDatabase, Plan

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
