"""Which faults a sweep does, and the record of what came of them, so that an interrupted sweep goes on where it was."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstate_cli.change.marks import MARKS

from .case import Case, Repair, Sweep
from .forked import ROOT
from .injection import ACTIONS, EIO, FULL, KILL, Fault, Step

ALL = os.environ.get("KSTATE_FAULTS") == "all"
LOG = os.environ.get("KSTATE_FAULTS_LOG")
"""A folder: every fault leaves a line there, and one that went well is not repeated until kstate changes."""
SPREAD = 2
"""So many steps of each kind of call that is not of the switch."""
AROUND_THE_SWITCH = ("openat", "write", "mkdirat", "fsync", "syncfs", "renameat2")


def around_the_switch(step: Step) -> bool:
    """kstate's own journal, lists, marks and folders, the syncs and the exchange; not the other files of the new directory."""
    own = ("/tree" not in step.path and "/runs/" not in step.path) or step.path.endswith(tuple(MARKS))
    return step.own and step.call in AROUND_THE_SWITCH and own


CREATING = ("openat", "write", "sendfile", "mkdir", "mkdirat", "link", "linkat", "ftruncate", "rename", "renameat")
"""In short, these meet the full disk and the others the broken one."""


@dataclass(frozen=True)
class Job:
    """One fault of one case."""

    case: Case
    step: Step
    fault: Fault
    repair: Repair

    @property
    def key(self) -> str:
        """Its name in the log."""
        return f"{_code()} {self.case.name}: {self.step.place} #{self.fault.nth} {self.fault.action}, {self.repair.command[0]}"


def jobs(sweep: Sweep, *, every: bool) -> list[Job]:
    """
    What is done to the steps of a case.

    Unless `every`: those of the switch are killed and fail by turns, next to the exchange both; of the others a few. Or
    only this case's share.
    """
    steps = sweep.trace.steps
    if sweep.case.share is not None and not every:
        return _jobs(sweep, _share_of(steps, *sweep.case.share))
    near = [step for step in steps if every or around_the_switch(step)]
    if every:
        choice = [(step, action) for step in near for action in ACTIONS]
    else:
        nearest = _next_to_the_exchange(near)
        choice = [
            (step, action)
            for i, step in enumerate(near)
            for action in ((KILL, _error(step)) if step in nearest else ((KILL, _error(step))[i % 2],))
        ]
    for call in sorted({step.call for step in steps} if not every else ()):
        others = [step for step in steps if step.call == call and step not in near]
        spread = [others[(2 * i + 1) * len(others) // (2 * SPREAD)] for i in range(min(SPREAD, len(others)))]
        choice += [(step, (_error(step), KILL)[i % 2]) for i, step in enumerate(spread)]
    return _jobs(sweep, choice)


def _share_of(steps: list[Step], number: int, count: int) -> list[tuple[Step, str]]:
    """The part of case `number` of `count`: steps of the switch, kinds of calls before it; they fail and are killed by turns."""
    near = [step for step in steps if around_the_switch(step)]
    choice = _next_to_the_exchange(near)[number::count]
    for call in sorted({step.call for step in steps})[number::count]:
        others = [step for step in steps if step.call == call and step not in near]
        choice += others[len(others) // 2 :][:1]
    return [(step, (KILL, _error(step))[i % 2]) for i, step in enumerate(choice)]


def _next_to_the_exchange(near: list[Step]) -> list[Step]:
    """From the announcement in the journal, over the exchange, to its record."""
    switch = next((i for i, step in enumerate(near) if step.call == "renameat2"), 3)  # clean has none
    return near[switch - 3 : switch + 6]


def _jobs(sweep: Sweep, rows: list[tuple[Step, str]]) -> list[Job]:
    repairs = sweep.case.repairs
    return [
        Job(
            sweep.case,
            step,
            Fault(step.call, step.nth_filtered, action),
            repairs[(i + i // len(ACTIONS)) % len(repairs)],
        )
        for i, (step, action) in enumerate(rows)
    ]


def _error(step: Step) -> str:
    return FULL if step.call in CREATING else EIO


def learn_sweep(sweep: Sweep) -> Sweep:
    """The sweep with its undisturbed run, which processes that share a log make once."""
    path = Path(LOG) / f"{_code()}-{sweep.case.name}.pickle" if LOG else None
    if path is not None and path.exists():
        sweep.old, sweep.new, sweep.trace, sweep.digests = pickle.loads(path.read_bytes())
        return sweep
    sweep.learn()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps((sweep.old, sweep.new, sweep.trace, sweep.digests)))
        partial.rename(path)
    return sweep


def chunk(sweeps: list[tuple[Sweep, bool]], number: int, chunks: int) -> list[str]:
    """Do the part of all jobs that belongs to this chunk. Returns what was wrong."""
    wrong = []
    for sweep, every in sweeps:
        for job in jobs(sweep, every=every):
            if zlib.crc32(str(job.step).encode()) % chunks == number and job.key not in _good_keys():
                begin = time.monotonic()
                which, subject = sweep.strike(job.fault, job.step, job.repair)
                _record(job, which, subject, time.monotonic() - begin)
                if subject:
                    wrong.append(f"{job.key}: directory was {which}: {subject}")
    return wrong


def _record(job: Job, which: str, wrong: str, seconds: float) -> None:
    if LOG is None:
        return
    row = {"key": job.key, "case": job.case.name, "call": job.fault.call, "action": job.fault.action, "directory": which,
           "wrong": wrong, "seconds": round(seconds, 2)}  # fmt: skip
    folder = Path(LOG)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


@functools.cache
def _code() -> str:
    """Changes whenever kstate or these tests do."""
    digest = hashlib.sha256()
    for folder in ("kstate_cli", "tests/faults"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def _good_keys() -> frozenset[str]:
    if LOG is None:
        return frozenset()
    return frozenset(row["key"] for row in rows(Path(LOG)) if not row["wrong"])


def rows(folder: Path) -> list[dict[str, Any]]:
    """What a log folder has recorded; a line that was cut off does not count."""
    results = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                results.append(json.loads(line))
            except ValueError:
                continue
    return results
