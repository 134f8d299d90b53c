"""How many files a process may have open: RocksDB holds one for each SST that it has read."""

from __future__ import annotations

import sys

from kstate_cli.host import raise_descriptor_limit


def most_descriptors() -> int:
    """Ask for as many as the process may ask for, and return how many it has now."""
    limit = raise_descriptor_limit()
    return sys.maxsize if limit is None else limit
