"""Times as people write them: milliseconds, or ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
FOREVER: Final = (1 << 63) - 1
"""The last millisecond."""


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of ``1700000000000`` or ``2023-11-14T22:13:20.5Z``; UTC where no zone is given.

    Digits alone are always milliseconds. What is finer than a millisecond is cut off. Raises ValueError.
    """
    if _NUMBER.fullmatch(text):
        found = int(text)
    else:
        # Python 3.10 does not know the Z.
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", _three_digits(text)))
        found = ((at if at.tzinfo else at.replace(tzinfo=timezone.utc)) - _EPOCH) // _MILLISECOND
    if not -FOREVER - 1 <= found <= FOREVER:
        raise ValueError(f"{text} does not fit 64 bits")
    return found


def show_time(time: int) -> str:
    """``2023-11-14T22:13:20.500Z``, which :func:`parse_time` reads; the number where no calendar has the time."""
    try:
        at = _EPOCH + time * _MILLISECOND
    except OverflowError:
        return str(time)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z" if at.year >= 1000 else str(time)


def _three_digits(text: str) -> str:
    """Seconds with three digits behind the point: Python 3.10 takes no other number of them."""
    return re.sub(r"([.,])(\d+)", lambda found: "." + found[2][:3].ljust(3, "0"), text)
