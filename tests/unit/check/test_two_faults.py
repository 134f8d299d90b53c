"""Two stores of one task, each with its own fault: Streams decides about the task, so each changes what the other gets.

The expectation is a model of its own (``StreamTask.initializeIfNeeded``, ``DefaultStateUpdater``), by three questions:
does a logged store lack its offset, is an offset outside its log, and is each of those above the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from kstate_cli.check.codes.layout import SEGMENT_OFF_GRID
from kstate_cli.check.codes.offsets import NO_OFFSETS, OFFSET_MISSING
from kstate_cli.check.findings import Outcome
from kstate_cli.check.tasks import judge_task
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age
from kstate_cli.statedir.model import Store
from tests.unit.model import changelog, database, store, task

from .builders import OLD, log, snapshot

MINUTES = 60_000
OFF_GRID = (10 * MINUTES, 20 * MINUTES, 30 * MINUTES + 7)


@dataclass(frozen=True)
class Fault:
    """What is wrong with one store, and what Streams makes of it alone, at least once."""

    offset: int | None
    log: tuple[int, int]
    alone: Outcome
    starts: tuple[int, ...] = ()

    @property
    def lacks_offset(self) -> bool:
        return self.offset is None

    @property
    def above(self) -> bool:
        return self.offset is not None and self.offset >= self.log[1]

    @property
    def outside(self) -> bool:
        return self.above or (self.offset is not None and 0 <= self.offset < self.log[0] - 1)

    def store(self, name: str) -> Store:
        if self.starts:
            return store(name, *(database(name, start=at) for at in self.starts), kind="window", segmented=True)
        return store(name, database(name))


FAULTS = {
    "none": Fault(99, (0, 100), Outcome.OPENS),
    "behind": Fault(50, (0, 100), Outcome.RESTORES),
    "below": Fault(50, (60, 100), Outcome.RESTORES_ALL),
    "above": Fault(50, (0, 20), Outcome.RESTORES_ALL),
    "unknown": Fault(OFFSET_UNKNOWN, (0, 100), Outcome.RESTORES_ALL),
    "no-offset": Fault(None, (0, 100), Outcome.RESTORES_ALL),
    "off-grid": Fault(None, (0, 100), Outcome.RESTORES_ALL, OFF_GRID),
}
WIPES = {"no-offset": OFFSET_MISSING, "off-grid": SEGMENT_OFF_GRID}
"""The finding that names why a task is wiped."""
STORES = ("count", "other")


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("names", list(product(FAULTS, repeat=2)), ids="-".join)
def test_fault_of_a_store_affects_the_other_store(names: tuple[str, str], exactly_once: bool) -> None:
    faults = [FAULTS[name] for name in names]
    logs: list[Log] = [log(changelog(name), *fault.log) for name, fault in zip(STORES, faults, strict=True)]
    lines = {
        changelog(name): fault.offset for name, fault in zip(STORES, faults, strict=True) if fault.offset is not None
    }
    counts = {
        (log.key, at): log.end - at
        for log in logs
        if log.start is not None and log.end is not None
        for at in range(log.start, log.end + 1)
    }
    subject = task(*(fault.store(name) for name, fault in zip(STORES, faults, strict=True)), lines=lines)
    ages = {("0_0", name): Age(f"0_0/{name}", {}, None) for name in STORES}
    view = snapshot(subject, to=OLD, exactly_once=exactly_once, logs=logs, counts=counts, ages=ages)
    predictions = judge_task(view, view.app.tasks[0]).predictions
    assert [prediction.store for prediction in predictions] == list(STORES)

    missing = [name for name, fault in zip(names, faults, strict=True) if fault.lacks_offset]
    outside = [fault for fault in faults if fault.outside]
    if exactly_once and missing:
        assert {prediction.outcome for prediction in predictions} == {Outcome.WIPED}
        assert {prediction.code for prediction in predictions} <= {*(WIPES[name] for name in missing), NO_OFFSETS}
        assert {prediction.or_else for prediction in predictions} == {None}
    elif outside:
        assert {prediction.outcome for prediction in predictions} == {
            Outcome.WIPED if exactly_once else Outcome.RESTORES_ALL
        }
        # Beyond the end a start may win the race: the log has grown past the offset when it is asked for.
        race = Outcome.OPENS if all(fault.above for fault in outside) else None
        assert {prediction.or_else for prediction in predictions} == {race}
    else:
        assert [prediction.outcome for prediction in predictions] == [fault.alone for fault in faults]
