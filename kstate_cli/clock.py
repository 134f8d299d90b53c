"""What time it is, and how spans of it are written. Nothing else here asks the system, so that a test can say it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(timezone.utc)


def now_seconds() -> float:
    """The time of day, in seconds since 1970."""
    return now().timestamp()


def now_ms() -> int:
    """The time of day, in whole milliseconds since 1970."""
    return int(now_seconds() * 1000)


def utc_text(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970, as ``2026-11-26T12:00:00Z``."""
    moment = datetime.fromtimestamp(milliseconds // 1000, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def span(text: str) -> timedelta | None:
    """``7d``, ``12h``, ``30m`` as a span of time; None for anything else."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})
