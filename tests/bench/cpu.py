"""Processor time of this process and all that it started."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)
"""Of what ``/proc/<pid>/stat`` says behind the name: ppid; utime, stime and those of the children that have ended."""


def cpu_seconds(root: int, without: Collection[int] = ()) -> float:
    """Of ``root`` and of everything below it, but not of what is below ``without``."""
    lines: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                lines[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
    below: dict[int, list[int]] = {}
    for pid, facts in lines.items():
        below.setdefault(int(facts[_PARENT]), []).append(pid)
    waiting, ticks = [root], 0
    while waiting:
        pid = waiting.pop()
        if pid in without or pid not in lines:
            continue
        ticks += sum(int(entry) for entry in lines[pid][_TIMES])
        waiting += below.get(pid, [])
    return ticks / _TICKS


def children(of: int) -> set[int]:
    """The processes that it has started and that still run."""
    results = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                facts = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(facts[_PARENT]) == of:
                results.add(int(entry.name))
    return results
