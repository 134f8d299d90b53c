"""When the data of a store was written, by what its SSTs say of themselves.

No mtime: a copy makes it young. Not the column family ``offsets`` either: every start of 4.3 writes the offsets of
every task directory once more (``StateDirectory.initializeStartupStores``), and kstate writes it too, however old the
rows are. A store was at the end of its log when its newest row came, or later: that time is never too young.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kstate_cli import clock
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.sst import read_properties
from kstate_cli.rocks.files import is_sst
from kstate_cli.statedir.model import Store

_AHEAD_SECONDS = 86_400
"""What lies further in the future was not written by a clock that goes right, and tells nothing."""


@dataclass(frozen=True, slots=True)
class SstAge:
    """What the SSTs of a store say."""

    at_ms: int | None
    """The newest row was there at this time (ms since 1970) at the latest; None where no file tells."""
    identity: str
    """SHA-256 of the properties of all its SSTs: the same only for the very same files, copied or linked anywhere."""


def sst_age(store: Store) -> SstAge:
    """Reads the properties of every live SST of the data column families. What cannot be read tells nothing."""
    times, seen = [], []
    latest = clock.now_seconds() + _AHEAD_SECONDS
    for database in store.databases:
        for family, files in database.live.items():
            if family == OFFSETS_CF:
                continue
            for live in files:
                if not is_sst(live.name):
                    continue
                try:
                    with open(database.path / live.name, "rb") as file:
                        properties = read_properties(file)
                except (MalformedBytesError, OSError):
                    seen.append(f"{database.segment_start} {family} {live.name} unreadable")
                    continue
                seen.append(
                    f"{database.segment_start} {family} {hashlib.sha256(properties.raw).hexdigest()} {live.size}"
                )
                if properties.newest_data is not None and properties.newest_data <= latest:
                    times.append(properties.newest_data * 1000)
    digest = hashlib.sha256("\n".join(sorted(seen)).encode())
    return SstAge(max(times, default=None), digest.hexdigest())
