"""The time of day, spans of time, and the pace of work. Nothing else asks the system for the time, so tests can set it.

A pace does not depend on what is counted: bytes, records, rows. Its seconds are of one clock that never goes back.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import struct
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_NAMESPACE: Final = "/proc/self/ns/time"
# Four bytes of padding follow ``modes``: on the 64-bit ABI of Linux the longs behind it are aligned to eight.
_TIMEX: Final = struct.Struct("@i4xqqqqi")
"""The beginning of ``struct timex``: modes, offset, freq, maxerror in microseconds, esterror, status."""
# The kernel fills the whole structure, 208 bytes on 64-bit hosts. A shorter buffer would be overrun.
_TIMEX_BYTES: Final = 256
# STA_UNSYNC of <linux/timex.h>: no time daemon disciplines the clock, so its error has no bound.
_UNSYNCHRONIZED: Final = 0x0040
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now() -> datetime:
    """Return the time of day, in UTC."""
    return datetime.now(timezone.utc)


def now_seconds() -> float:
    """Return the time of day, in seconds since 1970."""
    return now().timestamp()


def now_ms() -> int:
    """Return the time of day, in whole milliseconds since 1970."""
    return int(now_seconds() * 1000)


def utc_text(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970, as ``2026-11-26T12:00:00Z``."""
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class BootTime:
    """A moment by a clock that cannot be set: it counts from the start of the host, and while the host sleeps."""

    boot: str
    """Which start of which host: moments of others cannot be compared."""
    ms: int


def boot_time() -> BootTime:
    """Return this moment by ``CLOCK_BOOTTIME``. A time namespace has a clock of its own."""
    # CLOCK_MONOTONIC stands still while the host sleeps: tombstones expire on the broker meanwhile all the same.
    return BootTime(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


@functools.cache
def _boot() -> str:
    start, namespace = _line(_BOOT_ID), _link(_NAMESPACE)
    if not start:
        # Without an id of the start no two processes can compare their moments, so each has an id of its own.
        return f"process {os.getpid()} {time.time_ns()}"
    # A container may have a clock that is shifted against that of its host (time_namespaces(7)).
    return f"{start} {namespace}".strip()


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
        # ``modes`` is 0 in a zeroed buffer: the call only reads, and needs no privilege.
        if ctypes.CDLL(None, use_errno=True).adjtimex(state) < 0:
            return None
    # AttributeError: a C library without the function. The error of the clock is unknown then.
    except (OSError, AttributeError):
        return None
    _modes, _offset, _frequency, max_error, _estimate, status = _TIMEX.unpack_from(state)
    if status & _UNSYNCHRONIZED:
        return None
    # Rounded up, because callers add it to an age: a bound of an error must never become smaller.
    return -(-int(max_error) // 1000)


def span(text: str) -> timedelta | None:
    """Return ``7d``, ``12h``, ``30m`` as a span of time; None for anything else."""
    # At most six digits: a timedelta overflows beyond 999,999,999 days.
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        return None
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


WINDOW_SECONDS: Final = 30.0
"""The rate is that of this window: work that gets slower shows, and a single slow moment does not."""
_STILL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of counted work."""

    count: int
    """Never less than at an earlier look, and never more than ``total``."""
    total: int
    per_second: float | None
    """None until there is progress to measure."""
    seconds_left: float | None
    """0 at the end; None until there is a rate."""

    @property
    def share(self) -> float:
        """Return the part of the work that is complete, from 0 to 1. Work without a size is complete."""
        if not self.total:
            return 1.0
        return self.count / self.total


class PaceMeter:
    """Measure the pace of work, from counts at several moments."""

    def __init__(self, total: int, now: float, *, already: int = 0) -> None:
        """Begin at ``now`` with ``total`` to do. ``already`` was counted before, and does not show in the rate."""
        self._total = max(0, total)
        self._count = self._bounded(already)
        self._looks: deque[tuple[float, int]] = deque([(now, self._count)])

    def at(self, count: int, now: float) -> Pace:
        """Return the pace at ``now``, with ``already`` in the count. A count that went back is no progress."""
        self._count = max(self._count, self._bounded(count))
        # The looks stay in order, so that no elapsed time is negative.
        now = max(now, self._looks[-1][0])
        self._looks.append((now, self._count))
        # One look from before the window stays: the rate needs a distance of at least the whole window.
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_SECONDS:
            self._looks.popleft()
        began, at_first = self._looks[0]
        elapsed, more = now - began, self._count - at_first
        # Without progress there is no rate: 0 would predict that the rest never ends.
        per_second = None
        if more and elapsed > _STILL:
            per_second = more / elapsed
        return Pace(self._count, self._total, per_second, _seconds_left(self._total - self._count, per_second))

    def _bounded(self, count: int) -> int:
        return min(max(0, count), self._total)


def _seconds_left(rest: int, per_second: float | None) -> float | None:
    if not rest:
        return 0.0
    return rest / per_second if per_second else None


def duration_text(seconds: float) -> str:
    """Return a duration as text, rounded up: ``8 s``, ``2 min 10 s``, ``3 h 05 min``, ``2 d 4 h``."""
    whole = max(0, math.ceil(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = math.ceil(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = math.ceil(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def pace_text(pace: Pace, amount: str, per_second: str | None) -> str:
    """Return ``1.0 GiB of 2.0 GiB (50 %), 200.0 MiB/s, 6 s left``, from the texts of the amount and of its rate."""
    parts = [f"{amount} ({math.floor(pace.share * 100)} %)"]
    if per_second is not None:
        parts.append(f"{per_second}/s")
    if pace.seconds_left is not None:
        parts.append(f"{duration_text(pace.seconds_left)} left")
    return ", ".join(parts)
