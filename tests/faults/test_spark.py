"""
A sample of the faults of `kstate restore` with real Spark, where the sweep has the slices made by kstate itself.

The calls are those of the driver: one while Spark runs, and those of the switch. The directory is then wholly the old or the
new one, nothing of Spark is left, and a run without Spark goes on where this one was. By default it is killed while Spark runs,
and finds the disk full at the announcement of the switch.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from .case import Case, Sweep
from .forked import environment
from .injection import EIO, FULL, KILL, Fault, Step
from .restorations import RESTORED
from .sweep import ALL, around_the_switch

STEPS = 9
"""From the opening of the journal for the announcement to the sync of the record."""
ANNOUNCED = 1
"""The announcement is written."""
_ENDS_WITHIN = 300


@pytest.fixture(scope="module")
def sweep(sweep_of: Callable[[Case], Sweep]) -> Sweep:
    """The lost directory; what it means before and after is what it means without Spark."""
    facts = sweep_of(RESTORED[0])
    command = [option for option in facts.case.command if option not in ("--engine", "local")]
    return replace(facts, case=replace(facts.case, command=(*command, "--master", "local[1,4]")))


def steps_of(sweep: Sweep) -> list[Step]:
    """Of the run without Spark: the driver writes the same journal."""
    near = [step for step in sweep.trace.steps if around_the_switch(step)]
    switch = next(i for i, step in enumerate(near) if step.call == "renameat2")
    return near[switch - 3 : switch - 3 + STEPS]


def while_spark_runs(sweep: Sweep) -> Step:
    """The first write into the journal once it says which slices there are."""
    runs = next(i for i, step in enumerate(sweep.trace.steps) if step.path.endswith(".started.tmp"))
    before = [step for step in sweep.trace.steps[:runs] if step.call == "write" and step.path.endswith("journal.jsonl")]
    return before[-1]


def processes_of(state: Path) -> list[str]:
    """Processes that have the temporary folder of this run: the JVM and its workers inherit it."""
    mark = f"TMPDIR={environment(state)['TMPDIR']}".encode()
    results = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                results.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return results


def struck(sweep: Sweep, number: int, step: Step, action: str) -> list[str]:
    """One fault and what follows. Returns what was wrong."""
    fault = Fault(step.call, step.nth_filtered, action)
    app, ended, happened = sweep.struck(fault, step, alone=True)  # Spark is not traced
    which = sweep.which(app)
    wrong = [] if happened else ["the fault did not happen"]
    deadline = time.monotonic() + _ENDS_WITHIN  # of one that was killed the JVM hears when its input ends
    while (lines := processes_of(app.parent)) and action == KILL and time.monotonic() < deadline:
        time.sleep(0.1)
    wrong += [f"still runs: {lines}"] if lines else []
    wrong += sweep.problems(app, ended, which, sweep.case.repairs[number % 2])
    print(f"{step} {action}: exit {ended.status}, {which}")
    shutil.rmtree(app.parent.parent)
    return [f"{step} {action}, directory was {which}: {'; '.join(wrong)}"] if wrong else []


@pytest.mark.in_full("tests/faults/test_sweep.py::test_whole_or_not_at_all")
def test_faults_with_real_spark(sweep: Sweep) -> None:
    steps = steps_of(sweep)
    assert steps[3].call == "renameat2"
    faults = [(while_spark_runs(sweep), KILL), (steps[ANNOUNCED], FULL)]
    if ALL:
        faults = [(step, action) for step in (while_spark_runs(sweep), *steps) for action in (EIO, FULL, KILL)]
    assert os.environ.get("PYSPARK_GATEWAY_PORT") is None
    wrong = [entry for i, (step, action) in enumerate(faults) for entry in struck(sweep, i, step, action)]
    assert not wrong, "\n\n".join(wrong)
