"""What time it is, and how spans of it are written. Nothing else here asks the system, so that a test can say it."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_NAMESPACE: Final = "/proc/self/ns/time"
_TIMEX: Final = struct.Struct("@i4xqqqqi")
"""The beginning of ``struct timex``: modes, offset, freq, maxerror in microseconds, esterror, status."""
_TIMEX_BYTES: Final = 256
_UNSYNCHRONIZED: Final = 0x0040
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
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class BootTime:
    """A moment by a clock that nobody can set: it counts from the start of the host, and while the host sleeps."""

    boot: str
    """Which start of which host: moments of others cannot be compared."""
    ms: int


def boot_time() -> BootTime:
    """Return this moment by ``CLOCK_BOOTTIME``. A time namespace has a clock of its own."""
    return BootTime(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


@functools.cache
def _boot() -> str:
    start, namespace = _line(_BOOT_ID), _link(_NAMESPACE)
    # Without its id a start of the host is no other process's.
    return f"{start} {namespace}".strip() if start else f"process {os.getpid()} {time.time_ns()}"


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def max_error_ms() -> int | None:
    """Return how far the time of day may be wrong, by ``adjtimex``; None if the kernel calls it not synchronized."""
    state = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(state) < 0:
            return None
    except (OSError, AttributeError):
        return None
    _modes, _offset, _frequency, max_error, _estimate, status = _TIMEX.unpack_from(state)
    return None if status & _UNSYNCHRONIZED else -(-int(max_error) // 1000)


def span(text: str) -> timedelta | None:
    """``7d``, ``12h``, ``30m`` as a span of time; None for anything else."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})
