"""
Whatever fails, and whenever kstate is killed: the application directory is wholly the old one or wholly the new one, the
release that it is for reads in it what it read before, and the next command brings it to either end.

One undisturbed run tells the system calls; from them the faults are generated, one run for each. That these were all is shown
by two more runs: one through the same filter of paths that faults are met by, in which no call comes after the last one
of its kind, and one that is traced from the very start. By default the calls around the switch
(journal, syncs, exchange) are killed and fail by turns, next to the exchange both; of every other kind of call a few, spread over the run, in the
smallest directories; those with all kinds of stores, and the cases of `restore`, share one of each, of which each commit does
a part. KSTATE_FAULTS=all also does every call with EIO, with ENOSPC from there on, and with SIGKILL:
about an hour on two cores for migrate, undo, clean, wipe and rehome, and two more for restore. With
KSTATE_FAULTS_LOG=FOLDER an interrupted sweep goes on where it was, and `python -m tests.faults FOLDER` counts.
KSTATE_FAULTS_CASES=wipe,undo-down sweeps only the cases whose names begin so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sampling import rotated

from .case import Case, Sweep
from .cases import IN_PARTS, SHARED, SMALLEST, WHOLE
from .injection import parse, trace_of, traced_by_path, traced_from_the_start
from .restorations import RESTORED, RESTORED_IN_PARTS
from .sweep import ALL, around_the_switch, chunk, jobs

CHUNKS = 60 if ALL else 6
"""So many tests share the faults, so that several processes can take part."""
CASES = tuple(os.environ.get("KSTATE_FAULTS_CASES", "").split(","))

SweepOf = Callable[[Case], Sweep]


@pytest.mark.rotating(6)
@pytest.mark.timeout(3600)  # an interrupted chunk would leave an answer of the zygote to the next one
@pytest.mark.parametrize("number", range(CHUNKS))
def test_whole_or_not_at_all(sweep_of: SweepOf, number: int) -> None:
    others = (*rotated(SHARED, 5, "faults of large directories"), *rotated(RESTORED, 2, "faults of restorations"))
    cases = [(case, False) for case in (*SMALLEST, *others)]
    if ALL:
        # A wipe has no parts: its directory keeps every store but those that it is asked to move out. Nor has a rehome.
        cases = [(case, case.command[0] in ("wipe", "rehome")) for case in (*WHOLE, *RESTORED)]
        cases += [(case, True) for case in (*IN_PARTS, *RESTORED_IN_PARTS)]
    sweeps = [(sweep_of(case), every) for case, every in cases if case.name.startswith(CASES)]
    wrong = chunk(sweeps, number, CHUNKS)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", [*WHOLE, *(RESTORED if ALL else RESTORED[:1])], ids=lambda case: case.name)
def test_the_trace_shows_every_call(sweep_of: SweepOf, case: Case) -> None:
    sweep = sweep_of(case)
    steps = sweep.trace.steps
    assert sum(step.call == "renameat2" for step in steps) == (0 if case.command[0] == "clean" else 1)
    assert any(around_the_switch(step) for step in steps)
    assert set(trace_of(sweep.kstate, sweep.fresh(), case.command).steps) == set(steps)
    filtered = traced_by_path(sweep.kstate, sweep.fresh(), case.command, sweep.trace)
    for place in {step.place for step in steps}:
        assert 0 < filtered.most(place.call, place.path) <= sweep.trace.most(place.call, place.path), place
    assert set(traced_from_the_start(sweep.fresh(), case.command).steps) == set(steps)


def test_files_are_synced_before_their_announcement(sweep_of: SweepOf) -> None:
    """After the last change of the new directory its file system, then each list and its folder, then the announcement."""
    steps = [
        f"{step.call} {step.path.partition('/0001-migrate')[2]}".strip()
        for step in sweep_of(SMALLEST[0]).trace.steps
        if step.path.startswith(".kstate/") or step.call == "renameat2"
    ]
    synced = steps.index("syncfs")
    assert any(step.startswith("openat /tree/") for step in steps[:synced])
    assert not any("/tree" in step for step in steps[synced:])
    lists = [f"{call} /{name}.json" for name in ("staged", "kept", "made") for call in ("write", "fsync")]
    # The folder of the run: the names of its lists must outlive a power failure too.
    announced = ["fsync", "write /journal.jsonl", "fsync /journal.jsonl", "renameat2"]
    behind = [step for step in steps[synced + 1 :] if step.split()[0] in ("write", "fsync", "renameat2")]
    assert behind[: len(lists) + len(announced)] == [*lists, *announced]


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["down", "up"])
def test_the_parts_make_every_call_of_the_whole(sweep_of: SweepOf, way: str) -> None:
    whole = next(case for case in WHOLE if case.name == way)
    parts = [case for case in IN_PARTS if case.name.startswith(f"{way}-")]
    swept = {str(job.step) for case in parts for job in jobs(sweep_of(case), every=True)}
    assert {str(step) for step in sweep_of(whole).trace.steps} <= swept


def test_calls_are_counted_as_the_filter_of_strace_counts_them() -> None:
    """A name relative to a directory is another argument than the same path written in full."""
    log = """\
7 openat(5</s/app>, "000004.log", O_WRONLY|O_CREAT|O_EXCL, 0644) = 9</s/app/000004.log>
7 openat(AT_FDCWD</work>, "/s/app/000004.log", O_RDONLY|O_CLOEXEC) = 9</s/app/000004.log>
7 openat(AT_FDCWD</work>, "/s/app/000004.log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 9</s/app/000004.log>
7 openat(6</s/other>, "000004.log", O_WRONLY|O_CREAT|O_EXCL, 0644) = 8</s/other/000004.log>
7 fsync(9</s/app/000004.log>) = 0
7 fsync(5</s/app>) = 0
"""
    steps = {(str(step), step.argument, step.nth_filtered) for step in parse(log, Path("/s")).steps}
    assert steps == {
        ("openat app/000004.log #1", "000004.log", 1),
        ("openat app/000004.log #3", "/s/app/000004.log", 2),
        ("openat other/000004.log #1", "000004.log", 2),
        ("fsync app/000004.log #1", "/s/app/000004.log", 1),
        ("fsync app #1", "/s/app", 1),
    }
