"""Times as people write them: milliseconds, or ISO 8601.

Digits alone are milliseconds, unless they look like another way to write a time: ``20240501`` (a date; in milliseconds
05:37 of the first day of 1970), ``202405011200``, ``20240501120000``, ``1714521600`` (seconds). Those are refused, not
read as a time that was not meant; ``20240501ms`` says that milliseconds are.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from kstate_cli.formats.binary import MAX_I64

_NUMBER: Final = re.compile(r"([+-]?[0-9]{1,19})(ms)?")
_DATES: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_YEARS: Final = range(1900, 2200)
_SECONDS: Final = range(1_000_000_000, 2_500_000_000)
"""From 2001 to 2049, as seconds since 1970."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
FOREVER: Final = MAX_I64
"""The last millisecond."""


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of ``1700000000000`` or ``2023-11-14T22:13:20.5Z``; UTC where no zone is given.

    What is finer than a millisecond is cut off. Raises ValueError, for digits that may be another time than so many
    milliseconds too.
    """
    number = _NUMBER.fullmatch(text)
    if number is not None:
        time_ms = int(number[1])
        other = None if number[2] else _other_reading(number[1])
        if other is not None:
            raise ValueError(f"{text} may be {other}: write that, or {text}ms for milliseconds")
    else:
        # Python 3.10 does not know the Z.
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", _three_digits(text)))
        time_ms = ((at if at.tzinfo else at.replace(tzinfo=timezone.utc)) - _EPOCH) // _MILLISECOND
    if not -FOREVER - 1 <= time_ms <= FOREVER:
        raise ValueError(f"{text} does not fit 64 bits")
    return time_ms


def milliseconds(time: int) -> str:
    """A time as a number that :func:`parse_time` reads as that very time."""
    text = str(time)
    return text if _other_reading(text) is None else f"{text}ms"


def _other_reading(digits: str) -> str | None:
    """What digits may mean beside milliseconds, in ISO 8601."""
    if len(digits) == 10 and digits.isdigit() and int(digits) in _SECONDS:
        return f"{datetime.fromtimestamp(int(digits), timezone.utc):%Y-%m-%dT%H:%M:%SZ} in seconds"
    form = _DATES.get(len(digits))
    if form is None or not digits.isdigit():
        return None
    try:
        at = datetime.strptime(digits, form).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    if at.year not in _YEARS:
        return None
    return f"{at:%Y-%m-%d}" if len(digits) == 8 else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def show_time(time: int) -> str:
    """``2023-11-14T22:13:20.500Z``, which :func:`parse_time` reads; the number where no calendar has the time."""
    try:
        at = _EPOCH + time * _MILLISECOND
    except OverflowError:
        return str(time)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z" if at.year >= 1000 else str(time)


def _three_digits(text: str) -> str:
    """Seconds with three digits behind the point: Python 3.10 takes no other number of them."""
    return re.sub(r"([.,])(\d+)", lambda digits: "." + digits[2][:3].ljust(3, "0"), text)
