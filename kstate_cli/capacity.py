"""What this host, or the container that kstate runs in, has: memory and processors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")


def memory_here() -> int:
    """Physical memory in bytes, or the limit of the container (cgroup v2, v1) where that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (_CGROUPS / "memory.max", _CGROUPS / "memory/memory.limit_in_bytes"):
        text = _text(path)
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def cores_here() -> int:
    """Processors that this process may use, or the quota of the container (cgroup v2, v1) where that is less."""
    cores = len(os.sched_getaffinity(0))
    quota = _text(_CGROUPS / "cpu.max").split()
    if not quota:
        quota = [_text(_CGROUPS / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    if len(quota) == 2 and all(part.isdigit() for part in quota) and int(quota[1]):
        cores = min(cores, -(-int(quota[0]) // int(quota[1])))
    return max(1, cores)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
