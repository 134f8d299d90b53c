"""Values that queries return, and their text and JSON: nothing is guessed, and different values look different.

======================  ======================================================================================
value                   JSON
======================  ======================================================================================
bytes                   ``{"base64": "…"}``
int                     a number with all its digits
NaN, ±Infinity          the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``: JSON has no such numbers
date, time, UUID,       a string
Decimal, enum member
dataclass               an object; a windowed key is ``{"key": …, "start": …, "end": …}``
======================  ======================================================================================

As text, bytes are printable ASCII, with ``\\xNN`` for all others and ``\\\\`` for the backslash.

Times are milliseconds or ISO 8601. Digits alone are milliseconds, unless they look like another form of a time:
``20240501`` (a date; as milliseconds 05:37 of the first day of 1970), ``202405011200``, ``20240501120000``,
``1714521600`` (seconds). kstate refuses those. ``20240501ms`` states that milliseconds are meant.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from kstate_cli import clock
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.values import UNKNOWN_TIMESTAMP, Header

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ValueAndTimestamp(Generic[V]):
    """A value, its timestamp (ms; -1 if the row has none, as in sessions) and its headers in stores with them."""

    value: V
    timestamp: int
    headers: tuple[Header, ...] = ()


def timestamp_or_none(timestamp: int) -> int | None:
    """Return None for the timestamp of a row that was written without one."""
    if timestamp == UNKNOWN_TIMESTAMP:
        return None
    return timestamp


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[V]):
    """One version: valid from ``timestamp`` until before ``valid_to``; None for the latest."""

    value: V
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a key or value that cannot be read: its bytes if they are available, and the reason."""

    data: bytes | None
    why: str


@dataclass(frozen=True, slots=True)
class Windowed(Generic[K]):
    """A key and its window in ms. The end of a session is inclusive. That of a window may be unknown: None."""

    key: K
    start: int
    end: int | None


def _byte_text(byte: int) -> str:
    if byte == 0x5C:
        return "\\\\"
    if 0x20 <= byte < 0x7F:
        return chr(byte)
    return f"\\x{byte:02x}"


# A table, because a scan of millions of rows prints every byte through it.
_BYTE_TEXTS: Final = tuple(map(_byte_text, range(256)))
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(\\)|)")


def bytes_text(data: bytes) -> str:
    r"""Return bytes as text that :func:`text_bytes` reads: ``alice``, ``\x00\x00\x00\x2a``, ``a\\b``."""
    return "".join(map(_BYTE_TEXTS.__getitem__, data))


def text_bytes(text: str) -> bytes:
    r"""Return the bytes of a text: UTF-8, with ``\xNN`` and ``\\``. Raise ValueError for another backslash."""
    out = bytearray()
    end = 0
    for escape in _ESCAPE.finditer(text):
        out += text[end : escape.start()].encode("utf-8")
        end = escape.end()
        if escape[1] is not None:
            out.append(int(escape[1], 16))
        elif escape[2] is not None:
            out += b"\\"
        else:
            raise ValueError(f"the backslash at {escape.start()} begins neither \\xNN nor \\\\")
    return bytes(out + text[end:].encode("utf-8"))


def base64_bytes(text: str) -> bytes:
    """Return the bytes of standard base64. Raise ValueError."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"the text is not base64: {error}") from None


def jsonable(value: Any) -> Any:
    """Return the value in types of ``json.dumps``. Raise ValueError for a type without a form in JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": binascii.b2a_base64(value, newline=False).decode("ascii")}
    # A member of an Enum may also be an int or a str. JSON gets its value, which is handled below.
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    return _compound(value)


def _compound(value: Any) -> Any:
    """Return a value with members as JSON can show it. Raise ValueError for one that has no such form."""
    try:
        if isinstance(value, Windowed):
            return {"key": jsonable(value.key), "start": value.start, "end": value.end}
        if isinstance(value, Mapping):
            # The names in a JSON object must be strings.
            return {_name(key): jsonable(member) for key, member in value.items()}
        if isinstance(value, (list, tuple, AbstractSet)):
            return [jsonable(member) for member in value]
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    except RecursionError:
        raise ValueError("the value is nested too deeply for JSON") from None
    raise ValueError(f"a {type(value).__name__} has no JSON representation, so its serde needs a render method")


def as_text(value: Any) -> str:
    """Return a value of JSON as a cell: a string unchanged, anything else as JSON on one line."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    if value > 0:
        return "Infinity"
    return "-Infinity"


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        # The form in which people type bytes. In base64, the name could not be used as an argument of a command.
        return bytes_text(key)
    if isinstance(key, str):
        return key
    return as_text(jsonable(key))


_NUMBER: Final = re.compile(r"([+-]?[0-9]{1,19})(ms)?")
_DATES: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_YEARS: Final = range(1900, 2200)
_SECONDS: Final = range(1_000_000_000, 2_500_000_000)
"""From 2001 to 2049, as seconds since 1970."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
_DAYS: Final = {"today": 0, "yesterday": 1}
"""Words for a day -> how many days ago."""
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
FOREVER: Final = MAX_I64
"""The last millisecond."""


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of ``1700000000000`` or ``2023-11-14T22:13:20.5Z``; UTC without a time zone.

    Fractions of a millisecond are cut off. Raises ValueError, also for digits that may be another form of a time.
    """
    number = _NUMBER.fullmatch(text)
    if number is not None:
        time_ms = int(number[1])
        if not number[2] and (other := _other_reading(number[1])) is not None:
            # The two meanings are decades apart, and a query gives a result for either. A wrong guess would not be
            # noticed.
            raise ValueError(f"{text} may also be {other}. Write that time or {text}ms for milliseconds")
    else:
        # fromisoformat of Python 3.10 does not accept Z for UTC.
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", _three_digits(text)))
        if at.tzinfo is None:
            # UTC and not the time zone of this host: the same command must select the same rows on every host.
            at = at.replace(tzinfo=timezone.utc)
        time_ms = (at - _EPOCH) // _MILLISECOND
    # Streams compares times as longs, so others cannot be compared with its times.
    if not -FOREVER - 1 <= time_ms <= FOREVER:
        raise ValueError(f"{text} does not fit into 64 bits")
    return time_ms


def parse_moment(text: str, now_ms: int, *, is_end: bool) -> int:
    """Return milliseconds since 1970 as :func:`parse_time`, or of a time that counts from ``now_ms``, in UTC.

    ``now``; ``-1d`` or ``-30m``: so long ago; ``12:00`` or ``12:00:30``: today. ``today`` and ``yesterday`` are whole
    days: their first millisecond, or their last if ``is_end``. Raises ValueError.
    """
    word = text.strip().lower()
    if word == "now":
        return now_ms
    # -30m is a time ago. Without a unit it is a negative number, so a time before 1970.
    if word.startswith("-") and (ago := clock.span(word[1:])) is not None:
        return now_ms - ago // _MILLISECOND
    midnight = now_ms // _DAY_MS * _DAY_MS
    if word in _DAYS:
        start = midnight - _DAYS[word] * _DAY_MS
        if is_end:
            return start + _DAY_MS - 1
        return start
    if _CLOCK.fullmatch(word):
        at = time.fromisoformat(word)
        return midnight + timedelta(hours=at.hour, minutes=at.minute, seconds=at.second) // _MILLISECOND
    return parse_time(text)


def milliseconds(time_ms: int) -> str:
    """Return a time as a number that :func:`parse_time` reads as that very time."""
    text = str(time_ms)
    if _other_reading(text) is None:
        return text
    return f"{text}ms"


def _other_reading(digits: str) -> str | None:
    """Return the other time that the digits may mean, in ISO 8601; None if they can only be milliseconds."""
    if len(digits) == 10 and digits.isdigit() and int(digits) in _SECONDS:
        return f"{datetime.fromtimestamp(int(digits), timezone.utc):%Y-%m-%dT%H:%M:%SZ} in seconds"
    form = _DATES.get(len(digits))
    if form is None or not digits.isdigit():
        return None
    try:
        at = datetime.strptime(digits, form).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    # No store has data of this year, so the digits can only be milliseconds.
    if at.year not in _YEARS:
        return None
    if len(digits) == 8:
        return f"{at:%Y-%m-%d}"
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def show_time(time_ms: int) -> str:
    """Return ``2023-11-14T22:13:20.500Z``, which :func:`parse_time` reads; the number if no calendar has the time."""
    try:
        at = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return str(time_ms)
    if at.year < 1000:
        # strftime writes such years with fewer than four digits, which nothing reads as a year.
        return str(time_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def _three_digits(text: str) -> str:
    """Return seconds with three digits after the point: Python 3.10 accepts no other number of them."""
    return re.sub(r"([.,])(\d+)", lambda digits: "." + digits[2][:3].ljust(3, "0"), text)
