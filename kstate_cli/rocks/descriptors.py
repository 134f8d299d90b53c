"""How many files a process may have open: RocksDB holds one for each SST that it has read."""

from __future__ import annotations

import resource
import sys


def most_descriptors() -> int:
    """Asks for as many as the process may ask for, and tells how many it has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
