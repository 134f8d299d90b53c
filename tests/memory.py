"""The most memory that this process has had, and what the system has left."""

from __future__ import annotations

import re
from pathlib import Path


def peak_bytes() -> int:
    """Of this program alone: ``getrusage`` also counts what the process had before ``execve``, as a copy of its parent."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
    assert match
    return int(match[1]) * 1024


def available_bytes() -> int:
    """Return what programs can still have, without swapping: free memory, and what caches would release."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)
    assert match
    return int(match[1]) * 1024
