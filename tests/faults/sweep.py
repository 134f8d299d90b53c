"""Which faults a sweep does, and the record of what came of them, so that an interrupted sweep goes on where it was."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .case import Sweep
from .forked import ROOT
from .injection import ACTIONS, EIO, FULL, KILL, Step

ALL = os.environ.get("KSTATE_FAULTS") == "all"
LOG = os.environ.get("KSTATE_FAULTS_LOG")
"""A folder: every fault leaves a line there, and one that went well is not repeated until kstate changes."""
SPREAD = 2
"""So many steps of each kind of call that is not of the switch."""
AROUND_THE_SWITCH = ("openat", "write", "mkdir", "fsync", "syncfs", "renameat2")


def around_the_switch(step: Step) -> bool:
    """kstate's own journal, its folders, the syncs and the exchange; not the files that it makes in the new directory."""
    return step.own and step.call in AROUND_THE_SWITCH and "/tree" not in step.path


def faults(found: list[Step], *, every: bool) -> list[tuple[Step, str]]:
    """What is done to the steps of a case. Unless `every`: all of the switch fail and are killed, of the others a few."""
    if every:
        return [(step, action) for step in found for action in ACTIONS]
    chosen = []
    near = [step for step in found if around_the_switch(step)]
    for i, step in enumerate(near):
        chosen += [(step, (EIO, FULL)[i % 2]), (step, KILL)]
    for call in sorted({step.call for step in found}):
        others = [step for step in found if step.call == call and step not in near]
        spread = [others[(2 * i + 1) * len(others) // (2 * SPREAD)] for i in range(min(SPREAD, len(others)))]
        chosen += [(step, ((EIO, FULL)[len(call) % 2], KILL)[i % 2]) for i, step in enumerate(spread)]
    return chosen


def paths(found: list[Step], *, every: bool) -> list[str]:
    """Where it is shown that no call comes after the last one. Unless `every`: only around the switch."""
    return sorted({step.path for step in found if every or around_the_switch(step)})


def chunk(sweep: Sweep, number: int, chunks: int, *, every: bool) -> list[str]:
    """Do every fault whose step belongs to this chunk. Returns what was wrong."""
    wrong = []
    repairs = sweep.case.repairs
    for i, (step, action) in enumerate(faults(sweep.trace.steps, every=every)):
        repair = repairs[(i + i // len(ACTIONS)) % len(repairs)]
        work = functools.partial(sweep.fault, step, action, repair)
        if zlib.crc32(str(step).encode()) % chunks == number:
            wrong += _once(sweep.case.name, f"{step} {action}, then {repair.command[0]}", step.call, action, work)
    for path in paths(sweep.trace.steps, every=every):
        if zlib.crc32(path.encode()) % chunks == number:
            wrong += _once(
                sweep.case.name, f"{path} one more", "-", "one more", functools.partial(_one_more, sweep, path)
            )
    return wrong


def _one_more(sweep: Sweep, path: str) -> tuple[str, str]:
    return "new", sweep.completes(path)


def _once(case: str, name: str, call: str, action: str, work: Callable[[], tuple[str, str]]) -> list[str]:
    """Do something that no earlier run has recorded as good, and record it. Returns what was wrong."""
    key = f"{_code()} {case} {name}"
    if key in _done(case):
        return []
    begin = time.monotonic()
    which, wrong = work()
    seconds = round(time.monotonic() - begin, 2)
    if LOG is not None:
        row = {
            "key": key,
            "case": case,
            "call": call,
            "action": action,
            "directory": which,
            "wrong": wrong,
            "seconds": seconds,
        }
        folder = Path(LOG)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{case}-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
    return [f"{name}: directory was {which}: {wrong}"] if wrong else []


@functools.cache
def _code() -> str:
    """Changes whenever kstate or these tests do."""
    digest = hashlib.sha256()
    for folder in ("kstate_cli", "tests/faults"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def _done(case: str) -> frozenset[str]:
    if LOG is None:
        return frozenset()
    return frozenset(row["key"] for row in rows(Path(LOG)) if row["case"] == case and not row["wrong"])


def rows(folder: Path) -> list[dict[str, Any]]:
    """What a log folder has recorded; a line that was cut off does not count."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
