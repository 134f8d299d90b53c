"""What time it is. Nothing else here asks the system, so that a test can say it."""

from __future__ import annotations

from datetime import datetime, timezone


def now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(timezone.utc)


def now_seconds() -> float:
    """The time of day, in seconds since 1970."""
    return now().timestamp()


def now_ms() -> int:
    """The time of day, in whole milliseconds since 1970."""
    return int(now_seconds() * 1000)
