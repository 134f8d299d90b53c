"""Whether whoever goes on reading a compacted log hears of every delete.

A tombstone lives ``delete.retention.ms`` after the cleaner has first come by it; then nothing in the log says that the
row is gone. A store that is as its log was at some time is continued safely only by a reading that ends so soon after.
The rules: docs/internals/changelogs.md#forgotten-deletes.
"""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from typing import Final

RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``."""
_MOST_MARGIN_MS: Final = 3_600_000
_MARGIN: Final = 10
"""Clocks differ, and reading is noted a little before or after it is done: a tenth, and at most an hour."""
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


class Heard(Enum):
    """Whether every delete was heard of."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def heard(as_of_ms: int | None, ended_ms: int | None, retention_ms: int) -> Heard:
    """Of data as of one time, continued by a reading that ended at another (ms since 1970)."""
    if as_of_ms is None or ended_ms is None:
        return Heard.UNKNOWN
    return Heard.YES if ended_ms - as_of_ms <= most_ms(retention_ms) else Heard.NO


def most_ms(retention_ms: int) -> int:
    """How long after what it continues a reading may end, and still hear of every delete."""
    return retention_ms - _margin(retention_ms)


def set_back(as_of_ms: int, ended_ms: int, retention_ms: int) -> bool:
    """Whether a clock was set back between two times, by more than clocks differ: how much passed is not known then."""
    return ended_ms < as_of_ms - _margin(retention_ms)


def _margin(retention_ms: int) -> int:
    return min(retention_ms // _MARGIN, _MOST_MARGIN_MS)


def shown(duration_ms: int) -> str:
    """A duration for people, in the largest unit of which there are at least two."""
    for size, name in _UNITS:
        if duration_ms >= 2 * size:
            return f"{duration_ms // size} {name}"
    return f"{duration_ms} ms"


def moment(at_ms: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(" ", "seconds").removesuffix("+00:00") + " UTC"
