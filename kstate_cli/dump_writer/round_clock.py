"""The time of a dump: it never runs slower than a clock that nobody can set.

Whether a delete may be forgotten depends on how much time has passed between two readings. The broker's clock cannot be
read through librdkafka without writing a record, and a host's time of day can be set. So every manifest records both
the time of day and the time since the start of the host, and the next call takes the longer of the two. If it runs on
another host, or after a restart, only clocks that the kernel calls synchronized tell how much time has passed.
The rules: docs/internals/changelogs.md#time-of-a-dump.
"""

from __future__ import annotations

import secrets

from kstate_cli import clock
from kstate_cli.clock import BootTime
from kstate_cli.dump_reader.growing import Grown
from kstate_cli.dump_reader.model import ClockMark

_STEP_MS = 1


class RoundClock:
    """The clock of one round, on the scale of those before it: milliseconds since 1970, or somewhat more."""

    def __init__(self, grown: Grown | None) -> None:
        """Continue the time of the newest manifest; None for a dump that does not exist yet."""
        self._anchor = clock.boot_time()
        self._wall_ms = clock.now_ms()
        self._max_error_ms = clock.max_error_ms()
        before = None if grown is None else grown.clock
        self._scale = (before.scale if before is not None else "") or secrets.token_hex(8)
        self.why_unknown = None if grown is None else self._why_unknown(before)
        """Why nobody knows how much time has passed since the newest manifest; None if that is known."""
        self._base_ms = max(self._wall_ms, *self._bounds(grown, before))

    def now_ms(self) -> int:
        """Return the time of the dump."""
        return self.at(clock.boot_time()) or self._base_ms

    def at(self, moment: BootTime) -> int | None:
        """Return the time of the dump at a moment of this host; None for one of another host."""
        return None if moment.boot != self._anchor.boot else self._base_ms + max(0, moment.ms - self._anchor.ms)

    def mark(self) -> ClockMark:
        """Return what the next call continues."""
        now = clock.boot_time()
        return ClockMark(
            now.boot, now.ms, self.at(now) or self._base_ms, clock.now_ms(), clock.max_error_ms(), self._scale
        )

    def _why_unknown(self, before: ClockMark | None) -> str | None:
        if before is None:
            return "its manifest was written by a version that did not record it"
        if before.boot == self._anchor.boot:
            return None
        if before.max_error_ms is None or self._max_error_ms is None:
            return "another host made that call, or this one was restarted, and their clocks are not synchronized"
        return None

    def _bounds(self, grown: Grown | None, before: ClockMark | None) -> list[int]:
        """Return what the time is at least."""
        if grown is None:
            return [0]
        latest = max((one.latest_ms for one in grown.fulls), default=0) + _STEP_MS
        if before is None:
            return [latest]
        if before.boot == self._anchor.boot:
            return [latest, before.time_ms + self._anchor.ms - before.boot_ms]
        errors = (before.max_error_ms or 0) + (self._max_error_ms or 0)
        return [latest, before.time_ms + max(0, self._wall_ms - before.wall_ms) + errors]
