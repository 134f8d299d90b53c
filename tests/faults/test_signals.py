"""
SIGTERM and SIGINT at every step around the switch: the directory is wholly the old one or wholly the new one, the exit code
says which signal it was, and the next command ends what was begun.

A signal is sent to the process, as `kill`, systemd and the interrupt key do it, while strace holds the main thread at the
entry of the call: any thread may take it, and RocksDB has left some.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from kstate_cli.change.marks import UNDOING
from tests.sampling import rotated

from .case import Case, Sweep
from .cases import IN_PARTS
from .forked import Moment
from .injection import Step
from .sweep import ALL, around_the_switch

HELD_MS = 100
"""So long the call is held at first; the signal is sent as soon as strace shows it."""
MOST_HELD_MS = 256_000
CALLS = ["write", "fsync", "renameat2", "fsync", "fsync", "write", "fsync", "fsync"]
"""The announcement, the exchange, its syncs, the record, the sync of the directory that its mark has left."""
NUMBERS = (signal.SIGTERM, signal.SIGINT)


def steps_of(sweep: Sweep) -> dict[Step, str]:
    """The steps around the switch, and which directory a signal there leaves."""
    steps = [step for step in sweep.trace.steps if around_the_switch(step)]
    switch = next(i for i, step in enumerate(steps) if step.call == "renameat2")
    # From the announcement in the journal (opened, written, synced) signals wait until the switch is recorded, and from
    # the mark before it where a kept directory goes back.
    memory = switch - 2
    while steps[memory - 1].path.endswith(UNDOING):
        memory -= 1
    assert [step.call for step in steps[switch - 2 :]] == CALLS, steps
    return {step: "new" if i >= memory else "old" for i, step in enumerate(steps)}


def send_signal(
    sweep: Sweep, step: Step, number: signal.Signals, target: str, after: int, held_ms: int = HELD_MS
) -> list[str]:
    """Send a signal when the command is about to make this call. Returns what was wrong."""
    app = sweep.fresh()
    sent = 0.0

    def send(pid: int) -> None:
        nonlocal sent
        os.kill(pid, number)
        sent = time.time()

    text = f"inject={step.call}:delay_enter={held_ms}ms:when={step.nth_filtered}"
    moment = Moment(step.call, step.nth_filtered, send)
    with sweep.kstate.under("-ttt", "-P", step.argument, "-e", f"trace={step.call}", "-e", text) as kstate:
        ended = kstate(app, sweep.case.command, moment)
    came = moment.came(ended.traced)
    if came is not None and sent - came > held_ms / 1000:
        # On a busy host this process came to its turn when the call had ended.
        assert held_ms < MOST_HELD_MS, "no signal was sent in time"
        return send_signal(sweep, step, number, target, after, 4 * held_ms)
    which = sweep.which(app)
    wrong = [] if sent else ["the call never came"]
    if ended.status != 128 + number or "Traceback" in ended.output:
        wrong.append(f"exit {ended.status}: {ended.output[-800:]}")
    if which != target:
        wrong.append(f"the directory is {which}, not {target}")
    return wrong + sweep.repaired(app, sweep.case.repairs[after % 2])


EACH_KIND = ("down-kv", "undo-up-kv")
"""To what is around the switch, the direction is nothing."""
CASES = [case for case in IN_PARTS if case.name in (*EACH_KIND, *(("up-kv", "undo-down-kv") if ALL else ()))]


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_signal_at_each_step_of_the_switch(sweep_of: Callable[[Case], Sweep], case: Case) -> None:
    sweep = sweep_of(case)
    wrong = []
    for i, (step, target) in rotated([*enumerate(steps_of(sweep).items())], 3, "signals at the switch"):
        for number in NUMBERS if ALL else (NUMBERS[i % 2],):
            results = send_signal(sweep, step, number, target, i)
            if results:
                wrong.append(f"{number.name} at {step}: {'; '.join(results)}")
    assert not wrong, "\n\n".join(wrong)
